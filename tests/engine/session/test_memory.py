"""Each scope of a session's memory is its own: of the session, of the user with the agent, of the user."""

from trio.testing import MockClock

from engine.memory import MemoryScope
from engine.session.memory import StoredMemory, scope_name
from engine.store.documents import MemoryDocument, SessionDocument
from engine.store.memory import MemoryStore
from engine.testing.stage import EPOCH, scripted_environment

SESSION, APPLICATION, USER = MemoryScope.SESSION, MemoryScope.APPLICATION, MemoryScope.USER


def session(session_id: str = "s1", owner: str = "user:anna", agent: str = "barista") -> SessionDocument:
    return SessionDocument(id=session_id, owner=owner, agent=agent, created_at=EPOCH, updated_at=EPOCH)


async def test_a_revision_is_kept_with_its_session(autojump_clock: MockClock) -> None:
    memory = StoredMemory(MemoryStore(), scripted_environment(), session())
    assert await memory.get(USER, "facts") is None
    await memory.append(USER, "facts", {"likes": "tea"})
    await memory.append(USER, "facts", {"likes": "coffee"})
    newest = MemoryDocument(
        id="memory-2",
        scope="user:user:anna",
        name="facts",
        revision=2,
        body={"likes": "coffee"},
        session_id="s1",
        created_at=EPOCH,
    )
    assert await memory.get(USER, "facts") == newest
    assert [each.body for each in await memory.revisions(USER, "facts", limit=9)] == [newest.body, {"likes": "tea"}]
    assert len(await memory.revisions(USER, "facts", limit=1)) == 1


async def test_who_shares_what(autojump_clock: MockClock) -> None:
    store, environment = MemoryStore(), scripted_environment()
    mine = StoredMemory(store, environment, session())
    for scope in MemoryScope:
        await mine.append(scope, "x", {"of": scope.value})
    others = {
        "the same session, resumed": session(),
        "another session": session("s2"),
        "another agent": session("s3", agent="waiter"),
        "another user": session("s4", owner="user:bob"),
    }
    seen: dict[str, list[str]] = {}
    for who, document in others.items():
        memory = StoredMemory(store, environment, document)
        seen[who] = [scope.value for scope in MemoryScope if await memory.get(scope, "x") is not None]
    assert seen == {
        "the same session, resumed": ["session", "application", "user"],
        "another session": ["application", "user"],
        "another agent": ["user"],
        "another user": [],
    }


def test_no_owner_can_name_anothers_scope() -> None:
    names = {
        scope_name(scope, session(session_id, owner, agent))
        for scope in MemoryScope
        for session_id, owner, agent in [("s1", "b", "a"), ("s2", "a:b", "x"), ("s3", "b", "x"), ("s4", "x:b", "a")]
    }
    assert len(names) == 4 + 4 + 3  # the sessions; the users with their agents; the owners
