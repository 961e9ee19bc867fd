"""The HTTP routes, through the real stack."""

import importlib.resources
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from engine.store.contract import StoreError
from engine.transport.body import DRAIN_SECONDS
from engine.transport.openapi import PAGE_LIMIT
from engine.transport.pages import CONTENT_TYPES, is_known, load_pages, page_headers
from tests.engine.transport.stack import HOST, FakeAgent, FakeStore, Recorder, open_stack

AGENTS = tuple(FakeAgent(f"a{i}", f"Agent {i}", published=i != 3) for i in range(6))
SHOWN = [{"ref": agent.ref, "name": agent.name} for agent in AGENTS if agent.published]


async def test_published_agents_are_listed_page_by_page(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder(), agents=AGENTS) as stack:
        assert (await stack.request("/api/agents")).json == {"items": SHOWN, "next": None}
        path, found = "/api/agents?limit=2", list[object]()
        while True:
            page = (await stack.request(path)).json
            found.append(page["items"])
            if page["next"] is None:
                break
            path = f"/api/agents?limit=2&after={page['next']}"
        assert found == [SHOWN[:2], SHOWN[2:4], SHOWN[4:]]
        assert (await stack.request("/api/agents?limit=5")).json["next"] is None


@pytest.mark.parametrize(
    "query", ["limit=0", f"limit={PAGE_LIMIT + 1}", "limit=x", "limit=" + "9" * 99, "after=a3", "after="]
)
async def test_a_wrong_page_is_a_problem(query: str, autojump_clock: MockClock) -> None:
    async with open_stack(Recorder(), agents=AGENTS) as stack:
        answer = await stack.request(f"/api/agents?{query}")
        assert answer.status == 400
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json.keys() == {"type", "title", "status", "detail"}


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/nothing", "GET", 404),
        ("/../pyproject.toml", "GET", 404),
        ("/..%2f..%2fpages.py", "GET", 404),
        ("/%2e%2e/pages.py", "GET", 404),
        ("/api/agents", "POST", 405),
        ("/api/pipeline", "GET", 404),
    ],
)
async def test_refusals_are_problem_documents(path: str, method: str, status: int, autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        answer = await stack.request(path, method=method)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["status"] == status
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_post_from_another_origin_is_refused(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        answer = await stack.request("/api/agents", method="POST", headers={"Origin": "https://evil.example"})
        assert answer.status == 403
        assert answer.json["title"] == "Forbidden"
        assert (await stack.request("/api/agents", headers={"Host": "evil.example"})).status == 403


async def test_a_fault_is_answered_and_logged(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("secret detail")

    async with open_stack(Recorder(), readiness=broken) as stack:
        answer = await stack.request("/readyz")
        assert answer.status == 500
        assert "secret" not in answer.body.decode()
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == ["a request failed"]


async def test_health_and_readiness(autojump_clock: MockClock) -> None:
    parts: dict[str, str] = {}

    async def readiness() -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        return parts

    store = FakeStore()
    async with open_stack(Recorder(), store=store, readiness=readiness) as stack:
        assert (await stack.request("/healthz")).json == {"status": "ok"}
        answer = await stack.request("/readyz")
        assert (answer.status, answer.json) == (200, {"status": "ready", "parts": {"store": "ready"}})
        parts["voice"] = "the models are not installed"
        answer = await stack.request("/readyz")
        assert answer.status == 503
        assert answer.json == {
            "status": "not ready",
            "parts": {"store": "ready", "voice": "the models are not installed"},
        }
        parts.clear()
        store.trouble = StoreError("a connection string")
        answer = await stack.request("/readyz")
        assert (answer.status, answer.json["parts"]) == (503, {"store": "cannot be reached or written"})
        store.seconds = 60
        answer = await stack.request("/readyz")
        assert (answer.status, answer.json["parts"]) == (503, {"store": "did not answer in 5 s"})
        assert trio.current_time() == 5
        assert (await stack.request("/healthz")).status == 200


# --- connections that are used again ------------------------------------------------------------------------------------

REFUSED = b"POST /api/agents HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def answer_on(stream: trio.abc.Stream) -> bytes:
    """The first line of the next answer, whose JSON is received whole."""
    received = b""
    with trio.fail_after(60):
        while not received.endswith(b"}"):
            chunk = bytes(await stream.receive_some())
            if not chunk:
                return received or b"closed"
            received += chunk
    return received.split(b"\r\n")[0].rstrip()


async def test_a_body_may_come_after_its_answer(autojump_clock: MockClock) -> None:
    """Who is refused may be sending still; the connection is good for the next request."""
    async with open_stack(Recorder()) as stack:
        stream = stack.dial()
        for _ in range(3):
            await stream.send_all(REFUSED)
            assert await answer_on(stream) == b"HTTP/1.1 405"
            await trio.sleep(0.5)
            await stream.send_all(b"{}")
            await stream.send_all(HEALTH)
            assert await answer_on(stream) == b"HTTP/1.1 200"
        assert trio.current_time() == 1.5
        await stream.aclose()
        await stack.wait_idle()


async def test_a_body_that_does_not_come_is_not_waited_for(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        stream = stack.dial()
        await stream.send_all(REFUSED)
        assert await answer_on(stream) == b"HTTP/1.1 405"
        assert await answer_on(stream) == b"closed"
        assert trio.current_time() == DRAIN_SECONDS
        await stack.wait_idle()


async def test_an_idle_connection_is_closed_in_time(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        stream = stack.dial()
        await stream.send_all(HEALTH)
        assert await answer_on(stream) == b"HTTP/1.1 200"
        assert await answer_on(stream) == b"closed"
        assert trio.current_time() == 5  # hypercorn's keep-alive time
        await stack.wait_idle()


async def test_an_idle_connection_does_not_hold_up_the_end(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        stream = stack.dial()
        await stream.send_all(HEALTH)
        assert await answer_on(stream) == b"HTTP/1.1 200"
        stack.server.stop()
        assert await answer_on(stream) == b"closed"
        assert trio.current_time() == 0


async def test_the_routes_are_described(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        document = (await stack.request("/openapi.json")).json
        assert document["openapi"].startswith("3.1")
        read = {path: item for path, item in document["paths"].items() if "get" in item}
        needs_nobody = {path: item for path, item in read.items() if not item["get"]["security"]}
        assert needs_nobody.keys() == {
            "/healthz",
            "/readyz",
            "/openapi.json",
            "/asyncapi.json",
            "/",
            "/capsules/view",
            "/capsules/{name}",
        }
        for path, item in read.items():
            status = (await stack.request(path)).status
            needs_somebody = path.startswith("/api/sessions") or path in ("/capsules", "/capsules/{name}/timeline")
            assert status == (401 if needs_somebody else 200)
            if path in ("/", "/capsules/view", "/capsules/{name}"):
                continue
            schema = item["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            assert schema["$ref"].removeprefix("#/components/schemas/") in document["components"]["schemas"]
        agents = document["paths"]["/api/agents"]["get"]
        assert [parameter["name"] for parameter in agents["parameters"]] == ["limit", "after", "If-None-Match"]
        assert "application/problem+json" in agents["responses"]["400"]["content"]


async def test_the_talk_page_and_its_files(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        page = await stack.request("/")
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert page.body == (await stack.request("/index.html")).body
        names = {item.name for item in importlib.resources.files("engine.transport").joinpath("web").iterdir()}
        for name in names:
            answer = await stack.request(f"/{name}")
            assert answer.status == 200
            assert answer.headers["content-type"] == CONTENT_TYPES[Path(name).suffix]
            assert answer.headers["cache-control"] == "no-cache"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "server" not in answer.headers
            again = await stack.request(f"/{name}", headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status, again.body) == (304, b"")
            assert again.headers["etag"] == answer.headers["etag"]
            head = await stack.request(f"/{name}", method="HEAD")
            assert (head.status, head.body) == (200, b"")


async def test_the_policy_lets_in_nothing_from_elsewhere(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        policy = (await stack.request("/")).headers["content-security-policy"]
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules["default-src"] == "'self'"
        assert rules["connect-src"] == f"'self' ws://{HOST} wss://{HOST}"
        assert rules["frame-ancestors"] == "'none'"
        assert "unsafe" not in policy


def test_a_strange_host_adds_nothing_to_the_policy() -> None:
    page = load_pages()["index.html"]
    for host in ("a.example; script-src *", "a b", "", "*", "a.example:80/x"):
        assert "connect-src 'self';" in page_headers(page, host)["Content-Security-Policy"]
    assert "wss://[::1]:8000" in page_headers(page, "[::1]:8000")["Content-Security-Policy"]


def test_only_known_kinds_of_files_are_pages(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.html", "sub/b.js", "c.py", "d"):
        (tmp_path / name).write_text(name)
    pages = load_pages(tmp_path)
    assert {name: (page.body, page.content_type) for name, page in pages.items()} == {
        "a.html": (b"a.html", "text/html; charset=utf-8"),
        "sub/b.js": (b"sub/b.js", "text/javascript; charset=utf-8"),
    }


@pytest.mark.parametrize(
    ("if_none_match", "known"),
    [('"a"', True), ('W/"a"', True), ('"b", "a"', True), ("*", True), ('"b"', False), ("", False), ("a", False)],
)
def test_validators(if_none_match: str, known: bool) -> None:
    assert is_known('"a"', if_none_match) is known
