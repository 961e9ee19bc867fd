"""C10: two utterances are transcribed in parallel; what the engine passes on is in order. (Putting a provider's items in order is
that provider's part; here its session sends the finals in order and the engine keeps them so.)"""

import trio

from engine.interfaces import Role
from engine.testing.scripted import answer, final, interim
from tests.scenarios.support import open_scene


async def test_c10_a_second_final_waits_and_opens_the_next_turn(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene() as stage:
        session = stage.model.session
        session.say(interim(), final("I need a taxi"), final("for two"))
        await trio.sleep(0.5)
        answer(session, "Where to?", "r1", ms=0)
        await trio.sleep(0.5)
        answer(session, "For two, then.", "r2", ms=0)
        await trio.sleep(1)
        finals = [(t.text, t.turn_id) for t in stage.client.transcripts if not t.is_interim]
        assert finals == [("I need a taxi", "turn-1"), ("for two", "turn-2")]
        lines = [message.text for message in stage.manager.contexts[0].messages if message.role is Role.USER]
        assert lines == ["I need a taxi", "for two"]
        assert stage.client.sentences == ["Where to?", "For two, then."]


async def test_c10_b_a_failed_transcription_blocks_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene() as stage:
        session = stage.model.session
        session.say(interim(), final("  "), final("for two"))
        answer(session, "For two, then.", "r1")
        await trio.sleep(1)
        assert [t.text for t in stage.client.transcripts if not t.is_interim] == ["for two"]
        assert stage.client.sentences == ["For two, then."]
