"""Law 3: the reader of the model never waits for the client; what a client takes slowly waits in bounds."""

import pytest
import trio
from trio.testing import MockClock

from engine.config import Settings
from engine.elements import (
    ControlToken,
    InputText,
    Interrupted,
    OutCommand,
    OutError,
    OutSpeech,
    OutTranscript,
    ResponseEnd,
    SpeechItem,
    Token,
)
from engine.errors import ErrorCode
from engine.session.windowing import POLICY
from engine.store.documents import SessionState
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedModel, ScriptedSession, answer, echo, final, interim, speech
from engine.testing.stage import open_stage
from tests.scenarios.support import open_scene

FRAME_SECONDS = 0.1


def tell_a_story(session: ScriptedSession, seconds: int = 10) -> None:
    """Ten seconds of speech, delivered in an instant."""
    session.say(interim(), final("tell me", response_id="r1"))
    for second in range(seconds):
        session.say(Token(f" Sentence {second}.", "r1"), SpeechItem(speech(1000), 24000, "r1"))


@pytest.mark.parametrize("is_done", [False, True], ids=["in the middle", "behind its end"])
async def test_a_barge_in_is_seen_at_once_behind_ten_seconds_of_speech(
    autojump_clock: MockClock, is_done: bool
) -> None:
    """With one channel it would be seen when all of it had been sent."""
    store = FaultyStore()
    async with open_scene(seconds_per_element=FRAME_SECONDS, store=store, text_only=False) as stage:
        await trio.sleep(0.5)
        session = stage.model.session
        tell_a_story(session)
        if is_done:
            session.say(ResponseEnd("r1"))
        await trio.sleep(1.5)
        assert trio.current_time() == 2
        session.say(interim())
        await trio.sleep(1)
        (seen,) = stage.client.at(lambda e: isinstance(e, OutTranscript) and e.turn_id == "turn-2")
        taken_when_it_came = FRAME_SECONDS * 2  # the frame on its way, and the mark of the cut
        # The old turn's end and exit stand before the interim when they had been queued before it.
        assert seen <= 2 + taken_when_it_came + (2 * FRAME_SECONDS if is_done else 0) + 1e-9
        late = stage.client.at(lambda e: isinstance(e, OutSpeech))
        assert max(late) <= 2 + FRAME_SECONDS
        (interrupted,) = session.of_type(Interrupted)
        assert isinstance(interrupted, Interrupted)
        assert interrupted.response_id == "r1"
        assert 900 <= interrupted.heard_ms <= 1200
        session.say(final("stop"))
        answer(session, "Yes.", "r2")
        await trio.sleep(5)
        assert stage.client.sentences[-1] == "Yes."
        assert store.turns[0].interrupted


async def test_speech_over_the_limit_is_shed_and_said_once(autojump_clock: MockClock) -> None:
    settings = Settings(outbox_speech_seconds=5)
    async with open_scene(settings=settings, seconds_per_element=FRAME_SECONDS) as stage:
        tell_a_story(stage.model.session, 20)
        stage.model.session.say(ResponseEnd("r1"))
        await trio.sleep(30)
        assert stage.client.speech_ms("r1") <= 5200
        (error,) = [element for element in stage.client.elements if isinstance(element, OutError)]
        assert (error.code, error.recoverable) == (ErrorCode.SLOW_CLIENT, True)
        assert [end["status"] for end in stage.client.commands("response-end")] == ["completed"]
        stage.model.session.say(interim(), final("more"))
        answer(stage.model.session, "More.", "r2", ms=1000)
        await trio.sleep(10)
        assert stage.client.speech_ms("r2") == 1000


async def test_a_lost_client_ends_its_session_and_nothing_else(autojump_clock: MockClock) -> None:
    """So far behind that commands would have to be dropped: the session is saved, the connection is closed as too slow."""
    settings, store = Settings(outbox_elements=100), FaultyStore()
    async with open_stage(
        settings=settings, store=store, model=ScriptedModel(echo), tokens=True, seconds_per_element=3600
    ) as stage:
        session = stage.model.session
        session.say(interim(), final("tell me", response_id="r1"))
        for _ in range(40):
            session.say(Token(" and", "r1"), Token(" so on", "r1"), Token(" it goes", "r1"))
            await trio.sleep(0.1)
            if stage.end is not None:
                break
        assert stage.end is not None
        assert (stage.end.code, stage.end.reason) == (POLICY, "slow_client")
        assert store.saved_sessions[-1].state is SessionState.DISCONNECTED
        assert [turn.input.text for turn in store.turns] == ["tell me"]
        assert len(store.written_usage) == 1
        assert len(stage.client.line.outbox) <= 100 + 2


async def test_a_refusal_for_a_lost_client_ends_its_session_too(autojump_clock: MockClock) -> None:
    """What is put by the input's task, not by the turns'."""
    settings, store = Settings(outbox_elements=100), FaultyStore()
    async with open_stage(settings=settings, store=store, seconds_per_element=3600) as stage:
        for _ in range(101):
            await stage.client.send(InputText("x" * 20_000))
        await trio.sleep(1)
        assert stage.end is not None
        assert (stage.end.code, stage.end.reason) == (POLICY, "slow_client")
        assert store.saved_sessions[-1].state is SessionState.DISCONNECTED


async def test_a_slow_client_gets_all_of_a_text_conversation_in_order(autojump_clock: MockClock) -> None:
    async with open_scene(model=ScriptedModel(echo), seconds_per_element=1.0, text_only=True) as stage:
        for number in range(10):
            await stage.client.send(InputText(f"word {number}"))
            await trio.sleep(8)
        await trio.sleep(60)
        names = [e.name for e in stage.client.elements if isinstance(e, OutCommand) and e.name != "ready"]
        assert names == ["response-end", "exit"] * 10
        assert stage.client.sentences == [f"You said word {number}." for number in range(10)]


async def test_of_a_cut_text_answer_a_slow_client_gets_no_more(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with open_scene(seconds_per_element=1.0, text_only=True, store=store) as stage:
        session = stage.model.session
        session.say(interim(), final("tell me", response_id="r1"), Token("One. Two. Three. Four. And", "r1"))
        await trio.sleep(4.5)
        session.say(interim())
        await trio.sleep(20)
        assert stage.client.sentences == ["One.", "Two."]
        assert [end["status"] for end in stage.client.commands("response-end")] == ["cancelled"]
        (output,) = store.turns[0].output
        assert (output.text, output.heard) == ("One. Two. Three. Four. And", "One. Two.")


@pytest.mark.parametrize("key", ["", "agent:tester"])
async def test_a_client_that_is_lost_between_sessions(autojump_clock: MockClock, key: str) -> None:
    settings = Settings(outbox_elements=100)
    async with open_stage(settings=settings, seconds_per_element=3600, key=key) as stage:
        await stage.client.send(ControlToken("exit"))
        for _ in range(101):
            await stage.client.send(ControlToken("ready"))
        await trio.sleep(1)
        assert stage.end is not None
        assert (stage.end.code, stage.end.reason) == (POLICY, "slow_client")


async def test_a_client_that_is_lost_in_a_session_of_its_own_token(autojump_clock: MockClock) -> None:
    settings = Settings(outbox_elements=100)
    async with open_stage(settings=settings, seconds_per_element=3600, key="") as stage:
        await stage.client.send(ControlToken("ready", parameters={"key": "agent:tester"}))
        for _ in range(101):
            await stage.client.send(InputText("x" * 20_000))
        await trio.sleep(1)
        assert stage.end is not None
        assert (stage.end.code, stage.end.reason) == (POLICY, "slow_client")
