"""Making text of a page, in a process of its own (`agents.web.reader`): stopped when it takes too long or is not wanted any more."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import trio

from agents.web.fetching import Fetched
from engine.interfaces import ToolError

READ_SECONDS = 6.0
"""Of wall clock; a page takes 60 ms, most of it to start the process."""
READERS = 4
"""At once, of the whole server."""
MAX_CHARACTERS = 12_000
"""Of the text that is told: some 3,000 tokens."""
MAX_LINKS = 30

_PROGRAM = Path(__file__).with_name("reader.py")
_readers = trio.CapacityLimiter(READERS)


@attrs.frozen
class Link:
    text: str
    url: str


@attrs.frozen
class Page:
    """What a page says. `text` has its paragraphs, bullets and tables as plain text would."""

    url: str
    title: str
    text: str
    links: tuple[Link, ...]
    """The first ones that lead elsewhere on the web."""
    is_cut: bool
    """There is more of it."""


async def read(fetched: Fetched) -> Page:
    """Read a page that was fetched.

    Raises:
        ToolError: it cannot be read.
    """
    order = {
        "charset": fetched.charset,
        "is_html": fetched.is_html,
        "url": fetched.url,
        "max_characters": MAX_CHARACTERS,
        "max_links": MAX_LINKS,
    }
    completed: subprocess.CompletedProcess[bytes] | None = None
    async with _readers:
        with trio.move_on_after(READ_SECONDS):
            completed = await trio.run_process(
                [sys.executable, "-I", str(_PROGRAM)],
                stdin=json.dumps(order).encode() + b"\n" + fetched.body,
                capture_stdout=True,
                stderr=subprocess.DEVNULL,  # it might quote the page
                check=False,
                env={},
                start_new_session=True,  # an interrupt from a terminal is for the server to deal with
            )
    if completed is None or completed.returncode != 0:
        raise ToolError("The page is built in a way that cannot be read.")
    found: dict[str, Any] = json.loads(completed.stdout)
    text = str(found["text"])
    if not text:
        raise ToolError("The page has no text; what it shows is made by scripts, which are not run.")
    links = tuple(Link(link["text"], link["url"]) for link in found["links"])
    return Page(fetched.url, str(found["title"]), text, links, bool(found["is_cut"]) or fetched.is_cut)
