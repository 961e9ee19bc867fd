"""What passes most often is packed many at a time; nobody can tell from the capsule."""

import json
from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.capsule.codec import plain
from engine.capsule.file import BULK_TEXT, MANY, MANY_BYTES, MAX_QUICK, Kind, Packer, Record, records_of
from engine.capsule.redaction import Redaction
from engine.capsule.tape import Tape, TapedBoundary, shown
from engine.elements import InputAudio, OutSpeech, SpeechItem, Token

SAID = OutSpeech(b"\x01\x02" * 480, 24000, "turn-1", "r-1", text="Yes.", visemes=({"at": 0.5},))
PLAIN = OutSpeech(b"\x01\x02" * 480, 24000, "turn-1", "r-1", text="Yes.")
ITEMS = [
    SpeechItem(b"\x01\x02" * 480, 24000, "r-1", provider="P", text="Yes."),
    SpeechItem(b"", 16000, "r-1", is_last=True),
    SpeechItem(b"\x01\x02", 24000, "r-1", visemes=({"at": 0.5},), blend_shape_weights=({"jaw": 1.0}, {"jaw": 0.5})),
    SpeechItem(b"\x01\x02", 24000, "r-1", blend_shape_weights=({"jaw": 1.0},)),
]


def records(tape: Tape) -> list[Record]:
    return [record for chunk in tape.chunks for record in records_of(*chunk)]


def kept(tape: Tape) -> list[tuple[Kind, Any]]:
    return [(record.kind, record.fields) for record in records(tape)]


async def test_each_record_has_the_time_at_which_it_was_put(autojump_clock: MockClock) -> None:
    tape = Tape(trio.current_time(), 1 << 20)
    boundary = TapedBoundary(tape, bytes(16))
    for _ in range(MANY):
        boundary.took()
        boundary.told(SAID)
        await trio.sleep(0.25)
    tape.finish()
    assert kept(tape) == [(Kind.TOOK, ()), (Kind.OUT, (shown(SAID),))] * MANY
    assert [record.at for record in records(tape)[::2]] == [0.25 * number for number in range(MANY)]


async def test_a_value_that_cannot_be_kept_ends_the_tape_where_it_stands(caplog: pytest.LogCaptureFixture) -> None:
    tape = Tape(trio.current_time(), 1 << 20)
    tape.put(Kind.VANISHED)
    tape.put(Kind.EVENT, object())
    tape.put(Kind.VANISHED)
    tape.finish()
    tape.put(Kind.VANISHED)
    tape.finish()
    assert kept(tape) == [(Kind.VANISHED, ()), (Kind.FULL, ("something could not be kept",))]
    assert "a record of kind event could not be kept: TypeError" in caplog.text
    await trio.lowlevel.checkpoint()


class Unreadable(dict[str, Any]):
    def items(self) -> Any:
        raise OSError("gone")


@pytest.mark.parametrize("end", [Tape.flush, Tape.finish])
async def test_a_note_that_cannot_be_kept_ends_the_tape_where_it_stands(
    end: Callable[[Tape], None], caplog: pytest.LogCaptureFixture
) -> None:
    tape = Tape(trio.current_time(), 1 << 20)
    tape.took()
    tape.note("began", {"id": "1"})
    tape.note("began", Unreadable(a=1))
    tape.took()
    end(tape)
    tape.finish()
    assert kept(tape) == [
        (Kind.TOOK, ()), (Kind.NOTE, ("began", {"id": "1"})), (Kind.FULL, ("something could not be kept",)),
    ]  # fmt: skip
    assert "a record of kind any could not be kept: OSError" in caplog.text
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("value", [["x" * 1000] * 17_000, "x" * (50 << 20)])
async def test_notes_that_are_too_large_end_the_tape(value: object, caplog: pytest.LogCaptureFixture) -> None:
    tape = Tape(trio.current_time(), 1 << 30)
    tape.put(Kind.VANISHED)
    tape.note("began", {"id": value})
    tape.finish()
    assert kept(tape) == [(Kind.VANISHED, ()), (Kind.FULL, ("something could not be kept",))]
    assert "could not be kept: ValueError" in caplog.text
    await trio.lowlevel.checkpoint()


def put_another(tape: Tape) -> None:
    tape.put(Kind.VANISHED)


@pytest.mark.parametrize("end", [Tape.flush, Tape.finish, put_another])
async def test_speech_that_cannot_be_kept_ends_the_tape_too(
    end: Callable[[Tape], None], caplog: pytest.LogCaptureFixture
) -> None:
    tape = Tape(trio.current_time(), 1 << 20)
    tape.put(Kind.VANISHED)
    tape.told(attrs.evolve(PLAIN, sample_rate=cast("int", object())))
    end(tape)
    tape.finish()
    assert kept(tape) == [(Kind.VANISHED, ()), (Kind.FULL, ("something could not be kept",))]
    assert "could not be kept: TypeError" in caplog.text
    await trio.lowlevel.checkpoint()


async def test_words_are_taken_out_of_speech() -> None:
    tape = Tape(trio.current_time(), 1 << 20, Redaction())
    boundary = TapedBoundary(tape, bytes(16))
    boundary.received(InputAudio(b"\x01\x02" * 480))
    boundary.told(SAID)
    boundary.told(attrs.evolve(SAID, visemes=(), text="No."))
    tape.item(1, ITEMS[0])
    tape.frame(2, json.dumps({"type": "x", "transcript": "Hello. " * 200}))
    tape.finish()
    (_, (heard,)), (_, (said,)), (_, (told,)), (_, (_, item)), (_, (_, frame)) = kept(tape)
    assert heard == bytes(960)
    assert said[5:] == [0, False, "Xxx.", None]
    assert told[5:] == [0, False, "Xx.", None]
    assert item["of"] | {"data": bytes(960), "text": "Xxx."} == item["of"]
    assert json.loads(frame) == {"type": "x", "transcript": "Xxxxx. " * 200}
    await trio.lowlevel.checkpoint()


QUICK: list[tuple[str, Callable[[Tape], None], Kind, tuple[Any, ...]]] = [
    ("sound", lambda tape: tape.received(InputAudio(b"\x01\x02")), Kind.IN, (b"\x01\x02",)),
    ("no sound", lambda tape: tape.received(InputAudio(b"")), Kind.IN, (b"",)),
    ("a frame", lambda tape: tape.frame(3, "é" * BULK_TEXT), Kind.ITEM, (3, "é" * BULK_TEXT)),
    ("a short frame", lambda tape: tape.frame(3, "{}"), Kind.ITEM, (3, "{}")),
    ("half a character", lambda tape: tape.frame(3, "\ud800" * BULK_TEXT), Kind.ITEM, (3, "\ud800" * BULK_TEXT)),
    ("a longer frame", lambda tape: tape.frame(3, "a" * MAX_QUICK), Kind.ITEM, (3, "a" * MAX_QUICK)),
    ("too long a frame", lambda tape: tape.frame(3, "a" * (MAX_QUICK + 1)), Kind.ITEM, (3, "a" * (MAX_QUICK + 1))),
    ("much sound", lambda tape: tape.received(InputAudio(bytes(MAX_QUICK + 1))), Kind.IN, (bytes(MAX_QUICK + 1),)),
    ("speech", lambda tape: tape.told(SAID), Kind.OUT, (shown(SAID),)),
    ("plain speech", lambda tape: tape.told(PLAIN), Kind.OUT, (shown(PLAIN),)),
    ("a model's speech", lambda tape: tape.item(4, ITEMS[0]), Kind.ITEM, (4, plain(ITEMS[0]))),
    ("the end of it", lambda tape: tape.item(4, ITEMS[1]), Kind.ITEM, (4, plain(ITEMS[1]))),
    ("speech with a face", lambda tape: tape.item(4, ITEMS[2]), Kind.ITEM, (4, plain(ITEMS[2]))),
    ("speech with weights", lambda tape: tape.item(4, ITEMS[3]), Kind.ITEM, (4, plain(ITEMS[3]))),
    ("a model's word", lambda tape: tape.item(4, Token("Hi", "r-1")), Kind.ITEM, (4, plain(Token("Hi", "r-1")))),
    ("an element that is taken", lambda tape: tape.took(), Kind.TOOK, ()),
    ("a run of sound", lambda tape: tape.sent(3, ["{", 2, 2000, 7]), Kind.SENT, (3, ["{", 2, 2000, 7])),
    ("a frame that is sent", lambda tape: tape.sent(3, "{}"), Kind.SENT, (3, "{}")),
    ("any", lambda tape: tape.put(Kind.BEGAN, 1, "chat", "x", None), Kind.BEGAN, (1, "chat", "x", None)),
]


async def test_whatever_order_they_come_in_they_stay_in_it() -> None:
    tape, expected = Tape(trio.current_time(), 1 << 30, most_waiting=1000), list[tuple[Kind, Any]]()
    for _, one, kind, fields in QUICK:
        for _, other, of_other, its_fields in QUICK:
            one(tape)
            other(tape)
            expected += [(kind, fields), (of_other, its_fields)]
    tape.finish()
    assert kept(tape) == expected
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(("one", "kind", "fields"), [each[1:] for each in QUICK], ids=[each[0] for each in QUICK])
async def test_one_alone_is_handed_over(one: Callable[[Tape], None], kind: Kind, fields: tuple[Any, ...]) -> None:
    tape = Tape(trio.current_time(), 1 << 30)
    tape.flush()
    one(tape)
    tape.flush()
    assert kept(tape) == [(kind, fields)]
    tape.finish()
    one(tape)
    tape.finish()
    assert kept(tape) == [(kind, fields)]
    await trio.lowlevel.checkpoint()


async def test_large_frames_are_handed_over_before_there_are_many() -> None:
    tape = Tape(trio.current_time(), 1 << 30)
    tape.frame(1, "a" * (MANY_BYTES // 2))
    assert not tape.chunks
    for _ in range(2):
        tape.frame(1, "a" * (MANY_BYTES // 2))
    assert len(tape.chunks) == 1
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("field", ["x" * BULK_TEXT, {"of": {"text": "é" * BULK_TEXT}}])
def test_what_is_long_stands_in_the_bulk(field: object) -> None:
    packer = Packer()
    packer.add(1.5, Kind.EVENT, field, step=7)
    packed, bulk = packer.take()
    assert len(bulk) >= BULK_TEXT > len(packed)
    assert records_of(packed, bulk) == [Record(1.5, Kind.EVENT, (field,), 7)]
