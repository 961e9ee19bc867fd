"""The opening handshake of a client, with wsproto as the server."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, RejectData, Request
from wsproto.typing import Headers

from engine.protocol.opening import Opening, OpeningRefusedError

NONCE = b"the sample nonce"
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The answer to the nonce, as RFC 6455 has it in section 1.3."""


def opening(**headers: str) -> Opening:
    return Opening("service.test", "/v1/talk?model=m", headers, NONCE)


def answer(*lines: bytes, status: bytes = b"101 Switching Protocols", accept: bytes = ACCEPT) -> bytes:
    usual = (b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Accept: " + accept)
    return b"\r\n".join([b"HTTP/1.1 " + status, *(lines or usual), b"", b""])


def refusal(data: bytes, **headers: str) -> OpeningRefusedError:
    with pytest.raises(OpeningRefusedError) as caught:
        opening(**headers).feed(data)
    return caught.value


def asked(client: Opening) -> tuple[WSConnection, Request]:
    server = WSConnection(ConnectionType.SERVER)
    server.receive_data(client.request)
    (request,) = server.events()
    assert isinstance(request, Request)
    return server, request


def test_the_request_is_understood() -> None:
    _, request = asked(opening(Authorization="Bearer čau"))
    assert (request.host, request.target, request.extensions, request.subprotocols) == (
        "service.test",
        "/v1/talk?model=m",
        [],
        [],
    )
    assert dict(request.extra_headers)[b"authorization"] == "Bearer čau".encode()


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=50), st.lists(st.integers(0, 300)))
def test_an_acceptance_however_it_is_cut(nonce: bytes, behind: bytes, cuts: list[int]) -> None:
    client = Opening("service.test", "/", {}, nonce)
    server, _ = asked(client)
    head = server.send(AcceptConnection(extra_headers=[(b"Date", b"today")]))
    places = sorted({0, *(cut for cut in cuts if cut < len(head)), len(head)})
    for start, end in pairwise(places[:-1]):
        assert client.feed(head[start:end]) is None
    assert client.feed(head[places[-2] :] + behind) == behind


def test_other_news_before_it() -> None:
    early = answer(b"Link: </style>", status=b"103 Early Hints")
    client = opening()
    assert client.feed(early) is None
    assert client.feed(early + answer() + b"\x81\x00") == b"\x81\x00"


@pytest.mark.parametrize("offered", ["talk", "other, talk", "other,talk"])
def test_a_subprotocol(offered: str) -> None:
    client = opening(**{"Sec-WebSocket-Protocol": offered})
    server, request = asked(client)
    assert "talk" in request.subprotocols
    assert client.feed(server.send(AcceptConnection(subprotocol="talk"))) == b""


def test_a_refusal_is_known_from_its_head_and_raised_at_its_end() -> None:
    client = opening()
    server, _ = asked(client)
    headers: Headers = [(b"Retry-After", b"7"), (b"X-More", b"a"), (b"X-More", b"b")]
    assert client.feed(server.send(RejectConnection(status_code=429, headers=headers, has_body=True))) is None
    assert client.feed(server.send(RejectData(data=b"slow", body_finished=False))) is None
    error = client.refusal
    assert error is not None
    assert error.status == 429
    assert error.headers["retry-after"] == "7"
    assert error.headers["x-more"] == "a, b"
    with pytest.raises(OpeningRefusedError) as caught:
        client.feed(server.send(RejectData(data=b" down", body_finished=True)))
    assert caught.value is error


@pytest.mark.parametrize("length", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
def test_a_refusal_that_breaks_off(length: bytes) -> None:
    client = opening()
    assert client.feed(answer(length, status=b"503 Busy")) is None
    with pytest.raises(OpeningRefusedError) as caught:
        client.feed(b"")
    assert caught.value.status == 503


def test_a_refusal_that_ends_with_the_connection() -> None:
    client = opening()
    assert client.feed(answer(b"Connection: close", status=b"503 Busy") + b"we are") is None
    with pytest.raises(OpeningRefusedError) as caught:
        client.feed(b"")
    assert caught.value.status == 503


@pytest.mark.parametrize("status", [200, 301, 401, 503])
def test_whatever_is_no_acceptance(status: int) -> None:
    error = refusal(answer(b"Content-Length: 0", status=b"%d So" % status))
    assert error.status == status


@pytest.mark.parametrize(
    "data",
    [
        answer(accept=b"AAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        answer(b"Upgrade: websocket", b"Connection: Upgrade"),
        answer(b"Upgrade: h2c", b"Connection: Upgrade", b"Sec-WebSocket-Accept: " + ACCEPT),
        answer(b"Upgrade: websocket", b"Connection: close", b"Sec-WebSocket-Accept: " + ACCEPT),
        answer(b"Connection: Upgrade", b"Sec-WebSocket-Accept: " + ACCEPT),
        answer(b"Upgrade: websocket", b"Sec-WebSocket-Accept: " + ACCEPT),
        *(
            answer(b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Accept: " + ACCEPT, more)
            for more in (b"Sec-WebSocket-Protocol: talk", b"Sec-WebSocket-Extensions: permessage-deflate")
        ),
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n" + b"a: " + bytes(100) + b"\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nX: " + b"x" * 100_000,
        b"",
    ],
)
def test_what_is_no_answer(data: bytes) -> None:
    error = refusal(data)
    assert error.status is None
    assert error.headers == {}
    assert str(error)


def test_a_server_that_leaves_in_mid_answer() -> None:
    client = opening()
    assert client.feed(answer()[:30]) is None
    with pytest.raises(OpeningRefusedError):
        client.feed(b"")


def test_the_choice_of_another_subprotocol() -> None:
    more = answer(
        b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Accept: " + ACCEPT, b"Sec-WebSocket-Protocol: b"
    )
    assert refusal(more, **{"sec-websocket-protocol": "a"}).status is None


@pytest.mark.parametrize(("target", "value"), [("/", "a key\n"), ("/", " a key"), ("/a b", "a key"), ("/", "a key\0")])
def test_what_no_request_can_carry(target: str, value: str) -> None:
    with pytest.raises(ValueError, match="no request") as caught:
        Opening("service.test", target, {"Authorization": value}, NONCE)
    assert value not in str(caught.value)
    assert caught.value.__cause__ is None


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    client = opening()
    try:
        behind = client.feed(data)
    except OpeningRefusedError:
        return
    assert behind is None
