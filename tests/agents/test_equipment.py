"""What agents may call, put together for one session."""

import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from agents.equipment import JoinedToolBox, Libraries, open_equipment
from agents.mcp.served import ServedToolBox
from engine.config import PipelineConfiguration
from engine.elements import JsonObject
from engine.interfaces import Context, ToolResult
from engine.session.holdings import SessionHoldings
from tests.agents.mcp.support import HERE, processes
from tests.agents.relational.troupe import agent, make_context

SDK_SERVER = HERE / "sdk_server.py"


def beside(folder: Path) -> Path:
    """A project's folder with a document and a skill."""
    (folder / "rules.md").write_text(
        "---\ntitle: House rules\nurl: https://cafe.example/rules\n---\n# Dogs\n\nDogs are welcome."
    )
    (folder / "calm").mkdir()
    (folder / "calm" / "SKILL.md").write_text(
        "---\nname: calm\ndescription: How to calm people.\n---\nBreathe slowly.\n"
    )
    return folder


def names(box: Any) -> list[str]:
    return [specification.name for specification in box.specifications]


async def call(box: Any, name: str, arguments: JsonObject, context: Context) -> Any:
    result: ToolResult = await box.call(name, arguments, context)
    return result.output


async def test_a_planner_has_all_of_it(tmp_path: Path) -> None:
    made = agent(hasMemory=True, knowledge=["rules.md"], skills=["calm"]).placed(beside(tmp_path))
    context = make_context(shared_agents={"cook": "Karl"})
    equipment = await open_equipment(context, made, Libraries(), with_skills=True)
    assert names(equipment.box) == [
        "search_knowledge", "read_knowledge", "remember", "recall", "read_last_conversation",
        "read_shared_agent",
        "activate_skill", "deactivate_skill", "read_skill_resource", "read_web_page",
    ]  # fmt: skip
    assert names(equipment.without_web) == names(equipment.box)[:-1]
    assert equipment.describe_skills() == "- calm: How to calm people."
    await call(equipment.box, "activate_skill", {"name": "calm"}, context)
    assert "Breathe slowly." in equipment.describe_skills()


async def test_what_is_found_is_cited_by_its_source(tmp_path: Path) -> None:
    made = agent(knowledge=["rules.md"]).placed(beside(tmp_path))
    context = make_context()
    libraries = Libraries()
    await libraries.load([made])
    equipment = await open_equipment(context, made, libraries, with_skills=True)
    assert equipment.knowledge_names == ["House rules: Dogs are welcome."]
    found = await call(equipment.box, "search_knowledge", {"query": "dogs"}, context)
    assert found["results"][0]["id"] == "k1"
    assert equipment.cite("Dogs are welcome [k1].") == "Dogs are welcome ([House rules](https://cafe.example/rules))."
    assert equipment.cite("Cats too [k9].") == "Cats too."


async def test_one_that_was_made_over_the_api_reads_no_files() -> None:
    made = agent(knowledge=["rules.md"], skills=["calm"])
    equipment = await open_equipment(make_context(), made, Libraries(), with_skills=True)
    assert names(equipment.box) == ["read_web_page"]


async def test_a_skill_that_cannot_be_read_costs_only_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = agent(skills=["calm", "nowhere"]).placed(beside(tmp_path))
    equipment = await open_equipment(make_context(), made, Libraries(), with_skills=True)
    assert equipment.describe_skills() == "- calm: How to calm people."
    assert "nowhere" in caplog.text


async def test_shared_memory_is_read(tmp_path: Path) -> None:
    context = make_context(shared_agents={"cook": "Karl"}, configuration=PipelineConfiguration())
    equipment = await open_equipment(context, agent(hasMemory=True), Libraries(), with_skills=False)
    assert await call(equipment.box, "read_shared_agent", {"agent": "karl"}, context) == {
        "agent": "Karl",
        "conversation": "none",
    }


@pytest.mark.sockets
async def test_a_server_is_connected_as_long_as_the_session(tmp_path: Path) -> None:
    """The official SDK's server, a process of its own, held by the session."""
    server = {"name": "official", "command": [sys.executable, str(SDK_SERVER)]}
    made = agent(mcpServers=[server]).placed(tmp_path)
    context = make_context()
    before = processes()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            holdings = SessionHoldings(nursery, 10)
            context.holdings = holdings
            equipment = await open_equipment(context, made, Libraries(), with_skills=True)
            assert equipment.mcp_names == ["official"]
            served = equipment.box.boxes[-1] if isinstance(equipment.box, JoinedToolBox) else None
            assert isinstance(served, ServedToolBox)
            await served.arrived.wait()
            assert await call(equipment.box, "add", {"a": 2, "b": 3}, context) == "5"
            assert len(processes()) > len(before)
            holdings.release()
    assert processes() == before
