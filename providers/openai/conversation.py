"""One conversation with the Realtime API, as rules: sans-I/O (SPEC P1, P2; protocol page, part 1).

`Conversation` takes the session's inputs, the provider's events and the time, and returns what to do, in order: frames for the
provider, elements for the engine, calls to start. It awaits nothing and knows no socket.

The laws it keeps:

- At most one response is asked for at a time. Whatever asks for speech while one is active waits in a queue and is asked for when
  that one is done: never lost, never doubled, never out of order (case C16).
- An answer has an id of the engine's, which the provider carries in the response's metadata, so that nothing has to be guessed
  about which response answers what. One the provider begins by itself, on its own turn detection, gets an id when it begins.
- What was interrupted says nothing more, however late it comes. Its audio is cut at the provider to what was heard (law 5).
- Every tool call gets exactly one output before the next response is asked for, as the service wants it (case C14).
- Finals leave in the order in which the user spoke (case C10).
- Without a connection nothing is lost that can be told to the next one; what was being said has failed.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

import attrs

from engine.elements import (
    Action,
    AnswerAgain,
    Commit,
    EmotionalState,
    Image,
    InputAudio,
    InstructionType,
    Interrupted,
    RealtimeCommand,
    RealtimeElement,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeakingState,
    SpeechItem,
    Token,
    Transcript,
    UserSpeech,
)
from engine.errors import ErrorCode, RealtimeException, Whose
from engine.interfaces import Message, SessionInput, TokenUsage, ToolCall, ToolSettled
from engine.protocol.audio import SAMPLE_BYTES
from engine.protocol.session_end import Ending, PlannedSessionEnd
from engine.texts import Sentence, say
from providers.openai import frames, history
from providers.openai.answers import MAX_ROUNDS, Answer, Call, remember
from providers.openai.asking import Asking, Request, Unasked
from providers.openai.events import (
    AudioDelta,
    Committed,
    Event,
    Fault,
    Item,
    ItemAdded,
    ItemDone,
    RateLimits,
    Response,
    ResponseCreated,
    ResponseDone,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    Used,
    WordsCompleted,
    WordsDelta,
    WordsFailed,
)
from providers.openai.faults import FATAL, NOTHING_COMMITTED, RATE_LIMITED, Weight, weigh
from providers.openai.microphone import Microphone
from providers.openai.properties import OpenAIProperties
from providers.openai.texts import APOLOGIZE, GO_ON, INTERRUPTED, STILL_RUNNING, text_of
from providers.openai.utterances import Utterances

logger = logging.getLogger(__name__)

MAX_APOLOGIES = 2
"""In a row without an answer that succeeded between them: then the engine waits for the user (case C31 b)."""
RATE_LIMIT_SECONDS = (1.0, 10.0)
"""The shortest and the longest wait before the next request, after one that was too much."""
TOLD_SECONDS = 0.25
"""The engine says at once what was heard of what the user cut; after that it will not."""
NEVER = float("inf")
HELD_NOTES = 64
"""Items that wait for a connection."""
KEPT_CONTEXTS = 5
"""Pieces of supporting context told to a new connection; older ones have had their time, as with the Internal provider (P8)."""
KEPT_IMAGES = 4
"""Images kept in the provider's conversation: they are large, and each answer pays for all of them."""
INSTRUCTION_HEADER = "Instruction:"


@attrs.frozen
class SendFrame:
    frame: str


@attrs.frozen
class Emit:
    element: RealtimeElement


@attrs.frozen
class StartCall:
    call: ToolCall


@attrs.frozen
class Fail:
    """The session cannot go on."""

    error: RealtimeException


Do = SendFrame | Emit | StartCall | Fail


@attrs.define(eq=False)
class Conversation:
    """See the module."""

    properties: OpenAIProperties
    new_id: Callable[[str], str]
    locale: str = "en"
    text_only: bool = False
    usage: TokenUsage = attrs.field(factory=TokenUsage)
    shielded: frozenset[str] = frozenset()
    """The tools that an interruption does not stop."""
    is_connected: bool = attrs.field(default=False, init=False)
    """The provider has acknowledged its configuration (M9)."""
    _do: list[Do] = attrs.field(factory=list[Do], init=False)
    _asking: Asking = attrs.field(factory=Asking, init=False)
    _open: list[Answer] = attrs.field(factory=list[Answer], init=False)
    """The answers that were asked for or have begun, and are not over."""
    _answers: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict[str, Answer], init=False)
    """By their own ids."""
    _begun: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict[str, Answer], init=False)
    """The same, in the order in which they began: so they are heard."""
    _responses: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict[str, Answer], init=False)
    """By the ids of the provider's responses."""
    _requests: OrderedDict[str, Request] = attrs.field(factory=OrderedDict[str, Request], init=False)
    """The request of each answer, by its id."""
    _calls: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict[str, Answer], init=False)
    """By call id."""
    _to_cut: list[Answer] = attrs.field(factory=list[Answer], init=False)
    """Those that are to be cut at the provider, when nothing is being said there."""
    _utterances: Utterances = attrs.field(init=False)
    _microphone: Microphone = attrs.field(init=False)
    _only_listens: bool = attrs.field(init=False)
    """The provider hears the user, and finds by itself when an utterance begins and ends."""
    _unasked: Unasked = attrs.field(factory=Unasked, init=False)
    _session_end: PlannedSessionEnd = attrs.field(factory=PlannedSessionEnd, init=False)
    _told_by: float = attrs.field(default=NEVER, init=False)
    """When the engine should have said what was heard of what the user has cut …"""
    _unshown: list[Answer] = attrs.field(factory=list[Answer], init=False)
    """… and what it would name, if it had shown anything of it."""
    _words_come: bool = attrs.field(default=False, init=False)
    """The engine hears the user: what was said comes as an input, and the engine drops whatever is said before."""
    _cut_speech: bool = attrs.field(default=False, init=False)
    """What the user said before is not answered, as they went on speaking."""
    _was_heard: bool = attrs.field(default=False, init=False)
    """Something of the answer that was cut last."""
    _held: deque[str] = attrs.field(factory=lambda: deque[str](maxlen=HELD_NOTES), init=False)
    _contexts: deque[str] = attrs.field(factory=lambda: deque[str](maxlen=KEPT_CONTEXTS), init=False)
    _images: deque[tuple[str, Image]] = attrs.field(factory=deque[tuple[str, Image]], init=False)
    _apologies: int = attrs.field(default=0, init=False)
    _reset_seconds: float = attrs.field(default=0.0, init=False)
    _told_transcription: bool = attrs.field(default=False, init=False)
    _input_ended: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._utterances = Utterances(self.properties.provider)
        self._microphone = Microphone(self.properties)
        self._only_listens = self.properties.hears and not self._microphone.is_push_to_talk

    # --- what happens

    def take(self, item: SessionInput, now: float) -> list[Do]:
        """An input of the session."""
        if isinstance(item, UserSpeech | AnswerAgain | Action):
            self._supersede_end()
            self._words_come = False
        match item:
            case InputAudio(pcm):
                if self.properties.hears:
                    self._take_audio(pcm, now)
            case UserSpeech(text, provider):
                echo = Transcript(text, provider=provider)
                self._ask(Request(self._new_answer(), echo, (frames.user_item(text),), is_said=True), now)
            case AnswerAgain() if self._will_answer_speech:
                pass  # the noise is answered by the provider, or its words are only late
            case AnswerAgain(text):
                told = (frames.system_item(GO_ON),) if self._was_heard else ()
                self._ask(Request(self._new_answer(), self._synthetic(text), told), now)
            case Action(name):
                told = (frames.user_item(f"#{name}"),)
                self._ask(Request(self._new_answer(), self._synthetic(f"#{name}"), told), now)
            case Interrupted():
                self._interrupt(item, now)
            case ToolSettled():
                self._settle(item, now)
            case Image():
                self._show(item)
            case Commit():
                self._commit(now)
            case _:
                pass  # sensory data reaches the prompt through the context
        return self._done()

    def append(self, pcm: bytes, now: float) -> str | None:
        """Audio of which nothing comes but the frame that is returned, as is nearly all; no deadline moves nearer, and nothing else
        is to be looked at again. None: it has to be taken as an input."""
        if not self._only_listens or not self.is_connected or self._microphone.is_in_a_gap:
            return None
        self._microphone.sent(now)
        return frames.audio_append(pcm)

    def instruct(self, instruction: RealtimeInstruction, now: float) -> list[Do]:
        """Context goes in silently; anything else is asked for when its turn comes."""
        if instruction.type.is_contextual:
            self._contexts.append(instruction.text)
            self._send(frames.system_item(instruction.text))
        else:
            self._session_end.instructed()
            self._words_come = False
            answer = self._new_answer(ends_session=instruction.ends_session)
            self._ask(Request(answer, frames=(frames.system_item(_as_told(instruction)),)), now)
        return self._done()

    def receive(self, event: Event, now: float) -> list[Do]:
        """An event of the provider."""
        match event:
            case AudioDelta():
                self._hear(event, now)
            case TextDelta():
                self._read(event, now)
            case ResponseCreated(response):
                self._begin(response, now)
            case ItemAdded(response_id, item):
                self._add_item(response_id, item)
            case ItemDone(response_id, item):
                self._end_item(response_id, item)
            case ResponseDone(response):
                self._end_response(response, now)
            case SpeechStarted(item_id):
                self._begin_to_speak(item_id, now)
            case SpeechStopped():
                self._stop_speaking()
            case Committed(item_id):
                self._take_utterance(item_id, now)
            case WordsDelta(item_id, text):
                partial = self._utterances.add_words(item_id, text)
                if partial is not None:
                    self._emit(partial)
            case WordsCompleted(item_id, text):
                self._utterances.finish(item_id, text)
                self._release(now)
            case WordsFailed():
                self._fail_transcription(event, now)
            case RateLimits(reset_seconds):
                self._reset_seconds = reset_seconds
            case Fault():
                self._take_fault(event, now)
            case _:
                pass  # what the session is told
        return self._done()

    def tick(self, now: float) -> list[Do]:
        """The deadline has come."""
        overdue = self._asking.tick(now)
        if overdue:
            self._cancel(overdue)
        if now >= self._told_by:
            self._forget(self._unshown)
        self._cut_history()
        self._unasked.tick(now)
        self._ask_unasked(now)
        self._utterances.tick(now)
        self._release(now)
        silence = self._microphone.tick(now)
        if silence:
            self._send(frames.audio_append(silence))
        self._ask_next(now)
        return self._done()

    def input_ended(self, now: float) -> list[Do]:
        """No input will follow, so no tool result either: an answer that waits for one ends."""
        self._input_ended = True
        self._advance(now)
        return self._done()

    def lost(self, now: float, *, is_told: bool) -> list[Do]:
        """The connection is gone, and with it the provider's conversation. What was being said has failed, and the user is asked to
        say again what was not understood; what had not begun is asked for again. `is_told`: the client hears of it."""
        is_hurt = self._lose_answers(now) or self._microphone.is_speaking or self._unasked.is_expected
        self.is_connected = False
        self._stop_speaking()
        self._microphone.lost()
        self._unshown, self._told_by = [], NEVER
        self._utterances.settle(all_of_them=True)
        self._release(now)
        self._responses.clear()
        self._to_cut.clear()
        self._unasked.drop()
        for answer in self._answers.values():
            answer.items.clear()
            for call in answer.calls.values():
                call.is_told = True
        if is_told:
            self._emit_error(Sentence.CONNECTION_LOST)
        if is_hurt:
            self._apologize(None)
        return self._done()

    def connected(self, messages: Sequence[Message], now: float, summary: str = "") -> list[Do]:
        """A connection is ready. It is told the end of the conversation so far and what was held, and asked for what waits."""
        self.is_connected = True
        for frame in history.retold(messages, summary):
            self._send(frame)
        for context in self._contexts:
            self._send(frames.system_item(context))
        for item_id, image in self._images:
            self._send(frames.image_item(image, item_id))
        while self._held:
            self._send(self._held.popleft())
        for frame in self._microphone.connected(now):
            self._send(frame)
        self._ask_next(now)
        return self._done()

    def deadline(self, now: float) -> float | None:
        """When `tick` has to be called if nothing happens before."""
        times = [self._utterances.deadline]
        if self.is_connected:
            told_by = None if self._told_by == NEVER else self._told_by
            times += [self._asking.deadline(now), self._unasked.deadline, self._microphone.deadline, told_by]
        return min((time for time in times if time is not None), default=None)

    @property
    def is_pressed(self) -> bool:
        """Push-to-talk: an utterance is under way."""
        return self._microphone.is_push_to_talk and self._microphone.is_speaking

    @property
    def is_quiet(self) -> bool:
        """Nobody is speaking, and nothing is owed or waited for."""
        return not self._owes and self._utterances.is_empty

    @property
    def is_done(self) -> bool:
        """The input has ended and every answer owed was given."""
        return self._input_ended and not self._owes

    @property
    def _will_answer_speech(self) -> bool:
        is_said = self._unasked.is_expected or self._unasked.is_owed or not self._utterances.is_empty
        return self.properties.hears and (is_said or bool(self._open))

    @property
    def _owes(self) -> bool:
        return bool(self._open or self._microphone.is_speaking or self._unasked.is_expected) or not self._asking.is_idle

    # --- the user

    def _take_audio(self, pcm: bytes, now: float) -> None:
        if self._microphone.presses(pcm):  # nobody else will say that the user speaks
            self._begin_to_speak(None, now)
        if self.is_connected:
            self._microphone.sent(now)
            self._send(frames.audio_append(pcm))
        else:
            self._microphone.hold(pcm)

    def _begin_to_speak(self, item_id: str | None, now: float) -> None:
        """A barge-in, at once; how much was heard of what it cuts is told by the engine, if it had begun."""
        self._microphone.begin(now)
        self._unasked.drop()
        self._supersede_end()
        self._emit(EmotionalState(SpeakingState.USER_SPEAKING))
        self._emit(Transcript(".", is_interim=True, provider=self.properties.provider))
        self._utterances.begin(item_id)
        cut = self._cut_off(now, by_provider=not self._microphone.is_push_to_talk)
        unshown = [answer for answer in cut if not answer.is_shown]
        requests = [self._requests.get(answer.id) for answer in unshown]
        self._cut_speech = any(request is not None and request.answers_speech for request in requests)
        for answer in unshown:
            self._leave_of(answer, 0.0, "")
        self._cut_history()
        self._unshown = [*self._unshown, *self._in_doubt(cut, now)]
        self._told_by = now + TOLD_SECONDS if self._unshown else NEVER
        self._release(now)

    def _supersede_end(self) -> None:
        """The user says something new, maybe while planning was to say whether the session ends."""
        if self._session_end.supersede():
            self._tell(frames.system_item(say(Sentence.END_SUPERSEDED, self.locale)))

    def _stop_speaking(self) -> None:
        if self._microphone.is_speaking:
            self._microphone.end()
            self._emit(EmotionalState(SpeakingState.USER_NOT_SPEAKING))

    def _commit(self, now: float) -> None:
        """The client says that the utterance is complete. Where the provider finds the end, it is only told to look no further."""
        if not self.properties.hears or not self._microphone.is_speaking:
            return
        if not self._microphone.is_push_to_talk:
            self._send(frames.audio_commit())
            return
        is_enough = self._microphone.is_enough
        self._stop_speaking()
        if not is_enough:
            self._send(frames.audio_clear())
            self._microphone.drop()
            self._utterances.take_back()
            if self._cut_speech:
                self._ask(Request(self._new_answer(), answers_speech=True), now)
            return
        if self.is_connected:
            self._send(frames.audio_commit())
        else:
            self._microphone.hold_commit()
        self._utterances.complete()
        self._ask(Request(self._new_answer(), answers_speech=True), now)

    def _take_utterance(self, item_id: str, now: float) -> None:
        if not self._utterances.commit(item_id) or self._microphone.is_push_to_talk:
            return
        if self._microphone.is_speaking:  # by the client's commit: the provider answers only what it ends by itself
            self._stop_speaking()
            self._ask(Request(self._new_answer(), answers_speech=True), now)
        else:
            self._unasked.expect(now)

    def _fail_transcription(self, event: WordsFailed, now: float) -> None:
        logger.warning("an utterance could not be transcribed: %s", event.code or "no reason given")
        if event.code == "DeploymentNotFound" and not self._told_transcription:
            self._told_transcription = True
            self._emit_error(Sentence.NO_TRANSCRIPTION, ErrorCode.RECOGNITION_FAILED)
        self._utterances.finish(event.item_id, "")
        self._release(now)

    def _release(self, now: float) -> None:
        if self._told_by != NEVER:
            return  # whether the user went on speaking or answered something is about to be known
        for said in self._utterances.release(now):
            if said.transcript is not None:
                self._emit(said.transcript)
            if said.answer is not None and said.answer.held_end is not None:
                self._emit_end(said.answer, said.answer.held_end)
                said.answer.held_end = None

    def _show(self, image: Image) -> None:
        self._images.append((self.new_id("image")[: frames.MAX_ID], image))
        self._send(frames.image_item(image, self._images[-1][0]))
        if len(self._images) > KEPT_IMAGES:
            self._send(frames.item_delete(self._images.popleft()[0]))

    # --- asking

    def _new_answer(self, *, ends_session: bool = False) -> Answer:
        answer = Answer(self.new_id("response"), Ending(ends_session))
        remember(self._answers, answer.id, answer)
        return answer

    def _synthetic(self, text: str) -> Transcript:
        return Transcript(text, is_synthetic=True, provider=self.properties.provider)

    def _ask(self, request: Request, now: float) -> None:
        is_next = not self._open and self._asking.is_empty
        if self._asking.put(request):
            remember(self._requests, request.answer.id, request)
            if is_next:
                self._echo(request)  # nothing more is said before it, though something may be ending
        else:
            logger.warning("too many requests wait for an answer; one more was left out")
            text = say(Sentence.TOO_MUCH_WAITS, self.locale)
            self._emit(RealtimeError(ErrorCode.TOO_BUSY, text, whose=Whose.CLIENT))
            if request.is_said:
                self._say_unanswered(request)
        self._ask_next(now)

    def _put_first(self, request: Request) -> None:
        remember(self._requests, request.answer.id, request)
        self._asking.put_first(request)

    def _echo(self, request: Request) -> None:
        """The answer opens: with the input's echo, if it answers one."""
        if request.answer not in self._open:
            self._open.append(request.answer)
        if request.echo is not None and not request.is_echoed:
            request.is_echoed = request.answer.is_announced = True
            self._utterances.overtake()
            self._emit(attrs.evolve(request.echo, response_id=request.answer.id))

    def _ask_next(self, now: float) -> None:
        """Ask for the next answer, if nothing is being said, asked for or worked at."""
        if not self.is_connected:
            return
        is_held = self._hears_by_itself and (self._microphone.is_speaking or self._unasked.is_expected)
        request = self._asking.next(self._open, now, inputs_only=is_held)
        if request is None:
            return
        self._close_calls()
        if not request.is_told:
            request.is_told = True
            for frame in request.frames:
                self._send(frame)
        self._echo(request)
        self._was_heard = False
        request.event_id = self.new_id("event")[: frames.MAX_ID]
        self._send(frames.response_create(request.event_id, request.answer.id))

    def _close_calls(self) -> None:
        """The service answers nothing while a call of an earlier response is open: one that still runs gets a word about that."""
        for call_id, answer in self._calls.items():
            call = answer.calls[call_id]
            if not call.is_told:
                call.is_told = True
                self._send(frames.call_output_item(call_id, INTERRUPTED if call.is_settled else STILL_RUNNING))

    # --- the provider's responses

    def _begin(self, response: Response, now: float) -> None:
        request = self._asking.begun(response.id, response.answer_id)
        answer = request.answer if request is not None else self._answers.get(response.answer_id)
        is_unasked = answer is None
        if answer is None:
            answer = self._new_answer()
            answer.is_over = self._microphone.is_speaking or not self._unasked.begin()  # cut before it began
            for other in self._asking.forget_speech():
                other.is_over = True
                self._open = [each for each in self._open if each is not other]
        remember(self._responses, response.id, answer)
        if is_unasked or (request is not None and request.answers_speech):
            self._utterances.answer_by(answer)
            self._unasked.drop()
        if answer.is_over:
            answer.heard = answer.heard or (0.0, "")
            self._asking.cut_at_once(now)
            self._cancel(response.id)
            return
        if answer not in self._open:
            self._open.append(answer)
        answer.is_pending = True
        answer.has_spoken = answer.has_called = False
        remember(self._begun, answer.id, answer)

    def _cancel(self, response_id: str) -> None:
        self._asking.was_cancelled = True
        self._send(frames.response_cancel(response_id))

    def _of(self, response_id: str) -> Answer | None:
        """The answer a response belongs to, unless nothing of it may follow."""
        answer = self._responses.get(response_id)
        return None if answer is None or answer.is_over else answer

    def _read(self, delta: TextDelta, now: float) -> None:
        answer = self._of(delta.response_id)
        if answer is not None and delta.text:
            answer.is_shown = answer.has_spoken = True
            answer.item(delta.item_id).text += delta.text
            answer.came_at = now
            self._break_line(answer)
            self._emit(Token(delta.text, answer.id))

    def _break_line(self, answer: Answer) -> None:
        """A message and what follows it are no one sentence; and while a tool runs nothing else would say that it is complete."""
        if answer.is_broken:
            answer.is_broken = False
            self._emit(Token("\n", answer.id))

    def _hear(self, delta: AudioDelta, now: float) -> None:
        answer = self._of(delta.response_id)
        if answer is None or not delta.pcm:
            return
        answer.is_shown = answer.has_spoken = True
        answer.came_at = now
        answer.sounds_from = now if answer.sounds_from is None else answer.sounds_from
        rate = self.properties.sample_rate
        answer.item(delta.item_id).received_ms += len(delta.pcm) / SAMPLE_BYTES * 1000 / rate
        self._emit(SpeechItem(delta.pcm, rate, answer.id, provider=self.properties.provider))

    def _add_item(self, response_id: str, item: Item) -> None:
        answer = self._responses.get(response_id)
        if answer is not None and item.type == "message":
            answer.item(item.id)

    def _end_item(self, response_id: str, item: Item) -> None:
        answer = self._responses.get(response_id)
        if answer is None:
            return
        if item.type == "message":
            for spoken in answer.items:  # it is not there any more if it was cut and left behind
                if spoken.item_id == item.id:
                    spoken.is_open = False
                    answer.is_broken = bool(spoken.text)
        elif item.type == "function_call" and item.status != "incomplete" and item.call_id:
            self._call(answer, item)

    def _call(self, answer: Answer, item: Item) -> None:
        """A call that is complete. What was cut in its arguments is none."""
        if item.call_id in self._calls:
            return
        call = Call(item.call_id, item.name)
        answer.calls[item.call_id] = call
        remember(self._calls, item.call_id, answer)
        if answer.is_over:
            call.is_settled = True  # nobody will run it; it gets its output before the next request
            return
        answer.is_shown = answer.has_called = True
        self._break_line(answer)
        self._do.append(StartCall(ToolCall(item.call_id, item.name, item.arguments, answer.id)))

    def _end_response(self, response: Response, now: float) -> None:
        self._count(response.used)
        self._asking.done(response.id)
        answer = self._responses.get(response.id)
        if answer is None:
            pass
        elif not answer.is_over:
            answer.is_pending = False
            self._after(answer, response, now)
        elif answer.heard is not None:
            self._to_cut.append(answer)  # it may have grown since
        self._cut_history()
        self._ask_unasked(now)
        self._advance(now)

    def _ask_unasked(self, now: float) -> None:
        """Ask for the answer that the provider did not give by itself."""
        if self._unasked.is_owed and not self._asking.active:
            self._unasked.drop()
            self._ask(Request(self._new_answer(), answers_speech=True), now)

    def _after(self, answer: Answer, response: Response, now: float) -> None:
        match response.status:
            case "cancelled":
                self._finish(answer, ResponseStatus.CANCELLED, now)
            case "incomplete":
                self._finish(answer, ResponseStatus.INCOMPLETE, now)
            case "failed":
                logger.warning("a response failed: %s", response.error_code or "no reason given")
                self._recover(response.error_code, answer, now)
            case _ if not answer.is_apology:
                self._apologies = 0
            case _:
                pass

    def _advance(self, now: float) -> None:
        """Go on where a response is done and none of its calls runs."""
        for answer in list(self._open):
            if not answer.is_pending and (not answer.has_open_calls or self._input_ended):
                self._go_on(answer, now)
        self._ask_next(now)

    def _go_on(self, answer: Answer, now: float) -> None:
        """The answer is complete, or the model is asked again with what the tools gave."""
        if answer.was_stopped:
            self._finish(answer, ResponseStatus.CANCELLED, now)
        elif not answer.has_called or self._input_ended or answer.ending.is_said(has_spoken=answer.has_spoken):
            self._finish(answer, ResponseStatus.COMPLETED, now)
        elif answer.rounds >= MAX_ROUNDS:
            logger.warning("the model called tools in %d responses for one answer; it is not asked again", MAX_ROUNDS)
            self._emit_error(Sentence.ENDLESS_TOOLS)
            self._finish(answer, ResponseStatus.INCOMPLETE, now)
        else:
            answer.rounds += 1
            answer.is_pending = True
            answer.ending.asked_again()
            self._put_first(Request(answer, is_continuation=True))

    def _finish(self, answer: Answer, status: ResponseStatus, now: float) -> None:
        """End an answer. A silent one ends behind the words that it answers: before them nobody knows of it."""
        answer.is_over = True
        self._open.remove(answer)
        self._asking.forget(answer)
        if not answer.is_shown and self._utterances.waits_for(answer):
            answer.held_end = status
        else:
            self._emit_end(answer, status)
        self._release(now)

    def _emit_end(self, answer: Answer, status: ResponseStatus) -> None:
        if answer.ending.ends_session and status is not ResponseStatus.CANCELLED:
            self._emit(RealtimeCommand("sessionShouldEnd", response_id=answer.id))
        self._emit(ResponseEnd(answer.id, status))

    def _count(self, used: Used | None) -> None:
        """Per response, cancelled and failed ones too (case C46)."""
        if used is not None:
            self.usage.input += used.input
            self.usage.output += used.output
            self.usage.cached += used.cached

    # --- tools

    def _settle(self, settled: ToolSettled, now: float) -> None:
        answer = self._calls.get(settled.call_id)
        call = answer.calls[settled.call_id] if answer is not None else None
        if answer is None or call is None or call.is_settled:
            return
        call.is_settled = True
        if call.is_told:
            if not settled.interrupted:
                self._tell(frames.system_item(f"The tool {settled.name} has finished. Its result: {settled.output}"))
        else:
            call.is_told = True
            self._send(frames.call_output_item(settled.call_id, settled.output))
        answer.was_stopped = answer.was_stopped or settled.interrupted
        if not answer.is_over:
            self._session_end.settle(answer.ending, settled)
        self._advance(now)

    # --- interruptions

    def _interrupt(self, interruption: Interrupted, now: float) -> None:
        """The engine says what was heard of what was playing. Nothing was heard of what came after it."""
        cut = self._cut_off(now)
        self._unasked.overtake()
        named = self._answers.get(interruption.response_id or "")
        begun = list(self._begun.values())
        later = begun[begun.index(named) + 1 :] if named in begun else []
        earlier = begun[: begun.index(named)] if named in begun and interruption.heard_ms else []
        in_doubt = dict.fromkeys([*self._unshown, *self._in_doubt(cut, now)])
        self._forget([answer for answer in in_doubt if answer is not named and answer not in [*earlier, *later]])
        for answer in later:
            self._leave_of(answer, 0.0, "")
        for answer in cut:
            if answer is named or answer in later or answer in in_doubt:
                continue
            self._leave_of(
                answer, answer.received_ms, answer.text
            )  # nothing, or it fell silent, and the engine has ended it
            if answer.is_announced and not answer.is_shown:
                # the engine may have met its echo after the interruption, and take it for the same words said again
                self._emit(ResponseEnd(answer.id, ResponseStatus.CANCELLED))
        if named is not None:
            self._leave_of(named, interruption.heard_ms, interruption.heard_text)
            self._was_heard = bool(interruption.heard_ms or (self.text_only and interruption.heard_text))
        self._words_come = not self.properties.hears
        self._cut_history()
        self._release(now)

    def _cut_off(self, now: float, *, by_provider: bool = False) -> list[Answer]:
        """Nothing of what is being said or waits may follow. Returns the answers that were open."""
        was_ending = self._asking.is_ending
        for request in self._asking.cut(now):
            if request.is_said:
                self._say_unanswered(request)
        cut, self._open = self._open, []
        for answer in cut:
            answer.cut()
        if any(answer.ending.ends_session for answer in cut):
            self._tell(frames.system_item(say(Sentence.GOODBYE_CUT, self.locale)))
        if self._asking.active and not by_provider and not was_ending:
            self._cancel(self._asking.active)
        return cut

    def _say_unanswered(self, request: Request) -> None:
        """What the user said is known to both sides, though it will not be answered."""
        if not request.is_told:
            self._tell(*request.frames)
        if request.echo is not None and not request.is_echoed:
            self._emit(attrs.evolve(request.echo, response_id=request.answer.id))
            self._emit(ResponseEnd(request.answer.id, ResponseStatus.CANCELLED))

    def _leave_of(self, answer: Answer, heard_ms: float, heard_text: str) -> None:
        """Of an answer that was cut no more than this was heard."""
        answer.heard = heard_ms, heard_text
        self._to_cut.append(answer)

    def _end_echoed(self, answer: Answer) -> None:
        """One that was cut with nothing of it shown but the input that it answers. Where the engine has met that echo only after the
        interruption, it may take it for the same words said again, and wait for the answer."""
        request = self._requests.get(answer.id)
        if request is not None and request.is_echoed and not answer.is_shown:
            self._emit(ResponseEnd(answer.id, ResponseStatus.CANCELLED))

    def _in_doubt(self, cut: Sequence[Answer], now: float) -> list[Answer]:
        """What the engine would name, if it had shown anything of it: what is playing, and of what was cut what has not ended. It shows
        nothing while an earlier answer that was cut has a tool at work which an interruption does not stop."""
        begun = list(self._begun.values())
        is_open = [answer for answer in cut if answer.is_shown and not history.is_idle(answer, now)]
        held_by = next(
            (place for place, answer in enumerate(begun) if answer.is_over and self._is_shielded(answer)), None
        )
        held = [] if held_by is None else [answer for answer in begun[held_by + 1 :] if answer.heard is None]
        return list(dict.fromkeys([*history.still_playing(begun, now), *is_open, *held]))

    def _is_shielded(self, answer: Answer) -> bool:
        return any(call.name in self.shielded and not call.is_settled for call in answer.calls.values())

    def _forget(self, answers: Sequence[Answer]) -> None:
        """The user cut in, and the engine did not name these: it had shown nothing of them. So it is when the user cuts in again
        while an earlier turn is still being closed."""
        self._unshown, self._told_by = [], NEVER
        self._utterances.was_never_shown(answers)
        for answer in answers:
            self._leave_of(answer, 0.0, "")

    def _cut_history(self) -> None:
        """Cut the provider's history, when nothing is being said there: what was cut may still grow before."""
        if self._asking.active or self._asking.asked:
            return
        for answer in self._to_cut:
            for frame in history.cut(answer, text_only=self.text_only):
                self._send(frame)
        self._to_cut.clear()

    # --- errors

    def _take_fault(self, fault: Fault, now: float) -> None:
        asked = self._asking.asked
        is_ours = asked is not None and fault.event_id == asked.event_id
        match weigh(fault):
            case Weight.FATAL:
                self._fail(fault.code)
            case Weight.BENIGN:
                logger.info("the provider refused something that does not matter: %s", fault.code or fault.type)
                if fault.code == NOTHING_COMMITTED and self._microphone.is_push_to_talk:
                    self._utterances.is_refused()
                    self._release(now)
            case Weight.TOO_EARLY:
                logger.info("a request came too early: %s", fault.code or fault.type)
                if is_ours or not (fault.event_id or self._hears_by_itself):
                    refused = self._asking.refused(now)
                    if refused is not None:
                        self._recover(fault.code, refused.answer, now)
                else:
                    self._unasked.is_refused()
            case Weight.RECOVERABLE:
                logger.warning("the provider reported an error: %s %s", fault.code or fault.type, fault.param)
                request = self._asking.failed() if is_ours else None
                answer = request.answer if request is not None else None
                if answer is None or not answer.is_over:
                    self._recover(fault.code, answer, now)
        self._ask_next(now)

    @property
    def _hears_by_itself(self) -> bool:
        """The provider answers without being asked."""
        return self.properties.hears and not self._microphone.is_push_to_talk

    def _recover(self, code: str, answer: Answer | None, now: float) -> None:
        """Tell the client, and have the model apologize: once, and not again and again when that fails too (P2, case C31)."""
        if code in FATAL:
            if answer is not None:
                self._finish(answer, ResponseStatus.FAILED, now)
            self._fail(code)
            return
        self._utterances.settle(all_of_them=False)
        self._release(now)
        self._emit_error(Sentence.PROVIDER_FAULT)
        if code in RATE_LIMITED:
            shortest, longest = RATE_LIMIT_SECONDS
            self._asking.not_before = now + min(max(shortest * 2**self._apologies, self._reset_seconds), longest)
        if answer is not None and answer.ending.ends_session:
            self._part(answer, now)
            return
        if answer is not None and (answer.is_shown or self._apologies >= MAX_APOLOGIES):
            self._finish(answer, ResponseStatus.FAILED, now)
            answer = None
        self._apologize(answer)

    def _part(self, answer: Answer, now: float) -> None:
        """A goodbye has failed. Nobody is asked to say anything again: it is said in a second try, or the session ends without."""
        if answer.is_shown or self._apologies >= MAX_APOLOGIES:
            self._finish(answer, ResponseStatus.FAILED, now)
            return
        self._apologies += 1
        answer.is_pending = True
        self._put_first(self._requests.get(answer.id) or Request(answer, is_continuation=True))

    def _apologize(self, answer: Answer | None) -> None:
        """As `answer`, if that has said nothing, else as an answer of its own; but not to a user who has spoken since, and is answered."""
        if answer is None and (self._words_come or self._asking.has_input):
            return
        if self._apologies >= MAX_APOLOGIES:
            logger.warning("the model is not made to apologize again; the user is waited for")
            return
        self._apologies += 1
        frame = frames.system_item(f"{INSTRUCTION_HEADER} {APOLOGIZE}")
        has_begun = answer is not None
        answer = answer or self._new_answer()
        answer.is_apology = answer.is_pending = True
        self._put_first(Request(answer, frames=(frame,), is_continuation=has_begun))

    def _lose_answers(self, now: float) -> bool:
        """Fail what was being said, and ask again for what had not begun. Whether anything was lost."""
        self._asking.lost()
        is_hurt = False
        for answer in list(reversed(self._open)):
            request = self._requests.get(answer.id)
            if answer.is_shown or request is None or request.answers_speech:
                self._finish(answer, ResponseStatus.FAILED, now)
                is_hurt = is_hurt or not answer.ending.ends_session
            elif all(waiting.answer is not answer for waiting in self._asking.waiting):
                answer.is_pending = True
                self._asking.put_first(request)
        for request in self._asking.waiting:
            request.is_told = False
        return is_hurt

    def _emit_error(self, sentence: Sentence, code: ErrorCode = ErrorCode.PROVIDER_UNAVAILABLE) -> None:
        self._emit(RealtimeError(code, say(sentence, self.locale)))

    def _fail(self, code: str) -> None:
        known = FATAL.get(code, ErrorCode.PROVIDER_UNAVAILABLE)
        self._do.append(Fail(RealtimeException(known, text_of(known, self.locale))))

    # --- common

    def _emit(self, element: RealtimeElement) -> None:
        self._do.append(Emit(element))

    def _send(self, frame: str) -> None:
        """For this connection only."""
        if self.is_connected:
            self._do.append(SendFrame(frame))

    def _tell(self, *items: str) -> None:
        """For this connection, or else for the next one."""
        for item in items:
            if self.is_connected:
                self._send(item)
            else:
                self._held.append(item)

    def _done(self) -> list[Do]:
        do, self._do = self._do, []
        return do


def _as_told(instruction: RealtimeInstruction) -> str:
    """An instruction as the model reads it; a commentary is something to say."""
    if instruction.text.startswith(INSTRUCTION_HEADER):
        return instruction.text
    say = "Say: " if instruction.type is InstructionType.COMMENTARY else ""
    return f"{INSTRUCTION_HEADER} {say}{instruction.text}"
