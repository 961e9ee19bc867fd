"""The README's example of a tool, word for word, from the file to the model's call."""

import sys
from pathlib import Path

import pytest

from agents.basic import BasicAgentInteractionManager
from agents.project import load_projects
from engine.interfaces import ToolError
from tests.agents.support import COMPONENTS, make_context, write_project

MENU = '''\
from engine.interfaces import ToolError

PRICES = {"espresso": 55, "flat white": 79}

def price_of(drink: str) -> str:
    """Look up what a drink costs.

    Args:
        drink: The drink as it stands on the menu.
    """
    if drink.lower() not in PRICES:
        raise ToolError(f"There is no {drink}. There is: {', '.join(PRICES)}.")
    return f"{PRICES[drink.lower()]} crowns"
'''

PROJECT = """\
project: {ref: corner, name: Corner Café, access: public}
realtimeConfigurations:
  - {id: offline, properties: {provider: Internal, sttProvider: Local, ttsProvider: Local, chat: {provider: Auto}}}
agents:
  - {ref: waiter, type: basic, name: Waiter, published: true, realtimeConfigurationId: offline,
     purpose: Tell guests what things cost., tools: ["readme_menu:price_of"]}
"""


async def test_a_typed_function_beside_the_project_file_is_a_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "readme_menu.py").write_text(MENU)
    [agent] = load_projects([write_project(tmp_path, PROJECT)], components=COMPONENTS).published_agents()
    context = make_context(agent)

    manager = BasicAgentInteractionManager()
    await manager.on_session_start(context)
    box = manager.get_tool_box(context)

    assert [each.name for each in box.specifications] == ["finish_session", "price_of", "read_web_page"]
    assert box.specifications[1].description == "Look up what a drink costs."
    assert box.specifications[1].parameters == {
        "type": "object",
        "properties": {"drink": {"type": "string", "description": "The drink as it stands on the menu."}},
        "required": ["drink"],
        "additionalProperties": False,
    }
    assert (await box.call("price_of", {"drink": "Flat white"}, context)).output == "79 crowns"
    with pytest.raises(ToolError, match="There is no tea"):
        await box.call("price_of", {"drink": "tea"}, context)
