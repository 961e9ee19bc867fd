"""What a connection is sent, as it is kept."""

import json
from itertools import groupby
from typing import Any
from zlib import adler32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.capsule.outgoing import LONGEST_FRAME, RUN, Outgoing, is_sound


def append(number: int, length: int = 1000) -> str:
    return f'{{"type":"input_audio_buffer.append","audio":"{str(number) * length}"}}'


def run(*frames: str) -> list[Any]:
    sound = "".join(frames)
    return [frames[0][:64], len(frames), len(sound), adler32("".join(frame[-64:] for frame in frames).encode())]


def test_a_frame_is_kept_as_it_is() -> None:
    outgoing = Outgoing()
    assert outgoing.add("{}") == ("{}",)
    assert outgoing.end() == ()


def test_sound_is_kept_when_another_frame_follows_it() -> None:
    outgoing = Outgoing()
    frames = [append(number) for number in range(3)]
    assert [outgoing.add(frame) for frame in frames] == [(), (), ()]
    assert outgoing.add("{}") == (run(*frames), "{}")
    assert outgoing.add("{}") == ("{}",)


def test_a_run_has_an_end() -> None:
    outgoing = Outgoing()
    frames = [append(number % 10) for number in range(2 * RUN + 1)]
    found = [each for frame in frames for each in outgoing.add(frame)]
    assert found == [run(*frames[:RUN]), run(*frames[RUN : 2 * RUN])]
    assert outgoing.end() == (run(frames[-1]),)
    assert outgoing.end() == ()


@pytest.mark.parametrize("at", [0, 1, 2])
def test_no_frame_is_like_another(at: int) -> None:
    frames = [append(number) for number in range(3)]
    other = [*frames[:at], append(9), *frames[at + 1 :]]

    def kept(sound: list[str]) -> Any:
        outgoing = Outgoing()
        return [*(each for frame in sound for each in outgoing.add(frame)), *outgoing.end()]

    assert kept(frames) != kept(other)


def test_half_a_character_is_no_error() -> None:
    outgoing = Outgoing()
    outgoing.add(append(1) + "\ud800")
    assert outgoing.end()[0][1] == 1


FRAMES = [
    append(1), append(2, 8), append(3, 601), "{}", '{"event_id":"e","type":"input_audio_buffer.append","audio":"' + "A" * LONGEST_FRAME,
    '{"audio":"","type":"input_audio_buffer.append","more":"' + "A" * LONGEST_FRAME, "A" * LONGEST_FRAME * 2,
    '{"type":"input_audio_buffer.append","text":"' + "A" * LONGEST_FRAME,
]  # fmt: skip


@given(st.lists(st.sampled_from(FRAMES), max_size=12))
def test_whatever_came_before_sound_is_sound(frames: list[str]) -> None:
    """What a run remembers of its frames only makes it quicker."""
    outgoing = Outgoing()
    kept = [*(each for frame in frames for each in outgoing.add(frame)), *outgoing.end()]
    runs = [(is_one, list(some)) for is_one, some in groupby(frames, is_sound)]
    assert kept == [each for is_one, some in runs for each in ([run(*some)] if is_one else some)]


@pytest.mark.parametrize(
    ("frame", "is_one"),
    [
        (append(1), True),
        (append(1, 8), False),
        ('{"event_id":"e","type":"input_audio_buffer.append","audio":"' + "A" * LONGEST_FRAME, True),
        (json.dumps({"item": {"text": 'The "audio" append. ' * 50}, "type": "conversation.item.create"}), False),
        ('{"type":"session.update","session":{"instructions":"' + "Append." * 200, False),
    ],
)
def test_sound_is_what_appends_it(frame: str, is_one: bool) -> None:
    assert is_sound(frame) is is_one
