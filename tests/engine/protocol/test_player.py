"""What a loudspeaker plays and when: one after the other, until a barge-in stops it."""

from engine.protocol.player import PlayedLine
from engine.testing.scripted import speech

RATE = 24000


def shape(pcm: bytes) -> list[tuple[bool, int]]:
    """Runs of sound and silence, in ms."""
    runs: list[tuple[bool, int]] = []
    step = 2 * RATE // 1000
    for at in range(0, len(pcm), step):
        is_sound = any(pcm[at : at + step])
        if runs and runs[-1][0] is is_sound:
            runs[-1] = (is_sound, runs[-1][1] + 1)
        else:
            runs.append((is_sound, 1))
    return runs


def test_speech_is_played_when_it_comes_or_behind_what_is_playing() -> None:
    line = PlayedLine(RATE)
    line.play(speech(200), 0.1)
    line.play(speech(100), 0.15)
    assert line.ends_at == 0.4
    line.play(speech(100), 1.0)
    assert shape(line.finish(1.5)) == [(False, 100), (True, 300), (False, 600), (True, 100), (False, 400)]


def test_a_barge_in_stops_it() -> None:
    line = PlayedLine(RATE)
    line.play(speech(1000), 0.0)
    line.stop(0.3)
    assert line.ends_at == 0.3
    line.stop(5.0)
    line.play(speech(100), 0.5)
    assert shape(line.finish(0.4)) == [(True, 300), (False, 200), (True, 100)]
