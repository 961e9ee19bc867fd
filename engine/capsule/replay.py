"""Running the engine again on a capsule, and comparing what it tells the client with what it told.

The real session runs: its turns, its provider's rules, its agents. What was outside is played (`engine.capsule.player`), on a clock that
jumps, so that a call of minutes takes a second. What the client is told has to be the same elements in the same order, byte for byte, and
so has what others are asked and sent: chat models, tools, a provider. Times are not compared: on a real clock there is always something
in between.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, cast

import attrs
import trio
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from engine.capsule.codec import CapsuleError, Reader
from engine.capsule.conductor import Conductor
from engine.capsule.file import Capsule, Kind
from engine.capsule.player import DivergedError, Divergence, PlayedBoundary, Player
from engine.config import PipelineConfiguration, Settings
from engine.elements import InputAudio
from engine.errors import RemoteError
from engine.interfaces import Catalog, Environment
from engine.pipeline.line import ClientLine, open_line
from engine.session.live import Cut, LiveSessions
from engine.session.run import SessionMode, run_at_boundary
from engine.session.services import Parts, Services
from engine.session.windowing import SessionWindow
from engine.store.contract import Store
from engine.testing.schedule import Schedule, scheduled_by, virtual_clock

logger = logging.getLogger(__name__)

PASSES_BACK = 8
"""How far before a divergence its cause is looked for."""
MOST_TRIES = 64
AFTER_SECONDS = 120.0
"""How long a run may go on behind the end of its capsule: longer than any clean-up."""


@attrs.frozen
class Replayed:
    """What came of it."""

    told: int
    """Elements that the client was told as before, up to the first that was not."""
    expected: int
    """Elements it was told."""
    divergence: Divergence | None
    """The first thing that was not as before; None: everything was."""
    is_whole: bool
    """False: the capsule ends before its session did, and nothing is known of the rest."""
    lateness: float
    """The most that an element was apart from its time, seconds."""
    seconds: float
    """The length of the conversation."""
    same: int = 0
    """All that was compared and was as before: also what others were asked and sent."""
    turned: frozenset[int] = frozenset()
    """The passes in which what was ready went the other way round."""

    @property
    def is_equal(self) -> bool:
        return self.divergence is None


class KeptSettings(Settings):
    """Settings as they were kept, whatever the environment of this process says."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class _Nothing:
    """Stands for the store and the catalog: whatever is asked of them is answered by the capsule."""

    def __getattr__(self, name: str) -> Any:
        async def nothing(*_: object, **__: object) -> Any:
            await trio.lowlevel.checkpoint()
            raise AssertionError("there is nothing outside")

        return nothing


def replay(
    capsule: Capsule,
    parts: Parts | Services,
    *,
    schedule: int | None = None,
    packages: Sequence[str] = (),
    turned: frozenset[int] = frozenset(),
) -> Replayed:
    """Run the engine on a capsule. `parts` are the models and managers that are installed; of services nothing else is used.

    `schedule` seeds the order of tasks that are ready at the same instant; None: as it was, where that is known. In the passes that
    are `turned` it is the other way round. Must not be called inside Trio.

    Raises:
        CapsuleError: it holds what cannot be made here, such as an agent of a class that is not installed.
    """
    kept: Mapping[str, Any] = capsule.head.get("schedule") or {}
    seed = kept.get("seed") if schedule is None else schedule
    conductor = Conductor(virtual_clock(), Schedule(seed or 0, turned))
    with scheduled_by(conductor.schedule, is_sorted=bool(kept.get("is_sorted", True))):
        result = trio.run(
            _replay, capsule, parts, tuple(packages), conductor, clock=conductor.clock, instruments=[conductor]
        )
    return attrs.evolve(result, turned=turned)


def replay_in_some_order(
    capsule: Capsule,
    make_parts: Callable[[], Parts | Services],
    *,
    schedule: int | None = None,
    packages: Sequence[str] = (),
    may_go_on: Callable[[], bool] = lambda: True,
) -> Replayed:
    """As `replay`; where it diverges, other orders of what was ready in the same pass of the loop are tried, just before.

    A capsule holds in which pass something came, and not in which order everything ran within one: another session, or what is not
    there in a replay, may have been in between. An order in which everything is as it was is as good as the one that it was. Each try
    turns one more pass round, and stays when the divergence then comes later. At most `MOST_TRIES`, while one `may_go_on`.
    """
    best = replay(capsule, make_parts(), schedule=schedule, packages=packages)
    tries = iter(range(MOST_TRIES))
    while best.divergence is not None:
        better: Replayed | None = None
        for back in range(PASSES_BACK):
            if next(tries, None) is None or not may_go_on():
                return best
            turned = best.turned ^ {best.divergence.step - back}
            found = replay(capsule, make_parts(), schedule=schedule, packages=packages, turned=turned)
            if found.divergence is None or found.same > best.same:
                better = found
                break
        if better is None:
            return best
        best = better
    return best


async def _replay(capsule: Capsule, parts: Parts | Services, packages: Sequence[str], conductor: Conductor) -> Replayed:
    reader = Reader(packages)
    head = capsule.head
    try:
        configuration = cast("PipelineConfiguration", reader.value(head["configuration"]))
        principal = reader.value(head["principal"])
        mode = SessionMode[head["mode"]]
        settings = KeptSettings.model_validate(head["settings"])
    except (KeyError, ValueError) as exc:
        raise CapsuleError(f"The head of the capsule lacks something: {exc}") from exc
    player = Player(capsule, reader, conductor, trio.current_time())
    boundary = PlayedBoundary(player)
    nothing = _Nothing()
    services = Services(
        settings=settings,
        catalog=cast("Catalog", nothing),
        store=_no_store(),
        environment=Environment(lambda: reader.value(head["began"]), lambda kind: kind, Random(0)),
        models=parts.models,
        managers=parts.managers,
        recognizers=parts.recognizers,
        filters=parts.filters,
        action_mappers=parts.action_mappers,
        live=LiveSessions(),
    )
    line = open_line(configuration, settings)
    client = _Client(player, line, services.live)
    take = SessionWindow(line).take if mode is SessionMode.CONVERSATION else None

    async def run_it() -> None:
        try:
            with client.session:
                await run_at_boundary(
                    configuration, line, services, boundary, principal=principal, take=take, mode=mode
                )
        except* (DivergedError, CapsuleError):
            pass  # it is noted where it happened
        except* Exception as group:
            player.diverge(f"the session fails: {group.exceptions[0]!r}")

    conductor.begin(player.given, player.began, capsule.records[0].step if capsule.records else 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send, name="the client's input")
        nursery.start_soon(client.interfere, name="what comes over it")
        nursery.start_soon(client.take, name="the client's output")
        nursery.start_soon(_stop_at, player, nursery.cancel_scope, name="the end")
        await run_it()
        nursery.cancel_scope.cancel(reason="the session is over")
    if player.fault is not None:
        raise player.fault
    if capsule.is_whole:
        player.finish()
    expected = sum(record.kind in (Kind.OUT, Kind.CUT) for record in capsule.records)
    seconds = capsule.records[-1].at if capsule.records else 0.0
    return Replayed(player.told, expected, player.divergence, capsule.is_whole, player.lateness, seconds, player.same)


async def _stop_at(player: Player, run: trio.CancelScope) -> None:
    """The first divergence ends the run, and so does a run that has no end."""
    last = player.events[-1].at if player.events else 0.0
    with trio.move_on_after(last + AFTER_SECONDS):
        await player.over.wait()
    if not player.over.is_set():
        player.diverge("the session does not end, and did")
    run.cancel(reason="there is nothing more to compare")


def _no_store() -> Store:
    async def nothing(*_: object, **__: object) -> Any:
        await trio.lowlevel.checkpoint()
        raise AssertionError("there is nothing outside")

    kind: type[Store] = type("NoStore", (Store,), {name: staticmethod(nothing) for name in Store.__abstractmethods__})
    return kind()


@attrs.define(eq=False)
class _Client:
    """Does what the client did, when it did it, and takes what the door took."""

    player: Player
    line: ClientLine
    live: LiveSessions
    session: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def send(self) -> None:
        """What the client sent. Where there was no room it waits, as its reader did."""
        for event in self.player.events:
            match event.kind:
                case Kind.IN:
                    await event.due()
                    data = event.fields[0]
                    await self.line.put_input(InputAudio(data) if isinstance(data, bytes) else self.player.value(data))
                case Kind.END_OF_INPUT:
                    await event.due()
                    self.line.end_input()
                case _:
                    pass

    async def take(self) -> None:
        """What the door took."""
        for event in self.player.events:
            if event.kind is Kind.TOOK:
                await event.due()
                await self.line.take_output()

    async def interfere(self) -> None:
        """What came over the session from elsewhere. None of it waits for another."""
        async with trio.open_nursery() as events:
            for event in self.player.events:
                match event.kind:
                    case Kind.VANISHED:
                        await event.due()
                        self.session.cancel(reason="the client vanished")
                    case Kind.CUT_OFF:
                        await event.due()
                        self._cut_off(*event.fields)
                    case Kind.EVENT:
                        await event.due()
                        events.start_soon(self._take_event, event.fields[0], name="chat event")
                    case _:
                        pass

    def _cut_off(self, reason: str, error: Any, is_taken_over: bool) -> None:
        made = cast("RemoteError | None", self.player.value(error))
        for session in self.live.all:
            session.end(Cut(reason, made, is_taken_over=is_taken_over))

    async def _take_event(self, event: Any) -> None:
        for session in self.live.all:
            if session.take_event is not None:
                try:
                    await session.take_event(self.player.value(event))
                except Exception:  # the fence: it was told to whoever had sent the event
                    logger.debug("a chat event has failed", exc_info=True)
