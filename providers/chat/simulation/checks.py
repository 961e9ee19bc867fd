"""Small checks of plain JSON that name the place of the first fault, as the service does (`messages[0].content`)."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import attrs

from providers.chat.simulation import refusals

Json = dict[str, Any]
Check = Callable[[object, str], None]
"""Takes a value and its path. Raises `Refused`."""


def kind(value: object) -> str:
    """What a value is, in the words of an error."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a decimal"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def anything(value: object, path: str) -> None:
    """Every value is right."""


def boolean(value: object, path: str) -> None:
    if not isinstance(value, bool):
        raise refusals.wrong_type(path, "a boolean", kind(value))


def text(*, longest: int | None = None, pattern: str | None = None) -> Check:
    shape = re.compile(pattern) if pattern else None

    def check(value: object, path: str) -> None:
        if not isinstance(value, str):
            raise refusals.wrong_type(path, "a string", kind(value))
        if longest is not None and len(value) > longest:
            raise refusals.too_long(path, longest, len(value))
        if shape and not shape.search(value):
            raise refusals.no_match(path, shape.pattern)

    return check


def integer(least: int | None = None, most: int | None = None) -> Check:
    def check(value: object, path: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise refusals.wrong_type(path, "an integer", kind(value))
        _within(value, least, most, path, "integer")

    return check


def number(least: float, most: float) -> Check:
    def check(value: object, path: str) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise refusals.wrong_type(path, "a decimal", kind(value))
        _within(value, least, most, path, "decimal")

    return check


def _within(value: float, least: float | None, most: float | None, path: str, of: str) -> None:
    if least is not None and value < least:
        raise refusals.out_of_bounds(path, of, above=False, bound=least, got=value)
    if most is not None and value > most:
        raise refusals.out_of_bounds(path, of, above=True, bound=most, got=value)


def choice(*values: str) -> Check:
    def check(value: object, path: str) -> None:
        if not isinstance(value, str):
            raise refusals.wrong_type(path, f"one of {', '.join(map(repr, values))}", kind(value))
        if value not in values:
            raise refusals.wrong_choice(path, value, values)

    return check


def nullable(check: Check) -> Check:
    def check_unless_null(value: object, path: str) -> None:
        if value is not None:
            check(value, path)

    return check_unless_null


def list_of(check: Check, *, least: int = 0, most: int | None = None) -> Check:
    def check_each(value: object, path: str) -> None:
        elements = as_list(value, path)
        if least and not elements:
            raise refusals.empty_array(path)
        if most is not None and len(elements) > most:
            raise refusals.array_too_long(path, most, len(elements))
        for index, element in enumerate(elements):
            check(element, f"{path}[{index}]")

    return check_each


def mapping(element: Check, *, key: Check = anything, most: int | None = None) -> Check:
    """An object whatever its keys are called."""

    def check(value: object, path: str) -> None:
        given = as_object(value, path)
        if most is not None and len(given) > most:
            raise refusals.wrong_value(path, f"Invalid '{path}': too many properties. Expected at most {most}.")
        for name, content in given.items():
            key(name, f"{path}.{name}")
            element(content, f"{path}.{name}")

    return check


def not_simulated(value: object, path: str) -> None:
    if value is not None:
        raise refusals.not_simulated(path)


def text_or_list(check: Check, elements: str) -> Check:
    """A string, or a list that the check takes."""

    def check_either(value: object, path: str) -> None:
        if isinstance(value, list):
            check(cast("object", value), path)
        elif not isinstance(value, str):
            raise refusals.wrong_type(path, f"one of a string or {elements}", kind(value))

    return check_either


def text_or_object(words: Check, check: Check) -> Check:
    def check_either(value: object, path: str) -> None:
        is_object = isinstance(value, dict)
        (check if is_object else words)(value, path)

    return check_either


@attrs.frozen
class Record:
    """An object with these keys and no others."""

    required: Mapping[str, Check] = {}
    optional: Mapping[str, Check] = {}

    def __call__(self, value: object, path: str) -> None:
        given = as_object(value, path)
        for key in self.required:
            if key not in given:
                raise refusals.missing(below(path, key))
        for key, element in given.items():
            check = self.required.get(key) or self.optional.get(key)
            if check is None:
                raise refusals.unknown(below(path, key))
            check(element, below(path, key))


@attrs.frozen
class Tagged:
    """An object whose `key` says which of the variants it is."""

    key: str
    variants: Mapping[str, Check]

    def __call__(self, value: object, path: str) -> None:
        given = as_object(value, path)
        if self.key not in given:
            raise refusals.missing(below(path, self.key))
        choice(*self.variants)(given[self.key], below(path, self.key))
        self.variants[given[self.key]](value, path)


def as_object(value: object, path: str) -> Json:
    if not isinstance(value, dict):
        raise refusals.wrong_type(path, "an object", kind(value)) if path else refusals.not_json()
    return cast("Json", value)


def as_list(value: object, path: str) -> Sequence[object]:
    if not isinstance(value, list):
        raise refusals.wrong_type(path, "an array", kind(value))
    return cast("Sequence[object]", value)


def below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
