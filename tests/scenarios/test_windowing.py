"""Several sessions on one connection, and one session on several connections (SPEC L3, L4, L5, L6)."""

from contextlib import AbstractAsyncContextManager

import pytest
import trio
from trio.testing import MockClock

from engine.config import Settings
from engine.elements import (
    Action,
    ControlToken,
    InputElement,
    InputText,
    OutCommand,
    OutError,
    OutputElement,
    Playback,
    UserSpeech,
)
from engine.errors import ErrorCode
from engine.interfaces import Role
from engine.principal import Principal
from engine.session.windowing import NORMAL, OUR_FAULT, POLICY
from engine.store.documents import SessionState
from engine.testing.contract import sessions_of
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedModel, answer, echo, final, interim
from engine.testing.stage import ScriptedAgent, Stage, scripted_environment
from tests.scenarios.support import open_scene


def ready(key: str = "agent:tester", session_id: str = "") -> ControlToken:
    return ControlToken("ready", parameters={"key": key, "sessionId": session_id})


EXIT, END = ControlToken("exit"), ControlToken("end")


def errors(stage: Stage) -> list[tuple[float, ErrorCode]]:
    return [(time, e.code) for time, e in stage.client.heard if isinstance(e, OutError)]


def commands(elements: list[tuple[float, OutputElement]]) -> list[str]:
    return [element.name for _, element in elements if isinstance(element, OutCommand)]


# --- several sessions on one connection -------------------------------------------------------------------------------


async def test_one_session_after_the_other(autojump_clock: MockClock) -> None:
    """Each has its own id, prompt, memory and turns; nothing of one is in the next."""
    store = FaultyStore()
    async with open_scene(model=ScriptedModel(echo), store=store, key="") as stage:
        await trio.sleep(1)
        assert stage.client.heard == [], "without a key nothing begins by itself"
        await stage.client.send(ready(session_id="A"), InputText("one"))
        await trio.sleep(1)
        await stage.client.send(EXIT, ready(session_id="B"), InputText("two"))
        await trio.sleep(1)
        await stage.client.send(EXIT, END)
        await stage.over.wait()
        first, second = sessions_of(stage.client.heard)
        assert commands(first) == commands(second) == ["ready", "response-end", "exit", "session-end"]
        assert [c["sessionId"] for c in stage.client.commands("session-end")] == ["A", "B"]
        assert [c["state"] for c in stage.client.commands("session-end")] == ["CLOSED", "CLOSED"]
        assert [(turn.session_id, turn.index, turn.input.text) for turn in store.turns] == [
            ("A", 0, "one"),
            ("B", 0, "two"),
        ]
        assert [[m.text for m in context.messages] for context in stage.manager.contexts] == [
            ["one", "You said one."],
            ["two", "You said two."],
        ]
        assert [s.of_type(UserSpeech) for s in stage.model.sessions] == [
            [UserSpeech("one", "Client")],
            [UserSpeech("two", "Client")],
        ]
        assert stage.end is not None
        assert stage.end.code == NORMAL


async def test_ready_inside_a_session_ends_that_one_first(autojump_clock: MockClock) -> None:
    """Its open answer may finish; what was sent behind the token is the next session's."""
    async with open_scene(session_id="A") as stage:
        session = stage.model.session
        session.say(interim(), final("one", response_id="r1"))
        await stage.client.send(ready(session_id="B"), InputText("two"))
        await trio.sleep(2)
        assert len(stage.model.sessions) == 1
        answer(session, "One.", "r1")
        await trio.sleep(1)
        assert stage.client.sentences == ["One."]
        assert [c["sessionId"] for c in stage.client.commands("session-end")] == ["A"]
        assert [c["sessionId"] for c in stage.client.commands("ready")] == ["A", "B"]
        assert stage.model.session.of_type(UserSpeech) == [UserSpeech("two", "Client")]
        stage.model.session.say(final("two", "Client"))
        answer(stage.model.session, "Two.", "r2")


async def test_the_same_session_again_on_the_same_connection(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with open_scene(model=ScriptedModel(echo), store=store, session_id="A") as stage:
        await stage.client.send(InputText("one"))
        await trio.sleep(1)
        await stage.client.send(EXIT, ready(session_id="A"), InputText("two"))
        await trio.sleep(1)
        assert [(turn.index, turn.input.text) for turn in store.turns] == [(0, "one"), (1, "two")]
        assert [context.is_reconnect for context in stage.manager.contexts] == [False, True]


async def test_between_sessions_everything_is_dropped_and_said_so_once(autojump_clock: MockClock) -> None:
    async with open_scene(model=ScriptedModel(echo)) as stage:
        await stage.client.send(EXIT)
        await trio.sleep(1)
        await stage.client.send(EXIT, Playback("r1", 10))
        await trio.sleep(1)
        assert errors(stage) == [], "these cross with the end of a session, and harm nobody"
        await stage.client.send(InputText("one"), InputText("two"), Action("intro"))
        await trio.sleep(1)
        assert errors(stage) == [(2, ErrorCode.NO_SESSION)]
        await stage.client.send(ready())
        await trio.sleep(1)
        await stage.client.send(EXIT, InputText("three"))
        await trio.sleep(1)
        assert errors(stage) == [(2, ErrorCode.NO_SESSION), (4, ErrorCode.NO_SESSION)]
        assert stage.client.sentences == []


@pytest.mark.parametrize("key", ["", "agent:tester"])
async def test_end_ends_session_and_connection(autojump_clock: MockClock, key: str) -> None:
    async with open_scene(model=ScriptedModel(echo), key=key) as stage:
        await stage.client.send(*([] if key else [ready()]), InputText("one"))
        await trio.sleep(1)
        await stage.client.send(END, ready(), InputText("two"))
        await stage.over.wait()
        assert trio.current_time() == 1
        assert stage.client.sentences == ["You said one."]
        assert stage.end is not None
        assert stage.end.code == NORMAL


async def test_a_door_that_ends_the_input_ends_the_session(autojump_clock: MockClock) -> None:
    async with open_scene(model=ScriptedModel(echo)) as stage:
        await stage.client.send(InputText("one"))
        stage.client.end()
        await stage.over.wait()
        assert stage.client.sentences == ["You said one."]
        assert [c["state"] for c in stage.client.commands("session-end")] == ["CLOSED"]


@pytest.mark.parametrize(
    "token",
    [ready(key=""), ready(session_id="no spaces allowed"), ready(session_id="x" * 129)],
    ids=["no key", "bad id", "long id"],
)
async def test_a_ready_that_says_nothing_useful_is_refused(autojump_clock: MockClock, token: ControlToken) -> None:
    async with open_scene(key="") as stage:
        await stage.client.send(token)
        await trio.sleep(1)
        assert errors(stage) == [(0, ErrorCode.BAD_ELEMENT)]
        await stage.client.send(ready())
        await stage.client.wait_for_command("ready")


@pytest.mark.parametrize(
    ("key", "code", "close"),
    [
        ("agent:nobody", ErrorCode.NOT_FOUND, POLICY),
        ("choir:tester", ErrorCode.SETUP_NOT_ALLOWED, POLICY),
        ("realtime:", ErrorCode.NOT_FOUND, POLICY),
    ],
)
async def test_a_session_that_cannot_be_had_is_refused(
    autojump_clock: MockClock, key: str, code: ErrorCode, close: int
) -> None:
    """With the connection's own key the connection ends; after a `#ready` the next one may be better."""
    async with open_scene(key=key) as stage:
        await stage.over.wait()
        assert errors(stage) == [(0, code)]
        assert commands(stage.client.heard) == ["session-end"]
        assert stage.end is not None
        assert stage.end.code == close
    async with open_scene(key="") as stage:
        await stage.client.send(ready(key))
        await trio.sleep(1)
        await stage.client.send(ready())
        await stage.client.wait_for_command("ready")
        assert [error for _, error in errors(stage)] == [code]


async def test_a_setup_can_be_switched_off(autojump_clock: MockClock) -> None:
    async with open_scene(settings=Settings(allowed_setup_names=("realtime",))) as stage:
        await stage.over.wait()
        assert errors(stage) == [(0, ErrorCode.SETUP_NOT_ALLOWED)]


async def test_a_provider_that_dies_ends_the_connection_of_its_key(autojump_clock: MockClock) -> None:
    async with open_scene() as stage:
        stage.model.session.fail(OSError("reset"))
        await stage.over.wait()
        assert stage.end is not None
        assert (stage.end.code, stage.end.reason) == (OUR_FAULT, "provider_unavailable")


# --- one session on several connections -------------------------------------------------------------------------------


async def test_a_reconnect_goes_on_where_it_was(autojump_clock: MockClock) -> None:
    """The history is there, nothing the user said is stored again, the count of turns goes on, `intro` is no message."""
    store, environment = FaultyStore(), scripted_environment()
    async with open_scene(model=ScriptedModel(echo), store=store, environment=environment, session_id="A") as stage:
        await stage.client.send(InputText("one"))
        await trio.sleep(1)
        stage.vanish()
        await stage.over.wait()
        assert store.saved_sessions[-1].state is SessionState.DISCONNECTED
    async with open_scene(model=ScriptedModel(echo), store=store, environment=environment, session_id="A") as stage:
        (context,) = stage.manager.contexts
        assert context.is_reconnect
        assert [(m.role, m.text) for m in context.messages] == [(Role.USER, "one"), (Role.ASSISTANT, "You said one.")]
        await stage.client.send(Action("intro"))
        await trio.sleep(1)
        await stage.client.send(InputText("two"), END)
        await stage.over.wait()
        assert [m.text for m in context.messages if m.role is Role.USER] == ["one", "two"]
        assert [(turn.index, turn.input.text, turn.input.kind) for turn in store.turns] == [
            (0, "one", "text"),
            (1, "#intro", "action"),
            (2, "two", "text"),
        ]
        last = store.saved_sessions[-1]
        assert (last.state, last.turn_count) == (SessionState.CLOSED, 3)
        assert [usage.turns for usage in store.written_usage] == [1, 2]


async def test_what_was_cut_is_remembered_as_it_was_heard(autojump_clock: MockClock) -> None:
    """A client that vanishes in the middle of an answer has heard what it had played by then."""
    store, environment = FaultyStore(), scripted_environment()
    async with open_scene(store=store, environment=environment, session_id="A") as stage:
        stage.model.session.say(interim(), final("tell me", response_id="r1"))
        answer(stage.model.session, "One two three four.", "r1", ms=2000)
        await trio.sleep(1.1)
        stage.vanish()
        await stage.over.wait()
        assert [output.heard for output in store.turns[0].output] == ["One two"]
        assert store.turns[0].interrupted


async def test_another_owner_gets_nothing(autojump_clock: MockClock) -> None:
    store, environment = FaultyStore(), scripted_environment()

    def connect(owner: str) -> AbstractAsyncContextManager[Stage]:
        model = ScriptedModel(echo)
        return open_scene(model=model, principal=Principal(owner), store=store, environment=environment, session_id="A")

    async with connect("device:one") as stage:
        await stage.client.send(InputText("a secret"))
        await trio.sleep(1)
        async with connect("device:two") as intruder:
            await intruder.over.wait()
            assert errors(intruder) == [(1, ErrorCode.FORBIDDEN)]
            assert commands(intruder.client.heard) == ["session-end"]
            assert intruder.manager.contexts == []
            assert intruder.model.sessions == []
            assert "secret" not in str(intruder.client.heard)
            assert intruder.end is not None
            assert intruder.end.code == POLICY
        await stage.client.send(InputText("still here"))
        await trio.sleep(1)
        assert stage.client.sentences[-1] == "You said still here."
        session = await store.get_session("A")
        assert session is not None
        assert session.state is SessionState.OPEN


# --- what may be sent inside a session --------------------------------------------------------------------------------


async def test_locales_are_replaced_until_the_end_of_the_session(autojump_clock: MockClock) -> None:
    async with open_scene(model=ScriptedModel(echo), locales=("en",)) as stage:
        await stage.client.send(ControlToken("locales", "cs, en-GB"))
        await trio.sleep(1)
        assert stage.manager.contexts[0].configuration.locales == ("cs", "en-GB")
        for bad in ("", "cs,,en", "čeština", ",".join(["en"] * 21)):
            await stage.client.send(ControlToken("locales", bad))
        await trio.sleep(1)
        assert [code for _, code in errors(stage)] == [ErrorCode.BAD_ELEMENT] * 4
        assert stage.manager.contexts[0].configuration.locales == ("cs", "en-GB")
        await stage.client.send(ready())
        await trio.sleep(1)
        assert stage.manager.contexts[1].configuration.locales == ("en",)


async def test_a_rating_is_saved_at_once(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with open_scene(store=store) as stage:
        await stage.client.send(Action("rating", {"value": "4", "text": "fine" * 1000}))
        await trio.testing.wait_all_tasks_blocked()
        saved = store.saved_sessions[-1]
        assert (saved.rating, saved.state, len(saved.rating_text)) == (4, SessionState.OPEN, 2000)
        for bad in ("", "0", "6", "five", "4.5"):
            await stage.client.send(Action("rating", {"value": bad}))
        await trio.sleep(1)
        assert [code for _, code in errors(stage)] == [ErrorCode.BAD_ELEMENT] * 5
        stage.vanish()
        await stage.over.wait()
        assert (store.saved_sessions[-1].rating, store.saved_sessions[-1].state) == (4, SessionState.DISCONNECTED)


async def test_what_cannot_be_used_is_refused_and_the_session_goes_on(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with open_scene(model=ScriptedModel(echo), settings=Settings(text_characters=100), store=store) as stage:
        refused: list[tuple[InputElement, ErrorCode]] = [
            (Action("dance"), ErrorCode.UNKNOWN_ACTION),
            (InputText("x" * 101), ErrorCode.TOO_LARGE),
            (ControlToken("authorization", "Bearer x"), ErrorCode.UNAUTHORIZED),
            (ControlToken("somersault"), ErrorCode.BAD_ELEMENT),
        ]
        for element, _ in refused:
            await stage.client.send(element)
        await stage.client.send(InputText(" \n"), InputText("x" * 100))
        await trio.sleep(1)
        assert [code for _, code in errors(stage)] == [code for _, code in refused]
        assert all(e.recoverable for e in stage.client.elements if isinstance(e, OutError))
        assert stage.model.session.of_type(UserSpeech) == [UserSpeech("x" * 100, "Client")]
        assert "dance" not in str(stage.model.session.received)
        assert [turn.input.text for turn in store.turns] == ["x" * 100]


async def test_the_opening_is_asked_for(autojump_clock: MockClock) -> None:
    """The engine never speaks unasked (L21); `#intro` counts as the final of its turn and is no user message."""
    async with open_scene(model=ScriptedModel(echo), agent=ScriptedAgent()) as stage:
        await trio.sleep(100)
        assert commands(stage.client.heard) == ["ready"]
        await stage.client.send(Action("intro"))
        await trio.sleep(1)
        assert [(t.text, t.is_interim, t.is_synthetic) for t in stage.client.transcripts] == [
            (".", True, True),
            ("#intro", False, True),
        ]
        assert stage.client.sentences == ["Hello."]
        assert [m.text for m in stage.manager.contexts[0].messages] == ["Hello."]
