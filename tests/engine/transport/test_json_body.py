"""JSON as requests may hold it, and as they may not."""

import json
import string
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.transport.json_body import MAX_DEPTH, MAX_VALUES, BadJsonError, read_json

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NUMBERS = st.integers(-(10**18) + 1, 10**18 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_what_json_can_say_is_read(value: Any, ascii_only: bool) -> None:
    assert read_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.text(string.printable, max_size=60) | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
def test_anything_is_read_or_refused(text: str) -> None:
    with suppress(BadJsonError):
        read_json(text.encode("latin-1"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"", "is not JSON", id="nothing"),
        pytest.param(b"{", "is not JSON", id="unfinished"),
        pytest.param(b"{'a': 1}", "is not JSON", id="single quotes"),
        pytest.param(b"NaN", "is not JSON", id="NaN"),
        pytest.param(b"[-Infinity]", "is not JSON", id="infinity"),
        pytest.param(b"[1e999]", "is not JSON", id="a number that becomes infinite"),
        pytest.param(b"\xff", "is not JSON", id="not UTF-8"),
        pytest.param(b'"\\ud800"', "is not JSON", id="half a character"),
        pytest.param(b"\xef\xbb\xbf{}", "is not JSON", id="a byte order mark"),
        pytest.param(b'{"a": 1, "a": 2}', "same key twice", id="a key twice"),
        pytest.param(b'[{"b": {"a": 1, "\\u0061": 1}}]', "same key twice", id="a key twice, deep and escaped"),
        pytest.param(b"[1234567890123456789]", "more than 18 digits", id="a number for no 64 bits"),
        pytest.param(b"[" + b"9" * 300 + b"]", "more than 18 digits", id="a huge number"),
        pytest.param(b"[" * 41 + b"]" * 41 + b" ", None, id="as deep as may be"),
        pytest.param(b"[" * 41 + b"1" + b"]" * 41, f"more than {MAX_DEPTH} deep", id="too deep"),
        pytest.param(b'{"a":' * 41 + b"1" + b"}" * 41, f"more than {MAX_DEPTH} deep", id="too deep in objects"),
        pytest.param(b"[" * 500_000, f"more than {MAX_VALUES} values", id="half a million deep"),
        pytest.param(b"[" + b"0," * MAX_VALUES + b"0]", f"more than {MAX_VALUES} values", id="too many"),
        pytest.param(b'{"a":[' + b"{}," * MAX_VALUES + b'1],"a":1}', "values", id="too many behind a key twice"),
        pytest.param(b'["' + b"," * 900_000 + b'"]', None, id="commas in a text"),
        pytest.param(b'["' + b'\\",' * 300_000, "is not JSON", id="a text of escaped quotes without an end"),
        pytest.param(b'["a\\u0000b"]', "NUL", id="NUL"),
        pytest.param(b'{"\\u0000": 1}', "NUL", id="NUL in a key"),
        pytest.param(rb'["\\u0000"]', None, id="no NUL: an escaped backslash"),
    ],
)
def test_what_is_refused(body: bytes, reason: str | None) -> None:
    if reason is None:
        read_json(body)
        return
    with pytest.raises(BadJsonError, match=reason):
        read_json(body)


def test_whole_numbers_are_whole_however_they_are_written() -> None:
    read = read_json(b"[1.0, 1e3, -0.0, 1.5, 1e300]")
    assert read == [1, 1000, 0, 1.5, 1e300]
    assert [type(each) for each in read] == [int, int, int, float, float]
