"""Conversations with a service that has faults, by seed: delays, stalls, lost connections, what comes twice, late or unknown.

    python -m tests.providers.openai.faults 2000 [FIRST]

explores that many seeds and prints each that went wrong, with its timeline; exit 1 when one did. `test_faults.py` does so with the
first few, and `scripts/simulate` with any. Each seed is one conversation of a minute or so, in virtual time: no hang, nothing left over,
every response ended once, every tool settled once, and the service's history is what was heard.

The user types, presses to talk, or is heard by the service or by the engine, cuts in, shows pictures, and is silent; the model calls
tools, stalls, fails and goes on; planning adds context and has the model speak. Connections are lost in every way, are refused, and
end with the service's limit. At last somebody who is there is answered, and leaves; or the agent says goodbye; or the client is gone
in the middle of it.
"""

import logging
import random
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import attrs
import trio

from engine.config import Settings
from engine.elements import (
    Action,
    Commit,
    ControlToken,
    EmotionalState,
    Image,
    InputAudio,
    InstructionType,
    JsonObject,
    OnInterruption,
    OutCommand,
    OutText,
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
from engine.protocol.promises import Violation
from engine.store.documents import SessionState
from engine.testing.contract import SessionRecord, check_record
from engine.testing.explore import Found
from engine.testing.schedule import run_repeatably, virtual_clock
from engine.testing.scripted import final, interim, speech
from providers.openai.lifeline import START_SECONDS
from providers.openai.simulator import (
    Asked,
    Call,
    Drop,
    ErrorEvent,
    Failed,
    Faults,
    Incomplete,
    Pace,
    Refusal,
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
BYE = "goodbye"
FINISH = "finish"
"""The tool that ends the session."""
MODES = ("typed", "recognizer", "voice", "microphone", "push")
"""`voice`: the service hears without any audio, at any time; `microphone`: it hears what is in the audio."""
ENDS = ("leave", "leave", "planned", "tool", "vanish")
STEADY = Pace(token_seconds=0.3, audio_speed=1.0, delta_ms=60)
"""In real time, with fewer events than the service's."""
LOUD = b"\0\x40" * 2400
QUIET = bytes(4800)
"""100 ms."""
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
        ] + [ToolSpecification(FINISH, "Ends the session.", {"type": "object"})]

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        if name == FINISH:
            return ToolResult("Say goodbye.", ends_session=True)
        await trio.sleep(self.chance.choice([0, 0, 0.3, 2.0]))
        if self.chance.random() < 0.2:
            raise ToolError("It did not work.")
        return ToolResult("done")


@attrs.define(eq=False)
class RandomPlanner(PlanningManager):
    chance: random.Random
    is_parting: bool

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        if self.is_parting and turn.text == BYE:
            await emit(RealtimeInstruction("Say goodbye.", InstructionType.INSTRUCTION, ends_session=True))
            return
        for _ in range(self.chance.choice([0, 0, 0, 1, 2])):
            await trio.sleep(self.chance.choice([0, 0.2, 1.0]))
            await emit(RealtimeInstruction("Go on.", self.chance.choice(list(InstructionType))))


@attrs.define(eq=False)
class RandomModel:
    """What the service answers."""

    chance: random.Random
    is_parting: bool
    """By a tool."""
    is_calm: bool = False
    count: int = 0

    def answer(self, asked: Asked) -> Reply:
        self.count += 1
        if self.is_parting and asked.text == BYE:
            return Reply([Call(FINISH)])
        pace = self.chance.choice([Pace(), STEADY, Pace(token_seconds=0.05, audio_speed=3.0)])
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


def random_script(chance: random.Random, model: RandomModel, number: int, *, is_late: bool) -> Script:
    """What happens on a connection. The first is not refused."""
    refusal = Refusal(503, "overloaded") if number and chance.random() < 0.15 else None
    late = [0, 0.2, 1.0] if is_late else [0, 0.2]
    return Script(
        answer=model.answer,
        utterances=[Utterance(f"said {step}", transcribed_after=chance.choice(late)) for step in range(STEPS)],
        refusal=refusal,
        session_seconds=chance.choice([3600.0, 3600.0, 3600.0, 30.0, 90.0]),
        says_expired=chance.random() < 0.5,
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
    end: str

    @classmethod
    def of(cls, chance: random.Random) -> "Plan":
        mode = chance.choice(MODES)
        mixes, is_late = chance.random() < 0.3, chance.random() < 0.6
        is_written = mode in ("typed", "recognizer") and chance.random() < 0.2
        return cls(mode, mixes, is_late, is_written, chance.choice(ENDS))

    @property
    def is_exact(self) -> bool:
        """Both sides can know what was heard, to the millisecond. Elsewhere the engine cuts an answer by itself, and tells nobody: when
        a second final comes, as the user types and speaks at once, or as the words of an utterance come when it waits for them no more.
        The other rules hold there as well."""
        return self.mode == "typed" or not (self.mixes or (self.is_late and self.mode != "recognizer"))


async def act(scene: Scene, chance: random.Random, plan: Plan, step: int) -> None:
    text, mode = f"words {step}", plan.mode
    seconds = chance.choice([0.1, 0.5, 1.5])
    if chance.random() < 0.05:
        await scene.say(Image(b"\xff\xd8\xff\xd9", "image/jpeg"))
    elif (plan.mixes or mode == "typed") and chance.random() < 0.1:
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
    elif mode == "microphone":
        is_committed = chance.random() < 0.2
        for piece in [LOUD] * int(seconds / 0.1) + ([] if is_committed else [QUIET] * 8):
            await scene.say(InputAudio(piece))
            await trio.sleep(0.1)
        await scene.say(*[Commit()] * is_committed)
    elif scene.service.core is not None and not scene.service.ended.is_set() and not scene.service.core.is_closed:
        has_words = chance.random() < 0.85
        late = chance.choice([0, 0.2, 1.0, 3.0] if plan.is_late else [0, 0.2])
        fails = Trouble("audio_unintelligible") if chance.random() < 0.05 else None
        scene.service.speak(
            Utterance(text if has_words else "", seconds=seconds, transcribed_after=late, failure=fails)
        )
        await trio.sleep(seconds)


async def converse(seed: int, kept: list[Scene]) -> None:
    """Raises when something was wrong with it. The scene is kept for whoever wants to see what went on."""
    chance = random.Random(seed)
    plan = Plan.of(chance)
    model = RandomModel(random.Random(seed + 1), is_parting=plan.end == "tool")
    faults = random_faults(chance, seed, is_late=plan.is_late)

    def script_of(number: int) -> Script:
        return random_script(random.Random(f"{seed}/{number}"), model, number, is_late=plan.is_late)

    simulator = Simulator(script_of, faults=faults, wall_clock=wall_clock)
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
        planner=RandomPlanner(random.Random(seed + 3), is_parting=plan.end == "planned"),
        settings=settings,
        seed=seed,
        races=RACES_OF_FAULTS,
        half_open=True,
        text_only=plan.text_only,
    ) as scene:
        kept.append(scene)
        await trio.sleep(START_SECONDS)
        for step in range(chance.randrange(STEPS) if plan.end == "vanish" else STEPS):
            if scene.at("session-end"):
                break
            await act(scene, chance, plan, step)
            await trio.sleep(chance.choice([0, chance.random(), chance.random() * 5]))
        if plan.end == "vanish":
            scene.vanish()
            return
        model.is_calm = True
        if not scene.at("session-end"):
            await trio.sleep(40)
        await end(scene)
        if not scene.at("session-end"):
            if plan.is_exact and plan.text_only:
                check_words(scene)
            elif plan.is_exact:
                scene.check_history()
            await (leave if plan.end == "leave" else part)(scene)
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
    lines = [text for role, text in scene.lines if role == "assistant"]
    missing = not_written_down(scene)
    known = " ".join(scene.known_words()).split()
    for said in (" ".join(lines).split(), " ".join(line for line in lines if line not in missing).split()):
        is_all = len(known) == len(said) or len(scene.simulator.connections) > 1
        if is_all and known == said[len(said) - len(known) :]:
            return
    raise AssertionError(f"read {lines}, the service knows of {known}")


def not_written_down(scene: Scene) -> list[str]:
    """What was said in the turn that was open when the newest connection was made, behind its first answer. The engine writes that down
    while planning works on the turn, and when the turn closes; between, as a tool keeps it open, it does not."""
    opened = scene.accepted.received[1].at  # behind its settings, when it takes over
    exits = {
        str(e.parameters["turnId"]): at
        for at, e in scene.client.heard
        if isinstance(e, OutCommand) and e.name == "exit"
    }
    ended: dict[str, list[str]] = {}
    for at, element in scene.client.heard:
        if isinstance(element, OutCommand) and element.name == "response-end" and at <= opened:
            ended.setdefault(element.turn_id, []).append(str(element.parameters["responseId"]))
    late = {
        response_id
        for turn_id, response_ids in ended.items()
        if exits.get(turn_id, opened) > opened
        for response_id in response_ids[1:]
    }
    sentences: dict[str, list[str]] = {}
    for element in scene.client.elements:
        if isinstance(element, OutText) and element.response_id in late:
            sentences.setdefault(element.response_id, []).append(element.text)
    return [" ".join(each) for each in sentences.values()]


async def part(scene: Scene) -> None:
    """The agent ends the session, once, with a goodbye if there is a connection to be had."""
    for _ in range(10):
        await scene.type(BYE)
        with trio.move_on_after(60):
            await scene.client.wait_for_command("session-end")
            break
    else:
        raise AssertionError("the session does not end")
    ends = scene.at("sessionShouldEnd")
    assert len(ends) == 1 or (not ends and not scene.errors[-1].recoverable), "it ended, and nobody said why"


async def leave(scene: Scene) -> None:
    await scene.say(ControlToken("exit"))
    with trio.fail_after(60):
        await scene.client.wait_for_command("session-end")


def run(seed: int) -> None:
    """Raises when something was wrong with that conversation."""
    trio.run(converse, seed, list[Scene](), clock=virtual_clock())


def explore(seed: int) -> Found:
    """The conversation of a seed, judged, in the order of that seed."""
    return run_repeatably(seed, _explored, seed)


async def _explored(seed: int) -> Found:
    kept: list[Scene] = []
    violations: list[Violation] = []
    try:
        await converse(seed, kept)
    except Exception as error:
        violations.append(_violation(error))
    heard = kept[0].client.heard if kept else []
    record = SessionRecord(heard)
    if kept:
        scene = kept[0]
        record.sent = scene.client.sent
        record.saved = [session for session in scene.store.saved_sessions if session.state is not SessionState.OPEN]
        record.usage = scene.store.written_usage
    violations += [] if violations else check_record(record)
    return Found(seed, record, violations, [], trio.current_time())


def _violation(error: BaseException) -> Violation:
    """The innermost failure, and where it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    at = traceback.extract_tb(error.__traceback__)[-1]
    rule = "kept-rules" if isinstance(error, AssertionError) else f"raised {type(error).__name__}"
    return Violation(rule, f"{error} ({Path(at.filename).name}:{at.lineno})")


def main(arguments: Sequence[str]) -> int:
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    logging.disable(logging.CRITICAL)
    wrong: list[int] = []
    for seed in range(first, first + count):
        found = explore(seed)
        if found.violations:
            wrong.append(seed)
            sys.stdout.write(f"seed {seed}\n{found.timeline}\n")
    sys.stdout.write(f"{count} conversations from seed {first}, {len(wrong)} of them wrong: {wrong[:50]}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
