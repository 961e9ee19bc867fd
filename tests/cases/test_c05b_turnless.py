"""C05, variant b: a turnless model that falls silent gets no ResponseEnd."""

import trio

from engine.elements import OutCommand, Token
from engine.testing.scripted import final
from engine.testing.stage import open_stage


async def test_c05_b_no_response_end_is_ever_produced(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage(turnless=True) as stage:
        stage.model.session.say(final("what are the opening hours"))
        await trio.sleep(0.3)
        stage.model.session.say(Token("We open at nine. On Sund", "r1"))
        await trio.sleep(1000)
        assert [e.name for e in stage.client.elements if isinstance(e, OutCommand)] == ["ready"]
