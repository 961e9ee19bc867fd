"""`Conversation` driven by hand: what the service says goes in, what is done comes out. The official SDK is the referee both ways."""

import base64
import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import orjson

from engine.elements import (
    AnswerAgain,
    InputAudio,
    InstructionType,
    Interrupted,
    RealtimeElement,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    SpeechItem,
    Token,
    Transcript,
    UserSpeech,
)
from engine.errors import RealtimeException
from engine.interfaces import Message, SessionInput, TokenUsage, ToolCall, ToolSettled
from providers.openai.conversation import Conversation, Do, Emit, Fail, SendFrame, StartCall
from providers.openai.events import READ, EventReader
from providers.openai.properties import OpenAIProperties
from tests.providers.openai.simulator.gate import hold_client_event, hold_server_frame

Json = dict[str, Any]
MS = 48
"""Bytes of PCM in a millisecond."""


def pcm(ms: int) -> bytes:
    return b"\x01\x00" * (24 * ms)


@attrs.define(eq=False)
class Books:
    """A conversation that is connected, and everything it has done, in order."""

    properties: OpenAIProperties = attrs.field(factory=OpenAIProperties)
    text_only: bool = False
    locale: str = "en"
    connects: bool = True
    now: float = 0.0
    usage: TokenUsage = attrs.field(factory=TokenUsage)
    shielded: frozenset[str] = frozenset()
    did: list[Json | RealtimeElement | ToolCall | RealtimeException] = attrs.field(
        factory=list[Json | RealtimeElement | ToolCall | RealtimeException]
    )
    """Frames (as JSON), elements, calls and failures."""
    conversation: Conversation = attrs.field(init=False)
    _ids: "itertools.count[int]" = attrs.field(factory=lambda: itertools.count(1))
    _counters: dict[str, int] = attrs.field(factory=dict[str, int])
    _reader: EventReader = attrs.field(factory=EventReader)

    def __attrs_post_init__(self) -> None:
        self.conversation = Conversation(
            self.properties, self._new_id, self.locale, self.text_only, self.usage, self.shielded
        )
        if self.connects:
            self.connect()

    def _new_id(self, kind: str) -> str:
        self._counters[kind] = self._counters.get(kind, 0) + 1
        return f"{kind}-{self._counters[kind]}"

    def _note(self, todo: list[Do]) -> list[Json | RealtimeElement | ToolCall | RealtimeException]:
        done: list[Json | RealtimeElement | ToolCall | RealtimeException] = []
        for do in todo:
            match do:
                case SendFrame(frame):
                    event: Json = orjson.loads(frame)
                    hold_client_event(event)
                    done.append(event)
                case Emit(element):
                    done.append(element)
                case StartCall(call):
                    done.append(call)
                case Fail(error):
                    done.append(error)
        self.did += done
        return done

    # --- time and the connection

    def connect(self, *messages: Message) -> None:
        self._note(self.conversation.connected(messages, self.now))

    def lose(self, *, is_told: bool = True) -> None:
        self._note(self.conversation.lost(self.now, is_told=is_told))

    def wait(self, seconds: float) -> None:
        """Let time pass; whatever is due is done at its time."""
        end = self.now + seconds
        while (due := self.conversation.deadline(self.now)) is not None and due <= end:
            assert due >= self.now
            self.now = due
            self._note(self.conversation.tick(self.now))
            after = self.conversation.deadline(self.now)
            assert after is None or after > self.now, "the deadline was not dealt with"
        self.now = end

    # --- the engine

    def take(self, item: SessionInput) -> None:
        self._note(self.conversation.take(item, self.now))

    def say(self, text: str, provider: str = "Client") -> None:
        self.take(UserSpeech(text, provider))

    def again(self, text: str) -> None:
        self.take(AnswerAgain(text))

    def audio(self, ms: int = 20) -> None:
        """The short way, if it may go that: then nobody looks whether there is an earlier deadline now."""
        before = self.conversation.deadline(self.now)
        frame = self.conversation.append(pcm(ms), self.now)
        if frame is None:
            self.take(InputAudio(pcm(ms)))
            return
        self._note([SendFrame(frame)])
        after = self.conversation.deadline(self.now)
        assert after is None if before is None else after is None or after >= before

    def interrupt(self, response_id: str | None = None, heard_ms: int = 0, heard_text: str = "") -> None:
        self.take(Interrupted(response_id, heard_text, heard_ms))

    def instruct(
        self, text: str, kind: InstructionType = InstructionType.INSTRUCTION, *, ends_session: bool = False
    ) -> None:
        self._note(self.conversation.instruct(RealtimeInstruction(text, kind, ends_session=ends_session), self.now))

    def settle(self, call_id: str, output: str = "done", **more: Any) -> None:
        answer = next(each for each in self.did if isinstance(each, ToolCall) and each.call_id == call_id)
        self.take(ToolSettled(call_id, answer.name, answer.response_id, output, **more))

    def end_input(self) -> None:
        self._note(self.conversation.input_ended(self.now))

    # --- the service

    def receive(self, event_type: str, **fields: Any) -> None:
        event: Json = {"type": event_type, "event_id": f"event_{next(self._ids)}", **fields}
        frame = orjson.dumps(event).decode()
        hold_server_frame(frame)
        read = self._reader.read(frame)
        assert (read is not None) == (event_type in READ)
        if read is not None:
            self._note(self.conversation.receive(read, self.now))

    def created(self, response_id: str, answer: str | None = None) -> None:
        """A response begins; `answer` is what its request named, None for one that nobody asked for."""
        metadata = None if answer is None else {"answer": answer}
        self.receive("response.created", response=_response(response_id, "in_progress", metadata=metadata))

    def done(
        self,
        response_id: str,
        status: str = "completed",
        *,
        error: str | None = None,
        reason: str = "turn_detected",
        usage: tuple[int, int, int] | None = None,
    ) -> None:
        details: Json | None = None
        if status == "failed":
            details = {"type": "failed", "error": {"type": "server_error", "code": error}}
        elif status != "completed":
            details = {"type": status, "reason": reason if status == "cancelled" else "max_output_tokens"}
        used = None
        if usage is not None:
            details_of_input = {"cached_tokens": usage[2]}
            used = {"input_tokens": usage[0], "output_tokens": usage[1], "input_token_details": details_of_input}
        self.receive("response.done", response=_response(response_id, status, details, used))

    def item(self, response_id: str, item_id: str) -> None:
        """A message is begun."""
        item: Json = {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        self.receive("response.output_item.added", response_id=response_id, output_index=0, item=item)

    def item_done(self, response_id: str, item_id: str, status: str = "completed") -> None:
        item: Json = {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": []}
        self.receive("response.output_item.done", response_id=response_id, output_index=0, item=item)

    def words(self, response_id: str, text: str, item_id: str = "") -> None:
        kind = "output_text" if self.text_only else "output_audio_transcript"
        self.receive(f"response.{kind}.delta", delta=text, **_place(response_id, item_id))

    def sound(self, response_id: str, ms: int, item_id: str = "") -> None:
        delta = base64.b64encode(pcm(ms)).decode()
        self.receive("response.output_audio.delta", delta=delta, **_place(response_id, item_id))

    def speak(self, response_id: str, text: str, ms: int, item_id: str = "") -> None:
        """A whole message."""
        item_id = item_id or f"item_{response_id}"
        self.item(response_id, item_id)
        self.words(response_id, text, item_id)
        self.sound(response_id, ms, item_id)
        self.item_done(response_id, item_id)

    def call(
        self, response_id: str, call_id: str, name: str = "look", arguments: str = "{}", status: str = "completed"
    ) -> None:
        """A whole call."""
        item = {
            "id": f"item_{call_id}",
            "type": "function_call",
            "call_id": call_id,
            "name": name,
            "arguments": arguments,
            "status": status,
        }
        place = {"response_id": response_id, "output_index": 1}
        whole = {"item_id": item["id"], "call_id": call_id, "name": name, "arguments": arguments}
        self.receive("response.function_call_arguments.done", **place, **whole)
        self.receive("response.output_item.done", item=item, **place)

    def started(self, item_id: str) -> None:
        self.receive("input_audio_buffer.speech_started", audio_start_ms=0, item_id=item_id)

    def stopped(self, item_id: str) -> None:
        """The user has ended, and the utterance is committed."""
        self.receive("input_audio_buffer.speech_stopped", audio_end_ms=0, item_id=item_id)
        self.committed(item_id)

    def committed(self, item_id: str) -> None:
        self.receive("input_audio_buffer.committed", item_id=item_id)

    def heard(self, item_id: str, text: str) -> None:
        """All words of an utterance."""
        self.receive(
            "conversation.item.input_audio_transcription.completed",
            item_id=item_id,
            content_index=0,
            transcript=text,
            usage={"type": "duration", "seconds": 1.0},
        )

    def hears(self, item_id: str, text: str) -> None:
        """More words."""
        self.receive("conversation.item.input_audio_transcription.delta", item_id=item_id, content_index=0, delta=text)

    def not_heard(self, item_id: str, code: str | None = None) -> None:
        self.receive(
            "conversation.item.input_audio_transcription.failed",
            item_id=item_id,
            content_index=0,
            error={"type": "server_error", "code": code, "message": "no"},
        )

    def error(
        self, code: str | None, *, event_id: str | None = None, kind: str = "invalid_request_error", message: str = "no"
    ) -> None:
        self.receive("error", error={"type": kind, "code": code, "message": message, "event_id": event_id})

    def refuse_active(self) -> None:
        """The last request is refused: another response is active."""
        self.error("conversation_already_has_active_response", event_id=self.requests[-1]["event_id"])

    # --- what was done

    @property
    def frames(self) -> list[Json]:
        return [each for each in self.did if isinstance(each, dict)]

    @property
    def sent(self) -> list[str]:
        """The frames, in short."""
        return [short(frame) for frame in self.frames]

    @property
    def requests(self) -> list[Json]:
        return [frame for frame in self.frames if frame["type"] == "response.create"]

    @property
    def asked(self) -> list[str]:
        """The answers that were asked for."""
        return [frame["response"]["metadata"]["answer"] for frame in self.requests]

    @property
    def elements(self) -> list[RealtimeElement]:
        return [each for each in self.did if not isinstance(each, dict | ToolCall | RealtimeException)]

    @property
    def ends(self) -> list[tuple[str, str]]:
        return [(each.response_id, each.status.value) for each in self.elements if isinstance(each, ResponseEnd)]

    @property
    def finals(self) -> list[tuple[str, str]]:
        """Words, and the answer they name."""
        return [(t.text, t.response_id) for t in self.elements if isinstance(t, Transcript) and not t.is_interim]

    @property
    def errors(self) -> list[RealtimeError]:
        return [each for each in self.elements if isinstance(each, RealtimeError)]

    @property
    def calls(self) -> list[str]:
        return [each.call_id for each in self.did if isinstance(each, ToolCall)]

    @property
    def failures(self) -> list[RealtimeException]:
        return [each for each in self.did if isinstance(each, RealtimeException)]

    def said(self, answer: str) -> str:
        return "".join(each.text for each in self.elements if isinstance(each, Token) and each.response_id == answer)

    def sound_of(self, answer: str) -> int:
        """Milliseconds."""
        items = [each for each in self.elements if isinstance(each, SpeechItem) and each.response_id == answer]
        return sum(len(item.data) for item in items) // MS

    def since(self, mark: int) -> Sequence[str]:
        """Everything done since a place in `did`, in short."""
        return [short(each) for each in self.did[mark:]]


def _place(response_id: str, item_id: str) -> Json:
    item_id = item_id or f"item_{response_id}"
    return {"response_id": response_id, "item_id": item_id, "output_index": 0, "content_index": 0}


def _response(
    response_id: str, status: str, details: Json | None = None, usage: Json | None = None, metadata: Json | None = None
) -> Json:
    return {
        "object": "realtime.response",
        "id": response_id,
        "status": status,
        "status_details": details,
        "output": [],
        "usage": usage,
        "metadata": metadata,
    }


def short(each: Json | RealtimeElement | ToolCall | RealtimeException) -> str:
    """Something that was done, in a word or two."""
    match each:
        case {"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": call_id}}:
            return f"output {call_id}"
        case {"type": "conversation.item.create", "item": {"role": role, "content": [content]}}:
            return f"{role}: {content.get('text', content['type'])}"
        case {"type": "response.create", "response": {"metadata": {"answer": answer}}}:
            return f"ask {answer}"
        case {"type": "response.cancel", "response_id": response_id}:
            return f"cancel {response_id}"
        case {"type": "conversation.item.truncate", "item_id": item_id, "audio_end_ms": ms}:
            return f"truncate {item_id} {ms}"
        case {"type": "conversation.item.delete", "item_id": item_id}:
            return f"delete {item_id}"
        case {"type": event_type}:
            return str(event_type).removeprefix("input_audio_buffer.")
        case Transcript(text, is_interim=is_interim, response_id=response_id):
            return "interim" if is_interim else f"final {text!r} {response_id}".strip()
        case ResponseEnd(response_id, status):
            return f"end {response_id} {status}"
        case Token(text, response_id):
            return f"token {text!r} {response_id}"
        case ToolCall(call_id):
            return f"start {call_id}"
        case _:
            return type(each).__name__
