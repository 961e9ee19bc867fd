"""The service on one connection, without any connection: frames and the time go in, frames and their times come out."""

from collections.abc import Callable
from functools import partial
from typing import cast

import attrs
import orjson

from providers.openai.simulation import rules
from providers.openai.simulation.agenda import Timer
from providers.openai.simulation.checks import Json
from providers.openai.simulation.conversation import Conversation, Item, decode_base64, show
from providers.openai.simulation.faults import Chance, Faults
from providers.openai.simulation.hearing import APPEND_LIMIT, Hearing
from providers.openai.simulation.model import Model
from providers.openai.simulation.preview import Preview
from providers.openai.simulation.response import Response
from providers.openai.simulation.rules import Refused, Rule
from providers.openai.simulation.script import (
    Disconnect,
    Drop,
    ErrorEvent,
    Mishap,
    Script,
    Stall,
    Stray,
    Trouble,
    Utterance,
)
from providers.openai.simulation.settings import REALTIME, Settings
from providers.openai.simulation.shapes import APPEND, check_event
from providers.openai.simulation.sound import Voice, plain_voice
from providers.openai.simulation.wire import Closing, Frame, Outgoing, Wire

EXPIRED_CODE = 1001
ADMISSION_CODE = 4000
"""The close code behind an error that comes in place of `session.created`; seen for the beta header."""


@attrs.frozen
class Broken:
    """A rule that the client broke, and by what."""

    at: float
    rule: Rule
    detail: str
    event: Json | None = None
    """What it sent; None for what was no event."""
    refused: bool = True
    """The service answered with an error. It lets some things pass."""


@attrs.frozen
class Opening:
    """What a connection is opened with."""

    number: int = 0
    """Of the connection, from 0."""
    kind: str = REALTIME
    model: str = "gpt-realtime"
    azure: bool = False
    preview: bool = False
    """It speaks the older dialect."""
    expires_at: int = 0
    """Seconds since the epoch."""
    admission_error: Trouble | None = None


class RealtimeCore:
    """One session, from `session.created` to its end."""

    def __init__(
        self,
        script: Script,
        opening: Opening,
        *,
        faults: Faults | None = None,
        voice: Voice = plain_voice,
        keeps_audio: bool = True,
    ) -> None:
        self.broken: list[Broken] = []
        self.conversation = Conversation("")
        self._script = script
        self._opening = opening
        self._keeps_audio = keeps_audio
        self._wire = Wire(opening.number, Chance(faults, opening.number) if faults else None, azure=opening.azure)
        self.conversation.id = self._wire.new_id("conv")
        self.settings = Settings(
            opening.kind, self._wire.new_id("sess"), opening.model, opening.expires_at, azure=opening.azure
        )
        self._model = Model(
            self._wire,
            self.settings,
            self.conversation,
            script,
            voice=voice,
            keeps_audio=keeps_audio,
            created=self._response_created,
            done=self._response_done,
            mishap=self.happen,
        )
        self._hearing = Hearing(
            self._wire,
            self.settings,
            self.conversation,
            script,
            interrupt=self._model.interrupt,
            respond=self._respond,
            busy=lambda: self._model.is_busy,
            keeps_audio=keeps_audio,
        )
        self._dialect = Preview() if opening.preview else None
        self._updates = 0
        self._unanswered_updates = 0
        self._is_ready = False
        self._handlers: dict[str, Callable[[Json], None]] = {
            "session.update": self._update_session,
            APPEND: lambda event: self._hearing.append(event["audio"]),
            "input_audio_buffer.commit": lambda event: self._hearing.commit(),
            "input_audio_buffer.clear": lambda event: self._hearing.clear(),
            "conversation.item.create": self._create_item,
            "conversation.item.retrieve": self._retrieve_item,
            "conversation.item.truncate": self._truncate_item,
            "conversation.item.delete": self._delete_item,
            "response.create": lambda event: self._model.create(event.get("response", {}), by_client=True),
            "response.cancel": lambda event: self._model.cancel(event.get("response_id")),
            "output_audio_buffer.clear": self._clear_output,
        }

    # --- from outside

    def open(self, now: float) -> None:
        """The handshake is done."""
        self._wire.advance(now)
        trouble = self._opening.admission_error or self._script.admission_error
        if trouble is not None:
            self._wire.emit_error(trouble)
            self._wire.close(Drop.CLOSE, ADMISSION_CODE, f"{trouble.type}.{trouble.code}")
            return
        self._wire.emit("session.created", session=self.settings.session)
        self._wire.later(self._script.session_seconds, self.expire)

    def receive(self, frame: str | bytes, now: float) -> Json | None:
        """Take a message from the client; returns its event, if it is one."""
        self._wire.advance(now)
        if self._wire.closed:
            return None
        event: Json | None = None
        try:
            event = _parse(frame)
            self._check_readiness(event)
            meant = self._dialect.read(event) if self._dialect else event
            self._handlers[_type_of(meant)](meant)
        except Refused as refused:
            self._refuse(refused, event)
        return event

    def take(self, now: float) -> list[Outgoing]:
        """What the client is to be sent by now."""
        due = self._wire.take(now)
        return (
            due if self._dialect is None else [told for each in due if (told := _told(each, self._dialect)) is not None]
        )

    def next_at(self) -> float | None:
        """When there will be something to take; None when it takes the client to bring anything about."""
        return self._wire.next_at()

    @property
    def is_closed(self) -> bool:
        """The service has ended the session; what the client still sends is lost."""
        return self._wire.closed

    # --- what a script, or a test, makes happen

    def speak(self, utterance: Utterance, now: float | None = None) -> None:
        """The user says something."""
        self._advance(now)
        self._hearing.speak(utterance)

    def happen(self, mishap: Mishap, now: float | None = None) -> None:
        """Something goes wrong; `at` means nothing here."""
        self._advance(now)
        match mishap:
            case Stall():
                self._model.stall(mishap)
            case Disconnect():
                self._wire.disconnect(mishap)
            case ErrorEvent(trouble):
                self._wire.emit_error(trouble)
            case Stray(event):
                whole = {"event_id": self._wire.new_id("event"), **event}
                self._wire.put(str(event["type"]), lambda: orjson.dumps(whole).decode())

    def expire(self, now: float | None = None) -> None:
        """The session has hit its maximum duration."""
        self._advance(now)
        minutes = self._script.session_seconds / 60
        message = f"Your session hit the maximum duration of {minutes:g} minutes."
        if self._script.says_expired:
            self._wire.emit_error(Trouble("session_expired", message, rules.INVALID_REQUEST))
        self._wire.close(Drop.CLOSE, EXPIRED_CODE, message)

    def _advance(self, now: float | None) -> None:
        if now is not None:
            self._wire.advance(now)

    # --- rules

    def _refuse(self, refused: Refused, event: Json | None) -> None:
        event_id = event.get("event_id") if event is not None else None
        self._wire.emit_error(refused, event_id if isinstance(event_id, str) else None)
        self.broken.append(Broken(self._wire.now, refused.rule, refused.message, event))

    def _note(self, rule: Rule, detail: str, event: Json) -> None:
        """A rule is broken, and the service lets it pass."""
        self.broken.append(Broken(self._wire.now, rule, detail, event, refused=False))

    def _check_readiness(self, event: Json) -> None:
        if self._unanswered_updates and not self._is_ready and event.get("type") != "session.update":
            self._note(Rule.NOT_READY, f"{event.get('type')} before session.updated", event)

    # --- settings

    def _update_session(self, event: Json) -> None:
        number, self._updates = self._updates, self._updates + 1
        self._unanswered_updates += 1
        after = self._script.acknowledges_after
        if after is None:
            return
        if after:
            self._wire.later(after, lambda: self._acknowledge(event, number))
        else:
            self._acknowledge(event, number)

    def _acknowledge(self, event: Json, number: int) -> None:
        self._unanswered_updates -= 1
        failures = self._script.update_failures
        failure = failures[number] if number < len(failures) else None
        if failure is not None:
            self._wire.emit_error(failure, event.get("event_id"))
            return
        try:
            self.settings.update(event["session"], spoke=self._model.spoke, responding=self._model.is_busy)
        except Refused as refused:
            self._refuse(refused, event)
            return
        self._wire.emit("session.updated", session=self.settings.session)
        if not self._is_ready:
            self._is_ready = True
            self._begin_script()

    def _begin_script(self) -> None:
        """What has a time counts from here."""
        timed = [utterance for utterance in self._script.utterances if utterance.at is not None]
        for utterance in timed:
            self._say_again(utterance, self._wire.now + (utterance.at or 0.0))
        for mishap in self._script.happens:
            self._wire.later(mishap.at or 0.0, partial(self.happen, mishap))

    def _say_again(self, utterance: Utterance, at: float) -> Timer:
        return self._wire.at(at, lambda: self._say(utterance, at))

    def _say(self, utterance: Utterance, at: float) -> None:
        if self._script.repeat_seconds is not None:
            self._say_again(utterance, at + self._script.repeat_seconds)
        self._hearing.speak(utterance)

    # --- items

    def _create_item(self, event: Json) -> None:
        item: Json = event["item"]
        if item["type"] == "function_call_output":
            call_id: str = item["call_id"]
            if self.conversation.call(call_id) is None:
                raise rules.unknown_call(call_id)
            if not self._model.output_given(call_id):
                self._note(Rule.ANSWERED_TWICE, call_id, event)
            self._model.tell_behind_response(call_id, lambda: self._add_held(event))
        else:
            self._add(event)

    def _add_held(self, event: Json) -> None:
        try:
            self._add(event)
        except Refused as refused:
            self._refuse(refused, event)

    def _add(self, event: Json) -> None:
        given: Json = event["item"]
        added = self._made(given)
        previous = self.conversation.add(added, event.get("previous_item_id"))
        self._wire.emit("conversation.item.added", previous_item_id=previous, item=added.shown)
        self._wire.emit("conversation.item.done", previous_item_id=previous, item=added.shown)

    def _made(self, given: Json) -> Item:
        item_id = given.get("id") or self._wire.new_id("item")
        if given["type"] == "function_call":
            given = {**given, "call_id": given.get("call_id") or self._wire.new_id("call")}
        has_status = given["type"] in ("message", "function_call")
        item = Item(item_id, show(item_id, given, "completed" if has_status else None))
        for index, part in enumerate(given.get("content", ())):
            if part["type"] == "input_audio":
                self._take_audio(item, part["audio"], f"item.content[{index}].audio")
        return item

    def _take_audio(self, item: Item, audio: str, path: str) -> None:
        data = decode_base64(audio)
        item.format = self.settings.input_format
        if data is None or len(data) % item.format.sample_bytes or len(data) > APPEND_LIMIT:
            raise rules.wrong_value(path, f"Invalid '{path}'. Expected base64-encoded audio bytes.", Rule.AUDIO)
        item.audio_ms += item.format.ms(len(data))
        if self._keeps_audio:
            item.audio = (item.audio or bytearray()) + data

    def _retrieve_item(self, event: Json) -> None:
        item = self.conversation.find(event["item_id"], "retrieve")
        self._wire.emit("conversation.item.retrieved", item=item.retrieved())

    def _delete_item(self, event: Json) -> None:
        item = self.conversation.delete(event["item_id"])
        if item.shown["type"] == "function_call":
            self._model.forget_call(item.shown["call_id"])
        self._wire.emit("conversation.item.deleted", item_id=item.id)

    def _truncate_item(self, event: Json) -> None:
        """Too long a request is an error, and is then taken for what there is."""
        item = self.conversation.find(event["item_id"], "truncate")
        if not item.has_model_audio or event["content_index"] != 0:
            raise rules.cannot_truncate()
        asked_ms: int = event["audio_end_ms"]
        has_ms = max(0, int(item.audio_ms) - self._script.audio_shortfall_ms)
        if asked_ms > has_ms:
            self._refuse(rules.shorter_already(has_ms, asked_ms), event)
        end_ms = min(asked_ms, has_ms)
        item.audio_ms = float(end_ms)
        if item.audio is not None:
            del item.audio[end_ms * item.format.bytes_per_ms :]
        item.truncated = True
        if item.shown["content"]:
            item.shown["content"][0].pop("transcript", None)
        self._wire.emit(
            "conversation.item.truncated",
            item_id=item.id,
            content_index=event["content_index"],
            audio_end_ms=end_ms,
        )

    def _clear_output(self, event: Json) -> None:
        raise rules.only_on_calls(event["type"])

    # --- responses

    def _respond(self) -> None:
        """The service asks itself. X: when it cannot, the error names no event."""
        if self.settings.kind != REALTIME:
            return
        try:
            self._model.create({}, by_client=False)
        except Refused as refused:
            self._wire.emit_error(refused)

    def _response_created(self, response: Response) -> None:
        self._hearing.response_created()
        barge_in = response.reply.barge_in
        if barge_in is not None:
            self._wire.later(barge_in.at or 0.0, lambda: self._hearing.speak(barge_in))

    def _response_done(self, response: Response) -> None:
        self._hearing.response_done(response.audio_ms)


def _told(outgoing: Outgoing, dialect: Preview) -> Outgoing | None:
    """In the dialect; None when it has no such event."""
    if isinstance(outgoing, Closing):
        return outgoing
    event = dialect.write(orjson.loads(outgoing.text))
    return None if event is None else Frame(outgoing.at, str(event["type"]), orjson.dumps(event).decode())


def _parse(frame: str | bytes) -> Json:
    if isinstance(frame, bytes):
        raise rules.not_an_object("got a binary frame")
    try:
        event: object = orjson.loads(frame)
    except orjson.JSONDecodeError:
        raise rules.not_an_object("got no JSON") from None
    if not isinstance(event, dict):
        raise rules.not_an_object("got another value")
    return cast("Json", event)


def _type_of(event: Json) -> str:
    """Checks the event. Appends are most of all events, and are looked at first."""
    if event.get("type") == APPEND and len(event) == 2 and isinstance(event.get("audio"), str):
        return APPEND
    return check_event(event)
