"""One Internal conversation (SPEC P8): inputs are answered in order; an interruption drops what is being said.

Two tasks: one reads the session's inputs and always has time for an interruption; one answers, each answer in a cancel scope
of its own.
"""

import logging
from collections import deque

import attrs
import trio

from engine.config import RealtimeProperties
from engine.elements import (
    Action,
    AnswerAgain,
    Image,
    Interrupted,
    RealtimeCommand,
    RealtimeElement,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    Transcript,
    UserSpeech,
)
from engine.errors import ErrorCode, Whose
from engine.interfaces import (
    ChatModel,
    Context,
    RealtimeSession,
    SessionInput,
    StartTool,
    Synthesizer,
    SystemPrompt,
    TokenUsage,
    ToolBox,
    ToolSettled,
    Voice,
)
from providers.internal.generation import Generation
from providers.internal.history import ChatHistory
from providers.internal.properties import InternalProperties

logger = logging.getLogger(__name__)

MAX_WAITING = 32
"""Inputs that wait for their answer inside a window; nobody says so much without an interruption."""
KEPT_IMAGES = 4
"""Images shown since the last utterance that go along with the next one: the newest."""
INSTRUCTION_HEADER = "Instruction:"

ToAnswer = UserSpeech | AnswerAgain | Action | RealtimeInstruction


@attrs.define(eq=False)
class InternalSession(RealtimeSession):
    """See `RealtimeSession`. A failure of a part is final: the parts themselves retry before their first output."""

    makes_sentences = True

    context: Context
    internal: InternalProperties
    system_prompt: SystemPrompt
    tool_box: ToolBox
    chat: ChatModel
    synthesizer: Synthesizer | None
    properties: RealtimeProperties = attrs.field(init=False)
    usage: TokenUsage = attrs.field(factory=TokenUsage, init=False)
    history: ChatHistory = attrs.field(factory=ChatHistory, init=False)
    _waiting: deque[ToAnswer] = attrs.field(factory=deque[ToAnswer], init=False)
    _work: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: bool = attrs.field(default=False, init=False)
    _generation: Generation | None = attrs.field(default=None, init=False)
    _scope: trio.CancelScope | None = attrs.field(default=None, init=False)
    _images: list[Image] = attrs.field(factory=list[Image], init=False)

    def __attrs_post_init__(self) -> None:
        self.properties = self.internal

    async def run(
        self,
        inputs: trio.MemoryReceiveChannel[SessionInput],
        elements: trio.MemorySendChannel[RealtimeElement],
        start_tool: StartTool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        self.history.resume(self.context.messages)
        task_status.started()  # there is nobody to shake hands with
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer_all, elements, start_tool, name="answers")
            async for item in inputs:
                await self._take(item, elements)
            self._ended = True
            self._work.set()

    async def handle_instruction(self, instruction: RealtimeInstruction) -> None:
        await trio.lowlevel.checkpoint()
        if instruction.type.is_contextual:
            self.history.add_context(instruction.text)
        else:
            self._enqueue(instruction)

    # --- inputs

    async def _take(self, item: SessionInput, elements: trio.MemorySendChannel[RealtimeElement]) -> None:
        match item:
            case Interrupted():
                self._interrupt(item)
            case UserSpeech() | AnswerAgain() | Action():
                if not self._enqueue(item):
                    message = "Too much is waiting for an answer; this was left out."
                    await elements.send(RealtimeError(ErrorCode.TOO_BUSY, message, whose=Whose.CLIENT))
            case ToolSettled():
                self.history.add_output(item.call_id, item.output)
                if self._generation is not None:
                    self._generation.settled(item)
                if item.late and not item.interrupted:
                    self.history.add_context(f"The tool {item.name} has finished. Its result: {item.output}")
            case Image():
                self._images = [*self._images, item][-KEPT_IMAGES:]
            case _:
                pass  # audio and commits are the recognizer's; sensory data reaches the prompt through the context

    def _enqueue(self, item: ToAnswer) -> bool:
        if len(self._waiting) >= MAX_WAITING:
            logger.warning("%d inputs wait for an answer; one more was left out", MAX_WAITING)
            return False
        self._waiting.append(item)
        self._work.set()
        return True

    def _interrupt(self, interruption: Interrupted) -> None:
        """Drop what is being said and what waits; keep of the history what was heard."""
        self._waiting.clear()
        generation = self._generation
        if generation is not None and self._scope is not None:
            heard = interruption.heard_text if interruption.response_id == generation.response_id else ""
            generation.stop(heard)
            self._scope.cancel(reason="barge-in")
        if interruption.response_id is not None:
            self.history.cut(interruption.response_id, interruption.heard_text)

    # --- answers

    async def _answer_all(self, elements: trio.MemorySendChannel[RealtimeElement], start_tool: StartTool) -> None:
        """Answer what waits, one after the other, until the input has ended."""
        while True:
            while not self._waiting:
                if self._ended:
                    return
                self._work = trio.Event()
                await self._work.wait()
            item = self._waiting.popleft()
            generation = self._begin(item, start_tool, elements)
            with trio.CancelScope() as scope:
                self._generation, self._scope = generation, scope
                await self._echo(item, generation.response_id, elements)
                await generation.run()
            self._generation = self._scope = None
            status = ResponseStatus.CANCELLED if scope.cancelled_caught else generation.status
            if not scope.cancelled_caught and generation.ends_session:
                await elements.send(RealtimeCommand("sessionShouldEnd"))
            end = ResponseEnd(generation.response_id, status, is_synthetic=scope.cancelled_caught)
            await elements.send(end)

    def _begin(
        self, item: ToAnswer, start_tool: StartTool, elements: trio.MemorySendChannel[RealtimeElement]
    ) -> Generation:
        match item:
            case UserSpeech(text):
                self.history.add_user(text, tuple(self._images))
                self._images = []
            case Action(name):
                self.history.add_user(f"#{name}")
            case RealtimeInstruction(text):
                self.history.add_instruction(
                    text if text.startswith(INSTRUCTION_HEADER) else f"{INSTRUCTION_HEADER} {text}"
                )
            case AnswerAgain():
                pass  # the history has the line already, and what was heard of its answer
        properties = self.internal
        voice = Voice(str(properties.tts.get("voice", "")), properties.gender, self.context.locale)
        return Generation(
            response_id=self.context.environment.new_id("response"),
            context=self.context,
            system_prompt=self.system_prompt.text,
            tools=tuple(self.tool_box.specifications),
            temperature=properties.temperature,
            chat=self.chat,
            synthesizer=self.synthesizer,
            voice=voice,
            history=self.history,
            usage=self.usage,
            elements=elements,
            start_tool=start_tool,
        )

    async def _echo(self, item: ToAnswer, response_id: str, elements: trio.MemorySendChannel[RealtimeElement]) -> None:
        """The input as the transcript that opens its answer (M4)."""
        match item:
            case UserSpeech(text, provider):
                await elements.send(Transcript(text, provider=provider, response_id=response_id))
            case AnswerAgain(text):
                await elements.send(Transcript(text, is_synthetic=True, provider="Internal", response_id=response_id))
            case Action(name):
                await elements.send(
                    Transcript(f"#{name}", is_synthetic=True, provider="Internal", response_id=response_id)
                )
            case RealtimeInstruction():
                await trio.lowlevel.checkpoint()
