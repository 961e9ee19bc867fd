"""Structured outputs: which schemas are taken, and which values fit them, with another implementation as the referee."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.chat.simulation.schemas import SchemaError, Unfit, check_schema, fit, least_value


def strict_object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "got 'type: \"None\"'"),
        ({"type": "object"}, r"In context=\(\), 'additionalProperties' is required"),
        (strict_object(a={"type": "object"}), r"In context=\('properties', 'a'\), 'additionalProperties'"),
        ({**strict_object(a=TEXT), "required": []}, "Missing 'a'"),
        ({**strict_object(), "required": ["b"]}, "'b', which is no property"),
        (strict_object(a={}), "must have a 'type' key"),
        (strict_object(a={"type": "text"}), "'text' is not valid"),
        (strict_object(a="string"), "'string' is not of type"),
        (strict_object(a=True), "True is not of type"),
        (strict_object(a={"allOf": [TEXT]}), "'allOf' is not permitted"),
        (strict_object(a={"anyOf": [TEXT, {"not": TEXT}]}), r"'anyOf', '1'\), 'not' is not permitted"),
        (strict_object(a={"type": "array"}), "array schema missing items"),
        (strict_object(a={"$ref": "#/$defs/b"}), "'#/\\$defs/b' which was not found"),
        ({**strict_object(a={"$ref": "#/$defs/b"}), "$defs": {"b": {"$ref": "#/$defs/b"}}}, "was not found"),
        (strict_object(**{f"p{number}": TEXT for number in range(5001)}), "more than 5000"),
    ],
)
def test_strict_schemas_that_are_refused(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_schema(schema, strict=True)


def test_a_strict_schema_may_be_so_deep_and_no_deeper() -> None:
    schema = strict_object(a=TEXT)
    for _ in range(9):
        schema = strict_object(a=schema)
    check_schema(schema, strict=True)
    with pytest.raises(SchemaError, match="deeper than 10"):
        check_schema(strict_object(a=schema), strict=True)


def test_loose_schemas_may_have_much() -> None:
    check_schema({"type": "object", "properties": {"a": True, "b": {"allOf": [TEXT]}}}, strict=False)


# --- fits, and the least value that does

Schema = dict[str, Any]
Schemas = st.SearchStrategy[Schema]


def _integers(least: int, more: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": least + more}


def _texts(least: int) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": least + 3}


def _numbers(most: int) -> Schema:
    return {"type": "number", "maximum": most}


def _arrays(items: Schema, least: int) -> Schema:
    return {"type": "array", "items": items, "minItems": least}


def _objects(properties: dict[str, Schema]) -> Schema:
    return strict_object(**properties)


def _choices(options: list[Schema]) -> Schema:
    return {"anyOf": options}


def _with_definitions(schema: Schema) -> Schema:
    return {**schema, "$defs": {"leaf": strict_object(x={"type": "integer", "minimum": 3})}}


def _extended(some: Schemas) -> Schemas:
    return st.one_of(
        st.dictionaries(st.sampled_from("abc"), some, max_size=3).map(_objects),
        st.builds(_arrays, some, st.integers(0, 2)),
        st.lists(some, min_size=1, max_size=2).map(_choices),
    )


SIMPLE: list[Schema] = [
    TEXT,
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["string", "null"]},
    {"const": "c"},
    {"enum": ["a", 1, None]},
    {"$ref": "#/$defs/leaf"},
]
leaves: Schemas = st.one_of(
    st.sampled_from(SIMPLE),
    st.builds(_integers, st.integers(-5, 5), st.integers(0, 5)),
    st.builds(_texts, st.integers(0, 4)),
    st.builds(_numbers, st.integers(-5, 5)),
)
inner: Schemas = st.recursive(leaves, _extended, max_leaves=6)
schemas: Schemas = st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(_objects).map(_with_definitions)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-6, 6), st.floats(-6, 6), st.sampled_from(["", "a", "c", "abcd"])),
    lambda some: st.one_of(st.lists(some, max_size=3), st.dictionaries(st.sampled_from("abcx"), some, max_size=4)),
    max_leaves=6,
)


@settings(deadline=None)
@given(schemas)
def test_the_least_value_fits(schema: dict[str, Any]) -> None:
    check_schema(schema, strict=True)
    value = least_value(schema)
    fit(value, schema)
    assert jsonschema_rs.is_valid(schema, value)


def _fits(value: object, schema: dict[str, Any]) -> bool:
    try:
        fit(value, schema)
    except Unfit:
        return False
    return True


@settings(deadline=None)
@given(inner, values)
def test_fitting_is_what_the_referee_says(schema: dict[str, Any], value: object) -> None:
    whole = _with_definitions(schema)
    assert _fits(value, whole) == jsonschema_rs.is_valid(whole, value)


@pytest.mark.parametrize(
    ("value", "schema", "message"),
    [
        ({"a": 1}, strict_object(a=TEXT), r"\$\.a is not of type string"),
        ({}, strict_object(a=TEXT), r"\$ has no 'a'"),
        ({"b": 1}, {"type": "object", "additionalProperties": TEXT}, r"\$\.b is not of type string"),
        ({"b": 1}, strict_object(), r"\$ must not have 'b'"),
        (["a", 1], {"type": "array", "items": TEXT}, r"\$\[1\] is not of type string"),
        ("a", {"type": "string", "pattern": "b"}, "does not match b"),
    ],
)
def test_what_does_not_fit_is_said(value: object, schema: dict[str, Any], message: str) -> None:
    with pytest.raises(Unfit, match=message):
        fit(value, schema)
