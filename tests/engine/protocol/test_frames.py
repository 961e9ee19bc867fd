"""Frames, against wsproto as the other side and as the reference."""

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
    unmask,
)

MAX = 1000
MASK = b"\x11\x22\x33\x44"


def frame(
    opcode: int, payload: bytes = b"", *, final: bool = True, mask: bytes = MASK, announce: int | None = None
) -> bytes:
    size = len(payload) if announce is None else announce
    head = bytes([(0x80 if final else 0) | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65536:
        head += b"\xfe" + struct.pack("!H", size)
    else:
        head += b"\xff" + struct.pack("!Q", size)
    return head + mask + unmask(payload, mask)


def read(data: bytes, *, cuts: Iterable[int] = (), limit: int = MAX) -> list[FrameEvent]:
    """The events of a stream of bytes that comes cut at these places."""
    reader = FrameReader(limit)
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


def test_a_message_in_parts_with_a_ping_between() -> None:
    data = frame(TEXT, b"\xc3", final=False) + frame(PING, b"x") + frame(CONTINUATION, b"", final=False)
    data += (
        frame(CONTINUATION, b"\xa9") + frame(BINARY, b"a", final=False) + frame(CONTINUATION, b"b") + frame(PONG, b"y")
    )
    expected: list[FrameEvent] = [Ping(b"x"), "é", b"ab", Pong(b"y")]
    assert read(data) == expected
    assert read(data, cuts=range(len(data))) == expected


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


def sent_by_wsproto(script: list[Any]) -> bytes:
    client = Connection(ConnectionType.CLIENT)
    return b"".join(client.send(event) for event in script)


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
    assert read(sent_by_wsproto(script), cuts=cuts, limit=4000) == [as_event(event) for event in script]


@given(st.lists(st.one_of(st.text(max_size=300), st.binary(max_size=70_000)), max_size=3))
def test_what_is_encoded_is_read_by_wsproto(messages: list[str | bytes]) -> None:
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(
        b"".join(map(encode_message, messages)) + encode_frame(PING, b"x") + encode_close(NORMAL, "end")
    )
    found: list[Any] = list(client.events())
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
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(encode_message(bytes(size)))
    (event,) = client.events()
    assert as_event(event) == bytes(size)


def test_no_status_is_the_empty_close() -> None:
    assert encode_close(NO_STATUS, "not sent") == b"\x88\x00"


def wsproto_reads(data: bytes) -> list[Any]:
    """Whole messages and what comes besides, up to the first fault."""
    server = Connection(ConnectionType.SERVER)
    found: list[Any] = []
    parts: Any = None
    server.receive_data(data)
    for event in server.events():
        if isinstance(event, events.TextMessage | events.BytesMessage):
            data_of: Any = event.data
            parts = data_of if parts is None else parts + data_of
            if event.message_finished:
                found.append(parts)
                parts = None
        elif isinstance(event, events.CloseConnection):
            is_fault = server.state is ConnectionState.OPEN
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
    mask=st.binary(min_size=4, max_size=4),
)


@given(st.lists(st.one_of(_FRAMES, st.binary(max_size=12)), max_size=6))
def test_faults_are_found_where_wsproto_finds_them(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    ours: list[Any] = []
    for event in read(data, limit=1 << 62):
        if isinstance(event, Close):
            ours.append(("close", event.code))
            break
        ours.append(("fault", event.code) if isinstance(event, Fault) else event)
    theirs = wsproto_reads(data)
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


@given(st.binary(max_size=100), st.lists(st.integers(0, 100)))
def test_no_bytes_raise(data: bytes, cuts: list[int]) -> None:
    assert read(data, cuts=cuts) == read(data)
