"""The contract, held against what real clients are told: some sessions of a running server are judged as they are sent.

It counts and logs what it finds, without a word of the conversation, and never changes anything.
"""

import logging
import zlib

import attrs

from engine.elements import OutCommand, OutputElement
from engine.observation import Observer
from engine.protocol.promises import Promises, Violation

logger = logging.getLogger(__name__)

ID_CHARACTERS = 80
"""The most of an id in the log; those of responses are their provider's."""


def is_sampled(session_id: str, rate: float) -> bool:
    """Whether a session is one of those that are judged, a share of `rate`. Its id decides, so that this needs no randomness of
    the session's, and is the same in every process and each time that it is resumed."""
    return zlib.crc32(session_id.encode(errors="replace")) < rate * 2**32


@attrs.define(eq=False)
class ContractWatch:
    """Judges a connection from the `ready` of a sampled session on: that session, and those that follow on the connection."""

    session_id: str
    observer: Observer
    promises: Promises = attrs.field(init=False)
    _is_judging: bool = attrs.field(default=False, init=False)
    _broken: set[str] = attrs.field(factory=set[str], init=False)
    """The promises that are known to be broken in this session."""

    def __attrs_post_init__(self) -> None:
        self.promises = Promises(self._tell)

    def sent(self, element: OutputElement, now: float) -> None:
        """An element is sent to the client, at `now` (seconds)."""
        try:
            if isinstance(element, OutCommand) and element.name == "ready":
                self._begin(str(element.parameters.get("sessionId")))
            if self._is_judging:
                self.promises.take(element, now)
        except Exception as exc:  # whatever is wrong with the judge is nothing to the conversation
            self._give_up(exc)

    def over(self) -> None:
        """All was sent, and nothing will follow."""
        try:
            if self._is_judging:
                self.promises.end()
        except Exception as exc:  # as above
            self._give_up(exc)

    def _begin(self, session_id: str) -> None:
        if self._is_judging or session_id == self.session_id:
            self._is_judging = True
            self.session_id = session_id
            self._broken.clear()
            self.observer.contract_judged()

    def _tell(self, violation: Violation) -> None:
        if violation.rule in self._broken:
            return
        self._broken.add(violation.rule)
        self.observer.contract_broken(violation.rule)
        logger.error(
            "session %s: the promise %r was broken in turn %r, response %r",
            self.session_id,
            violation.rule,
            violation.turn_id[:ID_CHARACTERS],
            violation.response_id[:ID_CHARACTERS],
        )

    def _give_up(self, exc: Exception) -> None:
        self._is_judging = False
        self.session_id = ""
        logger.error("the contract cannot be judged: %s", type(exc).__name__)
