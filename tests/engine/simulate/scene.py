"""An agent and a simulated user by script: real sessions of the Internal provider, whose models, voices and ears are made here."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import attrs
import trio

from agents.basic import BasicAgentInteractionManager
from agents.simulated_user import TestAgentInteractionManager
from engine.composition import open_services
from engine.elements import InputAudio, InstructionType, OutEvaluation, RealtimeInstruction, Transcript
from engine.interfaces import (
    ChatRequest,
    Context,
    Emit,
    Environment,
    PartFactory,
    PlanningManager,
    RecognitionElement,
    Recognizer,
    RecognizerInput,
    Synthesizer,
    ToolResult,
    TurnInput,
    Voice,
)
from engine.session.services import Services
from engine.simulate.exchange import Limits
from engine.simulate.run import Plan
from engine.testing.chat import Script, ScriptedChat, Step, call
from engine.testing.stage import scripted_environment
from providers.internal.model import InternalRealtimeModel

PROJECT = """
project: {ref: stage, name: Stage, access: private}
realtimeConfigurations:
  - {id: voice-of-agent, properties: {provider: Internal, chat: {provider: Demo, who: agent}}}
  - {id: voice-of-tester, properties: {provider: Internal, chat: {provider: Demo, who: tester}}}
agents:
  - ref: barista
    type: basic
    name: Café
    published: true
    realtimeConfigurationId: voice-of-agent
    purpose: Book tables.
    showSteering: SHOWN
  - ref: caller
    type: test
    name: Ann
    realtimeConfigurationId: voice-of-tester
    role: You want a table.
    tools: ["tests.engine.simulate.scene:hang_up"]
"""
PLAN = Plan("agent:barista", "agent:caller")
FINISH: Sequence[Step] = (call("finish_session", "f1"),)


async def hang_up() -> ToolResult:
    """End the call."""
    await trio.lowlevel.checkpoint()
    return ToolResult("You have hung up.", ends_session=True)


def plan(*, is_spoken: bool = False, min_score: float | None = None, **limits: Any) -> Plan:
    return attrs.evolve(PLAN, is_spoken=is_spoken, min_score=min_score, limits=Limits(**limits))


def said_by_user(request: ChatRequest) -> list[str]:
    return [message.text for message in request.messages if message.role == "user"]


def line_by_line(*scripts: Script) -> Callable[[ChatRequest], Script]:
    """One script after the other; when they are used up, nothing is said any more."""
    left = list(scripts)
    return lambda _: left.pop(0) if left else ()


def polite_agent() -> Callable[[ChatRequest], Script]:
    """Greets, asks when, books, says goodbye and ends."""
    return line_by_line(
        ["Café. ", "How can I help?"], ["For when?"], ["It is booked. ", "Goodbye.", *FINISH], ["See you."]
    )


def polite_tester() -> Callable[[ChatRequest], Script]:
    return line_by_line(["A table, please."], ["For tonight."], ["Thank you."])


@attrs.define(eq=False)
class WhisperingPlanner(PlanningManager):
    """Thinks, then whispers what is to be said; after the first turns only."""

    whispers: Sequence[tuple[float, str]]
    kind: InstructionType = InstructionType.INSTRUCTION
    _asked: int = attrs.field(default=0, init=False)

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        number = self._asked
        self._asked += 1
        if number < len(self.whispers):
            seconds, text = self.whispers[number]
            await trio.sleep(seconds)
            await emit(RealtimeInstruction(text, self.kind, id=f"whisper-{number + 1}"))


class TriedManager(BasicAgentInteractionManager):
    """A basic agent with a planner and judges."""

    def __init__(
        self, planner: PlanningManager | None, evaluations: Sequence[OutEvaluation], judging_seconds: float
    ) -> None:
        super().__init__()
        self._evaluations = evaluations
        self._judging_seconds = judging_seconds
        if planner is not None:
            self.planning_manager = planner

    async def evaluate(self, context: Context, emit: Callable[[OutEvaluation], None]) -> None:
        await trio.sleep(self._judging_seconds)
        for evaluation in self._evaluations:
            emit(evaluation)


@attrs.define(eq=False)
class Cast:
    """Who plays. `opener` gives the services of a run, as `simulate` wants them."""

    agent: ScriptedChat
    tester: ScriptedChat
    directory: Path
    planner: PlanningManager | None = None
    evaluations: Sequence[OutEvaluation] = ()
    judging_seconds: float = 0.0
    shows_steering: bool = True
    ears_notice_after_ms: int = 0
    services: Services | None = attrs.field(default=None, init=False)

    @asynccontextmanager
    async def open(self, environment: Environment | None = None) -> AsyncGenerator[Services]:
        project = self.directory / "stage.yaml"
        project.write_text(PROJECT.replace("SHOWN", str(self.shows_steering).lower()))  # noqa: ASYNC240 - nobody waits for a test
        chats: dict[str, Any] = {"agent": self.agent, "tester": self.tester}

        def find(group: str, name: str) -> PartFactory:
            if group == "synthesizers":
                return lambda _: WritingVoice()
            return lambda configuration: chats[str(configuration["who"])]

        def make_ears(configuration: Mapping[str, Any]) -> ReadingEars:
            return ReadingEars(self.ears_notice_after_ms)

        async with open_services(projects=[project], environment=environment or scripted_environment()) as opened:
            self.services = attrs.evolve(
                opened,
                models={"Internal": InternalRealtimeModel(find)},
                managers=[
                    TriedManager(self.planner, self.evaluations, self.judging_seconds),
                    TestAgentInteractionManager(),
                ],
                recognizers={"Local": make_ears},
            )
            yield self.services


def cast(
    directory: Path,
    agent: Callable[[ChatRequest], Script] | None = None,
    tester: Callable[[ChatRequest], Script] | None = None,
    **fields: Any,
) -> Cast:
    return Cast(ScriptedChat(agent or polite_agent()), ScriptedChat(tester or polite_tester()), directory, **fields)


# --- speech that can be read


LETTER = 1000
"""A sample of this value and more is a letter."""
WORD_MS = 250


def _pcm(samples: Sequence[int]) -> bytes:
    return b"".join(sample.to_bytes(2, "little", signed=True) for sample in samples)


class WritingVoice(Synthesizer):
    """Writes the letters of each word into its first samples; a word takes 250 ms."""

    name: ClassVar[str] = "Writing"
    sample_rate = 24000

    async def speak(self, text: str, voice: Voice, audio: trio.MemorySendChannel[bytes]) -> None:
        for word in text.split():
            letters = [LETTER + ord(letter) for letter in f"{word} "]
            await audio.send(_pcm([*letters, *[1] * (self.sample_rate * WORD_MS // 1000 - len(letters))]))


@attrs.define(eq=False)
class ReadingEars(Recognizer):
    """Reads them. Speech has begun after so much sound, and ends with half a second without one."""

    name: ClassVar[str] = "Reading"
    notices_after_ms: int = 0
    sample_rate: int = 24000

    async def run(
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        elements: trio.MemorySendChannel[RecognitionElement],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        task_status.started()
        words, sounding, silent, is_speaking = "", 0, 0, False
        async for item in audio:
            data = item.data if isinstance(item, InputAudio) else b""
            samples = [int.from_bytes(data[at : at + 2], "little", signed=True) for at in range(0, len(data), 2)]
            if any(samples):
                sounding, silent = sounding + len(samples), 0
                words += "".join(chr(sample - LETTER) for sample in samples if sample >= LETTER)
            else:
                silent += len(samples)
            is_over = bool(sounding) and silent >= self.sample_rate // 2
            is_noticed = sounding * 1000 > self.notices_after_ms * self.sample_rate
            if not is_speaking and (is_noticed or is_over):
                is_speaking = True
                await elements.send(Transcript(".", is_interim=True, provider=self.name))
            if is_over:
                await elements.send(Transcript(words.strip(), provider=self.name))
                words, sounding, is_speaking = "", 0, False
