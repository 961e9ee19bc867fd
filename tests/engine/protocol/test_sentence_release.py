"""Turnless sentence release (M6): 300 ms after a closing token, and never otherwise."""

from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.sentence_release import SentenceRelease
from engine.protocol.sentences import SentenceAssembler


def release() -> SentenceRelease:
    return SentenceRelease(SentenceAssembler("en"), 0.3)


def test_a_closed_sentence_is_released_after_the_quiet() -> None:
    rule = release()
    assert rule.feed("Let me check.", 1.0) == []
    assert rule.deadline == 1.3
    assert rule.tick(1.29) == []
    assert rule.tick(1.3) == ["Let me check."]
    assert rule.tick(9.0) == []


def test_a_further_token_starts_the_wait_anew() -> None:
    rule = release()
    rule.feed("On the 14.", 0.0)
    assert rule.feed(" of May.", 0.2) == []
    assert rule.deadline == 0.5
    assert rule.tick(0.3) == []
    assert rule.tick(0.5) == ["On the 14. of May."]


def test_a_pause_inside_a_sentence_releases_nothing() -> None:
    rule = release()
    rule.feed("I was", 0.0)
    assert rule.deadline is None
    assert rule.tick(60.0) == []
    assert rule.feed(" thinking. ", 60.0) == []
    assert rule.tick(60.3) == ["I was thinking."]


@given(st.lists(st.tuples(st.text("aB .?!\n", max_size=6), st.sampled_from([0.0, 0.1, 0.3, 5.0])), max_size=30))
def test_no_text_is_ever_dropped(tokens: list[tuple[str, float]]) -> None:
    rule = release()
    now, out = 0.0, list[str]()
    for token, pause in tokens:
        out += rule.feed(token, now)
        now += pause
        out += rule.tick(now)
    out += rule.flush()
    assert "".join("".join(out).split()) == "".join("".join(token for token, _ in tokens).split())
