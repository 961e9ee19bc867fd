"""What is remembered, and what is forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from providers.local.repertoire import Repertoire


def test_what_was_said_is_found_under_its_voice() -> None:
    repertoire = Repertoire()
    repertoire.add("a", "Yes.", [b"12", b"34"])
    assert repertoire.find("a", "Yes.") == (b"12", b"34")
    assert repertoire.find("b", "Yes.") is None
    repertoire.clear()
    assert repertoire.find("a", "Yes.") is None


def test_the_longest_unused_is_forgotten() -> None:
    repertoire = Repertoire(capacity=8)
    repertoire.add("a", "one", [b"1111"])
    repertoire.add("a", "two", [b"2222"])
    assert repertoire.find("a", "one")
    repertoire.add("a", "three", [b"3333"])
    assert repertoire.find("a", "two") is None
    assert repertoire.find("a", "one")


def test_what_is_too_long_is_not_remembered() -> None:
    repertoire = Repertoire(longest=3)
    repertoire.add("a", "long", [b"12", b"34"])
    assert repertoire.find("a", "long") is None


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.binary(max_size=9)), max_size=60))
def test_the_room_is_never_exceeded(pieces: list[tuple[str, bytes]]) -> None:
    repertoire = Repertoire(capacity=20, longest=8)
    kept: dict[str, bytes] = {}
    for text, speech in pieces:
        known = repertoire.find("v", text)
        assert known is None or known == (kept[text],)
        repertoire.add("v", text, [speech])
        if known is None:
            kept[text] = speech
    found = [stretches for text in "abcdefgh" if (stretches := repertoire.find("v", text))]
    assert sum(len(stretch) for stretches in found for stretch in stretches) <= 20
