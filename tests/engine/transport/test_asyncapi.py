"""The document of the WebSocket doors: the official parser reads it, and what it says of a connection's wishes is true."""

import json
from typing import Any, cast
from urllib.parse import quote

import pytest
from trio.testing import MockClock

from engine.config import PipelineConfiguration, Settings
from engine.errors import ErrorCode
from engine.protocol.parameters import PARAMETERS, parse_configuration
from engine.transport.asyncapi import WISHES, describe, document, wishes
from engine.transport.messages import INPUTS, OUTPUTS
from engine.transport.websocket import GOING_AWAY, NORMAL, OUR_FAULT, POLICY, TOO_BIG
from engine.transport.wire_model import examples_of
from tests.asyncapi import parser
from tests.engine.transport.stack import Recorder, open_stack

BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
NEWER_VERSION = "asyncapi-latest-version"
"""A hint of the parser's that 3.0.0 is not the newest version."""


@pytest.fixture
def described() -> Any:
    return json.loads(document())


# --- the referee -----------------------------------------------------------------------------------------------------


def test_the_official_parser_and_a_validator_of_schemas_read_it(described: Any) -> None:
    parser.install()
    broken = describe()
    broken["operations"]["session.send"]["action"] = "shout"
    del broken["components"]["schemas"]["ErrorCode"]
    samples = [(model.__name__, example) for model in (*INPUTS, *OUTPUTS) for example in examples_of(model)]
    (good, bad), fits = parser.parse(
        [document().decode(), json.dumps(broken)],
        [*(example for _, example in samples), {"type": "commits"}],
    )
    assert [diagnostic for diagnostic in good.diagnostics if diagnostic["code"] != NEWER_VERSION] == []
    messages = {model.__name__ for model in (*INPUTS, *OUTPUTS)} | {"InputFrame", "SpeechFrame"}
    assert {address: set(found) for address, found in good.channels.items()} == {
        "/api/pipeline": messages,
        "/api/pipeline/{key}": messages,
    }
    for place in ("session.send.action", "schemas.ErrorOutput"):
        assert any(place in diagnostic["path"] for diagnostic in bad.diagnostics), place  # it is not asleep
    for (name, example), found in zip(samples, fits, strict=False):
        assert name in found, example
        ways = [{model.__name__ for model in models} & set(found) for models in (INPUTS, OUTPUTS)]
        assert all(len(way) <= 1 for way in ways), f"{example} fits several"
    assert fits[-1] == []


# --- both ways ---------------------------------------------------------------------------------------------------------


def test_clients_send_inputs_and_are_sent_outputs(described: Any) -> None:
    for channel in ("session", "sessions"):
        for action, models, frame in (("receive", INPUTS, "InputFrame"), ("send", OUTPUTS, "SpeechFrame")):
            operation = described["operations"][f"{channel}.{action}"]
            names = [reference["$ref"].rpartition("/")[2] for reference in operation["messages"]]
            assert names == [*(model.__name__ for model in models), frame]


def test_every_error_code_and_close_code_is_told(described: Any) -> None:
    assert described["components"]["schemas"]["ErrorCode"]["enum"] == list(ErrorCode)
    told = described["components"]["schemas"]["ErrorOutput"]["properties"]["code"]["description"]
    assert all(f"`{code}`: " in told for code in ErrorCode)
    for channel in described["channels"].values():
        for code in (NORMAL, GOING_AWAY, POLICY, TOO_BIG, OUR_FAULT, 1013):
            assert f"{code} " in channel["description"]


def test_the_ping_is_the_one_that_is_set(described: Any) -> None:
    assert f"every {Settings().ping_seconds:g} s" in described["channels"]["session"]["description"]


def test_schemas_are_open_so_that_messages_may_grow(described: Any) -> None:
    assert '"additionalProperties":false' not in document().decode()
    assert (
        described["components"]["schemas"]["EvaluationOutput"]["properties"]["score"]["type"] == "number"
    )  # never null


# --- what a connection may wish for --------------------------------------------------------------------------------------


def test_every_wish_is_told_as_query_and_header(described: Any) -> None:
    for channel in described["channels"].values():
        binding = channel["bindings"]["ws"]
        assert list(binding["query"]["properties"]) == [parameter.name for parameter in PARAMETERS] == list(WISHES)
        assert list(binding["headers"]["properties"])[:-1] == [parameter.header for parameter in PARAMETERS]


def asked(name: str, value: object) -> tuple[Any, tuple[str, ...]]:
    """What comes of a wish, and the warnings."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    configuration = parse_configuration(f"{name}={quote(text)}", [])
    return getattr(configuration, BY_NAME[name].field), configuration.warnings


@pytest.mark.parametrize(("name", "schema"), wishes(), ids=[name for name, _ in wishes()])
def test_what_is_said_of_a_wish_is_true(name: str, schema: dict[str, Any]) -> None:
    default = getattr(PipelineConfiguration(), BY_NAME[name].field)
    if "default" in schema:
        assert asked(name, schema["default"]) == (default, ())
    else:
        assert default == ""
    fitting, wrong = values(schema)
    for value in fitting:
        assert asked(name, value)[1] == (), value
    for value in wrong:
        assert asked(name, value) == (default, (f"{name} was ignored: it has to be {BY_NAME[name].expected}.",)), value


def values(schema: dict[str, Any]) -> tuple[list[object], list[object]]:
    """Values at the edges of a schema: those that fit, and those that do not."""
    match schema:
        case {"enum": choices}:
            return cast("list[object]", choices), ["other"]
        case {"minimum": least, "maximum": most}:
            return [least, most], [least - 1, most + 1, f"{least}.5"]
        case {"type": "boolean"}:
            return [True, False], ["maybe"]
        case {"pattern": "^[A-Za-z0-9._~-]{1,128}$"}:
            return ["a", "A0._~-", "a" * 128], ["a" * 129, "a b", "ä"]
        case {"examples": examples}:
            return cast("list[object]", examples), ["?"]
        case {"maxLength": most}:
            return ["a", "a" * most], ["a" * (most + 1)]
        case _:
            raise AssertionError(f"nothing is known of {schema}")


# --- the route -----------------------------------------------------------------------------------------------------------


async def test_it_is_served(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        answer = await stack.request("/asyncapi.json")
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, "application/json", document())
