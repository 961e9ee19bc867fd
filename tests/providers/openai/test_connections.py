"""Connections that are lost, replaced and renewed, in the whole engine (cases C30 and C31; SPEC P2)."""

from functools import partial

import pytest
import trio
import trio.testing

from engine.elements import (
    InputAudio,
    InstructionType,
    JsonObject,
    OutSpeech,
    RealtimeInstruction,
)
from engine.errors import ErrorCode
from engine.interfaces import Context, Emit, PlanningManager, TurnInput
from engine.store.documents import SessionState
from engine.testing.chat import Script as ChatScript
from engine.testing.chat import ScriptedChat
from providers.link import CLOSE_SECONDS, PONG_SECONDS, QUIET_SECONDS
from providers.openai.lifeline import FORCE_SECONDS, RECONNECT_SECONDS, RENEW_SECONDS
from providers.openai.model import OpenAIRealtimeModel
from providers.openai.session import RECORD_SECONDS
from providers.openai.simulator import (
    REAL_TIME,
    Call,
    Disconnect,
    Drop,
    Pace,
    Refusal,
    Reply,
    Script,
    Simulator,
    Utterance,
)
from providers.openai.summary import SUMMARY_SECONDS
from providers.openai.texts import APOLOGIZE
from tests.cases.support import Tools
from tests.providers.openai.scene import Scene, open_scene, properties, wall_clock

Clock = trio.testing.MockClock
WAYS = {
    "abruptly": Disconnect(Drop.ABRUPT),
    "cleanly": Disconnect(Drop.CLOSE, code=1000),
    "with an error": Disconnect(Drop.CLOSE, code=1011),
    "half open": Disconnect(Drop.SILENT),
}
FOUND_AFTER = {"half open": QUIET_SECONDS + PONG_SECONDS}
"""Seconds; the others are known at once."""
SORRY = f"Instruction: {APOLOGIZE}"


class OneInstruction(PlanningManager):
    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        if turn.text == "hello":
            await emit(RealtimeInstruction("Mention the price.", InstructionType.INSTRUCTION, id="i1"))


async def look(arguments: JsonObject) -> str:
    await trio.sleep(1)
    return "found"


def told(scene: Scene, connection: int) -> list[str]:
    """The items that a connection was told of, in words."""
    items = [each["item"] for each in scene.simulator.connections[connection].events("conversation.item.create")]
    return [f"{item['role']}: {item['content'][0]['text']}" for item in items if item["type"] == "message"]


# --- lost for good (see also case C30) --------------------------------------------------------------------------------


@pytest.mark.parametrize("at_ms", range(0, 3001, 200))
@pytest.mark.parametrize("way", ["abruptly", "cleanly"])
@pytest.mark.parametrize("mode", ["typed", "voice"])
async def test_at_every_stage_without_another_try(at_ms: int, way: str, mode: str, autojump_clock: Clock) -> None:
    async with open_scene(rich(), openai=properties(reconnect_attempts=0), tool_box=Tools({"look": look})) as scene:
        await begin(scene, mode)
        await trio.sleep(at_ms / 1000)
        scene.service.happen(WAYS[way])
        with trio.fail_after(CLOSE_SECONDS):
            await scene.over.wait()
        assert [error.recoverable for error in scene.errors] == [False]
        assert scene.store.saved_sessions[-1].state is SessionState.DISCONNECTED


# --- lost and found again ---------------------------------------------------------------------------------------------


def rich() -> Script:
    """An answer with words, a tool call and more words."""
    return Script(
        pace=Pace(token_seconds=0.1, audio_after=0.05, audio_speed=1.5, delta_ms=100),
        replies=[
            Reply(["Let me see.", Call("look")], created_after=0.3, starts_after=0.1),
            Reply("It is there.", created_after=0.1),
        ],
    )


async def begin(scene: Scene, mode: str) -> None:
    if mode == "typed":
        await scene.type("find it")
    else:
        scene.service.speak(Utterance("find it", seconds=0.3, transcribed_after=0.2))


@pytest.mark.parametrize("at_ms", range(0, 4001, 200))
@pytest.mark.parametrize("mode", ["typed", "voice"])
@pytest.mark.parametrize("way", ["abruptly", "with an error"])
async def test_at_every_stage(at_ms: int, mode: str, way: str, autojump_clock: Clock) -> None:
    """The client hears of it, what was being said has failed, and the user is answered afterwards."""
    scripts = [
        rich(),
        Script(answer=lambda asked: Reply("Sorry?" if asked.text == SORRY else f"You said: {asked.text}")),
    ]
    async with open_scene(scripts, tool_box=Tools({"look": look})) as scene:
        await begin(scene, mode)
        await trio.sleep(at_ms / 1000)
        was_running = scene.service.core is not None and bool(scene.client.spoken("response-1")) and not scene.ends()
        scene.service.happen(WAYS[way])
        await trio.sleep(RECONNECT_SECONDS)
        assert [(error.code, error.recoverable) for error in scene.errors] == [(ErrorCode.PROVIDER_UNAVAILABLE, True)]
        if was_running:
            assert scene.ends()[0] == "failed"
            assert scene.sentences[-1] == "Sorry?"
        assert len(scene.simulator.connections) == 2
        await scene.type("are you there?")
        await trio.sleep(3)
        assert scene.sentences[-1] == "You said: are you there?"
        assert scene.lines[-2:] == [("user", "are you there?"), ("assistant", "You said: are you there?")]
        assert len(scene.at("session-end")) == 0


@pytest.mark.parametrize("way", ["half open"])
async def test_a_half_open_connection_is_replaced(way: str, autojump_clock: Clock) -> None:
    script = Script(replies=[Reply("One two three four five.", pace=REAL_TIME)])
    async with open_scene([script, Script()], half_open=True) as scene:
        await scene.type("count")
        await trio.sleep(0.5)
        scene.service.happen(WAYS[way])
        await trio.sleep(QUIET_SECONDS + PONG_SECONDS + 1)
        assert scene.ends()[0] == "failed"
        await scene.type("hello?")
        await trio.sleep(3)
        assert scene.sentences[-1] == "You said: hello?"


async def test_an_answer_that_had_not_begun_only_comes_later(autojump_clock: Clock) -> None:
    scripts = [Script(replies=[Reply("Never.", created_after=2)]), Script(replies=[Reply("At nine.")])]
    async with open_scene(scripts) as scene:
        await scene.type("when?")
        await trio.sleep(1)
        scene.service.happen(WAYS["abruptly"])
        await trio.sleep(1)
        assert scene.sentences == ["At nine."]
        assert scene.ends() == ["completed"]
        assert scene.finals == ["when?"]
        assert told(scene, 1) == ["user: when?"]


async def test_the_new_connection_knows_what_was_said(autojump_clock: Clock) -> None:
    async with open_scene(
        Script(replies=[Reply("At nine."), Reply("One. Two. Three. Four.", pace=REAL_TIME)])
    ) as scene:
        await scene.type("when?")
        await trio.sleep(2)
        await scene.type("count")
        await trio.sleep(0.65)
        scene.service.happen(WAYS["abruptly"])
        await trio.sleep(2)
        assert told(scene, 1) == [
            "user: when?",
            "assistant: At nine.",
            "user: count",
            "assistant: One. Two",
            f"system: {SORRY}",
        ]


async def test_a_planned_instruction_is_spoken_after_all(autojump_clock: Clock) -> None:
    """Whoever waits for its response gets it."""
    scripts = [Script(replies=[Reply("Hello."), Reply("Never.", created_after=9)]), Script(replies=[Reply("Eleven.")])]
    async with open_scene(scripts, planner=OneInstruction()) as scene:
        await scene.type("hello")
        await trio.sleep(1)
        scene.service.happen(WAYS["abruptly"])
        await trio.sleep(2)
        assert scene.sentences == ["Hello.", "Eleven."]
        assert [each["instructionId"] for each in scene.client.commands("response-instruction-end")] == ["i1"]
        assert len(scene.at("exit")) == 1


async def test_audio_waits_for_the_new_connection_in_order(autojump_clock: Clock) -> None:
    scripts = [Script(), Script(accepts_after=1.0, acknowledges_after=0.5)]
    async with open_scene(scripts) as scene:
        await trio.sleep(1)
        scene.service.happen(WAYS["abruptly"])
        await trio.sleep(0.1)
        for number in range(100):
            await scene.client.send(InputAudio(bytes([number, 0]) * 480))
            await trio.sleep(0.02)
        await trio.sleep(1)
        import base64

        appended = [base64.b64decode(each["audio"])[0] for each in scene.service.events("input_audio_buffer.append")]
        assert appended == list(range(100))
        assert scene.service.received[1].at >= 2.5


@pytest.mark.parametrize("answer", ["refuses", "is silent", "is away"])
async def test_no_connection_can_be_had_again(answer: str, autojump_clock: Clock) -> None:
    """Within 5 s the client knows."""
    again = {
        "refuses": Script(refusal=Refusal(503)),
        "is silent": Script(acknowledges_after=None),
        "is away": Script(accepts_after=None),
    }[answer]
    script = Script(replies=[Reply("One two three four five.", pace=REAL_TIME)])
    async with open_scene([script, again]) as scene:
        await scene.type("count")
        await trio.sleep(0.5)
        scene.service.happen(WAYS["abruptly"])
        with trio.fail_after(RECONNECT_SECONDS + 0.01):
            await scene.client.wait_for_command("session-end")
        assert [error.recoverable for error in scene.errors] == [True, False]
        assert scene.ends() == ["failed"]
        assert len(scene.simulator.connections) <= 3


async def test_credentials_that_were_withdrawn(autojump_clock: Clock) -> None:
    async with open_scene([Script(), Script(refusal=Refusal(401))]) as scene:
        await trio.sleep(0.5)
        scene.service.happen(WAYS["abruptly"])
        await trio.sleep(1)
        assert [error.code for error in scene.errors] == [ErrorCode.PROVIDER_UNAVAILABLE, ErrorCode.PROVIDER_AUTH]
        assert len(scene.simulator.connections) == 2


async def test_a_service_that_drops_every_connection(autojump_clock: Clock) -> None:
    """Each one is ready and lost at once: that is one trouble, and comes to an end."""
    script = Script(happens=[Disconnect(Drop.ABRUPT, at=0.2)])
    async with open_scene(script) as scene:
        await trio.sleep(60)
        assert [error.recoverable for error in scene.errors] == [True, True, False]
        assert len(scene.simulator.connections) == 3
        assert scene.at("session-end")[0] < 3


async def test_a_service_that_drops_a_connection_now_and_then(autojump_clock: Clock) -> None:
    script = Script(happens=[Disconnect(Drop.ABRUPT, at=60)])
    async with open_scene(script) as scene:
        await trio.sleep(600)
        assert len(scene.simulator.connections) >= 9
        assert all(error.recoverable for error in scene.errors)


async def test_a_policy_that_was_violated_is_no_trouble_that_passes(autojump_clock: Clock) -> None:
    async with open_scene(Script(happens=[Disconnect(Drop.CLOSE, at=1, code=1008)])) as scene:
        await trio.sleep(2)
        assert [error.recoverable for error in scene.errors] == [False]
        assert len(scene.simulator.connections) == 1


# --- the service's own limit ------------------------------------------------------------------------------------------

HOUR = 3600.0


async def test_a_connection_is_renewed_before_its_end(autojump_clock: Clock) -> None:
    """While nobody is speaking, by one that is ready before; with the last 30 messages; and nobody notices."""
    script = Script(session_seconds=HOUR)
    async with open_scene(script) as scene:
        for number in range(20):
            await scene.type(f"line {number}")
            await trio.sleep(100)
        await trio.sleep(HOUR - RENEW_SECONDS - 2000 - 1)
        assert len(scene.simulator.connections) == 1
        await trio.sleep(2)
        assert len(scene.simulator.connections) == 2
        assert scene.simulator.connections[0].ended.is_set()
        said = told(scene, 1)
        assert len(said) == 30
        assert said[-2:] == ["user: line 19", "assistant: You said: line 19"]
        await scene.type("still there?")
        await trio.sleep(2)
        assert scene.sentences[-1] == "You said: still there?"
        assert scene.errors == []
        assert scene.simulator.connections[0].client_close is not None


@pytest.mark.parametrize(
    ("answer", "told_before"),
    [
        (["They asked ", "for a table."], "They asked for a table."),
        ([RuntimeError()], ""),
        ([SUMMARY_SECONDS + 1, "Too late."], ""),
    ],
)
async def test_what_is_too_long_to_be_told_is_summed_up(
    answer: ChatScript, told_before: str, autojump_clock: Clock
) -> None:
    """Where a chat model is configured; and one that fails keeps no connection from being renewed."""
    chat = ScriptedChat(lambda _: answer)
    make_model = partial(OpenAIRealtimeModel, find=lambda group, name: lambda settings: chat)
    openai = properties(chat={"provider": "Scripted"})
    async with open_scene(Script(session_seconds=HOUR), openai=openai, make_model=make_model) as scene:
        for number in range(20):
            await scene.type(f"line {number}")
            await trio.sleep(100)
        await trio.sleep(HOUR - RENEW_SECONDS - 2000 + 20)
        assert len(scene.simulator.connections) == 2
        first = f"system: What was said before: {told_before}" if told_before else "user: line 5"
        assert told(scene, 1)[0] == first
        [request] = chat.requests
        assert request.messages[1].text.startswith("User: line 0\nAgent: You said: line 0\n")
        assert request.messages[1].text.endswith("Agent: You said: line 4")
        assert scene.errors == []


async def test_a_short_conversation_is_told_whole(autojump_clock: Clock) -> None:
    chat = ScriptedChat(lambda _: ["A summary."])
    make_model = partial(OpenAIRealtimeModel, find=lambda group, name: lambda settings: chat)
    openai = properties(chat={"provider": "Scripted"})
    async with open_scene(Script(session_seconds=HOUR), openai=openai, make_model=make_model) as scene:
        await scene.type("hello")
        await trio.sleep(HOUR)
        assert len(scene.simulator.connections) == 2
        assert chat.requests == []


def endless() -> Reply:
    return Reply("and " * 3000, pace=Pace(token_seconds=0.3, audio_speed=1.0, delta_ms=1000))


async def test_an_answer_is_not_cut_by_a_renewal(autojump_clock: Clock) -> None:
    reply = Reply("Of course. " * 200, pace=Pace(token_seconds=0.3, audio_speed=1.0, delta_ms=500))
    async with open_scene(Script(session_seconds=1000, replies=[reply])) as scene:
        await trio.sleep(650)
        await scene.type("tell me")
        await trio.sleep(60)
        assert len(scene.simulator.connections) == 1, "it is due, and somebody speaks"
        await trio.sleep(150)
        assert scene.ends() == ["completed"]
        assert len(scene.simulator.connections) == 2
        assert scene.errors == []
        assert scene.client.speech_ms("response-1") == 120_000


async def test_a_renewal_is_forced_shortly_before_the_end(autojump_clock: Clock) -> None:
    async with open_scene([Script(session_seconds=600, replies=[endless()]), Script()]) as scene:
        await scene.type("tell me")
        await trio.sleep(600 - FORCE_SECONDS - 0.5)
        assert len(scene.simulator.connections) == 1
        assert scene.ends() == []
        await trio.sleep(1)
        assert len(scene.simulator.connections) == 2
        assert scene.ends()[0] == "failed"
        assert [error.recoverable for error in scene.errors] == [True]
        await trio.sleep(5)
        assert any(each.startswith("You said: Instruction:") for each in scene.sentences)
        assert len(scene.at("session-end")) == 0


async def test_a_forced_renewal_tells_of_what_was_being_said(autojump_clock: Clock) -> None:
    """The other connection is ready before the engine has written that down."""
    async with open_scene([Script(session_seconds=600, replies=[endless()]), Script()]) as scene:
        await scene.type("tell me")
        await trio.sleep(600)
        told = [
            (event["item"]["role"], event["item"]["content"][0]["text"])
            for event in scene.service.events("conversation.item.create")
        ]
        assert told[0] == ("user", "tell me")
        assert told[1][0] == "assistant"
        assert told[1][1].startswith(scene.sentences[0])


async def test_a_renewal_right_behind_an_answer_tells_of_it(autojump_clock: Clock) -> None:
    """It is due, and waits until nobody speaks: until this very moment."""
    steady = Reply("One two three four five.", pace=REAL_TIME)
    async with open_scene([Script(session_seconds=1000, replies=[steady]), Script()]) as scene:
        await trio.sleep(1000 - RENEW_SECONDS - 1)
        await scene.type("count")
        await trio.sleep(10)
        assert len(scene.simulator.connections) == 2
        assert scene.ends() == ["completed"]
        assert scene.errors == []
        assert told(scene, 1) == ["user: count", "assistant: One two three four five."]


async def test_the_other_connection_is_lost_as_it_takes_over(autojump_clock: Clock) -> None:
    scripts = [
        Script(session_seconds=600, replies=[endless()]),
        Script(happens=[Disconnect(at=RECORD_SECONDS / 2)]),
        Script(),
    ]
    async with open_scene(scripts) as scene:
        await scene.type("tell me")
        await trio.sleep(600)
        assert len(scene.simulator.connections) == 3
        await scene.type("hello")
        await trio.sleep(1)
        assert scene.sentences[-1] == "You said: hello"


async def test_a_user_who_begins_to_speak_while_it_is_renewed(autojump_clock: Clock) -> None:
    """The new connection waits until the user was answered."""
    scripts = [Script(session_seconds=1000), Script(acknowledges_after=0.5)]
    async with open_scene(scripts) as scene:
        await trio.sleep(1000 - RENEW_SECONDS + 0.2)
        assert len(scene.simulator.connections) == 2
        scene.simulator.connections[0].speak(Utterance("hello", seconds=2.0))
        await trio.sleep(1.5)
        assert not scene.simulator.connections[0].ended.is_set()
        await trio.sleep(2)
        assert scene.sentences == ["You said: hello"]
        await trio.sleep(1)
        assert scene.simulator.connections[0].ended.is_set()
        assert scene.errors == []


async def test_a_renewal_that_cannot_be_had(autojump_clock: Clock) -> None:
    """The old connection goes on as long as it may; then there is nothing left."""
    scripts = [Script(session_seconds=1001), Script(refusal=Refusal(503))]
    async with open_scene(scripts, locales=("cs",)) as scene:
        await trio.sleep(990)
        assert 5 < len(scene.simulator.connections) < 30
        await scene.type("still there?")
        await trio.sleep(2)
        assert scene.sentences == ["You said: still there?"]
        await trio.sleep(10)
        assert [(error.code, error.recoverable) for error in scene.errors] == [(ErrorCode.SESSION_LIMIT, False)]
        assert scene.errors[0].message == "Rozhovor dosáhl nejdelší doby, kterou hlasová služba dovoluje."
        assert scene.store.saved_sessions[-1].state is SessionState.DISCONNECTED


async def test_a_renewal_that_is_refused_once(autojump_clock: Clock) -> None:
    scripts = [Script(session_seconds=1000), Script(refusal=Refusal(503)), Script()]
    async with open_scene(scripts) as scene:
        await trio.sleep(1000 - RENEW_SECONDS + 60)
        assert len(scene.simulator.connections) == 3
        assert scene.simulator.connections[0].ended.is_set()
        assert scene.errors == []


async def test_the_old_connection_is_lost_while_it_is_renewed(autojump_clock: Clock) -> None:
    scripts = [Script(session_seconds=1000), Script(acknowledges_after=1.0)]
    async with open_scene(scripts) as scene:
        await trio.sleep(1000 - RENEW_SECONDS + 0.5)
        scene.simulator.connections[0].happen(WAYS["abruptly"])
        await trio.sleep(1)
        await scene.type("hello")
        await trio.sleep(1)
        assert scene.sentences == ["You said: hello"]
        assert [error.recoverable for error in scene.errors] == [True]
        assert len(scene.simulator.connections) == 2


@pytest.mark.parametrize("says_expired", [True, False])
async def test_the_limit_strikes(says_expired: bool, autojump_clock: Clock) -> None:
    """Where it could not be foreseen, by another clock, say."""
    simulator = Simulator(
        Script(session_seconds=100, says_expired=says_expired, replies=[endless()]), wall_clock=lambda: 0.0
    )
    async with open_scene(simulator=simulator, locales=("de",)) as scene:
        await scene.type("tell me")
        await trio.sleep(101)
        assert [(error.code, error.recoverable) for error in scene.errors] == [(ErrorCode.SESSION_LIMIT, False)]
        assert scene.errors[0].message == "Das Gespräch hat die längste Dauer erreicht, die der Sprachdienst erlaubt."
        assert scene.ends() == ["failed"]
        assert len(scene.simulator.connections) == 1
    assert wall_clock() > 0


# --- apologies (case C31) and other faults ----------------------------------------------------------------------------


async def test_speech_that_was_heard_before_it_was_cut_is_not_told_twice(autojump_clock: Clock) -> None:
    """After a renewal the model knows by the retold words what was said, and what is cut of them afterwards stays said."""
    script = Script(session_seconds=1000)
    async with open_scene(script) as scene:
        await trio.sleep(1000 - RENEW_SECONDS - 1)
        await scene.type("one two three four five six seven eight nine ten")
        await trio.sleep(2)
        assert len(scene.simulator.connections) == 2
        await scene.type("stop")
        await trio.sleep(5)
        assert scene.errors == []
        assert [e for e in scene.client.elements if isinstance(e, OutSpeech)]
