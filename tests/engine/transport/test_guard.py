"""Origins and host names."""

import pytest

from engine.transport.asgi import Problem, Scope
from engine.transport.guard import LOOPBACK_STATE, Guard, is_loopback


def scope(kind: str = "websocket", *, loopback: bool = True, method: str = "GET", **headers: str) -> Scope:
    return {
        "type": kind,
        "method": method,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "state": {LOOPBACK_STATE: loopback},
    }


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"])
def test_names_of_this_computer(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "example.com", "localhost.example.com", "0.0.0.0", "10.0.0.1", "127.0.0.1.nip.io"]
)
def test_names_that_may_be_another_computer(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "voice.example:80"])
def test_a_loopback_server_answers_to_its_names(host: str) -> None:
    guard = Guard(allowed_hosts={"voice.example"})
    assert guard.check(scope(host=host)) is None
    assert guard.check(scope("http", host=host)) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "", "localhost@evil.example", "a b", "localhost/x"]
)
def test_a_loopback_server_answers_to_no_other_name(host: str) -> None:
    for asked in (scope(host=host), scope("http", host=host), scope("http")):
        refused = Guard().check(asked)
        assert isinstance(refused, Problem)
        assert refused.status == 403


def test_a_public_server_answers_to_any_name() -> None:
    assert Guard().check(scope(loopback=False, host="any.example")) is None
    assert (
        Guard().check({"type": "http", "method": "GET", "headers": []}) is None
    )  # a server that says nothing of itself


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("voice.example", "https://voice.example"),
        ("voice.example", "http://voice.example:80"),
        ("voice.example:8443", "https://voice.example:8443"),
        ("VOICE.example", "https://voice.EXAMPLE"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("other.example", "https://app.example"),
    ],
)
def test_own_and_allowed_origins_may_do_anything(host: str, origin: str) -> None:
    guard = Guard(allowed_origins={"https://app.example"})
    for asked in (
        scope(loopback=False, host=host, origin=origin),
        scope("http", loopback=False, method="POST", host=host, origin=origin),
    ):
        assert guard.check(asked) is None


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost:9000",
        "http://localhost",
        "null",
        "",
        "file://",
        "chrome-extension://localhost:8000",
        "localhost:8000",
        "http://localhost:8000@evil.example",
        "http://localhost:99999",
    ],
)
def test_other_origins_may_only_read(origin: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert Guard().check(scope("http", method=method, host="localhost:8000", origin=origin)) is not None
    assert Guard().check(scope(host="localhost:8000", origin=origin)) is not None
    for method in ("GET", "HEAD", "OPTIONS"):
        assert Guard().check(scope("http", method=method, host="localhost:8000", origin=origin)) is None


def test_programs_send_no_origin() -> None:
    assert Guard().check(scope("http", method="POST", host="localhost")) is None
