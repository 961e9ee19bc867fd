"""A directory of capsules as a list, and one of them by its name. Blocks on the disk: run it in a thread.

A name is that of a file of the directory, and leads nowhere else. What a list tells of a file is in its first and its last chunk, so that
a list of hundreds is read in a moment.
"""

import os
import re
import stat
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import attrs
import msgpack

from engine.capsule.codec import CapsuleError
from engine.capsule.file import MAGIC, MAX_CHUNK, SUFFIX, Capsule, Kind, Record, capsule_of, read_capsule, records_of
from engine.capsule.plainly import members, number_of, text_of

NAME = re.compile(rf"[A-Za-z0-9_~-][A-Za-z0-9._~-]{{0,199}}{re.escape(SUFFIX)}")
"""A capsule's file: no separators, and nothing that is hidden."""
MAX_FILE_BYTES = 256 << 20
"""The largest file that is read: four times what a server keeps of one session by itself."""
_CHUNK = struct.Struct("<III")
"""The head of a chunk, see `engine.capsule.file`."""


class NoSuchCapsuleError(Exception):
    """There is no file of that name."""


@attrs.frozen
class Glance:
    """What can be told of a capsule without reading it."""

    name: str
    bytes: int
    session_id: str = ""
    agent: str = ""
    began: str = ""
    """ISO 8601; "" when it is not known."""
    seconds: float = 0.0
    state: str = "damaged"
    """whole, cut (it ends before its session did, or is being written), full (nothing more was kept), damaged."""
    reason: str = ""
    redacted: bool = False


def glances(directory: Path, *, after: str = "", limit: int = 100) -> tuple[Sequence[Glance], str | None]:
    """The capsules of a directory, newest first, from behind the one named `after`; and what to pass for the next ones.

    A directory that is not there yet has none.

    Raises OSError: it cannot be read.
    """
    try:
        names = sorted((name for name in os.listdir(directory) if NAME.fullmatch(name)), reverse=True)
    except FileNotFoundError:
        return [], None
    following = [name for name in names if not after or name < after]
    found: list[Glance] = []
    for name in following[:limit]:
        try:
            found.append(glance(directory / name))
        except FileNotFoundError:
            continue  # deleted meanwhile
    return found, following[limit - 1] if len(following) > limit else None


def glance(path: Path) -> Glance:
    """Look at one file. A damaged one is told of as such.

    Raises OSError: it is gone or cannot be read.
    """
    session = path.name.removesuffix(SUFFIX)
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        looked = Glance(path.name, size, session_id=session.partition("-")[2].rpartition("-")[0] or session)
        if file.readline(len(MAGIC)) != MAGIC:
            return looked
        first, last = _ends(file, size)
    try:
        head = capsule_of(first, path.name).head
    except CapsuleError:
        return looked
    end = last[-1] if last else None
    state = "cut" if end is None else {Kind.END: "whole", Kind.FULL: "full"}.get(end.kind, "cut")
    configuration = members(head.get("configuration"))
    return attrs.evolve(
        looked,
        agent=text_of(configuration.get("key")),
        began=text_of(head.get("began")),
        seconds=0.0 if end is None else round(max(0.0, number_of(end.at)), 3),
        state=state,
        reason=text_of(end.fields[-1]) if end is not None and end.fields and state != "cut" else "",
        redacted=head.get("redacted") is True,
    )


def open_capsule(directory: Path, name: str) -> Capsule:
    """Read one.

    Raises:
        NoSuchCapsuleError
        CapsuleError: it is too large, none, of another version, or damaged; in words for a person.
        OSError: it cannot be read.
    """
    if not NAME.fullmatch(name):
        raise NoSuchCapsuleError
    path = directory / name
    try:
        with _opened(path) as file:
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise NoSuchCapsuleError from None
    if size > MAX_FILE_BYTES:
        raise CapsuleError(f"{name} has {size >> 20} MB; a page shows up to {MAX_FILE_BYTES >> 20} MB.")
    return read_capsule(path)


def _opened(path: Path) -> BinaryIO:
    """A plain file, and no link to one elsewhere. Raises FileNotFoundError for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as exc:
        if path.is_symlink():
            raise FileNotFoundError(path.name) from exc
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path.name)
    return os.fdopen(descriptor, "rb")


def _ends(file: BinaryIO, size: int) -> tuple[Sequence[Record], Sequence[Record]]:
    """The records of the first and of the last whole chunk; those between are stepped over. None of what cannot be read."""
    places: list[tuple[int, int, int]] = []
    place = file.tell()
    while len(head := file.read(_CHUNK.size)) == _CHUNK.size:
        packed, bulk, _ = _CHUNK.unpack(head)
        place += _CHUNK.size
        if packed + bulk > MAX_CHUNK or place + packed + bulk > size:
            break
        places[1:] = [(place, packed, bulk)]
        place += packed + bulk
        file.seek(place)
    if not places:
        return [], []
    first = _records(file, *places[0])
    return first, first if len(places) == 1 else _records(file, *places[-1])


def _records(file: BinaryIO, place: int, packed: int, bulk: int) -> Sequence[Record]:
    file.seek(place)
    try:
        data = zlib.decompressobj().decompress(file.read(packed), MAX_CHUNK)
        return records_of(data, file.read(bulk))
    except (ValueError, KeyError, TypeError, IndexError, msgpack.UnpackException, zlib.error, struct.error):
        return []
