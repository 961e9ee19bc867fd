"""Capsules as a test wants them: records at the times it names, in a file like any other."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from engine.boundary import Note
from engine.capsule.codec import plain
from engine.capsule.file import MAGIC, Capsule, Kind, Packer, Record, chunk, read_capsule
from engine.capsule.keeper import head
from engine.capsule.tape import shown
from engine.config import PipelineConfiguration
from engine.elements import (
    InputAudio,
    InputElement,
    InputText,
    OutCommand,
    OutError,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
)
from engine.errors import ErrorCode, Whose
from engine.session.run import SessionMode

RATE = 24000
BEGAN = datetime(2030, 5, 17, 9, 30, tzinfo=UTC)
CONFIGURATION = PipelineConfiguration(key="agent:barista", input_sample_rate=16000)


def tone(seconds: float, peak: int = 12000, rate: int = 16000) -> bytes:
    time = np.arange(round(seconds * rate)) / rate
    return (peak * np.sin(2 * np.pi * 220 * time)).astype("<i2").tobytes()


@attrs.define(eq=False)
class Script:
    """Records in their order; `at` is when the next ones happen."""

    configuration: PipelineConfiguration = CONFIGURATION
    redacted: bool = False
    at: float = 0.0
    records: list[Record] = attrs.field(factory=list[Record], init=False)
    _calls: int = attrs.field(default=0, init=False)

    @property
    def head(self) -> dict[str, Any]:
        about: dict[str, object] = {
            "configuration": self.configuration,
            "mode": SessionMode.CONVERSATION.name,
            "settings": {},
            "began": BEGAN,
        }
        return {**head(about, b"0123456789abcdef"), "redacted": self.redacted}

    def put(self, kind: Kind, *fields: Any, at: float | None = None) -> None:
        self.at = self.at if at is None else at
        self.records.append(Record(self.at, kind, fields))

    # --- what happens

    def sends(self, element: InputElement, at: float | None = None) -> None:
        self.put(Kind.IN, element.data if isinstance(element, InputAudio) else plain(element), at=at)

    def says(self, at: float, seconds: float, peak: int = 12000) -> None:
        """Sound of the client, in frames of 100 ms, as it is spoken."""
        sound, size = tone(seconds, peak), 3200
        for number, start in enumerate(range(0, len(sound), size)):
            self.sends(InputAudio(sound[start : start + size]), at + (number + 1) * 0.1)

    def told(self, element: OutputElement, *, at: float | None = None, took: bool = True) -> None:
        self.put(Kind.OUT, shown(element), at=at)
        if took:
            self.put(Kind.TOOK)

    def command(
        self, command: str, turn: str = "", /, *, at: float | None = None, took: bool = True, **parameters: Any
    ) -> None:
        self.told(OutCommand(command, {"turnId": turn, **parameters}, turn), at=at, took=took)

    def note(self, note: Note, /, *, at: float | None = None, **values: Any) -> None:
        self.put(Kind.NOTE, note.value, values, at=at)

    def began(self, kind: str, name: str, text: str, turn: str = "", at: float | None = None) -> None:
        self.note(Note.BEGAN, at=at, kind=kind, id=name, name=text, turn_id=turn)

    def ended(self, kind: str, name: str, outcome: str = "ok", at: float | None = None) -> None:
        self.note(Note.ENDED, at=at, kind=kind, id=name, outcome=outcome)

    def outside(
        self, kind: str, name: str, at: float, seconds: float, about: object = None, answer: object = None
    ) -> int:
        """Something that was asked, and answered."""
        self._calls += 1
        self.put(Kind.BEGAN, self._calls, kind, name, plain(about), at=at)
        self.put(Kind.DONE, self._calls, plain(answer), at=at + seconds)
        return self._calls

    def heard(self, turn: str, text: str, at: float, *, interim: bool = False, took: bool = True) -> None:
        self.told(OutTranscript(text, interim, False, False, "Local", turn), at=at, took=took)

    def speaks(
        self, turn: str, response: str, text: str, at: float, seconds: float, *, sent: float | None = None
    ) -> None:
        """A sentence, its tokens, its speech; of the speech so much is taken at once, and the rest waits."""
        for word in text.split():
            self.told(OutToken(word + " ", turn, response), at=at)
        self.told(OutText(text, turn, response), at=at)
        chunks = round(seconds * 10)
        for number in range(chunks):
            data = bytes(RATE // 10 * 2)
            self.told(OutSpeech(data, RATE, turn, response), took=sent is None or number < round(sent * 10))

    # --- the file

    def capsule(self, *, is_whole: bool = True) -> Capsule:
        return Capsule(self.head, tuple(self.in_order()), is_whole)

    def in_order(self) -> Sequence[Record]:
        """What a person says goes on beside everything else."""
        return sorted(self.records, key=lambda record: record.at)

    def write(self, path: Path, *, cut_bytes: int = 0) -> Path:
        """As the engine would write it, a chunk for every thousand records."""
        path.write_bytes(self.data()[: -cut_bytes or None])
        return path

    def data(self) -> bytes:
        packer = Packer()
        packer.add(0.0, Kind.HEAD, self.head)
        chunks = [MAGIC]
        for number, record in enumerate(self.in_order()):
            packer.add(record.at, record.kind, *record.fields)
            if number % 1000 == 999:
                chunks.append(chunk(*packer.take()))
        return b"".join([*chunks, chunk(*packer.take())])


def read_back(script: Script, path: Path) -> Capsule:
    return read_capsule(script.write(path))


def lane(document: Mapping[str, Any], name: str) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = document["lanes"][name]
    return found


def cafe() -> Script:
    """A call in which the user cuts in: the first answer and its planning end there, the second answer speaks a whisper."""
    script = Script()
    script.began("start", "prompt", "prompt", at=0.0)
    script.outside("store", "get_turns", 0.01, 0.02, {"limit": 50}, [])
    script.note(Note.TOLD, at=0.1, what="prompt", text="You are a barista. Be brief.", turn_id="")
    script.ended("start", "prompt", at=0.1)
    script.command("ready", at=0.12, sessionId="s-1", agent="barista")
    # The first turn: a question, an answer of four seconds, and planning beside it.
    script.says(1.0, 1.2)
    script.heard("t1", ".", 1.1, interim=True)
    script.heard("t1", "What do you have today?", 2.3)
    script.began("turn", "t1", "turn", "t1")
    script.note(Note.TOLD, what="UserSpeech", text="What do you have today?", turn_id="t1")
    script.began("leg", "t1 extraction", "extraction", "t1")
    script.began("leg", "t1 planning", "planning", "t1")
    script.command("planning-pass", "t1", passId="p1", state="began")
    script.ended("leg", "t1 extraction", at=2.5)
    script.speaks("t1", "r1", "We have espresso, filter and a cake of the day.", 2.8, 4.0, sent=3.0)
    script.began("tool", "c1", "look_up_menu", "t1", at=3.0)
    script.command("tool-start", "t1", callId="c1", name="look_up_menu", owner="model", parameters={"day": "friday"})
    script.command(
        "tool-success", "t1", callId="c1", name="look_up_menu", owner="model", result={"cake": "plum"}, at=3.4
    )
    script.ended("tool", "c1")
    # The user cuts in two seconds into it.
    script.says(4.7, 1.5, 20000)
    script.heard("t2", ".", 4.8, interim=True, took=False)
    script.put(Kind.CUT, "r1", "t1")
    for _ in range(8):  # the end of the speech, and what waited behind it
        script.put(Kind.TOOK)
    script.note(Note.HAPPENED, what="barge_in")
    script.note(Note.TOLD, what="Interrupted", text="We have espresso,", turn_id="t1", response_id="r1", heard_ms=2000)
    script.note(Note.CANCELLED, scope="legs", reason="barge-in", turn_id="t1")
    script.ended("leg", "t1 planning", "cancelled", at=4.801)
    script.command("response-end", "t1", at=4.81, responseId="r1", status="cancelled")
    script.ended("turn", "t1", "cancelled", at=4.82)
    script.command("exit", "t1", at=4.83, sessionId="s-1", saved=True)
    # The second turn: its planning whispers, and the third answer speaks it.
    script.heard("t2", "No, I mean what is good for my cold?", 6.3)
    script.began("turn", "t2", "turn", "t2")
    script.note(Note.TOLD, what="UserSpeech", text="No, I mean what is good for my cold?", turn_id="t2")
    script.began("leg", "t2 planning", "planning", "t2")
    script.command("planning-pass", "t2", passId="p2", state="began")
    script.speaks("t2", "r2", "Let me think.", 6.8, 1.0)
    script.command("response-end", "t2", at=7.0, responseId="r2", status="completed")
    call = script.outside("chat", "planner", 6.9, 1.1, {"messages": ["plan"]}, None)
    script.put(Kind.ITEM, call, "late", at=8.0)
    script.command(
        "realtime-instruction", "t2", at=8.1, instructionId="i1", passId="p2", instructionType="INSTRUCTION",
        text="Recommend the ginger tea, and wish them well.",
    )  # fmt: skip
    script.note(
        Note.TOLD, at=8.12, what="instruction", text="Recommend the ginger tea, and wish them well.", type="INSTRUCTION",
        id="i1", pass_id="p2", turn_id="t2",
    )  # fmt: skip
    script.command("planning-pass", "t2", at=8.2, passId="p2", state="planned")
    script.ended("leg", "t2 planning", at=8.25)
    script.speaks("t2", "r3", "Ginger tea. And get well soon!", 8.6, 2.0)
    script.command("realtime-instruction-outcome", "t2", instructionId="i1", outcome="spoken", responseId="r3")
    script.command("response-end", "t2", at=8.9, responseId="r3", status="completed")
    script.ended("turn", "t2", at=9.0)
    script.command("exit", "t2", at=9.05, sessionId="s-1", saved=True)
    # A typed line that fails, and the end.
    script.sends(InputText("Thank you"), 11.5)
    script.told(OutTranscript("Thank you", False, False, False, "Client", "t3"))
    script.told(OutError(ErrorCode.CHAT_FAILED, "No answer.", True, Whose.PROVIDER), at=11.9)
    script.put(Kind.END_OF_INPUT, at=12.0)
    script.put(Kind.END, "ENDED", "the client ended it", at=12.5)
    return script


def long_call(minutes: float = 60) -> Script:
    """An exchange every twelve seconds, each with planning, a tool, a whisper, and a dozen calls outside."""
    script = Script()
    script.note(Note.TOLD, at=0.1, what="prompt", text="You are patient. " * 200, turn_id="")
    for number in range(round(minutes * 5)):
        start, turn, response = 1.0 + number * 12, f"t{number}", f"r{number}"
        script.says(start, 3.0, 4000 + 997 * number % 20000)
        script.heard(turn, ".", start + 0.2, interim=True)
        script.heard(turn, f"Question {number}, and what about the other thing?", start + 3.2)
        script.began("turn", turn, "turn", turn)
        script.note(Note.TOLD, what="UserSpeech", text=f"Question {number}", turn_id=turn)
        script.began("leg", f"{turn} planning", "planning", turn)
        script.command("planning-pass", turn, passId=f"p{number}", state="began")
        for each in range(6):
            script.outside("store", "put_turn", start + 3.3 + each / 50, 0.01)
        script.speaks(turn, response, f"This is answer {number}, which takes a while to say in full.", start + 3.9, 5.0)
        script.command("tool-start", turn, callId=f"c{number}", name="look_up", owner="model", parameters={})
        script.command(
            "tool-success", turn, callId=f"c{number}", name="look_up", owner="model", result=1, at=start + 4.5
        )
        outcome = "cancelled" if number % 10 == 7 else "ok"
        if outcome == "ok":
            kind, text = "SUPPORTING_CONTEXT", f"They like {number}."
            named: dict[str, Any] = {
                "instructionId": f"i{number}",
                "passId": f"p{number}",
                "instructionType": kind,
                "text": text,
            }
            script.command("realtime-instruction", turn, at=start + 5, **named)
            known: dict[str, Any] = {
                "text": text,
                "type": kind,
                "id": f"i{number}",
                "pass_id": f"p{number}",
                "turn_id": turn,
            }
            script.note(Note.TOLD, what="instruction", **known)
            script.command("planning-pass", turn, passId=f"p{number}", state="planned")
        else:
            script.note(Note.CANCELLED, scope="legs", reason="barge-in", turn_id=turn, at=start + 5)
        script.ended("leg", f"{turn} planning", outcome, at=start + 5.1)
        script.command("response-end", turn, responseId=response, status="completed", at=start + 5.2)
        script.ended("turn", turn, at=start + 9.5)
        script.command("exit", turn, sessionId="s-1", saved=True)
    script.put(Kind.END, "ENDED", "the client ended it", at=minutes * 60)
    return script
