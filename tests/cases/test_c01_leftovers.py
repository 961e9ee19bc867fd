"""C01: after the user cuts in, nothing of the cancelled answer is heard inside the next one."""

import trio

from engine.elements import Interrupted, OutError, OutSpeech, OutText, ResponseEnd, ResponseStatus, SpeechItem, Token
from engine.testing.scripted import answer, final, interim, speech
from engine.testing.stage import Stage
from tests.scenarios.support import open_scene


async def cut_in(stage: Stage, *, done_at_provider: bool) -> None:
    say = stage.model.session.say
    say(interim(), final("what do you have"))
    say(Token("One moment. The first option", "r1"), *[SpeechItem(speech(500), 24000, "r1") for _ in range(3)])
    if done_at_provider:
        say(ResponseEnd("r1"))
    await trio.sleep(1.0)
    say(interim())
    await trio.sleep(0.1)
    for _ in range(6):
        say(Token(" is the blue room", "r1"), SpeechItem(speech(100), 24000, "r1"))
        await trio.sleep(0.1)
    say(ResponseEnd("r1", ResponseStatus.CANCELLED))
    await trio.sleep(0.3)
    say(final("stop, what about Friday"))
    await trio.sleep(0.2)
    answer(stage.model.session, "Friday is free.", "r2")
    await trio.sleep(1.0)


async def test_c01_nothing_of_the_cancelled_answer(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene() as stage:
        await cut_in(stage, done_at_provider=False)
        assert stage.model.session.received == [(1.0, Interrupted("r1", "One moment. The", 1000))], (
            "it is asked to cancel"
        )
        assert all(time < 1.0 or e not in stage.client.spoken("r1") for time, e in stage.client.heard)
        texts = [e.text for e in stage.client.elements if isinstance(e, OutText) and e.response_id == "r2"]
        assert texts == ["Friday is free."]
        ends = [(end["responseId"], end["status"]) for end in stage.client.commands("response-end")]
        assert ends == [("r1", "cancelled"), ("r2", "completed")]


async def test_c01_b_cut_after_the_provider_was_done(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene() as stage:
        await cut_in(stage, done_at_provider=True)
        assert not any(isinstance(e, OutError) for e in stage.client.elements)
        assert [end["responseId"] for end in stage.client.commands("response-end")] == ["r1", "r2"]
        late = [
            e for time, e in stage.client.heard if time >= 1.0 and isinstance(e, OutSpeech) and e.response_id == "r1"
        ]
        assert late == []
        turns = await stage.store.get_turns("session-1", limit=10)
        assert [turn.interrupted for turn in turns] == [True, False]
