"""From the `knowledge` of an agent to files: which there are, and reading one. Nothing here leaves the project's directory."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs

from agents.knowledge.content import Content, UnreadableError, clean
from agents.knowledge.markdown import read_markdown, read_plain

MAX_TEXT_BYTES = 4 << 20
"""Of a text or HTML file: a book of 2,000 pages. It takes 5 to 10 s to take in,
and whoever is cancelled meanwhile has to begin anew."""
MAX_PDF_BYTES = 64 << 20
"""Of a PDF, which holds pictures as well."""
MAX_FILES = 1000
"""Of one agent. Looking whether they have changed takes about 20 µs each."""
MAX_LOOKED_AT = 20_000
"""Files and folders that are looked at to find those."""
MAX_DEPTH = 32
"""Folders in folders."""

MARKDOWN = frozenset({".md", ".markdown"})
PLAIN = frozenset({".txt", ".text"})
HTML = frozenset({".html", ".htm"})
PDF = frozenset({".pdf"})
SUFFIXES = MARKDOWN | PLAIN | HTML | PDF


@attrs.frozen(order=True)
class Problem:
    """Something that keeps a file, or a part of the knowledge, from being used. The rest goes on without it."""

    path: str
    """As in the project file, or relative to its directory."""
    message: str

    def __str__(self) -> str:
        return f"{self.path} {self.message}"


@attrs.frozen
class FoundFile:
    path: str
    """Relative to the project's directory, with slashes."""
    size: int
    modified: int
    """Nanoseconds, with the inode and the time of its last change: any of them moves when the file is written or replaced."""
    inode: int
    changed: int


@attrs.frozen
class Found:
    files: tuple[FoundFile, ...] = ()
    """In the order of the entries, folders sorted by name."""
    problems: tuple[Problem, ...] = ()


def find_files(root: Path, entries: Iterable[str]) -> Found:
    """The documents that entries name: files, and all that is readable in folders and theirs.

    What is hidden is left out, and what has another suffix when it is only in a folder. Entries are relative to `root`, the
    directory of the project file, and nothing outside of it is used, however it is named or linked.
    """
    return _Finder(root.resolve()).find(entries)


def read_file(root: Path, path: str, check: Callable[[], None]) -> bytes:
    """What a found file holds.

    Raises:
        UnreadableError: it cannot be read, is empty, too large, or has come to lead outside of the project's directory.
    """
    check()
    limit = MAX_PDF_BYTES if Path(path).suffix.lower() in PDF else MAX_TEXT_BYTES
    try:
        real = (root / path).resolve(strict=True)
        if not real.is_relative_to(root.resolve()):
            raise UnreadableError("leads out of the project's directory")
        # Without waiting for whoever writes, should it have become a pipe.
        with open(os.open(real, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            state = os.fstat(stream.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise UnreadableError("is no ordinary file")
            if state.st_size > limit:
                raise UnreadableError(f"is larger than {limit >> 20} MiB")
            data = stream.read(limit + 1)
    except (OSError, RuntimeError) as exc:  # RuntimeError: links in a circle
        raise UnreadableError(f"cannot be read: {getattr(exc, 'strerror', None) or exc}") from exc
    if len(data) > limit:
        raise UnreadableError(f"is larger than {limit >> 20} MiB")
    if not data:
        raise UnreadableError("is empty")
    return data


def read_content(path: str, data: bytes, check: Callable[[], None]) -> Content:
    """What a file says. `check` is called now and then, and may raise.

    Raises:
        UnreadableError: it is not what its suffix says, or there is nothing in it.
    """
    suffix = Path(path).suffix.lower()
    if suffix in PDF:
        # Here and below, as few projects have such documents.
        from agents.knowledge.pdf import read_pdf

        return read_pdf(data, check)
    text = clean(_decode(data))
    if suffix in HTML:
        from agents.knowledge.html import read_html

        content = read_html(text, check)
    else:
        content = read_markdown(text) if suffix in MARKDOWN else read_plain(text)
    if not content.blocks:
        raise UnreadableError("is empty")
    return content


def title_of(path: str) -> str:
    """A title for a document that has none: its file's name, as people would write it."""
    name = re.sub(r"[-_\s]+", " ", Path(path).stem).strip() or path
    return name[:1].upper() + name[1:]


def _decode(data: bytes) -> str:
    try:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return data.decode("utf-16")
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise UnreadableError(f"is not UTF-8 text (line {line})") from exc
    if "\0" in text:
        raise UnreadableError("is not text")
    return text


@attrs.define(eq=False)
class _Finder:
    root: Path
    _files: dict[str, FoundFile] = attrs.field(factory=dict[str, FoundFile])
    _problems: list[Problem] = attrs.field(factory=list[Problem])
    _seen: set[Path] = attrs.field(factory=set[Path])
    """Where files and folders really are: links may give them other names, and lead in circles."""
    _looked_at: int = 0

    def find(self, entries: Iterable[str]) -> Found:
        for entry in dict.fromkeys(entries):
            before = len(self._seen), len(self._problems)
            self._take(self.root / entry, entry, is_named=True)
            if len(self._problems) == before[1] and len(self._seen) == before[0] + 1 and (self.root / entry).is_dir():
                self._report(entry, "holds no documents")
        return Found(tuple(self._files.values()), tuple(dict.fromkeys(self._problems)))

    def _take(self, place: Path, name: str, depth: int = 0, *, is_named: bool = False) -> None:
        try:
            real = place.resolve(strict=True)
            state = real.stat()
        except (OSError, RuntimeError, ValueError) as exc:  # links in a circle; a name with a zero in it
            self._report(name, f"cannot be read: {getattr(exc, 'strerror', None) or exc}")
            return
        if not real.is_relative_to(self.root):
            self._report(name, "leads out of the project's directory, and is left out")
        elif real in self._seen:
            return
        elif stat.S_ISDIR(state.st_mode):
            self._seen.add(real)
            self._walk(place, depth)
        elif place.suffix.lower() not in SUFFIXES:
            if is_named:
                self._report(name, f"is of no kind that can be read ({', '.join(sorted(SUFFIXES))})")
        elif not stat.S_ISREG(state.st_mode):
            self._report(name, "is no ordinary file")
        elif len(self._files) >= MAX_FILES:
            self._report("knowledge", f"is too much: of more than {MAX_FILES} files the first are used")
        else:
            self._seen.add(real)
            path = self._relative(place)
            found = FoundFile(path, state.st_size, state.st_mtime_ns, state.st_ino, state.st_ctime_ns)
            self._files[path] = found

    def _walk(self, folder: Path, depth: int) -> None:
        if depth >= MAX_DEPTH:
            self._report(self._relative(folder), f"is more than {MAX_DEPTH} folders deep, and is left out")
            return
        try:
            children = sorted(self._children(folder))
        except OSError as exc:
            self._report(self._relative(folder), f"cannot be read: {exc.strerror}")
            return
        for child in children:
            self._take(folder / child, self._relative(folder / child), depth + 1)

    def _children(self, folder: Path) -> Iterator[str]:
        with os.scandir(folder) as listing:
            for each in listing:
                self._looked_at += 1
                if self._looked_at > MAX_LOOKED_AT:
                    self._report(
                        "knowledge", f"is too much: of more than {MAX_LOOKED_AT} names the first are looked at"
                    )
                    return
                if not each.name.isprintable():  # among them what is not UTF-8
                    self._report(self._relative(folder / each.name), "has a name that cannot be shown, and is left out")
                elif not each.name.startswith("."):
                    yield each.name

    def _relative(self, place: Path) -> str:
        return Path(os.path.relpath(place, self.root)).as_posix()

    def _report(self, name: str, message: str) -> None:
        self._problems.append(Problem(name.encode("utf-8", "replace").decode(), message))
