"""YAML with positions: what it refuses, how it bounds what it reads, and where it says things are."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.located import MAX_BYTES, MAX_DEPTH, MAX_NODES, DocumentError, Position, read_located


def test_values_are_those_of_yaml_1_2() -> None:
    document = read_located(
        b"a: no\nb: 12:30\nc: 2026-03-29\nd: 1e3\ne: ~\nf:\ng: 'true'\nh: true\ni: -7\nj: 0.5\nk: 1_000\nl: 007\n"
    )

    assert document.data == {
        "a": "no", "b": "12:30", "c": "2026-03-29", "d": 1000.0, "e": None, "f": None,
        "g": "true", "h": True, "i": -7, "j": 0.5, "k": "1_000", "l": 7,
    }  # fmt: skip
    assert document.problems == ()


def test_positions_of_values_and_keys() -> None:
    document = read_located(b"agents:\n  - ref: a\n    tools: [x, y]\n  - {ref: b}\n")

    assert document.position(("agents", 0, "tools", 1)) == Position(3, 16)
    assert document.position(("agents", 0, "tools"), of_key=True) == Position(3, 5)
    assert document.position(("agents", 1, "basic", "ref")) == Position(4, 11)  # a part of no place is skipped
    assert document.position(("agents", 1, "name")) == Position(4, 5)  # a missing field is at its parent


def test_problems_are_collected_and_the_rest_is_read() -> None:
    document = read_located(
        b"a: 1\na: 2\n1: x\n<<: {b: 1}\n? [k]\n: v\n"
        b"c: !!python/object/apply:os.system [ls]\nd: !!int x\ne: 1e999\nf: !own g\nz: 1\n"
    )

    assert document.data == {"a": 1, "c": ["ls"], "d": None, "e": None, "f": None, "z": 1}
    assert document.problems == (
        (Position(2, 1), "the key 'a' is here twice; the first one is on line 1"),
        (Position(3, 1), "a key must be text; put it in quotes"),
        (Position(4, 1), "merge keys (<<) are not supported"),
        (Position(5, 3), "a key must be text; put it in quotes"),
        (Position(7, 4), "the tag !!python/object/apply:os.system is not supported"),
        (Position(8, 4), "is not a number that can be used"),
        (Position(9, 4), "is not a number that can be used"),
        (Position(10, 4), "the tag !own is not supported"),
    )


LAUGHS = b"a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (level, level, b",".join([b"*a%d" % (level - 1)] * 10)) for level in range(1, 12)
)


@pytest.mark.parametrize(
    ("content", "message", "position"),
    [
        pytest.param(b"", "is empty", Position(1, 1), id="empty"),
        pytest.param(b"# only a comment\n", "is empty", Position(1, 1), id="comment"),
        pytest.param(
            b"a: [1\nb: 2",
            "while parsing a flow sequence, expected ',' or ']', but got ':'",
            Position(2, 2),
            id="syntax",
        ),
        pytest.param(b"a: b: c", "mapping values are not allowed here", Position(1, 5), id="two colons"),
        pytest.param(
            b"a:\n\t- b",
            "while scanning for the next token, found character '\\t' that cannot start any token",
            Position(2, 1),
            id="tab",
        ),
        pytest.param(b"a: *b", "found undefined alias 'b'", Position(1, 4), id="unknown alias"),
        pytest.param(b"a: &a [*a]", "an alias stands inside what it refers to", Position(1, 4), id="endless alias"),
        pytest.param(LAUGHS, f"holds more than {MAX_NODES} values (aliases expanded)", None, id="billion laughs"),
        pytest.param(
            b"a: 1\n---\nb: 2\n",
            "expected a single document in the stream, but found another document",
            Position(2, 1),
            id="two",
        ),
        pytest.param(
            b'a: "\\U00110000"', "holds an escape or a number that cannot be", Position(1, 1), id="no character"
        ),
        pytest.param(
            b"%YAML 1." + b"1" * 5000 + b"\n---\na", "holds an escape or a number that cannot be", None, id="version"
        ),
        pytest.param(b"ok: 1\nb: \xff", "is not UTF-8 text", Position(2, 4), id="not UTF-8"),
        pytest.param(
            b"ok: 1\nb: \x07", "holds a control character that YAML forbids", Position(2, 4), id="control character"
        ),
        pytest.param(b"x" * (MAX_BYTES + 1), "is larger than 1024 KiB", Position(1, 1), id="size"),
        pytest.param(b"[" * 100_000, f"nested more than {MAX_DEPTH} deep", Position(1, MAX_DEPTH), id="flow depth"),
        pytest.param(b"- " * 100_000, f"nested more than {MAX_DEPTH} deep", None, id="block depth"),
        pytest.param(b"{a: " * 100_000, f"nested more than {MAX_DEPTH} deep", None, id="mapping depth"),
    ],
)
def test_what_cannot_be_read(content: bytes, message: str, position: Position | None) -> None:
    with pytest.raises(DocumentError) as caught:
        read_located(content)

    assert caught.value.message == message
    assert position is None or caught.value.position == position


def test_an_alias_is_read_where_it_is_used() -> None:
    document = read_located(b"a: &x {n: 1}\nb: *x\nc: [*x, *x]\n")

    assert document.data == {"a": {"n": 1}, "b": {"n": 1}, "c": [{"n": 1}, {"n": 1}]}


def test_half_a_character_is_a_problem() -> None:
    document = read_located(b'a: "\\uD800"\n"\\uDC00": 1\n')

    assert document.problems == (
        (Position(1, 4), "holds half of a character (a lone surrogate)"),
        (Position(2, 1), "holds half of a character (a lone surrogate)"),
    )


PIECES = st.sampled_from(
    ["a", ": ", "- ", "\n", "  ", *"[]{},|>#?%9'\"", "&x ", "*x", "!!int ", "!t ", "\\x", "\\U", "---", "<<"]
)


@given(st.one_of(st.lists(PIECES, max_size=30).map("".join).map(str.encode), st.binary(max_size=60)))
def test_any_bytes_are_a_document_or_say_why_not(content: bytes) -> None:
    with suppress(DocumentError):
        document = read_located(content)
        document.position(("a", 0, "b"))
        json.dumps(document.data, allow_nan=False)


def test_a_byte_order_mark_is_nothing() -> None:
    assert read_located(b"\xef\xbb\xbfa: 1").data == {"a": 1}
