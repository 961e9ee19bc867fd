"""Opening the database file: what is refused and in which words, and how a file comes to the newest schema."""

import os
import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from engine.errors import ConfigurationError
from engine.store import sqlite_file
from engine.store.sqlite_file import CHECKPOINT_BYTES, MIGRATIONS, open_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def opened_and_closed(path: Path) -> None:
    file = open_file(path)
    file.reader.close()
    file.writer.close()


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def refusal(path: Path) -> str:
    with pytest.raises(ConfigurationError) as refused:
        open_file(path)
    return str(refused.value).replace(str(path), "PATH")


# --- what is refused -------------------------------------------------------------------------------------------------


def test_not_a_database(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1000)
    assert refusal(path) == (
        "The store PATH is not a database, or not one this program can read; choose another file (file is not a database)."
    )
    assert path.read_bytes() == b"Dear diary, " * 1000


def test_a_directory(path: Path) -> None:
    path.mkdir()
    assert refusal(path) == (
        "The store PATH cannot be opened; make it a file that can be written, or choose another file"
        " (unable to open database file)."
    )


def test_a_directory_that_is_a_file(path: Path) -> None:
    path.write_bytes(b"")
    assert refusal(path / "store.db") == "The store PATH cannot be opened: File exists. Choose another file."


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written(path: Path) -> None:
    path.parent.chmod(0o500)
    try:
        assert refusal(path) == "The store PATH cannot be opened: Permission denied. Choose another file."
    finally:
        path.parent.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_cannot_be_written(path: Path) -> None:
    opened_and_closed(path)
    path.chmod(0o400)
    assert refusal(path) == (
        "The store PATH cannot be written; make the file and its directory writable, or choose another file"
        " (attempt to write a readonly database)."
    )


def test_a_disk_without_room(path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        sentence = refusal(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sentence == (
        "The store PATH cannot be read or written; check the disk and its free space, or choose another file"
        " (disk I/O error)."
    )
    opened_and_closed(path)


def test_a_locked_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_and_closed(path)
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert refusal(path) == (
            "The store PATH is locked by another program; end that program, or choose another file (database is locked)."
        )


@pytest.mark.parametrize("mark", ["CREATE TABLE sessions (id)", "PRAGMA user_version = 1", "PRAGMA application_id = 7"])
def test_another_programs_database(path: Path, mark: str) -> None:
    run_sql(path, mark)
    before = path.read_bytes()
    assert refusal(path) == "The store PATH is another program's database. Choose another file."
    assert path.read_bytes() == before


def test_a_newer_schema(path: Path) -> None:
    opened_and_closed(path)
    newer = len(MIGRATIONS) + 1
    run_sql(path, f"PRAGMA user_version = {newer}")
    assert refusal(path) == (
        f"The store PATH was written by a newer version of this program (schema {newer}, this one knows"
        f" {len(MIGRATIONS)}). Install that version, or choose another file."
    )
    assert version_of(path) == newer


def test_what_is_refused_is_not_kept_open(path: Path) -> None:
    run_sql(path, "CREATE TABLE other (id)")
    for _ in range(2):
        refusal(path)
    assert not [link for link in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{link}") == str(path)]


# --- the schema ------------------------------------------------------------------------------------------------------


def test_an_empty_file_gets_the_newest_schema(path: Path) -> None:
    path.touch()
    opened_and_closed(path)
    assert version_of(path) == len(MIGRATIONS)


def test_an_older_file_is_brought_forward_and_keeps_its_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_and_closed(path)
    run_sql(path, "INSERT INTO probe (id, count) VALUES (7, 1)")
    newer = (*MIGRATIONS, ("ALTER TABLE probe ADD COLUMN mood TEXT", "UPDATE probe SET mood = 'good'"))
    monkeypatch.setattr(sqlite_file, "MIGRATIONS", newer)
    for _ in range(2):
        opened_and_closed(path)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT mood FROM probe WHERE id = 7").fetchall() == [("good",)]
        assert version_of(path) == len(newer)


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_and_closed(path)
    broken = (*MIGRATIONS, ("ALTER TABLE probe ADD COLUMN mood TEXT", "UPDATE nobody SET mood = 'good'"))
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_file, "MIGRATIONS", broken)
        assert refusal(path) == "The store PATH cannot be opened (no such table: nobody)."
    assert version_of(path) == len(MIGRATIONS)
    opened_and_closed(path)
    with closing(sqlite3.connect(path)) as connection:
        assert [row[1] for row in connection.execute("PRAGMA table_info(probe)")] == ["id", "count"]


# --- the write-ahead log ---------------------------------------------------------------------------------------------


def test_a_checkpoint_that_a_reader_prevents_is_tried_again_much_later(path: Path) -> None:
    file = open_file(path)
    log = path.with_name("store.db-wal")
    with closing(file.writer), closing(file.reader), closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM turns").fetchone()
        file.writer.execute("INSERT INTO sessions (id, document) VALUES ('s1', ?)", ("x" * CHECKPOINT_BYTES,))
        file.checkpoint()
        length = log.stat().st_size
        assert length > CHECKPOINT_BYTES
        assert file.checkpoint_at == length + CHECKPOINT_BYTES
        other.rollback()
        file.checkpoint()
        assert log.stat().st_size == length
        file.writer.execute("INSERT INTO sessions (id, document) VALUES ('s2', ?)", ("x" * CHECKPOINT_BYTES,))
        file.checkpoint()
        assert log.stat().st_size == 0
        assert file.checkpoint_at == CHECKPOINT_BYTES
        assert file.writer.execute("PRAGMA busy_timeout").fetchone() == (sqlite_file.BUSY_SECONDS * 1000,)
