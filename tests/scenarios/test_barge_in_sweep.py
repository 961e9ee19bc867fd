"""One rich turn, and something that happens to it at every 50 ms of it: a barge-in, a client that vanishes or leaves, a dying provider.

Each scene is judged by every invariant when it is closed; see `support.open_scene`.
"""

import pytest
import trio

from engine.elements import ControlToken, InputText, OnInterruption, OutCommand, OutError, ResponseEnd
from engine.errors import ErrorCode, RealtimeException
from engine.store.documents import SessionState
from engine.testing.faults import FaultyStore
from engine.testing.scripted import final, interim
from engine.testing.stage import Stage
from tests.scenarios.rich_turn import (
    CLOSED_AT,
    ENDED_AT,
    LENGTH_MS,
    SAVE_SECONDS,
    TOOL_SECONDS,
    WORDS_AT,
    Performer,
    play,
    run,
    say,
)

MOMENTS = range(0, LENGTH_MS + 1, 50)
EVERY_100_MS = range(0, LENGTH_MS + 1, 100)
TOOL_IN_FLIGHT = range(900, 1701, 50)


async def test_the_turn_itself() -> None:
    """Undisturbed, it goes as its description says."""

    async def nothing(stage: Stage, _: Performer) -> None:
        await trio.sleep(2)

    async def scene() -> None:
        stage, store = await play(nothing, at=4)
        client = stage.client
        assert client.sentences == [
            "Let me check that.",
            "It takes a moment, please.",
            "It arrives today at noon.",
            "There is a discount.",
        ]
        assert client.at(lambda e: isinstance(e, OutCommand) and e.name == "response-end") == pytest.approx([1.9, 2.7])
        assert client.at(lambda e: isinstance(e, OutCommand) and e.name == "exit") == pytest.approx([CLOSED_AT])
        assert client.speech_ms("r1") == 3500
        names = [e.name for e in client.elements if isinstance(e, OutCommand)]
        assert names[1:] == [
            "tool-start",
            "tool-success",
            "response-end",
            "realtime-planning",
            "realtime-instruction",
            "realtime-instruction-outcome",
            "response-end",
            "response-instruction-end",
            "realtime-instruction",
            "exit",
            "session-end",
        ]
        (turn,) = store.turns
        assert [output.heard for output in turn.output] == [
            "Let me check that. It takes a moment, please. It arrives today at noon.",
            "There is a discount.",
        ]

    await trio.to_thread.run_sync(run, scene)


async def cut_in(stage: Stage, performer: Performer) -> None:
    """The user cuts in, is heard, and gets an answer; then leaves."""
    session = stage.model.session
    performer.cut()
    session.say(interim())
    await trio.sleep(0.4)
    session.say(final("stop", response_id="r9"))
    await trio.sleep(0.2)
    say(session, "r9", "Of course.", 500)
    session.say(ResponseEnd("r9"))
    await leave(stage)


async def type_in(stage: Stage, performer: Performer) -> None:
    """The user types, and gets an answer; then leaves."""
    await stage.client.send(InputText("stop"))
    await trio.sleep(0.6)
    await leave(stage)


async def leave(stage: Stage) -> None:
    await trio.sleep(3)
    await stage.client.send(ControlToken("exit"))
    await stage.client.wait_for_command("session-end")


def check_answered(stage: Stage, store: FaultyStore, *, by: float) -> None:
    """The new utterance was answered in time, in a turn of its own."""
    assert stage.client.sentences[-1] == "Of course."
    assert [turn.input.text for turn in store.turns][-1] == "stop"
    (answered,) = stage.client.at(
        lambda e: isinstance(e, OutCommand) and e.name == "response-end" and e.parameters["responseId"] == "r9"
    )
    assert answered <= by + 1e-9
    check_finished(stage, store, SessionState.CLOSED)


def check_finished(stage: Stage, store: FaultyStore, state: SessionState) -> None:
    """Saved once as what it was, one usage record, the disconnect hook once."""
    assert [session.state for session in store.saved_sessions if session.state is not SessionState.OPEN] == [state]
    assert len(store.written_usage) == 1
    assert [what for _, what in stage.manager.ran].count("disconnected") == 1
    (end,) = stage.client.commands("session-end")
    assert end["state"] == state.value


@pytest.mark.parametrize("at_ms", MOMENTS)
def test_barge_in(at_ms: int) -> None:
    async def scene() -> None:
        at = at_ms / 1000
        stage, store = await play(cut_in, at=at)
        check_answered(stage, store, by=at + 0.6 + SAVE_SECONDS)

    run(scene)


@pytest.mark.parametrize("at_ms", EVERY_100_MS)
def test_barge_in_on_a_provider_that_goes_on_for_a_while(at_ms: int) -> None:
    async def scene() -> None:
        at = at_ms / 1000
        stage, store = await play(cut_in, at=at, leaks=True)
        check_answered(stage, store, by=at + 0.6 + SAVE_SECONDS)
        assert "Too late." not in stage.client.sentences

    run(scene)


@pytest.mark.parametrize("on_interruption", [OnInterruption.CONTINUE, OnInterruption.SHIELD])
@pytest.mark.parametrize("at_ms", TOOL_IN_FLIGHT)
def test_barge_in_on_a_tool_that_is_not_cancelled(at_ms: int, on_interruption: OnInterruption) -> None:
    async def scene() -> None:
        at = at_ms / 1000
        stage, store = await play(cut_in, at=at, on_interruption=on_interruption)
        shielded = TOOL_SECONDS if on_interruption is OnInterruption.SHIELD else 0
        check_answered(stage, store, by=at + 0.6 + SAVE_SECONDS + shielded)
        if at_ms > 1000:
            (tool,) = store.turns[0].tools
            assert (tool.call_id, tool.result, tool.error) == ("c1", {"found": True}, "")

    run(scene)


@pytest.mark.parametrize("at_ms", EVERY_100_MS)
def test_a_typed_barge_in(at_ms: int) -> None:
    async def scene() -> None:
        at = at_ms / 1000
        stage, store = await play(type_in, at=at)
        check_answered(
            stage, store, by=at + 2 * SAVE_SECONDS
        )  # a turn that is being saved is corrected, and saved again

    run(scene)


@pytest.mark.parametrize("at_ms", MOMENTS)
def test_the_client_vanishes(at_ms: int) -> None:
    async def vanish(stage: Stage, performer: Performer) -> None:
        performer.die()
        stage.vanish()
        await stage.over.wait()

    async def scene() -> None:
        at = at_ms / 1000
        stage, store = await play(vanish, at=at)
        check_finished(stage, store, SessionState.DISCONNECTED)
        assert stage.ended_at is not None
        assert stage.ended_at <= at + 2 * SAVE_SECONDS + 1e-9
        if at != WORDS_AT:
            assert [turn.input.text for turn in store.turns] == (["find my order"] if at > WORDS_AT else [])

    run(scene)


@pytest.mark.parametrize("at_ms", MOMENTS)
def test_the_client_ends_its_session(at_ms: int) -> None:
    """What is open may finish, and the session ends as soon as nothing is and it is written that nobody used the last whisper."""

    async def exit_(stage: Stage, _: Performer) -> None:
        await stage.client.send(ControlToken("exit"))
        await stage.client.wait_for_command("session-end")

    async def scene() -> None:
        at = at_ms / 1000
        stage, store = await play(exit_, at=at)
        check_finished(stage, store, SessionState.CLOSED)
        (ended,) = stage.client.at(lambda e: isinstance(e, OutCommand) and e.name == "session-end")
        if 0.25 < at < CLOSED_AT:
            assert ended == pytest.approx(CLOSED_AT + SAVE_SECONDS)
            assert stage.client.sentences[-1] == "There is a discount."
        elif at != 0.25:
            assert ended == pytest.approx(at if at < CLOSED_AT else at + SAVE_SECONDS)

    run(scene)


@pytest.mark.parametrize("at_ms", MOMENTS)
def test_the_provider_fails(at_ms: int) -> None:
    """One error reaches the client and the session ends, whichever exception it was."""

    async def fail(stage: Stage, performer: Performer) -> None:
        performer.die()
        error = RealtimeException(ErrorCode.PROVIDER_QUOTA, "Nothing is left.") if at_ms % 100 else OSError("reset")
        stage.model.session.fail(error)
        await stage.over.wait()

    async def scene() -> None:
        at = at_ms / 1000
        stage, store = await play(fail, at=at)
        check_finished(stage, store, SessionState.DISCONNECTED)
        assert stage.ended_at is not None
        assert stage.ended_at <= at + 2 * SAVE_SECONDS + 1e-9
        (error,) = [element for element in stage.client.elements if isinstance(element, OutError)]
        expected = ErrorCode.PROVIDER_QUOTA if at_ms % 100 else ErrorCode.PROVIDER_UNAVAILABLE
        assert (error.code, error.recoverable) == (expected, False)
        if WORDS_AT < at < ENDED_AT:
            assert [end["status"] for end in stage.client.commands("response-end")] == ["failed"]

    run(scene)
