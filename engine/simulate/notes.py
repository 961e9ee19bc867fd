"""What is written down of a run while it goes on. Pure: elements and times come in; the pieces of a report are there at any time,
so that a run that is stopped has one too."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from engine.elements import (
    OutCommand,
    OutError,
    OutEvaluation,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    ResponseStatus,
    SpeechCut,
)
from engine.simulate.report import (
    Fault,
    Interruption,
    Line,
    Side,
    ToolUse,
    Understood,
    Verdict,
    Whisper,
    rounded,
)

Heard = Mapping[tuple[Side, str], str]
OPEN = "open"
"""The status of a response that has not ended."""


@attrs.define(eq=False)
class Response:
    """What one side says at once."""

    side: Side
    response_id: str
    turn_id: str
    at: float
    order: int
    sentences: list[str] = attrs.field(factory=list[str])
    status: str = OPEN
    cut_at: float | None = None
    """When it was interrupted: while it was made, or while it was heard."""

    @property
    def text(self) -> str:
        return " ".join(self.sentences)

    @property
    def was_cut(self) -> bool:
        """Interrupted, not broken off for a reason of its own."""
        return self.cut_at is not None and self.status in (OPEN, ResponseStatus.COMPLETED, ResponseStatus.CANCELLED)


@attrs.define(eq=False)
class SideNotes:
    """Of one session."""

    session_id: str = ""
    state: str = ""
    end_reason: str = ""
    warnings: list[str] = attrs.field(factory=list[str])
    first_words: list[float] = attrs.field(factory=list[float])
    asked_at: float | None = None
    """When the other side's last words were out; None when the answer has begun."""
    speaking: str = ""
    """The response that was begun last."""
    calls: dict[str, ToolUse] = attrs.field(factory=dict[str, ToolUse])


@attrs.define(eq=False)
class Notes:
    """Of both. Times are seconds since the run began."""

    is_spoken: bool = False
    tell: Callable[[Line], None] | None = None
    """Told each line when it is complete."""
    sides: dict[Side, SideNotes] = attrs.field(factory=lambda: {side: SideNotes() for side in Side}, init=False)
    responses: dict[tuple[Side, str], Response] = attrs.field(factory=dict[tuple[Side, str], Response], init=False)
    understood: list[Understood] = attrs.field(factory=list[Understood], init=False)
    steering: list[Whisper] = attrs.field(factory=list[Whisper], init=False)
    evaluations: list[Verdict] = attrs.field(factory=list[Verdict], init=False)
    errors: list[Fault] = attrs.field(factory=list[Fault], init=False)
    _order: int = attrs.field(default=0, init=False)
    """Of what is being written down."""

    def asked(self, side: Side, now: float) -> None:
        """The other side's words have reached this one, or it was asked for an opening: it is for this one to speak."""
        self.sides[side].asked_at = now

    def take(self, side: Side, element: OutputElement, now: float) -> None:
        self._order += 1
        match element:
            case OutToken():
                self._begin_to_speak(side, element.response_id, now, is_sound=False)
            case OutSpeech():
                if element.data:
                    self._begin_to_speak(side, element.response_id, now, is_sound=True)
            case OutText(text, turn_id, response_id):
                self._begin_to_speak(side, response_id, now, is_sound=False)
                self._response(side, response_id, turn_id, now).sentences.append(text)
            case SpeechCut(turn_id, response_id):
                self._response(side, response_id, turn_id, now).cut_at = now
            case OutTranscript(text, is_interim=False, is_synthetic=False):
                if self.is_spoken:
                    self.understood.append(Understood(at=rounded(now), side=side, text=text))
            case OutCommand():
                self._take_command(side, element, now)
            case OutEvaluation(name, score, reasons, data):
                if side is Side.AGENT:
                    verdict = Verdict(name=name, score=score, reasons=list(reasons), data=dict(data) if data else None)
                    self.evaluations.append(verdict)
            case OutError():
                fault = Fault(
                    at=rounded(now),
                    side=side,
                    code=element.code.value,
                    message=element.message,
                    whose=element.whose.value,
                    recoverable=element.recoverable,
                )
                self.errors.append(fault)
            case _:
                pass

    # --- the pieces of a report

    def lines(self, heard: Heard) -> list[Line]:
        """The transcript, in the order in which the lines began. `heard` is by side and response id; what is not in it was heard whole."""
        return [self._line(each, heard) for each in self._spoken()]

    def interruptions(self, heard: Heard) -> list[Interruption]:
        """What was cut, in the order in which it was."""
        cut = [(each.cut_at, each) for each in self.responses.values() if each.cut_at is not None and each.was_cut]
        return [
            Interruption(
                at=rounded(at),
                side=each.side,
                response_id=each.response_id,
                text=each.text,
                heard=heard.get((each.side, each.response_id), each.text),
            )
            for at, each in sorted(cut, key=lambda pair: pair[0])
        ]

    @property
    def tools(self) -> list[ToolUse]:
        """In the order in which they were called."""
        return sorted((call for side in Side for call in self.sides[side].calls.values()), key=lambda call: call.order)

    # --- elements

    def _begin_to_speak(self, side: Side, response_id: str, now: float, *, is_sound: bool) -> None:
        notes = self.sides[side]
        if is_sound != self.is_spoken or notes.speaking == response_id:
            return
        notes.speaking = response_id
        if notes.asked_at is not None:
            notes.first_words.append(rounded(max(0.0, now - notes.asked_at)))
            notes.asked_at = None

    def _response(self, side: Side, response_id: str, turn_id: str, now: float) -> Response:
        response = self.responses.get((side, response_id))
        if response is None:
            response = self.responses[side, response_id] = Response(side, response_id, turn_id, now, self._order)
        return response

    def _spoken(self) -> list[Response]:
        return sorted((each for each in self.responses.values() if each.sentences), key=lambda each: each.order)

    def _line(self, response: Response, heard: Heard) -> Line:
        return Line(
            at=rounded(response.at),
            order=response.order,
            side=response.side,
            text=response.text,
            heard=heard.get((response.side, response.response_id), response.text),
            status=ResponseStatus.CANCELLED.value if response.was_cut else response.status,
            response_id=response.response_id,
            turn_id=response.turn_id,
        )

    def _take_command(self, side: Side, command: OutCommand, now: float) -> None:
        notes, parameters = self.sides[side], command.parameters
        match command.name:
            case "ready":
                notes.session_id = str(parameters["sessionId"])
                notes.warnings += [str(warning) for warning in parameters["warnings"]]
            case "session-end":
                notes.session_id = notes.session_id or str(parameters["sessionId"])
                notes.state, notes.end_reason = str(parameters["state"]), str(parameters["reason"])
            case "response-end":
                self._end_response(side, command, now)
            case "realtime-instruction":
                if side is Side.AGENT:
                    kind, text = str(parameters["instructionType"]), str(parameters["text"])
                    self.steering.append(
                        Whisper(
                            at=rounded(now),
                            order=self._order,
                            kind="instruction",
                            instruction_type=kind,
                            text=text,
                            turn_id=command.turn_id,
                        )
                    )
            case "realtime-planning":
                if side is Side.AGENT:
                    text = str(parameters.get("text", ""))
                    self.steering.append(
                        Whisper(at=rounded(now), order=self._order, kind="planning", text=text, turn_id=command.turn_id)
                    )
            case "response-instruction-end":
                if side is Side.AGENT:
                    self._spoken_instruction(str(parameters.get("instructionId", "")), command.turn_id, now)
            case "tool-start" | "tool-success" | "tool-error":
                self._take_tool(side, command.name, parameters, command.turn_id, now)
            case _:
                pass

    def _end_response(self, side: Side, command: OutCommand, now: float) -> None:
        response_id = str(command.parameters["responseId"])
        response = self._response(side, response_id, command.turn_id, now)
        response.status = str(command.parameters["status"])
        if response.status == ResponseStatus.CANCELLED and response.cut_at is None:
            response.cut_at = now
        if self.tell is not None and response.sentences:
            self.tell(self._line(response, {}))

    def _spoken_instruction(self, instruction_id: str, turn_id: str, now: float) -> None:
        """The first of the turn's instructions that asked to be spoken and was not yet."""
        for index, whisper in enumerate(self.steering):
            if whisper.turn_id == turn_id and whisper.asks_to_speak and whisper.spoken_at is None:
                spoken = {"instruction_id": instruction_id, "spoken_at": rounded(now)}
                self.steering[index] = whisper.model_copy(update=spoken)
                return

    def _take_tool(self, side: Side, phase: str, parameters: Mapping[str, Any], turn_id: str, now: float) -> None:
        calls, call_id = self.sides[side].calls, str(parameters["callId"])
        call = calls.get(call_id)
        if call is None:
            call = calls[call_id] = ToolUse(
                at=rounded(now),
                order=self._order,
                side=side,
                name=str(parameters["name"]),
                owner=parameters["owner"],
                parameters=dict(parameters.get("parameters") or {}),
                call_id=call_id,
                turn_id=turn_id,
            )
        if phase == "tool-start":
            return
        outcome: dict[str, Any] = {"seconds": rounded(now - call.at)}
        if phase == "tool-success":
            outcome |= {"outcome": "success", "result": parameters.get("result")}
        else:
            outcome |= {"outcome": "error", "error": str(parameters.get("error"))}
        calls[call_id] = call.model_copy(update=outcome)
