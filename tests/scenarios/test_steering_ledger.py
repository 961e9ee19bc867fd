"""Which whisper steered which answer, in whole conversations: told to the client, kept with the turns and with the session."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.elements import ControlToken, InstructionType, OutCommand, RealtimeInstruction, SpeechItem, Token
from engine.interfaces import Context, Emit, PlanningElement, PlanningManager, TurnInput
from engine.observation import Observer
from engine.protocol.steering import PassState, name_of_pass, tell_pass
from engine.session.live import LiveSessions
from engine.store.documents import (
    InstructionOutcome,
    InstructionRecord,
    SessionDocument,
    Staleness,
    SteeringRecord,
    TurnDocument,
)
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedSession, answer, final, interim, speech
from engine.testing.stage import ScriptedAgent, ScriptedManager, Stage, open_stage, scripted_environment
from tests.scenarios.support import open_scene

PENDING, SPOKEN, USED, SUPERSEDED, UNUSED = InstructionOutcome
STEERING = {"realtime-planning", "realtime-instruction", "realtime-instruction-outcome", "planning-pass"}

Step = float | PlanningElement
"""Seconds to think, or what to emit."""


def cue(text: str, pass_id: str = "") -> RealtimeInstruction:
    return RealtimeInstruction(text, InstructionType.INSTRUCTION, id=text, pass_id=pass_id)


def context(text: str, pass_id: str = "") -> RealtimeInstruction:
    return RealtimeInstruction(text, InstructionType.SUPPORTING_CONTEXT, id=text, pass_id=pass_id)


@attrs.define(eq=False)
class Planner(PlanningManager):
    """One script for each turn that is planned: passes, each of them steps. A pass that comes to its end writes its plan."""

    scripts: Sequence[Sequence[Sequence[Step]]]
    turns: list[TurnInput] = attrs.field(factory=list[TurnInput])

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        self.turns.append(turn)
        if len(self.turns) > len(self.scripts):
            return
        for number, steps in enumerate(self.scripts[len(self.turns) - 1], 1):
            pass_id = name_of_pass(turn.turn_id, number)
            await emit(tell_pass(pass_id, PassState.BEGAN))
            for step in steps:
                if isinstance(step, int | float):
                    await trio.sleep(step)
                elif isinstance(step, RealtimeInstruction):
                    await emit(attrs.evolve(step, pass_id=pass_id))
                else:
                    await emit(step)
            await emit(tell_pass(pass_id, PassState.PLANNED))


async def turn(session: ScriptedSession, text: str, response_id: str, ms: int = 0) -> None:
    """The user says something and is answered at once."""
    session.say(interim(), final(text, response_id=response_id))
    answer(session, f"About {text}.", response_id, ms=ms)
    await trio.sleep(1)


def outcomes(stage: Stage) -> list[tuple[str, str, str, str]]:
    return [
        (each["turnId"], each["instructionId"], each["outcome"], each["responseId"])
        for each in stage.client.commands("realtime-instruction-outcome")
    ]


def whispers(turn: TurnDocument) -> list[tuple[str, str, int | None, InstructionOutcome | None, str, str]]:
    return [
        (each.text, each.pass_id, each.injected_ms, each.outcome, each.response_id, each.spoken_in_turn)
        for each in turn.instructions
    ]


async def leave(stage: Stage) -> SessionDocument:
    """The client ends the session; returns it as it is saved."""
    await stage.client.send(ControlToken("exit"))
    await stage.client.wait_for_command("session-end")
    saved = await stage.store.get_session(stage.manager.contexts[-1].session.id)
    assert saved is not None
    return saved


async def test_a_context_steers_the_answer_of_the_next_turn(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    planner = Planner([[[0.4, context("It is noon.")]], [[0.5, context("It is one.")]]])
    async with open_scene(store=store, manager=ScriptedManager(planner=planner)) as stage:
        session = stage.model.session
        await turn(session, "hello", "r1")
        assert store.turns[0].instructions[0].outcome is PENDING
        await turn(session, "and now", "r2")
        assert outcomes(stage) == [("turn-2", "It is noon.", "used", "r2")]
        saved = await leave(stage)
        first, second = store.turns
        assert first.instructions == [
            InstructionRecord(
                id="It is noon.",
                type="SUPPORTING_CONTEXT",
                text="It is noon.",
                pass_id="turn-1/1",
                injected_ms=400,
                outcome=USED,
                response_id="r2",
                spoken_in_turn="turn-2",
            )
        ]
        assert whispers(second) == [("It is one.", "turn-2/1", 500, UNUSED, "", "")]
        assert saved.steering == SteeringRecord(
            instructions=2,
            used=1,
            unused=1,
            passes=2,
            planned_passes=2,
            responses=1,
            plan_staleness_turns=Staleness(mean=1, max=1),
            plan_staleness_seconds=Staleness(mean=0.6, max=0.6),
        )
    told = stage.client.commands("realtime-instruction")[0]
    assert told == {
        "turnId": "turn-1",
        "instructionId": "It is noon.",
        "passId": "turn-1/1",
        "instructionType": "SUPPORTING_CONTEXT",
        "text": "It is noon.",
    }
    assert [(each["passId"], each["state"]) for each in stage.client.commands("planning-pass")] == [
        ("turn-1/1", "began"),
        ("turn-1/1", "planned"),
        ("turn-2/1", "began"),
        ("turn-2/1", "planned"),
    ]


async def test_what_became_of_a_whisper_is_written_with_the_next_turn(autojump_clock: MockClock) -> None:
    """It costs no write of its own but at the end."""
    store = FaultyStore()
    planner = Planner([[[context("A")]], [[context("B")]], [[context("C")]]])
    async with open_scene(store=store, manager=ScriptedManager(planner=planner)) as stage:
        session = stage.model.session
        for number, text in enumerate(("one", "two", "three"), 1):
            await turn(session, text, f"r{number}")
        writes = [call.operation for call in store.calls].count("append_turns")
        assert writes == 3
        assert [turn.instructions[0].outcome for turn in store.turns] == [USED, USED, PENDING]
        await leave(stage)
        assert [call.operation for call in store.calls].count("append_turns") == 4
        assert [turn.instructions[0].outcome for turn in store.turns] == [USED, USED, UNUSED]


async def test_an_instruction_is_spoken_in_its_turn(autojump_clock: MockClock) -> None:
    """Its response is the first that could know the context before it, and a second pass speaks as well."""
    store = FaultyStore()
    planner = Planner([[[0.1, context("A"), 0.1, cue("B"), context("C")], [0.1, cue("D")]]])
    async with open_scene(store=store, manager=ScriptedManager(planner=planner)) as stage:
        session = stage.model.session
        await turn(session, "hello", "r1")
        answer(session, "B.", "rB", ms=0)
        await trio.sleep(1)
        answer(session, "D.", "rD", ms=0)
        await trio.sleep(1)
        assert outcomes(stage) == [
            ("turn-1", "A", "used", "rB"),
            ("turn-1", "B", "spoken", "rB"),
            ("turn-1", "C", "used", "rD"),
            ("turn-1", "D", "spoken", "rD"),
        ]
        saved = await leave(stage)
        assert whispers(store.turns[0]) == [
            ("A", "turn-1/1", 100, USED, "rB", "turn-1"),
            ("B", "turn-1/1", 200, SPOKEN, "rB", "turn-1"),
            ("C", "turn-1/1", 1000, USED, "rD", "turn-1"),
            ("D", "turn-1/2", 1100, SPOKEN, "rD", "turn-1"),
        ]
        assert saved.steering is not None
        assert saved.steering.plan_staleness_turns == Staleness(mean=0, max=0)
        assert (saved.steering.passes, saved.steering.planned_passes) == (2, 2)


async def test_a_barge_in_before_an_instruction_is_spoken(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    planner = Planner([[[0.5, cue("A"), cue("B")]], [[context("C")]]])
    async with open_scene(store=store, manager=ScriptedManager(planner=planner)) as stage:
        session = stage.model.session
        await turn(session, "hello", "r1")
        await turn(session, "stop", "r2")
        assert outcomes(stage)[0][:3] == ("turn-1", "A", "superseded")
        saved = await leave(stage)
        text, pass_id, at, outcome, response_id, spoken_in = whispers(store.turns[0])[0]
        assert (text, pass_id, at, outcome, spoken_in) == ("A", "turn-1/1", 500, SUPERSEDED, "turn-1")
        assert response_id  # of the response that never came
        assert saved.steering is not None
        assert (saved.steering.superseded, saved.steering.unused) == (1, 1)
        assert (saved.steering.passes, saved.steering.cancelled_passes) == (2, 1)


@pytest.mark.parametrize(("seconds", "outcome"), [(0.0, SUPERSEDED), (0.9, SPOKEN)])
async def test_a_barge_in_while_an_instruction_is_spoken(
    autojump_clock: MockClock, seconds: float, outcome: InstructionOutcome
) -> None:
    """It counts when a word of it was heard. The context that it knew is known to the next answer all the same."""
    store = FaultyStore()
    planner = Planner([[[0.5, context("A"), cue("B")]]])
    async with open_scene(store=store, manager=ScriptedManager(planner=planner)) as stage:
        session = stage.model.session
        await turn(session, "hello", "r1")
        session.say(Token("One two three four.", "rB"), SpeechItem(speech(2000), 24000, "rB"))
        await trio.sleep(seconds)
        await trio.testing.wait_all_tasks_blocked()
        await turn(session, "stop", "r2")
        used = "rB" if outcome is SPOKEN else "r2"
        last = {instruction: (outcome, response) for _, instruction, outcome, response in outcomes(stage)}
        assert last == {"A": ("used", used), "B": (outcome.value, "rB")}
        await leave(stage)
        assert [each.outcome for each in store.turns[0].instructions] == [USED, outcome]
        assert [each.response_id for each in store.turns[0].instructions] == [used, "rB"]


async def test_an_answer_that_is_cut_before_it_is_heard_uses_nothing(autojump_clock: MockClock) -> None:
    """It was made behind speech that was still playing; its turn is closed when the user cuts both."""
    store = FaultyStore()
    planner = Planner([[[cue("A")], [context("B")]], [], []])
    async with open_scene(store=store, manager=ScriptedManager(planner=planner)) as stage:
        session = stage.model.session
        session.say(interim(), final("hello", response_id="r1"))
        answer(session, "One two three four.", "r1", ms=4000)
        await trio.sleep(0.1)
        answer(session, "Five six.", "rA", ms=1000)
        await trio.sleep(0.9)
        assert store.turns[0].instructions[0].outcome is SPOKEN
        await turn(session, "stop", "r2")
        assert outcomes(stage) == [
            ("turn-1", "A", "spoken", "rA"),
            ("turn-2", "A", "superseded", "rA"),
            ("turn-2", "B", "used", "r2"),
        ]
        await leave(stage)
        assert whispers(store.turns[0]) == [
            ("A", "turn-1/1", 0, SUPERSEDED, "rA", "turn-1"),
            ("B", "turn-1/2", 100, USED, "r2", "turn-2"),
        ]


async def test_a_plan_grows_stale_while_its_passes_are_cancelled(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    planner = Planner([[[0.5, context("A")]], [[5.0, context("B")]], [[5.0, context("C")]]])
    async with open_scene(store=store, manager=ScriptedManager(planner=planner)) as stage:
        for number, text in enumerate(("one", "two", "three", "four"), 1):
            await turn(stage.model.session, text, f"r{number}")
        saved = await leave(stage)
        assert saved.steering == SteeringRecord(
            instructions=1,
            used=1,
            passes=3,
            planned_passes=1,
            cancelled_passes=2,
            responses=3,
            plan_staleness_turns=Staleness(mean=2, max=3),
            plan_staleness_seconds=Staleness(mean=1.5, max=2.5),
        )


async def test_a_model_that_falls_silent(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with open_scene(store=store, manager=ScriptedManager(planner=Planner([[[0.5, cue("A")]]]))) as stage:
        await turn(stage.model.session, "hello", "r1")
        await trio.sleep(30)
        assert [each[:3] for each in outcomes(stage)] == [("turn-1", "A", "unused")]
        await leave(stage)
        assert store.turns[0].instructions[0].outcome is UNUSED


async def test_a_planner_that_names_nothing(autojump_clock: MockClock) -> None:
    """Its instructions are named by the engine, and are those of one pass."""

    class Plain(PlanningManager):
        async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
            for text in ("A", "B"):
                await emit(RealtimeInstruction(text, InstructionType.SUPPORTING_CONTEXT))

    store = FaultyStore()
    async with open_scene(store=store, manager=ScriptedManager(planner=Plain())) as stage:
        await turn(stage.model.session, "hello", "r1")
        saved = await leave(stage)
        assert [(each.id, each.pass_id) for each in store.turns[0].instructions] == [
            ("instruction-1", "turn-1/1"),
            ("instruction-2", "turn-1/1"),
        ]
        assert saved.steering is not None
        assert (saved.steering.passes, saved.steering.planned_passes, saved.steering.cancelled_passes) == (1, 0, 0)


async def test_nobody_plans(autojump_clock: MockClock) -> None:
    async with open_scene() as stage:
        await turn(stage.model.session, "hello", "r1")
        saved = await leave(stage)
        assert saved.steering is None
        assert not STEERING & {e.name for e in stage.client.elements if isinstance(e, OutCommand)}


async def test_steering_that_is_not_shown_is_kept_all_the_same(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    manager = ScriptedManager(planner=Planner([[[0.5, context("A")]]]))
    async with open_scene(store=store, manager=manager, agent=ScriptedAgent(show_steering=False)) as stage:
        await turn(stage.model.session, "hello", "r1")
        await turn(stage.model.session, "and now", "r2")
        saved = await leave(stage)
        assert not STEERING & {e.name for e in stage.client.elements if isinstance(e, OutCommand)}
        assert whispers(store.turns[0]) == [("A", "turn-1/1", 500, USED, "r2", "turn-2")]
        assert saved.steering is not None
        assert saved.steering.used == 1


Ending = Callable[[Stage], Awaitable[None]]


async def exits(stage: Stage) -> None:
    await leave(stage)


async def vanishes(stage: Stage) -> None:
    stage.vanish()
    await stage.over.wait()


async def breaks(stage: Stage) -> None:
    stage.model.session.fail(OSError("reset"))
    await stage.over.wait()


@pytest.mark.parametrize("end", [exits, vanishes, breaks])
async def test_however_a_session_ends(autojump_clock: MockClock, end: Ending) -> None:
    """A pass is under way, an instruction is being spoken of which nothing was heard, a context waits."""

    @attrs.define
    class Listening(Observer):
        runs: list[SteeringRecord] = attrs.field(factory=list[SteeringRecord])

        def session_steered(self, session: SessionDocument, run: SteeringRecord) -> None:
            self.runs.append(run)

    store, listening = FaultyStore(), Listening()
    planner = Planner([[[context("A")]], [[0.1, context("B"), 5.0, context("C")]]])
    async with open_scene(store=store, manager=ScriptedManager(planner=planner), observer=listening) as stage:
        session = stage.model.session
        await turn(session, "hello", "r1")
        await turn(session, "and now", "r2")
        await end(stage)
        assert [whispers(each)[0][:4] for each in store.turns] == [
            ("A", "turn-1/1", 0, USED),
            ("B", "turn-2/1", 100, UNUSED),
        ]
        saved = await store.get_session(stage.manager.contexts[-1].session.id)
        assert saved is not None
        assert saved.steering is not None
        counted = saved.steering.instructions, saved.steering.used, saved.steering.unused
        is_patient = end is exits  # who leaves lets the planner come to its end
        assert counted == ((3, 1, 2) if is_patient else (2, 1, 1))
        assert saved.steering.cancelled_passes == (0 if is_patient else 1)
        assert listening.runs == [saved.steering]


@pytest.mark.parametrize("leaves_first", [True, False])
async def test_a_resumed_session_goes_on_counting(autojump_clock: MockClock, leaves_first: bool) -> None:
    """Also when the new connection takes it over from one that nobody knew was dead, and the store is slow."""
    store = FaultyStore(lambda call: 0.2 if call.operation == "save_session" else None)
    place: dict[str, Any] = {"store": store, "live": LiveSessions(), "environment": scripted_environment()}

    def scripted() -> ScriptedManager:
        return ScriptedManager(planner=Planner([[[0.5, context("A")]], [[0.5, context("B")]]]))

    async with open_stage(manager=scripted(), session_id="s1", **place) as stage:
        await stage.client.wait_for_command("ready")
        await turn(stage.model.session, "hello", "r1")
        await turn(stage.model.session, "and now", "r2")
        if leaves_first:
            await leave(stage)
        async with open_stage(manager=scripted(), session_id="s1", **place) as again:
            await again.client.wait_for_command("ready")
            await turn(again.model.session, "once more", "r3")
            saved = await leave(again)
    assert saved.steering == SteeringRecord(
        instructions=3,
        used=1,
        unused=2,
        passes=3,
        planned_passes=3,
        responses=1,
        plan_staleness_turns=Staleness(mean=1, max=1),
        plan_staleness_seconds=Staleness(mean=0.5, max=0.5),
    )
    assert [each.instructions[0].outcome for each in store.turns] == [USED, UNUSED, UNUSED]
