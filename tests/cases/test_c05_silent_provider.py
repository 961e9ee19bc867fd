"""C05: the provider stops in the middle of an answer without closing anything (variant b: test_c05b_turnless)."""

import logging

import pytest
import trio

from engine.elements import OutCommand, OutText, ResponseEnd, Token
from engine.testing.scripted import answer, final, interim
from tests.scenarios.support import open_scene


async def test_c05_the_silent_response_ends_after_20_seconds(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_scene() as stage:
        session = stage.model.session
        session.say(interim(), final("what are the opening hours"))
        await trio.sleep(0.3)
        session.say(Token("We open at nine. On Sund", "r1"))
        await trio.sleep(19.9)
        assert stage.client.commands("response-end") == []
        with caplog.at_level(logging.WARNING):
            await trio.sleep(0.2)
        assert any("silent" in record.message or "idle" in record.message for record in caplog.records)
        last = [(time, e) for time, e in stage.client.heard if isinstance(e, OutText | OutCommand)][-3:]
        assert [time for time, _ in last] == [20.3, 20.3, 20.3]
        text, end, leave = (e for _, e in last)
        assert isinstance(text, OutText)
        assert text.text == "On Sund"
        assert isinstance(end, OutCommand)
        assert end.parameters["status"] == "idle"
        assert isinstance(leave, OutCommand)
        assert leave.name == "exit"
        assert (20.3, "extracted 'what are the opening hours'") in stage.manager.ran
        await trio.sleep(25 - trio.current_time())
        heard = len(stage.client.heard)
        session.say(ResponseEnd("r1"))
        await trio.sleep(1)
        assert len(stage.client.heard) == heard, "the late end gives nothing"
        session.say(interim(), final("and Monday?"))
        answer(session, "Also nine.", "r2")
        await trio.sleep(1)
        assert stage.client.sentences[-1] == "Also nine."
        assert [leave["turnId"] for leave in stage.client.commands("exit")] == ["turn-1", "turn-2"]
