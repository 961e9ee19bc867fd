"""Query and headers to a configuration: the query wins, what does not parse falls back and is told."""

from typing import Any
from urllib.parse import quote, urlencode

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import PipelineConfiguration
from engine.errors import ErrorCode, RemoteError
from engine.protocol.parameters import (
    LOCALES,
    PARAMETERS,
    QUERY_FIELDS,
    REFERENCE_CHARACTERS,
    parse_configuration,
    parse_key,
    parse_locales,
)

GOOD: list[tuple[str, str, str, Any]] = [
    # query name, header, text, value
    ("sessionId", "X-Session-ID", "S1.a_~-", "S1.a_~-"),
    ("deviceRef", "X-Device-Ref", "device 1/č", "device 1/č"),
    ("speakerRef", "X-Speaker-Ref", "s" * 256, "s" * 256),
    ("locales", "X-Locales", "cs-CZ, en ,zh-Hant-TW", ("cs-CZ", "en", "zh-Hant-TW")),
    ("timeZone", "X-Time-Zone", "Europe/Prague", "Europe/Prague"),
    ("inputEncoding", "X-Input-Encoding", "mulaw", "mulaw"),
    ("outputEncoding", "X-Output-Encoding", "mulaw", "mulaw"),
    ("inputSampleRate", "X-Input-Sample-Rate", "8000", 8000),
    ("outputSampleRate", "X-Output-Sample-Rate", "48000", 48000),
    ("wire", "X-Wire", "binary", "binary"),
    ("textOnly", "X-Text-Only", "true", True),
    ("tokens", "X-Tokens", "1", True),
    ("partials", "X-Partials", "TRUE", True),
    ("testMode", "X-Test-Mode", "yes", True),
    ("noSystemPrompt", "X-No-System-Prompt", "false", False),
    ("realtimeConfigurationId", "X-Realtime-Configuration-ID", "openai", "openai"),
]

BAD: list[tuple[str, str]] = [
    ("sessionId", ""),
    ("sessionId", "a" * 129),
    ("sessionId", "a b"),
    ("sessionId", "ž"),
    ("sessionId", "a\nb"),
    ("deviceRef", ""),
    ("deviceRef", "a" * (REFERENCE_CHARACTERS + 1)),
    ("speakerRef", "a\x00b"),
    ("locales", ""),
    ("locales", "en,,cs"),
    ("locales", "english!"),
    ("locales", "e"),
    ("locales", ",".join(["en"] * (LOCALES + 1))),
    ("timeZone", "Prague"),
    ("timeZone", "Europe"),
    ("timeZone", "../../etc/passwd"),
    ("timeZone", "/etc/passwd"),
    ("timeZone", "a\x00"),
    ("timeZone", "x" * 250),
    ("inputEncoding", "PCM16"),
    ("outputEncoding", "opus"),
    ("inputSampleRate", "7999"),
    ("inputSampleRate", "48001"),
    ("inputSampleRate", "16000.0"),
    ("inputSampleRate", "-16000"),
    ("inputSampleRate", "1_6000"),
    ("inputSampleRate", "\u0661\u0666\u0660\u0660\u0660"),
    ("outputSampleRate", "9" * 5000),
    ("wire", "xml"),
    ("textOnly", "maybe"),
    ("tokens", ""),
    ("realtimeConfigurationId", ""),
]


def field_of(name: str) -> str:
    return next(parameter.field for parameter in PARAMETERS if parameter.name == name)


def test_the_table_fills_every_field_once() -> None:
    fields = {field.name for field in attrs.fields(PipelineConfiguration)} - {"key", "warnings"}
    assert {parameter.field for parameter in PARAMETERS} == fields
    assert [(parameter.name, parameter.header) for parameter in PARAMETERS] == [row[:2] for row in GOOD]


def test_nothing_gives_the_defaults() -> None:
    assert parse_configuration("", []) == PipelineConfiguration()
    assert parse_configuration("", [], key="agent:barista") == PipelineConfiguration(key="agent:barista")


@pytest.mark.parametrize(("name", "header", "text", "value"), GOOD)
def test_query_and_header_mean_the_same(name: str, header: str, text: str, value: Any) -> None:
    expected = PipelineConfiguration(**{field_of(name): value})
    assert parse_configuration(urlencode({name: text}), []) == expected
    assert parse_configuration("", [(header, text)]) == expected
    assert parse_configuration("", [(header.lower(), f" {text} ")]) == expected


@pytest.mark.parametrize(("name", "text"), BAD)
def test_what_does_not_parse_falls_back(name: str, text: str) -> None:
    header, good, value = next(row[1:] for row in GOOD if row[0] == name)
    query = urlencode({name: text})

    alone = parse_configuration(query, [])
    assert attrs.evolve(alone, warnings=()) == PipelineConfiguration()
    (warning,) = alone.warnings
    assert warning.startswith(f"{name} was ignored: it has to be ")

    with_header = parse_configuration(query, [(header, good)])
    assert getattr(with_header, field_of(name)) == value
    assert with_header.warnings == alone.warnings

    both_bad = parse_configuration(query, [(header, text)])
    assert attrs.evolve(both_bad, warnings=()) == PipelineConfiguration()
    assert [line.split()[0] for line in both_bad.warnings] == [name, header]


def test_the_query_wins() -> None:
    found = parse_configuration(
        "outputSampleRate=8000&wire=binary", [("X-Output-Sample-Rate", "16000"), ("X-Wire", "?")]
    )
    assert found == PipelineConfiguration(output_sample_rate=8000, wire="binary")


def test_the_first_of_two_counts_and_locales_add_up() -> None:
    found = parse_configuration("sessionId=a&sessionId=b&locales=cs&locales=en", [("x-tokens", "1"), ("X-Tokens", "0")])
    assert found == PipelineConfiguration(session_id="a", locales=("cs", "en"), tokens=True)


def test_unknown_names_are_not_ours() -> None:
    assert (
        parse_configuration("a=b&SessionId=c", [("X-Forwarded-For", "d"), ("Cookie", "e")]) == PipelineConfiguration()
    )


def test_a_warning_repeats_no_secret() -> None:
    (warning,) = parse_configuration(f"deviceRef={'secret' * 100}", []).warnings
    assert "secret" not in warning


def test_a_query_without_end_is_ignored() -> None:
    found = parse_configuration("&".join(f"a{i}=b" for i in range(QUERY_FIELDS)) + "&wire=binary", [])
    assert found == PipelineConfiguration(
        warnings=(f"The query was ignored: it has more than {QUERY_FIELDS} fields.",),
    )


@given(st.text(), st.lists(st.tuples(st.sampled_from([p.header for p in PARAMETERS]), st.text())))
def test_nothing_raises(text: str, headers: list[tuple[str, str]]) -> None:
    query = "&".join(f"{parameter.name}={quote(text, errors='replace')}" for parameter in PARAMETERS)
    for found in (parse_configuration(text, headers), parse_configuration(query, headers)):
        assert found.locales
        assert 8000 <= found.input_sample_rate <= 48000


@pytest.mark.parametrize(
    ("key", "expected"),
    [("agent:barista", ("agent", "barista")), ("realtime:", ("realtime", "")), ("agent:a:b", ("agent", "a:b"))],
)
def test_a_key_is_a_setup_and_a_reference(key: str, expected: tuple[str, str]) -> None:
    assert parse_key(key) == expected


@pytest.mark.parametrize("key", ["", "agent", ":barista", "a b:c", "agent:\n", "agent:" + "a" * 300, "1:a"])
def test_what_is_no_key_says_what_a_key_is(key: str) -> None:
    with pytest.raises(RemoteError, match="setup:reference") as caught:
        parse_key(key)
    assert caught.value.code == ErrorCode.BAD_ELEMENT


def test_locales_may_be_written_with_an_underscore() -> None:
    assert parse_locales("en_US,cs") == ("en-US", "cs")
