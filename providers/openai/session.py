"""A conversation with the Realtime API at work: tasks, time and order. What to do is said by `Conversation`.

One task reads the provider, one takes the session's inputs, one keeps the deadlines; each does at once what the rules say. A
connection that is lost is replaced within seconds, and one that is about to reach the service's own limit is replaced, by one that
is ready before, while nobody is speaking.
"""

import logging
from collections.abc import Callable

import attrs
import trio

from engine.config import RealtimeProperties
from engine.elements import InputAudio, OnInterruption, RealtimeElement, RealtimeInstruction
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import (
    ChatModel,
    Context,
    Message,
    RealtimeSession,
    SessionInput,
    StartTool,
    SystemPrompt,
    TokenUsage,
    ToolBox,
)
from providers.link import open_link
from providers.openai import frames
from providers.openai.connection import Connection, OpenLink
from providers.openai.conversation import Conversation, Do, Fail, SendFrame
from providers.openai.events import AudioDelta, Event
from providers.openai.faults import Trouble
from providers.openai.lifeline import Renewal, Tries
from providers.openai.outlet import Outlet
from providers.openai.properties import OpenAIProperties
from providers.openai.summary import summarize
from providers.openai.targets import Target, Targets
from providers.openai.texts import text_of

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0
"""The longest the engine may take to take the last elements."""
RECORD_SECONDS = 0.05
"""The engine may take to write down what was said just before a connection was lost; the next one is told of it. Another connection
takes longer in any case, unless it was ready before."""


@attrs.define(eq=False)
class OpenAISession(RealtimeSession):
    """See `RealtimeSession`."""

    context: Context
    openai: OpenAIProperties
    system_prompt: SystemPrompt
    tool_box: ToolBox
    targets: Targets
    open_link: OpenLink = open_link
    chat: ChatModel | None = None
    """Sums up the beginning of a conversation when its connection is renewed."""
    properties: RealtimeProperties = attrs.field(init=False)
    usage: TokenUsage = attrs.field(factory=TokenUsage, init=False)
    _conversation: Conversation = attrs.field(init=False)
    _tries: Tries = attrs.field(init=False)
    _renewal: Renewal = attrs.field(factory=Renewal, init=False)
    _current: Connection | None = attrs.field(default=None, init=False)
    """The one in charge."""
    _last_trouble: Trouble = attrs.field(factory=lambda: Trouble(ErrorCode.PROVIDER_UNAVAILABLE), init=False)
    _lost_at: float = attrs.field(default=0.0, init=False)
    """When the last connection was lost, or left for another."""
    _may_try: bool = attrs.field(default=False, init=False)
    """Another connection is wanted, and may be had, for the one that was lost."""
    _outlet: Outlet | None = attrs.field(default=None, init=False)
    _failure: RealtimeException | None = attrs.field(default=None, init=False)
    _timer: trio.CancelScope | None = attrs.field(default=None, init=False)
    """Of the task that keeps the deadlines, while it sleeps."""
    _concern: Callable[[], bool] = attrs.field(default=lambda: False, init=False)
    """What the task that holds the connections waits for …"""
    _concerned: trio.Event = attrs.field(factory=trio.Event, init=False)
    """… and that it has come."""
    _summary: str = attrs.field(default="", init=False)
    """Of what came before the messages that a new connection is told word for word."""
    _is_summed_up: bool = attrs.field(default=True, init=False)
    _earlier_turns: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Those of earlier runs of the session: the prompt tells of them."""

    def __attrs_post_init__(self) -> None:
        context = self.context
        self.properties = self.openai
        shielded = frozenset(
            tool.name for tool in self.tool_box.specifications if tool.on_interruption is OnInterruption.SHIELD
        )
        self._conversation = Conversation(
            self.openai,
            context.environment.new_id,
            context.locale,
            context.configuration.text_only,
            self.usage,
            shielded,
        )
        self._tries = Tries(self.openai.reconnect_attempts, self.targets.count)

    # --- the session's side

    async def run(
        self,
        inputs: trio.MemoryReceiveChannel[SessionInput],
        elements: trio.MemorySendChannel[RealtimeElement],
        start_tool: StartTool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        self._outlet = outlet = Outlet(elements, start_tool)
        self._earlier_turns = frozenset(message.turn_id for message in self.context.messages)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outlet.run, name="provider elements")
            nursery.start_soon(self._keep_time, name="provider deadlines")
            self._tries.start(trio.current_time())
            connection = await self._connect(nursery)
            if connection is not None:
                self._put_in_charge(connection)
                task_status.started()
                nursery.start_soon(self._take_inputs, inputs, name="provider inputs")
                await self._hold_connections(nursery)
            with trio.move_on_after(FLUSH_SECONDS):
                await outlet.flushed()
            nursery.cancel_scope.cancel(reason="the conversation with the provider is over")
        if self._failure is not None:
            raise self._failure

    def take_audio(self, audio: InputAudio) -> bool:
        frame = self._conversation.append(audio.data, trio.current_time())
        if frame is None or self._current is None:
            return False
        self._current.send(frame)
        return True

    async def handle_instruction(self, instruction: RealtimeInstruction) -> None:
        await (
            trio.lowlevel.checkpoint()
        )  # here a cancelled pass of planning stops: what is taken in is taken in as a whole
        self._apply(self._conversation.instruct(instruction, trio.current_time()))

    async def _take_inputs(self, inputs: trio.MemoryReceiveChannel[SessionInput]) -> None:
        async for item in inputs:
            self._apply(self._conversation.take(item, trio.current_time()))
            await self._keep_pace()
        self._apply(self._conversation.input_ended(trio.current_time()))

    async def _receive(self, event: Event) -> None:
        todo = self._conversation.receive(event, trio.current_time())
        if isinstance(event, AudioDelta):
            self._do(todo)  # sound moves no deadline, and a connection is neither lost nor due by it
        else:
            self._apply(todo)
        await self._keep_pace()

    async def _keep_pace(self) -> None:
        """Take nothing more while the engine has not taken what came of it."""
        if self._outlet is not None and self._outlet.is_full:
            await self._outlet.flushed()

    async def _keep_time(self) -> None:
        """The deadlines of the rules and of the connection. One that moves nearer wakes this task, one that moves on does not."""
        while True:
            with trio.CancelScope() as self._timer:
                now = trio.current_time()
                self._wake_at(self._conversation.deadline(now))
                self._wake_at(self._renewal.deadline(now))
                await trio.sleep_forever()
            self._timer = None
            self._apply(self._conversation.tick(trio.current_time()))

    # --- doing what the rules say

    def _apply(self, todo: list[Do]) -> None:
        self._do(todo)
        self._wake_at(self._conversation.deadline(trio.current_time()))
        self._look()

    def _do(self, todo: list[Do]) -> None:
        assert self._outlet is not None, "the session runs"
        for do in todo:
            match do:
                case SendFrame(frame):
                    assert self._current is not None, "the rules know whether there is a connection"
                    self._current.send(frame)
                case Fail(error):
                    self._failure = self._failure or error
                case _:
                    self._outlet.put(do)

    def _wake_at(self, time: float | None) -> None:
        if self._timer is not None and time is not None and time < self._timer.deadline:
            self._timer.deadline = time

    def _look(self) -> None:
        if self._concern():
            self._concerned.set()

    async def _wait_until(self, concern: Callable[[], bool]) -> None:
        self._concern = concern
        while not concern():
            self._concerned = trio.Event()
            await self._concerned.wait()

    @property
    def _is_over(self) -> bool:
        return self._failure is not None or self._conversation.is_done

    # --- connections

    async def _hold_connections(self, nursery: trio.Nursery) -> None:
        """One connection after the other, until the conversation is over or none can be had."""
        while True:
            await self._wait_until(self._needs_another)
            if self._is_over:
                return
            if self._current is not None:
                await self._renew(nursery, self._current)
            elif not await self._replace(nursery):
                return

    def _needs_another(self) -> bool:
        return self._is_over or self._current is None or self._is_renewal_due()

    @property
    def _is_hurried(self) -> bool:
        """There is no time for a summary."""
        return self._is_over or self._current is None

    async def _sum_up(self) -> None:
        self._summary = await summarize(self.chat, self._messages(), self.context.locale) or self._summary
        self._is_summed_up = True
        self._look()

    def _is_renewal_due(self) -> bool:
        return self._renewal.is_due(trio.current_time(), is_quiet=self._conversation.is_quiet)

    def _ended(self, connection: Connection) -> None:
        """A connection is over. That of the one in charge is known to the rules at once."""
        if connection is self._current and connection.trouble is not None:
            self._current = None
            self._note_loss(connection.target, connection.trouble)
            self._apply(self._conversation.lost(self._lost_at, is_told=self._may_try))
        self._look()

    def _note_loss(self, target: Target, trouble: Trouble) -> None:
        logger.warning("the connection to %s was lost", self.openai.provider)
        self._lost_at = now = trio.current_time()
        self._last_trouble = trouble
        if not trouble.is_final:
            self._tell(target, trouble)  # or the next one would be made there as well
        self._may_try = self._tries.lost(now) and not trouble.is_final

    async def _replace(self, nursery: trio.Nursery) -> bool:
        """Have another connection for one that was lost; whether there is one."""
        if not self._may_try:
            self._fail(self._last_trouble.code)
            return False
        connection = await self._connect(nursery)
        if connection is not None:
            await self._take_over(connection)
        return connection is not None

    async def _take_over(self, connection: Connection) -> None:
        """Put it in charge, when what was being said is written down."""
        await trio.sleep_until(self._lost_at + RECORD_SECONDS)
        if connection.trouble is None:
            self._put_in_charge(connection)
        else:
            self._note_loss(connection.target, connection.trouble)

    async def _renew(self, nursery: trio.Nursery, connection: Connection) -> None:
        """Have another connection for one that will end soon, if it can be had, as soon as nobody speaks."""
        self._is_summed_up = self.chat is None
        nursery.start_soon(self._sum_up, name="summary")
        another = await self._open(nursery)
        if another.trouble is not None:
            logger.warning("the connection to %s could not be renewed", self.openai.provider)
            self._tell(another.target, another.trouble)
        await self._wait_until(
            lambda: another.trouble is not None or (self._needs_another() and (self._is_summed_up or self._is_hurried))
        )
        now = trio.current_time()
        if another.trouble is not None or self._is_over:
            another.leave("it is not needed")
            self._renewal.failed(now)
            self._wake_at(self._renewal.deadline(now))
            return
        if self._current is not None:
            self._lost_at = now
            self._current = None
            self._apply(self._conversation.lost(now, is_told=not self._conversation.is_quiet))
            connection.leave("it is replaced")
        await self._take_over(another)

    async def _connect(self, nursery: trio.Nursery) -> Connection | None:
        """Try as often as may be; None when no connection can be had, and `_failure` says why."""
        while True:
            self._tries.begin()
            code, again = ErrorCode.PROVIDER_UNAVAILABLE, None
            with trio.move_on_at(self._tries.give_up_at):
                connection = await self._open(nursery)
                if connection.trouble is None:
                    return connection
                code, again = connection.trouble.code, self._next_try(connection, connection.trouble)
            if again is None:
                self._fail(code)
                return None
            await trio.sleep_until(again)

    def _next_try(self, connection: Connection, trouble: Trouble) -> float | None:
        now = trio.current_time()
        elsewhere = self._tell(connection.target, trouble)
        if trouble.is_final and not elsewhere:
            return None
        jitter = self.context.environment.random.random()
        return self._tries.failed(now, retry_after=trouble.retry_after, elsewhere=elsewhere, jitter=jitter)

    def _tell(self, target: Target, trouble: Trouble) -> bool:
        """Tell the targets of trouble with one; whether there is another that may work."""
        now = trio.current_time()
        return self.targets.failed(target, now, trouble.retry_after, is_final=trouble.is_final)

    def _fail(self, code: ErrorCode) -> None:
        self._failure = self._failure or RealtimeException(code, text_of(code, self.context.locale))

    async def _open(self, nursery: trio.Nursery) -> Connection:
        """A connection that is ready, or has trouble."""
        context = self.context
        update = frames.session_update(
            self.openai,
            self.system_prompt.text,
            self.tool_box.specifications,
            context.configuration.locales,
            text_only=context.configuration.text_only,
        )
        connection = Connection(self.targets.next(trio.current_time()), update, self._ended)
        await nursery.start(connection.run, self.open_link, name="provider connection")
        if connection.trouble is None:
            self.targets.connected(connection.target, trio.current_time())
        return connection

    def _put_in_charge(self, connection: Connection) -> None:
        now = trio.current_time()
        left: float | None = None
        if connection.expires_at is not None:
            left = connection.expires_at - self.context.environment.wall_clock().timestamp()
        self._tries.connected(now)
        self._renewal.connected(now, left)
        self._wake_at(self._renewal.deadline(now))
        self._current = connection
        self._apply(self._conversation.connected(self._messages(), now, self._summary))
        connection.take_charge(self._receive)

    def _messages(self) -> list[Message]:
        """What was said in this run; the prompt tells of earlier ones."""
        return [message for message in self.context.messages if message.turn_id not in self._earlier_turns]
