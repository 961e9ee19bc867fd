"""Owed webhook calls are made by one process at a time, repeated on time, and reported when they are given up."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from engine.deliveries import AT_ONCE, LEASE_SECONDS, LOOK_SECONDS, Deliveries, Post, open_post
from engine.errors import ConfigurationError
from engine.interfaces import Environment
from engine.protocol.webhooks import LIFETIME, Answer, CallError, sign
from engine.store.contract import Store
from engine.store.documents import Delivery, Lease
from engine.store.memory import MemoryStore
from engine.testing.faults import Fault, FaultyStore, StoreCall
from engine.testing.stage import EPOCH, scripted_environment
from tests.engine.hook_server import open_hook_server

SECRET = "s3cret"
URL = "https://hook.example/services/T0/secret-path?token=secret-query"


@attrs.frozen
class Call:
    at: float
    url: str
    body: bytes
    headers: Mapping[str, str]


@attrs.define(eq=False)
class Receiver:
    """Answers each call with the next status or failure, the last one again and again, after `seconds`."""

    answers: Sequence[int | Exception] = (204,)
    seconds: float = 0.0
    calls: list[Call] = attrs.field(factory=list[Call], init=False)
    opened: int = attrs.field(default=0, init=False)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        answer = self.answers[min(len(self.calls), len(self.answers) - 1)]
        self.calls.append(Call(trio.current_time(), url, body, headers))
        await trio.sleep(self.seconds)
        if isinstance(answer, Exception):
            raise answer
        return Answer(answer, b"")

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Post]:
        await trio.lowlevel.checkpoint()
        self.opened += 1
        yield self.post

    @property
    def times(self) -> list[float]:
        return [call.at for call in self.calls]


def find_secret(reference: str, setting: str) -> str | None:
    if reference == "env:HOOK_SECRET":
        return SECRET
    raise ConfigurationError(f"{setting}: set the environment variable {reference.removeprefix('env:')}")


def owed(delivery_id: str = "d1", *, at: float = 0.0, secret: str = "", url: str = URL) -> Delivery:
    due_at = EPOCH + timedelta(seconds=at)
    return Delivery(
        id=delivery_id,
        session_id="s1",
        url=url,
        secret=secret,
        body='{"said":"private words"}',
        due_at=due_at,
        expires_at=due_at + LIFETIME,
    )


@asynccontextmanager
async def working(store: Store, receiver: Receiver, workers: int = 1) -> AsyncGenerator[list[Deliveries]]:
    environment = scripted_environment()
    made = [Deliveries(store, environment, receiver.open, find_secret) for _ in range(workers)]
    async with trio.open_nursery() as nursery:
        for worker in made:
            nursery.start_soon(worker.run)  # noqa: ASYNC113 - nothing relies on its having begun
        yield made
        nursery.cancel_scope.cancel(reason="the test is over")


class KeptStore(MemoryStore):
    """Lets a test see a delivery that is done: the contract shows only what is due."""

    def __init__(self) -> None:
        super().__init__()
        self.deliveries: dict[str, Delivery] = {}

    async def put_delivery(self, delivery: Delivery) -> None:
        await super().put_delivery(delivery)
        self.deliveries[delivery.id] = delivery


# --- one call ---------------------------------------------------------------------------------------------------------


async def test_a_call_is_signed_with_the_secret_of_that_moment(autojump_clock: MockClock) -> None:
    store, receiver = KeptStore(), Receiver()
    await store.put_delivery(owed(secret="env:HOOK_SECRET"))
    async with working(store, receiver):
        await trio.sleep(1)
    (call,) = receiver.calls
    assert (call.at, call.url, call.body) == (0.0, URL, b'{"said":"private words"}')
    assert call.headers == {
        "X-Souffleur-Delivery": "d1",
        "X-Souffleur-Signature": sign(SECRET, b'{"said":"private words"}', EPOCH),
    }
    delivery = store.deliveries["d1"]
    assert (delivery.done, delivery.attempts, delivery.outcome) == (True, 1, "the answer was HTTP 204")
    assert SECRET not in delivery.model_dump_json()


async def test_without_a_secret_it_is_not_signed(autojump_clock: MockClock) -> None:
    store, receiver = KeptStore(), Receiver()
    await store.put_delivery(owed())
    async with working(store, receiver):
        await trio.sleep(1)
    assert list(receiver.calls[0].headers) == ["X-Souffleur-Delivery"]


async def test_the_client_is_loaded_when_there_is_something_to_call(autojump_clock: MockClock) -> None:
    store, receiver = KeptStore(), Receiver()
    async with working(store, receiver) as (worker,):
        await trio.sleep(60)
        assert receiver.opened == 0
        await store.put_delivery(owed(at=60))
        worker.wake()
        await trio.testing.wait_all_tasks_blocked()
        assert receiver.times == [60]
        assert receiver.opened == 1


async def test_what_another_process_has_put_is_found(autojump_clock: MockClock) -> None:
    store, receiver = KeptStore(), Receiver()
    async with working(store, receiver):
        await trio.sleep(1)
        await store.put_delivery(owed(at=1))
        await trio.sleep(60)
    assert receiver.times == [LOOK_SECONDS]


# --- tries ------------------------------------------------------------------------------------------------------------

BROKEN = CallError("the connection broke (ReadError)")


@pytest.mark.parametrize("failure", [503, 429, BROKEN])
async def test_five_tries_with_growing_pauses_then_it_is_reported(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, failure: int | Exception
) -> None:
    store, receiver = KeptStore(), Receiver([failure])
    await store.put_delivery(owed())
    async with working(store, receiver):
        await trio.sleep(3600)
    assert receiver.times == [0, 10, 40, 130, 430]
    delivery = store.deliveries["d1"]
    why = str(failure) if isinstance(failure, Exception) else f"the answer was HTTP {failure}"
    assert (delivery.done, delivery.attempts) == (True, 5)
    assert delivery.outcome == f"given up after try 5 of 5: {why}"
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == [f"webhook call d1 of session s1 to https://hook.example was {delivery.outcome}"]
    for private in ("private words", "secret-path", "secret-query"):
        assert private not in caplog.text


async def test_one_that_is_taken_late_is_done(autojump_clock: MockClock) -> None:
    store, receiver = KeptStore(), Receiver([500, BROKEN, 200])
    await store.put_delivery(owed())
    async with working(store, receiver):
        await trio.sleep(3600)
    assert receiver.times == [0, 10, 40]
    assert store.deliveries["d1"].outcome == "the answer was HTTP 200"


@pytest.mark.parametrize("refusal", [404, 302, CallError("its URL is none", again=False)])
async def test_a_refusal_is_not_repeated(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, refusal: int | Exception
) -> None:
    store, receiver = KeptStore(), Receiver([refusal])
    await store.put_delivery(owed())
    async with working(store, receiver):
        await trio.sleep(3600)
    assert receiver.times == [0]
    assert store.deliveries["d1"].outcome.startswith("given up after try 1 of 5: ")
    assert "was given up" in caplog.text


async def test_a_secret_may_be_put_there_in_the_meantime(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store, receiver = KeptStore(), Receiver()
    await store.put_delivery(owed(secret="env:MISSING"))
    async with working(store, receiver) as (worker,):
        await trio.sleep(15)
        assert receiver.calls == []
        assert store.deliveries["d1"].outcome == "secret: set the environment variable MISSING"
        worker.find_secret = lambda reference, setting: SECRET
        await trio.sleep(60)
    assert receiver.times == [40]


async def test_what_no_process_could_try_in_time_is_tried_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store, receiver = KeptStore(), Receiver([500])
    await store.put_delivery(owed())
    await trio.sleep(86_400)
    async with working(store, receiver):
        await trio.sleep(3600)
    assert receiver.times == [86_400]
    assert store.deliveries["d1"].outcome == "given up after try 1 of 5: the answer was HTTP 500"


async def test_a_slow_receiver_holds_up_no_other(autojump_clock: MockClock) -> None:
    store, receiver = KeptStore(), Receiver(seconds=20)
    for number in range(AT_ONCE + 3):
        await store.put_delivery(owed(f"d{number:02}"))
    async with working(store, receiver):
        await trio.sleep(100)
    assert receiver.times == [0] * AT_ONCE + [20] * 3


async def test_a_fault_of_our_own_is_a_try_and_stops_no_other(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store, receiver = KeptStore(), Receiver([RuntimeError("secret-path"), 204])
    await store.put_delivery(owed("d1"))
    async with working(store, receiver):
        await trio.sleep(1)
        assert store.deliveries["d1"].outcome == "a fault of our own (RuntimeError)"
        await store.put_delivery(owed("d2", at=1))
        await trio.sleep(60)
    assert receiver.times == [0, 5, 10]
    assert [store.deliveries[each].done for each in ("d1", "d2")] == [True, True]
    assert "secret-path" not in caplog.text


async def test_a_client_that_cannot_be_made_is_made_later(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Late(Receiver):
        @asynccontextmanager
        async def open(self) -> AsyncGenerator[Post]:
            await trio.lowlevel.checkpoint()
            if trio.current_time() < 12:
                raise FileNotFoundError("there are no certificates")
            yield self.post

    store, receiver = KeptStore(), Late()
    await store.put_delivery(owed())
    async with working(store, receiver):
        await trio.sleep(60)
    assert receiver.times == [15]
    assert "webhooks cannot be called now" in caplog.text


@pytest.mark.parametrize("operation", ["acquire_lease", "due_deliveries"])
async def test_a_store_that_is_broken_stops_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    inner, receiver = KeptStore(), Receiver()
    await inner.put_delivery(owed())
    store = FaultyStore(lambda call: Fault.CRASH if call.operation == operation and call.at < 1 else None, inner)
    async with working(store, receiver):
        await trio.sleep(60)
    assert receiver.times == [LOOK_SECONDS]
    assert "was made to crash" in caplog.text


# --- several processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, 0.01, 3.0])
async def test_two_workers_on_one_store_call_once(autojump_clock: MockClock, seconds: float) -> None:
    """With a store that takes its time, so that both find it due."""
    store, receiver = FaultyStore(lambda call: seconds), Receiver(seconds=2)
    for number in range(6):
        await store.put_delivery(owed(f"d{number}"))
    async with working(store, receiver, workers=2):
        await trio.sleep(120)
    assert sorted(call.headers["X-Souffleur-Delivery"] for call in receiver.calls) == [f"d{n}" for n in range(6)]


async def test_a_list_that_is_old_by_now_calls_nobody(autojump_clock: MockClock) -> None:
    """The other one has called, and given its lease back, between this one's look and its lease."""

    class Slow(FaultyStore):
        async def acquire_lease(self, name: str, token: str, *, now: datetime, seconds: float) -> Lease | None:
            if token == "lease-2":
                await trio.sleep(3)
            return await super().acquire_lease(name, token, now=now, seconds=seconds)

    store, receiver = Slow(), Receiver()
    await store.put_delivery(owed())
    async with working(store, receiver, workers=2):
        await trio.sleep(60)
    assert len(receiver.calls) == 1


async def test_a_process_that_was_killed_leaves_it_to_another(autojump_clock: MockClock) -> None:
    store, receiver = KeptStore(), Receiver()
    await store.put_delivery(owed())
    await store.acquire_lease("delivery:d1", "of the dead", now=EPOCH, seconds=LEASE_SECONDS)
    async with working(store, receiver):
        await trio.sleep(300)
    assert receiver.times == [LEASE_SECONDS]


async def test_a_server_that_stops_gives_it_back_at_once(autojump_clock: MockClock) -> None:
    store, receiver = KeptStore(), Receiver(seconds=15)
    await store.put_delivery(owed())
    with trio.move_on_after(5):
        async with working(store, receiver):
            await trio.sleep_forever()
    assert not store.deliveries["d1"].done
    async with working(store, receiver):
        await trio.sleep(20)
    assert receiver.times == [0, 5]
    assert store.deliveries["d1"].done


# --- a store that fails -----------------------------------------------------------------------------------------------


def failing(operation: str, until: float, *, since: float = 0.0) -> Callable[[StoreCall], Fault | None]:
    return lambda call: Fault.FAIL if call.operation == operation and since <= call.at < until else None


async def test_the_outcome_is_written_when_the_store_can_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    inner, receiver = KeptStore(), Receiver()
    await inner.put_delivery(owed())
    store = FaultyStore(failing("put_delivery", 4), inner)
    async with working(store, receiver):
        await trio.sleep(300)
    assert receiver.times == [0]
    assert inner.deliveries["d1"].done


async def test_an_outcome_that_cannot_be_written_is_a_second_call_under_the_same_id(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    inner, receiver = KeptStore(), Receiver()
    await inner.put_delivery(owed())
    store = FaultyStore(failing("put_delivery", 20), inner)
    async with working(store, receiver):
        await trio.sleep(300)
    assert receiver.times == [0, LEASE_SECONDS]  # not sooner
    assert {call.headers["X-Souffleur-Delivery"] for call in receiver.calls} == {"d1"}
    assert "the outcome of webhook call d1 could not be written; it is made again" in caplog.text


@pytest.mark.parametrize("operation", ["due_deliveries", "acquire_lease", "release_lease"])
async def test_any_other_failure_delays_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    inner, receiver = KeptStore(), Receiver()
    await inner.put_delivery(owed())
    store = FaultyStore(failing(operation, 12), inner)
    async with working(store, receiver):
        await trio.sleep(300)
    assert receiver.times == [0 if operation == "release_lease" else 15]
    assert inner.deliveries["d1"].done


# --- the real thing ---------------------------------------------------------------------------------------------------


@pytest.mark.sockets
async def test_over_a_real_socket() -> None:
    store = KeptStore()
    environment = Environment(lambda: datetime.now(UTC), lambda kind: f"{kind}-1", scripted_environment().random)
    async with open_hook_server() as server:
        url = f"http://127.0.0.1:{server.port}/hook"
        delivery = owed(secret="env:HOOK_SECRET", url=url)
        await store.put_delivery(delivery)
        worker = Deliveries(store, environment, partial(open_post, allow_private=True), find_secret)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)  # noqa: ASYNC113 - nothing relies on its having begun
            with trio.fail_after(5):
                while not store.deliveries["d1"].done:  # noqa: ASYNC110 - a real server, and a store that tells nobody
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel(reason="the test is over")
        (received,) = server.received
        at = datetime.fromtimestamp(int(received.headers["x-souffleur-signature"].split(",")[0][2:]), UTC)
        assert received.headers["x-souffleur-signature"] == sign(SECRET, delivery.body.encode(), at)
        assert received.body == delivery.body.encode()
    assert store.deliveries["d1"].outcome == "the answer was HTTP 204"
