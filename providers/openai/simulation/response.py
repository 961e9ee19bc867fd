"""One response: its plan, its progress, and the ways in which it ends."""

from collections.abc import Callable, Iterator
from functools import partial
from heapq import merge

import attrs

from providers.openai.simulation.agenda import Timer
from providers.openai.simulation.checks import Json
from providers.openai.simulation.conversation import Conversation
from providers.openai.simulation.message import ItemUnderWay, Piece, Speaker
from providers.openai.simulation.script import (
    AUTOMATIC,
    Call,
    Cancelled,
    Completed,
    Ending,
    Failed,
    Incomplete,
    Mishap,
    Reply,
    Stall,
    Usage,
)
from providers.openai.simulation.wire import Wire

AUDIO_OUT_MS_PER_TOKEN = 50


@attrs.frozen
class Order:
    """What a response was asked for: everything that its object repeats."""

    response_id: str
    modality: str
    output: Json
    """Format and voice."""
    max_output_tokens: int | str
    metadata: Json | None


@attrs.frozen
class Step:
    """Something of a plan; `at` counts from `response.created`."""

    at: float
    action: Callable[[], None]


class Response:
    """Carries a reply out.

    Args:
        conversation: None for a response out of band.
        input_usage: What goes in, for the usage; asked for when the response is done.
        mishap: Does to the connection what a mishap says.
        spoke: Called when the first audio goes out.
        done: Called right behind `response.done`.
    """

    def __init__(
        self,
        wire: Wire,
        conversation: Conversation | None,
        order: Order,
        reply: Reply,
        speaker: Speaker,
        *,
        input_usage: Callable[[], Usage],
        mishap: Callable[[Mishap], None],
        spoke: Callable[[], None],
        done: Callable[["Response"], None],
    ) -> None:
        self.id = order.response_id
        self.reply = reply
        self.in_conversation = conversation is not None
        self.is_created = False
        self.is_over = False
        self.items: list[ItemUnderWay] = []
        self.status = "in_progress"
        self.usage: Usage | None = None
        self._wire = wire
        self._conversation = conversation
        self._order = order
        self._speaker = speaker
        self._input_usage = input_usage
        self._mishap = mishap
        self._spoke = spoke
        self._done = done
        self._steps = merge(self._plan(), self._mishaps(), key=lambda step: step.at)
        self._next: Step | None = None
        self._began = 0.0
        self._shift = 0.0
        self._stalled = False
        self._timer: Timer | None = None
        self._cancelled: Cancelled | None = None
        self._end_of_lag: Timer | None = None

    # --- the plan

    def _plan(self) -> Iterator[Step]:
        """The steps of the items, one after the other, and the end."""
        at = self.reply.starts_after
        unfinished = "completed" if isinstance(self.reply.ends, Completed) else "incomplete"
        for index, part in enumerate(self.reply.parts):
            is_last = index == len(self.reply.parts) - 1
            item = ItemUnderWay(self._wire, self._conversation, self._speaker, part, self.id, index)
            yield Step(at, partial(self._start, item))
            begin = at
            for piece in item.pieces():
                at = begin + piece.at
                yield Step(at, partial(self._bring, item, piece))
            if is_last:
                yield from self._last_mishaps(at)
            status = unfinished if is_last else "completed"
            yield Step(at, partial(item.finish, status))
        if not self.reply.parts:
            yield from self._last_mishaps(at)
        yield Step(at, lambda: self._end(self._cancelled or self.reply.ends))

    def _last_mishaps(self, at: float) -> Iterator[Step]:
        for mishap in self.reply.mishaps:
            if mishap.at is None:
                yield Step(at, partial(self.happen, mishap))

    def _mishaps(self) -> Iterator[Step]:
        timed = [mishap for mishap in self.reply.mishaps if mishap.at is not None]
        for mishap in sorted(timed, key=lambda mishap: mishap.at or 0.0):
            yield Step(mishap.at or 0.0, partial(self.happen, mishap))

    def happen(self, mishap: Mishap) -> None:
        if not isinstance(mishap, Stall):
            self._mishap(mishap)
        elif mishap.seconds is None:
            self._stalled = True
        else:
            self._shift += mishap.seconds

    # --- its progress

    def create(self) -> None:
        self.is_created = True
        self._began = self._wire.now
        self._wire.emit("response.created", response=self.shown())
        if self._cancelled is not None:
            self._end(self._cancelled)
        self._go_on()

    def _go_on(self) -> None:
        """Take all steps that are due, and wait for the next one."""
        while not self.is_over and not self._stalled and not self._wire.closed:
            step = self._next or next(self._steps, None)
            self._next = step
            if step is None:
                return
            due = self._began + step.at + self._shift
            if due > self._wire.now:
                self._timer = self._wire.at(due, self._go_on)
                return
            self._next = None
            step.action()

    def _start(self, item: ItemUnderWay) -> None:
        self.items.append(item)
        item.start()

    def _bring(self, item: ItemUnderWay, piece: Piece) -> None:
        if piece.audio_ms:
            self._spoke()
        item.bring(piece)

    # --- its end

    def cancel(self, reason: str) -> None:
        """End it: now, or when what is under way has come; one that is yet to be created, as soon as it is."""
        if self._cancelled is not None:
            return
        self._cancelled = Cancelled(reason)
        if not self.is_created:
            return
        if self.reply.cancel_lag:
            self._end_of_lag = self._wire.later(self.reply.cancel_lag, self._cut)
        else:
            self._cut()

    def _cut(self) -> None:
        if not self.is_over and self._cancelled is not None:
            if self.items and self.items[-1].is_open:
                self.items[-1].finish("incomplete")
            self._end(self._cancelled)

    def _end(self, ending: Ending) -> None:
        self.is_over = True
        for timer in (self._timer, self._end_of_lag):
            if timer is not None:
                timer.cancel()
        details = self._end_as(ending)
        self.usage = self._used()
        self._wire.emit("response.done", response=self.shown(details))
        self._done(self)

    def _end_as(self, ending: Ending) -> Json | None:
        """Sets the status; returns its details."""
        match ending:
            case Completed():
                self.status = "completed"
                return None
            case Failed(code, message, error_type):
                self.status = "failed"
                return {"type": "failed", "error": {"type": error_type, "code": code, "message": message}}
            case Incomplete(reason) | Cancelled(reason):
                self.status = "incomplete" if isinstance(ending, Incomplete) else "cancelled"
                return {"type": self.status, "reason": reason}

    def _used(self) -> Usage | None:
        if self.reply.usage is not AUTOMATIC:
            return self.reply.usage
        if not self.items:
            return Usage()
        text = sum(len(item.text.split()) for item in self.items)
        audio = round(self.audio_ms / AUDIO_OUT_MS_PER_TOKEN)
        return attrs.evolve(self._input_usage(), output=text + audio, output_audio=audio)

    @property
    def audio_ms(self) -> float:
        return sum(item.item.audio_ms for item in self.items)

    def calls(self) -> list[str]:
        """The ids of its calls that are complete."""
        return [
            item.item.shown["call_id"]
            for item in self.items
            if isinstance(item.part, Call) and item.item.shown["status"] == "completed"
        ]

    # --- as the client sees it

    def shown(self, details: Json | None = None) -> Json:
        """The response object."""
        is_over = self.status != "in_progress"
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": self.status,
            "status_details": details,
            "output": [item.item.shown for item in self.items] if is_over else [],
            "conversation_id": self._conversation.id if self._conversation else None,
            "output_modalities": [self._order.modality],
            "max_output_tokens": self._order.max_output_tokens,
            "audio": {"output": self._order.output},
            "usage": self.usage.wire if self.usage else None,
            "metadata": self._order.metadata,
        }
