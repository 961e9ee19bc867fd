"""One connection to the Realtime API, from its opening to its end."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

import attrs
import trio

from engine.boundary import PASSES, Boundary, Outside
from engine.errors import ErrorCode
from providers.link import Link, LinkClosedError, LinkRefusedError
from providers.openai.events import Event, EventReader, Fault, SessionCreated, SessionUpdated
from providers.openai.faults import Trouble, closed, refused, unconfigured
from providers.openai.targets import Target

logger = logging.getLogger(__name__)

READY_SECONDS = 5.0
"""The longest the service may take to acknowledge its configuration, once connected."""

OpenLink = Callable[[str, Mapping[str, str]], AbstractAsyncContextManager[Link]]
E = TypeVar("E", bound=Exception)


def link_at(boundary: Boundary, name: str, open_link: OpenLink) -> OpenLink:
    """The same links, each of which passes the session's boundary."""
    if boundary is PASSES:
        return open_link

    def open_at(url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Link]:
        return boundary.connect(Outside.LINK, name, partial(open_link, url, headers))

    return open_at


@attrs.define(eq=False)
class Connection:
    """`run` is its task, and has started when the service has taken the configuration, or there is `trouble`."""

    target: Target
    configuration: str
    """The `session.update`."""
    ended: Callable[["Connection"], None]
    """Called when one that was ready is over."""
    expires_at: float | None = attrs.field(default=None, init=False)
    """Seconds since 1970, by the service's clock."""
    trouble: Trouble | None = attrs.field(default=None, init=False)
    """Why it never was ready, or is over."""
    _link: Link | None = attrs.field(default=None, init=False)
    """Set when it is ready."""
    _receive: Callable[[Event], Awaitable[None]] | None = attrs.field(default=None, init=False)
    _in_charge: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def send(self, frame: str) -> None:
        assert self._link is not None, "it is ready"
        self._link.send(frame)

    def take_charge(self, receive: Callable[[Event], Awaitable[None]]) -> None:
        """From now on every event is passed on."""
        self._receive = receive
        self._in_charge.set()

    def leave(self, reason: str) -> None:
        """Close it; its task takes the time for that."""
        self._scope.cancel(reason=reason)

    async def run(self, open_link: OpenLink, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            with self._scope:
                async with open_link(self.target.url, self.target.headers) as link:
                    reader = EventReader()
                    await self._configure(link, reader)
                    self._link = link
                    task_status.started()
                    await self._in_charge.wait()
                    await self._read(link, reader)
        except* LinkRefusedError as group:
            self.trouble = refused(_first(group, LinkRefusedError))
        except* LinkClosedError as group:
            self.trouble = closed(_first(group, LinkClosedError))
        except* Trouble as group:
            self.trouble = _first(group, Trouble)
        if self._link is None:
            task_status.started()
        else:
            self.ended(self)

    async def _configure(self, link: Link, reader: EventReader) -> None:
        """Send the configuration and nothing else until it is acknowledged (M9, case C29).

        Raises:
            Trouble: it is not.
            LinkClosedError: the service has closed.
        """
        link.send(self.configuration)
        with trio.move_on_after(READY_SECONDS):
            while True:
                match reader.read(await link.receive()):
                    case SessionCreated(expires_at):
                        self.expires_at = expires_at
                    case SessionUpdated(expires_at):
                        self.expires_at = expires_at or self.expires_at
                        return
                    case Fault() as fault:
                        logger.error("the settings were not taken: %s %s", fault.code or fault.type, fault.param)
                        raise unconfigured(fault)
                    case _:
                        pass
        raise Trouble(ErrorCode.PROVIDER_UNAVAILABLE)

    async def _read(self, link: Link, reader: EventReader) -> None:
        assert self._receive is not None, "it is in charge"
        while True:
            event = reader.read(await link.receive())
            if event is not None:
                await self._receive(event)


def _first(group: BaseExceptionGroup[E], kind: type[E]) -> E:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, kind)
    return error
