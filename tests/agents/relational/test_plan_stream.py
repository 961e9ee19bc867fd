"""The planner's stream, split (R11): vectors J01 to J09 of the cases' annex (C18, C19), and what holds for any text."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.relational.plan_stream import (
    MAX_DEPTH,
    MAX_OBJECT,
    MAX_PROSE,
    MAX_SCALAR,
    PlanItem,
    PlanObject,
    PlanStream,
    Prose,
)


def split(*deltas: str) -> list[PlanItem]:
    stream = PlanStream()
    items = [item for delta in deltas for item in stream.feed(delta)]
    return items + stream.finish()


def shown(items: list[PlanItem]) -> list[object]:
    """Texts for prose, values for objects."""
    return [item.text if isinstance(item, Prose) else item.value for item in items]


EVERY_VALUE: dict[str, Any] = {"results": "A", "x": [1, -2500.0, True, [], {}, None]}

VECTORS = [
    pytest.param(
        'Let me see. {"results":"Greet {name}, then add :}."} That is all.',
        ["Let me see. ", {"results": "Greet {name}, then add :}."}, " That is all."],
        id="J01",
    ),
    pytest.param(
        r'{"results":"She wrote \"use {x}\" in C:\\"} ok', [{"results": 'She wrote "use {x}" in C:\\'}, " ok"], id="J02"
    ),
    pytest.param(
        '{"results":"Ask for the date.","meta":{"why":{"gap":"knowledge"}},"endSession":true}   and   '
        '{"results":"Ask.","meta":{"endSession":true}}',
        [
            {"results": "Ask for the date.", "meta": {"why": {"gap": "knowledge"}}, "endSession": True},
            "   and   ",
            {"results": "Ask.", "meta": {"endSession": True}},
        ],
        id="J03",
    ),
    pytest.param(
        '{"supportingContext":"Paid."}{"results":"Say it is paid."}',
        [{"supportingContext": "Paid."}, {"results": "Say it is paid."}],
        id="J04",
    ),
    pytest.param(
        'Use the pattern {greeting} here. {"results":"Good morning."}',
        ["Use the pattern {greeting} here. ", {"results": "Good morning."}],
        id="J05",
    ),
    pytest.param(
        'Mind the closing } of it. {"supportingContext":"ok"}',
        ["Mind the closing } of it. ", {"supportingContext": "ok"}],
        id="J06",
    ),
    pytest.param(
        'The caller said "maybe later. {"results":"Offer Tuesday."}',
        ['The caller said "maybe later. ', {"results": "Offer Tuesday."}],
        id="J07",
    ),
    pytest.param(
        r'So f(x) = \frac{1}{2}x [1]. {"results":"Half of it."} Then swap {a} and {b}.',
        [r"So f(x) = \frac{1}{2}x [1]. ", {"results": "Half of it."}, " Then swap {a} and {b}."],
        id="J08",
    ),
    pytest.param(
        'It is not {"a": , broken} but {"results":"This one."}',
        ["It is not ", '{"a": , broken} but ', {"results": "This one."}],
        id="J09",
    ),
    pytest.param("", [], id="empty"),
    pytest.param(" \n ", [], id="blank"),
    pytest.param("Use {} or { } or {{name}}.", ["Use {} or { } or {{name}}."], id="empty braces are prose"),
    pytest.param(
        'See:\n```json\n{"results":"A"}\n```\nDone.\n```\n{"results":"B"}\n```',
        ["See:\n", {"results": "A"}, "Done.\n", {"results": "B"}],
        id="fences",
    ),
    pytest.param('```json{"results":"A"}```', [{"results": "A"}], id="fences without lines"),
    pytest.param("Write ```x``` there.", ["Write ```x``` there."], id="backticks in prose"),
    pytest.param('{"results":"```\\n{}\\n```"}', [{"results": "```\n{}\n```"}], id="fences in texts"),
    pytest.param(
        '[\n  {"results":"A"},\n  {"results":"B"}\n]\nDone.',
        [{"results": "A"}, {"results": "B"}, "Done."],
        id="an array of objects",
    ),
    pytest.param(
        '{\n  "results" : "A" ,\n  "x" : [ 1 , -2.5e+3 , true , [ ] , { } , null ]\n}',
        [EVERY_VALUE],
        id="over several lines",
    ),
    pytest.param('{"results":"one\ntwo"}', [{"results": "one\ntwo"}], id="a raw line break in a text"),
    pytest.param(
        r'{"results":"\ud83d\ude00 \u010dau \ud83d!"}', [{"results": "😀 čau ?!"}], id="surrogates, whole and half"
    ),
    pytest.param('说：好。{"results":"说{你好}。"}完', ["说：好。", {"results": "说{你好}。"}, "完"], id="Chinese"),
    pytest.param('Fine. {"results":"cut off', ["Fine. ", '{"results":"cut off'], id="cut off in a text"),
    pytest.param('{"results":"A"', ['{"results":"A"'], id="cut off before the brace"),
    pytest.param('{"a":1', ['{"a":1'], id="cut off in a number"),
    pytest.param('{"a":"\\', ['{"a":"\\'], id="cut off in an escape"),
    pytest.param('{"a":[{"results":"A"}', ['{"a":[', {"results": "A"}], id="an object in what was cut off"),
    pytest.param('{"a":"\\d"} {"b":1}', ['{"a":"\\d"} ', {"b": 1}], id="an escape that JSON has not"),
    pytest.param('{"a":01}', ['{"a":01}'], id="a number that JSON has not"),
    pytest.param('{"a":NaN}', ['{"a":NaN}'], id="a word that JSON has not"),
    pytest.param('{"a":"x",}', ['{"a":"x",}'], id="a trailing comma"),
    pytest.param('{"a":[1}]', ['{"a":[1}]'], id="brackets crossed"),
    pytest.param("{'results':'A'}", ["{'results':'A'}"], id="single quotes"),
    pytest.param('{"a":1}}', [{"a": 1}, "}"], id="a brace too many"),
    pytest.param('{{"a":1}', ["{", {"a": 1}], id="a brace too many in front"),
    pytest.param('{"a":' + "1" * MAX_SCALAR + "}", [{"a": int("1" * MAX_SCALAR)}], id="the longest number"),
    pytest.param('{"a":' + "1" * (MAX_SCALAR + 1) + "}", ['{"a":' + "1" * (MAX_SCALAR + 1) + "}"], id="too long a one"),
    pytest.param(
        "This is the first sentence, and it has a good length. Then: one. And (two!) Three.",
        ["This is the first sentence, and it has a good length. ", "Then: one. And (two!) Three."],
        id="sentences",
    ),
    pytest.param("1. One\n\n2. Two\r\n3. Three", ["1. One\n", "\n2. Two\r\n", "3. Three"], id="lines"),
]


@pytest.mark.parametrize(("text", "expected"), VECTORS)
def test_vectors_however_they_are_cut(text: str, expected: list[object]) -> None:
    assert shown(split(text)) == expected
    assert shown(split(*text)) == expected
    for cut in range(len(text)):
        assert shown(split(text[:cut], text[cut:])) == expected


def test_an_object_comes_with_its_last_brace() -> None:
    stream = PlanStream()
    assert stream.feed('Hm. {"results": "A"') == [Prose("Hm. ")]
    assert stream.feed("} ") == [PlanObject({"results": "A"}, '{"results": "A"}')]
    assert stream.finish() == []


def test_prose_leaves_before_the_next_object_is_whole() -> None:
    stream = PlanStream()
    assert stream.feed("I see {") == []
    assert stream.feed("x} and one { ") == []
    assert stream.feed('"') == [Prose("I see {x} and one ")]
    assert stream.feed('maybe. And {"') == []
    assert stream.feed("r") == [Prose('{ "maybe. And ')]  # behind the quote, which ended a text, no JSON has an r
    assert shown(stream.feed('esults":"B"}')) == [{"results": "B"}]


def test_a_finished_stream_is_as_new() -> None:
    stream = PlanStream()
    stream.feed('One {"a')
    stream.finish()
    assert shown(stream.feed('Two {"a":1}')) == ["Two ", {"a": 1}]


def test_the_largest_object() -> None:
    frame = len('{"results":""}')
    fits = '{"results":"' + "x" * (MAX_OBJECT - frame) + '"}'
    assert shown(split(fits[:100], fits[100:])) == [json.loads(fits)]
    over = '{"results":"' + "x" * (MAX_OBJECT - frame + 1) + '"}'
    for deltas in ([over], [over[:-1], over[-1]], [over[:99], over[99:]]):
        items = split(*deltas, '{"results":"y"}')
        assert shown(items[-1:]) == [{"results": "y"}]
        assert "".join(item.text for item in items[:-1] if isinstance(item, Prose)) == over
        assert all(len(item.text) <= MAX_PROSE for item in items if isinstance(item, Prose))


def test_the_deepest_object() -> None:
    deepest = '{"a":' + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1) + "}"
    assert shown(split(deepest)) == [json.loads(deepest)]
    deeper = '{"a":' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}"
    assert shown(split(deeper)) == [deeper]


def test_long_prose_is_cut_between_words() -> None:
    text = "words " * 300
    pieces = split(text)
    assert "".join(str(piece) for piece in shown(pieces)) == text.rstrip() + " "
    assert all(isinstance(piece, Prose) and piece.text.endswith("words ") for piece in pieces)
    unbroken = "x" * (2 * MAX_PROSE + 1)
    assert shown(split(unbroken)) == ["x" * MAX_PROSE, "x" * MAX_PROSE, "x"]


def test_what_is_nested_and_never_ends_costs_little() -> None:
    for unit in ('{"a":', '{"a":[', '{"', "{", '{"a":"', '{"a":{},', "{ ", '"{', '{"a":"\\"'):
        text = unit * 3000
        items = split(text)
        assert "".join(part if isinstance(part, str) else json.dumps(part) for part in shown(items))


# --- for any text --------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.text(), json_values, min_size=1, max_size=3)
written = st.tuples(objects, st.booleans(), st.sampled_from([None, 2])).map(
    lambda form: json.dumps(form[0], ensure_ascii=form[1], indent=form[2])
)
plain_prose = st.text(st.characters(exclude_characters="{`", exclude_categories=["Cs"])).filter(
    lambda text: not re.fullmatch(r"[\s\[\],]*", text)
)
awkward = st.lists(
    st.sampled_from(['{', '}', '"', "\\", ":", ",", "[", "]", "1", "true", " ", "\n", "a", ". ", "```", "。", '{"a":', "x" * 39])
    | written
    | st.text(max_size=5),
    max_size=30,
).map("".join)  # fmt: skip


def cut(text: str, places: list[int]) -> list[str]:
    marks = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[begin:end] for begin, end in pairwise(marks)]


@given(awkward, st.lists(st.integers(0, 10_000), max_size=8))
def test_the_cuts_do_not_matter(text: str, places: list[int]) -> None:
    whole = split(text)
    assert split(*cut(text, places)) == whole
    assert split(*text) == whole


@given(awkward)
def test_nothing_is_lost(text: str) -> None:
    def squeezed(text: str) -> str:
        return re.sub(r"[\s\[\],]|```[\w+-]*", "", text)

    items = split(text)
    given_out = "".join(item.text if isinstance(item, Prose) else item.source for item in items)
    assert squeezed(given_out) == squeezed(text)
    assert all(0 < len(item.text) <= MAX_PROSE and item.text.strip() for item in items if isinstance(item, Prose))
    assert all(json.loads(item.source, strict=False) for item in items if isinstance(item, PlanObject))


@given(st.lists(st.tuples(plain_prose, objects), max_size=5))
def test_every_object_between_prose_is_found(parts: list[tuple[str, dict[str, object]]]) -> None:
    items = split("".join(prose + json.dumps(value) for prose, value in parts))
    assert [item.value for item in items if isinstance(item, PlanObject)] == [value for _, value in parts]
