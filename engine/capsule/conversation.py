"""What client and agent said, of a capsule's records: the part of a timeline that is made of what the client sent and was told."""

from bisect import bisect_left
from collections import deque
from itertools import islice
from typing import cast

import attrs

from engine.capsule.items import MILLISECOND, MOST_TEXT, Items, Lane, link
from engine.capsule.loudness import Loudness
from engine.capsule.plainly import class_of, members, number_of, text_of
from engine.capsule.sounding import SPEECH_SECONDS, Sounding, speech_of, words_of
from engine.elements import InstructionType, JsonObject, SpeakingState, ToolPhase
from engine.observation import Outcome

MOST_TOKENS = 200_000
MOST_RESPONSES = 20_000
MOST_AT_ONCE = 20
"""Responses that one barge-in takes back."""
SAME_MOMENT = 0.01
"""Seconds in which a cancellation and what it ended are told."""
QUIET_COMMANDS = frozenset({"ready", "response-instruction-start", "response-instruction-end"})
INPUTS = {
    "Action": "action", "ControlToken": "control", "Image": "image", "Commit": "commit", "Sensory": "sensory",
    "BadInput": "unreadable",
}  # fmt: skip


@attrs.define(eq=False)
class Turn:
    """What the client was told of a turn."""

    at: float
    text: str = ""
    """What the user said."""
    spoken_at: float | None = None
    """When the user had ended."""
    latency: float | None = None
    exit_at: float | None = None
    why: str = ""
    responses: list[str] = attrs.field(factory=list[str])


@attrs.define(eq=False)
class Response:
    id: str
    turn_id: str
    at: float
    """Its first sign: a token, a sentence, or speech."""
    ended_at: float | None = None
    status: str = ""
    sentences: list[JsonObject] = attrs.field(factory=list[JsonObject])
    times: list[float] = attrs.field(factory=list[float])
    pieces: list[str] = attrs.field(factory=list[str])
    cut_at: float | None = None


@attrs.define(eq=False)
class Conversation:
    """Fed with what passed at the client's line, in its order."""

    items: Items
    configuration: JsonObject
    settings: JsonObject
    session_id: str = attrs.field(default="", init=False)
    loudness: Loudness = attrs.field(init=False)
    sounding: Sounding = attrs.field(init=False)
    turns: dict[str, Turn] = attrs.field(factory=dict[str, Turn], init=False)
    responses: dict[str, Response] = attrs.field(factory=dict[str, Response], init=False)
    _utterance: JsonObject | None = attrs.field(default=None, init=False)
    """Under way."""
    _typed: deque[JsonObject] = attrs.field(factory=deque[JsonObject], init=False)
    """Lines that were typed, and not taken up yet."""
    _quiet_at: float | None = attrs.field(default=None, init=False)
    """The user has stopped speaking, and nothing final has come yet."""
    _cuts: dict[str, JsonObject] = attrs.field(factory=dict[str, JsonObject], init=False)
    """What was taken back first of each response."""
    _open_passes: dict[str, list[JsonObject]] = attrs.field(factory=dict[str, list[JsonObject]], init=False)
    """By turn."""
    _began: list[float] = attrs.field(factory=list[float], init=False)
    """When each response did, in their order."""
    _tokens: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        rate = number_of(self.configuration.get("input_sample_rate"), 16000)
        is_mulaw = text_of(self.configuration.get("input_encoding")) == "mulaw"
        self.loudness = Loudness(int(min(max(rate, 1000), 200_000)), is_mulaw)
        speech_seconds = number_of(self.settings.get("outbox_speech_seconds"), SPEECH_SECONDS)
        self.sounding = Sounding(self.configuration.get("text_only") is True, speech_seconds)

    # --- what the client sent

    def received(self, at: float, element: object) -> None:
        if isinstance(element, bytes):
            self.loudness.add(at, element)
            return
        kind, of = class_of(element), members(element)
        match kind:
            case "InputText":
                self._typed.append(self.items.add(Lane.USER, at, "typed", text=self.items.text(of.get("text"))))
            case "Playback":
                self.sounding.playback(at, text_of(of.get("response_id")), min(number_of(of.get("played_ms")), 1e9))
            case _ if kind in INPUTS:
                name = text_of(of.get("name")) or text_of(of.get("message"))
                text = self.items.text(f"#{name}" if kind in ("Action", "ControlToken") else name or INPUTS[kind])
                item = self.items.add(Lane.EVENTS, at, INPUTS[kind], text=text)
                for member in ("parameters", "value", "code"):
                    self.items.detail(item, member, of.get(member))
            case _:
                pass

    # --- what the client was told

    def told(self, at: float, element: object) -> None:
        if isinstance(element, list):
            self._speech(at, cast("list[object]", element))
            return
        kind, of = class_of(element), members(element)
        turn_id, response_id = text_of(of.get("turn_id")), text_of(of.get("response_id"))
        if turn_id and turn_id not in self.turns:
            self.turns[turn_id] = Turn(at)
        name = ""
        item: JsonObject | None = None
        match kind:
            case "OutTranscript":
                self._transcript(at, of, turn_id)
            case "OutPartial":
                if self._utterance is not None:
                    self._utterance["text"] = self.items.text(of.get("text"))
            case "OutEmotion":
                self._emotion(at, of, turn_id)
            case "OutToken":
                self._token(at, of, turn_id, response_id)
            case "OutText":
                item = self._sentence(at, of, turn_id, response_id)
            case "OutCommand":
                name, parameters = text_of(of.get("name")), members(of.get("parameters"))
                response_id = text_of(parameters.get("responseId"))
                self._command(at, name, parameters, turn_id or text_of(parameters.get("turnId")))
            case "OutError":
                item = self._event(at, "error", f"{text_of(of.get('code'))}: {text_of(of.get('message'))}", "")
                for member in ("whose", "recoverable"):
                    self.items.detail(item, member, of.get(member))
            case "OutMultimodal" | "OutEvaluation":
                what = text_of(of.get("kind")) or "evaluation"
                item = self._event(at, what, f"{what} {text_of(of.get('name'))}", turn_id)
                for member in ("data", "score", "reasons"):
                    self.items.detail(item, member, of.get(member))
            case _:
                pass
        self.sounding.put(words_of(kind, name, turn_id, response_id), item)

    def _event(self, at: float, kind: str, text: str, turn_id: str) -> JsonObject:
        return self.items.add(Lane.EVENTS, at, kind, text=self.items.text(text), turn=turn_id)

    def _transcript(self, at: float, of: JsonObject, turn_id: str) -> None:
        text, provider = self.items.text(of.get("text")), text_of(of.get("provider"))
        if of.get("is_interim") is True:
            if of.get("is_synthetic") is True:
                return  # it opens the turn of something that was not spoken
            begun = self._open_utterance(at, turn_id)
            if text.strip(". "):
                begun["text"] = text
            return
        is_again, is_typed = of.get("is_synthetic") is True, provider == "Client"
        turn = self.turns.get(turn_id)
        utterance, self._utterance = self._utterance, None
        if is_typed and not is_again and self._typed:
            utterance = self._typed.popleft()
        elif utterance is None or is_again or is_typed:
            utterance = self.items.add(Lane.USER, at, "again" if is_again else "typed" if is_typed else "said")
        quiet_at, self._quiet_at = self._quiet_at, None
        utterance |= {"until": at, "text": text, "turn": turn_id}
        self.items.detail(utterance, "recognized by", provider)
        if quiet_at is not None:
            utterance["quiet"] = quiet_at
        if turn is not None and not turn.text:
            turn.text = text
            if not is_again:
                turn.spoken_at = at if quiet_at is None else quiet_at

    def _open_utterance(self, at: float, turn_id: str) -> JsonObject:
        if self._utterance is None:
            self._utterance = self.items.add(Lane.USER, at, "said", until=None)
        self._utterance["turn"] = turn_id
        return self._utterance

    def _emotion(self, at: float, of: JsonObject, turn_id: str) -> None:
        match text_of(of.get("state")):
            case SpeakingState.USER_SPEAKING:
                self._quiet_at = None
                self._open_utterance(at, turn_id)
            case SpeakingState.USER_NOT_SPEAKING if self._utterance is not None:
                self._quiet_at = at
            case _:
                pass

    def _response(self, at: float, turn_id: str, response_id: str) -> Response:
        response = self.responses.get(response_id)
        if response is None:
            response = Response(response_id, turn_id, at)
            if len(self.responses) >= MOST_RESPONSES:
                self.items.left_out["responses"] = self.items.left_out.get("responses", 0) + 1
                return response
            self.responses[response_id] = response
            self._began.append(at)
            self.turns.setdefault(turn_id, Turn(at)).responses.append(response_id)
        return response

    def _token(self, at: float, of: JsonObject, turn_id: str, response_id: str) -> None:
        response = self._response(at, turn_id, response_id)
        self._tokens += 1
        if self._tokens > MOST_TOKENS:
            self.items.left_out[Lane.TOKENS.value] = self._tokens - MOST_TOKENS
            return
        response.times.append(round(at, MILLISECOND))
        response.pieces.append(self.items.text(of.get("text"), 200))

    def _sentence(self, at: float, of: JsonObject, turn_id: str, response_id: str) -> JsonObject:
        response = self._response(at, turn_id, response_id)
        text = self.items.text(of.get("text"))
        sentence = self.items.add(Lane.WORDS, at, "sentence", text=text, turn=turn_id, response=response_id)
        sentence["offset"] = of.get("speech_ms")
        response.sentences.append(sentence)
        return sentence

    def _speech(self, at: float, of: list[object]) -> None:
        padded: list[object] = [*of, *[None] * 9]
        _, turn_id, response_id, rate, length, _, is_last, text, *_ = padded
        element = speech_of(
            text_of(turn_id), text_of(response_id), number_of(rate), number_of(length), text_of(text)[:MOST_TEXT],
            is_last=is_last is True,
        )  # fmt: skip
        if element.data:
            self._response(at, element.turn_id, element.response_id)
        self.sounding.put_speech(at, element)

    def cut(self, at: float, response_id: str, turn_id: str) -> None:
        """A barge-in took back what was unsent."""
        spoken = self.sounding.cut(at, response_id, turn_id)
        response = self.responses.get(response_id)
        if response is not None and response.cut_at is None:
            response.cut_at = at
        lost = 0.0 if spoken is None else spoken.queued - spoken.sent
        text = f"{lost:.1f} s of speech taken back unsent" if lost > 0 else "what was unsent was taken back"
        item = self.items.add(
            Lane.CANCELS, at, "taken-back", text=text, reason="", turn=turn_id, response=response_id,
            links=[f"{Lane.AGENT.value}:{response_id}"],
        )  # fmt: skip
        self._cuts.setdefault(response_id, item)

    def barged_in(self, at: float) -> None:
        """The user cut in: that is why what was taken back just now was."""
        for cancel in islice(reversed(self._cuts.values()), MOST_AT_ONCE):
            if cancel["at"] < at - SAME_MOMENT:
                break
            cancel["reason"] = cancel["reason"] or "barge-in"

    # --- commands

    def _command(self, at: float, name: str, of: JsonObject, turn_id: str) -> None:
        match name:
            case "ready":
                self.session_id = text_of(of.get("sessionId"))
                self._event(at, "ready", "the session is ready", "")
            case "response-end":
                self._response_over(at, text_of(of.get("responseId")), text_of(of.get("status")))
            case "tool-start" | "tool-success" | "tool-error":
                self._tool_told(at, name, of, turn_id)
            case "realtime-instruction":
                self._whisper_shown(at, of, turn_id)
            case "realtime-instruction-outcome":
                whisper = self.items.find(Lane.WHISPERS, text_of(of.get("instructionId")))
                if whisper is not None:
                    whisper |= {
                        "outcome": text_of(of.get("outcome")), "response": text_of(of.get("responseId")), "settled": at,
                    }  # fmt: skip
            case "planning-pass":
                self._pass(at, text_of(of.get("passId")), text_of(of.get("state")), turn_id)
            case "realtime-planning":
                self.items.detail(self._event(at, "plan", "a plan", turn_id), "plan", of.get("text"))
            case "exit":
                turn = self.turns.get(turn_id)
                if turn is not None:
                    turn.exit_at = at
                if self._utterance is not None and self._utterance.get("turn") == turn_id:  # it came to no words
                    self._utterance["until"], self._utterance = at, None
                if of.get("saved") is False:
                    self._event(at, "trouble", "the turn was not saved in time", turn_id)
            case _ if name not in QUIET_COMMANDS:
                self.items.detail(self._event(at, "command", name, turn_id), "parameters", of)
            case _:
                pass

    def _response_over(self, at: float, response_id: str, status: str) -> None:
        response = self.responses.get(response_id)
        if response is None:
            return
        response.ended_at, response.status = at, status
        turn = self.turns.get(response.turn_id)
        if turn is not None:
            turn.why = f"its answer was {status}" if status != "completed" else ""

    def tool(self, at: float, call_id: str, name: str) -> JsonObject:
        """The call of a tool, which is told in more than one way."""
        found = self.items.find(Lane.TOOLS, call_id)
        return found or self.items.add(Lane.TOOLS, at, "tool", call_id, text=name, until=None)

    def _tool_told(self, at: float, phase: str, of: JsonObject, turn_id: str) -> None:
        call = self.tool(at, text_of(of.get("callId")), text_of(of.get("name")))
        call |= {"turn": turn_id or call.get("turn", ""), "owner": text_of(of.get("owner"))}
        if phase == ToolPhase.START:
            self.items.detail(call, "parameters", of.get("parameters"))
            return
        call["until"] = at
        if phase == ToolPhase.SUCCESS:
            call["outcome"] = Outcome.OK.value
            self.items.detail(call, "result", of.get("result"))
        else:
            call |= {"outcome": Outcome.FAILED.value, "reason": self.items.text(of.get("error"))}

    # --- whispers and passes

    def _whisper(
        self, at: float, instruction_id: str, text: object, kind: str, turn_id: str, pass_id: str
    ) -> JsonObject:
        found = self.items.find(Lane.WHISPERS, instruction_id) if instruction_id else None
        if found is not None:
            return found
        is_context = kind == InstructionType.SUPPORTING_CONTEXT
        whisper = self.items.add(Lane.WHISPERS, at, "context" if is_context else "whisper", instruction_id)
        whisper |= {"text": self.items.text(text), "type": kind, "turn": turn_id, "pass": pass_id}
        return whisper

    def _whisper_shown(self, at: float, of: JsonObject, turn_id: str) -> None:
        kind, pass_id = text_of(of.get("instructionType")), text_of(of.get("passId"))
        self._whisper(at, text_of(of.get("instructionId")), of.get("text"), kind, turn_id, pass_id)

    def whisper_told(self, at: float, told: JsonObject) -> JsonObject:
        """The speaking model was told an instruction."""
        whisper = self._whisper(
            at,
            told.get("instruction", ""),
            told["text"],
            told.get("type", ""),
            told.get("turn", ""),
            told.get("pass", ""),
        )
        whisper["told"] = at
        whisper["until"] = max(at, whisper["at"])
        return whisper

    def _pass(self, at: float, pass_id: str, state: str, turn_id: str) -> None:
        name = f"{turn_id}/{pass_id}"
        found = self.items.find(Lane.PASSES, name)
        if found is None:
            self._leave_passes(at, turn_id, "", "another pass began")
            text = pass_id.removeprefix(f"{turn_id}/") or "planning"
            found = self.items.add(Lane.PASSES, at, "pass", name, text=text, turn=turn_id, until=None)
            found["pass"] = pass_id
            self._open_passes[turn_id] = [found]
            link(found, self.items.find(Lane.LEGS, f"{turn_id} planning"))
        if state == "planned":
            found |= {"until": at, "outcome": "planned"}

    def planning_over(self, at: float, leg: JsonObject) -> None:
        """What has written no plan by now never will."""
        cancelled = leg.get("outcome") == Outcome.CANCELLED
        outcome = Outcome.CANCELLED.value if cancelled else "no plan"
        for found in self._leave_passes(at, leg.get("turn", ""), outcome, leg.get("reason", "")):
            for each in leg["links"]:
                link(found, self.items.by_id.get(each))

    def _leave_passes(self, at: float, turn_id: str, outcome: str, reason: str) -> list[JsonObject]:
        left = [each for each in self._open_passes.pop(turn_id, []) if each["until"] is None]
        for each in left:
            each |= {"until": at, "outcome": outcome or "no plan", "reason": reason}
        return left

    # --- the end

    def response_began(self, response_id: str) -> float | None:
        response = self.responses.get(response_id)
        return None if response is None else response.at

    def response_after(self, at: float) -> str | None:
        """The first one that began then or later."""
        place = bisect_left(self._began, at)
        return next(islice(self.responses, place, None), None)

    def responses_shown(self) -> list[JsonObject]:
        return [
            {
                "id": each.id,
                "at": round(each.at, MILLISECOND),
                "until": round(each.at if each.ended_at is None else each.ended_at, MILLISECOND),
            }
            for each in self.responses.values()
        ]

    def finish(self, at: float) -> None:
        """Nothing follows: every response gets its items."""
        for response in self.responses.values():
            self._finish_response(at, response)
        is_spoken = any(each.queued for each in self.sounding.spoken.values())
        for turn in self.turns.values():
            if turn.spoken_at is not None:
                starts = (self._heard_from(each, is_spoken=is_spoken) for each in turn.responses)
                first = next((began for began in starts if began is not None), None)
                turn.latency = None if first is None else round(max(0.0, first - turn.spoken_at), MILLISECOND)

    def _heard_from(self, response_id: str, *, is_spoken: bool) -> float | None:
        """When the first of it left for the client: speech, or a word where nothing is spoken at all."""
        if not is_spoken:
            return self.responses[response_id].at
        spoken = self.sounding.spoken.get(response_id)
        return None if spoken is None else spoken.first_sent

    def _finish_response(self, now: float, response: Response) -> None:
        spoken = self.sounding.spoken.get(response.id)
        ended = response.at if response.ended_at is None else response.ended_at
        text = self.items.text(" ".join(each["text"] for each in response.sentences) or "".join(response.pieces))
        item = self.items.add(
            Lane.AGENT, response.at, "text", response.id, text=text, turn=response.turn_id, response=response.id,
            until=max(ended, response.at), outcome=response.status, made=response.at,
        )  # fmt: skip
        if response.times:
            self.items.add(
                Lane.TOKENS, response.times[0], "tokens", response.id, until=response.times[-1], turn=response.turn_id,
                response=response.id, times=response.times, pieces=response.pieces, links=[item["id"]],
            )  # fmt: skip
        for sentence in response.sentences:
            link(sentence, item)
        if response.cut_at is not None:
            item |= {"outcome": item["outcome"] or "cancelled", "cutAt": response.cut_at}
            if (cancel := self._cuts.get(response.id)) is not None:
                item["links"].append(cancel["id"])
                item["reason"] = cancel["reason"]
        if spoken is not None and spoken.queued:
            segments = [[round(start, MILLISECOND), round(end, MILLISECOND)] for start, end in spoken.segments]
            plays_until = segments[-1][1] if segments else response.at
            heard_until = min(plays_until, now if spoken.cut_at is None else spoken.cut_at)
            begins = segments[0][0] if segments else response.at
            heard = sum(max(0.0, min(end, heard_until) - start) for start, end in spoken.segments)
            item |= {
                "kind": "speech", "at": begins, "until": max(begins, heard_until), "segments": segments,
                "playsUntil": plays_until, "made": spoken.queued_at, "firstSent": spoken.first_sent,
                "lastSent": spoken.last_sent, "seconds": round(spoken.queued, 3), "sentSeconds": round(spoken.sent, 3),
                "heardSeconds": round(heard if spoken.heard is None else spoken.heard, 3),
                "unsentSeconds": round(max(0.0, spoken.queued - spoken.sent), 3),
            }  # fmt: skip
        self._place_sentences(response, item)

    def _place_sentences(self, response: Response, item: JsonObject) -> None:
        """Where each is spoken: at its place in the speech, when that is known, else when it was sent."""
        sentences = response.sentences
        segments = cast("list[list[float]]", item.get("segments", []))
        for sentence in sentences:
            offset = sentence.pop("offset", None)
            sentence["made"] = sentence["at"]
            if segments and isinstance(offset, int | float):
                sentence["at"] = _played_at(segments, number_of(offset) / 1000)
            elif "sent" in sentence:
                sentence["at"] = max(sentence["sent"], segments[0][0] if segments else 0.0)
            elif response.cut_at is not None:
                sentence["kind"] = "unsent"
        last: float = item.get("playsUntil") or item["until"]
        for number, sentence in enumerate(sentences):
            following = sentences[number + 1]["at"] if number + 1 < len(sentences) else last
            sentence["until"] = max(sentence["at"], following)


def _played_at(segments: list[list[float]], seconds: float) -> float:
    """When so much of a response's speech has been played."""
    for start, end in segments:
        if seconds < end - start:
            return round(start + seconds, MILLISECOND)
        seconds -= end - start
    return round(segments[-1][1] + seconds, MILLISECOND)
