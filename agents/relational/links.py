"""The link guard: links nobody has seen never reach the user (SPEC R15).

A link is a Markdown link or image, an address with `http://`, `https://` or `ftp://`, or one that begins with `www.`; in
`<>` or not. That is what Markdown makes a link of. An e-mail address or phone number is no link to a page: it passes, as
`mailto:` and `tel:` do. A Markdown link keeps its label when it is taken out; another address leaves a short phrase.

**Nothing else of the text changes.** Text without unknown links passes as it is, character by character.

**The tokens' cuts do not matter**, and only what may be the beginning of a link is held back: the rest leaves at once.

**Where an address ends.** At white space, quotes, `<>`, a full-width mark, or a bracket that closes what was opened before
it; the marks of a sentence at its end are not its own. A letter of a script that needs no spaces ends it behind a Latin
letter or a digit ("https://a.example/mapを見て"); behind a "/" and the like it is a part of it.
"""

import contextlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import cast
from urllib.parse import quote

import attrs

MAX_KNOWN_LINKS = 2000
"""In a session; the oldest go first. Knowledge results bring ten or twenty in a turn."""
MAX_LINK = 2048
"""Characters of an address, with its title; longer ones work in no browser for certain and are never known."""
MAX_LABEL = 200
"""Characters of a Markdown link's label. A "[" with more behind it is text, and the link it may open loses only its target."""
MAX_PARENTHESES = 32
"""Levels of them in a Markdown link's target; CommonMark's own implementation has the same limit."""

REMOVED = {
    "cs": "(odkaz odstraněn)", "da": "(link fjernet)", "de": "(Link entfernt)", "en": "(link removed)",
    "es": "(enlace eliminado)", "fi": "(linkki poistettu)", "fr": "(lien supprimé)", "hu": "(hivatkozás eltávolítva)",
    "it": "(link rimosso)", "ja": "（リンク削除）", "ko": "(링크 삭제됨)", "nb": "(lenke fjernet)", "nl": "(link verwijderd)",
    "pl": "(link usunięty)", "pt": "(link removido)", "ro": "(link eliminat)", "ru": "(ссылка удалена)",
    "sk": "(odkaz odstránený)", "sv": "(länk borttagen)", "tr": "(bağlantı kaldırıldı)", "uk": "(посилання видалено)",
    "zh": "（链接已移除）",
}  # fmt: skip
ELSEWHERE = "(…)"
"""What is left in any other language."""

_ADDRESS = r"<?(?:(?<![A-Za-z])(?:https?|ftp)://|(?<![A-Za-z0-9@])www\.)"
_OPENING = re.compile(rf"!?\[|\]\(|{_ADDRESS}", re.IGNORECASE | re.ASCII)
_TAIL = re.compile(
    r"(?:[!\]<]|<?(?:(?<![A-Za-z])(?:h|ht|htt|https?|https?:|https?:/|f|ft|ftp|ftp:|ftp:/)|(?<![A-Za-z0-9@])w{1,3}))\Z",
    re.IGNORECASE | re.ASCII,
)
"""What may become an opening with the next token."""
_MAX_TAIL = len("<https:/")

_SPACELESS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3105-\u312f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    r"\uf900-\ufaff\U00020000-\U0003ffff"
)
_END = re.compile(
    r"[\s<>\"`|“”„‟‘’‛«»‹›…—\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]"
    rf"|(?<=[A-Za-z0-9])[{_SPACELESS}]"
)
_SENTENCE_MARKS = ".,;:!?'*_~"
_LABEL_MARK = re.compile(r"[\[\]\n]")
_TARGET_MARK = re.compile(r"[()\n]")
_TARGET = re.compile(r"\s*(?:<([^<>]+)>|(\S+))(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*")
_NO_PAGE = re.compile(r"(?:mailto|tel):", re.IGNORECASE)

_BARE_DOMAIN = re.compile(r"(?<![\w@./:-])(?:[\w-]++\.)+[^\W\d_]{2,}+(?!@)(?::[0-9]+)?")
_SCHEME = re.compile(r"(?:(https?|ftp):)?//", re.IGNORECASE | re.ASCII)
_AUTHORITY = re.compile(r"[^/?#\\]*")
_PERCENT = re.compile(r"%([0-9A-Fa-f]{2})")
_DEFAULT_PORT = {"http": ":80", "https": ":443", "ftp": ":21"}
_UNRESERVED = "-._~"
_KEPT = "!#$%&'()*+,/:;=?@[]\\^`{|}\"<>"


def removed_phrase(locale: str) -> str:
    """What an unknown address leaves in the text."""
    return REMOVED.get(locale.replace("_", "-").split("-")[0].lower(), ELSEWHERE)


def link_key(url: str) -> str:
    """The same for two ways of writing the address of one page.

    What does not count: `http` or `https` or none, the default port, the case of the host, how a host or path spells what
    is not ASCII, percent signs without need, a slash at the end, and the fragment.
    """
    url = unicodedata.normalize("NFC", url.strip()).partition("#")[0]
    prefix = _SCHEME.match(url)
    scheme = (prefix[1] or "https").lower() if prefix else "https"
    rest = url[prefix.end() :] if prefix else url
    authority = cast("re.Match[str]", _AUTHORITY.match(rest))[0]
    host = authority.lower().removesuffix(_DEFAULT_PORT[scheme]).removesuffix(".")
    if not host.isascii():
        with contextlib.suppress(UnicodeError):  # no host of the real world stays as it is
            host = host.encode("idna").decode()
    path, _, query = rest[len(authority) :].partition("?")
    page = f"{host}{_spelled(path).rstrip('/')}" + (f"?{_spelled(query)}" if query else "")
    return f"ftp://{page}" if scheme == "ftp" else page


def _spelled(text: str) -> str:
    def as_needed(code: re.Match[str]) -> str:
        char = chr(int(code[1], 16))
        return char if char.isascii() and (char.isalnum() or char in _UNRESERVED) else code[0].upper()

    return quote(_PERCENT.sub(as_needed, text), safe=_KEPT, errors="replace")


@attrs.define(eq=False)
class KnownLinks:
    """The links a session has seen."""

    max_links: int = MAX_KNOWN_LINKS
    _keys: dict[str, None] = attrs.field(init=False, factory=dict[str, None])

    def __len__(self) -> int:
        return len(self._keys)

    def learn(self, seen: object) -> None:
        """Every link in a text, or in the texts of a JSON value: an instruction, a tool's result, what the user typed.

        Here a bare "kavarna.example/menu" counts as well: so people write links.
        """
        waiting = [seen]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str):
                self._learn_text(value)
            elif isinstance(value, Mapping):
                waiting += reversed(list(cast("Mapping[object, object]", value).values()))
            elif isinstance(value, list | tuple):
                waiting += reversed(cast("list[object]", value))

    def learn_urls(self, urls: Iterable[str]) -> None:
        """Addresses by themselves, such as the multimodal specifications have."""
        for url in urls:
            if url.strip() and len(url) <= MAX_LINK:
                key = link_key(url)
                self._keys.pop(key, None)
                self._keys[key] = None
                if len(self._keys) > self.max_links:
                    del self._keys[next(iter(self._keys))]

    def knows(self, url: str) -> bool:
        return link_key(url) in self._keys

    def forget(self) -> None:
        """The end of the session."""
        self._keys.clear()

    def _learn_text(self, text: str) -> None:
        scanner = _LinkScanner()
        self.learn_urls(piece.url for piece in scanner.feed(text) + scanner.finish() if isinstance(piece, _Link))
        for domain in _BARE_DOMAIN.finditer(text):
            end = domain.end()
            if text[end : end + 1] in ("/", "?"):
                stop = _END.search(text, end)
                end = stop.start() if stop else len(text)
            self.learn_urls([_trimmed(text[domain.start() : end])])


@attrs.define(eq=False)
class LinkGuard:
    """The text of one response after the other, token by token: `finish` each, or `drop` what was interrupted.

    `phrase` stands for an unknown address (`removed_phrase`); "" leaves nothing. `removed` counts the links taken out.
    """

    known: KnownLinks
    phrase: str = REMOVED["en"]
    removed: int = attrs.field(init=False, default=0)
    _scanner: "_LinkScanner" = attrs.field(init=False, factory=lambda: _LinkScanner())

    def feed(self, token: str) -> str:
        """What may be shown with this token."""
        return self._shown(self._scanner.feed(token))

    def finish(self) -> str:
        """The end of the text: what was held back."""
        return self._shown(self._scanner.finish())

    def drop(self) -> None:
        """Forget what is held back: barge-in."""
        self._scanner = _LinkScanner()

    def clean(self, text: str) -> str:
        """A whole text, apart from the one that is being fed."""
        scanner = _LinkScanner()
        return self._shown(scanner.feed(text) + scanner.finish())

    def _shown(self, pieces: "list[str | _Link]") -> str:
        return "".join(piece if isinstance(piece, str) else self._checked(piece) for piece in pieces)

    def _checked(self, link: "_Link") -> str:
        label = self.clean(link.label) if link.label else ""
        if _NO_PAGE.match(link.url) or self.known.knows(link.url):
            return link.before + label + link.after
        self.removed += 1
        return label if label.strip() else self.phrase


@attrs.frozen
class _Link:
    """`before`, `label` and `after` put together are how it was written; an address by itself has no label."""

    url: str
    before: str
    label: str
    after: str


@attrs.frozen
class _Found:
    link: _Link
    start: int
    end: int


_Verdict = _Found | bool
"""A link; False for none; True while it may become one with more text."""


@attrs.define(eq=False)
class _LinkScanner:
    """Text in, the same text and its links out, in order."""

    _text: str = attrs.field(init=False, default="")
    _done: int = attrs.field(init=False, default=0)  # given out up to here: at most one character, between the calls
    _is_skipping: bool = attrs.field(init=False, default=False)  # in what is left of a link that was too long

    def feed(self, token: str) -> list[str | _Link]:
        self._text += token
        return self._read(at_end=False)

    def finish(self) -> list[str | _Link]:
        pieces = self._read(at_end=True)
        self._text, self._done, self._is_skipping = "", 0, False
        return pieces

    def _read(self, *, at_end: bool) -> list[str | _Link]:
        pieces: list[str | _Link] = []
        at = self._done
        while True:
            if self._is_skipping:
                end = _END.search(self._text, at)
                self._is_skipping = end is None
                self._done = at = end.start() if end else len(self._text)
            opening = _OPENING.search(self._text, at)
            verdict = self._judge(opening, at_end=at_end) if opening else True
            if isinstance(verdict, _Found):
                pieces += [self._text[self._done : verdict.start], verdict.link]
                self._done = at = verdict.end
            elif opening and not verdict:
                at = opening.end()
            else:
                stop = opening.start() if opening else self._tail(at, at_end=at_end)
                pieces.append(self._text[self._done : stop])
                self._text = self._text[max(0, stop - 1) :]
                self._done = min(stop, 1)
                return pieces

    def _tail(self, at: int, *, at_end: bool) -> int:
        tail = None if at_end else _TAIL.search(self._text, max(at, len(self._text) - _MAX_TAIL))
        return tail.start() if tail else len(self._text)

    def _judge(self, opening: re.Match[str], *, at_end: bool) -> _Verdict:
        """At the end nothing more comes: what may become a link is none."""
        if opening[0].endswith("["):
            verdict = self._markdown(opening)
        elif opening[0] == "](":  # of a label that is none by our rules
            verdict = self._target(opening.start(), "", opening.start(), opening.start() + 1)
        else:
            return self._address(opening, at_end=at_end)
        return False if verdict is True and at_end else verdict

    def _markdown(self, opening: re.Match[str]) -> _Verdict:
        begin = opening.end()
        mark = _LABEL_MARK.search(self._text, begin, begin + MAX_LABEL)
        if mark is None:
            return len(self._text) < begin + MAX_LABEL
        if mark[0] != "]":
            return False
        if mark.end() == len(self._text):
            return True
        return self._text[mark.end()] == "(" and self._target(opening.start(), opening[0], begin, mark.start())

    def _target(self, start: int, before: str, label_begin: int, label_end: int) -> _Verdict:
        paren = self._text.index("(", label_end)
        depth = 0
        for mark in _TARGET_MARK.finditer(self._text, paren, paren + MAX_LINK):
            depth += {"(": 1, ")": -1, "\n": 0}[mark[0]]
            if mark[0] == "\n" or depth > MAX_PARENTHESES:
                return False
            if depth == 0:
                target = _TARGET.fullmatch(self._text, paren + 1, mark.start())
                if target is None:
                    return False
                label, after = self._text[label_begin:label_end], self._text[label_end : mark.end()]
                return _Found(_Link(target[1] or target[2], before, label, after), start, mark.end())
        return len(self._text) < paren + MAX_LINK

    def _address(self, opening: re.Match[str], *, at_end: bool) -> _Verdict:
        start = begin = opening.start() + opening[0].startswith("<")
        limit = begin + MAX_LINK
        mark = _END.search(self._text, opening.end(), limit)
        if mark is None and len(self._text) >= limit:
            self._is_skipping = True
            return _Found(_Link("", "", "", ""), start, limit)
        if mark is None and not at_end:
            return True
        url = _trimmed(self._text[begin : mark.start() if mark else len(self._text)])
        end = begin + len(url)
        if not any(char.isalnum() for char in self._text[opening.end() : end]):
            return False
        if start > opening.start() and self._text.startswith(">", end):
            start, end = opening.start(), end + 1
        return _Found(_Link(url, "", "", self._text[start:end]), start, end)


def _trimmed(run: str) -> str:
    """An address without what belongs to the sentence around it."""
    opened: list[str] = []
    for mark in re.finditer(r"[()\[\]]", run):
        if mark[0] in "([":
            opened.append(mark[0])
        elif opened and opened[-1] + mark[0] in ("()", "[]"):
            opened.pop()
        else:
            run = run[: mark.start()]
            break
    return run.rstrip(_SENTENCE_MARKS)
