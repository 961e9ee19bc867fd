"""Recordings as WAV files beside the store (SPEC L10): written as the conversation goes on, by a thread.

The file can be played at any time, also when the process is killed: samples are written first and the header's lengths after
them, so it never promises more than there is; at most the last second is missing. Whatever the disk does, the conversation does
not notice: feeding queues, writing is a thread's work that nobody waits for, and a failure is reported once and ends the
recording.
"""

import hashlib
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import attrs
import numpy as np
import trio
from numpy.typing import NDArray

from engine.protocol.audio import SAMPLE_BYTES
from engine.protocol.recording import (
    FRAME_BYTES,
    HEADER_BYTES,
    Edit,
    Put,
    StereoLine,
    recording_rate,
    wav_header,
)
from engine.recording import SessionRecorder

logger = logging.getLogger(__name__)

WRITE_SECONDS = 0.5
"""Time between writes, which is what a kill may cost. A write takes about a millisecond."""
QUEUE_BYTES = 16 << 20
"""What waits while the disk is slow. A client that takes all unsent speech at once (120 s at 48 kHz) makes 11 MB."""
WRITERS = 4
"""Recordings of a process that write at the same time."""
BLOCK_FRAMES = 24_000
BLOCK_BYTES = BLOCK_FRAMES * SAMPLE_BYTES
"""Edited at once, or a little more; 96 KiB of the file."""

Work = Callable[[], list[Edit]]
"""Something that was fed, on its way to the line: the resampling is the thread's too."""


def file_name(session_id: str, run: int, began: datetime) -> str:
    """Safe on every file system: names that differ only in case, or in what had to be replaced, differ in their digest."""
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", session_id)[:60]
    digest = hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{readable}-{digest}-{run}-{began:%Y%m%dT%H%M%SZ}.wav"


@attrs.define(eq=False)
class Recordings:
    """The recordings of a process, all in one directory, which is made when it is needed. `open` is an `OpenRecorder`."""

    directory: Path
    _limiter: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(WRITERS), init=False)

    def open(
        self, *, session_id: str, run: int, user_rate: int, agent_rate: int, began: datetime, max_seconds: float
    ) -> "WavRecorder":
        line = StereoLine(recording_rate(user_rate, agent_rate), trio.current_time(), max_seconds)
        name = file_name(session_id, run, began)
        return WavRecorder(name, _WavFile(self.directory / name, line), self._limiter)


@attrs.define(eq=False)
class WavRecorder(SessionRecorder):
    """See `SessionRecorder`."""

    file_name: str
    _file: "_WavFile"
    _limiter: trio.CapacityLimiter
    _work: trio.Event = attrs.field(factory=trio.Event, init=False)
    _fed_bytes: int = attrs.field(default=0, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _has_holes: bool = attrs.field(default=False, init=False)

    def user_audio(self, pcm: bytes, rate: int, at: float) -> None:
        self._feed(partial(self._file.line.user_audio, pcm, rate, at), len(pcm))

    def agent_audio(self, pcm: bytes, rate: int, at: float, response_id: str) -> None:
        self._feed(partial(self._file.line.agent_audio, pcm, rate, at, response_id), len(pcm))

    def cut(self, response_id: str, at: float) -> None:
        self._feed(partial(self._file.line.cut, response_id, at))

    def stop(self, at: float) -> None:
        self._feed(partial(self._file.line.stop, at))

    async def run(self) -> None:
        await self._in_thread(self._file.write)
        while not self._file.is_closed:
            self._work = trio.Event()
            if not self._file.queue:
                await self._work.wait()
            await trio.sleep(WRITE_SECONDS)
            await self._in_thread(self._file.write)

    async def aclose(self) -> None:
        if not self._is_over:
            self._feed(partial(self._file.line.finish, trio.current_time()))
            self._is_over = True
            await self._in_thread(self._file.finish)

    def _feed(self, work: Work, size: int = 0) -> None:
        if self._is_over or self._file.is_closed:
            return
        if size and self._fed_bytes + size - self._file.done_bytes > QUEUE_BYTES:
            if not self._has_holes:
                self._has_holes = True
                logger.error("recording %s has holes: the disk is too slow", self.file_name)
            return
        self._file.queue.append((work, size))
        self._fed_bytes += size
        self._work.set()

    async def _in_thread(self, write: Callable[[], None]) -> None:
        """A thread cannot be stopped, and nobody waits for one that hangs."""
        await trio.to_thread.run_sync(write, limiter=self._limiter, abandon_on_cancel=True)


@attrs.define(eq=False)
class _WavFile:
    """The threads' side. They come one after the other, except behind one that was abandoned; whoever has the lock does all
    that is queued, so the order stays what it was."""

    path: Path
    line: StereoLine
    """Only touched by who has the lock."""
    queue: deque[tuple[Work, int]] = attrs.field(factory=deque[tuple[Work, int]], init=False)
    """Each with its bytes of audio."""
    done_bytes: int = attrs.field(default=0, init=False)
    is_closed: bool = attrs.field(default=False, init=False)
    """Nothing more is written, as it is complete or has failed."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _descriptor: int | None = attrs.field(default=None, init=False)

    def write(self) -> None:
        """Do what is queued. What goes wrong is reported here, once."""
        self._fenced(self._write)

    def finish(self) -> None:
        """Do it, and close the file."""
        self._fenced(self._finish)

    def _fenced(self, do: Callable[[], None]) -> None:
        with self._lock:
            if self.is_closed:
                return
            try:
                do()
            except OSError as exc:
                self._close()
                logger.error("recording %s was ended: %s", self.path.name, exc.strerror or type(exc).__name__)
            except Exception:
                self._close()
                logger.exception("recording %s was ended", self.path.name)

    def _close(self) -> None:
        self.is_closed = True
        self.queue.clear()
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _write(self) -> None:
        descriptor = self._apply()
        _write_at(descriptor, 0, wav_header(self.line.rate, self.line.frames))

    def _finish(self) -> None:
        descriptor = self._apply()
        size = HEADER_BYTES + self.line.frames * FRAME_BYTES
        os.ftruncate(descriptor, max(size, os.fstat(descriptor).st_size))  # the silence at the end
        _write_at(descriptor, 0, wav_header(self.line.rate, self.line.frames))
        os.ftruncate(descriptor, size)  # where speech was that was sent ahead and cut
        self._close()

    def _apply(self) -> int:
        if self._descriptor is None:
            self._descriptor = _create(self.path)
            _write_at(self._descriptor, 0, wav_header(self.line.rate, 0))
        for edit in _joined(self._edits()):
            if isinstance(edit, Put):
                _put(self._descriptor, edit.channel, edit.position, np.frombuffer(edit.pcm, "<i2"))
            else:
                for start in range(edit.start, edit.end, BLOCK_FRAMES):
                    silence = np.zeros(min(BLOCK_FRAMES, edit.end - start), np.int16)
                    _put(self._descriptor, edit.channel, start, silence)
        return self._descriptor

    def _edits(self) -> Iterator[Edit]:
        while self.queue:
            work, size = self.queue.popleft()
            self.done_bytes += size
            yield from work()


def _create(path: Path) -> int:
    """A new file that only its owner reads, in a directory that only its owner enters."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _joined(edits: Iterable[Edit]) -> Iterator[Edit]:
    """Samples that follow each other as one edit: a frame of 20 ms is not worth two calls of the system. The channels do not
    touch each other, so only the order within each counts."""
    runs: dict[int, tuple[int, bytearray]] = {}
    for edit in edits:
        run = runs.get(edit.channel)
        if run is not None:
            start, pcm = run
            if isinstance(edit, Put) and edit.position == start + len(pcm) // SAMPLE_BYTES and len(pcm) < BLOCK_BYTES:
                pcm += edit.pcm
                continue
            yield Put(edit.channel, start, bytes(pcm))
            del runs[edit.channel]
        if isinstance(edit, Put):
            runs[edit.channel] = (edit.position, bytearray(edit.pcm))
        else:
            yield edit
    for channel, (start, pcm) in runs.items():
        yield Put(channel, start, bytes(pcm))


def _put(descriptor: int, channel: int, position: int, samples: NDArray[np.int16]) -> None:
    """Write one channel of some frames; the other stays as it is. Holes before them are silence, and cost no room."""
    offset = HEADER_BYTES + position * FRAME_BYTES
    size = len(samples) * FRAME_BYTES
    there = os.pread(descriptor, size, offset)
    frames = np.frombuffer(bytearray(there.ljust(size, b"\0")), "<i2").reshape(-1, 2)
    frames[:, channel] = samples
    _write_at(descriptor, offset, frames.tobytes())


def _write_at(descriptor: int, offset: int, data: bytes) -> None:
    """All of it: a nearly full disk takes a part, and refuses the rest."""
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, memoryview(data)[done:], offset + done)
