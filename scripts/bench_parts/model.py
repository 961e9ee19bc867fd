"""The agent of the measurement: a model that answers the user's frames with its own, and nothing behind it.

What it costs itself is part of what is measured, so it does as little as it can: a counter for each frame, a stamp for each
frame it says. There is no provider's socket; its cost comes on top in real life.
"""

import time
from array import array
from collections.abc import Sequence
from typing import ClassVar

import attrs
import trio

from bench_parts.conversation import (
    CUT,
    IN_FLIGHT_FRAMES,
    MODEL_FRAME_BYTES,
    PARTS,
    TOKEN_FRAMES,
    WORDS,
    Part,
    stamped_frame,
    starting_frame,
)
from engine.config import RealtimeProperties
from engine.elements import (
    EmotionalState,
    InputAudio,
    RealtimeElement,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeakingState,
    SpeechItem,
    Token,
    Transcript,
)
from engine.interfaces import (
    Agent,
    Context,
    RealtimeModel,
    RealtimeSession,
    SessionInput,
    StartTool,
    SystemPrompt,
    TokenUsage,
    ToolBox,
    TurnInteractionManager,
    Webhook,
)
from engine.principal import ProjectAccess

PROVIDER = "PassThrough"
AGENT = "bench"
CONFIGURATION = "pass-through"


class Arrivals:
    """When how much of each session's audio reached the model.

    Its memory is taken at once, so that it does not count as the sessions'.
    """

    FIELDS = 3

    def __init__(self, capacity: int) -> None:
        self._rows = array("q", bytes(8 * self.FIELDS * capacity))
        self._used = 0

    def note(self, session: int, total_bytes: int) -> None:
        """Audio of a session has come; `total_bytes` is all of it so far."""
        rows, at = self._rows, self._used
        rows[at] = session
        rows[at + 1] = time.monotonic_ns()
        rows[at + 2] = total_bytes
        self._used = at + self.FIELDS

    def rows(self) -> list[int]:
        """Session, nanoseconds and bytes, again and again."""
        return self._rows[: self._used].tolist()


class PassThroughProperties(RealtimeProperties):
    provider: str = PROVIDER


class PassThroughSession(RealtimeSession):
    """Plays the agent's part of the pattern, paced by the audio that comes in."""

    def __init__(self, context: Context, arrivals: Arrivals, lead_seconds: float, parts: Sequence[Part]) -> None:
        assert isinstance(context.properties, PassThroughProperties)
        self.properties = context.properties
        self.usage = TokenUsage()
        self._new_id = context.environment.new_id
        self._arrivals = arrivals
        self._number = session_number(context.session.id)
        self._bytes = 0
        self._stepped_bytes = 0
        self._parts = parts
        self._frame = starting_frame(self._number, lead_seconds, len(parts))
        self._part = Part.PAUSE
        self._response = ""
        self._said_frames = 0
        self._dead_response = ""
        self._in_flight = 0

    async def run(
        self,
        inputs: trio.MemoryReceiveChannel[SessionInput],
        elements: trio.MemorySendChannel[RealtimeElement],
        start_tool: StartTool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        task_status.started()
        async for item in inputs:
            if isinstance(item, InputAudio):
                self._bytes += len(item.data)
                self._arrivals.note(self._number, self._bytes)
                while self._bytes - self._stepped_bytes >= MODEL_FRAME_BYTES:
                    self._stepped_bytes += MODEL_FRAME_BYTES
                    await self._step(elements)

    async def handle_instruction(self, instruction: RealtimeInstruction) -> None:
        """Nobody plans here, so none comes."""

    async def _step(self, elements: trio.MemorySendChannel[RealtimeElement]) -> None:
        """One frame's time."""
        part = self._parts[self._frame]
        self._frame = (self._frame + 1) % len(self._parts)
        if part is not self._part:
            for element in self._turn_to(part):
                await self._send(elements, element)
        if self._in_flight:
            self._in_flight -= 1
            await self._send(elements, self._speech(self._dead_response))
            if not self._in_flight:
                await self._send(elements, ResponseEnd(self._dead_response, ResponseStatus.CANCELLED))
        if part is Part.AGENT:
            if self._said_frames % TOKEN_FRAMES == 0:
                word = WORDS[self._said_frames // TOKEN_FRAMES % len(WORDS)]
                await self._send(elements, Token(word + " ", self._response))
            self._said_frames += 1
            await self._send(elements, self._speech(self._response))

    async def _send(self, elements: trio.MemorySendChannel[RealtimeElement], element: RealtimeElement) -> None:
        try:
            elements.send_nowait(element)  # as cheap as a model can do it: `send` goes round the scheduler each time
        except trio.WouldBlock:
            await elements.send(element)

    def _turn_to(self, part: Part) -> list[RealtimeElement]:
        before, self._part = self._part, part
        match part:
            case Part.USER:
                kind = "begun"
                if before is Part.AGENT:
                    kind = CUT
                    self._dead_response, self._in_flight = self._response, IN_FLIGHT_FRAMES
                interim = Transcript(f"{kind} {time.monotonic_ns()}", is_interim=True, provider=PROVIDER)
                return [EmotionalState(SpeakingState.USER_SPEAKING), interim]
            case Part.AGENT:
                self._response = self._new_id("response")
                self._said_frames = 0
                final = Transcript("Do you have a table tonight?", provider=PROVIDER, response_id=self._response)
                return [EmotionalState(SpeakingState.USER_NOT_SPEAKING), final]
            case Part.PAUSE:
                return [ResponseEnd(self._response)]

    def _speech(self, response_id: str) -> SpeechItem:
        return SpeechItem(
            stamped_frame(time.monotonic_ns()), self.properties.sample_rate, response_id, provider=PROVIDER
        )


class PassThroughModel(RealtimeModel):
    """Makes the sessions; `lead_seconds` is what passes before the measuring begins, `parts` are the conversation by frame."""

    name: ClassVar[str] = PROVIDER
    properties_class: ClassVar[type[RealtimeProperties]] = PassThroughProperties

    def __init__(self, arrivals: Arrivals, lead_seconds: float, parts: Sequence[Part] = PARTS) -> None:
        self._arrivals = arrivals
        self._lead_seconds = lead_seconds
        self._parts = parts

    def process(
        self, context: Context, system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> PassThroughSession:
        return PassThroughSession(context, self._arrivals, self._lead_seconds, self._parts)


def session_id(number: int) -> str:
    return f"bench-{number}"


def session_number(id_: str) -> int:
    return int(id_.rpartition("-")[2])


# --- around it -------------------------------------------------------------------------------------------------------


@attrs.frozen
class BenchAgent:
    """The one agent there is."""

    ref: str = AGENT
    name: str = "Bench"
    published: bool = True
    realtime_configuration_id: str = CONFIGURATION
    recording: bool = False
    post_session_webhooks: tuple[Webhook, ...] = ()
    show_steering: bool = True
    max_session_minutes: float | None = None
    user_idle_seconds: float | None = None


class BenchCatalog:
    def __init__(self) -> None:
        self._agent = BenchAgent()
        self._properties = PassThroughProperties()

    async def published_agents(self) -> Sequence[Agent]:
        await trio.lowlevel.checkpoint()
        return [self._agent]

    async def agent(self, ref: str) -> tuple[Agent, str] | None:
        await trio.lowlevel.checkpoint()
        return (self._agent, "bench") if ref == AGENT else None

    async def realtime_configuration(self, configuration_id: str) -> tuple[RealtimeProperties, str] | None:
        await trio.lowlevel.checkpoint()
        return (self._properties, "bench") if configuration_id == CONFIGURATION else None

    async def all_realtime_properties(self) -> Sequence[RealtimeProperties]:
        await trio.lowlevel.checkpoint()
        return ()

    async def project(self, ref: str) -> ProjectAccess | None:
        await trio.lowlevel.checkpoint()
        return ProjectAccess(ref, is_public=True)

    async def user(self, name: str) -> None:
        await trio.lowlevel.checkpoint()


class BenchManager(TurnInteractionManager):
    """Extracts and plans nothing; the engine's work around that is done all the same."""

    setups: ClassVar[frozenset[str]] = frozenset({"agent"})

    async def get_system_prompt(self, context: Context, model: RealtimeModel) -> SystemPrompt:
        return SystemPrompt("You take reservations.")
