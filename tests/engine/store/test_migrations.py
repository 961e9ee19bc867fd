"""Files that older versions wrote, with what they wrote into them."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.errors import NotFoundError
from engine.store.contract import SessionFilter
from engine.store.documents import SessionState
from engine.store.embedded import open_embedded
from engine.store.sqlite_file import APPLICATION_ID, MIGRATIONS, open_file
from tests.engine.store.samples import NOON, full_turn, session, turn, usage

SESSION_1 = (
    '{"id":"s1","state":"CLOSED","key":"","owner":"al\\u0000ice","userId":"","deviceRef":"","agent":"coach","projectRef":"p1",'
    '"locale":"en","timeZone":"UTC","testMode":false,"createdAt":"2024-05-01T12:00:00.250000Z",'
    '"updatedAt":"2024-05-01T12:00:00Z","turnCount":1,"rating":null,"ratingText":"","endReason":"exit"}'
)
TURN_1 = (
    '{"id":"full\'; DROP TABLE turns; --","sessionId":"s1","index":0,"startedAt":"2024-05-01T12:00:00.123000Z","input":'
    '{"text":"Řekni \\"ahoj\\"\\n\\u0000 👋🏽","kind":"text"},"output":[{"text":"Ahoj. Jak se máš?","heard":"Ahoj.",'
    '"responseId":"r1","status":"cancelled"}],"interrupted":true,"tools":[{"callId":"c1","name":"weather","parameters":'
    '{"city":["Brno"]},"result":{"t":21.5,"n":null},"error":"","owner":"model"}],"instructions":[{"type":"INSTRUCTION",'
    '"text":"Be brief."}],"multimodal":[{"type":"text","nested":{"deep":[1,2,{"x":true}]}}],"timing":{"lastInterim":0,'
    '"finalTranscript":300,"firstText":500,"lastText":null,"firstAudio":null,"lastAudio":null}}'
)
USAGE_1 = (
    '{"id":"u1","sessionId":"s1","provider":"Internal","projectRef":"p1","agent":"","testMode":false,"activeSeconds":12.5,'
    '"inputTokens":0,"outputTokens":0,"cachedTokens":0,"turns":0,"createdAt":"2024-05-01T12:00:00Z"}'
)


def write_schema_1(path: Path) -> None:
    """A file as the version before leases, memory and the rest left it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in MIGRATIONS[0]:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("INSERT INTO sessions VALUES ('s1', ?)", (SESSION_1,))
        older = SESSION_1.replace('"s1"', '"s0"').replace("12:00:00.250000Z", "12:00:00Z").replace("CLOSED", "OPEN")
        connection.execute("INSERT INTO sessions VALUES ('s0', ?)", (older,))
        connection.execute("INSERT INTO turns VALUES ('s1', ?, 0, ?)", (full_turn().id, TURN_1))
        connection.execute("INSERT INTO usage VALUES ('s1', 'u1', ?)", (USAGE_1,))
        in_test = USAGE_1.replace('"u1"', '"u2"').replace('"testMode":false', '"testMode":true')
        connection.execute("INSERT INTO usage VALUES ('s1', 'u2', ?)", (in_test,))


async def test_what_the_first_schema_held_is_found_by_everything_it_is_found_by_now(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    write_schema_1(path)
    async with open_embedded(path) as store:
        first = NOON + timedelta(microseconds=250_000)
        fields: dict[str, Any] = {
            "owner": "al\0ice",
            "agent": "coach",
            "project_ref": "p1",
            "turn_count": 1,
            "end_reason": "exit",
        }
        kept = session("s1", state="CLOSED", created_at=first, **fields)
        assert await store.get_session("s1") == kept
        assert await store.fences(["s1", "s0"]) == {"s1": 0, "s0": 0}
        for which in (
            SessionFilter(),
            SessionFilter(owner="al\0ice"),
            SessionFilter(project_refs=frozenset({"p1"})),
            SessionFilter(agent="coach"),
        ):
            assert [found.id for found in await store.list_sessions(which, limit=10)] == ["s1", "s0"]
        closed = await store.list_sessions(SessionFilter(state=SessionState.CLOSED), limit=10)
        assert closed == [kept]
        assert await store.list_sessions(SessionFilter(), limit=10, after="s1") == [
            session("s0", state="OPEN", **fields)
        ]
        whispered = full_turn().instructions[:1]  # what became of it was not kept then
        assert await store.get_turns("s1", limit=10) == [full_turn().model_copy(update={"instructions": whispered})]
        assert [found.id for found in await store.get_usage("s1")] == ["u1", "u2"]
        assert await store.active_seconds("p1", since=NOON) == 12.5
        assert await store.active_seconds("p1", since=NOON + timedelta(microseconds=1)) == 0

        # … and written to
        await store.append_turns([turn(1)], fence=0)
        with pytest.raises(NotFoundError):
            await store.open_session(session("s1", owner="mallory"))
        opened = await store.open_session(session("s1", owner="al\0ice"))
        assert (opened.fence, opened.turn_count) == (1, 1)
        await store.save_usage(usage("u1", project_ref="p1", active_seconds=20))
        assert await store.active_seconds("p1", since=NOON) == 20


def test_every_file_comes_to_the_same_schema(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    write_schema_1(old)
    schemas: list[list[tuple[object, ...]]] = []
    for path in (old, new):
        file = open_file(path)
        with closing(file.writer), closing(file.reader):
            schemas.append(file.reader.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall())
    assert schemas[0] == schemas[1]


def test_a_row_that_was_spoilt_before_does_not_keep_the_file_from_opening(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    write_schema_1(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO sessions VALUES ('s2', '{}')")
    file = open_file(path)
    with closing(file.writer), closing(file.reader):
        assert file.reader.execute("SELECT created_at FROM sessions WHERE id = 's2'").fetchone() == (0,)
