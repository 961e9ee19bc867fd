"""Capsules without words or sound: the same shape, of which nobody can tell what was said.

Letters become x, digits become 0, sound becomes silence of the same length. Punctuation stays, so that sentences end where they did;
so do identifiers, names of tools and kinds, and numbers. In what has no fixed form, such as the arguments of a tool, its result and what
is remembered, numbers become 0 and names that are keys are masked as well. The engine can be run on such a capsule, too: it does the
same as long as nothing depended on the words themselves.

Which texts stay is a list of names of fields, and of classes in which such a name means something else. A text that stays has to look
like an identifier as well: prose does not, wherever it stands.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from engine.boundary import Note, Outside
from engine.capsule.file import Kind

KEPT_FIELDS = frozenset([
    "$", "id", "ref", "name", "kind", "type", "code", "state", "status", "phase", "owner", "role", "object", "model",
    "voice", "format", "media_type", "on_interruption", "whose", "provider", "locale", "locales", "template_id",
    "pass_id", "turn_id", "turnId", "response_id", "responseId", "call_id", "callId", "tool_call_id", "toolCallId",
    "item_id", "event_id", "previous_item_id", "session_id", "sessionId", "sampleRate", "outcome", "reason", "scope",
    "created_at", "updated_at", "createdAt", "updatedAt", "wire", "input_encoding", "output_encoding",
    "stt_provider", "key", "component", "pass", "protocol", "agent", "project_ref", "realtime_configuration_id",
    "time_zone", "what", "gender", "tools",
])  # fmt: skip
"""Whose texts are no words of a person's: what a capsule is read and told apart by."""
PEOPLE: Mapping[str, frozenset[str]] = {
    "engine.principal:Principal": frozenset({"owner", "name"}),
    "engine.principal:UserAccount": frozenset({"name"}),
    "engine.principal:Credential": frozenset({"id"}),
    "engine.store.documents:SessionDocument": frozenset({"owner"}),
    "engine.store.documents:Resource": frozenset({"id"}),
    "engine.store.documents:MemoryDocument": frozenset({"name", "scope"}),
    "engine.store.documents:Lease": frozenset({"name"}),
}
"""Fields with such a name that hold a person's name, or their own words, all the same; of agents see below."""
_AGENTS = "agents.definitions:"
_AGENT_WORDS = frozenset({"name", "role", "state", "reason", "what", "scope", "key"})
_NOTED = frozenset({"id", "name", "scope", "reason"})
"""In notes of what has happened these are the engine's own, and more than identifiers: "t1 planning", "the user speaks"."""
FREE_FIELDS = frozenset([
    "parameters", "arguments", "result", "output", "data", "body", "content", "values", "scores", "visemes",
    "blend_shape_weights", "template_variables", "metadata",
])  # fmt: skip
"""What stands there has no fixed form."""
NAMED_FIELDS = frozenset({"parameters", "arguments"})
"""Its keys are named by who made the tool."""
COMMANDS = frozenset({"engine.elements:OutCommand", "engine.elements:RealtimeCommand"})
"""Whose parameters the engine has made."""
SOUND_FIELDS = frozenset({"delta", "audio"})
"""In providers' frames: base64, when it is long and has nothing else in it."""
_URLS = frozenset({"url", "urls", "base_url"})
_REFERENCES = frozenset({"api_key", "secret", "password_hash"})
_BASE64 = re.compile(r"[A-Za-z0-9+/]{64,}={0,2}")
_IDENTIFIER = re.compile(r"[^\s,;!?<>{}\[\]\"'…]{0,200}")
_NAMED = re.compile(r"[a-z][A-Za-z0-9_]{0,39}")
_LETTER = re.compile(r"[^\W\d_]")
_DIGIT = re.compile(r"\d")
_BARE = {"datetime": "2000-01-01T00:00:00+00:00", "date": "2000-01-01", "int": "0x0"}
"""A time, a day and a number that tell nothing, as the codec writes them."""
_GROUPS = ("()", "{}", "frozenset")


def masked(text: str) -> str:
    """The same text with nothing to read in it."""
    return _DIGIT.sub("0", _LETTER.sub(lambda letter: "X" if letter[0].isupper() else "x", text))


class Redaction:
    """Takes the words out of records as they are kept; one for each tape."""

    def __init__(self) -> None:
        self._free: set[int] = set()
        """Numbers of what was asked of tools and files: whatever they give has no fixed form."""

    def fields(self, kind: Kind, fields: tuple[Any, ...]) -> tuple[Any, ...]:
        """The fields of a record of that kind."""
        match kind:
            case Kind.ITEM | Kind.SENT if isinstance(fields[1], str):
                return fields[0], _frame(fields[1])
            case Kind.SENT if isinstance(fields[1], list):  # sound: how it begins, how much it is, a checksum
                run = cast("list[object]", fields[1])
                return fields[0], [masked(str(run[0])), *run[1:3], 0]
            case Kind.ITEM | Kind.HANDED | Kind.SENT | Kind.DONE | Kind.FAILED:
                return fields[0], _free(fields[1]) if fields[0] in self._free else _known(fields[1])
            case Kind.BEGAN:
                if fields[1] in (Outside.TOOL, Outside.FILES):
                    self._free.add(fields[0])
                    return (*fields[:3], _free(fields[3]))
                return (*fields[:3], _known(fields[3]))
            case Kind.OUT if isinstance(fields[0], list):  # speech
                speech = cast("list[object]", fields[0])
                return ([*speech[:5], 0, speech[6], masked(str(speech[7])), None],)
            case Kind.NOTE:
                note = cast("dict[str, Any]", fields[1])
                own = _NOTED if fields[0] != Note.TOLD else frozenset[str]()
                kept = {key: note[key] for key in own & note.keys() if isinstance(note[key], str)}
                return fields[0], {**cast("dict[str, Any]", _known(note)), **kept}
            case Kind.HEAD:
                head = cast("dict[str, Any]", fields[0])
                persons = ("configuration", "principal")
                return ({key: _known(each) if key in persons else each for key, each in head.items()},)
            case Kind.EVENT:
                return (_event(fields[0]),)
            case Kind.CUT_OFF:
                return fields[0], _known(fields[1]), fields[2]
            case Kind.IN | Kind.OUT:
                return tuple(_known(each) for each in fields)
            case _:
                return fields


def _known(value: Any, key: str = "", words: frozenset[str] = frozenset()) -> Any:
    """What has a form that is known; `words` are the names of fields that are no identifiers here."""
    if isinstance(value, str):
        return value if key in KEPT_FIELDS and key not in words and _IDENTIFIER.fullmatch(value) else masked(value)
    if isinstance(value, bytes):
        return bytes(len(value))
    if isinstance(value, list):
        return [_known(each, key, words) for each in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    name = fields.get("$")
    if name is None:
        return _apart(
            fields, lambda each: bool(_IDENTIFIER.fullmatch(each)), lambda each: _field(each, fields[each], words)
        )
    if name in _GROUPS:
        return {**fields, "of": _known(fields.get("of"), key, words)}
    return _object(fields, str(name))


def _field(key: str, value: Any, words: frozenset[str]) -> Any:
    if key in FREE_FIELDS:
        return _free_text(value, key) if isinstance(value, str) else _free(value, is_named=key in NAMED_FIELDS)
    if isinstance(value, str) and key in SOUND_FIELDS and _BASE64.fullmatch(value):
        sound = value.rstrip("=")
        return "A" * len(sound) + value[len(sound) :]
    return _known(value, key, words)


def _free_text(text: str, key: str) -> str:
    """The engine reads the arguments of a tool, so that they stay JSON."""
    if key == "arguments" and text[:1] in ("{", "["):
        try:
            return json.dumps(_free(json.loads(text), is_named=True), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return masked(text)


def _object(value: dict[str, Any], name: str) -> Any:
    """An enum, a time or a number stands under its class's name as it is; of others the fields."""
    of: Any = value.get("of")
    if not isinstance(of, dict):
        return value
    fields = cast("dict[str, Any]", of)
    if name.startswith("providers.") and name.endswith("Properties"):
        return value  # of an operator's
    words = _AGENT_WORDS if name.startswith(_AGENTS) else PEOPLE.get(name, frozenset())
    if fields.keys() == {"args", "with", "from"}:
        made: dict[str, Any] = {each: _known(found, "", _AGENT_WORDS) for each, found in fields.items()}
        return {**value, "of": {**made, "with": _known(fields["with"], "", frozenset({"reason", "name", "key"}))}}
    made = dict[str, Any]()
    for key, found in fields.items():
        if name.startswith(_AGENTS) and key in _URLS | _REFERENCES:
            made[key] = _reference(found, "https://x.invalid" if key in _URLS else "env:X")
        elif key == "parameters" and name in COMMANDS:
            made[key] = _known(found)
        elif key == "end_reason":
            made[key] = found
        else:
            made[key] = _field(key, found, words)
    return {**value, "of": made}


def _reference(value: Any, instead: str) -> Any:
    if isinstance(value, list):
        return [instead for _ in cast("list[object]", value)]
    return instead if isinstance(value, str) else value


def _free(value: Any, *, is_named: bool = False) -> Any:
    """What has no fixed form: nothing stays but the form it has."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, bytes):
        return bytes(len(value))
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return type(value)(0)
    if isinstance(value, list):
        return [_free(each, is_named=is_named) for each in cast("list[object]", value)]
    fields = cast("dict[str, Any]", value)
    name = fields.get("$")
    if name is None:
        return _free_map(fields, is_named=is_named)
    if name in _GROUPS:
        return {"$": name, "of": _free(fields.get("of"), is_named=is_named)}
    return {"$": name, "of": _BARE[name]} if name in _BARE else _object(fields, str(name))


def _free_map(fields: dict[str, Any], *, is_named: bool) -> dict[str, Any]:
    return _apart(
        fields,
        lambda key: is_named and _NAMED.fullmatch(key) is not None,
        lambda key: _free(fields[key], is_named=is_named),
    )


def _apart(fields: Mapping[str, Any], is_kept: Callable[[str], bool], of: Callable[[str], Any]) -> dict[str, Any]:
    """A map whose keys are masked, or kept; those that are the same by then are told apart."""
    made: dict[str, Any] = {}
    for key in fields:
        short = key if is_kept(key) else masked(key)
        while short in made:
            short += "x"
        made[short] = of(key)
    return made


def _event(event: object) -> Any:
    """A chat event, which is of whoever sent it; what kind it is decides who reads it."""
    made = _free(event, is_named=True)
    if isinstance(event, dict):
        kind = cast("dict[str, Any]", event).get("type")
        return {**made, "type": _known(kind, "type")} if isinstance(kind, str) else made
    return made


def _frame(frame: str) -> str:
    """A provider's, which is JSON; else it is words."""
    try:
        found = json.loads(frame)
    except (ValueError, RecursionError):
        return masked(frame)
    return json.dumps(_known(found), ensure_ascii=False) if isinstance(found, dict | list) else masked(frame)
