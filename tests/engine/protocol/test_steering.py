"""What becomes of whispers, case by case, and laws that hold whatever comes in which order."""

from collections import Counter

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.elements import InstructionType, RealtimeCommand, RealtimeInstruction, ResponseStatus
from engine.protocol.steering import (
    MOST_PENDING,
    REMEMBERED_PASSES,
    REMEMBERED_RESPONSES,
    PassState,
    SteeringLedger,
    SteeringTotals,
    Whisper,
    name_of_pass,
    steering_record,
    tell_pass,
)
from engine.store.documents import InstructionOutcome, Staleness, SteeringRecord

PENDING, SPOKEN, USED, SUPERSEDED, UNUSED = InstructionOutcome
COMPLETED, CANCELLED, IDLE = ResponseStatus.COMPLETED, ResponseStatus.CANCELLED, ResponseStatus.IDLE


def instruct(ledger: SteeringLedger, text: str, turn_id: str = "t1", pass_id: str = "") -> Whisper:
    return ledger.injected(RealtimeInstruction(text, InstructionType.INSTRUCTION, text, pass_id=pass_id), turn_id)


def whisper(
    ledger: SteeringLedger, text: str, turn_id: str = "t1", pass_id: str = "", *, arrives: bool = True
) -> Whisper:
    context = RealtimeInstruction(text, InstructionType.SUPPORTING_CONTEXT, text, pass_id=pass_id)
    made = ledger.injected(context, turn_id)
    if arrives:
        ledger.arrived(made)
    return made


def respond(ledger: SteeringLedger, response_id: str, turn_id: str = "t1", now: float = 0.0) -> None:
    """A whole response that says something."""
    ledger.response_began(response_id, turn_id, now)
    ledger.response_over(response_id, turn_id, COMPLETED, said=True)


def fate(made: Whisper) -> tuple[InstructionOutcome, str, str]:
    return made.outcome, made.response_id, made.spoken_in


# --- contexts ---------------------------------------------------------------------------------------------------------


def test_a_context_is_used_by_the_first_answer_that_could_know_it() -> None:
    ledger = SteeringLedger()
    respond(ledger, "r1", "t1")
    first, second = whisper(ledger, "A", "t1"), whisper(ledger, "B", "t1")
    assert (first.pass_id, first.outcome, first.text) == ("t1/1", PENDING, "A")
    respond(ledger, "r2", "t2")
    respond(ledger, "r3", "t3")
    assert fate(first) == fate(second) == (USED, "r2", "t2")


def test_a_context_that_is_on_its_way_is_not_known() -> None:
    ledger = SteeringLedger()
    late = whisper(ledger, "A", arrives=False)
    ledger.response_began("r1", "t1", 0)
    ledger.arrived(late)
    ledger.response_began("r1", "t1", 0)  # its next word
    assert fate(late) == (PENDING, "", "")
    ledger.response_began("r2", "t1", 0)
    assert fate(late) == (USED, "r2", "t1")


def test_an_answer_of_which_nothing_was_heard_leaves_its_context_to_the_next() -> None:
    ledger = SteeringLedger()
    made = whisper(ledger, "A", "t1")
    ledger.response_began("r2", "t2", 0)
    assert fate(made) == (USED, "r2", "t2")
    ledger.response_cut("r2", heard=False)
    ledger.response_over("r2", "t2", CANCELLED, said=True)
    ledger.barge_in("t2")
    assert fate(made) == (PENDING, "", "")
    respond(ledger, "r3", "t3")
    assert fate(made) == (USED, "r3", "t3")


def test_a_word_that_was_heard_is_enough() -> None:
    ledger = SteeringLedger()
    context, instruction = whisper(ledger, "A"), instruct(ledger, "B")
    ledger.response_began("r1", "t1", 0)
    ledger.response_cut("r1", heard=True)
    ledger.response_over("r1", "t1", CANCELLED, said=True)
    ledger.barge_in("t1")
    assert fate(context) == (USED, "r1", "t1")
    assert fate(instruction) == (SPOKEN, "r1", "t1")


def test_a_context_is_superseded_by_that_of_a_later_turn() -> None:
    ledger = SteeringLedger()
    older, newer = whisper(ledger, "A", "t1"), whisper(ledger, "B", "t2")
    assert (older.outcome, newer.outcome) == (SUPERSEDED, PENDING)


def test_a_context_is_superseded_by_the_same_words() -> None:
    """And not by other words of a further pass over the same turn: the model has both."""
    ledger = SteeringLedger()
    reaction, fact = whisper(ledger, "React.", pass_id="t1/1"), whisper(ledger, "It is noon.", pass_id="t1/1")
    again = whisper(ledger, "React.", pass_id="t1/2")
    assert [made.outcome for made in (reaction, fact, again)] == [SUPERSEDED, PENDING, PENDING]
    respond(ledger, "r2", "t2")
    assert [made.outcome for made in (reaction, fact, again)] == [SUPERSEDED, USED, USED]


def test_a_context_that_was_taken_back_may_have_been_replaced_meanwhile() -> None:
    """Its answer was made, planned upon, and then cut before any of it was heard."""
    ledger = SteeringLedger()
    first = whisper(ledger, "A", "t1")
    respond(ledger, "r2", "t2")
    whisper(ledger, "B", "t2")
    ledger.response_cut("r2", heard=False)
    assert fate(first) == (SUPERSEDED, "", "")
    same = whisper(ledger, "C", "t3")
    respond(ledger, "r3", "t3")
    again = whisper(ledger, "C", "t3")
    ledger.response_cut("r3", heard=False)
    assert (same.outcome, again.outcome) == (SUPERSEDED, PENDING)


def test_a_context_that_had_not_arrived_when_the_user_spoke() -> None:
    ledger = SteeringLedger()
    here, lost = whisper(ledger, "A"), whisper(ledger, "B", arrives=False)
    ledger.barge_in("t1")
    assert (here.outcome, lost.outcome) == (PENDING, SUPERSEDED)


# --- instructions -----------------------------------------------------------------------------------------------------


def test_one_response_speaks_one_instruction() -> None:
    ledger = SteeringLedger()
    first, second = instruct(ledger, "A"), instruct(ledger, "B")
    respond(ledger, "r1")
    assert (fate(first), second.outcome) == ((SPOKEN, "r1", "t1"), PENDING)
    respond(ledger, "r2")
    assert fate(second) == (SPOKEN, "r2", "t1")


def test_an_instruction_is_spoken_in_its_own_turn() -> None:
    ledger = SteeringLedger()
    made = instruct(ledger, "A", "t1")
    respond(ledger, "r2", "t2")
    assert made.outcome is PENDING


def test_the_user_goes_on_before_an_instruction_is_heard() -> None:
    ledger = SteeringLedger()
    begun, waiting, other = instruct(ledger, "A"), instruct(ledger, "B"), instruct(ledger, "C", "t0")
    ledger.response_began("r1", "t1", 0)
    ledger.response_cut("r1", heard=False)
    ledger.response_over("r1", "t1", CANCELLED, said=True)
    ledger.barge_in("t1")
    assert fate(begun) == (SUPERSEDED, "r1", "t1")
    assert fate(waiting) == (SUPERSEDED, "", "")
    assert other.outcome is PENDING


def test_the_user_goes_on_before_anything_of_the_response_came() -> None:
    ledger = SteeringLedger()
    made = instruct(ledger, "A")
    ledger.response_cut("r1", heard=False)
    ledger.response_over("r1", "t1", CANCELLED, said=False)
    assert fate(made) == (SUPERSEDED, "r1", "t1")


@pytest.mark.parametrize("began", [True, False])
def test_a_response_that_says_nothing(began: bool) -> None:
    """The model fell silent, or had nothing to say: it was asked, and nothing came of it. It still knows the context."""
    ledger = SteeringLedger()
    instruction, context = instruct(ledger, "A"), whisper(ledger, "B")
    if began:
        ledger.response_began("r1", "t1", 0)
    ledger.response_over("r1", "t1", IDLE, said=False)
    assert fate(instruction) == (UNUSED, "r1", "t1")
    assert fate(context) == (PENDING, "", "")


# --- the end ----------------------------------------------------------------------------------------------------------


def test_what_the_end_leaves() -> None:
    ledger = SteeringLedger()
    heard, spoken = whisper(ledger, "A"), instruct(ledger, "B")
    respond(ledger, "r1")
    unheard, begun = whisper(ledger, "C"), instruct(ledger, "D")
    ledger.response_began("r2", "t1", 0)
    waiting = whisper(ledger, "E")
    ledger.session_over()
    ledger.response_cut("r2", heard=False)
    ledger.response_over("r2", "t1", CANCELLED, said=True)
    after = instruct(ledger, "F")
    outcomes = [made.outcome for made in (heard, spoken, unheard, begun, waiting, after)]
    assert outcomes == [USED, SPOKEN, UNUSED, UNUSED, UNUSED, UNUSED]
    assert ledger.is_over


def test_changes_are_told_once() -> None:
    ledger = SteeringLedger()
    made = whisper(ledger, "A")
    assert ledger.take_changes() == []
    ledger.response_began("r1", "t1", 0)
    ledger.response_cut("r1", heard=False)
    assert ledger.take_changes() == [made]
    assert ledger.changed == []
    ledger.response_cut("r1", heard=False)
    assert ledger.take_changes() == []


# --- passes and plans -------------------------------------------------------------------------------------------------


def test_passes() -> None:
    ledger = SteeringLedger()
    for number in (1, 2, 3):
        ledger.note(tell_pass(name_of_pass("t1", number), PassState.BEGAN), "t1", 1.0)
    whisper(ledger, "A", pass_id="t1/1")
    ledger.note(tell_pass("t1/1", PassState.PLANNED), "t1", 2.0)
    ledger.note(tell_pass("t1/1", PassState.PLANNED), "t1", 3.0)
    ledger.planning_over("t0", cancelled=True)
    ledger.planning_over("t1", cancelled=False)  # the second failed, and so did the third
    ledger.note(tell_pass("t2/1", PassState.BEGAN), "t2", 4.0)
    ledger.planning_over("t2", cancelled=True)
    ledger.planning_over("t2", cancelled=True)
    ledger.note(tell_pass("t3/1", PassState.PLANNED), "t3", 5.0)
    ledger.note(tell_pass("t4/1", PassState.BEGAN), "t4", 6.0)
    ledger.session_over()
    totals = ledger.totals
    assert (totals.passes, totals.planned_passes, totals.cancelled_passes) == (6, 2, 2)


@pytest.mark.parametrize(
    "command",
    [
        RealtimeCommand("realtime-planning", {"text": "Hm."}),
        RealtimeCommand("planning-pass", {"passId": "t1/1", "state": "dreaming"}),
        RealtimeCommand("planning-pass", {"passId": 1, "state": "began"}),
    ],
)
def test_other_commands_are_none_of_its_business(command: RealtimeCommand) -> None:
    ledger = SteeringLedger()
    ledger.note(command, "t1", 1.0)
    assert ledger.totals == SteeringTotals()


def test_how_stale_the_plan_is() -> None:
    ledger = SteeringLedger()
    ledger.user_spoke()
    respond(ledger, "r1", "t1", now=1.0)  # there is no plan yet
    ledger.planned("t1/1", "t1", 4.0)
    ledger.user_spoke()
    respond(ledger, "r2", "t2", now=6.0)
    ledger.pass_began("t2/1", "t2")
    ledger.user_spoke()
    ledger.planning_over("t2", cancelled=True)
    respond(ledger, "r3", "t3", now=10.5)
    ledger.planned("t3/1", "t3", 12.0)
    respond(ledger, "r4", "t3", now=12.5)  # an instruction of a further pass
    assert steering_record(ledger.totals) == SteeringRecord(
        passes=3,
        planned_passes=2,
        cancelled_passes=1,
        responses=3,
        plan_staleness_turns=Staleness(mean=1.0, max=2),
        plan_staleness_seconds=Staleness(mean=3.0, max=6.5),
    )


# --- as it is stored --------------------------------------------------------------------------------------------------


def test_the_sums_go_on_over_the_runs_of_a_session() -> None:
    assert steering_record(SteeringTotals()) is None
    ledger = SteeringLedger()
    spoken, used = instruct(ledger, "A"), whisper(ledger, "B")
    respond(ledger, "r1")
    instruct(ledger, "C")
    ledger.barge_in("t1")
    ledger.planned("t1/1", "t1", 1.0)
    ledger.user_spoke()
    respond(ledger, "r2", "t2", now=3.0)
    whisper(ledger, "D", "t2")
    ledger.session_over()
    assert (spoken.outcome, used.outcome) == (SPOKEN, USED)
    once = steering_record(ledger.totals)
    assert once == SteeringRecord(
        instructions=4,
        spoken=1,
        used=1,
        superseded=1,
        unused=1,
        passes=2,
        planned_passes=1,
        cancelled_passes=1,
        responses=1,
        plan_staleness_turns=Staleness(mean=1.0, max=1),
        plan_staleness_seconds=Staleness(mean=2.0, max=2),
    )
    assert steering_record(SteeringTotals(), once) == once
    later = SteeringTotals(responses=3, stale_turns=5, most_stale_turns=3, stale_seconds=4.0, most_stale_seconds=1.5)
    twice = steering_record(later, steering_record(ledger.totals, once))
    assert twice is not None
    assert (twice.instructions, twice.passes, twice.responses) == (8, 4, 5)
    assert twice.plan_staleness_turns == Staleness(mean=1.4, max=3)
    assert twice.plan_staleness_seconds == Staleness(mean=1.6, max=2)


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_it_remembers_no_more_than_it_says() -> None:
    ledger = SteeringLedger()
    made = [whisper(ledger, f"context {number}") for number in range(MOST_PENDING + 3)]
    assert [each.outcome for each in made[:4]] == [SUPERSEDED] * 3 + [PENDING]
    used = whisper(ledger, "A", "t2")
    for number in range(REMEMBERED_RESPONSES + 1):
        respond(ledger, f"r{number}", "t2")
    ledger.response_cut("r0", heard=False)  # it was heard long ago
    assert fate(used) == (USED, "r0", "t2")
    for number in range(REMEMBERED_PASSES + 1):
        ledger.pass_began(f"t2/{number + 2}", "t2")
    ledger.planning_over("t2", cancelled=True)
    assert ledger.totals.cancelled_passes == REMEMBERED_PASSES


# --- laws -------------------------------------------------------------------------------------------------------------

TURNS = st.integers(1, 3).map(lambda number: f"t{number}")
RESPONSES = st.integers(1, 5).map(lambda number: f"r{number}")
STEPS = st.one_of(
    st.tuples(st.just("instruct"), TURNS, st.sampled_from("AB")),
    st.tuples(st.just("context"), TURNS, st.sampled_from("AB"), st.booleans()),
    st.tuples(st.just("began"), RESPONSES, TURNS),
    st.tuples(st.just("cut"), RESPONSES, st.booleans()),
    st.tuples(st.just("over"), RESPONSES, TURNS, st.sampled_from([COMPLETED, CANCELLED, IDLE]), st.booleans()),
    st.tuples(st.just("barge in"), TURNS),
    st.tuples(st.just("user")),
    st.tuples(st.just("pass"), TURNS, st.integers(1, 3)),
    st.tuples(st.just("planned"), TURNS, st.integers(1, 3)),
    st.tuples(st.just("planning over"), TURNS, st.booleans()),
    st.tuples(st.just("session over")),
)


@attrs.define
class Play:
    """A ledger that is told things, and what a reader knows of them."""

    ledger: SteeringLedger = attrs.field(factory=SteeringLedger)
    made: list[Whisper] = attrs.field(factory=list[Whisper])
    known: dict[int, InstructionOutcome] = attrs.field(factory=dict[int, InstructionOutcome])
    """By the changes that were told."""
    began: dict[str, int] = attrs.field(factory=dict[str, int])
    """By response: how many whispers there were when it was first heard of."""
    now: float = 0.0

    def step(self, step: tuple[object, ...]) -> None:
        self.now += 1.0
        ledger = self.ledger
        match step:
            case "instruct", str(turn), str(text):
                self.made.append(instruct(ledger, text, turn))
            case "context", str(turn), str(text), bool(arrives):
                self.made.append(whisper(ledger, text, turn, arrives=arrives))
            case "began", str(response), str(turn):
                self.began.setdefault(response, len(self.made))
                ledger.response_began(response, turn, self.now)
            case "cut", str(response), bool(heard):
                ledger.response_cut(response, heard=heard)
            case "over", str(response), str(turn), ResponseStatus() as status, bool(said):
                self.began.setdefault(response, len(self.made))
                ledger.response_over(response, turn, status, said=said)
            case "barge in", str(turn):
                ledger.barge_in(turn)
            case ("user",):
                ledger.user_spoke()
            case "pass", str(turn), int(number):
                ledger.pass_began(name_of_pass(turn, number), turn)
            case "planned", str(turn), int(number):
                ledger.planned(name_of_pass(turn, number), turn, self.now)
            case "planning over", str(turn), bool(cancelled):
                ledger.planning_over(turn, cancelled=cancelled)
            case _:
                ledger.session_over()
        for each in ledger.take_changes():
            self.known[self.made.index(each)] = each.outcome


@given(st.lists(STEPS, max_size=40))
def test_whatever_comes_every_whisper_has_one_outcome(steps: list[tuple[object, ...]]) -> None:
    play = Play()
    for step in steps:
        final = {index: made.outcome for index, made in enumerate(play.made) if made.outcome in (SUPERSEDED, UNUSED)}
        play.step(step)
        assert {index: play.made[index].outcome for index in final} == final, "what came to nothing stays so"
        totals = play.ledger.totals
        counted = Counter(made.outcome for made in play.made)
        assert {outcome: count for outcome, count in totals.outcomes.items() if count} == counted
        assert totals.instructions == len(play.made)
        assert totals.planned_passes + totals.cancelled_passes <= totals.passes
        assert 0 <= totals.stale_turns <= totals.most_stale_turns * totals.responses
        assert 0 <= totals.stale_seconds <= totals.most_stale_seconds * totals.responses + 1e-9
    for index, made in enumerate(play.made):
        assert play.known.get(index, PENDING) is made.outcome, "every change was told"
        assert made.outcome is not (SPOKEN if made.type.is_contextual else USED)
        if made.outcome in (SPOKEN, USED):
            assert index < play.began[made.response_id], "no answer knows what comes after its beginning"
        if made.outcome is PENDING or (made.type.is_contextual and made.outcome is not USED):
            assert (made.response_id, made.spoken_in) == ("", "")
    spoken = [made.response_id for made in play.made if made.outcome is SPOKEN]
    assert len(spoken) == len(set(spoken)), "one response speaks one instruction"
    play.step(("session over",))
    assert not [made for made in play.made if made.outcome is PENDING]
    totals = play.ledger.totals
    before = steering_record(totals)
    if before is not None:
        assert before.spoken + before.used + before.superseded + before.unused == before.instructions
        twice = steering_record(totals, before)
        assert twice is not None
        assert (twice.instructions, twice.passes) == (2 * before.instructions, 2 * before.passes)
        assert twice.plan_staleness_turns.max == before.plan_staleness_turns.max
