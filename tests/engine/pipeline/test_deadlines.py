"""What happens because nothing happens comes at its time, whatever was due before (M7, L12).

The deadline of the turns' task is written once for many elements, so each of these moves it while it is already running.
"""

import trio

from engine.elements import AnswerAgain, OutCommand, OutputElement, ResponseEnd, SpeechItem
from engine.testing.scripted import final, interim, speech
from engine.testing.stage import open_stage


def ends_idle(element: OutputElement) -> bool:
    return isinstance(element, OutCommand) and element.name == "response-end" and element.parameters["status"] == "idle"


async def test_an_idle_end_comes_20_s_after_the_last_sound(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage() as stage:
        say = stage.model.session.say
        say(final("hello"), SpeechItem(speech(20), 24000, "r1"))
        for _ in range(7):
            await trio.sleep(15)  # the deadline of the element before comes 5 s after this one, and nothing is due
            say(SpeechItem(speech(20), 24000, "r1"))
        await trio.sleep(60)
        assert stage.client.at(ends_idle) == [7 * 15 + 20]


async def test_a_nearer_deadline_is_kept_beside_a_far_one(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage() as stage:
        say = stage.model.session.say
        say(final("hello"), SpeechItem(speech(5000), 24000, "r1"))  # an idle end would be at 20 s
        await trio.sleep(3)
        say(interim())  # no words follow: the answer is asked for again at 5 s
        await trio.sleep(10)
        asked = [(at, item) for at, item in stage.model.session.received if isinstance(item, AnswerAgain)]
        assert asked == [(5, AnswerAgain("hello"))]


async def test_a_deadline_that_is_gone_does_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage() as stage:
        say = stage.model.session.say
        say(final("hello"), SpeechItem(speech(500), 24000, "r1"))
        await trio.sleep(1)
        say(ResponseEnd("r1"))
        await trio.sleep(100)
        assert stage.client.at(ends_idle) == []
        assert [turn.index for turn in await stage.store.get_turns("session-1", limit=10)] == [0]
