"""Generated conversations: a user of moods, a model, planning, tools, a network and a store, all by one seed and on its schedule.

Each seed is one connection of some minutes of virtual time, and is judged by every invariant. What the generators do is lawful: the
model keeps the laws of a session, the user may do anything.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import cache
from random import Random

import attrs
import trio

from engine.config import Settings
from engine.elements import (
    Action,
    ControlToken,
    EmotionalState,
    InputAudio,
    InputElement,
    InputText,
    InstructionType,
    Interrupted,
    JsonObject,
    MultimodalInteraction,
    MultimodalKind,
    OnInterruption,
    OutCommand,
    OutSpeech,
    OutText,
    OutTranscript,
    Partial,
    Playback,
    RealtimeInstruction,
    ResponseStatus,
    Sensory,
    SpeakingState,
    Transcript,
    UserSpeech,
)
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import (
    Context,
    Emit,
    PlanningManager,
    ToolBox,
    ToolError,
    ToolResult,
    ToolSpecification,
    TurnInput,
)
from engine.protocol.promises import Violation
from engine.protocol.steering import PassState, name_of_pass, tell_pass
from engine.store.contract import Store
from engine.testing.boundaries import ShakyRecognizer, ShakyTools, shaky_store
from engine.testing.contract import SessionRecord, check_record
from engine.testing.faults import FaultyStore, no_faults
from engine.testing.mishaps import ClosedByMishapError, Happened, Mishaps, no_mishaps
from engine.testing.schedule import run_repeatably
from engine.testing.scripted import ScriptedRecognizer, final, interim, speech
from engine.testing.speaker import AnswerStep, ConversingModel, ConversingSession, End, Request, Stumble, Use, text_of
from engine.testing.stage import ScriptedManager, Stage, open_stage, scripted_environment
from engine.testing.timeline import timeline

LAST_WORDS = "are you there?"
BYE = "goodbye"
ANSWER_SECONDS = 30.0
"""The longest somebody waits for an answer when nothing goes wrong any more: turns before are being saved, a call is shielded."""
ACTS = (3, 14)
"""How often a user does something, at least and at most."""
SENTENCES = (
    "Yes.",
    "We are open until ten.",
    "A table for two is free at seven, by the window.",
    "I have written that down.",
    "The soup of the day is pumpkin, and there is bread with it.",
    "Is there anything else?",
)


@attrs.define(eq=False)
class Found:
    """What came of one seed."""

    seed: int
    record: SessionRecord
    violations: list[Violation]
    mishaps: list[Happened]
    seconds: float
    """Virtual ones."""

    @property
    def digest(self) -> str:
        """Of everything the client was told, with its times."""
        return hashlib.sha256(repr(self.record.heard).encode()).hexdigest()

    @property
    def timeline(self) -> str:
        return timeline(self.record.heard, self.record.sent, self.violations, self.mishaps)


# --- the parts --------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class GeneratedTools(ToolBox):
    """A tool of each policy; they take their time, and sometimes fail."""

    chance: Random

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return _SPECIFICATIONS

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        await trio.sleep(self.chance.choice((0, 0, 0.3, 2.0)))
        if self.chance.random() < 0.15:
            raise ToolError("It did not work.")
        return ToolResult("done", (MultimodalInteraction(MultimodalKind.CARD, name),))


_SPECIFICATIONS = tuple(
    ToolSpecification(policy.value, "A tool.", {"type": "object"}, on_interruption=policy) for policy in OnInterruption
)


@attrs.define(eq=False)
class GeneratedPlanner(PlanningManager):
    """Plans in passes: it thinks, whispers, and begins anew when it is in doubt. It says goodbye to whoever does."""

    chance: Random

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        if turn.text == BYE:
            await emit(RealtimeInstruction("Say goodbye.", InstructionType.INSTRUCTION, ends_session=True))
            return
        for number in range(1, self.chance.choice((1, 1, 1, 2, 3))):
            pass_id = name_of_pass(turn.turn_id, number)
            await emit(tell_pass(pass_id, PassState.BEGAN))
            await trio.sleep(self.chance.choice((0, 0.2, 1.0, 4.0)))
            kind = self.chance.choice(tuple(InstructionType))
            words = f"Whisper {number} for {turn.turn_id}."
            await emit(RealtimeInstruction(words, kind, id=words, pass_id=pass_id))
            await emit(tell_pass(pass_id, PassState.PLANNED))


@attrs.define(eq=False)
class GeneratedAnswers:
    """What the model answers."""

    chance: Random
    is_calm: bool = False

    def __call__(self, request: Request) -> Sequence[AnswerStep]:
        chance = self.chance
        if self.is_calm:
            return [f"About {text_of(request)}"]
        steps: list[AnswerStep] = []
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            steps.append(chance.choice((0, 0, 0.1, 0.6)))
            steps.append(chance.choice(SENTENCES))
            luck = chance.random()
            if luck < 0.12:
                steps.append(Use(chance.choice(tuple(OnInterruption)).value))
            elif luck < 0.14:
                steps.append(Stumble())
            elif luck < 0.16:
                steps.append(22.0)
        if chance.random() < 0.06:
            steps.append(End(chance.choice((ResponseStatus.FAILED, ResponseStatus.INCOMPLETE))))
        return steps


# --- the user ---------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class User:
    """Somebody with moods, who types, or is heard by the engine's recognition or by the model's."""

    stage: Stage
    chance: Random
    mode: str
    """typed, recognizer or model."""
    recognizer: ScriptedRecognizer | None
    number: int = 0

    async def act(self) -> None:
        """One thing that people do."""
        mood: Callable[[], Awaitable[None]] = self.chance.choice(
            (
                self.ask,
                self.ask,
                self.ask,
                self.interrupt,
                self.interrupt,
                self.mumble,
                self.correct,
                self.agree,
                self.spell,
                self.wait,
                self.fiddle,
            )
        )
        await self.pause(0, 0.2, 1.5, 4.0)  # people think
        await mood()

    async def pause(self, *seconds: float) -> None:
        await trio.sleep(self.chance.choice(seconds))

    async def quiet(self) -> None:
        """Listens, until the agent has finished and what it said is over, or a while."""
        client = self.stage.client
        before, start = client.counts["exit"], trio.current_time()
        first = len(client.heard)
        with trio.move_on_after(self.chance.choice((12, 12, 45))):
            while client.counts["exit"] == before:
                await client.changed()
        speech = [e for _, e in client.heard[first:] if isinstance(e, OutSpeech)]
        seconds = sum(len(each.data) / 2 / each.sample_rate for each in speech)
        await trio.sleep(max(0.0, start + seconds - trio.current_time()))

    # moods

    async def ask(self) -> None:
        await self.say(self.words())
        await self.quiet()
        await self.pause(0, 1.0, 3.0, 6.0, 12.0)

    async def interrupt(self) -> None:
        """Into the answer, at any point of it; also at the very instant when something else happens."""
        await self.say(self.words())
        await self.pause(0, 0.05, 0.2, 0.7, 1.2, 2.5, self.chance.random() * 4)
        await self.say(self.words())
        await self.quiet()

    async def mumble(self) -> None:
        """A noise, or words that nobody can make out."""
        if self.mode == "typed":
            await self.stage.client.send(InputText(" "))
        else:
            await self.speak(None)
        await self.pause(0, 1.0, 3.0)

    async def correct(self) -> None:
        """ "A table for two. No, three." """
        await self.say(f"two, number {self.number}")
        await self.pause(0, 0.1, 0.4)
        await self.say("no, three")
        await self.quiet()

    async def agree(self) -> None:
        """ "Mhm", while the agent speaks on."""
        await self.say(self.words())
        for _ in range(self.chance.randrange(1, 3)):
            await self.pause(0.3, 1.1)
            await self.say("mhm")
        await self.quiet()

    async def spell(self) -> None:
        """Digits, in groups with pauses that may be too long."""
        for group in ("54", "73", "9"):
            await self.say(group)
            await self.pause(0.2, 0.7, 2.2)
        await self.quiet()

    async def wait(self) -> None:
        await self.pause(8.0, 21.0, 45.0)

    async def fiddle(self) -> None:
        """What clients send besides words."""
        chance = self.chance
        heard = [e.response_id for e in self.stage.client.elements[-40:] if isinstance(e, OutText)]
        odd: tuple[InputElement, ...] = (
            Action("intro"),
            Action("rating", {"value": "3"}),
            InputAudio(speech(20)),
            ControlToken("locales", "cs"),
            Sensory({"light": 3}),
            Playback(heard[-1] if heard else "none", chance.randrange(3000)),
        )
        await self.stage.client.send(chance.choice(odd))
        await self.pause(0, 0.5, 3.0)

    # how it is said

    def words(self) -> str:
        self.number += 1
        return f"question {self.number}"

    async def say(self, text: str) -> None:
        if self.mode == "typed" or self.chance.random() < 0.1:
            await self.stage.client.send(InputText(text))
        else:
            await self.speak(text)

    async def speak(self, text: str | None) -> None:
        """Aloud; None is a noise."""
        self.hear(*[EmotionalState(SpeakingState.USER_SPEAKING)] * (self.chance.random() < 0.5), interim())
        await self.pause(0, 0.3, 1.1, 2.4, 4.0)
        if text is not None and self.chance.random() < 0.3:
            self.hear(Partial(text[:4]))
        self.hear(*[EmotionalState(SpeakingState.USER_NOT_SPEAKING)] * (self.chance.random() < 0.5))
        if text is None:
            return
        await self.pause(0, 0.1, 0.4)
        if self.recognizer is not None:
            self.hear(final(text))
        else:
            self.conversation.hear(UserSpeech(text, "Scripted"))

    def hear(self, *elements: Transcript | Partial | EmotionalState) -> None:
        if self.recognizer is not None:
            if self.recognizer.is_running:
                self.recognizer.hear(*elements)
            return
        for element in elements:
            if isinstance(element, Transcript):
                self.conversation.hear(Interrupted())
            if not self.is_over:
                # The session may have ended behind a door, and the client not know of it yet.
                with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
                    self.conversation.say(element)

    @property
    def conversation(self) -> ConversingSession:
        found = self.stage.model.session
        assert isinstance(found, ConversingSession)
        return found

    @property
    def is_over(self) -> bool:
        """Nothing of a session is open."""
        counts = self.stage.client.counts
        return counts["session-end"] >= counts["ready"]


# --- a whole conversation ---------------------------------------------------------------------------------------------


@cache
def _settings() -> Settings:
    return Settings()


@attrs.frozen
class World:
    """What kind of conversation a seed is."""

    mode: str
    end: str
    pace: float
    client: Mishaps
    recognition: Mishaps
    tools: Mishaps
    store: Mishaps

    @classmethod
    def of(cls, seed: int) -> "World":
        chance = Random(f"world {seed}")
        rough = chance.choice((0.0, 0.3, 1.0))
        """How bad the network and the rest are."""

        def often(name: str, **rates: float) -> Mishaps:
            return Mishaps.often(f"{name} {seed}", **{kind: rate * rough for kind, rate in rates.items()}).named(name)

        return cls(
            mode=chance.choice(("typed", "recognizer", "recognizer", "model", "model")),
            end=chance.choice(("leave", "leave", "goodbye", "vanish", "fail", "again")),
            pace=0.02 if chance.random() < 0.1 else 0.0,
            client=often(
                "client", delay=0.05, stall=0.02, drop=0.03, duplicate=0.05, reorder=0.05, partial=0.03, close=0.004
            ),
            recognition=often("recognition", delay=0.05, drop=0.03, duplicate=0.05, reorder=0.05, partial=0.03),
            tools=often("tools", delay=0.2, stall=0.1, drop=0.05, duplicate=0.1, partial=0.1, close=0.1),
            store=often("store", delay=0.3, stall=0.05, duplicate=0.1, close=0.2),
        )

    @property
    def mishaps(self) -> list[Happened]:
        parts = (self.client, self.recognition, self.tools, self.store)
        return sorted((each for part in parts for each in part.happened), key=lambda each: each.at)


OpenStage = Callable[..., AbstractAsyncContextManager[Stage]]
"""Takes what `engine.testing.stage.open_stage` takes."""


def explore(seed: int, *, opener: OpenStage = open_stage, store: Store | None = None) -> Found:
    """The conversation of a seed, judged. `opener`: how its client comes to a session; `store`: what keeps it, behind the faults."""
    return run_repeatably(seed, _converse, seed, opener, store)


async def _converse(seed: int, opener: OpenStage, inner: Store | None) -> Found:
    world = World.of(seed)
    chance = Random(f"user {seed}")
    answers = GeneratedAnswers(Random(f"answers {seed}"))
    heard = ScriptedRecognizer() if world.mode == "recognizer" else None
    cuts = Random(f"cuts {seed}")
    model = ConversingModel(
        answers,
        pace=chance.choice((1.0, 4.0)),
        names_responses=chance.random() < 0.7,
        tells_of_cuts=lambda _: cuts.random() < 0.5,
    )
    tools = ShakyTools(GeneratedTools(Random(f"tools {seed}")), world.tools)
    store = FaultyStore(shaky_store(world.store), inner)

    def calm_down() -> None:
        answers.is_calm, store.plan = True, no_faults

    before = trio.lowlevel.current_statistics().tasks_living
    async with opener(
        model=model,
        manager=ScriptedManager(tool_box=tools, planner=GeneratedPlanner(Random(f"planner {seed}"))),
        recognizer=ShakyRecognizer(heard, world.recognition) if heard is not None else None,
        store=store,
        settings=_settings(),
        environment=scripted_environment(seed),
        seconds_per_element=world.pace,
        mishaps=world.client,
        tokens=chance.random() < 0.5,
        partials=True,
        text_only=chance.random() < 0.2,
        unjudged="it is judged below, with what is known of the user too",
    ) as stage:
        unanswered = await visit(User(stage, chance, world.mode, heard), world.end, calm_down)
    record = stage.record()
    record.unanswered = unanswered
    living = trio.lowlevel.current_statistics().tasks_living - before
    record.left_running = [f"{living} tasks"] if living else []
    return Found(seed, record, check_record(record), world.mishaps, trio.current_time())


async def visit(user: User, end: str, calm_down: Callable[[], None]) -> list[str]:
    """A whole conversation of a user, up to the end of the connection: `leave`, `goodbye`, `vanish`, `fail` or `again`.

    Before its end nothing goes wrong any more, as `calm_down` has to see to, so that whoever speaks has to be answered. Returns what
    was not.
    """
    unanswered: list[str] = []
    try:
        await _visit(user, end, calm_down, unanswered)
    except ClosedByMishapError:
        user.stage.vanish()
    if user.stage.end is None:
        user.stage.vanish()
    await user.stage.over.wait()
    return unanswered


async def _visit(user: User, end: str, calm_down: Callable[[], None], unanswered: list[str]) -> None:
    stage, chance = user.stage, user.chance
    while not stage.client.counts["ready"]:
        await stage.client.changed()
    for _ in range(chance.randint(*ACTS)):
        if user.is_over:
            return
        await user.act()
    if end == "vanish":
        await user.pause(0, 0.3, 2.0)
        stage.vanish()
        return
    if end == "again":
        await _begin_again(user)
        if user.is_over:
            return
    await trio.sleep(1.0)
    calm_down()
    stage.client.mishaps = no_mishaps()
    await _is_answered(user, LAST_WORDS, unanswered)
    if user.is_over:
        return
    match end:
        case "fail":
            user.conversation.fail(RealtimeException(ErrorCode.PROVIDER_QUOTA, "Nothing is left."))
        case "goodbye":
            await stage.client.send(InputText(BYE))
        case _:
            await stage.client.send(ControlToken("exit"))
    await _until_over(user, unanswered)


async def _begin_again(user: User) -> None:
    """Another session on the same connection, in the middle of the one before."""
    client = user.stage.client
    count = client.counts["ready"]
    await client.send(ControlToken("ready", "key=agent:tester", {"key": "agent:tester"}))
    with trio.move_on_after(60):
        while client.counts["ready"] == count and user.stage.end is None:
            await client.changed()
    await user.pause(0, 0.1, 2.0)


async def _is_answered(user: User, words: str, unanswered: list[str]) -> None:
    client = user.stage.client
    begin = len(client.heard)
    await client.send(InputText(words))
    with trio.move_on_after(ANSWER_SECONDS):
        while not user.is_over:
            later = [element for _, element in client.heard[begin:]]
            shown = any(isinstance(e, OutTranscript) and e.text == words and not e.is_interim for e in later)
            if shown and any(isinstance(e, OutText) and words in e.text for e in later):
                return
            await client.changed()
    if not user.is_over:
        unanswered.append(words)


async def _until_over(user: User, unanswered: list[str]) -> None:
    with trio.move_on_after(200):
        while not user.is_over:
            await user.stage.client.changed()
        return
    unanswered.append("the end of the session")


def is_told(found: Found, name: str) -> bool:
    """Whether a command came, for those who ask what was explored."""
    return any(isinstance(element, OutCommand) and element.name == name for _, element in found.record.heard)
