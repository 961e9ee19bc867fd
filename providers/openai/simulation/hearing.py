"""The input audio buffer, and who notices that the user speaks: the energy of the audio, the script, or the client itself.

Speech is found in the audio, not in time: a client that sends nothing while the user is silent is never told that he has ended.
Scripted speech is the exception, so that tests need no audio.
"""

from collections.abc import Callable, Iterator

from providers.openai.simulation import rules
from providers.openai.simulation.agenda import Timer
from providers.openai.simulation.checks import Json
from providers.openai.simulation.conversation import Conversation, Item, decode_base64
from providers.openai.simulation.script import Script, Utterance
from providers.openai.simulation.settings import Settings
from providers.openai.simulation.sound import Format, loudness
from providers.openai.simulation.transcription import Spoken, Transcriber
from providers.openai.simulation.wire import Wire

APPEND_LIMIT = 15 * 1024 * 1024
"""Bytes of audio in one append."""
LEAST_COMMIT_MS = 100.0
WINDOW_MS = 20
"""Audio is judged in pieces of this length."""
LOUD_AT_FULL_THRESHOLD = 0.02
"""X: loudness that counts as speech, times the threshold. At the default of 0.5 that is 40 dB below the loudest."""
SEMANTIC_SILENCE_MS = 500
"""X: semantic detection has no setting for this; how it judges meaning is not simulated."""
PREFIX_MS = 300
IDLE_NOTE = "The user has said nothing for a while. If there is speech in the audio, answer it; if not, ask whether they are there."
"""The service tells the model so in a system message of its own; seen with gpt-realtime-2.1-mini, these words are ours."""


class ScriptError(Exception):
    """A script asks for what cannot happen on this session."""


class Windows:
    """Cuts audio as it comes into windows, and says which are loud."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, audio: bytes, of: Format, threshold: float) -> Iterator[bool]:
        size = WINDOW_MS * of.bytes_per_ms
        audio = self._rest + audio if self._rest else audio
        whole = len(audio) // size * size
        self._rest = audio[whole:]
        level = threshold * LOUD_AT_FULL_THRESHOLD
        for start in range(0, whole, size):
            yield loudness(audio[start : start + size], of) >= level

    def clear(self) -> None:
        self._rest = b""


class Hearing:
    """What a session hears.

    Args:
        interrupt: Called when the user begins to speak and that shall end the response.
        respond: Called when the user has ended and that shall be answered.
        busy: Whether a response is under way.
        keeps_audio: Items keep what was said in them, for `conversation.item.retrieve`.
    """

    def __init__(
        self,
        wire: Wire,
        settings: Settings,
        conversation: Conversation,
        script: Script,
        *,
        interrupt: Callable[[], None],
        respond: Callable[[], None],
        busy: Callable[[], bool],
        keeps_audio: bool,
    ) -> None:
        self._wire = wire
        self._settings = settings
        self._conversation = conversation
        self._interrupt = interrupt
        self._respond = respond
        self._busy = busy
        self._hears = script.hears
        self._transcriber = Transcriber(wire, settings, conversation, script)
        self._untimed = iter([one for one in script.utterances if one.at is None])
        self._windows = Windows()
        self._position_ms = 0.0
        """All audio appended so far."""
        self._judged_ms = 0.0
        """As far as it was judged."""
        self._buffer_start_ms = 0.0
        self._buffer: bytearray | None = bytearray() if keeps_audio else None
        self._spoken: Spoken | None = None
        self._quiet_ms = 0.0
        self._end_of_speech: Timer | None = None
        self._idle: Timer | None = None

    # --- what the client does

    def append(self, audio: str) -> None:
        """Raises `Refused` when it is not audio in the session's format, or too much of it."""
        of = self._settings.input_format
        data = decode_base64(audio)
        if data is None or len(data) % of.sample_bytes:
            raise rules.bad_audio(of.described)
        if len(data) > APPEND_LIMIT:
            raise rules.too_large(APPEND_LIMIT)
        self._position_ms += of.ms(len(data))
        if self._buffer is not None:
            self._buffer += data
        detection = self._settings.turn_detection
        if detection is None or not self._hears or (self._spoken is not None and self._spoken.by_script):
            self._windows.clear()
            self._judged_ms = self._position_ms
        else:
            self._judge(data, of, detection)
        if detection is not None and self._spoken is None:
            self._forget_silence(of)

    def commit(self) -> None:
        """Raises `Refused` when there is too little."""
        held_ms = self._position_ms - self._buffer_start_ms
        if held_ms < LEAST_COMMIT_MS:
            raise rules.commit_too_short(held_ms)
        spoken, self._spoken = self._spoken, None
        if spoken is None:
            spoken = self._next_spoken(self._buffer_start_ms)
        self._stop_listening()
        self._commit(spoken, self._position_ms)

    def clear(self) -> None:
        self._spoken = None
        self._stop_listening()
        self._take_buffer(self._position_ms)
        self._wire.emit("input_audio_buffer.cleared")

    # --- what is found in the audio

    def _judge(self, data: bytes, of: Format, detection: Json) -> None:
        for is_loud in self._windows.feed(data, of, detection.get("threshold", 0.5)):
            if is_loud:
                self._quiet_ms = 0.0
                if self._spoken is None:
                    self._start(self._next_spoken(self._judged_ms), detection)
            elif self._spoken is not None:
                self._quiet_ms += WINDOW_MS
            self._judged_ms += WINDOW_MS
            if self._spoken is not None and self._quiet_ms >= detection.get("silence_duration_ms", SEMANTIC_SILENCE_MS):
                self._stop(self._judged_ms)

    def _next_spoken(self, start_ms: float, utterance: Utterance | None = None) -> Spoken:
        by_script = utterance is not None
        found = utterance or next(self._untimed, None) or Utterance("(speech)")
        return Spoken(found, self._wire.new_id("item"), start_ms, self._wire.now, by_script)

    def _forget_silence(self, of: Format) -> None:
        """Keep of the silence before speech no more than can become part of it."""
        detection = self._settings.turn_detection or {}
        self._drop_before(int(self._position_ms - detection.get("prefix_padding_ms", PREFIX_MS) - WINDOW_MS), of)

    def _drop_before(self, start_ms: int, of: Format) -> None:
        if start_ms > self._buffer_start_ms:
            if self._buffer is not None:
                del self._buffer[: int(start_ms - self._buffer_start_ms) * of.bytes_per_ms]
            self._buffer_start_ms = float(start_ms)

    # --- what the script says

    def speak(self, utterance: Utterance) -> None:
        """The user begins to speak now, without audio.

        Raises:
            ScriptError: nobody would notice.
        """
        detection = self._settings.turn_detection
        if detection is None:
            raise ScriptError("Without turn detection it is the client who says when the user has spoken.")
        if self._spoken is not None and self._spoken.utterance.ends:
            self._stop(self._position_ms)
        self._stop_listening()
        self._start(self._next_spoken(self._position_ms, utterance), detection)
        if utterance.ends:
            self._end_of_speech = self._wire.later(utterance.seconds, lambda: self._stop(self._position_ms))

    # --- speech

    def _start(self, spoken: Spoken, detection: Json) -> None:
        self._spoken = spoken
        self._quiet_ms = 0.0
        padding = detection.get("prefix_padding_ms", PREFIX_MS)
        spoken.start_ms = max(self._buffer_start_ms, spoken.start_ms - padding)
        self._drop_before(int(spoken.start_ms), self._settings.input_format)
        self._disarm()
        self._wire.emit(
            "input_audio_buffer.speech_started", audio_start_ms=int(spoken.start_ms), item_id=spoken.item_id
        )
        self._transcriber.speech_started(spoken)
        if detection["interrupt_response"]:
            self._interrupt()

    def _stop(self, end_ms: float) -> None:
        spoken, self._spoken = self._spoken, None
        detection = self._settings.turn_detection
        if spoken is None or detection is None:
            return
        self._stop_listening()
        self._wire.emit("input_audio_buffer.speech_stopped", audio_end_ms=int(end_ms), item_id=spoken.item_id)
        self._commit(spoken, end_ms)
        if detection["create_response"]:
            self._respond()

    def _stop_listening(self) -> None:
        self._quiet_ms = 0.0
        if self._end_of_speech is not None:
            self._end_of_speech.cancel()
            self._end_of_speech = None

    def _commit(self, spoken: Spoken, end_ms: float) -> None:
        audio = self._take_buffer(end_ms)
        audio_ms = end_ms - spoken.start_ms
        if spoken.by_script:
            audio_ms = max(audio_ms, spoken.utterance.seconds * 1000)
        shown: Json = {
            "id": spoken.item_id,
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": None}],
        }
        item = Item(spoken.item_id, shown, audio, audio_ms, self._settings.input_format, heard=spoken.words)
        previous = self._conversation.add(item)
        self._wire.emit("input_audio_buffer.committed", previous_item_id=previous, item_id=item.id)
        self._wire.emit("conversation.item.added", previous_item_id=previous, item=shown)
        self._wire.emit("conversation.item.done", previous_item_id=previous, item=shown)
        self._transcriber.committed(spoken, item, audio_ms / 1000)

    def _take_buffer(self, end_ms: float) -> bytearray | None:
        """The audio up to there; what comes behind it stays."""
        taken: bytearray | None = None
        if self._buffer is not None:
            size = int(end_ms - self._buffer_start_ms) * self._settings.input_format.bytes_per_ms
            taken, self._buffer = self._buffer[:size], self._buffer[size:]
        self._buffer_start_ms = end_ms
        return taken

    # --- nobody speaks

    def response_done(self, audio_ms: float) -> None:
        """A response of the conversation is over; the user has not heard the end of its audio yet."""
        self._disarm()
        timeout = (self._settings.turn_detection or {}).get("idle_timeout_ms")
        if timeout is not None:
            self._idle = self._wire.later((audio_ms + timeout) / 1000, lambda: self._time_out(timeout))

    def response_created(self) -> None:
        self._disarm()

    def _disarm(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _time_out(self, timeout_ms: int) -> None:
        if self._spoken is not None or self._busy():
            return
        start_ms = max(0.0, self._position_ms - timeout_ms)
        spoken = Spoken(Utterance(""), self._wire.new_id("item"), start_ms, self._wire.now, by_script=False)
        self._wire.emit(
            "input_audio_buffer.timeout_triggered",
            audio_start_ms=int(start_ms),
            audio_end_ms=int(self._position_ms),
            item_id=spoken.item_id,
        )
        note: Json = {
            "id": self._wire.new_id("item"),
            "type": "message",
            "status": "completed",
            "role": "system",
            "content": [{"type": "input_text", "text": IDLE_NOTE}],
        }
        previous = self._conversation.add(Item(note["id"], note))
        self._wire.emit("conversation.item.added", previous_item_id=previous, item=note)
        self._wire.emit("conversation.item.done", previous_item_id=previous, item=note)
        self._commit(spoken, self._position_ms)
        self._respond()
