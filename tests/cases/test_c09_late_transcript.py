"""C09: the recognised text of the user arrives after the reply."""

import trio

from engine.elements import ResponseEnd, Token
from engine.interfaces import Role
from engine.testing.scripted import final, interim
from tests.scenarios.support import open_scene


async def test_c09_the_turn_waits_for_both_halves(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene() as stage:
        session = stage.model.session
        session.say(interim())
        await trio.sleep(1.0)
        session.say(Token("At nine.", "r1"), ResponseEnd("r1"))
        await trio.sleep(0.399)
        assert stage.manager.ran == []
        assert stage.client.commands("exit") == []
        await trio.sleep(0.001)
        session.say(final("when do you open"))
        await trio.sleep(1)
        assert stage.manager.ran[0] == (1.4, "extracted 'when do you open'")
        assert stage.client.at(lambda e: getattr(e, "name", "") == "exit") == [1.4]
        messages = stage.manager.contexts[0].messages
        assert [(message.role, message.text) for message in messages] == [
            (Role.USER, "when do you open"),
            (Role.ASSISTANT, "At nine."),
        ]
        assert [end["status"] for end in stage.client.commands("response-end")] == ["completed"]
