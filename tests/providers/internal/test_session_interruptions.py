"""What a barge-in does to an Internal session, at any time: nothing follows, and the history is what was heard."""

import pytest
import trio
import trio.testing

from engine.elements import (
    Image,
    Interrupted,
    ResponseEnd,
    ResponseStatus,
    Token,
    Transcript,
)
from engine.testing.chat import Script, call, tokens
from tests.providers.internal.fakes import FakeSynthesizer, FakeTool, instruction, open_rig, said, user

# --- interruptions ----------------------------------------------------------------------------------------------------


async def test_an_interruption_of_nothing_changes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["Yes."]) as rig:
        await rig.send(Interrupted(), Interrupted("response-9", "never", 3), user("Well?"))
        await trio.sleep(1)
        assert rig.texts == ["Yes."]


async def test_what_was_said_and_not_answered_stays_in_the_conversation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A line that waits is dropped by an interruption: it will not be answered, but the model knows that it was said."""
    async with open_rig(tokens("One two three four.", 0.5), ["Fine."]) as rig:
        await rig.send(user("Book a table"), Image(b"1", "image/png"), user("for nine"))
        await trio.sleep(0.7)
        await rig.interrupt()
        await rig.send(user("on Friday"))
        await trio.sleep(5)
        assert said(rig.chat.requests[1]) == [
            ("user", "Book a table"),
            ("user", "for nine"),
            ("user", "on Friday"),
        ]
        assert [len(message.images) for message in rig.chat.requests[1].messages] == [0, 0, 1, 0]
        assert [e.text for e in rig.elements if isinstance(e, Transcript)] == ["Book a table", "on Friday"]


async def test_an_answer_does_not_wait_for_the_one_before_to_be_unwound(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig(tokens("One two three four.", 0.5), ["Fine."], unwind_seconds=1.0) as rig:
        await rig.send(user("Count"))
        await trio.sleep(0.7)
        await rig.interrupt()
        await rig.send(user("Go on"))
        await trio.sleep(0.1)
        assert rig.at(ResponseEnd) == [0.7]
        assert rig.chat.times == [0, 0.7]
        assert "Fine." in [e.text for e in rig.elements if isinstance(e, Token)]


async def test_a_second_interruption_leaves_what_was_heard_before_the_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig(["One two three four. Five", 9.0], ["Fine."], unwind_seconds=1.0) as rig:
        await rig.send(user("Count"))
        await trio.sleep(0.5)
        await rig.interrupt()
        await trio.sleep(0.1)
        await rig.send(Interrupted())
        await trio.sleep(0.1)
        await rig.send(user("Go on"))
        await trio.sleep(5)
        assert said(rig.chat.requests[1]) == [("user", "Count"), ("assistant", "One"), ("user", "Go on")]


async def test_speech_that_is_still_being_played_is_cut_in_the_history(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["One two three four. Five six."], ["Fine."]) as rig:
        await rig.send(user("Count"))
        await trio.sleep(1.25)
        assert len(rig.ends) == 1
        await rig.interrupt()
        await rig.send(user("Go on"))
        await trio.sleep(1)
        assert said(rig.chat.requests[1]) == [
            ("user", "Count"),
            ("assistant", "One two three four. Five"),
            ("user", "Go on"),
        ]
        assert len(rig.ends) == 2


async def test_what_would_have_been_heard_after_a_cut_response_was_not_heard(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig(["One two three four."], ["Five six seven."], ["Fine."]) as rig:
        await rig.send(user("Count"))
        await rig.instruct(instruction("Count on."))
        await trio.sleep(0.5)
        assert len(rig.ends) == 2
        interruption = await rig.interrupt()
        assert interruption == Interrupted("response-1", "One two", 500)
        await rig.send(user("Stop"))
        await trio.sleep(1)
        assert said(rig.chat.requests[2]) == [
            ("user", "Count"),
            ("assistant", "One two"),
            ("system", "Instruction: Count on."),
            ("user", "Stop"),
        ]


@pytest.mark.parametrize("step", range(45))
async def test_an_interruption_at_any_time_of_an_answer_with_tools_and_speech(
    autojump_clock: trio.testing.MockClock, step: int
) -> None:
    """Two rounds, two calls, speech under way: nothing follows but the cancelled end, and the history is what was heard."""
    tools = [FakeTool("stock", 0.4, "3 left"), FakeTool("price", 0.7, "9 crowns")]
    script: list[Script] = [
        [*tokens("Let me have a look, it will take a moment.", 0.05), call("stock", "c1"), call("price", "c2")],
        tokens("There are three left. Each costs nine crowns.", 0.05),
    ]
    async with open_rig(*script, tools=tools, synthesizer=FakeSynthesizer(first_seconds=0.1)) as rig:
        await rig.send(user("Is it in stock?"))
        await trio.sleep(step * 0.05)
        await trio.testing.wait_all_tasks_blocked()
        before, was_over = len(rig.elements), bool(rig.ends)
        interruption = await rig.interrupt()
        await trio.testing.wait_all_tasks_blocked()
        after = rig.elements[before:]
        assert after == ([] if was_over else [ResponseEnd("response-1", ResponseStatus.CANCELLED, is_synthetic=True)])
        assert rig.chat.open_streams == 0
        assert rig.synthesizer.speaking == 0
        started = len(rig.started)
        asked = len(rig.chat.requests)
        await trio.sleep(3)
        assert len(rig.elements) == before + len(after)
        assert (len(rig.started), len(rig.chat.requests)) == (started, asked)
        rig.chat.scripts = [["All right."]]
        await rig.send(user("Never mind"))
        await trio.sleep(3)
        heard = " ".join(
            message.text for message in rig.chat.requests[-1].messages if message.role == "assistant" and message.text
        )
        assert heard == interruption.heard_text
        if started:
            calls = [m for m in rig.chat.requests[-1].messages if m.tool_calls]
            assert [made.call_id for m in calls for made in m.tool_calls] == ["c1", "c2"]
        assert rig.elements[-1] == ResponseEnd("response-2")
        assert rig.texts[-1] == "All right."


async def test_a_tool_is_not_started_by_an_answer_that_is_cut_as_its_stream_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig(
        ["Wait. ", call("order", "c1")], ["Fine."], tools=[FakeTool("order")], unwind_seconds=0.5
    ) as rig:
        await rig.send(user("Order it"))
        await trio.sleep(0.2)
        await rig.interrupt()
        await trio.sleep(1)
        assert rig.started == []
        assert rig.ends == [ResponseEnd("response-1", ResponseStatus.CANCELLED, is_synthetic=True)]
        await rig.send(user("No"))
        await trio.sleep(1)
        assert said(rig.chat.requests[1]) == [("user", "Order it"), ("user", "No")]


@pytest.mark.parametrize("hops", range(16))
async def test_an_interruption_together_with_the_end_of_the_stream(
    autojump_clock: trio.testing.MockClock, hops: int
) -> None:
    """Both happen in the same moment, a few steps of the scheduler apart."""
    async with open_rig([1.0, "Wait. ", call("order", "c1")], ["Fine."], tools=[FakeTool("order", 1.0)]) as rig:
        await rig.send(user("Order it"))
        await trio.sleep(1.0)
        for _ in range(hops):
            await trio.lowlevel.checkpoint()
        await rig.interrupt()
        await trio.testing.wait_all_tasks_blocked()
        assert rig.ends == [ResponseEnd("response-1", ResponseStatus.CANCELLED, is_synthetic=True)]
        assert isinstance(rig.elements[-1], ResponseEnd)
        rig.chat.scripts = [["Fine."]]
        await rig.send(user("No"))
        await trio.sleep(3)
        assert len([message for message in rig.chat.requests[-1].messages if message.role == "assistant"]) <= 1
        assert rig.texts[-1] == "Fine."
