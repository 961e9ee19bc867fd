"""The file of a capsule: a line that says what it is, then chunks, each of them whole or not there.

    souffleur capsule 1\\n
    chunk: length of the records, of the bulk (uint32, little endian), CRC-32 of both
           the records: MessagePack, in the format of zlib
           the bulk: what does not get shorter by it, such as sound, as it is

A record is a list: seconds since the beginning, the pass of Trio's loop it was made in, its kind, and fields of that kind. The first
one is the head. Long bytes and texts stand in the bulk of the same chunk, and their place and length in the record. Most of what
passes stands one behind the other in lists that begin with null; sound of the client, frames of a connection and speech of a model
are two numbers there, their place and their length. A file that ends in the middle of a chunk, as after a crash or a cut, is read up
to there.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

import attrs
import msgpack

from engine.capsule.codec import CapsuleError

VERSION = 1
MAGIC = f"souffleur capsule {VERSION}\n".encode()
SUFFIX = ".capsule"
_ANY_MAGIC = b"souffleur capsule "

BULK_BYTES = 192
"""Bytes and texts from this length on stand in the bulk; speech always does."""
BULK_TEXT = 1024
"""Texts are worth compressing; those of this length are sound in disguise, in the frames of some providers: 20 ms are 1300 characters
of base64, which take 30 µs to compress, and get shorter by a quarter."""
MANY = 300
"""Numbers and texts in one list of records: some 64 of them, half a second of a conversation. Packed one by one they would each find the
processor's caches cold, and make them so for the conversation."""
MANY_BYTES = 248 << 10
"""Of bulk, by when whoever makes a chunk has to look how much is waiting."""
MAX_QUICK = 1 << 20
"""Bytes of sound or characters of a frame that may be taken without a look at their length."""
MAX_CHUNK = 64 << 20
"""More than a chunk ever is: a reader need not believe more."""
MAX_RECORDS = 16 << 20
"""Bytes of one chunk's records before they were compressed: what is made of them takes many times as much room."""
MAX_READ = 512 << 20
"""Bytes of all records and all bulk of a file: many times what is ever kept of one session."""
LEVEL = 1

_HEAD = struct.Struct("<III")
_PLACE = struct.Struct("<II")
_BYTES, _TEXT = 1, 2


class Kind(StrEnum):
    """What a record tells. Behind the time and the kind come these fields."""

    HEAD = "head"
    """A map; see `engine.capsule.tape.head`."""
    IN = "in"
    """The client's element, as plain data."""
    END_OF_INPUT = "eoi"
    """The client will send nothing any more."""
    VANISHED = "vanished"
    """The client is gone: the session was cancelled."""
    CUT_OFF = "cutoff"
    """The session was ended from outside: reason, error."""
    OUT = "out"
    """What the session told its client, as plain data; of speech its length, and a checksum instead of the sound."""
    CUT = "cut"
    """A barge-in took back what was unsent: response, turn."""
    TOOK = "took"
    """The door took so many elements to send them."""
    BEGAN = "began"
    """Something outside was asked or opened: number, kind, name, what was asked."""
    OPENED = "opened"
    """It is open: number."""
    ITEM = "item"
    """It gave something: number, value."""
    HANDED = "handed"
    """It gave something beside its channel: number, value."""
    SENT = "sent"
    """It was sent something: number, frame, or a run of them (`engine.capsule.outgoing`)."""
    DONE = "done"
    """It is over: number, value (of an answer)."""
    FAILED = "failed"
    """It is over: number, exception."""
    LEFT = "left"
    """It is over, as nobody waits for it any more: number."""
    CLOSED = "closed"
    """What was open is closed, whether or not it had ended before: number."""
    EVENT = "event"
    """A chat event for the session: the event."""
    NOTE = "note"
    """What follows from the rest, for its reader: its name (`engine.boundary.Note`), a map."""
    END = "end"
    """The session is over: its state and reason."""
    FULL = "full"
    """Nothing more was kept: why."""


_SHAPES: Mapping[Kind, tuple[type, ...]] = {
    Kind.HEAD: (dict,), Kind.IN: (object,), Kind.END_OF_INPUT: (), Kind.VANISHED: (), Kind.CUT_OFF: (str, object, bool),
    Kind.OUT: (object,), Kind.CUT: (str, str), Kind.TOOK: (), Kind.BEGAN: (int, str, str, object), Kind.OPENED: (int,),
    Kind.ITEM: (int, object), Kind.HANDED: (int, object), Kind.SENT: (int, object), Kind.DONE: (int, object),
    Kind.FAILED: (int, object), Kind.LEFT: (int,), Kind.CLOSED: (int,), Kind.EVENT: (object,), Kind.NOTE: (str, dict), Kind.END: (str, str),
    Kind.FULL: (str,),
}  # fmt: skip
"""The fields of each, as whoever reads them takes for granted."""
_WIDTHS: Mapping[str, int] = {
    **{kind.value: len(shape) for kind, shape in _SHAPES.items()},
    "sound": 2,
    "frame": 3,
    "speech": 8,
}
"""How many fields each has in a list of many: an `IN` of sound, and an `ITEM` that is a connection's frame or a model's speech, have names
of their own there, and say where they stand in the bulk and how long they are."""
_BARE: Mapping[str, Any] = {"visemes": {"$": "()", "of": []}, "blend_shape_weights": {"$": "()", "of": []}}
"""What such speech has none of."""
_SPEECH = "sample_rate", "response_id", "provider", "is_last", "text"


@attrs.frozen
class Record:
    at: float
    """Seconds since the capsule began."""
    kind: Kind
    fields: tuple[Any, ...]
    """Plain data; `engine.capsule.codec` makes values of it."""
    step: int = 0
    """The pass of Trio's loop in which it was made; 0 where nobody counted. What is ready runs once in a pass, so that the distance
    says what can have happened in between."""


class Packer:
    """Makes chunks of records. Not thread-safe; a chunk it has given is nobody's but the taker's."""

    def __init__(self) -> None:
        self._packer = msgpack.Packer(
            strict_types=True, autoreset=True, use_bin_type=True, unicode_errors="surrogatepass"
        )
        self.many: list[Any] = [None]
        """Records that are packed together, as they will stand in one list."""
        self.raw: list[tuple[int, int, Callable[[Any], Any]]] = []
        """Which of these are not plain data yet: where their record begins in that list, where they stand, what makes plain data of
        them."""
        self.bulk = BytesIO()
        """What those say they have in here has to be written as well, where it stands. All three stay the same objects, and this one its
        memory: growing it would cost more than what is written."""
        self._records = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes that no chunk has taken yet. Raises whatever making plain data of one of the many raises, which stand in it up to there,
        or TypeError or ValueError: one is no plain data, or they are larger than a chunk may be; they are lost."""
        self._pack_many()
        return len(self._records) + self.bulk.tell()

    def add(self, at: float, kind: Kind, *fields: Any, step: int = 0) -> None:
        """Take one record. `fields` are plain data.

        Raises:
            TypeError: a field is not.
            ValueError: there is too much of it, or it is nested too deeply.
        """
        self._pack_many()
        before = self.bulk.tell()
        try:
            record = [at, step, kind.value, *fields]  # an enum's members are no plain texts
            packed = self._packer.pack(record)
            if len(packed) >= BULK_BYTES:  # there may be something long in it
                packed = self._packer.pack([self._short(each) for each in record])
            if len(self._records) + len(packed) > MAX_RECORDS or self.bulk.tell() > MAX_CHUNK - MAX_RECORDS:
                raise ValueError("a record is larger than a chunk may be")
        except Exception:
            self.bulk.seek(before)
            raise
        self._records += packed

    def _pack_many(self) -> None:
        if len(self.many) > 1:
            many, raw = self.many.copy(), self.raw.copy()
            del self.many[1:]
            self.raw.clear()
            before = self.bulk.tell()
            for start, place, keep in raw:
                try:
                    many[place] = self._short(keep(many[place]))
                except Exception:
                    self._records += self._packer.pack(many[:start])
                    raise
            packed = self._packer.pack(many)
            if len(self._records) + len(packed) > MAX_RECORDS or self.bulk.tell() > MAX_CHUNK - MAX_RECORDS:
                self.bulk.seek(before)
                raise ValueError("many records are larger than a chunk may be")
            self._records += packed

    def _short(self, field: Any) -> Any:
        """With what is long in the bulk; deeper than a map's values nothing is that long."""
        if type(field) is bytes:
            return self._place(_BYTES, field) if len(field) >= BULK_BYTES else field
        if type(field) is str:
            return self._place(_TEXT, field.encode("utf-8", "surrogatepass")) if len(field) >= BULK_TEXT else field
        if type(field) is dict:
            return {key: self._short(each) for key, each in cast("dict[str, object]", field).items()}
        return field

    def _place(self, code: int, data: bytes) -> msgpack.ExtType:
        place = _PLACE.pack(self.bulk.tell(), self.bulk.write(data))
        return msgpack.ExtType._make((code, place))  # its constructor's checks take longer than all the rest

    def take(self) -> tuple[bytes, bytes]:
        """The records and the bulk since the last time, for `chunk`."""
        self._pack_many()
        length = self.bulk.tell()
        with self.bulk.getbuffer() as bulk, bulk[:length] as found:
            taken = bytes(self._records), bytes(found)
        self._records.clear()
        self.bulk.seek(0)
        if length > 2 * MANY_BYTES:
            self.bulk.truncate()
        return taken


def chunk(records: bytes, bulk: bytes) -> bytes:
    """One chunk of a file. Compresses, which may be done in a thread, but not what is the smaller part of it: that would take longer than
    all the rest, to make a tenth less."""
    packed = zlib.compress(records, LEVEL if len(records) > len(bulk) else 0)
    return _HEAD.pack(len(packed), len(bulk), zlib.crc32(bulk, zlib.crc32(packed))) + packed + bulk


@attrs.frozen
class Capsule:
    """A file as it was read."""

    head: dict[str, Any]
    records: tuple[Record, ...]
    """Without the head, in the order in which they happened."""
    is_whole: bool
    """False: the file ends in the middle, or its session did."""


def read_capsule(path: Path) -> Capsule:
    """Read a file.

    Raises:
        CapsuleError: it is none, or of another version, or damaged.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        found = file.readline(len(MAGIC) + 16)
        if MAGIC.startswith(found) and found != MAGIC:
            raise CapsuleError(f"{path.name} ends before its head.")
        if not found.startswith(_ANY_MAGIC):
            raise CapsuleError(f"{path.name} is not a session capsule.")
        if found != MAGIC:
            version = found.removeprefix(_ANY_MAGIC).strip().decode("ascii", "replace")
            raise CapsuleError(f"{path.name} has version {version}; this Souffleur reads version {VERSION}.")
        records: list[Record] = []
        is_whole, read, number = True, 0, 0
        try:
            for body in _chunks(file):
                if body is None:
                    is_whole = False
                    break
                read += len(body[0]) + len(body[1])
                if read > MAX_READ:
                    raise CapsuleError(f"{path.name} holds more than any capsule does.")
                records += records_of(*body)
                number += 1
        except (ValueError, TypeError, LookupError, msgpack.UnpackException, zlib.error, struct.error) as exc:
            raise CapsuleError(f"{path.name} is damaged in its chunk {number}.") from exc
    return capsule_of(records, path.name, is_whole=is_whole)


def capsule_of(records: Sequence[Record], name: str, *, is_whole: bool = True) -> Capsule:
    """A capsule of records that were read. Raises CapsuleError: there is no head."""
    head: Any = records[0].fields[0] if records and records[0].kind is Kind.HEAD else None
    if not isinstance(head, dict):
        raise CapsuleError(f"{name} ends before its head.")
    return Capsule(cast("dict[str, Any]", head), tuple(records[1:]), is_whole and records[-1].kind is Kind.END)


def _chunks(file: BinaryIO) -> Iterator[tuple[bytes, bytes] | None]:
    """The records and the bulk of each; None for one that is not whole, which is the last."""
    while head := file.read(_HEAD.size):
        if len(head) < _HEAD.size:
            yield None
            return
        packed, bulk, checksum = _HEAD.unpack(head)
        if packed + bulk > MAX_CHUNK:
            yield None
            return
        body = file.read(packed + bulk)
        if len(body) < packed + bulk or zlib.crc32(body) != checksum:
            yield None
            return
        unpack = zlib.decompressobj()
        records = unpack.decompress(body[:packed], MAX_RECORDS)
        if not unpack.eof or unpack.unused_data:
            raise ValueError("its records are more than it says")
        yield records, body[packed:]


def records_of(data: bytes, bulk: bytes) -> list[Record]:
    """What stands in a chunk.

    Raises ValueError, TypeError, LookupError, `struct.error` or `msgpack.UnpackException`: it was not made by `Packer`.
    """

    def found(code: int, start: int, length: int) -> bytes | str:
        data = bulk[start : start + length]
        if len(data) < length or min(start, length) < 0 or code not in (_BYTES, _TEXT):
            raise ValueError("it stands nowhere")
        return data if code == _BYTES else data.decode("utf-8", "surrogatepass")

    def many(values: Sequence[Any]) -> Iterator[Record]:
        end = 1
        while end < len(values):
            at, step, kind = values[end : end + 3]
            start, end = end + 3, end + 3 + _WIDTHS[kind]
            fields = values[start:end]
            if kind == "sound":
                kind, fields = Kind.IN, [found(_BYTES, *fields)]
            elif kind == "frame":
                kind, fields = Kind.ITEM, [fields[0], found(_TEXT, *fields[1:])]
            elif kind == "speech":
                of = {**dict(zip(_SPEECH, fields[3:], strict=True)), "data": found(_BYTES, *fields[1:3])}
                kind, fields = Kind.ITEM, [fields[0], {"$": "engine.elements:SpeechItem", "of": {**of, **_BARE}}]
            yield _record(at, step, kind, *fields)

    unpacker = msgpack.Unpacker(
        ext_hook=lambda code, place: found(code, *_PLACE.unpack(place)),
        raw=False, strict_map_key=True, max_buffer_size=MAX_CHUNK, unicode_errors="surrogatepass",
    )  # fmt: skip
    unpacker.feed(data)
    records: list[Record] = []
    for values in unpacker:
        records += many(values) if values[0] is None else (_record(*values),)
    if unpacker.tell() != len(data):
        raise ValueError("it ends in the middle of a record")
    return records


def _record(at: object, step: object, kind: object, *fields: object) -> Record:
    if not isinstance(at, float | int) or not 0 <= at < 1e9 or not isinstance(step, int):
        raise ValueError("a record has no time")
    record = Record(float(at), Kind(cast("str", kind)), fields, step)
    shape = _SHAPES[record.kind]
    if len(shape) != len(fields) or not all(map(isinstance, fields, shape)):
        raise ValueError(f"a record of kind {record.kind} has other fields")
    return record
