"""A real `souffleur serve` in a process of its own."""

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from subprocess import DEVNULL, PIPE

import attrs
import trio

ROOT = Path(__file__).parents[2]
PROJECT = Path(__file__).with_name("quiet.yaml")
KEY = "agent:clerk"
ADMIN_KEY = "the-admin-key-of-the-long-runs"

START_SECONDS = 60.0
"""Two on a quiet machine."""
END_SECONDS = 40.0
"""A server that was told to stop has ended by then, whatever it was doing."""
LOG_LINES = 30

_numbers = count()


class ServerError(Exception):
    """A server did not start, or did not stop."""


@attrs.define(eq=False)
class RealServer:
    process: trio.Process
    port: int
    log: Path
    """What it writes to its standard error."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def kill(self) -> None:
        """As a power cut would. When this returns nothing of it runs."""
        self.process.kill()
        await self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def wait(self) -> int:
        """Its exit code.

        Raises:
            ServerError: it did not end.
        """
        with trio.move_on_after(END_SECONDS):
            return await self.process.wait()
        raise ServerError(f"a server did not end in {END_SECONDS:g} s:\n{self.last_words()}")

    async def stop(self) -> None:
        """Stop it in good order.

        Raises:
            ServerError: it did not, or has failed.
        """
        self.signal(signal.SIGTERM)
        code = await self.wait()
        if code:
            raise ServerError(f"a server ended with code {code}:\n{self.last_words()}")

    def last_words(self) -> str:
        return last_words(self.log)


def last_words(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])


@asynccontextmanager
async def open_server(
    store: str, directory: Path, *, workers: int = 1, port: int = 0, project: Path = PROJECT, **settings: str
) -> AsyncGenerator[RealServer]:
    """A server that accepts connections. It is killed, when it runs still, at the end; its files go into the directory.

    `settings` are those of the engine, such as `max_sessions="2"`.

    Raises:
        ServerError: it did not start.
    """
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(directory),
        "PYTHONPATH": str(ROOT),
        "SOUFFLEUR_STORE": store,
        "SOUFFLEUR_ADMIN_KEY": ADMIN_KEY,
        "SOUFFLEUR_MAX_LATENESS_SECONDS": "60",  # a machine that is busy with tests is no reason to turn a client away
    } | {f"SOUFFLEUR_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-P", "-m", "engine.cli", "serve", "--project", str(project)]
    log = directory / f"server-{next(_numbers)}.log"
    with log.open("w") as errors:
        process = await trio.lowlevel.open_process(
            [*command, "--port", str(port), "--workers", str(workers)],
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=errors,
            env=environment,
            cwd=directory,
        )
    try:
        yield RealServer(process, await _port_of(process, log), log)
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()


async def hold_server(
    store: str, directory: Path, *, task_status: trio.TaskStatus[RealServer] = trio.TASK_STATUS_IGNORED
) -> None:
    """A server as a task, which ends with it."""
    async with open_server(store, directory) as server:
        task_status.started(server)
        await server.process.wait()


async def _port_of(process: trio.Process, log: Path) -> int:
    assert process.stdout is not None
    line = b""
    with trio.move_on_after(START_SECONDS):
        async with process.stdout as said:
            async for data in said:
                line += data
                if line.endswith(b"\n"):
                    return int(line.decode().strip().rpartition(":")[2])
    raise ServerError(f"a server did not start:\n{last_words(log)}")
