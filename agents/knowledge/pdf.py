"""PDF as blocks, page by page, with pypdf: an extra, as it takes 80 ms and 18 MB, which is why it is imported late."""

import io
import re
from collections.abc import Callable
from typing import TypeVar

from agents.knowledge.content import TITLE_CHARACTERS, Block, Content, LeftOutError, UnreadableError, clean, one_line

MAX_PAGES = 1000
MAX_CHARACTERS = 4 << 20
"""Of text: what a text file may have."""

T = TypeVar("T")

_HYPHENATED = re.compile(r"([^\W\d_])[-\u00ad]\n([^\W\d_])")


def read_pdf(data: bytes, check: Callable[[], None]) -> Content:
    """The text of a PDF. `check` is called for each page, and may raise.

    Raises:
        UnreadableError: pypdf is not installed, or the document is damaged, locked, too long, or holds pictures only.
    """
    try:
        from pypdf import PdfReader
        from pypdf.errors import FileNotDecryptedError
    except ImportError as exc:
        raise LeftOutError("is a PDF, which needs the extra: pip install 'souffleur-engine[pdf]'") from exc

    def guarded(read: Callable[[], T]) -> T:
        try:
            return read()
        except FileNotDecryptedError as exc:
            raise UnreadableError("is locked with a password") from exc
        except Exception as exc:  # a border: what is damaged makes pypdf raise anything
            raise UnreadableError(f"is a damaged PDF ({type(exc).__name__})") from exc

    reader = guarded(lambda: PdfReader(io.BytesIO(data)))
    count = guarded(lambda: len(reader.pages))
    if count > MAX_PAGES:
        raise UnreadableError(f"has {count} pages, more than {MAX_PAGES}")
    blocks: list[Block] = []
    size = 0
    for index in range(count):
        check()
        text = clean(guarded(reader.pages[index].extract_text))
        size += len(text)
        if size > MAX_CHARACTERS:
            raise UnreadableError(f"holds more than {MAX_CHARACTERS >> 20} million characters of text")
        parts = re.split(r"\n[ \t]*\n", _HYPHENATED.sub(r"\1\2", text))
        blocks.extend(Block(part.strip("\n"), page=index + 1) for part in parts if part.strip())
    if not blocks:
        raise UnreadableError("holds no text; is it a scan?")
    title = guarded(lambda: reader.metadata.title if reader.metadata else None)
    return Content(one_line(clean(title or ""), TITLE_CHARACTERS), blocks=tuple(blocks))
