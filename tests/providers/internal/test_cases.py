"""The acceptance cases that a turn-based provider has to pass, on the Internal one in the whole engine."""

import pytest
import trio
import trio.testing

from engine.config import Settings
from engine.elements import (
    Action,
    ControlToken,
    OnInterruption,
    OutCommand,
    OutError,
)
from engine.errors import ErrorCode, RealtimeException
from engine.store.documents import SessionState
from engine.testing.chat import Script, Step, call, tokens
from tests.providers.internal.fakes import FakeSynthesizer, FakeTool, instruction, said, strict_json
from tests.providers.internal.scene import Planner, joined, open_scene

# --- C01 --------------------------------------------------------------------------------------------------------------


async def test_c01_nothing_of_a_cut_answer_is_in_the_next(autojump_clock: trio.testing.MockClock) -> None:
    first: list[Step] = ["One moment. The first option", 0.1, " is the blue room", 0.5, " and it has two beds. It is"]
    async with open_scene([*first, 10.0], ["Friday is free."]) as scene:
        await scene.say("What rooms do you have?")
        await trio.sleep(1.0)
        scene.begin_to_speak()
        await trio.sleep(1.0)
        scene.finish("stop, what about Friday")
        await trio.sleep(3)
        assert scene.speech_after(1.0, "response-1") == []
        assert scene.texts_of("response-2") == ["Friday is free."]
        assert scene.ends() == [("response-1", "cancelled"), ("response-2", "completed")]
        assert not any(isinstance(e, OutError) for e in scene.client.elements)
        assert (
            scene.remembered
            == scene.told
            == [
                ("user", "What rooms do you have?"),
                ("assistant", "One moment. The"),  # how long a sentence is that is still being made is estimated
                ("user", "stop, what about Friday"),
                ("assistant", "Friday is free."),
            ]
        )


@pytest.mark.parametrize("step", range(50))
async def test_c01_a_barge_in_at_any_time(autojump_clock: trio.testing.MockClock, step: int) -> None:
    """Two rounds with two calls, speech under way: the client, the store, the memory and the model agree on what was heard."""
    tools = [FakeTool("stock", 0.4, "3 left"), FakeTool("price", 0.7, "9 crowns")]
    scripts: list[Script] = [
        [*tokens("Let me look. It will take a moment.", 0.04), call("stock"), call("price")],
        tokens("There are three left. Each costs nine crowns.", 0.04),
    ]
    async with open_scene(*scripts, tools=tools, seed=step) as scene:
        await scene.say("Is it in stock?")
        await trio.sleep(step * 0.06)
        at = trio.current_time()
        scene.begin_to_speak()
        await trio.sleep(0.5)
        assert scene.speech_after(at, "response-1") == []
        assert (scene.chat.open_streams, scene.synthesizer.speaking) == (0, 0)
        scene.chat.scripts = [["All right."]]
        scene.finish("Never mind")
        await trio.sleep(3)
        assert scene.texts_of("response-2") == ["All right."]
        assert len(scene.at("exit")) == 2
        assert joined(scene.remembered) == joined(scene.told)


# --- C02 --------------------------------------------------------------------------------------------------------------


async def test_c02_a_cough_before_the_first_word(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene([5.0, "Late."], ["It is booked."], ["Yes, I am here."]) as scene:
        await scene.say("book it for nine")
        await trio.sleep(0.3)
        await scene.noise()
        await trio.sleep(24.7)
        assert scene.chat.times == [0, 2.3]
        assert scene.ends() == [("response-1", "cancelled"), ("response-2", "completed")]
        assert scene.at("response-end")[0] == 0.3
        assert [t.text for t in scene.client.transcripts if t.is_synthetic and not t.is_interim] == ["book it for nine"]
        await scene.say("hello?")
        await trio.sleep(1)
        assert scene.texts_of("response-3") == ["Yes, I am here."]
        assert (
            scene.remembered
            == scene.told
            == [
                ("user", "book it for nine"),
                ("assistant", "It is booked."),
                ("user", "hello?"),
                ("assistant", "Yes, I am here."),
            ]
        )
        assert [turn.input.text for turn in scene.store.turns] == ["book it for nine", "", "hello?"]


async def test_c02_a_cough_into_the_answer_is_followed_by_its_rest(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(
        ["The first room is blue and has two beds. The second is green."], ["It has two beds. The second is green."]
    ) as scene:
        await scene.say("Which rooms?")
        await trio.sleep(1.3)
        await scene.noise()
        await trio.sleep(10)
        assert scene.chat.times == [0, 3.3]
        assert said(scene.chat.requests[1])[:2] == [("user", "Which rooms?"), ("assistant", "The first room is blue")]
        assert (
            scene.remembered
            == scene.told
            == [
                ("user", "Which rooms?"),
                ("assistant", "The first room is blue"),
                ("assistant", "It has two beds. The second is green."),
            ]
        )


async def test_c02_a_cough_into_the_opening(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(["Hello and welcome to the café."], ["Hello, welcome."]) as scene:
        await scene.client.send(Action("intro"))
        await trio.sleep(0.1)
        await scene.noise()
        await trio.sleep(5)
        assert scene.chat.times == [0, 2.1]
        assert [(t.text, t.is_synthetic) for t in scene.client.transcripts if not t.is_interim] == [
            ("#intro", True)
        ] * 2
        assert scene.remembered == [("assistant", "Hello, welcome.")]


# --- C05, C06 ---------------------------------------------------------------------------------------------------------


async def test_c05_a_model_that_stalls(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene([0.3, "We open at nine. On Sund", 60.0], ["Also nine."]) as scene:
        await scene.say("what are the opening hours")
        await trio.sleep(25)
        assert scene.ends() == [("response-1", "idle")]
        assert scene.at("response-end") == [20.3]
        assert scene.at("exit") == [20.3]
        await scene.say("and Monday?")
        await trio.sleep(5)
        assert scene.texts_of("response-2") == ["Also nine."]
        assert scene.ends()[1:] == [("response-2", "completed")]


async def test_c05_a_model_that_is_slow_and_not_dead(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(
        [25.0, "At last, here is the answer. I am sorry.", call("note")], ["Noted."], tools=[FakeTool("note")]
    ) as scene:
        await scene.say("well?")
        await trio.sleep(40)
        assert scene.at("response-end")[0] == 20
        assert " ".join(scene.client.sentences) == "At last, here is the answer. I am sorry. Noted."
        await scene.say("thanks")
        await trio.sleep(40)
        assert joined(scene.remembered)[:2] == joined(scene.told)[:2]


async def test_c05_a_cut_of_what_a_slow_model_says(autojump_clock: trio.testing.MockClock) -> None:
    """The engine has given the late words another response id; what was heard of them reaches the model all the same."""
    async with open_scene([25.0, "One two three four five six."], ["Yes."]) as scene:
        await scene.say("well?")
        await trio.sleep(25.75)
        await scene.say("stop")
        await trio.sleep(5)
        assert scene.remembered[1] == ("assistant", "One two three")
        assert scene.remembered == scene.told


@pytest.mark.parametrize("seconds", [18.0, 21.0])
async def test_c06_a_long_tool_is_no_silence(autojump_clock: trio.testing.MockClock, seconds: float) -> None:
    async with open_scene(
        [0.2, "Let me check.", call("lookup", "c1")], ["It arrives today."], tools=[FakeTool("lookup", seconds)]
    ) as scene:
        await scene.say("find my order")
        await trio.sleep(40)
        assert scene.ends() == [("response-1", "completed")]
        assert scene.at("response-end") == scene.at("exit") == [0.2 + seconds]
        assert scene.client.sentences == ["Let me check.", "It arrives today."]
        assert [p["callId"] for name in ("tool-start", "tool-success") for p in scene.client.commands(name)] == [
            "c1"
        ] * 2
        assert joined(scene.told) == [("user", "findmyorder"), ("assistant", "Letmecheck.Itarrivestoday.")]


# --- C12, C13, C14 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "error", "seconds"),
    [
        (FakeTool("broken", 0.5, failure=RuntimeError("secret")), "Tool broken failed.", 0.5),
        (FakeTool("slow", 99.0, timeout_seconds=3.0), "Tool slow did not answer in 3 seconds.", 3.0),
        (None, "Tool no_such_tool does not exist.", 0.0),
    ],
)
async def test_c12_a_tool_that_fails(
    autojump_clock: trio.testing.MockClock, tool: FakeTool | None, error: str, seconds: float
) -> None:
    name = tool.name if tool else "no_such_tool"
    async with open_scene([call(name, "c1")], ["I am sorry."], ["Yes."], tools=[tool] if tool else []) as scene:
        await scene.say("do it")
        await trio.sleep(5)
        assert scene.chat.times == [0, seconds]
        assert strict_json(said(scene.chat.requests[1])[-1][1]) == {"error": error}
        assert [p["callId"] for p in scene.client.commands("tool-start")] == ["c1"]
        assert [p["error"] for p in scene.client.commands("tool-error")] == [error]
        assert scene.client.sentences == ["I am sorry."]
        await scene.say("and now?")
        await trio.sleep(1)
        assert scene.client.sentences[1:] == ["Yes."]
        assert scene.ends() == [("response-1", "completed"), ("response-2", "completed")]


@pytest.mark.parametrize(
    ("name", "arguments", "runs"),
    [
        ("ping", "", True),
        ("ping", "null", True),
        ("book", '{"city": "Brno', False),
        ("book", '["Brno", 2]', False),
        ("book", '{"city": "Brno", "nights": NaN}', False),
        ("book", '{"city": "Brno", "nights": 2}', True),
    ],
)
async def test_c13_odd_arguments(autojump_clock: trio.testing.MockClock, name: str, arguments: str, runs: bool) -> None:
    tools = [FakeTool("ping", output={"ok": True}), FakeTool("book", output={"booked": True})]
    async with open_scene(
        [call(name, "c1", arguments)],
        ["Well."],
        [call("book", "c2", '{"city": "Brno", "nights": 1}')],
        ["Done."],
        tools=tools,
    ) as scene:
        await scene.say("go")
        await trio.sleep(2)
        assert len(scene.box.ran) == int(runs)
        result = strict_json(said(scene.chat.requests[1])[-1][1])
        assert ("error" in result) is not runs
        assert len(scene.client.commands("tool-success" if runs else "tool-error")) == 1
        await scene.say("once more")
        await trio.sleep(2)
        assert scene.box.ran[-1][1:] == ("book", {"city": "Brno", "nights": 1})
        assert scene.client.sentences == ["Well.", "Done."]
        for message in scene.chat.requests[-1].messages:
            if message.role == "tool":
                strict_json(message.text)


async def test_c14_several_calls(autojump_clock: trio.testing.MockClock) -> None:
    tools = [
        FakeTool("brno", 0.5, {"sky": "rain"}),
        FakeTool("praha", 0.9, failure=RuntimeError()),
        FakeTool("plzen", 0.2, {"sky": "sun"}),
    ]
    async with open_scene(
        [call("brno", "c1"), call("praha", "c2"), call("plzen", "c3")], ["Take a coat."], tools=tools
    ) as scene:
        await scene.say("the weather?")
        await trio.sleep(5)
        assert scene.chat.times == [0, 0.9]
        results = [(m.tool_call_id, m.text) for m in scene.chat.requests[1].messages if m.role == "tool"]
        assert results == [
            ("c1", '{"sky": "rain"}'),
            ("c2", '{"error": "Tool praha failed."}'),
            ("c3", '{"sky": "sun"}'),
        ]
        assert {(p["callId"], p["name"]) for p in scene.client.commands("tool-start")} == {
            ("c1", "brno"),
            ("c2", "praha"),
            ("c3", "plzen"),
        }
        assert [p["callId"] for p in scene.client.commands("tool-success")] == ["c3", "c1"]
        assert [p["callId"] for p in scene.client.commands("tool-error")] == ["c2"]
        assert scene.ends() == [("response-1", "completed")]


@pytest.mark.parametrize("policy", list(OnInterruption))
async def test_a_barge_in_while_a_tool_runs(autojump_clock: trio.testing.MockClock, policy: OnInterruption) -> None:
    tool = FakeTool("order", 3.0, {"ordered": True}, on_interruption=policy)
    async with open_scene([call("order", "c1")], tools=[tool]) as scene:
        await scene.say("order it")
        await trio.sleep(1)
        scene.chat.scripts = [["Yes?"]]
        await scene.say("wait")
        await trio.sleep(5)
        assert scene.texts_of("response-2") == ["Yes?"]
        assert len(scene.chat.requests) == 2
        assert len(scene.at("exit")) == 2
        assert scene.at("exit")[0] == {"cancel": 1, "continue": 1, "shield": 3}[policy.value]
        await scene.say("and?")
        await trio.sleep(1)
        last = scene.chat.requests[-1].messages
        [result] = [m.text for m in last if m.role == "tool"]
        if policy is OnInterruption.CANCEL:
            assert "error" in strict_json(result)
        else:
            assert strict_json(result) == {"ordered": True}
        assert any("has finished" in m.text for m in last) is (policy is OnInterruption.CONTINUE)


# --- C16 --------------------------------------------------------------------------------------------------------------


async def test_c16_two_instructions_are_both_spoken(autojump_clock: trio.testing.MockClock) -> None:
    planner = Planner([[(2.0, instruction("Mention the discount.")), (2.1, instruction("Ask for the date."))]])
    async with open_scene(
        ["Hello."], tokens("Ten percent off.", 0.6), tokens("Which day?", 0.3), ["Fine."], planner=planner
    ) as scene:
        await scene.say("hi")
        await trio.sleep(10)
        assert scene.client.sentences == ["Hello.", "Ten percent off.", "Which day?"]
        assert [p["instructionId"] for p in scene.client.commands("response-instruction-end")] == [
            "Mention the discount.",
            "Ask for the date.",
        ]
        assert scene.at("response-instruction-end") == scene.at("response-end")[1:] == [3.8, 4.4]
        assert scene.at("exit") == [4.4]
        await scene.say("bye")
        await trio.sleep(1)
        assert scene.client.sentences[3:] == ["Fine."]


async def test_a_barge_in_supersedes_what_the_planner_wanted(autojump_clock: trio.testing.MockClock) -> None:
    planner = Planner([[(0.5, instruction("Mention the discount.")), (0.6, instruction("Ask for the date."))]])
    async with open_scene(["Hello."], tokens("Ten percent off.", 0.6), ["Fine."], planner=planner) as scene:
        await scene.say("hi")
        await trio.sleep(1)
        await scene.say("one more thing")
        await trio.sleep(10)
        assert planner.cancelled == 1
        assert scene.client.sentences == ["Hello.", "Fine."]
        assert scene.client.commands("response-instruction-end") == []
        assert scene.remembered == scene.told


# --- C30 --------------------------------------------------------------------------------------------------------------


async def test_c30_the_chat_model_fails_in_the_middle_of_an_answer(autojump_clock: trio.testing.MockClock) -> None:
    broken = RealtimeException(ErrorCode.CHAT_FAILED, "The chat endpoint cannot be reached.")
    planner = Planner([[(0.5, instruction("Mention the discount."))]])
    async with open_scene(["Hello."], ["The price is. And", 0.4, broken], planner=planner) as scene:
        await scene.say("hi")
        await trio.sleep(5)
        assert scene.ended_at == 0.9
        [error] = [e for e in scene.client.elements if isinstance(e, OutError)]
        assert (error.code, error.message, error.recoverable) == (ErrorCode.CHAT_FAILED, broken.message, False)
        assert scene.ends()[1:] == [("response-2", "failed")]
        assert planner.cancelled == 1
        assert [document.state for document in scene.store.saved_sessions][-1] is SessionState.DISCONNECTED
        assert len(scene.store.written_usage) == 1
        assert [what for _, what in scene.manager.ran].count("disconnected") == 1


async def test_c30_a_part_that_raises_what_no_part_should(autojump_clock: trio.testing.MockClock) -> None:
    synthesizer = FakeSynthesizer(fails=lambda text: ZeroDivisionError())
    async with open_scene(["Hello."], synthesizer=synthesizer) as scene:
        await scene.say("hi")
        await trio.sleep(5)
        assert scene.ended_at == 0
        [error] = [e for e in scene.client.elements if isinstance(e, OutError)]
        assert (error.code, error.recoverable) == (ErrorCode.SYNTHESIS_FAILED, False)


# --- C34 --------------------------------------------------------------------------------------------------------------

FINISH = FakeTool("finish_session", output="The conversation ends now.", ends_session=True)


async def test_c34_the_goodbye_is_heard_and_the_session_ends(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(["Thank you, goodbye.", call("finish_session")], tools=[FINISH]) as scene:
        await scene.say("bye")
        await trio.sleep(10)
        assert scene.ended_at == 0.75
        commands = [e.name for e in scene.client.elements if isinstance(e, OutCommand)]
        assert commands[-4:] == ["sessionShouldEnd", "response-end", "exit", "session-end"]
        assert scene.store.saved_sessions[-1].state is SessionState.CLOSED


async def test_c34_the_user_speaks_into_the_goodbye(autojump_clock: trio.testing.MockClock) -> None:
    synthesizer = FakeSynthesizer(first_seconds=0.2, chunk_seconds=0.2)
    async with open_scene(
        ["Thank you and goodbye.", call("finish_session")], tools=[FINISH], synthesizer=synthesizer
    ) as scene:
        await scene.say("bye")
        await trio.sleep(0.7)
        scene.begin_to_speak()
        await trio.sleep(0.5)
        scene.chat.scripts = [["Of course."], ["Bye.", call("finish_session")]]
        scene.finish("wait, one more thing")
        scene.chat.asked.clear()
        await trio.sleep(5)
        assert scene.client.commands("session-end") == []
        assert scene.at("sessionShouldEnd") == []
        assert scene.texts_of("response-2") == ["Of course."]
        [result] = [m.text for m in scene.chat.requests[0].messages if m.role == "tool"]
        assert "has not ended" in result
        await scene.say("bye now")
        await trio.sleep(5)
        assert scene.is_over
        assert len(scene.at("sessionShouldEnd")) == 1


async def test_c34_the_user_speaks_after_the_goodbye(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(["Thank you and goodbye.", call("finish_session")], tools=[FINISH]) as scene:
        await scene.say("bye")
        await trio.sleep(0.5)
        scene.begin_to_speak()
        await trio.sleep(5)
        assert scene.ended_at == 0.5
        assert scene.store.saved_sessions[-1].state is SessionState.CLOSED


# --- C35 --------------------------------------------------------------------------------------------------------------


async def test_c35_the_client_vanishes_in_the_middle_of_everything(autojump_clock: trio.testing.MockClock) -> None:
    tools = [FakeTool("lookup", 5.0)]
    async with open_scene(
        ["Let me have a look. ", call("lookup")], tools=tools, synthesizer=FakeSynthesizer(chunk_seconds=0.2)
    ) as scene:
        scene.manager.disconnect_seconds = 0.5
        await scene.say("where is it?")
        await trio.sleep(0.5)
        scene.vanish()
        await trio.sleep(5)
        assert scene.ended_at == 1.0
        assert scene.store.saved_sessions[-1].state is SessionState.DISCONNECTED
        assert len(scene.store.written_usage) == 1
        assert "disconnected" in [what for _, what in scene.manager.ran]
        assert len(scene.store.turns) == 1


async def test_c35_the_input_ends_while_the_model_is_silent(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene([60.0, "Late."], settings=Settings(idle_response_end_seconds=30)) as scene:
        await scene.say("hello?")
        await trio.sleep(1)
        await scene.client.send(ControlToken("end"))
        await trio.sleep(60)
        assert scene.ended_at == 21


async def test_c35_the_input_ends_while_an_answer_is_under_way(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(
        [1.0, "Let me look.", call("lookup")], tokens("It is here.", 0.5), tools=[FakeTool("lookup", 2.0)]
    ) as scene:
        await scene.say("where is it?")
        await scene.client.send(ControlToken("end"))
        await trio.sleep(60)
        assert scene.client.sentences == ["Let me look.", "It is here."]
        assert scene.ended_at == 4.5
        assert scene.ends() == [("response-1", "completed")]
