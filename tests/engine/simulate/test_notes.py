"""What is written down of single elements, and how people read it."""

from typing import Any

from engine.elements import (
    OutCommand,
    OutError,
    OutEvaluation,
    OutSpeech,
    OutText,
    OutTranscript,
    SpeechCut,
)
from engine.errors import ErrorCode, Whose
from engine.simulate import table
from engine.simulate.notes import Notes
from engine.simulate.report import Ending, Line, RunReport, Side, SideReport

AGENT, TESTER = Side.AGENT, Side.TESTER


def command(name: str, turn_id: str = "t1", /, **parameters: Any) -> OutCommand:
    return OutCommand(name, {"turnId": turn_id, **parameters}, turn_id)


def test_steering_with_its_ids() -> None:
    notes = Notes()
    for at, element in enumerate(
        [
            command("realtime-planning", text="I look."),
            command("realtime-instruction", instructionType="SUPPORTING_CONTEXT", text="It is late."),
            command("realtime-instruction", instructionType="INSTRUCTION", text="Say A."),
            command("realtime-instruction", instructionType="COMMENTARY", text="B"),
            command("response-instruction-end", instructionId="a"),
            command("response-instruction-end", "t2", instructionId="of another turn"),
        ]
    ):
        notes.take(AGENT, element, at)
        notes.take(TESTER, element, at)  # whose steering is nobody's concern
    assert [
        (each.at, each.kind, each.instruction_type, each.instruction_id, each.spoken_at) for each in notes.steering
    ] == [
        (0, "planning", "", "", None),
        (1, "instruction", "SUPPORTING_CONTEXT", "", None),
        (2, "instruction", "INSTRUCTION", "a", 4),
        (3, "instruction", "COMMENTARY", "", None),
    ]
    assert [each.order for each in notes.steering] == [1, 3, 5, 7]


def test_tools_that_fail_and_that_never_end() -> None:
    notes = Notes()
    notes.take(AGENT, command("tool-start", callId="c1", name="book", owner="planner", parameters={"a": 1}), 1.0)
    notes.take(AGENT, command("tool-start", callId="c2", name="look", owner="model", parameters={}), 2.0)
    notes.take(AGENT, command("tool-error", callId="c1", name="book", owner="planner", error="Full."), 3.5)
    failed, running = notes.tools
    assert (failed.outcome, failed.error, failed.seconds, failed.parameters) == ("error", "Full.", 2.5, {"a": 1})
    assert (running.outcome, running.seconds, running.owner) == ("open", None, "model")


def test_the_first_word_of_an_answer_and_not_of_what_is_being_said() -> None:
    notes = Notes(is_spoken=True)
    sound = OutSpeech(b"\1\1", 24000, "t1", "r1")
    notes.asked(AGENT, 1.0)
    notes.take(AGENT, OutText("Hello.", "t1", "r1"), 1.2)  # nobody hears that
    notes.take(AGENT, OutSpeech(b"", 24000, "t1", "r1"), 1.3)
    notes.take(AGENT, sound, 1.5)
    notes.asked(AGENT, 2.0)  # somebody speaks at the same time
    notes.take(AGENT, sound, 2.1)
    notes.take(AGENT, OutSpeech(b"\1\1", 24000, "t1", "r2"), 3.0)
    assert notes.sides[AGENT].first_words == [0.5, 1.0]


def test_a_response_that_was_cut_while_it_was_heard_and_one_that_failed() -> None:
    notes = Notes()
    for response in ("r1", "r2"):
        notes.take(AGENT, OutText(f"I am {response}.", "t1", response), 1.0)
    notes.take(AGENT, command("response-end", responseId="r1", status="completed"), 1.0)
    notes.take(AGENT, SpeechCut("t1", "r1"), 2.0)
    notes.take(AGENT, SpeechCut("t1", "r2"), 3.0)
    notes.take(AGENT, command("response-end", responseId="r2", status="failed"), 3.0)
    heard = {(AGENT, "r1"): "I"}
    assert [(line.status, line.heard) for line in notes.lines(heard)] == [("cancelled", "I"), ("failed", "I am r2.")]
    assert [(each.at, each.response_id, each.heard) for each in notes.interruptions(heard)] == [(2.0, "r1", "I")]


def test_only_the_agent_is_judged_and_only_speech_is_understood() -> None:
    notes = Notes()
    verdict = OutEvaluation("goal", 1.0)
    notes.take(AGENT, verdict, 1.0)
    notes.take(TESTER, verdict, 1.0)
    assert len(notes.evaluations) == 1
    notes.take(AGENT, OutTranscript("Hi.", False, False, False, "Client", "t1"), 1.0)
    assert notes.understood == []
    notes = Notes(is_spoken=True)
    notes.take(AGENT, OutTranscript("Hi.", False, False, False, "Ears", "t1"), 1.0)
    notes.take(AGENT, OutTranscript(".", True, False, False, "Ears", "t1"), 1.0)
    notes.take(AGENT, OutTranscript("#intro", False, True, False, "", "t1"), 1.0)
    assert [each.text for each in notes.understood] == ["Hi."]


def test_lines_are_told_when_they_are_complete() -> None:
    told: list[Line] = []
    notes = Notes(tell=told.append)
    notes.take(TESTER, OutText("One.", "t1", "r1"), 1.0)
    notes.take(TESTER, OutText("Two.", "t1", "r1"), 2.0)
    assert told == []
    notes.take(TESTER, command("response-end", responseId="r1", status="cancelled"), 3.0)
    notes.take(TESTER, command("response-end", responseId="r2", status="completed"), 4.0)  # without a word
    assert [table.spoken(line) for line in told] == ["tester: One. Two. (cancelled)"]


def test_whose_fault_an_error_is() -> None:
    notes = Notes()
    notes.take(
        TESTER, OutError(ErrorCode.PROVIDER_QUOTA, "Nothing left.", recoverable=False, whose=Whose.PROVIDER), 2.0
    )
    run = RunReport(
        index=0,
        passed=False,
        failures=["It broke."],
        ended=Ending.ERROR,
        seconds=2.0,
        turns=0,
        errors=notes.errors,
        agent=SideReport(key="agent:a", warnings=["Nothing is recognized."]),
        tester=SideReport(key="agent:t", stalls=3),
    )
    assert table.row(run).splitlines()[1:] == [
        "      It broke.",
        "      tester at 2.0 s: Nothing left. (provider_quota; at fault: a provider)",
        "      agent:a warns: Nothing is recognized.",
        "      the speech of agent:t stood still 3 times: it was not made in real time, and may be misunderstood",
    ]
