"""Conversations with a service that has faults, by seed: delays, stalls, lost connections, what comes twice, late or unknown.

    python -m tests.providers.openai.faults 2000 [FIRST]

explores that many seeds and prints each that went wrong; exit 1 when one did. Each seed is one conversation of a minute or so, in
virtual time: no hang, nothing left over, every response ended once, every tool settled once, and the service's history is what was
heard.
"""

import logging
import random
import sys
import traceback
from collections.abc import Sequence
from functools import partial

import attrs
import trio
from trio.testing import MockClock

from engine.config import Settings
from engine.elements import (
    Action,
    Commit,
    ControlToken,
    EmotionalState,
    InputAudio,
    InstructionType,
    JsonObject,
    OnInterruption,
    RealtimeInstruction,
    SpeakingState,
)
from engine.interfaces import (
    Context,
    Emit,
    PlanningManager,
    ToolBox,
    ToolError,
    ToolResult,
    ToolSpecification,
    TurnInput,
)
from engine.testing.scripted import final, interim, speech
from providers.openai.lifeline import START_SECONDS
from providers.openai.simulator import (
    REAL_TIME,
    Asked,
    Call,
    Drop,
    ErrorEvent,
    Failed,
    Faults,
    Incomplete,
    Pace,
    Reply,
    Rule,
    Say,
    Script,
    Simulator,
    Stall,
    Trouble,
    Utterance,
)
from tests.providers.openai.scene import RACES, Scene, open_scene, properties, wall_clock

STEPS = 12
LAST = "are you there?"
MODES = ("typed", "recognizer", "voice", "push")
LONGEST_SECONDS = 1200.0
"""Of virtual time: the steps with their pauses, and the last words with every fault there is."""
RACES_OF_FAULTS = {*RACES, Rule.UNANSWERED_CALL, Rule.COMMIT_TOO_SHORT}
"""With everything late, more happens at the same time."""


@attrs.define(eq=False)
class RandomTools(ToolBox):
    """One of each policy; they take their time, and sometimes fail."""

    chance: random.Random

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return [
            ToolSpecification(policy.value, "A tool.", {"type": "object"}, on_interruption=policy)
            for policy in OnInterruption
        ]

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        await trio.sleep(self.chance.choice([0, 0, 0.3, 2.0]))
        if self.chance.random() < 0.2:
            raise ToolError("It did not work.")
        return ToolResult("done")


@attrs.define(eq=False)
class RandomPlanner(PlanningManager):
    chance: random.Random

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        for _ in range(self.chance.choice([0, 0, 0, 1, 2])):
            await trio.sleep(self.chance.choice([0, 0.2, 1.0]))
            await emit(RealtimeInstruction("Go on.", self.chance.choice(list(InstructionType))))


@attrs.define(eq=False)
class RandomModel:
    """What the service answers."""

    chance: random.Random
    is_calm: bool = False
    count: int = 0

    def answer(self, asked: Asked) -> Reply:
        self.count += 1
        pace = self.chance.choice([Pace(), REAL_TIME, Pace(token_seconds=0.05, audio_speed=3.0)])
        if self.is_calm or asked.is_tool_output:
            return Reply(f"Answer {self.count} is this.", pace=pace)
        words = f"Answer {self.count} goes on for a while. And then it ends."
        tools = [
            Call(self.chance.choice([*OnInterruption, "unknown"])) for _ in range(self.chance.choice([0, 0, 0, 1, 2]))
        ]
        parts: list[str | Say | Call] = [words, *tools] if self.chance.random() < 0.9 else [*tools]
        mishaps: list[Stall | ErrorEvent] = []
        if self.chance.random() < 0.05:
            mishaps.append(Stall(self.chance.choice([1.0, 25.0, None])))
        if self.chance.random() < 0.03:
            mishaps.append(ErrorEvent(Trouble("server_error")))
        return Reply(
            parts,
            pace=pace,
            created_after=self.chance.choice([0, 0.1, 0.4]),
            starts_after=self.chance.choice([0, 0.2]),
            cancel_lag=self.chance.choice([0, 0, 0.2]),
            ends=self.chance.choice([*[Reply().ends] * 12, Incomplete(), Failed("server_error"), Failed()]),
            mishaps=mishaps,
        )


def random_faults(chance: random.Random, seed: int, *, is_late: bool) -> Faults:
    return Faults(
        seed,
        delay=chance.choice([0, 0.1, 0.3]) if is_late else 0,
        delay_seconds=chance.choice([0.05, 0.3]),
        stall=chance.choice([0, 0, 0.002]) if is_late else 0,
        stall_seconds=chance.choice([3.0, 8.0]),
        drop=chance.choice([0, 0, 0.002, 0.01]),
        drop_ways=(Drop.CLOSE, Drop.ABRUPT, Drop.SILENT),
        duplicate=0.3,
        reorder=chance.choice([0, 0.2]) if is_late else 0,
        unknown=0.05,
    )


@attrs.frozen
class Plan:
    """What kind of conversation it is."""

    mode: str
    mixes: bool
    """The user types and speaks at the same time."""
    is_late: bool
    """Events come late. The engine gives up waiting for the user's words after 2 s, and takes those that come then for new ones."""
    text_only: bool

    @classmethod
    def of(cls, chance: random.Random) -> "Plan":
        mode = chance.choice(MODES)
        mixes, is_late = chance.random() < 0.3, chance.random() < 0.6
        return cls(mode, mixes, is_late, mode in ("typed", "recognizer") and chance.random() < 0.2)

    @property
    def is_exact(self) -> bool:
        """Both sides can know what was heard, to the millisecond."""
        return self.mode == "typed" or not (self.mixes or (self.is_late and self.mode != "recognizer"))


async def act(scene: Scene, chance: random.Random, plan: Plan, step: int) -> None:
    text, mode = f"words {step}", plan.mode
    seconds = chance.choice([0.1, 0.5, 1.5])
    if (plan.mixes or mode == "typed") and chance.random() < 0.1:
        await scene.say(Action("intro"))
    elif mode == "typed" or (plan.mixes and chance.random() < 0.1):
        await scene.type(text)
    elif mode == "recognizer":
        scene.recognizer.hear(EmotionalState(SpeakingState.USER_SPEAKING), interim())
        await trio.sleep(seconds)
        words = [final(text)] if chance.random() < 0.85 else []
        if not scene.at("session-end"):
            scene.recognizer.hear(EmotionalState(SpeakingState.USER_NOT_SPEAKING), *words)
    elif mode == "push":
        for _ in range(int(seconds / 0.1)):
            await scene.say(InputAudio(speech(100)))
            await trio.sleep(0.1)
        await scene.say(Commit())
    elif scene.service.core is not None and not scene.service.ended.is_set() and not scene.service.core.is_closed:
        has_words = chance.random() < 0.85
        late = chance.choice([0, 0.2, 1.0, 3.0] if plan.is_late else [0, 0.2])
        fails = Trouble("audio_unintelligible") if chance.random() < 0.05 else None
        scene.service.speak(
            Utterance(text if has_words else "", seconds=seconds, transcribed_after=late, failure=fails)
        )
        await trio.sleep(seconds)


async def converse(seed: int) -> None:
    chance = random.Random(seed)
    plan = Plan.of(chance)
    model = RandomModel(random.Random(seed + 1))
    faults = random_faults(chance, seed, is_late=plan.is_late)
    simulator = Simulator(Script(answer=model.answer), faults=faults, wall_clock=wall_clock)
    openai = properties(
        stt_provider="Scripted" if plan.mode == "recognizer" else "None",
        turn_detection={"type": "none"} if plan.mode == "push" else {},
        reconnect_attempts=chance.choice([0, 2, 5]),
    )
    settings = Settings() if plan.mixes or chance.random() < 0.5 else Settings(element_channel=1, model_input_channel=1)
    async with open_scene(
        simulator=simulator,
        openai=openai,
        tool_box=RandomTools(random.Random(seed + 2)),
        planner=RandomPlanner(random.Random(seed + 3)),
        settings=settings,
        seed=seed,
        races=RACES_OF_FAULTS,
        half_open=True,
        text_only=plan.text_only,
    ) as scene:
        await trio.sleep(START_SECONDS)
        for step in range(STEPS):
            if scene.at("session-end"):
                break
            await act(scene, chance, plan, step)
            await trio.sleep(chance.choice([0, chance.random(), chance.random() * 5]))
        model.is_calm = True
        if not scene.at("session-end"):
            await trio.sleep(40)
        await end(scene)
        if not scene.at("session-end"):
            if plan.is_exact and plan.text_only:
                check_words(scene)
            elif plan.is_exact:
                scene.check_history()
            await leave(scene)
    assert scene.ended_at is None or scene.ended_at < LONGEST_SECONDS


async def end(scene: Scene) -> None:
    """Whoever speaks last is answered, as long as there is a connection to be had."""
    for _ in range(10):
        if scene.at("session-end"):
            assert [error.recoverable for error in scene.errors][-1] is False, "it ended, and nobody said why"
            return
        before = len(scene.sentences)
        await scene.type(LAST)
        await trio.sleep(30)
        if scene.sentences[before:] and scene.finals[-1] == LAST:
            break
    else:
        raise AssertionError("nobody answers")
    await trio.sleep(60)


def check_words(scene: Scene) -> None:
    """The service knows of the words that were read, on its connection."""
    said = " ".join(text for role, text in scene.lines if role == "assistant").split()
    known = " ".join(scene.known_words()).split()
    is_all = len(known) == len(said) or len(scene.simulator.connections) > 1
    assert known == said[len(said) - len(known) :], f"read {said}, the service knows of {known}"
    assert is_all, f"read {said}, the service knows of {known}"


async def leave(scene: Scene) -> None:
    await scene.say(ControlToken("exit"))
    with trio.fail_after(60):
        await scene.client.wait_for_command("session-end")


def run(seed: int) -> None:
    """Raises when something was wrong with that conversation."""
    trio.run(partial(converse, seed), clock=MockClock(autojump_threshold=0))


def main(arguments: Sequence[str]) -> int:
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    logging.disable(logging.CRITICAL)
    wrong: list[int] = []
    for seed in range(first, first + count):
        try:
            run(seed)
        except Exception:
            wrong.append(seed)
            sys.stdout.write(f"seed {seed}\n{traceback.format_exc(limit=3)[-3000:]}\n")
    sys.stdout.write(f"{count} conversations from seed {first}, {len(wrong)} of them wrong: {wrong[:50]}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
