"""A recording is a file that can be played at any time, and no disk can hurt the conversation that is recorded."""

import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import wave
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import trio
from numpy.typing import NDArray
from trio.testing import MockClock

from engine.observe import recorder
from engine.observe.recorder import WRITE_SECONDS, Recordings, WavRecorder, file_name
from engine.protocol.recording import AGENT, USER
from engine.protocol.wav import read_wav

BEGAN = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
RATE = 8000


def open_recorder(directory: Path, *, session_id: str = "s1", max_seconds: float = 3600) -> WavRecorder:
    return Recordings(directory).open(
        session_id=session_id, run=1, user_rate=RATE, agent_rate=RATE, began=BEGAN, max_seconds=max_seconds
    )


@asynccontextmanager
async def recording(directory: Path, *, max_seconds: float = 3600) -> AsyncGenerator[WavRecorder]:
    made = open_recorder(directory, max_seconds=max_seconds)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)  # noqa: ASYNC113 - nothing relies on its having begun
        yield made
        nursery.cancel_scope.cancel(reason="the test is over")
    await made.aclose()


def tone(seconds: float, value: int = 1000) -> bytes:
    return np.full(round(seconds * RATE), value, "<i2").tobytes()


def read(path: Path) -> NDArray[np.int16]:
    """As others read it, who insist on a right header."""
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (2, 2, RATE)
        frames = file.readframes(file.getnframes())
    assert len(frames) == 4 * file.getnframes()
    return np.frombuffer(frames, "<i2").reshape(-1, 2)


def sounds(samples: NDArray[np.int16], channel: int) -> list[tuple[float, float]]:
    loud = np.flatnonzero(np.diff(samples[:, channel] != 0, prepend=False, append=False))
    return [(int(start) / RATE, int(end) / RATE) for start, end in zip(loud[::2], loud[1::2], strict=True)]


async def test_a_conversation_is_recorded(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path / "recordings") as made:
        made.agent_audio(tone(3), RATE, 0.0, "r1")
        for _ in range(100):
            await trio.sleep(0.02)
            made.user_audio(tone(0.02, 7), RATE, trio.current_time())
        made.cut("r1", trio.current_time())
        await trio.sleep(4)
        made.agent_audio(tone(1), RATE, trio.current_time(), "r2")
        await trio.sleep(4)
    path = tmp_path / "recordings" / made.file_name
    samples = read(path)
    assert len(samples) == 10 * RATE
    assert sounds(samples, USER) == [(0.0, 2.0)]
    assert sounds(samples, AGENT) == [(0.0, 2.0), (6.0, 7.0)]
    assert path.stat().st_size == 44 + 4 * 10 * RATE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_wav(path.read_bytes())[1] == RATE  # and so does our own reader
    assert os.listdir(path.parent) == [made.file_name]


async def written(made: WavRecorder) -> None:
    """A thread is at work, and the virtual clock does not wait for it."""
    await trio.to_thread.run_sync(made._file.write)  # pyright: ignore[reportPrivateUsage] - whoever has the lock writes all


async def test_the_file_can_be_played_while_it_is_written(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path) as made:
        await written(made)
        lengths = [len(read(tmp_path / made.file_name)) / RATE]
        for second in range(4):
            made.user_audio(tone(1), RATE, second + 1.0)
            await trio.sleep(1)
            await written(made)
            lengths.append(len(read(tmp_path / made.file_name)) / RATE)
    assert lengths == [0, 1, 2, 3, 4]


async def test_speech_that_is_sent_ahead_is_not_held_in_memory(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path) as made:
        made.agent_audio(tone(600), RATE, 0.0, "r1")
        await trio.sleep(2 * WRITE_SECONDS)
        await written(made)
        assert len(read(tmp_path / made.file_name)) == 600 * RATE
        assert not made._file.queue  # pyright: ignore[reportPrivateUsage] - what is left is what this is about
        made.user_audio(tone(1, 7), RATE, 1.0)
        made.cut("r1", 1.0)
    samples = read(tmp_path / made.file_name)
    assert (sounds(samples, USER), sounds(samples, AGENT)) == ([(0.0, 1.0)], [(0.0, 1.0)])
    assert len(samples) == RATE
    assert (tmp_path / made.file_name).stat().st_size == 44 + 4 * RATE


async def test_silence_costs_no_room(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path) as made:
        made.user_audio(tone(1), RATE, 1.0)
        await trio.sleep(3600)
        made.user_audio(tone(1), RATE, 3600.0)
    path = tmp_path / made.file_name
    assert len(read(path)) == 3600 * RATE
    assert path.stat().st_blocks * 512 < 1 << 20


async def test_it_is_bounded(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path, max_seconds=2) as made:
        made.user_audio(tone(5), RATE, 5.0)
        await trio.sleep(5)
        made.user_audio(tone(5), RATE, 10.0)
    assert len(read(tmp_path / made.file_name)) == 2 * RATE


async def test_without_its_task_it_is_written_at_the_end(tmp_path: Path) -> None:
    made = open_recorder(tmp_path)
    now = trio.current_time()
    made.user_audio(tone(1), RATE, now + 1.0)
    made.agent_audio(tone(2), RATE, now + 1.0, "r1")
    made.stop(now + 2.0)
    await made.aclose()
    samples = read(tmp_path / made.file_name)
    assert [len(sounds(samples, channel)) for channel in (USER, AGENT)] == [1, 1]
    assert len(samples) / RATE >= 2.0
    made.user_audio(tone(1), RATE, now + 9.0)
    await made.aclose()
    assert len(read(tmp_path / made.file_name)) == len(samples)


@pytest.mark.parametrize(
    ("session_id", "readable"),
    [("S1", "S1"), ("../../etc/passwd", "______etc_passwd"), ("..", "__"), ("č~.x", "___x"), ("a" * 128, "a" * 60)],
)
def test_names_are_safe_and_different(session_id: str, readable: str) -> None:
    name = file_name(session_id, 3, BEGAN)
    assert name.startswith(f"{readable}-")
    assert name.endswith("-3-20260301T120005Z.wav")
    assert name != file_name(session_id.lower() + "b", 3, BEGAN)
    assert len(name) < 100


# --- what goes wrong --------------------------------------------------------------------------------------------------


async def feed_all(made: WavRecorder) -> None:
    """Whatever has happened, feeding it is quick and quiet."""
    for index in range(20):
        made.user_audio(tone(0.1), RATE, trio.current_time())
        made.agent_audio(tone(0.1), RATE, trio.current_time(), f"r{index}")
        made.cut(f"r{index}", trio.current_time())
        await trio.sleep(0.1)


async def test_a_directory_that_cannot_be_made_is_reported_once(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    async with recording(tmp_path / "file" / "recordings") as made:
        await feed_all(made)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"recording {made.file_name} was ended: Not a directory" in caplog.text


async def test_no_other_file_is_overwritten(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / file_name("s1", 1, BEGAN)).write_text("somebody else's")
    async with recording(tmp_path) as made:
        await feed_all(made)
    assert (tmp_path / made.file_name).read_text() == "somebody else's"
    assert "File exists" in caplog.text


async def test_a_full_disk_ends_the_recording_and_leaves_what_there_was(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 44 + 4 * RATE + 1000
    pwrite = os.pwrite

    def write(descriptor: int, data: memoryview, offset: int) -> int:
        if offset >= room:
            raise OSError(28, "No space left on device")
        return pwrite(descriptor, data[: room - offset], offset)

    monkeypatch.setattr(os, "pwrite", write)
    async with recording(tmp_path) as made:
        made.user_audio(tone(0.5), RATE, 0.5)
        await written(made)
        made.user_audio(tone(2), RATE, 3.0)
        await written(made)
        await feed_all(made)
    assert [record.getMessage() for record in caplog.records] == [
        f"recording {made.file_name} was ended: No space left on device"
    ]
    assert sounds(read(tmp_path / made.file_name), USER) == [(0.0, 0.5)]


async def test_our_own_fault_ends_the_recording_only(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with recording(tmp_path) as made:
        made.user_audio(b"\0", RATE, 0.0)
        await feed_all(made)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert len(read(tmp_path / made.file_name)) == 0


def hang(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the next write hang until the returned function is called."""
    released = threading.Event()
    pwrite = os.pwrite

    def write(descriptor: int, data: memoryview, offset: int) -> int:
        released.wait(10)
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", write)
    return released.set


async def test_nobody_waits_for_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = open_recorder(tmp_path)
    release = hang(monkeypatch)
    began = trio.current_time()
    with trio.move_on_after(0.05):
        await made.run()
    made.user_audio(tone(1), RATE, began + 1)
    with trio.move_on_after(0.05) as limit:
        await made.aclose()
    assert limit.cancelled_caught
    assert trio.current_time() - began < 5  # the disk hangs for ten
    release()  # both threads now do what was queued, in its order, and end
    with trio.fail_after(5):
        await written(made)
    assert sounds(read(tmp_path / made.file_name), USER) == [(0.0, 1.0)]


async def test_what_a_slow_disk_cannot_take_is_left_out(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "QUEUE_BYTES", 2 * RATE)
    async with recording(tmp_path) as made:
        for second in range(3):
            made.user_audio(tone(1), RATE, second + 1.0)
        await written(made)
        made.user_audio(tone(1), RATE, 12.0)
    assert [record.getMessage() for record in caplog.records] == [
        f"recording {made.file_name} has holes: the disk is too slow"
    ]
    assert sounds(read(tmp_path / made.file_name), USER) == [(0.0, 1.0), (11.0, 12.0)]


KILLED = """
import os, signal, sys, trio
from datetime import UTC, datetime
from pathlib import Path
from engine.observe.recorder import Recordings

async def main():
    recordings = Recordings(Path(sys.argv[1]))
    made = recordings.open(
        session_id="s1", run=1, user_rate=8000, agent_rate=8000, began=datetime.now(UTC), max_seconds=60
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        began = trio.current_time()
        for index in range(1000):
            made.user_audio(b"\\1\\1" * 8000, 8000, began + index + 1)
            made.agent_audio(b"\\2\\2" * 8000, 8000, began + index, "r")
            if index == 20:
                print("recording", flush=True)
            await trio.sleep(0.05)

trio.run(main)
"""


def test_a_killed_process_leaves_a_file_that_can_be_played(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "recording\n"
        process.send_signal(signal.SIGKILL)
    (name,) = os.listdir(tmp_path)
    samples = read(tmp_path / name)
    assert len(samples) > 5 * RATE
    assert sounds(samples, USER)[0][0] == 0.0
