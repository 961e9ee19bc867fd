"""What stays open as long as a session does."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from engine.session.holdings import SessionHoldings

CLOSE_SECONDS = 3.0


class Thing:
    """Something that is connected, and takes its time to close."""

    def __init__(self, opens: float = 1.0, closes: float = 1.0, failure: Exception | None = None) -> None:
        self.opens, self.closes, self.failure = opens, closes, failure
        self.log: list[tuple[float, str]] = []

    def note(self, what: str) -> None:
        self.log.append((trio.current_time(), what))

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[str]:
        await trio.sleep(self.opens)
        if self.failure is not None:
            raise self.failure
        self.note("open")
        try:
            yield "it"
        finally:
            self.note("closing")
            if self.closes:
                await trio.sleep(self.closes)  # noqa: ASYNC102 - how long that may take is what is tested
            self.note("closed")


async def test_it_is_held_until_the_session_is_over(autojump_clock: trio.testing.MockClock) -> None:
    thing = Thing()
    async with trio.open_nursery() as nursery:
        holdings = SessionHoldings(nursery, CLOSE_SECONDS)
        assert await holdings.hold(thing.connected()) == "it"
        await trio.sleep(5)
        holdings.release()
    assert thing.log == [(1, "open"), (6, "closing"), (7, "closed")]


async def test_closing_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        holdings = SessionHoldings(nursery, CLOSE_SECONDS)
        await holdings.hold(Thing(closes=100).connected())
        holdings.release()
    assert trio.current_time() == 1 + CLOSE_SECONDS


async def test_what_cannot_be_had_is_told(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        holdings = SessionHoldings(nursery, CLOSE_SECONDS)
        with pytest.raises(OSError, match="away"):
            await holdings.hold(Thing(failure=OSError("away")).connected())
        holdings.release()


async def test_nobody_waits_for_what_is_held_soon(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    came: list[tuple[float, str]] = []
    async with trio.open_nursery() as nursery:
        holdings = SessionHoldings(nursery, CLOSE_SECONDS)
        holdings.hold_soon(Thing(opens=2).connected(), lambda value: came.append((trio.current_time(), value)))
        holdings.hold_soon(Thing(failure=OSError("away")).connected(), lambda value: came.append((0, value)))
        assert trio.current_time() == 0
        await trio.sleep(5)
        holdings.release()
    assert came == [(2, "it")]
    assert "cannot be had" in caplog.text


async def test_what_is_still_being_entered_at_the_end_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        holdings = SessionHoldings(nursery, CLOSE_SECONDS)
        holdings.hold_soon(Thing(opens=100).connected(), lambda value: None)
        await trio.sleep(1)
        holdings.release()
    assert trio.current_time() == 1 + CLOSE_SECONDS


async def test_a_cancelled_session_leaves_nothing_open(autojump_clock: trio.testing.MockClock) -> None:
    thing = Thing(closes=0)
    with trio.move_on_after(5):
        async with trio.open_nursery() as nursery:
            holdings = SessionHoldings(nursery, CLOSE_SECONDS)
            await holdings.hold(thing.connected())
            await trio.sleep_forever()
    assert [what for _, what in thing.log][:2] == ["open", "closing"]
    assert trio.current_time() == 5


async def test_what_fails_later_is_logged_and_hurts_nobody(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def fragile() -> AsyncGenerator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_fail_after, 2.0)
            yield

    async with trio.open_nursery() as nursery:
        holdings = SessionHoldings(nursery, CLOSE_SECONDS)
        await holdings.hold(fragile())
        with caplog.at_level(logging.ERROR):
            await trio.sleep(5)
        assert trio.current_time() == 5
        holdings.release()
    assert "has failed" in caplog.text


async def _fail_after(seconds: float) -> None:
    await trio.sleep(seconds)
    raise OSError("the server has gone")
