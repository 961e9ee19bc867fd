"""Several processes: any of them gives the sum of all, whoever has been killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from engine.errors import ConfigurationError
from engine.observation import Happening
from engine.observe.lateness import LatenessMeter
from engine.observe.metrics import SAMPLE_SECONDS, Metrics, make_metrics, mark_worker_dead, watch_process
from engine.observe.page import read_page
from engine.observe.workers import metrics_directory
from tests.engine.observe.test_metrics import SESSION, value

WORKER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from engine.observation import Happening
from engine.observe.metrics import make_metrics
from engine.store.documents import SessionDocument

metrics = make_metrics(Path(sys.argv[1]))
now = datetime.now(UTC)
metrics.session_opened(SessionDocument(id="s1", created_at=now, updated_at=now), "OpenAI")
metrics.happened(Happening.BARGE_IN)
print("counted", flush=True)
sys.stdin.read()
"""
DEAD = 4711


@contextmanager
def metrics_of_a_worker(directory: Path) -> Generator[Metrics]:
    metrics = make_metrics(directory)
    try:
        yield metrics
    finally:
        metrics.close()


@pytest.fixture
def dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page of a worker that has refused somebody and died; its name."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: DEAD)
        metrics = make_metrics(tmp_path)
    metrics.refused("quota")
    metrics.close()
    return metrics.name


def test_a_killed_worker_counts_on_and_is_nowhere_now(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    with (
        metrics_of_a_worker(tmp_path) as metrics,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker,
    ):
        metrics.session_opened(SESSION, "OpenAI")
        metrics.happened(Happening.BARGE_IN)
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"counted\n"
        assert value(metrics, "sessions", provider="OpenAI") == 2
        assert value(metrics, "barge_ins_total") == 2
        assert value(metrics, "workers") == 2
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        for _ in range(2):  # before it is marked as dead, and after
            assert value(metrics, "sessions", provider="OpenAI") == 1
            assert value(metrics, "sessions_opened_total", provider="OpenAI") == 2
            assert value(metrics, "barge_ins_total") == 2
            assert value(metrics, "workers") == 1
            mark_worker_dead(tmp_path, worker.pid)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["ended", metrics.name])


def test_files_do_not_become_more(tmp_path: Path) -> None:
    sizes: list[int] = []
    for generation in range(1, 21):
        with metrics_of_a_worker(tmp_path) as metrics:
            metrics.refused("too_busy")
            metrics.session_opened(SESSION, "OpenAI")
            assert value(metrics, "refusals_total", reason="too_busy") == generation
            assert value(metrics, "sessions", provider="OpenAI") == 1
        mark_worker_dead(tmp_path, os.getpid())
        assert [path.name for path in tmp_path.iterdir()] == ["ended"]
        sizes.append((tmp_path / "ended").stat().st_size)
    assert len(set(sizes)) == 1


def test_sums_never_go_back_while_a_worker_is_folded(
    tmp_path: Path, dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look between any two steps of a fold sees the same, and so does one that is overtaken by a whole fold."""
    seen: list[float | None] = []
    unlink, replace = Path.unlink, Path.replace
    with metrics_of_a_worker(tmp_path) as metrics, monkeypatch.context() as patch:
        metrics.refused("quota")

        def look() -> None:
            seen.append(value(metrics, "refusals_total", reason="quota"))

        def replace_watched(self: Path, target: Path) -> Path:
            look()
            return replace(self, target)

        def unlink_watched(self: Path, missing_ok: bool = False) -> None:
            look()
            unlink(self, missing_ok)
            look()

        def read_overtaken(path: Path) -> tuple[bytes, bool]:
            patch.setattr("engine.observe.workers.read_page", read_page)
            mark_worker_dead(tmp_path, DEAD)
            return read_page(path)

        patch.setattr(Path, "replace", replace_watched)
        patch.setattr(Path, "unlink", unlink_watched)
        patch.setattr("engine.observe.workers.read_page", read_overtaken)
        look()
    assert seen == [2.0] * 4
    assert not (tmp_path / dead).exists()


def test_a_fold_that_was_cut_off_is_not_counted_twice(
    tmp_path: Path, dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: Path, missing_ok: bool = False) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            mark_worker_dead(tmp_path, DEAD)
    assert (tmp_path / dead).exists()
    mark_worker_dead(tmp_path, DEAD)
    assert not (tmp_path / dead).exists()
    with metrics_of_a_worker(tmp_path) as metrics:
        assert value(metrics, "refusals_total", reason="quota") == 1


def test_what_is_told_after_the_end_does_no_harm(tmp_path: Path) -> None:
    with metrics_of_a_worker(tmp_path) as metrics, metrics_of_a_worker(tmp_path) as other:
        metrics.close()
        metrics.session_opened(SESSION, "OpenAI")
        metrics.refused("quota")
        assert value(other, "refusals_total", reason="quota") == 1
        assert value(other, "sessions", provider="OpenAI") is None
        assert value(other, "workers") == 1


def test_a_page_that_was_never_finished_is_removed(tmp_path: Path) -> None:
    (tmp_path / f".worker-{DEAD}-1").write_bytes(b"")
    mark_worker_dead(tmp_path, DEAD)
    assert list(tmp_path.iterdir()) == []


def test_what_another_version_counted_is_left_out(tmp_path: Path) -> None:
    with metrics_of_a_worker(tmp_path) as old:
        old.page.add(b'["no_such_total",[]]', 1)
        old.page.add(b'["refusals_total",["quota","of another shape"]]', 1)
        with metrics_of_a_worker(tmp_path) as metrics:
            metrics.refused("quota")
            assert value(metrics, "refusals_total", reason="quota") == 1


async def test_a_process_is_watched(tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one gives out what its lines said a second ago, and how late its loop was; afterwards nothing is looked at."""
    mock_clock.autojump_threshold = 0
    added, add = list[trio.abc.Instrument](), trio.lowlevel.add_instrument

    def add_noted(instrument: trio.abc.Instrument) -> None:
        added.append(instrument)
        add(instrument)

    monkeypatch.setattr(trio.lowlevel, "add_instrument", add_noted)
    meter, waiting = LatenessMeter(), [(3, 1.5)]
    with metrics_of_a_worker(tmp_path) as watched, metrics_of_a_worker(tmp_path) as other:
        with watched.watching_line(lambda: waiting[0]):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch_process, watched, meter)
                await trio.sleep(0.5)
                assert value(other, "outbox_elements") == 3
                waiting[0] = (8, 2.0)
                await trio.sleep(SAMPLE_SECONDS)
                assert value(other, "outbox_elements") == 8
                mock_clock.jump(0.4)  # this task holds the loop
                await trio.sleep(0.05)
                assert meter.latest > 0.3
                assert value(other, "loop_lateness_seconds_bucket", le="0.2") == 15
                assert value(other, "loop_lateness_seconds_count") == 16
                nursery.cancel_scope.cancel()
    (instrument,) = added
    with pytest.raises(KeyError):
        trio.lowlevel.remove_instrument(instrument)


@pytest.mark.parametrize("memory", ["there", "missing"])
def test_the_directory_of_a_server_is_gone_with_it(tmp_path: Path, memory: str) -> None:
    (tmp_path / "there").mkdir()
    with metrics_directory(tmp_path / memory) as directory, metrics_of_a_worker(directory) as metrics:
        assert value(metrics, "workers") == 1
        assert (directory.parent == tmp_path / memory) == (memory == "there")
        assert directory.stat().st_mode & 0o077 == 0
    assert not directory.exists()


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics directory .* No such file"):
        make_metrics(tmp_path / "missing")
