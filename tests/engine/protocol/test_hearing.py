"""Law 5: what was heard is what the last report said plus the time since, else the time since the first frame; never more than sent."""

import math

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol.hearing import REMEMBERED, Hearing


def say(hearing: Hearing, response_id: str, ms: float, now: float, text: str = "") -> None:
    """A sentence and its speech, queued and sent at once."""
    if text:
        hearing.sentence_queued(response_id, text)
        hearing.sentence_sent(response_id)
    hearing.speech_queued(response_id, ms)
    hearing.speech_sent(response_id, ms, now)


def test_without_a_report_it_is_the_time_since_the_first_frame() -> None:
    hearing = Hearing()
    say(hearing, "r1", 1000, 5.0)
    say(hearing, "r1", 1000, 5.5)
    assert [hearing.heard_ms("r1", t) for t in (5.0, 5.4, 6.0, 7.0, 99.0)] == pytest.approx([0, 400, 1000, 2000, 2000])


def test_with_a_report_it_is_what_it_said_and_the_time_since() -> None:
    hearing = Hearing()
    say(hearing, "r1", 3000, 0.0)
    hearing.playback("r1", 400, 1.0)
    assert hearing.has_report("r1")
    assert [hearing.heard_ms("r1", t) for t in (1.0, 1.5, 9.0)] == [400, 900, 3000]
    hearing.playback("r1", 1200, 2.0)
    assert hearing.heard_ms("r1", 2.0) == 1200


def test_a_report_is_taken_for_what_it_can_be() -> None:
    """Neither ahead of what was sent nor behind an earlier report, and none after a cut or of what was never said."""
    hearing = Hearing()
    say(hearing, "r1", 500, 0.0)
    hearing.playback("r1", 9000, 0.1)
    assert hearing.heard_ms("r1", 0.1) == 500
    hearing.playback("r1", 100, 0.2)
    assert hearing.heard_ms("r1", 0.2) == 500
    hearing.playback("r1", -5, 0.3)
    assert hearing.heard_ms("r1", 0.3) == 500
    hearing.playback("never said", 100, 0.3)
    assert hearing.heard_ms("never said", 0.3) == 0
    assert not hearing.has_report("never said")
    say(hearing, "r2", 1000, 1.0)
    hearing.cut("r2", 1.3)
    hearing.playback("r2", 900, 1.4)
    assert hearing.heard_ms("r2", 9.0) == pytest.approx(300)


def test_one_response_is_played_after_the_other() -> None:
    hearing = Hearing()
    say(hearing, "r1", 2000, 0.0)
    say(hearing, "r2", 1000, 0.5)
    assert hearing.playing(0.5) == "r1"
    assert hearing.heard_ms("r2", 1.9) == 0
    assert hearing.playing(2.0) == "r2"
    assert hearing.heard_ms("r2", 2.5) == pytest.approx(500)
    assert hearing.plays_until("r2", 1.0) == pytest.approx(3.0)
    assert hearing.playing(3.0) is None


def test_three_that_are_sent_at_once_are_played_one_after_the_other() -> None:
    hearing = Hearing()
    for response_id in ("r1", "r2", "r3"):
        say(hearing, response_id, 1000, 0.0)
    assert [hearing.heard_ms(response_id, 1.5) for response_id in ("r1", "r2", "r3")] == [1000, 500, 0]
    assert [hearing.heard_ms(response_id, 2.5) for response_id in ("r1", "r2", "r3")] == [1000, 1000, 500]
    hearing.playback("r2", 400, 1.2)  # it is played sooner than was thought
    say(hearing, "r4", 1000, 1.2)
    assert hearing.spoken_until(1.2) == pytest.approx(4.0)


def test_after_a_cut_the_next_one_plays_at_once() -> None:
    hearing = Hearing()
    say(hearing, "r1", 2000, 0.0)
    assert hearing.cut("r1", 0.75) == 750
    assert hearing.cut("r1", 1.75) == 750, "the same number however often asked"
    say(hearing, "r2", 1000, 1.0)
    assert hearing.heard_ms("r2", 1.25) == 250
    assert hearing.plays_until("r1", 1.25) == 1.25


def test_what_was_never_sent_was_not_heard() -> None:
    hearing = Hearing()
    hearing.speech_queued("r1", 1000)
    assert hearing.has_speech("r1")
    assert hearing.heard_ms("r1", 10.0) == 0
    assert hearing.playing(10.0) == "r1"
    assert hearing.plays_until("r1", 10.0) == 11.0
    hearing.speech_shed("r1", 400)
    assert hearing.queued_ms("r1") == 600
    hearing.speech_sent("r1", 600, 10.0)
    hearing.speech_shed("r1", 400)
    assert hearing.queued_ms("r1") == 600, "what was sent cannot be shed"
    assert not hearing.has_speech("r2")
    assert hearing.queued_ms("r2") == 0
    assert hearing.plays_until("r2", 3.0) == 3.0
    assert hearing.heard_text("r2", 3.0) == ""


def test_when_the_agent_has_finished() -> None:
    hearing = Hearing()
    assert hearing.spoken_until(5.0) is None
    hearing.speech_queued("r1", 500)
    assert hearing.spoken_until(5.0) is None, "nothing has been sent"
    hearing.speech_sent("r1", 500, 5.0)
    assert [hearing.spoken_until(t) for t in (5.2, 5.5, 9.0)] == [5.5, 5.5, 5.5]
    say(hearing, "r2", 1000, 10.0)
    hearing.playback("r2", 100, 10.5)
    assert [hearing.spoken_until(t) for t in (10.6, 20.0)] == pytest.approx([11.4, 11.4])
    say(hearing, "r3", 1000, 30.0)
    hearing.cut("r3", 30.25)
    assert hearing.spoken_until(40.0) == 30.25


@pytest.mark.parametrize(
    ("heard_ms", "text"),
    [
        (0, ""),
        (250, "One"),
        (500, "One two"),
        (999, "One two three"),
        (1000, "One two three four."),
        (1500, "One two three four. Five"),
        (2000, "One two three four. Five six."),
        (9999, "One two three four. Five six."),
    ],
)
def test_heard_text_is_whole_sentences_and_words_in_proportion(heard_ms: int, text: str) -> None:
    hearing = Hearing()
    say(hearing, "r1", 1000, 0.0, "One two three four.")
    say(hearing, "r1", 1000, 0.0, "Five six.")
    assert hearing.heard_text("r1", heard_ms / 1000) == text


def test_sentences_whose_text_came_ahead_of_the_speech_share_it_by_their_length() -> None:
    hearing = Hearing()
    for sentence in ("Yes!", "It is a long one."):
        hearing.sentence_queued("r1", sentence)
    say(hearing, "r1", 2100, 0.0)  # 4 and 17 characters: 400 ms and 1700 ms
    assert hearing.heard_text("r1", 0.39) == ""
    assert hearing.heard_text("r1", 0.4) == "Yes!"
    assert hearing.heard_text("r1", 0.4 + 0.68) == "Yes! It is"


def test_clauses_tell_it_better_than_sentences() -> None:
    """A session that says what begins to be spoken with which speech; how long the last clause will be is guessed until all of
    it is there."""
    hearing = Hearing()
    hearing.sentence_queued("r1", "Let me see, it is in Brno.")
    hearing.speech_queued("r1", 700, "Let me see,")
    hearing.speech_queued("r1", 100, "it is in Brno.")
    hearing.speech_sent("r1", 800, 0.0)
    assert hearing.heard_text("r1", 0.7) == "Let me see,"
    assert hearing.heard_text("r1", 0.8) == "Let me see,", "100 ms of some 930"
    hearing.speech_queued("r1", 400)
    hearing.speech_sent("r1", 400, 0.8)
    assert hearing.heard_text("r1", 1.2) == "Let me see, it is"
    hearing.complete("r1")
    hearing.complete("never said")
    assert hearing.heard_text("r1", 1.2) == "Let me see, it is in Brno."


def test_a_pause_of_the_speech_counts_for_nothing() -> None:
    """Everything sent was played, the model is slow, more is sent."""
    hearing = Hearing()
    say(hearing, "r1", 500, 0.0)
    say(hearing, "r1", 500, 3.0)
    assert [hearing.heard_ms("r1", t) for t in (3.0, 3.1, 9.0)] == pytest.approx([500, 600, 1000])
    hearing.playback("r1", 900, 3.4)
    say(hearing, "r1", 500, 5.0)
    assert [hearing.heard_ms("r1", t) for t in (5.0, 5.2)] == pytest.approx([1000, 1200])


def test_a_sentence_without_speech_was_not_heard() -> None:
    hearing = Hearing()
    say(hearing, "r1", 1000, 0.0, "One.")
    hearing.sentence_queued("r1", "Two.")
    assert hearing.heard_text("r1", 99.0) == "One."
    hearing.sentence_queued("r2", "")
    hearing.speech_queued("r2", 100)
    assert hearing.heard_text("r2", 99.0) == ""


def test_on_a_text_only_connection_it_is_what_was_sent() -> None:
    hearing = Hearing(text_only=True)
    hearing.sentence_queued("r1", "One.")
    hearing.sentence_queued("r1", "Two.")
    assert hearing.heard_text("r1", 9.0) == ""
    hearing.sentence_sent("r1")
    assert hearing.heard_text("r1", 9.0) == "One."
    hearing.sentence_sent("r1")
    hearing.sentence_sent("r1")
    assert hearing.heard_text("r1", 9.0) == "One. Two."
    assert hearing.playing(9.0) is None


def test_only_the_newest_responses_are_kept() -> None:
    hearing = Hearing()
    for number in range(REMEMBERED + 1):
        say(hearing, f"r{number}", 10, float(number))
    assert not hearing.has_speech("r0")
    assert hearing.has_speech(f"r{REMEMBERED}")


# --- whatever happens -------------------------------------------------------------------------------------------------


@attrs.frozen
class Event:
    kind: str
    response_id: str
    amount: int
    """Milliseconds of speech, or of a report."""
    after: float
    """Seconds since the event before."""


EVENTS = st.lists(
    st.builds(
        Event,
        kind=st.sampled_from(["queue", "send", "send", "sentence", "report", "shed", "cut", "look"]),
        response_id=st.sampled_from(["r1", "r2", "r3"]),
        amount=st.integers(0, 3000),
        after=st.sampled_from([0.0, 0.01, 0.3, 1.0, 4.0]),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(EVENTS, st.booleans())
def test_never_more_than_was_sent_and_never_less_than_before(events: list[Event], text_only: bool) -> None:
    hearing, now = Hearing(text_only), 0.0
    queued: dict[str, float] = {}
    sent: dict[str, float] = {}
    heard: dict[str, float] = {}
    words: dict[str, list[str]] = {}
    for number, event in enumerate(events):
        now += event.after
        r = event.response_id
        match event.kind:
            case "queue":
                hearing.speech_queued(r, event.amount)
                queued[r] = queued.get(r, 0) + event.amount
            case "send":
                ms = min(float(event.amount), queued.get(r, 0) - sent.get(r, 0))
                if ms > 0:
                    hearing.speech_sent(r, ms, now)
                    sent[r] = sent.get(r, 0) + ms
            case "sentence":
                text = f"words of number {number}."
                hearing.sentence_queued(r, text)
                words.setdefault(r, []).extend(text.split())
                if event.amount % 2:
                    hearing.sentence_sent(r)
            case "report":
                hearing.playback(r, event.amount, now)
                heard.pop(r, None)  # a report corrects what was only computed
            case "shed":
                ms = min(float(event.amount), queued.get(r, 0) - sent.get(r, 0))
                hearing.speech_shed(r, ms)
                queued[r] = max(sent.get(r, 0), queued.get(r, 0) - ms)
            case "cut":
                hearing.cut(r, now)
            case _:
                pass
        for response_id in ("r1", "r2", "r3"):
            ms = hearing.heard_ms(response_id, now)
            assert 0 <= ms <= sent.get(response_id, 0) + 1e-6
            assert ms >= heard.get(response_id, 0) - 1e-6
            heard[response_id] = ms
            if not text_only:
                said = iter(words.get(response_id, []))
                told = hearing.heard_text(response_id, now).split()
                assert all(word in said for word in told), "heard words are said words, in their order"
            assert hearing.plays_until(response_id, now) >= now
        playing = hearing.playing(now)
        if playing is not None:
            assert hearing.plays_until(playing, now) >= now
        until = hearing.spoken_until(now)
        assert until is None or math.isfinite(until)
