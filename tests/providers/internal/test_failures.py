"""What goes wrong in a part leaves the session as a RealtimeException of the right code, and nothing runs on."""

from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from engine import registry
from engine.config import RealtimeProperties
from engine.elements import ResponseEnd, ResponseStatus, UserSpeech
from engine.errors import ConfigurationError, ErrorCode, RealtimeException
from engine.interfaces import ChatModel, EmptyToolBox, PartFactory, SystemPrompt
from engine.llm_log import LoggedChat
from engine.testing.chat import Script, tokens
from providers.internal.model import KEPT_PARTS, InternalRealtimeModel
from providers.internal.properties import InternalProperties
from providers.internal.session import InternalSession
from tests.providers.internal.fakes import (
    FakeChat,
    FakeSynthesizer,
    clock,
    finder,
    internal_model,
    internal_properties,
    make_context,
    open_rig,
)

HELLO = UserSpeech("Hello", "Ears")


def failure(code: ErrorCode) -> Exception:
    return RealtimeException(code, "It failed.")


def only(code: ErrorCode) -> pytest.RaisesGroup[RealtimeException]:
    """Exactly one failure, of this code, in whatever groups the nurseries have put it."""
    expected = pytest.RaisesExc(RealtimeException, check=lambda error: error.code is code)
    return pytest.RaisesGroup(expected, flatten_subgroups=True)


CHAT_FAILURES = [
    (failure(ErrorCode.PROVIDER_AUTH), ErrorCode.PROVIDER_AUTH),
    (failure(ErrorCode.MODEL_NOT_FOUND), ErrorCode.MODEL_NOT_FOUND),
    (failure(ErrorCode.CHAT_FAILED), ErrorCode.CHAT_FAILED),
    (ValueError("unexpected"), ErrorCode.CHAT_FAILED),
    (ExceptionGroup("", [failure(ErrorCode.PROVIDER_QUOTA)]), ErrorCode.PROVIDER_QUOTA),
    (ExceptionGroup("", [OSError()]), ErrorCode.CHAT_FAILED),
]


@pytest.mark.parametrize(("raised", "code"), CHAT_FAILURES)
@pytest.mark.parametrize("before", [[], [1.0], tokens("The price is. And", 0.5)], ids=["at once", "silent", "speaking"])
async def test_a_failure_of_the_chat_model(
    autojump_clock: trio.testing.MockClock, before: Script, raised: Exception, code: ErrorCode
) -> None:
    with only(code):
        async with open_rig([*before, raised], synthesizer=FakeSynthesizer(chunk_seconds=0.5)) as rig:
            await rig.send(HELLO)
            await trio.sleep(30)
    assert clock() == sum(step for step in before if isinstance(step, float))


SYNTHESIS_FAILURES = [
    (failure(ErrorCode.PROVIDER_QUOTA), ErrorCode.PROVIDER_QUOTA),
    (KeyError("unexpected"), ErrorCode.SYNTHESIS_FAILED),
    (ExceptionGroup("", [failure(ErrorCode.PROVIDER_AUTH)]), ErrorCode.PROVIDER_AUTH),
]


@pytest.mark.parametrize(("raised", "code"), SYNTHESIS_FAILURES)
@pytest.mark.parametrize("piece", ["One.", "Two."])
async def test_a_failure_of_the_synthesis(
    autojump_clock: trio.testing.MockClock, piece: str, raised: Exception, code: ErrorCode
) -> None:
    synthesizer = FakeSynthesizer(first_seconds=0.5, fails=lambda text: raised if text == piece else None)
    with only(code):
        async with open_rig([*tokens("One. Two. Three."), 60.0], synthesizer=synthesizer) as rig:
            await rig.send(HELLO)
            await trio.sleep(90)
    assert clock() == (0.5 if piece == "One." else 1.0)


async def test_two_failures_at_once_are_both_told(autojump_clock: trio.testing.MockClock) -> None:
    raised = failure(ErrorCode.SYNTHESIS_FAILED)
    synthesizer = FakeSynthesizer(first_seconds=1.0, fails=lambda text: raised)
    with pytest.RaisesGroup(RealtimeException, RealtimeException, flatten_subgroups=True):
        async with open_rig(["One. Two", 1.0, failure(ErrorCode.CHAT_FAILED)], synthesizer=synthesizer) as rig:
            await rig.send(HELLO)
            await trio.sleep(90)


async def test_an_answer_that_fails_while_it_is_cut_ends_nothing(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What a part makes of being cancelled is its own affair: the user has gone on, and the next request shows what works."""
    async with open_rig([0.1, "Wait", failure(ErrorCode.CHAT_FAILED)], ["Yes."], unwind_seconds=1.0) as rig:
        await rig.send(HELLO)
        await trio.sleep(0.5)
        await rig.interrupt()
        await rig.send(HELLO)
        await trio.sleep(5)
        assert rig.ends == [
            ResponseEnd("response-1", ResponseStatus.CANCELLED, is_synthetic=True),
            ResponseEnd("response-2"),
        ]
        assert rig.texts == ["Yes."]
    assert "failed after it was cut" in caplog.text


# --- making one -------------------------------------------------------------------------------------------------------


def test_a_session_needs_properties_of_its_own_provider() -> None:
    model = internal_model(FakeChat([]), FakeSynthesizer())
    context = make_context(RealtimeProperties(provider="Other"))
    with pytest.raises(ConfigurationError, match="Other"):
        model.process(context, SystemPrompt(""), EmptyToolBox())


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"chat": {"provider": "Nobody"}}, "chat model named 'Nobody'"),
        ({"tts_provider": "Nobody", "chat": {"provider": "Demo"}}, "synthesizer named 'Nobody'"),
        ({"chat": {"model": "m"}}, "chat models names no provider"),
        ({"chat": {"provider": 3}}, "chat models names no provider"),
    ],
)
def test_a_part_that_cannot_be_found_is_named(fields: dict[str, object], named: str) -> None:
    """On the real registry."""
    context = make_context(internal_properties(**fields))
    with pytest.raises(ConfigurationError, match=named):
        InternalRealtimeModel().process(context, SystemPrompt(""), EmptyToolBox())


def test_a_text_only_session_needs_no_synthesizer() -> None:
    context = make_context(internal_properties(tts_provider="Nobody", chat={"provider": "Demo"}), text_only=True)
    session = InternalRealtimeModel().process(context, SystemPrompt(""), EmptyToolBox())
    assert session.synthesizer is None


def test_the_installed_defaults_can_be_named() -> None:
    defaults = InternalProperties()
    assert defaults.synthesis["provider"] in registry.names("synthesizers")
    assert defaults.stt_provider in registry.names("recognizers")
    assert defaults.chat["provider"] in registry.names("chat_models")


def part(session: InternalSession) -> ChatModel:
    """The session's chat model without what writes its calls down."""
    assert isinstance(session.chat, LoggedChat)
    return session.chat.chat


def test_a_part_is_made_once_for_each_configuration() -> None:
    made: list[tuple[str, object]] = []

    def find(group: str, name: str) -> PartFactory:
        def make(configuration: Mapping[str, Any]) -> Any:
            made.append((group, configuration))
            return finder(FakeChat([]), FakeSynthesizer())(group, name)({})

        return make

    model = InternalRealtimeModel(find)
    first, second = (
        internal_properties(chat={"provider": "A", "x": 1}),
        internal_properties(chat={"x": 1, "provider": "A"}),
    )
    sessions = [model.process(make_context(p), SystemPrompt(""), EmptyToolBox()) for p in (first, second)]
    assert part(sessions[0]) is part(sessions[1])
    assert made == [
        ("chat_models", {"provider": "A", "x": 1}),
        ("synthesizers", {"provider": "Local"}),
    ]
    for index in range(KEPT_PARTS):
        model.process(
            make_context(internal_properties(chat={"provider": str(index)})), SystemPrompt(""), EmptyToolBox()
        )
    again = model.process(make_context(first), SystemPrompt(""), EmptyToolBox())
    assert part(again) is not part(sessions[0])


def test_the_parts_that_can_be_loaded_beforehand_are_those_of_the_sessions() -> None:
    chat, synthesizer = FakeChat([]), FakeSynthesizer()
    model = internal_model(chat, synthesizer)
    assert model.parts(internal_properties()) == (chat, synthesizer)
    assert model.parts(RealtimeProperties(provider="Other")) == ()
    session = model.process(make_context(), SystemPrompt(""), EmptyToolBox())
    assert (part(session), session.synthesizer) == (chat, synthesizer)


def test_making_a_session_asks_nobody_for_anything() -> None:
    chat, synthesizer = FakeChat([]), FakeSynthesizer()
    internal_model(chat, synthesizer).process(make_context(), SystemPrompt(""), EmptyToolBox())
    assert (chat.asked, synthesizer.spoken) == ([], [])


async def test_the_next_answer_does_not_wait_for_what_is_unwound(autojump_clock: trio.testing.MockClock) -> None:
    synthesizer = FakeSynthesizer(chunk_seconds=0.5, unwind_seconds=0.3)
    async with open_rig(
        tokens("One two. Three four", 0.2), ["Yes."], synthesizer=synthesizer, unwind_seconds=0.4
    ) as rig:
        await rig.send(HELLO)
        await trio.sleep(0.7)
        await rig.interrupt()
        await rig.send(HELLO)
        await trio.sleep(0.1)
        assert rig.at(ResponseEnd)[0] == 0.7
        assert rig.chat.times == [0, 0.7]
        assert rig.chat.open_streams == 0
        rig.inputs.close()
        await trio.sleep(5)
        assert rig.returned_at == 1.4, "the session returns when everything is unwound"
