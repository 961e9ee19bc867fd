"""What a simulation leaves: one document, for machines as JSON, for people as a table (`engine.simulate.table`).

Times are seconds since the run began, on the clock it ran on. Text is what was said; `heard` is what of it the other side heard.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Any, Literal

from pydantic import Field

from engine.config import CamelModel


class Side(StrEnum):
    AGENT = "agent"
    """The agent that is tried out."""
    TESTER = "tester"
    """The simulated user."""

    @property
    def other(self) -> "Side":
        return Side.TESTER if self is Side.AGENT else Side.AGENT


class Ending(StrEnum):
    """How a run ended."""

    AGENT = "agent"
    """The agent ended the conversation, as it is allowed to."""
    TESTER = "tester"
    """The simulated user did, and the agent had the last word."""
    TURN_LIMIT = "turn-limit"
    TIME_LIMIT = "time-limit"
    SILENCE = "silence"
    """Nobody said anything any more."""
    ERROR = "error"
    """One of the sessions broke."""
    INTERRUPTED = "interrupted"
    """Whoever had started it stopped it."""

    @property
    def is_proper(self) -> bool:
        return self in (Ending.AGENT, Ending.TESTER)


class Line(CamelModel):
    """One response of one side."""

    at: float
    """When its first words were out."""
    order: int
    """Among everything that happened in the run: in virtual time much happens at once."""
    side: Side
    text: str
    heard: str
    status: str = "completed"
    """How the response ended: completed, cancelled (it was interrupted), failed, incomplete, idle; "open" when it did not."""
    response_id: str = ""
    turn_id: str = ""


class Understood(CamelModel):
    """What a side made of the other's speech (voice only)."""

    at: float
    side: Side
    text: str


class Interruption(CamelModel):
    """A response that was cut."""

    at: float
    side: Side
    """Whose response it was."""
    response_id: str
    text: str
    heard: str


class ToolUse(CamelModel):
    at: float
    order: int
    side: Side
    name: str
    owner: Literal["model", "planner"]
    parameters: dict[str, Any] = Field(default_factory=dict)
    outcome: Literal["success", "error", "open"] = "open"
    result: Any = None
    error: str = ""
    seconds: float | None = None
    """None while it has not ended."""
    call_id: str = ""
    turn_id: str = ""


class Whisper(CamelModel):
    """Steering: what the planner told the speaking model (an instruction), or what it thought (planning)."""

    at: float | None
    """None: it was kept from clients (`showSteering: false`) and is told from the stored turn."""
    order: int | None
    kind: Literal["instruction", "planning"]
    instruction_type: str = ""
    """INSTRUCTION, COMMENTARY or SUPPORTING_CONTEXT; "" for planning."""
    text: str
    instruction_id: str = ""
    """Of an instruction that was spoken."""
    spoken_at: float | None = None
    """When the response that it led to had ended."""
    turn_id: str = ""

    @property
    def asks_to_speak(self) -> bool:
        return self.kind == "instruction" and self.instruction_type != "SUPPORTING_CONTEXT"


class Verdict(CamelModel):
    """What a judge says of the agent's conversation."""

    name: str
    score: float | None = None
    reasons: list[str] = Field(default_factory=list[str])
    data: dict[str, Any] | None = None


class Fault(CamelModel):
    at: float
    side: Side
    """Whose session it was."""
    code: str
    message: str
    whose: Literal["client", "provider", "server"]
    """Whose fault: "client" is the simulation, "provider" a model's provider, "server" this engine or its configuration."""
    recoverable: bool


class ComponentUsage(CamelModel):
    """The calls of chat models of one component: speaker, planner, an extractor or judge."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class SideUsage(CamelModel):
    provider: str = ""
    active_seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Part of the input tokens."""
    components: dict[str, ComponentUsage] = Field(default_factory=dict[str, ComponentUsage])


class SideReport(CamelModel):
    """One of the two sessions."""

    key: str
    session_id: str = ""
    state: str = ""
    """CLOSED when it came to its end, DISCONNECTED when it was cut or broke; "" when it never began."""
    end_reason: str = ""
    warnings: list[str] = Field(default_factory=list[str])
    first_words: list[float] = Field(default_factory=list[float])
    """Seconds from the other side's last words, or the request for an opening, to the first word of each answer."""
    stalls: int = 0
    """Voice: how often its speech stood still in the middle of a response, because it was not made in time. What the other side
    understood of it says more about this computer than about the agents."""
    usage: SideUsage = SideUsage()


class RunReport(CamelModel):
    """One conversation."""

    index: int
    seed: int | None = None
    passed: bool
    failures: list[str] = Field(default_factory=list[str])
    """Why it did not pass, in sentences."""
    ended: Ending
    end_reason: str = ""
    seconds: float
    """From the start of both sessions to the end of the conversation, without what is done after it."""
    turns: int
    """Of the simulated user."""
    transcript: list[Line] = Field(default_factory=list[Line])
    understood: list[Understood] = Field(default_factory=list[Understood])
    interruptions: list[Interruption] = Field(default_factory=list[Interruption])
    tools: list[ToolUse] = Field(default_factory=list[ToolUse])
    steering: list[Whisper] = Field(default_factory=list[Whisper])
    evaluations: list[Verdict] = Field(default_factory=list[Verdict])
    errors: list[Fault] = Field(default_factory=list[Fault])
    agent: SideReport
    tester: SideReport

    @property
    def whispers_given(self) -> int:
        """Instructions that ask the model to speak."""
        return sum(whisper.asks_to_speak for whisper in self.steering)

    @property
    def whispers_used(self) -> int:
        """Those of them that were spoken."""
        return sum(whisper.asks_to_speak and whisper.spoken_at is not None for whisper in self.steering)


class Means(CamelModel):
    """Over all runs; None where there is nothing to take a mean of."""

    turns: float | None = None
    seconds: float | None = None
    first_word: float | None = None
    """Of the agent's answers."""
    interruptions: float | None = None
    whispers_given: float | None = None
    whispers_used: float | None = None
    scores: dict[str, float] = Field(default_factory=dict[str, float])
    """By judge."""


class Report(CamelModel):
    """A whole simulation."""

    format: Literal[1] = 1
    agent: str
    tester: str
    mode: Literal["text", "voice"]
    clock: Literal["real", "virtual"]
    seed: int | None = None
    asked_runs: int
    """More than there are `runs` when it was interrupted."""
    min_score: float | None = None
    passed: int
    means: Means
    runs: list[RunReport]


def make_report(
    runs: Sequence[RunReport],
    *,
    agent: str,
    tester: str,
    mode: Literal["text", "voice"],
    clock: Literal["real", "virtual"],
    seed: int | None,
    asked_runs: int,
    min_score: float | None,
) -> Report:
    """The document of some runs, in the order of their indexes."""
    ordered = sorted(runs, key=lambda run: run.index)
    return Report(
        agent=agent,
        tester=tester,
        mode=mode,
        clock=clock,
        seed=seed,
        asked_runs=asked_runs,
        min_score=min_score,
        passed=sum(run.passed for run in ordered),
        means=means_of(ordered),
        runs=ordered,
    )


def means_of(runs: Sequence[RunReport]) -> Means:
    """Each score's mean is over the runs that have it."""
    scores: dict[str, list[float]] = {}
    for run in runs:
        for verdict in run.evaluations:
            if verdict.score is not None:
                scores.setdefault(verdict.name, []).append(verdict.score)
    return Means(
        turns=_mean([run.turns for run in runs]),
        seconds=_mean([run.seconds for run in runs]),
        first_word=_mean([seconds for run in runs for seconds in run.agent.first_words]),
        interruptions=_mean([len(run.interruptions) for run in runs]),
        whispers_given=_mean([run.whispers_given for run in runs]),
        whispers_used=_mean([run.whispers_used for run in runs]),
        scores={name: rounded(fmean(values)) for name, values in sorted(scores.items())},
    )


def failures_of(
    ended: Ending, reason: str, evaluations: Sequence[Verdict], min_score: float | None, limits: Mapping[Ending, str]
) -> list[str]:
    """Why a run did not pass; empty when it did. `limits` say in words what each limit was."""
    failures: list[str] = []
    if not ended.is_proper:
        failures.append(limits.get(ended) or reason or "It did not come to its end.")
    if min_score is not None:
        failures += [
            f"The judge {verdict.name} gives {verdict.score:g}, less than {min_score:g}."
            for verdict in evaluations
            if verdict.score is not None and verdict.score < min_score
        ]
    return failures


def rounded(seconds: float) -> float:
    """To the millisecond: binary fractions add up to what nobody wants to read."""
    return round(seconds, 3)


def _mean(values: Sequence[float]) -> float | None:
    return rounded(fmean(values)) if values else None
