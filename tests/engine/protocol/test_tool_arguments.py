"""C13: arguments are one JSON object, or the model is told in words it can act on."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.interfaces import ToolError
from engine.protocol.tool_arguments import MAX_ARGUMENTS, is_too_deep, parse_arguments


@pytest.mark.parametrize("text", ["", " \n", "null", "{}"])
def test_no_arguments(text: str) -> None:
    assert parse_arguments(text) == {}


def test_how_deep_a_value_may_be() -> None:
    assert parse_arguments('{"a": ' * 100 + "1" + "}" * 100)
    assert not is_too_deep(({"a": [1]},), 3)
    assert is_too_deep(({"a": [1]},), 2)


def test_an_object() -> None:
    assert parse_arguments('{"city": "Brno", "nights": 2}') == {"city": "Brno", "nights": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"city": "Brno', "not valid JSON"),
        ('{"n": NaN}', "not valid JSON"),
        ('{"n": -Infinity}', "not valid JSON"),
        ("[" * 100_000, "longer than"),
        ("[" * 60_000, "not valid JSON"),
        ('{"a": ' * 101 + "1" + "}" * 101, "too deeply"),
        ('{"a": "\\ud800"}', "not valid JSON"),
        ('{"n": 1e400}', "not valid JSON"),
        ('["Brno", 2]', "one JSON object"),
        ('"Brno"', "one JSON object"),
        ("3", "one JSON object"),
        ('{"a": 1}{"b": 2}', "not valid JSON"),
        ('{"a": "' + "x" * MAX_ARGUMENTS + '"}', "longer than"),
    ],
    ids=range(13),
)
def test_the_model_is_told_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        parse_arguments(text)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.one_of(st.text(max_size=40), st.text('{}[]":,0123456789nulltrefaNI\\u \n', max_size=40)))
def test_anything_else_is_a_tool_error(text: str) -> None:
    try:
        arguments = parse_arguments(text)
    except ToolError:
        return
    assert json.loads(json.dumps(arguments, allow_nan=False)) == arguments
