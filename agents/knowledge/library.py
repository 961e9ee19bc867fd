"""The knowledge of a project's agents, for sessions: what `agents.knowledge.index` does, in threads.

Taking documents in holds Python's lock for much of its time, so one thread does it in the whole process. It is done when a session
first asks, and `prepare` does it before anybody does: 20,000 passages take some 15 s, or a look at each file when nothing changed.
"""

import logging
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from agents.knowledge.analysis import fold
from agents.knowledge.files import Problem, find_files, title_of
from agents.knowledge.index import Document, Excerpt, Hits, KnowledgeIndex
from engine.boundary import PASSES, Boundary, Outside

T = TypeVar("T")

READERS = 4
"""Searches at once in a process, each up to 0.1 s; SQLite runs them beside Python."""

logger = logging.getLogger(__name__)

# Not those of tools, nor one: a tool that hangs must not keep anybody from searching, nor a long document, which is taken in.
ingesting = trio.CapacityLimiter(1)
_reading = trio.CapacityLimiter(READERS)


class KnowledgeError(Exception):
    """The knowledge cannot be used now: the file of its index cannot be read or written. The cause says why."""


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Where indexes are kept from start to start, as the XDG Base Directory Specification says. They can be deleted at any time."""
    place = environment.get("XDG_CACHE_HOME", "")
    base = Path(place) if place.startswith("/") else Path(environment.get("HOME") or tempfile.gettempdir()) / ".cache"
    return base / "souffleur" / "knowledge"


@attrs.define(eq=False)
class KnowledgeLibrary:
    """What can be known beside one project file. One per project and process; its agents share what they both know."""

    root: Path
    """The directory of the project file."""
    directory: Path | None = None
    """Where indexes are kept, which several processes may share. None, or one that cannot be written: a directory of this process's
    own, which goes with it."""
    _index: KnowledgeIndex | None = attrs.field(default=None, init=False)
    _taking_turns: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _refreshed: dict[tuple[str, ...], tuple[float, tuple[Problem, ...]]] = attrs.field(
        factory=dict[tuple[str, ...], tuple[float, tuple[Problem, ...]]], init=False
    )
    """By entries: when the last complete look at the files began, and what it found wrong."""
    _told: set[Problem] = attrs.field(factory=set[Problem], init=False)

    async def prepare(self, entries: Iterable[str]) -> Sequence[Problem]:
        """Take in what is new or changed in the documents of an agent. Each problem is logged once.

        When it is cancelled, the document under way leaves nothing behind, and those before it stay.

        Raises:
            KnowledgeError: the index cannot be written.
        """
        wanted = tuple(entries)
        asked = trio.current_time()
        async with self._taking_turns:
            known = self._refreshed.get(wanted)
            if known is not None and known[0] >= asked:  # done by another, who began when this was already asked
                return known[1]
            began = trio.current_time()
            update = await trio.to_thread.run_sync(
                self._update, wanted, limiter=ingesting, abandon_on_cancel=True, thread_name="knowledge"
            )
            problems = tuple(update)
            self._refreshed[wanted] = began, problems
        for problem in problems:
            if problem not in self._told:
                self._told.add(problem)
                logger.warning("knowledge: %s", problem)
        return problems

    def of(self, entries: Iterable[str]) -> "Knowledge":
        """What one agent knows, for one session: see there."""
        return Knowledge(self, tuple(entries))

    async def ask(self, question: Callable[[KnowledgeIndex], T]) -> T:
        """Ask the index something, in a thread.

        Raises:
            KnowledgeError: it cannot be read.
        """
        return await trio.to_thread.run_sync(
            lambda: self._guarded(question), limiter=_reading, abandon_on_cancel=True, thread_name="knowledge"
        )

    # --- in threads

    def _update(self, entries: tuple[str, ...]) -> list[Problem]:
        return self._guarded(lambda index: index.update(entries, trio.from_thread.check_cancelled))

    def _guarded(self, use: Callable[[KnowledgeIndex], T]) -> T:
        try:
            index = self._index or self._make_index()
            try:
                return use(index)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as exc:
                logger.warning("knowledge: the index %s is damaged (%s) and is made anew", index.path.name, exc)
                index.delete()
                return use(index)
        except (sqlite3.Error, OSError) as exc:
            raise KnowledgeError("the knowledge cannot be used now") from exc

    def _make_index(self) -> KnowledgeIndex:
        index = None
        if self.directory is not None:
            try:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                index = KnowledgeIndex.within(self.root, self.directory)
                with index.path.open("ab"):
                    pass
            except OSError as exc:
                logger.warning("knowledge: no index can be kept in %s: %s", self.directory, exc.strerror)
                index = None
        if index is None:
            own = tempfile.mkdtemp(prefix="souffleur-knowledge-")
            weakref.finalize(self, shutil.rmtree, own, ignore_errors=True)
            index = KnowledgeIndex.within(self.root, Path(own))
        self._index = index
        return index


@attrs.frozen
class KnownSource:
    """A document, as a prompt may speak of it."""

    title: str
    description: str = ""


@attrs.frozen
class Names:
    """What there is to know, for prompts."""

    sources: tuple[KnownSource, ...] = ()
    more: int = 0
    """How many there are beside those."""


@attrs.define(eq=False)
class Knowledge:
    """What one agent knows, for one session. The files are looked at when it is first asked, so that a session knows what was written
    before; what is written later is known by the next. What it is asked passes the session's boundary."""

    library: KnowledgeLibrary | None
    """None: there is nothing outside."""
    entries: tuple[str, ...]
    """The agent's `knowledge`."""
    boundary: Boundary = PASSES
    _paths: tuple[str, ...] | None = attrs.field(default=None, init=False)

    async def prepare(self) -> Sequence[Problem]:
        """See `KnowledgeLibrary.prepare`. Also tells this session which files there are now."""
        problems = await self._library.prepare(self.entries)
        self._paths = await self._library.ask(self._find)
        return problems

    async def names(self, limit: int = 20) -> Names:
        """The documents there are. Never waits for one to be taken in: until then its title is its file's name.

        Raises:
            KnowledgeError: the index cannot be read.
        """

        def look(index: KnowledgeIndex) -> Names:
            paths = self._find(index)
            known = {document.path: document for document in index.documents(paths[:limit])}
            sources = [known.get(path) or Document(path, title_of(path)) for path in paths[:limit]]
            shown = tuple(KnownSource(source.title, source.description) for source in sources)
            return Names(shown, max(0, len(paths) - limit))

        return await self._ask("names", lambda: self._library.ask(look))

    async def documents(self) -> Sequence[Document]:
        """Those that can be searched, in the order of the entries. Raises KnowledgeError."""

        async def look() -> Sequence[Document]:
            paths = await self._known_paths()
            return await self._library.ask(lambda index: index.documents(paths))

        return await self._ask("documents", look)

    async def search(self, query: str, source: str = "", limit: int = 5) -> Hits | None:
        """The passages that fit a query, in all documents or those of a title, a file name or a part of either; None when no document
        is called so.

        Raises:
            KnowledgeError: the index cannot be read or written.
        """

        async def look() -> Hits | None:
            paths = await self._known_paths()
            return await self._library.ask(lambda index: _search(index, paths, query, source, limit))

        return await self._ask("search", look, (query, source))

    async def read(self, key: str, characters: int = 4000) -> Excerpt | None:
        """A passage and what surrounds it; None when its document has changed there. Raises KnowledgeError."""

        async def look() -> Excerpt | None:
            paths = await self._known_paths()
            return await self._library.ask(lambda index: index.around(key, paths, characters))

        return await self._ask("read", look, key)

    async def _ask(self, what: str, ask: Callable[[], Awaitable[T]], about: object = None) -> T:
        return await self.boundary.ask(Outside.FILES, f"knowledge: {what}", ask, about)

    @property
    def _library(self) -> KnowledgeLibrary:
        assert self.library is not None, "there is nothing outside"
        return self.library

    async def _known_paths(self) -> tuple[str, ...]:
        if self._paths is None:
            await self.prepare()
        return self._paths or ()

    def _find(self, index: KnowledgeIndex) -> tuple[str, ...]:
        return tuple(file.path for file in find_files(index.root, self.entries).files)


def _search(index: KnowledgeIndex, paths: Sequence[str], query: str, source: str, limit: int) -> Hits | None:
    chosen = paths
    if source.strip():
        chosen = _called(source, index.documents(paths))
        if not chosen:
            return None
    return index.search(query, chosen, limit)


def _called(name: str, documents: Sequence[Document]) -> list[str]:
    """The paths of the documents of that name: the whole title or path if there is one, else what has it within."""
    wanted = fold(name).strip()
    names = [(document.path, fold(document.title), fold(document.path)) for document in documents]
    exact = [path for path, *called in names if wanted in called or wanted == called[1].rpartition("/")[2]]
    return exact or [path for path, *called in names if any(wanted in each for each in called)]
