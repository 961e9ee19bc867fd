"""Everything that can be wrong with a project file, each with its line.

The structure is read by pydantic; the rest is looked at in the plain data, so that a wrong field in one place does not hide a
wrong reference in another: an operator should not have to mend and check again for each fault.
"""

import re
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Union, cast, get_args, get_origin

import attrs
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from agents.definitions import KEY_PATTERN, KEY_RULE, TOOL_PATTERN, ProjectFile
from agents.finish import FINISH_SESSION
from agents.located import MAX_BYTES, DocumentError, LocatedDocument, Position, read_located
from agents.located import Path as DocumentPath
from agents.tools import is_importable, load_tool, make_importable
from engine import registry
from engine.config import RealtimeProperties, properties_from
from engine.errors import ConfigurationError

FilePath = str | PathLike[str]
PropertyClasses = Callable[[str], type[RealtimeProperties] | None]
"""The properties class of a provider, None when none of that name is installed.

Raises ConfigurationError when it is installed and cannot be loaded."""

# A secret written into a provider's properties would otherwise be taken for what it is.
_SECRET_NAME = re.compile(r"(?i).*(api_?key|secret|password|token|credentials?)")
_KEY = re.compile(KEY_PATTERN)
_TOOL = re.compile(TOOL_PATTERN)
_PARTS = (("sttProvider", "recognizers"), ("ttsProvider", "synthesizers"))
_NO_PART = "None"


@attrs.frozen(order=True)
class Fault:
    """Something wrong in a project file. `line` and `column` count from 1."""

    file: str
    line: int
    column: int
    message: str
    fatal: bool = True
    """False: the project is loaded all the same, without what is wrong."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


@attrs.define(eq=False)
class CheckedFile:
    """One file, as far as it could be read."""

    path: str
    located: LocatedDocument | None = None
    project: ProjectFile | None = None
    """Set when its structure is right."""
    properties: dict[str, RealtimeProperties] = attrs.field(factory=dict[str, RealtimeProperties])
    """By configuration id; those that could be read."""
    faults: list[Fault] = attrs.field(factory=list[Fault])

    @property
    def data(self) -> dict[str, Any]:
        return _mapping(self.located.data) if self.located else {}

    def report(self, path: DocumentPath, message: str, *, of_key: bool = False, fatal: bool = True) -> None:
        position = self.located.position(path, of_key=of_key) if self.located else Position()
        self.report_at(position, message, fatal=fatal)

    def report_at(self, position: Position, message: str, *, fatal: bool = True) -> None:
        fault = Fault(self.path, position.line, position.column, message, fatal)
        if fault not in self.faults:  # what an alias repeats is wrong in one place
            self.faults.append(fault)


def installed_properties(provider: str) -> type[RealtimeProperties] | None:
    """The properties class of an installed model. Only the models that a project names are imported."""
    if provider not in registry.names("models"):
        return None
    found: type[RealtimeProperties] = registry.load("models", provider).properties_class
    return found


@attrs.frozen
class Components:
    """What a project file can name of the parts of this program; the installed ones, unless a test says otherwise."""

    properties_class: PropertyClasses = installed_properties
    names: Callable[[str], Sequence[str]] = registry.names
    """The names in a group of `engine.registry`."""


def check_projects(paths: Iterable[FilePath], components: Components) -> list[CheckedFile]:
    """Read project files and find all that is wrong with them, in each and between them."""
    files = [_read(path) for path in paths]
    check_all(files, components)
    return files


def check_all(files: Sequence[CheckedFile], components: Components) -> None:
    """Find all that is wrong with files that were read, whatever is in them."""
    for file in files:
        _check_structure(file)
        _check_duplicates(file)
        _check_configurations(file, components)
        _check_references(file, _names(files, "realtimeConfigurations", "id"))
        _check_tools(file)
    _check_between(files)
    for file in files:
        file.faults.sort()


# --- one file --------------------------------------------------------------------------------------------------------


def _read(path: FilePath) -> CheckedFile:
    file = CheckedFile(fspath(path))
    try:
        with Path(path).open("rb") as stream:
            file.located = read_located(stream.read(MAX_BYTES + 1))
    except OSError as exc:
        file.report((), f"cannot be read: {exc.strerror or exc}")
    except DocumentError as exc:
        file.report_at(exc.position, exc.message)
    return file


def _check_structure(file: CheckedFile) -> None:
    if file.located is None:
        return
    for position, message in file.located.problems:
        file.report_at(position, message)
    if not isinstance(file.located.data, dict):
        file.report((), "must hold project, agents and so on, each with its name")
        return
    try:
        file.project = ProjectFile.model_validate(file.data, by_alias=True, by_name=False)
    except ValidationError as exc:
        _report_validation(file, exc, ProjectFile, ())


def _check_duplicates(file: CheckedFile) -> None:
    for section, names in (
        ("users", ("name",)),
        ("realtimeConfigurations", ("id",)),
        ("templates", ("ref", "revision")),
        ("agents", ("ref",)),
    ):
        seen: Counter[str] = Counter()
        for index, item in _items(file.data, section):
            if isinstance(first := item.get(names[0]), str):
                name = " revision ".join([first, *(str(item.get(other, 1)) for other in names[1:])])
                seen[name] += 1
                if seen[name] == 2:
                    file.report((section, index, names[0]), f"{section} has {name} twice")
    published = [(index, item) for index, item in _items(file.data, "templates") if item.get("published") is True]
    refs = Counter(item["ref"] for _, item in published if isinstance(item.get("ref"), str))
    for index, item in published:
        if isinstance(item.get("ref"), str) and refs.pop(item["ref"], 0) > 1:
            file.report(
                ("templates", index, "published"), f"template {item.get('ref')} has more than one published revision"
            )


def _check_configurations(file: CheckedFile, components: Components) -> None:
    for index, item in _items(file.data, "realtimeConfigurations"):
        path: DocumentPath = ("realtimeConfigurations", index, "properties")
        document = _mapping(item.get("properties"))
        if not document:  # pydantic reports what is no mapping
            if item.get("properties") == {}:
                file.report(path, "missing field 'provider'")
            continue
        _check_secrets(file, path, document)
        _check_parts(file, path, document, components)
        provider = document.get("provider")
        if not isinstance(provider, str):
            file.report(
                (*path, "provider"), "missing field 'provider'" if provider is None else "provider must be text"
            )
            continue
        try:
            kind = components.properties_class(provider)
        except ConfigurationError as exc:
            file.report((*path, "provider"), str(exc))
            continue
        if kind is None:
            file.report((*path, "provider"), _unknown("provider", provider, components.names("models")))
            continue
        try:
            properties = properties_from(document, {provider: kind})
            if isinstance(name := item.get("id"), str):
                file.properties.setdefault(name, properties)
        except ValidationError as exc:
            _report_validation(file, exc, kind, path)
        except ConfigurationError as exc:
            file.report(path, str(exc))


def _check_secrets(file: CheckedFile, path: DocumentPath, value: Any) -> None:
    for key, item in _mapping(value).items():
        if isinstance(item, str) and _SECRET_NAME.fullmatch(key) and not _KEY.fullmatch(item):
            file.report((*path, key), f"{key} {KEY_RULE}")
        _check_secrets(file, (*path, key), item)
    for index, item in enumerate(_list(value)):
        _check_secrets(file, (*path, index), item)


def _check_parts(file: CheckedFile, path: DocumentPath, document: Mapping[str, Any], components: Components) -> None:
    """The recognizer, chat model and synthesizer that a provider is composed of."""
    chat = _mapping(document.get("chat"))
    found = [((*path, field), document.get(field), group) for field, group in _PARTS]
    found.append(((*path, "chat", "provider"), chat.get("provider"), "chat_models"))
    for place, name, group in found:
        if isinstance(name, str) and name != _NO_PART and name not in (known := components.names(group)):
            file.report(place, _unknown(group.removesuffix("s").replace("_", " "), name, known))


def _check_references(file: CheckedFile, configurations: Sequence[str]) -> None:
    agents = _names([file], "agents", "ref")
    project = _mapping(file.data.get("project"))
    if isinstance(featured := project.get("featuredAgent"), str) and featured not in agents:
        file.report(("project", "featuredAgent"), _unknown("agent", featured, agents))
    for index, item in _items(file.data, "agents"):
        path: DocumentPath = ("agents", index)
        configuration = item.get("realtimeConfigurationId")
        if isinstance(configuration, str) and configuration not in configurations:
            file.report(
                (*path, "realtimeConfigurationId"), _unknown("realtime configuration", configuration, configurations)
            )
        if isinstance(handover := item.get("handover"), str) and handover not in agents:
            file.report((*path, "handover"), _unknown("agent", handover, agents))
        for place, ref in enumerate(_list(item.get("sharedMemoryAgentRefs"))):
            if isinstance(ref, str) and ref not in agents:
                file.report((*path, "sharedMemoryAgentRefs", place), _unknown("agent", ref, agents), fatal=False)
        _check_template(file, path, item)


def _check_template(file: CheckedFile, path: DocumentPath, agent: Mapping[str, Any]) -> None:
    ref, revision = agent.get("template"), agent.get("templateRevision")
    values = _mapping(agent.get("templateVariables"))
    if ref is None:
        for field in ("templateRevision", "templateVariables"):
            if agent.get(field):
                file.report((*path, field), f"{field} without a template", of_key=True)
        return
    revisions = [item for _, item in _items(file.data, "templates") if item.get("ref") == ref]
    if not revisions:
        if isinstance(ref, str):
            file.report((*path, "template"), _unknown("template", ref, _names([file], "templates", "ref")))
        return
    if revision is not None:
        found = next((item for item in revisions if item.get("revision", 1) == revision), None)
        if found is None:
            known = ", ".join(str(item.get("revision", 1)) for item in revisions)
            file.report((*path, "templateRevision"), f"template {ref} has no revision {revision}; it has {known}")
    else:
        found = next((item for item in revisions if item.get("published") is True), None)
        if found is None:
            file.report(
                (*path, "template"), f"template {ref} has no published revision; publish one, or set templateRevision"
            )
    if found is None:
        return
    variables = {str(variable.get("name")): variable for _, variable in _items(found, "variables")}
    for name, value in values.items():
        place = (*path, "templateVariables", name)
        if name not in variables:
            file.report(place, _unknown("template variable", name, list(variables)), of_key=True)
        elif variables[name].get("type") == "enum" and value not in (allowed := _list(variables[name].get("values"))):
            file.report(place, f"{name} must be one of {', '.join(map(str, allowed))}")


def _check_tools(file: CheckedFile) -> None:
    for index, item in _items(file.data, "agents"):
        names: dict[str, str] = {FINISH_SESSION: "the engine"}
        for place, reference in enumerate(_list(item.get("tools"))):
            if not isinstance(reference, str) or not _TOOL.fullmatch(reference):
                continue
            path: DocumentPath = ("agents", index, "tools", place)
            try:
                if ":" in reference and not is_importable(reference):
                    make_importable(Path(file.path).resolve().parent)
                name = load_tool(reference).name
            except ConfigurationError as exc:
                file.report(path, str(exc))
                continue
            if name in names:
                file.report(path, f"the tool's name, {name}, is taken by {names[name]}")
            names[name] = reference


# --- between files ---------------------------------------------------------------------------------------------------


def _check_between(files: Sequence[CheckedFile]) -> None:
    """Refs of projects and agents, and ids of configurations, are the whole server's: keys and connections name them alone."""
    places: dict[tuple[str, str], CheckedFile] = {}
    for file in files:
        found: list[tuple[str, str, DocumentPath]] = []
        if isinstance(ref := _mapping(file.data.get("project")).get("ref"), str):
            found.append(("project", ref, ("project", "ref")))
        for kind, section, field in (
            ("realtime configuration", "realtimeConfigurations", "id"),
            ("agent", "agents", "ref"),
        ):
            for index, item in _items(file.data, section):
                if isinstance(name := item.get(field), str):
                    found.append((kind, name, (section, index, field)))
        for kind, name, path in found:
            other = places.setdefault((kind, name), file)
            if other is not file:
                file.report(path, f"{kind} {name} is in {other.path} as well")


# --- what pydantic finds ---------------------------------------------------------------------------------------------


def _report_validation(file: CheckedFile, error: ValidationError, model: Any, at: DocumentPath) -> None:
    for detail in error.errors(include_url=False):
        loc = detail["loc"]
        path = (*at, *loc)
        field = next((part for part in reversed(loc) if isinstance(part, str)), "")
        label = field if loc[-1:] == (field,) else f"{field} entry"
        message = detail["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("Assertion failed, ")
        match detail["type"]:
            case "extra_forbidden":
                file.report(
                    path, f"unknown field {field!r}{_did_you_mean(field, _fields_at(model, loc[:-1]))}", of_key=True
                )
            case "missing":
                file.report(path, f"missing field {field!r}")
            case "union_tag_not_found":
                file.report(path, "missing field 'type'")
            case "union_tag_invalid":
                context = detail.get("ctx", {})
                known = [name.strip(" '") for name in str(context.get("expected_tags", "")).split(",")]
                file.report((*path, "type"), _unknown("type", str(context.get("tag")), known))
            case "model_type" | "model_attributes_type" | "dict_type":
                file.report(path, f"{label} should be a mapping of names to values")
            case "string_type":
                file.report(path, f"{label} {message} (put it in quotes if it is meant as text)")
            case _ if isinstance(detail["input"], dict):  # about several fields of one mapping, which it names
                file.report(path, message)
            case _:
                file.report(path, f"{label} {message}")


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


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return list(cast("Iterable[Any]", value)) if isinstance(value, list) else []


def _items(data: Mapping[str, Any], section: str) -> list[tuple[int, dict[str, Any]]]:
    """The entries of a section that are mappings; what else is there, pydantic reports."""
    return [(index, _mapping(item)) for index, item in enumerate(_list(data.get(section))) if isinstance(item, dict)]


def _names(files: Iterable[CheckedFile], section: str, field: str) -> list[str]:
    found = (item.get(field) for file in files for _, item in _items(file.data, section))
    return [name for name in found if isinstance(name, str)]


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower().replace("_", ""), by_lower_case, n=1)
    return f"; did you mean {by_lower_case[close[0]]!r}?" if close else ""


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    if hint := _did_you_mean(name, known):
        return f"unknown {kind} {name!r}{hint}"
    return f"unknown {kind} {name!r}; known: {', '.join(dict.fromkeys(known)) or 'none'}"
