"""What the tests of the agents share: a context made by hand, and a model that is only asked for its prompt."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from pydantic import Field

from agents.definitions import BasicAgent
from agents.rules import Components
from engine.config import PipelineConfiguration, RealtimeProperties
from engine.interfaces import (
    Agent,
    Context,
    Environment,
    Message,
    RealtimeModel,
    RealtimeSession,
    SystemPrompt,
    ToolBox,
)
from engine.store.documents import SessionDocument

NOON = datetime(2026, 4, 1, 12, 0, tzinfo=UTC)


class Clock:
    """A wall clock that tests set."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


class TurnlessProperties(RealtimeProperties):
    @property
    def is_turnless(self) -> bool:
        return True


class InternalProperties(RealtimeProperties):
    """As much of a provider's properties as these tests need."""

    stt_provider: str = "Local"
    tts_provider: str = "Local"
    chat: dict[str, Any] = Field(default_factory=dict[str, Any])
    turn_detection: dict[str, int] = Field(default_factory=dict[str, int])
    api_key: str | None = None


PROPERTIES = RealtimeProperties(provider="Internal")


def _properties_class(provider: str) -> type[RealtimeProperties] | None:
    return InternalProperties if provider == "Internal" else None


COMPONENTS = Components(
    properties_class=_properties_class,
    names={
        "models": ["Internal"],
        "chat_models": ["Auto", "Demo", "OpenAI"],
        "recognizers": ["Local", "OpenAI"],
        "synthesizers": ["Local", "OpenAI"],
    }.__getitem__,
)


class PromptOnlyModel(RealtimeModel):
    name = "Internal"
    properties_class: ClassVar[type[RealtimeProperties]] = InternalProperties

    def process(
        self, context: Context, system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> RealtimeSession:
        raise AssertionError("no session is made in these tests")


MODEL = PromptOnlyModel()


def make_agent(**fields: Any) -> BasicAgent:
    """A basic agent from its file's fields."""
    document: dict[str, Any] = {"type": "basic", "ref": "a", "name": "Ada", "realtimeConfigurationId": "offline"}
    return BasicAgent.model_validate(document | fields)


def make_context(
    content: Agent | None = None,
    *,
    clock: Clock | None = None,
    time_zone: str = "UTC",
    locales: tuple[str, ...] = ("en",),
    properties: RealtimeProperties = PROPERTIES,
    messages: Sequence[Message] = (),
    sensory: dict[str, Any] | None = None,
    is_reconnect: bool = False,
) -> Context:
    return Context(
        configuration=PipelineConfiguration(time_zone=time_zone, locales=locales),
        session=SessionDocument(id="s1", created_at=NOON, updated_at=NOON),
        properties=properties,
        environment=Environment(wall_clock=clock or Clock(), new_id=lambda kind: f"{kind}-1", random=Random(0)),
        content=content,
        turn_id="t1",
        messages=messages,
        sensory=sensory or {},
        is_reconnect=is_reconnect,
    )


def write_project(directory: Path, text: str, name: str = "project.yaml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path
