"""A second referee: the order in which the service may send its events, as the protocol page tells it, and nothing of the simulator."""

import attrs

from providers.openai.simulation.checks import Json
from providers.openai.simulation.faults import UNKNOWN_TYPE

TEXTS = {
    "response.output_text": "text",
    "response.output_audio_transcript": "transcript",
    "response.function_call_arguments": "arguments",
}
"""Streams of deltas, and the field of their `done` that repeats all of them."""
TRANSCRIPTION = "conversation.item.input_audio_transcription"


@attrs.define(eq=False)
class SeenItem:
    """An output item: what has come of it so far."""

    index: int
    is_message: bool
    texts: dict[str, str] = attrs.field(factory=dict[str, str])
    done: set[str] = attrs.field(factory=set[str])
    part_is_open: bool = False
    is_over: bool = False


@attrs.define(eq=False)
class SeenResponse:
    in_conversation: bool
    items: dict[str, SeenItem] = attrs.field(factory=dict[str, SeenItem])
    is_over: bool = False


@attrs.define(eq=False)
class Order:
    """Sees every event of a session in turn, and raises at the first that comes when it may not."""

    responses: dict[str, SeenResponse] = attrs.field(factory=dict[str, SeenResponse], init=False)
    added: list[str] = attrs.field(factory=list[str], init=False)
    done: set[str] = attrs.field(factory=set[str], init=False)
    spoken: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    """User items: `started`, `stopped`, `committed`, `transcribed`."""
    event_ids: set[str] = attrs.field(factory=set[str], init=False)
    strays: set[str] = attrs.field(factory=set[str], init=False)
    """Responses that a test made up."""
    count: int = attrs.field(default=0, init=False)

    def see(self, event: Json) -> None:
        kind: str = event["type"]
        if kind == UNKNOWN_TYPE:
            return
        assert event["event_id"] not in self.event_ids or kind == "rate_limits.updated", "an event comes twice"
        self.event_ids.add(event["event_id"])
        assert (kind == "session.created") == (self.count == 0) or kind == "error", kind
        self.count += 1
        if event.get("response_id") in self.strays:
            return
        if kind.startswith("response."):
            self._see_response(kind, event)
        elif kind.startswith("input_audio_buffer."):
            self._see_input(kind.removeprefix("input_audio_buffer."), event)
        elif kind.startswith(TRANSCRIPTION):
            self._see_transcription(kind.removeprefix(f"{TRANSCRIPTION}."), event)
        elif kind in ("conversation.item.added", "conversation.item.done"):
            self._see_item(kind, event)

    def _see_item(self, kind: str, event: Json) -> None:
        item_id: str = event["item"]["id"]
        if kind.endswith("added"):
            assert item_id not in self.added
            assert event["previous_item_id"] in (None, *self.added)
            self.added.append(item_id)
        else:
            assert item_id in self.added
            assert item_id not in self.done
            self.done.add(item_id)
            for response in self.responses.values():
                if item_id in response.items:
                    assert not response.items[item_id].is_over, "output_item.done came before conversation.item.done"

    def _see_input(self, kind: str, event: Json) -> None:
        item_id = event.get("item_id", "")
        state = self.spoken.get(item_id)
        if kind == "speech_started":
            assert state is None
            self.spoken[item_id] = "started"
        elif kind == "speech_stopped":
            assert state == "started"
            self.spoken[item_id] = "stopped"
        elif kind == "committed":
            assert state in (None, "started", "stopped")
            assert item_id not in self.added
            self.spoken[item_id] = "committed"

    def _see_transcription(self, kind: str, event: Json) -> None:
        item_id: str = event["item_id"]
        state = self.spoken[item_id]
        if kind == "delta":
            assert state != "transcribed"
        else:
            assert state == "committed"
            assert item_id in self.added
            self.spoken[item_id] = "transcribed"

    # --- responses

    def _see_response(self, kind: str, event: Json) -> None:
        if kind == "response.created":
            response = event["response"]
            in_conversation = response["conversation_id"] is not None
            running = [one for one in self.responses.values() if one.in_conversation and not one.is_over]
            assert not (running and in_conversation), "two responses at once"
            assert (response["status"], response["output"]) == ("in_progress", [])
            self.responses[response["id"]] = SeenResponse(in_conversation)
        elif kind == "response.done":
            seen = self.responses[event["response"]["id"]]
            assert not seen.is_over
            assert all(item.is_over for item in seen.items.values())
            assert [item["id"] for item in event["response"]["output"]] == list(seen.items)
            seen.is_over = True
        elif kind == "response.output_item.added":
            seen = self.responses[event["response_id"]]
            assert not seen.is_over
            assert event["output_index"] == len(seen.items)
            assert all(item.is_over for item in seen.items.values())
            assert event["item"]["status"] == "in_progress"
            assert event["item"]["id"] not in self.added, "conversation.item.added came before output_item.added"
            seen.items[event["item"]["id"]] = SeenItem(event["output_index"], event["item"]["type"] == "message")
        else:
            item_id = event["item"]["id"] if "item" in event else event["item_id"]
            response_seen = self.responses[event["response_id"]]
            item = response_seen.items[item_id]
            assert not response_seen.is_over
            assert not item.is_over
            assert event["output_index"] == item.index
            if response_seen.in_conversation:
                assert item_id in self.added
            self._see_item_of_response(kind, event, item)

    def _see_item_of_response(self, kind: str, event: Json, item: SeenItem) -> None:
        stream, _, what = kind.rpartition(".")
        if kind == "response.output_item.done":
            assert not item.part_is_open
            item.is_over = True
        elif stream == "response.content_part":
            assert item.part_is_open == (what == "done")
            item.part_is_open = what == "added"
            if what == "done":
                assert item.done, "the part ended before its streams"
        else:
            assert item.part_is_open == item.is_message
            assert stream not in item.done
            if what == "delta" and stream in TEXTS:
                item.texts[stream] = item.texts.get(stream, "") + event["delta"]
            elif what == "done":
                item.done.add(stream)
                if stream in TEXTS:
                    assert event[TEXTS[stream]] == item.texts.get(stream, "")
