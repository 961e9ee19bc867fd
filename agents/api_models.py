"""Documents as they go over the management API: those of project files, each with the project it belongs to.

What comes over the API is trusted less than what an operator writes into a file. Structure is the same, so the same models read it;
what is allowed in them is narrower, see `agents.managed`, and `sent_schema` describes that.
"""

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, cast

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from agents.definitions import (
    KEY_PATTERN,
    SECRET_PATTERN,
    TOOL_PATTERN,
    BasicAgent,
    Document,
    Like,
    Project,
    RealtimeConfiguration,
    Ref,
    RelationalAgent,
    Template,
    TestAgent,
)
from engine.elements import JsonObject
from engine.store.documents import ResourceKind

RESERVED = "SOUFFLEUR_"
"""What the server's own settings in the environment begin with: the admin key, the secrets of tokens."""
ENVIRONMENT_PATTERN = rf"env:(?!{RESERVED})[A-Za-z_][A-Za-z0-9_]*"
INSTALLED_TOOL_PATTERN = r"[A-Za-z_][A-Za-z0-9_-]*"
NARROWER = {
    f"^({SECRET_PATTERN})$": f"^{ENVIRONMENT_PATTERN}$",
    f"^({KEY_PATTERN})$": f"^({ENVIRONMENT_PATTERN}|none)$",
    f"^({TOOL_PATTERN})$": f"^{INSTALLED_TOOL_PATTERN}$",
}
"""By what may stand in a file: what may come over the API."""
FILES_ONLY = ("knowledge", "skills")
"""Fields of an agent that name paths."""


def _time(value: object) -> object:
    try:
        if isinstance(value, str) and value[4:5] == "-" and value[10:11] in ("T", "t"):  # pydantic takes numbers too
            return datetime.fromisoformat(value)
    except ValueError:
        pass
    raise ValueError("must be a time with its zone, such as 2026-04-01T12:00:00Z")


UserName = Annotated[
    str,
    Like(
        r"[^\s:.\x00-\x1f\x7f]([^:\x00-\x1f\x7f]{0,254}[^\s:\x00-\x1f\x7f])?",
        "must be one line of at most 256 characters, without colons, beginning with neither a dot nor a space",
    ),
]
"""A colon would end it in Basic credentials; a path of dots means another path."""
Email = Annotated[str, Like(r"([^\s@]+@[^\s@]+)?", "must be an e-mail address")]
Time = Annotated[AwareDatetime, BeforeValidator(_time)]


class BasicAgentDocument(BasicAgent):
    project: Ref


class TestAgentDocument(TestAgent):
    project: Ref


class RelationalAgentDocument(RelationalAgent):
    project: Ref


AgentDocument = Annotated[BasicAgentDocument | TestAgentDocument | RelationalAgentDocument, Field(discriminator="type")]


class TemplateDocument(Template):
    """A revision of a template. Each change makes a new one; agents are made from the published one unless they name another."""

    project: Ref


class RealtimeConfigurationDocument(RealtimeConfiguration):
    project: Ref


class UserDocument(Document):
    name: UserName
    email: Email = ""
    role: Literal["member", "owner", "admin"] = "member"
    disabled: bool = False
    tokens_valid_from: Time | None = None
    """Tokens issued before are refused: set it to now to sign the user out everywhere."""


class SentUser(UserDocument):
    """A user as they are written. A password that is left out stays as it is."""

    password: str | None = Field(default=None, min_length=1, max_length=1024, json_schema_extra={"writeOnly": True})
    password_hash: str | None = Field(
        default=None, min_length=1, max_length=1024, json_schema_extra={"writeOnly": True}
    )
    """argon2, in its encoded form; instead of `password`."""


class KeptUser(Document):
    """A user as the store has them. One that came by a token was written down by the engine, whatever their issuer calls them."""

    model_config = ConfigDict(extra="ignore")

    name: str = ""
    email: str = ""
    role: Literal["member", "owner", "admin"] = "member"
    disabled: bool = False
    tokens_valid_from: Time | None = None
    password_hash: str | None = None
    source: str = "api"
    last_seen_at: str | None = None


class ShownUser(UserDocument):
    id: str
    """Their name; for one who came by a token, what their issuer calls them."""
    name: str
    email: str = ""
    has_password: bool = False
    last_seen_at: str | None = None


class SentApiKey(Document):
    name: str = Field(default="", max_length=256)
    role: Literal["member", "owner", "admin"] = "member"
    projects: list[Ref] | None = Field(default=None, json_schema_extra={"uniqueItems": True})
    """The only projects it may touch; null: those of its user."""
    user: str = Field(default="", max_length=256)
    """Whom it speaks for, and then it can do no more than they; empty for nobody in particular."""
    expires_at: Time | None = None


class ShownApiKey(SentApiKey):
    id: str
    key: str | None = None
    """The key itself, in the answer to its creation and never again."""


MODELS: dict[ResourceKind, TypeAdapter[Any]] = {
    ResourceKind.PROJECT: TypeAdapter(Project),
    ResourceKind.AGENT: TypeAdapter(AgentDocument),
    ResourceKind.TEMPLATE_REVISION: TypeAdapter(TemplateDocument),
    ResourceKind.REALTIME_CONFIGURATION: TypeAdapter(RealtimeConfigurationDocument),
    ResourceKind.USER: TypeAdapter(SentUser),
    ResourceKind.API_KEY: TypeAdapter(SentApiKey),
}
SHOWN: dict[ResourceKind, TypeAdapter[Any]] = {
    **MODELS,
    ResourceKind.USER: TypeAdapter(ShownUser),
    ResourceKind.API_KEY: TypeAdapter(ShownApiKey),
}


class _Schema(GenerateJsonSchema):
    """Without titles, which repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@cache
def shown_schema(kind: ResourceKind) -> JsonObject:
    """Made once; not to be changed."""
    return SHOWN[kind].json_schema(by_alias=True, mode="serialization", schema_generator=_Schema)


@cache
def sent_schema(kind: ResourceKind) -> JsonObject:
    """Made once; not to be changed. Its definitions have names of their own, as they are narrower than those of the same documents
    when they are shown."""
    schema = MODELS[kind].json_schema(
        by_alias=True, mode="validation", schema_generator=_Schema, ref_template="#/$defs/Sent{model}"
    )
    definitions = {f"Sent{name}": _narrowed(each) for name, each in schema.pop("$defs", {}).items()}
    return {**_narrowed(schema), **({"$defs": definitions} if definitions else {})}


def _narrowed(schema: JsonObject) -> JsonObject:
    narrowed: JsonObject = _with_narrower_patterns(schema)
    properties: JsonObject = narrowed.get("properties", {})
    for name in FILES_ONLY:
        if name in properties:
            properties[name] = {"type": "array", "maxItems": 0}
    if "command" in properties:  # a server of tools, which may only be one that runs already
        properties["command"] = {"type": "null"}
        properties["url"] = properties["url"]["anyOf"][0]
        narrowed["required"] = [*narrowed.get("required", []), "url"]
    return narrowed


def _with_narrower_patterns(value: Any) -> Any:
    if isinstance(value, dict):
        found = {name: _with_narrower_patterns(each) for name, each in cast("JsonObject", value).items()}
        if isinstance(pattern := found.get("pattern"), str):
            found["pattern"] = NARROWER.get(pattern, pattern)
        return found
    return (
        [_with_narrower_patterns(each) for each in cast("Iterable[Any]", value)] if isinstance(value, list) else value
    )
