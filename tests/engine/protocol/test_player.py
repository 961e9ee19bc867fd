"""What a loudspeaker plays, on a time line (100 Hz keeps the numbers small)."""

from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.player import PlayedLine

ONE = b"\x01\x00"


def test_speech_is_played_when_it_comes_or_behind_what_is_playing() -> None:
    line = PlayedLine(100)
    line.play(ONE * 10, 1.0)
    line.play(ONE * 10, 1.02)
    assert line.ends_at == 1.2
    line.play(ONE * 10, 2.0)
    assert line.finish(3.0) == bytes(200) + ONE * 20 + bytes(160) + ONE * 10 + bytes(180)


def test_a_stop_takes_back_what_was_not_played() -> None:
    line = PlayedLine(100)
    line.play(ONE * 100, 0.0)
    line.stop(0.25)
    assert line.ends_at == 0.25
    line.stop(5.0)
    assert line.finish(0.3) == ONE * 25 + bytes(10)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.floats(0, 2)), max_size=20))
def test_the_line_is_never_shorter_than_the_time(steps: list[tuple[bool, int, float]]) -> None:
    line = PlayedLine(100)
    now = 0.0
    for plays, samples, pause in steps:
        now += pause
        if plays:
            before = max(line.ends_at, int(now * 100) / 100)
            line.play(ONE * samples, now)
            assert abs(line.ends_at - before - samples / 100) < 1e-9
        else:
            line.stop(now)
            assert line.ends_at <= now
    assert len(line.finish(now)) // 2 >= int(now * 100)
