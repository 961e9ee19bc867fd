"""JSON Schema as structured outputs know it: which schemas are taken, whether a value fits one, and the least value that does.

Not all of JSON Schema: the keywords that strict mode supports. Others are passed over where the schema is not strict.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

Schema = Mapping[str, Any]
Path = tuple[str, ...]

DEEPEST = 10
"""Levels of nesting that strict schemas may have."""
MOST_PROPERTIES = 5000
FORBIDDEN = ("allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties")
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


class SchemaError(Exception):
    """A schema that the service does not take."""


class Unfit(Exception):
    """A value that does not fit its schema."""


# --- which schemas are taken


def check_schema(schema: Schema, *, strict: bool) -> None:
    """Hold a schema against the rules for tools and formats.

    Raises:
        SchemaError: it breaks one; the message says where, in the service's words.
    """
    if schema.get("type") != "object":
        raise SchemaError(f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'.")
    _Checker(schema, strict=strict).check(schema, ())


class _Checker:
    def __init__(self, root: Schema, *, strict: bool) -> None:
        self._root = root
        self._strict = strict
        self._properties = 0

    def check(self, schema: object, at: Path, depth: int = 0) -> None:
        if not isinstance(schema, dict):
            if isinstance(schema, bool) and not self._strict:
                return
            raise SchemaError(f"In context={at}, {schema!r} is not of type 'object', 'boolean'.")
        given = cast("Schema", schema)
        if self._strict:
            self._check_strictly(given, at, depth)
        self._check_type(given, at)
        for key, part in _parts(given):
            self.check(part, (*at, *key), depth + (key[0] in ("properties", "items")))

    def _check_type(self, schema: Schema, at: Path) -> None:
        types = _types(schema)
        for name in types:
            if name not in TYPES:
                raise SchemaError(f"In context={at}, {name!r} is not valid under any of the given schemas.")
        if "array" in types and "items" not in schema:
            raise SchemaError(f"In context={at}, array schema missing items.")
        if "$ref" in schema:
            try:
                resolve(self._root, schema)
            except SchemaError as exc:
                raise SchemaError(f"In context={at}, {exc}") from None

    def _check_strictly(self, schema: Schema, at: Path, depth: int) -> None:
        if depth > DEEPEST:
            raise SchemaError(f"In context={at}, the schema is nested deeper than {DEEPEST} levels.")  # X
        for key in FORBIDDEN:
            if key in schema:
                raise SchemaError(f"In context={at}, '{key}' is not permitted.")
        if not schema.keys() & {"type", "$ref", "anyOf", "enum", "const"}:
            raise SchemaError(f"In context={at}, schema must have a 'type' key.")
        if "object" not in _types(schema):
            return
        if schema.get("additionalProperties") is not False:
            raise SchemaError(f"In context={at}, 'additionalProperties' is required to be supplied and to be false.")
        properties: Schema = schema.get("properties", {})
        self._properties += len(properties)
        if self._properties > MOST_PROPERTIES:
            raise SchemaError(f"The schema has more than {MOST_PROPERTIES} properties.")  # X
        required = schema.get("required", ())
        for key in properties:
            if key not in required:
                raise SchemaError(
                    f"In context={at}, 'required' is required to be supplied and to be an array including every key "
                    f"in properties. Missing '{key}'."
                )
        for key in required:
            if key not in properties:
                raise SchemaError(f"In context={at}, 'required' has '{key}', which is no property.")  # X


def _types(schema: Schema) -> Sequence[str]:
    given = schema.get("type", ())
    return (given,) if isinstance(given, str) else cast("Sequence[str]", given)


def _parts(schema: Schema) -> Sequence[tuple[Path, object]]:
    """The schemas within a schema, by their place."""
    found: list[tuple[Path, object]] = []
    for keyword in ("properties", "$defs", "definitions"):
        inner: Mapping[str, object] = schema.get(keyword, {})
        found += [((keyword, key), part) for key, part in inner.items()]
    if "items" in schema:
        found.append((("items",), schema["items"]))
    choices: Sequence[object] = schema.get("anyOf", ())
    found += [(("anyOf", str(index)), part) for index, part in enumerate(choices)]
    return found


def resolve(root: Schema, schema: Schema) -> Schema:
    """The schema a reference means; any other is itself.

    Raises:
        SchemaError: there is nothing there, or only more references.
    """
    for _ in range(DEEPEST):
        if "$ref" not in schema:
            return schema
        found: object = root
        for key in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
            if key:
                found = cast("Schema", found).get(key) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            break
        schema = cast("Schema", found)
    raise SchemaError(f"reference to component '{schema.get('$ref')}' which was not found in the schema.")


# --- whether a value fits


def fit(value: object, schema: Schema, root: Schema | None = None, at: str = "$") -> None:
    """Hold a value against a schema.

    Raises:
        Unfit: for the first place where it does not fit.
    """
    root = schema if root is None else root
    schema = resolve(root, schema)
    types = _types(schema)
    if types and not any(_is_type(value, name) for name in types):
        raise Unfit(f"{at} is not of type {' or '.join(types)}")
    if "enum" in schema and not any(_is_same(value, option) for option in schema["enum"]):
        raise Unfit(f"{at} is none of {schema['enum']}")
    if "const" in schema and not _is_same(value, schema["const"]):
        raise Unfit(f"{at} is not {schema['const']!r}")
    if "anyOf" in schema and not any(_fits(value, option, root) for option in schema["anyOf"]):
        raise Unfit(f"{at} fits no option of anyOf")
    if isinstance(value, dict):
        _fit_object(cast("dict[str, object]", value), schema, root, at)
    elif isinstance(value, list):
        _fit_list(cast("list[object]", value), schema, root, at)
    elif isinstance(value, str):
        _fit_size(len(value), schema, ("minLength", "maxLength"), at)
        if "pattern" in schema and not re.search(schema["pattern"], value):
            raise Unfit(f"{at} does not match {schema['pattern']}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _fit_size(value, schema, ("minimum", "maximum"), at)


def _is_same(value: object, other: object) -> bool:
    """Python takes true for one, JSON does not."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _fits(value: object, schema: Schema, root: Schema) -> bool:
    try:
        fit(value, schema, root)
    except Unfit:
        return False
    return True


def _fit_object(value: Mapping[str, object], schema: Schema, root: Schema, at: str) -> None:
    properties: Schema = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            raise Unfit(f"{at} has no {key!r}")
    extra = schema.get("additionalProperties", True)
    for key, element in value.items():
        if key in properties:
            fit(element, properties[key], root, f"{at}.{key}")
        elif extra is False:
            raise Unfit(f"{at} must not have {key!r}")
        elif isinstance(extra, dict):
            fit(element, cast("Schema", extra), root, f"{at}.{key}")


def _fit_list(value: Sequence[object], schema: Schema, root: Schema, at: str) -> None:
    _fit_size(len(value), schema, ("minItems", "maxItems"), at)
    items = schema.get("items")
    if isinstance(items, dict):
        for index, element in enumerate(value):
            fit(element, cast("Schema", items), root, f"{at}[{index}]")


def _fit_size(size: float, schema: Schema, bounds: tuple[str, str], at: str) -> None:
    least, most = bounds
    if least in schema and size < schema[least]:
        raise Unfit(f"{at} is below {least} {schema[least]}")
    if most in schema and size > schema[most]:
        raise Unfit(f"{at} is above {most} {schema[most]}")


def _is_type(value: object, name: str) -> bool:
    match name:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


# --- the least value that fits


def least_value(schema: Schema, root: Schema | None = None) -> Any:
    """A value that fits, as short as can be made without much thought: patterns are not looked at."""
    root = schema if root is None else root
    schema = resolve(root, schema)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return least_value(min(schema["anyOf"], key=lambda option: option.get("type") != "null"), root)
    types = _types(schema) or ("object",)
    match "null" if "null" in types else types[0]:
        case "object":
            properties: Schema = schema.get("properties", {})
            return {key: least_value(properties.get(key, {}), root) for key in schema.get("required", ())}
        case "array":
            return [least_value(schema.get("items", {}), root)] * schema.get("minItems", 0)
        case "string":
            return "a" * schema.get("minLength", 0)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            near = min(0, schema.get("maximum", 0))
            return max(near, schema.get("minimum", near))
