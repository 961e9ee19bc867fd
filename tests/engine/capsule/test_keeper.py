"""Files of capsules on a real disk, in real time."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from engine.boundary import Boundary
from engine.capsule.file import Kind, read_capsule
from engine.capsule.keeper import Capsules, make_room
from engine.capsule.tape import CHUNK_BYTES
from engine.elements import InputAudio

ABOUT = {"mode": "CONVERSATION", "began": datetime(2026, 3, 1, 9, 30, tzinfo=UTC)}
NAME = "20260301T093000-s1-1.capsule"


@pytest.fixture(autouse=True)
def _no_descriptor_is_left() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


def speak(boundary: Boundary, chunks: int = 1) -> None:
    for _ in range(chunks * CHUNK_BYTES // 1000 + 64):
        boundary.received(InputAudio(bytes(1000)))


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def wait_for(directory: Path, session_id: str) -> None:
    """In a thread: until a chunk of the session's file is there."""
    end = time.monotonic() + 10
    while not any(path.stat().st_size >= CHUNK_BYTES for path in directory.glob(f"*-{session_id}-*")):
        assert time.monotonic() < end
        time.sleep(0.002)


async def hold(capsules: Capsules, session_id: str = "s1", chunks: int = 0) -> None:
    async with capsules.keep(ABOUT) as boundary:
        boundary.named(session_id, 1)
        speak(boundary, chunks)
        boundary.ended("CLOSED", "")


async def test_a_file_is_its_owner_s(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    await hold(Capsules(directory), chunks=3)
    (path,) = directory.iterdir()
    assert path.name == NAME
    assert path.stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    assert read_capsule(path).is_whole


async def test_what_is_there_is_written_while_the_session_runs(tmp_path: Path) -> None:
    async with Capsules(tmp_path).keep(ABOUT) as boundary:
        boundary.named("s1", 1)
        speak(boundary, 2)
        await trio.to_thread.run_sync(wait_for, tmp_path, "s1")
        assert not read_capsule(tmp_path / NAME).is_whole


async def test_a_cancelled_session_is_kept_to_its_end(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        async with Capsules(tmp_path).keep(ABOUT) as boundary:
            boundary.named("s1", 1)
            speak(boundary, 3)
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                with trio.move_on_after(1, shield=True):
                    await trio.sleep(0.01)
                    speak(boundary, 3)
                boundary.ended("DISCONNECTED", "gone")
    capsule = read_capsule(tmp_path / NAME)
    assert capsule.is_whole
    assert len(capsule.records) > 6 * CHUNK_BYTES // 1000


@pytest.mark.parametrize("session_id", ["../../etc/x", "a/b", "..", "\0", "é" * 300, "", "a b"])
async def test_a_name_stays_in_its_directory(tmp_path: Path, session_id: str) -> None:
    await hold(Capsules(tmp_path / "in"), session_id)
    assert files(tmp_path) == [tmp_path / "in"]
    (path,) = files(tmp_path / "in")
    assert read_capsule(path).is_whole


async def test_sessions_of_one_name_have_a_file_each(tmp_path: Path) -> None:
    """Such as those that are refused before they have an id."""
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(hold, Capsules(tmp_path))
    assert [path.name for path in files(tmp_path)] == [
        NAME.replace("-1.", each) for each in ("-1-2.", "-1-3.", "-1-4.", "-1.")
    ]
    assert all(read_capsule(path).is_whole for path in files(tmp_path))


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    directory = tmp_path / "capsules"
    directory.mkdir()
    (directory / NAME).symlink_to(victim)
    await hold(Capsules(directory, max_directory_bytes=1, max_bytes=1))
    assert victim.read_text() == "precious"
    assert len(list(directory.iterdir())) == 2


async def test_no_directory_is_no_reason_to_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    async with Capsules(tmp_path / "file").keep(ABOUT) as boundary:
        boundary.named("s1", 1)
        speak(boundary, 3)
        await trio.sleep(0.02)
        speak(boundary, 3)
    assert [record.message for record in caplog.records] == ["the capsule of session s1 cannot be written: File exists"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), MemoryError(), ValueError("odd")])
async def test_a_full_disk_ends_the_capsule_and_not_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    write, room = os.write, [400_000]

    def full(descriptor: int, data: Any) -> int:
        if len(data) < 5000 and room[0] > 0:
            return write(descriptor, data)
        taken = min(len(data), room[0])
        if not taken:
            raise error
        room[0] -= taken
        return write(descriptor, data[:taken])

    async with Capsules(tmp_path).keep(ABOUT) as boundary:
        boundary.named("s1", 1)
        monkeypatch.setattr("engine.capsule.keeper.os.write", full)
        speak(boundary, 10)
        await trio.sleep(0.05)
        speak(boundary, 10)
    monkeypatch.undo()
    capsule = read_capsule(tmp_path / NAME)
    assert not capsule.is_whole
    assert {record.kind for record in capsule.records} == {Kind.IN}
    assert len(caplog.records) == 1


async def test_an_error_of_the_session_s_own_comes_through(tmp_path: Path) -> None:
    with pytest.RaisesGroup(ZeroDivisionError):
        async with Capsules(tmp_path).keep(ABOUT) as boundary:
            boundary.named("s1", 1)
            raise ZeroDivisionError
    assert not read_capsule(tmp_path / NAME).is_whole


# --- room -------------------------------------------------------------------------------------------------------------


def capsule(directory: Path, name: str, size: int, age: int) -> Path:
    path = directory / f"{name}.capsule"
    path.write_bytes(bytes(size))
    os.utime(path, (1e9 - age, 1e9 - age))
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.stem for path in directory.iterdir())


def test_the_oldest_go_as_far_as_needed(tmp_path: Path) -> None:
    for number in range(5):
        capsule(tmp_path, f"c{number}", 100, number)
    (tmp_path / "other.txt").write_bytes(bytes(1000))
    (tmp_path / "folder.capsule").mkdir()
    make_room(tmp_path, 500)
    assert len(names(tmp_path)) == 7
    make_room(tmp_path, 250)
    assert names(tmp_path) == ["c0", "c1", "folder", "other"]
    make_room(tmp_path, -1)
    assert names(tmp_path) == ["folder", "other"]


def test_what_is_being_written_stays(tmp_path: Path) -> None:
    old = capsule(tmp_path, "old", 100, 9)
    capsule(tmp_path, "newer", 100, 1)
    with old.open("ab") as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        make_room(tmp_path, 100)
        assert names(tmp_path) == ["old"]
        make_room(tmp_path, 0)
        assert names(tmp_path) == ["old"]
    make_room(tmp_path, 0)
    assert names(tmp_path) == []


async def test_a_quiet_session_s_file_stays(tmp_path: Path) -> None:
    capsules = Capsules(tmp_path, max_directory_bytes=1, max_bytes=1 << 20)
    async with capsules.keep(ABOUT) as quiet:
        quiet.named("quiet", 1)
        speak(quiet, 2)
        await trio.to_thread.run_sync(wait_for, tmp_path, "quiet")
        await hold(capsules, "s1")
        await hold(capsules, "s2")
        quiet.ended("CLOSED", "")
    assert [path.name.split("-")[1] for path in files(tmp_path)] == ["quiet", "s2"]
    assert read_capsule(files(tmp_path)[0]).is_whole
