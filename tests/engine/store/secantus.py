"""SecantusDB, the server the MongoDB store is tested on: it speaks MongoDB's protocol, transactions included, as a replica set of
one. It is a program of its own (GPL) and no part of the product.

With the environment variable SOUFFLEUR_TEST_MONGODB, the URL of a replica set or a sharded cluster, the contract suite runs
there instead, in databases of its own that it makes and drops.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import attrs
from pymongo import MongoClient

from engine.store.contract import Store
from engine.store.locate import open_store

DEPLOYMENT = os.environ.get("SOUFFLEUR_TEST_MONGODB", "")

START_SECONDS = 30.0
"""It takes half a second on a quiet machine."""
STOP_SECONDS = 10.0

# The shell ends with the server, and the server when the shell's input ends, which it does when this process ends, however.
WATCHED = """
exec 3<&0
log=$1; shift
"$@" >"$log" 2>&1 </dev/null 3<&- &
server=$!
echo $server
{ cat <&3 >/dev/null; kill -9 $server 2>/dev/null; } &
wait $server
"""

_numbers = count()


@attrs.define(eq=False)
class Server:
    """A server on a port and directory of its own. It may be killed and started again, with what it has stored."""

    directory: Path
    port: int
    options: tuple[str, ...] = ()
    _shell: subprocess.Popen[str] | None = None
    _pid: int = 0

    def url(self, database: str = "", credentials: str = "") -> str:
        return f"mongodb://{credentials}127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Returns when it listens. Raises RuntimeError, with what it has said, when it does not."""
        log = self.directory / "log"
        command = [str(_program()), "--host", "127.0.0.1", "--port", str(self.port), "--sync-on-commit"]
        command += ["--storage-path", str(self.directory / "data"), "--log-level", "WARNING", *self.options]
        self._shell = subprocess.Popen(
            ["sh", "-c", WATCHED, "sh", str(log), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where it says that the server was killed
            text=True,
            start_new_session=True,  # what interrupts the tests is for them alone
        )
        assert self._shell.stdout is not None
        self._pid = int(self._shell.stdout.readline())
        end = time.monotonic() + START_SECONDS
        while not _listens(self.port):
            if self._shell.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"SecantusDB did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.02)

    def stop(self) -> None:
        """As a power cut would. Bounded."""
        if self._shell is None:
            return
        self.resume()
        shell, self._shell = self._shell, None
        with shell:
            try:
                shell.communicate(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                shell.kill()

    def pause(self) -> None:
        """It keeps its connections, and answers nothing. Returns when the last of its threads has stopped."""
        os.kill(self._pid, signal.SIGSTOP)
        end = time.monotonic() + STOP_SECONDS
        while not _is_stopped(self._pid):
            if time.monotonic() > end:
                raise RuntimeError("SecantusDB could not be paused")
            time.sleep(0.001)

    def resume(self) -> None:
        if self._shell is not None and self._shell.poll() is None:
            os.kill(self._pid, signal.SIGCONT)


@contextmanager
def running_server(*options: str) -> Generator[Server]:
    """A server of one's own. Its directory is in memory where that can be had: it waits for the disk at every turn."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="secantus-", dir=memory) as directory:
        server = Server(Path(directory), _free_port(), options)
        try:
            server.start()
            yield server
        finally:
            server.stop()


class SharedServer:
    """One server for all tests of a run, started when the first one asks."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._server: Server | None = None

    def url(self) -> str:
        if self._server is None:
            self._server = self._stack.enter_context(running_server())
        return self._server.url()

    def stop(self) -> None:
        self._server = None
        self._stack.close()


SHARED = SharedServer()


@contextmanager
def mongo_url(_: Path) -> Generator[str]:
    """The URL of a database that nobody else uses."""
    name = f"souffleur_test_{os.getpid()}_{time.time_ns()}_{next(_numbers)}"
    if not DEPLOYMENT:
        yield SHARED.url() + name  # and leave it: dropping takes the server longer than most tests
        return
    url = with_database(DEPLOYMENT, name)
    try:
        yield url
    finally:
        with MongoClient[dict[str, object]](url) as client:
            client.drop_database(name)


def with_database(url: str, name: str) -> str:
    """The same deployment and user, another database: where the user is known stays, although it is told by the database."""
    parts = urlsplit(url)
    query = parts.query
    if "@" in parts.netloc and "authsource=" not in query.lower():
        query += f"{'&' if query else ''}authSource={parts.path.lstrip('/') or 'admin'}"
    return urlunsplit(parts._replace(path=f"/{name}", query=query))


@asynccontextmanager
async def open_fresh_mongo(directory: Path) -> AsyncGenerator[Store]:
    with mongo_url(directory) as url:
        async with open_store(url) as store:
            yield store


def _program() -> Path:
    name = "secantusd-py"
    beside = Path(sys.executable).with_name(name)
    found = beside if beside.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError("SecantusDB is not installed; it comes with the extra `test`.")
    return Path(found)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_stopped(pid: int) -> bool:
    """As Linux tells it; elsewhere it is taken to be so."""
    try:
        states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except FileNotFoundError:  # a thread that has just ended
        return False
    return all(state in "Tt" for state in states)
