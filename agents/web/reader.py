"""The program that makes readable text of a web page. It runs in a process of its own, see `agents.web.reading`.

A page is a stranger's, and the HTML standard lets one be written so that a parser needs minutes for a megabyte (`<a><b><div>`
again and again; 40 s were measured) while it holds Python's lock, and every conversation with it. A process can be stopped.

Standard input: one line of JSON (`Order`), then the page's bytes. Standard output: one JSON object (`Reading`).
"""

import json
import resource
import sys
from typing import TypedDict
from urllib.parse import urljoin, urlsplit

# Compiled: there is no source beside the stubs for pyright to find.
from resiliparse.extract.html2text import extract_plain_text  # pyright: ignore[reportMissingModuleSource] - compiled
from resiliparse.parse.encoding import (  # pyright: ignore[reportMissingModuleSource] - compiled
    bytes_to_str,
    detect_encoding,
    map_encoding_to_html5,
)
from resiliparse.parse.html import DOMContext, ElementNode, HTMLTree, traverse_dom

CPU_SECONDS = 5
MEMORY_BYTES = 1 << 30
"""Of address space. A page of the largest size takes 150 MB."""
MIN_MAIN_CHARACTERS = 200
"""What a page calls its main part and is shorter than this is a shell that a script fills; the whole page is read then."""
MAX_TITLE = 300
MAX_LINK_TEXT = 120
MAX_URL = 500
MAX_ANCHORS = 2000
"""Looked at for links."""

_MAIN = ("main", "[role=main]", "article")
_AROUND = [
    *("nav", "footer", "aside", "script", "style", "template", "iframe", "svg", "dialog", "button", "select"),
    *("[hidden]", "[aria-hidden=true]", "[role=navigation]", "[role=contentinfo]", "[role=dialog]", "[role=search]"),
]
"""What is not read: what stands around a page's text, and what is not shown."""


class Order(TypedDict):
    charset: str
    """Of the Content-Type header; may be empty."""
    is_html: bool
    url: str
    max_characters: int
    max_links: int


class Link(TypedDict):
    text: str
    url: str


class Reading(TypedDict):
    title: str
    text: str
    links: list[Link]
    is_cut: bool


def decode(page: bytes, charset: str) -> str:
    """As browsers do it: a byte order mark goes first, then what the server says, then what the page says or looks like."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if page.startswith(mark):
            return page[len(mark) :].decode(name, "replace")
    named = map_encoding_to_html5(charset, fallback_utf8=False) if charset else None
    encoding = named or detect_encoding(page, from_html_meta=True)
    return bytes_to_str(page, encoding or "utf-8", errors="replace")


def read(page: bytes, order: Order) -> Reading:
    text = decode(page, order["charset"])
    if not order["is_html"]:
        return _cut(Reading(title="", text=text.strip(), links=[], is_cut=False), order["max_characters"])
    tree = HTMLTree.parse(text)
    title = " ".join((tree.title or "").split())[:MAX_TITLE]
    body = extract_plain_text(_main_part(tree), preserve_formatting=True, skip_elements=_AROUND)
    if not body.strip():  # all of it stands in what is left out elsewhere
        body = extract_plain_text(tree, preserve_formatting=True)
    reading = Reading(title=title, text=body.strip(), links=_links(tree, order), is_cut=False)
    return _cut(reading, order["max_characters"])


def _main_part(tree: HTMLTree) -> HTMLTree:
    if (document := tree.document) is not None:
        for selector in _MAIN:
            found = document.query_selector_all(selector)
            if len(found) == 1 and len((found[0].text or "").strip()) >= MIN_MAIN_CHARACTERS:
                return HTMLTree.parse(found[0].html)
    return tree


def _links(tree: HTMLTree, order: Order) -> list[Link]:
    links: dict[str, Link] = {}
    base = order["url"]
    for anchor in _anchors(tree):
        text = " ".join((anchor.text or "").split())[:MAX_LINK_TEXT]
        try:
            url = urljoin(base, (anchor.get_attribute("href") or "").strip()).partition("#")[0]
            is_web = urlsplit(url).scheme in ("http", "https")
        except ValueError:
            continue
        if text and is_web and len(url) <= MAX_URL and url != base:
            links.setdefault(url, Link(text=text, url=url))
        if len(links) == order["max_links"]:
            break
    return list(links.values())


def _anchors(tree: HTMLTree) -> list[ElementNode]:
    """In one walk: the library's lists of elements look for each of them from the beginning, 2 s for a thousand."""
    found: list[ElementNode] = []

    def look(context: DOMContext) -> None:
        node = context.node
        if isinstance(node, ElementNode) and node.tag == "a" and len(found) < MAX_ANCHORS:
            found.append(node)

    if tree.body is not None:
        traverse_dom(tree.body, look, elements_only=True)
    return found


def _cut(reading: Reading, limit: int) -> Reading:
    if len(reading["text"]) > limit:
        reading["text"] = reading["text"][:limit]
        reading["is_cut"] = True
    return reading


def run() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    order: Order = json.loads(sys.stdin.buffer.readline())
    reading = read(sys.stdin.buffer.read(), order)
    sys.stdout.buffer.write(json.dumps(reading).encode("utf-8", "replace"))


if __name__ == "__main__":
    run()
