"""What the tests of extraction, evaluation and aggregation share: contexts over one store, a memory that fails, agents."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import attrs
import trio

from agents.definitions import RelationalAgent
from engine.config import PipelineConfiguration
from engine.elements import JsonObject
from engine.interfaces import ChatRequest, Context, Message, Role, TurnInput
from engine.memory import Memory, MemoryScope, PastConversation
from engine.session.memory import StoredMemory
from engine.store.contract import StoreError
from engine.store.documents import MemoryDocument, SessionDocument
from engine.store.memory import MemoryStore
from engine.testing.chat import Script, ScriptedChat
from engine.testing.stage import EPOCH, scripted_environment
from tests.agents.support import PROPERTIES


@attrs.define(eq=False)
class FaultyMemory(Memory):
    """Fails, or hangs, at some names; writes down what is asked of it."""

    memory: Memory
    fails: frozenset[str] = frozenset()
    """Such as "append facts"."""
    hangs: frozenset[str] = frozenset()
    asked: list[str] = attrs.field(factory=list[str])

    async def get(self, scope: MemoryScope, name: str) -> MemoryDocument | None:
        await self._trouble(f"get {name}")
        return await self.memory.get(scope, name)

    async def revisions(self, scope: MemoryScope, name: str, *, limit: int) -> Sequence[MemoryDocument]:
        await self._trouble(f"revisions {name}")
        return await self.memory.revisions(scope, name, limit=limit)

    async def append(self, scope: MemoryScope, name: str, body: JsonObject) -> None:
        await self._trouble(f"append {name}")
        await self.memory.append(scope, name, body)

    async def last_conversation(self, *, lines: int) -> PastConversation | None:
        return await self.memory.last_conversation(lines=lines)

    def with_agent(self, ref: str) -> Memory:
        return self.memory.with_agent(ref)

    async def _trouble(self, operation: str) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(operation)
        if operation in self.fails or "everything" in self.fails:
            raise StoreError("the store is away")
        if operation in self.hangs or "everything" in self.hangs:
            await trio.sleep_forever()


@attrs.define(eq=False)
class Rooms:
    """Sessions of one user with one agent, over one store."""

    store: MemoryStore = attrs.field(factory=MemoryStore)
    environment: Any = attrs.field(factory=scripted_environment)

    def context(
        self,
        session_id: str = "s1",
        messages: Sequence[Message] = (),
        *,
        locale: str = "en",
        agent: RelationalAgent | None = None,
        project: str = "p",
        turns: int = 0,
        fence: int = 1,
        began: float = 0.0,
        fails: Sequence[str] = (),
        hangs: Sequence[str] = (),
    ) -> Context:
        document = SessionDocument(
            id=session_id,
            owner="anna",
            agent="ada",
            fence=fence,
            created_at=EPOCH + timedelta(seconds=began),
            updated_at=EPOCH,
            turn_count=turns,
        )
        stored = StoredMemory(self.store, self.environment, document)
        return Context(
            configuration=PipelineConfiguration(locales=(locale,)),
            session=document,
            properties=PROPERTIES,
            environment=self.environment,
            content=agent or relational_agent(),
            memory=FaultyMemory(stored, frozenset(fails), frozenset(hangs)),
            project_ref=project,
            turn_id="t1",
            messages=list(messages),
        )


def relational_agent(**fields: Any) -> RelationalAgent:
    document: dict[str, Any] = {
        "type": "relational",
        "ref": "ada",
        "name": "Ada",
        "realtimeConfigurationId": "offline",
        "hasMemory": True,
    }
    return RelationalAgent.model_validate(document | fields)


def talk(*pairs: tuple[str, str]) -> list[Message]:
    """Turns t1, t2, …: what the user said, and the agent."""
    return [
        message
        for number, (user, agent) in enumerate(pairs, 1)
        for message in (Message(Role.USER, user, f"t{number}"), Message(Role.ASSISTANT, agent, f"t{number}"))
    ]


def turn(text: str, *output: str, turn_id: str = "t1") -> TurnInput:
    return TurnInput(turn_id, text, output)


SENTIMENT: JsonObject = {"valence": 0.5, "label": "positive", "expression": "joy"}
ENGAGEMENT: JsonObject = {"level": 0.75, "wantsToStop": False, "confused": False, "repeats": False}
TOPICS: JsonObject = {"topics": [{"name": "káva", "weight": 0.9}]}
FACTS: JsonObject = {"facts": [{"key": "home_city", "text": "Uživatel bydlí v Brně."}]}
EVERYTHING: JsonObject = {"sentiment": SENTIMENT, "engagement": ENGAGEMENT, "topics": TOPICS, "facts": FACTS}


def chat_of(*scripts: Script) -> ScriptedChat:
    """Answers each request with the next script, the last one again and again."""

    def answer(request: ChatRequest) -> Script:
        return scripts[min(len(chat.asked), len(scripts)) - 1]

    chat = ScriptedChat(answer)
    return chat


def written(value: JsonObject) -> str:
    return json.dumps(value, ensure_ascii=False)
