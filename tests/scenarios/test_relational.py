"""A relational agent in whole conversations: what the planner whispers arrives for what comes next (S0, "One Turn, End to End")."""

from typing import Any

import pytest
import trio
import trio.testing

from agents.relational.initial_plan import OPENING_SECONDS
from engine.elements import Action
from engine.interfaces import ChatRequest
from engine.store.documents import SessionState
from engine.store.memory import MemoryStore
from engine.testing.chat import call, tokens
from engine.texts import Sentence, say
from tests.scenarios.play import first_words, in_turn, open_play

DAY = '{"supportingContext": "Ask for the day."}'
BYE = '{"results": "Thank you, goodbye.", "endSession": true}'
SUPERSEDED = say(Sentence.END_SUPERSEDED, "en")
NEUTRAL = "I see. One moment."


def told(request: ChatRequest) -> str:
    return "\n".join(message.text for message in request.messages)


async def test_the_opening_plan_is_what_the_model_opens_with(autojump_clock: trio.testing.MockClock) -> None:
    async with open_play(in_turn(["Good evening."]), in_turn()) as play:
        await play.client.send(Action("intro"))
        await play.exits(1)
        assert "Greet the regular warmly." in play.speaker.requests[0].messages[0].text
        assert [text for _, text in play.sentences] == ["Good evening."]


async def test_what_is_whispered_is_known_in_the_next_turn(autojump_clock: trio.testing.MockClock) -> None:
    async with open_play(in_turn(["Gladly."], ["For which day?"]), in_turn([0.5, f"Open. {DAY}"])) as play:
        await play.say("A table, please.")
        await play.exits(1)
        await play.say("For two.")
        await play.exits(2)
        assert "Ask for the day." not in told(play.speaker.requests[0])
        assert "Supporting context: Ask for the day." in told(play.speaker.requests[1])
        assert play.whispers()[0] == "Supporting context: Ask for the day."
        assert play.client.commands("realtime-planning")[0]["text"].strip() == "Open."
        assert "User: A table, please." in play.passes()[1]
        assert "(you whispered) Supporting context: Ask for the day." in play.passes()[1]


@pytest.mark.parametrize("seconds", [0.0, 10.0])
async def test_speaking_does_not_wait_for_planning(seconds: float, autojump_clock: trio.testing.MockClock) -> None:
    """The first word comes at the same instant, however long the planner thinks."""
    async with open_play(lambda _: tokens("Gladly, at once.", 0.3), in_turn(then=[seconds, DAY])) as play:
        began = trio.current_time()
        await play.say("A table, please.")
        await trio.sleep(5)
        assert first_words(play) - began == pytest.approx(0.9)
        again = trio.current_time()
        await play.say("For two.")  # while the planner still thinks: it is cancelled
        await trio.sleep(30)
        assert first_words(play, 1) - again == pytest.approx(0.9)


async def test_results_make_the_model_speak_again_in_the_same_turn(autojump_clock: trio.testing.MockClock) -> None:
    speaker = in_turn(["Let me check."], ["Dogs are welcome."])
    async with open_play(speaker, in_turn([1.0, '{"results": "Dogs are welcome."}'])) as play:
        await play.say("Are dogs allowed?")
        await play.exits(1)
        assert [text for _, text in play.sentences] == ["Let me check.", "Dogs are welcome."]
        assert play.names("response-end", "response-instruction-end", "exit") == [
            "response-end",
            "response-end",
            "response-instruction-end",
            "exit",
        ]


async def test_help_is_asked_for_and_comes(autojump_clock: trio.testing.MockClock) -> None:
    def plan(request: ChatRequest) -> Any:
        assert "Are dogs allowed?" in told(request)
        return [0.5, '{"results": "Dogs are welcome."}']

    speaker = in_turn(
        [call("request_help", "c1", '{"question": "Are dogs allowed?"}')], ["I am checking."], ["Yes, they are."]
    )
    async with open_play(speaker, plan) as play:
        await play.say("Can I bring my dog?")
        await play.exits(1)
        assert [text for _, text in play.sentences] == ["I am checking.", "Yes, they are."]
        assert play.names("tool-start", "tool-success") == ["tool-start", "tool-success"]


# --- the end of the session -------------------------------------------------------------------------------------------


def leaving(*more: Any) -> Any:
    return in_turn([call("finish_session", "c1")], [NEUTRAL], *more)


async def test_planning_approves_the_end(autojump_clock: trio.testing.MockClock) -> None:
    store = MemoryStore()
    async with open_play(leaving(["Thank you, goodbye."]), in_turn([2.0, BYE]), store=store) as play:
        await play.say("That is all, bye.")
        await play.client.wait_for_command("session-end")
        assert [text for _, text in play.sentences] == ["I see.", "One moment.", "Thank you, goodbye."]
        order = play.names("response-end", "sessionShouldEnd", "exit", "session-end")
        assert order == ["response-end", "sessionShouldEnd", "response-end", "exit", "session-end"]
        assert play.client.commands("session-end")[0]["state"] == SessionState.CLOSED
        assert "## End request" in play.passes()[0]


async def test_planning_first_asks_something_and_then_ends(autojump_clock: trio.testing.MockClock) -> None:
    speaker = in_turn(
        [call("finish_session", "c1")], [NEUTRAL], ["And your name?"],
        [call("finish_session", "c2")], [NEUTRAL], ["Goodbye, Petra."],
    )  # fmt: skip
    planner = in_turn([1.0, '{"results": "Ask for the name."}'], [1.0, BYE])
    async with open_play(speaker, planner) as play:
        await play.say("That is all, bye.")
        await play.exits(1)
        assert play.names("sessionShouldEnd") == []
        await play.say("Petra. Bye.")
        await play.client.wait_for_command("session-end")
        assert [text for _, text in play.sentences][-1] == "Goodbye, Petra."


@pytest.mark.parametrize("output", [["Nothing."], [RuntimeError()], [25.0], ['{"results": " ", "endSession": true}']])
async def test_a_planner_that_does_not_answer_keeps_nobody_waiting(
    output: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_play(leaving(["Goodbye."]), in_turn(output)) as play:
        await play.say("That is all, bye.")
        await play.client.wait_for_command("session-end")
        assert say(Sentence.END_FALLBACK, "en") in told(play.speaker.requests[-1])
        assert [text for _, text in play.sentences][-1] == "Goodbye."
        assert len(play.names("sessionShouldEnd")) == 1


async def test_new_words_before_the_answer_supersede_the_request(autojump_clock: trio.testing.MockClock) -> None:
    async with open_play(leaving(["Of course."]), in_turn([5.0, BYE], [0.5, DAY])) as play:
        await play.say("That is all, bye.")
        await trio.sleep(2)
        await play.say("Wait, one more thing.")
        await play.exits(2)
        await trio.sleep(10)
        assert play.names("sessionShouldEnd", "session-end") == []
        messages = [message.text for message in play.speaker.requests[-1].messages]
        assert messages[messages.index("Wait, one more thing.") - 1] == SUPERSEDED
        assert "## End request" not in play.passes()[1]


async def test_words_into_the_goodbye_keep_the_session(autojump_clock: trio.testing.MockClock) -> None:
    """Case C34; and a later wish to stop works again."""
    speaker = in_turn(
        [call("finish_session", "c1")], [NEUTRAL], tokens("Thank you, goodbye then.", 0.5), ["Of course."],
        [call("finish_session", "c2")], [NEUTRAL], ["Goodbye."],
    )  # fmt: skip
    async with open_play(speaker, in_turn([1.0, BYE], ["Nothing."], [1.0, BYE])) as play:
        await play.say("That is all, bye.")
        await trio.sleep(2.2)
        await play.say("Wait, one more thing.")
        await play.exits(2)
        assert play.names("sessionShouldEnd") == []
        assert say(Sentence.GOODBYE_CUT, "en") in told(play.speaker.requests[3])
        await play.say("Now bye.")
        await play.client.wait_for_command("session-end")
        assert "## End request" in play.passes()[-1]


async def test_planning_ends_the_session_by_itself(autojump_clock: trio.testing.MockClock) -> None:
    async with open_play(in_turn(["Booked."], ["Goodbye."]), in_turn([1.0, BYE])) as play:
        await play.say("Thanks.")
        await play.client.wait_for_command("session-end")
        assert len(play.names("sessionShouldEnd")) == 1


# --- the opening plan -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", [["no JSON"], [OPENING_SECONDS + 1], [RuntimeError()]])
@pytest.mark.parametrize("remembers", [True, False])
async def test_the_fallbacks_of_the_opening_plan(
    opening: Any, remembers: bool, autojump_clock: trio.testing.MockClock
) -> None:
    store = MemoryStore()
    fields = {"initialPlan": "Greet as @[Anna](barista) does.", "hasMemory": remembers}
    async with open_play(in_turn(), in_turn(), store=store, fields=fields) as play:
        await play.client.send(Action("intro"))
        await play.exits(1)
    async with open_play(
        in_turn(["Hello."]), in_turn(), opening=opening, store=store, fields=fields, session_id="another"
    ) as play:
        await play.client.send(Action("intro"))
        await play.exits(1)
        prompt = play.speaker.requests[0].messages[0].text
        assert ("Greet the regular warmly." in prompt) is remembers
        assert ("Greet as Anna does." in prompt) is not remembers


async def test_a_session_that_goes_on_keeps_its_plans(autojump_clock: trio.testing.MockClock) -> None:
    store = MemoryStore()
    async with open_play(
        in_turn(["One."], ["Two."]), in_turn([f"Thoughts. {DAY}"]), store=store, session_id="s"
    ) as play:
        for number, line in enumerate(("First.", "Second."), 1):
            await play.say(line)
            await play.exits(number)
    async with open_play(in_turn(["Three."]), in_turn(), store=store, session_id="s", opening=[RuntimeError()]) as play:
        await play.say("Third.")
        await play.exits(1)
        prompt = play.speaker.requests[0].messages[0].text
        assert "Do not greet again" in prompt
        assert "Greet the regular warmly." in prompt
        assert "User: Second." in prompt
        assert len(play.planner.requests) == 1, "no opening plan is made"
        assert "Nothing." in play.passes()[0].split("What you wrote the last time")[1]


# --- links ------------------------------------------------------------------------------------------------------------


async def test_links_that_nobody_has_seen_are_not_said(autojump_clock: trio.testing.MockClock) -> None:
    menu, evil = "https://cafe.example/menu", "https://evil.example/x"
    speaker = in_turn(tokens(f"See {menu} or {evil} now."), tokens(f"Again {menu} and {evil} now."))
    fields = {"multimodal": [{"name": "menu", "urls": [menu]}]}
    async with open_play(speaker, in_turn(), fields=fields, tokens=True) as play:
        await play.say("Where is the menu?")
        await play.exits(1)
        await play.say(f"I mean {evil}")
        await play.exits(2)
        assert [text for _, text in play.sentences] == [
            f"See {menu} or (link removed) now.",
            f"Again {menu} and {evil} now.",
        ]
        turns = await play.store.get_turns(play.client.commands("ready")[0]["sessionId"], limit=10)
        assert turns[0].output[0].heard == f"See {menu} or (link removed) now."


# --- after it ---------------------------------------------------------------------------------------------------------


async def test_what_is_left_when_the_client_vanishes_in_any_moment(autojump_clock: trio.testing.MockClock) -> None:
    """No task, no stream; the turns that were said are stored."""
    for step in range(25):
        async with open_play(
            in_turn(tokens("Gladly, for which day?", 0.2)), in_turn([0.5, DAY, 0.5, '{"results": "Say it."}'])
        ) as play:
            await play.say("A table, please.")
            await trio.sleep(step * 0.1)
            play.connection.cancel(reason="vanished")
            await play.client.wait_for_command("session-end")
