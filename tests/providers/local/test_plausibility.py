"""What Whisper makes up is dropped, what was said stays."""

import attrs
import pytest

from providers.local.plausibility import Evidence, plausible_text

GOOD = Evidence(no_speech_probability=0.05, average_log_probability=-0.3, speech_ms=1500, level_dbfs=-20)


@pytest.mark.parametrize(
    "text",
    ["Thank you.", "You.", "No.", "I would like two coffees, please.", "No no no, that is wrong.", "Bye!", "Yeah."],
)
def test_clear_words_stay(text: str) -> None:
    assert plausible_text(text, GOOD) == text


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("you", attrs.evolve(GOOD, no_speech_probability=0.7)),
        ("Anything at all.", attrs.evolve(GOOD, no_speech_probability=0.61)),
        ("Thank you.", attrs.evolve(GOOD, no_speech_probability=0.4)),
        ("Thanks for watching!", attrs.evolve(GOOD, average_log_probability=-1.2)),
        ("Thank you.", attrs.evolve(GOOD, level_dbfs=-60)),
        ("Bye.", attrs.evolve(GOOD, speech_ms=96)),
        ("A guess.", attrs.evolve(GOOD, average_log_probability=-1.4, speech_ms=200)),
        (" ... ", GOOD),
        ("", GOOD),
    ],
)
def test_made_up_words_go(text: str, evidence: Evidence) -> None:
    assert plausible_text(text, evidence) == ""


def test_a_doubtful_sentence_of_its_own_stays() -> None:
    assert plausible_text("Two teas.", attrs.evolve(GOOD, no_speech_probability=0.5)) == "Two teas."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Take a seat. Take a seat. Take a seat. Take a seat. Take a", "Take a seat."),
        ("Kitchen closes at nine " * 8, "Kitchen closes at nine"),
        ("Well, no no no no no no no no no no no no no no", "Well, no"),
    ],
)
def test_a_decoder_that_repeats_itself_is_cut_short(text: str, said: str) -> None:
    assert plausible_text(text, GOOD) == said


def test_a_sentence_heard_twice_in_the_time_of_one_was_said_once() -> None:
    text = "Can I pay by card? Can I pay by card?"
    assert plausible_text(text, attrs.evolve(GOOD, speech_ms=1000)) == "Can I pay by card?"
    assert plausible_text(text, attrs.evolve(GOOD, speech_ms=2500)) == text
    assert plausible_text("No, no.", attrs.evolve(GOOD, speech_ms=300)) == "No, no."


def test_what_a_user_repeats_in_a_time_that_allows_it_stays() -> None:
    assert plausible_text("Stop, stop, stop!", GOOD) == "Stop, stop, stop!"
