"""The items of a response while they come: a message or a call, from its first event to its last."""

from collections.abc import Iterator
from heapq import merge
from itertools import count

import attrs
import orjson
import pybase64

from providers.openai.simulation.checks import Json
from providers.openai.simulation.conversation import Conversation, Item
from providers.openai.simulation.script import Call, Pace, Say
from providers.openai.simulation.sound import Format, Voice, spoken_delta
from providers.openai.simulation.wire import Wire

AUDIO_DELTA = "response.output_audio.delta"


@attrs.frozen
class Speaker:
    """How a response speaks."""

    modality: str
    format: Format
    voice: Voice
    pace: Pace
    keeps_audio: bool


@attrs.frozen
class Piece:
    """A step of an item under way: when it comes, from the first of its item, and what it brings."""

    at: float
    text: str = ""
    audio_ms: int = 0


@attrs.define(eq=False)
class ItemUnderWay:
    """An item of a response. `conversation` is None for a response out of band."""

    wire: Wire
    conversation: Conversation | None
    speaker: Speaker
    part: Say | Call
    response_id: str
    index: int
    item: Item = attrs.field(init=False)
    text: str = attrs.field(default="", init=False)
    is_open: bool = attrs.field(default=False, init=False)
    _audio_deltas: int = attrs.field(default=0, init=False)
    _audio_head: str = attrs.field(default="", init=False)
    _audio_middle: str = attrs.field(default="", init=False)

    # --- what comes

    def pieces(self) -> Iterator[Piece]:
        """Text and audio in the order of their time; text goes before audio of the same time."""
        pace = self.speaker.pace
        texts = [Piece(index * pace.token_seconds, text) for index, text in enumerate(self.part.pieces)]
        if not isinstance(self.part, Say) or not self.is_spoken:
            return iter(texts)
        return merge(texts, self._audio_pieces(self.part.length_ms), key=lambda piece: piece.at)

    def _audio_pieces(self, length_ms: int) -> Iterator[Piece]:
        pace = self.speaker.pace
        for index in count():
            start_ms = index * pace.delta_ms
            if start_ms >= length_ms:
                return
            behind = start_ms / 1000 / pace.audio_speed if pace.audio_speed else 0.0
            yield Piece(pace.audio_after + behind, audio_ms=min(pace.delta_ms, length_ms - start_ms))

    @property
    def is_spoken(self) -> bool:
        return isinstance(self.part, Say) and self.speaker.modality == "audio"

    @property
    def _place(self) -> Json:
        return {"response_id": self.response_id, "item_id": self.item.id, "output_index": self.index}

    @property
    def _part_place(self) -> Json:
        return {**self._place, "content_index": 0}

    # --- its events

    def start(self) -> None:
        self.is_open = True
        shown = self._new_item()
        self.item = Item(shown["id"], shown, format=self.speaker.format)
        self.wire.emit("response.output_item.added", response_id=self.response_id, output_index=self.index, item=shown)
        if self.conversation is not None:
            previous = self.conversation.add(self.item)
            self.wire.emit("conversation.item.added", previous_item_id=previous, item=shown)
        if isinstance(self.part, Say):
            self._emit_part("added", "")
        if self.is_spoken:
            self._prepare_audio()

    def _new_item(self) -> Json:
        shown: Json = {"id": self.wire.new_id("item"), "type": "message", "status": "in_progress"}
        if isinstance(self.part, Say):
            return {**shown, "role": "assistant", "content": []}
        call_id = self.part.call_id or self.wire.new_id("call")
        return {**shown, "type": "function_call", "name": self.part.name, "call_id": call_id, "arguments": ""}

    def _prepare_audio(self) -> None:
        """Make the JSON of the audio's events but for their ids and the audio."""
        self._audio_head = f'{{"type":"{AUDIO_DELTA}","event_id":"'
        self._audio_middle = f'",{orjson.dumps(self._part_place).decode()[1:-1]},"delta":"'
        if self.speaker.keeps_audio:
            self.item.audio = bytearray()

    def bring(self, piece: Piece) -> None:
        if piece.audio_ms:
            self._bring_audio(piece.audio_ms)
            return
        self.text += piece.text
        if isinstance(self.part, Call):
            place = {**self._place, "call_id": self.item.shown["call_id"]}
            self.wire.emit_delta("response.function_call_arguments.delta", place, piece.text)
        elif self.is_spoken:
            self.wire.emit_delta("response.output_audio_transcript.delta", self._part_place, piece.text)
        else:
            self.wire.emit_delta("response.output_text.delta", self._part_place, piece.text)

    def _bring_audio(self, ms: int) -> None:
        delta = spoken_delta(self.speaker.voice, self.speaker.format, self._audio_deltas, ms)
        self._audio_deltas += 1
        self.item.has_model_audio = True
        self.item.audio_ms += ms
        if self.item.audio is not None:
            self.item.audio += pybase64.b64decode(delta)
        self.wire.emit_prepared(AUDIO_DELTA, self._audio_head, f'{self._audio_middle}{delta}"}}')

    def finish(self, status: str) -> None:
        """What closes the item, whether it is complete or not."""
        self.is_open = False
        if isinstance(self.part, Call):
            shown = self.item.shown
            shown["arguments"] = self.text
            self.wire.emit(
                "response.function_call_arguments.done",
                **self._place,
                call_id=shown["call_id"],
                name=shown["name"],
                arguments=self.text,
            )
        else:
            self._finish_message()
        self.item.shown["status"] = status
        if self.conversation is not None and self.conversation.has(self.item.id):
            self.wire.emit("conversation.item.done", previous_item_id=self._previous_of_done(), item=self.item.shown)
        self.wire.emit(
            "response.output_item.done", response_id=self.response_id, output_index=self.index, item=self.item.shown
        )
        if self.item.truncated:
            del self.item.shown["content"][0]["transcript"]

    def _finish_message(self) -> None:
        if self.is_spoken:
            self.wire.emit("response.output_audio.done", **self._part_place)
            self.wire.emit("response.output_audio_transcript.done", **self._part_place, transcript=self.text)
        else:
            self.wire.emit("response.output_text.done", **self._part_place, text=self.text)
        self._emit_part("done", self.text)
        content = {"type": "output_audio", "transcript": self.text} if self.is_spoken else None
        self.item.shown["content"] = [content or {"type": "output_text", "text": self.text}]

    def _emit_part(self, what: str, text: str) -> None:
        """The part's type is `audio` or `text`, where the item's content says `output_audio` or `output_text`."""
        part = {"type": "audio", "transcript": text} if self.is_spoken else {"type": "text", "text": text}
        azure = {"content": part} if self.wire.azure else {}
        self.wire.emit(f"response.content_part.{what}", **self._part_place, part=part, **azure)

    def _previous_of_done(self) -> str | None:
        """As recorded: null when the item before is the first of the conversation."""
        assert self.conversation is not None
        previous = self.conversation.before(self.item)
        return None if previous == self.conversation.items[0].id else previous
