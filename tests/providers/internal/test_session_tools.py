"""An Internal session and its tools, up to the one that ends it."""

import pytest
import trio
import trio.testing

from engine.elements import (
    InstructionType,
    OnInterruption,
    RealtimeCommand,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    Text,
)
from engine.errors import ErrorCode
from engine.interfaces import (
    ChatFinished,
)
from engine.testing.chat import call, tokens
from engine.texts import Sentence, say
from providers.internal.generation import MAX_ROUNDS
from tests.providers.internal.fakes import FakeSynthesizer, FakeTool, goodbye, open_rig, said, user

# --- tools ------------------------------------------------------------------------------------------------------------


async def test_several_calls_are_answered_together_and_then_asked_once(autojump_clock: trio.testing.MockClock) -> None:
    """Case C14."""
    tools = [
        FakeTool("brno", 0.5, "rain"),
        FakeTool("praha", 0.9, failure=RuntimeError()),
        FakeTool("plzen", 0.2, {"t": 3}),
    ]
    async with open_rig(
        [call("brno", "c1"), call("praha", "c2"), call("plzen", "c3")], ["It rains."], tools=tools
    ) as rig:
        await rig.send(user("The weather?"))
        await trio.sleep(5)
        assert rig.chat.times == [0, 0.9]
        assert said(rig.chat.requests[1]) == [
            ("user", "The weather?"),
            ("assistant", "[brno][praha][plzen]"),
            ("tool", "rain"),
            ("tool", '{"error": "Tool praha failed."}'),
            ("tool", '{"t": 3}'),
        ]
        assert [m.tool_call_id for m in rig.chat.requests[1].messages if m.role == "tool"] == ["c1", "c2", "c3"]
        assert len(rig.ends) == 1
        assert {e.response_id for e in rig.ends} == {made.response_id for made in rig.started}


async def test_words_go_on_being_spoken_while_a_tool_runs(autojump_clock: trio.testing.MockClock) -> None:
    synthesizer = FakeSynthesizer(first_seconds=1.0)
    async with open_rig(
        ["Let me check.", call("lookup")], ["It is here."], tools=[FakeTool("lookup", 0.5)], synthesizer=synthesizer
    ) as rig:
        await rig.send(user("Where is it?"))
        await trio.sleep(5)
        assert rig.chat.times == [0, 0.5]
        assert rig.synthesizer.spoken == [(0, "Let me check."), (1.0, "It is here.")]
        assert rig.at(ResponseEnd) == [2.0]
        assert [e for e in rig.elements if isinstance(e, Text)] == [
            Text("Let me check.", "response-1", 0),
            Text("It is here.", "response-1", 750),
        ]


async def test_a_model_that_repeats_its_call_ids_is_answered_each_time(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(
        [call("lookup", "call_0"), call("lookup", "call_0")],
        [call("lookup", "call_0")],
        ["Found."],
        tools=[FakeTool("lookup", 0.1)],
    ) as rig:
        await rig.send(user("Look"))
        await trio.sleep(5)
        assert rig.texts == ["Found."]
        assert len({made.call_id for made in rig.started}) == len(rig.started) == 3
        assert rig.at(ResponseEnd) == [0.2]


async def test_a_result_of_an_earlier_answer_is_not_taken_for_one_of_this(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A shielded call outlives its answer; what it gives must not end the wait of the next one, nor the session."""
    shielded = FakeTool("save", 3.0, "saved", ends_session=True, on_interruption=OnInterruption.SHIELD)
    async with open_rig(
        [call("save", "c1")], [call("lookup", "c2")], ["Found."], tools=[shielded, FakeTool("lookup", 4.0, "here")]
    ) as rig:
        await rig.send(user("Save it"))
        await trio.sleep(1)
        await rig.interrupt()
        await rig.send(user("Where is it?"))
        await trio.sleep(10)
        assert rig.chat.times == [0, 1, 5]
        assert said(rig.chat.requests[2]) == [
            ("user", "Save it"),
            ("assistant", "[save]"),
            ("tool", "saved"),
            ("user", "Where is it?"),
            ("assistant", "[lookup]"),
            ("tool", "here"),
        ]
        assert not any(isinstance(e, RealtimeCommand) for e in rig.elements)


async def test_a_result_that_comes_late_is_context_for_what_comes_next(autojump_clock: trio.testing.MockClock) -> None:
    slow = FakeTool("order", 3.0, "ordered", on_interruption=OnInterruption.CONTINUE)
    async with open_rig(["Wait.", call("order", "c1")], ["Yes?"], ["It is ordered."], tools=[slow]) as rig:
        await rig.send(user("Order it"))
        await trio.sleep(1)
        await rig.interrupt()
        await rig.send(user("And?"))
        await trio.sleep(1)
        [_, second] = rig.chat.requests
        assert "still running" in next(message.text for message in second.messages if message.role == "tool")
        await trio.sleep(3)
        assert len(rig.chat.requests) == 2
        await rig.send(user("Now?"))
        await trio.sleep(1)
        assert said(rig.chat.requests[2])[0] == ("system", "The tool order has finished. Its result: ordered")
        assert ("tool", "ordered") in said(rig.chat.requests[2])


async def test_a_call_of_a_response_that_is_over_for_the_engine_ends_the_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The engine gave the response up as idle: it refuses the call as interrupted, and no interruption follows."""
    async with open_rig([25.0, call("lookup", "c1")], ["Yes."], tools=[FakeTool("lookup")]) as rig:
        await rig.send(user("Look"))
        await trio.sleep(20)
        rig.ended.add("response-1")
        await trio.sleep(10)
        assert len(rig.chat.requests) == 1
        assert rig.ends == [ResponseEnd("response-1", ResponseStatus.INCOMPLETE)]
        await rig.send(user("Still there?"))
        await trio.sleep(1)
        assert rig.texts == ["Yes."]


async def test_a_model_that_calls_tools_without_end_is_stopped(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig([call("lookup")], tools=[FakeTool("lookup", 0.1)]) as rig:
        await rig.send(user("Look"))
        await trio.sleep(10)
        assert len(rig.chat.requests) == MAX_ROUNDS
        assert rig.at(ResponseEnd) == [0.8]
        assert rig.ends == [ResponseEnd("response-1", ResponseStatus.INCOMPLETE)]
        [error] = [e for e in rig.elements if isinstance(e, RealtimeError)]
        assert (error.code, error.recoverable) == (ErrorCode.CHAT_FAILED, True)
        rig.chat.scripts = [["Sorry."]]
        await rig.send(user("Well?"))
        await trio.sleep(1)
        assert rig.texts == ["Sorry."]


async def test_calls_of_an_answer_that_was_cut_by_its_length_are_run_all_the_same(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig([call("lookup"), ChatFinished(complete=False)], ["Done."], tools=[FakeTool("lookup")]) as rig:
        await rig.send(user("Look"))
        await trio.sleep(1)
        assert rig.ends == [ResponseEnd("response-1", ResponseStatus.COMPLETED)]


# --- the end of the session -------------------------------------------------------------------------------------------

FINISH = FakeTool("finish_session", 0.5, "The conversation ends now.", ends_session=True)


async def test_a_goodbye_before_the_call_is_the_only_one(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["Goodbye, then."], ["Bye.", call("finish_session")], tools=[FINISH]) as rig:
        await rig.send(user("Bye"))
        await trio.sleep(1)
        await rig.send(user("Bye, really"))
        await trio.sleep(3)
        assert len(rig.chat.requests) == 2
        assert rig.texts == ["Goodbye, then.", "Bye."]
        assert rig.elements[-2:] == goodbye("response-2")
        assert rig.at(RealtimeCommand) == [1.5]


async def test_a_goodbye_may_come_after_the_call(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig([call("finish_session")], ["Bye."], tools=[FINISH]) as rig:
        await rig.send(user("Bye"))
        await trio.sleep(3)
        assert rig.texts == ["Bye."]
        assert rig.elements[-2:] == goodbye("response-1")
        assert len([e for e in rig.elements if isinstance(e, RealtimeCommand)]) == 1


async def test_words_before_another_call_are_no_goodbye(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(
        ["Let me save that.", call("save")],
        [call("finish_session")],
        ["Saved. Bye."],
        tools=[FINISH, FakeTool("save")],
    ) as rig:
        await rig.send(user("Save it, and bye"))
        await trio.sleep(3)
        assert rig.texts == ["Let me save that.", "Saved.", "Bye."]
        assert rig.elements[-2:] == goodbye("response-1")


async def test_a_model_that_only_calls_finish_session_is_asked_for_a_goodbye_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig([call("finish_session")], tools=[FINISH]) as rig:
        await rig.send(user("Bye"))
        await trio.sleep(10)
        assert len(rig.chat.requests) == 2
        assert rig.elements[-2:] == goodbye("response-1")


@pytest.mark.parametrize("at", [0.2, 0.6, 1.0])
async def test_an_interruption_of_the_goodbye_keeps_the_session(
    autojump_clock: trio.testing.MockClock, at: float
) -> None:
    """Before the tool has run, while the goodbye is made, before its speech is."""
    synthesizer = FakeSynthesizer(first_seconds=2.0)
    async with open_rig(
        [call("finish_session", "c1")], tokens("Bye now.", 0.2), tools=[FINISH], synthesizer=synthesizer
    ) as rig:
        await rig.send(user("Bye"))
        await trio.sleep(at)
        await rig.interrupt()
        rig.chat.scripts = [["Of course."]]
        await rig.send(user("Wait, one more thing"))
        await trio.sleep(10)
        assert not any(isinstance(e, RealtimeCommand) for e in rig.elements)
        assert rig.texts[-1] == "Of course."
        [result] = [m.text for m in rig.chat.requests[-1].messages if m.role == "tool"]
        assert ("interrupted" if at == 0.2 else "has not ended") in result


async def test_a_call_that_was_interrupted_beside_finish_session_keeps_the_session(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The engine settles the slow call as interrupted before it tells of the interruption."""
    async with open_rig(
        ["Bye.", call("finish_session"), call("slow")], ["Yes?"], tools=[FINISH, FakeTool("slow", 5.0)]
    ) as rig:
        await rig.send(user("Bye"))
        await trio.sleep(2)
        rig.tools.interrupt()
        await trio.testing.wait_all_tasks_blocked()
        await rig.interrupt()
        await rig.send(user("Wait"))
        await trio.sleep(3)
        assert not any(isinstance(e, RealtimeCommand) for e in rig.elements)
        assert len(rig.chat.requests) == 2


# --- planning approves the end (S0) -----------------------------------------------------------------------------------

ASK = FakeTool("finish_session", 0.1, "Wait.", requests_end=True)
SUPERSEDED = say(Sentence.END_SUPERSEDED, "en")
GOODBYE = RealtimeInstruction("Say goodbye.", InstructionType.INSTRUCTION, ends_session=True)


async def test_the_model_asks_for_the_end_and_planning_approves_it(autojump_clock: trio.testing.MockClock) -> None:
    """A neutral sentence, no further response, then the goodbye."""
    async with open_rig([call("finish_session")], ["One moment."], ["Goodbye."], tools=[ASK]) as rig:
        await rig.send(user("Bye"))
        await trio.sleep(10)
        assert rig.texts == ["One moment."]
        assert len(rig.chat.requests) == 2
        assert not any(isinstance(e, RealtimeCommand) for e in rig.elements)
        await rig.instruct(GOODBYE)
        await trio.sleep(3)
        assert rig.texts == ["One moment.", "Goodbye."]
        assert rig.elements[-2:] == goodbye("response-2")
        assert SUPERSEDED not in [m.text for m in rig.chat.requests[-1].messages]


async def test_a_model_that_asks_for_the_end_again_gets_no_further_response(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig(
        [call("finish_session")], ["One moment.", call("finish_session")], ["Too much."], tools=[ASK]
    ) as rig:
        await rig.send(user("Bye"))
        await trio.sleep(10)
        assert rig.texts == ["One moment."]
        assert len(rig.ends) == 1


@pytest.mark.parametrize("answered", [True, False])
async def test_new_words_before_planning_has_answered_supersede_the_request(
    answered: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_rig([call("finish_session")], ["One moment."], ["Yes?"], tools=[ASK]) as rig:
        await rig.send(user("Bye"))
        await trio.sleep(2)
        if answered:
            await rig.instruct(RealtimeInstruction("Ask for the date.", InstructionType.INSTRUCTION))
            await trio.sleep(2)
        await rig.interrupt()
        await rig.send(user("Wait, one more thing"))
        await trio.sleep(2)
        await rig.send(user("And another"))
        await trio.sleep(2)
        told = [m.text for m in rig.chat.requests[-1].messages]
        assert told.count(SUPERSEDED) == (0 if answered else 1)
        if not answered:
            assert told[told.index("Wait, one more thing") - 1] == SUPERSEDED


async def test_a_goodbye_that_was_cut_is_known_to_be_none(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(tokens("Goodbye then.", 1.0), ["Yes?"]) as rig:
        await rig.instruct(GOODBYE)
        await trio.sleep(1.5)
        await rig.interrupt()
        await rig.send(user("Wait"))
        await trio.sleep(3)
        told = [m.text for m in rig.chat.requests[-1].messages]
        assert told[-2:] == [say(Sentence.GOODBYE_CUT, "en"), "Wait"]
        assert not any(isinstance(e, RealtimeCommand) for e in rig.elements)


async def test_a_failed_finish_session_ends_nothing(autojump_clock: trio.testing.MockClock) -> None:
    failing = FakeTool("finish_session", 0.1, failure=RuntimeError(), ends_session=True)
    async with open_rig(["Bye.", call("finish_session")], ["It seems I cannot."], tools=[failing]) as rig:
        await rig.send(user("Bye"))
        await trio.sleep(3)
        assert rig.texts == ["Bye.", "It seems I cannot."]
        assert not any(isinstance(e, RealtimeCommand) for e in rig.elements)
