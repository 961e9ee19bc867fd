"""C43: knowing an id is enough to read another's history. Over HTTP: sessions and their parts, with real credentials."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from trio.testing import MockClock

from engine.config import Settings
from engine.identity.api_keys import new_api_key
from engine.identity.authenticator import make_authenticator
from engine.principal import AccessRole, Authenticator, Credential, NobodyKnown, Principal
from engine.store.documents import Resource, ResourceKind
from tests.engine.transport.managed import Managed, open_managed
from tests.engine.transport.test_sessions import PARTS, hold

FILE = """
project: {ref: house, access: private}
users: [{name: anna}, {name: ben}, {name: carl, role: owner}]
realtimeConfigurations: [{id: house-voice, properties: {provider: Internal}}]
agents: [{ref: host, type: basic, name: Host, published: true, realtimeConfigurationId: house-voice}]
"""
"""U1 is Anna and U2 is Ben, of the same project; Carl owns it."""


@attrs.define
class Later:
    """The authenticator, which needs the catalog and store of the server that asks it."""

    real: Authenticator = attrs.field(factory=NobodyKnown)

    async def authenticate(self, headers: Iterable[tuple[str, str]], subprotocols: Iterable[str]) -> Principal | None:
        return await self.real.authenticate(headers, subprotocols)

    async def authenticate_value(self, value: str) -> Principal:
        return await self.real.authenticate_value(value)

    async def revoked(self, credentials: Sequence[Credential]) -> Sequence[Credential]:
        return await self.real.revoked(credentials)


async def key_of(managed: Managed, user: str, *, hours: float = 1) -> str:
    now = managed.services.environment.wall_clock()
    made = new_api_key(user=user, role=AccessRole.OWNER, expires_at=now + timedelta(hours=hours))
    resource = Resource(kind=ResourceKind.API_KEY, id=made.id, body=made.body, created_at=now, updated_at=now)
    await managed.store.put_resource(resource, expected=0)
    return made.text


@asynccontextmanager
async def open_house(directory: Path) -> AsyncGenerator[Managed]:
    later = Later()
    async with open_managed(directory, file=FILE, authenticator=later) as managed:
        clock = managed.services.environment.wall_clock
        async with make_authenticator(Settings(), managed.catalog, managed.store, None, clock) as later.real:
            await hold(managed, "s1", owner="user:anna")
            await hold(managed, "s2", owner="user:ben")
            yield managed


async def test_a_the_session_of_another_is_not_there(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_house(tmp_path) as managed:
        anna, ben, carl = [await key_of(managed, name) for name in ("anna", "ben", "carl")]
        before = await managed.store.get_session("s1")
        for part in PARTS:
            for method in ("GET", "DELETE") if part == "/llm-log" else ("GET",):
                theirs = await managed.ask(method, f"/api/sessions/s1{part}", key=ben)
                none = await managed.ask(method, f"/api/sessions/s9{part}", key=ben)
                assert (theirs.status, theirs.body) == (404, none.body)
            assert (await managed.ask("GET", f"/api/sessions/s1{part}", key=anna)).status == 200
            assert (await managed.ask("GET", f"/api/sessions/s1{part}", key=carl)).status == 200
        for query, expected in {
            "": ["s2"],
            "?owner=user:anna": [],
            "?project=house": ["s2"],
            "?agent=host": ["s2"],
        }.items():
            listed = await managed.read(f"/api/sessions{query}", key=ben)
            assert [each["id"] for each in listed["items"]] == expected
        assert (await managed.read("/api/sessions?after=s1", key=ben))["items"] == []
        assert await managed.store.get_session("s1") == before
        assert (await managed.store.get_log("s1", limit=1))[0].content is not None


async def test_d_credentials_that_have_ended(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with open_house(tmp_path) as managed:
        secrets = {
            await key_of(managed, "anna", hours=0): "The API key has expired.",
            await key_of(managed, "nobody"): "The user of this API key is unknown or disabled.",
            (await key_of(managed, "anna"))[:-1] + "~": "The API key is not valid.",
        }
        for secret, reason in secrets.items():
            for path in ("/api/sessions/s1", "/api/sessions", "/api/agents", "/api/projects"):
                answer = await managed.ask("GET", path, key=secret)
                assert (answer.status, answer.json["detail"]) == (401, reason)
                assert answer.headers["www-authenticate"]
                assert secret not in str(answer.headers)
                assert secret not in caplog.text


async def test_a_key_that_is_taken_away_reads_nothing_more(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_house(tmp_path) as managed:
        anna = await key_of(managed, "anna")
        assert (await managed.ask("GET", "/api/sessions/s1", key=anna)).status == 200
        await managed.store.delete_resource(ResourceKind.API_KEY, anna.split("_")[1], expected=None)
        assert (await managed.ask("GET", "/api/sessions/s1", key=anna)).status == 401
