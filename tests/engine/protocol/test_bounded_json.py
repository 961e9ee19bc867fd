"""Anything becomes JSON of a bounded size: texts keep their beginning, lists their end, and whatever is cut says so."""

import json
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol.bounded_json import MAX_DEPTH, MAX_INTEGER, SCALAR_CHARACTERS, bound_json

PLENTY = 100_000

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner, max_size=5)
    ),
    max_leaves=15,
)
wild = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary() | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=12)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(st.characters()) | st.integers(), inner, max_size=12)
    ),
    max_leaves=30,
)


def characters_in(value: object) -> int:
    match value:
        case str():
            return len(value)
        case dict():
            members = cast("dict[str, object]", value)
            return sum(len(key) + characters_in(inner) for key, inner in members.items())
        case list():
            return sum(characters_in(inner) for inner in cast("list[object]", value))
        case _:
            return SCALAR_CHARACTERS


@settings(max_examples=60)
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), plain, max_size=5))
def test_json_that_fits_is_kept_as_it_is(content: dict[str, Any]) -> None:
    kept, _ = bound_json(content, PLENTY)
    assert kept == content


@settings(max_examples=30)
@given(st.dictionaries(st.text(st.characters()), wild, max_size=20), st.integers(1, 300))
def test_anything_becomes_json_of_a_bounded_size(content: dict[str, Any], characters: int) -> None:
    kept, counted = bound_json(content, characters)
    json.dumps(kept, allow_nan=False, ensure_ascii=False).encode()
    assert 0 <= counted <= characters + SCALAR_CHARACTERS
    assert characters_in(kept) <= characters + SCALAR_CHARACTERS + 40 * (MAX_DEPTH + 2)


def test_a_text_keeps_its_beginning() -> None:
    kept, counted = bound_json({"prompt": "abcdefghijklmnopqrstuvwxyz"}, 18)
    assert kept == {"prompt": "abcdefghij… (16 characters cut)"}
    assert counted == 18


def test_a_list_keeps_its_end() -> None:
    kept, _ = bound_json({"messages": [f"message number {number}" for number in range(10)]}, 8 + 16 * 3)
    assert kept == {"messages": ["… (7 items cut)", *(f"message number {number}" for number in (7, 8, 9))]}


def test_an_object_keeps_its_first_members() -> None:
    kept, _ = bound_json({"a": "answered", "b": "asked", "c": 1, "d": 2}, 32)
    assert kept == {"a": "answered", "b": "asked", "…": "(2 members cut)"}
    assert bound_json({"aaaaaaaa": "answered"}, 8)[0] == {"aaaaaaaa": "…"}


def test_a_list_of_numbers_is_cut_too() -> None:
    kept, _ = bound_json({"zeros": [0] * 1_000_000}, 800)
    assert len(kept["zeros"]) == 100
    assert kept["zeros"][0] == "… (999901 items cut)"


def test_what_is_too_deep_is_cut() -> None:
    value: Any = "deep"
    for _ in range(1000):
        value = [value]
    kept, _ = bound_json({"value": value}, PLENTY)
    text = json.dumps(kept, ensure_ascii=False)
    assert text.count("[") == MAX_DEPTH
    assert "nested too deeply" in text


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (float("nan"), "(nan)"),
        (float("-inf"), "(-inf)"),
        (MAX_INTEGER + 1, "(64 bit integer)"),
        pytest.param(10**5000, "(16610 bit integer)", id="huge"),
        (b"bytes", "(bytes)"),
        ("half \ud83d of a pair", "half ? of a pair"),
        (("a", 1), ["a", 1]),
        (MappingProxyType({"a": {1: True}}), {"a": {"1": True}}),
        ({"zero\0byte": None}, {"zero�byte": None}),
        (Colour.RED, "red"),
    ],
)
def test_what_no_store_can_take_is_put_into_words(value: object, kept: object) -> None:
    bounded, _ = bound_json({"value": value}, PLENTY)
    assert bounded == {"value": kept}
    assert type(bounded["value"]) is type(kept)


def test_the_copy_shares_nothing() -> None:
    content: dict[str, Any] = {"list": [1], "object": {"a": [2]}}
    kept, _ = bound_json(content, PLENTY)
    content["list"].append(3)
    inner: Mapping[str, list[int]] = content["object"]
    inner["a"].append(4)
    assert kept == {"list": [1], "object": {"a": [2]}}
