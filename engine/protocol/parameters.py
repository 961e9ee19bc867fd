"""A connection's wishes: query parameters and `X-` headers to a typed configuration (SPEC L1; table on the protocol page).

The query wins over the header. A value that does not parse falls back to the header, when that one is valid, else to the
default, with a warning that reaches the client in `ready`. Names that are not in the table belong to somebody else and are
ignored. Warnings never repeat a value that may be a secret or a person's.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs

from engine.config import PipelineConfiguration
from engine.errors import ErrorCode, RemoteError

LOCALES = 16
"""The most locales of one connection: a browser's whole list is shorter."""
REFERENCE_CHARACTERS = 256
"""The longest device or speaker ref, configuration id and time zone; and of a key, which is a setup and a ref."""
QUERY_FIELDS = 128
"""The most fields of a query that are looked at."""

_SESSION_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_LOCALE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,7}")
_SETUP = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def parse_key(key: str) -> tuple[str, str]:
    """Setup and reference of a pipeline key: `agent:barista` is ("agent", "barista"), `realtime:` is ("realtime", "").

    Raises:
        RemoteError: `bad_element`, when it is no key.
    """
    setup, colon, reference = key.partition(":")
    if not colon or not _SETUP.fullmatch(setup) or not _is_reference(reference, least=0):
        raise RemoteError(
            ErrorCode.BAD_ELEMENT, "A pipeline key is setup:reference, for example agent:barista or realtime:."
        )
    return setup, reference


def parse_locales(text: str) -> tuple[str, ...]:
    """A list of locales, best first, separated by commas.

    Raises:
        ValueError: it is empty or too long, or one of them has not the shape of a BCP 47 tag.
    """
    locales = tuple(part.strip().replace("_", "-") for part in text.split(","))
    if len(locales) > LOCALES or not all(_LOCALE.fullmatch(locale) for locale in locales):
        raise ValueError
    return locales


def _is_reference(text: str, least: int = 1) -> bool:
    return least <= len(text) <= REFERENCE_CHARACTERS and text.isprintable()


def _reference(text: str) -> str:
    if not _is_reference(text):
        raise ValueError
    return text


def _session_id(text: str) -> str:
    if not _SESSION_ID.fullmatch(text):
        raise ValueError
    return text


def _time_zone(text: str) -> str:
    try:
        return ZoneInfo(_reference(text)).key
    except (ZoneInfoNotFoundError, OSError) as exc:  # OSError: a name that is a folder of the zone database
        raise ValueError from exc


def _rate(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 8000 <= int(text) <= 48000):
        raise ValueError
    return int(text)


def _flag(text: str) -> bool:
    lowered = text.lower()
    if lowered not in _TRUE and lowered not in _FALSE:
        raise ValueError
    return lowered in _TRUE


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError
        return text

    return parse


@attrs.frozen
class Parameter:
    """One row of the table: where a field comes from and what it may be."""

    name: str
    """In the query."""
    field: str
    parse: Callable[[str], Any]
    """Raises ValueError."""
    expected: str
    """Completes "sessionId has to be …"."""

    @property
    def header(self) -> str:
        """`sessionId` is `X-Session-ID`. Header names know no case, so this is also its lookup key, lowered."""
        return "X-" + "-".join(
            "ID" if word == "id" else word.capitalize()
            for word in re.sub("([A-Z])", r"-\1", self.name).lower().split("-")
        )


_ENCODING = _one_of("pcm16", "mulaw")
_FLAG = "true or false"
_REF = f"1 to {REFERENCE_CHARACTERS} printable characters"

PARAMETERS: tuple[Parameter, ...] = (
    Parameter("sessionId", "session_id", _session_id, "1 to 128 letters, digits or . _ ~ -"),
    Parameter("deviceRef", "device_ref", _reference, _REF),
    Parameter("speakerRef", "speaker_ref", _reference, _REF),
    Parameter("locales", "locales", parse_locales, f"at most {LOCALES} language tags such as en or cs-CZ, best first"),
    Parameter("timeZone", "time_zone", _time_zone, "an IANA time zone such as Europe/Prague"),
    Parameter("inputEncoding", "input_encoding", _ENCODING, "pcm16 or mulaw"),
    Parameter("outputEncoding", "output_encoding", _ENCODING, "pcm16 or mulaw"),
    Parameter("inputSampleRate", "input_sample_rate", _rate, "a whole number from 8000 to 48000"),
    Parameter("outputSampleRate", "output_sample_rate", _rate, "a whole number from 8000 to 48000"),
    Parameter("wire", "wire", _one_of("json", "binary"), "json or binary"),
    Parameter("textOnly", "text_only", _flag, _FLAG),
    Parameter("tokens", "tokens", _flag, _FLAG),
    Parameter("partials", "partials", _flag, _FLAG),
    Parameter("testMode", "test_mode", _flag, _FLAG),
    Parameter("noSystemPrompt", "no_system_prompt", _flag, _FLAG),
    Parameter("realtimeConfigurationId", "realtime_configuration_id", _reference, _REF),
)


def parse_configuration(query: str, headers: Iterable[tuple[str, str]], *, key: str = "") -> PipelineConfiguration:
    """The configuration of one connection.

    `query` is the raw query string; of headers and fields that come twice the first counts, except that locales add up.
    `key` comes from the path and is taken as it is.
    """
    fields, warnings = _query_fields(query)
    by_header = {parameter.header.lower(): parameter for parameter in PARAMETERS}
    header_fields: dict[str, str] = {}
    for name, value in headers:
        parameter = by_header.get(name.lower())
        if parameter is not None:
            header_fields.setdefault(parameter.name, value.strip())
    values: dict[str, Any] = {}
    for parameter in PARAMETERS:
        for source, place in ((fields, "query"), (header_fields, "header")):
            text = source.get(parameter.name)
            if text is None:
                continue
            try:
                values[parameter.field] = parameter.parse(text)
                break
            except ValueError:
                shown = parameter.name if place == "query" else parameter.header
                warnings.append(f"{shown} was ignored: it has to be {parameter.expected}.")
    return PipelineConfiguration(key=key, warnings=tuple(warnings), **values)


def _query_fields(query: str) -> tuple[Mapping[str, str], list[str]]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS)
    except ValueError:
        return {}, [f"The query was ignored: it has more than {QUERY_FIELDS} fields."]
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name == "locales" and name in fields:
            fields[name] += "," + value
        else:
            fields.setdefault(name, value)
    return fields, []
