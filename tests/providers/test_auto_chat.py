"""The chat part `Auto`: which model the environment asks for, and where which key goes."""

from collections.abc import Mapping
from typing import Any

import pytest

from engine import registry
from engine.errors import ConfigurationError
from providers.chat import auto
from providers.chat.auto import DEFAULT_MODEL, choose, make_chat_model

VARIABLES = ("OPENAI_API_KEY", "SOUFFLEUR_CHAT_BASE_URL", "SOUFFLEUR_CHAT_MODEL", "SOUFFLEUR_CHAT_KEY")
LOCAL = {"SOUFFLEUR_CHAT_BASE_URL": "http://localhost:11434/v1", "SOUFFLEUR_CHAT_MODEL": "small"}


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ({}, {"provider": "Demo"}),
        ({"OPENAI_API_KEY": ""}, {"provider": "Demo"}),
        ({"SOUFFLEUR_CHAT_MODEL": "x", "SOUFFLEUR_CHAT_KEY": "y"}, {"provider": "Demo"}),
        ({"OPENAI_API_KEY": "sk"}, {"provider": "OpenAI", "model": DEFAULT_MODEL, "apiKey": "env:OPENAI_API_KEY"}),
        (
            {"OPENAI_API_KEY": "sk", "SOUFFLEUR_CHAT_MODEL": "gpt-5.1"},
            {"provider": "OpenAI", "model": "gpt-5.1", "apiKey": "env:OPENAI_API_KEY"},
        ),
        (
            LOCAL | {"OPENAI_API_KEY": "sk"},  # OpenAI's key stays at home
            {"provider": "OpenAI", "baseUrl": "http://localhost:11434/v1", "model": "small", "apiKey": "none"},
        ),
        (
            LOCAL | {"SOUFFLEUR_CHAT_KEY": "k"},
            {
                "provider": "OpenAI",
                "baseUrl": "http://localhost:11434/v1",
                "model": "small",
                "apiKey": "env:SOUFFLEUR_CHAT_KEY",
            },
        ),
    ],
)
def test_the_environment_chooses(environment: dict[str, str], part: dict[str, Any]) -> None:
    assert choose(environment) == part


def test_an_endpoint_needs_its_model() -> None:
    with pytest.raises(ConfigurationError, match="set SOUFFLEUR_CHAT_MODEL"):
        choose({"SOUFFLEUR_CHAT_BASE_URL": "http://localhost:1"})


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Mapping[str, Any]]]:
    """What would be made, with an environment that says nothing."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    made: list[tuple[str, str, Mapping[str, Any]]] = []

    def load(group: str, name: str) -> Any:
        def make(part: Mapping[str, Any]) -> None:
            made.append((group, name, part))

        return make

    monkeypatch.setattr(registry, "load", load)
    return made


def test_the_chosen_part_is_made(
    loaded: list[tuple[str, str, Mapping[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_chat_model({"provider": "Auto", "temperature": 0.5})
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    make_chat_model({"provider": "Auto", "temperature": 0.5, "maxTokens": 200})

    assert loaded == [
        ("chat_models", "Demo", {"provider": "Demo"}),
        (
            "chat_models",
            "OpenAI",
            {
                "provider": "OpenAI",
                "model": DEFAULT_MODEL,
                "apiKey": "env:OPENAI_API_KEY",
                "temperature": 0.5,
                "maxTokens": 200,
            },
        ),
    ]


def test_where_it_goes_is_not_the_projects_to_say(loaded: list[tuple[str, str, Mapping[str, Any]]]) -> None:
    with pytest.raises(ConfigurationError, match=r"chat\.baseUrl: extra inputs are not permitted"):
        make_chat_model({"provider": "Auto", "baseUrl": "http://elsewhere"})
    assert loaded == []


def test_a_made_openai_part_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real part: its fields are those that `choose` writes."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")

    assert auto.make_chat_model({"provider": "Auto"}).model == DEFAULT_MODEL
