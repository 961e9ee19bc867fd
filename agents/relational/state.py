"""What one conversation's speaking model, planner and hooks share."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import attrs

from agents.definitions import RelationalAgent
from agents.extraction.contract import Extractor
from agents.relational.asking import MadeCall
from agents.relational.guard import SpeakerGuard
from agents.relational.plan import RelationalPlan
from agents.relational.session_end_gate import SessionEndGate
from engine.interfaces import ChatModel, Context, EmptyToolBox, ToolBox

MAX_REQUESTS = 8
"""Questions and attempts kept for the next pass; a model that asks more than that in one turn has lost its way."""
MAX_QUESTION = 1000
"""Characters of a question, and of an attempt's parameters as they are told to the planner."""


@attrs.frozen
class HelpRequest:
    """What the speaking model wants to know (`request_help`)."""

    question: str
    turn_id: str


@attrs.frozen
class ToolCallHint:
    """The speaking model has tried a tool that is the planner's."""

    name: str
    parameters: str
    """JSON text."""
    turn_id: str


@attrs.define(eq=False)
class RelationalState:
    """Kept as the context's `agent_state`, from the session's start to its end."""

    agent: RelationalAgent
    guard: SpeakerGuard
    shared_agents: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Names by ref of the agents that share memory with this one (R3)."""

    planner_tools: ToolBox = attrs.field(factory=EmptyToolBox)
    opening_tools: ToolBox = attrs.field(factory=EmptyToolBox)
    """Those of the opening plan: without web pages (S0, "Initial Planning")."""
    knowledge_names: Sequence[str] = ()
    mcp_names: Sequence[str] = ()
    """What the speaking model is told that there is."""
    describe_skills: Callable[[], str] = lambda: ""
    """The skills, those that are active with their content, for the planner's prompts."""
    cite: Callable[[str], str] = lambda text: text
    """A planner's text with its citations written out (R11)."""

    reader: ChatModel | None = None
    """What reads the conversation beside it: extraction, evaluation, judges. None: nobody does."""
    extractors: Sequence[Extractor] = ()

    end: SessionEndGate = attrs.field(factory=SessionEndGate)
    plan: RelationalPlan = attrs.field(factory=RelationalPlan)
    """The per-turn plan."""
    initial_plan: RelationalPlan = attrs.field(factory=RelationalPlan)
    made_calls: Sequence[MadeCall] = ()
    """What tools gave to a pass that was stopped before it could tell anybody."""
    insights: Sequence[str] = ()
    """What the evaluation of the last turn says to the planner (R13)."""
    is_judged: bool = False
    """The judges have looked at the conversation."""
    shown: dict[str, None] = attrs.field(factory=dict[str, None])
    """Names of all that was shown on the user's screen, in their order."""

    webhook_result: str = ""
    """What the pre-session webhook has answered."""
    biography: str = ""
    user_gender: str = ""
    last_visit: str = ""
    """How long ago the last conversation was, in words; "" when there was none."""
    last_summary: str = ""
    last_evaluation: str = ""
    shared_agent: str = ""
    shared_transcript: str = ""
    """The newest conversation with an agent that shares memory, and that agent's name."""

    _help: deque[HelpRequest] = attrs.field(factory=lambda: deque[HelpRequest](maxlen=MAX_REQUESTS), init=False)
    _hints: deque[ToolCallHint] = attrs.field(factory=lambda: deque[ToolCallHint](maxlen=MAX_REQUESTS), init=False)

    def ask_for_help(self, question: str, turn_id: str) -> None:
        self._help.append(HelpRequest(question[:MAX_QUESTION], turn_id))

    def note_attempt(self, name: str, parameters: str, turn_id: str) -> None:
        self._hints.append(ToolCallHint(name, parameters[:MAX_QUESTION], turn_id))

    @property
    def has_requests(self) -> bool:
        return bool(self._help or self._hints)

    def take_help(self) -> list[HelpRequest]:
        """For one pass of planning: a question is answered or forgotten with it."""
        taken = list(self._help)
        self._help.clear()
        return taken

    def take_made_calls(self) -> Sequence[MadeCall]:
        """For one pass, as the others."""
        taken, self.made_calls = self.made_calls, ()
        return taken

    def take_hints(self) -> list[ToolCallHint]:
        taken = list(self._hints)
        self._hints.clear()
        return taken


def state_of(context: Context) -> RelationalState:
    """The state that `on_session_start` has made."""
    if not isinstance(context.agent_state, RelationalState):
        raise TypeError("the session of a relational agent was not started")
    return context.agent_state
