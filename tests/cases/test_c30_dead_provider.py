"""C30: the provider dies during an answer; nothing that waits for the answer waits for ever."""

import pytest
import trio

from engine.elements import InputAudio, InstructionType, OutError, RealtimeInstruction, ResponseEnd, SpeechItem, Token
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import Context, Emit, PlanningManager, SessionInput, TurnInput
from engine.store.documents import SessionState
from engine.testing.scripted import ScriptedModel, ScriptedSession, final, interim, speech
from engine.testing.stage import ScriptedManager
from tests.scenarios.support import open_scene


class OneInstruction(PlanningManager):
    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        await emit(RealtimeInstruction("Mention the price.", InstructionType.INSTRUCTION))


def breaks_on_audio(session: ScriptedSession, item: SessionInput | RealtimeInstruction) -> None:
    """The socket is found dead when something is written to it."""
    if isinstance(item, InputAudio):
        raise trio.BrokenResourceError("write failed")


DEATHS: dict[str, Exception | None] = {
    "said so": RealtimeException(ErrorCode.PROVIDER_UNAVAILABLE, "The connection to the model was lost."),
    "abnormally": ConnectionResetError("reset by peer"),
    "cleanly": None,
    "at a write": None,
}


@pytest.mark.parametrize("how", DEATHS)
async def test_c30_the_session_ends_within_a_second(how: str, autojump_clock: trio.testing.MockClock) -> None:
    manager = ScriptedManager(planner=OneInstruction())
    model = ScriptedModel(breaks_on_audio if how == "at a write" else None)
    async with open_scene(manager=manager, model=model) as stage:
        session = stage.model.session
        session.say(interim(), final("hello"), Token("Hello.", "r0"), ResponseEnd("r0"))
        await trio.sleep(1.0)
        session.say(Token("The price is", "r1"), SpeechItem(speech(500), 24000, "r1"))
        await trio.sleep(0.4)
        error = DEATHS[how]
        if error is not None:
            session.fail(error)
        elif how == "cleanly":
            session.hang_up()
        for _ in range(20):  # more than the model's inputs hold: the client speaks on
            await stage.client.send(InputAudio(speech(20)))
        await trio.sleep(0.1)
        await stage.client.send(InputAudio(speech(20)))
        with trio.fail_after(1):
            await stage.over.wait()
        errors = [e for e in stage.client.elements if isinstance(e, OutError)]
        assert [(e.code, e.recoverable) for e in errors] == [(ErrorCode.PROVIDER_UNAVAILABLE, False)]
        assert [end["status"] for end in stage.client.commands("response-end")] == ["completed", "failed"]
        assert len(stage.client.commands("exit")) == 1
        stored = await stage.store.get_session("session-1")
        assert stored is not None
        assert stored.state is SessionState.DISCONNECTED
        assert len(await stage.store.get_usage("session-1")) == 1
        assert [what for _, what in manager.ran].count("disconnected") == 1
        assert stage.end is not None
        assert stage.end.code == 1011
