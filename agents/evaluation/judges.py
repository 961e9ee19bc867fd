"""The judges there are."""

from agents.evaluation.agent_facts import AgentFacts
from agents.evaluation.contract import Judge


class GoalJudge(Judge):
    """Whether the conversation reached what the agent is for."""

    name = "goal"
    prompt = "evaluation.goal"

    def has_a_case(self, agent: AgentFacts) -> bool:
        return bool(agent.purpose)


class ProcessJudge(Judge):
    """Whether the agent walked the user through its process."""

    name = "process"
    prompt = "evaluation.process"

    def has_a_case(self, agent: AgentFacts) -> bool:
        return bool(agent.process)


class GuardrailsJudge(Judge):
    """Whether the agent kept its rules."""

    name = "guardrails"
    prompt = "evaluation.guardrails"

    def has_a_case(self, agent: AgentFacts) -> bool:
        return bool(agent.guardrails)


class ToneJudge(Judge):
    """How the agent spoke with the user."""

    name = "tone"
    prompt = "evaluation.tone"
