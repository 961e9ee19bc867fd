"""Who speaks next: at most one response is asked for at a time. Sans-I/O."""

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto

import attrs

from engine.elements import Transcript
from providers.openai.answers import Answer

MAX_WAITING = 32
"""Requests that wait for their turn; nobody says so much without an interruption."""
CUT_SECONDS = 3.0
"""The longest a response that was cut may take to be done; then the next one is asked for all the same."""
RETRY_SECONDS = 1.0
"""After a request was refused because another response was active, if none is seen to end before."""
UNASKED_SECONDS = 5.0
"""The longest the provider may take to begin an answer by itself; then it is asked for."""
MAX_REFUSALS = 10
"""Then a request is taken for one that cannot be answered."""
BEGIN_SECONDS = 10.0
"""The longest a request may stay without a response or a refusal; then it is made again."""


@attrs.define(eq=False)
class Request:
    """Something that is to be answered, in its place in the queue."""

    answer: Answer
    echo: Transcript | None = None
    """Opens the answer; an input's echo (M4)."""
    frames: tuple[str, ...] = ()
    """Items that go into the conversation right before the request."""
    is_said: bool = False
    """The user said it: it goes into the conversation even if it is not answered."""
    is_continuation: bool = False
    """Of an answer that has begun: it goes before everything else."""
    answers_speech: bool = False
    """What is answered was spoken to the provider itself, and its words come as a transcript."""
    event_id: str = attrs.field(default="", init=False)
    is_told: bool = attrs.field(default=False, init=False)
    """Its frames have been sent."""
    is_echoed: bool = attrs.field(default=False, init=False)
    refusals: int = attrs.field(default=0, init=False)
    """How often it was too early."""


@attrs.define(eq=False)
class Asking:
    """The queue, the request on its way, and the response under way."""

    waiting: deque[Request] = attrs.field(factory=deque[Request], init=False)
    asked: Request | None = attrs.field(default=None, init=False)
    """Sent; its response has not begun."""
    active: str = attrs.field(default="", init=False)
    """The response that has begun and is not done."""
    is_ending: bool = attrs.field(default=False, init=False)
    """The active one was cut."""
    was_cancelled: bool = attrs.field(default=False, init=False)
    """The provider was told to cancel it; with its own turn detection it does so by itself."""
    not_before: float = attrs.field(default=0.0, init=False)
    """Nothing is asked for until then: the provider has had too much."""
    _overdue_at: float | None = attrs.field(default=None, init=False)
    """When what was asked for should have begun."""
    _retry_at: float | None = attrs.field(default=None, init=False)
    _give_up_at: float | None = attrs.field(default=None, init=False)
    """When what was cut counts as done."""

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.asked or self.active)

    @property
    def is_empty(self) -> bool:
        """Nothing waits or is on its way."""
        return not (self.waiting or self.asked)

    @property
    def has_input(self) -> bool:
        """Something that the user has said waits, and the engine for its echo: it shows nothing before."""
        return any(request.echo is not None and not request.is_echoed for request in self.waiting)

    def deadline(self, now: float) -> float | None:
        not_before = self.not_before if self.waiting and self.not_before > now else None
        times = (not_before, self._overdue_at, self._retry_at, self._give_up_at)
        return min((time for time in times if time is not None), default=None)

    def put(self, request: Request) -> bool:
        """Queue a request; False when there are too many."""
        if len(self.waiting) >= MAX_WAITING:
            return False
        self.waiting.append(request)
        return True

    def put_first(self, request: Request) -> None:
        self.waiting.appendleft(request)

    def next(self, open_answers: Sequence[Answer], now: float, *, inputs_only: bool = False) -> Request | None:
        """What is to be asked for now. An answer whose tools run keeps the floor."""
        if not self.waiting or self.active or self.asked or self._retry_at is not None or now < self.not_before:
            return None
        first = self.waiting[0]
        if inputs_only and first.echo is None:
            return None
        if not first.is_continuation and any(answer is not first.answer for answer in open_answers):
            return None
        self.asked = self.waiting.popleft()
        self._overdue_at = now + BEGIN_SECONDS
        return self.asked

    def forget_speech(self) -> list[Answer]:
        """What the user said is being answered, and need not be asked for. Returns the answers that it was to be."""
        found = [request for request in self.waiting if request.answers_speech]
        if self.asked is not None and self.asked.answers_speech:
            found.append(self.asked)
        self.waiting = deque(request for request in self.waiting if request not in found)
        return [request.answer for request in found]

    def forget(self, answer: Answer) -> None:
        """Nothing more is to be asked for an answer."""
        self.waiting = deque(request for request in self.waiting if request.answer is not answer)

    def begun(self, response_id: str, answer_id: str) -> Request | None:
        """A response has begun. Returns the request it answers; None when nobody asked for it."""
        self.active, self.is_ending, self.was_cancelled = response_id, False, False
        self._give_up_at = None
        asked = self.asked
        if asked is not None and asked.answer.id == answer_id:
            self.asked = self._overdue_at = self._retry_at = None
            return asked
        found = next((request for request in self.waiting if request.answer.id == answer_id), None)
        if found is not None:  # it had been taken for refused, or for lost
            self.waiting.remove(found)
        return found

    def done(self, response_id: str) -> None:
        """A response is done."""
        self._retry_at = None
        if response_id == self.active:
            self.active, self.is_ending, self.was_cancelled = "", False, False
            self._give_up_at = None

    def refused(self, now: float) -> Request | None:
        """It is too early for what was asked for: something is active that was not seen yet, or not to end. It is asked for again.
        Returns a request that was refused too often."""
        request = self.failed()
        if request is None or request.answer.is_over:
            return None
        request.refusals += 1
        if request.refusals > MAX_REFUSALS:
            return request
        self.waiting.appendleft(request)
        if not self.active:
            self._retry_at = now + RETRY_SECONDS
        return None

    def failed(self) -> Request | None:
        """What was asked for is refused."""
        request, self.asked = self.asked, None
        self._overdue_at = None
        return request

    def cut(self, now: float) -> list[Request]:
        """The user cuts in: what waits will not be asked for. Returns it."""
        dropped = list(self.waiting)
        self.waiting.clear()
        if self.active:
            self.is_ending = True
        if self.active and self._give_up_at is None:
            self._give_up_at = now + CUT_SECONDS
        return dropped

    def cut_at_once(self, now: float) -> None:
        """What has just begun is not wanted any more."""
        self.is_ending = True
        self._give_up_at = now + CUT_SECONDS

    def lost(self) -> None:
        """The connection is gone, and what was on its way."""
        self.failed()
        self.active, self.is_ending, self.was_cancelled = "", False, False
        self._retry_at = self._give_up_at = None
        self.not_before = 0.0

    def tick(self, now: float) -> str:
        """A deadline has come. Returns the response that should be over by now and was never told to be."""
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
        if self._overdue_at is not None and now >= self._overdue_at:
            self.refused(now)  # not too often, as it takes so long
            self._retry_at = None
        if self._give_up_at is None or now < self._give_up_at:
            return ""
        if self.is_ending and not self.was_cancelled:
            self._give_up_at = now + CUT_SECONDS
            return self.active
        self.active, self.is_ending, self._give_up_at = "", False, None
        return ""


class _Unasked(Enum):
    NONE = auto()
    EXPECTED = auto()
    UNWANTED = auto()
    OWED = auto()


@attrs.define(eq=False)
class Unasked:
    """The answer that the provider gives by itself to what the user has said, with turn detection of its own."""

    _state: _Unasked = attrs.field(default=_Unasked.NONE, init=False)
    _due: float = attrs.field(default=0.0, init=False)

    @property
    def is_expected(self) -> bool:
        """It will come, and nothing else should be asked for before."""
        return self._state is _Unasked.EXPECTED

    @property
    def is_owed(self) -> bool:
        """It will not come: it has to be asked for."""
        return self._state is _Unasked.OWED

    @property
    def deadline(self) -> float | None:
        return self._due if self.is_expected else None

    def expect(self, now: float) -> None:
        """The user has spoken."""
        self._state, self._due = _Unasked.EXPECTED, now + UNASKED_SECONDS

    def drop(self) -> None:
        """It was asked for, or the user speaks again, and is answered then."""
        self._state = _Unasked.NONE

    def overtake(self) -> None:
        """Something was typed: an answer that has not begun is not wanted any more."""
        self._state = _Unasked.UNWANTED if self.is_expected else _Unasked.NONE

    def is_refused(self) -> None:
        """The provider could not give it: another response was active."""
        if self.is_expected:
            self._state = _Unasked.OWED

    def begin(self) -> bool:
        """It begins; whether it is wanted."""
        is_wanted = self._state is not _Unasked.UNWANTED
        self._state = _Unasked.NONE
        return is_wanted

    def tick(self, now: float) -> None:
        if self.is_expected and now >= self._due:
            self._state = _Unasked.OWED
