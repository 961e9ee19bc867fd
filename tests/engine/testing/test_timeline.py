"""What a person is shown of a conversation."""

from engine.elements import (
    Action,
    BadInput,
    Commit,
    ControlToken,
    InputAudio,
    InputElement,
    InputText,
    MultimodalKind,
    OutCommand,
    OutError,
    OutEvaluation,
    OutMultimodal,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    Playback,
    SpeechCut,
)
from engine.errors import ErrorCode, Whose
from engine.protocol.promises import Violation
from engine.testing.mishaps import Happened, Mishap
from engine.testing.timeline import timeline

SPEECH = OutSpeech(bytes(4800), 24000, "t1", "r1")
HEARD: list[tuple[float, OutputElement]] = [
    (0.0, OutCommand("ready", {"sessionId": "s1"})),
    (1.0, OutTranscript(".", True, False, False, "P", "t1")),
    (1.5, OutTranscript("hello", False, True, False, "P", "t1")),
    (1.5, OutToken("Good morning.", "t1", "r1")),
    (1.5, OutText("Good morning.", "t1", "r1")),
    (1.5, SPEECH),
    (1.6, SPEECH),
    (1.7, OutSpeech(b"", 24000, "t1", "r1", is_last=True)),
    (1.8, OutMultimodal(MultimodalKind.CARD, "menu", {}, "t1")),
    (2.0, SpeechCut("t1", "r1")),
    (2.0, OutError(ErrorCode.INTERNAL, "Oops.", recoverable=True, whose=Whose.SERVER)),
    (3.0, OutEvaluation("polite")),
]


def test_both_sides_in_their_order() -> None:
    sent: list[tuple[float, InputElement]] = [
        (1.0, InputAudio(b"")),
        (1.1, InputAudio(b"")),
        (1.2, InputText("hello")),
        (1.2, Action("intro")),
        (1.2, Playback("r1", 40)),
        (1.2, BadInput(ErrorCode.BAD_JSON, "?")),
        (1.2, Commit()),
        (3.0, ControlToken("exit")),
    ]
    mishaps = [Happened(1.2, "client", 3, Mishap.REORDER)]
    violations = [Violation("exit", "it has none", len(HEARD)), Violation("barge-in", "too late", 4, 1.5)]
    assert timeline(HEARD, sent, violations, mishaps).splitlines() == [
        "     0.000  > ready sessionId=s1",
        "     1.000  < audio",
        "     1.000  > interim '.'  [t1]",
        "     1.200  < 'hello'",
        "     1.200  < #intro",
        "     1.200  < has played 40 ms of r1",
        "     1.200  < something unreadable",
        "     1.200  < Commit",
        "     1.200  ~ client reorder (message 3)",
        "     1.500  > user 'hello' (again)  [t1]",
        "     1.500  > agent 'Good morning.'  [t1 r1]",
        "     1.500  ! barge-in: too late",
        "     1.700  > speech 0.2 s, the last  [r1]",
        "     1.800  > card menu  [t1]",
        "     2.000  > cut  [t1 r1]",
        "     2.000  > error internal: Oops.",
        "     3.000  < #exit",
        "     3.000  > evaluation polite",
        "     3.000  ! exit: it has none",
    ]


def test_no_more_than_is_needed() -> None:
    heard: list[tuple[float, OutputElement]] = [(float(number), OutCommand(f"c{number}", {})) for number in range(100)]
    lines = timeline(heard, violations=[Violation("exit", "here", 50)], most=10).splitlines()
    assert lines[0].strip() == "(46 lines before)"
    assert lines[1:3] == ["    46.000  > c46", "    47.000  > c47"]
    assert lines[-5:] == [
        "    50.000  ! exit: here",
        *[f"    {number}.000  > c{number}" for number in range(51, 55)],
    ]
    assert timeline([]) == ""
