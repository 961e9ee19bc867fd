"""What tests of a relational agent are held with: an agent, a planner that follows a script, and what it whispers."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import trio

from agents.definitions import RelationalAgent
from agents.relational.guard import SpeakerGuard
from agents.relational.planner import RelationalPlanningManager
from agents.relational.state import RelationalState
from engine.config import PipelineConfiguration
from engine.elements import (
    InstructionType,
    JsonObject,
    MultimodalInteraction,
    RealtimeCommand,
    RealtimeInstruction,
    ToolEvent,
)
from engine.interfaces import (
    ChatModel,
    ChatRequest,
    Context,
    Message,
    PartFactory,
    PlanningElement,
    Role,
    SessionLog,
    TurnInput,
)
from engine.memory import Memory, MemoryScope, PastConversation
from engine.store.contract import StoreError
from engine.store.documents import MemoryDocument, SessionDocument
from engine.testing.chat import Script, ScriptedChat
from engine.testing.scripted import ScriptedProperties
from engine.testing.stage import EPOCH, scripted_environment

STEPS = "1. Ask for the day. 2. Ask for the time."


def agent(**fields: Any) -> RelationalAgent:
    known: dict[str, Any] = {
        "ref": "barista",
        "type": "relational",
        "name": "Anna",
        "realtimeConfigurationId": "x",
        "purpose": "Book tables.",
        "identityDescription": "A cheerful barista.",
        "businessProcessSteps": STEPS,
        "guardrails": "Take no payments.",
    }
    return RelationalAgent.model_validate(known | fields)


@attrs.define(eq=False)
class FakeMemory(Memory):
    """In a dictionary. `fails` names what cannot be written."""

    environment_now: Any = None
    kept: dict[tuple[MemoryScope, str], list[MemoryDocument]] = attrs.field(
        factory=dict[tuple[MemoryScope, str], list[MemoryDocument]]
    )
    fails: set[str] = attrs.field(factory=set[str])
    seconds: float = 0.0
    past: PastConversation | None = None
    others: dict[str, "FakeMemory"] = attrs.field(factory=dict[str, "FakeMemory"])

    async def get(self, scope: MemoryScope, name: str) -> MemoryDocument | None:
        found = await self.revisions(scope, name, limit=1)
        return found[0] if found else None

    async def revisions(self, scope: MemoryScope, name: str, *, limit: int) -> Sequence[MemoryDocument]:
        await trio.sleep(self.seconds)
        if name in self.fails:
            raise StoreError("it is away")
        return self.kept.get((scope, name), [])[::-1][:limit]

    async def append(self, scope: MemoryScope, name: str, body: JsonObject) -> None:
        await trio.sleep(self.seconds)
        if name in self.fails:
            raise StoreError("it is away")
        revisions = self.kept.setdefault((scope, name), [])
        revisions.append(
            MemoryDocument(
                id=f"m{len(revisions)}",
                scope=scope.value,
                name=name,
                revision=len(revisions) + 1,
                body=body,
                created_at=EPOCH,
            )
        )

    async def last_conversation(self, *, lines: int) -> PastConversation | None:
        await trio.lowlevel.checkpoint()
        return self.past

    def with_agent(self, ref: str) -> Memory:
        return self.others.get(ref, FakeMemory())

    def bodies(self, scope: MemoryScope, name: str) -> list[JsonObject]:
        return [document.body for document in self.kept.get((scope, name), [])]


def make_context(**fields: Any) -> Context:
    document = SessionDocument(id="s1", agent="barista", owner="o", created_at=EPOCH, updated_at=EPOCH)
    given: dict[str, Any] = {
        "configuration": PipelineConfiguration(key="agent:barista", time_zone="Europe/Prague"),
        "session": document,
        "properties": Waiting(),
        "environment": scripted_environment(),
        "memory": FakeMemory(),
        "turn_id": "turn-1",
    }
    return Context(**(given | fields))


class Waiting(ScriptedProperties):
    """Of a model that asks for the end and waits."""

    @property
    def waits_for_planning(self) -> bool:
        return True


def finder(chat: ChatModel) -> Any:
    def find(group: str, name: str) -> PartFactory:
        return lambda settings: chat

    return find


Whisper = tuple[float, str]


@attrs.define(eq=False)
class Troupe:
    """One turn of one session, planned."""

    context: Context
    state: RelationalState
    chat: ScriptedChat
    told: list[tuple[float, PlanningElement]] = attrs.field(factory=list[tuple[float, PlanningElement]], init=False)
    speaking_seconds: float = 1.0
    """What the speaking model takes for each instruction."""
    while_speaking: Callable[[RealtimeInstruction], object] | None = None
    """Called with an instruction that makes it speak, as it begins to."""

    async def emit(self, element: PlanningElement) -> None:
        await trio.lowlevel.checkpoint()
        self.told.append((round(trio.current_time(), 6), element))
        if isinstance(element, RealtimeInstruction) and not element.type.is_contextual:
            if self.while_speaking is not None:
                self.while_speaking(element)
            await trio.sleep(self.speaking_seconds)

    async def plan(self, text: str = "A table, please.", turn_id: str = "turn-1") -> None:
        self.context.turn_id = turn_id
        self.context.messages = [*self.context.messages, Message(Role.USER, text, turn_id)]
        turn = TurnInput(turn_id, text, ("Sure.",))
        await RelationalPlanningManager(finder(self.chat)).process(self.context, turn, self.emit)

    @property
    def whispers(self) -> list[tuple[str, str, bool]]:
        """Type, text, and whether it ends the session."""
        return [(e.type.value, e.text, e.ends_session) for _, e in self.told if isinstance(e, RealtimeInstruction)]

    @property
    def spoken(self) -> list[tuple[float, str, bool]]:
        return [
            (at, e.text.removeprefix("Instruction: "), e.ends_session)
            for at, e in self.told
            if isinstance(e, RealtimeInstruction) and e.type is InstructionType.INSTRUCTION
        ]

    @property
    def prose(self) -> list[str]:
        return [
            e.parameters["text"]
            for _, e in self.told
            if isinstance(e, RealtimeCommand) and e.name == "realtime-planning"
        ]

    @property
    def passes(self) -> list[tuple[float, str, str]]:
        """When passes began, and wrote their plans."""
        return [
            (at, e.parameters["passId"], e.parameters["state"])
            for at, e in self.told
            if isinstance(e, RealtimeCommand) and e.name == "planning-pass"
        ]

    @property
    def tools(self) -> list[tuple[str, str, str]]:
        return [(e.phase.name.lower(), e.name, e.error) for _, e in self.told if isinstance(e, ToolEvent)]

    @property
    def shown(self) -> list[MultimodalInteraction]:
        return [e for _, e in self.told if isinstance(e, MultimodalInteraction)]

    def prompt(self, number: int = -1) -> str:
        """All that the planner was told in one request."""
        return "\n".join(message.text for message in self.chat.requests[number].messages)


def troupe(
    *scripts: Script, state: RelationalState | None = None, log: SessionLog | None = None, **fields: Any
) -> Troupe:
    """The planner answers its requests with the scripts in their order, the last one again and again."""
    context = make_context(**({"log": log} if log is not None else {}))
    made = state or RelationalState(agent(**fields), SpeakerGuard("en"))
    context.agent_state = made
    chat = ScriptedChat(lambda _: ())

    def answer(request: ChatRequest) -> Script:
        return scripts[min(len(chat.asked), len(scripts)) - 1]

    chat.answer = answer
    return Troupe(context, made, chat)
