"""Records are packed some at a time; nobody can tell from the capsule."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from engine.capsule.codec import plain
from engine.capsule.file import BULK_TEXT, Kind, Packer, Record, records_of
from engine.capsule.redaction import Redaction
from engine.capsule.tape import BATCH, Tape, TapedBoundary, shown, speech
from engine.elements import OutSpeech, SpeechItem

SAID = OutSpeech(b"\x01\x02" * 480, 24000, "turn-1", "r-1", text="Yes.", visemes=({"at": 0.5},))
ITEMS = [
    SpeechItem(b"\x01\x02" * 480, 24000, "r-1", provider="P", text="Yes."),
    SpeechItem(b"", 16000, "r-1", is_last=True),
    SpeechItem(b"\x01\x02", 24000, "r-1", visemes=({"at": 0.5},), blend_shape_weights=({"jaw": 1.0}, {"jaw": 0.5})),
]


def records(tape: Tape) -> list[Record]:
    return [record for chunk in tape.chunks for record in records_of(*chunk)]


def kept(tape: Tape) -> list[tuple[Kind, Any]]:
    return [(record.kind, record.fields) for record in records(tape)]


@pytest.mark.parametrize("item", ITEMS)
def test_speech_is_kept_as_any_value_is(item: SpeechItem) -> None:
    assert speech(item) == plain(item)


async def test_each_record_has_the_time_at_which_it_was_put(autojump_clock: MockClock) -> None:
    tape = Tape(trio.current_time(), 1 << 20)
    boundary = TapedBoundary(tape, bytes(16))
    for _ in range(2 * BATCH + 3):
        boundary.took()
        boundary.told(SAID)
        await trio.sleep(0.25)
    tape.finish()
    assert kept(tape) == [(Kind.TOOK, ()), (Kind.OUT, (shown(SAID),))] * (2 * BATCH + 3)
    assert [record.at for record in records(tape)[::2]] == [0.25 * number for number in range(2 * BATCH + 3)]


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


async def test_words_are_taken_out_of_speech() -> None:
    tape = Tape(trio.current_time(), 1 << 20, Redaction())
    tape.put(Kind.OUT, SAID)
    tape.put(Kind.ITEM, 1, ITEMS[0])
    tape.finish()
    (_, (told,)), (_, (_, item)) = kept(tape)
    assert told[5:] == [0, False, "Xxx.", None]
    assert item["of"] | {"data": bytes(960), "text": "Xxx."} == item["of"]
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("field", ["x" * BULK_TEXT, {"of": {"text": "é" * BULK_TEXT}}])
def test_what_is_long_stands_in_the_bulk(field: object) -> None:
    packer = Packer()
    packer.add(1.5, Kind.EVENT, field, step=7)
    packed, bulk = packer.take()
    assert len(bulk) >= BULK_TEXT > len(packed)
    assert records_of(packed, bulk) == [Record(1.5, Kind.EVENT, (field,), 7)]
