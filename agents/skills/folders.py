"""From the `skills` of an agent to skills: reading their folders, and saying what is wrong with them.

    ---
    name: refunds
    description: How to refund an order, and when not to.
    ---
    Ask for the number of the order …

Nothing here leaves the project's directory. All of it blocks: it reads files.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import attrs

from agents.definitions import Like
from agents.located import DocumentError, LocatedDocument, Position, read_located
from agents.rules import mapping
from engine.errors import ConfigurationError

SKILL_FILE = "SKILL.md"
MAX_SKILL_BYTES = 64 << 10
"""Of a SKILL.md."""
MAX_INSTRUCTIONS = 20_000
"""Characters, some 5,000 tokens: what is active is read with every turn. More belongs into resources."""
MAX_DESCRIPTION = 1000
"""Characters; the descriptions of all skills are always read."""
MAX_RESOURCES = 100
"""Files of a skill that are told of."""
MAX_LOOKED_AT = 2000
"""Files and folders that are looked at to find those."""
MAX_DEPTH = 8
"""Folders in folders."""
MAX_RESOURCE_BYTES = 64 << 10
"""What is read of a resource at once: some 16,000 tokens."""

_FENCE = "---"
_PUT_BESIDE = "put what is not always needed into a file beside it"
_NAME = Like(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "may hold only letters, digits and . _ -, at most 64")


@attrs.frozen
class Skill:
    name: str
    description: str
    instructions: str
    _folder: Path | None = attrs.field(default=None, eq=False, repr=False)
    resources: tuple[str, ...] = ()
    """Paths relative to its folder, with slashes, sorted."""

    @property
    def folder(self) -> Path:
        """Where it really is, on this machine; there is none where nothing is outside."""
        assert self._folder is not None, "there is nothing outside"
        return self._folder


@attrs.frozen(order=True)
class SkillFault:
    """Something that keeps a skill from being used."""

    place: int
    """Of its entry in the agent's `skills`, from 0."""
    file: str
    """Its SKILL.md, or its folder when there is none, as named by the entry."""
    position: Position
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.position.line}:{self.position.column}: {self.message}"


class ResourceError(Exception):
    """A resource cannot be read. Its text says why, in words for a model."""


def load_skills(root: Path, entries: Iterable[str]) -> tuple[Skill, ...]:
    """The skills that an agent's entries name, in their order. `root` is the directory of the project file.

    Raises:
        ConfigurationError: something is wrong with them; the message names every file and line.
    """
    skills, faults = read_skills(root, entries)
    if faults:
        raise ConfigurationError("\n".join(["the skills cannot be loaded:", *map(str, faults)]))
    return skills


def read_skills(root: Path, entries: Iterable[str]) -> tuple[tuple[Skill, ...], tuple[SkillFault, ...]]:
    """What can be read of them, and everything that is wrong, for who checks a project."""
    skills: dict[str, Skill] = {}
    faults: list[SkillFault] = []
    for place, entry in enumerate(entries):
        reader = _Reader(place, entry)
        skill = reader.read(root)
        faults += reader.faults
        if skill is None:
            continue
        if (other := skills.setdefault(skill.name, skill)) is not skill:
            message = f"the name {skill.name} is taken by {other.folder.name}"
            faults.append(SkillFault(place, reader.file, reader.position("name"), message))
    return tuple(skills.values()), tuple(faults)


def read_resource(skill: Skill, path: str) -> str:
    """The text of a file in a skill's folder.

    Raises:
        ResourceError: it cannot be read, and why.
    """
    name = path.strip()
    if not name or "\0" in name or "\\" in name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ResourceError(f"A resource is named by its path inside the skill's folder. {_known(skill)}")
    try:
        real = (skill.folder / name).resolve(strict=True)
        if not real.is_relative_to(skill.folder):
            raise ResourceError(f"{name} leads out of the skill's folder; it may not be read.")
        data = _read_file(real, MAX_RESOURCE_BYTES)
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise ResourceError(f"The skill {skill.name} has no resource {name}. {_known(skill)}") from exc
    except _NoFileError as exc:
        raise ResourceError(f"{name} is no file. {_known(skill)}") from exc
    except (OSError, RuntimeError, ValueError) as exc:  # RuntimeError: links in a circle
        raise ResourceError(f"{name} cannot be read.") from exc
    if len(data) > MAX_RESOURCE_BYTES:
        raise ResourceError(f"{name} is larger than {MAX_RESOURCE_BYTES >> 10} KiB; that is too much to be read here.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ResourceError(f"{name} is no text, and only text can be read.")
    return text


# --- reading -----------------------------------------------------------------------------------------------------------


class _NotASkillError(Exception):
    """Nothing more can be said of an entry than this."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


class _NoFileError(Exception):
    """A folder, a pipe, a device."""


def _read_file(path: Path, limit: int) -> bytes:
    """Up to one byte more than the limit."""
    try:
        with open(path, "rb", opener=_open_at_once) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise _NoFileError
            return stream.read(limit + 1)
    except IsADirectoryError as exc:
        raise _NoFileError from exc


def _open_at_once(path: str, flags: int) -> int:
    """Without waiting for whoever writes into a pipe, and without following a link that has come just now."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


@attrs.define(eq=False)
class _Reader:
    """One entry, and what is wrong with it."""

    place: int
    entry: str
    faults: list[SkillFault] = attrs.field(factory=list[SkillFault])
    file: str = ""
    _front: LocatedDocument | None = None

    def report(self, message: str, position: Position | None = None) -> None:
        self.faults.append(SkillFault(self.place, self.file, position or Position(), message))

    def position(self, field: str) -> Position:
        """Of a field of the front matter, in the file."""
        found = self._front.position((field,)) if self._front else Position()
        return Position(found.line + 1, found.column)

    def read(self, root: Path) -> Skill | None:
        """The skill; None when anything is wrong with it, which is in `faults`."""
        self.file = self.entry
        try:
            skill = self._parse(*self._open(root))
        except _NotASkillError as exc:
            self.report(exc.message, exc.position)
        except _NoFileError:
            self.report("is no file")
        except (
            OSError,
            RuntimeError,
            ValueError,
        ) as exc:  # RuntimeError: links in a circle; ValueError: a zero in a name
            self.report(f"cannot be read: {getattr(exc, 'strerror', None) or exc}")
        else:
            return None if self.faults else skill
        return None

    def _open(self, root: Path) -> tuple[bytes, Path]:
        """What its SKILL.md holds, and its folder."""
        folder = (root / self.entry).resolve(strict=True)
        if not folder.is_relative_to(root.resolve()):
            raise _NotASkillError("leads out of the project's directory")
        if not folder.is_dir():
            raise _NotASkillError(f"is no folder; a skill is a folder with a {SKILL_FILE}")
        self.file = f"{self.entry.rstrip('/')}/{SKILL_FILE}"
        place = (folder / SKILL_FILE).resolve(strict=True)
        if not place.is_relative_to(folder):
            raise _NotASkillError("leads out of the skill's folder")
        data = _read_file(place, MAX_SKILL_BYTES)
        if len(data) > MAX_SKILL_BYTES:
            raise _NotASkillError(f"is larger than {MAX_SKILL_BYTES >> 10} KiB; {_PUT_BESIDE}")
        return data, folder

    def _parse(self, data: bytes, folder: Path) -> Skill:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise _NotASkillError("is not UTF-8 text", Position(data.count(b"\n", 0, exc.start) + 1)) from exc
        lines = text.split("\n")
        fences = [number for number, line in enumerate(lines) if line.rstrip() == _FENCE][:2]
        if len(fences) < 2 or fences[0] != 0:
            raise _NotASkillError(f"must begin with its name and description, between two lines of {_FENCE}")
        try:
            self._front = read_located("\n".join(lines[1 : fences[1]]).encode())
        except DocumentError as exc:
            raise _NotASkillError(exc.message, Position(exc.position.line + 1, exc.position.column)) from exc
        for position, message in self._front.problems:
            self.report(message, Position(position.line + 1, position.column))
        if not isinstance(self._front.data, dict):
            raise _NotASkillError("must hold name and description, each with its text", Position(2))
        name, description = self._field("name"), self._field("description")
        if name:
            try:
                _NAME.check(name)
            except ValueError as exc:
                self.report(f"name {exc}", self.position("name"))
        if len(description) > MAX_DESCRIPTION:
            self.report(f"description is longer than {MAX_DESCRIPTION} characters", self.position("description"))
        instructions = "\n".join(lines[fences[1] + 1 :]).strip()
        if not instructions:
            self.report("has no instructions below its front matter", Position(fences[1] + 1))
        elif len(instructions) > MAX_INSTRUCTIONS:
            self.report(
                f"has more than {MAX_INSTRUCTIONS} characters of instructions; {_PUT_BESIDE}", Position(fences[1] + 2)
            )
        return Skill(name, description, instructions, folder, tuple(_resources(folder)))

    def _field(self, field: str) -> str:
        """A text of the front matter, in one line; "" when it is not there, which is reported. Other fields are for others."""
        value: Any = mapping(self._front.data if self._front else None).get(field)
        if value is None:
            self.report(f"missing field '{field}'", Position(2))
        elif not isinstance(value, str):
            self.report(f"{field} must be text; put it in quotes", self.position(field))
        elif not value.strip():
            self.report(f"{field} must not be blank", self.position(field))
        else:
            return " ".join(value.split())
        return ""


def _resources(folder: Path) -> list[str]:
    """The files of a skill, but not what is hidden, nor what links lead out to."""
    found: list[str] = []
    for looked_at, path in enumerate(_walk(folder, 0)):
        if looked_at == MAX_LOOKED_AT or len(found) == MAX_RESOURCES:
            break
        if path != folder / SKILL_FILE and path.is_file() and path.resolve().is_relative_to(folder):
            found.append(path.relative_to(folder).as_posix())
    return found


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Everything in a folder and its folders, sorted; links to folders are not followed."""
    try:
        children = sorted(islice(folder.iterdir(), MAX_LOOKED_AT))
    except OSError:
        return
    for child in children:
        if child.name.startswith("."):
            continue
        yield child
        if depth < MAX_DEPTH and child.is_dir() and not child.is_symlink():
            yield from _walk(child, depth + 1)


def _known(skill: Skill) -> str:
    return f"There are: {', '.join(skill.resources)}." if skill.resources else "There are none."
