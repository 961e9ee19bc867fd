"""The admin key: set, read, or made by whoever comes first."""

import logging
import multiprocessing
import os
import stat
import threading
from pathlib import Path

import pytest
from pydantic import SecretStr

from engine.config import Settings
from engine.errors import ConfigurationError
from engine.identity.admin_key import AdminKey, open_admin_key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "admin.key"


def key_in(path: Path) -> str:
    return path.read_text().strip()


def test_the_first_start_makes_a_key_only_its_owner_can_read(path: Path) -> None:
    key = open_admin_key(path, Settings())
    assert key.is_new
    assert key.path == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(key_in(path)) == 43
    assert key.fits(key_in(path))
    assert not key.fits(key_in(path)[:-1])
    assert not key.fits("")
    assert os.listdir(path.parent) == ["admin.key"]


def test_the_next_start_reads_it(path: Path) -> None:
    first = open_admin_key(path, Settings())
    second = open_admin_key(path, Settings())
    assert not second.is_new
    assert (second, second.version) == (first, first.version)


def test_an_operator_may_set_it(path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("SOUFFLEUR_ADMIN_KEY", " a-key-of-the-operator\n")
    key = open_admin_key(path, Settings())
    assert key.fits("a-key-of-the-operator")
    assert key.path is None
    assert not path.exists()
    assert caplog.text == ""
    monkeypatch.setenv("SOUFFLEUR_ADMIN_KEY", "hunter2")
    assert open_admin_key(path, Settings()).fits("hunter2")
    assert "can be guessed" in caplog.text
    assert "hunter2" not in caplog.text
    monkeypatch.setenv("SOUFFLEUR_ADMIN_KEY", "")
    assert open_admin_key(path, Settings()).is_new


def test_an_operator_may_write_the_file(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("  mine-and-nobody-elses  \n\n")
    path.chmod(0o600)
    assert open_admin_key(path, Settings()).fits("mine-and-nobody-elses")


def test_without_a_path_it_is_beside_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert open_admin_key(None, Settings()).path == tmp_path / "souffleur" / "admin.key"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_can_reach_is_warned_about(path: Path, mode: int, caplog: pytest.LogCaptureFixture) -> None:
    open_admin_key(path, Settings())
    assert caplog.text == ""
    path.chmod(mode)
    open_admin_key(path, Settings())
    assert f"chmod 600 {path}" in caplog.text
    assert key_in(path) not in caplog.text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"hunter2 hunter2", "one word"),
        (b"hunter2\xff", "one word"),
        (b"hunter2" * 2000, "one word"),
    ],
)
def test_a_file_that_has_no_key_is_told(path: Path, content: bytes, reason: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=reason) as caught:
        open_admin_key(path, Settings())
    assert "hunter2" not in str(caught.value)


def test_a_key_that_cannot_be_sent_is_told() -> None:
    with pytest.raises(ConfigurationError, match="SOUFFLEUR_ADMIN_KEY: an admin key is one word") as caught:
        open_admin_key(None, Settings(admin_key=SecretStr("hunter2 hunter2")))
    assert "hunter2" not in str(caught.value)


def test_places_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "nothing")
    for place in (tmp_path, tmp_path / "file" / "admin.key", tmp_path / "link"):
        with pytest.raises(ConfigurationError, match=r"cannot be used \(\w+\): name another with --admin-key-file"):
            open_admin_key(place, Settings())
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_threads_that_start_together_get_one_key(path: Path) -> None:
    keys: list[AdminKey] = []
    together = threading.Barrier(16)

    def start() -> None:
        together.wait(10)
        keys.append(open_admin_key(path, Settings()))

    threads = [threading.Thread(target=start) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 16
    assert len({key.digest for key in keys}) == 1
    assert [key.is_new for key in keys].count(True) == 1
    assert os.listdir(path.parent) == ["admin.key"]


def test_processes_that_start_together_get_one_key(path: Path) -> None:
    context = multiprocessing.get_context("fork")  # a new interpreter would take a second each
    together, answers = context.Barrier(4), context.SimpleQueue()

    def start() -> None:
        together.wait(10)
        key = open_admin_key(path, Settings())
        answers.put((key.version, key.is_new))

    processes = [context.Process(target=start) for _ in range(4)]
    for process in processes:
        process.start()
    keys = [answers.get() for _ in processes]
    for process in processes:
        process.join(10)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len({version for version, _ in keys}) == 1
    assert sorted(is_new for _, is_new in keys) == [False, False, False, True]
    assert os.listdir(path.parent) == ["admin.key"]


def test_the_file_can_be_read_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = open_admin_key(path, Settings())
    assert key.reread() == key
    path.write_text("another-key-of-the-operator\n")
    other = key.reread()
    assert other.fits("another-key-of-the-operator")
    assert other.version != key.version
    assert caplog.text == ""
    path.write_text("")
    assert other.reread() == other
    assert "stays as it was" in caplog.text
    path.unlink()
    assert other.reread() == other
    path.mkdir()
    assert other.reread() == other
    assert AdminKey(b"digest").reread() == AdminKey(b"digest")


def test_nothing_of_it_is_in_a_repr_or_the_log(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = open_admin_key(path, Settings())
    for text in (repr(key), key.version, caplog.text):
        assert key_in(path) not in text
        assert key.digest.hex() not in text
        assert repr(key.digest) not in text
    assert "hunter2" not in repr(Settings(admin_key=SecretStr("hunter2"), jwt_secret="hunter2"))
