"""Keys that are fetched when they are needed, and not more often: under virtual time, against an issuer of a few lines."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.errors import ConfigurationError, ErrorCode, RemoteError
from engine.identity.fetch import FETCH_SECONDS, FetchError
from engine.identity.key_ring import MAX_AGE_SECONDS, REFRESH_SECONDS, KeyRing
from engine.identity.tokens import TokenHeader
from tests.engine.identity.support import ec_key, jwks, public


def named(kid: str) -> TokenHeader:
    return TokenHeader("ES256", kid)


@attrs.define
class Issuer:
    """Publishes keys. `fetches` are the times at which it was asked."""

    document: bytes
    seconds: float = 0.25
    fault: Exception | None = None
    fetches: list[float] = attrs.field(factory=list[float])

    async def __call__(self) -> bytes:
        self.fetches.append(trio.current_time())
        await trio.sleep(self.seconds)
        if self.fault is not None:
            raise self.fault
        return self.document

    def publish(self, *kids: str) -> None:
        self.document = jwks(*(public(ec_key(number), kid=kid) for number, kid in enumerate(kids)))


@pytest.fixture
def issuer() -> Issuer:
    issuer = Issuer(b"")
    issuer.publish("k1")
    return issuer


@asynccontextmanager
async def open_ring(issuer: Issuer) -> AsyncGenerator[KeyRing]:
    async with trio.open_nursery() as nursery:
        ring = KeyRing(issuer)
        nursery.start_soon(ring.run)  # noqa: ASYNC113 - nothing relies on its having begun
        yield ring
        nursery.cancel_scope.cancel()


async def test_keys_are_fetched_before_anybody_asks(issuer: Issuer, autojump_clock: MockClock) -> None:
    async with open_ring(issuer) as ring:
        await trio.sleep(1)
        assert await ring.find(named("k1")) is not None
        assert trio.current_time() == 1
    assert issuer.fetches == [0]


async def test_the_first_waits_for_the_fetch_under_way(issuer: Issuer, autojump_clock: MockClock) -> None:
    async with open_ring(issuer) as ring:
        assert await ring.find(named("k1")) is not None
        assert trio.current_time() == 0.25
    assert issuer.fetches == [0]


async def test_a_new_key_is_fetched_once_for_all_who_miss_it(issuer: Issuer, autojump_clock: MockClock) -> None:
    async with open_ring(issuer) as ring:
        await trio.sleep(100)
        issuer.publish("k1", "k2")
        found: list[bool] = []

        async def find() -> None:
            found.append(await ring.find(named("k2")) is not None)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(find)
        assert found == [True] * 50
        assert trio.current_time() == 100.25
    assert issuer.fetches == [0, 100]


async def test_a_flood_of_unknown_keys_is_bounded_fetches(issuer: Issuer, autojump_clock: MockClock) -> None:
    async with open_ring(issuer) as ring:
        await trio.sleep(50)
        for number in range(1000):  # over 125 s
            assert await ring.find(named(f"made-up-{number}")) is None
            assert await ring.find(named("k1")) is not None
            await trio.sleep(1 / 8)
    gaps = [later - earlier for earlier, later in zip(issuer.fetches[1:], issuer.fetches[2:], strict=False)]
    assert min(gaps) >= REFRESH_SECONDS
    assert len(issuer.fetches) <= 2 + 130 / REFRESH_SECONDS


async def test_in_the_rest_after_a_fetch_nobody_waits(issuer: Issuer, autojump_clock: MockClock) -> None:
    async with open_ring(issuer) as ring:
        await trio.sleep(1)
        issuer.publish("k1", "k2")
        assert await ring.find(named("k2")) is None
        assert trio.current_time() == 1
        await trio.sleep(REFRESH_SECONDS - 1)
        assert await ring.find(named("k2")) is not None


async def test_a_key_that_was_withdrawn_is_forgotten(issuer: Issuer, autojump_clock: MockClock) -> None:
    async with open_ring(issuer) as ring:
        await trio.sleep(1)
        issuer.publish("k2")
        assert await ring.find(named("k1")) is not None
        await trio.sleep(MAX_AGE_SECONDS)
        assert await ring.find(named("k1")) is None
    assert issuer.fetches == [0, MAX_AGE_SECONDS + 0.25]


@pytest.mark.parametrize("fault", [FetchError("the answer was 500"), RuntimeError("a bug"), ValueError("odd")])
async def test_an_issuer_that_is_down_takes_no_key_away(
    issuer: Issuer, fault: Exception, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_ring(issuer) as ring:
        await trio.sleep(20)
        issuer.fault = fault
        for _ in range(100):
            assert await ring.find(named("k1")) is not None
            with pytest.raises(RemoteError, match="cannot be checked now") as caught:
                await ring.find(named("k2"))
            assert caught.value.code is ErrorCode.TOO_BUSY  # there may be such a key: whoever shows it is not to blame
            await trio.sleep(10)
        issuer.fault = None
        await trio.sleep(10)
        assert await ring.find(named("k2")) is None
        assert await ring.find(named("k1")) is not None
    assert "could not be fetched, older ones are kept" in caplog.text


@pytest.mark.parametrize(
    "document", [b"", b"<html>secret</html>", b'{"keys": []}', jwks({"kty": "oct", "k": "secret"})]
)
async def test_nonsense_takes_no_key_away(
    issuer: Issuer, document: bytes, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_ring(issuer) as ring:
        await trio.sleep(20)
        issuer.document = document
        with pytest.raises(RemoteError, match="cannot be checked now"):
            await ring.find(named("k2"))
        assert await ring.find(named("k1")) is not None
    assert "no JWKS" in caplog.text
    assert "secret" not in caplog.text


async def test_an_issuer_that_never_answers_is_given_up(issuer: Issuer, autojump_clock: MockClock) -> None:
    issuer.seconds = 1e6
    async with open_ring(issuer) as ring:
        with pytest.raises(RemoteError, match="cannot be checked now"):
            await ring.find(named("k1"))
        assert trio.current_time() == FETCH_SECONDS
        issuer.seconds = 0
        await trio.sleep(REFRESH_SECONDS)
        assert await ring.find(named("k1")) is not None


async def test_who_leaves_while_waiting_leaves_nothing_behind(issuer: Issuer, autojump_clock: MockClock) -> None:
    async with open_ring(issuer) as ring:
        await trio.sleep(20)
        issuer.publish("k1", "k2")
        with trio.move_on_after(0.125):
            await ring.find(named("k2"))
        assert await ring.find(named("k2")) is not None
        assert trio.current_time() == 20.25
    assert issuer.fetches == [0, 20]


async def test_loading_beforehand_has_to_succeed(
    issuer: Issuer, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    ring = KeyRing(issuer)
    await ring.load()
    assert await ring.find(named("k1")) is not None
    issuer.fault = FetchError("the file cannot be read (FileNotFoundError)")
    with pytest.raises(ConfigurationError, match=r"SOUFFLEUR_JWT_KEYS: .* cannot be read \(FileNotFoundError\)"):
        await KeyRing(issuer).load()
