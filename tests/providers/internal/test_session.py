"""An Internal session by itself, through its channels: what it says to what, in which order and exactly when."""

import trio
import trio.testing

from engine.elements import (
    Action,
    AnswerAgain,
    Commit,
    Image,
    InputAudio,
    InstructionType,
    RealtimeCommand,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    Sensory,
    SpeechItem,
    Text,
    Token,
    Transcript,
)
from engine.errors import ErrorCode
from engine.interfaces import (
    ChatFinished,
    ChatUsage,
    Message,
    Role,
    TokenUsage,
    Voice,
)
from engine.testing.chat import call, tokens
from providers.internal.history import CONTEXTUAL_INSTRUCTIONS, KEPT_IMAGES
from providers.internal.session import MAX_WAITING
from tests.providers.internal.fakes import (
    FakeSynthesizer,
    FakeTool,
    clock,
    context_line,
    goodbye,
    instruction,
    internal_properties,
    make_context,
    open_rig,
    said,
    user,
)

# --- an answer --------------------------------------------------------------------------------------------------------


async def test_an_answer_is_the_echo_the_words_with_their_speech_and_one_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig(["We open ", "at nine. ", "See you."]) as rig:
        await rig.send(user("When do you open?"))
        await trio.sleep(1)
        assert rig.elements[0] == Transcript("When do you open?", provider="Ears", response_id="response-1")
        assert [e.text for e in rig.elements if isinstance(e, Token)] == ["We open ", "at nine. ", "See you."]
        assert [e for e in rig.elements if isinstance(e, Text)] == [
            Text("We open at nine.", "response-1", 0),
            Text("See you.", "response-1", 1000),
        ]
        speech = [e for e in rig.elements if isinstance(e, SpeechItem)]
        assert {(e.sample_rate, e.response_id, e.provider) for e in speech} == {(24000, "response-1", "Fake")}
        assert sum(len(e.data) for e in speech) == 6 * 250 * 24 * 2
        assert rig.elements[-1] == ResponseEnd("response-1", ResponseStatus.COMPLETED)
        assert len(rig.ends) == 1
        [request] = rig.chat.requests
        assert said(request) == [("user", "When do you open?")]
        assert request.messages[0].text == "Be brief."
        assert request.temperature == 0.8
        assert request.locale == "en"


async def test_each_request_tells_what_was_said_before(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["Hello."], ["Fine."]) as rig:
        await rig.send(user("Hi"))
        await trio.sleep(1)
        await rig.send(user("How are you?"))
        await trio.sleep(1)
        assert said(rig.chat.requests[1]) == [("user", "Hi"), ("assistant", "Hello."), ("user", "How are you?")]


async def test_the_first_clause_is_spoken_before_its_sentence_is_known(autojump_clock: trio.testing.MockClock) -> None:
    words = "Of course I can do that, if you tell me when you want to come. And how many are you?"
    async with open_rig(tokens(words, 0.1), synthesizer=FakeSynthesizer(first_seconds=0.3)) as rig:
        await rig.send(user("A table"))
        await trio.sleep(10)
        assert rig.synthesizer.spoken == [
            (0.7, "Of course I can do that,"),  # with the word behind the comma
            (1.6, "if you tell me when you want to come."),  # with the word behind the full stop
            (2.0, "And how many are you?"),
        ]
        assert rig.at(SpeechItem)[0] == 1.0
        assert [(time, e) for time, e in rig.heard if isinstance(e, Text)] == [
            (
                1.6,
                Text("Of course I can do that, if you tell me when you want to come.", "response-1", 0),
            ),
            (2.0, Text("And how many are you?", "response-1", 15 * 250)),
        ]
        assert rig.at(ResponseEnd) == [2.3]


async def test_the_first_clause_after_a_tool_is_early_too(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(
        ["Let me look.", call("lookup")],
        tokens("The table by the window, which you had last time, is free.", 0.1),
        tools=[FakeTool("lookup", 1.0)],
    ) as rig:
        await rig.send(user("Is it free?"))
        await trio.sleep(10)
        assert rig.synthesizer.spoken == [
            (0, "Let me look."),
            (1.6, "The table by the window,"),
            (2.2, "which you had last time, is free."),
        ]
        assert [e.speech_ms for e in rig.elements if isinstance(e, Text)] == [0, 750]


async def test_a_writer_without_capitals_is_heard_to_the_end(autojump_clock: trio.testing.MockClock) -> None:
    """Behind its first clause the rest of such a text looks like one sentence; every sentence is shown all the same."""
    words = "sure thing my dear friend, i will book it for you. see you then. bye"
    async with open_rig(tokens(words, 0.1)) as rig:
        await rig.send(user("Book it"))
        await trio.sleep(10)
        assert " ".join(rig.texts) == words
        assert " ".join(rig.synthesizer.pieces) == words
        assert rig.texts == ["sure thing my dear friend, i will book it for you.", "see you then.", "bye"]
        assert [e.speech_ms for e in rig.elements if isinstance(e, Text)] == [0, 11 * 250, 14 * 250]


async def test_a_piece_without_sound_holds_nothing_up(autojump_clock: trio.testing.MockClock) -> None:
    synthesizer = FakeSynthesizer(silent=lambda text: text == "Hm.")
    async with open_rig(["Well. Hm. ", "All right."], synthesizer=synthesizer) as rig:
        await rig.send(user("Well?"))
        await trio.sleep(1)
        assert rig.texts == ["Well.", "Hm.", "All right."]
        assert [e.speech_ms for e in rig.elements if isinstance(e, Text)] == [0, 250, 250]
        assert len(rig.ends) == 1


async def test_an_answer_without_any_sound_is_shown_and_ends(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["Hm. Hm. Hm."], synthesizer=FakeSynthesizer(silent=lambda text: True)) as rig:
        await rig.send(user("Well?"))
        await trio.sleep(1)
        assert not any(element.data for _, element in rig.heard if isinstance(element, SpeechItem))
        assert len(rig.ends) == 1
        assert rig.texts == ["Hm."] * 3


async def test_on_a_text_only_connection_nothing_is_spoken(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(tokens("We open at nine. See you.", 0.1), text_only=True) as rig:
        await rig.send(user("When?"))
        await trio.sleep(2)
        assert [(time, e) for time, e in rig.heard if isinstance(e, Text)] == [
            (0.5, Text("We open at nine.", "response-1")),
            (0.6, Text("See you.", "response-1")),
        ]
        assert rig.summary() == ["Transcript", "Token", "Text", "Token", "Text", "ResponseEnd"]
        assert rig.synthesizer.spoken == []


async def test_an_answer_that_was_cut_by_its_length_is_incomplete(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["You can mo", ChatFinished(complete=False)], ["Yes."]) as rig:
        await rig.send(user("Can I move it?"))
        await trio.sleep(1)
        assert rig.texts == ["You can mo"]
        assert rig.ends == [ResponseEnd("response-1", ResponseStatus.INCOMPLETE)]
        await rig.send(user("Go on"))
        await trio.sleep(1)
        assert rig.ends[1:] == [ResponseEnd("response-2", ResponseStatus.COMPLETED)]


async def test_an_empty_answer_ends_and_leaves_no_message(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig([], ["Yes."]) as rig:
        await rig.send(user("Hm"), user("Hm?"))
        await trio.sleep(1)
        assert rig.summary() == [
            "Transcript",
            "ResponseEnd",
            "Transcript",
            "Token",
            "Text",
            "SpeechItem",
            "ResponseEnd",
        ]
        assert said(rig.chat.requests[1]) == [("user", "Hm"), ("user", "Hm?")]


async def test_inputs_are_answered_in_order(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig([*tokens("One.", 0.5)], [*tokens("Two.", 0.5)], [*tokens("Three.", 0.5)]) as rig:
        await rig.send(user("a"), user("b"), Action("intro"))
        await trio.sleep(3)
        assert [(time, e.text) for time, e in rig.heard if isinstance(e, Transcript)] == [
            (0, "a"),
            (0.5, "b"),
            (1.0, "#intro"),
        ]
        assert rig.texts == ["One.", "Two.", "Three."]
        assert rig.at(ResponseEnd) == [0.5, 1.0, 1.5]
        assert [e.response_id for e in rig.ends] == ["response-1", "response-2", "response-3"]


async def test_an_action_is_echoed_as_a_synthetic_transcript(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["Hello, how can I help?"]) as rig:
        await rig.send(Action("intro"))
        await trio.sleep(1)
        assert rig.elements[0] == Transcript("#intro", is_synthetic=True, provider="Internal", response_id="response-1")
        assert said(rig.chat.requests[0]) == [("user", "#intro")]


async def test_what_is_not_for_a_chat_model_is_passed_over(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["Yes."]) as rig:
        await rig.send(InputAudio(b"\0\0"), Commit(), Sensory({"light": 3}), user("Well?"))
        await trio.sleep(1)
        assert rig.texts == ["Yes."]


async def test_an_earlier_conversation_goes_on(autojump_clock: trio.testing.MockClock) -> None:
    messages = (
        Message(Role.USER, "Hi"),
        Message(Role.INSTRUCTION, "Be nice."),
        Message(Role.ASSISTANT, "Hello."),
    )
    async with open_rig(["Here I am."], context=make_context(messages=messages)) as rig:
        await rig.send(Action("intro"))
        await trio.sleep(1)
        assert said(rig.chat.requests[0]) == [("user", "Hi"), ("assistant", "Hello."), ("user", "#intro")]


async def test_the_voice_and_the_language_are_those_of_the_configuration_now(
    autojump_clock: trio.testing.MockClock,
) -> None:
    properties = internal_properties(tts={"voice": "marin"}, gender="female", temperature=0.2)
    context = make_context(properties, locales=("cs", "en"))
    async with open_rig(["Ano."], context=context) as rig:
        await rig.send(user("Ano?"))
        await trio.sleep(1)
        assert rig.synthesizer.voices == {Voice("marin", "female", "cs")}
        assert rig.chat.requests[0].temperature == 0.2
        assert rig.chat.requests[0].locale == "cs"


async def test_a_voice_that_is_set_to_nothing_has_no_name(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["Yes."], context=make_context(internal_properties(tts={"voice": None}))) as rig:
        await rig.send(user("Yes?"))
        await trio.sleep(1)
        assert rig.synthesizer.voices == {Voice("", None, "en")}


async def test_usage_adds_up_also_over_the_rounds_of_an_answer(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(
        ["Wait.", call("lookup"), ChatUsage(100, 10, 40)],
        ["Found.", ChatUsage(150, 20, 90)],
        ["Yes."],
        ["Bye.", ChatFinished(), ChatUsage(200, 5)],
        tools=[FakeTool("lookup")],
    ) as rig:
        await rig.send(user("Look"), user("Sure?"), user("Bye"))
        await trio.sleep(3)
        assert rig.session.usage == TokenUsage(450, 35, 130)


async def test_images_go_with_the_next_utterance_and_only_the_newest_are_kept(
    autojump_clock: trio.testing.MockClock,
) -> None:
    images = [Image(bytes([n]), "image/png") for n in range(KEPT_IMAGES + 2)]
    async with open_rig(["Nice."]) as rig:
        await rig.send(*images, user("Look"))
        await trio.sleep(1)
        await rig.send(user("And?"))
        await trio.sleep(1)
        await rig.send(images[0], user("And this?"))
        await trio.sleep(1)
        first, second, third = [
            [message.images for message in request.messages if message.role == "user"] for request in rig.chat.requests
        ]
        assert first == [tuple(images[2:])]
        assert second == [tuple(images[2:]), ()]
        assert third == [tuple(images[3:]), (), (images[0],)]


# --- answering again --------------------------------------------------------------------------------------------------


async def test_answering_again_adds_no_line_of_the_user(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig([*tokens("Never mind.", 0.4)], ["It is booked."]) as rig:
        await rig.send(user("book it for nine"))
        await trio.sleep(0.3)
        await rig.interrupt()
        await trio.sleep(2)
        await rig.send(AnswerAgain("book it for nine"))
        await trio.sleep(1)
        assert said(rig.chat.requests[1]) == [("user", "book it for nine")]
        assert rig.ends == [
            ResponseEnd("response-1", ResponseStatus.CANCELLED, is_synthetic=True),
            ResponseEnd("response-2"),
        ]
        echo = [e for e in rig.elements if isinstance(e, Transcript)][1]
        assert echo == Transcript("book it for nine", is_synthetic=True, provider="Internal", response_id="response-2")


async def test_answering_again_goes_on_from_what_was_heard(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["The first room is blue and has two beds. It is quiet."], ["It has two beds."]) as rig:
        await rig.send(user("Which rooms?"))
        await trio.sleep(1.3)
        await rig.interrupt()
        await trio.sleep(2)
        await rig.send(AnswerAgain("Which rooms?"))
        await trio.sleep(1)
        before, note = said(rig.chat.requests[1])[:-1], said(rig.chat.requests[1])[-1]
        assert before == [("user", "Which rooms?"), ("assistant", "The first room is blue")]
        assert note[0] == "system"
        assert "Go on where it stopped" in note[1]


# --- instructions -----------------------------------------------------------------------------------------------------


async def test_supporting_context_is_a_rolling_window_and_makes_nobody_speak(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig(["Yes."]) as rig:
        await rig.instruct(*(context_line(f"fact {n}") for n in range(CONTEXTUAL_INSTRUCTIONS + 2)))
        await trio.sleep(30)
        assert rig.elements == []
        await rig.send(user("Well?"))
        await trio.sleep(1)
        assert said(rig.chat.requests[0]) == [
            *(("system", f"fact {n}") for n in range(2, CONTEXTUAL_INSTRUCTIONS + 2)),
            ("user", "Well?"),
        ]


async def test_an_instruction_is_a_new_input_that_waits_its_turn(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(tokens("Yes.", 1.0), tokens("Ten percent off.", 0.1), tokens("Which day?", 0.1)) as rig:
        await rig.send(user("Is there a table?"))
        await trio.sleep(0.5)
        await rig.instruct(instruction("Mention the discount."), instruction("Which day?", InstructionType.COMMENTARY))
        await trio.sleep(5)
        assert rig.at(ResponseEnd) == [1.0, 1.3, 1.5]
        assert rig.texts == ["Yes.", "Ten percent off.", "Which day?"]
        assert len([e for e in rig.elements if isinstance(e, Transcript)]) == 1
        assert said(rig.chat.requests[2]) == [
            ("user", "Is there a table?"),
            ("assistant", "Yes."),
            ("system", "Instruction: Mention the discount."),
            ("assistant", "Ten percent off."),
            ("system", "Instruction: Say: Which day?"),
        ]


async def test_an_instruction_keeps_the_header_that_it_has(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["Yes."]) as rig:
        await rig.instruct(instruction("Instruction: say yes"))
        await trio.sleep(1)
        assert said(rig.chat.requests[0]) == [("system", "Instruction: say yes")]


async def test_an_instruction_that_waits_is_superseded_by_an_interruption(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig(tokens("One two three.", 1.0), ["Fine."]) as rig:
        await rig.send(user("Go"))
        await trio.sleep(0.5)
        await rig.instruct(instruction("Mention the discount."))
        await rig.interrupt()
        await trio.sleep(0.2)
        await rig.send(user("Stop"))
        await trio.sleep(5)
        assert len(rig.chat.requests) == 2
        assert said(rig.chat.requests[1]) == [("user", "Go"), ("user", "Stop")]


async def test_the_goodbye_of_an_instruction_ends_the_session(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["Goodbye."]) as rig:
        await rig.instruct(RealtimeInstruction("Say goodbye.", InstructionType.INSTRUCTION, ends_session=True))
        await trio.sleep(1)
        assert rig.elements[-2:] == goodbye("response-1")


async def test_a_tool_may_come_before_the_goodbye_of_an_instruction(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig([call("note")], ["Goodbye."], tools=[FakeTool("note")]) as rig:
        await rig.instruct(RealtimeInstruction("Say goodbye.", InstructionType.INSTRUCTION, ends_session=True))
        await trio.sleep(1)
        assert rig.texts == ["Goodbye."]
        assert rig.elements[-2:] == goodbye("response-1")


async def test_an_interruption_of_the_goodbye_of_an_instruction_keeps_the_session(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig(tokens("Goodbye.", 1.0), ["Yes?"]) as rig:
        await rig.instruct(RealtimeInstruction("Say goodbye.", InstructionType.INSTRUCTION, ends_session=True))
        await trio.sleep(0.5)
        await rig.interrupt()
        await rig.send(user("Wait"))
        await trio.sleep(5)
        assert not any(isinstance(e, RealtimeCommand) for e in rig.elements)
        assert rig.texts == ["Yes?"]


async def test_more_than_can_wait_is_left_out_and_said_so(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig([*tokens("Busy.", 1.0)], ["Yes."]) as rig:
        await rig.send(user("first"))
        await trio.testing.wait_all_tasks_blocked()
        await rig.send(*(user(f"line {n}") for n in range(MAX_WAITING + 1)))
        await trio.testing.wait_all_tasks_blocked()
        await rig.instruct(instruction("one too many"))
        await trio.sleep(5)
        assert [e.code for e in rig.elements if isinstance(e, RealtimeError)] == [ErrorCode.TOO_BUSY]
        assert len(rig.ends) == MAX_WAITING + 1


# --- the end of the inputs --------------------------------------------------------------------------------------------


async def test_the_end_of_the_inputs_ends_a_session_that_owes_nothing_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_rig(["Yes."]) as rig:
        await trio.sleep(1)
        rig.inputs.close()
        await trio.testing.wait_all_tasks_blocked()
        assert rig.returned_at == 1


async def test_at_the_end_of_the_inputs_what_is_owed_is_given(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(tokens("One.", 1.0), tokens("Two.", 1.0)) as rig:
        await rig.send(user("a"), user("b"))
        rig.inputs.close()
        await trio.sleep(5)
        assert rig.texts == ["One.", "Two."]
        assert rig.at(ResponseEnd) == [1.0, 2.0]
        assert rig.returned_at == 2.0


async def test_results_that_cannot_come_any_more_are_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    """They come as inputs: after the end of the inputs there are none, whenever the calls were made."""
    async with open_rig([1.0, "Wait.", call("lookup")], tools=[FakeTool("lookup", 5.0)]) as rig:
        await rig.send(user("Look"), user("Look again"))
        await trio.testing.wait_all_tasks_blocked()
        rig.inputs.close()
        await trio.sleep(10)
        assert rig.returned_at == 2.0
        assert [e.status for e in rig.ends] == [ResponseStatus.INCOMPLETE] * 2
        assert [bool(request.tools) for request in rig.chat.requests] == [True, False]


async def test_an_answer_that_waits_for_its_tools_ends_with_the_inputs(autojump_clock: trio.testing.MockClock) -> None:
    async with open_rig(["Wait.", call("lookup")], tools=[FakeTool("lookup", 5.0)]) as rig:
        await rig.send(user("Look"))
        await trio.sleep(1)
        rig.inputs.close()
        await trio.sleep(10)
        assert rig.returned_at == 1.0
        assert rig.ends == [ResponseEnd("response-1", ResponseStatus.INCOMPLETE)]


async def test_nothing_is_left_of_a_session_that_is_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    """`open_rig` asserts it on leaving, in the middle of everything."""
    synthesizer = FakeSynthesizer(chunk_seconds=0.2, unwind_seconds=0.1)
    async with open_rig(
        ["Wait a moment, please.", call("lookup"), *tokens("a b c d", 1.0)],
        tools=[FakeTool("lookup", 5.0)],
        synthesizer=synthesizer,
        unwind_seconds=0.2,
    ) as rig:
        await rig.send(user("Look"), user("Look again"))
        await trio.sleep(0.3)
    assert clock() == 0.5
