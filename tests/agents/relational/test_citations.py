"""Citations and mentions, written out (R5, R11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.knowledge.citations import Citations, Source
from agents.relational.citations import Cited, materialize_citations, substitute_mentions
from agents.relational.links import KnownLinks, LinkGuard

SOURCES = {
    "k3": Source("Opening hours", "hours.md", "https://a.example/hours"),
    "k4": Source("Opening hours", "hours.md, Sunday", "https://a.example/hours"),
    "k7": Source("The house [2025]\nrules", "rules.pdf, page 2"),
    "k12": Source("", "faq.md", "https://a.example/faq_(new)"),
    "k13": Source(" ", "notes[1].md"),
}
HOURS = "[Opening hours](https://a.example/hours)"
RULES = "The house (2025) rules"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Open till nine [k3].", Cited(f"Open till nine ({HOURS}).", ("k3",))),
        ("No dogs[K7]!", Cited(f"No dogs({RULES})!", ("k7",))),
        ("New [k12]", Cited("New ([https://a.example/faq_(new)](<https://a.example/faq_(new)>))", ("k12",))),
        ("Noted [k13].", Cited("Noted (notes(1).md).", ("k13",))),
        ("Both [k7, k3;k7].", Cited(f"Both ({RULES}, {HOURS}).", ("k7", "k3"))),
        ("Twice the same page [k3, k4].", Cited(f"Twice the same page ({HOURS}).", ("k3", "k4"))),
        ("One [k7] and two [k7].", Cited(f"One ({RULES}) and two ({RULES}).", ("k7",))),
        ("Made up [k99].", Cited("Made up.", (), 1)),
        ("Made up [k99, k7].", Cited(f"Made up ({RULES}).", ("k7",), 1)),
        ("[k99][k98] both", Cited(" both", (), 2)),
        ("See [1], [k], [k3 or k3], [ak3], [k3x] and [k3](https://a.example).", None),
        ("", None),
    ],
)
def test_citations(text: str, expected: Cited | None) -> None:
    assert materialize_citations(text, SOURCES.get) == (expected or Cited(text))


@pytest.mark.parametrize("source_id", SOURCES)
def test_a_cited_link_is_known_once_it_was_seen(source_id: str) -> None:
    cited = materialize_citations(f"It is so [{source_id}].", SOURCES.get)
    known = KnownLinks()
    guard = LinkGuard(known)
    assert (guard.clean(cited.text) == cited.text) == (not SOURCES[source_id].url)
    known.learn(cited.text)
    assert guard.clean(cited.text) == cited.text


def test_the_ids_are_those_of_the_knowledge() -> None:
    citations = Citations()
    source_id = citations.cite("a passage", SOURCES["k3"])
    cited = materialize_citations(f"Till nine [{source_id}] or ten [k9].", citations.source)
    assert cited == Cited(f"Till nine ({HOURS}) or ten.", (source_id,), 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ask @[Bára](barista) about it.", "Ask Barbora about it."),
        ("Ask @[Ema](gone) about it.", "Ask Ema about it."),
        ("Ask @[Ema](blank).", "Ask Ema."),
        ("@[Bára](barista)@[Bára](barista)", "BarboraBarbora"),
        ("Mail a@[b or [Bára](barista) or @[](barista) or @[Bára] (barista)", None),
        (r"@[x](pattern)", r"\1"),
    ],
)
def test_mentions(text: str, expected: str | None) -> None:
    names = {"barista": "Barbora", "blank": "", "pattern": r"\1"}
    assert substitute_mentions(text, names) == (text if expected is None else expected)


@given(st.text("@[]()k1, x"))
def test_other_text_stays(text: str) -> None:
    if "[k1" not in text:
        assert materialize_citations(text, SOURCES.get) == Cited(text)
    if "@[" not in text:
        assert substitute_mentions(text, {"x": "y"}) == text
