"""The catalog: documents of files and of the store side by side, under virtual time."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from agents.catalog import FALL_BACK_SECONDS, LIST_SECONDS, LayeredCatalog
from agents.definitions import BasicAgent, RelationalAgent
from agents.managed import ProjectDocuments
from agents.project import load_projects
from agents.stored import MAX_DOCUMENTS, PAGE
from engine.principal import AccessRole, ProjectAccess
from engine.store.contract import StoreError
from engine.store.documents import Resource, ResourceKind
from engine.store.memory import MemoryStore
from tests.agents.support import COMPONENTS

FILE = """
project: {ref: house, access: public, members: [olga]}
users: [{name: eva, passwordHash: "env:EVAS_HASH", role: owner}, {name: tom}]
realtimeConfigurations: [{id: voice, properties: {provider: Internal}}]
templates:
  - {ref: service, revision: 1, purpose: "Old in {city}.", purposeLocked: true, variables: [{name: city}]}
  - {ref: service, revision: 2, published: true, purpose: "New in {city}.", purposeLocked: true, variables: [{name: city}]}
agents: [{ref: host, type: basic, name: Host, published: true, realtimeConfigurationId: voice}]
"""
NOW = datetime(2030, 1, 1, tzinfo=UTC)
AGENT = {"ref": "seller", "project": "shop", "type": "basic", "name": "Seller", "realtimeConfigurationId": "voice"}


class CountingStore(MemoryStore):
    """Fails when it is told to, after a while; counts readings of one document."""

    fails = False
    seconds = 0.0
    readings = 0

    async def check(self) -> None:
        await trio.sleep(self.seconds)
        if self.fails:
            raise StoreError("out of order")
        await super().check()

    async def get_resource(self, kind: ResourceKind, resource_id: str) -> Resource | None:
        self.readings += 1
        return await super().get_resource(kind, resource_id)


async def keep(store: MemoryStore, kind: ResourceKind, document_id: str, body: dict[str, Any]) -> None:
    resource = Resource(kind=kind, id=document_id, body=body, created_at=NOW, updated_at=NOW)
    await store.put_resource(resource, expected=None)


async def keep_template(store: MemoryStore, ref: str, project: str, *purposes: str, published: int | None) -> None:
    ids = [f"{ref}-{number}" for number in range(len(purposes))]
    for revision_id, purpose in zip(ids, purposes, strict=True):
        body = {"ref": ref, "project": project, "purpose": purpose, "purposeLocked": True}
        await keep(store, ResourceKind.TEMPLATE_REVISION, revision_id, body)
    head = {"ref": ref, "project": project, "published": published, "revisions": ids}
    await keep(store, ResourceKind.TEMPLATE, ref, head)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def catalog(store: CountingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LayeredCatalog:
    monkeypatch.setenv("EVAS_HASH", "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA")
    path = tmp_path / "house.yaml"
    path.write_text(FILE, encoding="utf-8")
    return LayeredCatalog(load_projects([path], components=COMPONENTS), store, components=COMPONENTS)


async def purpose_of(catalog: LayeredCatalog, ref: str) -> str | None:
    found = await catalog.agent(ref)
    assert found is not None
    return cast("BasicAgent", found[0]).purpose


# --- agents ----------------------------------------------------------------------------------------------------------


async def test_an_agent_of_the_store_is_read_each_time(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock
) -> None:
    assert await catalog.agent("seller") is None
    await keep(store, ResourceKind.AGENT, "seller", AGENT)
    found = await catalog.agent("seller")
    assert found is not None
    assert (found[0].name, found[1]) == ("Seller", "shop")
    assert type(found[0]) is BasicAgent  # what an interaction manager says that it serves
    await keep(store, ResourceKind.AGENT, "seller", {**AGENT, "purpose": "Sell."})  # by another process
    assert await purpose_of(catalog, "seller") == "Sell."


async def test_a_file_goes_first(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await keep(store, ResourceKind.AGENT, "host", {**AGENT, "ref": "host"})
    await keep(store, ResourceKind.TEMPLATE, "service", {"ref": "service", "project": "shop"})
    found = await catalog.agent("host")
    assert found is not None
    assert found[1] == "house"
    await ProjectDocuments(catalog).warn_of_hidden()
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [warning.partition(" is in the store")[0] for warning in warnings] == [
        "the agent host",
        "the template service",
    ]


async def test_templates_are_applied_as_they_are_published(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock
) -> None:
    made = {**AGENT, "template": "clerk", "templateVariables": {"what": "tea"}}
    await keep(store, ResourceKind.AGENT, "seller", made)
    await keep_template(store, "clerk", "shop", "Sell {what}.", "Buy {what}.", published=1)
    assert await purpose_of(catalog, "seller") == "Sell tea."
    await keep_template(store, "clerk", "shop", "Sell {what}.", "Buy {what}.", published=2)
    assert await purpose_of(catalog, "seller") == "Buy tea."
    await keep(store, ResourceKind.AGENT, "seller", {**made, "templateRevision": 1})
    assert await purpose_of(catalog, "seller") == "Sell tea."


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"project": "house", "template": "service", "templateVariables": {"city": "Brno"}}, "New in Brno."),
        ({"project": "house", "template": "service", "templateRevision": 1}, "Old in {city}."),
        ({"project": "house", "template": "clerk"}, "Own."),  # another project's
        ({"template": "service"}, "Own."),
        ({"template": "clerk", "templateRevision": 3}, "Own."),
        ({"template": "gone"}, "Own."),
    ],
)
async def test_which_template_an_agent_is_made_from(
    fields: dict[str, Any], expected: str, catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock
) -> None:
    """One that is not there any more leaves the agent as it is, and the log says so."""
    await keep_template(store, "clerk", "shop", "Sell.", "Buy.", published=None)
    await keep(store, ResourceKind.AGENT, "seller", {**AGENT, "purpose": "Own.", **fields})
    assert await purpose_of(catalog, "seller") == expected


async def test_shared_memory_is_with_agents_of_the_project(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock
) -> None:
    refs = ["host", "baker", "stranger", "nobody"]
    planner = {**AGENT, "type": "relational", "project": "house", "sharedMemoryAgentRefs": refs}
    await keep(store, ResourceKind.AGENT, "seller", planner)
    await keep(store, ResourceKind.AGENT, "baker", {**AGENT, "ref": "baker", "project": "house"})
    await keep(store, ResourceKind.AGENT, "stranger", {**AGENT, "ref": "stranger"})
    found = await catalog.agent("seller")
    assert found is not None
    assert cast("RelationalAgent", found[0]).shared_memory_agent_refs == ["host", "baker"]


async def test_a_short_failure_is_not_felt(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock
) -> None:
    await keep(store, ResourceKind.AGENT, "seller", AGENT)
    await keep(store, ResourceKind.PROJECT, "shop", {"ref": "shop"})
    await keep(store, ResourceKind.USER, "sam", {"name": "sam"})
    asked = [catalog.agent, catalog.project, catalog.user]
    names = ["seller", "shop", "sam"]
    before: list[Any] = [await ask(name) for ask, name in zip(asked, names, strict=True)]
    store.fails = True
    for ask, name, expected in zip(asked, names, before, strict=True):
        assert await ask(name) == expected
        with pytest.raises(StoreError):
            await ask("somebody else")
    assert await catalog.agent("host") is not None
    await trio.sleep(FALL_BACK_SECONDS)
    for ask, name in zip(asked, names, strict=True):
        with pytest.raises(StoreError):
            await ask(name)


async def test_published_agents_of_public_projects(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock
) -> None:
    async def refs() -> Sequence[str]:
        return [agent.ref for agent in await catalog.published_agents()]

    assert await refs() == ["host"]
    await keep(store, ResourceKind.PROJECT, "shop", {"ref": "shop", "access": "private"})
    await keep(store, ResourceKind.AGENT, "b", {**AGENT, "ref": "b", "published": True})
    await keep(store, ResourceKind.AGENT, "a", {**AGENT, "ref": "a", "published": True, "project": "house"})
    await keep(store, ResourceKind.AGENT, "c", {**AGENT, "ref": "c"})
    assert await refs() == ["host"]  # everybody may ask, so the store is not read each time
    await trio.sleep(LIST_SECONDS)
    assert await refs() == ["host", "a"]
    await keep(store, ResourceKind.PROJECT, "shop", {"ref": "shop", "access": "public"})
    catalog.changed(ResourceKind.PROJECT, "shop")
    assert await refs() == ["host", "a", "b"]
    store.fails = True
    await trio.sleep(LIST_SECONDS)
    assert await refs() == ["host", "a", "b"]


async def test_a_store_that_fails_from_the_start_leaves_the_files(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock
) -> None:
    store.fails = True
    assert [agent.ref for agent in await catalog.published_agents()] == ["host"]
    assert len(await catalog.all_realtime_properties()) == 1
    await catalog.warn_of_hidden()


# --- realtime configurations -----------------------------------------------------------------------------------------


async def test_a_configuration_is_remembered_for_its_time(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock
) -> None:
    async def temperature() -> float | None:
        found = await catalog.realtime_configuration("loud")
        return None if found is None else found[0].temperature

    body: dict[str, Any] = {"id": "loud", "project": "shop", "properties": {"provider": "Internal", "temperature": 1}}
    assert await temperature() is None
    await keep(store, ResourceKind.REALTIME_CONFIGURATION, "loud", body)
    assert await temperature() == 1
    found = await catalog.realtime_configuration("loud")
    assert found is not None
    assert found[1] == "shop"
    body["properties"]["temperature"] = 2
    await keep(store, ResourceKind.REALTIME_CONFIGURATION, "loud", body)  # by another process
    await trio.sleep(899)
    assert await temperature() == 1
    await trio.sleep(1)
    assert await temperature() == 2
    body["properties"]["temperature"] = 0
    await keep(store, ResourceKind.REALTIME_CONFIGURATION, "loud", body)
    catalog.changed(ResourceKind.REALTIME_CONFIGURATION, "loud")  # by this one
    assert await temperature() == 0
    store.fails = True
    await trio.sleep(80_000)
    assert await temperature() == 0


async def test_a_configuration_is_read_once_for_many(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock
) -> None:
    body = {"id": "loud", "project": "shop", "properties": {"provider": "Internal"}}
    await keep(store, ResourceKind.REALTIME_CONFIGURATION, "loud", body)
    store.seconds = 1
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(catalog.realtime_configuration, "loud")
    assert (store.readings, trio.current_time()) == (1, 1)


async def test_all_configurations(catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock) -> None:
    for number in range(3):
        properties = {"provider": "Internal", "temperature": number / 2}
        body = {"id": f"c{number}", "project": "shop", "properties": properties}
        await keep(store, ResourceKind.REALTIME_CONFIGURATION, f"c{number}", body)
    assert [each.temperature for each in await catalog.all_realtime_properties()] == [0.8, 0, 0.5, 1]


# --- what is damaged, and how much is read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ResourceKind.AGENT, {**AGENT, "ref": "x", "type": "clown"}),
        (ResourceKind.PROJECT, {"ref": "x", "access": "maybe"}),
        (ResourceKind.REALTIME_CONFIGURATION, {"id": "x", "project": "shop"}),
        (ResourceKind.REALTIME_CONFIGURATION, {"id": "x", "project": "shop", "properties": {"provider": "Gone"}}),
        (
            ResourceKind.REALTIME_CONFIGURATION,
            {"id": "x", "project": "shop", "properties": {"provider": "Internal", "temperature": "hunter2"}},
        ),
    ],
)
async def test_what_cannot_be_read_is_not_there(
    kind: ResourceKind,
    body: dict[str, Any],
    catalog: LayeredCatalog,
    store: CountingStore,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await keep(store, kind, "x", body)
    ask: Any = {
        ResourceKind.AGENT: catalog.agent,
        ResourceKind.PROJECT: catalog.project,
        ResourceKind.REALTIME_CONFIGURATION: catalog.realtime_configuration,
    }[kind]
    assert await ask("x") is None
    assert len(await catalog.published_agents()) == 1
    assert len(await catalog.all_realtime_properties()) == 1
    errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert errors
    assert "hunter2" not in "".join(errors)


async def test_only_so_many_are_looked_through(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    asked = 0
    page = [
        Resource(kind=ResourceKind.AGENT, id=f"a{number}", body=AGENT, created_at=NOW, updated_at=NOW)
        for number in range(PAGE)
    ]

    class Endless(MemoryStore):
        async def list_resources(self, kind: ResourceKind, *, limit: int, after: str = "") -> list[Resource]:
            nonlocal asked
            asked += 1
            await trio.lowlevel.checkpoint()
            return page

    catalog.stored.store = Endless()
    assert len(await catalog.stored.every(ResourceKind.AGENT)) == MAX_DOCUMENTS
    assert asked == MAX_DOCUMENTS / PAGE
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


# --- projects and users ------------------------------------------------------------------------------------------------


async def test_projects(catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock) -> None:
    body = {"ref": "shop", "members": ["mia"], "subscription": {"minutesPerMonth": 10}}
    await keep(store, ResourceKind.PROJECT, "shop", body)
    house = ProjectAccess("house", is_public=True, members=frozenset({"olga", "eva", "tom"}))
    shop = ProjectAccess("shop", is_public=False, members=frozenset({"mia"}), minutes_per_month=10)
    assert [await catalog.project(ref) for ref in ("house", "shop", "nowhere")] == [house, shop, None]
    assert await ProjectDocuments(catalog).projects() == [house, shop]


async def test_users_have_hashes_and_no_references(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock
) -> None:
    eva = await catalog.user("eva")
    assert eva is not None
    assert eva.role is AccessRole.OWNER
    assert eva.password_hash.startswith("$argon2id$")
    assert "argon2" not in repr(eva)
    tom = await catalog.user("tom")
    assert tom is not None
    assert tom.password_hash == ""
    body = {"name": "sam", "email": "s@x.org", "disabled": True, "passwordHash": "$argon2id$x", "role": "admin"}
    await keep(store, ResourceKind.USER, "sam", {**body, "tokensValidFrom": "2030-01-01T00:00:00Z"})
    sam = await catalog.user("sam")
    assert sam is not None
    assert (sam.role, sam.email, sam.is_disabled, sam.password_hash, sam.tokens_valid_from) == (
        AccessRole.ADMIN,
        "s@x.org",
        True,
        "$argon2id$x",
        NOW,
    )
    await keep(store, ResourceKind.USER, "auth0|1", {"name": "Ann", "email": "", "source": "token", "lastSeenAt": "x"})
    ann = await catalog.user("auth0|1")
    assert ann is not None
    assert (ann.name, ann.role) == ("auth0|1", AccessRole.MEMBER)


async def test_a_user_who_cannot_be_read_is_shut_out(
    catalog: LayeredCatalog, store: CountingStore, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await keep(store, ResourceKind.USER, "sam", {"name": "sam", "role": "king", "passwordHash": "hunter2"})
    await keep(store, ResourceKind.USER, "ann", {"name": "ann", "fromALaterVersion": True})
    accounts = [await catalog.user("sam"), await catalog.user("ann")]
    assert [account and account.is_disabled for account in accounts] == [True, False]
    (record,) = caplog.records
    assert "hunter2" not in record.message


def test_a_password_that_is_not_there_is_told(
    catalog: LayeredCatalog, store: CountingStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("EVAS_HASH")
    LayeredCatalog(catalog.files, store)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "eva" in record.message
    assert "EVAS_HASH" in record.message
