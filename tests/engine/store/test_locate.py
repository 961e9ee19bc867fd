"""From a URL to a store."""

import os
from pathlib import Path

import pytest

from engine.errors import ConfigurationError
from engine.store.embedded import EmbeddedStore
from engine.store.locate import USAGE, default_path, open_store, recordings_directory
from engine.store.memory import MemoryStore
from tests.engine.store.samples import session


async def test_memory_keeps_nothing() -> None:
    async with open_store("memory:") as store:
        assert isinstance(store, MemoryStore)
        await store.open_session(session())
    async with open_store("memory:") as store:
        assert await store.get_session("s1") is None


async def test_sqlite_keeps_it_in_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    names = ["relative name.db", str(tmp_path / "100%?#.db"), "~/home.db"]
    for name in names:
        async with open_store(f"sqlite:{name}") as store:
            assert isinstance(store, EmbeddedStore)
            await store.open_session(session())
    assert sorted(os.listdir(tmp_path)) == ["100%?#.db", "home.db", "relative name.db"]


@pytest.mark.parametrize("url", [None, "sqlite:"])
async def test_the_default_is_in_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    async with open_store() if url is None else open_store(url) as store:
        await store.check()
    assert (tmp_path / "data" / "souffleur" / "souffleur.db").exists()


def test_the_data_directory_is_the_one_the_environment_names() -> None:
    fallback = Path("/home/alice/.local/share/souffleur/souffleur.db")
    assert default_path({"XDG_DATA_HOME": "/data", "HOME": "/home/alice"}) == Path("/data/souffleur/souffleur.db")
    assert default_path({"HOME": "/home/alice"}) == fallback
    assert default_path({"XDG_DATA_HOME": "", "HOME": "/home/alice"}) == fallback
    assert default_path({"XDG_DATA_HOME": "not/absolute", "HOME": "/home/alice"}) == fallback


@pytest.mark.parametrize(
    "url", ["", "store.db", "memory", "sqlite", "memory:x", "sqlite::memory:", "postgres://user:secret@host"]
)
async def test_other_urls_are_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        async with open_store(url):
            pass
    assert str(refused.value) == f"The store URL is not understood: {USAGE}."


async def test_a_home_that_is_not_known_is_said_so() -> None:
    with pytest.raises(ConfigurationError, match="no home directory is known"):
        async with open_store("sqlite:~nobody-of-that-name/store.db"):
            pass


def test_recordings_are_beside_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert recordings_directory("sqlite:/data/cafe.db") == Path("/data/recordings")
    for url in ("sqlite:", "memory:", "mongodb://somewhere/db"):
        assert recordings_directory(url) == tmp_path / "souffleur" / "recordings"
