"""Capsules over HTTP: for admins alone, from one directory, and never as more than an answer in words when they are damaged."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from engine.capsule.file import MAGIC
from engine.transport import capsules
from engine.transport.asgi import Event
from engine.transport.capsules import Viewing
from tests.browser.capsule_server import ADMIN_KEY, Keys
from tests.engine.capsule.scenario import cafe
from tests.engine.transport.stack import Answer, Recorder, Stack, new_services, open_stack

# Files are read in threads, which no virtual clock waits for: these tests run on the real one.
ADMIN = {"X-API-Key": ADMIN_KEY}
OCTETS = {"content-type": "application/octet-stream"}
NAME = "20300517T093000-s-1-1.capsule"


@asynccontextmanager
async def serving(directory: Path | None) -> AsyncGenerator[Stack]:
    services = attrs.evolve(new_services(), authenticator=Keys())
    async with open_stack(Recorder(), services=services, capsules_directory=directory) as stack:
        yield stack


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    cafe().write(tmp_path / NAME)
    return tmp_path


async def view(stack: Stack, body: bytes, headers: dict[str, str]) -> Answer:
    return await stack.request("/capsules/view", method="POST", headers=headers, body=body)


@pytest.mark.parametrize("path", ["/capsules", f"/capsules/{NAME}/timeline", "/capsules/view"])
async def test_they_are_for_admins_alone(directory: Path, path: str) -> None:
    method = "POST" if path.endswith("view") else "GET"
    async with serving(directory) as stack:
        for headers, status in (({}, 401), ({"X-API-Key": "wrong"}, 401), ({"X-API-Key": "a-members-key"}, 403)):
            answer = await stack.request(
                path, method=method, headers={**headers, **OCTETS}, body=b"x" if method == "POST" else b""
            )
            assert answer.status == status, (path, headers)
            assert answer.headers["content-type"] == "application/problem+json"


async def test_the_pages_hold_nothing_and_are_for_everybody(directory: Path) -> None:
    async with serving(directory) as stack:
        for path in ("/capsules", f"/capsules/{NAME}", "/capsules/view"):
            answer = await stack.request(path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
            assert answer.status == 200
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert b"barista" not in answer.body
            again = await stack.request(path, headers={"Accept": "text/html", "If-None-Match": answer.headers["etag"]})
            assert again.status == 304
        assert (await stack.request("/capsule.js")).status == 200


async def test_the_list(directory: Path) -> None:
    (directory / "20300517T103000-s-2-1.capsule").write_bytes(MAGIC + b"rubbish")
    async with serving(directory) as stack:
        answer = await stack.request("/capsules", headers=ADMIN)
        assert answer.headers["vary"] == "Accept"
        assert answer.headers["cache-control"] == "no-store"
        damaged, whole = answer.json["items"]
        assert (damaged["state"], damaged["sessionId"]) == ("damaged", "s-2")
        assert whole == {
            "name": NAME, "sessionId": "s-1", "agent": "agent:barista", "began": "2030-05-17T09:30:00+00:00", "seconds": 12.5,
            "bytes": (directory / NAME).stat().st_size, "state": "whole", "reason": "the client ended it", "redacted": False,
        }  # fmt: skip
        page = (await stack.request("/capsules?limit=1", headers=ADMIN)).json
        assert page["next"] == damaged["name"]
        rest = (await stack.request(f"/capsules?after={page['next']}", headers=ADMIN)).json
        assert (rest["items"], rest["next"]) == ([whole], None)
        assert (await stack.request("/capsules?limit=0", headers=ADMIN)).status == 400


async def test_a_timeline(directory: Path) -> None:
    async with serving(directory) as stack:
        answer = await stack.request(f"/capsules/{NAME}/timeline", headers=ADMIN)
        assert answer.status == 200
        assert answer.headers["cache-control"] == "no-store"
        assert answer.json["about"]["sessionId"] == "s-1"
        assert (await stack.request(f"/capsules/{NAME}/timeline?x=1", headers=ADMIN)).status == 400


@pytest.mark.parametrize(
    "name",
    [
        "nothing.capsule",
        "..%2Fsecret.capsule",
        "%2e%2e%2fsecret.capsule",
        "..",
        "%2Fetc%2Fpasswd",
        "secret",
        "a%00.capsule",
    ],
)
async def test_a_name_leads_nowhere_else(directory: Path, name: str) -> None:
    inside = directory / "inside"
    inside.mkdir()
    cafe().write(directory / "secret.capsule")
    async with serving(inside) as stack:
        answer = await stack.request(f"/capsules/{name}/timeline", headers=ADMIN)
        assert answer.status == 404
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_damaged_file_is_explained(directory: Path) -> None:
    (directory / "bad.capsule").write_bytes(b"souffleur capsule 99\nfrom the future")
    data = bytearray((directory / NAME).read_bytes())
    data[len(MAGIC) + 40] ^= 0xFF
    (directory / "bent.capsule").write_bytes(data)
    async with serving(directory) as stack:
        answer = await stack.request("/capsules/bad.capsule/timeline", headers=ADMIN)
        assert answer.status == 422
        assert "has version 99; this Souffleur reads version 1" in answer.json["detail"]
        bent = await stack.request("/capsules/bent.capsule/timeline", headers=ADMIN)
        assert bent.status == 422
        assert "bent.capsule" in bent.json["detail"]


async def test_a_file_that_is_too_large_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.capsule.shelf.MAX_FILE_BYTES", 1000)
    async with serving(directory) as stack:
        assert (await stack.request(f"/capsules/{NAME}/timeline", headers=ADMIN)).status == 422


async def test_a_directory_that_cannot_be_read_is_the_servers_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a directory")
    async with serving(tmp_path / "file") as stack:
        answer = await stack.request("/capsules", headers=ADMIN)
        assert answer.status == 503
        assert "a capsule cannot be read" in caplog.text


async def test_a_server_that_keeps_none_says_how_it_would() -> None:
    async with serving(None) as stack:
        for path in ("/capsules", f"/capsules/{NAME}/timeline"):
            answer = await stack.request(path, headers=ADMIN)
            assert answer.status == 404
            assert "souffleur serve --record" in answer.json["detail"]
            assert (await stack.request(path)).status == 401
        sent = await view(stack, cafe().data(), {**ADMIN, **OCTETS})
        assert sent.json["summary"]["turns"] == 3  # what somebody has got elsewhere can be shown here too


async def test_a_file_that_is_sent_is_shown_and_not_kept(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    async with serving(directory) as stack:
        answer = await view(stack, cafe().data(), {**ADMIN, **OCTETS})
        assert answer.status == 200
        assert answer.json["about"]["sessionId"] == "s-1"
        assert answer.headers["cache-control"] == "no-store"
        assert list(scratch.iterdir()) == []
        refused = await view(stack, b"no capsule", {**ADMIN, **OCTETS})
        assert (refused.status, "is not a session capsule" in refused.json["detail"]) == (422, True)
        assert (await view(stack, b"{}", {**ADMIN, "content-type": "application/json"})).status == 415
        monkeypatch.setattr(capsules, "VIEW_BYTES", 100)
        assert (await view(stack, cafe().data(), {**ADMIN, **OCTETS})).status == 413
        other = await stack.request("/capsules/view", method="PUT", headers=ADMIN)
        assert (other.status, other.headers["allow"]) == (405, "GET, HEAD, POST")
        elsewhere = {**ADMIN, **OCTETS, "Origin": "https://evil.example"}
        assert (await view(stack, b"x", elsewhere)).status == 403
        assert list(scratch.iterdir()) == []


async def test_nothing_of_a_strangers_body_is_read() -> None:
    read: list[str] = []
    sent: list[Event] = []

    async def receive() -> Event:
        await trio.lowlevel.checkpoint()
        read.append("the body")
        return {"type": "http.disconnect"}

    async def send(event: Event) -> None:
        await trio.lowlevel.checkpoint()
        assert read == []
        sent.append(event)

    services = attrs.evolve(new_services(), authenticator=Keys())
    await Viewing(services)({"type": "http", "method": "POST", "headers": []}, receive, send)
    assert sent[0]["status"] == 401
