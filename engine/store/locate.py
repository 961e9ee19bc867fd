"""From the `--store` option to a store: `sqlite:PATH`, `mongodb://…`, `memory:`, or by default a file in the user's data directory."""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from engine.errors import ConfigurationError
from engine.store.contract import Store
from engine.store.embedded import open_embedded
from engine.store.memory import MemoryStore

USAGE = "use sqlite:PATH, mongodb://HOST/DATABASE, memory:, or sqlite: alone for a file in your data directory"


@asynccontextmanager
async def open_store(url: str = "sqlite:") -> AsyncGenerator[Store]:
    """The store of that URL. It is closed when the context is left; what was written before is kept.

    Raises:
        ConfigurationError: the URL names no store, or its store cannot be used; the sentence says why and what to do.
    """
    match url.partition(":"):
        case "sqlite", ":", place if place != ":memory:":
            path = _expanded(place) if place else default_path(os.environ)
            async with open_embedded(path) as embedded:
                yield embedded
        case "memory", ":", "":
            memory = MemoryStore()
            try:
                yield memory
            finally:
                memory.close()
        case "mongodb" | "mongodb+srv", ":", _:
            # Here, as whoever keeps a file need not load the client of a server.
            from engine.store.mongo import open_mongo

            async with open_mongo(url) as mongo:
                yield mongo
        case _:  # the URL may hold a password: it is not repeated
            raise ConfigurationError(f"The store URL is not understood: {USAGE}.")


def recordings_directory(url: str) -> Path:
    """Where the recordings of sessions are: beside the database file, else in the user's data directory (L10).

    Raises:
        ConfigurationError: there is no home directory.
    """
    scheme, _, place = url.partition(":")
    path = _expanded(place) if scheme == "sqlite" and place else default_path(os.environ)
    return path.with_name("recordings")


def default_path(environment: Mapping[str, str]) -> Path:
    """The database file in the user's data directory, as the XDG Base Directory Specification says.

    Raises:
        ConfigurationError: there is no home directory.
    """
    data = Path(environment.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():  # "ignore it" is what the specification asks for
        home = environment.get("HOME", "")
        data = (Path(home) if home else _expanded("~")) / ".local" / "share"
    return data / "souffleur" / "souffleur.db"


def _expanded(place: str) -> Path:
    try:
        return Path(place).expanduser()
    except RuntimeError as exc:
        raise ConfigurationError(f"The store has no place, because no home directory is known: {USAGE}.") from exc
