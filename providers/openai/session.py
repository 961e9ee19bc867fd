"""A conversation with the Realtime API at work: sockets, time and order. What to do is said by `Conversation`.

Two tasks feed the rules: one reads the provider, one the session's inputs; a third keeps their deadlines. A connection that is
lost is replaced within seconds, and one that is about to reach the service's own limit is replaced while nobody is speaking.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from enum import Enum, auto

import attrs
import trio

from engine.config import RealtimeProperties
from engine.elements import RealtimeElement, RealtimeError, RealtimeInstruction
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
from providers.link import Link, LinkClosedError, LinkRefusedError, open_link
from providers.openai import events
from providers.openai.conversation import Conversation, Do, Emit, Fail, SendFrame, StartCall
from providers.openai.faults import REFUSED
from providers.openai.properties import OpenAIProperties
from providers.openai.targets import Target, Targets
from providers.openai.texts import text_for

logger = logging.getLogger(__name__)

READY_SECONDS = 5.0
"""The longest the service may take to acknowledge its configuration, once connected."""
RECONNECT_SECONDS = 5.0
"""All tries to get a lost connection back, together: so long the user hears nothing."""
FIRST_PAUSE = 0.25
"""Before the second try, and twice as long before each after it."""
RENEW_SECONDS = 300.0
"""Before the service's limit a connection is replaced as soon as nobody is speaking, …"""
FORCE_SECONDS = 20.0
"""… and so long before it in any case."""
HELD_FRAMES = 1500
"""Frames kept while there is no connection: half a minute of audio."""

OpenLink = Callable[[str, Mapping[str, str]], AbstractAsyncContextManager[Link]]


class _End(Enum):
    """How a connection ended."""

    DONE = auto()
    RENEW = auto()
    LOST = auto()
    REFUSED = auto()


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
    _link: Link | None = attrs.field(default=None, init=False)
    """The connection, once the service has acknowledged its configuration."""
    _held: deque[str] = attrs.field(factory=lambda: deque[str](maxlen=HELD_FRAMES), init=False)
    _said: deque[Emit | StartCall] = attrs.field(factory=deque[Emit | StartCall], init=False)
    _is_saying: bool = attrs.field(default=False, init=False)
    _elements: trio.MemorySendChannel[RealtimeElement] | None = attrs.field(default=None, init=False)
    _start_tool: StartTool | None = attrs.field(default=None, init=False)
    _receiving: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _deadline_moved: trio.Event = attrs.field(factory=trio.Event, init=False)
    _failure: RealtimeException | None = attrs.field(default=None, init=False)
    _renew_at: float | None = attrs.field(default=None, init=False)
    _earlier_turns: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Those of earlier runs of the session: the prompt tells of them."""

    def __attrs_post_init__(self) -> None:
        self.properties = self.openai
        self._conversation = Conversation(self.openai, self.context.environment.new_id, self.context.locale, self.usage)

    # --- the session's side

    async def run(
        self,
        inputs: trio.MemoryReceiveChannel[SessionInput],
        elements: trio.MemorySendChannel[RealtimeElement],
        start_tool: StartTool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        self._elements, self._start_tool = elements, start_tool
        self._earlier_turns = frozenset(message.turn_id for message in self.context.messages)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_time, name="provider deadlines")
            await self._hold_connections(nursery, inputs, task_status)
            nursery.cancel_scope.cancel(reason="the conversation with the provider is over")
        if self._failure is not None:
            raise self._failure

    async def handle_instruction(self, instruction: RealtimeInstruction) -> None:
        await trio.lowlevel.checkpoint()
        await self._apply(self._conversation.instruct(instruction, trio.current_time()))

    async def _take_inputs(self, inputs: trio.MemoryReceiveChannel[SessionInput]) -> None:
        async for item in inputs:
            await self._apply(self._conversation.take(item, trio.current_time()))
        await self._apply(self._conversation.input_ended(trio.current_time()))

    async def _keep_time(self) -> None:
        """The deadlines of the rules, and that of the connection."""
        while True:
            now = trio.current_time()
            times = [time for time in (self._conversation.deadline, self._renew_at) if time is not None]
            self._deadline_moved = trio.Event()
            with trio.move_on_at(min(times)) if times else trio.CancelScope() as waiting:
                await self._deadline_moved.wait()
            if not waiting.cancelled_caught:
                await trio.lowlevel.checkpoint()
                continue
            now = trio.current_time()
            await self._apply(self._conversation.tick(now))
            if self._renew_at is not None and now >= self._renew_at and not self._conversation.is_quiet:
                self._renew_at = None  # `_apply` looks again with each event; the forced end is the service's own limit

    # --- doing what the rules say

    async def _apply(self, todo: list[Do]) -> None:
        for do in todo:
            match do:
                case SendFrame(frame):
                    self._send(frame)
                case Fail(error):
                    self._failure = self._failure or error
                    self._receiving.cancel(reason="the provider has ended the session")
                case _:
                    self._said.append(do)
        self._deadline_moved.set()
        if self._conversation.is_done:
            self._receiving.cancel(reason="every answer was given")
        await self._say()

    def _send(self, frame: str) -> None:
        if self._link is None:
            self._held.append(frame)
            return
        try:
            self._link.send(frame)
        except LinkClosedError:
            logger.debug("the connection is over; a frame was not sent")  # the reader finds out by itself

    async def _say(self) -> None:
        """In order, whichever task it comes from: the one that is at it takes along what the other has added."""
        if self._is_saying:
            return
        assert self._elements is not None, "the session runs"
        assert self._start_tool is not None, "the session runs"
        self._is_saying = True
        try:
            while self._said:
                match self._said.popleft():
                    case StartCall(call):
                        self._start_tool(call)
                    case Emit(element):
                        try:
                            self._elements.send_nowait(element)
                        except trio.WouldBlock:
                            await self._elements.send(element)
        finally:
            self._is_saying = False

    # --- connections

    async def _hold_connections(
        self,
        nursery: trio.Nursery,
        inputs: trio.MemoryReceiveChannel[SessionInput],
        task_status: trio.TaskStatus[None],
    ) -> None:
        """One connection after the other, until the conversation is over or none can be had."""

        def begin() -> None:
            task_status.started()
            nursery.start_soon(self._take_inputs, inputs, name="provider inputs")

        has_begun = False
        tries, give_up_at = 0, trio.current_time() + RECONNECT_SECONDS
        pause = FIRST_PAUSE
        while True:
            target = self.targets.next(trio.current_time())
            end, refusal = await self._hold_connection(target, None if has_begun else begin)
            if end is _End.DONE or self._failure is not None:
                return
            if end is _End.RENEW:
                has_begun = True
                await self._apply(self._conversation.lost(trio.current_time()))
                tries, give_up_at, pause = 0, trio.current_time() + RECONNECT_SECONDS, FIRST_PAUSE
                continue
            now = trio.current_time()
            self.targets.failed(target, now, refusal.retry_after if refusal else None)
            if end is _End.LOST:
                has_begun = True
                tries, give_up_at, pause = 0, now + RECONNECT_SECONDS, FIRST_PAUSE
                await self._tell_lost()
            code = REFUSED.get(refusal.status or 0) if refusal else None
            tries += 1
            final = code in (ErrorCode.PROVIDER_AUTH, ErrorCode.MODEL_NOT_FOUND)
            if final or tries > self.openai.reconnect_attempts or now + pause >= give_up_at:
                code = code or ErrorCode.PROVIDER_UNAVAILABLE
                self._failure = RealtimeException(code, text_for(code, self.context.locale))
                return
            await trio.sleep(pause)
            pause *= 2

    async def _tell_lost(self) -> None:
        """End what was being said and tell the client; what comes next waits for the new connection."""
        logger.warning("the connection to %s was lost", self.openai.provider)
        await self._apply(self._conversation.lost(trio.current_time()))
        text = text_for(ErrorCode.PROVIDER_UNAVAILABLE, self.context.locale)
        self._said.append(Emit(RealtimeError(ErrorCode.PROVIDER_UNAVAILABLE, text)))
        await self._say()

    async def _hold_connection(
        self, target: Target, begin: Callable[[], None] | None
    ) -> tuple[_End, LinkRefusedError | None]:
        """One connection, from its opening to its end. `begin` is called when the first one is ready."""
        is_ready = False
        refusal: LinkRefusedError | None = None
        end = _End.DONE
        try:
            with trio.CancelScope() as self._receiving:
                async with self.open_link(target.url, target.headers) as link:
                    await self._configure(link)
                    is_ready = True
                    await self._start(link, begin)
                    await self._read(link)
            is_over = self._conversation.is_done or self._failure is not None
            end = _End.DONE if is_over else _End.RENEW
        except* LinkRefusedError as group:
            refusal = _first(group)
            end = _End.REFUSED
        except* LinkClosedError:
            end = _End.LOST if is_ready else _End.REFUSED
        finally:
            self._link = None
        return end, refusal

    async def _configure(self, link: Link) -> None:
        """Send the configuration and nothing else until it is acknowledged (M9, case C29)."""
        context = self.context
        tools = [events.function_tool(each) for each in self.tool_box.specifications]
        language = context.locale.partition("-")[0]
        text_only = context.configuration.text_only
        link.send(events.session_update(self.openai, self.system_prompt.text, tools, language, text_only=text_only))
        reader = events.EventReader()
        with trio.move_on_after(READY_SECONDS):
            while not self._conversation.is_ready and self._failure is None:
                event = reader.read(await link.receive())
                if event is not None:
                    await self._apply(self._conversation.receive(event, trio.current_time()))
            return
        raise LinkRefusedError(None)

    async def _start(self, link: Link, begin: Callable[[], None] | None) -> None:
        """The connection is ready: what was held goes first, in its order."""
        if self._failure is not None:
            return
        self._link = link
        now = trio.current_time()
        expires_at = self._conversation.expires_at
        self._renew_at = None
        if expires_at is not None:
            left = expires_at - self.context.environment.wall_clock().timestamp()
            if left > RENEW_SECONDS:
                self._renew_at = now + left - RENEW_SECONDS
        if begin is not None:
            begin()
            return
        held, self._held = list(self._held), deque[str](maxlen=HELD_FRAMES)
        await self._apply(self._conversation.resume(self._messages(), now))
        for frame in held:
            self._send(frame)

    async def _read(self, link: Link) -> None:
        reader = events.EventReader()
        while self._failure is None:
            event = reader.read(await link.receive())
            if event is not None:
                await self._apply(self._conversation.receive(event, trio.current_time()))
            if self._is_due_for_renewal():
                return

    def _is_due_for_renewal(self) -> bool:
        expires_at = self._conversation.expires_at
        if expires_at is None or self._renew_at is not None:
            return False
        left = expires_at - self.context.environment.wall_clock().timestamp()
        return left < RENEW_SECONDS and (self._conversation.is_quiet or left < FORCE_SECONDS)

    def _messages(self) -> list[Message]:
        """What was said in this run; the prompt tells of earlier ones."""
        return [message for message in self.context.messages if message.turn_id not in self._earlier_turns]


def _first(group: BaseExceptionGroup[LinkRefusedError]) -> LinkRefusedError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, LinkRefusedError)
    return error
