"""Frames of both sides, against wsproto as the other side and as the reference."""

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import events
from wsproto.connection import Connection, ConnectionState, ConnectionType

from engine.protocol.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    INVALID_DATA,
    NO_STATUS,
    NORMAL,
    OVERHEAD_BYTES,
    PING,
    PONG,
    PROTOCOL_ERROR,
    SHORT_BYTES,
    TEXT,
    TOO_BIG,
    Close,
    Fault,
    FrameEvent,
    FrameReader,
    Ping,
    Pong,
    encode_close,
    encode_frame,
    encode_message,
    masked,
)

MAX = 1000
MASK = b"\x11\x22\x33\x44"


def xor(payload: bytes, mask: bytes) -> bytes:
    return bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


def frame(
    opcode: int, payload: bytes = b"", *, final: bool = True, mask: bytes = MASK, announce: int | None = None
) -> bytes:
    """A frame of a client; of a server without a mask."""
    size = len(payload) if announce is None else announce
    bit = 0x80 if mask else 0
    head = bytes([(0x80 if final else 0) | opcode])
    if size < 126:
        head += bytes([bit | size])
    elif size < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", size)
    return head + mask + (xor(payload, mask) if mask else payload)


def read(data: bytes, *, cuts: Iterable[int] = (), limit: int = MAX, from_client: bool = True) -> list[FrameEvent]:
    """The events of a stream of bytes that comes cut at these places."""
    reader = FrameReader(limit, from_client)
    places = sorted({0, *(cut for cut in cuts if 0 < cut < len(data)), len(data)})
    found: list[FrameEvent] = []
    for start, end in pairwise(places):
        reader.feed(data[start:end])
        while (event := reader.next()) is not None:
            found.append(event)
        assert reader.waiting_bytes <= limit + OVERHEAD_BYTES
    return found


# --- what may come -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 125, 126, SHORT_BYTES, SHORT_BYTES + 1, 65535, 65536, 70_001])
def test_messages_of_every_length(size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    assert read(frame(BINARY, data), limit=1 << 20) == [data]
    assert read(frame(TEXT, b"a" * size), limit=1 << 20) == ["a" * size]
    assert read(frame(BINARY, data, mask=b""), limit=1 << 20, from_client=False) == [data]


def test_a_message_in_parts_with_a_ping_between() -> None:
    for mask in (MASK, b""):
        data = b"".join(
            [
                frame(TEXT, b"\xc3", final=False, mask=mask),
                frame(PING, b"x", mask=mask),
                frame(CONTINUATION, b"", final=False, mask=mask),
                frame(CONTINUATION, b"\xa9", mask=mask),
                frame(BINARY, b"a", final=False, mask=mask),
                frame(CONTINUATION, b"b", mask=mask),
                frame(PONG, b"y", mask=mask),
            ]
        )
        expected: list[FrameEvent] = [Ping(b"x"), "é", b"ab", Pong(b"y")]
        assert read(data, from_client=bool(mask)) == expected
        assert read(data, cuts=range(len(data)), from_client=bool(mask)) == expected


@pytest.mark.parametrize(
    ("payload", "event"),
    [
        (b"", Close(NO_STATUS, "")),
        (struct.pack("!H", 1000), Close(1000, "")),
        (struct.pack("!H", 1001) + "konec č".encode(), Close(1001, "konec č")),
        (struct.pack("!H", 4999), Close(4999, "")),
    ],
)
def test_closes(payload: bytes, event: Close) -> None:
    assert read(frame(CLOSE, payload)) == [event]


# --- what may not --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(3), PROTOCOL_ERROR),
        (frame(7), PROTOCOL_ERROR),
        (frame(11), PROTOCOL_ERROR),
        (frame(15), PROTOCOL_ERROR),
        (b"\xc1\x80", PROTOCOL_ERROR),  # compressed, which was not agreed on
        (b"\x81\x02hi", PROTOCOL_ERROR),  # not masked
        (frame(PING, final=False), PROTOCOL_ERROR),
        (frame(PING, bytes(126)), PROTOCOL_ERROR),
        (frame(CONTINUATION, b"a"), PROTOCOL_ERROR),
        (frame(TEXT, b"a", final=False) + frame(TEXT, b"b"), PROTOCOL_ERROR),
        (frame(TEXT, b"a", final=False) + frame(BINARY, b"b", final=False), PROTOCOL_ERROR),
        (b"\x82\xfe\x00\x7d" + MASK, PROTOCOL_ERROR),  # 125 in two bytes
        (b"\x82\xff" + struct.pack("!Q", 65535) + MASK, PROTOCOL_ERROR),  # 65535 in eight
        (b"\x82\xff" + struct.pack("!Q", 1 << 63) + MASK, PROTOCOL_ERROR),
        (frame(CLOSE, b"\x03"), PROTOCOL_ERROR),
        *(
            (frame(CLOSE, struct.pack("!H", code)), PROTOCOL_ERROR)
            for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000)
        ),
        (frame(CLOSE, struct.pack("!H", 1000) + b"\xff"), INVALID_DATA),
        (frame(TEXT, b"\xff"), INVALID_DATA),
        (frame(TEXT, b"\xc3"), INVALID_DATA),
        (frame(TEXT, b"\xed\xa0\x80"), INVALID_DATA),  # a lone surrogate
        (frame(TEXT, b"\xc3", final=False) + frame(CONTINUATION, b"("), INVALID_DATA),
    ],
)
def test_what_is_no_frame_ends_the_reading(data: bytes, code: int) -> None:
    for cuts in ((), range(len(data))):
        (fault,) = read(data + frame(TEXT, b"more"), cuts=cuts)
        assert isinstance(fault, Fault)
        assert fault.code == code
        assert fault.reason


def test_a_server_that_masks_is_none() -> None:
    for data in (frame(TEXT, b"hi"), frame(PING), frame(TEXT, b"h", final=False, mask=b"") + frame(CONTINUATION, b"i")):
        for cuts in ((), range(len(data))):
            (fault,) = read(data + frame(TEXT, b"more", mask=b""), cuts=cuts, from_client=False)
            assert isinstance(fault, Fault)
            assert fault.code == PROTOCOL_ERROR


# --- masks ---------------------------------------------------------------------------------------------------------------


@given(st.one_of(st.binary(max_size=600), st.integers(0, 70_000).map(bytes)), st.binary(min_size=4, max_size=4))
def test_a_mask_is_taken_off_as_it_was_put_on(data: bytes, mask: bytes) -> None:
    assert masked(data, mask) == xor(data, mask)
    assert masked(masked(data, mask), mask) == data


# --- too large -----------------------------------------------------------------------------------------------------------


def test_the_limit_is_the_message() -> None:
    assert read(frame(BINARY, bytes(MAX))) == [bytes(MAX)]
    parts = frame(BINARY, bytes(600), final=False)
    assert read(parts + frame(CONTINUATION, bytes(400))) == [bytes(MAX)]
    too_big = Fault(TOO_BIG, f"a message has at most {MAX} bytes")
    assert read(frame(BINARY, bytes(MAX + 1))) == [too_big]
    assert read(parts + frame(CONTINUATION, bytes(401))) == [too_big]


def test_what_is_too_large_is_known_from_its_header() -> None:
    assert read(frame(BINARY, announce=1 << 62)) == [Fault(TOO_BIG, f"a message has at most {MAX} bytes")]


def test_behind_what_is_too_large_only_control_frames_count() -> None:
    too_big = frame(TEXT, bytes(600), final=False) + frame(CONTINUATION, bytes(600), final=False)
    rest = frame(PING, b"x") + frame(CONTINUATION, b"a") + frame(TEXT, b"b") + frame(CLOSE)
    for cuts in ((), range(len(too_big) + len(rest))):
        first, *others = read(too_big + rest, cuts=cuts)
        assert isinstance(first, Fault)
        assert others == [Ping(b"x"), Close(NO_STATUS, "")]


# --- against wsproto -----------------------------------------------------------------------------------------------------


def sent_by_wsproto(script: list[Any], side: ConnectionType = ConnectionType.CLIENT) -> bytes:
    peer = Connection(side)
    return b"".join(peer.send(event) for event in script)


_MESSAGES = st.one_of(
    st.builds(events.TextMessage, data=st.text(max_size=300)),
    st.builds(events.BytesMessage, data=st.binary(max_size=800)),
    st.builds(events.Ping, payload=st.binary(max_size=125)),
    st.builds(events.Pong, payload=st.binary(max_size=125)),
)


def as_event(event: Any) -> FrameEvent:
    if isinstance(event, events.Ping):
        return Ping(bytes(event.payload))
    if isinstance(event, events.Pong):
        return Pong(bytes(event.payload))
    assert isinstance(event, events.TextMessage | events.BytesMessage)
    return event.data if isinstance(event, events.TextMessage) else bytes(event.data)


@given(st.lists(_MESSAGES, max_size=6), st.lists(st.integers(0, 3000)))
def test_what_wsproto_sends_is_read_however_it_is_cut(script: list[Any], cuts: list[int]) -> None:
    expected = [as_event(event) for event in script]
    assert read(sent_by_wsproto(script), cuts=cuts, limit=4000) == expected
    of_server = sent_by_wsproto(script, ConnectionType.SERVER)
    assert read(of_server, cuts=cuts, limit=4000, from_client=False) == expected


@given(
    st.lists(st.one_of(st.text(max_size=300), st.binary(max_size=70_000)), max_size=3),
    st.one_of(st.just(b""), st.binary(min_size=4, max_size=4)),
)
def test_what_is_encoded_is_read_by_wsproto(messages: list[str | bytes], mask: bytes) -> None:
    peer = Connection(ConnectionType.SERVER if mask else ConnectionType.CLIENT)
    peer.receive_data(
        b"".join(encode_message(message, mask) for message in messages)
        + encode_frame(PING, b"x", mask)
        + encode_close(NORMAL, "end", mask)
    )
    found: list[Any] = list(peer.events())
    assert [
        as_event(event) for event in found if isinstance(event, events.TextMessage | events.BytesMessage)
    ] == messages
    assert [(event.code, event.reason) for event in found if isinstance(event, events.CloseConnection)] == [
        (1000, "end")
    ]


@given(st.text(max_size=200))
def test_a_long_reason_is_cut_between_characters(reason: str) -> None:
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(encode_close(1008, reason))
    (event,) = client.events()
    assert isinstance(event, events.CloseConnection)
    assert reason.startswith(event.reason or "")
    assert len((event.reason or "").encode()) > min(len(reason.encode()), 123) - 4


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_frames_of_every_length_are_read_by_wsproto(size: int) -> None:
    for side, mask in ((ConnectionType.CLIENT, b""), (ConnectionType.SERVER, MASK)):
        peer = Connection(side)
        peer.receive_data(encode_message(bytes(size), mask))
        (event,) = peer.events()
        assert as_event(event) == bytes(size)


def test_no_status_is_the_empty_close() -> None:
    assert encode_close(NO_STATUS, "not sent") == b"\x88\x00"
    assert encode_close(NO_STATUS, "not sent", MASK) == b"\x88\x80" + MASK


def wsproto_reads(data: bytes, side: ConnectionType) -> list[Any]:
    """Whole messages and what comes besides, up to the first fault."""
    reader = Connection(side)
    found: list[Any] = []
    parts: Any = None
    reader.receive_data(data)
    for event in reader.events():
        if isinstance(event, events.TextMessage | events.BytesMessage):
            data_of: Any = event.data
            parts = data_of if parts is None else parts + data_of
            if event.message_finished:
                found.append(parts)
                parts = None
        elif isinstance(event, events.CloseConnection):
            is_fault = reader.state is ConnectionState.OPEN
            found.append(("fault" if is_fault else "close", int(event.code)))
            break
        else:
            found.append(as_event(event))
    return found


_FRAMES = st.builds(
    frame,
    st.sampled_from([CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG, 3]),
    st.binary(max_size=130),
    final=st.booleans(),
    mask=st.one_of(st.just(b""), st.binary(min_size=4, max_size=4)),
)


@given(st.lists(st.one_of(_FRAMES, st.binary(max_size=12)), max_size=6), st.booleans())
def test_faults_are_found_where_wsproto_finds_them(pieces: list[bytes], from_client: bool) -> None:
    data = b"".join(pieces)
    ours: list[Any] = []
    for event in read(data, limit=1 << 62, from_client=from_client):
        if isinstance(event, Close):
            ours.append(("close", event.code))
            break
        ours.append(("fault", event.code) if isinstance(event, Fault) else event)
    theirs = wsproto_reads(data, ConnectionType.SERVER if from_client else ConnectionType.CLIENT)
    if theirs and theirs[-1] == ("fault", INVALID_DATA):
        # wsproto looks at the text of a message before its end; ours answers a ping or a close until then
        assert ours[: len(theirs) - 1] == theirs[:-1]
        return
    # otherwise the only difference allowed is a fault of another name at the same place, or one that only one of the two
    # can tell before its frame is complete
    common = sum(one == other for one, other in zip(ours, theirs, strict=False))
    for item in [*ours[common:], *theirs[common:]]:
        assert isinstance(item, tuple)
        assert item[0] == "fault"


@given(st.binary(max_size=100), st.lists(st.integers(0, 100)), st.booleans())
def test_no_bytes_raise(data: bytes, cuts: list[int], from_client: bool) -> None:
    assert read(data, cuts=cuts, from_client=from_client) == read(data, from_client=from_client)
