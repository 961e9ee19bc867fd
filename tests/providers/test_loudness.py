"""A voice by its loudness, behind the offline voice's endpointing."""

import numpy as np
import pytest

from providers.local.endpointing import Endpointer, SpeechEnded, SpeechStarted
from providers.local.voice_activity import VoiceActivity
from providers.recognition.loudness import Loudness

RATE = 16000


class Ear:
    def __init__(self) -> None:
        self.voice_activity = VoiceActivity(Loudness())
        self.endpointer = Endpointer()

    def hear(self, pcm: bytes) -> list[type]:
        """Which utterances begin and end in the audio."""
        return [
            type(event)
            for chunk, probability in self.voice_activity.feed(pcm)
            for event in self.endpointer.feed(chunk, probability)
            if isinstance(event, SpeechStarted | SpeechEnded)
        ]


def noise(milliseconds: int, dbfs: float, seed: int = 1) -> bytes:
    samples = np.random.default_rng(seed).normal(0, 32768 * 10 ** (dbfs / 20), RATE * milliseconds // 1000)
    return np.clip(samples, -32768, 32767).astype("<i2").tobytes()


def speech(room: float) -> bytes:
    """Syllables."""
    return b"".join(noise(256, -20, seed) + noise(64, room, seed) for seed in range(5))


@pytest.mark.parametrize("room", [-100.0, -75.0, -60.0, -45.0, -35.0])
def test_speech_is_heard_above_the_room(room: float) -> None:
    ear = Ear()
    ear.hear(noise(3000, room))
    assert ear.hear(speech(room)) == [SpeechStarted]
    assert ear.hear(noise(1000, room)) == [SpeechEnded]


@pytest.mark.parametrize("room", [-75.0, -60.0, -45.0, -40.0])
def test_the_room_is_no_speech(room: float) -> None:
    assert Ear().hear(noise(5000, room)) == []


def test_a_fan_that_starts_becomes_part_of_the_room() -> None:
    ear = Ear()
    ear.hear(noise(2000, -70))
    assert ear.hear(noise(10_000, -40)) == [SpeechStarted, SpeechEnded]
    assert ear.hear(noise(600, -15)) == [SpeechStarted]


def test_who_speaks_from_the_first_moment_is_heard() -> None:
    assert Ear().hear(speech(-50)) == [SpeechStarted]
