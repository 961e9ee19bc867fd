"""The link guard (R15)."""

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.relational.links import (
    ELSEWHERE,
    MAX_LABEL,
    MAX_LINK,
    KnownLinks,
    LinkGuard,
    link_key,
    removed_phrase,
)

KNOWN = ["https://a.example/menu", "https://b.example", "www.c.example/x_(y)", "https://ja.example/wiki/コーヒー"]


def make_guard(*seen: str) -> LinkGuard:
    known = KnownLinks()
    known.learn_urls(seen or KNOWN)
    return LinkGuard(known, "(gone)")


def guarded(*tokens: str) -> str:
    guard = make_guard()
    return "".join(guard.feed(token) for token in tokens) + guard.finish()


LINKS = [
    # known ones
    ("See https://a.example/menu.", "See https://a.example/menu."),
    ("See HTTP://A.example/menu/#drinks, then", "See HTTP://A.example/menu/#drinks, then"),
    ("[our menu](https://a.example/menu)", "[our menu](https://a.example/menu)"),
    ('[our menu]( <https://a.example/menu> "The menu" )!', '[our menu]( <https://a.example/menu> "The menu" )!'),
    ("![picture](https://a.example/menu)", "![picture](https://a.example/menu)"),
    ("<https://a.example/menu>", "<https://a.example/menu>"),
    ("(see www.c.example/x_(y))", "(see www.c.example/x_(y))"),
    ("[c](www.c.example/x_(y))", "[c](www.c.example/x_(y))"),
    ("https://a.example/menuを見て。", "https://a.example/menuを見て。"),
    ("看https://a.example/menu。好", "看https://a.example/menu。好"),
    ("https://ja.example/wiki/コーヒー、", "https://ja.example/wiki/コーヒー、"),
    ("[![a](https://b.example)](https://a.example/menu)", "[![a](https://b.example)](https://a.example/menu)"),
    ("**https://b.example**", "**https://b.example**"),
    # unknown ones
    ("See https://evil.example/menu.", "See (gone)."),
    ("See https://a.example/other, please", "See (gone), please"),
    ("https://a.example", "(gone)"),
    ("See http://x.example", "See (gone)"),
    ("ftp://a.example/menu", "(gone)"),
    ("https://a.example@evil.example/menu", "(gone)"),
    (r"https://a.example\@evil.example/menu ok", "(gone) ok"),
    ("(www.evil.example)", "((gone))"),
    ("Open www.evil.example/a?b=1.5!", "Open (gone)!"),
    ("„https://evil.example“", "„(gone)“"),
    ('"https://evil.example".', '"(gone)".'),
    ("'https://evil.example'", "'(gone)'"),
    ("https://evil.example/x。次", "(gone)。次"),
    ("https://evil.exampleを見て、", "(gone)を見て、"),
    ("https://evil.example라고", "(gone)라고"),
    ("https://ja.example/wiki/紅茶。", "(gone)。"),
    ("Смотри https://зло.example/путь, да", "Смотри (gone), да"),
    ("5https://evil.example", "5(gone)"),
    ("<https://evil.example>", "(gone)"),
    ("<https://evil.example and", "<(gone) and"),
    ('<a href="https://evil.example/x">here</a>', '<a href="(gone)">here</a>'),
    ("| https://evil.example|`www.evil.example`|", "| (gone)|`(gone)`|"),
    ("HtTpS://EVIL.example", "(gone)"),
    ("https://x.example,next", "(gone)"),
    ("http://[::1]:80/a[1] b", "(gone) b"),
    ("see[1]https://evil.example/a]", "see[1](gone)]"),
    # unknown ones in Markdown
    ("See [our menu](https://evil.example/menu) today.", "See our menu today."),
    ("[menu](evil.example/menu)", "menu"),
    ("[menu](/menu)", "menu"),
    ("[menu](javascript:alert(1))", "menu"),
    ("[menu](https://evil.example 'title')", "menu"),
    ("[menu](<https://evil.example/a b>)", "menu"),
    ("![picture](https://evil.example/p.png)", "picture"),
    ("[](https://evil.example)", "(gone)"),
    ("[https://evil.example](https://evil.example)", "(gone)"),
    ("[https://evil.example](https://a.example/menu)", "[(gone)](https://a.example/menu)"),
    ("[![alt](https://evil.example/p)](https://evil.example)", "[alt]"),
    ("[a [b] c](https://evil.example)", "[a [b] c]"),
    ("[a\nb](https://evil.example)", "[a\nb]"),
    ("[menu](https://evil.example\n)", "[menu]((gone)\n)"),
    ("[menu](https://evil.example", "[menu]((gone)"),
    ("[menu](see https://evil.example)", "[menu](see (gone))"),
    ("[menu [x https://evil.example", "[menu [x (gone)"),
    ("[menu]: https://evil.example", "[menu]: (gone)"),
]
NO_LINKS = [
    "",
    "Hello!",
    "Write to info@kavarna.example or info@www.kavarna.example.",
    "[Write](mailto:info@kavarna.example) or [call](TEL:+420123456789)!",
    "A list[0] of [things], [1] and [2]: (x) ](",
    "[menu]() [menu] (x) [a](b c)",
    "Open a.example or Node.js. The www. and http:// of old, https://.",
    "awww.nice, xhttps://a, 3 < 4 <h <w !",
    "[unclosed",
    "![",
    "]",
    "http",
    "The ratio is 1:2, a//b; and/or.",
]


@pytest.mark.parametrize(("text", "expected"), LINKS + [(text, text) for text in NO_LINKS])
def test_texts_however_they_are_cut(text: str, expected: str) -> None:
    assert guarded(text) == expected
    assert guarded(*text) == expected
    for cut in range(len(text)):
        assert guarded(text[:cut], text[cut:]) == expected
    assert make_guard().clean(text) == expected


def test_only_what_may_be_a_link_is_held_back() -> None:
    guard = make_guard()
    released = [
        guard.feed(token) for token in ["See", " h", "ere: ", "htt", "ps", "://a.ex", "ample/menu", ".", " Or", "!"]
    ]
    assert released == ["See", " ", "here: ", "", "", "", "", "", "https://a.example/menu. Or", ""]
    assert guard.feed(" A [note] and [") == "! A [note] and "
    assert guard.feed("x") == ""
    assert guard.feed("] y") == "[x] y"
    assert guard.finish() == ""


def test_links_taken_out_are_counted() -> None:
    guard = make_guard()
    guard.feed(
        "https://evil.example [a](https://evil.example) https://b.example mailto:a@b.example [m](mailto:a@b.example)"
    )
    guard.finish()
    assert guard.removed == 2
    guard.clean("www.evil.example")
    assert guard.removed == 3


def test_what_was_interrupted_is_forgotten() -> None:
    guard = make_guard()
    assert guard.feed("See [the") == "See "
    guard.drop()
    assert guard.feed("New") + guard.finish() == "New"


def test_a_finished_guard_is_as_new() -> None:
    guard = make_guard()
    assert guard.feed("x" * 3) + guard.finish() == "xxx"
    assert guard.feed("https://evil.example") + guard.finish() == "(gone)"  # no letter stands before it here


def test_no_phrase_leaves_nothing() -> None:
    known = KnownLinks()
    assert LinkGuard(known, "").clean("See https://evil.example.") == "See ."


@pytest.mark.parametrize(
    ("locale", "phrase"),
    [
        ("en", "(link removed)"),
        ("cs-CZ", "(odkaz odstraněn)"),
        ("PT_br", "(link removido)"),
        ("tlh", ELSEWHERE),
        ("", ELSEWHERE),
    ],
)
def test_the_phrase_is_in_the_users_language(locale: str, phrase: str) -> None:
    assert removed_phrase(locale) == phrase


def test_a_phrase_is_no_link_itself() -> None:
    guard = make_guard()
    for locale in ("en", "cs", "ja", "xx"):
        assert guard.clean(removed_phrase(locale)) == removed_phrase(locale)


# --- what is known -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://a.example", "http://A.EXAMPLE/"),
        ("https://a.example:443/x", "http://a.example:80/x/"),
        ("https://a.example/x#y", "https://a.example/x#z"),
        ("https://a.example/x?", "a.example/x"),
        ("https://a.example./x", "//a.example/x"),
        ("https://a.example/%7euser/%c3%a1", "https://a.example/~user/á"),
        ("https://a.example/a\u0301", "https://a.example/á"),
        ("https://kavárna.example/", "https://xn--kavrna-rta.example"),
        ("ftp://a.example:21/x", "FTP://a.example/x"),
        ("https://a.example/?q=%41", "https://a.example?q=A"),
    ],
)
def test_two_ways_to_write_a_page(one: str, other: str) -> None:
    assert link_key(one) == link_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://a.example/x", "https://a.example/X"),
        ("https://a.example/x", "https://a.example/x?y"),
        ("https://a.example/x", "https://a.example/x/y"),
        ("https://a.example/a%2Fb", "https://a.example/a/b"),
        ("https://a.example", "https://www.a.example"),
        ("https://a.example", "https://a.example:8080"),
        ("https://a.example", "https://me@a.example"),
        ("https://a.example", "ftp://a.example"),
        ("https://a.example/?a=1", "https://a.example/?a=2"),
        ("https://" + "á" * 70 + ".example", "https://" + "á" * 71 + ".example"),
    ],
)
def test_two_pages(one: str, other: str) -> None:
    assert link_key(one) != link_key(other)


def test_half_a_surrogate_pair_is_no_failure() -> None:
    assert not KnownLinks().knows("https://a.example/\ud800")


@pytest.mark.parametrize(
    ("seen", "url"),
    [
        ("Look at https://a.example/x.", "https://a.example/x"),
        ("[x](https://a.example/x)", "https://a.example/x"),
        ("[x](/menu)", "/menu"),
        ("[https://a.example](https://b.example)", "https://b.example"),
        ("I mean kavarna.example.", "https://kavarna.example"),
        ("I mean kavarna.example/menu?x=1, yes", "https://kavarna.example/menu?x=1"),
        ("kavarna.example:8080", "http://kavarna.example:8080"),
        ("kavarna.example/menu", "https://kavarna.example/menu"),
        ("čajovna.example", "https://čajovna.example"),
        ({"hits": [{"url": "https://a.example/x", "rank": 1, "none": None}]}, "https://a.example/x"),
        (("a", ["www.a.example"]), "www.a.example"),
    ],
)
def test_what_was_seen_is_known(seen: object, url: str) -> None:
    known = KnownLinks()
    assert not known.knows(url)
    known.learn(seen)
    assert known.knows(url)
    assert LinkGuard(known).clean(f"See {url} now") == f"See {url} now"


@pytest.mark.parametrize(
    ("seen", "url"),
    [
        ("me@kavarna.example", "https://kavarna.example"),
        ("jan.novak@kavarna.example", "https://jan.novak"),
        ("https://a.example/x", "https://a.example"),
        ("https://ja.example/wiki/コーヒー", "https://ja.example/wiki/紅茶"),
        (1, "https://1"),
        ("", ""),
        ("https://a.example/" + "x" * MAX_LINK, "https://a.example/" + "x" * MAX_LINK),
    ],
)
def test_what_was_not_seen_is_unknown(seen: object, url: str) -> None:
    known = KnownLinks()
    known.learn(seen)
    assert not known.knows(url)


def test_the_oldest_are_forgotten_first() -> None:
    known = KnownLinks(max_links=2)
    known.learn(["https://1.example", "https://2.example", "https://1.example/", "https://3.example"])
    assert [known.knows(f"https://{n}.example") for n in (1, 2, 3)] == [True, False, True]
    assert len(known) == 2
    known.forget()
    assert len(known) == 0


# --- bounds --------------------------------------------------------------------------------------------------------------


def test_a_link_that_is_too_long_is_taken_out_whole() -> None:
    url = "https://a.example/" + "x" * (3 * MAX_LINK)
    for tokens in ([f"See {url} now"], [*f"See {url} now"], ["See " + url, " now"]):
        assert guarded(*tokens) == "See (gone) now"
    just = "https://a.example/".ljust(MAX_LINK - 1, "x")
    assert make_guard(just).clean(just) == just


def test_a_long_bracket_is_text() -> None:
    guard = make_guard()
    label = "x" * MAX_LABEL
    assert guard.feed("[" + label) == "[" + label
    assert guard.feed("](https://evil.example)") == "]"
    assert make_guard().clean("[x](" + "y" * MAX_LINK + ")") == "[x](" + "y" * MAX_LINK + ")"


@pytest.mark.parametrize(
    "unit", ["[", "![", "](", "[a](", "(", ")", "www.", "http://", "https://x(", "<", "<h", "[x](y", "x.", "a@", "]"]
)
def test_work_grows_with_the_text(unit: str) -> None:
    guard, text = make_guard(), unit * 2000
    begun = time.process_time()
    guard.known.learn(text)
    guard.feed(text)
    guard.finish()
    assert time.process_time() - begun < 2


# --- for any text --------------------------------------------------------------------------------------------------------

awkward = st.lists(
    st.sampled_from(
        ["[", "]", "(", ")", "](", "!", "<", ">", "http", "https://", "www.", "://", "evil.example", "/x", ".", " ", "\n", "'",
         "。", "見", "é", "a", "1", "@", "#", *KNOWN]
    )
    | st.text(max_size=4),
    max_size=25,
).map("".join)  # fmt: skip


@given(awkward, st.lists(st.integers(0, 10_000), max_size=8))
def test_the_cuts_do_not_matter(text: str, places: list[int]) -> None:
    marks = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    whole = guarded(text)
    assert guarded(*(text[begin:end] for begin, end in pairwise(marks))) == whole
    assert guarded(*text) == whole


@given(st.text(st.characters(exclude_characters="[]")) | st.text("aHhTtpPwW.:/ \n<!(x"))
def test_text_without_links_passes(text: str) -> None:
    guard = make_guard()
    shown = guard.clean(text)
    assert shown == text or guard.removed


@given(awkward)
def test_what_was_seen_passes(text: str) -> None:
    guard = make_guard()
    guard.known.learn(text)
    assert guard.clean(text) == text or len(guard.known) >= 2000


@given(awkward)
def test_no_unknown_address_is_shown(text: str) -> None:
    shown = make_guard().clean(text)
    assert not re.search(r"(?<![A-Za-z])(https://(www\.)?|(?<![0-9@])www\.)evil", shown)
