"""A model that converses by itself, in the time that speaking takes, and keeps the laws of a session.

It echoes what it is asked, answers in order, speaks a sentence with its sound, stops when it is interrupted, waits for its tools,
and speaks what planning has it say. What it answers a function says; so a test needs no timing of its own.
"""

from collections import deque
from collections.abc import Callable, Sequence

import attrs
import trio

from engine.elements import (
    Action,
    AnswerAgain,
    Interrupted,
    RealtimeCommand,
    RealtimeElement,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeechItem,
    Token,
    Transcript,
    UserSpeech,
)
from engine.errors import ErrorCode
from engine.interfaces import Context, SessionInput, StartTool, SystemPrompt, ToolBox, ToolSettled
from engine.protocol.turns import SESSION_SHOULD_END
from engine.testing.contract import Span
from engine.testing.scripted import ScriptedModel, ScriptedSession, speech

MS_PER_CHARACTER = 60
"""A calm voice: 16 characters a second."""
MOST_WAITING = 256
"""Requests that wait for their answer."""


@attrs.frozen
class Use:
    """Calls a tool and waits for what it gives."""

    tool: str
    arguments: str = "{}"


@attrs.frozen
class End:
    """How the response ends, when not completed."""

    status: ResponseStatus


@attrs.frozen
class Stumble:
    """An error that does not end the session."""


AnswerStep = str | float | Use | End | Stumble | BaseException
"""A sentence, spoken; seconds of silence; a tool; a failure of the model for good."""
Request = UserSpeech | AnswerAgain | Action | RealtimeInstruction
Answers = Callable[[Request], Sequence[AnswerStep]]


def text_of(request: Request) -> str:
    """What was said: the user's words, "#name" of an action, planning's words."""
    match request:
        case Action(name):
            return f"#{name}"
        case _:
            return request.text


@attrs.define(eq=False)
class _Answer:
    request: Request
    response_id: str
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_echoed: bool = False


class ConversingSession(ScriptedSession):
    """One conversation with a `ConversingModel`."""

    def __init__(self, context: Context, prompt: SystemPrompt, tool_box: ToolBox, model: "ConversingModel") -> None:
        super().__init__(context, prompt, tool_box, self._react_by_itself)
        self.model = model
        self.said: list[tuple[float, RealtimeElement]] = []
        """Everything it gave the engine, with the time."""
        self._waiting: deque[Request] = deque(maxlen=MOST_WAITING)
        self._arrived = trio.Event()
        self._current: _Answer | None = None
        self._settled: dict[str, trio.Event] = {}
        self._spans: list[Span] = []

    async def run(  # noqa: ASYNC128 - the status is passed on
        self,
        inputs: trio.MemoryReceiveChannel[SessionInput],
        elements: trio.MemorySendChannel[RealtimeElement],
        start_tool: StartTool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer_all, name="conversing")
            await super().run(inputs, elements, start_tool, task_status=task_status)
            nursery.cancel_scope.cancel(reason="the session is over")

    @property
    def is_idle(self) -> bool:
        return self._current is None and not self._waiting

    def spans(self) -> list[Span]:
        """When which response was active at the model."""
        return list(self._spans)

    def hear(self, item: UserSpeech | Interrupted) -> None:
        """The model's own recognition: what the user says reaches it without the engine."""
        self._react_by_itself(self, item)

    async def give(self, *elements: RealtimeElement) -> None:
        """Send elements, with room for them."""
        for element in elements:
            assert self._elements is not None
            self.said.append((trio.current_time(), element))  # first: what ends the wait may also be a failure
            await self._elements.send(element)

    def _react_by_itself(self, session: ScriptedSession, item: SessionInput | RealtimeInstruction) -> None:
        match item:
            case Interrupted():
                self._waiting.clear()
                if self._current is not None:
                    self._current.scope.cancel(reason="the user has begun to speak")
            case ToolSettled(call_id=call_id):
                self._settled.setdefault(call_id, trio.Event()).set()
            case RealtimeInstruction() if item.type.is_contextual:
                pass
            case UserSpeech() | AnswerAgain() | Action() | RealtimeInstruction():
                self._waiting.append(item)
                self._arrived.set()
            case _:
                pass

    async def _answer_all(self) -> None:
        while True:
            while not self._waiting:
                self._arrived = trio.Event()
                await self._arrived.wait()
            request = self._waiting.popleft()
            self._current = current = _Answer(request, self.context.environment.new_id("response"))
            began = trio.current_time()
            with current.scope:
                await self._answer(current)
            self._spans.append(Span(current.response_id, began, trio.current_time()))
            if current.scope.cancelled_caught and current.is_echoed and self.model.tells_of_cuts(current.response_id):
                await self.give(ResponseEnd(current.response_id, ResponseStatus.CANCELLED))
            self._current = None

    async def _answer(self, answer: _Answer) -> None:
        response_id, status = answer.response_id, ResponseStatus.COMPLETED
        await self._echo(answer)
        steps = self.model.answers(answer.request)
        for step in [steps] if isinstance(steps, str) else steps:
            match step:
                case str():
                    await self._say(step, response_id)
                case Use(tool, arguments):
                    await self._use(tool, arguments, response_id)
                case End(status):
                    break
                case Stumble():
                    await self.give(RealtimeError(ErrorCode.INTERNAL, "It stumbled."))
                case BaseException():
                    raise step
                case seconds:
                    await trio.sleep(seconds)
        if isinstance(answer.request, RealtimeInstruction) and answer.request.ends_session:
            await self.give(RealtimeCommand(SESSION_SHOULD_END, response_id=response_id))
        await self.give(ResponseEnd(response_id, status))

    async def _echo(self, answer: _Answer) -> None:
        named = answer.response_id if self.model.names_responses else ""
        answer.is_echoed = True
        match answer.request:
            case UserSpeech(text, provider):
                await self.give(Transcript(text, provider=provider, response_id=named))
            case AnswerAgain(text):
                await self.give(Transcript(text, is_synthetic=True, response_id=named))
            case Action(name):
                await self.give(Transcript(f"#{name}", is_synthetic=True, response_id=named))
            case RealtimeInstruction():
                pass

    async def _say(self, sentence: str, response_id: str) -> None:
        ms = MS_PER_CHARACTER * len(sentence) if self.model.speaks else 0
        await self.give(Token(f"{sentence} ", response_id))
        if ms:
            await self.give(SpeechItem(speech(ms), 24000, response_id, provider=self.model.name))
        await trio.sleep(MS_PER_CHARACTER * len(sentence) / 1000 / self.model.pace)

    async def _use(self, tool: str, arguments: str, response_id: str) -> None:
        call_id = self.context.environment.new_id("call")
        done = self._settled.setdefault(call_id, trio.Event())
        self.call_tool(call_id, tool, arguments, response_id)
        await done.wait()


def _tells(response_id: str) -> bool:
    return True


class ConversingModel(ScriptedModel):
    """Makes conversing sessions.

    `answers` is one sentence for everything, several of them, or what says for each request what to answer. `pace`: how much faster
    than it is spoken the answer is made, as most models do; 1 is as fast as it is heard.
    """

    def __init__(
        self,
        answers: Answers | Sequence[AnswerStep] | str = "I see.",
        *,
        pace: float = 1.0,
        speaks: bool = True,
        names_responses: bool = True,
        tells_of_cuts: Callable[[str], bool] = _tells,
        ready_after: float = 0.0,
    ) -> None:
        super().__init__(ready_after=ready_after)
        steps: Sequence[AnswerStep] = [answers] if isinstance(answers, str) else () if callable(answers) else answers
        self.answers: Answers = answers if callable(answers) else lambda _: steps
        self.pace = pace
        self.speaks = speaks
        self.names_responses = names_responses
        self.tells_of_cuts = tells_of_cuts
        """Whether it says of a response that it was cut, as some models do and some do not."""
        self.conversations: list[ConversingSession] = []

    def process(
        self, context: Context, system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> ConversingSession:
        session = ConversingSession(context, system_prompt, tool_box, self)
        session.ready_after = self._ready_after
        self.sessions.append(session)
        self.conversations.append(session)
        return session
