"""Numbers in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.local.numerals import cardinal, clock, decimal, digits, ordinal, year


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "zero"),
        ("13", "thirteen"),
        ("40", "forty"),
        ("99", "ninety nine"),
        ("100", "one hundred"),
        ("115", "one hundred fifteen"),
        ("1000", "one thousand"),
        ("1204", "one thousand two hundred four"),
        ("1000000", "one million"),
        ("2000017", "two million seventeen"),
        ("007", "zero zero seven"),
        ("1234567890123456", "one two three four five six seven eight nine zero one two three four five six"),
    ],
)
def test_cardinals(text: str, said: str) -> None:
    assert cardinal(text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1", "first"),
        ("2", "second"),
        ("03", "third"),
        ("12", "twelfth"),
        ("20", "twentieth"),
        ("21", "twenty first"),
        ("100", "one hundredth"),
        ("0", "zeroth"),
    ],
)
def test_ordinals(text: str, said: str) -> None:
    assert ordinal(text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1999", "nineteen ninety nine"),
        ("2026", "twenty twenty six"),
        ("1900", "nineteen hundred"),
        ("2000", "two thousand"),
        ("2005", "two thousand five"),
        ("1905", "nineteen oh five"),
        ("0123", "zero one two three"),
    ],
)
def test_years(text: str, said: str) -> None:
    assert year(text) == said


@pytest.mark.parametrize(
    ("hours", "minutes", "said"),
    [
        ("10", "30", "ten thirty"),
        ("9", "05", "nine oh five"),
        ("12", "00", "twelve o'clock"),
        ("18", "00", "eighteen hundred"),
    ],
)
def test_times(hours: str, minutes: str, said: str) -> None:
    assert clock(hours, minutes) == said


def test_decimals_and_digits() -> None:
    assert decimal("3", "14") == "three point one four"
    assert decimal("", "5") == "zero point five"
    assert digits("420") == "four two zero"


@given(st.from_regex(r"\A[0-9]{1,30}\Z"))
def test_every_number_is_words(text: str) -> None:
    for said in (cardinal(text), ordinal(text)):
        assert said.replace(" ", "").isalpha()
        assert said == " ".join(said.split())
