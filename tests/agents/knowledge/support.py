"""What the tests of knowledge share: a project's directory, and a PDF made by hand."""

import io
from collections.abc import Mapping
from pathlib import Path

from agents.knowledge.files import find_files
from agents.knowledge.index import KnowledgeIndex

DOCUMENTS = Path(__file__).parent / "documents"


def carry_on() -> None:
    """Somebody still waits."""


def write(root: Path, documents: Mapping[str, str | bytes]) -> Path:
    for name, content in documents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def make_index(root: Path, directory: Path) -> KnowledgeIndex:
    directory.mkdir(exist_ok=True)
    return KnowledgeIndex.within(root, directory)


def paths_of(index: KnowledgeIndex, *entries: str) -> list[str]:
    return [file.path for file in find_files(index.root, entries or (".",)).files]


def headings(index: KnowledgeIndex, query: str, *, limit: int = 5) -> list[str]:
    """The innermost headings of what fits a query, in all documents."""
    hits = index.search(query, paths_of(index), limit)
    return [each.headings[-1] if each.headings else "" for each in hits.passages if hits.fit]


def make_pdf(pages: list[str], title: str = "") -> bytes:
    """A PDF of one paragraph per blank-line-separated part of each page, in Latin letters."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b""]
    objects.append(b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>")
    kids: list[str] = []
    for page in pages:
        lines = page.split("\n")
        shown = "\n".join(f"({line}) Tj 0 -14 Td" for line in lines)
        stream = f"BT /F1 12 Tf 72 720 Td\n{shown}\nET".encode("cp1252")
        objects.append(b"<</Length %d>>\nstream\n%s\nendstream" % (len(stream), stream))
        content = len(objects)
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents {content} 0 R"
            "/Resources<</Font<</F1 3 0 R>>>>>>".encode()
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<</Type/Pages/Count {len(pages)}/Kids[{' '.join(kids)}]>>".encode()
    objects.append(f"<</Title({title})>>".encode("cp1252"))
    out = io.BytesIO()
    out.write(b"%PDF-1.4\n")
    places: list[int] = []
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    for place in places:
        out.write(b"%010d 00000 n \n" % place)
    trailer = b"trailer\n<</Size %d/Root 1 0 R/Info %d 0 R>>\nstartxref\n%d\n%%%%EOF\n"
    out.write(trailer % (len(objects) + 1, len(objects), start))
    return out.getvalue()
