"""The database file of the embedded store: making it, opening it, its schema, and what an operator is told when it will not open.

Everything here blocks and is called in a worker thread.
"""

import os
import sqlite3
import threading
from pathlib import Path

import attrs

from engine.errors import ConfigurationError
from engine.store.contract import StoreError

APPLICATION_ID = int.from_bytes(b"Souf")
"""Marks the file as ours (`PRAGMA application_id`), so that no other program's database gets our tables."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT",
        # Keyed by session as well: an id has to be new only within its session. No foreign key to sessions: no store
        # refuses a turn because its session's document is missing.
        """CREATE TABLE turns (session_id TEXT NOT NULL, id TEXT NOT NULL, position INTEGER NOT NULL, document TEXT NOT NULL,
           PRIMARY KEY (session_id, id)) STRICT""",
        "CREATE INDEX turns_in_order ON turns (session_id, position, id)",
        """CREATE TABLE usage (session_id TEXT NOT NULL, id TEXT NOT NULL, document TEXT NOT NULL,
           PRIMARY KEY (session_id, id)) STRICT""",
        "CREATE TABLE probe (id INTEGER PRIMARY KEY, count INTEGER NOT NULL) STRICT",
    ),
)
"""The statements that lead from each schema version to the next. The version is `PRAGMA user_version`; entries are only added."""

BUSY_SECONDS = 5.0
"""The longest a write waits for another process's. Theirs take milliseconds; SQLite's waiting is not fair, hence the margin."""
CHECKPOINT_BUSY_SECONDS = 0.2
"""The longest a checkpoint waits for readers, while everybody's writes wait for it."""
CHECKPOINT_BYTES = 4 << 20
"""Length of the write-ahead log that is moved into the database; SQLite's own habit is 1,000 pages, which is the same."""

_CAUSES = {
    sqlite3.SQLITE_NOTADB: "is not a database, or not one this program can read; choose another file",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a backup, or choose another file",
    sqlite3.SQLITE_READONLY: "cannot be written; make the file and its directory writable, or choose another file",
    sqlite3.SQLITE_PERM: "cannot be written; make the file and its directory writable, or choose another file",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; make it a file that can be written, or choose another file",
    sqlite3.SQLITE_FULL: "cannot grow because the disk is full; make room, or choose another file",
    sqlite3.SQLITE_IOERR: "cannot be read or written; check the disk and its free space, or choose another file",
    sqlite3.SQLITE_BUSY: "is locked by another program; end that program, or choose another file",
}

_opening = threading.Lock()
"""Held while a file is made: closing a descriptor of a file drops the locks SQLite has on it elsewhere in this process."""


@attrs.define(eq=False)
class DatabaseFile:
    """An open file: a connection that writes, and one that only reads and is never in the writer's way."""

    path: Path
    identity: tuple[int, int]
    """Device and inode, as opened."""
    writer: sqlite3.Connection
    reader: sqlite3.Connection
    checkpoint_at: int = CHECKPOINT_BYTES
    """Length in bytes of the write-ahead log at which the next checkpoint is tried."""

    def require_in_place(self) -> None:
        """Raises StoreError when the file was deleted or replaced: SQLite would go on writing to what nobody will find."""
        try:
            in_place = _identity(self.path) == self.identity
        except OSError as exc:
            raise StoreError("The database file is not where it was opened.") from exc
        if not in_place:
            raise StoreError("The database file was replaced while it was open.")

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database once it has grown long, and cut it.

        Ours rather than SQLite's automatic one, because TRUNCATE holds the write lock meanwhile: with a checkpoint beside other
        processes' writes, SQLite before 3.51.3 can damage the file. A reader that stays (a backup, a shell) makes it
        fail; it is tried again when the log has grown as much again.

        Raises:
            sqlite3.Error, OSError: it failed; what was committed stays committed.
        """
        length = self.path.with_name(self.path.name + "-wal").stat().st_size
        if length < self.checkpoint_at:
            return
        self.checkpoint_at = length + CHECKPOINT_BYTES
        self.writer.execute(f"PRAGMA busy_timeout = {CHECKPOINT_BUSY_SECONDS * 1000:.0f}")
        try:
            busy, _, _ = self.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            self.writer.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
        if not busy:
            self.checkpoint_at = CHECKPOINT_BYTES


def open_file(path: Path) -> DatabaseFile:
    """Open the database, made when it is not there and brought to the newest schema.

    Raises:
        ConfigurationError: it cannot be used; the sentence says why and what to do.
    """
    path = path.absolute()
    try:
        with _opening:
            _make(path)
        writer = _connect(path)
        try:
            _prepare(writer, path)
            reader = _connect(path)
            reader.execute("PRAGMA query_only = ON")
            return DatabaseFile(path, _identity(path), writer, reader)
        except BaseException:
            writer.close()
            raise
    except OSError as exc:
        raise ConfigurationError(f"The store {path} cannot be opened: {exc.strerror}. Choose another file.") from exc
    except sqlite3.Error as exc:
        # Extended codes carry the primary one in their low byte. Errors of the Python module itself have none.
        primary = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        raise ConfigurationError(f"The store {path} {_CAUSES.get(primary, 'cannot be opened')} ({exc}).") from exc


def probe(connection: sqlite3.Connection) -> None:
    """Write something, to know that writing works."""
    connection.execute("INSERT INTO probe VALUES (1, 1) ON CONFLICT DO UPDATE SET count = count + 1")


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _make(path: Path) -> None:
    """An empty file only its user may read, and its directory. SQLite gives its side files the same permissions."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return


def _connect(path: Path) -> sqlite3.Connection:
    # Each call may come from another worker thread; the store sees to it that they come one at a time.
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")  # a commit returns when it is on the disk
    connection.execute("PRAGMA fullfsync = ON")  # … which macOS needs to be told twice
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Check whose file it is, bring it to the newest schema, and see that it can be written."""
    connection.execute("BEGIN IMMEDIATE")  # one process at a time
    try:
        version = _version(connection, path)
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        if version < len(MIGRATIONS):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        probe(connection)
    except BaseException:
        connection.rollback()
        raise
    connection.execute("COMMIT")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise ConfigurationError(f"The store {path} is on a file system without write-ahead logs. Choose another file.")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of the file: 0 when it is empty.

    Raises:
        ConfigurationError: the file is another program's, or a newer version's.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (tables or version or application):
        raise ConfigurationError(f"The store {path} is another program's database. Choose another file.")
    if version > len(MIGRATIONS):
        raise ConfigurationError(
            f"The store {path} was written by a newer version of this program (schema {version}, this one knows"
            f" {len(MIGRATIONS)}). Install that version, or choose another file."
        )
    return int(version)
