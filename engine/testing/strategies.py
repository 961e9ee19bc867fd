"""Hypothesis strategies for conversations, so that one's own property tests draw them, and one that fails shrinks to the little of it
that matters:

    @given(conversations())
    def test_my_agent_keeps_the_contract(conversation):
        assert hold(conversation, model=...).violations == []

This module alone needs Hypothesis (`pip install hypothesis`), which Souffleur itself does not; `engine.testing.conversation` has what is
drawn. Everything shrinks towards the calm: fewer moves, shorter pauses, typed words, no mishap.
"""

from collections.abc import Collection, Mapping

from hypothesis import strategies as st

from engine.elements import Action, ControlToken, InputElement, InstructionType, OnInterruption, ResponseStatus, Sensory
from engine.testing.conversation import Conversation, Doing, Listen, Move, Noise, Say, Send, Wait, Whisper
from engine.testing.mishaps import Mishap
from engine.testing.speaker import AnswerStep, End, Stumble, Use

Moves = tuple[Move, ...]

QUESTIONS = ("Yes.", "A table, please.", "Are dogs allowed?", "What is the soup of the day?")
SENTENCES = ("Yes.", "We are open until ten.", "A table for two is free at seven, by the window.")
ODDITIES: tuple[InputElement, ...] = (Action("intro"), Sensory({"light": 3}), ControlToken("locales", "cs"))
STORE_MISHAPS = (Mishap.DELAY, Mishap.DUPLICATE, Mishap.CLOSE)
CLIENT_MISHAPS = (
    Mishap.DELAY,
    Mishap.DUPLICATE,
    Mishap.REORDER,
    Mishap.DROP,
    Mishap.STALL,
    Mishap.PARTIAL,
    Mishap.CLOSE,
)


# --- users --------------------------------------------------------------------------------------------------------------


def pauses(most: float = 4.0) -> st.SearchStrategy[float]:
    """Seconds, to a tenth: none, and up to `most`."""
    return st.integers(0, round(most * 10)).map(lambda tenths: tenths / 10)


def words() -> st.SearchStrategy[str]:
    return st.sampled_from(QUESTIONS)


@st.composite
def questions(draw: st.DrawFn, aloud: st.SearchStrategy[bool]) -> Moves:
    """Somebody asks, and listens."""
    return Say(draw(words()), draw(aloud)), Listen()


@st.composite
def interruptions(draw: st.DrawFn, aloud: st.SearchStrategy[bool]) -> Moves:
    """Into the answer, at any point of it."""
    is_aloud = draw(aloud)
    return Say(draw(words()), is_aloud), Wait(draw(pauses())), Say(draw(words()), is_aloud), Listen()


@st.composite
def corrections(draw: st.DrawFn, aloud: st.SearchStrategy[bool]) -> Moves:
    """ "For two. No, three." """
    is_aloud = draw(aloud)
    return Say("For two.", is_aloud), Wait(draw(pauses(1.0))), Say("No, three.", is_aloud), Listen()


@st.composite
def backchannels(draw: st.DrawFn, aloud: st.SearchStrategy[bool]) -> Moves:
    """ "Mhm", while the agent speaks on."""
    is_aloud = draw(aloud)
    return Say(draw(words()), is_aloud), Wait(draw(pauses(2.0))), Say("Mhm", is_aloud), Listen()


@st.composite
def mumbles(draw: st.DrawFn, aloud: st.SearchStrategy[bool]) -> Moves:
    """A sound that is no words; of somebody who types a line of nothing."""
    return Noise() if draw(aloud) else Say(" "), Wait(draw(pauses()))


def silences() -> st.SearchStrategy[Moves]:
    """Up to the longest that anything in a session waits for the user."""
    return st.sampled_from(((Wait(8.0),), (Wait(21.0),), (Wait(45.0),)))


@st.composite
def digits(draw: st.DrawFn, aloud: st.SearchStrategy[bool]) -> Moves:
    """In groups, with pauses that may be too long."""
    is_aloud, moves = draw(aloud), list[Move]()
    for group in draw(st.lists(st.sampled_from(("54", "73", "9")), min_size=1, max_size=3)):
        moves += [Say(group, is_aloud), Wait(draw(pauses(2.5)))]
    return *moves, Listen()


@st.composite
def oddities(draw: st.DrawFn) -> Moves:
    """What clients send besides words."""
    return Send(draw(st.sampled_from(ODDITIES))), Wait(draw(pauses()))


@st.composite
def users(draw: st.DrawFn, *, most: int = 6, aloud: bool | None = None) -> Moves:
    """A whole visit. `aloud`: whether the user types (False), speaks (True) or either."""
    manner = st.booleans() if aloud is None else st.just(aloud)
    moods: tuple[st.SearchStrategy[Moves], ...] = (
        questions(manner),
        interruptions(manner),
        corrections(manner),
        backchannels(manner),
        mumbles(manner),
        digits(manner),
        oddities(),
        silences(),
    )
    return tuple(move for mood in draw(st.lists(st.one_of(*moods), max_size=most)) for move in mood)


# --- the others ---------------------------------------------------------------------------------------------------------


@st.composite
def answers(draw: st.DrawFn, *, uses_tools: bool = True) -> tuple[AnswerStep, ...]:
    """What a model answers: sentences with pauses, tools, and now and then a failure."""
    steps: list[st.SearchStrategy[AnswerStep]] = [st.sampled_from(SENTENCES), pauses(2.0)]
    if uses_tools:
        steps.append(st.sampled_from([Use(policy.value) for policy in OnInterruption]))
    ends = st.sampled_from((End(ResponseStatus.FAILED), End(ResponseStatus.INCOMPLETE)))
    steps += [st.just(Stumble()), st.just(22.0), ends]
    return tuple(draw(st.lists(st.one_of(*steps), max_size=5)))


@st.composite
def plans(draw: st.DrawFn, *, ends: bool = True) -> tuple[Whisper, ...]:
    """What planning makes of one turn. `ends`: it may say goodbye."""
    kinds = st.sampled_from(sorted(InstructionType, key=lambda kind: not kind.is_contextual))
    whispers = [Whisper(after=draw(pauses()), type=draw(kinds)) for _ in range(draw(st.integers(0, 2)))]
    if ends and draw(st.booleans()):
        whispers.append(Whisper("Say goodbye.", draw(pauses()), InstructionType.INSTRUCTION, ends_session=True))
    return tuple(whispers)


def doings() -> st.SearchStrategy[Doing]:
    """What comes of a tool call."""
    return st.builds(Doing, pauses(3.0), st.booleans())


def mishap_plans(
    kinds: Collection[Mishap] = CLIENT_MISHAPS, *, most: int = 3
) -> st.SearchStrategy[Mapping[int, Mishap]]:
    """What goes wrong at a boundary, by the number of the message: for `Mishaps.at`."""
    return st.dictionaries(st.integers(1, 30), st.sampled_from(tuple(kinds)), max_size=most)


@st.composite
def conversations(
    draw: st.DrawFn,
    *,
    user: st.SearchStrategy[Moves] | None = None,
    model: st.SearchStrategy[tuple[AnswerStep, ...]] | None = None,
    planner: st.SearchStrategy[tuple[Whisper, ...]] | None = None,
    mishaps: bool = True,
) -> Conversation:
    """Whole conversations, for `engine.testing.conversation.hold`; each part may be drawn by a strategy of one's own."""
    return Conversation(
        user=draw(users() if user is None else user),
        answers=tuple(draw(st.lists(answers() if model is None else model, max_size=4))),
        plans=tuple(draw(st.lists(plans() if planner is None else planner, max_size=3))),
        tools=tuple(draw(st.lists(doings(), max_size=3))),
        network=draw(mishap_plans()) if mishaps else {},
        calls=draw(mishap_plans()) if mishaps else {},
        store=draw(mishap_plans(STORE_MISHAPS)) if mishaps else {},
        leaves=not draw(st.booleans()),
        schedule=draw(st.integers(0, 1 << 16)),
    )
