"""The provider's service as a process of its own: OpenAI's simulator, with the conversation that is measured as its script.

It says by its own clock when the user speaks, and answers in deltas of one frame, in real time, each stamped with the time at which
it was made. What the client sends it is decoded and looked at, and not judged.
"""

from functools import partial
from urllib.parse import parse_qs, urlsplit

import attrs
import pybase64

from bench_parts.conversation import (
    FRAME_MS,
    FRAMES_PER_SECOND,
    IN_FLIGHT_FRAMES,
    PARTS,
    PATTERN_SECONDS,
    TOKEN_FRAMES,
    WORDS,
    Turn,
    last_sample,
    session_number,
    stamped_frame,
    starting_frame,
    turns,
)
from bench_parts.meter import Meter
from bench_parts.notes import Notes
from bench_parts.worker import Options, monotonic_ns
from providers.openai.simulator import (
    Asked,
    Connection,
    Format,
    Observer,
    Pace,
    Reply,
    Say,
    Script,
    Simulator,
    Utterance,
    open_simulator,
)

APPEND = "input_audio_buffer.append"
SAID = "Do you have a table tonight?"
CALLED_SECONDS = 0.1
"""How long the user speaks who makes the agent say the rest of an answer that a session begins in the middle of."""
RESERVE_SECONDS = 3.0
"""By how much an answer is longer than what is heard of it, where the user cuts in."""
PACE = Pace(token_seconds=TOKEN_FRAMES * FRAME_MS / 1000, audio_speed=1.0, delta_ms=FRAME_MS)


@attrs.frozen
class Plan:
    """One connection's conversation. It begins in the middle of the pattern: `first` is what the user is saying just then."""

    script: Script
    first: Utterance | None


def plan(start: float) -> Plan:
    """The pattern over and over, from so many seconds after its beginning."""
    due = sorted(turns(), key=lambda turn: (turn.start - start) % PATTERN_SECONDS)
    utterances = [Utterance(SAID, at=(turn.start - start) % PATTERN_SECONDS, seconds=turn.user_seconds) for turn in due]
    under_way, first = due[-1], None
    passed = (start - under_way.start) % PATTERN_SECONDS
    rest = under_way.user_seconds + under_way.agent_seconds - passed
    answers = [_answer(turn, turn.agent_seconds) for turn in due]
    opening: list[Reply] = []
    if rest > CALLED_SECONDS:
        first = Utterance(SAID, seconds=max(CALLED_SECONDS, under_way.user_seconds - passed))
        opening = [_answer(under_way, min(under_way.agent_seconds, rest - CALLED_SECONDS))]
    script = Script(
        answer=partial(_reply, opening, answers), utterances=utterances, repeat_seconds=PATTERN_SECONDS, hears=False
    )
    return Plan(script, first)


def _answer(turn: Turn, seconds: float) -> Reply:
    length_ms = round((seconds + (RESERVE_SECONDS if turn.is_cut else 0.0)) * 1000)
    count = -(-length_ms // (TOKEN_FRAMES * FRAME_MS))
    words = tuple(f"{WORDS[number % len(WORDS)]} " for number in range(count))
    return Reply([Say(words, length_ms)], pace=PACE, cancel_lag=IN_FLIGHT_FRAMES * FRAME_MS / 1000)


def _decoded_tail(audio: str) -> bytes:
    """The last few bytes of base64, as the last sample is all that is wanted."""
    return pybase64.b64decode(audio[-8:])


def _reply(opening: list[Reply], answers: list[Reply], asked: Asked) -> Reply:
    number = asked.number - len(opening)
    return answers[number % len(answers)] if number >= 0 else opening[asked.number]


def stamped_voice(of: Format, index: int, ms: int) -> bytes:
    return stamped_frame(monotonic_ns()) * (ms // FRAME_MS)


@attrs.define(eq=False)
class Ear:
    """Notes what comes and what is said, by session."""

    notes: Notes
    plans: dict[int, Plan] = attrs.field(factory=dict[int, Plan], init=False)
    """By the connection's number."""
    _sessions: dict[int, int] = attrs.field(factory=dict[int, int], init=False)
    _answering: set[int] = attrs.field(factory=set[int], init=False)
    """Connections with a response under way."""

    def received(self, connection: Connection, event: dict[str, object]) -> None:
        if event["type"] == APPEND:
            audio = str(event["audio"])
            size = len(audio) // 4 * 3 - audio.endswith("=") - audio.endswith("==")
            self.notes.heard(self._session(connection), last_sample(_decoded_tail(audio)), size)

    def sent(self, connection: Connection, event_type: str, frame: str) -> None:
        match event_type:
            case "session.updated":
                first = self.plans.pop(connection.number).first
                if first is not None:
                    connection.speak(first)
            case "input_audio_buffer.speech_started" if connection.number in self._answering:
                self.notes.cut(self._session(connection))
            case "response.created":
                self._answering.add(connection.number)
            case "response.done":
                self._answering.discard(connection.number)
            case _:
                pass

    def _session(self, connection: Connection) -> int:
        found = self._sessions.get(connection.number)
        if found is None:
            assert connection.handshake is not None, "it sends and receives"
            (model,) = parse_qs(urlsplit(connection.handshake.target).query)["model"]
            found = self._sessions[connection.number] = session_number(model)
        return found


def make_simulator(notes: Notes, lead_seconds: float, which: int = 0, of: int = 1) -> Simulator:
    """One of so many. Sessions begin all over the pattern; that of the second connection, as the first warms up, is cut after
    `lead_seconds`."""
    ear = Ear(notes)

    def script(number: int) -> Script:
        start = starting_frame((number - 1) * of + which, lead_seconds, len(PARTS)) / FRAMES_PER_SECOND
        made = ear.plans[number] = plan(start)
        return made.script

    return Simulator(
        script,
        voice=stamped_voice,
        keeps_records=False,
        keeps_audio=False,
        observer=Observer(sent=ear.sent, received=ear.received),
    )


async def run(options: Options) -> None:
    """Serve until told to stop. Options: as for the server's, and `which` simulator this is `of` so many."""
    notes = Notes.for_run(options)
    simulator = make_simulator(notes, options["lead_seconds"], options["which"], options["of"])
    async with open_simulator(simulator):
        await Meter(notes).serve({"url": simulator.url})
