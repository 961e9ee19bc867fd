"""How much of each response the user has heard (DESIGN section 3, law 5).

Heard milliseconds of a response are what the last `playback` report said plus the time since it, else the time since its first
frame was sent; never more than was sent, and without the time in which everything sent had been played already. A client plays
one response after the other, so without a report a response is taken to begin when the one before it ends. Heard text is the
whole sentences heard, plus the words of the sentence under way in proportion to its audio; on a text-only connection it is what
was sent.
"""

from collections import OrderedDict

import attrs

CHARACTERS_PER_SECOND = 15
"""How fast speech is, about: how long a piece will be that is still being synthesized."""
REMEMBERED = 32
"""Responses kept, newest first out of a conversation's: older ones cannot be playing any more."""


@attrs.define(eq=False)
class _Sentence:
    text: str
    start_ms: float
    """Where its audio begins in the response's audio."""
    is_sent: bool = False


@attrs.define(eq=False)
class _Response:
    sentences: list[_Sentence] = attrs.field(factory=list[_Sentence])
    pieces: list[_Sentence] = attrs.field(factory=list[_Sentence])
    """What is spoken where, for sessions that know: clauses and sentences. They then tell what was heard, to the word."""
    is_complete: bool = False
    """No more speech of it will be made."""
    queued_ms: float = 0.0
    sent_ms: float = 0.0
    plays_from: float | None = None
    """When its first frame begins to play, as far as can be known without reports."""
    reported_ms: float | None = None
    reported_at: float = 0.0
    cut_ms: float | None = None
    """Set by a barge-in: what was heard by then, for good."""
    cut_at: float = 0.0


@attrs.define(eq=False)
class Hearing:
    """Times are seconds of the session's clock, lengths milliseconds of audio."""

    text_only: bool = False
    _responses: OrderedDict[str, _Response] = attrs.field(factory=OrderedDict[str, _Response], init=False)
    _latest_sent: str = attrs.field(default="", init=False)

    def _open(self, response_id: str) -> _Response:
        response = self._responses.get(response_id)
        if response is None:
            response = self._responses[response_id] = _Response()
            while len(self._responses) > REMEMBERED:
                self._responses.popitem(last=False)
        return response

    # what goes into the outbox

    def sentence_queued(self, response_id: str, text: str, starts_ms: float | None = None) -> None:
        """A sentence; its audio begins at `starts_ms` of the response's, or with what is queued next."""
        response = self._open(response_id)
        response.sentences.append(_Sentence(text, response.queued_ms if starts_ms is None else starts_ms))

    def speech_queued(self, response_id: str, ms: float, text: str = "") -> None:
        """More speech; `text` is what begins to be spoken with it, when that is known."""
        response = self._open(response_id)
        if text:
            response.pieces.append(_Sentence(text, response.queued_ms))
        response.queued_ms += ms

    def complete(self, response_id: str) -> None:
        """All speech of a response was queued."""
        response = self._responses.get(response_id)
        if response is not None:
            response.is_complete = True

    def speech_shed(self, response_id: str, ms: float) -> None:
        """Speech that was queued and will never be sent."""
        response = self._open(response_id)
        response.queued_ms = max(response.sent_ms, response.queued_ms - ms)

    def queued_ms(self, response_id: str) -> float:
        """How much speech of a response was queued so far."""
        response = self._responses.get(response_id)
        return 0.0 if response is None else response.queued_ms

    # what leaves it

    def sentence_sent(self, response_id: str) -> None:
        for sentence in self._open(response_id).sentences:
            if not sentence.is_sent:
                sentence.is_sent = True
                return

    def speech_sent(self, response_id: str, ms: float, now: float) -> None:
        response = self._open(response_id)
        if response.plays_from is None:
            before = self._responses.get(self._latest_sent)
            response.plays_from = now if before is None else max(now, self._ends_at(before, now))
            self._latest_sent = response_id
        elif self._heard(response, now) >= response.sent_ms:
            self._resume(response, now)
        response.sent_ms += ms

    def _resume(self, response: _Response, now: float) -> None:
        """Everything sent had been played, and more is sent now: the pause was none of the speech."""
        response.plays_from = now - response.sent_ms / 1000
        if response.reported_ms is not None:
            response.reported_ms, response.reported_at = response.sent_ms, now

    def playback(self, response_id: str, played_ms: int, now: float) -> None:
        """A client's report. One that is ahead of what was sent, or goes back, is taken for what it can be."""
        response = self._responses.get(response_id)
        if response is None or response.cut_ms is not None:
            return
        response.reported_ms = min(max(float(played_ms), response.reported_ms or 0.0), response.sent_ms)
        response.reported_at = now

    # what was heard

    def heard_ms(self, response_id: str, now: float) -> float:
        response = self._responses.get(response_id)
        return 0.0 if response is None else self._heard(response, now)

    def _heard(self, response: _Response, now: float) -> float:
        if response.cut_ms is not None:
            return response.cut_ms
        if response.reported_ms is not None:
            heard = response.reported_ms + (now - response.reported_at) * 1000
        elif response.plays_from is not None:
            heard = (now - response.plays_from) * 1000
        else:
            return 0.0
        return min(max(heard, 0.0), response.sent_ms)

    def _ends_at(self, response: _Response, now: float) -> float:
        """When what was sent of it will have been played; `now` when it has been or was cut."""
        if response.cut_ms is not None:
            return now
        starts = (
            now if response.plays_from is None or response.reported_ms is not None else max(now, response.plays_from)
        )
        return starts + (response.sent_ms - self._heard(response, now)) / 1000

    def has_speech(self, response_id: str) -> bool:
        """Whether any speech of it was queued."""
        response = self._responses.get(response_id)
        return response is not None and (response.queued_ms > 0 or response.sent_ms > 0)

    def has_report(self, response_id: str) -> bool:
        response = self._responses.get(response_id)
        return response is not None and response.reported_ms is not None

    def plays_until(self, response_id: str, now: float) -> float:
        """When the whole response, also what is still to be sent, will have been played; `now` when it has been."""
        response = self._responses.get(response_id)
        if response is None or response.cut_ms is not None:
            return now
        starts = max(response.plays_from or now, now)
        return max(starts, now) + max(0.0, response.queued_ms - self._heard(response, now)) / 1000

    def spoken_until(self, now: float) -> float | None:
        """When the last speech will have been played, or was; None when there was none."""
        response = self._responses.get(self._latest_sent)
        if response is None or response.plays_from is None:
            return None
        if response.cut_ms is not None:
            return response.cut_at
        if self._heard(response, now) < response.queued_ms:
            return self.plays_until(self._latest_sent, now)
        if response.reported_ms is not None:
            return response.reported_at + (response.sent_ms - response.reported_ms) / 1000
        return response.plays_from + response.sent_ms / 1000

    def playing(self, now: float) -> str | None:
        """The response the user is hearing, or will hear next; None when all was heard."""
        for response_id, response in self._responses.items():
            if response.cut_ms is None and self._heard(response, now) < response.queued_ms:
                return response_id
        return None

    def cut(self, response_id: str, now: float) -> float:
        """The user cut in: what was heard by now is all that will be. Returns it, in ms; the same number however often asked."""
        response = self._open(response_id)
        if response.cut_ms is None:
            response.cut_ms = self._heard(response, now)
            response.cut_at = now
        return response.cut_ms

    def heard_text(self, response_id: str, now: float) -> str:
        """The words heard so far."""
        response = self._responses.get(response_id)
        if response is None:
            return ""
        if self.text_only:
            return " ".join(sentence.text for sentence in response.sentences if sentence.is_sent)
        heard = self._heard(response, now)
        words: list[str] = []
        for sentence, start, end in _spans(response):
            if heard >= end > start or heard > start == end:
                words.append(sentence.text)
            elif heard > start:
                spoken = sentence.text.split()
                words.extend(spoken[: int(len(spoken) * (heard - start) / (end - start))])
        return " ".join(words)


def _spans(response: _Response) -> list[tuple[_Sentence, float, float]]:
    """Each sentence with where its audio begins and ends. Sentences known to begin at one place, as their text came ahead of
    the speech, share what follows by their length."""
    spans: list[tuple[_Sentence, float, float]] = []
    sentences = response.pieces or response.sentences
    first = 0
    while first < len(sentences):
        start = sentences[first].start_ms
        last = first
        while last + 1 < len(sentences) and sentences[last + 1].start_ms <= start:
            last += 1
        group = sentences[first : last + 1]
        characters = sum(len(sentence.text) for sentence in group) or 1
        if last + 1 < len(sentences):
            end = sentences[last + 1].start_ms
        elif response.is_complete or not response.pieces:
            end = max(response.queued_ms, start)
        else:
            end = max(response.queued_ms, start + characters / CHARACTERS_PER_SECOND * 1000)
        at = start
        for sentence in group:
            until = at + (end - start) * len(sentence.text) / characters
            spans.append((sentence, at, until))
            at = until
        first = last + 1
    return spans
