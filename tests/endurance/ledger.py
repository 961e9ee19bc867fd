"""What a session's clients were told is stored, and whether it is."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import attrs

from engine.store.documents import TurnDocument

ALL_TURNS = 1 << 20


class ViolationError(Exception):
    """Something that has to hold does not."""


@attrs.frozen
class Entry:
    said: str
    answered: str
    connection: int
    """On which of the session's connections, counted in their order, it was acknowledged. What the older of two was told late has
    happened all the same before what the newer one was told."""


@attrs.define(eq=False)
class Ledger:
    """One session's acknowledged turns, in the order in which they were acknowledged."""

    session_id: str
    acknowledged: dict[str, Entry] = attrs.field(factory=dict[str, Entry], init=False)
    _unacknowledged: int = attrs.field(default=0, init=False)
    """Turns that were stored when it was checked last, and that no client was told of."""

    def note(self, turn_id: str, said: str, answered: str, connection: int = 0) -> None:
        """Raises ViolationError: it was noted before."""
        if turn_id in self.acknowledged:
            raise ViolationError(f"session {self.session_id}: the turn {turn_id} was acknowledged twice")
        self.acknowledged[turn_id] = Entry(said, answered, connection)

    def check(self, stored: Sequence[TurnDocument], *, under_way: int) -> None:
        """Judge what is stored. At most `under_way` turns since the last check may be there unacknowledged.

        Raises:
            ViolationError: a turn is missing, changed or out of order, or there is a gap or a duplicate.
        """
        indexes = [turn.index for turn in stored]
        if indexes != list(range(len(stored))):
            raise ViolationError(f"session {self.session_id}: the stored turns have the indexes {indexes}")
        turns = {turn.id: turn for turn in stored}
        if len(turns) != len(stored):
            raise ViolationError(f"session {self.session_id}: a turn is stored twice")
        missing = [turn_id for turn_id in self.acknowledged if turn_id not in turns]
        if missing:
            raise ViolationError(f"session {self.session_id}: acknowledged turns are not stored: {missing}")
        for turn_id, entry in self.acknowledged.items():
            _compare(self.session_id, turns[turn_id], entry)
        in_order = sorted(self.acknowledged, key=lambda turn_id: self.acknowledged[turn_id].connection)
        if [turn.id for turn in stored if turn.id in self.acknowledged] != in_order:
            raise ViolationError(f"session {self.session_id}: the stored turns are in another order")
        unacknowledged = len(stored) - len(self.acknowledged)
        if unacknowledged - self._unacknowledged > under_way:
            raise ViolationError(
                f"session {self.session_id}: {unacknowledged - self._unacknowledged} more turns are stored than"
                f" acknowledged, and only {under_way} can have been under way"
            )
        self._unacknowledged = unacknowledged


def _compare(session_id: str, turn: TurnDocument, entry: Entry) -> None:
    heard = " ".join(" ".join(output.heard for output in turn.output).split())
    if turn.input.text != entry.said or heard != " ".join(entry.answered.split()):
        raise ViolationError(
            f"session {session_id}: the turn {turn.id} is stored as {turn.input.text!r}: {heard!r} and was"
            f" {entry.said!r}: {entry.answered!r}"
        )


def check_file(store: str) -> None:
    """The integrity of a SQLite store's file; nothing for other stores. Raises ViolationError."""
    kind, _, path = store.partition(":")
    if kind != "sqlite":
        return
    with closing(sqlite3.connect(Path(path))) as connection:
        try:
            found: list[tuple[str]] = connection.execute("PRAGMA integrity_check").fetchall()
        except sqlite3.DatabaseError as exc:
            found = [(str(exc),)]
    if found != [("ok",)]:
        raise ViolationError(f"the database file is damaged: {found}")
