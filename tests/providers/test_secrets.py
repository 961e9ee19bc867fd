"""Secrets by reference."""

from pathlib import Path

import pytest

from engine.errors import ConfigurationError
from providers.secrets import resolve_secret


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "  sk-1\n")
    assert resolve_secret("env:MY_KEY", "chat.apiKey") == "sk-1"


def test_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-2\n")
    assert resolve_secret(f"file:{tmp_path / 'key'}", "chat.apiKey") == "sk-2"


def test_none_is_no_secret() -> None:
    assert resolve_secret("none", "chat.apiKey") is None


@pytest.mark.parametrize("reference", ["", "sk-live-123", "env:", "file:", "vault:x", "Env:X", "env"])
def test_a_secret_itself_is_refused_and_not_repeated(reference: str) -> None:
    with pytest.raises(ConfigurationError, match=r'chat\.apiKey: write "env:NAME" or "file:PATH"') as caught:
        resolve_secret(reference, "chat.apiKey")
    assert "sk-live" not in str(caught.value)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="set the environment variable MY_KEY"):
        resolve_secret("env:MY_KEY", "chat.apiKey")
    with pytest.raises(ConfigurationError, match=r"cannot be read \(FileNotFoundError\)"):
        resolve_secret(f"file:{tmp_path / 'nothing'}", "chat.apiKey")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigurationError, match="is empty"):
        resolve_secret(f"file:{tmp_path / 'empty'}", "chat.apiKey")


@pytest.mark.parametrize("value", ["two\nlines", "caf\u00e9", "tab\there"])
def test_what_cannot_be_in_a_header_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(ConfigurationError, match="not one line of plain characters") as caught:
        resolve_secret("env:MY_KEY", "chat.apiKey")
    assert value not in str(caught.value)
