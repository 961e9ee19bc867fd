"""What becomes of the words of the user: deltas, a transcript or a failure, each at its time."""

from functools import cached_property, partial

import attrs

from providers.openai.simulation.checks import Json
from providers.openai.simulation.conversation import Conversation, Item
from providers.openai.simulation.script import Script, Utterance, pieces_of
from providers.openai.simulation.settings import Settings
from providers.openai.simulation.wire import Wire

EVENT = "conversation.item.input_audio_transcription"
BILLED_BY_TIME = ("gpt-realtime-whisper", "whisper-1")
AUDIO_TOKENS_PER_SECOND = 10


@attrs.define(eq=False, slots=False)
class Spoken:
    """Something the user says or has said."""

    utterance: Utterance
    item_id: str
    start_ms: float
    began_at: float
    by_script: bool

    @cached_property
    def words(self) -> str:
        """Asked for once."""
        text = self.utterance.text
        return text() if callable(text) else text

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        return pieces_of(self.words) if self.utterance.pieces is None else tuple(self.utterance.pieces)


class Transcriber:
    """Sends the transcription events of a session."""

    def __init__(self, wire: Wire, settings: Settings, conversation: Conversation, script: Script) -> None:
        self._wire = wire
        self._settings = settings
        self._conversation = conversation
        self._script = script

    def speech_started(self, spoken: Spoken) -> None:
        if spoken.utterance.during_speech and self._settings.transcription is not None:
            self._send_deltas(spoken, self._wire.now)

    def committed(self, spoken: Spoken, item: Item, seconds: float) -> None:
        utterance, settings = spoken.utterance, self._settings.transcription
        if settings is None:
            return
        begin = self._wire.now
        if utterance.during_speech:
            begin = spoken.began_at
        elif not self._failure(utterance):
            self._send_deltas(spoken, begin)
        if utterance.transcribed_after is not None:
            last_delta = begin + max(0, len(spoken.pieces) - 1) * utterance.piece_seconds
            end = max(self._wire.now + utterance.transcribed_after, last_delta)
            self._wire.at(end, lambda: self._finish(spoken, item, dict(settings), seconds))

    def _failure(self, utterance: Utterance) -> Json | None:
        trouble = self._script.transcription_failure or utterance.failure
        if trouble is None:
            return None
        return {"type": trouble.type, "code": trouble.code, "message": trouble.message, "param": trouble.param}

    def _send_deltas(self, spoken: Spoken, begin: float) -> None:
        for index, piece in enumerate(spoken.pieces):
            at = begin + index * spoken.utterance.piece_seconds
            self._wire.at(at, partial(self._send_delta, spoken.item_id, piece))

    def _send_delta(self, item_id: str, piece: str) -> None:
        more = {"logprobs": [_logprob(piece)]} if self._settings.wants_logprobs else {}
        self._wire.emit_delta(f"{EVENT}.delta", {"item_id": item_id, "content_index": 0, **more}, piece)

    def _finish(self, spoken: Spoken, item: Item, settings: Json, seconds: float) -> None:
        if not self._conversation.has(item.id):
            return
        failure = self._failure(spoken.utterance)
        if failure:
            self._wire.emit(f"{EVENT}.failed", item_id=item.id, content_index=0, error=failure)
            return
        item.shown["content"][0]["transcript"] = spoken.words
        more: Json = {}
        if self._settings.wants_logprobs:
            more["logprobs"] = [_logprob(piece) for piece in spoken.pieces]
        if settings.get("model") == "gpt-transcribe":
            more["languages"] = [{"code": settings["language"]}] if settings.get("language") else []
        self._wire.emit(
            f"{EVENT}.completed",
            item_id=item.id,
            content_index=0,
            transcript=spoken.words,
            usage=_usage(str(settings.get("model")), seconds, len(spoken.pieces)),
            **more,
        )


def _logprob(piece: str) -> Json:
    return {"token": piece, "bytes": list(piece.encode()), "logprob": -0.01}


def _usage(model: str, seconds: float, pieces: int) -> Json:
    if model in BILLED_BY_TIME:
        return {"type": "duration", "seconds": round(seconds, 3)}
    audio = round(seconds * AUDIO_TOKENS_PER_SECOND)
    return {
        "type": "tokens",
        "total_tokens": audio + pieces,
        "input_tokens": audio,
        "output_tokens": pieces,
        "input_token_details": {"text_tokens": 0, "audio_tokens": audio},
    }
