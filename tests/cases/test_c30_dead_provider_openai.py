"""C30 on the OpenAI provider: its socket dies during an answer; nothing that waits for the answer waits for ever.

With tries to get the connection back the conversation goes on: tests/providers/openai/test_connections.py.
"""

import pytest
import trio

from engine.elements import InputAudio, InstructionType, RealtimeInstruction
from engine.errors import ErrorCode
from engine.interfaces import Context, Emit, PlanningManager, TurnInput
from engine.store.documents import SessionState
from engine.testing.scripted import speech
from providers.link import PONG_SECONDS, QUIET_SECONDS
from providers.openai.simulator import REAL_TIME, Disconnect, Drop, Reply, Script
from tests.providers.openai.scene import open_scene, properties

WAYS = {
    "abnormally": Disconnect(Drop.ABRUPT),
    "cleanly": Disconnect(Drop.CLOSE, code=1000),
    "with an error": Disconnect(Drop.CLOSE, code=1011),
    "half open": Disconnect(Drop.SILENT),
}
FOUND_AFTER = {"half open": QUIET_SECONDS + PONG_SECONDS}
"""Seconds; the others are known at once."""


class OneInstruction(PlanningManager):
    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        await emit(RealtimeInstruction("Mention the price.", InstructionType.INSTRUCTION))


@pytest.mark.parametrize("way", WAYS)
async def test_c30_without_another_try_the_session_ends(way: str, autojump_clock: trio.testing.MockClock) -> None:
    """A planned instruction waits for its response, the client speaks on; nothing waits for ever."""
    price = Reply("The price is eleven euros and twenty cents.", pace=REAL_TIME)
    script = Script(replies=[Reply("Hello."), price])
    async with open_scene(
        script, openai=properties(reconnect_attempts=0), planner=OneInstruction(), half_open=way == "half open"
    ) as scene:
        await scene.type("hello")
        await trio.sleep(0.5)
        scene.service.happen(WAYS[way])
        for _ in range(20):
            await scene.client.send(InputAudio(speech(20)))
        with trio.fail_after(1 + FOUND_AFTER.get(way, 0)):
            await scene.over.wait()
        assert [(error.code, error.recoverable) for error in scene.errors] == [(ErrorCode.PROVIDER_UNAVAILABLE, False)]
        assert scene.ends() == ["completed", "failed"]
        assert len(scene.at("exit")) == 1
        assert scene.store.saved_sessions[-1].state is SessionState.DISCONNECTED
        assert len(scene.store.written_usage) == 1
        assert [what for _, what in scene.manager.ran].count("disconnected") == 1
        assert scene.end is not None
        assert scene.end.code == 1011
