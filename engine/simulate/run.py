"""One run: the agent's session and the simulated user's, side by side in one process, each a real one over a line of its own."""

from collections.abc import Callable

import attrs
import trio

from engine.config import PipelineConfiguration
from engine.elements import Action, InputAudio, InputText, OutputElement, OutSpeech, OutTranscript, SpeechCut
from engine.pipeline.input import INTRO
from engine.pipeline.line import ClientLine, open_line
from engine.principal import AccessRole, Principal
from engine.session.run import run_session
from engine.session.services import Services
from engine.simulate.exchange import Deliver, Do, Exchange, HangUp, Limits, Open
from engine.simulate.mouth import FRAME_MS, RATE, Mouth
from engine.simulate.notes import Notes
from engine.simulate.report import Ending, Line, RunReport, Side, SideReport, failures_of, rounded
from engine.simulate.stored import StoredSide, read_side
from engine.store.documents import SessionState


@attrs.frozen
class Plan:
    """Who talks with whom, and how."""

    agent: str
    """Pipeline key of the agent that is tried out."""
    tester: str
    """Pipeline key of the simulated user."""
    is_spoken: bool = False
    limits: Limits = attrs.field(factory=Limits)
    min_score: float | None = None
    locales: tuple[str, ...] = ("en",)
    time_zone: str = "UTC"
    no_system_prompt: bool = False
    """The simulated user gets its own prompt alone."""

    def key(self, side: Side) -> str:
        return self.agent if side is Side.AGENT else self.tester

    def configuration(self, side: Side) -> PipelineConfiguration:
        return PipelineConfiguration(
            key=self.key(side),
            locales=self.locales,
            time_zone=self.time_zone,
            input_sample_rate=RATE,
            output_sample_rate=RATE,
            text_only=not self.is_spoken,
            tokens=True,
            test_mode=True,
            no_system_prompt=self.no_system_prompt and side is Side.TESTER,
        )

    def principal(self, side: Side) -> Principal:
        """Who runs this may talk to every agent there is. The agent knows the simulated user by its key, so that in a store that is
        kept it remembers each of them, and none of the real users."""
        return Principal(owner=f"simulation:{side}:{self.agent}:{self.tester}", role=AccessRole.ADMIN)

    @property
    def limits_in_words(self) -> dict[Ending, str]:
        limits = self.limits
        return {
            Ending.TURN_LIMIT: f"Neither side ended it within {limits.max_turns} turns of the simulated user.",
            Ending.TIME_LIMIT: f"Neither side ended it within {limits.max_seconds / 60:g} minutes.",
            Ending.SILENCE: f"Neither side said anything for {limits.silence_seconds:g} s.",
            Ending.INTERRUPTED: "It was stopped before its end.",
        }


@attrs.define(eq=False)
class SimulatedRun:
    """`hold` it, then ask for its `report`; also when it was cancelled."""

    plan: Plan
    services: Services
    index: int = 0
    seed: int | None = None
    tell: Callable[[Line], None] | None = None
    _exchange: Exchange = attrs.field(init=False)
    _notes: Notes = attrs.field(init=False)
    _lines: dict[Side, ClientLine] = attrs.field(init=False)
    _mouths: dict[Side, Mouth] = attrs.field(factory=lambda: {side: Mouth() for side in Side}, init=False)
    _began: float = attrs.field(default=0.0, init=False)
    _ended: float | None = attrs.field(default=None, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Somebody has said something: the deadline may be another."""
    _audio: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self._exchange = Exchange(self.plan.limits, self.plan.is_spoken)
        self._notes = Notes(self.plan.is_spoken, self.tell)
        self._lines = {side: open_line(self.plan.configuration(side), self.services.settings) for side in Side}

    @property
    def _now(self) -> float:
        return trio.current_time() - self._began

    async def hold(self) -> None:
        """Both sessions, until they have ended and are saved. Cancelling this saves them as cut off."""
        self._began = trio.current_time()
        try:
            async with trio.open_nursery() as nursery:
                for side in Side:
                    nursery.start_soon(self._hold_session, side, name=f"{side}: session")
                    nursery.start_soon(self._listen, side, nursery, name=f"{side}: listening")
                nursery.start_soon(self._keep_time, nursery, name="limits")
        finally:
            self._exchange.stop(Ending.INTERRUPTED, "it was stopped")
            if self._ended is None:
                self._ended = self._now

    async def _hold_session(self, side: Side) -> None:
        line, plan = self._lines[side], self.plan
        try:
            await run_session(plan.configuration(side), line, self.services, principal=plan.principal(side))
        finally:
            line.end_output()

    async def _listen(self, side: Side, nursery: trio.Nursery) -> None:
        while (element := await self._lines[side].take_output()) is not None:
            now = self._now
            self._notes.take(side, element, now)
            if self.plan.is_spoken:
                self._sound(side, element)
            await self._do(self._exchange.take(side, element, now), nursery)
            self._changed.set()

    def _sound(self, side: Side, element: OutputElement) -> None:
        """What a side's loudspeaker does: play, and stop when the other one begins to speak."""
        match element:
            case OutSpeech():
                self._mouths[side].say(element.data, is_last=element.is_last)
            case OutTranscript(is_interim=True):
                self._mouths[side].stop()
            case SpeechCut():
                self._mouths[side].say(b"")
            case _:
                pass

    async def _keep_time(self, nursery: trio.Nursery) -> None:
        while self._exchange.ending is None:
            self._changed = trio.Event()
            deadline = self._exchange.deadline
            with trio.CancelScope() as waiting:
                if deadline is not None:
                    waiting.deadline = self._began + deadline
                await self._changed.wait()
            await self._do(self._exchange.tick(self._now), nursery)

    async def _do(self, todo: list[Do], nursery: trio.Nursery) -> None:
        for do in todo:
            match do:
                case Open():
                    self._notes.asked(Side.AGENT, self._now)
                    await self._lines[Side.AGENT].put_input(Action(INTRO))
                    if self.plan.is_spoken:
                        nursery.start_soon(self._carry_sound, name="sound")
                case Deliver(side, text):
                    self._notes.asked(side, self._now)
                    await self._lines[side].put_input(InputText(text))
                case HangUp():
                    self._ended = self._now
                    self._audio.cancel(reason="the conversation is over")
                    for line in self._lines.values():
                        line.end_input()

    async def _carry_sound(self) -> None:
        with self._audio:
            async with trio.open_nursery() as nursery:
                for side in Side:
                    nursery.start_soon(self._carry_from, side, name=f"{side}: speech")

    async def _carry_from(self, side: Side) -> None:
        """One side's speech to the other, in real time; silence when there is none, as from a microphone."""
        mouth, line = self._mouths[side], self._lines[side.other]
        began = trio.current_time()
        frames = 0
        while not self._exchange.has_left(side.other):
            is_audible = not mouth.is_silent
            await line.put_input(InputAudio(mouth.frame()))
            frames += 1
            if is_audible:
                self._exchange.hear(self._now)
                self._notes.asked(side.other, self._now + FRAME_MS / 1000)
            await trio.sleep_until(began + frames * FRAME_MS / 1000)

    # --- the report

    async def report(self) -> RunReport:
        """What there is of it by now."""
        notes, plan = self._notes, self.plan
        stored = {side: await read_side(self.services.store, notes.sides[side].session_id) for side in Side}
        heard = {(side, response_id): text for side in Side for response_id, text in stored[side].heard.items()}
        agent, tester = (self._side(side, stored[side]) for side in Side)
        ending = self._exchange.ending or Ending.INTERRUPTED
        reason = self._exchange.reason
        failures = failures_of(ending, reason, notes.evaluations, plan.min_score, plan.limits_in_words)
        if ending.is_proper and agent.state != SessionState.CLOSED:
            failures.append(f"The agent's session broke at its end: {agent.end_reason}")
        return RunReport(
            index=self.index,
            seed=self.seed,
            passed=not failures,
            failures=failures,
            ended=ending,
            end_reason=reason,
            seconds=rounded(self._ended or 0.0),
            turns=self._exchange.turns,
            transcript=notes.lines(heard),
            understood=notes.understood,
            interruptions=notes.interruptions(heard),
            tools=notes.tools,
            steering=notes.steering or stored[Side.AGENT].instructions,
            evaluations=notes.evaluations,
            errors=notes.errors,
            agent=agent,
            tester=tester,
        )

    def _side(self, side: Side, stored: StoredSide) -> SideReport:
        notes = self._notes.sides[side]
        return SideReport(
            key=self.plan.key(side),
            session_id=notes.session_id,
            state=notes.state or stored.state,
            end_reason=notes.end_reason or stored.end_reason,
            warnings=notes.warnings,
            first_words=notes.first_words,
            stalls=self._mouths[side].stalls,
            usage=stored.usage,
        )
