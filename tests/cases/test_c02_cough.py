"""C02: a cough cancels the reply, and the agent does not stay silent for good."""

import trio

from engine.elements import AnswerAgain, ResponseEnd, ResponseStatus, Transcript, UserSpeech
from engine.interfaces import Role
from engine.testing.scripted import ScriptedModel, ScriptedRecognizer, answer, echo, final, interim
from engine.testing.stage import Stage
from tests.scenarios.support import open_scene

BOOKING = "book it for nine"


def user_lines(stage: Stage) -> list[str]:
    return [message.text for message in stage.manager.contexts[0].messages if message.role is Role.USER]


async def test_c02_recognition_by_the_provider(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene() as stage:
        session = stage.model.session
        session.say(interim(), final(BOOKING))
        await trio.sleep(0.3)
        session.say(interim())
        await trio.sleep(0.1)
        session.say(ResponseEnd("r1", ResponseStatus.CANCELLED))
        await trio.sleep(1.899)
        assert session.of_type(AnswerAgain) == []
        await trio.sleep(0.002)
        assert session.received[-1] == (2.3, AnswerAgain(BOOKING))
        session.say(Transcript(BOOKING, is_synthetic=True))
        answer(session, "Booked.", "r2")
        await trio.sleep(25 - trio.current_time())
        session.say(interim(), final("hello?"))
        answer(session, "Yes, I am here.", "r3")
        await trio.sleep(1)
        assert stage.client.sentences == ["Booked.", "Yes, I am here."]
        assert user_lines(stage) == [BOOKING, "hello?"]
        ends = [(end["status"], end["turnId"]) for end in stage.client.commands("response-end")]
        assert ends == [("cancelled", "turn-1"), ("completed", "turn-2"), ("completed", "turn-3")]


async def test_c02_recognition_by_the_engine(autojump_clock: trio.testing.MockClock) -> None:
    recognizer = ScriptedRecognizer()

    async with open_scene(model=ScriptedModel(echo), recognizer=recognizer) as stage:
        recognizer.hear(interim(), final(BOOKING))
        await trio.sleep(0.2)
        recognizer.hear(interim())  # into the half second of speech
        await trio.sleep(25 - trio.current_time())
        assert stage.client.sentences == [f"You said {BOOKING}.", f"Again: {BOOKING}."]
        recognizer.hear(interim(), final("hello?"))
        await trio.sleep(1)
        assert stage.client.sentences[-1] == "You said hello?."
        assert user_lines(stage) == [BOOKING, "hello?"]
        assert [item.text for item in stage.model.session.of_type(UserSpeech) if isinstance(item, UserSpeech)] == [
            BOOKING,
            "hello?",
        ]


async def test_c02_a_model_that_does_not_answer_again(autojump_clock: trio.testing.MockClock) -> None:
    """The window of the cut reply was closed at once, and nothing is stuck in "the user is speaking"."""
    async with open_scene() as stage:
        session = stage.model.session
        session.say(interim(), final(BOOKING))
        await trio.sleep(0.3)
        session.say(interim())
        await trio.sleep(24.7)
        session.say(interim(), final("hello?"))
        answer(session, "Yes, I am here.", "r2")
        await trio.sleep(1)
        assert stage.client.sentences == ["Yes, I am here."]
        cut = [end for end in stage.client.commands("response-end") if end["status"] == "cancelled"]
        assert len(cut) == 1
        assert user_lines(stage) == [BOOKING, "hello?"]
