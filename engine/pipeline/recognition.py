"""The engine's own recognition beside a model that has none (SPEC M3): audio goes to the recognizer, words to the model.

An interim cuts the answer and goes to client and model at once; the final goes to the model, whose session echoes it (M4).
"""

import logging

import attrs
import trio

from engine.elements import EmotionalState, InputAudio, Partial, Transcript, UserSpeech
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import RecognitionElement, Recognizer, RecognizerInput, SessionInput
from engine.pipeline.driver import ConversationDriver
from engine.protocol.audio import bytes_for_ms
from engine.protocol.transcripts import TranscriptNormalizer

logger = logging.getLogger(__name__)

GAP_SECONDS = 0.5
"""A gap in the input audio that counts as silence (protocol page, section 2)."""
SILENCE_MS = 2000
"""Silence given to the recognizer after such a gap: longer than any endpointing waits."""
ELEMENTS = 16
AUDIO_FRAMES = 32


@attrs.define(eq=False)
class Recognition:
    """One session's recognition. `run` ends when `audio` has ended and the last utterance was flushed."""

    recognizer: Recognizer
    turns: ConversationDriver
    model_inputs: trio.MemorySendChannel[SessionInput]
    _normalizer: TranscriptNormalizer = attrs.field(factory=TranscriptNormalizer, init=False)
    _audio_has_ended: bool = attrs.field(default=False, init=False)

    async def run(
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Raises RealtimeException (`recognition_failed`) when the recognizer fails for good."""
        fed, frames = trio.open_memory_channel[RecognizerInput](AUDIO_FRAMES)
        said, elements = trio.open_memory_channel[RecognitionElement](ELEMENTS)
        async with trio.open_nursery() as nursery:
            await nursery.start(self._recognize, frames, said, name="recognizer")
            task_status.started()
            nursery.start_soon(self._feed, audio, fed, name="recognition audio")
            with elements:
                async for element in elements:
                    await self._take(element)
        self.turns.recognition_over(by_engine=True)

    async def _recognize(  # noqa: ASYNC128 - the status is passed on
        self,
        frames: trio.MemoryReceiveChannel[RecognizerInput],
        said: trio.MemorySendChannel[RecognitionElement],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with frames, said:
            try:
                await self.recognizer.run(frames, said, task_status=task_status)
            except RealtimeException:
                raise
            except Exception as exc:
                message = f"Speech recognition ({self.recognizer.name}) failed."
                raise RealtimeException(ErrorCode.RECOGNITION_FAILED, message) from exc
            if not self._audio_has_ended:
                message = f"Speech recognition ({self.recognizer.name}) has ended."
                raise RealtimeException(ErrorCode.RECOGNITION_FAILED, message)

    async def _feed(
        self, audio: trio.MemoryReceiveChannel[RecognizerInput], fed: trio.MemorySendChannel[RecognizerInput]
    ) -> None:
        """Pass audio on, and silence in a gap: a client that stops sending has stopped speaking."""
        silence = InputAudio(bytes(bytes_for_ms(SILENCE_MS, self.recognizer.sample_rate)))
        quiet = True
        with audio, fed:
            while True:  # noqa: ASYNC913 - every way round waits, or ends
                item: RecognizerInput | None = None
                with trio.CancelScope() as gap:
                    if not quiet:
                        gap.deadline = trio.current_time() + GAP_SECONDS
                    try:
                        item = await audio.receive()
                    except trio.EndOfChannel:
                        self._audio_has_ended = True
                        return
                quiet = item is None
                try:
                    await fed.send(silence if item is None else item)
                except trio.BrokenResourceError:
                    return  # the recognizer has ended; its own error, if any, says why

    async def _take(self, element: RecognitionElement) -> None:
        match element:
            case Transcript():
                for transcript in self._normalizer.receive(element):
                    await self._pass_on(transcript)
            case Partial() | EmotionalState():
                self.turns.receive(element)

    async def _pass_on(self, transcript: Transcript) -> None:
        item: SessionInput
        if transcript.is_interim:
            item = self.turns.interrupt(transcript)
        else:
            item = UserSpeech(transcript.text, transcript.provider or self.recognizer.name)
            self.turns.expect_answer(item.text, item.provider)
        try:
            await self.model_inputs.send(item)
        except trio.BrokenResourceError:
            logger.debug("the model has gone; its own error says why")
