"""The end of a session that planning decides, explored whole: what the model calls, what the planner says, when the user cuts in,
what the store does (SPEC R9).

Whatever happens, the session ends exactly once or goes on, nobody waits for ever, and no goodbye is said twice.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import trio
import trio.testing

from agents.relational.planner import APPROVAL, PLAN, PLANNING_SECONDS
from engine.elements import OutText
from engine.interfaces import ChatRequest
from engine.memory import MemoryScope
from engine.store.contract import StoreError
from engine.store.documents import MemoryDocument
from engine.store.memory import MemoryStore
from engine.testing.chat import Script, call, tokens
from engine.texts import Sentence, say
from tests.scenarios.play import Play, open_play

BYE = '{"results": "Goodbye now.", "endSession": true}'
FIRST = '{"results": "Your name first."}'
BLANK = '{"results": " ", "endSession": true}'
PLANS: dict[str, Script] = {
    "goodbye": [1.0, BYE],
    "asks first": [1.0, FIRST],
    "asks, then goodbye": [1.0, FIRST, BYE],
    "goodbye, then more": [1.0, BYE, FIRST],
    "blank": [1.0, BLANK],
    "nothing": [1.0, "I have no idea."],
    "fails": [1.0, RuntimeError()],
    "fails after results": [1.0, FIRST, RuntimeError()],
    "hangs": [PLANNING_SECONDS + 5],
}
CALLS = ("asks", "asks again", "asks in the goodbye", "asks without a word")
CUTS = (None, 0.3, 1.5, 2.6, 21.5)
"""Seconds after the wish to stop: in the neutral sentence, while planning thinks, in what it wants said, in the fallback."""
FAILING: Sequence[frozenset[str]] = (frozenset(), frozenset({APPROVAL, PLAN}))
FALLBACK = say(Sentence.END_FALLBACK, "en")
REQUESTED, APPROVED = say(Sentence.END_REQUESTED, "en"), say(Sentence.END_APPROVED, "en")


class FailingStore(MemoryStore):
    """Cannot write some of what is remembered."""

    def __init__(self, failing: frozenset[str]) -> None:
        super().__init__()
        self.failing = failing

    async def append_memory(self, document: MemoryDocument, *, expected: int | None) -> MemoryDocument:
        if document.name in self.failing and document.scope.startswith(f"{MemoryScope.SESSION}:"):
            raise StoreError("it is away")
        return await super().append_memory(document, expected=expected)


def speaker(calls: str) -> Any:
    """A model that asks for the end when the user says bye, and says what it is told to."""

    def answer(request: ChatRequest) -> Script:
        last = request.messages[-1]
        wants = call("finish_session")
        if last.role == "tool" and last.text == REQUESTED:
            match calls:
                case "asks again":
                    return ["One moment.", wants]
                case "asks without a word":
                    return [wants]
                case _:
                    return tokens("One moment.", 0.2)
        if last.role == "tool" and last.text == APPROVED:
            return tokens("Goodbye now.", 0.5)
        if "Goodbye now." in last.text or FALLBACK in last.text:
            return [wants] if calls == "asks in the goodbye" else tokens("Goodbye now.", 0.5)
        if "Your name first." in last.text:
            return tokens("Your name first?", 0.3)
        return [wants] if "bye" in last.text else ["Of course."]

    return answer


def check(play: Play, told: str) -> None:
    ends = play.names("sessionShouldEnd")
    assert len(ends) <= 1, told
    assert len(play.names("session-end")) <= 1, told
    assert bool(ends) == bool(play.names("session-end")), f"{told}: the end that was decided comes"
    goodbyes = [e.response_id for e in play.client.elements if isinstance(e, OutText) and "Goodbye" in e.text]
    ended = [p["responseId"] for p in play.client.commands("response-end") if p["status"] == "completed"]
    assert len([each for each in goodbyes if each in ended]) == len(ends), f"{told}: a goodbye ends the session, once"


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("plan", PLANS)
async def test_the_session_ends_once_or_goes_on(calls: str, plan: str, autojump_clock: trio.testing.MockClock) -> None:
    cuts = CUTS if plan == "hangs" else CUTS[:-1]
    for cut, failing in product(cuts, FAILING):
        told = f"{calls}, {plan}, cut at {cut}, {sorted(failing)} cannot be written"
        passes: list[Script] = [PLANS[plan]]

        def think(request: ChatRequest, passes: list[Script] = passes) -> Script:
            return passes.pop(0) if passes else ["Nothing."]

        async with open_play(speaker(calls), think, store=FailingStore(failing)) as play:
            await play.say("bye")
            if cut is not None:
                await trio.sleep(cut)
                await play.say("wait")
            await trio.sleep(120)
            if not play.names("session-end"):
                said = [e.text for e in play.client.elements if isinstance(e, OutText)]
                assert cut is not None or said[-1] == "Your name first?", f"{told}: nobody is left waiting"
                await play.say("hello?")
                await trio.sleep(60)
                assert [e.text for e in play.client.elements if isinstance(e, OutText)][-1] == "Of course.", told
            check(play, told)
