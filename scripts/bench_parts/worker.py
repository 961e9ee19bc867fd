"""Two processes that measure, and one that tells them when: a word in a line, an answer in a line."""

import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import attrs
import orjson
import trio

Options = dict[str, Any]
Report = dict[str, Any]

ANSWER_SECONDS = 60.0
"""The longest a process may take for an answer: it is a second or two, and more on a busy machine."""
LINE_BYTES = 1 << 16
CLOCK_FIELDS = 8
"""Of the first line of /proc/stat: user to steal; the guests' times after them are part of the users'."""
IDLE_FIELDS = slice(3, 5)


class WorkerError(Exception):
    """A process did not do what it was asked to."""


class Lines:
    """A byte stream read by the line."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def next(self) -> bytes:
        """The next line; empty at the end."""
        while (end := self._buffer.find(b"\n")) < 0:
            data = await self._stream.receive_some(LINE_BYTES)
            if not data:
                return b""
            self._buffer += data
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line


# --- the process that is told ----------------------------------------------------------------------------------------


def answer(report: Report) -> None:
    sys.stdout.buffer.write(orjson.dumps(report) + b"\n")
    sys.stdout.buffer.flush()


def commands() -> Lines:
    """What this process is told, on its standard input."""
    return Lines(trio.lowlevel.FdStream(sys.stdin.fileno()))


# --- the process that tells ------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Worker:
    """A process of ours."""

    name: str
    _process: trio.Process
    _answers: Lines

    async def ask(self, command: str) -> Report:
        """Say a word and wait for the answer.

        Raises:
            WorkerError: none came.
        """
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send_all(command.encode() + b"\n")
        except trio.BrokenResourceError:
            raise WorkerError(f"the {self.name} has ended before {command!r}") from None
        return await self.next_answer()

    async def next_answer(self) -> Report:
        """What it says next; it says one thing by itself, when it is ready."""
        line = b""
        with trio.move_on_after(ANSWER_SECONDS) as limit:
            line = await self._answers.next()
        if limit.cancelled_caught:
            raise WorkerError(f"the {self.name} did not answer in {ANSWER_SECONDS:g} s")
        if not line:
            raise WorkerError(f"the {self.name} has ended; what it said is above")
        report: Report = orjson.loads(line)
        return report


@asynccontextmanager
async def open_worker(program: Path, role: str, options: Options) -> AsyncGenerator[tuple[Worker, Report]]:
    """Start this program again in one of its roles; gives it and its first answer. It has ended when the context is left.

    Raises:
        WorkerError: it did not start.
    """
    command = [sys.executable, str(program), role, orjson.dumps(options).decode()]
    process = await trio.lowlevel.open_process(command, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout is not None
        worker = Worker(role, process, Lines(process.stdout))
        yield worker, await worker.next_answer()
    finally:
        with trio.move_on_after(ANSWER_SECONDS, shield=True):
            process.kill()
            await process.wait()


# --- what both measure -----------------------------------------------------------------------------------------------


@attrs.frozen
class MachineClock:
    """Seconds of processor time the machine has spent since it was started."""

    busy: float
    total: float

    @classmethod
    def now(cls) -> "MachineClock":
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]][:CLOCK_FIELDS]
        ticks = 100.0  # what Linux calls a clock tick towards programs, whatever it is inside
        total = sum(fields) / ticks
        return cls(total - sum(fields[IDLE_FIELDS]) / ticks, total)


async def watch_lateness(seconds: float, clock: Callable[[], float], late: list[float]) -> None:
    """Note how late a task wakes that wants to wake every so many seconds: what everything else on this loop waits as well."""
    due = clock() + seconds
    while True:
        await trio.sleep_until(due)
        now = clock()
        late.append(now - due)
        due = max(due + seconds, now)


def monotonic_ns() -> int:
    """The clock that both processes share."""
    return time.monotonic_ns()
