"""One Internal conversation (SPEC P8): inputs are answered in order; an interruption drops what is being said.

Two tasks: one reads the session's inputs and always has time for an interruption; one answers them. The answer itself is made in
a task of its own, which may take its time to unwind when it was cut.
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
    InstructionType,
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
from engine.protocol.session_end import Ending, PlannedSessionEnd
from engine.texts import Sentence, say
from providers.internal.generation import Generation
from providers.internal.history import KEPT_IMAGES, ChatHistory
from providers.internal.properties import InternalProperties

logger = logging.getLogger(__name__)

MAX_WAITING = 32
"""Inputs that wait for their answer inside a window; nobody says so much without an interruption."""
INSTRUCTION_HEADER = "Instruction:"
GO_ON = "A noise cut your last answer; the user has said nothing new. Go on where it stopped, and do not repeat what was said."

ToAnswer = UserSpeech | AnswerAgain | Action | RealtimeInstruction


@attrs.define(eq=False)
class InternalSession(RealtimeSession):
    """See `RealtimeSession`. A failure of a part is final: the parts themselves retry before their first output."""

    makes_sentences = True
    guards_text = True

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
    _session_end: PlannedSessionEnd = attrs.field(factory=PlannedSessionEnd, init=False)

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
            nursery.start_soon(self._answer_all, nursery, elements, start_tool, name="answers")
            async for item in inputs:
                await self._take(item, elements)
            self._ended = True
            self._work.set()
            if self._generation is not None:
                self._generation.stop_asking()

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
                if self._enqueue(item):
                    # When nothing is being said the answer begins here, with its echo: an interruption on the heels of the words
                    # would drop them otherwise, and they would not even be shown to have been said.
                    await trio.lowlevel.checkpoint()
                else:
                    message = "Too much is waiting for an answer; this was left out."
                    await elements.send(RealtimeError(ErrorCode.TOO_BUSY, message, whose=Whose.CLIENT))
            case ToolSettled():
                self.history.add_output(item.call_id, item.output)
                if self._generation is not None:
                    self._generation.settle(item)
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
        generation = self._generation
        if generation is not None and self._scope is not None and not self._scope.cancel_called:
            generation.interrupt()
            if interruption.response_id != generation.response_id:
                self.history.cut(generation.response_id, "")
            self._scope.cancel(reason="barge-in")
        if interruption.response_id is not None:
            self.history.cut(interruption.response_id, interruption.heard_text)
        for item in self._waiting:
            if isinstance(item, UserSpeech):
                self._supersede_end()
                self._remember(item)  # it will not be answered, but was said
        self._waiting.clear()

    def _supersede_end(self) -> None:
        """The user says something new, maybe while planning was to say whether the session ends."""
        if self._session_end.supersede():
            self.history.add_instruction(say(Sentence.END_SUPERSEDED, self.context.locale))

    def _remember(self, speech: UserSpeech) -> None:
        self.history.add_user(speech.text, tuple(self._images))
        self._images = []

    # --- answers

    async def _answer_all(
        self, nursery: trio.Nursery, elements: trio.MemorySendChannel[RealtimeElement], start_tool: StartTool
    ) -> None:
        """Answer what waits, one after the other, until the input has ended."""
        while True:
            while not self._waiting:
                if self._ended:
                    return
                self._work = trio.Event()
                await self._work.wait()
            item = self._waiting.popleft()
            generation = self._begin(item, start_tool, elements)
            if not await self._answer(item, generation, nursery, elements):
                await elements.send(ResponseEnd(generation.response_id, ResponseStatus.CANCELLED, is_synthetic=True))

    async def _answer(
        self,
        item: ToAnswer,
        generation: Generation,
        nursery: trio.Nursery,
        elements: trio.MemorySendChannel[RealtimeElement],
    ) -> bool:
        """One whole answer with its end; False when the user has cut it."""
        with trio.CancelScope() as scope:
            self._generation, self._scope = generation, scope
            await self._echo(item, generation.response_id, elements)
            nursery.start_soon(generation.run, name=generation.response_id)
            await generation.over.wait()
            if generation.ending.ends_session:
                await elements.send(RealtimeCommand("sessionShouldEnd", response_id=generation.response_id))
            await elements.send(ResponseEnd(generation.response_id, generation.status))
        self._generation = self._scope = None
        return not scope.cancelled_caught

    def _begin(
        self, item: ToAnswer, start_tool: StartTool, elements: trio.MemorySendChannel[RealtimeElement]
    ) -> Generation:
        if isinstance(item, RealtimeInstruction):
            self._session_end.instructed()
        else:
            self._supersede_end()
        match item:
            case UserSpeech():
                self._remember(item)
            case Action(name):
                self.history.add_user(f"#{name}")
            case RealtimeInstruction():
                self.history.add_instruction(_as_told(item))
            case AnswerAgain():
                if self.history.ends_with_answer:
                    self.history.add_instruction(GO_ON)
        properties = self.internal
        voice = Voice(str(properties.tts.get("voice") or ""), properties.gender, self.context.locale)
        generation = Generation(
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
            session_end=self._session_end,
            ending=Ending(isinstance(item, RealtimeInstruction) and item.ends_session),
        )
        if self._ended:
            generation.stop_asking()  # results come as inputs, and there will be none
        return generation

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


def _as_told(instruction: RealtimeInstruction) -> str:
    """An instruction as the chat model reads it; a commentary is something to say."""
    if instruction.text.startswith(INSTRUCTION_HEADER):
        return instruction.text
    say = "Say: " if instruction.type is InstructionType.COMMENTARY else ""
    return f"{INSTRUCTION_HEADER} {say}{instruction.text}"
