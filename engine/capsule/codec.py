"""Values as plain data, and back: elements, documents, exceptions, and what is in them.

What MessagePack does not know is written as a map with the name of its class under `$`. Only what is data can be read back: frozen
attrs classes, pydantic models, enums and exceptions, of the packages that are named. A capsule may come from anybody, and reading one
runs nothing of its own: it may name a class, which has to stand where it says it stands, and modules are imported from those packages
only. What a class does not show of itself (`repr=False`) is a secret, and is not written.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from functools import cache, lru_cache
from typing import Any, cast

import attrs
from pydantic import BaseModel
from pydantic_settings import BaseSettings

PACKAGES = ("engine", "providers", "agents")
"""Whose classes may be read."""
MOST_CAUSES = 4
"""Exceptions that led to one are kept so far."""
MOST_KINDS = 1024
"""Classes of which it is known how to make plain data of them."""
_LEAST, _MOST = -(2**63), 2**64 - 1
"""The integers that MessagePack has; JSON has others, and models write them."""


class CapsuleError(Exception):
    """A capsule that cannot be read, in words for the person who has it."""


def plain(value: object) -> Any:
    """As MessagePack can hold it. What cannot be kept (a callable, a path) is None, as it means nothing elsewhere.

    Raises whatever looking into a value raises, and RecursionError for one that has no end.
    """
    kind: Any = type(value)
    return value if kind in _PLAIN else _way_of(kind)(value)


_PLAIN = frozenset({bool, float, str, bytes, type(None)})


@lru_cache(MOST_KINDS)
def _way_of(kind: type[Any]) -> Callable[[Any], Any]:
    """What makes plain data of the values of a class."""
    name = _name(kind)
    if issubclass(kind, Enum):
        return lambda value: {"$": name, "of": plain(value.value)}
    for base, way in _WAYS:
        if kind is base or (issubclass(kind, base) and base not in _EXACTLY):
            return way
    if attrs.has(kind):
        fields = [field for field, _ in _fields(kind)]
        return lambda value: {"$": name, "of": {field: plain(getattr(value, field)) for field in fields}}
    if issubclass(kind, BaseModel):
        return lambda value: {"$": name, "of": _plain_model(value)}
    return _plain_other


def _plain_int(number: int) -> Any:
    return number if _LEAST <= number <= _MOST else {"$": "int", "of": hex(number)}


def _plain_list(value: list[object]) -> Any:
    return [plain(each) for each in value]


def _plain_tuple(value: tuple[object, ...]) -> Any:
    return {"$": "()", "of": [plain(each) for each in value]}


def _plain_set(value: frozenset[object]) -> Any:
    return {"$": "frozenset", "of": sorted((plain(each) for each in value), key=repr)}


def _plain_map(value: Mapping[Any, Any]) -> Any:
    if "$" in value or not {type(key) for key in value} <= _TEXT:
        return {"$": "{}", "of": [[plain(key), plain(each)] for key, each in value.items()]}
    return {key: plain(each) for key, each in value.items()}


_TEXT = frozenset({str})


def _plain_time(value: date) -> Any:
    return {"$": "datetime" if isinstance(value, datetime) else "date", "of": value.isoformat()}


def _plain_error(value: BaseException) -> Any:
    return _plain_exception(value, MOST_CAUSES)


_WAYS: Sequence[tuple[type, Callable[[Any], Any]]] = (
    (int, _plain_int), (list, _plain_list), (tuple, _plain_tuple), (Mapping, _plain_map), (date, _plain_time), (set, _plain_set),
    (frozenset, _plain_set), (BaseException, _plain_error),
)  # fmt: skip
_EXACTLY = frozenset({int, list, tuple})
"""What is only like one of these is something else."""


def _plain_other(value: object) -> Any:
    """Of what is like something plain, and is not that itself."""
    if isinstance(value, bytearray | memoryview):
        return bytes(cast("bytearray | memoryview[int]", value))
    if isinstance(value, str):
        return "".join(value)  # what `str` gives is the subclass's own affair
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, int):
        return plain(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Sequence):
        return [plain(each) for each in cast("Sequence[object]", value)]
    return None


def _plain_model(model: BaseModel) -> dict[str, Any]:
    """Of the fields that were set: the others are what their class says."""
    secrets = _secrets(type(model))
    values = {**model.__dict__, **(model.__pydantic_extra__ or {})}
    return {name: plain(values[name]) for name in values if name in model.model_fields_set and name not in secrets}


@cache
def _secrets(kind: type[BaseModel]) -> frozenset[str]:
    return frozenset(name for name, field in kind.model_fields.items() if not field.repr)


def _plain_exception(error: BaseException, depth: int) -> Any:
    cause = error.__cause__ if depth else None
    if isinstance(error, BaseExceptionGroup):
        error = _without_cancellations(cast("BaseExceptionGroup[BaseException]", error))
        args = [error.message, [_plain_exception(each, depth - 1) for each in error.exceptions]] if depth else []
    else:
        args = [plain(each) for each in error.args]
    return {
        "$": _name(type(error)),
        "or": [_name(kin) for kin in type(error).__mro__[1:] if kin is not Exception and issubclass(kin, Exception)],
        "of": {
            "args": args,
            "with": {key: plain(each) for key, each in vars(error).items() if not key.startswith("_")},
            "from": None if cause is None else _plain_exception(cause, depth - 1),
        },
    }


def _without_cancellations(group: BaseExceptionGroup[BaseException]) -> BaseExceptionGroup[BaseException]:
    """What is left is what somebody did; a cancellation is the reader's own affair."""
    kept = group.subgroup(Exception)
    return group if kept is None else kept


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


@cache
def _fields(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    """The names of an attrs class's fields, and what its constructor calls them; without the secrets."""
    return tuple(
        (field.name, field.alias or field.name)
        for field in attrs.fields(kind)
        if field.init and field.repr is not False
    )


class Reader:
    """Makes values again. `packages` are those whose classes may be made, beside the engine's own: their modules are imported."""

    def __init__(self, packages: Sequence[str] = ()) -> None:
        self.packages = frozenset({*PACKAGES, *packages})

    def value(self, data: Any) -> Any:
        """Raises CapsuleError: there is no such class here, or it takes other fields than it did."""
        try:
            return self._value(data)
        except CapsuleError:
            raise
        except Exception as exc:  # the border: what is read may be anything
            raise CapsuleError(f"The capsule holds what cannot be read: {type(exc).__name__}.") from exc

    def _value(self, data: Any) -> Any:
        if isinstance(data, list):
            return [self._value(each) for each in cast("list[object]", data)]
        if not isinstance(data, dict):
            return data
        fields = cast("dict[str, Any]", data)
        if "$" not in fields:
            return {key: self._value(each) for key, each in fields.items()}
        name, of = fields["$"], cast("Any", fields.get("of"))
        match name:
            case "()":
                return tuple(self._value(each) for each in of)
            case "{}":
                return {self._value(key): self._value(each) for key, each in of}
            case "frozenset":
                return frozenset(self._value(each) for each in of)
            case "int":
                return int(of, 16)
            case "datetime":
                return datetime.fromisoformat(of)
            case "date":
                return date.fromisoformat(of)
            case str():
                return self._make(name, of, fields.get("or"))
            case _:
                raise CapsuleError("A class in the capsule has no name.")

    def _make(self, name: str, of: Any, kin: Any) -> Any:
        kind = self._kind(name, kin)
        try:
            if issubclass(kind, Enum):
                return kind(self._value(of))
            if issubclass(kind, Exception):
                return self._exception(kind, of, self._value if _name(kind) == name else self._value_or_none)
            values = {key: self._value(each) for key, each in of.items()}
            if issubclass(kind, BaseModel):
                return kind.model_validate(values)
            known = {alias: values[field] for field, alias in _fields(cast("Any", kind)) if field in values}
            return cast("Callable[..., Any]", kind)(**known)
        except CapsuleError:
            raise
        except Exception as exc:
            raise CapsuleError(f"{name} cannot be made from what the capsule holds: {exc}") from exc

    def _kind(self, name: str, kin: Any) -> type[Any]:
        """The class of that name; of an exception that is not known here, the nearest of those it came from."""
        try:
            return self._class(name)
        except CapsuleError:
            for each in cast("list[object]", kin) if isinstance(kin, list) else []:
                try:
                    found = self._class(str(each))
                except CapsuleError:
                    continue
                if issubclass(found, Exception):
                    return found
            if isinstance(kin, list):
                return Exception
            raise

    def _class(self, name: str) -> type[Any]:
        module, _, path = name.partition(":")
        own = module.partition(".")[0] in self.packages
        if not (own or module in ("builtins", "trio")) or any(part.startswith("_") for part in module.split(".")):
            raise CapsuleError(f"{name} belongs to a package that is not read from capsules.")
        try:
            found = cast("Any", importlib.import_module(module))
            for part in path.split("."):
                found = cast("Any", vars(found)[part])
        except Exception as exc:  # a module that cannot be imported here may say so in its own words
            raise CapsuleError(f"There is no {name} here: the capsule was made by another version.") from exc
        kind = cast("type[Any]", found) if isinstance(found, type) else type(None)
        if _name(kind) != name or not (_is_data(kind) if own else issubclass(kind, Exception)):
            raise CapsuleError(f"{name} is not data.")
        return kind

    def _value_or_none(self, data: Any) -> Any:
        """For what stands in for a class that is not known here: what that has held need not be known either."""
        try:
            return self._value(data)
        except CapsuleError:
            return None

    def _exception(self, kind: type[Exception], of: Mapping[str, Any], value: Callable[[Any], Any]) -> Exception:
        args = [value(each) for each in of["args"]]
        if issubclass(kind, BaseExceptionGroup) or kind.__module__ == "builtins":
            error = cast("Callable[..., Exception]", kind)(*args)
        else:
            error = kind.__new__(kind, *args)
            error.args = tuple(args)
        for key, each in of["with"].items():
            if not key.startswith("_"):
                setattr(error, key, value(each))
        if of["from"] is not None:
            error.__cause__ = self._value(of["from"])
        return error


def _is_data(kind: type[Any]) -> bool:
    """Whether making one does nothing but that: settings look into the environment, and what changes is somebody at work."""
    if issubclass(kind, Enum | Exception):
        return True
    if issubclass(kind, BaseModel):
        return not issubclass(kind, BaseSettings)
    return attrs.has(kind) and attrs.inspect(kind).is_frozen
