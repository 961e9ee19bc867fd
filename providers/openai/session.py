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
from engine.elements import RealtimeElement, RealtimeInstruction
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import (
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
from providers.openai.events import Event
from providers.openai.faults import Trouble
from providers.openai.lifeline import Renewal, Tries
from providers.openai.outlet import Outlet
from providers.openai.properties import OpenAIProperties
from providers.openai.targets import Targets
from providers.openai.texts import text_for

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0
"""The longest the engine may take to take the last elements."""


@attrs.define(eq=False)
class OpenAISession(RealtimeSession):
    """See `RealtimeSession`."""

    context: Context
    openai: OpenAIProperties
    system_prompt: SystemPrompt
    tool_box: ToolBox
    targets: Targets
    open_link: OpenLink = open_link
    properties: RealtimeProperties = attrs.field(init=False)
    usage: TokenUsage = attrs.field(factory=TokenUsage, init=False)
    _conversation: Conversation = attrs.field(init=False)
    _tries: Tries = attrs.field(init=False)
    _renewal: Renewal = attrs.field(factory=Renewal, init=False)
    _current: Connection | None = attrs.field(default=None, init=False)
    """The one in charge."""
    _last_trouble: Trouble = attrs.field(factory=lambda: Trouble(ErrorCode.PROVIDER_UNAVAILABLE), init=False)
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
    _earlier_turns: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Those of earlier runs of the session: the prompt tells of them."""

    def __attrs_post_init__(self) -> None:
        context = self.context
        self.properties = self.openai
        self._conversation = Conversation(
            self.openai, context.environment.new_id, context.locale, context.configuration.text_only, self.usage
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
        self._apply(self._conversation.receive(event, trio.current_time()))
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
        self._wake_at(self._conversation.deadline(trio.current_time()))
        self._look()

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

    def _is_renewal_due(self) -> bool:
        return self._renewal.is_due(trio.current_time(), is_quiet=self._conversation.is_quiet)

    def _ended(self, connection: Connection) -> None:
        """A connection is over. That of the one in charge is known to the rules at once."""
        if connection is self._current and connection.trouble is not None:
            now = trio.current_time()
            logger.warning("the connection to %s was lost", self.openai.provider)
            self._current = None
            self._last_trouble = connection.trouble
            self._may_try = self._tries.lost(now) and not connection.trouble.is_final
            self._apply(self._conversation.lost(now, is_told=self._may_try))
        self._look()

    async def _replace(self, nursery: trio.Nursery) -> bool:
        """Have another connection for one that was lost; whether there is one."""
        if not self._may_try:
            self._fail(self._last_trouble.code)
            return False
        connection = await self._connect(nursery)
        if connection is not None:
            self._put_in_charge(connection)
        return connection is not None

    async def _renew(self, nursery: trio.Nursery, connection: Connection) -> None:
        """Have another connection for one that will end soon, if it can be had, as soon as nobody speaks."""
        another = await self._open(nursery)
        if another.trouble is not None:
            logger.warning("the connection to %s could not be renewed", self.openai.provider)
            self.targets.failed(another.target, trio.current_time(), another.trouble.retry_after)
        await self._wait_until(lambda: another.trouble is not None or self._needs_another())
        now = trio.current_time()
        if another.trouble is not None or self._is_over:
            another.leave("it is not needed")
            self._renewal.failed(now)
            self._wake_at(self._renewal.deadline(now))
            return
        if self._current is not None:
            self._current = None
            self._apply(self._conversation.lost(now, is_told=not self._conversation.is_quiet))
            connection.leave("it is replaced")
        self._put_in_charge(another)

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
        elsewhere = self.targets.failed(connection.target, now, trouble.retry_after)
        if trouble.is_final and not elsewhere:
            return None
        jitter = self.context.environment.random.random()
        return self._tries.failed(now, retry_after=trouble.retry_after, elsewhere=elsewhere, jitter=jitter)

    def _fail(self, code: ErrorCode) -> None:
        self._failure = self._failure or RealtimeException(code, text_for(code, self.context.locale))

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
        self._apply(self._conversation.connected(self._messages(), now))
        connection.take_charge(self._receive)

    def _messages(self) -> list[Message]:
        """What was said in this run; the prompt tells of earlier ones."""
        return [message for message in self.context.messages if message.turn_id not in self._earlier_turns]
