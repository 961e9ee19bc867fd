"""The opening handshake of a WebSocket's client, after RFC 6455 section 4.1: a request, and what the server may answer.

It happens once in a connection, so h11 reads it: bounded, and as strict as HTTP is.
"""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha1

import attrs
import h11

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


class OpeningRefusedError(Exception):
    """There is no connection. `status` and `headers`, with lowered names, are of an answer that is no acceptance; when the answer
    breaks the rules, or did not come, there is no status."""

    def __init__(self, reason: str, status: int | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers or {}


@attrs.define(eq=False)
class Opening:
    """Send `request`, then `feed` what comes until it gives what follows the handshake.

    `nonce` are 16 bytes that were used for no other connection. A subprotocol is offered as any other header.

    Raises ValueError for an address or a header that HTTP cannot carry.
    """

    host: str
    target: str
    headers: Mapping[str, str]
    nonce: bytes
    request: bytes = attrs.field(init=False)
    refusal: OpeningRefusedError | None = attrs.field(default=None, init=False)
    """What `feed` will raise when all of the answer is there."""
    _http: h11.Connection = attrs.field(factory=lambda: h11.Connection(h11.CLIENT), init=False)

    def __attrs_post_init__(self) -> None:
        fields = {
            "Host": self.host,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": b64encode(self.nonce).decode(),
            "Sec-WebSocket-Version": "13",
        }
        try:
            request = h11.Request(
                method="GET",
                target=self.target,
                headers=[(name.encode(), value.encode()) for name, value in (*fields.items(), *self.headers.items())],
            )
        except h11.LocalProtocolError:
            raise ValueError("no request can be made of this address and these headers") from None  # it quotes the key
        self.request = (self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b"")

    def feed(self, data: bytes) -> bytes | None:
        """Take in what came, nothing at all being the end of it. Gives what the server sent behind its acceptance; None as long as
        that is not complete.

        Raises:
            OpeningRefusedError: it said something else, and all of it.
        """
        self._http.receive_data(data)
        try:
            while (event := self._http.next_event()) is not h11.NEED_DATA:
                match event:
                    case h11.InformationalResponse(status_code=101):
                        self._check(_named(event))
                        return bytes(self._http.trailing_data[0])
                    case h11.Response():
                        why = f"an answer with status {event.status_code}"
                        self.refusal = OpeningRefusedError(why, event.status_code, _named(event))
                    case h11.EndOfMessage() if self.refusal is not None:
                        raise self.refusal
                    case _:
                        pass  # other news, or a part of what explains a refusal
        except h11.RemoteProtocolError as exc:
            raise self.refusal or OpeningRefusedError(f"no HTTP: {exc}") from exc
        return None

    def _check(self, answer: Mapping[str, str]) -> None:
        accepted = b64encode(sha1(b64encode(self.nonce) + _GUID, usedforsecurity=False).digest()).decode()
        if answer.get("upgrade", "").lower() != "websocket" or "upgrade" not in _tokens(
            answer.get("connection", "").lower()
        ):
            raise OpeningRefusedError("an upgrade to something else")
        if answer.get("sec-websocket-accept") != accepted:
            raise OpeningRefusedError("an answer to another request")
        offered = [value for name, value in self.headers.items() if name.lower() == "sec-websocket-protocol"]
        chosen = answer.get("sec-websocket-protocol")
        if chosen is not None and chosen not in _tokens(",".join(offered)):
            raise OpeningRefusedError("a subprotocol that was not offered")
        if answer.get("sec-websocket-extensions"):
            raise OpeningRefusedError("an extension that was not offered")


def _tokens(value: str) -> list[str]:
    return [token.strip() for token in value.split(",")]


def _named(event: h11.InformationalResponse | h11.Response) -> dict[str, str]:
    """Headers that come more than once are one, with commas between."""
    named: dict[str, str] = {}
    for name, value in event.headers:
        key, text = name.decode("ascii"), value.decode("latin-1")
        named[key] = f"{named[key]}, {text}" if key in named else text
    return named
