"""How webhook calls are signed, judged and repeated, and which addresses they may go to."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.webhooks import LIFETIME, PAUSES, TRIES, CallError, Verdict, judge, may_call, next_try, sign

NOON = datetime(2026, 3, 1, 12, 0, 0, 700_000, tzinfo=UTC)


def test_a_receiver_can_check_the_signature() -> None:
    """With nothing but the standard library, as the module's text says."""
    body = '{"sessionId":"s1","reason":"řekl ahoj"}'.encode()
    header = sign("s3cret", body, NOON)
    timestamp, _, version = header.partition(",")
    assert timestamp == "t=1772366400"
    expected = hmac.new(b"s3cret", b"1772366400." + body, hashlib.sha256).hexdigest()
    assert version == f"v1={expected}"


@given(st.text(min_size=1, max_size=20), st.binary(max_size=40), st.binary(min_size=1, max_size=40))
def test_another_body_has_another_signature(secret: str, body: bytes, more: bytes) -> None:
    try:
        secret.encode()
    except UnicodeEncodeError:
        return
    assert sign(secret, body, NOON) != sign(secret, body + more, NOON)
    assert sign(secret, body, NOON) == sign(secret, body, NOON)


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ((200, 201, 202, 204), Verdict.DELIVERED),
        ((408, 425, 429, 500, 502, 503, 504, 599), Verdict.RETRY),
        ((301, 302, 307, 308, 400, 401, 403, 404, 410, 422), Verdict.GIVE_UP),
    ],
)
def test_what_an_answer_means(statuses: tuple[int, ...], verdict: Verdict) -> None:
    assert {judge(status) for status in statuses} == {verdict}


def test_an_error_says_whether_it_may_pass_by() -> None:
    assert CallError("no answer in 20 s").again
    assert not CallError("its URL is none", again=False).again


def test_five_tries_fit_into_ten_minutes_with_growing_pauses() -> None:
    longest_call = 20.0
    now, tries = NOON, 0
    while True:
        tries += 1
        now += timedelta(seconds=longest_call)
        due = next_try(tries, now, NOON + LIFETIME)
        if due is None:
            break
        now = due
    assert tries == TRIES == 5
    assert now - NOON <= LIFETIME
    assert list(PAUSES) == sorted(PAUSES)


def test_what_comes_too_late_is_given_up() -> None:
    assert next_try(1, NOON, NOON + timedelta(seconds=10)) == NOON + timedelta(seconds=10)
    assert next_try(1, NOON, NOON + timedelta(seconds=9.9)) is None
    assert next_try(TRIES, NOON, NOON + LIFETIME) is None


PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1"]
PRIVATE = [
    "127.0.0.1",
    "127.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "240.0.0.1",
    "::1",
    "fc00::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::1",
    "2001:0:1::1",
]
NOBODY = ["0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1", "localhost", "", "1.2.3"]


@pytest.mark.parametrize("address", PUBLIC)
def test_the_public_internet_may_be_called(address: str) -> None:
    assert may_call(address, allow_private=False)
    assert may_call(address, allow_private=True)


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_inside_may_be_called_where_that_is_allowed(address: str) -> None:
    assert not may_call(address, allow_private=False)
    assert may_call(address, allow_private=True)


@pytest.mark.parametrize("address", NOBODY)
def test_what_is_no_hosts_address_is_never_called(address: str) -> None:
    assert not may_call(address, allow_private=False)
    assert not may_call(address, allow_private=True)


@given(st.ip_addresses())
def test_no_address_is_a_surprise(address: object) -> None:
    assert may_call(str(address), allow_private=False) <= may_call(str(address), allow_private=True)
