"""The stores the contract suite runs on. A further store is added here, and to nothing else.

`STORES` opens each, empty, on a directory of the test's own. `SHARED_STORES` gives the `--store` URL of those that processes can
share: again of an empty store, which is there as long as the context.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from pathlib import Path

from engine.store.contract import Store
from engine.store.locate import open_store
from tests.engine.store.secantus import mongo_url, open_fresh_mongo

STORES: dict[str, Callable[[Path], AbstractAsyncContextManager[Store]]] = {
    "memory": lambda _: open_store("memory:"),
    "embedded": lambda directory: open_store(f"sqlite:{directory}/store.db"),
    "mongo": open_fresh_mongo,
}


@contextmanager
def sqlite_url(directory: Path) -> Generator[str]:
    yield f"sqlite:{directory}/store.db"


SHARED_STORES: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "embedded": sqlite_url,
    "mongo": mongo_url,
}
