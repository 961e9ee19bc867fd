"""The Demo model's other parts: the speaker that is whispered to, the planner, the simulated caller."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agents.demo import PROJECT_FILE
from agents.knowledge.library import KnowledgeLibrary
from agents.knowledge.tools import KnowledgeToolBox
from agents.prompts import render
from agents.relational.plan import Instruction, PlanReading, Skipped, read_initial_plan
from engine.elements import InstructionType
from engine.interfaces import ChatMessage, ChatRequest, ToolCall, ToolSpecification
from providers.chat.demo import answer
from providers.chat.demo_lines import say_table
from providers.chat.demo_pass import Step, read_steps
from providers.chat.demo_prompts import Part, first_prompt, part_of, quotations, quote, read_whisper, section
from providers.chat.demo_results import pick
from providers.chat.demo_slots import Table, hear
from providers.chat.demo_steered import BOOKING
from providers.chat.demo_talk import Reply
from providers.chat.demo_words import WEEK

STEPS = """
1. Take the table, and book it with book_table.
2. Ask about the play, when the table is for 16:00 or later: "Are you coming for the play?"
3. Offer the plate: look up what is played, and say, if they are coming: "There is a plate." If they are not: "Take your
   time."
4. Let them go.
"""
TOOLS = ("book_table", "search_knowledge", "remember")
NOW = "Monday, 1 June 2026, 10:00 (2026-06-01T10:00+02:00, Europe/Prague)"
CONFIRMATION = "Table for 2 people on Tuesday, 2 June 2026 at 19:00 in the name of Anna, confirmation number 101."
BOOKED = f'(you whispered) Instruction: Say: "Done. {CONFIRMATION}"\nAgent: Done. {CONFIRMATION}'
ASK = "Are you coming for the play?"


def tool(name: str) -> ToolSpecification:
    return ToolSpecification(name, name, {"type": "object", "properties": {}})


# --- the planner ------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Planned:
    """One pass, to its end: its calls and what is whispered."""

    calls: list[Reply] = attrs.field(factory=list[Reply])
    prose: str = ""
    whispers: list[Instruction] = attrs.field(factory=list[Instruction])
    module: str = ""
    focus: str = ""


def business(steps: str = STEPS) -> str:
    return render(
        "planning.relational", purpose="Book tables.", steps=steps, impact="high", guardrails="", tools=list(TOOLS),
        ui_tools=[], has_memory=True, shared_agents=[], skills="", cites=True, language="English",
    )  # fmt: skip


def turn(transcript: str = "", **fields: Any) -> str:
    lines = transcript.strip().splitlines()
    said = next((line.removeprefix("User: ") for line in reversed(lines) if line.startswith("User: ")), "")
    known: dict[str, Any] = {
        "transcript": lines, "utterance": said, "previous_plan": "Before.", "now": NOW, "end_mode": "open",
    }  # fmt: skip
    return render("planning.relational.turn", **{**_NOTHING, **known, **fields})


_NOTHING: dict[str, Any] = dict.fromkeys(
    [
        "user_gender",
        "biography",
        "last_visit",
        "webhook_result",
        "sensory",
        "insights",
        "hints",
        "help",
        "shown",
        "made",
    ],
    "",
) | {"has_memory": False, "left_out": False}


def plan(transcript: str = "", *, steps: str = STEPS, tools: tuple[str, ...] = TOOLS, **fields: Any) -> Planned:
    """`results` gives what the tools answer, by their names."""
    results: dict[str, str] = fields.pop("results", {})
    messages = [ChatMessage("system", business(steps)), ChatMessage("user", turn(transcript, **fields))]
    planned, reading = Planned(), PlanReading()
    meaning: list[Any] = []
    for _ in range(6):
        reply = answer(ChatRequest(tuple(messages), tuple(map(tool, tools))))
        meaning += reading.feed(reply.text)
        if not reply.call:
            break
        planned.calls.append(reply)
        call = ToolCall(f"c{len(messages)}", reply.call, json.dumps(reply.arguments), "")
        messages.append(ChatMessage("assistant", reply.text, (call,)))
        messages.append(ChatMessage("tool", results.get(reply.call, "Remembered."), tool_call_id=call.call_id))
    else:
        pytest.fail("the pass does not end")
    meaning += reading.finish()
    assert not any(isinstance(each, Skipped) for each in meaning)
    planned.whispers = [each for each in meaning if isinstance(each, Instruction)]
    planned.prose = "".join(each.text for each in meaning if not isinstance(each, Instruction))
    planned.module, planned.focus = reading.plan().current_module, reading.plan().working_focus
    return planned


def question(text: str) -> dict[str, Any]:
    return {"help": [{"question": text}]}


def found(*texts: str) -> dict[str, str]:
    return {
        "search_knowledge": json.dumps(
            {"results": [{"id": f"k{number}", "source": "Menu", "text": text} for number, text in enumerate(texts, 1)]}
        )
    }


def test_its_first_thought_says_what_it_is() -> None:
    assert "scripted planner, as no language model is installed" in plan("User: Hi", previous_plan="").prose
    assert "scripted" not in plan("User: Hi").prose


def test_nothing_is_whispered_before_a_table_is_wanted() -> None:
    planned = plan("User: When are you open?\nAgent: From eight to ten.")
    assert planned.calls == []
    assert planned.whispers == []
    assert planned.module == "1. Take the table"


def test_a_table_is_booked_told_and_led_on_from() -> None:
    planned = plan(
        "User: Yes.\nAgent: One moment, please.",
        **question("Please book a table tomorrow, at 7 pm, for two people, in the name of Anna."),
        results={"book_table": json.dumps({"number": 101, "confirmation": CONFIRMATION})},
    )
    assert [(call.call, call.arguments) for call in planned.calls] == [
        ("book_table", {"day": "tomorrow", "time": "19:00", "people": 2, "name": "Anna"}),
        ("remember", {"note": "The guest's name is Anna."}),
    ]
    assert [(each.type, each.text) for each in planned.whispers] == [
        (InstructionType.INSTRUCTION, f'Say: "Done. {CONFIRMATION}"'),
        (InstructionType.SUPPORTING_CONTEXT, f'Next, where the answer has room for it, ask: "{ASK}"'),
    ]
    assert (planned.module, planned.focus) == ("2. Ask about the play", ASK)


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ("Please book a table for two people tomorrow.", "", 'Ask for what is missing: "At what time?"'),
        (
            "Please book a table tomorrow, at 7 pm, for two people, in the name of Anna.",
            "All tables are taken at that time. Offer the user a time at least ninety minutes away.",
            'That could not be done. Say: "I am sorry. All tables are taken at that time. At what time?"',
        ),
        (
            "Please book a table tomorrow, at 7 pm, for two people, in the name of Anna.",
            "Tool book_table failed.",
            'That could not be done. Say: "I am sorry, the booking did not go through. Shall I try again?"',
        ),
    ],
)
def test_what_is_missing_or_has_failed_is_said(asked: str, error: str, said: str) -> None:
    planned = plan("User: Yes.", **question(asked), results={"book_table": json.dumps({"error": error})})
    assert [each.text for each in planned.whispers] == [said]
    assert planned.module == "1. Take the table"


def test_a_question_is_answered_from_the_documents() -> None:
    results = found("We are old. The soup has no gluten. It is hot.", "The soup is hot.")
    planned = plan("User: Is there gluten in the soup?", **question("Is there gluten in the soup?"), results=results)
    assert [call.arguments for call in planned.calls] == [{"query": "Is there gluten in the soup?"}]
    assert planned.whispers[0].text == 'Say, and where it is from: "The soup has no gluten." [k1]'


@pytest.mark.parametrize(
    "output",
    [
        '{"results": []}',
        '{"results": [{"text": "The soup."}], "note": "Nothing fits well."}',
        '{"error": "x"}',
        "",
        "[",
        "7",
    ],
)
def test_what_is_not_written_is_not_known(output: str) -> None:
    planned = plan("User: Is there a pool?", **question("Is there a pool?"), results={"search_knowledge": output})
    assert "could not find that out" in planned.whispers[0].text


def test_without_tools_it_says_so() -> None:
    planned = plan("User: Is there a pool?", tools=(), **question("Is there a pool?"))
    assert planned.calls == []
    assert "could not find that out" in planned.whispers[0].text


def test_what_the_speaker_has_tried_is_called() -> None:
    hint = {"name": "search_knowledge", "parameters": '{"query": "soup"}'}
    planned = plan("User: Soup?", hints=[hint], results=found("The soup is hot."))
    assert [(call.call, call.arguments) for call in planned.calls] == [("search_knowledge", {"query": "soup"})]
    assert '"The soup is hot."' in planned.whispers[0].text


def test_the_answers_to_its_question_are_prepared() -> None:
    planned = plan(
        f"User: Yes.\n{BOOKED}\nUser: Thanks.\nAgent: You are welcome. {ASK}",
        results=found("On Monday there is nothing.", "On Tuesday they play Hamlet."),
    )
    assert [call.arguments for call in planned.calls] == [{"query": "what is played Tuesday"}]
    assert planned.whispers[0].text == (
        f'They were asked: "{ASK}" If they say yes, tell them: "On Tuesday they play Hamlet." [k2] And offer: "There is a plate."'
        ' If they say no, tell them: "Take your time."'
    )


@pytest.mark.parametrize(("said", "told"), [("Yes, we are.", "There is a plate."), ("No.", "Take your time.")])
def test_an_answer_that_was_quicker_is_taken_up(said: str, told: str) -> None:
    planned = plan(f"User: Yes.\n{BOOKED}\nUser: Thanks.\nAgent: {ASK}\nUser: {said}\nAgent: All right.")
    assert planned.whispers[0].text == f'They have answered it. Tell them: "{told}"'


def test_a_step_that_does_not_apply_is_left_out() -> None:
    planned = plan(f"User: Yes.\n{BOOKED}\nUser: Thanks.\nAgent: You are welcome.".replace("19:00", "12:00"))
    assert planned.whispers == []
    assert planned.module == "done"


def test_the_end_waits_for_a_table_that_was_begun() -> None:
    begun = "User: A table for two tomorrow.\nAgent: At what time?\nUser: Bye.\nAgent: I see."
    asked = plan(begun, end_mode="requested").whispers
    assert [(each.text, each.ends_session) for each in asked] == [
        ('Ask first: "Before we hang up: shall I still book the table? At what time?"', False)
    ]
    whispered = f"{begun}\n(you whispered) Instruction: {asked[0].text}\nUser: No, bye.\nAgent: I see."
    assert [(each.text, each.ends_session) for each in plan(whispered, end_mode="requested").whispers] == [
        ('Say goodbye: "Thank you for calling. Goodbye!"', True)
    ]
    done = f"User: Yes.\n{BOOKED}\nUser: Bye.\nAgent: I see."
    assert [(each.text, each.ends_session) for each in plan(done, end_mode="requested").whispers] == [
        ('Say goodbye: "Thank you for calling, Anna. We look forward to seeing you. Goodbye!"', True)
    ]


def test_a_process_is_read_as_far_as_it_is_understood() -> None:
    assert read_steps(STEPS) == (
        Step("1. Take the table", books=True),
        Step("2. Ask about the play", from_minutes=960, words=ASK),
        Step("3. Offer the plate", looks_up="what is played", on_yes="There is a plate.", on_no="Take your time."),
        Step("4. Let them go"),
    )
    assert read_steps("Be nice.") == ()


def test_an_exact_wording_is_passed_on() -> None:
    steps = "1. Book with book_table.\n2. Say it (to be said exactly: “This call is recorded.” and so on)."
    planned = plan(f"User: Yes.\n{BOOKED}\nUser: Thanks.\nAgent: You are welcome.", steps=steps)
    assert planned.whispers[0].text == 'Next, where the answer has room for it, say: "This call is recorded."'


# --- before the first word --------------------------------------------------------------------------------------------


def opening(*notes: str, **fields: Any) -> str:
    given: dict[str, Any] = dict.fromkeys(("user_name", "user_gender", "biography", "last_visit", "skills"), "")
    text = render(
        "planning.initial",
        **{**given, "purpose": "", "steps": "", "impact": "high", "guardrails": "", "has_memory": True, "tools": [],
           "webhook_result": "", "last_summary": "", "last_evaluation": "", "shared_transcript": "", "shared_agent": "",
           "now": NOW, "language": "English", **fields},
    )  # fmt: skip
    messages = [ChatMessage("system", text), ChatMessage("user", "Write the opening plan.")]
    first = answer(ChatRequest(tuple(messages), (tool("recall"),)))
    assert first == Reply("", "recall")
    output = json.dumps({"notes": [{"date": "x", "note": note} for note in notes], "conversations": []})
    messages += [
        ChatMessage("assistant", "", (ToolCall("c", "recall", "{}", ""),)),
        ChatMessage("tool", output, tool_call_id="c"),
    ]
    made = read_initial_plan(answer(ChatRequest(tuple(messages), (tool("recall"),))).text)
    assert made is not None
    return made.description


def test_the_opening_greets_whom_it_remembers() -> None:
    assert "Welcome back" not in opening()
    assert '"Welcome back, Anna."' in opening("They like tea.", "The guest's name is Anna.")
    assert '"Welcome back, Petra."' in opening(biography="- Her name is Petra")


# --- the speaker that is whispered to ---------------------------------------------------------------------------------


def test_a_booking_that_is_passed_on_is_understood() -> None:
    assert hear(f"{BOOKING} {say_table(Table('tomorrow', 750, 1, 'Jan Novák'))}.").onto(Table()) == Table(
        "tomorrow", 750, 1, "Jan Novák"
    )


@given(
    st.sampled_from(["today", "tomorrow", "Friday", "next Monday", "the day after tomorrow"]),
    st.integers(8 * 4, 20 * 4).map(lambda quarter: quarter * 15),
    st.integers(1, 6),
    st.sampled_from(["Anna", "Karel Čapek", "Smith"]),
)
def test_whatever_is_wanted_reaches_the_planner_as_it_was_said(day: str, time: int, people: int, name: str) -> None:
    table = Table(day, time, people, name)
    assert hear(f"{BOOKING} {say_table(table)}.").onto(Table()) == table


def speaking(*messages: ChatMessage, whisper: str = "") -> Reply:
    prompt = (
        "You are it.\n\n# What you are here for\n\nBook tables.\n\n# How it ends\n\nIt only asks for the end: wait.\n"
    )
    told = [ChatMessage("system", f"Supporting context: {whisper}")] if whisper else []
    tools = (tool("request_help"), tool("finish_session"))
    return answer(ChatRequest((ChatMessage("system", prompt), *told, *messages), tools))


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def agent(text: str) -> ChatMessage:
    return ChatMessage("assistant", text)


@pytest.mark.parametrize(
    ("whisper", "said", "answered"),
    [
        ('Next, ask: "Are you hungry?"', "thank you", "You are welcome. Are you hungry?"),
        ('Next, ask: "Are you hungry?"', "where are you", "You find us right beside the theatre. Are you hungry?"),
        ('Next, ask: "Are you hungry?"', "a table for two", "For two people. For which day, and at what time?"),
        (
            'Tell them: "It rains." ([Weather](https://x.example/a))',
            "thanks",
            "You are welcome. It rains. I have that from: Weather.",
        ),
        ("They seem to be in a hurry.", "thank you", "You are welcome."),
        ('There is a play called "Hamlet".', "thank you", "You are welcome."),
        ('Tell them: "Hello."', "thank you", "You are welcome."),  # said already
    ],
)
def test_what_is_whispered_is_said_where_there_is_room(whisper: str, said: str, answered: str) -> None:
    assert speaking(user("hi"), agent("Hello."), user(said), whisper=whisper).text == answered


@pytest.mark.parametrize(
    ("said", "answered"),
    [("yes please", "Soup."), ("no thanks", "As you like."), ("thank you", "You are welcome."), ("tea", "")],
)
def test_an_answer_is_known_before_it_is_needed(said: str, answered: str) -> None:
    whisper = 'They were asked: "Are you hungry?" If they say yes, tell them: "Soup." If they say no, tell them: "As you like."'
    reply = speaking(user("hi"), agent("Hello. Are you hungry?"), user(said), whisper=whisper)
    assert reply.text.startswith(answered)
    other = speaking(user("hi"), agent("Hello. Are you thirsty?"), user("yes"), whisper=whisper)
    assert other.text == "All right."


def test_it_asks_for_the_end_and_waits() -> None:
    asked = speaking(user("hi"), agent("Hello."), user("goodbye"))
    assert asked == Reply("", "finish_session")
    call = ToolCall("c", "finish_session", "{}", "r")
    told = (user("hi"), agent("Hello."), user("goodbye"), ChatMessage("assistant", "", (call,)))
    wait = ChatMessage(
        "tool", "The conversation has not ended yet. Say … and wait. Do not say goodbye.", tool_call_id="c"
    )
    assert speaking(*told, wait).text == "I see. One moment, please."
    approved = ChatMessage("tool", "The end is approved. Say the approved goodbye now.", tool_call_id="c")
    assert speaking(*told, approved).text == "Thank you for calling. Goodbye!"
    for instruction in ('Instruction: Say goodbye: "See you, Anna."', "Instruction: Say a short, friendly goodbye."):
        said = speaking(*told, wait, agent("I see."), ChatMessage("system", instruction)).text
        assert said in ("See you, Anna.", "Thank you for calling. Goodbye!")


def test_an_answer_from_the_planner_leads_back_to_the_table() -> None:
    instruction = ChatMessage("system", 'Instruction: Say, and where it is from: "No gluten." (Menu)')
    said = speaking(user("a table for two tomorrow"), agent("For two. At what time?"), instruction).text
    assert said == "No gluten. I have that from: Menu. At what time?"


def test_help_that_fails_is_no_help() -> None:
    call = ToolCall("c", "request_help", "{}", "r")
    asked = (user("is there a pool?"), ChatMessage("assistant", "", (call,)))
    assert speaking(*asked, ChatMessage("tool", '{"error": "x"}', tool_call_id="c")).text.endswith(
        "cannot find that out now."
    )


# --- prompts ----------------------------------------------------------------------------------------------------------


def test_sections_and_quotations() -> None:
    assert section("# A\n\none\ntwo\n\n## B\nthree", "# A") == "one\ntwo"
    assert section("# A", "# B") == ""
    assert [each.words for each in quotations('Say "a b" or “c d”, "" and "e')] == ["a b", "c d"]
    assert quote('one "two"\nthree') == "\"one 'two' three\""
    assert read_whisper("").next == ()


def test_only_a_sentence_that_fits_is_picked() -> None:
    assert pick(json.dumps({"results": [{"id": "k1", "text": "x" * 400 + " soup."}]}), "soup") is None
    assert pick(json.dumps({"results": [7, {"id": 3, "text": None}, {"text": "Soup."}]}), "soup") is not None


async def test_the_documents_of_the_demo_answer(tmp_path: Path) -> None:
    """Through the real search, which works in threads."""
    box = KnowledgeToolBox(KnowledgeLibrary(PROJECT_FILE.parent, tmp_path).of(["knowledge/"]))
    questions = {
        f"what is played that day {day.capitalize()}": f"On {day.capitalize()} the theatre plays " for day in WEEK
    }
    questions |= {
        "Is there gluten in the soup?": "The soup is lentil soup",
        "Is the chocolate cake vegan?": "The chocolate cake is vegan",
        "Is there a step at the door?": "The entrance has no step",
        "do you have wifi": "The wifi is free",
        "Can I pay by card?": "The café takes cards and cash",
        "Where can we park?": "There is no parking",
        "Do you have a swimming pool?": "",
    }
    for asked, answered in questions.items():
        result = await box.search_knowledge(asked)
        shown = pick(json.dumps(result), asked)
        assert (shown.sentence if shown else "").startswith(answered), (asked, result)
        assert (shown is None) == (not answered), asked


# --- the caller -------------------------------------------------------------------------------------------------------


def calling(
    *heard: str, scenario: str = 'A table on Friday at noon for three, I am called Eva. Ask: "Is it loud?"'
) -> str:
    prompt = render(
        "test", name="Anna", gender="female", role="", vision="", scenario=scenario, language="English", tools=False,
        context="", memory="",
    )  # fmt: skip
    messages = [ChatMessage("system", prompt)]
    said = ""
    for text in heard:
        messages.append(user(text))
        said = answer(ChatRequest(tuple(messages))).text
        messages.append(agent(said))
    return said


def test_the_caller_plays_its_scenario() -> None:
    number = "Done. Confirmation number 101."
    assert calling("Hello. What would you like?") == (
        "Hello, I am a scripted guest. I would like to book a table on Friday, at noon, for three people."
    )
    assert calling("Hello.", "And in whose name?") == "In the name of Eva."
    assert calling("Hello.", "For which day, and at what time?") == "On Friday, at noon."
    assert calling("Hello.", "Is that right?") == "Yes, that is right."
    assert calling("Hello.", "I pass it on. One moment, please.") == "All right, I am waiting."
    assert calling("Hello.", number) == "Thank you. Is it loud?"
    assert calling("Hello.", number, "Not at all.") == "Good to know, thank you."
    assert calling("Hello.", number, "No.", "You are welcome. Are you coming for the play?") == "Yes, we are."
    assert calling("Hello.", number, "No.", "You are welcome.") == "Thank you, that is all. Goodbye."


def test_the_caller_hangs_up_sooner_or_later() -> None:
    assert calling("", *["I did not catch that."] * 25) == "Goodbye."
    assert calling(*["Would you like to book a table?"] * 40).startswith(("I would like a table", "Goodbye"))


# --- anything at all --------------------------------------------------------------------------------------------------

words = st.text(max_size=80) | st.sampled_from(
    ["User: a table for two", "Agent: At what time?", '"x y"', "# Now", "\n# Now\n", "## End request", "- {", "1. book_table",
     "Instruction: ", 'Supporting context: ask "a?" if yes "b"', "It is 2026-13-45T00:00", "in the name of Ó", "²:²²", "٣:٣٠"]
)  # fmt: skip
beginnings = st.sampled_from(
    [business(), "You play a person, X", "You plan a spoken conversation that is about to begin.", ""]
)
transcripts = st.lists(words, max_size=8).map(
    lambda lines: turn("\n".join(lines), help=[{"question": line} for line in lines[:2]])
)
odd_results = st.sampled_from(
    [
        '{"results": {"a": 1}}',
        '{"results": [null]}',
        '{"notes": ["x", {"note": 3}]}',
        '{"notes": 3}',
        "null",
        '{"error": 3}',
    ]
)


@settings(deadline=None, max_examples=150)
@given(
    beginnings,
    st.lists(words, max_size=4).map("\n".join),
    transcripts | words,
    st.sampled_from([*TOOLS, "recall", ""]),
    odd_results | words,
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), words), max_size=5),
)
@example("", "", "", "", "", [])
def test_no_prompt_is_too_strange(
    beginning: str, more: str, told: str, made: str, output: str, after: list[tuple[str, str]]
) -> None:
    messages = [ChatMessage("system", f"{beginning}\n{more}"), ChatMessage("user", told)]
    if made:
        messages.append(ChatMessage("assistant", "", (ToolCall("c", made, "{}", ""),)))
        messages.append(ChatMessage("tool", output, tool_call_id="c"))
    messages += [ChatMessage(role, text) for role, text in after]
    for tools in ((), (*TOOLS, "recall", "request_help", "finish_session")):
        request = ChatRequest(tuple(messages), tuple(map(tool, tools)))
        reply = answer(request)
        assert reply == answer(request)
        json.dumps(reply.arguments)
        if part_of(first_prompt(messages)) in (Part.PLANNER, Part.OPENING):
            reading = PlanReading()
            assert not any(isinstance(each, Skipped) for each in [*reading.feed(reply.text), *reading.finish()])
