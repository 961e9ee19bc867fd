"""The command line: what is wrong usage, and what is passed on to workers."""

import sys
from pathlib import Path

import pytest

from engine.cli import DONE, USAGE, main


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "--workers", "0"], "argument --workers: it has to be a whole number from 1"),
        (["serve", "--workers", "many"], "argument --workers: it has to be a whole number from 1"),
        (["serve", "--port", "http"], "argument --port: invalid int value: 'http'"),
        (["--log-format", "xml", "serve"], "argument --log-format: it has to be text or json"),
        (["--log-level", "loud", "serve"], "argument --log-level: it has to be debug, info, warning or error"),
        (["dance"], "argument COMMAND: invalid choice: 'dance'"),
    ],
)
def test_wrong_usage(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == USAGE
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("WORKERS", "0", "argument --workers: it has to be a whole number from 1"),
        ("PORT", "http", "argument --port: invalid int value: 'http'"),
        ("LOG_FORMAT", "xml", "argument --log-format: it has to be text or json"),
    ],
)
def test_a_variable_is_held_to_the_same(
    name: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"SOUFFLEUR_{name}", value)
    with pytest.raises(SystemExit) as caught:
        main(["serve"])
    assert caught.value.code == USAGE
    assert sentence in capsys.readouterr().err


def test_no_command_is_a_question_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == USAGE
    assert "serve agents over WebSocket and HTTP" in capsys.readouterr().out


def test_how_workers_are_started_is_no_option_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--help"])
    assert caught.value.code == DONE
    assert "--handles" not in capsys.readouterr().out


def test_several_workers_with_a_store_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["souffleur", "serve", "--port", "0", "--workers", "2", "--store", "memory:"])
    assert main() == 1
    assert capsys.readouterr().err.startswith("souffleur: the memory: store is of one process")
