"""L17: at most an eighth of a second of digital silence passes, its last frame is marked, and speech opens the gate again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol.silence import SilenceGate
from engine.testing.scripted import speech

RATE = 24000


def silence(ms: int) -> bytes:
    return bytes(2 * RATE * ms // 1000)


def test_speech_passes_and_silence_is_cut() -> None:
    gate = SilenceGate(RATE)
    frames = [speech(50), silence(50), silence(50), silence(50), silence(50), speech(50), silence(50)]
    assert [gate.pass_on(frame) for frame in frames] == [
        (True, False),
        (True, False),
        (True, False),
        (True, True),  # 150 ms: past an eighth of a second
        (False, False),
        (True, False),
        (True, False),
    ]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from([10, 20, 60, 200])), max_size=60))
def test_between_two_bursts_silence_is_bounded_and_marked_once(frames: list[tuple[bool, int]]) -> None:
    gate = SilenceGate(RATE)
    silent_ms, marks, longest = 0, 0, 0
    for is_speech, ms in frames:
        forward, is_last = gate.pass_on(speech(ms) if is_speech else silence(ms))
        if is_speech:
            assert (forward, is_last) == (True, False)
            silent_ms = marks = longest = 0
            continue
        longest = max(longest, ms)
        marks += is_last
        silent_ms += ms if forward else 0
        assert marks <= 1
        assert silent_ms <= 125 + longest
        assert forward or marks == 1
