"""The LLM log is stored in order and bounded, whatever the store does, and nothing of it reaches the ordinary log."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
import trio
from trio.testing import MockClock

from engine.interfaces import TokenUsage
from engine.session import llm_log
from engine.session.llm_log import GATHER_SECONDS, MAX_CHARACTERS, MAX_UNSAVED, RUN_POSITIONS, StoredLog
from engine.store.contract import Store
from engine.store.documents import LogEntry, LogKind
from engine.store.memory import MemoryStore
from engine.testing.faults import Fault, FaultyStore, StoreCall
from engine.testing.stage import EPOCH, scripted_environment

SECRET = "the words of the conversation"


def make_log(store: Store, *, fence: int = 1, redact: bool = False) -> StoredLog:
    return StoredLog(store, scripted_environment(), "s1", fence, redact=redact)


def say(log: StoredLog, text: str) -> None:
    log.record(LogKind.INSTRUCTION, {"text": text})


@asynccontextmanager
async def logging_to(store: Store) -> AsyncGenerator[StoredLog]:
    log = make_log(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)  # noqa: ASYNC113 - nothing relies on its having begun
        yield log
        nursery.cancel_scope.cancel(reason="the test is over")


async def stored(store: Store) -> list[LogEntry]:
    return await store.get_log("s1", limit=10_000)


async def texts(store: Store) -> list[str]:
    return [(entry.content or {})["text"] for entry in await stored(store)]


def failing(seconds: float) -> Callable[[StoreCall], Fault | None]:
    return lambda call: Fault.FAIL if call.operation == "append_log" and call.at < seconds else None


def appends(store: FaultyStore) -> list[float]:
    return [call.at for call in store.calls if call.operation == "append_log"]


async def test_an_entry_says_who_when_and_how_much(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with logging_to(store) as log:
        await trio.sleep(2)
        log.record(
            LogKind.CHAT,
            {"answer": "Hello."},
            component="speaker",
            model="gpt",
            turn_id="t1",
            usage=TokenUsage(100, 20, 60),
            seconds=1.2344,
        )
        log.record(LogKind.PROMPT, {"text": "Be kind."})
        await trio.sleep(1)
    assert await stored(store) == [
        LogEntry(
            id="log-1",
            session_id="s1",
            position=RUN_POSITIONS,
            at=EPOCH + timedelta(seconds=2),
            kind=LogKind.CHAT,
            component="speaker",
            model="gpt",
            turn_id="t1",
            input_tokens=100,
            output_tokens=20,
            cached_tokens=60,
            duration_ms=1234,
            content={"answer": "Hello."},
        ),
        LogEntry(
            id="log-2",
            session_id="s1",
            position=RUN_POSITIONS + 1,
            at=EPOCH + timedelta(seconds=2),
            kind=LogKind.PROMPT,
            content={"text": "Be kind."},
        ),
    ]


async def test_what_comes_together_is_written_together(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with logging_to(store) as log:
        for number in range(4):
            say(log, str(number))
            await trio.sleep(0.1)
        await trio.sleep(10)
        say(log, "later")
        await trio.sleep(1)
    assert appends(store) == pytest.approx([GATHER_SECONDS, 10.4 + GATHER_SECONDS])
    assert await texts(store) == ["0", "1", "2", "3", "later"]


async def test_a_store_that_fails_is_tried_again_and_order_is_kept(autojump_clock: MockClock) -> None:
    store = FaultyStore(failing(3.0))
    async with logging_to(store) as log:
        say(log, "first")
        await trio.sleep(1)
        say(log, "second")
        assert (log.unsaved, log.lost) == (2, 0)
        await trio.sleep(4)
        assert log.unsaved == 0
    assert appends(store) == [0.5, 0.75, 1.25, 2.25, 4.25]
    assert await texts(store) == ["first", "second"]


async def test_later_runs_come_behind_earlier_ones(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    first, second = make_log(store, fence=1), make_log(store, fence=2)
    second.environment = first.environment
    say(first, "a")
    say(second, "c")
    say(first, "b")  # it has been taken over and does not know it yet
    await second.flush()
    await first.flush()
    assert await texts(store) == ["a", "b", "c"]


async def test_what_is_written_twice_is_stored_once(autojump_clock: MockClock) -> None:
    class Forgetful(FaultyStore):
        """Writes, and is cancelled before it can say so."""

        async def append_log(self, entries: Sequence[LogEntry]) -> None:
            await super().append_log(entries)
            await trio.sleep(1)

    store = Forgetful()
    async with logging_to(store) as log:
        say(log, "once")
        await trio.sleep(1)
    assert log.unsaved == 1
    await log.flush()
    assert log.unsaved == 0
    assert len(appends(store)) == 2
    assert await texts(store) == ["once"]


async def test_the_flush_is_the_callers_to_bound(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore(failing(100.0))
    log = make_log(store)
    say(log, SECRET)
    with trio.move_on_after(2):
        await log.flush()
    assert trio.current_time() == 2
    assert "session s1: 1 entries of its LLM log are not saved" in caplog.text
    assert SECRET not in caplog.text
    await trio.sleep(98)
    await log.flush()
    assert await texts(store) == [SECRET]


async def test_many_are_written_in_batches(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    log = make_log(store)
    for number in range(250):
        say(log, str(number))
    await log.flush()
    assert len(appends(store)) == 3
    assert await texts(store) == [str(number) for number in range(250)]


async def test_a_long_entry_is_cut(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    log = make_log(store)
    say(log, "x" * 1_000_000)
    await log.flush()
    (text,) = await texts(store)
    assert text.startswith("xxx")
    assert text.endswith("characters cut)")
    assert len(text) < MAX_CHARACTERS + 40


async def test_a_redacted_log_keeps_the_numbers_only(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    log = make_log(store, redact=True)
    log.record(LogKind.CHAT, {"answer": SECRET}, component="speaker", usage=TokenUsage(7, 8))
    await log.flush()
    (entry,) = await stored(store)
    assert (entry.content, entry.component, entry.input_tokens) == (None, "speaker", 7)


async def test_the_oldest_are_given_up_when_the_store_fails_too_long(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = FaultyStore(failing(1.0))
    log = make_log(store)
    for number in range(MAX_UNSAVED + 20):
        say(log, str(number))
    assert (log.unsaved, log.lost) == (MAX_UNSAVED, 20)
    assert caplog.text.count("a part of its LLM log is lost") == 1  # reported, and not once for each
    await trio.sleep(1)
    await log.flush()
    assert await texts(store) == [str(number) for number in range(20, MAX_UNSAVED + 20)]


async def test_long_entries_are_given_up_sooner(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    monkeypatch.setattr(llm_log, "MAX_UNSAVED_CHARACTERS", 1000)
    log = make_log(store)
    for _ in range(20):
        say(log, "x" * 92)
    assert (log.unsaved, log.lost) == (10, 10)
    await log.flush()
    assert len(await stored(store)) == 10


async def test_a_run_has_so_many_positions(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(llm_log, "RUN_POSITIONS", 3)
    store = MemoryStore()
    log = make_log(store, fence=5)
    for number in range(5):
        say(log, str(number))
    await log.flush()
    assert [entry.position for entry in await stored(store)] == [15, 16, 17]
    assert log.lost == 2


async def test_one_that_no_store_can_take_holds_up_no_other(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky(FaultyStore):
        async def append_log(self, entries: Sequence[LogEntry]) -> None:
            async with self._called("append_log"):
                if any((entry.content or {}).get("text") == SECRET for entry in entries):
                    raise ValueError(f"not storable: {entries}")
                await self.inner.append_log(entries)

    store = Picky(lambda call: Fault.FAIL if call.of_operation == 3 else None)
    async with logging_to(store) as log:
        for text in ("a", SECRET, "b"):
            say(log, text)
        await trio.sleep(5)
        assert (log.unsaved, log.lost) == (0, 1)
    assert await texts(store) == ["a", "b"]
    assert "entry log-2 of the LLM log of session s1 is given up" in caplog.text
    assert SECRET not in caplog.text
