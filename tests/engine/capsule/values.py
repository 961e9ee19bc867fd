"""Values of every kind that passes a session's boundary, for tests."""

import inspect
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from functools import partial
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
from hypothesis import strategies as st
from pydantic import BaseModel

import engine.store.documents
from agents.definitions import BasicAgent, RelationalAgent, TestAgent
from engine import elements, interfaces
from engine.capsule.file import Kind, Packer, records_of
from engine.config import PipelineConfiguration
from engine.principal import Credential, Principal, ProjectAccess
from providers.azure_openai.properties import AzureOpenAIProperties
from providers.internal.properties import InternalProperties
from providers.openai.properties import OpenAIProperties

ELEMENTS: tuple[type[Any], ...] = tuple(
    found for _, found in inspect.getmembers(elements, inspect.isclass) if attrs.has(found)
)
DOCUMENTS: tuple[type[BaseModel], ...] = tuple(
    found
    for _, found in inspect.getmembers(engine.store.documents, inspect.isclass)
    if issubclass(found, BaseModel) and found.__module__ == "engine.store.documents"
)
OTHERS: tuple[type[Any], ...] = (
    interfaces.ChatText, interfaces.ChatToolCall, interfaces.ChatUsage, interfaces.ChatFinished, interfaces.Message,
    interfaces.ToolResult, interfaces.SystemPrompt, Principal, Credential, ProjectAccess, PipelineConfiguration,
)  # fmt: skip
PROPERTIES: tuple[type[BaseModel], ...] = (AzureOpenAIProperties, InternalProperties, OpenAIProperties)
AGENTS: tuple[type[BaseModel], ...] = (BasicAgent, RelationalAgent, TestAgent)

NUMBERS = st.integers() | st.floats(allow_nan=False) | st.sampled_from([2**63, 2**64, -(2**63) - 1, 2**70, -(10**40)])
CLEAN_TEXTS = st.text(max_size=8) | st.sampled_from(["$", "of", ""])
TEXTS = CLEAN_TEXTS | st.sampled_from(["\ud800", "a\udfffb"])
"""Lone surrogates are in them, which no pydantic model takes."""


def _json(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | NUMBERS | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=6,
    )


JSON = _json(TEXTS)
CLEAN_JSON = _json(CLEAN_TEXTS)
TIMES = st.datetimes(
    datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3.5))])
)


def values_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Any value of an attrs class."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.alias or field.name: _of(hints[field.name]) for field in attrs.fields(kind)})


def models_of(kind: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Any value of a pydantic model; its fields are not checked against each other."""
    hints = get_type_hints(kind)
    fields = {name: _of(hints[name], is_clean=True) for name in kind.model_fields}
    required = {name: fields.pop(name) for name, field in kind.model_fields.items() if field.is_required()}
    return st.fixed_dictionaries(required, optional=fields).map(lambda fields: kind.model_construct(**fields))


def _of(hint: Any, *, is_clean: bool = False) -> st.SearchStrategy[Any]:
    texts, values = (CLEAN_TEXTS, CLEAN_JSON) if is_clean else (TEXTS, JSON)
    of = partial(_of, is_clean=is_clean)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return st.one_of([of(each) for each in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(of(args[0]), max_size=2).map(tuple)
    if origin is list or (origin is not None and origin is not Mapping and origin.__name__ == "Sequence"):
        return st.lists(of(args[0]), max_size=2)
    if origin is frozenset:
        return st.frozensets(of(args[0]), max_size=3)
    if origin is not None and issubclass(origin, Mapping):
        return (
            st.dictionaries(texts, values, max_size=3)
            if args[1] is Any
            else st.dictionaries(texts, of(args[1]), max_size=3)
        )
    if hasattr(hint, "__metadata__"):
        return of(args[0])
    if hint is Any:
        return values
    known: dict[Any, st.SearchStrategy[Any]] = {
        str: texts, int: st.integers(0, 2**70), float: st.floats(0, 1), bool: st.booleans(), bytes: st.binary(max_size=8),
        datetime: TIMES, type(None): st.none(),
    }  # fmt: skip
    if hint in known:
        return known[hint]
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    return models_of(hint) if issubclass(hint, BaseModel) else values_of(hint)


def packed(data: Any) -> Any:
    """Plain data through a chunk of a file."""
    packer = Packer()
    packer.add(0.0, Kind.EVENT, data)
    return records_of(*packer.take())[0].fields[0]
