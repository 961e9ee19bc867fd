"""The contracts between the engine and everything that plugs into it.

A provider implements `RealtimeModel` and `RealtimeSession`; the parts an `Internal` session is composed of implement
`Recognizer`, `ChatModel` and `Synthesizer`; an agent kind implements `InteractionManager`; a database implements `Store`.
Components are found by entry point (`engine.registry`), so adding one changes no other file (SPEC L20).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from random import Random
from typing import Any, ClassVar, Protocol, TypeVar

import attrs
import trio
from pydantic import Field

from engine.boundary import PASSES, Boundary
from engine.config import CamelModel, PipelineConfiguration, RealtimeProperties, Settings
from engine.elements import (
    Action,
    Commit,
    EmotionalState,
    Image,
    InputAudio,
    InputElement,
    InputText,
    JsonObject,
    ModelInput,
    MultimodalInteraction,
    OnInterruption,
    OutEvaluation,
    Partial,
    RealtimeCommand,
    RealtimeElement,
    RealtimeInstruction,
    ToolEvent,
    Transcript,
)
from engine.memory import Memory, NoMemory
from engine.observation import Observer
from engine.principal import Principal, ProjectAccess, UserAccount
from engine.store.documents import LogKind, ResourceKind, SessionDocument

logger = logging.getLogger(__name__)

H = TypeVar("H")


# --- what is nondeterministic ----------------------------------------------------------------------------------------


@attrs.frozen
class Environment:
    """Where a session's clock time, ids and randomness come from (law 11). Durations come from `trio.current_time()`."""

    wall_clock: Callable[[], datetime]
    """Aware, in UTC."""
    new_id: Callable[[str], str]
    """A new opaque id; the argument names its kind ("turn", "response", "call", …) and may show in the id."""
    random: Random


# --- conversation memory ---------------------------------------------------------------------------------------------


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    INSTRUCTION = "instruction"


@attrs.frozen
class Message:
    """One line of the conversation as it was heard. Instructions shape prompts and are left out of plain transcripts."""

    role: Role
    text: str
    turn_id: str = ""


# --- tools -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class ToolSpecification:
    name: str
    description: str
    parameters: JsonObject
    """A JSON schema of type object."""
    timeout_seconds: float | None = None
    """None: the engine's `tool_seconds`."""
    on_interruption: OnInterruption = OnInterruption.CANCEL


@attrs.frozen
class ToolResult:
    """What a call gave. `output` (any JSON value) goes to the model, `interactions` to the client."""

    output: Any
    interactions: tuple[MultimodalInteraction, ...] = ()
    ends_session: bool = False
    """The session ends when the response that follows has been heard (finish_session)."""
    requests_end: bool = False
    """Planning is asked whether the session ends; until it has answered, the model says a neutral sentence and waits."""


class ToolError(Exception):
    """Raised by a tool box or a tool: the call failed in a way the model may be told in these words."""


class UnknownToolError(ToolError):
    """The box has no tool of that name."""


class ToolBox(ABC):
    """The tools one model may call."""

    @property
    @abstractmethod
    def specifications(self) -> Sequence[ToolSpecification]: ...

    @abstractmethod
    async def call(self, name: str, arguments: JsonObject, context: "Context") -> ToolResult:
        """Run a tool. May be cancelled at any await.

        Raises:
            UnknownToolError: no tool of that name.
            ToolError: the call failed; its text goes to the model. Any other exception is reported without its details.
        """


class EmptyToolBox(ToolBox):
    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return ()

    async def call(self, name: str, arguments: JsonObject, context: "Context") -> ToolResult:
        raise UnknownToolError(f"Tool {name} does not exist.")


@attrs.frozen
class ToolCall:
    """A call as the model made it: `arguments` is its raw JSON text, whatever that is worth (case C13)."""

    call_id: str
    name: str
    arguments: str
    response_id: str


@attrs.frozen
class ToolSettled:
    """How a call ended, told to the model's session exactly once per call, on the channel of its inputs.

    `output` is JSON text for the model, an error object when the call failed. `interrupted`: a barge-in stopped it, so no
    continuation is asked for. `late`: its turn has ended in the meantime (`continue`): the result is context for what comes next.
    """

    call_id: str
    name: str
    response_id: str
    output: str
    is_error: bool = False
    interrupted: bool = False
    late: bool = False
    ends_session: bool = False
    requests_end: bool = False


StartTool = Callable[[ToolCall], None]
"""Given to a model's session: starts a call and returns at once. The result comes back as a `ToolSettled` input."""

SessionInput = ModelInput | ToolSettled


# --- realtime models -------------------------------------------------------------------------------------------------


@attrs.define
class TokenUsage:
    """Totals of one session. `cached` tokens are part of `input` (case C46)."""

    input: int = 0
    output: int = 0
    cached: int = 0


@attrs.frozen
class SystemPrompt:
    text: str
    template_id: str = ""
    context: str = ""
    """The part that holds the context, apart, for models whose backend gets only this."""


class RealtimeSession(ABC):
    """One conversation with a model. Making it opens nothing; `run` does (SPEC M1)."""

    makes_sentences: ClassVar[bool] = False
    """True when the session sends whole `Text`s of its own; its tokens are then for display and are not assembled again."""
    guards_text: ClassVar[bool] = False
    """True when the session passes its words through the context's `TextGuard` itself, before it speaks them."""

    properties: RealtimeProperties
    usage: TokenUsage

    @abstractmethod
    async def run(
        self,
        inputs: trio.MemoryReceiveChannel[SessionInput],
        elements: trio.MemorySendChannel[RealtimeElement],
        start_tool: StartTool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Connect, call `task_status.started()` once the provider has acknowledged its configuration (M9), converse.

        Returns when `inputs` has ended and every answer owed has been given; cancellation ends it at once. Nothing runs
        and nothing is open afterwards. Laws: a `UserSpeech`, `AnswerAgain` or speech-asking `Action` is answered by its
        echo (a final `Transcript`, naming its `response_id` when known), the response's elements, and one `ResponseEnd`;
        inputs inside a window are answered in order; an `Interrupted` drops what is being generated and what was waiting,
        and nothing of it follows except at most its own cancelled `ResponseEnd`; a response it does not name was not heard
        at all; response ids are never used twice in a session.

        Raises:
            RealtimeException: the provider failed for good. Anything else is mapped to one by the engine (M8).
        """

    def take_audio(self, audio: InputAudio) -> bool:
        """Take audio in at once, in the task that brings it; False when it has to come through `inputs` instead.

        May be left as it is. Most input is audio, and to wake a task for a frame costs more than to pass it on. The engine
        asks only while `run` waits for the next of `inputs` and nothing is queued there, so that the order stays what it was,
        and so does the wait for a session that has its hands full. Raises nothing: the task is not the session's.
        """
        return False

    async def instruct(self, instruction: RealtimeInstruction) -> None:
        """Inject steering. A failed injection is logged and never ends a conversation (M10)."""
        try:
            await self.handle_instruction(instruction)
        except Exception:
            logger.exception("an instruction of type %s could not be injected", instruction.type)

    @abstractmethod
    async def handle_instruction(self, instruction: RealtimeInstruction) -> None:
        """Take the instruction in. A contextual one adds to the context silently; any other makes the model speak when
        no response is active, in the order given, never lost or doubled. May be called from any task while `run` runs."""


class RealtimeModel(ABC):
    """A provider. Found by its name, which equals the `provider` of the resolved properties (M2)."""

    name: ClassVar[str]
    properties_class: ClassVar[type[RealtimeProperties]]
    passes_boundary: ClassVar[bool] = False
    """All that its sessions get from outside passes the context's boundary, so that they can be run again on it. Of others only what
    comes of them is kept."""

    @abstractmethod
    def process(
        self, context: "Context", system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> RealtimeSession:
        """Construct a session; opens nothing (M1).

        Raises:
            ConfigurationError: a part it names is not installed or not configured.
        """

    def parts(self, properties: RealtimeProperties) -> Sequence["Part"]:
        """The parts a session of these properties is composed of, to be loaded before anybody waits for them.

        Raises:
            ConfigurationError: as `process`.
        """
        return ()


# --- the parts of an Internal session --------------------------------------------------------------------------------


class Part(ABC):
    """What the three kinds of parts have in common."""

    name: ClassVar[str]

    @property
    def is_ready(self) -> bool:
        """Whether the first word need not wait for something heavy to be loaded."""
        return True

    async def load(self) -> None:
        """Load what is heavy, once per process; safe to call again.

        Raises:
            ConfigurationError: a file or package is missing or damaged.
        """


RecognizerInput = InputAudio | Commit
RecognitionElement = Transcript | Partial | EmotionalState


class Recognizer(Part):
    """Speech recognition with turn detection. One object per session."""

    sample_rate: int
    """Hz, of the PCM16 mono it wants."""

    @abstractmethod
    async def run(
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        elements: trio.MemorySendChannel[RecognitionElement],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Recognize until `audio` ends, then flush the utterance under way and return.

        Per utterance: `EmotionalState(USER_SPEAKING)` with an interim `Transcript` at speech start (its text may be "."), any
        number of `Partial`s, `EmotionalState(USER_NOT_SPEAKING)` at speech end, one final `Transcript` (a blank one, or none,
        when no words were found).
        A `Commit` ends the utterance at once.

        Raises:
            RealtimeException: recognition failed for good (`recognition_failed`).
        """


@attrs.frozen
class ChatMessage:
    """One message of a chat request. A tool message answers `tool_call_id`."""

    role: str
    """system, user, assistant or tool."""
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    images: tuple[Image, ...] = ()


@attrs.frozen
class ChatRequest:
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpecification, ...] = ()
    temperature: float | None = None
    locale: str = "en"
    output_schema: JsonObject | None = None
    """A JSON schema of type object that the answer has to fit, where the model can be held to one; the messages ask for it too."""


@attrs.frozen
class ChatText:
    text: str


@attrs.frozen
class ChatToolCall:
    """A complete call; `arguments` is raw JSON text as the model wrote it."""

    call_id: str
    name: str
    arguments: str


@attrs.frozen
class ChatUsage:
    input: int
    output: int
    cached: int = 0


@attrs.frozen
class ChatFinished:
    """The last delta of a stream. `complete` is False when the output was cut (length, content filter)."""

    complete: bool = True


ChatDelta = ChatText | ChatToolCall | ChatUsage | ChatFinished


class ChatModel(Part):
    """A streaming chat model."""

    model: str = ""
    is_scripted: bool = False
    """It says only what was written for it, so that there is no use in having it read or judge something."""

    @abstractmethod
    def open_stream(self, request: ChatRequest) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[ChatDelta]]:
        """Stream one completion; leaving the context cancels it and closes its connection.

        Raises (from entering, or from receiving):
            RealtimeException: `chat_failed`, `provider_auth`, `provider_quota` or `model_not_found`.
        """


@attrs.frozen
class Voice:
    """What is asked of a synthesizer: its own voice name, or a gender and locale to choose by."""

    name: str = ""
    gender: str | None = None
    locale: str = "en"


class Synthesizer(Part):
    """Speech synthesis."""

    sample_rate: int
    """Hz, of the PCM16 mono it makes."""

    @abstractmethod
    async def speak(self, text: str, voice: Voice, audio: trio.MemorySendChannel[bytes]) -> None:
        """Say one piece of text (a clause or a sentence) in chunks of whole samples. Does not close `audio`.

        Raises:
            RealtimeException: `synthesis_failed`, `provider_auth` or `provider_quota`.
        """


PartFactory = Callable[[Mapping[str, Any]], Any]
"""Makes a recognizer, chat model or synthesizer from its part of the configuration; found by entry point.

Raises ConfigurationError with what to do when something is missing (a package, a key, a file)."""


ElementFilter = Callable[[InputElement, "Context"], Awaitable[InputElement | None]]
"""Sees every input element before the model does, in order; may change it, or drop it by returning None (L10). Found by entry
point (`souffleur.filters`)."""

ActionMapper = Callable[[Action, "Context"], Awaitable[InputText | RealtimeInstruction | None]]
"""What an action of its name means: a typed utterance, an instruction to the model, or nothing that the model should know of.
Found by entry point: the name in `souffleur.action_mappers` is the action's (L10).

Raises RemoteError when the action's parameters are not what it takes; the client is told and the session goes on."""


# --- agents ----------------------------------------------------------------------------------------------------------


class Webhook(Protocol):
    """Whom to call."""

    @property
    def url(self) -> str: ...
    @property
    def secret(self) -> str | None:
        """A reference to the secret that signs the call; None: it is not signed."""
        ...


class Agent(Protocol):
    """What the engine needs to know of an agent; kinds add their own fields."""

    @property
    def ref(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def published(self) -> bool: ...
    @property
    def realtime_configuration_id(self) -> str: ...
    @property
    def recording(self) -> bool: ...
    @property
    def post_session_webhooks(self) -> Sequence[Webhook]: ...
    @property
    def show_steering(self) -> bool: ...
    @property
    def max_session_minutes(self) -> float | None: ...
    @property
    def user_idle_seconds(self) -> float | None: ...


class SessionLog(ABC):
    """A session's LLM log (L22). `record` never waits and never raises; what it is given is kept out of every other log."""

    @abstractmethod
    def record(
        self,
        kind: LogKind,
        content: JsonObject,
        *,
        component: str = "",
        model: str = "",
        turn_id: str = "",
        usage: TokenUsage | None = None,
        seconds: float | None = None,
    ) -> None: ...


class NoLog(SessionLog):
    def record(
        self,
        kind: LogKind,
        content: JsonObject,
        *,
        component: str = "",
        model: str = "",
        turn_id: str = "",
        usage: TokenUsage | None = None,
        seconds: float | None = None,
    ) -> None:
        """Keep nothing."""


class TextGuard(Protocol):
    """Sees the words of the speaking model before the user does, and may change them (R15). Never waits, never raises."""

    def feed(self, response_id: str, text: str) -> str:
        """More of a response's words. Returns what may be shown by now; the rest follows."""
        ...

    def finish(self, response_id: str) -> str:
        """The response, or a part of it that nothing continues, is complete: the rest of its words."""
        ...

    def see(self, text: str) -> None:
        """What the user has said or typed, or what a tool gave."""
        ...


class Holdings(Protocol):
    """What stays open as long as a session does."""

    async def hold(self, manager: AbstractAsyncContextManager[H]) -> H:
        """Enter a context, in a task of the session's, and leave it when the session is over: after its disconnect hook. It is left
        at once when the session is cancelled, and its clean-up is bounded.

        Raises whatever entering it raises.
        """
        ...

    def hold_soon(self, manager: AbstractAsyncContextManager[H], entered: Callable[[H], None]) -> None:
        """The same without waiting for it: `entered` is called when it is there. When it cannot be entered, that is logged."""
        ...


class NoHoldings:
    """Where nothing can be held, as outside a session."""

    async def hold(self, manager: AbstractAsyncContextManager[H]) -> H:
        raise RuntimeError("no session is open")

    def hold_soon(self, manager: AbstractAsyncContextManager[H], entered: Callable[[H], None]) -> None:
        raise RuntimeError("no session is open")


@attrs.define(eq=False)
class Context:
    """What a conversation is about, given to every component. One per session; `turn_id` moves on with the turns."""

    configuration: PipelineConfiguration
    session: SessionDocument
    properties: RealtimeProperties
    environment: Environment
    content: Agent | None = None
    """The agent, or None for the setups that have none."""
    principal: Principal = attrs.field(factory=lambda: Principal(owner=""))
    """Who is talking; `#authorization` replaces it until the session's end, and never the session's owner (L4)."""
    log: SessionLog = attrs.field(factory=NoLog)
    observer: Observer = attrs.field(factory=Observer)
    """Told what happens, for metrics and traces."""
    memory: Memory = attrs.field(factory=NoMemory)
    """What is remembered beyond this conversation."""
    settings: Settings = attrs.field(factory=Settings.model_construct)
    holdings: Holdings = attrs.field(factory=NoHoldings)
    boundary: Boundary = PASSES
    """What comes from outside passes here, so that it can be kept and given again."""
    guard: TextGuard | None = None
    """Of the speaking model's words; None lets them pass."""
    agent_state: Any = None
    """What the interaction manager keeps of this session; nobody else looks at it."""
    project_ref: str = ""
    shared_agents: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Names by ref of the agents that share what they know of the user with this one (R3)."""
    turn_id: str = ""
    messages: Sequence[Message] = ()
    """The conversation as it was heard, oldest first; a live, bounded view."""
    sensory: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    """What the client's sensors said last."""
    images: Sequence[Image] = ()
    """Images the client has shown last."""
    is_reconnect: bool = False

    @property
    def locale(self) -> str:
        return self.configuration.locale


@attrs.frozen
class TurnInput:
    """A recorded turn, given to extraction and planning."""

    turn_id: str
    text: str
    """What the user said; "#name" for an action."""
    output: tuple[str, ...]
    """What the agent said, response by response, as it was heard."""
    multimodal: tuple[MultimodalInteraction, ...] = ()


PlanningElement = RealtimeInstruction | RealtimeCommand | MultimodalInteraction | ToolEvent
Emit = Callable[[PlanningElement], Awaitable[None]]
"""Forwards an element to the client. An instruction is also recorded and injected; a non-contextual one returns only after the
model's next ResponseEnd (L13). Every tool call that was told to have started has to be told to have ended, also when the leg is
cancelled: within a shield (L14)."""
Steer = Callable[[RealtimeInstruction], Awaitable[None]]


class PlanningManager(ABC):
    """Reads everything, never speaks: its instructions steer the speaking model."""

    @abstractmethod
    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        """Plan after a turn. Cancelled by the next interim transcript, at any await."""


class BlankPlanningManager(PlanningManager):
    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        """Plan nothing."""


class InteractionManager(ABC):
    """What an agent kind does around a conversation. Only `get_system_prompt` must be there; every hook does nothing."""

    setups: ClassVar[frozenset[str]]
    """The names of the setups it serves."""
    content_classes: ClassVar[tuple[type, ...]] = ()
    """The agent classes it serves; empty claims none in particular (L2)."""

    @abstractmethod
    async def get_system_prompt(self, context: Context, model: RealtimeModel) -> SystemPrompt: ...

    def get_tool_box(self, context: Context) -> ToolBox:
        return EmptyToolBox()

    async def load(self, agents: Sequence[Agent]) -> None:
        """Have ready what is heavy, once per process and beside the serving, for the agents of its classes. What fails here fails
        again, and is told, in the session that needs it."""

    async def on_session_start(self, context: Context) -> None:
        """Runs before the system prompt is built and before the provider session exists: it delays the first word."""

    async def evaluate(self, context: Context, emit: Callable[[OutEvaluation], None]) -> None:
        """The end-of-conversation evaluation, when the conversation came to its end: not when it failed or the client vanished
        (L6). Bounded; what was emitted until then reaches the client, if it is still there, and is stored."""

    async def on_session_disconnect(self, context: Context) -> None:
        """Runs after the session, shielded and bounded."""

    async def on_chat_event(self, context: Context, event: JsonObject) -> None:
        """An event for the session while no model session is open."""


class TurnInteractionManager(InteractionManager):
    planning_manager: PlanningManager = BlankPlanningManager()

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        """Extraction. Cancelled by the next interim transcript."""

    async def turn_end(self, context: Context, steer: Steer) -> None:
        """Runs after the turn was saved and its `exit` sent."""


class TurnlessInteractionManager(InteractionManager):
    """What an agent kind does around a conversation without turns. A class may fulfil both contracts."""

    async def on_chat_message(self, context: Context, message: Message) -> None:
        """A final transcript of the user, or a sentence of the model; beside the stream, never delaying speech."""


# --- what there is to talk to ------------------------------------------------------------------------------------------


class Catalog(Protocol):
    """The agents and realtime configurations there are: those of the project files, and those that were made by management.

    Any of these may raise StoreError, when what is asked for is neither in a file nor remembered.
    """

    async def published_agents(self) -> Sequence[Agent]:
        """Published agents of public projects, in the order of the project files, then by ref."""
        ...

    async def agent(self, ref: str) -> tuple[Agent, str] | None:
        """The agent of that ref and its project's ref."""
        ...

    async def realtime_configuration(self, configuration_id: str) -> tuple[RealtimeProperties, str] | None:
        """The properties of that id and the ref of the project they belong to. May be as old as the cache allows (P10)."""
        ...

    async def all_realtime_properties(self) -> Sequence[RealtimeProperties]: ...

    async def project(self, ref: str) -> ProjectAccess | None: ...

    async def shared_agents(self, ref: str) -> Mapping[str, str]:
        """Names by ref of the other agents with whom an agent shares what it knows of a user (R3)."""
        ...

    async def user(self, name: str) -> UserAccount | None: ...


# --- documents that are managed ----------------------------------------------------------------------------------------


class TemplateRevisions(CamelModel):
    """The body of a template's resource. Its revisions are resources of their own, which are never changed."""

    ref: str
    project: str
    published: int | None = None
    """Number of the revision that agents are made from unless they name one."""
    revisions: list[str] = Field(default_factory=list[str])
    """Ids of the resources; the first is that of revision 1."""


@attrs.frozen
class DocumentFault:
    """Something wrong in a document. `pointer` is a JSON pointer (RFC 6901) into it."""

    pointer: str
    message: str


class InvalidDocumentError(Exception):
    """A document that cannot be taken."""

    def __init__(self, faults: Sequence[DocumentFault]) -> None:
        super().__init__(f"{len(faults)} faults")
        self.faults = faults


@attrs.frozen
class FileDocument:
    """A document of a project file: it is changed there, and only read elsewhere."""

    body: JsonObject
    file: str


class ManagedDocuments(Protocol):
    """What the management API has to know of documents. Their bodies have the names of the project file, and `project`."""

    def in_files(self, kind: ResourceKind) -> Mapping[str, FileDocument]:
        """By id, sorted. That of a template's revision is "REF/NUMBER"; the body of a template is its newest revision's."""
        ...

    def schema(self, kind: ResourceKind, *, sent: bool) -> JsonObject:
        """The JSON schema of documents that are sent in, which are trusted less than files, or of those that are shown."""
        ...

    def complete(self, kind: ResourceKind, body: JsonObject) -> JsonObject:
        """As it is shown: with the defaults of what it leaves out, and without what nobody may see."""
        ...

    async def check(
        self,
        kind: ResourceKind,
        body: JsonObject,
        *,
        stored: JsonObject | None = None,
        projects: frozenset[str] | None = None,
    ) -> None:
        """Whether a document may be stored in the place of `stored`. `projects` are those its sender owns; None for an admin.

        Raises:
            InvalidDocumentError: it may not; with everything that is wrong.
            StoreError: what it refers to cannot be looked up now.
        """
        ...

    async def uses(self, kind: ResourceKind, document_id: str) -> Sequence[str]:
        """What refers to a document, some of it, in words such as "agent barista".

        Raises:
            StoreError: it cannot be found out now.
        """
        ...

    async def projects(self) -> Sequence[ProjectAccess]:
        """Every project there is.

        Raises:
            StoreError: it cannot be found out now.
        """
        ...

    def changed(self, kind: ResourceKind, document_id: str) -> None:
        """A document was written or deleted: what is remembered of it is forgotten."""
        ...

    async def warn_of_hidden(self) -> None:
        """Tell an operator, at the start, which documents of the store a project file hides."""
        ...
