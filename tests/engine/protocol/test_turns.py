"""The turns, case by case: what is told, in which order, and what is done about it."""

import attrs
import pytest

from engine.elements import (
    EmotionalState,
    InstructionType,
    MultimodalInteraction,
    MultimodalKind,
    OnInterruption,
    OutCommand,
    OutMultimodal,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    Partial,
    RealtimeCommand,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeakingState,
    SpeechCut,
    SpeechItem,
    Text,
    Token,
    ToolEvent,
    ToolOwner,
    ToolPhase,
    Transcript,
)
from engine.errors import ErrorCode
from engine.protocol.turn import CancelLegs, CutSpeech, InterruptTools, Legs, StartLegs, TurnLimits
from engine.protocol.turns import MAX_WAITING
from engine.testing.invariants import check_stream, require
from engine.testing.scripted import final, interim, speech
from tests.engine.protocol.turns_bench import Bench

SHOULD_END = RealtimeCommand("sessionShouldEnd")
SPEAKING, NOT_SPEAKING = (EmotionalState(state) for state in SpeakingState)


def audio(ms: int, response_id: str) -> SpeechItem:
    return SpeechItem(speech(ms), 24000, response_id)


def told(bench: Bench) -> list[str]:
    """The client's stream in short, a run of speech as one word."""
    lines: list[str] = []
    for _, element in bench.heard:
        line = _short(element)
        if not (line.startswith("speech") and lines and lines[-1] == line):
            lines.append(line)
    return lines


def _short(element: OutputElement) -> str:
    match element:
        case OutTranscript(text, is_interim):
            return f"{element.turn_id} {'interim' if is_interim else text}"
        case OutToken():
            return f"{element.turn_id} token"
        case OutText(text):
            return f"{element.turn_id} {text}"
        case OutSpeech(is_last=True):
            return "last"
        case OutSpeech():
            return f"speech {element.response_id}"
        case SpeechCut():
            return f"cut {element.response_id}"
        case OutCommand(name="response-end"):
            return f"{element.turn_id} {element.parameters['responseId']} {element.parameters['status']}"
        case OutCommand():
            return f"{element.turn_id} {element.name}"
        case OutMultimodal():
            return f"{element.turn_id} card"
        case _:
            return type(element).__name__


def sound(bench: Bench) -> None:
    """Nothing that was told breaks a rule."""
    require(check_stream([(0.0, OutCommand("ready", {})), *bench.heard], is_over=False))


# --- an ordinary turn -------------------------------------------------------------------------------------------------


def test_a_turn_from_its_interim_to_its_exit() -> None:
    bench = Bench(legs_seconds=0.5, save_seconds=0.1)
    bench.receive(interim())
    bench.advance(1)
    bench.receive(final("hello"), Token("Hello. How", "r1"), audio(500, "r1"), Token(" are you?", "r1"))
    bench.receive(ResponseEnd("r1"))
    bench.advance(10)
    assert told(bench) == [
        "turn-1 interim",
        "turn-1 hello",
        "turn-1 token",
        "turn-1 Hello.",
        "speech r1",
        "turn-1 token",
        "turn-1 How are you?",
        "last",
        "turn-1 r1 completed",
        "turn-1 exit",
    ]
    (turn,) = bench.closed
    assert bench.heard[-1][0] == 1.6
    assert turn.timing.last_interim == 0
    assert (turn.timing.final_transcript, turn.timing.first_text, turn.timing.first_audio) == (1, 1, 1)
    assert bench.machine.turn.is_fresh
    assert bench.machine.deadline is None
    sound(bench)


def test_a_session_may_make_its_own_sentences() -> None:
    bench = Bench(sentences=False)
    bench.receive(interim(), final("hello"), Token("Hel", "r1"), Text("Hello.", "r1"), audio(500, "r1"))
    bench.receive(ResponseEnd("r1"))
    assert bench.texts() == ["Hello."]
    assert bench.machine.turn.responses[0].sentences == ["Hello."]
    bench.advance(1)
    bench.receive(interim(), final("more"), Text("First.", "r2"), audio(1000, "r2"))
    bench.advance(0.5)
    bench.receive(interim())
    bench.advance(0.5)
    assert bench.closed[-1].responses[0].status is ResponseStatus.CANCELLED


def test_cards_errors_and_commands_belong_to_the_turn() -> None:
    bench = Bench()
    bench.receive(interim(), final("hello"), Token("Look", "r1"))
    bench.receive(MultimodalInteraction(MultimodalKind.CARD, "menu"), RealtimeError(ErrorCode.INTERNAL, "Oops."))
    bench.receive(
        RealtimeCommand("realtime-planning", {"text": "Hm."}), Partial("hel"), EmotionalState(None, {"joy": 1})
    )
    assert told(bench)[3:] == ["turn-1 card", "OutError", "turn-1 realtime-planning", "OutPartial", "OutEmotion"]
    assert bench.machine.turn.multimodal == [MultimodalInteraction(MultimodalKind.CARD, "menu")]


def test_two_interims_before_the_words_are_one_utterance() -> None:
    bench = Bench()
    bench.receive(interim())
    bench.advance(1.5)
    bench.receive(interim())
    bench.advance(1.5)
    bench.receive(final("hello"))
    assert told(bench) == ["turn-1 interim", "turn-1 hello"]
    assert bench.machine.turn.timing.last_interim == 1.5


def test_a_final_without_an_interim_gets_one() -> None:
    bench = Bench()
    bench.receive(final("hello"), final("  "))
    assert told(bench) == ["turn-1 interim", "turn-1 hello"]


# --- barge-in ---------------------------------------------------------------------------------------------------------


def test_the_order_of_a_barge_in() -> None:
    bench = Bench()
    bench.receive(interim(), final("tell me"), Token("A story. Once", "r1"), audio(3000, "r1"))
    bench.call("c1", "r1")
    bench.advance(1)
    done = bench.receive(interim())
    bench.receive(Token(" upon", "r1"), final("stop"), Token("Yes.", "r2"), ResponseEnd("r2"))
    bench.advance(1)
    assert told(bench)[5:] == [
        "turn-1 tool-start",
        "cut r1",
        "turn-2 interim",
        "turn-1 r1 cancelled",
        "turn-1 tool-error",
        "turn-1 exit",
        "turn-2 stop",
        "turn-2 token",
        "turn-2 Yes.",
        "turn-2 r2 completed",
        "turn-2 exit",
    ]
    assert [type(do) for do in done if isinstance(do, CutSpeech | InterruptTools)] == [CutSpeech, InterruptTools]
    first = bench.closed[0]
    assert first.was_interrupted
    assert (first.responses[0].text, first.responses[0].heard) == ("A story. Once", "A")
    sound(bench)


def test_a_barge_in_cancels_planning() -> None:
    bench = Bench(legs_seconds=5)
    bench.receive(interim(), final("hello"), Token("Hello.", "r1"), ResponseEnd("r1"))
    bench.advance(1)
    done = bench.receive(interim())
    assert [do.reason for do in done if isinstance(do, CancelLegs)] == ["barge-in"]
    bench.advance(0.2)
    assert bench.exits() == ["turn-1"]
    assert not bench.closed[0].was_interrupted


def test_speech_that_is_still_playing_is_cut_and_its_turn_corrected() -> None:
    bench = Bench()
    bench.receive(interim(), final("hello"), Token("One two three four.", "r1"), audio(2000, "r1"), ResponseEnd("r1"))
    bench.advance(1.1)
    assert bench.exits() == ["turn-1"]
    assert [m.text for m in bench.memory.messages] == ["hello", "One two three four."]
    bench.receive(interim())
    assert bench.amended == bench.closed
    assert bench.closed[0].responses[0].heard == "One two"
    assert [m.text for m in bench.memory.messages] == ["hello", "One two"]
    sound(bench)


def test_speech_of_no_known_turn_is_cut_too() -> None:
    bench = Bench()
    bench.hearing.speech_queued("elsewhere", 1000)
    bench.receive(interim())
    assert told(bench) == ["cut elsewhere", "turn-1 interim"]


def test_a_provider_that_cuts_by_itself() -> None:
    bench = Bench()
    bench.receive(interim(), final("hello"), Token("One two three four.", "r1"), audio(2000, "r1"))
    bench.advance(1)
    bench.receive(ResponseEnd("r1", ResponseStatus.CANCELLED))
    assert told(bench)[-2:] == ["cut r1", "turn-1 r1 cancelled"]
    assert bench.machine.turn.was_interrupted
    assert bench.machine.turn.responses[0].heard == "One two"
    sound(bench)


def test_what_a_named_response_says_after_it_was_cut_before_it_began() -> None:
    bench = Bench()
    bench.receive(interim(), final("hello", response_id="r1"))
    bench.do(bench.machine.instructed(instruction("Say hi."), bench.machine.turn, bench.now))
    bench.receive(Token("Hi.", "rX"), interim())
    bench.advance(1)
    bench.receive(final("stop"), Token("Hello.", "r1"), Token("Yes.", "r2"), ResponseEnd("r2"))
    assert bench.texts() == ["Yes."]
    sound(bench)


def instruction(text: str, kind: InstructionType = InstructionType.INSTRUCTION) -> RealtimeInstruction:
    return RealtimeInstruction(text, kind)


def test_the_cancelled_end_of_an_unknown_response_ends_no_window() -> None:
    """It is that of an answer that was cut before it began (case C02)."""
    bench = Bench()
    bench.receive(interim(), final("book it"), interim())
    bench.advance(1)
    bench.receive(final("hello?"), ResponseEnd("r1", ResponseStatus.CANCELLED), ResponseEnd("r1"))
    assert bench.machine.turn.window_open
    bench.receive(Token("Yes.", "r2"), ResponseEnd("r2"))
    assert bench.texts() == ["Yes."]


# --- words that come late or twice ------------------------------------------------------------------------------------


def test_a_transcript_may_come_after_the_answer() -> None:
    """Case C09: the back-end work waits for it."""
    bench = Bench()
    bench.receive(interim(), Token("At nine.", "r1"), ResponseEnd("r1"))
    bench.advance(1)
    assert bench.exits() == []
    done = bench.receive(final("when do you open"))
    assert [type(do) for do in done if isinstance(do, StartLegs)] == [StartLegs]
    bench.advance(1)
    assert [m.text for m in bench.memory.messages] == ["when do you open", "At nine."]


def test_a_blank_final_after_the_answer_says_that_no_words_will_come() -> None:
    bench = Bench()
    bench.receive(interim(), Token("At nine.", "r1"))
    bench.receive(final(" "))  # too early to mean that: the answer is not over
    bench.receive(ResponseEnd("r1"))
    bench.advance(1)
    assert bench.exits() == []
    bench.receive(final(" "))
    bench.advance(0.1)
    assert bench.exits() == ["turn-1"]


def test_a_transcript_that_never_comes_is_not_waited_for_for_ever() -> None:
    bench = Bench()
    bench.receive(interim(), Token("At nine.", "r1"), ResponseEnd("r1"))
    bench.advance(19.9)
    assert bench.exits() == []
    bench.advance(0.3)
    assert bench.exits() == ["turn-1"]


def test_a_call_that_settled_behind_its_answers_end_is_not_waited_for() -> None:
    """Its turn was held behind a slow save, and is cut by the next words the moment it begins."""
    bench = closing()
    bench.receive(interim(), final("one"))
    bench.call("c1", "r1", OnInterruption.SHIELD)
    bench.receive(ResponseEnd("r1"), final("two"))
    bench.settle("c1")
    bench.receive(Token("Two.", "r2"), ResponseEnd("r2"))
    bench.advance(3)
    assert [turn.user_text for turn in bench.closed] == ["zero", "one", "two"]
    assert bench.texts()[-1] == "Two."


def test_a_window_that_expects_an_answer_stays_open_for_it() -> None:
    bench = Bench()
    bench.receive(interim(), final("hello", response_id="r1"), Token("Something else.", "rX"), ResponseEnd("rX"))
    assert bench.machine.turn.window_open
    bench.receive(Token("Hello.", "r1"), ResponseEnd("r1"))
    bench.advance(1)
    assert [response.text for response in bench.closed[0].responses] == ["Something else.", "Hello."]


def test_a_clause_that_was_heard_counts_though_its_sentence_was_never_told() -> None:
    bench = Bench(sentences=False)
    clause = SpeechItem(speech(1000), 24000, "r1", text="Let me see,")
    bench.receive(interim(), final("find it"), clause)
    bench.advance(0.999)
    bench.receive(interim())
    record = bench.machine.turn.responses[0]
    assert (record.text, record.heard_text) == ("Let me", "Let me")


def test_a_late_transcript_of_a_cut_turn_is_that_turns() -> None:
    bench = Bench()
    bench.receive(interim(), Token("At nine.", "r1"), audio(1000, "r1"), interim())
    bench.advance(1)
    bench.receive(final("when do you open"))
    bench.advance(0.2)
    assert bench.closed[0].user_text == "when do you open"
    bench.receive(final("and close"))
    assert bench.machine.turn.user_text == "and close"
    sound(bench)


def test_a_cut_turn_that_waits_for_a_call_does_not_spin() -> None:
    """Its late transcript is given up after two seconds, its shielded call is not."""
    bench = Bench()
    bench.receive(interim(), Token("Let me see", "r1"))
    bench.call("c1", "r1", OnInterruption.SHIELD)
    bench.receive(interim())
    bench.advance(5)
    assert bench.machine.deadline is None or bench.machine.deadline > bench.now
    bench.settle("c1")
    bench.advance(0.2)
    assert bench.exits() == ["turn-1"]


def test_a_second_final_waits_for_the_end_of_the_window() -> None:
    bench = Bench(legs_seconds=9)
    bench.receive(interim(), final("one"), final("two"), Token("Both.", "r1"))
    assert told(bench) == ["turn-1 interim", "turn-1 one", "turn-1 token"]
    bench.receive(ResponseEnd("r1"))
    bench.advance(0.2)
    assert told(bench)[3:] == [
        "turn-1 Both.",
        "turn-1 r1 completed",
        "turn-2 interim",
        "turn-1 exit",
        "turn-2 two",
    ]
    sound(bench)


def closing(save_seconds: float = 1.0) -> Bench:
    """A bench whose first turn is being saved."""
    bench = Bench(legs_seconds=0, save_seconds=save_seconds)
    bench.receive(interim(), final("zero"), Token("Nought.", "r0"), audio(3000, "r0"), ResponseEnd("r0"))
    bench.advance(0)
    assert bench.machine.turn.is_closing
    bench.heard.clear()
    return bench


def test_answers_keep_their_finals_while_a_turn_is_being_saved() -> None:
    bench = closing()
    bench.receive(final("one"), Token("One.", "r1"), ResponseEnd("r1"))
    bench.receive(final("two"), Token("Two.", "r2"), ResponseEnd("r2"))
    bench.advance(5)
    assert told(bench) == [
        "cut r0",
        "turn-2 interim",
        "turn-1 exit",
        "turn-2 one",
        "turn-2 token",
        "turn-2 One.",
        "turn-2 r1 completed",
        "turn-3 interim",
        "turn-2 exit",
        "turn-3 two",
        "turn-3 token",
        "turn-3 Two.",
        "turn-3 r2 completed",
        "turn-3 exit",
    ]


def test_an_answer_passes_a_final_that_has_to_wait() -> None:
    bench = closing()
    bench.receive(interim(), final("one"), Token("One", "r1"), final("two"), Token(" more.", "r1"), ResponseEnd("r1"))
    bench.advance(1.1)
    assert bench.texts() == ["One more."]


def test_interleaved_answers_are_told_one_after_the_other() -> None:
    bench = closing()
    bench.receive(interim(), final("one"), Token("One", "r1"), Token("Two", "r2"), Token(".", "r1"))
    bench.receive(ResponseEnd("r1"), Token(".", "r2"), ResponseEnd("r2"))
    bench.advance(1.1)
    assert bench.texts() == ["One.", "Two."]


def test_a_barge_in_while_a_turn_is_being_saved_is_seen_at_once() -> None:
    """Whatever else has come before it."""
    bench = closing()
    bench.advance(0.5)
    bench.receive(SPEAKING, Partial("wai"), RealtimeCommand("realtime-planning", {"text": "Hm."}), interim())
    assert [do.response_id for do in bench.done if isinstance(do, CutSpeech)] == ["r0"]
    assert told(bench) == ["cut r0", "turn-2 interim"]
    bench.advance(1)
    assert told(bench)[2:] == ["turn-1 exit", "OutEmotion", "OutPartial", "turn-2 realtime-planning"]


def test_an_answer_that_was_interrupted_before_its_turn_began_is_never_shown() -> None:
    bench = closing()
    bench.receive(Token("Unasked.", "r1"), audio(100, "r1"), Text("Unasked.", "r1"), ResponseEnd("r1"))
    bench.call("c1", "r5")
    bench.receive(MultimodalInteraction(MultimodalKind.CARD, "menu"), interim())
    assert [type(do) for do in bench.done if isinstance(do, InterruptTools)] == [InterruptTools]
    bench.receive(Token("Still.", "r1"), final("stop"), Token("Yes.", "r2"), ResponseEnd("r2"))
    bench.advance(2)
    assert bench.texts() == ["Yes."]
    assert not any("tool" in line for line in told(bench))
    assert bench.machine.is_dead("r1")


def test_an_interim_behind_a_waiting_final_cuts_the_answer_to_it() -> None:
    """The final is told, nobody waits for its answer, and the next words are answered at once."""
    bench = Bench(save_seconds=0.1)
    bench.receive(interim(), final("one"), Token("One", "r1"), final("two"), interim())
    bench.advance(0.5)
    bench.receive(final("three"), Token("Three.", "r3"), ResponseEnd("r3"))
    bench.advance(0.5)
    assert [turn.user_text for turn in bench.closed] == ["one", "two"]
    assert bench.texts()[-1] == "Three."
    sound(bench)


def test_the_same_while_a_turn_is_being_saved() -> None:
    bench = closing()
    bench.receive(interim(), final("one"), Token("One", "r1"), final("two"), interim(), final("three"))
    bench.receive(Token("Three.", "r3"), ResponseEnd("r3"))
    bench.advance(9)
    assert [turn.user_text for turn in bench.closed] == ["zero", "one", "two", "three"]
    assert bench.texts()[-1] == "Three."


def test_a_call_that_settled_behind_a_slow_save_is_not_waited_for() -> None:
    bench = closing()
    bench.receive(interim(), final("one"))
    bench.call("c1", "r1", OnInterruption.SHIELD)
    bench.receive(interim())
    bench.settle("c1")
    bench.advance(5)
    bench.receive(final("two"), Token("Two.", "r2"), ResponseEnd("r2"))
    assert bench.texts() == ["Two."]


def test_a_model_that_fills_what_waits_is_shed() -> None:
    bench = closing()
    for _ in range(MAX_WAITING + 5):
        bench.receive(Token("word ", "r1"))
    bench.receive(final("still here"))
    bench.advance(2)
    assert sum(line == "turn-2 token" for line in told(bench)) == MAX_WAITING
    assert bench.machine.front.user_text == "still here"


# --- inputs on their way to the model ---------------------------------------------------------------------------------


def type_in(bench: Bench, text: str) -> None:
    bench.do(bench.machine.interrupt(interim(provider="Client"), bench.now))
    bench.machine.expect_answer(text, "" if text.startswith("#") else "Client", bench.now)


def test_typed_words_under_way_are_no_noise() -> None:
    """However long their echo takes, the answer they cut is not asked for again."""
    bench = Bench()
    bench.receive(interim(), final("book it"), Token("Booking", "r1"))
    type_in(bench, "no, wait")
    bench.advance(10)
    assert bench.asked_again == []
    assert bench.machine.owes_speech
    bench.receive(final("no, wait", "Client"), Token("I wait.", "r2"), ResponseEnd("r2"))
    assert bench.texts()[-1] == "I wait."


def test_an_echo_that_was_overtaken_by_an_interim_counts_but_is_not_answered() -> None:
    bench = Bench()
    type_in(bench, "one")
    bench.do(bench.machine.interrupt(interim(), bench.now))
    bench.machine.expect_answer("two", "Scripted", bench.now)
    bench.receive(
        final("one", "Client", "r1"), final("two"), Token("One", "r1"), Token("Two.", "r2"), ResponseEnd("r2")
    )
    bench.advance(1)
    assert [turn.user_text for turn in bench.closed] == ["one", "two"]
    assert bench.texts() == ["Two."]
    sound(bench)


def test_an_overtaken_action_is_nothing() -> None:
    bench = Bench()
    type_in(bench, "#intro")
    bench.receive(interim())
    bench.receive(Transcript("#intro", is_synthetic=True, response_id="r1"), Token("Welcome", "r1"), final("hello"))
    bench.receive(Token("Hello.", "r2"), ResponseEnd("r2"))
    assert bench.texts() == ["Hello."]
    assert bench.machine.turn.user_text == "hello"


def test_before_the_echo_of_what_the_engine_heard_nothing_is_an_answer() -> None:
    """It was under way in the very moment of the interruption, and its response has never been named."""
    bench = Bench()
    bench.receive(interim(), final("one"))
    type_in(bench, "two")
    bench.advance(1)
    done = bench.receive(Token("One", "r1"), audio(100, "r1"))
    bench.call("c1", "rX")
    bench.receive(final("two", "Client"), Token(" more", "r1"), Token("Two.", "r2"), ResponseEnd("r2"))
    assert done == []
    assert any(isinstance(do, InterruptTools) for do in bench.done)
    assert not any("tool" in line for line in told(bench))
    assert bench.texts() == ["Two."]
    sound(bench)


def test_what_a_model_says_unasked_after_a_noise_is_told() -> None:
    bench = Bench()
    bench.do(bench.machine.interrupt(interim(), bench.now))
    bench.advance(3)
    bench.receive(Token("Are you there?", "r1"), ResponseEnd("r1"))
    assert bench.texts() == ["Are you there?"]


def test_an_echo_is_no_late_transcript_of_the_turn_it_cut() -> None:
    bench = Bench()
    bench.receive(interim(), Token("At nine.", "r1"), audio(1000, "r1"))
    type_in(bench, "stop")
    bench.receive(final("stop", "Client"), Token("Yes.", "r2"), ResponseEnd("r2"), final("when do you open"))
    bench.advance(1)
    assert [turn.user_text for turn in bench.closed] == ["when do you open", "stop"]
    assert bench.texts()[-1] == "Yes."


def test_words_of_another_source_were_spoken_before_what_is_under_way() -> None:
    """The provider's transcript of what was said before something was typed: its answer was cut."""
    bench = Bench()
    bench.receive(interim())
    type_in(bench, "typed")
    bench.receive(final("spoken"), final("typed", "Client"), Token("Yes.", "r2"), ResponseEnd("r2"))
    bench.advance(1)
    assert [turn.user_text for turn in bench.closed] == ["spoken", "typed"]
    assert bench.texts() == ["Yes."]
    sound(bench)


def test_the_same_words_twice_are_answered() -> None:
    bench = Bench()
    type_in(bench, "yes")
    type_in(bench, "yes")
    bench.receive(final("yes", "Client"), Token("Good.", "r1"), ResponseEnd("r1"))
    assert bench.texts() == ["Good."]


def test_an_echo_in_other_words_pays_what_is_owed() -> None:
    bench = Bench()
    type_in(bench, "  yes ")
    bench.receive(final("yes", "Client"), Token("Good.", "r1"), ResponseEnd("r1"))
    bench.advance(1)
    bench.do(bench.machine.input_ended(bench.now))
    bench.do(bench.machine.recognition_over(bench.now, by_engine=False))
    assert bench.machine.is_done


# --- a noise ----------------------------------------------------------------------------------------------------------


def cough() -> Bench:
    """A noise has cut the answer at 0.5 s."""
    bench = Bench()
    bench.receive(interim(), final("book it"), Token("Booking", "r1"))
    bench.advance(0.5)
    bench.receive(interim())
    return bench


def test_the_answer_a_noise_cut_is_asked_for_again() -> None:
    bench = cough()
    bench.advance(1.9)
    assert bench.asked_again == []
    bench.advance(0.2)
    assert bench.asked_again == ["book it"]
    bench.receive(Transcript("book it", is_synthetic=True), Token("Booked.", "r2"), ResponseEnd("r2"))
    bench.advance(1)
    assert [turn.is_asked_again for turn in bench.closed] == [False, True]
    assert [m.text for m in bench.memory.messages] == ["book it", "Booked."]
    sound(bench)


def test_a_noise_that_comes_before_the_echo_asks_once_more() -> None:
    bench = cough()
    bench.advance(2.5)
    bench.receive(interim())
    bench.advance(2.5)
    assert bench.asked_again == ["book it", "book it"]
    bench.receive(Transcript("book it", is_synthetic=True), Token("Booked.", "r2"), ResponseEnd("r2"))
    assert bench.texts() == ["Booked."]


def test_a_noise_during_a_save_is_asked_about_when_the_turn_is_closed() -> None:
    bench = closing(save_seconds=3)
    bench.receive(interim())
    bench.advance(2.9)
    assert bench.asked_again == []
    bench.advance(3)
    assert bench.asked_again == ["zero"]


def test_a_user_who_is_speaking_is_waited_for() -> None:
    bench = Bench()
    bench.receive(interim(), final("book it"), Token("Booking", "r1"), SPEAKING, interim())
    bench.advance(10)
    assert bench.asked_again == []
    bench.receive(Partial("no"))
    bench.receive(NOT_SPEAKING)
    bench.advance(1.9)
    assert bench.asked_again == []
    bench.advance(0.2)
    assert bench.asked_again == ["book it"]
    assert bench.machine.user_active_at == 10


def test_a_noise_that_cut_nothing_leads_to_nothing() -> None:
    bench = Bench()
    bench.receive(interim())
    bench.advance(10)
    assert (bench.asked_again, bench.exits(), bench.machine.deadline) == ([], [], None)
    bench.receive(interim(), final("hello"))
    assert told(bench) == ["turn-1 interim", "turn-1 hello"]


def test_nothing_is_asked_again_when_the_input_has_ended() -> None:
    bench = cough()
    bench.do(bench.machine.input_ended(bench.now))
    bench.do(bench.machine.recognition_over(bench.now, by_engine=False))
    assert not bench.machine.is_done
    bench.advance(3)
    assert bench.asked_again == []
    assert bench.machine.is_done


def test_a_noise_whose_recognition_is_over_is_not_waited_for() -> None:
    bench = Bench()
    bench.receive(interim())
    bench.do(bench.machine.input_ended(bench.now))
    assert not bench.machine.is_done
    bench.do(bench.machine.recognition_over(bench.now, by_engine=True))
    assert bench.machine.is_done


# --- silence ----------------------------------------------------------------------------------------------------------


def test_twenty_seconds_of_silence() -> None:
    bench = Bench()
    bench.receive(interim(), final("hello"))
    bench.advance(5)
    bench.receive(Token("We open at nine. On Sund", "r1"))
    assert bench.machine.model_active_at == 5
    bench.advance(19.9)
    assert told(bench)[-1] == "turn-1 We open at nine."
    bench.advance(0.1)
    assert told(bench)[-2:] == ["turn-1 On Sund", "turn-1 r1 idle"]
    bench.receive(ResponseEnd("r1"))
    bench.advance(1)
    assert told(bench)[-1] == "turn-1 exit"
    sound(bench)


def test_what_a_slow_model_says_afterwards_is_carried_on() -> None:
    bench = Bench()
    bench.receive(interim(), final("hello"), Token("One moment.", "r1"))
    bench.advance(25)
    bench.receive(Token("Here it is", "r1"), audio(500, "r1"))
    renamed = bench.machine.turn.responses[0].response_id
    assert renamed != "r1"
    assert bench.machine.name_at_model(renamed) == "r1"
    assert bench.machine.name_at_model("r7") == "r7"
    bench.receive(ResponseEnd("r1"))
    assert told(bench)[-2:] == ["last", f"turn-2 {renamed} completed"]
    assert bench.machine.is_dead("r1")
    bench.receive(Token("Too late.", "r1"))
    assert bench.texts()[-1] == "Here it is"
    sound(bench)


def test_a_slow_model_may_go_on_with_a_call() -> None:
    bench = Bench()
    bench.receive(interim(), final("hello"), Token("One moment.", "r1"))
    bench.advance(25)
    assert not bench.machine.is_dead("r1")
    bench.call("c1", "r1")
    bench.settle("c1")
    bench.receive(Token("Here it is.", "r1"), ResponseEnd("r1"))
    assert told(bench)[-5:-3] == ["turn-2 tool-start", "turn-2 tool-success"]
    assert bench.texts()[-1] == "Here it is."
    sound(bench)


def test_one_named_and_never_begun_ends_too() -> None:
    bench = Bench()
    bench.receive(interim(), final("hello", response_id="r1"), Token("Something else.", "r2"))
    bench.advance(20)
    assert told(bench)[-2:] == ["turn-1 r2 idle", "turn-1 r1 idle"]


def test_a_running_call_is_no_silence_but_the_planners_is() -> None:
    bench = Bench()
    bench.receive(interim(), final("hello"), Token("One moment.", "r1"))
    bench.call("c1", "r1")
    bench.receive(ToolEvent(ToolPhase.START, "p1", "search", ToolOwner.PLANNER))
    bench.advance(100)
    assert told(bench)[-1] == "turn-1 tool-start"
    bench.settle("c1")
    bench.advance(20)
    assert told(bench)[-1] == "turn-1 r1 idle"
    bench.receive(ToolEvent(ToolPhase.SUCCESS, "p1", "search", ToolOwner.PLANNER))
    bench.advance(1)
    assert bench.exits() == ["turn-1"]


# --- tools ------------------------------------------------------------------------------------------------------------


def test_a_call_that_goes_on_is_recorded_where_it_began() -> None:
    bench = Bench()
    bench.receive(interim(), final("order it"), Token("Ordering.", "r1"))
    bench.call("c1", "r1", OnInterruption.CONTINUE)
    bench.receive(interim())
    bench.advance(0.5)
    assert bench.exits() == ["turn-1"]
    bench.settle("c1")
    assert told(bench)[-1] == "turn-2 tool-success"
    assert bench.amended == bench.closed
    assert bench.closed[0].tools["c1"].phase is ToolPhase.SUCCESS
    assert bench.machine.turn.tools == {}
    sound(bench)


def test_what_was_never_told_to_start_is_never_told_to_end() -> None:
    bench = Bench()
    bench.receive(interim(), final("order it"), Token("Ordering.", "r1"), ResponseEnd("r1"))
    bench.receive(ToolEvent(ToolPhase.START, "c1", "order", response_id="r1"))
    bench.receive(ToolEvent(ToolPhase.ERROR, "c1", "order", response_id="r1", error="too late"))
    assert not any("tool" in line for line in told(bench))


def test_a_call_alone_opens_a_response() -> None:
    bench = Bench()
    bench.receive(interim(), final("order it"))
    bench.call("c1", "r1")
    bench.settle("c1")
    bench.receive(Token("Ordered.", "r1"), ResponseEnd("r1"))
    bench.advance(1)
    assert [r.response_id for r in bench.closed[0].responses] == ["r1"]


# --- being asked to speak ---------------------------------------------------------------------------------------------


def test_an_instruction_opens_the_window_and_a_contextual_one_does_not() -> None:
    bench = Bench(legs_seconds=100)
    bench.receive(interim(), final("hello"), Token("Hello.", "r1"), ResponseEnd("r1"))
    turn = bench.machine.turn
    bench.do(bench.machine.instructed(instruction("It is noon.", InstructionType.SUPPORTING_CONTEXT), turn, 0.0))
    assert bench.machine.owes_speech is False
    bench.do(bench.machine.instructed(instruction("Ask for the date."), turn, 0.0))
    assert turn.window_open
    assert [item.text for item in turn.instructions] == ["It is noon.", "Ask for the date."]
    bench.advance(20)
    assert told(bench)[-1].endswith("idle")


@pytest.mark.parametrize("begun", [True, False])
def test_a_goodbye_that_falls_silent_ends_the_session_all_the_same(begun: bool) -> None:
    bench = Bench(legs_seconds=100)
    bench.receive(interim(), final("bye"), Token("One moment.", "r1"), ResponseEnd("r1"))
    turn = bench.machine.turn
    bench.do(bench.machine.instructed(attrs.evolve(instruction("Goodbye."), ends_session=True), turn, 0.0))
    if begun:
        bench.receive(Token("Good", "r2"))
    bench.advance(19.9)
    assert bench.ended == []
    bench.advance(0.1)
    assert told(bench)[-1].endswith("idle")
    assert any("sessionShouldEnd" in line for line in told(bench)[-3:-1])
    bench.advance(200)
    assert len(bench.ended) == 1
    sound(bench)


def test_an_instruction_to_a_turn_that_is_over_opens_nothing() -> None:
    bench = closing()
    turn = bench.machine.turn
    bench.do(bench.machine.speech_asked(turn, bench.now))
    assert not turn.window_open
    bench.advance(2)
    bench.do(bench.machine.speech_asked(turn, bench.now))
    assert bench.machine.turn.is_fresh


def test_speech_that_was_asked_for_is_a_turn_of_its_own() -> None:
    bench = Bench()
    bench.do(bench.machine.speech_asked(bench.machine.turn, 0.0))
    bench.receive(Token("Are you there?", "r1"), ResponseEnd("r1"))
    bench.advance(1)
    assert told(bench) == ["turn-1 token", "turn-1 Are you there?", "turn-1 r1 completed", "turn-1 exit"]


# --- the end ----------------------------------------------------------------------------------------------------------


def test_the_agent_ends_the_session_with_a_goodbye() -> None:
    bench = Bench()
    bench.receive(interim(), final("bye"), Token("Goodbye.", "r1"), audio(2000, "r1"), SHOULD_END, ResponseEnd("r1"))
    bench.advance(1)
    assert told(bench)[-2:] == ["turn-1 r1 completed", "turn-1 exit"]
    assert bench.ended == ["r1"]
    assert bench.machine.is_over
    assert not bench.machine.input_has_ended
    assert bench.machine.deadline is None
    assert bench.machine.tick(bench.now) == []
    bench.receive(Token("More", "r2"), final("and"))
    assert told(bench)[-1] == "turn-1 exit"
    bench.receive(interim())
    assert told(bench)[-2:] == ["cut r1", "turn-2 interim"], "the user is not made to hear the rest"
    assert bench.ended == ["r1", None]
    bench.receive(interim())
    assert bench.ended == ["r1", None]


def test_a_goodbye_that_was_cut_after_the_end_was_said_ends_at_once() -> None:
    bench = Bench(save_seconds=0.1)
    bench.receive(interim(), final("bye"), Token("Goodbye.", "r1"), audio(2000, "r1"), SHOULD_END, interim())
    bench.advance(1)
    assert bench.ended == [None]


@pytest.mark.parametrize("name", ["", "r1"])
def test_an_end_that_comes_behind_the_cut_of_its_answer_is_none(name: str) -> None:
    bench = Bench()
    bench.receive(interim(), final("bye"), Token("Goodbye.", "r1"), interim())
    bench.receive(RealtimeCommand("sessionShouldEnd", response_id=name))
    bench.advance(1)
    bench.receive(final("wait"), RealtimeCommand("sessionShouldEnd", response_id="r1"))
    bench.receive(Token("I wait.", "r2"), ResponseEnd("r2"))
    bench.advance(1)
    assert bench.ended == []
    assert not any("sessionShouldEnd" in line for line in told(bench))


@pytest.mark.parametrize("name", ["", "r1"])
def test_an_end_that_is_said_while_the_turn_before_is_being_saved_stands(name: str) -> None:
    bench = closing()
    bench.receive(interim(), final("bye"), Token("Goodbye.", "r1"))
    bench.receive(RealtimeCommand("sessionShouldEnd", response_id=name), ResponseEnd("r1"))
    bench.advance(5)
    assert bench.ended == ["r1"]


def test_a_call_that_still_runs_when_the_agent_has_ended_the_session_is_told_to_have_ended() -> None:
    bench = Bench()
    bench.receive(interim(), final("order it"), Token("Ordering.", "r1"))
    bench.call("c1", "r1", OnInterruption.CONTINUE)
    bench.receive(interim(), final("bye"), Token("Goodbye.", "r2"))
    bench.receive(RealtimeCommand("sessionShouldEnd", response_id="r2"), ResponseEnd("r2"))
    bench.advance(1)
    assert bench.ended == ["r2"]
    bench.settle("c1")
    assert told(bench)[-1].endswith("tool-success")
    assert bench.closed[0].tools["c1"].phase is ToolPhase.SUCCESS


@pytest.mark.parametrize("status", [ResponseStatus.CANCELLED, ResponseStatus.FAILED])
def test_an_aborted_session_leaves_nothing_open(status: ResponseStatus) -> None:
    bench = Bench(legs_seconds=100)
    bench.receive(interim(), final("hello"), Token("Hello. How", "r1"), audio(1000, "r1"))
    bench.call("c1", "r1")
    bench.advance(0.3)
    bench.calls.clear()
    bench.abort(status)
    (turn,) = bench.closed
    assert turn.was_interrupted is (status is ResponseStatus.CANCELLED)
    assert turn.responses[0].status is status
    assert turn.responses[0].text == "Hello. How"
    assert bench.machine.turn.is_fresh


def test_an_abort_stops_planning_and_closes_what_is_being_saved() -> None:
    bench = Bench(legs_seconds=100)
    bench.receive(interim(), final("hello"), Token("Hello.", "r1"), ResponseEnd("r1"))
    bench.abort(ResponseStatus.CANCELLED)
    assert [do.reason for do in bench.done if isinstance(do, CancelLegs)] == ["the session has ended"]
    assert bench.closed[0].legs is Legs.RUNNING
    bench = closing()
    bench.receive(interim(), final("one"))
    bench.abort(ResponseStatus.CANCELLED)
    assert [turn.user_text for turn in bench.closed] == ["zero", "one"]


@pytest.mark.parametrize(("is_gone", "heard"), [(True, "One two"), (False, "One two three four.")])
def test_what_a_client_that_is_gone_has_not_played_was_not_heard(is_gone: bool, heard: str) -> None:
    bench = Bench()
    bench.receive(interim(), final("hello"), Token("One two three four.", "r1"), audio(2000, "r1"), ResponseEnd("r1"))
    bench.advance(1.1)
    bench.abort(ResponseStatus.CANCELLED, client_is_gone=is_gone)
    assert bench.closed[0].responses[0].heard_text == heard
    assert [m.text for m in bench.memory.messages] == ["hello", heard]


def test_only_so_many_ended_responses_are_remembered() -> None:
    bench = Bench()
    bench.machine.limits = TurnLimits(remembered_responses=2)
    for number in range(4):
        bench.receive(interim(), final("hello"), Token("Hello.", f"r{number}"), ResponseEnd(f"r{number}"))
        bench.advance(1)
    assert [bench.machine.is_dead(f"r{number}") for number in range(4)] == [False, False, True, True]


def test_a_final_that_names_an_ended_response_names_none() -> None:
    bench = Bench()
    bench.receive(interim(), final("hello", response_id="r1"), Token("Hello.", "r1"), ResponseEnd("r1"))
    bench.advance(1)
    bench.receive(interim(), final("again", response_id="r1"), Token("Again.", "r2"), ResponseEnd("r2"))
    assert bench.texts()[-1] == "Again."
