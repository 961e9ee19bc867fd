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
- Finals leave in the order in which the utterances were committed (case C10).
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
    Partial,
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
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import Message, Role, SessionInput, TokenUsage, ToolCall, ToolSettled
from engine.protocol.audio import SAMPLE_BYTES
from providers.openai import events
from providers.openai.answers import MAX_ROUNDS, Answer, Call, Request, SpokenItem, Utterance, remember
from providers.openai.events import AudioDelta, Event
from providers.openai.faults import FATAL, Weight, weigh
from providers.openai.properties import OpenAIProperties
from providers.openai.texts import APOLOGIZE, GO_ON, STILL_RUNNING, text_for

logger = logging.getLogger(__name__)

MAX_WAITING = 32
"""Requests that wait for their turn; nobody says so much without an interruption."""
MAX_APOLOGIES = 2
"""In a row without an answer that succeeded between them: then the engine waits for the user (case C31 b)."""
CANCEL_SECONDS = 2.0
"""The longest a cancelled response may take to be done; then the next is asked for all the same."""
RETRY_SECONDS = 1.0
"""After a request was refused because another response was active, and none was seen to end."""
TRANSCRIPT_SECONDS = 5.0
"""The longest a later utterance waits for an earlier one's words."""
RESUMED_MESSAGES = 30
"""Of the conversation so far, told to a new connection: about five minutes of talk."""
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
    usage: TokenUsage = attrs.field(factory=TokenUsage)
    _do: list[Do] = attrs.field(factory=list[Do], init=False)
    _answer: Answer | None = attrs.field(default=None, init=False)
    """The one that is being said, or whose tools run."""
    _answers: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict[str, Answer], init=False)
    """By their own ids."""
    _responses: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict[str, Answer], init=False)
    """By the ids of the provider's responses."""
    _calls: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict[str, Answer], init=False)
    """By call id."""
    _active: str = attrs.field(default="", init=False)
    """The provider's response that is not done."""
    _requested: Request | None = attrs.field(default=None, init=False)
    """What was asked for and has not begun."""
    _waiting: deque[Request] = attrs.field(factory=deque[Request], init=False)
    _blocked_until: float | None = attrs.field(default=None, init=False)
    """When a refused request is tried again, if nothing is seen to end before."""
    _cancel_due: float | None = attrs.field(default=None, init=False)
    """When a cancelled response counts as done."""
    _to_delete: list[str] = attrs.field(factory=list[str], init=False)
    """Items of a cancelled response of which nothing was heard: deleted when it is done."""
    _utterances: OrderedDict[str, Utterance] = attrs.field(factory=OrderedDict[str, Utterance], init=False)
    """Committed, and without their final, oldest first."""
    _is_pressed: bool = attrs.field(default=False, init=False)
    """Push-to-talk: the user has begun an utterance."""
    _images: deque[str] = attrs.field(factory=deque[str], init=False)
    _said: str = attrs.field(default="", init=False)
    """The user's last words, as long as they may not be remembered anywhere else."""
    _apologies: int = attrs.field(default=0, init=False)
    _told_transcription: bool = attrs.field(default=False, init=False)
    is_ready: bool = attrs.field(default=False, init=False)
    """The provider has acknowledged its configuration (M9)."""
    is_user_speaking: bool = attrs.field(default=False, init=False)
    expires_at: int | None = attrs.field(default=None, init=False)
    """Seconds since 1970, by the provider's clock."""
    _input_ended: bool = attrs.field(default=False, init=False)

    # --- what happens

    def take(self, item: SessionInput, now: float) -> list[Do]:
        """An input of the session."""
        match item:
            case InputAudio(data):
                self._take_audio(data)
            case UserSpeech(text, provider):
                self._said = text
                self._send(events.message_item("user", text))
                self._ask(Request(self._new_answer(), Transcript(text, provider=provider)), now)
            case AnswerAgain(text):
                frames = (events.message_item("system", GO_ON),) if self._was_heard() else ()
                self._ask(Request(self._new_answer(), self._synthetic(text), frames), now)
            case Action(name):
                self._send(events.message_item("user", f"#{name}"))
                self._ask(Request(self._new_answer(), self._synthetic(f"#{name}")), now)
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

    def instruct(self, instruction: RealtimeInstruction, now: float) -> list[Do]:
        """Context goes in silently; anything else is asked for when its turn comes."""
        if instruction.type.is_contextual:
            self._send(events.message_item("system", instruction.text))
        else:
            answer = self._new_answer()
            answer.ends_session = instruction.ends_session
            self._ask(Request(answer, frames=(events.message_item("system", _as_told(instruction)),)), now)
        return self._done()

    def receive(self, event: Event, now: float) -> list[Do]:
        """An event of the provider."""
        match event.type:
            case events.AUDIO_DELTA:
                self._hear(event)
            case "response.output_audio_transcript.delta" | "response.output_text.delta":
                self._read(event.response_id, event.delta)
            case "response.created":
                self._begin(event.response, now)
            case "response.output_item.added":
                self._add_item(event.response_id, event.item)
            case "response.output_item.done":
                self._end_item(event.response_id, event.item)
            case "response.function_call_arguments.done":
                self._call(event.response_id, event.call_id, event.name, event.arguments)
            case "response.done":
                self._end_response(event.response, now)
            case "input_audio_buffer.speech_started":
                self._start_utterance()
            case "input_audio_buffer.speech_stopped":
                self.is_user_speaking = False
                self._emit(EmotionalState(SpeakingState.USER_NOT_SPEAKING))
            case "input_audio_buffer.committed":
                self._utterances.setdefault(event.item_id, Utterance(event.item_id))
            case "conversation.item.input_audio_transcription.delta":
                self._take_words(event.item_id, event.delta or "")
            case "conversation.item.input_audio_transcription.completed":
                self._take_final(event.item_id, event.transcript, now)
            case "conversation.item.input_audio_transcription.failed":
                self._fail_transcription(event, now)
            case "session.created":
                self.expires_at = event.session.expires_at if hasattr(event.session, "expires_at") else None
            case "session.updated":
                self.is_ready = True
            case "error":
                self._take_error(event.error, now)
            case _:
                pass  # acknowledgements, parts and summaries of what was said already
        return self._done()

    def tick(self, now: float) -> list[Do]:
        """The deadline has come."""
        if self._cancel_due is not None and now >= self._cancel_due:
            logger.warning("a cancelled response was not ended in %g s; it is left behind", CANCEL_SECONDS)
            self._cancel_due, self._active = None, ""
        if self._blocked_until is not None and now >= self._blocked_until:
            self._blocked_until = None
        oldest = next(iter(self._utterances.values()), None)
        if oldest is not None and oldest.waits_since is not None and now >= oldest.waits_since + TRANSCRIPT_SECONDS:
            logger.warning("the words of an utterance did not come in %g s", TRANSCRIPT_SECONDS)
            oldest.final = oldest.text
            self._release_finals(now)
        self._ask_next(now)
        return self._done()

    def input_ended(self, now: float) -> list[Do]:
        """No input will follow, so no tool result either: an answer that waits for one ends."""
        self._input_ended = True
        if self._answer is not None and not self._active and self._requested is None:
            self._finish(self._answer, ResponseStatus.COMPLETED)
            self._ask_next(now)
        return self._done()

    def lost(self, now: float) -> list[Do]:
        """The connection is gone: what was being said has failed, and nothing of the provider's conversation is left."""
        requested, answer = self._requested, self._answer
        self._active, self._requested, self._cancel_due, self._blocked_until = "", None, None, None
        if requested is not None and not requested.answer.is_over and requested.answer is not answer:
            self._finish(requested.answer, ResponseStatus.FAILED)
        if answer is not None:
            self._finish(answer, ResponseStatus.FAILED)
        self._flush_utterances(now)
        self._responses.clear()
        self._calls.clear()
        self._to_delete.clear()
        self._images.clear()
        self.is_ready = self.is_user_speaking = False
        self.expires_at = None
        return self._done()

    def resume(self, messages: Sequence[Message], now: float) -> list[Do]:
        """A new connection is ready: it is told the end of the conversation so far, and what waits is asked for."""
        spoken = [message for message in messages if message.role is not Role.INSTRUCTION][-RESUMED_MESSAGES:]
        for message in spoken:
            self._send(events.message_item("user" if message.role is Role.USER else "assistant", message.text))
        if self._said and self._said not in (message.text for message in spoken):
            self._send(events.message_item("user", self._said))
        self._ask_next(now)
        return self._done()

    @property
    def deadline(self) -> float | None:
        """When `tick` has to be called if nothing happens before."""
        oldest = next(iter(self._utterances.values()), None)
        since = oldest.waits_since if oldest is not None else None
        words = None if since is None else since + TRANSCRIPT_SECONDS
        return min((each for each in (self._cancel_due, self._blocked_until, words) if each is not None), default=None)

    @property
    def is_quiet(self) -> bool:
        """Nobody is speaking and nothing is owed."""
        return not (self._answer or self._active or self._requested or self._waiting or self.is_user_speaking)

    @property
    def is_done(self) -> bool:
        """The input has ended and every answer owed was given."""
        return self._input_ended and self.is_quiet

    # --- the user

    def _take_audio(self, pcm: bytes) -> None:
        if not self.properties.hears:
            return
        if self.properties.detection.type == "none" and not self._is_pressed:
            self._is_pressed = True  # nobody else will say that the user speaks
            self._start_utterance()
        self._send(events.audio_append(pcm))

    def _start_utterance(self) -> None:
        self.is_user_speaking = True
        self._emit(EmotionalState(SpeakingState.USER_SPEAKING))
        self._emit(Transcript(".", is_interim=True, provider=self.properties.provider))

    def _commit(self, now: float) -> None:
        if not self.properties.hears:
            return
        self._send(events.audio_commit())
        if self.properties.detection.type == "none":
            if self._is_pressed:
                self._is_pressed = self.is_user_speaking = False
                self._emit(EmotionalState(SpeakingState.USER_NOT_SPEAKING))
                self._ask(Request(self._new_answer(), answers_speech=True), now)
        else:
            self._ask(Request(self._new_answer(), answers_speech=True, only_if_idle=True), now)

    def _take_words(self, item_id: str, delta: str) -> None:
        utterance = self._utterances.setdefault(item_id, Utterance(item_id))
        utterance.text += delta
        if utterance is next(iter(self._utterances.values())) and utterance.text.strip():
            self._emit(Partial(utterance.text))

    def _take_final(self, item_id: str, transcript: str, now: float) -> None:
        utterance = self._utterances.setdefault(item_id, Utterance(item_id))
        utterance.final = transcript.strip()
        self._release_finals(now)

    def _fail_transcription(self, event: Event, now: float) -> None:
        code = event.error.code if event.error is not None else None
        logger.warning("an utterance could not be transcribed: %s", code or "no reason given")
        if code == "DeploymentNotFound" and not self._told_transcription:
            self._told_transcription = True
            self._emit(RealtimeError(ErrorCode.RECOGNITION_FAILED, text_for(ErrorCode.RECOGNITION_FAILED, self.locale)))
        self._take_final(event.item_id, "", now)

    def _release_finals(self, now: float) -> None:
        """Those whose turn has come, oldest first."""
        while self._utterances:
            oldest = next(iter(self._utterances.values()))
            if oldest.final is None:
                if oldest.waits_since is None and any(each.final is not None for each in self._utterances.values()):
                    oldest.waits_since = now
                return
            del self._utterances[oldest.item_id]
            answer_id = oldest.answer_id
            self._emit(Transcript(oldest.final, provider=self.properties.provider, response_id=answer_id))

    def _flush_utterances(self, now: float) -> None:
        """What was understood of the user so far is all there will be."""
        for utterance in self._utterances.values():
            if utterance.final is None:
                utterance.final = utterance.text.strip()
        self._release_finals(now)

    def _show(self, image: Image) -> None:
        item_id = self.new_id("image")[:32]
        self._images.append(item_id)
        self._send(events.image_item(image, item_id))
        if len(self._images) > KEPT_IMAGES:
            self._send(events.item_delete(self._images.popleft()))

    # --- asking

    def _new_answer(self) -> Answer:
        answer = Answer(self.new_id("response"))
        remember(self._answers, answer.id, answer)
        return answer

    def _synthetic(self, text: str) -> Transcript:
        return Transcript(text, is_synthetic=True, provider=self.properties.provider)

    def _was_heard(self) -> bool:
        """Whether the last thing in the provider's conversation was said by the agent."""
        last = next(reversed(self._answers.values()), None)
        return last is not None and last.has_spoken

    def _ask(self, request: Request, now: float) -> None:
        if len(self._waiting) >= MAX_WAITING:
            logger.warning("%d requests wait for an answer; one more was left out", MAX_WAITING)
            return
        self._waiting.append(request)
        self._ask_next(now)

    def _ask_next(self, now: float) -> None:
        """Ask for the next answer, if nothing is being said, asked for or worked at."""
        if not self._waiting or self._active or self._requested is not None or self._blocked_until is not None:
            return
        if self._answer is not None and not self._waiting[0].is_continuation:
            return
        request = self._waiting.popleft()
        self._close_calls()
        for frame in request.frames:
            self._send(frame)
        if request.echo is not None:
            self._emit(attrs.evolve(request.echo, response_id=request.answer.id))
        request = attrs.evolve(request, event_id=self.new_id("event")[:32], echo=None, frames=())
        self._requested = request
        request.answer.rounds += 1
        request.answer.has_news = False
        self._answer = request.answer
        self._send(events.response_create(request.event_id, request.answer.id))

    def _close_calls(self) -> None:
        """The service answers nothing while a call of an earlier response is open: one that still runs gets a word about that."""
        for call_id, answer in self._calls.items():
            call = answer.calls[call_id]
            if not call.is_told:
                call.is_told = True
                self._send(events.call_output_item(call_id, STILL_RUNNING))

    # --- the provider's responses

    def _begin(self, response: Event, now: float) -> None:
        self._active = response.id
        asked, named = self._requested, (response.metadata or {}).get("answer", "")
        if asked is not None and named == asked.answer.id:
            self._requested, self._blocked_until = None, None
            answer = asked.answer
            answers_speech = asked.answers_speech
        else:  # begun by the provider; what was asked for is refused in a moment, and asked for again later
            answer, answers_speech = self._new_answer(), True
        remember(self._responses, response.id, answer)
        if answer.is_over:
            self._cancel(now)  # it was interrupted before it began
            return
        self._answer = answer
        utterance = next(reversed(self._utterances.values()), None)
        if answers_speech and utterance is not None and not utterance.answer_id:
            utterance.answer_id = answer.id

    def _of(self, response_id: str) -> Answer | None:
        """The answer a response belongs to, unless nothing of it may follow."""
        answer = self._responses.get(response_id)
        return None if answer is None or answer.is_over else answer

    def _read(self, response_id: str, text: str) -> None:
        answer = self._of(response_id)
        if answer is not None and text:
            answer.has_spoken = True
            self._emit(Token(text, answer.id))

    def _hear(self, delta: AudioDelta) -> None:
        answer = self._of(delta.response_id)
        if answer is None:
            return
        answer.has_spoken = True
        if not answer.items or answer.items[-1].item_id != delta.item_id:
            self._item(answer, delta.item_id)
        item = next(item for item in answer.items if item.item_id == delta.item_id)
        item.received_ms += len(delta.delta) / SAMPLE_BYTES * 1000 / self.properties.sample_rate
        speech = SpeechItem(delta.delta, self.properties.sample_rate, answer.id, provider=self.properties.provider)
        self._emit(speech)

    def _item(self, answer: Answer, item_id: str) -> None:
        if all(item.item_id != item_id for item in answer.items):
            answer.items.append(SpokenItem(item_id))

    def _add_item(self, response_id: str, item: Event) -> None:
        answer = self._responses.get(response_id)
        if answer is not None and item.type == "message" and item.id:
            self._item(answer, item.id)

    def _end_item(self, response_id: str, item: Event) -> None:
        if item.type == "function_call" and item.status != "incomplete" and item.call_id:
            self._call(response_id, item.call_id, item.name, item.arguments)

    def _call(self, response_id: str, call_id: str, name: str | None, arguments: str) -> None:
        """A call whose arguments are complete; it is told of twice, and started once."""
        answer = self._responses.get(response_id)
        if answer is None or call_id in self._calls:
            return
        call = Call(call_id, name or "")
        answer.calls[call_id] = call
        answer.has_news = True
        remember(self._calls, call_id, answer)
        if answer.is_over:
            call.is_settled = True  # nobody will run it; it gets its output before the next request
            return
        self._do.append(StartCall(ToolCall(call_id, call.name, arguments, answer.id)))

    def _end_response(self, response: Event, now: float) -> None:
        self._count(response.usage)
        if response.id == self._active:
            self._active, self._cancel_due = "", None
            self._blocked_until = None
            for item_id in self._to_delete:
                self._send(events.item_delete(item_id))
            self._to_delete.clear()
        answer = self._of(response.id)
        if answer is not None:
            self._after(answer, response, now)
        self._ask_next(now)

    def _after(self, answer: Answer, response: Event, now: float) -> None:
        match response.status:
            case "cancelled":
                self._finish(answer, ResponseStatus.CANCELLED)
            case "incomplete":
                self._finish(answer, ResponseStatus.INCOMPLETE)
            case "failed":
                self._finish(answer, ResponseStatus.FAILED)
                details = response.status_details
                error = details.error if details is not None else None
                self._recover(getattr(error, "code", None), answer, now)
            case _:
                if not answer.is_apology:
                    self._apologies = 0
                if not answer.has_open_calls or self._input_ended:  # else its tools run
                    self._go_on(answer)

    def _go_on(self, answer: Answer) -> None:
        """The response is done and no call of it runs: the answer is complete, or goes on with what the tools gave."""
        if not answer.has_news or self._input_ended or (answer.ends_session and answer.has_spoken):
            self._finish(answer, ResponseStatus.COMPLETED)
        elif answer.rounds >= MAX_ROUNDS:
            message = "The model called tools without end; its answer was ended."
            self._emit(RealtimeError(ErrorCode.PROVIDER_UNAVAILABLE, message))
            self._finish(answer, ResponseStatus.INCOMPLETE)
        else:
            self._waiting.appendleft(Request(answer, is_continuation=True))

    def _finish(self, answer: Answer, status: ResponseStatus) -> None:
        if answer.is_over:
            return
        answer.is_over = True
        if answer.ends_session and status is not ResponseStatus.CANCELLED:
            self._emit(RealtimeCommand("sessionShouldEnd", response_id=answer.id))
        self._emit(ResponseEnd(answer.id, status))
        if self._answer is answer:
            self._answer = None

    def _count(self, usage: Event) -> None:
        """Per response, cancelled and failed ones too; cached tokens are part of the input (case C46)."""
        if usage is None:
            return
        self.usage.input += usage.input_tokens or 0
        self.usage.output += usage.output_tokens or 0
        details = usage.input_token_details
        self.usage.cached += (details.cached_tokens or 0) if details is not None else 0

    # --- tools

    def _settle(self, settled: ToolSettled, now: float) -> None:
        answer = self._calls.get(settled.call_id)
        call = answer.calls.get(settled.call_id) if answer is not None else None
        if answer is None or call is None or call.is_settled:
            return
        call.is_settled = True
        if call.is_told:
            note = f"The tool {settled.name} has finished. Its result: {settled.output}"
            self._send(events.message_item("system", note))
            return
        call.is_told = True
        self._send(events.call_output_item(settled.call_id, settled.output))
        answer.ends_session = answer.ends_session or (settled.ends_session and not settled.is_error)
        if answer.is_over or answer.has_open_calls or self._active or self._requested is not None:
            return
        if settled.interrupted:
            self._finish(answer, ResponseStatus.CANCELLED)
        else:
            self._go_on(answer)
        self._ask_next(now)

    # --- interruptions

    def _interrupt(self, interruption: Interrupted, now: float) -> None:
        self._waiting.clear()
        answer, requested = self._answer, self._requested
        for cut in {id(each): each for each in (answer, requested.answer if requested else None) if each}.values():
            cut.is_over = True
            if cut.id != interruption.response_id:
                self._unsay(cut)
        self._answer = None
        if self._active:
            self._cancel(now)
        if interruption.response_id is not None and interruption.response_id in self._answers:
            self._truncate(self._answers[interruption.response_id], interruption.heard_ms)

    def _cancel(self, now: float) -> None:
        if self._cancel_due is None:
            self._cancel_due = now + CANCEL_SECONDS
            self._send(events.response_cancel(self._active))

    def _truncate(self, answer: Answer, heard_ms: float) -> None:
        """Cut the provider's own history to what was heard of an answer; later items of it were not heard at all."""
        left = float(heard_ms)
        for item in answer.items:
            if not item.received_ms:
                continue
            if left <= 0:
                self._delete(item)
            elif left < item.received_ms:
                self._send(events.item_truncate(item.item_id, int(left)))
                item.received_ms = left
            left -= item.received_ms

    def _unsay(self, answer: Answer) -> None:
        """Nothing of it was heard."""
        for item in answer.items:
            self._delete(item)

    def _delete(self, item: SpokenItem) -> None:
        item.received_ms = 0.0
        if self._active:
            self._to_delete.append(item.item_id)
        else:
            self._send(events.item_delete(item.item_id))

    # --- errors

    def _take_error(self, error: Event, now: float) -> None:
        requested = self._requested
        is_ours = requested is not None and error.event_id is not None and error.event_id == requested.event_id
        match weigh(error.code, error.type, error.message):
            case Weight.FATAL:
                self._fail(error.code)
            case Weight.BENIGN:
                logger.info("the provider refused something that does not matter: %s", error.code or error.type)
                if requested is not None and error.code == "conversation_already_has_active_response":
                    self._ask_later(requested, now)
            case Weight.RECOVERABLE:
                logger.warning("the provider reported an error: %s", error.code or error.type)
                if not self.is_ready:
                    self._fail(error.code)
                    return
                answer = requested.answer if requested is not None and is_ours else None
                if answer is not None:
                    self._requested = None
                    self._finish(answer, ResponseStatus.FAILED)
                self._recover(error.code, answer, now)
        self._ask_next(now)

    def _ask_later(self, request: Request, now: float) -> None:
        """Another response is active, which the provider has begun by itself: ours comes after it."""
        self._requested = None
        if self._answer is request.answer:
            self._answer = None
        request.answer.rounds -= 1
        if request.answer.is_over or request.only_if_idle:
            return
        self._waiting.appendleft(request)
        if not self._active:
            self._blocked_until = now + RETRY_SECONDS

    def _recover(self, code: str | None, answer: Answer | None, now: float) -> None:
        """Tell the client, and have the model apologize: once, and not again and again when that fails too (P2, case C31)."""
        if code in FATAL:
            self._fail(code)
            return
        self._flush_utterances(now)
        self._emit(RealtimeError(ErrorCode.PROVIDER_UNAVAILABLE, text_for(ErrorCode.PROVIDER_UNAVAILABLE, self.locale)))
        self.apologize(now)

    def apologize(self, now: float) -> None:
        if self._apologies >= MAX_APOLOGIES:
            logger.warning("the model is not made to apologize again; the user is waited for")
            return
        self._apologies += 1
        apology = self._new_answer()
        apology.is_apology = True
        self._ask(Request(apology, frames=(events.message_item("system", f"{INSTRUCTION_HEADER} {APOLOGIZE}"),)), now)

    def _fail(self, code: str | None) -> None:
        known = FATAL.get(code or "", ErrorCode.PROVIDER_UNAVAILABLE)
        self._do.append(Fail(RealtimeException(known, text_for(known, self.locale))))

    # --- common

    def _emit(self, element: RealtimeElement) -> None:
        self._do.append(Emit(element))

    def _send(self, frame: str) -> None:
        self._do.append(SendFrame(frame))

    def _done(self) -> list[Do]:
        do, self._do = self._do, []
        return do


def _as_told(instruction: RealtimeInstruction) -> str:
    """An instruction as the model reads it; a commentary is something to say."""
    if instruction.text.startswith(INSTRUCTION_HEADER):
        return instruction.text
    say = "Say: " if instruction.type is InstructionType.COMMENTARY else ""
    return f"{INSTRUCTION_HEADER} {say}{instruction.text}"
