"""Frames to elements and back, to the letter of the protocol page."""

import base64
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.elements import (
    Action,
    BadInput,
    Commit,
    ControlToken,
    Image,
    InputAudio,
    InputElement,
    InputText,
    MultimodalKind,
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
    SpeakingState,
    SpeechCut,
)
from engine.errors import ErrorCode, Whose
from engine.protocol.audio import mulaw_encode
from engine.protocol.wire import (
    PARAMETER_CHARACTERS,
    PARAMETERS,
    SENSORY_CHARACTERS,
    TOKEN_CHARACTERS,
    WireEncoder,
    decode_binary,
    decode_text,
    parse_token,
)

# --- from the client -------------------------------------------------------------------------------------------------


def frame(**message: Any) -> str:
    return json.dumps(message)


GOOD: list[tuple[str, InputElement]] = [
    (frame(type="audio", data="AAEC"), InputAudio(b"\x00\x01\x02")),
    (frame(type="text", text="two coffees please"), InputText("two coffees please")),
    (frame(type="text", text="#exit"), InputText("#exit")),
    (frame(type="text", text=""), InputText("")),
    (frame(type="text", text="a", later="addition"), InputText("a")),
    (
        frame(type="token", text="#ready:key=agent:barista&sessionId=S1"),
        ControlToken("ready", "key=agent:barista&sessionId=S1", {"key": "agent:barista", "sessionId": "S1"}),
    ),
    (
        frame(type="token", text="#authorization:Bearer a.b.c"),
        ControlToken("authorization", "Bearer a.b.c", {"Bearer a.b.c": ""}),
    ),
    (frame(type="token", text="#locales:cs,en"), ControlToken("locales", "cs,en", {"cs,en": ""})),
    (frame(type="token", text="#end"), ControlToken("end")),
    (frame(type="token", text="#exit"), ControlToken("exit")),
    (frame(type="token", text="#intro"), Action("intro")),
    (frame(type="token", text="#rating:value=5&text=a%26b+c"), Action("rating", {"value": "5", "text": "a&b c"})),
    (frame(type="action", name="intro"), Action("intro")),
    (frame(type="action", name="exit"), Action("exit")),
    (
        frame(type="action", name="rating", parameters={"value": 5, "text": "ok", "x": True, "y": None, "z": [1, "a"]}),
        Action("rating", {"value": "5", "text": "ok", "x": "true", "y": "null", "z": '[1,"a"]'}),
    ),
    (frame(type="commit"), Commit()),
    (frame(type="image", mediaType="image/svg+xml", data="AA=="), Image(b"\x00", "image/svg+xml")),
    (frame(type="sensory", data={"light": [1, {"a": None}]}), Sensory({"light": [1, {"a": None}]})),
    (frame(type="playback", responseId="r1", playedMs=1240), Playback("r1", 1240)),
    (frame(type="playback", responseId="r1", playedMs=1240.9), Playback("r1", 1240)),
]


@pytest.mark.parametrize(("text", "element"), GOOD)
def test_what_a_client_may_send(text: str, element: InputElement) -> None:
    assert decode_text(text) == element
    assert decode_text(text.encode()) == element


def test_nothing_is_nothing() -> None:
    assert decode_binary(b"") is None
    assert decode_binary(b"a") == InputAudio(b"a")
    assert decode_text(frame(type="audio", data="")) is None


BAD: list[tuple[str | bytes, ErrorCode]] = [
    ("", ErrorCode.BAD_JSON),
    ("{", ErrorCode.BAD_JSON),
    (b"\xff\xfe", ErrorCode.BAD_JSON),
    ("[" * 100_000, ErrorCode.BAD_JSON),
    ('{"type":"text","text":NaN}', ErrorCode.BAD_JSON),
    ('{"type":"playback","responseId":"r","playedMs":Infinity}', ErrorCode.BAD_JSON),
    ('{"type":"playback","responseId":"r","playedMs":1e999}', ErrorCode.BAD_JSON),
    ('{"type":"text","text":"\\ud800"}', ErrorCode.BAD_JSON),
    ('{"type":"text"} {}', ErrorCode.BAD_JSON),
    ("[]", ErrorCode.BAD_JSON),
    ('"#exit"', ErrorCode.BAD_JSON),
    ("null", ErrorCode.BAD_JSON),
    ("{}", ErrorCode.UNKNOWN_TYPE),
    (frame(type="speech"), ErrorCode.UNKNOWN_TYPE),
    (frame(type=["text"]), ErrorCode.UNKNOWN_TYPE),
    (frame(type="Text", text="a"), ErrorCode.UNKNOWN_TYPE),
    (frame(type="audio"), ErrorCode.BAD_ELEMENT),
    (frame(type="audio", data=5), ErrorCode.BAD_ELEMENT),
    (frame(type="audio", data="AAE"), ErrorCode.BAD_ELEMENT),
    (frame(type="audio", data="A A="), ErrorCode.BAD_ELEMENT),
    (frame(type="audio", data="é==="), ErrorCode.BAD_ELEMENT),
    (frame(type="text"), ErrorCode.BAD_ELEMENT),
    (frame(type="text", text=None), ErrorCode.BAD_ELEMENT),
    (frame(type="token"), ErrorCode.BAD_ELEMENT),
    (frame(type="token", text="exit"), ErrorCode.BAD_ELEMENT),
    (frame(type="token", text="#"), ErrorCode.BAD_ELEMENT),
    (frame(type="token", text="##exit"), ErrorCode.BAD_ELEMENT),
    (frame(type="token", text="#1"), ErrorCode.BAD_ELEMENT),
    (frame(type="token", text="#ex it"), ErrorCode.BAD_ELEMENT),
    (frame(type="token", text="#" + "a" * 65), ErrorCode.BAD_ELEMENT),
    (frame(type="token", text="#rating:value=%ff"), ErrorCode.BAD_ELEMENT),
    (frame(type="token", text="#rating:" + "a=b&" * (PARAMETERS + 1)), ErrorCode.BAD_ELEMENT),
    (frame(type="token", text="#rating:" + "a" * TOKEN_CHARACTERS), ErrorCode.BAD_ELEMENT),
    (frame(type="action"), ErrorCode.BAD_ELEMENT),
    (frame(type="action", name="#intro"), ErrorCode.BAD_ELEMENT),
    (frame(type="action", name="intro", parameters=[]), ErrorCode.BAD_ELEMENT),
    (
        frame(type="action", name="intro", parameters={str(i): 1 for i in range(PARAMETERS + 1)}),
        ErrorCode.BAD_ELEMENT,
    ),
    (frame(type="action", name="intro", parameters={"a": "b" * PARAMETER_CHARACTERS}), ErrorCode.BAD_ELEMENT),
    (frame(type="image", data="AA=="), ErrorCode.BAD_ELEMENT),
    (frame(type="image", mediaType="text/html", data="AA=="), ErrorCode.BAD_ELEMENT),
    (frame(type="image", mediaType="image/png", data=""), ErrorCode.BAD_ELEMENT),
    (frame(type="image", mediaType="image/png", data="data:,"), ErrorCode.BAD_ELEMENT),
    (frame(type="sensory"), ErrorCode.BAD_ELEMENT),
    (frame(type="sensory", data=[1]), ErrorCode.BAD_ELEMENT),
    (frame(type="sensory", data={"a": "b" * SENSORY_CHARACTERS}), ErrorCode.BAD_ELEMENT),
    (frame(type="playback", playedMs=1), ErrorCode.BAD_ELEMENT),
    (frame(type="playback", responseId="", playedMs=1), ErrorCode.BAD_ELEMENT),
    (frame(type="playback", responseId="r" * 129, playedMs=1), ErrorCode.BAD_ELEMENT),
    (frame(type="playback", responseId="r", playedMs=-1), ErrorCode.BAD_ELEMENT),
    (frame(type="playback", responseId="r", playedMs="1"), ErrorCode.BAD_ELEMENT),
    (frame(type="playback", responseId="r", playedMs=True), ErrorCode.BAD_ELEMENT),
]


@pytest.mark.parametrize(("text", "code"), BAD)
def test_what_cannot_be_read_says_what_to_do(text: str | bytes, code: ErrorCode) -> None:
    element = decode_text(text)
    assert isinstance(element, BadInput)
    assert element.code == code
    assert element.message.endswith(".")
    assert len(element.message) < 200


def test_a_bad_token_is_no_exception_either() -> None:
    assert parse_token("#end") == ControlToken("end")
    assert isinstance(parse_token("end"), BadInput)


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    assert decode_text(data) is None or isinstance(decode_text(data), get_args(InputElement))
    assert decode_binary(data) == (InputAudio(data) if data else None)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_KEYS = ["type", "text", "data", "name", "parameters", "mediaType", "responseId", "playedMs"]
_TYPES = ["audio", "text", "token", "action", "commit", "image", "sensory", "playback"]


@given(st.sampled_from(_TYPES), st.dictionaries(st.sampled_from(_KEYS), _VALUES))
def test_no_message_raises(kind: str, message: dict[str, Any]) -> None:
    element = decode_text(json.dumps({**message, "type": kind}))
    assert element is None or isinstance(element, get_args(InputElement))


@given(st.text())
def test_typed_text_is_never_a_token(text: str) -> None:
    element = decode_text(json.dumps({"type": "text", "text": "#exit" + text}, ensure_ascii=False).encode())
    assert element == InputText("#exit" + text)


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=5))
def test_parameters_survive_the_form_encoding(parameters: dict[str, str]) -> None:
    from urllib.parse import urlencode

    assert parse_token("#rating:" + urlencode(parameters)) == Action("rating", parameters)


# --- to the client ---------------------------------------------------------------------------------------------------


def speech(data: bytes = b"\x01\x02", response: str = "r1", *, is_last: bool = False, **more: Any) -> OutSpeech:
    return OutSpeech(data, 24000, "t1", response, is_last=is_last, **more)


def sent(encoder: WireEncoder, *elements: OutputElement) -> list[Any]:
    """Text frames parsed, binary ones as they are."""
    frames = [frame for element in elements for frame in encoder.encode(element)]
    return [json.loads(frame) if isinstance(frame, str) else frame for frame in frames]


MESSAGES: dict[type, list[tuple[OutputElement, list[dict[str, Any]]]]] = {
    OutTranscript: [
        (
            OutTranscript("hi", True, False, False, "Local", "t1"),
            [
                {
                    "type": "transcript",
                    "text": "hi",
                    "isInterim": True,
                    "isSynthetic": False,
                    "isAsynchronous": False,
                    "provider": "Local",
                    "turnId": "t1",
                }
            ],
        )
    ],
    OutPartial: [(OutPartial("hi", "t1"), [{"type": "partial", "text": "hi", "turnId": "t1"}])],
    OutToken: [
        (OutToken("hi", "t1", "r1"), [{"type": "token", "text": "hi", "turnId": "t1", "responseId": "r1"}]),
    ],
    OutText: [
        (OutText("Hi.", "t1", "r1"), [{"type": "text", "text": "Hi.", "turnId": "t1", "responseId": "r1"}]),
    ],
    OutSpeech: [
        (
            speech(b"\x01\x02\x03\x04"),
            [
                {
                    "type": "speech",
                    "data": "AQIDBA==",
                    "encoding": "pcm16",
                    "sampleRate": 24000,
                    "isLast": False,
                    "turnId": "t1",
                    "responseId": "r1",
                }
            ],
        ),
        (
            speech(b"", is_last=True, visemes=({"id": 1},), blend_shape_weights=({"jaw": 0.5}, {"jaw": 0.25})),
            [
                {
                    "type": "speech",
                    "data": "",
                    "encoding": "pcm16",
                    "sampleRate": 24000,
                    "isLast": True,
                    "visemes": [{"id": 1}],
                    "blendShapeWeights": [{"jaw": 0.5}, {"jaw": 0.25}],
                    "turnId": "t1",
                    "responseId": "r1",
                }
            ],
        ),
    ],
    SpeechCut: [(SpeechCut("t1", "r1"), [])],
    OutCommand: [
        (
            OutCommand("response-end", {"turnId": "t1", "responseId": "r1", "status": "completed"}, "t1"),
            [
                {
                    "type": "command",
                    "name": "response-end",
                    "parameters": {"turnId": "t1", "responseId": "r1", "status": "completed"},
                }
            ],
        )
    ],
    OutMultimodal: [
        (
            OutMultimodal(MultimodalKind.CARD, "menu", {"a": 1}, "t1"),
            [{"type": "multimodal", "kind": "card", "name": "menu", "data": {"a": 1}, "turnId": "t1"}],
        )
    ],
    OutEmotion: [
        (
            OutEmotion(SpeakingState.USER_SPEAKING, {}, "t1"),
            [{"type": "emotion", "state": "userSpeaking", "scores": {}, "turnId": "t1"}],
        ),
        (
            OutEmotion(None, {"joy": 0.5}, ""),
            [{"type": "emotion", "state": None, "scores": {"joy": 0.5}, "turnId": ""}],
        ),
    ],
    OutEvaluation: [
        (OutEvaluation("polite"), [{"type": "evaluation", "name": "polite", "reasons": []}]),
        (
            OutEvaluation("polite", 0.0, ("a", "b"), {}),
            [{"type": "evaluation", "name": "polite", "score": 0.0, "reasons": ["a", "b"], "data": {}}],
        ),
    ],
    OutError: [
        (
            OutError(ErrorCode.QUOTA, "Used up.", False, Whose.SERVER),
            [{"type": "error", "code": "quota", "message": "Used up.", "recoverable": False, "whose": "server"}],
        )
    ],
}


@pytest.mark.parametrize("element_class", get_args(OutputElement))
def test_each_output_element_has_its_message(element_class: type) -> None:
    for element, messages in MESSAGES[element_class]:
        found = sent(WireEncoder("json", "pcm16"), element)
        assert found == messages
        assert [list(message) for message in found] == [list(message) for message in messages]  # the page's order too


@given(st.text(), st.text(), st.binary(max_size=64), st.sampled_from([8000, 16000, 24000]), st.booleans())
def test_fast_speech_is_what_json_would_be(turn: str, response: str, data: bytes, rate: int, is_last: bool) -> None:
    encoder = WireEncoder("json", "pcm16")
    for chunk in (data, data * 2):
        (text,) = encoder.encode(OutSpeech(chunk, rate, turn, response, is_last))
        assert isinstance(text, str)
        assert json.loads(text) == {
            "type": "speech",
            "data": base64.b64encode(chunk).decode(),
            "encoding": "pcm16",
            "sampleRate": rate,
            "isLast": is_last,
            "turnId": turn,
            "responseId": response,
        }


def test_speech_of_two_responses_keeps_their_ids_apart() -> None:
    found = sent(WireEncoder("json", "pcm16"), speech(response="r1"), speech(response="r2"), speech(response="r1"))
    assert [message["responseId"] for message in found] == ["r1", "r2", "r1"]


def test_speech_can_be_mulaw_on_both_wires() -> None:
    pcm = bytes(range(64))
    (message,) = sent(WireEncoder("json", "mulaw"), speech(pcm))
    assert base64.b64decode(message["data"]) == mulaw_encode(pcm)
    assert message["encoding"] == "mulaw"
    start, data = sent(WireEncoder("binary", "mulaw"), speech(pcm))
    assert start["encoding"] == "mulaw"
    assert data == mulaw_encode(pcm)


START = {"type": "speech-start", "encoding": "pcm16", "sampleRate": 24000, "turnId": "t1", "responseId": "r1"}
END = {"type": "speech-end", "cancelled": False, "turnId": "t1", "responseId": "r1"}
CUT = {**END, "cancelled": True}
A, B = b"\x01\x02", b"\x03\x04"


def test_a_run_has_a_start_and_an_end() -> None:
    binary = WireEncoder("binary", "pcm16")
    found = sent(binary, speech(A), OutToken("a", "t1", "r1"), speech(B, is_last=True))
    assert found == [START, A, {"type": "token", "text": "a", "turnId": "t1", "responseId": "r1"}, B, END]
    assert list(found[0]) == list(START)
    assert list(found[-1]) == list(END)
    assert sent(binary, SpeechCut("t1", "r1")) == []


def test_the_last_frame_may_be_empty() -> None:
    binary = WireEncoder("binary", "pcm16")
    assert sent(binary, speech(A), speech(b"", is_last=True)) == [START, A, END]
    assert sent(binary, speech(b"", is_last=True)) == []


def test_an_empty_frame_opens_no_run() -> None:
    assert sent(WireEncoder("binary", "pcm16"), speech(b""), speech(A)) == [START, A]


def test_a_cut_ends_the_open_run_as_cancelled() -> None:
    binary = WireEncoder("binary", "pcm16")
    assert sent(binary, SpeechCut("t1", "r1"), speech(A), SpeechCut("t1", "r1"), SpeechCut("t1", "r1")) == [
        START,
        A,
        CUT,
    ]


def test_a_cut_of_another_response_leaves_the_run_open() -> None:
    binary = WireEncoder("binary", "pcm16")
    assert sent(binary, speech(A), SpeechCut("t1", "r0"), speech(B, is_last=True)) == [START, A, B, END]


def test_a_run_ends_before_another_response_begins() -> None:
    start2, end2 = {**START, "responseId": "r2"}, {**END, "responseId": "r2"}
    binary = WireEncoder("binary", "pcm16")
    assert sent(binary, speech(A), speech(B, "r2", is_last=True)) == [START, A, END, start2, B, end2]
    # what comes late of the first says only that it is over, which was said
    assert sent(binary, speech(b"", "r1", is_last=True)) == []


@given(st.lists(st.tuples(st.sampled_from(["r1", "r2"]), st.binary(max_size=2), st.booleans(), st.booleans())))
def test_runs_never_overlap_and_lose_nothing(script: list[tuple[str, bytes, bool, bool]]) -> None:
    encoder = WireEncoder("binary", "pcm16")
    open_response: str | None = None
    heard: list[tuple[str | None, bytes]] = []
    for response, data, is_last, is_cut in script:
        element = SpeechCut("t1", response) if is_cut else speech(data, response, is_last=is_last)
        for item in sent(encoder, element):
            if isinstance(item, bytes):
                heard.append((open_response, item))
            elif item["type"] == "speech-start":
                assert open_response is None
                open_response = item["responseId"]
            else:
                assert item["responseId"] == open_response
                assert item["cancelled"] is is_cut
                open_response = None
    assert heard == [(response, data) for response, data, _, is_cut in script if data and not is_cut]


# --- what is no plain JSON -------------------------------------------------------------------------------------------


class Odd:
    def __str__(self) -> str:
        return "odd"


def parameters_sent(parameters: Mapping[str, Any]) -> Any:
    (message,) = sent(WireEncoder("json", "pcm16"), OutCommand("tool-success", parameters))
    return message["parameters"]


def test_what_a_tool_gave_is_told_as_well_as_json_can() -> None:
    assert parameters_sent(MappingProxyType({"a": (1, 2)})) == {"a": [1, 2]}
    assert parameters_sent({"a": "x\ud800y", "b": {1: 2**70}, "c": 5, "d": None, "e": True, "f": Odd()}) == {
        "a": "x\ufffdy",
        "b": {"1": str(2**70)},
        "c": 5,
        "d": None,
        "e": True,
        "f": "odd",
    }
    assert parameters_sent({"a": {1, 2}, "b": float("nan"), "c": b"x"}) == {"a": [1, 2], "b": None, "c": "b'x'"}


def test_a_bottomless_value_ends_somewhere() -> None:
    bottomless: dict[str, Any] = {}
    bottomless["a"] = bottomless
    assert "a" in parameters_sent(bottomless)


@given(st.dictionaries(st.text(), _VALUES))
def test_every_parameter_is_sent(parameters: dict[str, Any]) -> None:
    assert isinstance(parameters_sent(parameters), dict)


@given(st.text(st.characters()))  # lone surrogates too
def test_every_text_is_sent(text: str) -> None:
    for element in (OutText(text, "t", "r"), OutError(ErrorCode.INTERNAL, text, True, Whose.SERVER)):
        (out,) = WireEncoder("json", "pcm16").encode(element)
        assert isinstance(out, str)
        out.encode()
