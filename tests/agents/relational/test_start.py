"""What is found out before the first word, and the opening plan (SPEC R5; S0, "Session Start")."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from agents.aggregation.user import profile_name
from agents.aggregation.user_record import UserRecord, to_json
from agents.memory.summaries import NAME as SUMMARY
from agents.relational.guard import SpeakerGuard
from agents.relational.initial_plan import INITIAL_PLAN, OPENING_SECONDS, STORE_SECONDS, make_initial_plan
from agents.relational.start import MAX_RESULT, TASK_SECONDS, describe_span, find_out
from agents.relational.state import RelationalState
from agents.tools import FunctionToolBox
from engine.deliveries import Post
from engine.interfaces import Context, SessionLog
from engine.memory import MemoryScope, PastConversation
from engine.protocol.webhooks import Answer, CallError
from engine.store.documents import LogKind
from engine.testing.chat import Script, ScriptedChat, call
from engine.testing.stage import EPOCH
from tests.agents.relational.troupe import FakeMemory, agent, finder, make_context

WEBHOOK = {"url": "https://shop.example/who", "secret": "env:WEBHOOK_SECRET"}
CARD = {"name": "menu", "urls": ["https://cafe.example/menu"]}


@attrs.define
class Shop:
    """The operator's systems."""

    seconds: float = 0.5
    status: int = 200
    body: bytes | None = b'{"tier": "gold"}'
    failure: Exception | None = None
    calls: list[tuple[str, dict[str, Any], Mapping[str, str]]] = attrs.field(
        factory=list[tuple[str, dict[str, Any], Mapping[str, str]]]
    )

    @asynccontextmanager
    async def open(self, *, allow_private: bool) -> AsyncGenerator[Post]:
        async def post(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
            self.calls.append((url, json.loads(body), headers))
            await trio.sleep(self.seconds)
            if self.failure is not None:
                raise self.failure
            return Answer(self.status, self.body)

        yield post


def started(memory: FakeMemory | None = None, **fields: Any) -> tuple[Context, RelationalState]:
    context = make_context(memory=memory or FakeMemory())
    state = RelationalState(
        agent(**({"hasMemory": True, "preSessionWebhook": WEBHOOK, "multimodal": [CARD]} | fields)),
        SpeakerGuard("en"),
        shared_agents={"cook": "Karl"},
    )
    return context, state


def remembering() -> FakeMemory:
    memory = FakeMemory(seconds=0.1)
    cook = FakeMemory(past=PastConversation("s0", EPOCH, (("user", "Is there soup?"), ("assistant", "Yes."))))
    memory.others = {"cook": cook}
    return memory


async def fill(memory: FakeMemory, context: Context) -> None:
    await memory.append(MemoryScope.USER, profile_name(context), to_json(UserRecord(biography="A regular.")))
    facts = {"facts": [{"key": "tea", "text": "The user likes tea.", "at": "2026-01-01T00:00:00+00:00"}]}
    await memory.append(MemoryScope.APPLICATION, "facts", facts)
    await memory.append(MemoryScope.APPLICATION, SUMMARY, {"turns": 3, "text": "They booked a table."})
    verdicts = {"verdicts": [{"name": "tone", "score": 0.5, "reasons": ["Curt."]}]}
    await memory.append(MemoryScope.APPLICATION, "evaluation", verdicts)


async def test_all_is_found_out_at_the_same_time(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBHOOK_SECRET", "s3cret")
    memory = remembering()
    context, state = started(memory)
    await fill(memory, context)
    began = trio.current_time()
    shop = Shop()
    await find_out(context, state, shop.open)
    assert trio.current_time() - began == pytest.approx(0.5), "the slowest counts"
    assert state.webhook_result == '{"tier": "gold"}'
    assert "A regular." in state.biography
    assert "The user likes tea." in state.biography
    assert state.last_summary == "They booked a table."
    assert "tone: 0.50 of 1.00. Curt." in state.last_evaluation
    assert (state.shared_agent, state.shared_transcript) == ("Karl", "User: Is there soup?\nAgent: Yes.")
    assert state.guard.feed("r", "https://cafe.example/menu ") == "https://cafe.example/menu "
    [(url, body, headers)] = shop.calls
    assert url == "https://shop.example/who"
    assert (body["type"], body["sessionId"], body["agent"]) == ("session.starting", "s1", "barista")
    assert headers["X-Souffleur-Signature"].startswith("t=")


async def test_without_memory_only_the_links_are_seeded(autojump_clock: trio.testing.MockClock) -> None:
    context, state = started(hasMemory=False)
    shop = Shop()
    await find_out(context, state, shop.open)
    assert shop.calls == []
    assert len(state.guard.known) == 1
    assert (state.biography, state.last_summary, state.webhook_result) == ("", "", "")


@pytest.mark.parametrize(
    "shop",
    [
        Shop(seconds=100),
        Shop(status=500),
        Shop(status=302),
        Shop(body=None),
        Shop(failure=CallError("away")),
        Shop(failure=RuntimeError("a bug")),
    ],
)
async def test_a_webhook_that_fails_costs_only_its_own(
    shop: Shop, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBHOOK_SECRET", "s3cret")
    memory = remembering()
    context, state = started(memory)
    await fill(memory, context)
    began = trio.current_time()
    await find_out(context, state, shop.open)
    assert trio.current_time() - began <= TASK_SECONDS
    assert state.webhook_result == ""
    assert state.last_summary == "They booked a table."


async def test_a_secret_that_is_missing_costs_only_the_webhook(autojump_clock: trio.testing.MockClock) -> None:
    context, state = started(preSessionWebhook={"url": "https://x.example", "secret": "env:NOBODY_HAS_SET_THIS"})
    shop = Shop()
    await find_out(context, state, shop.open)
    assert (shop.calls, state.webhook_result) == ([], "")


async def test_a_long_answer_is_cut(autojump_clock: trio.testing.MockClock) -> None:
    context, state = started(preSessionWebhook={"url": "https://x.example"})
    await find_out(context, state, Shop(body=b"x" * (2 * MAX_RESULT)).open)
    assert len(state.webhook_result) == MAX_RESULT


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_memory_that_fails_keeps_nobody_waiting(how: str, autojump_clock: trio.testing.MockClock) -> None:
    memory = FakeMemory(seconds=100 if how == "hangs" else 0)
    memory.fails = {"facts", SUMMARY, "evaluation"}
    context, state = started(memory, preSessionWebhook=None)
    began = trio.current_time()
    await find_out(context, state, Shop().open)
    assert trio.current_time() - began == (TASK_SECONDS if how == "hangs" else 0)
    assert state.last_summary == ""


def test_how_long_ago_is_real_time() -> None:
    """Case C48: over the night in which the clocks change an hour is an hour."""
    now = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    assert describe_span(now, now - timedelta(hours=2)) == "2 hours"
    assert describe_span(now, now - timedelta(days=1)) == "1 day"
    assert describe_span(now, now - timedelta(minutes=90)) == "1 hour"
    assert describe_span(now, now - timedelta(seconds=20)) == "less than a minute"
    assert describe_span(now, now + timedelta(hours=1)) == "less than a minute"


# --- the opening plan -------------------------------------------------------------------------------------------------

OPENING: Script = ["Let me think. ", '{"results": "Ask about the soup."}']


async def opening(
    script: Script, memory: FakeMemory | None = None, turns: int = 0, **fields: Any
) -> tuple[str, FakeMemory, ScriptedChat]:
    memory = memory or FakeMemory()
    context, state = started(memory, **fields)
    context.session = context.session.model_copy(update={"turn_count": turns})
    context.shared_agents = {"cook": "Karl"}
    chat = ScriptedChat(lambda _: script)
    plan = await make_initial_plan(context, state, finder(chat))
    return plan.description, memory, chat


async def test_the_plan_is_made_and_kept(autojump_clock: trio.testing.MockClock) -> None:
    plan, memory, chat = await opening(OPENING)
    assert plan == "Ask about the soup."
    assert memory.bodies(MemoryScope.APPLICATION, INITIAL_PLAN)[0]["description"] == plan
    assert len(chat.requests) == 1


@pytest.mark.parametrize(("turns", "made"), [(0, True), (1, True), (2, False), (9, False)])
async def test_a_session_with_turns_keeps_the_stored_plan(
    turns: int, made: bool, autojump_clock: trio.testing.MockClock
) -> None:
    _, memory, _ = await opening(OPENING)
    plan, _, chat = await opening(['{"results": "Another."}'], memory, turns)
    assert plan == ("Another." if made else "Ask about the soup.")
    assert bool(chat.requests) is made


FAILURES: list[Script] = [
    ["no JSON"],
    ['{"results": ""}'],
    [OPENING_SECONDS + 1, '{"results": "Late."}'],
    [RuntimeError()],
]


@pytest.mark.parametrize("failure", FAILURES)
async def test_the_deadline_and_failures_choose_the_fallback(
    failure: Script, autojump_clock: trio.testing.MockClock
) -> None:
    own: dict[str, Any] = {"initialPlan": "Say that @[the cook](cook) greets too."}
    plan, memory, _ = await opening(failure, **own)
    assert plan == "Say that Karl greets too.", "nothing is remembered yet"
    assert trio.current_time() <= OPENING_SECONDS
    await opening(OPENING, memory)
    assert (await opening(failure, memory, **own))[0] == "Ask about the soup."
    assert (await opening(failure, memory, hasMemory=False, **own))[0] == "Say that Karl greets too."
    assert (await opening(failure, memory, hasMemory=False))[0] == ""


async def test_a_store_that_is_away_does_not_keep_the_session_from_starting(
    autojump_clock: trio.testing.MockClock,
) -> None:
    memory = FakeMemory()
    memory.fails = {INITIAL_PLAN}
    assert (await opening(OPENING, memory))[0] == "Ask about the soup."
    assert (await opening(["no JSON"], memory, initialPlan="Greet."))[0] == "Greet."
    memory.fails, memory.seconds = set(), 100
    began = trio.current_time()
    assert (await opening(["no JSON"], memory, initialPlan="Greet."))[0] == "Greet."
    assert trio.current_time() - began == STORE_SECONDS


class Log(SessionLog):
    def __init__(self) -> None:
        self.kinds: list[LogKind] = []

    def record(self, kind: LogKind, content: Any, **more: Any) -> None:
        self.kinds.append(kind)


async def price_of(drink: str) -> str:
    """What a drink costs."""
    await trio.lowlevel.checkpoint()
    return f"{drink}: 79"


async def test_its_tools_are_called_and_nobody_is_told(autojump_clock: trio.testing.MockClock) -> None:
    context, state = started()
    context.log = log = Log()
    state.opening_tools = FunctionToolBox([price_of])
    scripts: list[Script] = [[call("price_of", "c1", '{"drink": "tea"}')], OPENING]
    chat = ScriptedChat(lambda _: scripts.pop(0))
    plan = await make_initial_plan(context, state, finder(chat))
    assert plan.description == "Ask about the soup."
    assert log.kinds.count(LogKind.TOOL) == 1
    assert [tool.name for tool in chat.requests[0].tools] == ["price_of"]
