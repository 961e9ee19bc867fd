"""The engine's own recognition beside a model (SPEC M3, M4): words to the model, interims to both at once, failures in bounds."""

from collections.abc import Sequence
from typing import ClassVar

import pytest
import trio
from trio.testing import MockClock

from engine.elements import (
    Commit,
    ControlToken,
    EmotionalState,
    InputAudio,
    InputText,
    Interrupted,
    OutEmotion,
    OutError,
    OutPartial,
    Partial,
    SpeakingState,
    UserSpeech,
)
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import RecognitionElement, Recognizer, RecognizerInput
from engine.protocol.audio import mulaw_decode, mulaw_encode
from engine.store.documents import SessionState
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedModel, ScriptedRecognizer, echo, final, interim, speech
from engine.testing.stage import Stage
from tests.scenarios.support import open_scene

SPEAKING, NOT_SPEAKING = (EmotionalState(state) for state in SpeakingState)


def errors(stage: Stage) -> list[tuple[ErrorCode, bool]]:
    return [(e.code, e.recoverable) for e in stage.client.elements if isinstance(e, OutError)]


async def test_an_utterance_from_its_first_sound_to_its_answer(autojump_clock: MockClock) -> None:
    recognizer = ScriptedRecognizer()
    async with open_scene(recognizer=recognizer, model=ScriptedModel(echo), partials=True) as stage:
        recognizer.hear(SPEAKING, interim("hel"))
        await trio.sleep(0.5)
        recognizer.hear(Partial("hello"), Partial("hello there"), NOT_SPEAKING)
        await trio.sleep(0.5)
        recognizer.hear(final("hello there"))
        await trio.sleep(1)
        assert [(t.text, t.is_interim, t.provider) for t in stage.client.transcripts] == [
            ("hel", True, "Scripted"),
            ("hello there", False, "Scripted"),
        ]
        assert [e.text for e in stage.client.elements if isinstance(e, OutPartial)] == ["hello", "hello there"]
        assert [e.state for e in stage.client.elements if isinstance(e, OutEmotion)] == list(SpeakingState)
        assert stage.model.session.received == [
            (0, Interrupted()),
            (1, UserSpeech("hello there", "Scripted")),
        ]
        assert stage.client.sentences == ["You said hello there."]


async def test_partials_are_for_those_who_want_them(autojump_clock: MockClock) -> None:
    recognizer = ScriptedRecognizer()
    async with open_scene(recognizer=recognizer) as stage:
        recognizer.hear(interim(), Partial("hello"))
        await trio.sleep(1)
        assert [e for e in stage.client.elements if isinstance(e, OutPartial)] == []


async def test_words_without_an_interim_and_no_words_at_all(autojump_clock: MockClock) -> None:
    recognizer = ScriptedRecognizer()
    async with open_scene(recognizer=recognizer, model=ScriptedModel(echo)) as stage:
        recognizer.hear(interim(), final(" "))
        await trio.sleep(5)
        assert stage.client.commands("exit") == []
        recognizer.hear(final("hello"))
        await trio.sleep(1)
        assert stage.client.sentences == ["You said hello."]
        assert len(stage.client.commands("exit")) == 1


@pytest.mark.parametrize("gap", [0.0, 0.05, 0.3, 1.0, 3.0])
async def test_a_second_utterance_right_behind_the_first(autojump_clock: MockClock, gap: float) -> None:
    """Whenever it comes, both are heard, in their order, and the second is answered at once."""
    recognizer = ScriptedRecognizer()
    store = FaultyStore(lambda call: 1.0 if call.operation == "append_turns" else None)
    async with open_scene(recognizer=recognizer, model=ScriptedModel(echo), store=store) as stage:
        recognizer.hear(SPEAKING, interim(), NOT_SPEAKING, final("book it for nine"))
        await trio.sleep(gap)
        recognizer.hear(SPEAKING, interim(), NOT_SPEAKING, final("and for two"))
        await trio.sleep(2.1)
        finals = [t.text for t in stage.client.transcripts if not t.is_interim]
        assert finals == ["book it for nine", "and for two"]
        assert stage.client.sentences[-1] == "You said and for two."


async def test_a_commit_ends_an_utterance(autojump_clock: MockClock) -> None:
    recognizer = ScriptedRecognizer(24000)
    async with open_scene(recognizer=recognizer) as stage:
        await stage.client.send(InputAudio(speech(100)), Commit(), Commit())
        await trio.sleep(0.1)
        assert [type(item) for _, item in recognizer.heard_audio] == [InputAudio, Commit, Commit]
    async with open_scene() as stage:
        await stage.client.send(InputAudio(speech(100)), Commit())
        await trio.sleep(0.1)
        assert [type(item) for _, item in stage.model.session.received] == [InputAudio, Commit]


async def test_the_end_of_the_input_flushes_what_was_being_said(autojump_clock: MockClock) -> None:
    """It is answered, then the session ends at once."""
    recognizer = ScriptedRecognizer(flushes="goodbye")
    async with open_scene(recognizer=recognizer, model=ScriptedModel(echo)) as stage:
        recognizer.hear(interim())
        await trio.sleep(0.5)
        await stage.client.send(ControlToken("exit"))
        await stage.client.wait_for_command("session-end", state="CLOSED")
        assert trio.current_time() == 0.5
        assert stage.client.sentences == ["You said goodbye."]


async def test_a_noise_at_the_end_of_the_input_holds_nothing_up(autojump_clock: MockClock) -> None:
    recognizer = ScriptedRecognizer()
    async with open_scene(recognizer=recognizer) as stage:
        recognizer.hear(SPEAKING, interim())
        await trio.sleep(0.5)
        await stage.client.send(ControlToken("exit"))
        await stage.client.wait_for_command("session-end", state="CLOSED")
        assert trio.current_time() == 0.5
        assert stage.client.commands("exit") == []


@pytest.mark.parametrize("encoding", ["pcm16", "mulaw"])
async def test_audio_comes_to_the_recognizer_at_its_rate(autojump_clock: MockClock, encoding: str) -> None:
    """In whatever pieces it was sent."""
    recognizer = ScriptedRecognizer(16000)
    pcm = speech(1000, 8000)
    sent = pcm if encoding == "pcm16" else mulaw_encode(pcm)
    async with open_scene(recognizer=recognizer, input_sample_rate=8000, input_encoding=encoding) as stage:
        for at in range(0, len(sent), 333):
            await stage.client.send(InputAudio(sent[at : at + 333]))
        await stage.client.send(ControlToken("exit"))
        await stage.client.wait_for_command("session-end")
        assert len(recognizer.pcm) == 2 * 16000
        expected = pcm if encoding == "pcm16" else mulaw_decode(sent)
        assert recognizer.pcm[20_000:20_002] == expected[10_000:10_002], "a constant stays what it is"


async def test_typing_beside_speech(autojump_clock: MockClock) -> None:
    recognizer = ScriptedRecognizer()
    async with open_scene(recognizer=recognizer, model=ScriptedModel(echo)) as stage:
        recognizer.hear(interim())
        await trio.sleep(0.2)
        await stage.client.send(InputText("typed"))
        await trio.sleep(0.2)
        recognizer.hear(final("spoken"))
        await trio.sleep(1)
        finals = [(t.text, t.provider) for t in stage.client.transcripts if not t.is_interim]
        assert finals == [("typed", "Client"), ("spoken", "Scripted")]
        assert stage.client.sentences == ["You said typed.", "You said spoken."]


# --- failures ---------------------------------------------------------------------------------------------------------


class FailingRecognizer(Recognizer):
    """One that fails when it has heard something, or never begins."""

    name: ClassVar[str] = "Scripted"
    sample_rate = 24000

    def __init__(self, error: Exception | None, *, starts: bool = True) -> None:
        self.error = error
        self.starts = starts

    async def run(
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        elements: trio.MemorySendChannel[RecognitionElement],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        if not self.starts:
            await trio.sleep_forever()
        task_status.started()
        await audio.receive()
        if self.error is not None:
            raise self.error


FAILURES: Sequence[Exception | None] = [
    RealtimeException(ErrorCode.RECOGNITION_FAILED, "It does not hear."),
    ValueError("a bug"),
    None,
]


@pytest.mark.parametrize("error", FAILURES, ids=["said so", "raises", "just ends"])
async def test_a_recognizer_that_fails_ends_the_session_with_its_error(
    autojump_clock: MockClock, error: Exception | None
) -> None:
    store = FaultyStore()
    async with open_scene(recognizer=FailingRecognizer(error), store=store) as stage:
        await trio.sleep(1)
        for _ in range(100):  # more than lies between the client and the recognizer
            await stage.client.send(InputAudio(speech(20)), Commit())
        await stage.over.wait()
        assert stage.ended_at == 1
        assert errors(stage) == [(ErrorCode.RECOGNITION_FAILED, False)]
        assert store.saved_sessions[-1].state is SessionState.DISCONNECTED


async def test_a_recognizer_has_ten_seconds_to_begin(autojump_clock: MockClock) -> None:
    async with open_scene(recognizer=FailingRecognizer(None, starts=False)) as stage:
        await stage.over.wait()
        assert stage.ended_at == 10
        assert errors(stage) == [(ErrorCode.RECOGNITION_FAILED, False)]
