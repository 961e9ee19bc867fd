"""Logs for people and for machines, of the engine and of every library.

A line names the session and the turn of the task that wrote it (`engine.observation.bind_session`). What was said in a
conversation is logged nowhere above debug level, and secrets nowhere: that is the duty of who writes a line. What can be done for
all of them is done here: a line is a line, whatever a client has sent; it has a length; what looks like a credential, and the
values in pydantic's complaints, are left out; and libraries that log headers and bodies are kept quiet.
"""

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO

import orjson

from engine.observation import BoundSession, bound_session

Format = Literal["text", "json"]

MESSAGE_CHARACTERS = 1000
"""The longest message; ours are under 200."""
TRACE_LINE_CHARACTERS = 300
"""The longest line of a traceback: its last one may quote what was worked on."""
TRACE_HEAD, TRACE_TAIL = 20, 100
"""Lines of a traceback that are kept, as a deep recursion or a group of many has thousands. The end says what happened."""

QUIET = (
    "client",  # the SDK of MCP
    "hpack",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "mcp",
    "openai",
    "pymongo",
    "urllib3",
)
"""Below warnings these log addresses with keys in them, headers, or whole requests, and so what was said."""

HIDDEN = "[hidden]"

_SECRETS = (
    (re.compile(r"(?i)\b(bearer|basic) +[\w.~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    (
        re.compile(
            r"(?i)((?:api|access|admin)[-_]?key|token|secret|password|authorization)"
            r"""(["']?\s*[:=]\s*["']?)(?!\[hidden\]|(?:bearer|basic) )[^\s"'&,;)}\]]+"""
        ),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"([?&]key=)[^&\s\"']+"), rf"\1{HIDDEN}"),
    (re.compile(r"\bsk-[\w-]{8,}"), HIDDEN),
    (re.compile(r"input_value=.*?(, input_type=)"), rf"input_value={HIDDEN}\1"),
)


def _visible() -> dict[int, str]:
    """Everything that ends a line, moves a cursor or turns the direction of writing around, as its escape."""
    codes = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
    return {code: chr(code).encode("unicode_escape").decode() for code in codes}


_VISIBLE = _visible()


def configure_logging(level: str, style: Format = "text", stream: TextIO | None = None) -> None:
    """Log to standard error (or `stream`), from this level on, in lines of text or of JSON. May be called again.

    Python's warnings are logged too. Handlers of others are left alone.
    """
    root, number = logging.getLogger(), logging.getLevelNamesMapping()[level.upper()]
    for handler in root.handlers[:]:
        if isinstance(handler, LogHandler):
            root.removeHandler(handler)
    root.addHandler(LogHandler(style, stream or sys.stderr))
    root.setLevel(number)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    logging.captureWarnings(capture=True)


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream."""

    def __init__(self, style: Format, stream: TextIO) -> None:
        super().__init__(stream)
        self.setFormatter(JsonLines() if style == "json" else TextLines())


class TextLines(logging.Formatter):
    """`TIME LEVEL LOGGER [PID SESSION TURN]: MESSAGE`, and behind it a traceback, whose lines are indented: none looks like an entry."""

    def format(self, record: logging.LogRecord) -> str:
        whose = " ".join([str(record.process), *_ids(bound_session())])
        head = f"{self.formatTime(record)} {record.levelname} {record.name} [{whose}]"
        lines = [f"{head}: {clean_message(record.getMessage())}"]
        lines += [f"    {line}" for line in _trace(self, record)]
        return "\n".join(lines)


class JsonLines(logging.Formatter):
    """An object a line: time, level, logger, pid, message; session_id, turn_id and exception where there are."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, str | int | None] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": clean_message(record.getMessage()),
        }
        document |= zip(("session_id", "turn_id"), _ids(bound_session()), strict=False)
        if trace := _trace(self, record):
            document["exception"] = "\n".join(trace)
        return orjson.dumps(document).decode()


def clean_message(text: str) -> str:
    """As one line of bounded length, without what looks like a credential."""
    return _clean(text.rstrip(), MESSAGE_CHARACTERS)


def _clean(text: str, limit: int) -> str:
    more = len(text) - limit
    if more > 0:
        text = text[:limit]
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    text = text.encode("utf-8", "backslashreplace").decode().translate(_VISIBLE)
    return f"{text}… ({more} more characters)" if more > 0 else text


def _ids(bound: BoundSession | None) -> list[str]:
    """The session's and the turn's, as far as there are; a session's may be the client's choice."""
    return [clean_message(each) for each in (bound.session_id, bound.turn_id) if each] if bound is not None else []


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    text = formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
    if record.stack_info:
        text = f"{text}\n{record.stack_info}" if text else record.stack_info
    lines = text.splitlines()
    left_out = len(lines) - TRACE_HEAD - TRACE_TAIL
    if left_out > 0:
        lines[TRACE_HEAD:-TRACE_TAIL] = [f"… ({left_out} more lines)"]
    return [_clean(line, TRACE_LINE_CHARACTERS) for line in lines]
