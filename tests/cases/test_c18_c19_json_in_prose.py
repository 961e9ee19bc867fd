"""C18 and C19, JSON in prose: vectors J01 to J09, whole, cut at every position, and one character at a time."""

from collections.abc import Sequence

import pytest

from agents.relational.plan import Instruction, PlanReading
from agents.relational.plan_stream import Prose
from engine.elements import InstructionType

SAY, KNOW = InstructionType.INSTRUCTION, InstructionType.SUPPORTING_CONTEXT
Expected = Sequence[tuple[InstructionType, str, bool]]

VECTORS: dict[str, tuple[str, Expected, Sequence[str]]] = {
    "J01": (
        'Let me see. {"results":"Greet {name}, then add :}."} That is all.',
        [(SAY, "Greet {name}, then add :}.", False)],
        ["Let me see.", "That is all."],
    ),
    "J02": (
        '{"results":"She wrote \\"use {x}\\" in C:\\\\"} ok',
        [(SAY, 'She wrote "use {x}" in C:\\', False)],
        ["ok"],
    ),
    "J03a": (
        '{"results":"Ask for the date.","meta":{"why":{"gap":"knowledge"}},"endSession":true}',
        [(SAY, "Ask for the date.", True)],
        [],
    ),
    "J03b": ('{"results":"Ask.","meta":{"endSession":true}}', [(SAY, "Ask.", False)], []),
    "J04": (
        '{"supportingContext":"Paid."}{"results":"Say it is paid."}',
        [(KNOW, "Paid.", False), (SAY, "Say it is paid.", False)],
        [],
    ),
    "J05": (
        'Use the pattern {greeting} here. {"results":"Good morning."}',
        [(SAY, "Good morning.", False)],
        ["Use the pattern {greeting} here."],
    ),
    "J06": (
        'Mind the closing } of it. {"supportingContext":"ok"}',
        [(KNOW, "ok", False)],
        ["Mind the closing } of it."],
    ),
    "J07": (
        'The caller said "maybe later. {"results":"Offer Tuesday."}',
        [(SAY, "Offer Tuesday.", False)],
        ['The caller said "maybe later.'],
    ),
    "J08": (
        'So f(x) = \\frac{1}{2}x [1]. {"results":"Half of it."} Then swap {a} and {b}.',
        [(SAY, "Half of it.", False)],
        ["So f(x) = \\frac{1}{2}x [1].", "Then swap {a} and {b}."],
    ),
    "J09": (
        'It is not {"a": , broken} but {"results":"This one."}',
        [(SAY, "This one.", False)],
        ['It is not {"a": , broken} but'],
    ),
}


def read(*deltas: str) -> tuple[list[tuple[InstructionType, str, bool]], str]:
    """The instructions, and the prose put together."""
    reading = PlanReading()
    parts = [part for delta in deltas for part in reading.feed(delta)] + reading.finish()
    instructions = [(each.type, each.text, each.ends_session) for each in parts if isinstance(each, Instruction)]
    return instructions, " ".join("".join(each.text for each in parts if isinstance(each, Prose)).split())


@pytest.mark.parametrize("name", VECTORS)
def test_the_cuts_of_the_stream_do_not_matter(name: str) -> None:
    text, instructions, prose = VECTORS[name]
    expected = (list(instructions), " ".join(" ".join(prose).split()))
    assert read(text) == expected
    assert read(*text) == expected
    for cut in range(len(text) + 1):
        assert read(text[:cut], text[cut:]) == expected, cut


@pytest.mark.parametrize("name", ["J05", "J06", "J07", "J08"])
def test_prose_is_not_held_back_by_an_odd_character(name: str) -> None:
    """It is out when the object behind it begins."""
    text, _, prose = VECTORS[name]
    reading = PlanReading()
    parts = [part for char in text[: text.index('{"') + 3] for part in reading.feed(char)]
    shown = "".join(part.text for part in parts if isinstance(part, Prose))
    assert " ".join(shown.split()) == prose[0]
