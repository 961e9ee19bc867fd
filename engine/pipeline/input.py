"""The client's side of the line: what it sends, made fit for the model (SPEC L10).

Audio is decoded and resampled, then everything passes the element filters and the action mapping, in the order it came.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
import trio

from engine.config import Settings
from engine.elements import (
    Action,
    BadInput,
    Commit,
    ControlToken,
    Image,
    InputAudio,
    InputElement,
    InputText,
    OutError,
    Playback,
    RealtimeInstruction,
    Sensory,
    Transcript,
    UserSpeech,
)
from engine.errors import ErrorCode, RemoteError, Whose
from engine.interfaces import ActionMapper, Context, ElementFilter, RecognizerInput, SessionInput
from engine.pipeline.driver import ConversationDriver
from engine.pipeline.line import ClientLine
from engine.protocol.audio import SampleCarry, mulaw_decode
from engine.protocol.resample import Resampler
from engine.protocol.transcripts import INTERIM_TEXT
from engine.protocol.turn_record import TYPED

logger = logging.getLogger(__name__)

INTRO = "intro"
RATING = "rating"
LOCALE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,4}")
MAX_LOCALES = 20
ACTION_SECONDS = 5.0
"""The longest an action may take to be understood: so long the client's further input waits."""
AUTHORIZATION_SECONDS = 5.0
"""The longest new credentials may take to be checked: so long the client's further input waits."""
KEPT_IMAGES = 4
"""Images kept on the context: the newest."""

SaveRating = Callable[[int, str], None]
Authorize = Callable[[str], Awaitable[None]]
"""Takes the value of an `Authorization` header for the session; raises RemoteError when it does not hold."""
TakeInput = Callable[[], Awaitable[InputElement]]
"""The next element of this session; raises EndOfChannel when its input has ended."""


@attrs.define(eq=False)
class SessionInputs:
    """Works through one session's input. `run` ends with the input, however it ends."""

    context: Context
    settings: Settings
    line: ClientLine
    turns: ConversationDriver
    model_inputs: trio.MemorySendChannel[SessionInput]
    recognizer_audio: trio.MemorySendChannel[RecognizerInput] | None
    """None: the model does its own recognition and gets the audio untouched (M3)."""
    sample_rate: int
    """Hz, of the audio the recognizer or the model wants."""
    take_audio: Callable[[InputAudio], bool]
    """The model's, see `RealtimeSession`."""
    save_rating: SaveRating
    authorize: Authorize
    deaf: str = ""
    """Why audio cannot be taken in; empty when it can."""
    filters: Sequence[ElementFilter] = ()
    action_mappers: Mapping[str, ActionMapper] = attrs.field(factory=dict[str, ActionMapper])
    _carry: SampleCarry = attrs.field(factory=SampleCarry, init=False)
    _resampler: Resampler = attrs.field(init=False)
    _told_deaf: bool = attrs.field(default=False, init=False)
    _images: list[Image] = attrs.field(factory=list[Image], init=False)

    def __attrs_post_init__(self) -> None:
        self._resampler = Resampler(self.context.configuration.input_sample_rate, self.sample_rate)

    async def run(self, take: TakeInput) -> None:
        """Take until the session's input ends."""
        if not self.filters:
            self.line.take_audio = self._take_audio
        try:
            await self._work(take)
            tail = self._resampler.flush()
            if tail:
                await self._send_audio(InputAudio(tail))
        except trio.BrokenResourceError:
            logger.debug("the model or the recognizer has gone; its own error says why")
        finally:
            self.line.take_audio = None

    async def _work(self, take: TakeInput) -> None:
        while True:
            try:
                element: InputElement | None = await take()
            except trio.EndOfChannel:
                break
            if isinstance(element, InputAudio):
                element = self._shape(element)
            for filter_ in self.filters:
                if element is None:
                    break
                element = await filter_(element, self.context)
            if element is not None:
                await self._take(element)

    def _take_audio(self, audio: InputAudio) -> bool:
        """Work off audio in the task of the door, while this one has nothing in hand. False when that cannot be done now."""
        channel = self.recognizer_audio or self.model_inputs
        state = channel.statistics()
        if self.deaf or state.current_buffer_used >= state.max_buffer_size or not state.open_receive_channels:
            return False
        shaped = self._shape(audio)
        if shaped is None:
            return True
        is_waited_for = self.recognizer_audio is None and state.tasks_waiting_receive > 0
        if not (is_waited_for and self.take_audio(shaped)):
            channel.send_nowait(shaped)
        return True

    def _shape(self, audio: InputAudio) -> InputAudio | None:
        data = audio.data
        pcm = mulaw_decode(data) if self.context.configuration.input_encoding == "mulaw" else self._carry.feed(data)
        if self.line.recorder is not None and pcm:
            rate = self.context.configuration.input_sample_rate
            self.line.recorder.user_audio(pcm, rate, trio.current_time())
        pcm = self._resampler.feed(pcm)
        return InputAudio(pcm) if pcm else None

    async def _send_audio(self, audio: InputAudio) -> None:
        if self.deaf:
            if not self._told_deaf:
                self._told_deaf = True
                self._refuse(ErrorCode.RECOGNITION_FAILED, self.deaf)
            return
        channel = self.recognizer_audio or self.model_inputs
        try:
            channel.send_nowait(audio)  # `send` would go round the scheduler once for every frame
        except trio.WouldBlock:
            await channel.send(audio)

    async def _take(self, element: InputElement) -> None:
        match element:
            case InputAudio():
                await self._send_audio(element)
            case InputText(text):
                await self._take_text(text)
            case Action(name, parameters):
                await self._take_action(name, parameters)
            case Commit():
                if self.recognizer_audio is not None:
                    await self.recognizer_audio.send(element)
                else:
                    await self.model_inputs.send(element)
            case Playback(response_id, played_ms):
                self.turns.playback(response_id, played_ms)
            case Sensory(data):
                self.context.sensory = data
                await self.model_inputs.send(element)
            case Image():
                self._images = [*self._images, element][-KEPT_IMAGES:]
                self.context.images = tuple(self._images)
                await self.model_inputs.send(element)
            case BadInput(code, message):
                self._refuse(code, message)
            case ControlToken("locales", value):
                self._replace_locales(value)
            case ControlToken("authorization", value):
                await self._replace_authorization(value)
            case ControlToken(name):
                self._refuse(ErrorCode.BAD_ELEMENT, f"The token #{name} has no place inside a session.")

    async def _replace_authorization(self, value: str) -> None:
        """Until the session's end (L4). The session's owner stays who it is, and invalid credentials change nothing."""
        try:
            with trio.move_on_after(AUTHORIZATION_SECONDS) as limit:
                await self.authorize(value)
        except RemoteError as error:
            self._refuse(error.code, f"{error.message} The session keeps the credentials it has.")
            return
        if limit.cancelled_caught:
            self._refuse(
                ErrorCode.UNAUTHORIZED, "These credentials could not be checked in time; the session keeps its own."
            )

    def _replace_locales(self, value: str) -> None:
        """Until the session's end (L4); the prompt was rendered with the old ones."""
        locales = tuple(locale.strip() for locale in value.split(","))
        if len(locales) > MAX_LOCALES or not all(LOCALE.fullmatch(locale) for locale in locales):
            self._refuse(ErrorCode.BAD_ELEMENT, "#locales: takes language tags with commas between, such as cs,en-GB.")
            return
        self.context.configuration = attrs.evolve(self.context.configuration, locales=locales)

    async def _take_text(self, text: str) -> None:
        """A typed utterance: a barge-in like any other, then words to answer (M4)."""
        if not text.strip():
            return
        if len(text) > self.settings.text_characters:
            limit = self.settings.text_characters
            self._refuse(ErrorCode.TOO_LARGE, f"A text may have up to {limit} characters; this one was left out.")
            return
        await self._speak_up(text, TYPED)
        await self.model_inputs.send(UserSpeech(text, TYPED))

    async def _take_action(self, name: str, parameters: Mapping[str, str]) -> None:
        if name == INTRO:
            await self._speak_up(f"#{name}", "")
            await self.model_inputs.send(Action(name, parameters))
        elif name == RATING:
            self._rate(parameters)
        elif name in self.action_mappers:
            await self._map_action(Action(name, parameters))
        else:
            self._refuse(ErrorCode.UNKNOWN_ACTION, f"There is no action #{name[:40]}; it was not passed on.")

    async def _map_action(self, action: Action) -> None:
        try:
            with trio.move_on_after(ACTION_SECONDS) as limit:
                meaning = await self.action_mappers[action.name](action, self.context)
                match meaning:
                    case InputText(text):
                        await self._take_text(text)
                    case RealtimeInstruction():
                        await self.turns.steer(meaning)
                    case None:
                        pass
        except RemoteError as error:
            self._refuse(error.code, error.message)
            return
        except Exception:
            logger.exception("the action #%s failed", action.name)
            self._refuse(ErrorCode.INTERNAL, f"The action #{action.name} failed.")
            return
        if limit.cancelled_caught:
            self._refuse(ErrorCode.INTERNAL, f"The action #{action.name} took too long.")

    async def _speak_up(self, text: str, provider: str) -> None:
        interim = Transcript(INTERIM_TEXT, is_interim=True, is_synthetic=True, provider=TYPED)
        interruption = self.turns.interrupt(interim)
        self.turns.expect_answer(text, provider)
        await self.model_inputs.send(interruption)

    def _rate(self, parameters: Mapping[str, str]) -> None:
        value = parameters.get("value", "")
        if value not in {"1", "2", "3", "4", "5"}:
            self._refuse(ErrorCode.BAD_ELEMENT, "A rating has a value from 1 to 5.")
            return
        self.save_rating(int(value), parameters.get("text", "")[:2000])

    def _refuse(self, code: ErrorCode, message: str) -> None:
        self.line.put_output(OutError(code, message, recoverable=True, whose=Whose.CLIENT))
