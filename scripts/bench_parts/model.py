"""The agent of the measurement: a model that answers the user's frames with its own, and nothing behind it.

What it costs itself is part of what is measured, so it does as little as it can: a counter for each frame, a stamp for each
frame it says. There is no provider's socket; its cost comes on top in real life.
"""

import time
from collections.abc import Sequence
from typing import ClassVar

import trio

from bench_parts.conversation import (
    IN_FLIGHT_FRAMES,
    INTERIM,
    MODEL_FRAME_BYTES,
    PARTS,
    TOKEN_FRAMES,
    WORDS,
    Part,
    last_sample,
    session_number,
    stamped_frame,
    starting_frame,
)
from bench_parts.notes import Notes
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
    Context,
    RealtimeModel,
    RealtimeSession,
    SessionInput,
    StartTool,
    SystemPrompt,
    TokenUsage,
    ToolBox,
)

PROVIDER = "PassThrough"


class PassThroughProperties(RealtimeProperties):
    provider: str = PROVIDER


class PassThroughSession(RealtimeSession):
    """Plays the agent's part of the pattern, paced by the audio that comes in."""

    def __init__(self, context: Context, notes: Notes, lead_seconds: float, parts: Sequence[Part]) -> None:
        assert isinstance(context.properties, PassThroughProperties)
        self.properties = context.properties
        self.usage = TokenUsage()
        self._new_id = context.environment.new_id
        self._notes = notes
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
                self._notes.heard(self._number, last_sample(item.data), len(item.data))
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
                if before is Part.AGENT:
                    self._notes.cut(self._number)
                    self._dead_response, self._in_flight = self._response, IN_FLIGHT_FRAMES
                interim = Transcript(INTERIM, is_interim=True, provider=PROVIDER)
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

    def __init__(self, notes: Notes, lead_seconds: float, parts: Sequence[Part] = PARTS) -> None:
        self._notes = notes
        self._lead_seconds = lead_seconds
        self._parts = parts

    def process(
        self, context: Context, system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> PassThroughSession:
        return PassThroughSession(context, self._notes, self._lead_seconds, self._parts)
