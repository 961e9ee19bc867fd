"""Writing capsules: one file per session in a directory, as it goes, bounded each and in all.

A file has the name `DATE-SESSION-RUN.capsule`. Files are readable by their owner alone: they hold what was said. What cannot be written
is told to the log, and the conversation goes on without its capsule.
"""

import errno
import fcntl
import logging
import os
import re
import secrets
import stat
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from engine.boundary import Boundary
from engine.capsule.codec import plain
from engine.capsule.file import MAGIC, SUFFIX, Capsule, Kind, capsule_of, chunk, records_of
from engine.capsule.redaction import Redaction
from engine.capsule.tape import CHUNK_BYTES, SECRET, Tape, TapedBoundary, schedule_of_now, versions
from engine.config import PipelineConfiguration

logger = logging.getLogger(__name__)

MAX_BYTES = 64 << 20
"""Of one capsule: a quarter of an hour of speech both ways."""
MAX_DIRECTORY_BYTES = 4 << 30
"""Of all capsules of a directory; the oldest are deleted as others are written."""
CLOSE_SECONDS = 5.0
"""Writing what is left, when a session is over."""
ROOM_BYTES = 4 << 20
"""A session that has written so much more looks whether all of them still have room."""
MOST_NAMESAKES = 100
"""Files of one session's name, such as those that were refused within a second, before they had one."""
FLUSH_SECONDS = 5.0
"""What was kept is in the file after so long."""
WRITERS = 4
"""Threads that write, at once in the whole process."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._~-]")


@attrs.define(eq=False)
class Capsules:
    """Keeps the sessions of a process; `keep` is an `engine.boundary.Keep`."""

    directory: Path
    redacts: bool = False
    max_bytes: int = MAX_BYTES
    max_directory_bytes: int = MAX_DIRECTORY_BYTES
    new_seed: Callable[[], bytes] = attrs.field(default=lambda: secrets.token_bytes(16))
    _writers: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(WRITERS), init=False)

    @asynccontextmanager
    async def keep(self, about: Mapping[str, Any]) -> AsyncGenerator[Boundary]:
        seed = self.new_seed()
        tape = Tape(trio.current_time(), self.max_bytes, Redaction() if self.redacts else None)
        boundary = TapedBoundary(tape, seed)
        tape.put_value(Kind.HEAD, about, keep=lambda about: {**head(about, seed), "redacted": self.redacts})
        file = _File(self, boundary, about["began"])
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(file.write_as_it_comes, name="capsule")
                yield boundary
                nursery.cancel_scope.cancel(reason="the session is over")
        finally:
            tape.finish()
            with trio.CancelScope(deadline=trio.current_time() + CLOSE_SECONDS, shield=True) as closing:
                try:
                    await file.write_all()
                finally:
                    file.close()
            if closing.cancelled_caught:
                logger.error("the end of the capsule of session %s is lost: the disk is too slow", boundary.session_id)

    async def run(self, function: Callable[[], None]) -> None:
        await trio.to_thread.run_sync(function, limiter=self._writers)


@attrs.define(eq=False)
class MemoryCapsules:
    """Keeps the sessions of a test, without a file or a thread; `keep` is an `engine.boundary.Keep`."""

    redacts: bool = False
    max_bytes: int = MAX_BYTES
    new_seed: Callable[[], bytes] = attrs.field(default=lambda: bytes(16))
    capsules: list[Capsule] = attrs.field(factory=list[Capsule], init=False)
    """Of the sessions that are over, in the order of their ends."""

    @asynccontextmanager
    async def keep(self, about: Mapping[str, Any]) -> AsyncGenerator[Boundary]:
        seed = self.new_seed()
        most = self.max_bytes // CHUNK_BYTES + 2
        tape = Tape(trio.current_time(), self.max_bytes, Redaction() if self.redacts else None, most)
        tape.put_value(Kind.HEAD, about, keep=lambda about: {**head(about, seed), "redacted": self.redacts})
        try:
            yield TapedBoundary(tape, seed)
        finally:
            tape.finish()
            records = [record for chunk in tape.chunks for record in records_of(*chunk)]
            self.capsules.append(capsule_of(records, "this capsule"))


def head(about: Mapping[str, Any], seed: bytes) -> dict[str, Any]:
    """The first record: what the session was begun with, the seed of its ids and randomness, and the versions it ran on."""
    kept = {key: plain(_without_secrets(value)) for key, value in about.items()}
    return {**kept, "seed": seed, "schedule": plain(schedule_of_now()), "versions": versions()}


def _without_secrets(value: object) -> object:
    """Whoever has the ref of an anonymous client can go on with its sessions."""
    if not isinstance(value, PipelineConfiguration):
        return value
    return attrs.evolve(value, device_ref=value.device_ref and SECRET, speaker_ref=value.speaker_ref and SECRET)


@attrs.define(eq=False)
class _File:
    """The file of one session. It is made when there is something to write, by when the session has its id."""

    capsules: Capsules
    boundary: TapedBoundary
    began: datetime
    _descriptor: int | None = attrs.field(default=None, init=False)
    _is_broken: bool = attrs.field(default=False, init=False)
    _unchecked: int = attrs.field(default=0, init=False)
    """Bytes since there was room last."""

    async def write_as_it_comes(self) -> None:
        tape = self.boundary.tape
        while True:
            with trio.move_on_after(FLUSH_SECONDS):
                await tape.wake.wait()
            tape.flush()  # also a quiet session's: a crash loses no more than this
            tape.wake = trio.Event()
            await self.write_all()

    async def write_all(self) -> None:
        """Write what waits. Cancelled between two chunks, never in one: the next would begin in the middle of it."""
        tape = self.boundary.tape
        while tape.chunks and not self._is_broken:
            await trio.lowlevel.checkpoint()
            try:
                await self.capsules.run(partial(self._write, *tape.chunks[0]))  # which is not left before it is done
            except Exception as exc:  # the border: whatever a disk does, the conversation goes on
                self._is_broken = True
                why = (exc.strerror if isinstance(exc, OSError) else None) or type(exc).__name__
                logger.error("the capsule of session %s cannot be written: %s", self.boundary.session_id, why)
            else:
                tape.chunks.popleft()
        if self._is_broken:
            tape.finish()
            tape.chunks.clear()

    def _write(self, records: bytes, bulk: bytes) -> None:
        data = chunk(records, bulk)
        if self._descriptor is None:
            self._descriptor = self._open()
            data = MAGIC + data
        self._unchecked += len(data)
        if self._unchecked > ROOM_BYTES:
            make_room(self.capsules.directory, self.capsules.max_directory_bytes - len(data))
            self._unchecked = 0
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _open(self) -> int:
        directory = self.capsules.directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_room(directory, self.capsules.max_directory_bytes - self.capsules.max_bytes)
        boundary = self.boundary
        session = _UNSAFE.sub("_", boundary.session_id or "unnamed")[:128]
        name = f"{self.began:%Y%m%dT%H%M%S}-{session}-{boundary.run}"
        for number in range(1, MOST_NAMESAKES):
            path = directory / f"{name}{f'-{number}' if number > 1 else ''}{SUFFIX}"
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except FileExistsError:
                continue
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return descriptor
        raise FileExistsError(errno.EEXIST, "there are too many of that name")

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def make_room(directory: Path, bytes_: int) -> None:
    """Delete the oldest capsules until the others take no more than so much. What is being written stays, and so do links and
    whatever cannot be deleted. Blocks; run it in a thread.

    Raises OSError: the directory cannot be read.
    """
    found: list[tuple[float, int, Path]] = []
    for path in directory.glob(f"*{SUFFIX}"):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue  # another process makes room as well
        if stat.S_ISREG(status.st_mode):
            found.append((status.st_mtime, status.st_size, path))
    taken = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if taken <= bytes_:
            return
        if _delete(path):
            taken -= size


def _delete(path: Path) -> bool:
    """False: somebody writes it, in this process or another, or it cannot be deleted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
