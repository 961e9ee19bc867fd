"""Words as grams, whatever the language."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.knowledge.analysis import (
    MAX_LETTERS,
    MAX_WORDS,
    coverage,
    fold,
    grams_of,
    match_expression,
    query_grams,
    text_grams,
    to_grams,
    words,
)

ANYTHING = st.text(st.characters(exclude_categories=()))
"""Lone surrogates and all."""


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Žluťoučký KŮŇ", "zlutoucky kun"),
        ("Öffnungszeiten", "offnungszeiten"),
        ("Straße", "strasse"),
        ("Łódź, smørrebrød", "lodz, smorrebrod"),
        ("İstanbul", "istanbul"),
        ("z\u030ce\u00adna", "zena"),
        ("قَهْوَة", "قهوة"),
        ("ﬁne ＡＢＣ", "fine abc"),
        ("한국어", "한국어"),
    ],
)
def test_case_accents_and_marks_are_folded(text: str, folded: str) -> None:
    assert fold(text) == folded


def test_words_are_letters_and_digits() -> None:
    assert words("E-42: snake_case, 3.5 kg — don't!") == ["e", "42", "snake", "case", "3", "5", "kg", "don", "t"]


@pytest.mark.parametrize(
    ("word", "grams"),
    [
        ("a", ["·a·"]),
        ("de", ["·de·"]),
        ("psi", ["·psi", "psi·"]),
        ("stoly", ["·sto", "stol", "toly", "oly·"]),
        ("咖啡", ["咖啡"]),
        ("咖", ["咖"]),
        ("営業時間は", ["営業", "業時", "時間", "間は"]),
        ("iphone手机", ["·iph", "ipho", "phon", "hone", "one·", "手机"]),
    ],
)
def test_words_become_grams(word: str, grams: list[str]) -> None:
    assert grams_of(word) == grams


def test_a_text_keeps_repetitions_and_a_query_does_not() -> None:
    assert to_grams("psi, Psi") == "·psi psi· ·psi psi·"
    assert query_grams("psi, Psi") == ["·psi", "psi·"]


def test_a_query_is_bounded() -> None:
    assert len(query_grams(" ".join(f"w{number}" for number in range(1000)))) <= MAX_WORDS * 3
    assert len(query_grams("".join(map(chr, range(0x61, 0x7A))) * 1000)) <= MAX_LETTERS


def test_coverage_is_the_share_of_the_weight() -> None:
    assert coverage({"·psi": 3.0, "psi·": 1.0}, text_grams("psi")) == 1
    assert coverage({"·psi": 3.0, "psi·": 1.0}, text_grams("psina")) == 0.75
    assert coverage({}, {"·psi"}) == 0


@given(ANYTHING)
def test_any_text_can_be_asked_for(text: str) -> None:
    grams = query_grams(text)
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE grams USING fts5(text, tokenize='ascii')")
        connection.execute("INSERT INTO grams VALUES (?)", (to_grams(text),))
        if grams:
            found = connection.execute("SELECT 1 FROM grams WHERE grams MATCH ?", (match_expression(grams),)).fetchall()
            assert found == [(1,)]  # and what was written is found by itself
            assert coverage(dict.fromkeys(grams, 1.0), text_grams(text)) == pytest.approx(1)
    finally:
        connection.close()
