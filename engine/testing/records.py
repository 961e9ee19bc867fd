"""What is known of a connection once it has ended, for whoever opens one without a stage: `check_record(record_of(...))`."""

from collections.abc import Collection, Sequence

import attrs

from engine.config import PipelineConfiguration, Settings
from engine.elements import InputElement, OutCommand, OutputElement, OutSpeech
from engine.interfaces import Context, Environment
from engine.pipeline.line import ClientLine, open_line
from engine.store.contract import Store
from engine.store.documents import SessionState
from engine.testing.contract import Queue, SessionRecord, StoredSession, sessions_of
from engine.testing.faults import FaultyStore
from engine.testing.invariants import Heard
from engine.testing.scripted import ScriptedClient


def watched_line(wishes: PipelineConfiguration, settings: Settings) -> "WatchedLine":
    """As `open_line`."""
    opened = open_line(wishes, settings)
    return WatchedLine(opened.inbox, opened.outbox)


def noting_ids(environment: Environment) -> tuple[Environment, set[str]]:
    """The same, and the ids that it makes."""
    own_ids = set[str]()

    def new_id(kind: str) -> str:
        made = environment.new_id(kind)
        own_ids.add(made)
        return made

    return attrs.evolve(environment, new_id=new_id), own_ids


def record_of(
    client: ScriptedClient,
    contexts: Sequence[Context],
    store: Store,
    wishes: PipelineConfiguration,
    *,
    ended_at: float | None,
    asked_to_end: float | None = None,
    own_ids: Collection[str] | None = None,
) -> SessionRecord:
    """What the client was told and sent, and, of a `FaultyStore`, what was written.

    `contexts` are those of the connection's sessions, in their order; without them what was written is left out, as it cannot be
    told whose it is. `own_ids` are those that were made for this connection: others may share its store.
    """
    record = SessionRecord(
        client.heard,
        sent=client.sent,
        asked_to_end=asked_to_end,
        ended=ended_at,
        queues=client.line.queues() if isinstance(client.line, WatchedLine) else {},
        has_tokens=wishes.tokens,
        text_only=wishes.text_only,
        is_over=ended_at is not None and not client.line.is_lost,
    )
    if isinstance(store, FaultyStore) and contexts and ended_at is not None:
        runs = {(each.session.id, each.session.fence) for each in contexts}
        saved = [each for each in store.saved_sessions if each.state is not SessionState.OPEN]
        record.saved = [session for session in saved if (session.id, session.fence) in runs]
        record.usage = [each for each in store.written_usage if own_ids is None or each.id in own_ids]
        record.stored = _stored(store, client.heard, contexts, own_ids)
    return record


def _stored(
    store: FaultyStore, heard: Heard, contexts: Sequence[Context], own_ids: Collection[str] | None
) -> list[StoredSession]:
    """What was stored of each session of a connection, also when one of them was resumed on it."""
    stored: list[StoredSession] = []
    parts = sessions_of(heard)
    exits = [_exits(part) for part in parts]
    for number, context in enumerate(contexts[: len(parts)]):
        others = {turn_id for place, ids in enumerate(exits) if place != number for turn_id in ids}
        turns = [turn for turn in store.turns if turn.session_id == context.session.id]
        own = [
            turn
            for turn in turns
            if turn.id not in others and (turn.id in exits[number] if own_ids is None else turn.id in own_ids)
        ]
        first = own[0].index if own else len(turns)
        lines = {line.position: line for line in store.messages if line.session_id == context.session.id}
        in_order = [lines[position] for position in sorted(lines)]
        earlier = [turn for turn in turns if turn.index < first]
        stored.append(StoredSession(own, context.messages, earlier, in_order))
    return stored


def _exits(part: Heard) -> set[str]:
    return {str(e.parameters["turnId"]) for _, e in part if isinstance(e, OutCommand) and e.name == "exit"}


@attrs.define(eq=False)
class WatchedLine(ClientLine):
    """A line that remembers the most that ever waited on it."""

    most_input: int = attrs.field(default=0, init=False)
    most_bytes: int = attrs.field(default=0, init=False)
    most_output: int = attrs.field(default=0, init=False)
    most_speech_ms: float = attrs.field(default=0.0, init=False)

    async def put_input(self, element: InputElement) -> None:
        await super().put_input(element)
        self.most_input = max(self.most_input, len(self.inbox))
        self.most_bytes = max(self.most_bytes, self.inbox.waiting_bytes)

    def put_output(self, element: OutputElement) -> bool:
        kept = super().put_output(element)
        if isinstance(element, OutSpeech):
            self.most_speech_ms = max(self.most_speech_ms, self.outbox.unsent_speech_ms)
        else:
            self.most_output = max(self.most_output, len(self.outbox))
        return kept

    def queues(self) -> dict[str, Queue]:
        """The most that waited, and what may."""
        speech_elements = self.outbox.max_speech_ms / LEAST_FRAME_MS
        return {
            "the inbox": Queue(self.most_input, self.inbox.max_elements),
            "the inbox (bytes)": Queue(self.most_bytes, self.inbox.max_bytes + MOST_ONE_INPUT),
            "the outbox": Queue(self.most_output, self.outbox.max_elements + speech_elements),
            "the outbox (ms of speech)": Queue(self.most_speech_ms, self.outbox.max_speech_ms),
        }


LEAST_FRAME_MS = 1.0
"""Far shorter than what any model makes of its speech."""
MOST_ONE_INPUT = 1 << 20
"""An empty inbox takes any element: one frame (`Settings.max_frame_bytes`)."""
