"""What agents get from outside: the same again when nothing is outside."""

import functools
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import trio

from agents import equipment as equipment_room
from agents import tools
from agents.basic import BasicAgentInteractionManager
from agents.definitions import BasicAgent, RelationalAgent
from agents.equipment import Equipment, Libraries, open_equipment
from agents.mcp.served import ServedToolBox
from agents.relational.asking import PlannerCalls
from agents.relational.guard import SpeakerGuard
from agents.relational.start import find_out
from agents.relational.state import RelationalState
from agents.tools import FunctionToolBox
from engine.boundary import Boundary
from engine.calling import call_tool
from engine.capsule.file import Kind
from engine.capsule.keeper import MemoryCapsules
from engine.capsule.replay import replay
from engine.deliveries import open_post
from engine.elements import InputText, JsonObject, ToolEvent, ToolPhase
from engine.errors import ConfigurationError
from engine.interfaces import ChatToolCall, Context, PlanningElement, ToolBox, ToolError, ToolResult, ToolSpecification
from engine.session.holdings import SessionHoldings
from engine.session.services import Parts
from engine.testing.schedule import run_repeatably
from engine.testing.speaker import ConversingModel, Use
from engine.testing.stage import ScriptedAgent, open_stage
from tests.agents.kept import Guard, again, run_twice, same
from tests.agents.mcp.support import HERE, until
from tests.agents.relational.test_start import WEBHOOK, Shop
from tests.agents.relational.troupe import FakeMemory, agent, make_context

MENU = '''
from datetime import date
from typing import Annotated
import time
import attrs
import trio
from pydantic import BaseModel, Field
from engine.elements import MultimodalInteraction, MultimodalKind, OnInterruption
from engine.interfaces import Context, ToolError, ToolResult
from agents.tools import tool

class SoldOut(ToolError):
    def __init__(self, drink, where):
        super().__init__(drink, where)
    def __str__(self):
        return f"{self.args[0]} is sold out"

class Broken(Exception):
    pass

@attrs.frozen
class Item:
    name: str
    price: float

class Order(BaseModel):
    item: str
    on: date = date(2026, 4, 1)

def price_of(drink: str, size: Annotated[int, Field(ge=1, le=3)] = 1) -> dict:
    """What a drink costs.

    Args:
        drink: As it stands on the menu.
    """
    time.sleep(0.02 if drink == "tea" else 0.01)
    return {"drink": drink, "price": 79 * size, "much": 10**30, "$": "kept", "when": date(2026, 4, 1)}

@tool(timeout_seconds=3, on_interruption="shield")
async def order(order: Order, context: Context) -> ToolResult:
    await trio.sleep(0.01)
    item = Item(order.item, 1.5)
    card = MultimodalInteraction(MultimodalKind.CARD, "bill", {"total": 1.5, "lines": [1, None]})
    return ToolResult({"item": item, "order": order, "turn": context.turn_id}, (card,), ends_session=True)

async def sell_out(drink: str) -> str:
    raise SoldOut(drink, trio)

async def refuse() -> str:
    raise ToolError("not today")

async def break_down() -> str:
    raise Broken("of ours")

async def add_up() -> str:
    raise ValueError("of Python's")

async def nonsense() -> object:
    return trio

async def deep() -> object:
    found = []
    for _ in range(200):
        found = [found]
    return found

async def slowly() -> str:
    await trio.sleep(60)
    return "never"
'''


def as_kept(made: Any) -> Any:
    """An agent as the catalog gives it when nothing is outside: it comes from nowhere."""
    return again(made)


async def outcome(box: ToolBox, name: str, arguments: JsonObject, context: Context, seconds: float = 5) -> object:
    """What the model is told of a call, and its result."""
    try:
        return await call_tool(box, name, arguments, context, seconds)
    except ToolError as exc:
        return str(exc)


async def opened(made: Any, boundary: Boundary, **fields: Any) -> tuple[Equipment, Context]:
    """The equipment of an agent whose session holds nothing."""
    context = make_context(boundary=boundary, **fields)
    made = as_kept(made) if boundary.is_replayed else made
    return await open_equipment(context, made, Libraries(), with_skills=True), context


def specifications(equipment: Equipment) -> Sequence[ToolSpecification]:
    return tuple(equipment.box.specifications)


# --- tools of one's own -------------------------------------------------------------------------------------------------


@pytest.fixture
def menu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A module of tools; what is returned takes it away."""
    (tmp_path / "leaf_menu.py").write_text(MENU)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "leaf_menu", raising=False)
    tools.load_tool.cache_clear()

    def gone() -> None:
        (tmp_path / "leaf_menu.py").unlink()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        monkeypatch.delitem(sys.modules, "leaf_menu", raising=False)
        tools.load_tool.cache_clear()

    return gone


NAMES = ("price_of", "order", "sell_out", "refuse", "break_down", "add_up", "nonsense", "deep", "slowly")


def own(*names: str, **fields: Any) -> RelationalAgent:
    return agent(tools=[f"leaf_menu:{name}" for name in names], **fields)


def test_tools_of_ones_own(menu: Callable[[], None]) -> None:
    async def part(boundary: Boundary) -> object:
        equipment, context = await opened(own(*NAMES), boundary)
        call = functools.partial(outcome, equipment.box, context=context)
        return [
            specifications(equipment),
            await call("price_of", {"drink": "tea", "size": 2}),
            await call("price_of", {"drink": "tea", "size": 9}),
            await call("price_of", {"what": 10**40}),
            await call("order", {"order": {"item": "tea"}}),
            *[await call(name, {"drink": "tea"} if name == "sell_out" else {}) for name in NAMES[2:8]],
            await call("slowly", {}, seconds=0.1),
            await call("nothing", {}),
        ]

    found = cast("list[Any]", run_twice(part, menu))
    known, price, too_large, unfit, ordered, sold_out, refused, broken, added, nonsense, deep, slow, nothing = found
    assert [each.name for each in known][:9] == list(NAMES)
    assert known[1].timeout_seconds == 3
    assert price.output == {"drink": "tea", "price": 158, "much": 10**30, "$": "kept", "when": "2026-04-01"}
    assert "size" in too_large
    assert "what" in unfit
    assert ordered.ends_session
    assert ordered.interactions[0].data == {"total": 1.5, "lines": [1, None]}
    assert ordered.output == {
        "item": {"name": "tea", "price": 1.5}, "order": {"item": "tea", "on": "2026-04-01"}, "turn": "turn-1",
    }  # fmt: skip
    assert (sold_out, refused) == ("tea is sold out", "not today")
    assert (broken, added) == ("Tool break_down failed.", "Tool add_up failed.")
    assert "is not JSON" in nonsense
    assert deep == "Tool deep returned a result that cannot be read."
    assert slow == "Tool slowly did not answer in 0.1 seconds."
    assert nothing == "Tool nothing does not exist."


def test_calls_at_the_same_time_keep_their_answers(menu: Callable[[], None]) -> None:
    async def part(boundary: Boundary) -> object:
        equipment, context = await opened(own("price_of"), boundary)
        told: list[object] = []

        async def emit(element: PlanningElement) -> None:
            await trio.lowlevel.checkpoint()
            assert isinstance(element, ToolEvent)
            if element.phase is ToolPhase.START:
                told.append((element.call_id, dict(element.parameters)))

        drinks = ["tea", "milk", "{", "mate", "chai"]
        calls = [
            ChatToolCall(f"c{n}", "price_of", drink if drink == "{" else f'{{"drink": "{drink}"}}')
            for n, drink in enumerate(drinks)
        ]
        outputs = await PlannerCalls(equipment.box, context, "turn-1", emit).run(calls)
        return told, outputs

    told, outputs = cast("tuple[list[Any], list[str]]", run_twice(part, menu))
    assert [parameters.get("drink", "") for _, parameters in told] == ["tea", "milk", "", "mate", "chai"]
    assert [call_id for call_id, _ in told] == sorted(call_id for call_id, _ in told)
    assert [drink in output for drink, output in zip(["tea", "milk", "error", "mate", "chai"], outputs, strict=True)]


@pytest.mark.parametrize("reference", ["leaf_menu:nowhere", "no_such_module_here:x", "leaf_menu:MENU", "no-entry"])
def test_a_tool_that_cannot_be_loaded(menu: Callable[[], None], reference: str) -> None:
    async def part(boundary: Boundary) -> str:
        with pytest.raises(ConfigurationError) as failure:
            await opened(agent(tools=[reference]), boundary)
        return str(failure.value)

    assert reference.partition(":")[0] in run_twice(part, menu)


def test_the_speaker_of_a_basic_agent_has_them_too(menu: Callable[[], None]) -> None:
    made = BasicAgent.model_validate(
        {"type": "basic", "ref": "a", "name": "Ada", "realtimeConfigurationId": "x", "tools": ["leaf_menu:price_of"]}
    )

    async def part(boundary: Boundary) -> object:
        context = make_context(boundary=boundary, content=as_kept(made) if boundary.is_replayed else made)
        manager = BasicAgentInteractionManager(Libraries())
        await manager.on_session_start(context)
        box = manager.get_tool_box(context)
        return tuple(box.specifications), await outcome(box, "price_of", {"drink": "tea"}, context)

    known, _ = cast("tuple[Sequence[ToolSpecification], object]", run_twice(part, menu))
    assert "price_of" in [each.name for each in known]


# --- knowledge, skills, pages -------------------------------------------------------------------------------------------


def written(folder: Path) -> Path:
    (folder / "rules.md").write_text(
        "---\ntitle: House rules\nurl: https://cafe.example/rules\n---\n# Dogs\n\nDogs are welcome.\n\n# Cats\n\n"
        + "Cats stay at the door. " * 300
    )
    (folder / "calm").mkdir()
    (folder / "calm" / "SKILL.md").write_text("---\nname: calm\ndescription: To calm people.\n---\nBreathe slowly.\n")
    (folder / "calm" / "breath.md").write_text("In, and out.")
    return folder


def test_knowledge(tmp_path: Path) -> None:
    made = agent(knowledge=["rules.md"]).placed(written(tmp_path))

    async def part(boundary: Boundary) -> object:
        equipment, context = await opened(made, boundary)
        call = functools.partial(outcome, equipment.box, context=context)
        return [
            specifications(equipment),
            equipment.knowledge_names,
            await call("search_knowledge", {"query": "dogs"}),
            await call("search_knowledge", {"query": "cats door", "source": "rules"}),
            await call("search_knowledge", {"query": "dogs", "source": "menu"}),
            await call("read_knowledge", {"passage_id": "k2"}),
            await call("read_knowledge", {"passage_id": "k99"}),
            await call("search_knowledge", {}),
            equipment.cite("Welcome [k1], at the door [k2], or not [k98]."),
        ]

    found = cast("list[Any]", run_twice(part, functools.partial(shutil.rmtree, tmp_path)))
    assert found[1] == ["Rules"]  # its title is known when it has been taken in
    assert found[2].output["results"][0]["id"] == "k1"
    assert found[4].output["sources"] == ["House rules"]
    assert found[6] == "There is no passage k99; use an id from the results of search_knowledge."
    assert "Welcome ([House rules](https://cafe.example/rules))" in found[8]


def test_knowledge_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = agent(knowledge=["rules.md"]).placed(written(tmp_path))
    monkeypatch.setattr("agents.knowledge.library.KnowledgeLibrary._make_index", _broken)

    async def part(boundary: Boundary) -> object:
        equipment, context = await opened(made, boundary)
        return list(equipment.knowledge_names), await outcome(
            equipment.box, "search_knowledge", {"query": "dogs"}, context
        )

    assert run_twice(part, monkeypatch.undo) == ([], "The knowledge cannot be reached now.")


def _broken(_: object) -> None:
    raise OSError(5, "no disk")


def test_skills(tmp_path: Path) -> None:
    made = agent(skills=["calm", "nowhere"]).placed(written(tmp_path))

    async def part(boundary: Boundary) -> object:
        equipment, context = await opened(made, boundary)
        call = functools.partial(outcome, equipment.box, context=context)
        return [
            specifications(equipment),
            equipment.describe_skills(),
            await call("activate_skill", {"name": "calm"}),
            equipment.describe_skills(),
            await call("read_skill_resource", {"skill": "calm", "path": "breath.md"}),
            await call("read_skill_resource", {"skill": "calm", "path": "nothing.md"}),
            await call("read_skill_resource", {"skill": "none", "path": "breath.md"}),
            await call("deactivate_skill", {"name": "calm"}),
            equipment.describe_skills(),
        ]

    found = cast("list[Any]", run_twice(part, functools.partial(shutil.rmtree, tmp_path)))
    assert found[1] == found[8] == "- calm: To calm people."
    assert "Breathe slowly." in found[3]
    assert found[4].output == "In, and out."
    assert found[5] == "The skill calm has no resource nothing.md. There are: breath.md."


def test_an_agent_that_was_made_over_the_api_has_none_of_both() -> None:
    async def part(boundary: Boundary) -> object:
        equipment, _ = await opened(agent(knowledge=["rules.md"], skills=["calm"]), boundary)
        return [each.name for each in specifications(equipment)]

    assert run_twice(part, _nothing_goes) == ["read_web_page"]


def _nothing_goes() -> None:
    pass


def test_pages() -> None:
    """What can be asked of them without the web."""

    async def part(boundary: Boundary) -> object:
        equipment, context = await opened(agent(), boundary)
        call = functools.partial(outcome, equipment.box, "read_web_page", context=context)
        return [
            specifications(equipment),
            await call(arguments={"url": "http://127.0.0.1/x"}),
            await call(arguments={"url": "ftp://x"}),
            await call(arguments={}),
        ]

    found = cast("list[Any]", run_twice(part, _nothing_goes))
    assert found[1] == "That address is not one of the public internet; it may not be read."


# --- servers of tools ---------------------------------------------------------------------------------------------------


async def held(made: Any, boundary: Boundary, use: Callable[[Equipment, Context], Any]) -> Any:
    """With the servers connected as long as it is used."""
    async with trio.open_nursery() as nursery:
        holdings = SessionHoldings(nursery, 10)
        equipment, context = await opened(made, boundary, holdings=holdings)
        found = await use(equipment, context)
        holdings.release()
    return found


@pytest.mark.sockets
def test_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is called before the servers are there does not exist, and on a busy machine loading the SDK alone takes longer than that.
    monkeypatch.setattr(equipment_room, "SERVERS_SECONDS", 30.0)
    script = tmp_path / "server.py"
    shutil.copy(HERE / "tiny_server.py", script)
    servers = [
        {"name": "tiny", "command": [sys.executable, "-I", "-S", str(script)]},
        {"name": "gone", "command": [str(tmp_path / "nothing")]},
    ]
    made = agent(mcpServers=servers).placed(tmp_path)

    async def use(equipment: Equipment, context: Context) -> list[Any]:
        call = functools.partial(outcome, equipment.box, context=context)
        found = [
            specifications(equipment),
            equipment.mcp_names,
            await call("echo", {"text": "hello"}),
            await call("fail", {}),
            await call("ask", {}),
            await call("fresh", {}),
            await call("change", {}),
        ]
        await until(lambda: any(each.name == "fresh" for each in specifications(equipment)))
        found += [specifications(equipment), await call("fresh", {"text": "new"})]
        found += [await call("die", {}, seconds=30), await call("echo", {})]
        return found

    async def part(boundary: Boundary) -> Any:
        return await held(made, boundary, use)

    found = run_twice(part, script.unlink)
    assert "echo" in [each.name for each in found[0]]
    assert found[2:7] == [
        ToolResult("hello"), "there is no such drink", ToolResult("asked"), "Tool fresh does not exist.", ToolResult("done"),
    ]  # fmt: skip
    assert [each.name for each in found[7] if each not in found[0]] == ["fresh"]
    assert found[8:] == [
        ToolResult("new"), "The connection to the server tiny was lost; whether it has done it is not known.",
        "The server tiny cannot be reached now; do without it.",
    ]  # fmt: skip


@attrs.define(eq=False)
class Changing(ToolBox):
    """Tools of servers that take their time."""

    names: list[str]
    log: list[object]

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return [ToolSpecification(name, "", {"type": "object", "properties": {}}) for name in self.names]

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        await trio.sleep(0.25)
        return ToolResult(f"{name} has done it")


def test_servers_that_are_late() -> None:
    """They connect after 5 s, change at 6 s and at 7 s, then twice at once, and are called in between."""
    log: list[object] = []

    @asynccontextmanager
    async def connect(changed: Callable[[], None]) -> AsyncGenerator[ToolBox]:
        await trio.sleep(5)
        box = Changing(["first"], log)

        async def change() -> None:
            await trio.sleep(1)
            box.names = ["first", "second"]
            changed()
            await trio.sleep(1)
            box.names = []
            changed()
            box.names = ["third"]
            changed()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            yield box
            log.append("closed")

    async def part(boundary: Boundary) -> object:
        seen: list[tuple[float, object]] = []
        context = make_context(boundary=boundary)
        box, began = ServedToolBox(), trio.current_time()

        def see(what: object) -> None:
            seen.append((round(trio.current_time() - began, 3), what))

        async def look() -> None:
            before: list[str] = ["?"]
            await trio.sleep(0.03125)  # never at the instant at which something happens
            while True:
                now = [each.name for each in box.specifications]
                if now != before:
                    see(now)
                    before = now
                await trio.sleep(0.125)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            async with box.connected(connect, boundary):
                await box.arrived.wait()
                see("arrived")
                see(await outcome(box, "first", {}, context))
                see(await outcome(box, "third", {}, context))
                await trio.sleep(4)
            nursery.cancel_scope.cancel()
        return seen

    assert run_twice(part, _nothing_goes, is_virtual=True) == [
        (0.031, []),
        (5.0, "arrived"),
        (5.031, ["first"]),
        (5.25, ToolResult("first has done it")),
        (5.25, "Tool third does not exist."),
        (6.031, ["first", "second"]),
        (7.031, ["third"]),
    ]
    assert log == ["closed", "closed"]  # of the two runs that were kept; the others opened nothing


def test_servers_that_cannot_be_had() -> None:
    def import_it() -> None:
        raise ModuleNotFoundError("there is no SDK")

    @asynccontextmanager
    async def connect(changed: Callable[[], None]) -> AsyncGenerator[ToolBox]:
        await trio.sleep(1)
        import_it()
        yield FunctionToolBox([])

    async def part(boundary: Boundary) -> object:
        began = trio.current_time()
        with pytest.raises(ModuleNotFoundError) as failure:
            async with ServedToolBox().connected(connect, boundary):
                raise AssertionError
        return str(failure.value), round(trio.current_time() - began, 3)

    assert run_twice(part, _nothing_goes, is_virtual=True) == ("there is no SDK", 1.0)


# --- the webhook --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shop", "told"),
    [(Shop(), '{"tier": "gold"}'), (Shop(status=500), ""), (Shop(seconds=60), "")],
)
def test_the_webhook_before_a_session(shop: Shop, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBHOOK_SECRET", "s3cret")
    made = agent(hasMemory=True, preSessionWebhook=WEBHOOK)

    async def part(boundary: Boundary) -> object:
        context = make_context(boundary=boundary, memory=FakeMemory())
        state = RelationalState(made, SpeakerGuard("en", lambda: None), {})
        post = open_post if boundary.is_replayed else shop.open
        await find_out(context, state, post)
        return state.webhook_result, round(trio.current_time(), 3) >= shop.seconds or bool(told)

    found = cast("tuple[str, bool]", run_twice(part, lambda: monkeypatch.delenv("WEBHOOK_SECRET"), is_virtual=True))
    assert found[0] == told
    assert len(shop.calls) == 2  # once for each boundary that keeps it


# --- a whole session ----------------------------------------------------------------------------------------------------


def test_a_session_of_an_agent_with_a_tool_of_its_own(menu: Callable[[], None]) -> None:
    """It is run again where the tool's module does not exist, and its client is told the same."""
    made = BasicAgent.model_validate(
        {"type": "basic", "ref": "tester", "name": "Ada", "realtimeConfigurationId": "x", "tools": ["leaf_menu:order"]}
    )
    capsules = MemoryCapsules()
    order = Use("order", '{"order": {"item": "tea"}}')

    async def converse() -> None:
        async with open_stage(
            model=ConversingModel(lambda request: ["I order it.", order, "It is on its way."]),
            managers=[BasicAgentInteractionManager(Libraries())],
            agent=cast("ScriptedAgent", made),
            keep=capsules.keep,
        ) as stage:
            await stage.client.send(InputText("A tea, please."))
            await stage.client.wait_for_command("session-end")

    run_repeatably(0, converse)
    (capsule,) = capsules.capsules
    menu()
    parts = Parts(
        models={"Scripted": ConversingModel("Nothing.")}, managers=[BasicAgentInteractionManager(Libraries())]
    )
    with Guard():
        result = replay(capsule, parts)
    assert result.divergence is None
    assert result.told == result.expected > 0
    assert "bill" in str([record.fields for record in capsule.records if record.kind is Kind.OUT])


# --- what is in a capsule -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 10**40, -(2**63), -(2**63) - 1, -(10**40)])
def test_integers_of_any_size(number: int) -> None:
    same({"a": [number]})


def test_what_an_exception_came_of_need_not_be_known() -> None:
    error = ToolError("it is away")
    error.__cause__ = trio.BrokenResourceError("known")
    assert type(same(error).__cause__) is trio.BrokenResourceError
    error.__cause__ = pytest.UsageError("unknown")
    assert repr(same(error).__cause__) == "Exception('unknown')"
