"""A relational agent on the OpenAI provider, against the simulated service: what speaks follows a script, and so does what plans."""

from collections.abc import Mapping
from typing import Any

from agents.relational.manager import RelationalAgentInteractionManager
from engine.interfaces import ChatRequest, PartFactory
from engine.testing.chat import Script as ChatScript
from engine.testing.chat import ScriptedChat
from providers.openai.simulator import Script
from tests.agents.relational.troupe import agent
from tests.providers.openai.scene import open_scene


class Nobody(ScriptedChat):
    is_scripted = True


def find_with(planner: ScriptedChat) -> Any:
    def find(group: str, name: str) -> PartFactory:
        def make(part: Mapping[str, Any]) -> ScriptedChat:
            return planner if part.get("reasoning") else Nobody(lambda _: ())

        return make

    return find


def planned(*passes: ChatScript) -> ScriptedChat:
    rest = list(passes)

    def plan(request: ChatRequest) -> ChatScript:
        if "opening plan" in request.messages[-1].text:
            return ['{"results": "Greet."}']
        return rest.pop(0) if rest else ["Nothing."]

    return ScriptedChat(plan)


def scene_with(script: Script, planner: ScriptedChat, **more: Any) -> Any:
    managers = [RelationalAgentInteractionManager(find_with(planner))]
    made = agent(realtimeConfigurationId="openai")
    return open_scene(script, agent=made, managers=managers, key="agent:barista", **more)
