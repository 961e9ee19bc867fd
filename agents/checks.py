"""Everything that can be wrong with project files, each with its line: the rules of `agents.rules`, and what holds between the
parts of a file and between files."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

import attrs
from pydantic import ValidationError

from agents.definitions import ProjectFile
from agents.knowledge.files import find_files
from agents.located import MAX_BYTES, DocumentError, LocatedDocument, Position, read_located
from agents.located import Path as DocumentPath
from agents.rules import (
    Components,
    check_agent_references,
    check_featured_agent,
    check_properties,
    check_template_use,
    check_tools,
    items,
    mapping,
    report_validation,
)
from agents.skills.folders import read_skills
from agents.tools import is_importable, make_importable
from engine.config import RealtimeProperties

FilePath = str | PathLike[str]


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
        return mapping(self.located.data) if self.located else {}

    def report(self, path: DocumentPath, message: str, *, of_key: bool = False, fatal: bool = True) -> None:
        position = self.located.position(path, of_key=of_key) if self.located else Position()
        self.report_at(position, message, fatal=fatal)

    def report_at(self, position: Position, message: str, *, fatal: bool = True) -> None:
        fault = Fault(self.path, position.line, position.column, message, fatal)
        if fault not in self.faults:  # what an alias repeats is wrong in one place
            self.faults.append(fault)


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
        _check_beside(file)
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
        report_validation(file.report, exc, ProjectFile, ())


def _check_duplicates(file: CheckedFile) -> None:
    for section, names in (
        ("users", ("name",)),
        ("realtimeConfigurations", ("id",)),
        ("templates", ("ref", "revision")),
        ("agents", ("ref",)),
    ):
        seen: Counter[str] = Counter()
        for index, item in items(file.data, section):
            if isinstance(first := item.get(names[0]), str):
                name = " revision ".join([first, *(str(item.get(other, 1)) for other in names[1:])])
                seen[name] += 1
                if seen[name] == 2:
                    file.report((section, index, names[0]), f"{section} has {name} twice")
    published = [(index, item) for index, item in items(file.data, "templates") if item.get("published") is True]
    refs = Counter(item["ref"] for _, item in published if isinstance(item.get("ref"), str))
    for index, item in published:
        if isinstance(item.get("ref"), str) and refs.pop(item["ref"], 0) > 1:
            file.report(
                ("templates", index, "published"), f"template {item.get('ref')} has more than one published revision"
            )


def _check_configurations(file: CheckedFile, components: Components) -> None:
    for index, item in items(file.data, "realtimeConfigurations"):
        document = item.get("properties")
        if not isinstance(document, dict):
            continue  # pydantic reports what is no mapping
        path: DocumentPath = ("realtimeConfigurations", index, "properties")
        properties = check_properties(file.report, path, mapping(document), components)
        if properties is not None and isinstance(name := item.get("id"), str):
            file.properties.setdefault(name, properties)


def _check_references(file: CheckedFile, configurations: Sequence[str]) -> None:
    agents = _names([file], "agents", "ref")
    templates = [item for _, item in items(file.data, "templates")]
    check_featured_agent(file.report, ("project",), mapping(file.data.get("project")), agents)
    for index, item in items(file.data, "agents"):
        path: DocumentPath = ("agents", index)
        check_agent_references(file.report, path, item, configurations=configurations, agents=agents)
        check_template_use(file.report, path, item, templates)


def _check_tools(file: CheckedFile) -> None:
    def make_found(reference: str) -> None:
        if ":" in reference and not is_importable(reference):
            make_importable(Path(file.path).resolve().parent)

    for index, item in items(file.data, "agents"):
        check_tools(file.report, ("agents", index), item, make_found)


def _check_beside(file: CheckedFile) -> None:
    """The documents and skills that agents name. Without a bad one the project is served all the same."""
    root = Path(file.path).resolve().parent
    for index, item in items(file.data, "agents"):
        known = _texts(item, "knowledge")
        for problem in find_files(root, known).problems if known else ():
            place: DocumentPath = ("agents", index, "knowledge")
            place += (known.index(problem.path),) if problem.path in known else ()
            file.report(place, f"knowledge: {problem}", fatal=False)
        skills = _texts(item, "skills")
        for fault in read_skills(root, skills)[1] if skills else ():
            file.report(("agents", index, "skills", fault.place), f"skill: {fault}", fatal=False)


def _texts(item: Mapping[str, Any], field: str) -> list[str]:
    """A list of texts, when it is one; pydantic reports what is not."""
    found = item.get(field)
    entries = cast("list[object]", found) if isinstance(found, list) else []
    texts = [entry for entry in entries if isinstance(entry, str) and entry.strip()]
    return texts if len(texts) == len(entries) else []


# --- between files ---------------------------------------------------------------------------------------------------


def _check_between(files: Sequence[CheckedFile]) -> None:
    """Refs and ids are the whole server's: keys, connections and the paths of the management API name them alone."""
    places: dict[tuple[str, str], CheckedFile] = {}
    for file in files:
        found: list[tuple[str, str, DocumentPath]] = []
        if isinstance(ref := mapping(file.data.get("project")).get("ref"), str):
            found.append(("project", ref, ("project", "ref")))
        for kind, section, field in (
            ("realtime configuration", "realtimeConfigurations", "id"),
            ("agent", "agents", "ref"),
            ("template", "templates", "ref"),
        ):
            for index, item in items(file.data, section):
                if isinstance(name := item.get(field), str):
                    found.append((kind, name, (section, index, field)))
        for kind, name, path in found:
            other = places.setdefault((kind, name), file)
            if other is not file:
                file.report(path, f"{kind} {name} is in {other.path} as well")


def _names(files: Iterable[CheckedFile], section: str, field: str) -> list[str]:
    found = (item.get(field) for file in files for _, item in items(file.data, section))
    return [name for name in found if isinstance(name, str)]
