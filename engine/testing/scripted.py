"""Scripted parts for tests: a model that says what it is told, a client that writes down what it hears.

Everything runs on Trio's clock, so that under a mock clock a test states the exact time of everything.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import attrs
import trio

from engine.config import RealtimeProperties
from engine.elements import (
    Action,
    AnswerAgain,
    ControlToken,
    InputAudio,
    InputElement,
    InputText,
    OutCommand,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    RealtimeElement,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeechItem,
    Token,
    Transcript,
    UserSpeech,
)
from engine.interfaces import (
    Context,
    RealtimeModel,
    RealtimeSession,
    RecognitionElement,
    Recognizer,
    RecognizerInput,
    SessionInput,
    StartTool,
    SystemPrompt,
    TokenUsage,
    ToolBox,
    ToolCall,
    ToolSettled,
)
from engine.pipeline.line import ClientLine
from engine.testing.boundaries import client_passage
from engine.testing.mishaps import Mishaps, Passage, no_mishaps
from engine.testing.timeline import timeline

SILENT_SAMPLE = b"\x01\x00"
"""Not digital silence, so that a silence gate lets it pass."""


@lru_cache(256)
def speech(ms: int, rate: int = 24000) -> bytes:
    """PCM16 of a length, recognizable and not silent."""
    return SILENT_SAMPLE * (rate * ms // 1000)


class ScriptedProperties(RealtimeProperties):
    provider: str = "Scripted"
    turnless: bool = False

    @property
    def is_turnless(self) -> bool:
        return self.turnless


Reaction = Callable[["ScriptedSession", SessionInput | RealtimeInstruction], None]


class ScriptedSession(RealtimeSession):
    """Says what a test tells it to, and writes down what it is given with the time.

    With `react` it answers by itself: called for every input and instruction, it may call `say` and its kin.
    """

    def __init__(
        self, context: Context, prompt: SystemPrompt, tool_box: ToolBox, react: Reaction | None = None
    ) -> None:
        assert isinstance(context.properties, ScriptedProperties)
        self.properties = context.properties
        self.context = context
        self.prompt = prompt
        self.tool_box = tool_box
        self.usage = TokenUsage()
        self.received: list[tuple[float, SessionInput]] = []
        self.instructions: list[tuple[float, RealtimeInstruction]] = []
        self.ready_after = 0.0
        self.fails_to_instruct = False
        self._react = react
        self._elements: trio.MemorySendChannel[RealtimeElement] | None = None
        self._start_tool: StartTool | None = None
        self._broken: trio.Event = trio.Event()
        self._failure: Exception | None = None

    async def run(
        self,
        inputs: trio.MemoryReceiveChannel[SessionInput],
        elements: trio.MemorySendChannel[RealtimeElement],
        start_tool: StartTool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        if self.ready_after:
            await trio.sleep(self.ready_after)
        self._elements, self._start_tool = elements, start_tool
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wait_for_failure, nursery.cancel_scope, name="scripted failure")
            async for item in inputs:
                self.received.append((trio.current_time(), item))
                if self._react is not None:
                    self._react(self, item)
            nursery.cancel_scope.cancel(reason="the input has ended")

    async def _wait_for_failure(self, session: trio.CancelScope) -> None:
        await self._broken.wait()
        if self._failure is not None:
            raise self._failure
        session.cancel(reason="the provider has hung up")

    async def handle_instruction(self, instruction: RealtimeInstruction) -> None:
        await trio.lowlevel.checkpoint()
        if self.fails_to_instruct:
            raise RuntimeError("the provider refused the instruction")
        self.instructions.append((trio.current_time(), instruction))
        if self._react is not None:
            self._react(self, instruction)

    # what a test makes it do

    def say(self, *elements: RealtimeElement) -> None:
        """Send elements now."""
        assert self._elements is not None, "the session is not connected"
        for element in elements:
            self._elements.send_nowait(element)

    def call_tool(self, call_id: str, name: str, arguments: str, response_id: str = "r1") -> None:
        assert self._start_tool is not None, "the session is not connected"
        self._start_tool(ToolCall(call_id, name, arguments, response_id))

    def fail(self, error: Exception) -> None:
        """The provider dies."""
        self._failure = error
        self._broken.set()

    def hang_up(self) -> None:
        """The provider closes the connection in good order: the session just returns."""
        self._broken.set()

    def of_type(self, *kinds: type) -> list[SessionInput]:
        """What it was given of some kinds, in order."""
        return [item for _, item in self.received if isinstance(item, kinds)]

    @property
    def settled(self) -> list[ToolSettled]:
        return [item for _, item in self.received if isinstance(item, ToolSettled)]


class ScriptedModel(RealtimeModel):
    """Makes `ScriptedSession`s, and keeps them for the test."""

    name: ClassVar[str] = "Scripted"
    properties_class: ClassVar[type[RealtimeProperties]] = ScriptedProperties

    def __init__(self, react: Reaction | None = None, *, ready_after: float = 0.0) -> None:
        self.sessions: list[ScriptedSession] = []
        self._react = react
        self._ready_after = ready_after

    def process(
        self, context: Context, system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> ScriptedSession:
        session = ScriptedSession(context, system_prompt, tool_box, self._react)
        session.ready_after = self._ready_after
        self.sessions.append(session)
        return session

    @property
    def session(self) -> ScriptedSession:
        """The newest session."""
        return self.sessions[-1]


def echo(session: ScriptedSession, item: SessionInput | RealtimeInstruction) -> None:
    """A reaction: every utterance is echoed and answered in one sentence with 500 ms of speech."""
    match item:
        case UserSpeech(text, provider):
            session.say(Transcript(text, provider=provider))
            answer(session, f"You said {text}.")
        case AnswerAgain(text):
            session.say(Transcript(text, is_synthetic=True))
            answer(session, f"Again: {text}.")
        case Action(name):
            session.say(Transcript(f"#{name}", is_synthetic=True))
            answer(session, "Hello.")
        case _:
            pass


def answer(session: ScriptedSession, text: str, response_id: str = "", ms: int = 500) -> str:
    """Say one whole response now; returns its id."""
    response_id = response_id or session.context.environment.new_id("response")
    session.say(
        Token(text, response_id),
        SpeechItem(speech(ms), 24000, response_id, provider="Scripted"),
        ResponseEnd(response_id, ResponseStatus.COMPLETED),
    )
    return response_id


class ScriptedRecognizer(Recognizer):
    """Hears what a test tells it to."""

    name: ClassVar[str] = "Scripted"

    def __init__(self, sample_rate: int = 16000, *, flushes: str = "") -> None:
        self.sample_rate = sample_rate
        self.heard_audio: list[tuple[float, RecognizerInput]] = []
        self._flushes = flushes
        self.is_running = False
        self._elements: trio.MemorySendChannel[RecognitionElement] | None = None

    async def run(
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        elements: trio.MemorySendChannel[RecognitionElement],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        self._elements = elements
        self.is_running = True
        try:
            task_status.started()
            async for item in audio:
                self.heard_audio.append((trio.current_time(), item))
        finally:
            self.is_running = False
        if self._flushes:
            await elements.send(Transcript(self._flushes, provider=self.name))

    def hear(self, *elements: RecognitionElement) -> None:
        assert self._elements is not None, "the recognizer is not running"
        for element in elements:
            self._elements.send_nowait(element)

    @property
    def pcm(self) -> bytes:
        return b"".join(item.data for _, item in self.heard_audio if isinstance(item, InputAudio))


@attrs.define(eq=False)
class ScriptedClient:
    """A client that takes everything at once and writes it down with the time."""

    line: ClientLine
    mishaps: Mishaps = attrs.field(factory=no_mishaps)
    """What goes wrong with what it sends."""
    sent: list[tuple[float, InputElement]] = attrs.field(factory=list[tuple[float, InputElement]], init=False)
    heard: list[tuple[float, OutputElement]] = attrs.field(factory=list[tuple[float, OutputElement]], init=False)
    counts: Counter[str] = attrs.field(factory=Counter[str], init=False)
    """How often each command came."""
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _read: int = attrs.field(default=0, init=False)
    """How far `hears` and its kin have come."""
    _passage: Passage[InputElement] | None = attrs.field(default=None, init=False)

    async def listen(self, *, seconds_per_element: float = 0.0) -> None:
        """The client's task. With a pace it is a slow one."""
        while True:
            element = await self.line.take_output()
            if element is None:
                return
            if seconds_per_element:
                await trio.sleep(seconds_per_element)
            self.heard.append((trio.current_time(), element))
            if isinstance(element, OutCommand):
                self.counts[element.name] += 1
            self._changed.set()

    async def send(self, *elements: InputElement) -> None:
        """Send input elements, as they come through the client's door.

        Raises ClosedByMishapError when a mishap closes the door; the test decides what that means.
        """
        for element in elements:
            self.sent.append((trio.current_time(), element))
            await self._door.put(element)

    @property
    def _door(self) -> Passage[InputElement]:
        if self._passage is None or self._passage.mishaps is not self.mishaps:
            self._passage = client_passage(self.mishaps, self.line.put_input)
        return self._passage

    async def says(self, text: str) -> None:
        """Type a complete utterance. What is being said is interrupted, as by a voice."""
        await self.send(InputText(text))

    async def leaves(self) -> None:
        """End the session in good order, and wait until it has ended."""
        await self.send(ControlToken("exit"))
        await self.hears_command("session-end")

    async def hears(self, text: str, *, within: float = 60.0) -> OutText:
        """Wait for a sentence with this in it, from now on or behind what was waited for before.

        Raises AssertionError, with what was heard instead, when it does not come `within` seconds of the virtual clock.
        """

        def fits(element: OutputElement) -> bool:
            return isinstance(element, OutText) and text in element.text

        found = await self._next(fits, f"a sentence with {text!r}", within)
        assert isinstance(found, OutText)
        return found

    async def hears_command(self, name: str, *, within: float = 60.0, **parameters: Any) -> OutCommand:
        """Wait for a command, as `hears` waits for a sentence."""

        def fits(element: OutputElement) -> bool:
            return (
                isinstance(element, OutCommand)
                and element.name == name
                and all(element.parameters.get(key) == value for key, value in parameters.items())
            )

        found = await self._next(fits, f"the command {name}", within)
        assert isinstance(found, OutCommand)
        return found

    async def hears_end(self, status: str = "completed", *, within: float = 60.0) -> OutCommand:
        """Wait for the end of a response."""
        return await self.hears_command("response-end", within=within, status=status)

    async def _next(self, fits: Callable[[OutputElement], bool], what: str, within: float) -> OutputElement:
        """What is waited for comes behind what was waited for before."""
        with trio.move_on_after(within):
            while True:
                while self._read < len(self.heard):
                    self._read += 1
                    element = self.heard[self._read - 1][1]
                    if fits(element):
                        return element
                self._changed = trio.Event()
                await self._changed.wait()
        raise AssertionError(f"{what} did not come within {within:g} s\n{timeline(self.heard, self.sent)}")

    def end(self) -> None:
        self.line.end_input()

    async def changed(self) -> None:
        """Wait until something more is heard."""
        self._changed = trio.Event()
        await self._changed.wait()

    async def wait_for(self, condition: Callable[[OutputElement], bool]) -> OutputElement:
        """The first element, already heard or still to come, that fits."""
        seen = 0
        while True:
            for _, element in self.heard[seen:]:
                if condition(element):
                    return element
            seen = len(self.heard)
            self._changed = trio.Event()
            await self._changed.wait()

    async def wait_for_command(self, name: str, **parameters: Any) -> OutCommand:
        def fits(element: OutputElement) -> bool:
            return (
                isinstance(element, OutCommand)
                and element.name == name
                and all(element.parameters.get(key) == value for key, value in parameters.items())
            )

        found = await self.wait_for(fits)
        assert isinstance(found, OutCommand)
        return found

    # what it heard

    @property
    def elements(self) -> list[OutputElement]:
        return [element for _, element in self.heard]

    def commands(self, name: str) -> list[Mapping[str, Any]]:
        return [e.parameters for e in self.elements if isinstance(e, OutCommand) and e.name == name]

    def at(self, condition: Callable[[OutputElement], bool]) -> list[float]:
        """When elements that fit were heard."""
        return [time for time, element in self.heard if condition(element)]

    @property
    def ends(self) -> list[str]:
        """The statuses of the responses, in the order of their ends."""
        return [str(parameters["status"]) for parameters in self.commands("response-end")]

    @property
    def sentences(self) -> list[str]:
        return [element.text for element in self.elements if isinstance(element, OutText)]

    @property
    def transcripts(self) -> list[OutTranscript]:
        return [element for element in self.elements if isinstance(element, OutTranscript)]

    def speech_ms(self, response_id: str) -> float:
        return sum(
            len(e.data) / 2 * 1000 / e.sample_rate
            for e in self.elements
            if isinstance(e, OutSpeech) and e.response_id == response_id
        )

    def spoken(self, response_id: str) -> list[OutputElement]:
        """The speech, words and sentences of a response."""
        return [
            e for e in self.elements if isinstance(e, OutSpeech | OutText | OutToken) and e.response_id == response_id
        ]


def interim(text: str = ".", provider: str = "Scripted") -> Transcript:
    return Transcript(text, is_interim=True, provider=provider)


def final(text: str, provider: str = "Scripted", response_id: str = "") -> Transcript:
    return Transcript(text, provider=provider, response_id=response_id)
