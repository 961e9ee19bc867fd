"""A file is read as far as it is whole, whatever has happened to it."""

import struct
import zlib
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.capsule.codec import CapsuleError
from engine.capsule.file import (
    BULK_BYTES,
    BULK_TEXT,
    MAGIC,
    MAX_CHUNK,
    MAX_RECORDS,
    Capsule,
    Kind,
    Packer,
    Record,
    chunk,
    read_capsule,
    records_of,
)
from tests.engine.capsule.values import TEXTS

HEAD: dict[str, Any] = {"seed": b"s", "versions": {}}


def chunks_of(*batches: list[tuple[Any, ...]]) -> list[bytes]:
    packer, made = Packer(), list[bytes]()
    for batch in batches:
        for at, kind, *fields in batch:
            packer.add(at, kind, *fields)
        made.append(chunk(*packer.take()))
    return made


def whole() -> tuple[bytes, list[int]]:
    """A capsule, and the borders of its chunks."""
    made = chunks_of(
        [(0.0, Kind.HEAD, HEAD), (0.5, Kind.IN, bytes(range(BULK_BYTES)))],
        [(1.0, Kind.BEGAN, 1, "chat", "speaker", {"text": "é"}), (1.5, Kind.DONE, 1, bytes(BULK_BYTES))],
        [(2.0, Kind.END, "CLOSED", "")],
    )
    borders = [len(MAGIC)]
    for each in made:
        borders.append(borders[-1] + len(each))
    return MAGIC + b"".join(made), borders


def read(tmp_path: Path, data: bytes) -> Capsule:
    path = tmp_path / "a.capsule"
    path.write_bytes(data)
    return read_capsule(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("capsules")


def test_a_whole_one(tmp_path: Path) -> None:
    data, _ = whole()
    capsule = read(tmp_path, data)
    assert capsule.is_whole
    assert capsule.head == HEAD
    assert [record.kind for record in capsule.records] == [Kind.IN, Kind.BEGAN, Kind.DONE, Kind.END]
    assert capsule.records[1] == Record(1.0, Kind.BEGAN, (1, "chat", "speaker", {"text": "é"}))


def test_it_may_end_anywhere(tmp_path: Path) -> None:
    data, borders = whole()
    records = read(tmp_path, data).records
    for length in range(len(data)):
        if length < borders[1]:
            with pytest.raises(CapsuleError, match="ends before its head"):
                read(tmp_path, data[:length])
        else:
            capsule = read(tmp_path, data[:length])
            assert capsule.records == (records[:1] if length < borders[2] else records[:3])
            assert not capsule.is_whole


def test_any_bit_may_be_wrong(tmp_path: Path) -> None:
    data, borders = whole()
    records = read(tmp_path, data).records
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        if position < borders[1]:
            with pytest.raises(CapsuleError):
                read(tmp_path, bytes(damaged))
        else:
            capsule = read(tmp_path, bytes(damaged))
            assert capsule.records == (records[:1] if position < borders[2] else records[:3])
            assert not capsule.is_whole


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_anything_behind_the_magic(place: Path, data: bytes) -> None:
    with pytest.raises(CapsuleError):
        read(place, MAGIC + data)


PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(-5, 2**64 - 1) | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
    | st.sampled_from([each.value for each in Kind]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip

MANY: st.SearchStrategy[Any] = st.lists(
    st.tuples(
        st.floats(0, 9),
        st.just(0),
        st.sampled_from(["in", "item", "out", "took", "sound", "frame", "speech", "opened"]),
    ).flatmap(lambda each: st.lists(PLAIN, max_size=3).map(lambda fields: [*each, *fields])),
    max_size=3,
).map(lambda records: sum(records, [None]))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40) | st.lists(PLAIN | MANY, max_size=3).map(lambda each: b"".join(map(msgpack.packb, each))))
def test_anything_in_a_chunk_with_a_right_checksum(place: Path, records: bytes) -> None:
    try:
        capsule = read(place, MAGIC + b"".join(chunks_of([(0.0, Kind.HEAD, HEAD)])) + chunk(records, b"bulk"))
    except CapsuleError:
        return
    assert not capsule.is_whole or capsule.records[-1].kind is Kind.END


# --- what is none -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "ends before its head"),
        (b"souffleur", "ends before its head"),
        (MAGIC[:-1], "ends before its head"),
        (MAGIC, "ends before its head"),
        (b"RIFF....WAVE", "is not a session capsule"),
        (b"\n", "is not a session capsule"),
        (b"\xff" * 100, "is not a session capsule"),
        (b"souffleur capsule 3\n", "has version 3; this Souffleur reads version 1"),
        (b"souffleur capsule 10\nxxxx", "has version 10; this Souffleur reads version 1"),
        (b"souffleur capsule \xff\n", "has version \ufffd; this Souffleur reads version 1"),
    ],
)
def test_what_is_no_capsule(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(CapsuleError, match=rf"a\.capsule {says}"):
        read(tmp_path, data)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        read_capsule(tmp_path / "none.capsule")


def forged(
    records: bytes, bulk: bytes = b"", *, packed: bytes | None = None, claims: tuple[int, int] | None = None
) -> bytes:
    packed = zlib.compress(records) if packed is None else packed
    sizes = (len(packed), len(bulk)) if claims is None else claims
    return struct.pack("<III", *sizes, zlib.crc32(bulk, zlib.crc32(packed))) + packed + bulk


RECORD = msgpack.packb([1.0, 0, "took"])
DAMAGED = {
    "records that are longer than they may be": forged(bytes(MAX_RECORDS + 1)),
    "something behind the records": forged(b"", packed=zlib.compress(RECORD) + b"x"),
    "records that end early": forged(b"", packed=zlib.compress(RECORD)[:-1]),
    "no compressed records": forged(b"", packed=b"hello"),
    "no records at all": forged(b"", packed=b""),
    "half a record": forged(RECORD + RECORD[:-2]),
    "a border that is elsewhere": forged(RECORD, b"abc", claims=(len(zlib.compress(RECORD)) + 1, 2)),
    "an unknown kind": forged(msgpack.packb([1.0, 0, "what"])),
    "a kind that is none": forged(msgpack.packb([1.0, 0, []])),
    "no list": forged(msgpack.packb(5)),
    "an empty list": forged(msgpack.packb([])),
    "a field too few": forged(msgpack.packb([1.0, 0, "done", 1])),
    "a field too many": forged(msgpack.packb([1.0, 0, "took", 1])),
    "a number that is none": forged(msgpack.packb([1.0, 0, "opened", [1]])),
    "a time that is none": forged(msgpack.packb([float("nan"), 0, "took"])),
    "a time before the beginning": forged(msgpack.packb([-1.0, 0, "took"])),
    "a time without end": forged(msgpack.packb([float("inf"), 0, "took"])),
    "a step that is none": forged(msgpack.packb([1.0, None, "took"])),
    "a time in words": forged(msgpack.packb(["1.0", 0, "took"])),
    "bulk that is not there": forged(msgpack.packb([1.0, 0, "event", msgpack.ExtType(1, struct.pack("<II", 0, 9))]), b"x"),
    "bulk of a kind that is none": forged(msgpack.packb([1.0, 0, "event", msgpack.ExtType(9, struct.pack("<II", 0, 1))]), b"x"),
    "a place that is none": forged(msgpack.packb([1.0, 0, "event", msgpack.ExtType(1, b"x")])),
    "a text that is none": forged(msgpack.packb([1.0, 0, "event", msgpack.ExtType(2, struct.pack("<II", 0, 1))]), b"\xff"),
    "keys that are no names": forged(msgpack.packb([1.0, 0, "event", {1: 2}])),
    "many of a kind that is none": forged(msgpack.packb([None, 1.0, 0, {}])),
    "many that end early": forged(msgpack.packb([None, 1.0, 0, "took", 1.0, 0])),
    "many of which the last has a field too few": forged(msgpack.packb([None, 1.0, 0, "sound", 0]), b"x"),
    "many without times": forged(msgpack.packb([None, "x", 0, "took"])),
    "sound that is not there": forged(msgpack.packb([None, 1.0, 0, "sound", 0, 9]), b"x"),
    "sound before the bulk": forged(msgpack.packb([None, 1.0, 0, "sound", -1, 1]), b"x"),
    "less than no sound": forged(msgpack.packb([None, 1.0, 0, "sound", 1, -1]), b"x"),
    "sound at a place that is none": forged(msgpack.packb([None, 1.0, 0, "sound", "0", 1]), b"x"),
    "a frame that is none": forged(msgpack.packb([None, 1.0, 0, "frame", 1, 0, 1]), b"\xff"),
    "speech that is not there": forged(msgpack.packb([None, 1.0, 0, "speech", 1, 0, 9, 24000, "r", "", False, ""]), b"x"),
    "speech with a field too few": forged(msgpack.packb([None, 1.0, 0, "speech", 1, 0, 1, 24000, "r", "", False]), b"x"),
    "a frame of nobody": forged(msgpack.packb([None, 1.0, 0, "frame", "x", 0, 1]), b"x"),
    "lists in lists without end": forged(b"\x94\xcb?\xf0\x00\x00\x00\x00\x00\x00\x00\xa5event" + b"\x91" * 100_000),
}  # fmt: skip


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_chunk_that_was_made_by_somebody_else(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CapsuleError, match="is damaged in its chunk 1"):
        read(tmp_path, MAGIC + b"".join(chunks_of([(0.0, Kind.HEAD, HEAD)])) + data)


@pytest.mark.parametrize("claims", [(MAX_CHUNK, 1), (1 << 31, 1 << 31), (10**6, 0), (0, 10**6)])
def test_a_chunk_that_claims_more_than_there_is_ends_the_file(tmp_path: Path, claims: tuple[int, int]) -> None:
    first = b"".join(chunks_of([(0.0, Kind.HEAD, HEAD), (1.0, Kind.TOOK)]))
    capsule = read(tmp_path, MAGIC + first + forged(RECORD, claims=claims))
    assert (len(capsule.records), capsule.is_whole) == (1, False)


def test_many_bombs_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks that become large ones are counted by what they become."""
    monkeypatch.setattr("engine.capsule.file.MAX_READ", 1 << 20)
    first = b"".join(chunks_of([(0.0, Kind.HEAD, HEAD)]))
    bomb = forged(msgpack.packb([1.0, 0, "event", bytes(600 << 10)]))
    assert len(bomb) < 2000
    assert len(read(tmp_path, MAGIC + first + bomb).records) == 1
    with pytest.raises(CapsuleError, match="holds more than any capsule does"):
        read(tmp_path, MAGIC + first + bomb * 3)


# --- records ----------------------------------------------------------------------------------------------------------


def again(*fields: Any) -> Any:
    packer = Packer()
    for field in fields:
        packer.add(0.0, Kind.EVENT, field)
    return [record.fields[0] for record in records_of(*packer.take())]


BORDERS = st.sampled_from([BULK_BYTES - 1, BULK_BYTES, BULK_BYTES + 1, BULK_TEXT - 1, BULK_TEXT, BULK_TEXT + 1, 0, 1])
PIECES = st.sampled_from(["a", "é", "😀", "\ud800", "\0"])
LONG: st.SearchStrategy[Any] = st.tuples(PIECES, BORDERS).map(lambda long: long[0] * long[1])
SOUND: st.SearchStrategy[Any] = BORDERS.map(bytes)


@given(st.lists(st.dictionaries(TEXTS, LONG | SOUND | st.lists(LONG, max_size=2), max_size=3), max_size=4))
def test_long_and_short_come_back(values: list[dict[str, Any]]) -> None:
    assert again(*values) == values


def test_what_is_long_stands_in_the_bulk() -> None:
    for field, place in [
        (bytes(BULK_BYTES - 1), 0), (bytes(BULK_BYTES), BULK_BYTES), ("a" * (BULK_TEXT - 1), 0), ("a" * BULK_TEXT, BULK_TEXT),
        ({"a": {"b": bytes(BULK_BYTES)}}, BULK_BYTES),
    ]:  # fmt: skip
        packer = Packer()
        packer.add(0.0, Kind.EVENT, field)
        assert len(packer.take()[1]) == place


def test_a_record_that_cannot_be_kept_leaves_the_others_as_they_are() -> None:
    packer = Packer()
    packer.add(0.0, Kind.TOOK)
    for field in (object(), {"a": bytes(1000), "b": object()}, 2**64, [bytes(MAX_RECORDS)], bytes(MAX_CHUNK)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            packer.add(1.0, Kind.EVENT, field)
    deep: Any = None
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(ValueError, match="recursion"):
        packer.add(1.0, Kind.EVENT, deep)
    packer.add(2.0, Kind.EVENT, b"x" * BULK_BYTES)
    assert [record.fields for record in records_of(*packer.take())] == [(), (b"x" * BULK_BYTES,)]
    assert packer.waiting == 0


def test_a_chunk_is_nobody_else_s() -> None:
    packer = Packer()
    packer.add(0.0, Kind.EVENT, bytes(1000))
    first = packer.take()
    packer.add(0.0, Kind.EVENT, b"x" * 1000)
    assert records_of(*first)[0].fields == (bytes(1000),)
