"""The client wire: frames to input elements, output elements to frames (protocol page, section 2).

Laws of this file. Whatever a client sends becomes an element or nothing, never an exception: what cannot be read becomes a
`BadInput` that keeps its place in the stream and says what to do, and never repeats what was sent. Only a `token` message can
become a control token; typed text is text, whatever it looks like. Each message to the client has exactly the keys that the
protocol page lists for it, and the optional ones only when they are set.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, assert_never, cast
from urllib.parse import parse_qsl

import attrs
import orjson
import pybase64

from engine.config import Encoding, Wire
from engine.elements import (
    Action,
    BadInput,
    Commit,
    ControlToken,
    Image,
    InputAudio,
    InputElement,
    InputText,
    JsonObject,
    OutCommand,
    OutEmotion,
    OutError,
    OutEvaluation,
    OutMultimodal,
    OutPartial,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    Playback,
    Sensory,
    SpeechCut,
)
from engine.errors import ErrorCode
from engine.protocol.audio import mulaw_encode

CONTROL_TOKENS = frozenset({"ready", "authorization", "locales", "end", "exit"})

TOKEN_CHARACTERS = 16_384
"""The longest token: an authorization with a large JWT is about half of it."""
PARAMETERS = 64
"""The most parameters of an action or token, far more than any form a person fills in."""
PARAMETER_CHARACTERS = 16_384
"""The most characters of an action's parameters, all names and values together."""
SENSORY_CHARACTERS = 65_536
"""The largest sensory message: it is kept with the session and read by prompts, so it is no place for pictures."""
ID_CHARACTERS = 128
PLAIN_DEPTH = 64
"""How deep a value is taken apart that is no plain JSON; orjson itself writes at most 254 levels."""

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
MEDIA_TYPE = re.compile(r"image/[a-z0-9][a-z0-9.+-]{0,63}")


class _MalformedError(Exception):
    """A message whose fields do not fit; the text tells the client what would."""


# --- from the client -------------------------------------------------------------------------------------------------


def decode_binary(frame: bytes) -> InputAudio | None:
    """Audio in the connection's input encoding. None for an empty frame, which is nothing."""
    return InputAudio(frame) if frame else None


def decode_text(frame: str | bytes) -> InputElement | None:
    """The element in a text frame. None when it holds nothing (audio of no bytes)."""
    try:
        message = orjson.loads(frame)
    except orjson.JSONDecodeError:  # NaN, lone surrogates and bytes that are not UTF-8 included
        return BadInput(ErrorCode.BAD_JSON, "This is not JSON. Send one JSON object in each text frame.")
    message = _object(message)
    if message is None:
        return BadInput(ErrorCode.BAD_JSON, "This is not a JSON object. Send one JSON object in each text frame.")
    kind = message.get("type")
    decode = _DECODERS.get(kind) if isinstance(kind, str) else None
    if decode is None:
        return BadInput(ErrorCode.UNKNOWN_TYPE, f'Unknown message type. "type" is one of {", ".join(_DECODERS)}.')
    try:
        element = decode(message)
        if isinstance(element, Sensory) and len(frame) > SENSORY_CHARACTERS:
            raise _MalformedError(f"A sensory message has at most {SENSORY_CHARACTERS} characters.")
    except _MalformedError as exc:
        return BadInput(ErrorCode.BAD_ELEMENT, str(exc))
    return element


def parse_token(text: str) -> InputElement:
    """A control token, or the action that `#name:form-urlencoded` asks for; `BadInput` when it is neither."""
    try:
        return _token(text)
    except _MalformedError as exc:
        return BadInput(ErrorCode.BAD_ELEMENT, str(exc))


def _token(text: str) -> ControlToken | Action:
    name, _, value = text.removeprefix("#").partition(":")
    if not text.startswith("#") or not NAME.fullmatch(name):
        raise _MalformedError('"text" of a token is #name or #name:value.')
    if len(text) > TOKEN_CHARACTERS:
        raise _MalformedError(f"A token has at most {TOKEN_CHARACTERS} characters.")
    try:
        pairs = parse_qsl(value, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS)
    except ValueError as exc:  # UnicodeDecodeError included
        raise _MalformedError(
            f"What follows the colon of a token is form-urlencoded UTF-8 of at most {PARAMETERS} fields."
        ) from exc
    parameters = dict(pairs)
    return ControlToken(name, value, parameters) if name in CONTROL_TOKENS else Action(name, parameters)


def _object(value: Any) -> JsonObject | None:
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _text_of(message: JsonObject) -> str:
    text = message.get("text")
    if not isinstance(text, str):
        raise _MalformedError(f'"text" of a {message["type"]} message is a string.')
    return text


def _data_of(message: JsonObject) -> bytes:
    data = message.get("data")
    try:
        if isinstance(data, str):
            return pybase64.b64decode(data, validate=True)
    except ValueError:  # binascii.Error included
        pass
    raise _MalformedError(f'"data" of a {message["type"]} message is a string of base64 with its padding.')


def _audio(message: JsonObject) -> InputAudio | None:
    return decode_binary(_data_of(message))


def _action(message: JsonObject) -> Action:
    name = message.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise _MalformedError('"name" of an action is a letter, then letters, digits, "_", "." or "-", 64 in all.')
    parameters = _object(message.get("parameters", {}))
    if parameters is None or len(parameters) > PARAMETERS:
        raise _MalformedError(f'"parameters" of an action is an object of at most {PARAMETERS} fields.')
    plain = {key: _parameter(value) for key, value in parameters.items()}
    if sum(len(key) + len(value) for key, value in plain.items()) > PARAMETER_CHARACTERS:
        raise _MalformedError(f"The parameters of an action have at most {PARAMETER_CHARACTERS} characters in all.")
    return Action(name, plain)


def _parameter(value: Any) -> str:
    """Parameters are strings, as in a token; anything else stays readable as JSON text: 5 is "5", true is "true"."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _image(message: JsonObject) -> Image:
    media_type = message.get("mediaType")
    if not isinstance(media_type, str) or not MEDIA_TYPE.fullmatch(media_type):
        raise _MalformedError('"mediaType" of an image is a media type such as image/jpeg.')
    data = _data_of(message)
    if not data:
        raise _MalformedError('"data" of an image is empty.')
    return Image(data, media_type)


def _sensory(message: JsonObject) -> Sensory:
    data = _object(message.get("data"))
    if data is None:
        raise _MalformedError('"data" of a sensory message is an object.')
    return Sensory(data)


def _playback(message: JsonObject) -> Playback:
    response_id, played_ms = message.get("responseId"), message.get("playedMs")
    if not isinstance(response_id, str) or not 0 < len(response_id) <= ID_CHARACTERS:
        raise _MalformedError('"responseId" of a playback report is the id of the response that is playing.')
    if isinstance(played_ms, bool) or not isinstance(played_ms, int | float) or played_ms < 0:
        raise _MalformedError('"playedMs" of a playback report is a number of milliseconds, not negative.')
    return Playback(response_id, int(played_ms))


_DECODERS: Mapping[str, Callable[[JsonObject], InputElement | None]] = {
    "audio": _audio,
    "text": lambda message: InputText(_text_of(message)),
    "token": lambda message: _token(_text_of(message)),
    "action": _action,
    "commit": lambda _: Commit(),
    "image": _image,
    "sensory": _sensory,
    "playback": _playback,
}


# --- to the client ---------------------------------------------------------------------------------------------------


def _json(message: JsonObject) -> str:
    try:
        return orjson.dumps(message).decode()
    except TypeError:  # a tool or a model gave something that is no plain JSON; the rest of the message still counts
        return orjson.dumps(_plain(message)).decode()


def _plain(value: Any, depth: int = 0) -> Any:
    """The nearest thing to a value that JSON and UTF-8 can carry."""
    match value:
        case str():
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case bool() | float() | None:
            return value
        case int():
            return value if -(2**53) < value < 2**53 else str(value)  # what a client's double can hold
        case Mapping() if depth < PLAIN_DEPTH:
            items = cast("Mapping[object, object]", value).items()
            return {_plain(str(key)): _plain(item, depth + 1) for key, item in items}
        case list() | tuple() | set() | frozenset() if depth < PLAIN_DEPTH:
            return [_plain(item, depth + 1) for item in cast("Iterable[object]", value)]
        case _:
            return _plain(str(value))


@attrs.frozen
class _SpeechFrame:
    """The JSON around the speech of one response: made once, as a response has hundreds of frames."""

    turn_id: str
    response_id: str
    sample_rate: int
    middle: str
    tail: str


@attrs.frozen
class _Run:
    """An open run of binary frames."""

    turn_id: str
    response_id: str
    sample_rate: int


@attrs.define(eq=False)
class WireEncoder:
    """What one connection is told, frame by frame; remembers the open run of the binary wire."""

    wire: Wire
    output_encoding: Encoding
    _frame: _SpeechFrame = attrs.field(default=_SpeechFrame("", "", 0, "", ""), init=False)
    _run: _Run | None = attrs.field(default=None, init=False)

    def encode(self, element: OutputElement) -> list[str | bytes]:
        """The frames of an element, in order: `str` for text frames, `bytes` for binary ones; often one, sometimes none."""
        match element:
            case OutSpeech():
                return self._binary_speech(element) if self.wire == "binary" else [self._json_speech(element)]
            case SpeechCut(response_id=response_id):
                is_open = self._run is not None and self._run.response_id == response_id
                return self._end_run(cancelled=True) if is_open else []
            case _:
                return [_json(_message(element))]

    def _encoded(self, pcm: bytes) -> bytes:
        return mulaw_encode(pcm) if self.output_encoding == "mulaw" else pcm

    def _json_speech(self, element: OutSpeech) -> str:
        frame = self._frame
        if (
            element.response_id != frame.response_id
            or element.turn_id != frame.turn_id
            or element.sample_rate != frame.sample_rate
        ):
            frame = self._frame = self._new_frame(element)
        extras = ""
        if element.visemes:
            extras = f',"visemes":{_json_list(element.visemes)}'
        if element.blend_shape_weights:
            extras += f',"blendShapeWeights":{_json_list(element.blend_shape_weights)}'
        data = pybase64.b64encode_as_string(self._encoded(element.data))
        is_last = "true" if element.is_last else "false"
        return f'{{"type":"speech","data":"{data}{frame.middle}{is_last}{extras}{frame.tail}'

    def _new_frame(self, element: OutSpeech) -> _SpeechFrame:
        ids = _json({"turnId": element.turn_id, "responseId": element.response_id})
        middle = f'","encoding":"{self.output_encoding}","sampleRate":{element.sample_rate},"isLast":'
        return _SpeechFrame(element.turn_id, element.response_id, element.sample_rate, middle, "," + ids[1:])

    def _binary_speech(self, element: OutSpeech) -> list[str | bytes]:
        frames: list[str | bytes] = []
        run = self._run
        if run is not None and (run.response_id != element.response_id or run.sample_rate != element.sample_rate):
            frames += self._end_run(cancelled=False)
        if element.data:
            if self._run is None:
                self._run = _Run(element.turn_id, element.response_id, element.sample_rate)
                frames.append(
                    _json(
                        {
                            "type": "speech-start",
                            "encoding": self.output_encoding,
                            "sampleRate": element.sample_rate,
                            "turnId": element.turn_id,
                            "responseId": element.response_id,
                        }
                    )
                )
            frames.append(self._encoded(element.data))
        if element.is_last:
            frames += self._end_run(cancelled=False)
        return frames

    def _end_run(self, *, cancelled: bool) -> list[str | bytes]:
        run, self._run = self._run, None
        if run is None:
            return []
        return [
            _json(
                {
                    "type": "speech-end",
                    "cancelled": cancelled,
                    "turnId": run.turn_id,
                    "responseId": run.response_id,
                }
            )
        ]


def _json_list(items: Sequence[Mapping[str, Any]]) -> str:
    return _json({"": items})[4:-1]


def _message(
    element: (
        OutTranscript
        | OutPartial
        | OutToken
        | OutText
        | OutCommand
        | OutMultimodal
        | OutEmotion
        | OutEvaluation
        | OutError
    ),
) -> JsonObject:
    match element:
        case OutTranscript():
            return {
                "type": "transcript",
                "text": element.text,
                "isInterim": element.is_interim,
                "isSynthetic": element.is_synthetic,
                "isAsynchronous": element.is_asynchronous,
                "provider": element.provider,
                "turnId": element.turn_id,
            }
        case OutPartial():
            return {"type": "partial", "text": element.text, "turnId": element.turn_id}
        case OutToken():
            return {
                "type": "token",
                "text": element.text,
                "turnId": element.turn_id,
                "responseId": element.response_id,
            }
        case OutText():
            return {
                "type": "text",
                "text": element.text,
                "turnId": element.turn_id,
                "responseId": element.response_id,
            }
        case OutCommand():
            return {"type": "command", "name": element.name, "parameters": element.parameters}
        case OutMultimodal():
            return {
                "type": "multimodal",
                "kind": element.kind,
                "name": element.name,
                "data": element.data,
                "turnId": element.turn_id,
            }
        case OutEmotion():
            return {
                "type": "emotion",
                "state": element.state,
                "scores": element.scores,
                "turnId": element.turn_id,
            }
        case OutEvaluation():
            message: JsonObject = {"type": "evaluation", "name": element.name}
            if element.score is not None:
                message["score"] = element.score
            message["reasons"] = element.reasons
            if element.data is not None:
                message["data"] = element.data
            return message
        case OutError():
            return {
                "type": "error",
                "code": element.code,
                "message": element.message,
                "recoverable": element.recoverable,
                "whose": element.whose,
            }
        case _:
            assert_never(element)
