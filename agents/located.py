"""YAML that remembers where everything was written, so that a fault can name its line.

The reader is stricter than YAML: only the plain data types of its version 1.2 (so `no`, `on`, `12:30` and `2026-03-29` are the
text they look like), text keys, each key once, no merge keys, no tags, and bounds on size, depth and what aliases expand to.
"""

import math
import re
from typing import Any

import attrs
import yaml

MAX_BYTES = 1 << 20
"""Of one file. PyYAML reads about 100 KB a second, and a project of a hundred agents is smaller than this."""
MAX_DEPTH = 40
"""Levels of nesting; the deepest thing a project file has is at 7. It also keeps the parser far from Python's recursion limit."""
MAX_NODES = 50_000
"""Values after the aliases are expanded: what ten aliases of ten aliases of ten … would otherwise grow without end."""

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_STR, _NULL, _BOOL, _INT, _FLOAT = (_TAG + name for name in ("str", "null", "bool", "int", "float"))
_MAP, _SEQ = _TAG + "map", _TAG + "seq"


@attrs.frozen(order=True)
class Position:
    """Both count from 1, as editors do."""

    line: int = 1
    column: int = 1


class DocumentError(Exception):
    """The file cannot be read at all, and why."""

    def __init__(self, message: str, position: Position) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_SCALARS = (
    (_NULL, re.compile(r"|~|null|Null|NULL")),
    (_BOOL, re.compile(r"true|True|TRUE|false|False|FALSE")),
    (_INT, re.compile(r"[-+]?[0-9]{1,18}")),  # longer ones are text, and text is no number
    (_FLOAT, re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")),
)


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2 and a bound on depth. Only composes: `_Builder` makes the values."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self._depth >= MAX_DEPTH:
            mark = None if parent is None else parent.start_mark
            raise yaml.MarkedYAMLError(problem=f"nested more than {MAX_DEPTH} deep", problem_mark=mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """The tag of a node that has none. `implicit` is, for scalars, whether it was written without quotes."""
        if kind is not yaml.ScalarNode:
            return _MAP if kind is yaml.MappingNode else _SEQ
        if implicit[0]:
            return next((tag for tag, pattern in _PLAIN_SCALARS if pattern.fullmatch(value)), _STR)
        return _STR


def _position(mark: yaml.Mark | None) -> Position:
    return Position() if mark is None else Position(mark.line + 1, mark.column + 1)


class _Builder:
    """Makes plain values of nodes and collects what is wrong on the way."""

    def __init__(self) -> None:
        self.problems: list[tuple[Position, str]] = []
        self._nodes = 0
        self._open: set[int] = set()

    def build(self, node: yaml.Node) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise DocumentError(f"holds more than {MAX_NODES} values (aliases expanded)", _position(node.start_mark))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            raise DocumentError("an alias stands inside what it refers to", _position(node.start_mark))
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            value: Any = self._mapping(node)
        else:
            self._expect_tag(node, _SEQ)
            value = [self.build(item) for item in node.value]
        self._open.discard(id(node))
        return value

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        match node.tag:
            case tag if tag == _STR:
                if _SURROGATE.search(text):
                    self._report(node, "holds half of a character (a lone surrogate)")
                return text
            case tag if tag == _NULL:
                return None
            case tag if tag == _BOOL and text.lower() in ("true", "false"):
                return text.lower() == "true"
            case tag if tag in (_INT, _FLOAT):
                try:
                    number = int(text) if tag == _INT else float(text)
                except ValueError:  # an explicit tag on something else
                    number = math.nan
                if math.isfinite(number):
                    return number
                self._report(node, "is not a number that can be used")
                return None
            case _:
                self._expect_tag(node, _STR)
                return None

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        self._expect_tag(node, _MAP)
        value: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = self._scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if key == "<<":
                self._report(key_node, "merge keys (<<) are not supported")
            elif not isinstance(key, str):
                self._report(key_node, "a key must be text; put it in quotes")
            elif key in value:
                self._report(key_node, f"the key {key!r} is here twice; the first one is on line {lines[key]}")
            else:
                value[key] = self.build(value_node)
                lines[key] = _position(key_node.start_mark).line
        return value

    def _expect_tag(self, node: yaml.Node, tag: str) -> None:
        if node.tag != tag:
            self._report(node, f"the tag {node.tag.replace(_TAG, '!!')} is not supported")

    def _report(self, node: yaml.Node, message: str) -> None:
        self.problems.append((_position(node.start_mark), message))


@attrs.frozen
class LocatedDocument:
    """Plain data (`dict`, `list`, `str`, `int`, `float`, `bool`, `None`) and where each of it was written."""

    data: Any
    root: yaml.Node
    problems: tuple[tuple[Position, str], ...]
    """What could be read over: a key that is there twice, a tag."""

    def position(self, path: Path, *, of_key: bool = False) -> Position:
        """Where the value at `path` was written, or its key. Parts that the document does not have are skipped, so that a
        missing field is placed at its parent and a location with names of our own in it can be given as it is."""
        node, mark = self.root, self.root.start_mark
        for part in path:
            if isinstance(node, yaml.MappingNode):
                found = next((pair for pair in node.value if getattr(pair[0], "value", None) == part), None)
                if found is not None:
                    node = found[1]
                    mark = found[0].start_mark if of_key else node.start_mark
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                mark = node.start_mark
        return _position(mark)


def read_located(content: bytes) -> LocatedDocument:
    """Read one YAML document.

    Raises:
        DocumentError: it is too large, not UTF-8, not YAML, more than one document, or empty.
    """
    if len(content) > MAX_BYTES:
        raise DocumentError(f"is larger than {MAX_BYTES >> 10} KiB", Position())
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        before = content[: exc.start]
        column = exc.start - (before.rfind(b"\n") + 1) + 1
        raise DocumentError("is not UTF-8 text", Position(before.count(b"\n") + 1, column)) from exc
    try:
        root = _Loader(text).get_single_node()
    except yaml.reader.ReaderError as exc:
        before_text = text[: exc.position]
        position = Position(before_text.count("\n") + 1, exc.position - (before_text.rfind("\n") + 1) + 1)
        raise DocumentError("holds a control character that YAML forbids", position) from exc
    except (ValueError, OverflowError) as exc:  # PyYAML lets those of chr() and int() through
        raise DocumentError("holds an escape or a number that cannot be", Position()) from exc
    except yaml.MarkedYAMLError as exc:
        said = ", ".join(part for part in (exc.context, exc.problem) if part)
        raise DocumentError(said or "is not YAML", _position(exc.problem_mark or exc.context_mark)) from exc
    if root is None:
        raise DocumentError("is empty", Position())
    builder = _Builder()
    data = builder.build(root)
    return LocatedDocument(data, root, tuple(builder.problems))
