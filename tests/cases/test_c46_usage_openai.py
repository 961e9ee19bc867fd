"""C46 on the OpenAI provider, which says for each response what it has used: every token counts once."""

import trio

from engine.elements import ControlToken
from providers.openai.simulator import Failed, Pace, Reply, Script, Usage
from tests.providers.openai.scene import open_scene


async def test_c46_a_c_whatever_became_of_the_response(autojump_clock: trio.testing.MockClock) -> None:
    """Complete, cancelled, failed, and the apology for that, which does not say; cached tokens are part of the input."""
    script = Script(
        replies=[
            Reply("One.", usage=Usage(input=100, output=50, cached=40)),
            Reply("Two, and so on.", pace=Pace(token_seconds=1.0), usage=Usage(input=80, output=10)),
            Reply("Yes.", usage=None),
            Reply(ends=Failed("server_error"), usage=Usage(input=60, output=0)),
            Reply("Sorry.", usage=None),
        ]
    )
    async with open_scene(script, session_id="S", test_mode=True) as scene:
        for text in ("one", "two", "stop", "three"):
            await scene.type(text)
            await trio.sleep(2)
        assert scene.ends() == ["completed", "cancelled", "completed", "completed"]
        await scene.client.send(ControlToken("end"))
        await scene.over.wait()
    (record,) = scene.store.written_usage
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (240, 60, 40)
    assert (record.provider, record.agent, record.project_ref, record.test_mode) == ("OpenAI", "tester", "test", True)
    assert record.session_id == "S"
