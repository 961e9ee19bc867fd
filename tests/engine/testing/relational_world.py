"""Generated conversations with a relational agent on the Internal provider: the chat model that speaks and the one that plans are late,
stumble, break in the middle, call tools, ask for the end, and are overtaken by the user."""

from collections.abc import Sequence
from random import Random

import attrs
import trio

from engine.elements import Action, ControlToken
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import ChatRequest
from engine.protocol.promises import Violation
from engine.testing.boundaries import ShakyChat, shaky_store
from engine.testing.chat import Script, Step, call, tokens
from engine.testing.contract import SessionRecord, check_record
from engine.testing.explore import Found
from engine.testing.faults import FaultyStore
from engine.testing.mishaps import Mishaps
from engine.testing.schedule import run_repeatably
from tests.scenarios.play import Play, open_play

SPOKEN = (
    "Gladly.",
    "Let me see. A table is free at seven.",
    "We are open until ten, every day but Monday.",
    "For how many?",
)
PLANS = (
    '{"supportingContext": "Ask for the day."}',
    '{"results": "Dogs are welcome."}',
    '{"commentary": "Say that you are looking it up."}',
    "Nothing to add.",
    '{"results": "Thank you, goodbye.", "endSession": true}',
    '{"supportingContext": ',
)
QUESTIONS = ("A table, please.", "no, for three", "mhm", "54 73 9", "Are dogs allowed?", "That is all, bye.")


@attrs.define(eq=False)
class Chats:
    """What the two chat models say, by chance."""

    speaking: Random
    planning: Random
    count: int = 0

    def speak(self, request: ChatRequest) -> Script:
        chance = self.speaking
        luck = chance.random()
        if luck < 0.04:
            return _broken(chance)
        self.count += 1
        if luck < 0.16 and any(tool.name == "request_help" for tool in request.tools):
            return [chance.choice((0.0, 0.4)), call("request_help", f"c{self.count}", '{"question": "Dogs?"}')]
        if luck < 0.24 and any(tool.name == "finish_session" for tool in request.tools):
            return [call("finish_session", f"c{self.count}")]
        steps: list[Step] = [chance.choice((0.0, 0.2, 1.0)), *tokens(chance.choice(SPOKEN), chance.choice((0.0, 0.3)))]
        if luck > 0.96:
            steps += [*_broken(chance)]
        return steps

    def plan(self, request: ChatRequest) -> Script:
        chance = self.planning
        luck = chance.random()
        if luck < 0.06:
            return _broken(chance)
        words = tokens(chance.choice(PLANS), chance.choice((0.0, 0.0, 0.3)))
        return [chance.choice((0.0, 0.5, 2.0, 8.0, 25.0 if luck > 0.95 else 1.0)), *words]


def _broken(chance: Random) -> list[Step]:
    failures = (RealtimeException(ErrorCode.CHAT_FAILED, "The stream broke."), RuntimeError("It crashed."))
    return [chance.choice((0.0, 0.3)), chance.choice(failures)]


def explore_relational(seed: int) -> Found:
    """The conversation of a seed, judged."""
    return run_repeatably(seed, _converse, seed)


async def _converse(seed: int) -> Found:
    chance = Random(f"regular {seed}")
    chats = Chats(Random(f"speaker {seed}"), Random(f"planner {seed}"))
    mishaps = Mishaps.often(f"store {seed}", delay=0.2, duplicate=0.05, close=0.1)
    store = FaultyStore(shaky_store(mishaps, frozenset({"append_turns", "save_session", "save_usage"})))
    rough = chance.choice((0.0, 0.3, 1.0))
    rates = {"delay": 0.1, "stall": 0.05, "drop": 0.1, "duplicate": 0.1, "partial": 0.1, "reorder": 0.1, "close": 0.05}
    on_plans = Mishaps.often(f"plans {seed}", **{kind: rate * rough for kind, rate in rates.items()})
    kept: list[Play] = []
    faults: Sequence[Violation] = ()
    try:
        async with open_play(
            chats.speak,
            chats.plan,
            store=store,
            tokens=True,
            through=lambda chat: ShakyChat(chat, on_plans),
        ) as play:
            kept.append(play)
            await _visit(play, chance)
            asked_to_end = trio.current_time()
    except AssertionError as error:
        if not kept:
            raise
        faults = [_violation(line) for line in str(error).splitlines()]
        asked_to_end = trio.current_time()
    heard = kept[0].client.heard
    record = SessionRecord(
        heard,
        sent=kept[0].client.sent,
        saved=[session for session in store.saved_sessions if session.state.value != "OPEN"],
        usage=store.written_usage,
        asked_to_end=asked_to_end,
        ended=kept[0].ended_at,
        has_tokens=True,
        text_only=True,
    )
    happened = sorted([*mishaps.happened, *on_plans.happened], key=lambda each: each.at)
    return Found(seed, record, [*faults] or check_record(record), happened, trio.current_time())


def _violation(line: str) -> Violation:
    """What the play has found itself: it holds its record against the contract, too, and sees to its tasks and streams."""
    rule, colon, message = line.partition(": ")
    return Violation(rule, message) if colon else Violation("left-running", line)


async def _visit(play: Play, chance: Random) -> None:
    if chance.random() < 0.7:
        await play.client.send(Action("intro"))
    for _ in range(chance.randint(2, 8)):
        await trio.sleep(chance.choice((0, 0.1, 1.0, 3.0, 6.0, 12.0)))
        if play.client.counts["session-end"]:
            return
        await play.client.says(chance.choice(QUESTIONS))
    await trio.sleep(chance.choice((0, 0.5, 20.0)))
    if chance.random() < 0.3:
        play.connection.cancel(reason="the client vanished")
    elif not play.client.counts["session-end"]:
        await play.client.send(ControlToken("exit"))
        with trio.move_on_after(60):
            while not play.client.counts["session-end"]:
                await play.client.changed()
