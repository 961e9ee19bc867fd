"""What was read of a document, whatever its format: the parts that all formats have in common."""

import re
import unicodedata

import attrs

TITLE_CHARACTERS = 120
HEADING_CHARACTERS = 120
DESCRIPTION_CHARACTERS = 160


class UnreadableError(Exception):
    """The document cannot be used, and why, in words that follow its name: "is empty"."""

    is_lasting = True
    """It stays so until the document changes."""


class LeftOutError(UnreadableError):
    """The document could be used if something else than itself were different."""

    is_lasting = False


@attrs.frozen
class Block:
    """A run of text that belongs together: a paragraph, a list, a table, a listing."""

    text: str
    headings: tuple[str, ...] = ()
    """Those it stands under, outermost first."""
    page: int | None = None
    """From 1; None for formats without pages."""
    is_lined: bool = False
    """Its lines are rows of a table or a listing: it may be cut between them only."""
    repeats: str = ""
    """Head of a table, which every piece of it needs to be understood."""


@attrs.frozen
class Content:
    title: str
    """"" when the document does not say."""
    description: str = ""
    url: str = ""
    """Where people can read it; "" when the document does not say."""
    blocks: tuple[Block, ...] = ()


_CONTROL = {code: None for code in range(0x20) if chr(code) not in "\n\t"} | {0x7F: None, 0xFEFF: None}
_SPACE = re.compile(r"\s+")


def clean(text: str) -> str:
    """Text with line feeds only, composed letters, and neither control characters nor halves of characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n\n")
    text = text.translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")
    return unicodedata.normalize("NFC", text)


def one_line(text: str, limit: int) -> str:
    """The text on one line of at most `limit` characters, cut at a gap where there is one."""
    line = _SPACE.sub(" ", text).strip()
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[limit // 2 :] else cut}…"
