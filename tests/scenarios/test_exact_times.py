"""Every time limit of a session, at its exact moment of virtual time."""

from collections.abc import Sequence

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.elements import (
    AnswerAgain,
    ControlToken,
    EmotionalState,
    InputAudio,
    InputText,
    JsonObject,
    MultimodalInteraction,
    MultimodalKind,
    OutCommand,
    OutError,
    Partial,
    Playback,
    RealtimeCommand,
    RealtimeElement,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    SpeakingState,
    SpeechItem,
    Text,
    Token,
)
from engine.errors import ErrorCode
from engine.interfaces import Context, SessionInput, Steer, ToolBox, ToolResult, ToolSpecification
from engine.store.documents import SessionState
from engine.testing.faults import Fault, FaultyStore, StoreCall
from engine.testing.scripted import (
    ScriptedModel,
    ScriptedRecognizer,
    ScriptedSession,
    answer,
    echo,
    final,
    interim,
    speech,
)
from engine.testing.stage import ScriptedAgent, ScriptedManager, Stage
from tests.scenarios.support import open_scene


def times(stage: Stage, command: str) -> list[float]:
    """When the client was told a command."""
    return stage.client.at(lambda element: isinstance(element, OutCommand) and element.name == command)


def ends(stage: Stage) -> list[tuple[float, str]]:
    """Each response's end, with its status."""
    return list(
        zip(times(stage, "response-end"), (e["status"] for e in stage.client.commands("response-end")), strict=True)
    )


# --- the idle end of a response (M7) ----------------------------------------------------------------------------------


async def test_twenty_seconds_of_silence_end_a_response(autojump_clock: MockClock) -> None:
    async with open_scene() as stage:
        stage.model.session.say(interim(), final("hello"))
        await trio.sleep(19.999)
        assert ends(stage) == []
        await trio.sleep(1)
        assert ends(stage) == [(20, "idle")]
        assert times(stage, "exit") == [20]


@pytest.mark.parametrize(
    "element",
    [
        Token("One", "r1"),
        Text("One.", "r1"),
        SpeechItem(speech(100), 24000, "r1"),
        MultimodalInteraction(MultimodalKind.CARD, "menu"),
        RealtimeCommand("realtime-planning", {"text": "Hm."}),
        RealtimeError(ErrorCode.CHAT_FAILED, "It stumbled."),
    ],
    ids=lambda element: type(element).__name__,
)
async def test_whatever_the_model_says_starts_the_twenty_seconds_anew(
    autojump_clock: MockClock, element: RealtimeElement
) -> None:
    async with open_scene() as stage:
        stage.model.session.say(interim(), final("hello"))
        await trio.sleep(15)
        stage.model.session.say(element)
        await trio.sleep(19.999)
        assert ends(stage) == []
        await trio.sleep(1)
        assert ends(stage) == [(35, "idle")]


async def test_what_the_user_does_does_not(autojump_clock: MockClock) -> None:
    """Client audio is no sign of the model's life, and neither is the user's being heard."""
    async with open_scene() as stage:
        stage.model.session.say(interim(), final("hello"))
        for _ in range(19):
            await trio.sleep(1)
            await stage.client.send(InputAudio(speech(1000)))
            stage.model.session.say(Partial("hel"), EmotionalState(SpeakingState.USER_NOT_SPEAKING))
        await trio.sleep(2)
        assert ends(stage) == [(20, "idle")]


async def test_a_turnless_model_has_no_response_that_ends(autojump_clock: MockClock) -> None:
    async with open_scene(turnless=True) as stage:
        stage.model.session.say(final("hello"), Token("Well", "r1"))
        await trio.sleep(100)
        assert ends(stage) == []


# --- the end of the input (L7) ----------------------------------------------------------------------------------------


async def test_the_session_ends_at_once_when_nothing_is_owed(autojump_clock: MockClock) -> None:
    async with open_scene(model=ScriptedModel(echo)) as stage:
        await stage.client.send(InputText("hello"))
        await trio.sleep(3)
        await stage.client.send(ControlToken("exit"))
        await stage.client.wait_for_command("session-end", state="CLOSED")
        assert trio.current_time() == 3


@pytest.mark.parametrize("has_echo", [True, False], ids=["answer owed", "echo owed"])
async def test_the_output_is_closed_twenty_seconds_after_the_input(autojump_clock: MockClock, has_echo: bool) -> None:
    async with open_scene() as stage:
        await stage.client.send(InputText("hello"))
        await trio.sleep(2)
        if has_echo:
            stage.model.session.say(final("hello", "Client"))
        await trio.sleep(1)
        await stage.client.send(ControlToken("exit"))
        await stage.client.wait_for_command("session-end", state="CLOSED")
        assert trio.current_time() == (22 if has_echo else 23)  # the idle end at 2 + 20 comes first
        if has_echo:
            assert ends(stage) == [(22, "idle")]


async def test_the_output_is_closed_while_the_model_speaks_on(autojump_clock: MockClock) -> None:
    async with open_scene() as stage:
        stage.model.session.say(interim(), final("hello", response_id="r1"))
        await stage.client.send(ControlToken("exit"))
        for _ in range(19):
            await trio.sleep(1)
            stage.model.session.say(Token(" and", "r1"))
        await stage.client.wait_for_command("session-end", state="CLOSED")
        assert trio.current_time() == 20
        assert ends(stage) == [(20, "cancelled")]
        assert times(stage, "exit") == [20]


async def test_a_user_who_is_speaking_at_the_end_is_waited_for(autojump_clock: MockClock) -> None:
    """Two seconds, when a model recognizes by itself and brings no words."""
    async with open_scene() as stage:
        stage.model.session.say(interim())
        await stage.client.send(ControlToken("exit"))
        await stage.client.wait_for_command("session-end", state="CLOSED")
        assert trio.current_time() == 2
        assert times(stage, "exit") == []


# --- an interim without words (L12) -----------------------------------------------------------------------------------


async def test_a_noise_asks_again_after_two_seconds(autojump_clock: MockClock) -> None:
    async with open_scene() as stage:
        session = stage.model.session
        session.say(interim(), final("book it for nine", response_id="r1"))
        await trio.sleep(0.5)
        session.say(interim())
        await trio.sleep(1.999)
        assert session.of_type(AnswerAgain) == []
        await trio.sleep(1)
        assert [item for item in session.received if isinstance(item[1], AnswerAgain)] == [
            (2.5, AnswerAgain("book it for nine"))
        ]


async def test_a_user_who_is_heard_speaking_is_not_taken_for_a_noise(autojump_clock: MockClock) -> None:
    """Not before 35 s: a recognizer has cut the utterance by then."""
    async with open_scene() as stage:
        session = stage.model.session
        session.say(interim(), final("book it for nine"))
        await trio.sleep(1)
        session.say(EmotionalState(SpeakingState.USER_SPEAKING), interim())
        await trio.sleep(34.999)
        assert session.of_type(AnswerAgain) == []
        await trio.sleep(1)
        assert [time for time, item in session.received if isinstance(item, AnswerAgain)] == [36]


# --- saving a turn (L15) ----------------------------------------------------------------------------------------------


async def test_an_exit_waits_two_seconds_for_its_save(autojump_clock: MockClock) -> None:
    """And the turn is written later, in its place."""

    def hang_for_five_seconds(call: StoreCall) -> Fault | float | None:
        return 5.0 if call.operation == "append_turns" and call.of_operation == 1 else None

    store = FaultyStore(hang_for_five_seconds)
    async with open_scene(model=ScriptedModel(echo), store=store) as stage:
        await stage.client.send(InputText("one"))
        await trio.sleep(1.999)
        assert times(stage, "exit") == []
        await trio.sleep(1.501)
        await stage.client.send(InputText("two"))
        await trio.sleep(7)
        assert list(zip(times(stage, "exit"), (e["saved"] for e in stage.client.commands("exit")), strict=True)) == [
            (2, False),
            (5, True),
        ]
        assert [turn.input.text for turn in store.written_turns] == ["one", "two"]


async def test_a_store_that_fails_is_asked_again_and_again(autojump_clock: MockClock) -> None:
    """After 0.25, 0.5, 1, 2, 4 and then every 5 seconds; nothing is lost and the order is kept."""

    def fail_until_ten(call: StoreCall) -> Fault | None:
        return Fault.FAIL if call.operation == "append_turns" and call.at < 10 else None

    store = FaultyStore(fail_until_ten)
    async with open_scene(model=ScriptedModel(echo), store=store) as stage:
        for word in ("one", "two", "three"):
            await stage.client.send(InputText(word))
            await trio.sleep(4)
        await trio.sleep(20)
        assert [call.at for call in store.calls if call.operation == "append_turns"] == [
            *(0, 0.25, 0.75, 1.75, 3.75, 7.75, 12.75)
        ]
        assert [turn.input.text for turn in store.written_turns] == ["one", "two", "three"]
        assert [e["saved"] for e in stage.client.commands("exit")] == [False, False, False]


# --- the length of a session (L23) ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("minutes", "seconds"), [(None, 3600), (5.0, 300)])
async def test_a_session_has_a_longest_duration(
    autojump_clock: MockClock, minutes: float | None, seconds: float
) -> None:
    """It ends then whatever is open, planning included."""
    store = FaultyStore()
    agent, manager = ScriptedAgent(max_session_minutes=minutes), ScriptedManager(extraction_seconds=100)
    async with open_scene(agent=agent, manager=manager, store=store) as stage:
        await trio.sleep(seconds - 1)
        stage.model.session.say(interim(), final("hello"))
        answer(stage.model.session, "Hello.")
        await stage.over.wait()
        assert trio.current_time() == seconds
        (error,) = [element for element in stage.client.elements if isinstance(element, OutError)]
        assert error.code is ErrorCode.SESSION_LIMIT
        assert store.saved_sessions[-1].state is SessionState.CLOSED
        assert [turn.input.text for turn in store.turns] == ["hello"]


# --- a user who says nothing (L23) ------------------------------------------------------------------------------------


def answer_instructions(session: ScriptedSession, item: SessionInput | RealtimeInstruction) -> None:
    if isinstance(item, RealtimeInstruction):
        answer(session, "Are you there?", ms=1500)
    else:
        echo(session, item)


async def test_a_silent_user_is_asked_once_and_then_left(autojump_clock: MockClock) -> None:
    """The quiet counts from when the agent has finished speaking."""
    agent = ScriptedAgent(user_idle_seconds=30)
    async with open_scene(agent=agent, model=ScriptedModel(answer_instructions)) as stage:
        await trio.sleep(5)
        await stage.client.send(InputText("hello"))  # answered in half a second of speech
        await stage.over.wait()
        assert [time for time, _ in stage.model.session.instructions] == [35.5]
        assert stage.client.sentences == ["You said hello.", "Are you there?"]
        assert stage.ended_at == 35.5 + 1.5 + 30
        (end,) = stage.client.commands("session-end")
        assert (end["state"], end["reason"]) == ("CLOSED", "the user was silent")


async def test_a_user_who_comes_back_is_asked_anew(autojump_clock: MockClock) -> None:
    agent = ScriptedAgent(user_idle_seconds=30)
    async with open_scene(agent=agent, model=ScriptedModel(answer_instructions)) as stage:
        await trio.sleep(40)
        await stage.client.send(InputText("I am here"))
        await stage.over.wait()
        assert [time for time, _ in stage.model.session.instructions] == [30, 70.5]
        assert stage.ended_at == 70.5 + 1.5 + 30


async def test_a_user_is_not_silent_while_an_answer_is_owed(autojump_clock: MockClock) -> None:
    agent = ScriptedAgent(user_idle_seconds=10)
    async with open_scene(agent=agent) as stage:
        await trio.sleep(1)
        stage.model.session.say(interim(), final("hello", response_id="r1"))
        await trio.sleep(18)
        stage.model.session.say(Token("At last.", "r1"), ResponseEnd("r1"))
        await trio.sleep(9.999)
        assert stage.model.session.instructions == []
        await trio.sleep(1)
        assert [time for time, _ in stage.model.session.instructions] == [29]


# --- beginning and ending ---------------------------------------------------------------------------------------------


async def test_a_provider_has_ten_seconds_to_answer(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with open_scene(model=ScriptedModel(ready_after=10.5), store=store) as stage:
        await stage.client.send(InputText("hello"))
        await stage.over.wait()
        assert stage.ended_at == 10
        (error,) = [element for element in stage.client.elements if isinstance(element, OutError)]
        assert (error.code, error.recoverable) == (ErrorCode.PROVIDER_UNAVAILABLE, False)
        assert store.saved_sessions[-1].state is SessionState.DISCONNECTED
        assert len(store.written_usage) == 1


async def test_input_waits_for_the_provider(autojump_clock: MockClock) -> None:
    async with open_scene(model=ScriptedModel(echo, ready_after=9.5)) as stage:
        await stage.client.send(InputText("hello"), InputAudio(speech(20)))
        await trio.sleep(12)
        assert [time for time, _ in stage.model.session.received] == [9.5, 9.5, 9.5]
        assert stage.client.sentences == ["You said hello."]


@attrs.define(eq=False)
class HangingManager(ScriptedManager):
    """A manager one of whose hooks never returns."""

    hangs: str = ""

    async def on_session_start(self, context: Context) -> None:
        await super().on_session_start(context)
        await self._hang("on_session_start")

    async def turn_end(self, context: Context, steer: Steer) -> None:
        await self._hang("turn_end")
        await super().turn_end(context, steer)

    async def on_session_disconnect(self, context: Context) -> None:
        self.disconnects += 1
        await self._hang("on_session_disconnect")

    async def _hang(self, hook: str) -> None:
        if self.hangs == hook:
            self.note(f"{hook} began")
            try:
                await trio.sleep_forever()
            finally:
                self.note(f"{hook} was stopped")


async def test_an_agent_has_thirty_seconds_to_get_ready(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with open_scene(manager=HangingManager(hangs="on_session_start"), store=store) as stage:
        await stage.over.wait()
        assert stage.ended_at == 30
        (error,) = [element for element in stage.client.elements if isinstance(element, OutError)]
        assert (error.code, error.recoverable) == (ErrorCode.INTERNAL, False)
        assert store.saved_sessions[-1].state is SessionState.DISCONNECTED


async def test_the_clean_up_has_ten_seconds(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with open_scene(manager=HangingManager(hangs="on_session_disconnect"), store=store) as stage:
        await trio.sleep(1)
        stage.vanish()
        await stage.over.wait()
        assert stage.ended_at == 11
        assert stage.manager.ran == [(1, "on_session_disconnect began"), (11, "on_session_disconnect was stopped")]
        assert store.saved_sessions[-1].state is SessionState.DISCONNECTED
        assert len(store.written_usage) == 1


async def test_a_turn_end_hook_has_ten_seconds(autojump_clock: MockClock) -> None:
    """And the next one runs after it; the conversation waits for neither."""
    manager = HangingManager(hangs="turn_end")
    async with open_scene(model=ScriptedModel(echo), manager=manager) as stage:
        await stage.client.send(InputText("one"))
        await trio.sleep(1)
        await stage.client.send(InputText("two"))
        await trio.sleep(25)
        assert [(t, what) for t, what in manager.ran if "turn_end" in what] == [
            (0, "turn_end began"),
            (10, "turn_end was stopped"),
            (10, "turn_end began"),
            (20, "turn_end was stopped"),
        ]
        assert times(stage, "exit") == [0, 1]


async def test_a_hanging_turn_end_hook_delays_the_end_by_ten_seconds_at_most(autojump_clock: MockClock) -> None:
    async with open_scene(model=ScriptedModel(echo), manager=HangingManager(hangs="turn_end")) as stage:
        await stage.client.send(InputText("one"))
        await trio.sleep(3)
        await stage.client.send(ControlToken("exit"))
        await stage.client.wait_for_command("session-end")
        assert trio.current_time() == 10


# --- tools ------------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class NeverAnswers(ToolBox):
    timeout_seconds: float | None

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return [ToolSpecification("wait", "Waits.", {"type": "object"}, timeout_seconds=self.timeout_seconds)]

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        await trio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize(("declared", "seconds"), [(None, 30), (4.5, 4.5)])
async def test_a_tool_has_its_time(autojump_clock: MockClock, declared: float | None, seconds: float) -> None:
    async with open_scene(manager=ScriptedManager(tool_box=NeverAnswers(declared))) as stage:
        session = stage.model.session
        session.say(interim(), final("wait", response_id="r1"))
        await trio.sleep(1)
        session.call_tool("c1", "wait", "{}")
        await trio.sleep(60)
        assert (times(stage, "tool-start"), times(stage, "tool-error")) == ([1], [1 + seconds])
        (settled,) = session.settled
        assert settled.is_error
        assert not settled.interrupted


# --- recognition ------------------------------------------------------------------------------------------------------


async def test_a_gap_of_half_a_second_counts_as_silence(autojump_clock: MockClock) -> None:
    """It is given to the recognizer once per gap, longer than any endpointing waits."""
    recognizer = ScriptedRecognizer(24000)
    async with open_scene(recognizer=recognizer) as stage:
        for pause in (0.02, 0.499, 0.02, 3.0, 0.0):
            await stage.client.send(InputAudio(speech(20)))
            await trio.sleep(pause)
        await trio.sleep(2)
        silences = [
            (round(time, 6), len(item.data) / 48)
            for time, item in recognizer.heard_audio
            if isinstance(item, InputAudio) and not any(item.data)
        ]
        assert silences == [(1.039, 2000), (4.039, 2000)]
        assert len(recognizer.heard_audio) == 5 + 2


async def test_a_text_only_agent_has_finished_when_its_words_have_come(autojump_clock: MockClock) -> None:
    agent = ScriptedAgent(user_idle_seconds=30)
    async with open_scene(agent=agent, model=ScriptedModel(answer_instructions), text_only=True) as stage:
        await trio.sleep(5)
        await stage.client.send(InputText("hello"))
        await stage.over.wait()
        assert [time for time, _ in stage.model.session.instructions] == [35]
        assert stage.ended_at == 65


# --- the goodbye ------------------------------------------------------------------------------------------------------


async def say_goodbye(stage: Stage) -> None:
    """At 1 s, in three seconds of speech; what is planned ends there."""
    await trio.sleep(1)
    session = stage.model.session
    session.say(interim(), final("bye", response_id="r1"), Token("Goodbye then.", "r1"))
    session.say(SpeechItem(speech(3000), 24000, "r1"), RealtimeCommand("sessionShouldEnd"), ResponseEnd("r1"))


async def ended_at(stage: Stage) -> float:
    await stage.client.wait_for_command("session-end", state="CLOSED", reason="the agent ended the session")
    commands = [element.name for element in stage.client.elements if isinstance(element, OutCommand)]
    assert commands[1:] == ["sessionShouldEnd", "response-end", "exit", "session-end"]
    return trio.current_time()


async def test_the_session_ends_when_the_goodbye_has_been_heard(autojump_clock: MockClock) -> None:
    async with open_scene() as stage:
        await say_goodbye(stage)
        assert await ended_at(stage) == 4
        await stage.over.wait()
        assert stage.end is not None
        assert (stage.end.code, stage.end.reason) == (1000, "the agent ended the session")


async def test_a_client_that_plays_later_is_waited_for(autojump_clock: MockClock) -> None:
    async with open_scene() as stage:
        await say_goodbye(stage)
        await trio.sleep(2)
        await stage.client.send(Playback("r1", 1000))
        assert await ended_at(stage) == 5


async def test_a_client_that_never_plays_is_waited_for_five_seconds(autojump_clock: MockClock) -> None:
    async with open_scene() as stage:
        await say_goodbye(stage)
        for _ in range(7):
            await trio.sleep(1)
            await stage.client.send(Playback("r1", 0))
        assert await ended_at(stage) == 1 + 3 + 5


async def test_a_written_goodbye_ends_at_once(autojump_clock: MockClock) -> None:
    async with open_scene(text_only=True) as stage:
        await say_goodbye(stage)
        assert await ended_at(stage) == 1


async def test_a_user_who_speaks_into_the_goodbye_is_not_made_to_hear_its_rest(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with open_scene(store=store) as stage:
        await say_goodbye(stage)
        await trio.sleep(1)
        stage.model.session.say(interim())
        await stage.client.wait_for_command("session-end", state="CLOSED")
        assert trio.current_time() == 2
        assert [output.heard for output in store.turns[0].output] == [""]


async def test_a_client_may_leave_before_the_goodbye_is_over(autojump_clock: MockClock) -> None:
    async with open_scene() as stage:
        await say_goodbye(stage)
        await trio.sleep(1)
        await stage.client.send(ControlToken("exit"))
        assert await ended_at(stage) == 2
