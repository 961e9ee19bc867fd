"""Scripted parts for the Internal provider, on Trio's clock: a chat model, a synthesizer, and an engine around a session."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import attrs
import trio
import trio.testing

from engine.config import PipelineConfiguration, RealtimeProperties
from engine.elements import (
    InstructionType,
    Interrupted,
    JsonObject,
    MultimodalInteraction,
    OnInterruption,
    RealtimeCommand,
    RealtimeElement,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeechItem,
    Text,
    Token,
    ToolEvent,
    Transcript,
    UserSpeech,
)
from engine.interfaces import (
    ChatModel,
    ChatRequest,
    Context,
    Message,
    PartFactory,
    SessionInput,
    Synthesizer,
    SystemPrompt,
    ToolBox,
    ToolCall,
    ToolResult,
    ToolSpecification,
    UnknownToolError,
    Voice,
)
from engine.pipeline.tools import ToolRunner
from engine.protocol.hearing import Hearing
from engine.store.documents import SessionDocument
from engine.testing.chat import Script, ScriptedChat
from engine.testing.scripted import SILENT_SAMPLE
from engine.testing.stage import EPOCH, scripted_environment
from providers.internal.model import InternalRealtimeModel
from providers.internal.properties import InternalProperties
from providers.internal.session import InternalSession


def clock() -> float:
    """Trio's time, to the microsecond: delays add up with the errors of binary fractions."""
    return round(trio.current_time(), 6)


# --- the chat model ---------------------------------------------------------------------------------------------------


class FakeChat(ScriptedChat):
    """Answers each request with the next of its scripts, the last one again and again."""

    name: ClassVar[str] = "Fake"

    def __init__(self, scripts: Sequence[Script], unwind_seconds: float = 0.0) -> None:
        self.scripts: Sequence[Script] = scripts
        super().__init__(lambda _: self.scripts[min(len(self.asked), len(self.scripts)) - 1], unwind_seconds)


def said(request: ChatRequest) -> list[tuple[str, str]]:
    """A request's conversation as (role, text); a call shows as its name in brackets, behind the text."""
    return [
        (message.role, message.text + "".join(f"[{made.name}]" for made in message.tool_calls))
        for message in request.messages[1:]
    ]


# --- the synthesizer --------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class FakeSynthesizer(Synthesizer):
    """Speaks each word in `word_ms`, in chunks of that length: the first after `first_seconds`, each other after `chunk_seconds`."""

    name: ClassVar[str] = "Fake"
    sample_rate: int = 24000
    word_ms: int = 250
    first_seconds: float = 0.0
    chunk_seconds: float = 0.0
    silent: Callable[[str], bool] = lambda text: False
    """Which pieces give no sound."""
    fails: Callable[[str], Exception | None] = lambda text: None
    unwind_seconds: float = 0.0
    spoken: list[tuple[float, str]] = attrs.field(factory=list[tuple[float, str]], init=False)
    """The pieces it was given, with the time."""
    voices: set[Voice] = attrs.field(factory=set[Voice], init=False)
    speaking: int = attrs.field(default=0, init=False)

    @property
    def pieces(self) -> list[str]:
        return [text for _, text in self.spoken]

    async def speak(self, text: str, voice: Voice, audio: trio.MemorySendChannel[bytes]) -> None:
        self.spoken.append((clock(), text))
        self.voices.add(voice)
        self.speaking += 1
        try:
            await trio.sleep(self.first_seconds)
            failure = self.fails(text)
            if failure is not None:
                raise failure
            if self.silent(text):
                return
            for index, _ in enumerate(text.split()):
                if index:
                    await trio.sleep(self.chunk_seconds)
                await audio.send(SILENT_SAMPLE * (self.sample_rate * self.word_ms // 1000))
        finally:
            self.speaking -= 1
            if self.unwind_seconds:
                with trio.move_on_after(self.unwind_seconds, shield=True):
                    await trio.sleep_forever()


# --- tools ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class FakeTool:
    """A tool that takes its time, then gives its output or fails."""

    name: str
    seconds: float = 0.0
    output: Any = "done"
    ends_session: bool = False
    requests_end: bool = False
    on_interruption: OnInterruption = OnInterruption.CANCEL
    timeout_seconds: float | None = None
    failure: Exception | None = None
    interactions: tuple[MultimodalInteraction, ...] = ()
    parameters: JsonObject = attrs.field(factory=lambda: {"type": "object", "properties": {}})


@attrs.define(eq=False)
class FakeToolBox(ToolBox):
    tools: Mapping[str, FakeTool]
    ran: list[tuple[float, str, JsonObject]] = attrs.field(factory=list[tuple[float, str, JsonObject]], init=False)

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return [
            ToolSpecification(tool.name, tool.name, tool.parameters, tool.timeout_seconds, tool.on_interruption)
            for tool in self.tools.values()
        ]

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        tool = self.tools.get(name)
        if tool is None:
            raise UnknownToolError(f"Tool {name} does not exist.")
        self.ran.append((clock(), name, arguments))
        await trio.sleep(tool.seconds)
        if tool.failure is not None:
            raise tool.failure
        return ToolResult(tool.output, tool.interactions, tool.ends_session, tool.requests_end)


def tool_box(*tools: FakeTool) -> FakeToolBox:
    return FakeToolBox({tool.name: tool for tool in tools})


# --- the provider made of them ----------------------------------------------------------------------------------------


def finder(chat: ChatModel, synthesizer: Synthesizer) -> Callable[[str, str], PartFactory]:
    """Finds these parts, whatever is asked for."""
    parts = {"chat_models": chat, "synthesizers": synthesizer}
    return lambda group, name: lambda configuration: parts[group]


def internal_model(chat: ChatModel, synthesizer: Synthesizer) -> InternalRealtimeModel:
    return InternalRealtimeModel(finder(chat, synthesizer))


def internal_properties(**fields: Any) -> InternalProperties:
    return InternalProperties(stt_provider="None", **fields)


def make_context(
    properties: RealtimeProperties | None = None, messages: Sequence[Message] = (), **configuration: Any
) -> Context:
    document = SessionDocument(id="session", key="agent:tester", owner="owner", created_at=EPOCH, updated_at=EPOCH)
    return Context(
        configuration=PipelineConfiguration(**configuration),
        session=document,
        properties=properties or internal_properties(),
        environment=scripted_environment(),
        messages=messages,
    )


# --- what it is fed ----------------------------------------------------------------------------------------------------


def goodbye(response_id: str) -> list[RealtimeElement]:
    """How a response ends that is to end the session."""
    return [RealtimeCommand("sessionShouldEnd", response_id=response_id), ResponseEnd(response_id)]


def user(text: str) -> UserSpeech:
    return UserSpeech(text, "Ears")


def instruction(text: str, kind: InstructionType = InstructionType.INSTRUCTION) -> RealtimeInstruction:
    return RealtimeInstruction(text, kind, id=text)


def context_line(text: str) -> RealtimeInstruction:
    return RealtimeInstruction(text, InstructionType.SUPPORTING_CONTEXT)


# --- an engine around a session ---------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Rig:
    """Stands where the engine stands: runs the tools, takes the elements at once, knows what was heard."""

    session: InternalSession
    chat: FakeChat
    synthesizer: FakeSynthesizer
    tools: ToolRunner
    inputs: trio.MemorySendChannel[SessionInput]
    hearing: Hearing
    heard: list[tuple[float, RealtimeElement]] = attrs.field(factory=list[tuple[float, RealtimeElement]], init=False)
    started: list[ToolCall] = attrs.field(factory=list[ToolCall], init=False)
    tool_events: list[ToolEvent | MultimodalInteraction] = attrs.field(
        factory=list[ToolEvent | MultimodalInteraction], init=False
    )
    ended: set[str] = attrs.field(factory=set[str], init=False)
    returned_at: float | None = attrs.field(default=None, init=False)

    async def send(self, *items: SessionInput) -> None:
        for item in items:
            await self.inputs.send(item)

    async def instruct(self, *instructions: RealtimeInstruction) -> None:
        for instruction in instructions:
            await self.session.instruct(instruction)

    async def interrupt(self) -> Interrupted:
        """The user begins to speak: what the engine does then, in its order. The cut response is over for good."""
        now = trio.current_time()
        cut = self.hearing.playing(now) or self.open_response
        interruption = Interrupted()
        if cut:
            self.ended.add(cut)
            heard_ms = self.hearing.cut(cut, now)
            interruption = Interrupted(cut, self.hearing.heard_text(cut, now), round(heard_ms))
        self.tools.interrupt()
        await self.inputs.send(interruption)
        return interruption

    def take(self, element: RealtimeElement) -> None:
        """The engine's side of the elements; the client plays at once."""
        now = trio.current_time()
        self.heard.append((clock(), element))
        match element:
            case Text(text, response_id, speech_ms):
                self.hearing.sentence_queued(response_id, text, speech_ms)
                self.hearing.sentence_sent(response_id)
            case SpeechItem():
                ms = len(element.data) / 2 * 1000 / element.sample_rate
                self.hearing.speech_queued(element.response_id, ms, element.text)
                self.hearing.speech_sent(element.response_id, ms, now)
            case ResponseEnd(response_id, status):
                self.ended.add(response_id)
                if status is not ResponseStatus.CANCELLED:
                    self.hearing.complete(response_id)
            case _:
                pass

    # what was heard

    @property
    def elements(self) -> list[RealtimeElement]:
        return [element for _, element in self.heard]

    @property
    def open_response(self) -> str:
        """The newest response that has not ended; "" when there is none."""
        ids = [element.response_id for element in self.elements if isinstance(element, Transcript | Token | Text)]
        return ids[-1] if ids and ids[-1] not in self.ended else ""

    @property
    def texts(self) -> list[str]:
        return [element.text for element in self.elements if isinstance(element, Text)]

    @property
    def ends(self) -> list[ResponseEnd]:
        return [element for element in self.elements if isinstance(element, ResponseEnd)]

    def at(self, *kinds: type) -> list[float]:
        """When elements of some kinds came."""
        return [time for time, element in self.heard if isinstance(element, kinds)]

    def summary(self) -> list[str]:
        """The elements in one word each, repetitions as one."""
        words: list[str] = []
        for element in self.elements:
            word = type(element).__name__
            if not words or words[-1] != word:
                words.append(word)
        return words


@asynccontextmanager
async def open_rig(
    *scripts: Script,
    synthesizer: FakeSynthesizer | None = None,
    tools: Sequence[FakeTool] = (),
    context: Context | None = None,
    unwind_seconds: float = 0.0,
    text_only: bool = False,
    element_channel: int = 64,
) -> AsyncGenerator[Rig]:
    """A running session. What it raises is raised on leaving; leaving cancels it, and nothing may be left of it then."""
    chat = FakeChat(list(scripts), unwind_seconds)
    synthesizer = synthesizer or FakeSynthesizer()
    context = context or make_context(text_only=text_only)
    box = tool_box(*tools)
    session = internal_model(chat, synthesizer).process(context, SystemPrompt("Be brief."), box)
    inputs, model_side = trio.open_memory_channel[SessionInput](16)
    elements, from_model = trio.open_memory_channel[RealtimeElement](element_channel)
    async with trio.open_nursery() as tool_tasks:
        runner = ToolRunner(
            box=box,
            context=context,
            nursery=tool_tasks,
            results=inputs,
            tell=lambda event: rig.tool_events.append(event),
            is_dead=lambda response_id: response_id in rig.ended,
            default_timeout=30,
        )
        rig = Rig(session, chat, synthesizer, runner, inputs, Hearing(text_only=text_only))

        def start_tool(made: ToolCall) -> None:
            rig.started.append(made)
            runner.start(made)

        async def converse() -> None:
            with elements, model_side:
                await session.run(model_side, elements, start_tool)
            rig.returned_at = clock()

        async def listen() -> None:
            with from_model:
                async for element in from_model:
                    rig.take(element)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen, name="rig")
            nursery.start_soon(converse, name="session")
            await trio.testing.wait_all_tasks_blocked()
            yield rig
            nursery.cancel_scope.cancel(reason="the test is over")
        tool_tasks.cancel_scope.cancel(reason="the test is over")
    assert chat.open_streams == 0
    assert synthesizer.speaking == 0


def strict_json(text: str) -> Any:
    """Parse what a history holds, as a strict endpoint would."""
    return json.loads(text, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
