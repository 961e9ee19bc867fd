"""No letter and no digit of what a person has said is anywhere in a redacted capsule."""

import base64
import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from trio.testing import MockClock

from agents.definitions import BasicAgent, LLMConfiguration, ModelConfiguration, RelationalAgent, TestAgent, Webhook
from engine.boundary import Note, Outlet, Outside
from engine.capsule.codec import Reader, plain
from engine.capsule.file import Kind, Record, records_of
from engine.capsule.keeper import MemoryCapsules
from engine.capsule.redaction import Redaction, masked
from engine.capsule.tape import Tape, TapedBoundary
from engine.config import PipelineConfiguration
from engine.elements import Action, ControlToken, InputAudio, OutCommand, OutSpeech, ToolEvent, ToolPhase
from engine.errors import ErrorCode, RealtimeException, RemoteError
from engine.interfaces import ChatToolCall, ToolError, ToolResult
from engine.principal import AccessRole, Principal, UserAccount
from engine.store.documents import MemoryDocument, Resource, ResourceKind, SessionDocument, ToolRecord, TurnDocument
from providers.link import LinkClosedError
from tests.engine.capsule.values import DOCUMENTS, ELEMENTS, models_of, values_of

MARK = "Zuzana Quixada 77317731"
"""In whatever is a person's."""
TRACES = re.compile(r"zuzana|quixada|77317", re.IGNORECASE)
NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def redacted(kind: Kind, *fields: Any) -> tuple[Any, ...]:
    return Redaction().fields(kind, fields)


def told(value: object) -> Any:
    return redacted(Kind.DONE, 1, plain(value))[1]


@given(st.text())
def test_no_sign_that_can_be_read_is_left(text: str) -> None:
    found = masked(text)
    assert len(found) == len(text)
    assert set(found) <= {"x", "X", "0"} | {sign for sign in text if not sign.isalnum()}


def test_sentences_end_where_they_did() -> None:
    assert masked("Ahoj, Žofie! Ve 20:30? ½ 人 x²") == "Xxxx, Xxxxx! Xx 00:00? x x xx"


# --- values of every kind ---------------------------------------------------------------------------------------------


def marked(value: Any) -> Any:
    """With a mark in place of every text."""
    if isinstance(value, str) and type(value) is str:
        return MARK
    if isinstance(value, list | tuple):
        each_marked = [marked(each) for each in cast("list[Any]", value)]
        return each_marked if isinstance(value, list) else tuple(each_marked)
    if type(value) is dict:
        items = cast("dict[str, Any]", value).values()
        return {f"{MARK} {number}": marked(each) for number, each in enumerate(items)}
    if attrs.has(cast("type[object]", type(value))):
        fields = attrs.fields(cast("Any", type(value)))
        return attrs.evolve(
            value, **{field.alias or field.name: marked(getattr(value, field.name)) for field in fields}
        )
    if isinstance(value, BaseModel):
        return value.model_copy(update={key: marked(each) for key, each in value if key != "end_reason"})
    return value


@settings(max_examples=150, deadline=None)
@given(st.one_of([*map(values_of, ELEMENTS), *map(models_of, DOCUMENTS)]))
def test_no_field_of_any_kind_keeps_words(value: Any) -> None:
    found = told(marked(value))
    assert not TRACES.search(repr(found))
    assert found["$"] == plain(value)["$"]


def kind_of(value: object) -> str:
    return type(value).__name__


ADDRESS = "zuzana@quixada.example"
NAME = "Zuzana"


@pytest.mark.parametrize(
    "value",
    [
        Principal(f"user:{NAME}", NAME, NAME, ADDRESS),
        UserAccount(NAME, AccessRole.OWNER, email=ADDRESS),
        SessionDocument(
            id="s1", owner=f"user:{NAME}", user_id=NAME, user_name=NAME, user_email=ADDRESS, rating_text=NAME,
            created_at=NOW, updated_at=NOW,
        ),
        Resource(kind=ResourceKind.USER, id=NAME, body={NAME: NAME, "name": NAME, "n": 77317731}, created_at=NOW, updated_at=NOW),
        MemoryDocument(
            id="m1", scope=f"user:{NAME}", name=NAME, body={"name": NAME, "zuzana": [{"ref": NAME}]}, created_at=NOW
        ),
        BasicAgent(
            type="basic", ref="a", name=NAME, realtime_configuration_id="r", prompt=NAME, purpose=NAME,
            template_variables={NAME: NAME}, pre_session_webhook=Webhook(url=f"https://{NAME}.example", secret=f"env:{NAME}"),
        ),
        RelationalAgent(
            type="relational", ref="a", name=NAME, realtime_configuration_id="r", business_process_steps=NAME,
            llm_configuration=LLMConfiguration(summary=ModelConfiguration(api_key=f"env:{NAME}", model="m")),
        ),
        TestAgent(type="test", ref="a", name=NAME, realtime_configuration_id="r", role=NAME, scenario=NAME, vision=NAME),
        ToolEvent(ToolPhase.START, "c1", "book", parameters={"name": NAME, "id": NAME, "phone": 77317731, NAME: [NAME]}),
        ToolResult({"name": NAME, "zuzana": 77317731, "type": NAME, "ref": [NAME]}),
        ToolRecord(call_id="c1", name="book", parameters={"name": NAME}, result={"id": NAME, "status": NAME}),
        ChatToolCall("c1", "book", json.dumps({"name": NAME, "n": 77317731, NAME: {"ref": NAME}})),
        ChatToolCall("c1", "book", '{"name": "Zuzana'),
        ToolError(NAME), KeyError(NAME), RealtimeException(ErrorCode.CHAT_FAILED, NAME), LinkClosedError(1000, NAME),
        ExceptionGroup(NAME, [ValueError(NAME, {"name": NAME})]),
    ],
    ids=kind_of,
)  # fmt: skip
def test_a_name_is_no_identifier_where_it_is_a_person_s(value: object) -> None:
    found = told(value)
    assert not TRACES.search(repr(found))
    copy = Reader().value(found)
    assert type(copy) is type(value), "and it can still be read"


def test_identifiers_kinds_counts_and_times_stay() -> None:
    turn = TurnDocument(id="t-1", session_id="s-1", index=3, started_at=NOW)
    assert Reader().value(told(turn)) == turn
    event = ToolEvent(
        ToolPhase.SUCCESS, "c-1", "book_table", response_id="r-1", parameters={"people": 2}, result={"ok": True}
    )
    assert Reader().value(told(event)) == attrs.evolve(event, parameters={"people": 0}, result={"xx": True})
    ready = OutCommand("ready", {"sessionId": "s-1", "turnId": "t-1", "sampleRate": 24000, "greeting": "Ahoj!"}, "t-1")
    assert Reader().value(told(ready)) == attrs.evolve(ready, parameters={**ready.parameters, "greeting": "Xxxx!"})


def test_keys_stay_apart() -> None:
    assert told(ToolResult({"Ann": 1, "Eve": 2, "Bob": 3}))["of"]["output"] == {"Xxx": 0, "Xxxx": 0, "Xxxxx": 0}


# --- providers' frames ------------------------------------------------------------------------------------------------


def test_frames_of_a_provider() -> None:
    sound = base64.b64encode(b"Zuzana Quixada 77317731" * 20).decode()
    frames: list[dict[str, Any]] = [
        {
            "type": "response.output_audio.delta",
            "response_id": "r_1",
            "item_id": "i_1",
            "output_index": 0,
            "delta": sound,
        },
        {"type": "response.output_audio_transcript.delta", "item_id": "i_1", "delta": f" {NAME},"},
        {"type": "response.output_audio_transcript.done", "transcript": MARK},
        {
            "type": "response.function_call_arguments.done",
            "name": "book",
            "arguments": json.dumps({"day": MARK, NAME: 77317731}),
        },
        {"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c", "output": MARK}},
        {
            "type": "conversation.item.create",
            "item": {"role": "user", "content": [{"type": "input_text", "text": MARK}]},
        },
        {"type": "session.update", "session": {"instructions": MARK, "tools": [{"name": "book", "description": MARK}]}},
        {"type": "error", "error": {"code": "x_y", "message": MARK}},
    ]
    for frame in frames:
        for kind in (Kind.ITEM, Kind.SENT):
            found = json.loads(redacted(kind, 1, json.dumps(frame))[1])
            assert not TRACES.search(json.dumps(found))
            assert (found["type"], found.keys()) == (frame["type"], frame.keys())
    found = json.loads(redacted(Kind.ITEM, 1, json.dumps(frames[0]))[1])
    assert base64.b64decode(found["delta"]) == bytes(23 * 20)
    assert {**found, "delta": sound} == frames[0]
    arguments = json.loads(json.loads(redacted(Kind.ITEM, 1, json.dumps(frames[3]))[1])["arguments"])
    assert arguments == {"day": "Xxxxxx Xxxxxxx 00000000", "Xxxxxx": 0}
    assert redacted(Kind.SENT, 1, [f'{{"name":"{NAME}', 3, 300, 12345]) == (1, [masked(f'{{"name":"{NAME}'), 3, 300, 0])
    for other in ("[" * 10_000, f"{NAME} {{", f'"{NAME}"', "77317731", ""):
        assert redacted(Kind.ITEM, 1, other) == (1, masked(other))


# --- a whole session --------------------------------------------------------------------------------------------------


@contextmanager
def everything(boundary: Any) -> Generator[None]:
    configuration = PipelineConfiguration(key="agent:a", warnings=(MARK,))
    boundary.received(InputAudio(MARK.encode() * 20))
    boundary.received(Action("rating", {MARK: MARK}))
    boundary.received(ControlToken("locales", MARK, {MARK: MARK}))
    boundary.told(OutSpeech(MARK.encode() * 20, 24000, "t", "r", text=MARK, visemes=({MARK: MARK, "name": NAME},)))
    boundary.told(OutCommand("x", {"text": MARK, "data": {"name": NAME}, "parameters": {"name": NAME}}))
    boundary.note(Note.TOLD, {"what": "prompt", "text": MARK, "parameters": {"name": NAME}, "turn_id": "t"})
    boundary.note(Note.CANCELLED, {"scope": "the answer", "reason": "the user speaks", "turn_id": "t"})
    boundary.event({"type": "message", "name": NAME, "text": MARK, "n": 77317731, NAME: [NAME]})
    boundary.cut_off("taken over", RemoteError(ErrorCode.FORBIDDEN, MARK), is_taken_over=True)
    boundary.know(Outside.CHAT, "speaker", lambda: configuration)
    yield
    boundary.ended("CLOSED", "end")


async def test_a_whole_session(autojump_clock: MockClock) -> None:
    capsules = MemoryCapsules(redacts=True)
    about = {
        "configuration": PipelineConfiguration(key="agent:a", warnings=(MARK,)),
        "principal": Principal(f"user:{NAME}", NAME, NAME, ADDRESS),
        "mode": "CONVERSATION",
        "settings": {"max_sessions": 7},
        "began": NOW,
    }

    async def book() -> dict[str, Any]:
        await trio.sleep(1)
        return {"name": NAME, "zuzana": 77317731, "ref": NAME}

    async def model(to: Outlet[Any]) -> None:
        await to.items.send({"text": MARK})
        to.hand(ChatToolCall("c", "book", json.dumps({"name": NAME})))

    async with capsules.keep(about) as boundary:
        with everything(boundary):
            await boundary.ask(Outside.TOOL, "book", book, {"name": NAME})
            send, receive = trio.open_memory_channel[Any](1)
            with send, receive:
                await boundary.produce(Outside.MODEL, "m", Outlet(send), model, MARK)
    (capsule,) = capsules.capsules
    assert not TRACES.search(repr(capsule))
    assert capsule.is_whole
    assert capsule.head["redacted"] is True
    assert capsule.head["settings"] == {"max_sessions": 7}
    assert Reader().value(capsule.head["began"]) == NOW
    kinds = [record.kind for record in capsule.records]
    assert {Kind.IN, Kind.OUT, Kind.HANDED, Kind.CUT_OFF, Kind.EVENT, Kind.NOTE, Kind.ITEM} < set(kinds)
    notes = [record.fields for record in capsule.records if record.kind is Kind.NOTE]
    assert notes[1][1] == {"scope": "the answer", "reason": "the user speaks", "turn_id": "t"}
    (event,) = [record.fields[0] for record in capsule.records if record.kind is Kind.EVENT]
    assert event["type"] == "message"
    assert [record.fields for record in capsule.records if record.kind is Kind.DONE][1] == (
        2,
        {"xxxx": "Xxxxxx", "xxxxxx": 0, "xxx": "Xxxxxx"},
    )


async def test_the_bytes_of_a_redacted_file_have_no_words(autojump_clock: MockClock) -> None:
    boundary = TapedBoundary(Tape(trio.current_time(), 1 << 20, Redaction()), bytes(16))
    with everything(boundary):
        await trio.lowlevel.checkpoint()
    boundary.tape.finish()
    raw = b"".join(data + bulk for data, bulk in boundary.tape.chunks)
    assert not TRACES.search(raw.decode("latin-1"))
    records: list[Record] = [record for chunk in boundary.tape.chunks for record in records_of(*chunk)]
    assert records[0].fields == (bytes(len(MARK) * 20),)
