"""An hour of conversation, in about a second (SPEC Q4): it stays right to the end, and nothing of it piles up."""

import sys
import time
from typing import ClassVar

import pytest
import trio
from trio.testing import MockClock

from engine.config import Settings
from engine.elements import ControlToken, InputAudio, InputText, OutTranscript
from engine.interfaces import RecognitionElement, Recognizer, RecognizerInput
from engine.testing.scripted import ScriptedModel, echo, final, interim, speech
from engine.testing.stage import ScriptedAgent, Stage
from tests.scenarios.support import open_scene

HOUR = 3600
AGENT = ScriptedAgent(max_session_minutes=120)
SETTINGS = Settings(history_messages=100)


async def leave(stage: Stage, began: float, capsys: pytest.CaptureFixture[str], what: str) -> None:
    await stage.client.send(ControlToken("exit"))
    await stage.client.wait_for_command("session-end", state="CLOSED")
    seconds = time.perf_counter() - began
    with capsys.disabled():
        sys.stdout.write(f"\nan hour of {what} in {seconds:.2f} s: {HOUR / seconds:.0f} times real time\n")


async def test_an_hour_of_text(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.perf_counter()
    async with open_scene(model=ScriptedModel(echo), agent=AGENT, settings=SETTINGS) as stage:
        for number in range(HOUR // 10):
            await stage.client.send(InputText(f"word {number}"))
            await trio.sleep(10)
        assert trio.current_time() == HOUR
        assert stage.client.sentences == [f"You said word {number}." for number in range(360)]
        assert len(stage.client.commands("exit")) == 360
        assert len(stage.manager.contexts[0].messages) == 100
        await leave(stage, began, capsys, "text")


class EveryTenSeconds(Recognizer):
    """Hears, by the audio alone, somebody who speaks from the 3rd to the 5th of every ten seconds. Silence, as after every chunk
    that is followed by a gap, is no time."""

    name: ClassVar[str] = "Scripted"
    sample_rate = 16000

    def __init__(self) -> None:
        self.seconds = 0.0
        self.utterances = 0

    async def run(
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        elements: trio.MemorySendChannel[RecognitionElement],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        task_status.started()
        async for item in audio:
            assert isinstance(item, InputAudio)
            if not any(item.data[:2]):
                continue
            self.seconds += len(item.data) / 2 / self.sample_rate
            match self.seconds % 10:
                case 3.0:
                    await elements.send(interim())
                case 5.0:
                    await elements.send(final(f"utterance {self.utterances}"))
                    self.utterances += 1
                case _:
                    pass


async def test_an_hour_of_speech(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.perf_counter()
    recognizer = EveryTenSeconds()
    second = InputAudio(speech(1000, 16000))
    async with open_scene(
        model=ScriptedModel(echo), agent=AGENT, settings=SETTINGS, recognizer=recognizer, input_sample_rate=16000
    ) as stage:
        for _ in range(HOUR):
            await stage.client.send(second)
            await trio.sleep(1)
        said = [f"utterance {number}" for number in range(recognizer.utterances)]
        assert len(said) == 360
        finals = [e.text for e in stage.client.elements if isinstance(e, OutTranscript) and not e.is_interim]
        assert finals == said
        assert stage.client.sentences == [f"You said {words}." for words in said]
        assert len(stage.manager.contexts[0].messages) == 100
        await leave(stage, began, capsys, "speech")
