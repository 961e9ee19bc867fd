"""Opening the MongoDB store: what is refused, in which words, and in which time."""

import logging
import socket
import subprocess
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from pymongo import MongoClient, ReadPreference
from pymongo.database import Database

from engine.errors import ConfigurationError
from engine.store import mongo_link, mongo_schema
from engine.store.locate import open_store
from engine.store.mongo import MongoStore
from engine.store.mongo_link import open_link
from tests.engine.store.samples import NOON, session, turn
from tests.engine.store.secantus import Server, mongo_url, running_server, with_database

UNREACHABLE = (
    "The MongoDB server of the store URL does not answer. Check that it runs, that the address is right, and that no"
    " firewall is in between."
)
NO_URL = (
    "The store URL is not a MongoDB URL that can be used. Check its host and its options, that a mongodb+srv host is known"
    " to the name server, and that the characters :/?#[]@% of a user name or password are percent-encoded."
)
SECONDS = 0.5
"""How long these tests let a server be silent."""
PROMPT = 4.0
"""The longest a refusal may take on a machine that has other things to do."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mongo_link, "START_SECONDS", SECONDS)


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with running_server() as running:
        yield running


@contextmanager
def silent_socket() -> Generator[int]:
    """Somebody who listens, and lets whoever comes talk to themselves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def refusal(url: str) -> str:
    """The sentence an operator is told; nothing of what led to it is told with it."""
    with pytest.raises(ConfigurationError) as refused:
        with trio.fail_after(PROMPT):
            async with open_store(url):
                pass
    assert refused.value.__cause__ is refused.value.__context__ is None
    told = "".join(traceback.format_exception_only(refused.value))
    assert not [word for word in ("alice", "secret", "127.0.0.1", "cluster") if word in told]
    return str(refused.value)


@contextmanager
def database(url: str) -> Generator[Database[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](url) as client:
        yield client.get_default_database()


# --- URLs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "//",
        "//alice:secret@host:port/db",
        "//alice:sec@ret@host/db",
        "//alice:sec%ret@host/db",
        "//alice:secret@host:99999/db",
        "//alice:secret@host/bad$name",
        "//alice:secret@host/bad name",
        "//alice:secret@host/?tls=secret",
        "//alice:secret@host/?secret",
        "//alice:secret@host/?secretOption=secret",
        "//alice:secret@host/?readPreference=secret",
        "//alice:secret@host/?timeoutMS=secret",
        "//alice:secret@one,two/?directConnection=true",
    ],
)
async def test_what_is_no_url_is_refused_without_being_repeated(rest: str) -> None:
    assert await refusal(f"mongodb:{rest}") == NO_URL


async def test_a_cluster_without_a_name_is_refused_without_being_repeated() -> None:
    assert await refusal("mongodb+srv://alice:secret@cluster:27017/db") == NO_URL


async def test_a_certificate_that_is_not_there() -> None:
    assert await refusal("mongodb://alice:secret@127.0.0.1/?tls=true&tlsCAFile=/secret") == (
        "A file that the store URL names for TLS cannot be read, or is not a certificate."
    )


async def test_the_database_is_the_urls(server: Server) -> None:
    async with open_store(server.url("caf%C3%A9")) as store:
        assert isinstance(store, MongoStore)
        await store.open_session(session())
    with database(server.url("caf%C3%A9")) as tables:
        assert tables["sessions"].count_documents({}) == 1


async def test_the_database_has_a_name_without_the_urls(server: Server) -> None:
    async with open_store(server.url()) as store:
        await store.open_session(session())
    with database(server.url("souffleur")) as tables:
        assert tables["sessions"].count_documents({}) == 1


async def test_what_the_url_says_of_durability_is_not_heard(server: Server) -> None:
    url = server.url("weak") + "?w=0&journal=false&readPreference=secondary&readConcernLevel=local&retryWrites=false"
    async with open_link(url) as link:
        assert link.tables.write_concern.document == {"w": "majority", "j": True}
        assert link.tables.read_concern.level == "majority"
        assert link.tables.read_preference == ReadPreference.PRIMARY
        assert link.client.options.retry_writes


# --- servers ---------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_down() -> None:
    with silent_socket() as port:
        pass
    assert await refusal(f"mongodb://alice:secret@127.0.0.1:{port}/db") == UNREACHABLE


async def test_a_server_that_never_answers() -> None:
    with silent_socket() as port:
        assert await refusal(f"mongodb://alice:secret@127.0.0.1:{port}/db") == UNREACHABLE


async def test_a_server_that_does_not_speak_tls() -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.send_all(b"What do you mean?")

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        assert await refusal(f"mongodb://alice:secret@127.0.0.1:{port}/db?tls=true") == (
            "The MongoDB server of the store URL and this program do not agree about TLS. Check the tls options."
        )
        assert await refusal(f"mongodb://alice:secret@127.0.0.1:{port}/db") == UNREACHABLE
        nursery.cancel_scope.cancel()


async def test_whoever_is_cancelled_while_opening_walks_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mongo_link, "START_SECONDS", 5.0)
    with silent_socket() as port:
        started = trio.current_time()
        with trio.move_on_after(0.05):
            async with open_store(f"mongodb://127.0.0.1:{port}/db"):
                pass
        assert trio.current_time() - started < 2


async def test_a_server_without_a_replica_set() -> None:
    with running_server("--standalone") as alone:
        assert await refusal(alone.url("db")) == (
            "The MongoDB server of the store URL is not part of a replica set, without which there are no transactions."
            " Start it with --replSet and run rs.initiate() once; one member is enough."
        )


async def test_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not known, who may not write, and who may."""
    monkeypatch.setattr(mongo_link, "START_SECONDS", 5.0)  # a password takes a while to check
    with running_server() as server:
        with MongoClient[dict[str, Any]](server.url()) as client:
            for name, role in (("alice", "readWrite"), ("bob", "read")):
                roles = [{"role": role, "db": "db"}]
                client["db"].command({"createUser": name, "pwd": "secret", "roles": roles})
        server.stop()
        server.options = ("--auth",)
        server.start()
        refused = (
            "The MongoDB server of the store URL refuses the user name or password of the store URL. Check both, and the"
            " option authSource: the database the user was created in."
        )
        assert await refusal(server.url("db", "alice:secretly@")) == refused
        assert await refusal(server.url("elsewhere", "alice:secret@")) == refused
        forbidden = (
            "The MongoDB server of the store URL does not let the user of the store URL do what the store needs. Give it the"
            " role readWrite on its database."
        )
        assert await refusal(server.url("db", "bob:secret@")) == forbidden
        assert await refusal(server.url("db")) == forbidden
        async with open_store(server.url("db", "alice:secret@")) as store:
            await store.open_session(session())
            await store.append_turns([turn(0)], fence=1)


@pytest.mark.parametrize(
    ("deployment", "url"),
    [
        ("mongodb://a,b:1/", "mongodb://a,b:1/db"),
        ("mongodb://a?replicaSet=rs", "mongodb://a/db?replicaSet=rs"),
        ("mongodb://u:p@a", "mongodb://u:p@a/db?authSource=admin"),
        ("mongodb+srv://u:p@a.b.c/x?tls=true", "mongodb+srv://u:p@a.b.c/db?tls=true&authSource=x"),
        ("mongodb://u:p@a/x?authSource=y", "mongodb://u:p@a/db?authSource=y"),
    ],
)
def test_the_suite_uses_databases_of_its_own(deployment: str, url: str) -> None:
    assert with_database(deployment, "db") == url


# --- the schema ------------------------------------------------------------------------------------------------------


def index_names(url: str) -> dict[str, set[str]]:
    with database(url) as tables:
        return {name: set(tables[name].index_information()) for name in tables.list_collection_names()}


async def test_opening_again_and_at_once_changes_nothing(tmp_path: Path) -> None:
    with mongo_url(tmp_path) as url:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(_opened_and_closed, url)
        made = index_names(url)
        assert {name: len(indexes) for name, indexes in made.items()} == {
            **{name: len(indexes) + 1 for name, indexes in mongo_schema.INDEXES.items()},
            "store": 1,
        }
        await _opened_and_closed(url)
        assert index_names(url) == made


async def _opened_and_closed(url: str) -> None:
    async with open_store(url) as store:
        await store.check()


async def test_a_newer_schema(server: Server) -> None:
    url = server.url("newer")
    await _opened_and_closed(url)
    newer = mongo_schema.VERSION + 1
    with database(url) as tables:
        tables["store"].update_one({"_id": "schema"}, {"$set": {"version": newer}})
    assert await refusal(url) == (
        f"The database of the store URL was written by a newer version of this program (schema {newer}, this one knows"
        f" {mongo_schema.VERSION}). Install that version, or choose another database."
    )


# --- what is told, and what is loaded --------------------------------------------------------------------------------


async def test_no_document_is_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "pymongo")  # whoever has set up logging in this process has silenced it
    async with open_store(server.url("logged")) as store:
        await store.open_session(session(user_name="a very secret name"))
        await store.append_turns([turn(0, text="a very secret text")], fence=1)
        assert await store.use_once("a very secret key", now=NOON, expires_at=NOON)
        await store.get_turns("s1", limit=5)
    assert "pymongo" in caplog.text  # it logs other things
    assert "secret" not in caplog.text


def test_whoever_keeps_a_file_does_not_load_the_client_of_a_server() -> None:
    program = "import sys, engine.store.locate; sys.exit('pymongo' in sys.modules or 'bson' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
