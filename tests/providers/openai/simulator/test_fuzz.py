"""Clients that do anything at any time: the service answers within its protocol, and never with an exception."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from providers.openai.simulation.checks import Json
from providers.openai.simulator import (
    Call,
    ErrorEvent,
    Failed,
    Faults,
    Format,
    Incomplete,
    Pace,
    Reply,
    Say,
    Script,
    Stall,
    Utterance,
    silence,
    tone,
)
from tests.providers.openai.simulator.service import WHISPER, Service, user

PACE = st.sampled_from([Pace(), Pace(0.05, audio_speed=2.0, delta_ms=50), Pace(0.2, 0.1, 1.0, 100)])
UTTERANCES = st.builds(
    Utterance,
    text=st.sampled_from(["", "yes", "a table for two"]),
    seconds=st.sampled_from([0.0, 0.3]),
    transcribed_after=st.sampled_from([None, 0.0, 0.5]),
    during_speech=st.booleans(),
    piece_seconds=st.sampled_from([0.0, 0.1]),
    ends=st.sampled_from([True, True, False]),
)
REPLIES = st.builds(
    Reply,
    parts=st.lists(st.one_of(st.just(Say("One two.")), st.just(Call("look", "{}"))), max_size=3),
    pace=PACE,
    ends=st.sampled_from([Reply().ends, Failed(), Incomplete()]),
    created_after=st.sampled_from([0.0, 0.0, 0.2]),
    starts_after=st.sampled_from([0.0, 0.1]),
    cancel_lag=st.sampled_from([0.0, 0.3]),
    barge_in=st.one_of(st.none(), UTTERANCES.map(lambda one: Utterance(one.text, at=0.2, seconds=one.seconds))),
    mishaps=st.lists(st.sampled_from([Stall(0.2, at=0.1), Stall(0.1), ErrorEvent(at=0.1)]), max_size=2),
)
DETECTION: list[Json | None] = [
    None,
    {"type": "server_vad"},
    {"type": "server_vad", "interrupt_response": False},
    {"type": "server_vad", "create_response": False},
    {"type": "server_vad", "idle_timeout_ms": 5000},
    {"type": "semantic_vad"},
]
MOVES = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0.01, 0.1, 1.0, 6.0])),
    st.tuples(st.just("audio"), st.sampled_from([tone(Format.PCM, 60), silence(Format.PCM, 240), b"\0", b""])),
    st.tuples(st.just("detect"), st.sampled_from(DETECTION)),
    st.tuples(st.just("format"), st.sampled_from([one.wire_name for one in Format])),
    st.tuples(st.just("say"), st.sampled_from(["hi", "there"])),
    st.tuples(st.just("respond"), st.sampled_from([{}, {"conversation": "none"}, {"output_modalities": ["text"]}])),
    st.tuples(st.just("cancel"), st.none()),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("clear"), st.none()),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("truncate"), st.tuples(st.integers(0, 5), st.sampled_from([0, 100, 9000]))),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("retrieve"), st.integers(0, 5)),
)
FAULTS = st.one_of(st.none(), st.builds(Faults, st.integers(0, 9), reorder=st.just(0.3), delay=st.just(0.1)))


def move(service: Service, what: str, given: Any) -> None:
    """Do one thing, whether or not it is right."""
    match what:
        case "wait":
            service.run(given)
        case "audio":
            service.append(given)
        case "detect":
            update(service, {"turn_detection": given})
        case "format":
            update(service, {"format": {"type": given}})
        case "say":
            service.send("conversation.item.create", item=user(given))
        case "respond":
            service.send("response.create", response=given)
        case "cancel":
            service.send("response.cancel")
        case "commit" | "clear":
            service.send(f"input_audio_buffer.{what}")
        case "answer":
            items = [item.shown for item in service.core.conversation.items]
            calls = [item["call_id"] for item in items if item["type"] == "function_call"]
            if given < len(calls):
                output = {"type": "function_call_output", "call_id": calls[given], "output": "x"}
                service.send("conversation.item.create", item=output)
        case "truncate":
            name = item_at(service, given[0])
            service.send("conversation.item.truncate", item_id=name, content_index=0, audio_end_ms=given[1])
        case _:
            service.send(f"conversation.item.{what}", item_id=item_at(service, given))


def item_at(service: Service, place: int) -> str:
    items = service.core.conversation.items
    return items[place].id if place < len(items) else "gone"


def update(service: Service, audio_input: Json) -> None:
    service.send("session.update", session={"type": "realtime", "audio": {"input": audio_input}})


@settings(max_examples=150, deadline=None)
@given(
    st.builds(Script, replies=st.lists(REPLIES, max_size=4), utterances=st.lists(UTTERANCES, max_size=3), pace=PACE),
    st.lists(MOVES, max_size=25),
    FAULTS,
)
def test_whatever_a_client_does(script: Script, moves: list[tuple[str, Any]], faults: Faults | None) -> None:
    service = Service(script, faults=faults, audio={"input": {"transcription": WHISPER}})
    detects = True
    for what, given_ in moves:
        if what == "detect":
            detects = given_ is not None
        if detects or what != "wait":
            move(service, what, given_)
        else:
            service.run(0.0)
    update(service, {"turn_detection": {"type": "semantic_vad"}})  # speech is noticed, and nobody asks whether it comes
    service.run(30)
    started = len(service.of_type("response.created"))
    assert len(service.of_type("response.done")) == started, "a response did not end"


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 2**40) | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(
        [
            ("session.update", "session"),
            ("conversation.item.create", "item"),
            ("response.create", "response"),
            ("input_audio_buffer.append", "audio"),
            ("conversation.item.truncate", "audio_end_ms"),
            ("", ""),
        ]
    ),
)
def test_whatever_a_frame_holds(value: Any, where: tuple[str, str]) -> None:
    service = Service()
    event_type, key = where
    events = service.send(event_type, **{key: value}) if event_type else service.send_raw(repr(value))
    assert len(events) <= 2 or event_type == "response.create"
    assert service.say("still there")
