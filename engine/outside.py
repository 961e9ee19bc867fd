"""The parts of a session that are outside it, met at its boundary.

Each of these gives the part itself while there is one, and what stands for it where nothing is outside: in a session that is run
again on what was kept of it.
"""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cache, lru_cache
from typing import Any, ClassVar, Self, cast

import attrs
import trio

from engine.boundary import PASSES, Boundary, Note, Outlet, Outside
from engine.config import RealtimeProperties
from engine.elements import (
    Action,
    AnswerAgain,
    Commit,
    Image,
    InputAudio,
    Interrupted,
    JsonObject,
    RealtimeElement,
    RealtimeInstruction,
    Sensory,
    UserSpeech,
)
from engine.interfaces import (
    ChatDelta,
    ChatModel,
    ChatRequest,
    Context,
    RealtimeSession,
    RecognitionElement,
    Recognizer,
    RecognizerInput,
    SessionInput,
    StartTool,
    Synthesizer,
    SystemPrompt,
    TokenUsage,
    ToolSettled,
    Voice,
)

NOTHING_OUTSIDE = "there is nothing outside"
MOST_NAMES = 64
"""Of parts whose class is kept: to the interpreter a class for each session would be something new each time."""


# --- chat models ------------------------------------------------------------------------------------------------------


def chat_at(boundary: Boundary, component: str, make: Callable[[], ChatModel]) -> ChatModel:
    """A chat model for one component. Raises ConfigurationError as `make` does."""
    if boundary is PASSES:
        return make()
    found: list[ChatModel] = []

    def look() -> tuple[str, bool]:
        found.append(make())
        return found[0].model or found[0].name, found[0].is_scripted

    model, is_scripted = boundary.know(Outside.CHAT, component, look)
    return found[0] if found else _NoChat(model, is_scripted)


@attrs.define(eq=False)
class _NoChat(ChatModel):
    name: ClassVar[str] = "Kept"
    model: str
    is_scripted: bool

    def open_stream(self, request: ChatRequest) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[ChatDelta]]:
        raise RuntimeError(NOTHING_OUTSIDE)


# --- speech -----------------------------------------------------------------------------------------------------------


def recognizer_at(boundary: Boundary, name: str, make: Callable[[], Recognizer]) -> Recognizer:
    """The engine's recognition of a session. Raises ConfigurationError as `make` does."""
    if boundary is PASSES:
        return make()
    found: list[Recognizer] = []

    def look() -> int:
        found.append(make())
        return found[0].sample_rate

    rate = boundary.know(Outside.RECOGNITION, name, look)
    return _recognizer_class(name)(boundary, rate, found[0] if found else None)


@lru_cache(MOST_NAMES)
def _recognizer_class(name: str) -> "type[_RecognizerAtBoundary]":
    return type("RecognizerAtBoundary", (_RecognizerAtBoundary,), {"name": name})


class _RecognizerAtBoundary(Recognizer):
    def __init__(self, boundary: Boundary, sample_rate: int, recognizer: Recognizer | None) -> None:
        self.sample_rate = sample_rate
        self._boundary = boundary
        self._recognizer = recognizer

    @property
    def is_ready(self) -> bool:
        return self._recognizer is None or self._recognizer.is_ready

    async def load(self) -> None:
        if self._recognizer is not None:
            await self._recognizer.load()

    async def run(  # noqa: ASYNC128 - the status is passed on
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        elements: trio.MemorySendChannel[RecognitionElement],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        recognizer = self._recognizer

        async def recognize(to: Outlet[RecognitionElement]) -> None:
            assert recognizer is not None, NOTHING_OUTSIDE
            await recognizer.run(audio, to.items, task_status=_Started(to.started))

        async with trio.open_nursery() as nursery:
            if recognizer is None:
                nursery.start_soon(_drain, audio, name="audio for nobody")
            to = Outlet(elements, task_status.started)
            await self._boundary.produce(Outside.RECOGNITION, self.name, to, recognize)
            nursery.cancel_scope.cancel(reason="the recognition is over")


class _Started(trio.TaskStatus[Any]):
    """Passes it on that something has started."""

    def __init__(self, started: Callable[[], None]) -> None:
        self._started = started

    def started(self, value: object = None) -> None:
        self._started()


async def _drain(channel: trio.MemoryReceiveChannel[Any]) -> None:
    async for _ in channel:
        pass


def synthesizer_at(boundary: Boundary, name: str, make: Callable[[], Synthesizer]) -> Synthesizer:
    """The speech of a session. Raises ConfigurationError as `make` does."""
    if boundary is PASSES:
        return make()
    found: list[Synthesizer] = []

    def look() -> int:
        found.append(make())
        return found[0].sample_rate

    rate = boundary.know(Outside.SYNTHESIS, name, look)
    return _synthesizer_class(name)(boundary, rate, found[0] if found else None)


@lru_cache(MOST_NAMES)
def _synthesizer_class(name: str) -> "type[_SynthesizerAtBoundary]":
    return type("SynthesizerAtBoundary", (_SynthesizerAtBoundary,), {"name": name})


class _SynthesizerAtBoundary(Synthesizer):
    def __init__(self, boundary: Boundary, sample_rate: int, synthesizer: Synthesizer | None) -> None:
        self.sample_rate = sample_rate
        self._boundary = boundary
        self._synthesizer = synthesizer

    @property
    def is_ready(self) -> bool:
        return self._synthesizer is None or self._synthesizer.is_ready

    async def load(self) -> None:
        if self._synthesizer is not None:
            await self._synthesizer.load()

    async def speak(self, text: str, voice: Voice, audio: trio.MemorySendChannel[bytes]) -> None:
        async def speak(to: Outlet[bytes]) -> None:
            assert self._synthesizer is not None, NOTHING_OUTSIDE
            await self._synthesizer.speak(text, voice, to.items)

        await self._boundary.produce(Outside.SYNTHESIS, self.name, Outlet(audio), speak, text)


# --- realtime models --------------------------------------------------------------------------------------------------


@attrs.frozen
class _SessionFacts:
    """What the engine looks at before a session runs."""

    makes_sentences: bool
    guards_text: bool
    properties: RealtimeProperties


def session_at(boundary: Boundary, name: str, make: Callable[[], RealtimeSession]) -> RealtimeSession:
    """A realtime session of which only what comes of it passes the boundary. Raises ConfigurationError as `make` does."""
    if boundary is PASSES:
        return make()
    found: list[RealtimeSession] = []

    def look() -> _SessionFacts:
        found.append(make())
        return _SessionFacts(found[0].makes_sentences, found[0].guards_text, found[0].properties)

    facts = boundary.know(Outside.MODEL, name, look)
    kind = _session_class(makes_sentences=facts.makes_sentences, guards_text=facts.guards_text)
    return kind(boundary, name, facts.properties, found[0] if found else None)


@cache
def _session_class(*, makes_sentences: bool, guards_text: bool) -> "type[_SessionAtBoundary]":
    """One for all sessions of that sort, as above."""
    known = {"makes_sentences": makes_sentences, "guards_text": guards_text}
    return type("SessionAtBoundary", (_SessionAtBoundary,), known)


class _SessionAtBoundary(RealtimeSession):
    def __init__(
        self, boundary: Boundary, name: str, properties: RealtimeProperties, session: RealtimeSession | None
    ) -> None:
        self.properties = properties
        self.usage = session.usage if session is not None else TokenUsage()
        self._boundary = boundary
        self._name = name
        self._session = session

    async def run(  # noqa: ASYNC128 - the status is passed on
        self,
        inputs: trio.MemoryReceiveChannel[SessionInput],
        elements: trio.MemorySendChannel[RealtimeElement],
        start_tool: StartTool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        session = self._session

        async def converse(to: Outlet[RealtimeElement]) -> None:
            assert session is not None, NOTHING_OUTSIDE
            await session.run(inputs, to.items, to.hand, task_status=_Started(to.started))

        async with trio.open_nursery() as nursery:
            if session is None:
                nursery.start_soon(_drain, inputs, name="inputs for nobody")
            to = Outlet(elements, task_status.started, start_tool)
            await self._boundary.produce(Outside.MODEL, self._name, to, converse)
            nursery.cancel_scope.cancel(reason="the session of the model is over")

    def take_audio(self, audio: InputAudio) -> bool:
        return self._session is not None and self._session.take_audio(audio)

    async def handle_instruction(self, instruction: RealtimeInstruction) -> None:
        async def handle() -> None:
            assert self._session is not None, NOTHING_OUTSIDE
            await self._session.handle_instruction(instruction)

        # When it returns decides when the next one comes, and what it raises ends the planning.
        await self._boundary.ask(Outside.MODEL, f"{self._name}: instruction", handle)


# --- what the speaking model is told ----------------------------------------------------------------------------------


def told_inputs(
    context: Context, inputs: trio.MemoryReceiveChannel[SessionInput]
) -> trio.MemoryReceiveChannel[SessionInput]:
    """The same channel, with a note of each input but audio when it is taken."""
    if context.boundary is PASSES:
        return inputs
    # The contract names Trio's own channel, which nobody can make another kind of; all that sessions do is receive.
    return cast("trio.MemoryReceiveChannel[SessionInput]", _ToldInputs(context, inputs))


class _ToldInputs(trio.abc.ReceiveChannel[SessionInput]):
    def __init__(self, context: Context, inputs: trio.MemoryReceiveChannel[SessionInput]) -> None:
        self._context = context
        self._inputs = inputs

    async def receive(self) -> SessionInput:
        item = await self._inputs.receive()
        if not isinstance(item, InputAudio):
            note_told(self._context, item)
        return item

    async def aclose(self) -> None:
        await self._inputs.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._inputs.close()


def note_told(context: Context, item: SessionInput | RealtimeInstruction | SystemPrompt) -> None:
    """The speaking model is told something now."""
    if context.boundary is PASSES:
        return
    what, more = _told(item)
    context.boundary.note(Note.TOLD, {"what": what, "turn_id": context.turn_id, **more})


def _told(item: SessionInput | RealtimeInstruction | SystemPrompt) -> tuple[str, JsonObject]:
    match item:
        case SystemPrompt(text):
            return "prompt", {"text": text}
        case RealtimeInstruction(text):
            return "instruction", {
                "text": text, "type": item.type.value, "id": item.id, "pass_id": item.pass_id,
                "turn_id": item.turn_id, "ends_session": item.ends_session,
            }  # fmt: skip
        case UserSpeech(text) | AnswerAgain(text):
            return type(item).__name__, {"text": text}
        case Interrupted(response_id, heard_text, heard_ms):
            return "Interrupted", {"text": heard_text, "response_id": response_id or "", "heard_ms": heard_ms}
        case Action(name, parameters):
            return "Action", {"text": name, "parameters": dict(parameters)}
        case ToolSettled():
            return "ToolSettled", {
                "text": item.output, "name": item.name, "call_id": item.call_id, "response_id": item.response_id,
                "is_error": item.is_error, "interrupted": item.interrupted, "late": item.late,
            }  # fmt: skip
        case Image(data, media_type):
            return "Image", {"text": f"{media_type}, {len(data)} bytes"}
        case Sensory(data):
            return "Sensory", {"text": json.dumps(dict(data), ensure_ascii=False, default=str)}
        case Commit() | InputAudio():
            return type(item).__name__, {"text": ""}
