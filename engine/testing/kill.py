"""Kill a session at every await: a conversation that can be had again is had again and again, and each time it is killed at another point.

scene = Scene(lambda: {"model": ConversingModel("At seven, by the window.")}, visit)
for killed in kill_everywhere(scene, every=10):
    assert not killed.violations, killed.story

A point is one step of one task of the session: whatever can happen between two steps happens there. What happens is a `Kill`. Afterwards
every promise of the contract holds, nothing is left running, and the session is opened again: it knows every turn that was acknowledged,
takes itself for a reconnect, and answers.
"""

import copy
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

import attrs
import trio

from engine.elements import ControlToken, InputText, OutCommand, OutError, OutputElement, OutText, OutTranscript
from engine.interfaces import Context, Environment, Role
from engine.protocol.promises import Violation
from engine.session.live import LiveSessions, revoked, server_stops
from engine.session.services import Services
from engine.store.documents import SessionState, TurnDocument
from engine.store.memory import MemoryStore
from engine.testing.checkpoints import Checkpoint, Steps
from engine.testing.contract import SessionRecord, check_record
from engine.testing.faults import FaultPlan, FaultyStore, no_faults
from engine.testing.invariants import Heard, check_memory, check_turns
from engine.testing.schedule import raise_at_next_step, run_repeatably
from engine.testing.scripted import ScriptedClient
from engine.testing.stage import open_stage, scripted_environment
from engine.testing.timeline import timeline

SESSION = "killed"
"""The id of the session that is killed, and of the one that goes on with it."""
BESIDE = "beside"
"""The id of the one that runs beside it, when one does."""
CLIENT_VANISHED = "the client vanished"
CLIENT_LEFT = "the client ended the session"
"""Reasons of a session's end."""
LAST_WORDS = "Are you still there?"
ANSWER_SECONDS = 60.0
END_SECONDS = 300.0
"""Of virtual time: a session that has not ended by then never will."""


class Kill(StrEnum):
    VANISH = "vanish"
    """The client's socket is gone: the connection is cancelled."""
    CUT = "cut"
    """The session is ended from outside: the server stops, or the credentials are revoked."""
    CRASH = "crash"
    """What the task has waited for raises what nobody expects."""
    TAKEOVER = "takeover"
    """Another connection opens the session."""
    DEATH = "death"
    """The process dies: nothing of the session reaches the store any more."""

    def fits(self, checkpoint: Checkpoint) -> bool:
        """Whether it can be done there."""
        match self:
            case Kill.CRASH:
                return checkpoint.can_crash
            case Kill.CUT | Kill.TAKEOVER:
                return checkpoint.is_live
            case Kill.VANISH | Kill.DEATH:
                return True


open_unjudged = partial(open_stage, unjudged="it is judged by what was killed")


class CrashError(Exception):
    """What nobody expects. Raised by `Kill.CRASH`."""


class Killable(Protocol):
    """A connection that can be killed. A `Stage` is one."""

    @property
    def client(self) -> ScriptedClient: ...
    @property
    def services(self) -> Services: ...
    @property
    def over(self) -> trio.Event: ...
    @property
    def contexts(self) -> Sequence[Context]:
        """Of its sessions."""
        ...

    def vanish(self) -> None: ...
    def record(self) -> SessionRecord: ...


@attrs.frozen
class Scene:
    """A conversation that can be had again: the same parts, the same user.

    `parts` makes all parts anew for each run, as arguments of `open`; nothing of one run may be in the next. `visit` is what the user
    does. It is cancelled when the connection is over, and what it raises once something was killed counts for nothing.
    `open` is `open_stage`, or a function of one's own that takes `store`, `environment`, `live`, `session_id` and `connection` besides.
    """

    parts: Callable[[], Mapping[str, Any]]
    visit: Callable[[Any], Awaitable[None]]
    open: Callable[..., AbstractAsyncContextManager[Killable]] = open_unjudged
    plan: FaultPlan = no_faults
    """How the store behaves."""


@attrs.define(eq=False)
class Killed:
    """What came of one kill."""

    how: Kill | None
    """None: nothing was killed."""
    struck: Sequence[Checkpoint]
    """Where it was killed: at one point, or at two."""
    heard: Heard
    sent: Sequence[Any]
    heard_beside: Heard
    """By the client of the session beside it, when there is one."""
    checkpoints: list[Checkpoint]
    """All of them, when nothing was killed."""
    violations: list[Violation] = attrs.field(factory=list[Violation])

    @property
    def story(self) -> str:
        """What a person needs to find it."""
        where = "\n".join(f"{self.how} at {each}" for each in self.struck)
        return f"{where}\n{timeline(self.heard, self.sent, self.violations)}"


def checkpoints(scene: Scene, *, seed: int = 0, beside: Scene | None = None) -> list[Checkpoint]:
    """Where the session of a scene can be killed. Raises AssertionError when the scene breaks a promise by itself."""
    clean = run_clean(scene, seed=seed, beside=beside)
    assert not clean.violations, clean.story
    return clean.checkpoints


def run_clean(scene: Scene, *, seed: int = 0, beside: Scene | None = None) -> Killed:
    """The scene in which nobody is killed, judged too."""
    plan: dict[int, Kill] = {}
    return run_repeatably(seed, _run, scene, None, plan, seed, beside)


def kill(
    scene: Scene,
    how: Kill,
    number: int,
    *,
    again: tuple[Kill, int] | None = None,
    seed: int = 0,
    beside: Scene | None = None,
) -> Killed:
    """Have the scene once more, and kill its session at a checkpoint.

    `again`: kill it once more, that many steps later, in the middle of its clean-up; where that cannot be, it is not.
    `beside`: another conversation in the same process, which must not be touched.
    """
    plan = {number: how}
    if again is not None:
        plan[number + again[1]] = again[0]
    with _quiet():
        return run_repeatably(seed, _run, scene, how, plan, seed, beside)


def kill_everywhere(
    scene: Scene, *, seed: int = 0, every: int = 1, first: int = 0, how: Sequence[Kill] = tuple(Kill)
) -> Iterator[Killed]:
    """Each kind of kill at each checkpoint where it can be, as they come; with `every`, at one in that many of them from `first` on."""
    found = checkpoints(scene, seed=seed)
    for kind in how:
        for number in [each.number for each in found if kind.fits(each)][first::every]:
            yield kill(scene, kind, number, seed=seed)


@contextmanager
def _quiet() -> Generator[None]:
    """What was killed may say so a thousand times."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


# --- one run -----------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Run:
    """One run of a scene, and what follows it."""

    scene: Scene
    how: Kill | None
    plan: Mapping[int, Kill]
    seed: int
    beside: Scene | None
    memory: MemoryStore = attrs.field(factory=MemoryStore)
    live: LiveSessions = attrs.field(factory=LiveSessions)
    environment: Environment = attrs.field(init=False)
    connection: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    steps: Steps = attrs.field(init=False)
    stage: Killable | None = None
    seen: list[Checkpoint] = attrs.field(factory=list[Checkpoint])
    struck: trio.Event = attrs.field(factory=trio.Event)
    killed_at: float | None = None
    told: int = 0
    """How much the client had been told when it was killed."""
    violations: list[Violation] = attrs.field(factory=list[Violation])

    def __attrs_post_init__(self) -> None:
        self.environment = scripted_environment(self.seed)
        self.steps = Steps(self._step, lambda: self.live.find(SESSION) is not None, self.plan)

    def _step(self, checkpoint: Checkpoint, task: trio.lowlevel.Task) -> None:
        """Called between two steps, of those that are planned or, where nothing is, of all."""
        how = self.plan.get(checkpoint.number)
        if how is None:
            self.seen.append(checkpoint)
        elif how.fits(checkpoint):
            self.seen.append(checkpoint)
            self._strike(how, task)

    def _strike(self, how: Kill, task: trio.lowlevel.Task) -> None:
        if self.killed_at is None:
            self.killed_at = trio.current_time()
            self.told = len(self.stage.client.heard) if self.stage is not None else 0
            self.struck.set()
        match how:
            case Kill.VANISH:
                self.connection.cancel(reason="the client vanished")
            case Kill.CUT:
                found = self.live.find(SESSION)
                assert found is not None, "there is no session to cut"
                found.end(server_stops() if self.seen[-1].number % 2 else revoked())
            case Kill.CRASH:
                raise_at_next_step(task, CrashError(str(self.seen[-1])))
            case Kill.DEATH:
                dead, self.memory = self.memory, copy.deepcopy(self.memory)
                dead.close()
                self.live = LiveSessions()
                self.connection.cancel(reason="the process died")
            case Kill.TAKEOVER:
                pass  # whoever waits for it comes

    def broken(self, rule: str, message: str) -> None:
        at = trio.current_time() if self.killed_at is None else self.killed_at
        self.violations.append(Violation(rule, message, self.told, at))

    # --- the run

    async def run(self) -> Killed:
        trio.lowlevel.add_instrument(self.steps)
        before = trio.lowlevel.current_statistics().tasks_living
        heard_beside: Heard = ()
        async with trio.open_nursery() as nursery:
            if self.how is Kill.TAKEOVER:
                nursery.start_soon(self._take_over, name="takeover")
            if self.beside is None:
                await self._converse()
            else:
                heard_beside = await self._converse_beside(self.beside)
        if self.steps.failure is not None:
            raise self.steps.failure
        trio.lowlevel.remove_instrument(self.steps)
        stage = self.stage
        assert stage is not None
        if self.how is not None:
            assert self.killed_at is not None, "the scene is not the same each time"
            self._check_acknowledged(stage, await self.memory.get_turns(SESSION, limit=1000))
            if self.how is not Kill.TAKEOVER:
                await self._resume()
        left = trio.lowlevel.current_statistics().tasks_living - before
        if left:
            self.broken("left-running", f"{left} tasks outlived the session")
        struck, seen = (self.seen, []) if self.plan else ([], self.seen)
        return Killed(self.how, struck, stage.client.heard, stage.client.sent, heard_beside, seen, self.violations)

    async def _converse(self) -> None:
        """The conversation, to its end; then it is judged."""
        store = FaultyStore(self.scene.plan, self.memory)
        self.steps.is_armed = True
        has_left = False
        try:
            async with self.scene.open(
                **self.scene.parts(),
                store=store,
                environment=self.environment,
                live=self.live,
                session_id=SESSION,
                connection=self.connection,
            ) as stage:
                self.stage = stage
                await self._visit(stage)
        except* CrashError as crash:
            if self.stage is None or not _is_over(self.stage):
                self.broken("session-end", f"a crash went beyond the session: {_place(crash)}")
            has_left = True  # where no session is open a connection's own fence takes it, which a stage has not
        if self.stage is None or has_left or self.how is Kill.DEATH:
            return
        record = self.stage.record()
        if self.how in (Kill.VANISH, Kill.CUT, Kill.TAKEOVER):
            record.asked_to_end = self.killed_at
        if self.how is Kill.TAKEOVER:  # what it could still write, and what not, the store says: it is another's by now
            record.saved, record.stored = None, ()
        self.violations += check_record(record)
        if self.how is Kill.CRASH:
            self._check_told(self.stage)

    async def _visit(self, stage: Killable) -> None:
        async with trio.open_nursery() as nursery:

            async def end() -> None:
                await stage.over.wait()
                nursery.cancel_scope.cancel(reason="the connection is over")

            nursery.start_soon(end, name="end of the visit")
            try:
                await self.scene.visit(stage)
            except Exception:  # of a user who has something else before them than they expected
                if self.how is None:
                    raise
            if self.how is Kill.CRASH:
                await self._is_answered(stage)
            if self.killed_at is not None and self.how is not Kill.CRASH:
                await self._ends(stage)
            nursery.cancel_scope.cancel(reason="the visit is over")

    async def _ends(self, stage: Killable) -> None:
        """What was killed ends: a session that was cut with its last element, as its connection may go on where it had ended already."""
        with trio.move_on_after(END_SECONDS):
            while not (stage.over.is_set() or (self.how in (Kill.CUT, Kill.TAKEOVER) and _is_over(stage))):
                await stage.client.changed()
            return
        self.broken("bound", f"it has not ended in {END_SECONDS:g} s")

    async def _is_answered(self, stage: Killable) -> None:
        """Where the session goes on, whoever speaks is answered."""
        client = stage.client
        if _is_over(stage):
            return
        begin = len(client.heard)
        await client.send(InputText(LAST_WORDS))
        with trio.move_on_after(ANSWER_SECONDS):
            while not _is_over(stage):
                if _answers(LAST_WORDS, [element for _, element in client.heard[begin:]]):
                    return
                await client.changed()
        if not _is_over(stage):
            self.broken("answered", f"{LAST_WORDS!r} was not")

    def _check_told(self, stage: Killable) -> None:
        """A session that ends by a crash says so to its client, and does not end as if somebody had wanted that."""
        is_told = False
        has_left = any(isinstance(element, ControlToken) for _, element in stage.client.sent)
        for _, element in stage.client.heard:
            match element:
                case OutCommand(name="ready"):
                    is_told = False
                case OutError(recoverable=False):
                    is_told = True
                case OutCommand(name="session-end", parameters={"state": state, "reason": reason}):
                    is_failed = state == SessionState.DISCONNECTED and reason != CLIENT_VANISHED
                    if is_failed and not is_told:
                        self.broken("session-end", "the session has failed, and its client was not told why")
                    if state == SessionState.CLOSED and not has_left and reason == CLIENT_LEFT:
                        self.broken("session-end", "the session has failed, and was closed as if its client had left")
                case _:
                    pass

    # --- a session beside it

    async def _converse_beside(self, scene: Scene) -> Heard:
        """What the client of the other session has heard by the end of its visit."""
        environment = _named(scripted_environment(self.seed), BESIDE)
        store = FaultyStore(scene.plan, MemoryStore() if self.how is Kill.DEATH else self.memory)
        async with scene.open(
            **scene.parts(),
            store=store,
            environment=environment,
            live=self.live,
            session_id=BESIDE,
            connection=trio.CancelScope(),
        ) as stage:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._converse, name="the visit that is killed")
                await scene.visit(stage)
        self.violations += check_record(stage.record())
        return stage.client.heard

    # --- what follows

    async def _take_over(self) -> None:
        await self.struck.wait()
        await self._resume()

    async def _resume(self) -> None:
        """The session is opened again, in the same process or, when that has died, in another."""
        store = FaultyStore(self.scene.plan, self.memory)
        async with self.scene.open(
            **self.scene.parts(),
            store=store,
            environment=self.environment,
            live=self.live,
            session_id=SESSION,
            connection=trio.CancelScope(),
        ) as stage:
            with trio.move_on_after(ANSWER_SECONDS):
                while not stage.client.counts["ready"] and not stage.over.is_set():
                    await stage.client.changed()
            if not stage.client.counts["ready"]:
                self.broken("answered", "the session could not be opened again")
                return
            stored = await self.memory.get_turns(SESSION, limit=1000)
            store.written_turns.extend(stored)
            self._check_turns(stored)
            self._check_history(stage.contexts[-1], stored)
            await self._is_answered(stage)
        self.violations += check_record(stage.record())
        turns = await self.memory.get_turns(SESSION, limit=1000)
        self._check_turns(turns)
        if turns[: len(stored)] != stored:
            self.broken("stored-turns", "resuming has changed what was stored")

    def _check_acknowledged(self, killed: Killable, stored: Sequence[TurnDocument]) -> None:
        """Whatever was acknowledged is there."""
        ids = {turn.id for turn in stored}
        for _, element in killed.client.heard[: self.told if self.how is Kill.DEATH else None]:
            match element:
                case OutCommand(name="exit", parameters={"saved": True, "turnId": turn_id}) if turn_id not in ids:
                    self.broken("stored-turns", f"turn {turn_id} was acknowledged, and is not stored")
                case _:
                    pass

    def _check_turns(self, turns: Sequence[TurnDocument]) -> None:
        """Of a process that has died a call may be stored as one that did not finish: that is what it was."""
        found = check_turns(turns, ())
        self.violations += [each for each in found if self.how is not Kill.DEATH or each.rule != "tools"]

    def _check_history(self, context: Context, stored: Sequence[TurnDocument]) -> None:
        said = [message for message in context.messages if message.role is not Role.INSTRUCTION]
        words = sum(_count_words(turn) for turn in stored)
        if len(said) < min(words, context.settings.history_messages):
            self.broken("memory", f"of {words} messages that are stored {len(said)} are remembered")
        self.violations += check_memory(said, stored)
        if context.is_reconnect != bool(words):
            self.broken("memory", "the session does not know whether it is a reconnect")


async def _run(scene: Scene, how: Kill | None, plan: Mapping[int, Kill], seed: int, beside: Scene | None) -> Killed:
    return await _Run(scene, how, plan, seed, beside).run()


def _named(environment: Environment, name: str) -> Environment:
    """With ids that are no other session's in the process."""

    def new_id(kind: str) -> str:
        return f"{name}-{environment.new_id(kind)}"

    return attrs.evolve(environment, new_id=new_id)


def _count_words(turn: TurnDocument) -> int:
    is_said = bool(turn.input.text) and turn.input.kind in {"speech", "text"}
    return is_said + sum(bool(output.heard.strip()) for output in turn.output)


def _is_over(stage: Killable) -> bool:
    counts = stage.client.counts
    return stage.over.is_set() or counts["session-end"] >= max(counts["ready"], 1)


def _answers(words: str, heard: Sequence[OutputElement]) -> bool:
    """Whether a final with these words is followed by a sentence."""
    is_shown = False
    for element in heard:
        match element:
            case OutTranscript(text=text, is_interim=False):
                is_shown = text == words
            case OutText() if is_shown:
                return True
            case _:
                pass
    return False


def _place(group: BaseExceptionGroup[CrashError]) -> str:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)
