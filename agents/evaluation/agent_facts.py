"""What of an agent those have to know who judge its conversations."""

import attrs

from agents.definitions import AgentDefinition, RelationalAgent, TemplatableAgent
from engine.interfaces import Agent


@attrs.frozen
class AgentFacts:
    name: str = ""
    purpose: str = ""
    process: str = ""
    """The steps it walks its users through."""
    guardrails: str = ""


def facts_of(agent: Agent | None) -> AgentFacts:
    """Blank where the agent says nothing; variables of its template are put in when it is loaded, before this."""
    if not isinstance(agent, AgentDefinition):
        return AgentFacts(agent.name if agent is not None else "")
    return AgentFacts(
        agent.name,
        _written(agent.purpose) if isinstance(agent, TemplatableAgent) else "",
        _written(agent.business_process_steps) if isinstance(agent, RelationalAgent) else "",
        _written(agent.guardrails) if isinstance(agent, TemplatableAgent) else "",
    )


def _written(text: str | None) -> str:
    return (text or "").strip()
