"""A conversation on one page: when what was said, by whom, and what became of it. For a person who looks for what went wrong."""

from collections.abc import Iterator, Sequence

from engine.elements import (
    Action,
    BadInput,
    ControlToken,
    InputAudio,
    InputElement,
    InputText,
    OutCommand,
    OutEmotion,
    OutError,
    OutEvaluation,
    OutMultimodal,
    OutPartial,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    Playback,
    SpeechCut,
)
from engine.protocol.promises import Violation
from engine.testing.invariants import Heard
from engine.testing.mishaps import Happened

WIDTH = 100
"""Characters of a line; words beyond are left out."""
BEHIND = 4
"""Lines that are shown behind the last violation."""
MOST_LINES = 60


def timeline(
    heard: Heard,
    sent: Sequence[tuple[float, InputElement]] = (),
    violations: Sequence[Violation] = (),
    mishaps: Sequence[Happened] = (),
    *,
    most: int = MOST_LINES,
) -> str:
    """The lines up to a little behind the last violation, at most the last `most` of them; times are seconds of the virtual clock.

    `<` is what the client sent, `>` what it was told, `~` a mishap, `!` what is wrong there. Tokens are left out, and the speech of a
    response that comes in one go is one line.
    """
    entries = [*_heard_lines(heard, violations), *_sent_lines(sent)]
    entries += [(each.at, 1, f"~ {each.boundary} {each.mishap.value} (message {each.number})") for each in mishaps]
    entries.sort(key=lambda entry: entry[:2])
    lines = [f"{at:10.3f}  {text}"[:WIDTH] for at, _, text in entries]
    marked = [number for number, (_, _, text) in enumerate(entries) if text.startswith("!")]
    last = marked[-1] + BEHIND + 1 if marked else len(lines)
    lines = lines[:last]
    if len(lines) > most:
        lines = [f"            ({len(lines) - most} lines before)", *lines[-most:]]
    return "\n".join(lines)


Entry = tuple[float, int, str]
"""The time, what comes first of what is at the same time, the text."""


def _heard_lines(heard: Heard, violations: Sequence[Violation]) -> Iterator[Entry]:
    wrong: dict[int, list[Violation]] = {}
    for violation in violations:
        wrong.setdefault(violation.index, []).append(violation)
    speech: dict[str, float] = {}
    for index, (at, element) in enumerate(heard):
        if isinstance(element, OutSpeech):
            speech[element.response_id] = (
                speech.get(element.response_id, 0.0) + len(element.data) / 2 / element.sample_rate
            )
            follows = heard[index + 1][1] if index + 1 < len(heard) else None
            if isinstance(follows, OutSpeech) and follows.response_id == element.response_id:
                continue
            mark = ", the last" if element.is_last else ""
            yield at, 2, f"> speech {speech.pop(element.response_id):.1f} s{mark}  [{element.response_id}]"
        else:
            line = describe(element)
            if line:
                yield at, 2, f"> {line}"
        for violation in wrong.get(index, ()):
            yield at, 3, f"! {violation.rule}: {violation.message}"
    end = heard[-1][0] if heard else 0.0
    for index, found in wrong.items():
        if index >= len(heard):
            for violation in found:
                yield max(end, violation.at), 4, f"! {violation.rule}: {violation.message}"


def describe(element: OutputElement) -> str:
    """One output element in a few words; "" for what a page can do without."""
    match element:
        case OutTranscript():
            kind = "interim" if element.is_interim else "user"
            return f"{kind} {element.text!r}{' (again)' if element.is_synthetic else ''}  [{element.turn_id}]"
        case OutText():
            return f"agent {element.text!r}  [{element.turn_id} {element.response_id}]"
        case OutCommand():
            left = {key: value for key, value in element.parameters.items() if key != "turnId"}
            shown = " ".join([element.name, *(f"{key}={value}" for key, value in left.items())])
            return f"{shown}  [{element.turn_id}]" if element.turn_id else shown
        case SpeechCut():
            return f"cut  [{element.turn_id} {element.response_id}]"
        case OutError():
            return f"error {element.code.value}: {element.message}"
        case OutMultimodal():
            return f"{element.kind.value} {element.name}  [{element.turn_id}]"
        case OutEvaluation():
            return f"evaluation {element.name}"
        case OutSpeech() | OutToken() | OutPartial() | OutEmotion():
            return ""


def _sent_lines(sent: Sequence[tuple[float, InputElement]]) -> Iterator[Entry]:
    is_audio = False
    for at, element in sent:
        was_audio, is_audio = is_audio, isinstance(element, InputAudio)
        match element:
            case InputAudio():
                if not was_audio:
                    yield at, 0, "< audio"
            case InputText(text):
                yield at, 0, f"< {text!r}"
            case Action(name):
                yield at, 0, f"< #{name}"
            case ControlToken(name, value):
                yield at, 0, f"< #{name} {value}".rstrip()
            case Playback(response_id, ms):
                yield at, 0, f"< has played {ms} ms of {response_id}"
            case BadInput():
                yield at, 0, "< something unreadable"
            case _:
                yield at, 0, f"< {type(element).__name__}"
