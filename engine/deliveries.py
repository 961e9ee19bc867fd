"""Owed webhook calls, made: by any process, by one at a time, until they are taken or given up (SPEC L6, protocol page section 3).

A delivery waits in the store. Whoever works on one holds its lease, and having got that looks again whether it is still owed,
as another may just have made it. A process that is killed in the middle leaves the lease behind; when that has expired, another
makes the call again, under the same id.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs
import trio

from engine.errors import ConfigurationError
from engine.interfaces import Environment
from engine.protocol.webhooks import (
    DELIVERY_HEADER,
    SIGNATURE_HEADER,
    TRIES,
    Answer,
    CallError,
    Verdict,
    judge,
    next_try,
    sign,
)
from engine.secrets import resolve_secret
from engine.store.contract import Store, StoreError
from engine.store.documents import Delivery, Lease

if TYPE_CHECKING:
    from engine.outbound import Caller

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Time between looks for what is due; what this process itself has put is looked for at once."""
LEASE_SECONDS = 60.0
"""Longer than a call (20 s) and writing its outcome can take. A process that was killed holds a delivery up for so long."""
AT_ONCE = 8
"""Calls under way in one process: a receiver that takes its 20 s holds up no other."""
DUE_AT_ONCE = 100
WRITE_SECONDS = 10.0
"""What the outcome of a call may take to be written, also when the server stops meanwhile."""
RETRY_SECONDS = 0.25
LONGEST_RETRY = 2.0
"""Between tries to write it."""
RELEASE_SECONDS = 2.0


Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[Answer]]
"""Calls a URL with a body and headers. Raises CallError."""


@asynccontextmanager
async def open_post(*, allow_private: bool) -> AsyncGenerator[Post]:
    """The real thing. The HTTP client is loaded now, in a thread: 70 ms and 4 MB that a process without webhooks does not pay."""
    open_caller = await trio.to_thread.run_sync(_load_outbound)
    async with open_caller(allow_private=allow_private) as caller:
        yield caller.post


def _load_outbound() -> "Callable[..., AbstractAsyncContextManager[Caller]]":
    from engine.outbound import open_caller

    return open_caller


@attrs.define(eq=False)
class Deliveries:
    """The worker of one process. `run` works until it is cancelled."""

    store: Store
    environment: Environment
    open_post: Callable[[], AbstractAsyncContextManager[Post]]
    """Such as `partial(open_post, allow_private=False)`; opened when there is something to call."""
    find_secret: Callable[[str, str], str | None] = resolve_secret
    """The secret behind a reference, looked up when it is needed. Raises ConfigurationError."""
    _in_hand: set[str] = attrs.field(factory=set[str], init=False)
    _woken: trio.Event = attrs.field(factory=trio.Event, init=False)

    def wake(self) -> None:
        """Something was put: look now."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            while not await self._due():
                await self._pause()
            try:
                async with self.open_post() as post:
                    await self._make_calls(post)
            except Exception:
                logger.exception("webhooks cannot be called now")
                await self._pause()

    async def _make_calls(self, post: Post) -> None:
        async with trio.open_nursery() as calls:
            while True:
                for delivery in await self._due():
                    if delivery.id not in self._in_hand and len(self._in_hand) < AT_ONCE:
                        self._in_hand.add(delivery.id)
                        calls.start_soon(self._work, delivery, post, name=f"webhook call {delivery.id}")
                await self._pause()

    async def _due(self) -> Sequence[Delivery]:
        self._woken = trio.Event()
        try:
            return await self.store.due_deliveries(now=self.environment.wall_clock(), limit=DUE_AT_ONCE)
        except StoreError as exc:
            logger.warning("due webhook calls cannot be looked up now: %s", exc)
        except Exception:
            logger.exception("due webhook calls cannot be looked up")
        return ()

    async def _pause(self) -> None:
        with trio.move_on_after(LOOK_SECONDS):
            await self._woken.wait()

    async def _work(self, delivery: Delivery, post: Post) -> None:
        is_done = False
        try:
            is_done = await self._deliver(delivery, post)
        except StoreError as exc:
            logger.warning("webhook call %s waits for the store: %s", delivery.id, exc)
        except Exception:
            logger.exception("webhook call %s failed and is made again", delivery.id)
        finally:
            self._in_hand.discard(delivery.id)
            if is_done:
                self.wake()  # there is room for another; what could not be done must not be asked for all the time

    async def _deliver(self, delivery: Delivery, post: Post) -> bool:
        """Make the call under its lease; False when another process has it in hand, or has made it."""
        now = self.environment.wall_clock()
        token = self.environment.new_id("lease")
        lease = await self.store.acquire_lease(f"delivery:{delivery.id}", token, now=now, seconds=LEASE_SECONDS)
        if lease is None:
            return False
        is_known = True
        try:
            owed = await self.store.due_deliveries(now=now, limit=DUE_AT_ONCE)
            current = next((other for other in owed if other.id == delivery.id), None)
            if current is None:
                return False
            outcome = await self._call(current, post)
            is_known = False
            with trio.move_on_after(WRITE_SECONDS, shield=True):
                is_known = await self._write(outcome)
            if not is_known:
                logger.error("the outcome of webhook call %s could not be written; it is made again", delivery.id)
            return is_known
        finally:
            if is_known:  # else whoever comes next may as well wait
                await self._release(lease)  # noqa: ASYNC102 - it is shielded and bounded inside

    async def _write(self, delivery: Delivery) -> bool:
        pause = RETRY_SECONDS
        while True:
            try:
                await self.store.put_delivery(delivery)
            except StoreError as exc:
                logger.warning("the outcome of webhook call %s is not written yet: %s", delivery.id, exc)
            else:
                return True
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY)

    async def _release(self, lease: Lease) -> None:
        with trio.move_on_after(RELEASE_SECONDS, shield=True):
            try:
                await self.store.release_lease(lease)
            except StoreError:
                logger.debug("the lease %s expires by itself", lease.name)

    async def _call(self, delivery: Delivery, post: Post) -> Delivery:
        """Call once; gives the delivery as it is then."""
        verdict, outcome = await self._ask(delivery, post)
        now = self.environment.wall_clock()
        attempts = delivery.attempts + 1
        due_at = next_try(attempts, now, delivery.expires_at) if verdict is Verdict.RETRY else None
        where = _site(delivery.url)
        if verdict is Verdict.DELIVERED:
            logger.info("webhook call %s of session %s was taken", delivery.id, delivery.session_id)
        elif due_at is None:
            outcome = f"given up after try {attempts} of {TRIES}: {outcome}"
            logger.error("webhook call %s of session %s to %s was %s", delivery.id, delivery.session_id, where, outcome)
        else:
            logger.warning("webhook call %s to %s is tried again: %s", delivery.id, where, outcome)
        return delivery.model_copy(
            update={
                "attempts": attempts,
                "due_at": due_at or delivery.due_at,
                "done": due_at is None,
                "outcome": outcome,
            }
        )

    async def _ask(self, delivery: Delivery, post: Post) -> tuple[Verdict, str]:
        body = delivery.body.encode()
        headers = {DELIVERY_HEADER: delivery.id}
        try:
            secret = self.find_secret(delivery.secret, "secret") if delivery.secret else None
        except ConfigurationError as exc:
            return Verdict.RETRY, str(exc)  # it may be put there in the meantime
        if secret is not None:
            headers[SIGNATURE_HEADER] = sign(secret, body, self.environment.wall_clock())
        try:
            answer = await post(delivery.url, body, headers)
        except CallError as exc:
            return (Verdict.RETRY if exc.again else Verdict.GIVE_UP), str(exc)
        except (
            Exception
        ) as exc:  # a fault of ours counts as a try, or it would come again for ever; its words may hold the URL
            return Verdict.RETRY, f"a fault of our own ({type(exc).__name__})"
        return judge(answer.status), f"the answer was HTTP {answer.status}"


def _site(url: str) -> str:
    """What of a URL may be told: paths and queries may hold secrets."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that is none"
    return f"{parts.scheme}://{parts.hostname or ''}{port}"
