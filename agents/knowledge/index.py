"""The passages of a project's documents in one SQLite file, searched by its FTS5.

SQLite is what makes it safe: each document is taken in by one transaction that begins before the document is read, so that a
process that is killed or cancelled leaves nothing of it, and of several processes that see a new document one takes it in while
the others wait and find it there. Whoever searches sees what was there before, and waits for nobody (its write-ahead log).

Chosen among what needs no server, by measurement on the questions of `tests/agents/knowledge` in 20,000 passages of other texts,
with the grams of `agents.knowledge.analysis`: FTS5 finds 40 of 43 first, takes 12 ms (73 at most) and 7 MB; bm25s 39, 0.5 ms and
1 GB in every process, and it is made anew when anything changes; tantivy 31, 1 ms and 119 MB.
"""

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import attrs

from agents.knowledge.analysis import VERSION as ANALYSIS_VERSION
from agents.knowledge.analysis import coverage, grams_of, match_expression, query_grams, text_grams, to_grams, words
from agents.knowledge.content import DESCRIPTION_CHARACTERS, LeftOutError, UnreadableError, one_line
from agents.knowledge.files import FoundFile, Problem, find_files, read_content, read_file, title_of
from agents.knowledge.passages import cut

VERSION = f"1-{ANALYSIS_VERSION}"
"""Changes whenever the same file would be kept differently."""
MAX_PASSAGES = 100_000
"""Of all documents beside one project file: about 90 MB of text and a file of 500 MB."""
WAIT_SECONDS = 0.25
"""Between looks at whether anybody still waits, while another process takes a document in."""
CANDIDATES = 20
"""Passages whose coverage is looked at: four for each that is shown."""
MIN_COVERAGE = 0.2
"""Of a passage that fits. Of the 43 questions the right passage has 0.23 at least, mostly far more; of 16 questions about nothing in
the documents, in the documents alone, 14 have less. In many other texts such a question finds something alike, as it should."""
MIN_OF_BEST = 0.4
"""Of the best coverage there is: what is far behind it is there by a word or two. Not of the score, which FTS5 makes next to nothing
for what is in more than half of all passages."""
MIN_LETTERS, MIN_ALIKE = 3, 0.6
"""Of a word, and of its grams, that make a passage worth showing when none fits: where all is about tea, "tea" says little, and yet
may be all there is to go by."""
MAX_ALIKE = 2
"""Passages that are shown then."""

# Headings say what a passage is about, and are short; found for (1.5, 3, 1), and not sensitive to it.
_WEIGHTS = "1.5, 3.0, 1.0"
_SCHEMA = """
CREATE TABLE files (
    path TEXT PRIMARY KEY, state TEXT NOT NULL, digest TEXT NOT NULL, problem TEXT NOT NULL,
    title TEXT NOT NULL, description TEXT NOT NULL, url TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE passages (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, position INTEGER NOT NULL, key TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL, headings TEXT NOT NULL, page INTEGER, overlap INTEGER NOT NULL, text TEXT NOT NULL,
    UNIQUE (path, position)
);
CREATE VIRTUAL TABLE grams USING fts5(outer, heading, text, content='', tokenize='ascii');
CREATE VIRTUAL TABLE gram_counts USING fts5vocab(grams, 'row');
PRAGMA user_version = 1;
"""


@attrs.frozen
class Document:
    """A document that can be asked about."""

    path: str
    title: str
    description: str = ""
    url: str = ""


@attrs.frozen
class StoredPassage:
    key: str
    """The same in every process, and for as long as its document says the same in that place."""
    document: Document
    headings: tuple[str, ...]
    page: int | None
    overlap: int
    text: str


@attrs.frozen
class Hits:
    """What a query found."""

    passages: tuple[StoredPassage, ...] = ()
    """The best first."""
    fit: bool = True
    """False: they have no more than a word or two of the query, and answer it by chance only."""


@attrs.frozen
class Excerpt:
    """A part of a document."""

    passage: StoredPassage
    """The one that was asked for."""
    passages: tuple[StoredPassage, ...]
    """That one with its neighbours, in their order."""
    following: StoredPassage | None
    """Where the document goes on; None at its end."""


@attrs.frozen
class KnowledgeIndex:
    """The index of what is beside one project file. Every method works on a connection of its own and blocks: call it in a thread."""

    root: Path
    """The directory of the project file."""
    path: Path
    """The file of the index."""

    @classmethod
    def within(cls, root: Path, directory: Path) -> "KnowledgeIndex":
        """The index of a project, in a directory for many; each version of this program's format has its own."""
        real = root.resolve()
        name = hashlib.sha256(str(real).encode("utf-8", "surrogateescape")).hexdigest()[:20]
        return cls(real, directory / f"{name}-{VERSION}.sqlite")

    # --- taking in

    def update(self, entries: Iterable[str], check: Callable[[], None]) -> list[Problem]:
        """Take in what is new or changed in the documents that the entries name, and forget those that are gone.

        `check` is called now and then, and may raise: then the document under way leaves nothing behind.

        Raises:
            sqlite3.Error, OSError: the index cannot be written.
        """
        found = find_files(self.root, entries)
        problems = list(found.problems)
        with self._open() as connection:
            _create(connection, check)
            known = dict(connection.execute("SELECT path, state FROM files"))
            for path in known.keys() - {file.path for file in found.files}:
                if not (self.root / path).is_file():
                    self._forget(connection, path, check)
            for file in found.files:
                check()
                if known.get(file.path) != _state(file):
                    self._take_in(connection, file, check)
            rows = connection.execute("SELECT path, problem FROM files WHERE problem <> ''")
            wrong = dict(rows)
        problems.extend(Problem(file.path, wrong[file.path]) for file in found.files if file.path in wrong)
        return problems

    def _take_in(self, connection: sqlite3.Connection, file: FoundFile, check: Callable[[], None]) -> None:
        with _writing(connection, check):
            row = connection.execute("SELECT state, digest FROM files WHERE path = ?", (file.path,)).fetchone()
            if row is not None and row[0] == _state(file):
                return  # another process was faster
            state, digest, problem = _state(file), "", ""
            document = Document(file.path, title_of(file.path))
            try:
                data = read_file(self.root, file.path, check)
                digest = hashlib.sha256(data).hexdigest()
                if row is None or row[1] != digest:
                    _remove(connection, file.path, check)
                    document = self._add(connection, file.path, data, check)
                else:
                    connection.execute("UPDATE files SET state = ? WHERE path = ?", (state, file.path))
                    return
            except UnreadableError as exc:
                _remove(connection, file.path, check)
                problem = str(exc)
                if not exc.is_lasting:
                    state, digest = "", ""  # so that it is looked at again
            connection.execute(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
                (file.path, state, digest, problem, document.title, document.description, document.url),
            )

    def _add(self, connection: sqlite3.Connection, path: str, data: bytes, check: Callable[[], None]) -> Document:
        content = read_content(path, data, check)
        passages = cut(content)
        if not passages:
            raise UnreadableError("is empty")
        count: int = connection.execute("SELECT count(*) FROM passages").fetchone()[0]
        if count + len(passages) > MAX_PASSAGES:
            raise LeftOutError(f"is left out: the project's documents have more than {MAX_PASSAGES} passages")
        title = content.title or title_of(path)
        keys: dict[str, int] = {}
        for position, passage in enumerate(passages):
            if position % 64 == 0:
                check()
            said = "\0".join((path, *passage.headings, passage.text))
            key = hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:24]
            keys[key] = keys.get(key, 0) + 1
            values = (path, position, f"{key}.{keys[key]}", title, json.dumps(passage.headings, ensure_ascii=False))
            row = connection.execute(
                "INSERT INTO passages (path, position, key, title, headings, page, overlap, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*values, passage.page, passage.overlap, passage.text),
            )
            connection.execute(
                "INSERT INTO grams (rowid, outer, heading, text) VALUES (?, ?, ?, ?)",
                (row.lastrowid, *_grams(title, passage.headings, passage.text)),
            )
        description = content.description or one_line(passages[0].text, DESCRIPTION_CHARACTERS)
        return Document(path, title, description, content.url)

    def _forget(self, connection: sqlite3.Connection, path: str, check: Callable[[], None]) -> None:
        with _writing(connection, check):
            _remove(connection, path, check)
            connection.execute("DELETE FROM files WHERE path = ?", (path,))

    # --- asking

    def documents(self, paths: Sequence[str]) -> list[Document]:
        """The documents of these paths that are taken in, in that order."""
        with self._read() as connection:
            return _documents(connection, paths) if connection else []

    def search(self, query: str, paths: Sequence[str], limit: int) -> Hits:
        """The passages of these documents that fit a query. Takes any text."""
        grams = query_grams(query)
        if not grams or not paths:
            return Hits()
        with self._read() as connection:
            if connection is None:
                return Hits()
            rows = connection.execute(
                f"""SELECT passages.* FROM grams JOIN passages ON passages.id = grams.rowid
                WHERE grams MATCH ? AND passages.path IN (SELECT value FROM json_each(?))
                ORDER BY bm25(grams, {_WEIGHTS}), passages.id LIMIT ?""",
                (match_expression(grams), json.dumps(paths), CANDIDATES),
            ).fetchall()
            weights = _weights(connection, grams) if rows else {}
            documents = {document.path: document for document in _documents(connection, paths)}
        held = [text_grams(" ".join((row["title"], *json.loads(row["headings"]), row["text"]))) for row in rows]
        covered = [coverage(weights, each) for each in held]
        best = max(covered, default=0.0)
        found = range(len(rows))
        chosen = [at for at in found if covered[at] >= max(MIN_COVERAGE, MIN_OF_BEST * best)][:limit]
        fit = bool(chosen)
        if not fit:
            asked = [set(grams_of(word)) for word in words(query) if len(word) >= MIN_LETTERS]
            chosen = [at for at in found if any(len(word & held[at]) >= MIN_ALIKE * len(word) for word in asked)]
            chosen = chosen[: min(limit, MAX_ALIKE)]
        return Hits(tuple(_passage(rows[at], documents[rows[at]["path"]]) for at in chosen), fit)

    def around(self, key: str, paths: Sequence[str], characters: int) -> Excerpt | None:
        """A passage and as many of its neighbours as fit; None when it is not there any more."""
        with self._read() as connection:
            if connection is None:
                return None
            row = connection.execute("SELECT path, position FROM passages WHERE key = ?", (key,)).fetchone()
            if row is None or row["path"] not in paths:
                return None
            document = _documents(connection, [row["path"]])[0]
            rows = connection.execute(
                "SELECT * FROM passages WHERE path = ? AND position BETWEEN ? AND ? ORDER BY position",
                (row["path"], row["position"] - _NEIGHBOURS, row["position"] + _NEIGHBOURS + 1),
            ).fetchall()
        near = [_passage(each, document) for each in rows]
        middle = next(at for at, each in enumerate(near) if each.key == key)
        first, last = _fitting([len(each.text) for each in near[: middle + _NEIGHBOURS + 1]], middle, characters)
        following = near[last + 1] if last + 1 < len(near) else None
        return Excerpt(near[middle], tuple(near[first : last + 1]), following)

    # --- the file

    def delete(self) -> None:
        """Make room for a new one: everything in it is in the documents."""
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    @contextmanager
    def _read(self) -> Generator[sqlite3.Connection | None]:
        """A connection that sees one state of the index, whoever writes meanwhile; None when there is no index yet."""
        if not self.path.exists():
            yield None
            return
        with self._open() as connection:
            connection.execute("BEGIN")
            yield connection if _is_made(connection) else None


_NEIGHBOURS = 40
"""To either side, at most: more than fit, unless they are very short."""


def _state(file: FoundFile) -> str:
    return f"{file.size} {file.modified} {file.inode} {file.changed}"


def _grams(title: str, headings: Sequence[str], text: str) -> tuple[str, str, str]:
    """As they are in the index: what a passage is under, its own heading, its text."""
    return to_grams(" ".join((title, *headings[:-1]))), to_grams(headings[-1] if headings else ""), to_grams(text)


def _remove(connection: sqlite3.Connection, path: str, check: Callable[[], None]) -> None:
    """Take a document's passages out. The index of grams keeps no text, so it has to be told what was in it."""
    rows = connection.execute("SELECT id, title, headings, text FROM passages WHERE path = ?", (path,)).fetchall()
    for number, row in enumerate(rows):
        if number % 64 == 0:
            check()
        connection.execute(
            "INSERT INTO grams (grams, rowid, outer, heading, text) VALUES ('delete', ?, ?, ?, ?)",
            (row["id"], *_grams(row["title"], json.loads(row["headings"]), row["text"])),
        )
    connection.execute("DELETE FROM passages WHERE path = ?", (path,))


def _patiently(execute: Callable[[], object], check: Callable[[], None]) -> None:
    """Execute as soon as no other process is writing."""
    while True:
        check()
        try:
            execute()
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:  # the rest says of what kind
                raise
        else:
            return


@contextmanager
def _writing(connection: sqlite3.Connection, check: Callable[[], None]) -> Generator[None]:
    """A transaction that writes, alone among all processes. Undone when it is left by an exception."""
    _patiently(lambda: connection.execute("BEGIN IMMEDIATE"), check)
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _is_made(connection: sqlite3.Connection) -> bool:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version > 0


def _create(connection: sqlite3.Connection, check: Callable[[], None]) -> None:
    connection.execute(
        "PRAGMA synchronous = NORMAL"
    )  # a power cut may lose the last documents, which are taken in again
    if _is_made(connection):
        return
    _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"), check)
    with _writing(connection, check):
        if not _is_made(connection):
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)


def _documents(connection: sqlite3.Connection, paths: Sequence[str]) -> list[Document]:
    rows = connection.execute(
        """SELECT files.path, title, description, url FROM json_each(?) AS wanted JOIN files ON files.path = wanted.value
        WHERE problem = '' ORDER BY wanted.key""",
        (json.dumps(paths),),
    )
    return [Document(*row) for row in rows]


def _weights(connection: sqlite3.Connection, grams: Iterable[str]) -> dict[str, float]:
    """How rare each gram is among all passages, as BM25 counts it; one that is nowhere is the rarest."""
    total: int = connection.execute("SELECT count(*) FROM passages").fetchone()[0]
    counts = {
        gram: (connection.execute("SELECT doc FROM gram_counts WHERE term = ?", (gram,)).fetchone() or (0,))[0]
        for gram in grams
    }
    return {gram: math.log(1 + (total - count + 0.5) / (count + 0.5)) for gram, count in counts.items()}


def _passage(row: sqlite3.Row, document: Document) -> StoredPassage:
    headings: tuple[str, ...] = tuple(json.loads(row["headings"]))
    return StoredPassage(row["key"], document, headings, row["page"], row["overlap"], row["text"])


def _fitting(sizes: Sequence[int], middle: int, room: int) -> tuple[int, int]:
    """The first and last that fit together: the one asked for, one before it, what follows, and at the end more of what is before."""
    first = last = middle
    room -= sizes[middle]
    while True:
        if first > 0 and sizes[first - 1] <= room and (first == middle or last + 1 == len(sizes)):
            first -= 1
            room -= sizes[first]
        elif last + 1 < len(sizes) and sizes[last + 1] <= room:
            last += 1
            room -= sizes[last]
        else:
            return first, last
