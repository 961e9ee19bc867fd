"""A session has one holder: who opens it again takes it over at once, in the same process or in another (case C41)."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from engine.elements import Action, ControlToken, InputText, OutError, SpeechItem, Token
from engine.errors import ErrorCode
from engine.principal import (
    AccessRole,
    Credential,
    CredentialKind,
    NobodyKnown,
    Principal,
    ProjectAccess,
    UnauthorizedError,
)
from engine.session.chat_event import run_chat_event
from engine.session.live import LiveSessions, server_stops
from engine.session.windowing import GOING_AWAY, POLICY
from engine.store.documents import SessionState
from engine.testing.faults import Fault, FaultyStore, StoreCall, no_faults
from engine.testing.scripted import ScriptedModel, answer, echo, final, interim, speech
from engine.testing.stage import ScriptedManager, Stage, open_stage, scripted_environment
from tests.scenarios.support import open_scene


def codes(stage: Stage) -> list[ErrorCode]:
    return [element.code for element in stage.client.elements if isinstance(element, OutError)]


class Place:
    """Where connections meet: one store, and one process or several."""

    def __init__(self, *, one_process: bool) -> None:
        self.store = FaultyStore()
        self.environment = scripted_environment()
        self._live = LiveSessions() if one_process else None

    def connect(self, **parts: Any) -> Any:
        """A connection for session S, of the same owner."""
        live = LiveSessions() if self._live is None else self._live
        fields: dict[str, Any] = {"model": ScriptedModel(echo), "session_id": "S", "watch": self._live is None}
        return open_stage(store=self.store, environment=self.environment, live=live, **(fields | parts))

    async def state(self) -> SessionState:
        session = await self.store.get_session("S")
        assert session is not None
        return session.state

    async def indexes(self) -> list[int]:
        return [turn.index for turn in await self.store.get_turns("S", limit=100)]


@pytest.fixture(params=[True, False], ids=["one process", "two processes"])
def place(request: pytest.FixtureRequest) -> Place:
    return Place(one_process=request.param)


async def say(stage: Stage, *texts: str) -> None:
    for text in texts:
        await stage.client.send(InputText(text))
        await trio.sleep(1)


async def test_the_second_connection_has_the_session_at_once(place: Place, autojump_clock: MockClock) -> None:
    async with place.connect() as a:
        await say(a, "one", "two")
        async with place.connect() as b:
            assert [c["sessionId"] for c in b.client.commands("ready")] == ["S"]
            assert b.manager.contexts[0].is_reconnect
            assert [m.text for m in b.manager.contexts[0].messages][:2] == ["one", "You said one."]
            await trio.sleep(2)
            assert a.over.is_set()
            assert a.end is not None
            assert (a.end.code, a.end.reason) == (POLICY, "taken_over")
            assert codes(a) == [ErrorCode.TAKEN_OVER]
            heard = len(a.client.heard)
            await say(b, "three")
            assert len(a.client.heard) == heard
            assert await place.state() is SessionState.OPEN
            await b.client.send(ControlToken("end"))
            await b.over.wait()
            assert await place.state() is SessionState.CLOSED
            session = await place.store.get_session("S")
            assert session is not None
            assert (session.turn_count, session.fence) == (3, 2)
            assert await place.indexes() == [0, 1, 2]


async def test_one_that_is_taken_over_in_mid_answer_says_nothing_more(place: Place, autojump_clock: MockClock) -> None:
    async with place.connect(model=ScriptedModel()) as a:
        a.model.session.say(interim(), final("tell me"))
        a.model.session.say(Token("A long story begins.", "r1"), SpeechItem(speech(20_000), 24000, "r1"))
        await trio.sleep(1)
        async with place.connect() as b:
            await trio.sleep(2)
            assert a.over.is_set()
            last = a.client.commands("session-end")
            assert [(e["state"], e["reason"]) for e in last] == [("DISCONNECTED", "taken over by another connection")]
            await say(b, "go on")
            turns = await place.store.get_turns("S", limit=10)
            assert len({turn.index for turn in turns}) == len(turns), "no index is used twice"
            assert turns[-1].input.text == "go on"
            assert await place.state() is SessionState.OPEN
            assert a.manager.ran[-1][1] == "disconnected"
            assert len(await place.store.get_usage("S")) == 1


async def test_in_one_process_the_open_turn_is_saved_first_and_known_to_the_next(autojump_clock: MockClock) -> None:
    place = Place(one_process=True)
    async with place.connect(model=ScriptedModel()) as a:
        a.model.session.say(interim(), final("tell me"))
        answer(a.model.session, "One two three four.", "r1", ms=2000)
        await trio.sleep(1.1)
        async with place.connect() as b:
            assert [message.text for message in b.manager.contexts[0].messages] == ["tell me", "One two"]
            assert trio.current_time() == 1.1
            assert [e["saved"] for e in a.client.commands("exit")] == [True]


async def test_a_store_that_hangs_does_not_hold_up_the_next_holder(autojump_clock: MockClock) -> None:
    place = Place(one_process=True)

    def hang(call: StoreCall) -> Fault | None:
        return Fault.HANG if call.operation == "append_turns" else None

    place.store.plan = hang
    async with place.connect() as a:
        await say(a, "one")
        async with place.connect() as b:
            await trio.sleep(1.5)
            assert b.client.commands("ready")
            place.store.plan = no_faults
            await a.over.wait()
            assert await place.state() is SessionState.OPEN


async def test_what_the_older_one_writes_late_is_refused(autojump_clock: MockClock) -> None:
    """In another process, and stuck in the store until long after: a stalled worker that wakes up (case C50)."""
    place = Place(one_process=False)

    def stall(call: StoreCall) -> float | None:
        return 30.0 if call.operation == "append_turns" and call.at == 0 else None

    place.store.plan = stall
    async with place.connect(watch=False) as a:
        await say(a, "one")
        await trio.sleep(4)
        async with place.connect() as b:
            await say(b, "two")
            assert [turn.input.text for turn in place.store.written_turns] == ["two"]
            await trio.sleep(60)
            assert a.over.is_set()
            assert codes(a) == [ErrorCode.TAKEN_OVER]
            assert [turn.input.text for turn in place.store.turns] == ["two"]
            assert await place.state() is SessionState.OPEN
            await say(b, "three")
            assert await place.indexes() == [0, 1]


@pytest.mark.parametrize("stage_of_a", [0.5, 1.5, 2.5])
async def test_one_that_has_not_begun_is_taken_over_too(
    stage_of_a: float, place: Place, autojump_clock: MockClock
) -> None:
    """While it is opened, while its manager starts, while its provider connects."""

    def slow(call: StoreCall) -> float | None:
        return 1.0 if call.operation == "open_session" and call.of_operation == 1 else None

    place.store.plan = slow
    async with place.connect(model=ScriptedModel(ready_after=1), manager=ScriptedManager(start_seconds=1)) as a:
        await trio.sleep(stage_of_a)
        async with place.connect() as b:
            await trio.sleep(10)
            alive = [stage for stage in (a, b) if not stage.over.is_set()]
            assert len(alive) == 1
            assert await place.state() is SessionState.OPEN
            if stage_of_a > 1:
                assert alive == [b]


async def test_ten_connections_for_one_session_leave_one(place: Place, autojump_clock: MockClock) -> None:
    stages: list[Stage] = []
    over = trio.Event()

    async def come() -> None:
        async with place.connect() as stage:
            stages.append(stage)
            await over.wait()

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(come)
        await trio.sleep(5)
        alive = [stage for stage in stages if not stage.over.is_set()]
        assert len(alive) == 1
        assert len(stages) == 10
        await say(alive[0], "hello")
        assert await place.indexes() == [0]
        over.set()


async def test_another_owner_takes_over_nothing(place: Place, autojump_clock: MockClock) -> None:
    async with place.connect() as a:
        await say(a, "a secret")
        async with place.connect(principal=Principal("device:other")) as b:
            await b.over.wait()
            assert codes(b) == [ErrorCode.FORBIDDEN]
            assert b.model.sessions == []
        await trio.sleep(2)
        assert not a.over.is_set()
        await say(a, "still here")
        assert a.client.sentences[-1] == "You said still here."


# --- the server's stop, and credentials -----------------------------------------------------------------------------------


async def test_a_server_that_stops_ends_it_saved_and_lets_it_come_back(autojump_clock: MockClock) -> None:
    store, environment = FaultyStore(), scripted_environment()
    async with open_scene(session_id="S", store=store, environment=environment) as stage:
        stage.model.session.say(interim(), final("tell me"))
        answer(stage.model.session, "One two three four.", "r1", ms=2000)
        await trio.sleep(1)
        stage.services.live.refuse_new()
        stage.services.live.end_all(server_stops())
        await stage.over.wait()
        assert stage.end is not None
        assert (stage.end.code, codes(stage)) == (GOING_AWAY, [])
        assert [e["reason"] for e in stage.client.commands("session-end")] == ["the server is stopping"]
        session = await store.get_session("S")
        assert session is not None
        assert session.state is SessionState.DISCONNECTED
        assert [turn.input.text for turn in store.turns] == ["tell me"]
    async with open_scene(session_id="S", store=store, environment=environment, model=ScriptedModel(echo)) as stage:
        assert stage.manager.contexts[0].is_reconnect


async def test_a_server_that_stops_takes_nobody(autojump_clock: MockClock) -> None:
    live = LiveSessions()
    live.refuse_new()
    async with open_stage(live=live) as stage:
        await stage.over.wait()
        assert codes(stage) == [ErrorCode.TOO_BUSY]
        assert stage.model.sessions == []


KEY = Credential(CredentialKind.API_KEY, "k1")


class Register(NobodyKnown):
    """Knows two users by their names, and which credentials were revoked."""

    def __init__(self) -> None:
        self.gone: set[Credential] = set()
        self.asked: list[float] = []

    async def authenticate_value(self, value: str) -> Principal:
        await trio.lowlevel.checkpoint()
        if value not in ("anna", "ben"):
            raise UnauthorizedError("These credentials are not right.")
        return Principal(f"user:{value}", user_id=value, credential=Credential(CredentialKind.TOKEN, value, value))

    async def revoked(self, credentials: Sequence[Credential]) -> Sequence[Credential]:
        self.asked.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        return [credential for credential in credentials if credential in self.gone]


async def test_revoked_credentials_end_what_they_opened_within_30_seconds(autojump_clock: MockClock) -> None:
    register = Register()
    anna = Principal("user:anna", user_id="anna", credential=KEY)
    async with open_stage(authenticator=register, principal=anna, watch=True, session_id="S") as stage:
        async with open_stage(authenticator=register, store=stage.store, watch=True) as other:
            await trio.sleep(12)
            register.gone.add(KEY)
            await stage.over.wait()
            assert trio.current_time() == 20
            assert codes(stage) == [ErrorCode.UNAUTHORIZED]
            assert stage.end is not None
            assert (stage.end.code, stage.end.reason) == (POLICY, "unauthorized")
            session = await stage.store.get_session("S")
            assert session is not None
            assert session.state is SessionState.DISCONNECTED
            assert not other.over.is_set()


async def test_nothing_is_asked_while_nobody_talks(autojump_clock: MockClock) -> None:
    register, store = Register(), FaultyStore()
    async with open_stage(authenticator=register, watch=True, store=store) as stage:
        await stage.client.send(ControlToken("end"))
        await stage.over.wait()
        await trio.sleep(5)  # a look that was under way
        asked = len(store.calls)
        await trio.sleep(3600)
        assert len(store.calls) == asked
        assert register.asked == []


async def test_other_credentials_replace_the_principal_and_never_the_owner(autojump_clock: MockClock) -> None:
    """Case C43 b."""
    store = FaultyStore()
    anna = Principal("user:anna", user_id="anna", credential=KEY)
    async with open_scene(
        authenticator=Register(), principal=anna, store=store, session_id="S", model=ScriptedModel(echo)
    ) as stage:
        await stage.client.send(ControlToken("authorization", "ben"))
        await say(stage, "hello")
        context = stage.manager.contexts[0]
        assert context.principal.user_id == "ben"
        await stage.client.send(ControlToken("authorization", "mallory"))
        await say(stage, "and now")
        assert codes(stage) == [ErrorCode.UNAUTHORIZED]
        assert context.principal.user_id == "ben"
        await stage.client.send(ControlToken("ready", parameters={"key": "agent:tester", "sessionId": "T"}))
        await trio.sleep(1)
        assert stage.manager.contexts[1].principal == anna, "until the end of that session only"
    for session_id in ("S", "T"):
        session = await store.get_session(session_id)
        assert session is not None
        assert (session.owner, session.user_id) == ("user:anna", "anna")


async def test_credentials_that_may_not_talk_here_are_not_taken(autojump_clock: MockClock) -> None:
    private = ProjectAccess("test", is_public=False, members=frozenset({"anna"}))
    anna = Principal(
        "user:anna", user_id="anna", role=AccessRole.MEMBER, credential=Credential(CredentialKind.API_KEY, "k1", "anna")
    )
    async with open_scene(authenticator=Register(), principal=anna, access=private) as stage:
        assert stage.client.commands("ready")
        await stage.client.send(ControlToken("authorization", "ben"))
        await trio.sleep(1)
        assert codes(stage) == [ErrorCode.NOT_FOUND]
        assert stage.manager.contexts[0].principal == anna


async def test_revoked_credentials_begin_no_further_session_on_their_connection(autojump_clock: MockClock) -> None:
    register = Register()
    anna = Principal("user:anna", user_id="anna", credential=KEY)
    async with open_stage(authenticator=register, principal=anna, model=ScriptedModel(echo)) as stage:
        await stage.client.send(ControlToken("exit"))
        await trio.sleep(1)
        register.gone.add(KEY)
        await stage.client.send(ControlToken("ready", parameters={"key": "agent:tester"}))
        await stage.over.wait()
        assert codes(stage) == [ErrorCode.UNAUTHORIZED]
        assert len(stage.model.sessions) == 1


# --- permissions and minutes, before anything is opened ---------------------------------------------------------------------


async def test_a_private_project_is_not_there_for_strangers(autojump_clock: MockClock) -> None:
    private = ProjectAccess("test", is_public=False, members=frozenset({"anna"}))
    async with open_stage(access=private) as stage:
        await stage.over.wait()
        assert codes(stage) == [ErrorCode.NOT_FOUND]
        assert stage.model.sessions == []
        assert stage.manager.contexts == []


async def test_a_private_agent_cannot_be_told_from_one_that_does_not_exist(autojump_clock: MockClock) -> None:
    heard: list[list[OutError]] = []
    private = ProjectAccess("test", is_public=False)
    for access, key in ((private, "agent:tester"), (private, "agent:nobody")):
        async with open_stage(access=access, key=key) as stage:
            await stage.over.wait()
            heard.append([element for element in stage.client.elements if isinstance(element, OutError)])
    assert [[(e.code, e.message.replace("nobody", "tester")) for e in each] for each in heard] == [
        [(ErrorCode.NOT_FOUND, "There is no agent 'tester'.")]
    ] * 2


async def test_a_project_without_minutes_opens_nothing(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    limited = ProjectAccess("test", is_public=True, minutes_per_month=1)
    async with open_scene(access=limited, store=store, model=ScriptedModel(echo)) as stage:
        for text in ("one", "two", "three"):
            await say(stage, text)
            await trio.sleep(25)
        await stage.client.send(ControlToken("end"))
        await stage.over.wait()
    async with open_stage(access=limited, store=store) as stage:
        await stage.over.wait()
        assert codes(stage) == [ErrorCode.QUOTA]
        assert stage.model.sessions == []


# --- chat events ------------------------------------------------------------------------------------------------------------


async def test_a_chat_event_opens_no_model_session_and_leaves_it_idle(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with open_stage(store=store, session_id="S", model=ScriptedModel(echo)) as stage:
        await say(stage, "hello")
        await stage.client.send(ControlToken("end"))
        await stage.over.wait()
        configuration, services = stage.manager.contexts[0].configuration, stage.services
        session_id = await run_chat_event(
            configuration, {"file": "a.pdf"}, services, principal=Principal("device:test")
        )
        assert session_id == "S"
        assert stage.manager.events == [("S", {"file": "a.pdf"})]
        assert len(stage.model.sessions) == 1
        session = await store.get_session("S")
        assert session is not None
        assert (session.state, session.agent, session.turn_count) == (SessionState.IDLE, "tester", 1)


async def test_a_chat_event_joins_a_running_session(place: Place, autojump_clock: MockClock) -> None:
    async with place.connect() as a:
        await say(a, "hello")
        configuration = a.manager.contexts[0].configuration
        await run_chat_event(configuration, {"n": 1}, a.services, principal=Principal("device:test"))
        async with open_stage(store=place.store, environment=place.environment, key="") as elsewhere:
            await run_chat_event(configuration, {"n": 2}, elsewhere.services, principal=Principal("device:test"))
            assert elsewhere.manager.events == [("S", {"n": 2})]
        assert a.manager.events == [("S", {"n": 1})]
        await trio.sleep(3)
        assert not a.over.is_set()
        await say(a, "still here")
        assert a.client.sentences[-1] == "You said still here."


async def test_a_reconnect_does_not_greet_again(place: Place, autojump_clock: MockClock) -> None:
    async with place.connect() as a:
        await a.client.send(Action("intro"))
        await trio.sleep(1)
        a.vanish()
        await a.over.wait()
    async with place.connect() as b:
        assert b.manager.contexts[0].is_reconnect
        assert [m.text for m in b.manager.contexts[0].messages] == ["Hello."]
