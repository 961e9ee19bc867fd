"""What the user says to a provider that recognizes by itself: words that come in any order leave in the order of speaking. Sans-I/O.

An utterance to the engine is what stands between one interim and the next. Where the user went on speaking before anything of the
answer had come, two of the provider's are one of the engine's, and their words leave together.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence

import attrs

from engine.elements import Partial, Transcript
from providers.openai.answers import Answer, remember

logger = logging.getLogger(__name__)

WORDS_SECONDS = 5.0
"""The longest a later utterance waits for the words of an earlier one."""
LATE_WORDS_SECONDS = 15.0
"""The longest words are waited for behind the answer to them: less than the 20 s after which the turn does without."""
MAX_OPEN = 32
"""Utterances whose words have not come; those of the oldest will not."""


@attrs.define(eq=False)
class Utterance:
    item_id: str
    text: str = ""
    """The words so far."""
    final: str | None = None
    answer: Answer | None = None
    is_complete: bool = False
    """All of it was spoken."""
    is_committed: bool = False
    """… and the provider has said so."""
    goes_on: bool = False
    """The user went on speaking before anything of the answer had come: it is one with the next."""
    before: str = ""
    """The words of those that it goes on from."""
    is_given_up: bool = False
    """Nothing more of it, or of its answer, is waited for."""
    due: float | None = None
    """When its words will not come any more."""

    @property
    def whole(self) -> str:
        return f"{self.before} {self.final or ''}".strip()


@attrs.frozen
class Said:
    """What was said, and the answer to it, once that has begun."""

    transcript: Transcript | None
    """None when there were no words, and somebody has spoken since."""
    answer: Answer | None


@attrs.define(eq=False)
class Utterances:
    """Those whose final has not left, in the order in which they began."""

    provider: str
    _open: OrderedDict[str, Utterance] = attrs.field(factory=OrderedDict[str, Utterance], init=False)
    _left: OrderedDict[str, None] = attrs.field(factory=OrderedDict[str, None], init=False)
    """The ids of those whose final has left: what still comes of them is late."""
    _expected: deque[Utterance] = attrs.field(factory=deque[Utterance], init=False)
    """Those that the client has committed, and the provider has not: they have no id yet."""
    _count: int = attrs.field(default=0, init=False)

    @property
    def is_empty(self) -> bool:
        return not self._open

    @property
    def deadline(self) -> float | None:
        return min((each.due for each in self._missing if each.due is not None), default=None)

    @property
    def _missing(self) -> list[Utterance]:
        """Those without their words."""
        return [utterance for utterance in self._open.values() if utterance.final is None]

    def waits_for(self, answer: Answer) -> bool:
        """Whether the words that an answer is to have not left."""
        return any(utterance.answer is answer for utterance in self._open.values())

    # --- what happens

    def begin(self, item_id: str | None) -> None:
        """The user begins to speak. With push-to-talk the id comes when the utterance is committed."""
        for utterance in self._open.values():
            utterance.goes_on = utterance.answer is None or not utterance.answer.is_shown
        if item_id is not None:
            self._get(item_id)
            return
        self._count += 1
        expected = Utterance(f"expected {self._count}")
        self._open[expected.item_id] = expected
        self._expected.append(expected)

    def was_never_shown(self, answers: Sequence[Answer]) -> None:
        """What was taken for an answer was not: the user just went on speaking."""
        for utterance in list(self._open.values())[:-1]:
            utterance.goes_on = utterance.goes_on or utterance.answer in answers

    def complete(self) -> None:
        """Push-to-talk: the client has committed it."""
        if self._expected:
            self._expected[-1].is_complete = True

    def is_refused(self) -> None:
        """Push-to-talk: there was nothing to commit."""
        if self._expected:
            utterance = self._expected.pop()
            utterance.final, utterance.is_given_up = "", True

    def overtake(self) -> None:
        """Something typed is answered in the place of what was said before it and has had no answer; only the model knows of that.
        Its words would be taken for an interruption."""
        for utterance in list(self._open.values()):
            is_unanswered = utterance.answer is None or not utterance.answer.is_shown
            if is_unanswered and utterance.is_complete:
                logger.info("something was typed before the words of an utterance had come; they are left out")
                self._remove(utterance)

    def take_back(self) -> None:
        """Push-to-talk: the user has not spoken after all."""
        if self._expected:
            self._remove(self._expected.pop())
        for utterance in self._open.values():
            if utterance.goes_on:
                utterance.goes_on, utterance.answer = False, None

    def commit(self, item_id: str) -> bool:
        """The utterance is complete; False when it was already."""
        if self._expected:
            self._name_expected(item_id)
        utterance = self._get(item_id)
        if utterance is None or utterance.is_committed:
            return False
        utterance.is_committed = utterance.is_complete = True
        return True

    def _name_expected(self, item_id: str) -> None:
        """The id of the oldest that was expected is known."""
        utterance = self._expected.popleft()
        if utterance.item_id in self._left:
            remember(self._left, item_id, None)
            return
        places = list(self._open.values())
        utterance.item_id = item_id
        self._open = OrderedDict((each.item_id, each) for each in places)

    def answer_by(self, answer: Answer) -> None:
        """A response to what was said last has begun."""
        committed = [utterance for utterance in self._open.values() if utterance.is_committed]
        if committed and committed[-1].answer is None:
            committed[-1].answer = answer

    def add_words(self, item_id: str, words: str) -> Partial | None:
        """More words. Those of the oldest are shown."""
        utterance = self._get(item_id)
        if utterance is None:
            return None
        utterance.text += words
        is_oldest = utterance is next(iter(self._open.values()))
        return Partial(utterance.text, self.provider) if is_oldest and utterance.text.strip() else None

    def finish(self, item_id: str, words: str) -> None:
        """All words of an utterance, none when it could not be understood."""
        utterance = self._get(item_id)
        if utterance is not None and utterance.final is None:
            utterance.final = words.strip()

    def settle(self, *, all_of_them: bool) -> None:
        """What was understood so far is all there will be; of those without a word only if `all_of_them`."""
        if all_of_them:
            self._expected.clear()
        for utterance in self._open.values():
            utterance.is_given_up = all_of_them
            words = utterance.text.strip()
            if utterance.final is None and (all_of_them or (words and utterance.is_committed)):
                utterance.final = words

    def tick(self, now: float) -> None:
        for utterance in self._missing:
            if utterance.due is not None and now >= utterance.due:
                logger.warning("the words of an utterance did not come in time")
                utterance.final = utterance.text.strip()

    # --- what leaves

    def release(self, now: float) -> Iterator[Said]:
        """The finals whose turn has come, oldest first."""
        while self._open:
            oldest = next(iter(self._open.values()))
            if oldest.final is None:
                if len(self._open) <= MAX_OPEN:
                    self._set_dues(now)
                    return
                oldest.final = oldest.text.strip()
            if oldest.goes_on and len(self._open) > 1:
                self._remove(oldest)
                next(iter(self._open.values())).before = oldest.whole
                continue
            is_last = len(self._open) == 1
            is_answered = oldest.is_given_up or (oldest.answer is not None and oldest.answer.is_over)
            if not oldest.whole and is_last and not is_answered:
                return  # that there are no words is said behind the answer: the turn then need not wait for any
            self._remove(oldest)
            yield self._said(oldest) if oldest.whole or is_last else Said(None, oldest.answer)

    def _set_dues(self, now: float) -> None:
        """Words are waited for until those behind them have been there for a while, or the answer to them or to those behind."""
        latest: float | None = None
        for utterance in reversed(self._open.values()):
            if utterance.final is not None:
                latest = now + WORDS_SECONDS
            elif utterance.answer is not None and utterance.answer.is_over:
                latest = latest or now + LATE_WORDS_SECONDS
            if latest is not None:
                utterance.due = min(latest, utterance.due or latest)

    def _said(self, utterance: Utterance) -> Said:
        """A final names its answer, unless nothing of that was shown or ever will be."""
        answer = utterance.answer
        is_known = answer is not None and (not answer.is_over or answer.is_shown or answer.held_end is not None)
        response_id = answer.id if answer is not None and is_known else ""
        return Said(Transcript(utterance.whole, provider=self.provider, response_id=response_id), answer)

    def _remove(self, utterance: Utterance) -> None:
        del self._open[utterance.item_id]
        remember(self._left, utterance.item_id, None)

    def _get(self, item_id: str) -> Utterance | None:
        """The utterance of that id, which may be new; None when its final has left."""
        if item_id in self._left:
            return None
        return self._open.setdefault(item_id, Utterance(item_id))
