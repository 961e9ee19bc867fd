"""The project file's documents: what an operator writes to say who there is to talk to (protocol page, section 5).

Names are camelCase in the file and snake_case here; an unknown field is an error, and a value of the wrong kind is one too
(`"60"` is no number). Text fields may be null, which is the same as leaving them out. Secrets are never values, only references
to where the value is: `env:NAME` or `file:PATH`.

The three kinds of agent are told apart by `type`. All parse and validate completely, whichever manager is installed.
"""

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import attrs
from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PrivateAttr,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function

from engine.config import CamelModel, Gender

LOW_IMPACT_BELOW = 0.33
MEDIUM_IMPACT_BELOW = 0.66


@attrs.frozen
class Like:
    """Text that matches the whole pattern. pydantic's own error would show the pattern, which says little to an operator; its
    own description of the field holds it."""

    pattern: str
    rule: str
    described: str = ""
    """The pattern for the description, when it may be simpler there."""

    def check(self, value: str) -> str:
        if re.fullmatch(self.pattern, value) is None:
            raise ValueError(self.rule)
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.described or f"^({self.pattern})$"}


SECRET_PATTERN = r"env:[A-Za-z_][A-Za-z0-9_]*|file:\S(.*\S)?"
SECRET_RULE = "must be a reference, env:NAME or file:PATH, never the secret itself"
TOOL_PATTERN = r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*|[A-Za-z_][\w-]*"
KEY_PATTERN = rf"{SECRET_PATTERN}|none"
KEY_RULE = "must be a reference, env:NAME or file:PATH (none for an endpoint without keys), never the key itself"

Ref = Annotated[
    str, Like(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}", "may hold only letters, digits and . _ ~ -, at most 128")
]
"""Part of pipeline keys and paths, so only what a URL holds unescaped."""
NonBlank = Annotated[str, Like(r"[\s\S]*\S[\s\S]*", "must not be blank", described=r"\S")]
Locale = Annotated[str, Like(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*", "must be a locale such as en or cs-CZ")]
HttpUrl = Annotated[str, Like(r"https?://\S+", "must be an http or https URL")]
SecretReference = Annotated[str, Like(SECRET_PATTERN, SECRET_RULE)]
KeyReference = Annotated[str, Like(KEY_PATTERN, KEY_RULE)]
ToolReference = Annotated[str, Like(TOOL_PATTERN, "must be module:function, or the name of an installed tool")]
VariableName = Annotated[str, Like(r"[^{}\s]([^{}]*[^{}\s])?", "must not be blank nor hold braces")]
Text = str | None


class Document(CamelModel):
    """A part of a project file. What was written never shows in an error: it may be a secret in the wrong place."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


# --- the project ------------------------------------------------------------------------------------------------------


class Subscription(Document):
    minutes_per_month: float | None = Field(default=None, ge=0)
    """None: no limit."""


class Project(Document):
    ref: Ref
    name: NonBlank | None = None
    access: Literal["public", "private"] = "private"
    featured_agent: Ref | None = None
    """The agent that shares memory with every published agent of the project when it names none itself (R3)."""
    members: list[NonBlank] = Field(default_factory=list[str])
    """Names of users; they need not be in this file, as a token may bring them."""
    subscription: Subscription = Subscription()


class User(Document):
    name: NonBlank
    password_hash: SecretReference | None = None
    role: Literal["member", "owner", "admin"] = "member"


class RealtimeConfiguration(Document):
    id: Ref
    properties: dict[str, Any]
    """As written: the class of its provider reads it, see `engine.config.properties_from`."""


# --- templates --------------------------------------------------------------------------------------------------------


class TemplateVariable(Document):
    name: VariableName
    type: Literal["text", "enum"] = "text"
    values: list[str] = Field(default_factory=list[str])

    @model_validator(mode="after")
    def _values_belong_to_enumerations(self) -> Self:
        if (self.type == "enum") != bool(self.values):
            raise ValueError("an enum variable lists its values, a text variable has none")
        return self


class Template(Document):
    """Fields that a project's agents share, each with a lock; see `agents.templates` (R2)."""

    ref: Ref
    revision: int = Field(default=1, ge=1)
    published: bool = False
    purpose: Text = None
    purpose_locked: bool = False
    business_process_steps: Text = None
    business_process_steps_locked: bool = False
    guardrails: Text = None
    guardrails_locked: bool = False
    identity_description: Text = None
    identity_description_locked: bool = False
    business_impact: float = Field(default=1.0, ge=0, le=1)
    business_impact_locked: bool = False
    has_memory: bool = False
    has_memory_locked: bool = False
    camera_preset: Text = None
    camera_preset_locked: bool = False
    variables: list[TemplateVariable] = Field(default_factory=list[TemplateVariable])


# --- agents -----------------------------------------------------------------------------------------------------------


class ModelConfiguration(Document):
    """A chat model for one of an agent's own tasks. What is left out is the default of that provider or task."""

    provider: NonBlank = "OpenAI"
    model: NonBlank | None = None
    base_url: HttpUrl | None = None
    api_key: KeyReference | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)


class LLMConfiguration(Document):
    """The models that do not speak; the speaking model comes from the realtime configuration."""

    initial_planning: ModelConfiguration | None = None
    """None: a reasoning model, as for the next one (R1)."""
    relational_planning: ModelConfiguration | None = None
    summary: ModelConfiguration | None = None
    """Condenses a conversation that is over, for an agent with memory. None: only its facts are kept (R16)."""


class McpServer(Document):
    """A server of tools: started by a command, or reached at a URL."""

    name: NonBlank
    command: list[NonBlank] | None = Field(default=None, min_length=1)
    url: HttpUrl | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either command or url")
        return self


class MultimodalElement(Document):
    """A card the agent may show."""

    name: NonBlank
    description: Text = None
    urls: list[HttpUrl] = Field(default_factory=list[str])


class Webhook(Document):
    url: HttpUrl
    secret: SecretReference | None = None


class AgentDefinition(Document):
    """What every kind of agent has."""

    ref: Ref
    name: NonBlank
    published: bool = False
    realtime_configuration_id: Ref
    locale: Locale | None = None
    """What it speaks. None: the first of the connection's locales."""
    gender: Gender | None = None
    has_memory: bool = False
    camera_preset: Text = None
    tools: list[ToolReference] = Field(default_factory=list[str], json_schema_extra={"uniqueItems": True})
    """`module:function`, or the name of an installed tool (entry points `souffleur.tools`); see `agents.tools`."""
    knowledge: list[NonBlank] = Field(default_factory=list[str])
    skills: list[NonBlank] = Field(default_factory=list[str])
    mcp_servers: list[McpServer] = Field(default_factory=list[McpServer])
    multimodal: list[MultimodalElement] = Field(default_factory=list[MultimodalElement])
    handover: Ref | None = None
    session_end_support: bool = True
    pre_session_webhook: Webhook | None = None
    post_session_webhooks: list[Webhook] = Field(default_factory=list[Webhook])
    recording: bool = False
    show_steering: bool = True
    max_session_minutes: float | None = Field(default=None, gt=0)
    """None: the engine's own limit."""
    user_idle_seconds: float | None = Field(default=None, gt=0)
    """None: silence of the user never ends the session."""
    _directory: Path | None = PrivateAttr(default=None)

    @property
    def directory(self) -> Path | None:
        """Of the project file it was read from, to which its paths are relative; None for one that was made over the API."""
        return self._directory

    def placed(self, directory: Path) -> Self:
        """The same, read from a file in that directory."""
        copy = self.model_copy()
        copy._directory = directory
        return copy

    @field_validator("tools")
    @classmethod
    def _names_each_tool_once(cls, value: list[str]) -> list[str]:
        if len(set(value)) < len(value):
            raise ValueError("names a tool twice")
        return value


class TemplatableAgent(AgentDefinition):
    """An agent that may be made from a template (R2)."""

    purpose: Text = None
    """What it is for."""
    identity_description: Text = None
    """Who it is."""
    guardrails: Text = None
    """Rules it never breaks."""
    template: Ref | None = None
    template_revision: int | None = Field(default=None, ge=1)
    """None: the published one."""
    template_variables: dict[str, str] = Field(default_factory=dict[str, str])


class BasicAgent(TemplatableAgent):
    """Speaks by itself: no planner."""

    type: Literal["basic"]
    prompt: Text = None
    """Free instructions, used when identity, purpose and guardrails are all blank."""


class TestAgent(AgentDefinition):
    """A simulated user, for testing other agents."""

    __test__: ClassVar[bool] = False  # pytest would take the name for a test's

    type: Literal["test"]
    role: Text = None
    vision: Text = None
    scenario: Text = None
    prompt: Text = None
    """Used alone when the connection sets noSystemPrompt."""
    llm_configuration: LLMConfiguration = LLMConfiguration()
    """Only its `summary` is used."""


class RelationalAgent(TemplatableAgent):
    """One model speaks, a second one whispers to it (R1)."""

    type: Literal["relational"]
    business_process_steps: Text = None
    """Read by the planner only."""
    initial_plan: Text = None
    """The opening plan when none could be made."""
    business_impact: float = Field(default=1.0, ge=0, le=1)
    shared_memory_agent_refs: list[Ref] = Field(default_factory=list[str])
    llm_configuration: LLMConfiguration = LLMConfiguration()

    @property
    def business_impact_level(self) -> Literal["low", "medium", "high"]:
        """The bucket that prompts speak of; the borders are those of R1."""
        if self.business_impact < LOW_IMPACT_BELOW:
            return "low"
        return "medium" if self.business_impact < MEDIUM_IMPACT_BELOW else "high"


AnyAgent = BasicAgent | TestAgent | RelationalAgent
AgentByType = Annotated[AnyAgent, Field(discriminator="type")]


class ProjectFile(Document):
    """One file, one project."""

    project: Project
    users: list[User] = Field(default_factory=list[User])
    realtime_configurations: list[RealtimeConfiguration] = Field(default_factory=list[RealtimeConfiguration])
    templates: list[Template] = Field(default_factory=list[Template])
    agents: list[AgentByType] = Field(default_factory=list[AnyAgent])
