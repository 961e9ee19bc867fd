"""Generated conversations with the Internal provider: the real loop of chat, tools and speech, over a chat model and a synthesizer that
take their time, stumble, break in the middle and are heard with mishaps."""

from collections.abc import Sequence
from random import Random
from typing import ClassVar

import attrs
import trio

from engine.elements import OnInterruption
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import ChatRequest, ChatToolCall, Synthesizer, Voice
from engine.testing.boundaries import ShakyChat, ShakyRecognizer, ShakyTools, shaky_store
from engine.testing.chat import Script, ScriptedChat, Step, call, tokens
from engine.testing.contract import check_record
from engine.testing.explore import SENTENCES, Found, GeneratedPlanner, GeneratedTools, User, World, visit
from engine.testing.faults import FaultyStore, no_faults
from engine.testing.mishaps import Mishaps, no_mishaps
from engine.testing.schedule import run_repeatably
from engine.testing.scripted import ScriptedRecognizer, speech
from engine.testing.stage import ScriptedManager, open_stage, scripted_environment
from providers.internal.model import InternalRealtimeModel
from providers.internal.properties import InternalProperties
from tests.providers.internal.fakes import finder

MOST_CALLS = 3
"""In one answer, one after the other; the provider has a bound of its own, far above."""


@attrs.define(eq=False)
class GeneratedChat:
    """What the chat model says to a request."""

    chance: Random
    rough: float
    """How often it fails, from 0 to 1. A failure ends the session."""
    is_calm: bool = False
    count: int = 0

    def __call__(self, request: ChatRequest) -> Script:
        chance = self.chance
        if self.is_calm:
            asked = [message.text for message in request.messages if message.role == "user"]
            return [f"About {asked[-1]}" if asked else "I see."]
        is_failing = chance.random() < 0.05 * self.rough
        luck = chance.random()
        if luck < 0.04:
            return _broken(chance) if is_failing else []
        steps: list[Step] = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            steps += [chance.choice((0, 0.1, 0.6)), *tokens(chance.choice(SENTENCES), chance.choice((0, 0, 0.1)))]
            steps.append(" ")
        if luck < 0.2 and request.tools and _calls(request) < MOST_CALLS:
            steps = steps if chance.random() < 0.5 else []
            steps += [self._call(chance.choice(tuple(OnInterruption))) for _ in range(chance.choice((1, 1, 2)))]
        elif luck > 0.98:
            steps.append(22.0)
        return [*steps, *_broken(chance)] if is_failing else steps

    def _call(self, policy: OnInterruption) -> ChatToolCall:
        self.count += 1
        return call(policy.value, f"call {self.count}", self.chance.choice(("{}", "{}", "{}", '{"broken": ')))


def _calls(request: ChatRequest) -> int:
    """How many messages at the end of a conversation are calls and their results."""
    count = 0
    for message in reversed(request.messages):
        if message.role not in ("tool", "assistant"):
            break
        count += message.role == "tool"
    return count


def _broken(chance: Random) -> list[Step]:
    failures = (RealtimeException(ErrorCode.CHAT_FAILED, "The stream broke."), RuntimeError("It crashed."))
    return [chance.choice((0.0, 0.3)), chance.choice(failures)]


@attrs.define(eq=False)
class GeneratedVoice(Synthesizer):
    """Speaks in pieces of 200 ms, faster or slower than they are played; of some words it gives no sound, at some it fails."""

    name: ClassVar[str] = "Generated"
    chance: Random
    rough: float
    sample_rate: int = 24000
    is_calm: bool = False
    speaking: int = attrs.field(default=0, init=False)

    async def speak(self, text: str, voice: Voice, audio: trio.MemorySendChannel[bytes]) -> None:
        self.speaking += 1
        try:
            await self._speak(text, audio)
        finally:
            self.speaking -= 1

    async def _speak(self, text: str, audio: trio.MemorySendChannel[bytes]) -> None:
        chance = self.chance
        luck = 0.5 if self.is_calm else chance.random()
        await trio.sleep(0 if self.is_calm else chance.choice((0, 0, 0.2, 1.0)))
        if luck < 0.02:
            return
        pace = chance.choice((0, 0.05, 0.3))
        for _ in range(1 + len(text) // 12):
            if luck > 1 - 0.02 * self.rough and chance.random() < 0.3:
                raise RealtimeException(ErrorCode.SYNTHESIS_FAILED, "It lost its voice.")
            await audio.send(speech(200))
            await trio.sleep(0 if self.is_calm else pace)


def explore_internal(seed: int) -> Found:
    """The conversation of a seed, judged."""
    return run_repeatably(seed, _converse, seed)


def _ends(world: World) -> str:
    return {"fail": "leave"}.get(world.end, world.end)


async def _converse(seed: int) -> Found:
    world = World.of(seed)
    chance = Random(f"internal user {seed}")
    rough = chance.choice((0.0, 0.0, 0.3, 1.0))
    rates = {
        "delay": 0.02,
        "stall": 0.004,
        "drop": 0.01,
        "duplicate": 0.01,
        "partial": 0.01,
        "reorder": 0.01,
        "close": 0.002,
    }
    mishaps = Mishaps.often(f"chat {seed}", **{kind: rate * rough for kind, rate in rates.items()})
    answers, voice = GeneratedChat(Random(f"chat {seed}"), rough), GeneratedVoice(Random(f"voice {seed}"), rough)
    scripted = ScriptedChat(answers)
    chat = ShakyChat(scripted, mishaps)
    heard = None if world.mode == "typed" else ScriptedRecognizer(24000)
    store = FaultyStore(shaky_store(world.store))

    def calm_down() -> None:
        answers.is_calm = voice.is_calm = True
        chat.mishaps, store.plan = no_mishaps(), no_faults

    before = trio.lowlevel.current_statistics().tasks_living
    async with open_stage(
        provider=InternalRealtimeModel(finder(chat, voice)),
        properties=InternalProperties(stt_provider="None" if heard is None else "Scripted"),
        manager=ScriptedManager(
            tool_box=ShakyTools(GeneratedTools(Random(f"tools {seed}")), world.tools),
            planner=GeneratedPlanner(Random(f"planner {seed}")),
        ),
        recognizer=ShakyRecognizer(heard, world.recognition) if heard is not None else None,
        store=store,
        environment=scripted_environment(seed),
        seconds_per_element=world.pace,
        mishaps=world.client,
        tokens=chance.random() < 0.5,
        partials=True,
        text_only=chance.random() < 0.2,
        unjudged="it is judged below, with what is known of the parts too",
    ) as stage:
        mode = "typed" if heard is None else "recognizer"
        unanswered = await visit(User(stage, chance, mode, heard), _ends(world), calm_down)
    record = stage.record()
    record.unanswered = unanswered
    record.left_running = _left(before, scripted, voice)
    happened = sorted([*world.mishaps, *mishaps.happened], key=lambda each: each.at)
    return Found(seed, record, check_record(record), happened, trio.current_time())


def _left(before: int, chat: ScriptedChat, voice: GeneratedVoice) -> Sequence[str]:
    living = trio.lowlevel.current_statistics().tasks_living - before
    counts = {"tasks": living, "chat streams": chat.open_streams, "pieces of speech": voice.speaking}
    return [f"{count} {name}" for name, count in counts.items() if count]
