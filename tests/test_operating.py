"""The operator's page is true: what it shows is run as it stands there, but for ports and the address of the database."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import attrs
import pytest
import trio

from engine.config import Settings
from engine.identity.passwords import is_password_hash
from tests.endurance.server import KEY, PROJECT, open_server
from tests.endurance.visitor import Visitor, visit
from tests.engine.store.secantus import running_server
from tests.engine.transport.stack import UPGRADE, ask
from tests.test_readme import BIN, LONGEST, ROOT

PAGE = (ROOT / "OPERATING.md").read_text()
HERE, DATABASE = "http://127.0.0.1:8080", "mongodb://127.0.0.1:27017"
"""What the page calls the server and its database; a test has others."""
NGINX = shutil.which(
    "nginx",
    path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", f"{BIN.parent}/nginx/usr/sbin"]),
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[str]:
    return [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]


SERVE, SERVE_WORKERS, SERVE_BEHIND, MAKE_KEY, LIST_SESSIONS, HASH, ASK_READY, ASK_METRICS, BACK_UP = commands()


@attrs.frozen
class Place:
    """A directory with a project and whatever the commands leave there."""

    directory: Path
    address: str = HERE
    database: str = DATABASE

    @property
    def environment(self) -> dict[str, str]:
        late = {
            "SOUFFLEUR_MAX_LATENESS_SECONDS": "60"
        }  # a machine that is busy with tests is no reason to turn anybody away
        return {"PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self.directory)} | late

    def adapt(self, command: str) -> str:
        command = command.replace(HERE, self.address).replace(DATABASE, self.database)
        return command.replace("--port 8080", "--port 0")

    def run(self, command: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["/bin/bash", "-c", self.adapt(command)],
            cwd=self.directory,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def serve(self, command: str) -> Generator["Place"]:
        """A server, and the place where commands reach it. It is stopped as a service manager does it."""
        with subprocess.Popen(
            ["/bin/bash", "-c", f"exec env {self.adapt(command)}"],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                line = next((line for line in process.stdout if line.startswith("listening on ")), None)
                assert line is not None, process.communicate()[1]
                yield attrs.evolve(self, address=line.split()[-1])
                process.send_signal(signal.SIGTERM)
                _, errors = process.communicate(timeout=LONGEST)
                assert process.returncode == 0, errors
            finally:
                process.kill()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    shutil.copy(PROJECT, tmp_path / "cafe.yaml")
    return Place(tmp_path)


@pytest.mark.sockets
def test_one_machine(place: Place) -> None:
    with place.serve(SERVE) as there:
        there.run(f"souffleur talk {KEY} --text --url {there.address}", "When are you open?\n")
        key = json.loads(there.run(MAKE_KEY))
        assert (key["name"], key["role"]) == ("reports", "owner")
        (session,) = json.loads(there.run(LIST_SESSIONS))["items"]
        assert session["state"] == "CLOSED"
        assert set(json.loads(there.run(ASK_READY))) == {"status", "parts"}
        measured = there.run(ASK_METRICS)
        for name in re.findall(r"`(souffleur_\w+)`", PAGE):
            assert f"# TYPE {name} " in measured
        there.run(BACK_UP)
    assert (place.directory / "admin.key").stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(place.directory / "backup.db")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert copy.execute("SELECT count(*) FROM sessions").fetchone() == (1,)


@pytest.mark.sockets
def test_several_workers_on_mongodb(place: Place) -> None:
    with running_server() as database:
        place = attrs.evolve(place, database=database.url().rstrip("/"))
        with place.serve(SERVE_WORKERS) as there:
            said = there.run(f"souffleur talk {KEY} --text --url {there.address}", "When are you open?\n")
            assert "We are open every day" in said
            assert "\nsouffleur_workers 2" in there.run(ASK_METRICS)


@pytest.mark.sockets
def test_names_and_origins(place: Place) -> None:
    with place.serve(SERVE_BEHIND) as there:
        for host, origin, status in [
            ("voice.example.com", "https://voice.example.com", 101),
            ("voice.example.com", "https://www.example.com", 101),
            ("voice.example.com", "https://other.example.com", 403),
            ("other.example.com", "https://www.example.com", 403),
        ]:
            headers = UPGRADE | {"host": host, "origin": origin}
            assert trio.run(answer_to, there.address, headers) == status


async def answer_to(address: str, headers: dict[str, str]) -> int:
    stream = await trio.open_tcp_stream("127.0.0.1", int(address.rpartition(":")[2]))
    return (await ask(stream, "/api/pipeline", headers=headers)).status


def test_a_password(place: Place) -> None:
    assert is_password_hash(place.run(HASH, "open sesame\n").strip())


def test_every_variable_is_one() -> None:
    options = {"STORE", "ADMIN_KEY_FILE", "WORKERS", "LOG_FORMAT", "RECORD"}
    for name in re.findall(r"SOUFFLEUR_(\w+)", PAGE):
        assert name.lower() in Settings.model_fields or name in options, name


def test_what_the_page_says_of_numbers() -> None:
    settings = Settings()
    assert f"`SOUFFLEUR_DRAIN_SECONDS` ({settings.drain_seconds:g})" in PAGE
    assert f"`SOUFFLEUR_MAX_LATENESS_SECONDS` ({settings.max_lateness_seconds:g})" in PAGE
    assert f"`SOUFFLEUR_MAX_SESSIONS` ({settings.max_sessions})" in PAGE
    assert (
        f"over the ping ({settings.ping_seconds:g} s) and a turn over HTTP ({settings.http_turn_seconds:g} s)" in PAGE
    )
    timeout = re.search(r"proxy_read_timeout (\d+)s;", PAGE)
    assert timeout is not None
    assert int(timeout[1]) > max(2 * settings.ping_seconds, settings.http_turn_seconds)


# --- the proxy -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_proxy(directory: Path, servers: list[int]) -> AsyncGenerator[int]:
    """nginx with the page's configuration, without TLS, in front of servers on these ports; gives its port."""
    assert NGINX is not None
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    (snippet,) = blocks("nginx")
    snippet = re.sub(r"ssl_certificate\w* .*\n", "", snippet)
    snippet = snippet.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    upstream = "\n".join(f"server 127.0.0.1:{each};" for each in servers)
    snippet = snippet.replace("server 127.0.0.1:8080;", upstream)
    paths = "".join(
        f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = directory / "nginx.conf"
    await trio.Path(configuration).write_text(
        f"daemon off; pid {directory}/nginx.pid; error_log {directory}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{snippet}}}\n"
    )
    process = await trio.lowlevel.open_process([NGINX, "-p", str(directory), "-c", str(configuration)])
    try:
        with trio.fail_after(LONGEST):
            while not await _listens(port):
                pass
        yield port
    finally:
        with trio.CancelScope(shield=True):
            process.terminate()
            await process.wait()


async def _listens(port: int) -> bool:
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port):
            return True
    except OSError:
        await trio.sleep(0.02)
        return False


@pytest.mark.sockets
@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_behind_a_proxy(tmp_path: Path) -> None:
    """WebSockets pass, visitors are no programs of this machine, and who is full is passed over."""
    store = f"sqlite:{tmp_path}/souffleur.db"
    allowed = '["voice.example.com"]'
    with trio.fail_after(LONGEST):
        async with (
            open_server(store, tmp_path, max_sessions="1", allowed_hosts=allowed) as small,
            open_server(store, tmp_path, allowed_hosts=allowed) as large,
            open_proxy(tmp_path, [small.port, large.port]) as port,
            trio.open_nursery() as sockets,
        ):
            visitors: list[Visitor] = []
            for number in range(4):
                visitor = await visit(sockets, port, f"s{number}")
                visitors.append(visitor)
                assert (await visitor.say("When are you open?")).is_saved
            headers = {"host": "voice.example.com"}
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            assert (await ask(stream, "/metrics", headers=headers)).status in (401, 403)
            page = UPGRADE | headers | {"origin": "https://voice.example.com"}
            assert await answer_to(f":{port}", page) == 101
            for visitor in visitors:
                visitor.hang_up()
