"""What has to be true of documents, whoever brings them: a project file or the management API.

The structure is read by pydantic; the rest is looked at in the plain data, so that a wrong field in one place does not hide a
wrong reference in another: an operator should not have to mend and check again for each fault. What is wrong is reported with its
place; a project file turns it into a line, the API into a JSON pointer.
"""

import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any, Protocol, Union, cast, get_args, get_origin

import attrs
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from agents.definitions import KEY_PATTERN, KEY_RULE, TOOL_PATTERN
from agents.finish import FINISH_SESSION
from agents.tools import load_tool
from engine import registry
from engine.config import RealtimeProperties, properties_from
from engine.errors import ConfigurationError

Path = tuple[str | int, ...]
"""Where in a document: keys and indexes from its root."""
PropertyClasses = Callable[[str], type[RealtimeProperties] | None]
"""The properties class of a provider, None when none of that name is installed.

Raises ConfigurationError when it is installed and cannot be loaded."""

# A secret written into a provider's properties would otherwise be taken for what it is.
SECRET_NAME = re.compile(r"(?i).*(api_?key|secret|password|token|credentials?)")
_KEY = re.compile(KEY_PATTERN)
_TOOL = re.compile(TOOL_PATTERN)
_PARTS = (("sttProvider", "recognizers"), ("ttsProvider", "synthesizers"))
_NO_PART = "None"
_NAMES_COMPARED = 500
"""The most that a name is compared with: each takes some 20 µs."""
_NAMES_TOLD = 20
"""The most names that a sentence lists as known."""


class Report(Protocol):
    """Takes what is wrong. `of_key`: it is the key that is wrong, not its value. Without `fatal` the document can be used, without
    what is wrong."""

    def __call__(self, path: Path, message: str, *, of_key: bool = False, fatal: bool = True) -> None: ...


def installed_properties(provider: str) -> type[RealtimeProperties] | None:
    """The properties class of an installed model. Only the models that a project names are imported."""
    if provider not in registry.names("models"):
        return None
    found: type[RealtimeProperties] = registry.load("models", provider).properties_class
    return found


@attrs.frozen
class Components:
    """What a document can name of the parts of this program; the installed ones, unless a test says otherwise."""

    properties_class: PropertyClasses = installed_properties
    names: Callable[[str], Sequence[str]] = registry.names
    """The names in a group of `engine.registry`."""


# --- rules ------------------------------------------------------------------------------------------------------------


def check_properties(
    report: Report, path: Path, document: Mapping[str, Any], components: Components
) -> RealtimeProperties | None:
    """The properties of a realtime configuration; None when they cannot be read, which is reported."""
    if not document:
        report(path, "missing field 'provider'")
        return None
    check_secrets(report, path, document)
    _check_parts(report, path, document, components)
    provider = document.get("provider")
    if not isinstance(provider, str):
        report((*path, "provider"), "missing field 'provider'" if provider is None else "provider must be text")
        return None
    try:
        kind = components.properties_class(provider)
    except ConfigurationError as exc:
        report((*path, "provider"), str(exc))
        return None
    if kind is None:
        report((*path, "provider"), unknown("provider", provider, components.names("models")))
        return None
    try:
        return properties_from(dict(document), {provider: kind})
    except ValidationError as exc:
        report_validation(report, exc, kind, path)
    except ConfigurationError as exc:
        report(path, str(exc))
    return None


def check_secrets(report: Report, path: Path, value: Any) -> None:
    """Wherever a secret would stand, there is a reference to it."""
    for key, item in mapping(value).items():
        if isinstance(item, str) and SECRET_NAME.fullmatch(key) and not _KEY.fullmatch(item):
            report((*path, key), f"{key} {KEY_RULE}")
        check_secrets(report, (*path, key), item)
    for index, item in enumerate(listed(value)):
        check_secrets(report, (*path, index), item)


def _check_parts(report: Report, path: Path, document: Mapping[str, Any], components: Components) -> None:
    """The recognizer, chat model and synthesizer that a provider is composed of."""
    chat = mapping(document.get("chat"))
    found = [((*path, field), document.get(field), group) for field, group in _PARTS]
    found.append(((*path, "chat", "provider"), chat.get("provider"), "chat_models"))
    for place, name, group in found:
        if isinstance(name, str) and name != _NO_PART and name not in (known := components.names(group)):
            report(place, unknown(group.removesuffix("s").replace("_", " "), name, known))


def check_agent_references(
    report: Report, path: Path, agent: Mapping[str, Any], *, configurations: Collection[str], agents: Collection[str]
) -> None:
    """What an agent names has to be among the configurations, and the agents of its project."""
    configuration = agent.get("realtimeConfigurationId")
    if isinstance(configuration, str) and configuration not in configurations:
        report((*path, "realtimeConfigurationId"), unknown("realtime configuration", configuration, configurations))
    if isinstance(handover := agent.get("handover"), str) and handover not in agents:
        report((*path, "handover"), unknown("agent", handover, agents))
    for place, ref in enumerate(listed(agent.get("sharedMemoryAgentRefs"))):
        if isinstance(ref, str) and ref not in agents:
            report((*path, "sharedMemoryAgentRefs", place), unknown("agent", ref, agents), fatal=False)


def check_featured_agent(report: Report, path: Path, project: Mapping[str, Any], agents: Collection[str]) -> None:
    if isinstance(featured := project.get("featuredAgent"), str) and featured not in agents:
        report((*path, "featuredAgent"), unknown("agent", featured, agents))


def check_template_use(
    report: Report, path: Path, agent: Mapping[str, Any], templates: Sequence[Mapping[str, Any]]
) -> None:
    """The template an agent is made from, and its variables. `templates` are the revisions of its project's templates."""
    ref, revision = agent.get("template"), agent.get("templateRevision")
    values = mapping(agent.get("templateVariables"))
    if ref is None:
        for field in ("templateRevision", "templateVariables"):
            if agent.get(field):
                report((*path, field), f"{field} without a template", of_key=True)
        return
    revisions = [item for item in templates if item.get("ref") == ref]
    if not revisions:
        if isinstance(ref, str):
            refs = [name for item in templates if isinstance(name := item.get("ref"), str)]
            report((*path, "template"), unknown("template", ref, refs))
        return
    if revision is not None:
        found = next((item for item in revisions if item.get("revision", 1) == revision), None)
        if found is None:
            known = ", ".join(str(item.get("revision", 1)) for item in revisions)
            report((*path, "templateRevision"), f"template {ref} has no revision {revision}; it has {known}")
    else:
        found = next((item for item in revisions if item.get("published") is True), None)
        if found is None:
            report(
                (*path, "template"), f"template {ref} has no published revision; publish one, or set templateRevision"
            )
    if found is None:
        return
    variables = {str(variable.get("name")): variable for _, variable in items(found, "variables")}
    for name, value in values.items():
        place = (*path, "templateVariables", name)
        if name not in variables:
            report(place, unknown("template variable", name, list(variables)), of_key=True)
        elif variables[name].get("type") == "enum" and value not in (allowed := listed(variables[name].get("values"))):
            report(place, f"{name} must be one of {', '.join(map(str, allowed))}")


def check_tools(
    report: Report, path: Path, agent: Mapping[str, Any], before: Callable[[str], None] = lambda reference: None
) -> None:
    """An agent's tools are there, and no two have the same name. `before` is called with each before it is loaded."""
    names: dict[str, str] = {FINISH_SESSION: "the engine"}
    for place, reference in enumerate(listed(agent.get("tools"))):
        if not isinstance(reference, str) or not _TOOL.fullmatch(reference):
            continue
        try:
            before(reference)
            name = load_tool(reference).name
        except ConfigurationError as exc:
            report((*path, "tools", place), str(exc))
            continue
        if name in names:
            report((*path, "tools", place), f"the tool's name, {name}, is taken by {names[name]}")
        names[name] = reference


# --- what pydantic finds ---------------------------------------------------------------------------------------------


def report_validation(report: Report, error: ValidationError, model: Any, at: Path) -> None:
    for detail in error.errors(include_url=False):
        loc = detail["loc"]
        path = (*at, *loc)
        field = next((part for part in reversed(loc) if isinstance(part, str)), "")
        label = field if loc[-1:] == (field,) else f"{field} entry"
        message = detail["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("Assertion failed, ")
        match detail["type"]:
            case "extra_forbidden":
                report(path, f"unknown field {field!r}{_did_you_mean(field, _fields_at(model, loc[:-1]))}", of_key=True)
            case "missing":
                report(path, f"missing field {field!r}")
            case "union_tag_not_found":
                report(path, "missing field 'type'")
            case "union_tag_invalid":
                context = detail.get("ctx", {})
                known = [name.strip(" '") for name in str(context.get("expected_tags", "")).split(",")]
                report((*path, "type"), unknown("type", str(context.get("tag")), known))
            case "model_type" | "model_attributes_type" | "dict_type":
                report(path, f"{label} should be a mapping of names to values")
            case "string_type":
                report(path, f"{label} {message} (put it in quotes if it is meant as text)")
            case _ if isinstance(detail["input"], dict):  # about several fields of one mapping, which it names
                report(path, message)
            case _:
                report(path, f"{label} {message}")


def _fields_at(model: Any, loc: Sequence[int | str]) -> list[str]:
    """The field names a document may have at a place, to find the one that was meant."""
    kind: Any = model
    for part in loc:
        kind = _member(kind, part)
    return [_alias(name, field) for name, field in kind.model_fields.items()] if _is_model(kind) else []


def _member(kind: Any, part: int | str) -> Any:
    """The type of a field, a list's item or a union's member that a location names."""
    if _is_model(kind):
        for name, field in kind.model_fields.items():
            if _alias(name, field) == part:
                return _bare(field.annotation)
        return kind  # the tag of a union whose member is known by now
    if get_origin(kind) in (Union, types.UnionType):
        for member in get_args(kind):
            if _is_model(member) and part in get_args(getattr(member.model_fields.get("type"), "annotation", None)):
                return member
    return _bare(get_args(kind)[-1]) if isinstance(part, int) and get_args(kind) else None


def _bare(annotation: Any) -> Any:
    """Without `Annotated` and `| None`."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not types.NoneType]
        return _bare(members[0]) if len(members) == 1 else annotation
    return annotation


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _alias(name: str, field: FieldInfo) -> str:
    return field.alias or name


# --- plain data ------------------------------------------------------------------------------------------------------


def mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    return list(cast("Iterable[Any]", value)) if isinstance(value, list) else []


def items(data: Mapping[str, Any], section: str) -> list[tuple[int, dict[str, Any]]]:
    """The entries of a section that are mappings; what else is there, pydantic reports."""
    return [(index, mapping(item)) for index, item in enumerate(listed(data.get(section))) if isinstance(item, dict)]


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    by_lower_case = {candidate.lower(): candidate for candidate in islice(known, _NAMES_COMPARED)}
    close = get_close_matches(name.lower().replace("_", ""), by_lower_case, n=1)
    return f"; did you mean {by_lower_case[close[0]]!r}?" if close else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    if hint := _did_you_mean(name, known):
        return f"unknown {kind} {name!r}{hint}"
    names = list(dict.fromkeys(known))
    told = names if len(names) <= _NAMES_TOLD else [*names[:_NAMES_TOLD], "…"]
    return f"unknown {kind} {name!r}; known: {', '.join(told) or 'none'}"
