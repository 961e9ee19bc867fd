"""What passes between the two sides of a simulated conversation, and when it is over. Pure: elements and times come in, what is
to be done comes out.

In text, the words of a whole response are handed over when it has ended. The agent is listened to a little longer, as a person
would: until its turn is over or `patience_seconds` have passed, because what its planner is working on would be cut off by an
answer. What it says later is a further message. Whatever was said and not handed over goes with what follows: a response that was
cut keeps the words that were out.

In voice, sound passes by itself (`engine.simulate.mouth`); what is decided here is only the end.
"""

import attrs

from engine.elements import OutCommand, OutputElement, OutText, OutTranscript, ResponseStatus
from engine.protocol.turns import SESSION_SHOULD_END
from engine.simulate.report import Ending, Side
from engine.store.documents import SessionState

GRACE_SECONDS = 5.0
"""Voice: how long the agent has to take up what the simulated user said last, after that one has left: recognition and a model."""


@attrs.frozen
class Limits:
    max_turns: int = 30
    """Of the simulated user. Twice what a booking or a complaint takes."""
    max_seconds: float = 600.0
    silence_seconds: float = 60.0
    """Longer than any single bound of the engine: a tool's 30 s, a silent response's 20 s."""
    patience_seconds: float = 10.0
    """How long the agent's turn may go on after it has spoken, before it is answered."""


@attrs.frozen
class Open:
    """Both are there: ask the agent for its opening."""


@attrs.frozen
class Deliver:
    """Give one side the other's words, as a typed utterance."""

    to: Side
    text: str


@attrs.frozen
class HangUp:
    """The conversation is over: end the input of both sessions."""

    ending: Ending
    reason: str


Do = Open | Deliver | HangUp


@attrs.define(eq=False)
class _Party:
    words: list[str] = attrs.field(factory=list[str])
    """Said, and not handed over yet."""
    is_here: bool = False
    has_spoken_up: bool = False
    """A response has ended since the last words were handed over."""
    is_parting: bool = False
    """The response under way is a goodbye."""
    has_left: bool = False
    turn_id: str = ""
    """Of the answer to what it was told last; "" until that has begun."""
    owes: bool = False
    """It was told something, and the turn that answers is not over."""


@attrs.define(eq=False)
class Exchange:
    """One conversation. Times are seconds."""

    limits: Limits
    is_spoken: bool = False
    turns: int = attrs.field(default=0, init=False)
    ending: Ending | None = attrs.field(default=None, init=False)
    reason: str = attrs.field(default="", init=False)
    _parties: dict[Side, _Party] = attrs.field(factory=lambda: {side: _Party() for side in Side}, init=False)
    _began: float | None = attrs.field(default=None, init=False)
    _active_at: float = attrs.field(default=0.0, init=False)
    _patience_over: float | None = attrs.field(default=None, init=False)
    _leaves_at: float | None = attrs.field(default=None, init=False)
    """The simulated user has left: when the agent is not waited for any longer."""

    @property
    def deadline(self) -> float | None:
        """When `tick` has to be called, if nothing else happens."""
        if self.ending is not None or self._began is None or self._agent_is_leaving:
            return None  # before and after, the sessions keep to bounds of their own
        limits = (self._began + self.limits.max_seconds, self._active_at + self.limits.silence_seconds)
        others = [time for time in (self._patience_over, self._leaves_at) if time is not None]
        return min(*limits, *others)

    def has_left(self, side: Side) -> bool:
        return self._parties[side].has_left

    def take(self, side: Side, element: OutputElement, now: float) -> list[Do]:
        """What one side's session says."""
        self._active_at = max(self._active_at, now)
        if self.ending is not None:
            return []
        party = self._parties[side]
        match element:
            case OutText(text):
                party.words.append(text)
                party.has_spoken_up = False
                if side is Side.AGENT:
                    self._patience_over = None
            case OutTranscript(is_interim=False, turn_id=turn_id):
                party.turn_id, party.owes = turn_id, True
            case OutCommand("ready"):
                return self._arrive(party, now)
            case OutCommand(name) if name == SESSION_SHOULD_END:
                party.is_parting = True
            case OutCommand("response-end", parameters):
                return self._end_response(side, str(parameters.get("status")), now)
            case OutCommand("exit", parameters):
                return self._end_turn(side, str(parameters.get("turnId")), now)
            case OutCommand("session-end", parameters):
                return self._leave(side, str(parameters.get("state")), str(parameters.get("reason")), now)
            case _:
                pass
        return []

    def hear(self, now: float) -> None:
        """Voice: somebody can be heard."""
        self._active_at = max(self._active_at, now)

    def tick(self, now: float) -> list[Do]:
        """Time has passed."""
        if self.deadline is None or now < self.deadline or self._began is None:
            return []
        if self._leaves_at is not None and now >= self._leaves_at:
            return self._hang_up(Ending.TESTER, self.reason)
        if now >= self._began + self.limits.max_seconds:
            return self._hang_up(Ending.TIME_LIMIT, "the conversation took too long")
        if now >= self._active_at + self.limits.silence_seconds:
            return self._hang_up(Ending.SILENCE, "nobody said anything any more")
        return self._hand_over(now)

    def stop(self, ending: Ending, reason: str) -> None:
        """It is over for a reason from outside."""
        if self.ending is None:
            self.ending, self.reason = ending, reason

    # --- one side's session

    def _arrive(self, party: _Party, now: float) -> list[Do]:
        party.is_here = True
        if self._began is not None or not all(each.is_here for each in self._parties.values()):
            return []
        self._began = now
        self._parties[Side.AGENT].owes = True
        return [Open()]

    def _end_response(self, side: Side, status: str, now: float) -> list[Do]:
        party = self._parties[side]
        if status == ResponseStatus.CANCELLED:
            party.is_parting = False
            return []
        if not party.words and not party.is_parting:
            return []
        party.has_spoken_up = True
        if side is Side.TESTER:
            return self._answer(party)
        if not self.is_spoken:
            self._patience_over = now + self.limits.patience_seconds
            return self._hand_over(now) if self.limits.patience_seconds <= 0 else []
        return []

    def _answer(self, tester: _Party) -> list[Do]:
        """The simulated user has spoken."""
        text = _joined(tester)
        agent = self._parties[Side.AGENT]
        self.turns += bool(text)
        if self.is_spoken or agent.is_parting or not text:
            return []
        agent.turn_id, agent.owes = "", True
        return [Deliver(Side.AGENT, text)]

    def _end_turn(self, side: Side, turn_id: str, now: float) -> list[Do]:
        party = self._parties[side]
        if party.turn_id == turn_id:
            party.owes = False
        if side is Side.TESTER:
            return []
        if party.has_spoken_up and not party.is_parting:
            return self._hand_over(now)
        if self._leaves_at is not None and not self.is_spoken and not party.owes:
            return self._hang_up(Ending.TESTER, self.reason)
        return []

    def _hand_over(self, now: float) -> list[Do]:
        """The agent has said what it has to say for now."""
        self._patience_over = None
        agent = self._parties[Side.AGENT]
        if agent.is_parting:
            return []
        if self._leaves_at is not None:
            return [] if agent.owes else self._hang_up(Ending.TESTER, self.reason)
        if self.turns >= self.limits.max_turns:
            return self._hang_up(Ending.TURN_LIMIT, "the simulated user had no turns left")
        text = _joined(agent)
        if self.is_spoken or not text:
            return []
        return [Deliver(Side.TESTER, text)]

    def _leave(self, side: Side, state: str, reason: str, now: float) -> list[Do]:
        party = self._parties[side]
        party.has_left = True
        if state != SessionState.CLOSED:
            whose = "agent's" if side is Side.AGENT else "simulated user's"
            return self._hang_up(Ending.ERROR, f"The {whose} session broke: {reason}")
        if side is Side.AGENT:
            return self._hang_up(Ending.AGENT, reason)
        agent = self._parties[Side.AGENT]
        self.reason = reason
        if not self.is_spoken and not agent.owes:
            return self._hang_up(Ending.TESTER, reason)
        self._leaves_at = now + (GRACE_SECONDS if self.is_spoken and not agent.owes else self.limits.silence_seconds)
        return []

    @property
    def _agent_is_leaving(self) -> bool:
        agent = self._parties[Side.AGENT]
        return agent.is_parting and agent.has_spoken_up

    def _hang_up(self, ending: Ending, reason: str) -> list[Do]:
        self.ending, self.reason = ending, reason
        return [HangUp(ending, reason)]


def _joined(party: _Party) -> str:
    text = " ".join(word for word in (word.strip() for word in party.words) if word)
    party.words.clear()
    party.has_spoken_up = False
    return text
