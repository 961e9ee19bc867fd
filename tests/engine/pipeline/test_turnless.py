"""A conversation without turns passes straight through (L17, M6, M7)."""

import trio

from engine.elements import OutCommand, OutSpeech, RealtimeDelegation, ResponseEnd, SpeechItem, Token, Transcript
from engine.interfaces import Role
from engine.store.documents import SessionState
from engine.testing.faults import Fault, FaultyStore
from engine.testing.scripted import speech
from engine.testing.stage import open_stage, scripted_environment


async def test_sentences_are_released_after_300_ms(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage(turnless=True) as stage:
        stage.model.session.say(Token("Let me", "r"), Token(" check.", "r"))
        await trio.sleep(0.299)
        assert stage.client.sentences == []
        await trio.sleep(0.002)
        assert stage.client.sentences == ["Let me check."]
        stage.model.session.say(Token(" One mom", "r"))
        await trio.sleep(60)
        stage.client.end()
        await stage.over.wait()
        assert stage.client.sentences == ["Let me check.", "One mom"]
        assert [what for _, what in stage.manager.ran] == [
            "assistant: Let me check.",
            "assistant: One mom",
            "evaluation",
            "disconnected",
        ]


async def test_there_are_no_turns_and_no_response_ends(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage(turnless=True) as stage:
        say = stage.model.session.say
        say(Transcript("what is it", is_asynchronous=True), Token("It is", "r"), SpeechItem(speech(40), 24000, "r"))
        say(ResponseEnd("r"), RealtimeDelegation("d1", "what is it", 40))
        await trio.sleep(3600 - 60)
        names = [e.name for e in stage.client.elements if isinstance(e, OutCommand)]
        assert names == ["ready", "realtime-delegation"]
        stage.vanish()
        await stage.over.wait()
        assert stage.ended_at == 3540
        stored = await stage.store.get_session("session-1")
        assert stored is not None
        assert stored.state is SessionState.DISCONNECTED
        assert await stage.store.get_turns("session-1", limit=10) == []
        assert len(await stage.store.get_usage("session-1")) == 1


async def test_silence_is_forwarded_for_an_eighth_of_a_second(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage(turnless=True) as stage:
        frame = bytes(24000 // 50 * 2)
        for _ in range(50):
            stage.model.session.say(SpeechItem(frame, 24000, "r"))
        await trio.sleep(1)
        heard = [e for e in stage.client.elements if isinstance(e, OutSpeech)]
        assert [e.is_last for e in heard] == [False] * 6 + [True]
        stage.model.session.say(SpeechItem(speech(20), 24000, "r"))
        await trio.sleep(1)
        assert sum(isinstance(e, OutSpeech) for e in stage.client.elements) == 8


async def test_both_sides_lines_are_stored_and_are_the_history_of_the_next_run(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, environment = FaultyStore(), scripted_environment()
    for run in range(2):
        async with open_stage(turnless=True, store=store, environment=environment, session_id="S") as stage:
            context = stage.manager.contexts[0]
            assert context.is_reconnect == (run > 0)
            assert [(m.role, m.text) for m in context.messages] == [
                (Role.USER, "what is it"),
                (Role.ASSISTANT, "It is four."),
            ] * run
            stage.model.session.say(Transcript("what is it", is_asynchronous=True), Token("It is four.", "r"))
            await trio.sleep(1)
            stage.vanish()
            await stage.over.wait()
    lines = await store.get_messages("S", limit=10)
    assert [(line.position, line.role, line.text) for line in lines] == [
        (0, "user", "what is it"),
        (1, "assistant", "It is four."),
        (2, "user", "what is it"),
        (3, "assistant", "It is four."),
    ]
    session = await store.get_session("S")
    assert session is not None
    assert (session.state, session.fence) == (SessionState.DISCONNECTED, 2)


async def test_lines_that_cannot_be_stored_now_are_stored_later_in_order(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = FaultyStore(lambda call: Fault.FAIL if call.operation == "append_messages" and call.at < 3 else None)
    async with open_stage(turnless=True, store=store, session_id="S") as stage:
        for number in range(3):
            stage.model.session.say(Token(f"Line {number}.", "r"))
            await trio.sleep(1)
        await trio.sleep(5)
        assert [line.text for line in await store.get_messages("S", limit=10)] == ["Line 0.", "Line 1.", "Line 2."]
