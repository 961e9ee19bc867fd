"""The rules of calling other people's servers: how a call is signed, which addresses may be called, when it is tried again.

A receiver checks a call so: split the header `X-Souffleur-Signature: t=…,v1=…` at the comma, compute the HMAC-SHA256 of
`t`, a dot and the body as it came, with the shared secret; compare its hex form with `v1`, and `t` (Unix seconds) with the
clock. Calls may come twice, when a process died between sending one and writing that down: `X-Souffleur-Delivery` is the same
then.
"""

import hashlib
import hmac
from datetime import datetime, timedelta
from enum import Enum, auto
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import attrs

SIGNATURE_HEADER = "X-Souffleur-Signature"
DELIVERY_HEADER = "X-Souffleur-Delivery"

PAUSES = (10.0, 30.0, 90.0, 300.0)
"""Seconds before each try but the first. With the time the tries themselves take, five of them fit into ten minutes."""
TRIES = len(PAUSES) + 1
LIFETIME = timedelta(minutes=10)
"""From the first try on; what could not be tried in time, as no process ran, is tried once."""

RETRIED_STATUS = frozenset({408, 425, 429})
"""Of the receiver's refusals, those that say "later"."""

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


@attrs.frozen
class Answer:
    """Of a call."""

    status: int
    body: bytes | None
    """None when it was too long, or broke off."""


class CallError(Exception):
    """There is no answer. Its text says why, and never what was called, as a URL may hold a secret."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again
        """Whether the same call may go better later."""


class Verdict(Enum):
    """What an answer means."""

    DELIVERED = auto()
    RETRY = auto()
    GIVE_UP = auto()


def sign(secret: str, body: bytes, at: datetime) -> str:
    """The value of the signature header."""
    timestamp = int(at.timestamp())
    digest = hmac.new(secret.encode(), b"%d." % timestamp + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def judge(status: int) -> Verdict:
    """What an HTTP status means for the call.

    A receiver's own trouble (5xx) and its "later" pass by. Any other refusal is an answer to this very body and would come again:
    it is given up at once, and reported while somebody still looks. A redirect is one too: it is not followed, as whoever may
    redirect could name an address inside, and the signed body would go where nobody has entered it.
    """
    if 200 <= status < 300:
        return Verdict.DELIVERED
    return Verdict.RETRY if status >= 500 or status in RETRIED_STATUS else Verdict.GIVE_UP


def next_try(attempts: int, now: datetime, expires_at: datetime) -> datetime | None:
    """When it is tried again after so many failed tries; None: it is given up."""
    if attempts >= TRIES:
        return None
    due = now + timedelta(seconds=PAUSES[attempts - 1])
    return due if due <= expires_at else None


def may_call(address: str, *, allow_private: bool) -> bool:
    """Whether an address may be called: one of the public internet, or any that is one host's where that is allowed."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if allow_private:
        return not (ip.is_multicast or ip.is_unspecified or ip == IPv4Address("255.255.255.255"))
    return is_public(ip)


def is_public(ip: IPv4Address | IPv6Address) -> bool:
    """Whether it is an address of the public internet. One that holds another, as tunnels and translators make them, is what
    that one is."""
    if isinstance(ip, IPv4Address):
        return ip.is_global and not ip.is_multicast
    if ip.ipv4_mapped is not None:
        return is_public(ip.ipv4_mapped)
    if ip in _NAT64:
        return is_public(IPv4Address(int(ip) & 0xFFFFFFFF))
    if ip.sixtofour is not None and not is_public(ip.sixtofour):
        return False
    return ip.is_global and ip in _GLOBAL_UNICAST
