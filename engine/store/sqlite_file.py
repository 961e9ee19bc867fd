"""The database file of the embedded store: making it, opening it, its schema, and what an operator is told when it will not open.

Everything here blocks and is called in a worker thread.
"""

import json
import os
import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
    (
        "ALTER TABLE sessions ADD COLUMN fence INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE sessions ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE sessions ADD COLUMN project_ref TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE sessions ADD COLUMN agent TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE sessions ADD COLUMN state TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE sessions ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0",  # all times are microseconds since 1970
        """UPDATE sessions SET owner = ifnull(field(document, 'owner'), ''), agent = ifnull(field(document, 'agent'), ''),
           project_ref = ifnull(field(document, 'projectRef'), ''), state = ifnull(field(document, 'state'), ''),
           created_at = ifnull(instant(field(document, 'createdAt')), 0)""",
        "CREATE INDEX sessions_in_order ON sessions (created_at, id)",
        "CREATE INDEX sessions_of_owners ON sessions (owner, created_at, id)",
        "CREATE INDEX sessions_of_projects ON sessions (project_ref, created_at, id)",
        "CREATE INDEX sessions_of_agents ON sessions (agent, created_at, id)",
        "CREATE INDEX sessions_of_states ON sessions (state, created_at, id)",
        "ALTER TABLE usage ADD COLUMN project_ref TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE usage ADD COLUMN test_mode INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE usage ADD COLUMN active_seconds REAL NOT NULL DEFAULT 0",
        "ALTER TABLE usage ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0",
        """UPDATE usage SET project_ref = ifnull(field(document, 'projectRef'), ''),
           test_mode = ifnull(field(document, 'testMode'), 0), active_seconds = ifnull(field(document, 'activeSeconds'), 0),
           created_at = ifnull(instant(field(document, 'createdAt')), 0)""",
        # Holds all that is summed, so that the sum of a project's month reads nothing else.
        "CREATE INDEX usage_of_projects ON usage (project_ref, test_mode, created_at, active_seconds)",
        """CREATE TABLE messages (session_id TEXT NOT NULL, id TEXT NOT NULL, position INTEGER NOT NULL, document TEXT NOT NULL,
           PRIMARY KEY (session_id, id)) STRICT""",
        "CREATE INDEX messages_in_order ON messages (session_id, position, id)",
        """CREATE TABLE log (session_id TEXT NOT NULL, id TEXT NOT NULL, position INTEGER NOT NULL, document TEXT NOT NULL,
           PRIMARY KEY (session_id, id)) STRICT""",
        "CREATE INDEX log_in_order ON log (session_id, position, id)",
        """CREATE TABLE resources (kind TEXT NOT NULL, id TEXT NOT NULL, document TEXT NOT NULL,
           PRIMARY KEY (kind, id)) STRICT""",
        """CREATE TABLE memory (scope TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, id TEXT NOT NULL,
           document TEXT NOT NULL, PRIMARY KEY (scope, name, revision DESC), UNIQUE (scope, name, id)) STRICT""",
        # The fence is the row's own number, which is never given twice: a lease that was released leaves no row behind.
        """CREATE TABLE leases (fence INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, token TEXT NOT NULL,
           expires_at INTEGER NOT NULL) STRICT""",
        "CREATE INDEX leases_by_end ON leases (expires_at)",
        "CREATE TABLE used_keys (key TEXT PRIMARY KEY, expires_at INTEGER NOT NULL) STRICT",
        "CREATE INDEX used_keys_by_end ON used_keys (expires_at)",
        """CREATE TABLE deliveries (id TEXT PRIMARY KEY, done INTEGER NOT NULL, due_at INTEGER NOT NULL,
           expires_at INTEGER NOT NULL, document TEXT NOT NULL) STRICT""",
        "CREATE INDEX deliveries_due ON deliveries (due_at, id) WHERE done = 0",
        "CREATE INDEX deliveries_done ON deliveries (expires_at) WHERE done = 1",
    ),
)
"""The statements that lead from each schema version to the next. The version is `PRAGMA user_version`; entries are only added.

They may call `field(document, name)` and `instant(text)`.
"""

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

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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
    connection.execute("INSERT INTO probe (id, count) VALUES (1, 1) ON CONFLICT DO UPDATE SET count = count + 1")


def micros(at: datetime) -> int:
    """A time as the columns hold it: microseconds since 1970, so that they are in the order of time, and exact."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def from_micros(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


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
    connection.execute("PRAGMA secure_delete = ON")  # what is redacted or forgotten is not left in the file
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Check whose file it is, bring it to the newest schema, and see that it can be written."""
    connection.create_function("field", 2, _field)
    connection.create_function("instant", 1, _instant)
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


def _field(document: str, name: str) -> Any:
    """For migrations: one value of a stored document, None when it has no such field."""
    return json.loads(document).get(name)


def _instant(text: str | None) -> int | None:
    """For migrations: a stored document's time as a column holds it."""
    return None if text is None else micros(datetime.fromisoformat(text))


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
