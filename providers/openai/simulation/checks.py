"""Small checks of plain JSON that name the place of the first fault, as the service does (`session.tools[0].name`)."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import attrs

from providers.openai.simulation import rules

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
            return "a decimal number"
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
        raise rules.wrong_type(path, "a boolean", kind(value))


def text(*, longest: int | None = None, pattern: str | None = None) -> Check:
    shape = re.compile(pattern) if pattern else None

    def check(value: object, path: str) -> None:
        if not isinstance(value, str):
            raise rules.wrong_type(path, "a string", kind(value))
        if longest is not None and len(value) > longest:
            raise rules.too_long(path, longest, len(value))
        if shape and not shape.fullmatch(value):
            raise rules.wrong_value(
                path, f"Invalid '{path}': string does not match pattern. Expected a string that matches '{pattern}'."
            )

    return check


def integer(least: int, most: int | None = None) -> Check:
    def check(value: object, path: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise rules.wrong_type(path, "an integer", kind(value))
        _within(value, least, most, path)

    return check


def number(least: float, most: float) -> Check:
    def check(value: object, path: str) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise rules.wrong_type(path, "a decimal number", kind(value))
        _within(value, least, most, path)

    return check


def _within(value: float, least: float, most: float | None, path: str) -> None:
    """X: the service has codes of their own for bounds at other endpoints."""
    if value < least:
        raise rules.wrong_value(path, f"Invalid '{path}': expected a value >= {least}, but got {value} instead.")
    if most is not None and value > most:
        raise rules.wrong_value(path, f"Invalid '{path}': expected a value <= {most}, but got {value} instead.")


def choice(*values: str) -> Check:
    def check(value: object, path: str) -> None:
        if not isinstance(value, str):
            raise rules.wrong_type(path, f"one of {', '.join(map(repr, values))}", kind(value))
        if value not in values:
            raise rules.wrong_choice(path, value, values)

    return check


def nullable(check: Check) -> Check:
    def check_unless_null(value: object, path: str) -> None:
        if value is not None:
            check(value, path)

    return check_unless_null


def list_of(check: Check) -> Check:
    def check_each(value: object, path: str) -> None:
        for index, element in enumerate(as_list(value, path)):
            check(element, f"{path}[{index}]")

    return check_each


@attrs.frozen
class Record:
    """An object with these keys and no others."""

    required: Mapping[str, Check] = {}
    optional: Mapping[str, Check] = {}

    @property
    def known(self) -> Mapping[str, Check]:
        return {**self.required, **self.optional}

    def __call__(self, value: object, path: str) -> None:
        given = as_object(value, path)
        for key in self.required:
            if key not in given:
                raise rules.missing(below(path, key))
        for key, element in given.items():
            check = self.required.get(key) or self.optional.get(key)
            if check is None:
                raise rules.unknown(below(path, key))
            check(element, below(path, key))


@attrs.frozen
class Tagged:
    """An object whose `key` says which of the variants it is."""

    key: str
    variants: Mapping[str, Check]

    def __call__(self, value: object, path: str) -> None:
        given = as_object(value, path)
        if self.key not in given:
            raise rules.missing(below(path, self.key))
        choice(*self.variants)(given[self.key], below(path, self.key))
        self.variants[given[self.key]](value, path)


def either(of_type: type, check: Check, otherwise: Check) -> Check:
    """One check for values of a type, another for all others."""

    def check_one(value: object, path: str) -> None:
        (check if isinstance(value, of_type) else otherwise)(value, path)

    return check_one


def mapping(most: int, key: Check, element: Check) -> Check:
    """An object of at most so many entries, whatever their names."""

    def check(value: object, path: str) -> None:
        given = as_object(value, path)
        if len(given) > most:
            raise rules.wrong_value(path, f"Invalid '{path}': too many properties. Expected at most {most}.")
        for name, content in given.items():
            key(name, f"{path}.{name}")
            element(content, f"{path}.{name}")

    return check


def as_object(value: object, path: str) -> Json:
    if not isinstance(value, dict):
        raise rules.wrong_type(path, "an object", kind(value)) if path else rules.not_an_object(f"got {kind(value)}")
    return cast("Json", value)


def as_list(value: object, path: str) -> Sequence[object]:
    if not isinstance(value, list):
        raise rules.wrong_type(path, "an array", kind(value))
    return cast("Sequence[object]", value)


def below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
