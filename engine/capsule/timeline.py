"""A capsule as one document for a page: what happened when, in lanes, and what the speaking model had been told at any instant.

The document is bounded whatever the capsule holds: `items.MOST_ITEMS` of each lane, `items.MOST_CHARACTERS` of text, `loudness.MOST_BINS`
of sound, `MOST_TOKENS` tokens, `MOST_TOLD` things the model was told. What was left out is counted (`leftOut`). Times are seconds since
the capsule began. Nothing in a capsule is believed: what is no text, number or time as it should be is left out, too.

    about       what the session was begun with; `redacted` when words and sound were taken out
    length      of the capsule
    end         `state` whole, cut or full; `why`; the session's `session` state and `reason`
    summary     a few numbers of the whole
    lanes       by name (`items.Lane`): items with `id`, `kind`, `at`, `until` (null: never seen to end), and what is known of
                `text`, `turn`, `response`, `pass`, `outcome`, `reason`, `links` (ids), `more` (by name)
    loudness    what the client sent, `binSeconds` each; see `loudness.Loudness.shown`
    told        in their order: `id`, `at`, `what`, `text`, and what else is known
    responses   in their order: `id`, `at` (the first sign), `until`: what was told in between is new for the next one
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any, cast

import attrs

from engine.boundary import Note
from engine.capsule.conversation import SAME_MOMENT, Conversation
from engine.capsule.file import Capsule, Kind, Record
from engine.capsule.items import MILLISECOND, Items, Lane, link
from engine.capsule.loudness import BIN_SECONDS
from engine.capsule.plainly import error_of, members, number_of, shown, text_of
from engine.elements import JsonObject
from engine.observation import Happening, Outcome, SpanKind

VERSION = 1
MOST_TOLD = 5_000
MOST_TOLD_TEXT = 20_000
"""Characters of what a model was told: a long prompt."""
MOST_TIME = 30 * 86_400.0
"""Seconds; no session lasts a month."""
MOST_BEFORE = 200
"""Cancellations that are looked at for the one that explains something."""
SPAN_LANES = {
    SpanKind.TURN.value: Lane.TURNS,
    SpanKind.LEG.value: Lane.LEGS,
    SpanKind.START.value: Lane.LEGS,
    SpanKind.FINISH.value: Lane.LEGS,
    SpanKind.TOOL.value: Lane.TOOLS,
}


def timeline_of(capsule: Capsule) -> JsonObject:
    """The document; see the module. Pure, and takes a second for an hour of sound: run it in a thread."""
    reading = _Reading(Items(), capsule.head)
    for record in capsule.records:
        reading.read(record)
    return reading.finished(is_whole=capsule.is_whole)


@attrs.define(eq=False)
class _Reading:
    """Walks through the records once."""

    items: Items
    head: JsonObject
    conversation: Conversation = attrs.field(init=False)
    told: list[JsonObject] = attrs.field(factory=list[JsonObject], init=False)
    now: float = attrs.field(default=0.0, init=False)
    end: JsonObject = attrs.field(factory=dict[str, Any], init=False)
    full: str = attrs.field(default="", init=False)
    happened: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    _calls: dict[int, JsonObject] = attrs.field(factory=dict[int, JsonObject], init=False)
    _spans: dict[tuple[str, str], JsonObject] = attrs.field(factory=dict[tuple[str, str], JsonObject], init=False)

    def __attrs_post_init__(self) -> None:
        configuration = members(self.head.get("configuration"))
        settings = members(self.head.get("settings"))
        self.conversation = Conversation(self.items, configuration, settings)

    def read(self, record: Record) -> None:
        at = number_of(record.at, self.now)
        self.now = at = min(max(at, self.now), MOST_TIME)  # time goes one way
        fields = record.fields
        conversation = self.conversation
        match record.kind, fields:
            case Kind.IN, (element, *_):
                conversation.received(at, element)
            case Kind.OUT, (element, *_):
                conversation.told(at, element)
            case Kind.TOOK, _:
                conversation.sounding.took(at)
            case Kind.CUT, (response_id, turn_id, *_):
                conversation.cut(at, text_of(response_id), text_of(turn_id))
            case Kind.NOTE, (what, values, *_):
                self._note(at, text_of(what), members(values))
            case Kind.END, (state, reason, *_):
                self.end = {"session": text_of(state), "reason": self.items.text(reason)}
                self.items.add(Lane.EVENTS, at, "end", text=f"the session is over: {text_of(reason) or text_of(state)}")
            case Kind.FULL, (why, *_):
                self.full = self.items.text(why) or "nothing more was kept"
                self.items.add(Lane.EVENTS, at, "full", text=f"the capsule ends here: {self.full}")
            case Kind.CUT_OFF, (reason, *more):
                item = self._cancelled(at, "session", self.items.text(reason), "")
                item["kind"] = "cut-off"
                if more and more[0] is not None:
                    item["more"]["error"] = error_of(more[0])
            case Kind.VANISHED, _:
                self._cancelled(at, "session", "the client is gone", "")["kind"] = "vanished"
            case Kind.END_OF_INPUT, _:
                self.items.add(Lane.EVENTS, at, "input", text="the client will send nothing any more")
            case Kind.EVENT, (event, *_):
                item = self.items.add(Lane.EVENTS, at, "chat-event", text="a chat event")
                self.items.detail(item, "event", event)
            case kind, (int(number), *rest):
                self._outside(at, kind, number, rest)
            case _:
                pass

    # --- what was outside

    def _outside(self, at: float, kind: Kind, number: int, rest: list[Any]) -> None:
        if kind is Kind.BEGAN:
            what, name, about, *_ = [*rest, None, None, None]
            text = " ".join(filter(None, [text_of(what), text_of(name)]))
            began = self.items.add(Lane.OUTSIDE, at, text_of(what) or "outside", str(number), text=text, until=None)
            self.items.detail(began, "asked", about)
            self._calls[number] = began
            return
        call: JsonObject | None = self._calls.get(number)
        if call is None:
            return
        value = rest[0] if rest else None
        match kind:
            case Kind.OPENED:
                call["opened"] = at
            case Kind.ITEM | Kind.HANDED:
                call.setdefault("first", at)
                call["received"] = int(call.get("received", 0)) + 1
            case Kind.SENT:
                call["sent"] = int(call.get("sent", 0)) + _frames_of(value)
            case Kind.DONE:
                call |= {"until": at, "outcome": Outcome.OK.value}
                self.items.detail(call, "answer", value)
            case Kind.FAILED:
                call |= {"until": at, "outcome": Outcome.FAILED.value, "reason": self.items.text(error_of(value))}
            case Kind.LEFT | Kind.CLOSED if call.get("until") is None:
                call |= {"until": at, "outcome": "left"}
                self._explain(call)
            case _:
                pass

    # --- notes

    def _note(self, at: float, what: str, values: JsonObject) -> None:
        match what:
            case Note.BEGAN:
                self._began(at, values)
            case Note.ENDED:
                self._ended(at, values)
            case Note.CANCELLED:
                scope, reason = text_of(values.get("scope")), self.items.text(values.get("reason"))
                self._cancelled(at, scope, reason, text_of(values.get("turn_id")))
            case Note.TOLD:
                self._told(at, values)
            case Note.HAPPENED:
                name = text_of(values.get("what"))
                self.happened[name] = self.happened.get(name, 0) + 1
                if name == Happening.BARGE_IN:
                    self.conversation.barged_in(at)
                is_bad = name not in (Happening.BARGE_IN, Happening.IDLE_RESPONSE_END)
                self.items.add(Lane.EVENTS, at, "trouble" if is_bad else "happening", text=name.replace("_", " "))
            case _:
                pass

    def _began(self, at: float, values: JsonObject) -> None:
        kind, name, text = text_of(values.get("kind")), text_of(values.get("id")), text_of(values.get("name"))
        lane = SPAN_LANES.get(kind)
        if lane is None:
            return
        is_tool = lane is Lane.TOOLS
        span = self.conversation.tool(at, name, text) if is_tool else self.items.add(lane, at, kind, name, text=text)
        span |= {"until": None, "turn": text_of(values.get("turn_id")) or span.get("turn", "")}
        self._spans[kind, name] = span

    def _ended(self, at: float, values: JsonObject) -> None:
        kind = text_of(values.get("kind"))
        span = self._spans.pop((kind, text_of(values.get("id"))), None)
        if span is None:
            return
        span |= {"until": at, "outcome": text_of(values.get("outcome"))}
        if span["outcome"] == Outcome.CANCELLED:
            self._explain(span)
        if kind == SpanKind.LEG and span.get("text") == "planning":
            self.conversation.planning_over(at, span)

    def _cancelled(self, at: float, scope: str, reason: str, turn_id: str) -> JsonObject:
        item = self.items.add(Lane.CANCELS, at, "cancelled", text=reason, scope=scope, reason=reason, turn=turn_id)
        link(item, self.items.find(Lane.TURNS, turn_id))
        return item

    def _explain(self, item: JsonObject) -> None:
        """Why it was cancelled: what was cancelled last while it ran, of its turn before anything else's. What belongs to no turn, such
        as a call, may have been any turn's that was cancelled in this moment."""
        turn_id: str = item.get("turn", "")
        explained: JsonObject | None = None
        for cancel in islice(reversed(self.items.lanes[Lane.CANCELS]), MOST_BEFORE):
            if cancel["at"] < item["at"] - SAME_MOMENT:
                break
            if not cancel["reason"]:
                continue
            if turn_id and cancel["turn"] == turn_id:
                explained = cancel
                break
            is_anybodys = not cancel["turn"] or (not turn_id and cancel["at"] >= self.now - SAME_MOMENT)
            if explained is None and is_anybodys:
                explained = cancel
        if explained is not None:
            item["reason"] = explained["reason"]
            link(item, explained)

    def _explain_taken_back(self, cancel: JsonObject, before: Sequence[JsonObject]) -> None:
        """Nobody cut in: what was cancelled last in the same moment says why."""
        for other in reversed(before):
            if other["kind"] != "taken-back" and cancel["at"] - other["at"] <= SAME_MOMENT:
                cancel["reason"] = other["reason"]
                link(cancel, other)
                return

    def _told(self, at: float, values: JsonObject) -> None:
        if len(self.told) >= MOST_TOLD:
            self.items.left_out["told"] = self.items.left_out.get("told", 0) + 1
            return
        what = text_of(values.get("what"))
        item: JsonObject = {
            "id": f"told:{len(self.told) + 1}",
            "at": round(at, MILLISECOND),
            "what": what,
            "text": self.items.text(values.get("text"), MOST_TOLD_TEXT),
        }
        for name, member in (
            ("turn_id", "turn"), ("response_id", "response"), ("pass_id", "pass"), ("id", "instruction"),
            ("type", "type"), ("name", "name"), ("call_id", "call"),
        ):  # fmt: skip
            if text := self.items.text(values.get(name)):
                item[member] = text
        if "heard_ms" in values:
            item["heardMs"] = round(number_of(values["heard_ms"]))
        item |= {name: True for name in ("is_error", "interrupted", "late", "ends_session") if values.get(name) is True}
        self.told.append(item)
        if what == "instruction":
            whisper = self.conversation.whisper_told(at, item)
            item["whisper"] = whisper["id"]
        elif call := item.get("call"):
            item["tool"] = f"{Lane.TOOLS.value}:{call}"

    # --- the document

    def finished(self, *, is_whole: bool) -> JsonObject:
        cancels = self.items.lanes[Lane.CANCELS]
        for number, cancel in enumerate(cancels):
            if cancel["kind"] == "taken-back" and not cancel["reason"]:
                self._explain_taken_back(cancel, cancels[max(0, number - MOST_BEFORE) : number])
        self.conversation.finish(self.now)
        self._complete_turns()
        for whisper in self.items.lanes[Lane.WHISPERS]:
            self._explain_whisper(whisper)
        return {
            "version": VERSION,
            "about": self._about(),
            "length": round(self.now, MILLISECOND),
            "end": self._end(is_whole=is_whole),
            "summary": self._summary(),
            "lanes": {lane.value: self.items.shown(lane) for lane in Lane},
            "loudness": {"binSeconds": BIN_SECONDS, "runs": list(self.conversation.loudness.shown())},
            "told": self.told,
            "responses": self.conversation.responses_shown(),
            "leftOut": {**self.items.left_out, **({"texts": self.items.room.cut} if self.items.room.cut else {})},
        }

    def _complete_turns(self) -> None:
        """Turns nobody noted, from what the client was told of them; and why each ended."""
        for turn_id, turn in self.conversation.turns.items():
            span = self.items.find(Lane.TURNS, turn_id)
            if span is None:
                span = self.items.add(Lane.TURNS, turn.at, "turn", turn_id, turn=turn_id, until=turn.exit_at)
            if turn.text:
                span["text"] = turn.text
            if not span.get("reason") and turn.why:
                span["reason"] = turn.why
            if turn.latency is not None:
                span["latency"] = turn.latency
            for response_id in turn.responses:
                link(span, self.items.find(Lane.AGENT, response_id))
        for lane in (Lane.USER, Lane.LEGS, Lane.PASSES, Lane.WHISPERS, Lane.TOOLS):
            for item in self.items.lanes[lane]:
                link(item, self.items.find(Lane.TURNS, item.get("turn", "")))

    def _explain_whisper(self, whisper: JsonObject) -> None:
        """From which pass, and which response spoke it. Without a word of the engine it was the first that began behind it."""
        planned = self.items.find(Lane.PASSES, f"{whisper.get('turn', '')}/{whisper.get('pass', '')}")
        link(whisper, planned or self.items.find(Lane.LEGS, f"{whisper.get('turn', '')} planning"))
        if not whisper.get("response") and not whisper.get("outcome") and "told" in whisper:
            following = self.conversation.response_after(whisper["told"])
            if following is not None:
                whisper |= {"response": following, "guessed": True}
        link(whisper, self.items.find(Lane.AGENT, whisper.get("response", "")))
        began = self.conversation.response_began(whisper.get("response", ""))
        if began is not None and whisper.get("outcome") in (None, "", "spoken", "used"):
            whisper["until"] = max(began, whisper["at"])

    def _about(self) -> JsonObject:
        configuration = members(self.head.get("configuration"))
        about: JsonObject = {
            "agent": self.items.text(configuration.get("key"), 200),
            "sessionId": self.conversation.session_id or self.items.text(configuration.get("session_id"), 200),
            "began": self.items.text(self.head.get("began"), 64),
            "mode": self.items.text(self.head.get("mode"), 64),
            "redacted": self.head.get("redacted") is True,
            "versions": shown(members(self.head.get("versions"))),
        }
        for name in ("wire", "input_encoding", "output_encoding", "time_zone"):
            if text := self.items.text(configuration.get(name), 64):
                about[name] = text
        return about

    def _end(self, *, is_whole: bool) -> JsonObject:
        if self.full:
            return {"state": "full", "why": self.full, **self.end}
        if not is_whole:
            why = "the file ends before its session did: the server or the disk stopped, or it is still being written"
            return {"state": "cut", "why": why, **self.end}
        return {"state": "whole", "why": "", **self.end}

    def _summary(self) -> JsonObject:
        items = self.items.lanes

        def count(lane: Lane, key: str, value: str) -> int:
            return sum(1 for item in items[lane] if item.get(key) == value)

        latencies = sorted(turn.latency for turn in self.conversation.turns.values() if turn.latency is not None)
        taken_back = count(Lane.CANCELS, "kind", "taken-back")
        return {
            "turns": len(items[Lane.TURNS]),
            "responses": len(self.conversation.responses),
            "bargeIns": self.happened.get(Happening.BARGE_IN.value, 0) or taken_back,
            "answered": len(latencies),
            "latencyP50": latencies[(len(latencies) - 1) // 2] if latencies else None,
            "latencyMax": latencies[-1] if latencies else None,
            "passes": len(items[Lane.PASSES]) or count(Lane.LEGS, "text", "planning"),
            "whispers": len(items[Lane.WHISPERS]),
            "tools": len(items[Lane.TOOLS]),
            "errors": count(Lane.EVENTS, "kind", "error"),
            "cancellations": len(items[Lane.CANCELS]) - taken_back,
            "userSeconds": round(self.conversation.loudness.seconds, 1),
            "agentSeconds": round(sum(each.sent for each in self.conversation.sounding.spoken.values()), 1),
        }


def _frames_of(sent: object) -> int:
    """See `engine.capsule.outgoing`."""
    run = cast("list[object]", sent) if isinstance(sent, list) else []
    frames = run[1] if len(run) > 1 else 1
    return frames if isinstance(frames, int) else 1
