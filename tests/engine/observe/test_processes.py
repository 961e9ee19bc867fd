"""Several processes: any of them gives the sum of all, whoever has been killed."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from prometheus_client import generate_latest, values
from trio.testing import MockClock

from engine.errors import ConfigurationError
from engine.observation import Happening
from engine.observe.lateness import LatenessMeter
from engine.observe.metrics import SAMPLE_SECONDS, make_metrics, watch_process
from engine.observe.processes import DIRECTORY, locked, mark_worker_dead, metrics_directory, registry_of_all
from tests.engine.observe.test_metrics import SESSION, samples

WORKER = """
import sys
from datetime import UTC, datetime
from engine.observation import Happening
from engine.observe.metrics import make_metrics
from engine.store.documents import SessionDocument

metrics = make_metrics()
now = datetime.now(UTC)
metrics.session_opened(SessionDocument(id="s1", created_at=now, updated_at=now), "OpenAI")
metrics.happened(Happening.BARGE_IN)
metrics.store_took("check", 0.25, ok=True)
with metrics.watching_line(lambda: (3, float(sys.argv[1]))):
    metrics.sample()
print("counted", flush=True)
for line in sys.stdin:
    text = metrics.text()
    print(len(text), flush=True)
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
"""
ID = 4711
"""Of this process, in the names of its files."""

_values: Any = values
"""This part of the client has no types."""


@attrs.frozen
class Worker:
    """A process that has counted a session, and gives out what all have counted when it is asked."""

    process: subprocess.Popen[bytes]

    def ask(self) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        length = int(self.process.stdout.readline())
        return by_name(self.process.stdout.read(length))


@contextmanager
def open_workers(directory: Path, count: int) -> Generator[list[Worker]]:
    """The speech that waits in them is of 1, 2, … seconds."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", WORKER, str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, DIRECTORY: str(directory)},
                )
            )
            for number in range(1, count + 1)
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == b"counted\n"
        yield [Worker(process) for process in started]


def by_name(text: bytes) -> dict[str, float]:
    """Samples by their names without `souffleur_`. None of those that are asked for here differ by labels alone."""
    return {name.removeprefix("souffleur_"): value for (name, _), value in samples(text).items()}


def counted(directory: Path) -> dict[str, float]:
    """What another process would give out."""
    return by_name(generate_latest(registry_of_all(directory)))


@pytest.fixture
def together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """This process counts in files of a directory, as one of several does; its id there is `ID`."""
    directory = tmp_path / "together"
    directory.mkdir()
    kept = _values.MultiProcessValue(lambda: ID)
    monkeypatch.setattr(values, "ValueClass", kept)
    monkeypatch.setenv(DIRECTORY, str(directory))
    yield directory
    kept.close_all_files()


def test_a_killed_worker_counts_on_and_is_nowhere_now(tmp_path: Path) -> None:
    with open_workers(tmp_path, 2) as (killed, living):
        found = living.ask()
        assert found["sessions"] == found["workers"] == found["barge_ins_total"] == 2
        assert (found["outbox_elements"], found["unsent_speech_seconds"]) == (6, 3.0)
        assert found["unsent_speech_most_seconds"] == 2.0
        assert found["store_seconds_sum"] == 0.5
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait()
        mark_worker_dead(tmp_path, killed.process.pid)
        found = living.ask()
        assert found["sessions"] == found["workers"] == 1
        assert found["sessions_opened_total"] == found["barge_ins_total"] == found["store_seconds_count"] == 2
        assert found["store_seconds_sum"] == 0.5
        living.process.send_signal(signal.SIGKILL)
        living.process.wait()
        mark_worker_dead(tmp_path, living.process.pid)
    found = counted(tmp_path)
    assert "sessions" not in found
    assert found["barge_ins_total"] == found["store_seconds_count"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counter_ended.db", "histogram_ended.db"]


def test_a_process_keeps_four_files(together: Path) -> None:
    metrics = make_metrics()
    metrics.session_opened(SESSION, "OpenAI")
    kinds = ["counter", "gauge_livemax", "gauge_livesum", "histogram"]
    assert sorted(path.name for path in together.iterdir()) == [f"{kind}_{ID}.db" for kind in kinds]


def test_files_do_not_become_more(together: Path) -> None:
    metrics = make_metrics()
    metrics.happened(Happening.BARGE_IN)
    metrics.store_took("check", 0.25, ok=True)
    sizes = set[int]()
    for generation in range(1, 21):
        for path in together.glob(f"*_{ID}.db"):
            shutil.copy(path, together / path.name.replace(f"_{ID}", "_1"))
        mark_worker_dead(together, 1)
        found = counted(together)
        assert found["barge_ins_total"] == found["store_seconds_count"] == generation + 1
        assert found["workers"] == 1
        assert len(list(together.iterdir())) == 4 + 2
        sizes.add(sum(path.stat().st_size for path in together.iterdir()))
    assert len(sizes) == 1


def test_a_worker_that_has_counted_nothing_is_marked_too(tmp_path: Path) -> None:
    mark_worker_dead(tmp_path, ID)
    (tmp_path / f"counter_{ID}.db").touch()  # it was killed while it made this
    mark_worker_dead(tmp_path, ID)
    assert counted(tmp_path) == {}


def test_sums_never_change_while_workers_are_marked(together: Path) -> None:
    """Read again and again by one thread, while another one marks worker after worker."""
    metrics = make_metrics()
    metrics.happened(Happening.BARGE_IN)
    numbers = range(1, 41)
    for number in numbers:
        shutil.copy(together / f"counter_{ID}.db", together / f"counter_{number}.db")
    seen, is_over, is_read = set[float](), threading.Event(), threading.Event()

    def read() -> None:
        while not is_over.is_set():
            seen.add(by_name(metrics.text())["barge_ins_total"])
            is_read.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert is_read.wait(timeout=60)
    for number in numbers:
        mark_worker_dead(together, number)
    is_over.set()
    reader.join()
    assert seen == {1.0 + len(numbers)}


def test_who_reads_shares_the_lock_and_who_adds_does_not(tmp_path: Path) -> None:
    lock = os.open(tmp_path, os.O_RDONLY)
    with locked(tmp_path, shared=True):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(lock, fcntl.LOCK_UN)
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with locked(tmp_path), pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)


async def test_a_process_is_watched(together: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one gives out what its lines said a second ago, and how late its loop was; afterwards nothing is looked at."""
    mock_clock.autojump_threshold = 0
    added, add = list[trio.abc.Instrument](), trio.lowlevel.add_instrument

    def add_noted(instrument: trio.abc.Instrument) -> None:
        added.append(instrument)
        add(instrument)

    monkeypatch.setattr(trio.lowlevel, "add_instrument", add_noted)
    watched, meter, waiting = make_metrics(), LatenessMeter(), [(3, 1.5)]
    with watched.watching_line(lambda: waiting[0]):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_process, watched, meter)
            await trio.sleep(0.5)
            assert counted(together)["outbox_elements"] == 3
            waiting[0] = (8, 2.0)
            await trio.sleep(SAMPLE_SECONDS)
            assert counted(together)["outbox_elements"] == 8
            mock_clock.jump(0.4)  # this task holds the loop
            await trio.sleep(0.05)
            assert meter.latest > 0.3
            found = samples(generate_latest(registry_of_all(together)))
            assert found["souffleur_loop_lateness_seconds_bucket", frozenset({("le", "0.2")})] == 15
            assert found["souffleur_loop_lateness_seconds_count", frozenset()] == 16
            nursery.cancel_scope.cancel()
    (instrument,) = added
    with pytest.raises(KeyError):
        trio.lowlevel.remove_instrument(instrument)


@pytest.mark.parametrize("memory", ["there", "missing"])
def test_the_directory_of_a_server_is_gone_with_it(tmp_path: Path, memory: str) -> None:
    (tmp_path / "there").mkdir()
    with metrics_directory(tmp_path / memory) as directory:
        (directory / f"counter_{ID}.db").touch()
        assert (directory.parent == tmp_path / memory) == (memory == "there")
        assert directory.stat().st_mode & 0o077 == 0
    assert not directory.exists()


def test_a_directory_that_cannot_be_used(tmp_path: Path, together: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY, str(tmp_path / "missing"))
    with pytest.raises(ConfigurationError, match=r"metrics directory .* No such file"):
        make_metrics()


def test_a_directory_that_is_gone_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mark_worker_dead(tmp_path / "gone", ID)
    assert caplog.messages == [f"what worker {ID} had counted is lost: No such file or directory"]
