"""What is written is read again, and nothing else is."""

import math
import sys
from collections import OrderedDict
from contextlib import suppress
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from agents.definitions import AgentDefinition
from agents.demo import PROJECT_FILE
from agents.project import load_projects
from engine.capsule.codec import CapsuleError, Reader, plain
from engine.config import RealtimeProperties, Settings, properties_from
from engine.elements import ResponseStatus, Token
from engine.errors import ErrorCode, NotFoundError, RealtimeException, RemoteError, Whose
from engine.interfaces import ToolError, UnknownToolError
from engine.observation import Outcome
from engine.principal import AccessRole, UserAccount
from engine.store.contract import StoreError
from engine.store.mongo_appends import HeldError
from providers.azure_openai.properties import AzureOpenAIProperties
from providers.internal.properties import InternalProperties
from providers.link import LinkClosedError, LinkRefusedError
from providers.openai.properties import OpenAIProperties
from tests.engine.capsule.values import DOCUMENTS, ELEMENTS, JSON, OTHERS, TEXTS, models_of, packed, values_of


def again(value: object, *packages: str) -> Any:
    return Reader(packages).value(packed(plain(value)))


@settings(max_examples=60, deadline=None)
@given(st.one_of([values_of(kind) for kind in (*ELEMENTS, *OTHERS)]))
def test_elements_are_read_as_they_were(value: object) -> None:
    found = again(value)
    assert found == value
    assert type(found) is type(value)


@given(st.one_of([models_of(kind) for kind in DOCUMENTS]))
def test_documents_are_read_as_they_were(value: BaseModel) -> None:
    found = again(value)
    assert found == value
    assert found.model_fields_set == value.model_fields_set


@given(JSON)
def test_json_is_read_as_it_was(value: object) -> None:
    assert again(value) == value


KEYS = TEXTS | st.integers() | st.booleans() | st.none() | st.tuples(st.integers(), TEXTS) | st.sampled_from(Outcome)


@given(st.dictionaries(KEYS, st.lists(JSON, max_size=2).map(tuple) | st.frozensets(KEYS, max_size=3), max_size=4))
def test_maps_of_anything_are_read_as_they_were(value: dict[Any, Any]) -> None:
    found = again({"of": value})["of"]
    assert found == value
    assert [type(key) for key in found] == [type(key) for key in value]


@pytest.mark.parametrize(
    "number", [2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**70, 10**5000, -(10**5000)], ids=hex
)
def test_integers_have_any_size(number: int) -> None:
    assert again({"rows": [number]}) == {"rows": [number]}


def test_floats_that_are_no_numbers() -> None:
    found = again([math.nan, math.inf, -math.inf])
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf]


def test_days_and_times() -> None:
    """YAML makes days of what looks like one."""
    when = datetime(2026, 3, 1, 12, tzinfo=UTC)
    found = again([date(2026, 3, 1), when, datetime(2026, 3, 1)])
    assert found == [date(2026, 3, 1), when, datetime(2026, 3, 1)]
    assert [type(each) for each in found] == [date, datetime, datetime]


class Level(int):
    pass


class Name(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise AssertionError("nobody asked")


def test_what_is_like_something_plain_becomes_that() -> None:
    value = [
        Level(3),
        Level(2**70),
        Name("a"),
        bytearray(b"b"),
        cast("Any", memoryview(b"c")),
        range(2),
        MappingProxyType({"d": 1}),
    ]
    found = packed(plain([*value, cast("Any", OrderedDict(e=2)), ResponseStatus.IDLE]))
    assert found[0] == 3
    assert found[2:8] == ["a", b"b", b"c", [0, 1], {"d": 1}, {"e": 2}]
    assert found[8] == {"$": "engine.elements:ResponseStatus", "of": "idle"}
    assert Reader().value(found[1]) == 2**70


def test_what_means_nothing_elsewhere_is_nothing() -> None:
    assert plain([print, Path("/tmp"), object(), sys.stderr, test_days_and_times]) == [None] * 5


def test_what_has_no_end_is_refused() -> None:
    """The tape catches it: the session goes on."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        plain(endless)


def test_a_hundred_levels_are_read_as_they_were() -> None:
    value: Any = "ground"
    for level in range(100):
        value = {"down": (value, level)} if level % 2 else [value]
    assert again(value) == value


# --- documents with rules of their own --------------------------------------------------------------------------------


def test_agents_are_read_as_they_were() -> None:
    catalog = load_projects([PROJECT_FILE])
    refs = ("barista", "caller")
    for ref in refs:
        found = catalog.agent(ref)
        assert found is not None
        agent = cast("AgentDefinition", found[0])
        copy = again(agent)
        assert type(copy) is type(agent)
        assert copy.directory is None, "a path means nothing elsewhere"
        assert agent.directory is not None
        assert copy.placed(agent.directory) == agent


PROPERTIES: list[RealtimeProperties] = [
    InternalProperties(tts={"voice": "amy", "speed": 1.5}, stt={"apiKey": "env:KEY"}, temperature=0.1),
    OpenAIProperties(voice="ash", turn_detection={"type": "semantic_vad"}, max_output_tokens=100),
    OpenAIProperties(base_url="ws://127.0.0.1:1/v1/realtime", api_key="none"),
    properties_from(
            {
                "provider": "AzureOpenAI", "apiKey": "env:KEY", "model": "gpt-realtime",
                "regions": [{"endpoint": "https://a.openai.azure.com"}, {"endpoint": "https://b.openai.azure.com"}],
            },
            {"AzureOpenAI": AzureOpenAIProperties},
        ),
]  # fmt: skip


@pytest.mark.parametrize("properties", PROPERTIES, ids=lambda properties: properties.provider)
def test_properties_are_read_as_they_were(properties: RealtimeProperties) -> None:
    assert again(properties) == properties


# --- exceptions -------------------------------------------------------------------------------------------------------


def caused(error: Exception, cause: Exception) -> Exception:
    try:
        raise error from cause
    except Exception as exc:
        return exc


ERRORS: list[Exception] = [
    RealtimeException(ErrorCode.PROVIDER_QUOTA, "No more.", recoverable=True),
    RemoteError(ErrorCode.FORBIDDEN, "Not you.", whose=Whose.CLIENT),
    NotFoundError("There is none."),
    StoreError("disk"), HeldError("by another"), ToolError("no table"), UnknownToolError("what?"),
    LinkClosedError(1006, "gone"), LinkClosedError(), LinkRefusedError(429, 2.5),
    ValueError("x", 2**70), KeyError("k"), OSError(2, "No such file"), TimeoutError(), trio.TooSlowError(),
    trio.BrokenResourceError("b"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    ExceptionGroup("two", [LinkClosedError(1000, ""), ExceptionGroup("in", [ToolError("t")])]),
]  # fmt: skip


def state(error: BaseException | None, depth: int = 9) -> Any:
    if error is None or not depth:
        return None
    members = cast("tuple[BaseException, ...]", getattr(error, "exceptions", ()))
    inner = [state(each) for each in members] or error.args
    return type(error), inner, str(error), vars(error), state(error.__cause__, depth - 1)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_exceptions_are_read_as_they_were(error: Exception) -> None:
    assert state(again(error)) == state(error)
    assert state(again(caused(RuntimeError("later"), error))) == state(caused(RuntimeError("later"), error))


def test_a_cause_of_causes_is_cut_where_nobody_looks() -> None:
    first: Exception = ValueError("1")
    for number in range(2, 20):
        first = caused(ValueError(str(number)), first)
    assert state(again(first), 5) == state(first, 5)


def test_causes_that_go_round_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert state(again(one), 3) == state(one, 3)


class VendorError(ConnectionError):
    def __init__(self, text: str, request: object) -> None:
        super().__init__(text)
        self.request = request
        self.status = 500


class OfTheStoreError(StoreError):
    pass


def test_an_exception_of_an_unknown_package_is_the_nearest_that_is_known() -> None:
    """A tool of somebody else's may raise anything; who replays need not have it."""
    found = again(VendorError("down", object()))
    assert type(found) is ConnectionError
    assert str(found) == "down"
    assert vars(found) == {"status": 500, "request": None}
    assert type(again(OfTheStoreError("held"))) is StoreError
    assert type(again(caused(ToolError("no"), VendorError("down", None))).__cause__) is ConnectionError
    assert type(again(VendorError("down", None), "tests")) is VendorError


async def test_cancellations_in_a_group_are_left_out() -> None:
    found: list[BaseException] = []
    try:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    raise ToolError("no")
            except BaseExceptionGroup as group:
                found.append(group)
                raise
    except* ToolError:
        pass
    copy = again(found[0])
    assert type(copy) is ExceptionGroup
    assert [str(each) for each in copy.exceptions] == ["no"]


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_what_a_class_does_not_show_is_not_written() -> None:
    account = UserAccount("anna", AccessRole.OWNER, password_hash="$argon2id$secret", email="a@b")
    assert "secret" not in repr(plain(account))
    assert again(account) == attrs.evolve(account, password_hash="")
    assert "hush" not in repr(plain(Settings(jwt_secret="env:HUSH", admin_key=SecretStr("hush"))))


# --- reading runs nothing ---------------------------------------------------------------------------------------------


def made(name: str, of: Any = None) -> dict[str, Any]:
    return {"$": name, "of": {} if of is None else of}


REFUSED = [
    "os:system", "subprocess:Popen", "builtins:eval", "builtins:object", "builtins:type", "builtins:SystemExit",
    "builtins:KeyboardInterrupt", "builtins:__import__", "trio:run", "trio:Cancelled", "trio:MemorySendChannel",
    "engine.capsule.codec:importlib.import_module", "engine.capsule.codec:importlib", "engine.capsule.codec:plain",
    "engine.capsule.file:Path", "engine.capsule.file:BinaryIO", "engine.capsule.codec:Reader", "engine.session.run:Parts",
    "engine.capsule.codec:attrs.frozen", "engine.boundary:Boundary", "engine.capsule.keeper:Capsules",
    "engine.session.live:LiveSessions", "engine.config:Settings", "engine.config:BaseSettings",
    "engine.errors:StrEnum", "engine.elements:Token.__class__", "engine.elements:Token.__init__", "engine.elements:",
    "engine.elements", "engine", "", ":", "engine..elements:Token", ".engine.elements:Token", "engine.elements:Token.",
    "engine.__main__:main", "agents.__main__:main", "engine.elements.__class__:mro", "engineer.x:Y", "tests.helpers:Value",
    "engine.nothing:Token", "engine.elements:Nothing", "engine/elements:Token", "engine.elements\0:Token",
    "engine.store.contract:RemoteError", "()x", "{}{}",
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("of", [None, [], "echo", {"args": ["echo"], "with": {}, "from": None}], ids=str)
def test_what_is_not_data_is_refused(name: str, of: Any) -> None:
    with pytest.raises(CapsuleError):
        Reader().value(made(name, of))


def test_a_named_package_is_read_and_no_other() -> None:
    data = plain(Mark.HERE)
    assert Reader(["tests"]).value(data) is Mark.HERE
    for packages in ([], ["test"], ["tests.engine"], [""]):
        with pytest.raises(CapsuleError, match="belongs to a package"):
            Reader(packages).value(data)


class Mark(Enum):
    HERE = ("x", 1)


def test_no_module_is_imported_that_is_not_of_a_named_package() -> None:
    before = set(sys.modules)
    for name in ("antigravity:x", "this:x", "tests.browser:x", "encodings.rot_13:x", "engine.__main__:x"):
        with pytest.raises(CapsuleError):
            Reader().value(made(name))
    assert set(sys.modules) == before


def test_an_exception_gets_no_attributes_that_are_python_s_own() -> None:
    error = made("engine.errors:LocalError", {"args": [], "with": {"__class__": 1, "_x": 1, "y": 2}, "from": None})
    assert vars(Reader().value(error)) == {"y": 2}


def test_settings_are_not_made_as_they_look_into_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOUFFLEUR_JWT_SECRET", "hush")
    with pytest.raises(CapsuleError):
        Reader().value(made("engine.config:Settings"))


NAMES = st.sampled_from([
    *REFUSED, "()", "{}", "frozenset", "int", "datetime", "date", "engine.elements:Token", "engine.elements:OutSpeech",
    "engine.elements:ResponseStatus", "engine.errors:RealtimeException", "engine.store.documents:SessionDocument",
    "engine.store.documents:TurnDocument", "builtins:ExceptionGroup", "builtins:OSError", "builtins:UnicodeDecodeError",
    "engine.principal:Principal", "providers.openai.properties:OpenAIProperties",
])  # fmt: skip
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXTS | st.binary(max_size=4) | NAMES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$", "of", "or", "args", "with", "from", "id", "text"]), inner, max_size=4)
        | st.fixed_dictionaries({"$": NAMES, "of": inner}, optional={"or": inner})
        | st.fixed_dictionaries(
            {
                "$": NAMES,
                "of": st.fixed_dictionaries({"args": st.lists(inner, max_size=3), "with": inner, "from": inner}),
            }
        )
    ),
    max_leaves=12,
)


@given(ANYTHING)
def test_nothing_but_a_capsule_error_leaves_the_reader(data: Any) -> None:
    with suppress(CapsuleError):
        Reader().value(data)


def test_too_deep_is_a_capsule_error() -> None:
    data: Any = None
    for _ in range(100_000):
        data = [data]
    with pytest.raises(CapsuleError):
        Reader().value(data)


@pytest.mark.parametrize(
    "data",
    [
        made("engine.elements:Token", {"text": "only"}),
        made("engine.elements:ResponseStatus", "no such"),
        made("engine.store.documents:SessionDocument", {"id": 1}),
        made("datetime", "tomorrow"),
        made("int", "ten"),
        made("{}", [[[1], 2]]),
        {"$": 5},
        {"$": None},
    ],
    ids=repr,
)
def test_wrong_fields_are_told(data: Any) -> None:
    with pytest.raises(CapsuleError):
        Reader().value(data)


def test_fields_that_a_class_no_longer_has_are_let_go() -> None:
    assert Reader().value(made("engine.elements:Token", {"text": "a", "response_id": "r", "was": 1})) == Token("a", "r")
