"""A capsule as a document for its page: every lane, and whatever may be in a file."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.boundary import Note
from engine.capsule.codec import plain
from engine.capsule.file import Capsule, Kind, Record
from engine.capsule.items import Lane
from engine.capsule.loudness import Loudness
from engine.capsule.plainly import FEW
from engine.capsule.redaction import Redaction
from engine.capsule.timeline import MOST_TIME, MOST_TOLD_TEXT, timeline_of
from engine.config import PipelineConfiguration
from engine.elements import (
    Action,
    BadInput,
    InputAudio,
    InputText,
    MultimodalKind,
    OutEmotion,
    OutEvaluation,
    OutMultimodal,
    OutPartial,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    Playback,
    SpeakingState,
)
from engine.errors import ErrorCode
from engine.protocol.audio import mulaw_encode
from tests.engine.capsule.scenario import RATE, Script, cafe, lane, long_call, read_back, tone


@pytest.fixture(scope="module")
def document() -> Mapping[str, Any]:
    return timeline_of(cafe().capsule())


def item(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {each["id"]: each for items in document["lanes"].values() for each in items}
    return found[name]


def some(of: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: of[name] for name in names}


def test_what_it_was(document: Mapping[str, Any]) -> None:
    assert document["length"] == 12.5
    assert document["end"] == {"state": "whole", "why": "", "session": "ENDED", "reason": "the client ended it"}
    about = document["about"]
    assert (about["agent"], about["sessionId"], about["began"]) == ("agent:barista", "s-1", "2030-05-17T09:30:00+00:00")
    assert "seed" not in orjson.dumps(document).decode()  # whoever has it knows the ids of what follows
    assert document["summary"] == {
        "turns": 3, "responses": 3, "bargeIns": 1, "answered": 2, "latencyP50": 0.5, "latencyMax": 0.5, "passes": 2, "whispers": 1,
        "tools": 1, "errors": 1, "cancellations": 1, "userSeconds": 2.7, "agentSeconds": 6.2,
    }  # fmt: skip
    assert document["leftOut"] == {}


def test_the_user_speaks_and_types(document: Mapping[str, Any]) -> None:
    said = [(each["kind"], each["at"], each["until"], each["text"], each["turn"]) for each in lane(document, "user")]
    assert said == [
        ("said", 1.1, 2.3, "What do you have today?", "t1"),
        ("said", 4.8, 6.3, "No, I mean what is good for my cold?", "t2"),
        ("typed", 11.5, 11.5, "Thank you", "t3"),
    ]


def test_an_answer_that_is_cut_says_what_was_heard(document: Mapping[str, Any]) -> None:
    cut = item(document, "agent:r1")
    assert some(cut, "at", "until", "cutAt", "playsUntil") == {"at": 2.8, "until": 4.8, "cutAt": 4.8, "playsUntil": 6.0}
    assert some(cut, "seconds", "sentSeconds", "heardSeconds", "unsentSeconds") == {
        "seconds": 4.0, "sentSeconds": 3.2, "heardSeconds": 2.0, "unsentSeconds": 0.8,
    }  # fmt: skip
    assert (cut["outcome"], cut["reason"]) == ("cancelled", "barge-in")
    assert item(document, "agent:r3")["segments"] == [[8.6, 10.6]]
    taken_back = item(document, "cancels:1")
    assert taken_back["text"] == "0.8 s of speech taken back unsent"
    assert taken_back["id"] in cut["links"]


def test_tokens_and_sentences(document: Mapping[str, Any]) -> None:
    tokens = item(document, "tokens:r2")
    assert (tokens["times"], tokens["pieces"]) == ([6.8] * 3, ["Let ", "me ", "think. "])
    assert [(each["at"], each["until"], each["response"]) for each in lane(document, "words")] == [
        (2.8, 6.0, "r1"), (6.8, 7.8, "r2"), (8.6, 10.6, "r3"),
    ]  # fmt: skip


def test_a_turn_and_its_legs_end_for_a_reason(document: Mapping[str, Any]) -> None:
    turn = item(document, "turns:t1")
    assert some(turn, "at", "until", "outcome", "reason", "latency") == {
        "at": 2.3, "until": 4.82, "outcome": "cancelled", "reason": "barge-in", "latency": 0.5,
    }  # fmt: skip
    leg = item(document, "legs:t1 planning")
    assert some(leg, "outcome", "reason") == {"outcome": "cancelled", "reason": "barge-in"}
    cancelled = item(document, "cancels:2")
    assert some(cancelled, "scope", "reason", "turn") == {"scope": "legs", "reason": "barge-in", "turn": "t1"}
    assert cancelled["id"] in leg["links"]
    assert item(document, "legs:t1 extraction")["outcome"] == "ok"
    assert item(document, "turns:t3")["until"] is None
    assert item(document, "legs:prompt")["kind"] == "start"


def test_a_whisper_leads_from_its_pass_to_the_response_that_spoke_it(document: Mapping[str, Any]) -> None:
    whisper = item(document, "whispers:i1")
    assert some(whisper, "at", "told", "until", "outcome", "response", "pass") == {
        "at": 8.1, "told": 8.12, "until": 8.6, "outcome": "spoken", "response": "r3", "pass": "p2",
    }  # fmt: skip
    assert {"passes:t2/p2", "agent:r3", "turns:t2"} <= set(whisper["links"])
    planned, cancelled = item(document, "passes:t2/p2"), item(document, "passes:t1/p1")
    assert some(planned, "until", "outcome") == {"until": 8.2, "outcome": "planned"}
    assert some(cancelled, "until", "outcome", "reason") == {
        "until": 4.801,
        "outcome": "cancelled",
        "reason": "barge-in",
    }
    assert "cancels:2" in cancelled["links"]


def test_tools_and_calls_outside(document: Mapping[str, Any]) -> None:
    tool = item(document, "tools:c1")
    assert some(tool, "at", "until", "owner", "outcome", "text") == {
        "at": 3.0, "until": 3.4, "owner": "model", "outcome": "ok", "text": "look_up_menu",
    }  # fmt: skip
    assert tool["more"] == {"parameters": '{"day": "friday"}', "result": '{"cake": "plum"}'}
    chat = item(document, "outside:2")
    assert some(chat, "kind", "text", "at", "until", "first", "received") == {
        "kind": "chat", "text": "chat planner", "at": 6.9, "until": 8.0, "first": 8.0, "received": 1,
    }  # fmt: skip


def test_errors_and_events(document: Mapping[str, Any]) -> None:
    assert [each["text"] for each in lane(document, "events")] == [
        "the session is ready", "barge in", "chat_failed: No answer.", "the client will send nothing any more",
        "the session is over: the client ended it",
    ]  # fmt: skip


def test_what_the_model_was_told_in_its_order(document: Mapping[str, Any]) -> None:
    assert [(each["at"], each["what"]) for each in document["told"]] == [
        (0.1, "prompt"), (2.3, "UserSpeech"), (4.8, "Interrupted"), (6.3, "UserSpeech"), (8.12, "instruction"),
    ]  # fmt: skip
    assert document["told"][2]["heardMs"] == 2000
    assert document["told"][4]["whisper"] == "whispers:i1"
    assert document["responses"] == [
        {"id": "r1", "at": 2.8, "until": 4.81}, {"id": "r2", "at": 6.8, "until": 7.0}, {"id": "r3", "at": 8.6, "until": 8.9},
    ]  # fmt: skip


# --- the client's sound ------------------------------------------------------------------------------------------------


def peaks_of(document: Mapping[str, Any]) -> list[tuple[float, bytes]]:
    return [(run["at"], base64.b64decode(run["peaks"])) for run in document["loudness"]["runs"]]


def test_loudness_stands_where_it_was_spoken(document: Mapping[str, Any]) -> None:
    (first, quiet), (second, loud) = peaks_of(document)
    assert (first, second) == (1.0, 4.7)
    assert (len(quiet), len(loud)) == (24, 30)  # 50 ms each
    assert quiet[5] == pytest.approx((12000 / 32768) ** 0.5 * 255, abs=2)
    assert loud[5] > quiet[5]


def test_mulaw_is_as_loud() -> None:
    configuration = PipelineConfiguration(key="agent:x", input_encoding="mulaw", input_sample_rate=8000)
    script = Script(configuration)
    script.sends(InputAudio(mulaw_encode(tone(0.5, 12000, 8000))), 1.0)
    ((at, peaks),) = peaks_of(timeline_of(script.capsule()))
    assert (at, len(peaks)) == (0.5, 10)
    assert peaks[3] == pytest.approx((12000 / 32768) ** 0.5 * 255, abs=4)


def test_half_samples_and_silence_are_no_trouble() -> None:
    loudness = Loudness(16000)
    for number in range(5):
        loudness.add(1.0 + number / 10, b"\x01" * 3201)
    assert loudness.shown()
    assert Loudness(16000).shown() == []
    long = Loudness(16000)
    for second in range(60):
        long.add(second + 1.0, np.zeros(16000, "<i2").tobytes())
    (run,) = long.shown()
    assert len(base64.b64decode(run["peaks"])) == 1200


# --- other conversations -----------------------------------------------------------------------------------------------


def test_a_conversation_in_writing() -> None:
    script = Script(PipelineConfiguration(key="agent:x", text_only=True))
    script.sends(InputText("Hello"), 1.0)
    script.told(OutTranscript("Hello", False, False, False, "Client", "t1"))
    script.told(OutToken("Hi", "t1", "r1"), at=1.4)
    script.told(OutText("Hi.", "t1", "r1"), at=1.5)
    script.command("response-end", "t1", at=1.6, responseId="r1", status="completed")
    script.command("exit", "t1", at=1.7, saved=False)
    document = timeline_of(script.capsule())
    (answer,) = lane(document, "agent")
    assert some(answer, "kind", "at", "until", "text") == {"kind": "text", "at": 1.4, "until": 1.6, "text": "Hi."}
    assert document["summary"]["latencyP50"] == 0.4
    assert [(each["turn"], each["until"]) for each in lane(document, "turns")] == [("t1", 1.7)]  # nobody noted it
    assert lane(document, "events")[0]["text"] == "the turn was not saved in time"


def test_speech_that_runs_dry_is_in_pieces_and_sentences_stand_in_it() -> None:
    script = Script()
    script.told(OutText("One.", "t1", "r1", 0.0), at=1.0)
    script.told(OutText("Two.", "t1", "r1", 500.0))
    script.told(OutSpeech(bytes(RATE), RATE, "t1", "r1"))
    script.told(OutSpeech(bytes(RATE), RATE, "t1", "r1"), at=3.0)
    document = timeline_of(script.capsule())
    assert lane(document, "agent")[0]["segments"] == [[1.0, 1.5], [3.0, 3.5]]
    assert [(each["text"], each["at"]) for each in lane(document, "words")] == [("One.", 1.0), ("Two.", 3.0)]


def test_the_end_of_the_users_speech_counts_from_when_he_was_quiet() -> None:
    script = Script()
    script.told(OutEmotion(SpeakingState.USER_SPEAKING, {}, "t1"), at=1.0)
    script.told(OutPartial("what is", "t1"), at=1.5)
    script.told(OutEmotion(SpeakingState.USER_NOT_SPEAKING, {}, "t1"), at=2.0)
    script.heard("t1", "What is it?", 2.4)
    script.speaks("t1", "r1", "It.", 3.0, 0.5)
    document = timeline_of(script.capsule())
    (said,) = lane(document, "user")
    assert some(said, "at", "until", "quiet") == {"at": 1.0, "until": 2.4, "quiet": 2.0}
    assert document["summary"]["latencyMax"] == 1.0


def test_what_is_not_spoken_is_no_utterance_and_one_without_words_ends_with_its_turn() -> None:
    script = Script()
    script.told(OutTranscript(".", True, True, False, "Client", "t1"), at=1.0)
    script.told(OutTranscript("#intro", False, True, False, "Internal", "t1"))
    script.heard("t2", ".", 2.0, interim=True)
    script.command("exit", "t2", at=4.0, saved=True)
    script.heard("t3", ".", 5.0, interim=True)
    said = lane(timeline_of(script.capsule()), "user")
    assert [(each["kind"], each["at"], each["until"]) for each in said] == [
        ("again", 1.0, 1.0), ("said", 2.0, 4.0), ("said", 5.0, None),
    ]  # fmt: skip


def test_what_is_taken_back_at_the_end_was_no_barge_in() -> None:
    script = Script()
    script.speaks("t1", "r1", "A long story.", 1.0, 2.0, sent=1.0)
    script.put(Kind.VANISHED, at=2.0)
    script.put(Kind.CUT, "r1", "t1")
    script.speaks("t2", "r2", "Another.", 5.0, 2.0, sent=1.0)
    script.put(Kind.CUT, "r2", "t2", at=6.0)
    document = timeline_of(script.capsule())
    vanished, taken_back, nobody_knows = lane(document, "cancels")
    assert (taken_back["reason"], taken_back["links"]) == ("the client is gone", ["agent:r1", vanished["id"]])
    assert "reason" not in nobody_knows
    assert [each.get("reason") for each in lane(document, "agent")] == ["the client is gone", None]


def test_where_answers_are_spoken_one_that_never_sounded_has_no_latency() -> None:
    script = Script()
    script.heard("t1", "Hello?", 1.0)
    script.told(OutText("Yes?", "t1", "r1"), at=1.1)
    script.heard("t2", "Are you there?", 2.0)
    script.speaks("t2", "r2", "I am.", 2.8, 1.0)
    document = timeline_of(script.capsule())
    assert (document["summary"]["answered"], document["summary"]["latencyMax"]) == (1, 0.8)


def test_what_is_whispered_between_the_lines() -> None:
    """Without a word of what became of it, the response is guessed; a pass that is left behind has no plan."""
    script = Script()
    script.began("leg", "t1 planning", "planning", "t1", at=1.0)
    script.command("planning-pass", "t1", passId="a", state="began")
    script.command("planning-pass", "t1", at=1.5, passId="b", state="began")
    script.note(
        Note.TOLD,
        at=2.0,
        what="instruction",
        text="Be kind",
        type="SUPPORTING_CONTEXT",
        id="",
        pass_id="b",
        turn_id="t1",
    )
    script.speaks("t1", "r1", "Dear.", 2.5, 0.2)
    script.command("realtime-instruction-outcome", "t1", instructionId="nobody", outcome="spoken", responseId="r1")
    script.ended("leg", "t1 planning", at=3.0)
    document = timeline_of(script.capsule())
    (whisper,) = lane(document, "whispers")
    assert some(whisper, "kind", "response", "guessed") == {"kind": "context", "response": "r1", "guessed": True}
    assert "passes:t1/b" in whisper["links"]
    assert [(each["pass"], each["until"], each["outcome"]) for each in lane(document, "passes")] == [
        ("a", 1.5, "no plan"), ("b", 3.0, "no plan"),
    ]  # fmt: skip


def test_calls_fail_are_left_and_end_with_the_session() -> None:
    script = Script()
    for number, name in enumerate(("fails", "left", "open"), 1):
        script.put(Kind.BEGAN, number, "link", name, None, at=1.0)
        script.put(Kind.OPENED, number, at=1.1)
    script.put(Kind.SENT, 1, "frame", at=1.2)
    for run in (["{", 3, 300, 1], [], ["{"], ["{", "three"]):  # the last three are of no engine
        script.put(Kind.SENT, 1, run, at=1.3)
    script.put(Kind.FAILED, 1, plain(ValueError("the line is dead")), at=2.0)
    script.note(Note.CANCELLED, scope="session", reason="nothing is open any more", turn_id="", at=3.0)
    script.put(Kind.LEFT, 2)
    script.put(Kind.CUT_OFF, "taken over", plain(ValueError("elsewhere")), True, at=3.5)
    script.put(Kind.VANISHED, at=4.0)
    script.put(Kind.EVENT, {"kind": "reminder"})
    document = timeline_of(script.capsule(is_whole=False))
    fails, left, still_open = lane(document, "outside")
    assert some(fails, "outcome", "reason", "sent") == {
        "outcome": "failed",
        "reason": "ValueError: the line is dead",
        "sent": 7,
    }
    assert some(left, "outcome", "reason") == {"outcome": "left", "reason": "nothing is open any more"}
    assert still_open["until"] is None
    assert [(each["kind"], each["text"]) for each in lane(document, "cancels")] == [
        ("cancelled", "nothing is open any more"), ("cut-off", "taken over"), ("vanished", "the client is gone"),
    ]  # fmt: skip
    assert document["end"]["state"] == "cut"


def test_everything_else_the_client_sends_and_is_told() -> None:
    script = Script()
    script.sends(Action("intro", {"mood": "good"}), 0.5)
    script.sends(BadInput(ErrorCode.BAD_JSON, "no JSON"), 0.6)
    script.told(OutTranscript("#intro", False, True, False, "Client", "t1"), at=0.7)
    script.speaks("t1", "r1", "Hello.", 1.0, 1.0)
    script.sends(Playback("r1", 300), 1.5)
    script.told(OutMultimodal(MultimodalKind.CARD, "menu", {"cake": 1}, "t1"), at=1.6)
    script.told(OutEvaluation("quality", 0.5, ("fine",)), at=1.7)
    script.command("realtime-planning", "t1", text="They want cake.")
    script.command("something-new", "t1", value=1)
    script.command("tool-start", "t1", callId="c", name="bake", owner="planner", parameters={})
    script.command("tool-error", "t1", callId="c", name="bake", owner="planner", error="no oven", at=2.0)
    script.note(Note.TOLD, what="ToolSettled", text="no oven", name="bake", call_id="c", is_error=True, turn_id="t1")
    document = timeline_of(script.capsule())
    assert [each["kind"] for each in lane(document, "events")] == [
        "action",
        "unreadable",
        "card",
        "evaluation",
        "plan",
        "command",
    ]
    assert some(lane(document, "tools")[0], "outcome", "reason") == {"outcome": "failed", "reason": "no oven"}
    assert document["told"][0] == {
        "id": "told:1", "at": 2.0, "what": "ToolSettled", "text": "no oven", "turn": "t1", "name": "bake", "call": "c", "is_error": True,
        "tool": "tools:c",
    }  # fmt: skip
    assert lane(document, "user")[0]["kind"] == "again"
    assert document["summary"]["latencyP50"] is None


# --- files as they may be ----------------------------------------------------------------------------------------------


def test_a_file_that_ends_in_the_middle(tmp_path: Path) -> None:
    script = cafe()
    script.records = script.records[:200]
    script.write(tmp_path / "a.capsule", cut_bytes=5)
    capsule = attrs.evolve(read_back(script, tmp_path / "b.capsule"), is_whole=False)
    document = timeline_of(capsule)
    assert document["end"]["state"] == "cut"
    assert "ends before its session" in document["end"]["why"]
    assert timeline_of(Capsule({}, (), False))["length"] == 0.0


def test_a_file_that_was_full() -> None:
    script = Script()
    script.put(Kind.FULL, "the disk is too slow", at=7.0)
    document = timeline_of(script.capsule(is_whole=False))
    assert some(document["end"], "state", "why") == {"state": "full", "why": "the disk is too slow"}


def test_without_words_it_has_the_same_shape() -> None:
    script, redaction = cafe(), Redaction()
    script.redacted = True
    script.records = [attrs.evolve(each, fields=redaction.fields(each.kind, each.fields)) for each in script.records]
    document, before = timeline_of(script.capsule()), timeline_of(cafe().capsule())
    assert document["about"]["redacted"] is True
    text = orjson.dumps(document).decode()
    assert "ginger" not in text.lower()
    assert "espresso" not in text
    for name in set(Lane) - {Lane.PASSES, Lane.WHISPERS}:
        assert [(each["id"], each["at"], each["until"]) for each in lane(document, name)] == [
            (each["id"], each["at"], each["until"]) for each in lane(before, name)
        ]
    assert item(document, "legs:t1 planning")["reason"] == "barge-in"


def test_it_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.capsule.items.MOST_ITEMS", 20)
    monkeypatch.setattr("engine.capsule.timeline.MOST_TOLD", 10)
    monkeypatch.setattr("engine.capsule.conversation.MOST_TOKENS", 30)
    monkeypatch.setattr("engine.capsule.items.MOST_CHARACTERS", 100_000)
    monkeypatch.setattr("engine.capsule.loudness.MOST_BINS", 100)
    script = Script()
    for _ in range(25):
        script.command("noise")
    for number in range(13):
        script.note(Note.TOLD, what="Sensory", text="x" * 30_000, id=str(number))
    script.told(OutText("y" * 50_000, "t1", "r1"))
    for _ in range(37):
        script.told(OutToken("z", "t1", "r1"))
    for second in range(120):
        script.says(second + 1.0, 1.0)
    document = timeline_of(script.capsule())
    assert len(lane(document, "events")) == 20
    assert len(document["told"]) == 10
    assert [len(each["text"]) for each in document["told"]] == [MOST_TOLD_TEXT + 1] * 5 + [FEW + 1] * 5
    assert len(lane(document, "tokens")[0]["times"]) == 30
    assert document["leftOut"] == {"events": 5, "told": 3, "tokens": 7, "texts": 12}
    assert sum(len(peaks) for _, peaks in peaks_of(document)) < 100 + 1200


def test_many_minutes_are_a_small_document() -> None:
    document = timeline_of(long_call(10).capsule())
    assert document["summary"]["turns"] == 50
    assert document["summary"]["cancellations"] == 5
    assert len(orjson.dumps(document)) < 200_000


def record_of(at: float, kind: Kind, fields: Sequence[object]) -> Record:
    return Record(at, kind, tuple(fields))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["$", "of", "name", "text", "turn_id", "response_id", "kind", "id", "what", "parameters", "scope"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
KNOWN = st.sampled_from(
    [
        "OutText",
        "OutToken",
        "OutCommand",
        "OutTranscript",
        "OutEmotion",
        "OutError",
        "OutMultimodal",
        "InputText",
        "Playback",
        "Action",
    ]
).flatmap(lambda name: st.fixed_dictionaries({"$": st.just(f"engine.elements:{name}"), "of": JUNK}))
SPEECH = st.lists(JUNK, max_size=10)
NOTES = st.tuples(st.sampled_from(list(Note)), JUNK)


@settings(max_examples=60, deadline=None)
@given(
    head=st.dictionaries(st.sampled_from(["configuration", "settings", "began", "versions", "x"]), JUNK),
    records=st.lists(
        st.builds(
            record_of,
            st.floats(),
            st.sampled_from(list(Kind)),
            st.lists(JUNK | KNOWN | SPEECH, max_size=4) | NOTES,
        ),
        max_size=12,
    ),
    is_whole=st.booleans(),
)
def test_whatever_is_in_a_file_can_be_shown(head: dict[str, Any], records: list[Record], is_whole: bool) -> None:
    document = timeline_of(Capsule(head, tuple(records), is_whole))
    orjson.dumps(document)
    assert 0 <= document["length"] <= MOST_TIME
    ids = [each["id"] for items in document["lanes"].values() for each in items]
    assert len(set(ids)) == len(ids)
    for items in document["lanes"].values():
        assert [each["at"] for each in items] == sorted(each["at"] for each in items)
        for each in items:
            assert each["until"] is None or each["until"] >= each["at"]
            assert set(each.get("links", ())) <= set(ids)
