"""What happened, over HTTP: who reads which session, page by page."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from engine.store.contract import SessionFilter
from engine.store.documents import (
    InstructionOutcome,
    InstructionRecord,
    LogEntry,
    LogKind,
    MessageDocument,
    SessionDocument,
    SessionState,
    Staleness,
    SteeringRecord,
    TimingLog,
    ToolRecord,
    TurnDocument,
    TurnInputRecord,
    TurnOutputRecord,
    UsageDocument,
)
from tests.engine.transport.managed import FILE, Managed, furnish, open_managed

STEERING = SteeringRecord(
    instructions=8,
    spoken=1,
    used=4,
    superseded=1,
    unused=2,
    passes=3,
    planned_passes=2,
    cancelled_passes=1,
    responses=3,
    plan_staleness_turns=Staleness(mean=1.333, max=2),
    plan_staleness_seconds=Staleness(mean=7.5, max=12.25),
)
PARTS = ("", "/turns", "/messages", "/usage", "/llm-log")


@pytest.fixture(autouse=True)
def _passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVAS_PASSWORD", "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA")


async def hold(
    managed: Managed, session_id: str, *, owner: str = "user:mia", project: str = "house", **more: Any
) -> None:
    """A session of three turns, with lines, usage and a log; each one a minute after the one before."""
    count = len(await managed.store.list_sessions(SessionFilter(), limit=100))
    at = managed.services.environment.wall_clock() + timedelta(minutes=count)
    fields: dict[str, Any] = {
        "id": session_id,
        "owner": owner,
        "user_id": owner,
        "project_ref": project,
        "agent": "host",
        "created_at": at,
        "updated_at": at,
        "steering": STEERING,
        **more,
    }
    await managed.store.open_session(SessionDocument(**fields))
    saved: dict[str, Any] = {"state": SessionState.CLOSED, **fields, "fence": 1, "turn_count": 3}
    await managed.store.save_session(SessionDocument(**saved))
    turns = [
        TurnDocument(
            id=f"{session_id}-t{index}",
            session_id=session_id,
            index=index,
            started_at=at,
            input=TurnInputRecord(text="Hello.", kind="speech"),
            output=[TurnOutputRecord(text="Good day.", heard="Good", response_id="r1", status="cancelled")],
            interrupted=True,
            tools=[ToolRecord(call_id="c", name="clock", parameters={"zone": "UTC"}, result="noon")],
            instructions=[
                InstructionRecord(
                    type="INSTRUCTION",
                    text="Be brief.",
                    id="i1",
                    pass_id="t1/1",
                    injected_ms=2340,
                    outcome=InstructionOutcome.SPOKEN,
                    response_id="r2",
                    spoken_in_turn="t1",
                )
            ],
            multimodal=[{"kind": "card", "name": "menu"}],
            timing=TimingLog(final_transcript=0, first_audio=310),
        )
        for index in range(3)
    ]
    await managed.store.append_turns(turns, fence=1)
    lines = [
        MessageDocument(
            id=f"{session_id}-m{n}", session_id=session_id, position=n, role="user", text="Hi", created_at=at
        )
        for n in (2, 5, 9)
    ]
    await managed.store.append_messages(lines, fence=1)
    for number in range(3):
        usage = UsageDocument(
            id=f"{session_id}-u{number}",
            session_id=session_id,
            provider="Internal",
            input_tokens=number,
            created_at=at + timedelta(seconds=number),
        )
        await managed.store.save_usage(usage)
    log = [
        LogEntry(
            id=f"{session_id}-l{number}",
            session_id=session_id,
            position=number,
            at=at,
            kind=LogKind.PROMPT,
            content={"text": "You are the host."},
        )
        for number in range(3)
    ]
    await managed.store.append_log(log)


@asynccontextmanager
async def open_history(directory: Path, **more: Any) -> AsyncGenerator[Managed]:
    """Sessions of Mia, Olga and somebody anonymous, in the house and in the shop, and one of Mia's that was let in nowhere."""
    async with open_managed(directory, **more) as managed:
        await furnish(managed)
        await hold(managed, "s1")
        await hold(managed, "s2", owner="user:olga")
        await hold(managed, "s3", owner="anonymous-1", project="shop", agent="seller", state=SessionState.IDLE)
        await hold(managed, "s4", project="shop", agent="seller")
        await hold(managed, "s5", project="", agent="")
        yield managed


async def ids(managed: Managed, query: str = "", *, key: str = "admin") -> list[str]:
    return [each["id"] for each in (await managed.read(f"/api/sessions{query}", key=key))["items"]]


async def test_who_reads_which_sessions(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_history(tmp_path) as managed:
        readable = {
            "admin": ["s5", "s4", "s3", "s2", "s1"],
            "mia": ["s5", "s4", "s1"],  # her own
            "olga": ["s2", "s1"],  # of her project
            "limited": ["s2", "s1"],  # an admin's key that was made for the house
            "oscar": [],
        }
        for key, expected in readable.items():
            assert await ids(managed, key=key) == expected, key
            for session_id in ("s1", "s2", "s3", "s4", "s5"):
                for part in PARTS:
                    answer = await managed.ask("GET", f"/api/sessions/{session_id}{part}", key=key)
                    wanted = 200 if session_id in expected else 404
                    assert answer.status == wanted, (key, session_id, part)


async def test_anothers_looks_like_none(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_history(tmp_path) as managed:
        for part in PARTS:
            for key in ("mia", "olga", "oscar"):
                other = await managed.ask("GET", f"/api/sessions/s3{part}", key=key)
                none = await managed.ask("GET", f"/api/sessions/none{part}", key=key)
                assert (other.status, other.body) == (none.status, none.body) == (404, none.body)
            for key in ("", "wrong"):
                refused = await managed.ask("GET", f"/api/sessions/s1{part}", key=key)
                assert refused.status == 401
                assert "www-authenticate" in refused.headers
        assert (await managed.refusal("GET", "/api/sessions", key=""))[0] == 401


async def test_filters(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_history(tmp_path) as managed:
        for query, expected in {
            "owner=user:mia": ["s5", "s4", "s1"],
            "owner=user:mia&project=house": ["s1"],
            "project=shop": ["s4", "s3"],
            "agent=seller&state=IDLE": ["s3"],
            "state=CLOSED&project=house": ["s2", "s1"],
            "owner=nobody": [],
            "project=$ne": [],
            "agent=%00": [],
        }.items():
            assert await ids(managed, f"?{query}") == expected, query
        for query, expected in {
            "owner=user:mia": ["s1"],
            "owner=user:olga": ["s2"],  # her own, wherever they were
            "project=shop": [],
        }.items():
            assert await ids(managed, f"?{query}", key="olga") == expected, query
        assert await ids(managed, "?owner=user:olga", key="mia") == []
        assert await ids(managed, "?owner=user:mia&project=shop", key="mia") == ["s4"]
        for query in ("state=open", "state=", "user=mia", "limit=0", "limit=2000"):
            assert (await managed.refusal("GET", f"/api/sessions?{query}"))[0] == 400


async def test_an_owner_reads_their_own_elsewhere(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_history(tmp_path) as managed:
        await hold(managed, "s6", owner="user:olga", project="shop", agent="seller")
        assert await ids(managed, "?owner=user:olga", key="olga") == ["s6", "s2"]
        assert (await managed.ask("GET", "/api/sessions/s6/turns", key="olga")).status == 200


async def test_pages(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_history(tmp_path) as managed:
        for path, field, expected in (
            ("/api/sessions", "id", ["s5", "s4", "s3", "s2", "s1"]),
            ("/api/sessions/s1/turns", "index", [0, 1, 2]),
            ("/api/sessions/s1/messages", "position", [2, 5, 9]),
            ("/api/sessions/s1/usage", "inputTokens", [0, 1, 2]),
            ("/api/sessions/s1/llm-log", "position", [0, 1, 2]),
        ):
            for limit in (1, 2, 3, 5, 1000):
                found, after = list[object](), ""
                while True:
                    page = await managed.read(f"{path}?limit={limit}{after}")
                    assert 0 < len(page["items"]) <= limit
                    found += [each[field] for each in page["items"]]
                    if page["next"] is None:
                        break
                    after = f"&after={page['next']}"
                assert found == expected, (path, limit)
            if path != "/api/sessions":
                for after in ("x", "-1", "1.5", "", "9" * 16, "%D9%A1"):
                    assert (await managed.refusal("GET", f"{path}?after={after}"))[0] == 400
                assert (await managed.read(f"{path}?after={'9' * 15}"))["items"] == []
        assert await ids(managed, "?after=none") == []


async def test_a_turn_is_as_the_protocol_says(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_history(tmp_path) as managed:
        turn = (await managed.read("/api/sessions/s1/turns", key="mia"))["items"][0]
        assert turn == {
            "id": "s1-t0",
            "index": 0,
            "sessionId": "s1",
            "startedAt": "2030-01-01T00:00:00Z",
            "input": {"text": "Hello.", "kind": "speech"},
            "output": [{"text": "Good day.", "heard": "Good"}],
            "interrupted": True,
            "tools": [
                {
                    "callId": "c",
                    "name": "clock",
                    "parameters": {"zone": "UTC"},
                    "result": "noon",
                    "error": "",
                    "owner": "model",
                }
            ],
            "instructions": [
                {
                    "type": "INSTRUCTION",
                    "text": "Be brief.",
                    "id": "i1",
                    "passId": "t1/1",
                    "injectedMs": 2340,
                    "outcome": "spoken",
                    "responseId": "r2",
                    "spokenInTurn": "t1",
                }
            ],
            "multimodal": [{"kind": "card", "name": "menu"}],
            "timing": {
                "lastInterim": None,
                "finalTranscript": 0,
                "firstText": None,
                "lastText": None,
                "firstAudio": 310,
                "lastAudio": None,
            },
        }


async def test_a_session_is_shown_without_its_fence(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_history(tmp_path) as managed:
        shown = await managed.ask("GET", "/api/sessions/s1")
        assert "fence" not in shown.json
        assert (shown.json["state"], shown.json["projectRef"], shown.json["turnCount"]) == ("CLOSED", "house", 3)
        again = await managed.ask("GET", "/api/sessions/s1", If_None_Match=shown.headers["etag"])
        assert again.status == 304


async def test_how_a_session_was_steered(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_history(tmp_path) as managed:
        shown = (await managed.ask("GET", "/api/sessions/s1", key="mia")).json["steering"]
        assert shown == {
            "instructions": 8,
            "spoken": 1,
            "used": 4,
            "superseded": 1,
            "unused": 2,
            "usedShare": 0.625,
            "passes": 3,
            "plannedPasses": 2,
            "cancelledPasses": 1,
            "responses": 3,
            "planStalenessTurns": {"mean": 1.333, "max": 2},
            "planStalenessSeconds": {"mean": 7.5, "max": 12.25},
        }
        await hold(managed, "s8", steering=None)
        await hold(managed, "s9", steering=SteeringRecord(passes=1))
        assert (await managed.ask("GET", "/api/sessions/s8")).json["steering"] is None
        never = (await managed.ask("GET", "/api/sessions/s9")).json["steering"]
        assert (never["usedShare"], never["planStalenessTurns"]) == (None, {"mean": None, "max": None})
        assert {each["steering"] for each in (await managed.read("/api/sessions"))["items"]} == {None}


async def test_steering_that_is_not_shown(tmp_path: Path, autojump_clock: MockClock) -> None:
    """What the planner whispers, and what models are told, is for those who own the agent (L13)."""
    file = FILE.replace('purpose: "Greet."', "showSteering: false")
    async with open_history(tmp_path, file=file) as managed:
        for key, expected in {"admin": "Be brief.", "olga": "Be brief.", "mia": None}.items():
            turn = (await managed.read("/api/sessions/s1/turns", key=key))["items"][0]
            assert [each["text"] for each in turn["instructions"]] == ([expected] if expected else [])
            answer = await managed.ask("GET", "/api/sessions/s1/llm-log", key=key)
            assert answer.status == (200 if expected else 403)
            session = (await managed.ask("GET", "/api/sessions/s1", key=key)).json
            assert (session["steering"] is not None) == bool(expected)
        await managed.ask("DELETE", "/api/agents/seller")  # whoever it was, it may not have wanted to show it
        assert (await managed.ask("GET", "/api/sessions/s4/llm-log", key="mia")).status == 403
        assert (await managed.ask("GET", "/api/sessions/s5/llm-log", key="mia")).status == 200  # there was no agent


async def test_a_log_is_redacted(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_history(tmp_path) as managed:
        place = "/api/sessions/s1/llm-log"
        assert (await managed.refusal("DELETE", place, key="mia"))[0] == 403
        assert (await managed.refusal("DELETE", place, key="oscar"))[0] == 404
        assert (await managed.refusal("DELETE", place, key=""))[0] == 401
        contents = [each["content"] for each in (await managed.read(place))["items"]]
        assert contents == [{"text": "You are the host."}] * 3
        answer = await managed.ask("DELETE", place, key="olga")
        assert (answer.status, answer.json) == (200, {"redacted": 3})
        entries = (await managed.read(place))["items"]
        assert [(each["kind"], each["content"]) for each in entries] == [("prompt", None)] * 3
        assert (await managed.ask("DELETE", "/api/sessions/s3/llm-log")).json == {"redacted": 3}


async def test_a_project_that_is_gone(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Its sessions are an admin's, and their owners'."""
    async with open_history(tmp_path) as managed:
        await hold(managed, "s7", project="gone")
        assert (await managed.ask("GET", "/api/sessions/s7")).status == 200
        assert (await managed.ask("GET", "/api/sessions/s7", key="mia")).status == 200
        assert (await managed.ask("GET", "/api/sessions/s7", key="olga")).status == 404


async def test_an_id_of_a_session_may_hold_a_slash(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Clients choose them."""
    async with open_history(tmp_path) as managed:
        await hold(managed, "a/b")
        assert (await managed.read("/api/sessions/a%2Fb"))["id"] == "a/b"
        assert len((await managed.read("/api/sessions/a%2Fb/turns"))["items"]) == 3
        assert (await managed.refusal("GET", "/api/sessions/a/b"))[0] == 404
