"""The management API as HTTP: what is listed, read, made, replaced and deleted, and under which conditions."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from engine.interfaces import TemplateRevisions
from engine.store.contract import StoreError
from engine.store.documents import Resource, ResourceKind
from engine.store.memory import MemoryStore
from tests.engine.transport.managed import Managed, agent, furnish, open_managed, template
from tests.engine.transport.stack import ask

GUARDED = "Say with If-Match which agent you replace, or with If-None-Match: * that there is none."


@pytest.fixture(autouse=True)
def _passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVAS_PASSWORD", "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA")


async def keep(managed: Managed, kind: ResourceKind, document_id: str, body: dict[str, Any]) -> None:
    """Put it into the store behind the server's back."""
    now = managed.services.environment.wall_clock()
    resource = Resource(kind=kind, id=document_id, body=body, created_at=now, updated_at=now)
    await managed.store.put_resource(resource, expected=None)


# --- the life of a document --------------------------------------------------------------------------------------------


DOCUMENTS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("/api/projects", "ref", {"ref": "new", "name": "New"}, {"name": "Newer"}),
    ("/api/agents", "ref", agent("new"), {"purpose": "Sell."}),
    ("/api/templates", "ref", template("new"), {"purpose": "Buy."}),
    (
        "/api/realtime-configurations",
        "id",
        {"id": "new", "project": "shop", "properties": {"provider": "Internal"}},
        {"properties": {"provider": "Internal", "temperature": 1}},
    ),
    ("/api/users", "name", {"name": "new", "email": "n@x.org"}, {"disabled": True}),
    ("/api/api-keys", "id", {"name": "new", "projects": ["shop"]}, {"role": "owner"}),
]


@pytest.mark.parametrize(("path", "id_field", "body", "change"), DOCUMENTS, ids=[each[0] for each in DOCUMENTS])
async def test_the_life_of_a_document(
    path: str, id_field: str, body: dict[str, Any], change: dict[str, Any], tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        made = await managed.make(path, body)
        document_id = made.json[id_field]
        place = f"{path}/{document_id}"
        assert made.headers["location"] == place
        assert body.items() <= made.json.items()
        assert (made.json["source"], made.json["file"]) == ("api", None)

        read = await managed.ask("GET", place)
        assert (read.status, read.headers["etag"]) == (200, made.headers["etag"])
        assert {**read.json, "key": None} == {**made.json, "key": None}
        again = await managed.ask("GET", place, If_None_Match=read.headers["etag"])
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", read.headers["etag"])

        changed = await managed.change(place, **change)  # what was read can be sent back
        assert changed.status == 200
        assert change.items() <= changed.json.items()
        assert changed.headers["etag"] != read.headers["etag"]
        read = await managed.ask("GET", place)
        assert (read.json, read.headers["etag"]) == (changed.json, changed.headers["etag"])
        assert read.json in (await managed.read(path))["items"]

        stale = made.headers["etag"]
        assert (await managed.refusal("PUT", place, changed.json, If_Match=stale))[0] == 412
        assert (await managed.refusal("DELETE", place, If_Match=stale))[0] == 412
        gone = await managed.ask("DELETE", place, If_Match=changed.headers["etag"])
        assert (gone.status, gone.body) == (204, b"")
        assert (await managed.refusal("GET", place))[0] == 404
        assert (await managed.refusal("DELETE", place))[0] == 404
        assert (await managed.refusal("PUT", place, changed.json, If_Match=changed.headers["etag"]))[0] == 412


async def test_put_makes_what_is_not_there(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        made = await managed.ask("PUT", "/api/agents/new", agent("new"), If_None_Match="*")
        assert (made.status, made.headers["location"]) == (201, "/api/agents/new")
        again = await managed.refusal("PUT", "/api/agents/new", agent("new"), If_None_Match="*")
        assert again == (412, "The agent is there already.")
        assert await managed.refusal("PUT", "/api/agents/new", agent("new")) == (428, GUARDED)
        assert await managed.refusal("PUT", "/api/agents/new", agent("new"), If_None_Match='"x"') == (428, GUARDED)
        assert (await managed.ask("PUT", "/api/agents/new", agent("new"), If_Match="*")).status == 200
        assert (await managed.refusal("PUT", "/api/agents/other", agent("other"), If_Match="*"))[0] == 412
        wrong = await managed.faults("PUT", "/api/agents/new", agent("other"), If_Match="*")
        assert wrong == [("/ref", "ref has to be that of the path")]


async def test_one_id_one_document(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        refused = await managed.refusal("POST", "/api/agents", agent("seller"))
        assert refused == (409, "The agent seller is there already.")


async def test_a_file_is_changed_where_it_is(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        for path in ("projects/house", "agents/host", "templates/service", "users/eva"):
            shown = await managed.ask("GET", f"/api/{path}")
            assert (shown.json["source"], shown.json["file"]) == ("file", str(tmp_path / "house.yaml"))
            kind, _, name = path.partition("/")
            reason = f"The {kind.removesuffix('s')} {name} is defined in {tmp_path / 'house.yaml'}; change it there."
            tag = shown.headers["etag"]
            assert await managed.refusal("PUT", f"/api/{path}", shown.json, If_Match=tag) == (409, reason)
            assert await managed.refusal("DELETE", f"/api/{path}") == (409, reason)
            sent = {each: value for each, value in shown.json.items() if each not in ("knowledge", "skills")}
            assert await managed.refusal("POST", f"/api/{kind}", sent) == (409, reason)


async def test_what_is_used_stays(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        assert (await managed.change("/api/templates/clerk", published=True)).status == 200
        await managed.make("/api/agents", agent("buyer", handover="seller", template="clerk"))
        for path, reason in {
            "projects/shop": "project is in use by agent buyer, agent seller, template clerk, realtime configuration voice",
            "agents/seller": "agent is in use by agent buyer",
            "templates/clerk": "template is in use by agent buyer",
            "realtime-configurations/voice": "realtime configuration is in use by agent buyer, agent seller",
        }.items():
            assert await managed.refusal("DELETE", f"/api/{path}") == (409, f"The {reason}.")
        for path in (
            "agents/buyer",
            "agents/seller",
            "templates/clerk",
            "realtime-configurations/voice",
            "projects/shop",
        ):
            assert (await managed.ask("DELETE", f"/api/{path}")).status == 204
        for kind in ResourceKind:
            assert await managed.store.list_resources(kind, limit=10) == []


async def test_of_twenty_who_change_it_at_once_one_wins(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        for place in ("/api/agents/seller", "/api/templates/clerk"):
            before = await managed.ask("GET", place)
            answers: list[tuple[int, str]] = []

            async def change(number: int, place: str = place, before: Any = before, answers: Any = answers) -> None:
                body = {**before.json, "purpose": f"of {number}"}
                answer = await managed.ask("PUT", place, body, If_Match=before.headers["etag"])
                answers.append((answer.status, body["purpose"]))

            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(change, number)
            winners = [purpose for status, purpose in answers if status == 200]
            assert sorted(status for status, _ in answers) == [200, *[412] * 19]
            assert [(await managed.read(place))["purpose"]] == winners
        # what the losers had stored of their revisions they took back
        assert len(await managed.store.list_resources(ResourceKind.TEMPLATE_REVISION, limit=100)) == 2


async def test_one_of_twenty_makes_it(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        statuses: list[int] = []

        async def make(number: int) -> None:
            statuses.append((await managed.ask("POST", "/api/templates", template("new"))).status)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(make, number)
        assert sorted(statuses) == [201, *[409] * 19]
        assert len(await managed.store.list_resources(ResourceKind.TEMPLATE_REVISION, limit=100)) == 2


async def test_one_made_anew_is_another(tmp_path: Path, autojump_clock: MockClock) -> None:
    """An entity tag of a document that was deleted does not fit the next one of its id, whatever its version."""
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        old = await managed.ask("GET", "/api/agents/seller")
        await managed.ask("DELETE", "/api/agents/seller")
        await managed.make("/api/agents", agent("seller", purpose="Buy."))
        assert (await managed.refusal("PUT", "/api/agents/seller", old.json, If_Match=old.headers["etag"]))[0] == 412


async def test_a_change_shows_at_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        place, catalog = "/api/realtime-configurations/voice", managed.catalog
        assert await catalog.realtime_configuration("voice") is not None
        await managed.change(place, properties={"provider": "Internal", "temperature": 1.5})
        found = await catalog.realtime_configuration("voice")
        assert found is not None
        assert found[0].temperature == 1.5
        await managed.change("/api/projects/shop", access="public")
        await managed.change("/api/agents/seller", published=True)
        assert [each.ref for each in await catalog.published_agents()] == ["host", "seller"]
        await managed.ask("DELETE", "/api/agents/seller")
        assert [each.ref for each in await catalog.published_agents()] == ["host"]


# --- lists -------------------------------------------------------------------------------------------------------------


async def test_lists_are_paged_over_files_and_store(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        refs = sorted(["host", "seller", *(f"a{number:03}" for number in range(150)), "Zoë"[:2], "z~9"])
        for ref in refs:
            if ref not in ("host", "seller"):
                await keep(managed, ResourceKind.AGENT, ref, agent(ref))
        for limit in (1, 7, 100, 1000):
            path, found, pages = f"/api/agents?limit={limit}", list[str](), 0
            while True:
                page = await managed.read(path)
                assert len(page["items"]) <= limit
                found += [each["ref"] for each in page["items"]]
                pages += 1
                if page["next"] is None:
                    break
                path = f"/api/agents?limit={limit}&after={page['next']}"
            assert found == refs
            assert pages == -(-len(refs) // limit)
        assert (await managed.read("/api/agents?after=seller"))["items"][0]["ref"] == "z~9"
        assert (await managed.read("/api/agents?after=z~9"))["items"] == []


async def test_a_list_that_did_not_change_is_not_sent(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        listed = await managed.ask("GET", "/api/projects")
        tag = listed.headers["etag"]
        assert (await managed.ask("GET", "/api/projects", If_None_Match=tag)).status == 304
        await managed.make("/api/projects", {"ref": "new"})
        assert (await managed.ask("GET", "/api/projects", If_None_Match=tag)).status == 200


async def test_a_page_has_a_size(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A thousand documents could be a gigabyte."""
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        large = "x" * 900_000
        for number in range(12):
            await keep(managed, ResourceKind.AGENT, f"a{number:02}", agent(f"a{number:02}", purpose=large))
            await keep(managed, ResourceKind.TEMPLATE_REVISION, f"r{number:03}", template("long", purpose=large))
        page = await managed.ask("GET", "/api/agents?limit=1000")
        assert len(page.body) < 10 << 20
        assert len(page.json["items"]) == 10
        assert page.json["next"] == "a09"
        revisions = [*(f"r{number:03}" for number in range(12)), *["gone"] * 200]
        head = {"ref": "long", "project": "shop", "revisions": revisions}
        await keep(managed, ResourceKind.TEMPLATE, "long", head)
        page = await managed.ask("GET", "/api/templates/long/revisions?limit=1000")
        assert len(page.body) < 12 << 20
        assert page.json["next"] == "100"
        page = await managed.ask("GET", "/api/templates/long/revisions?limit=1000&after=100")
        assert ([each["revision"] for each in page.json["items"]], page.json["next"]) == (list(range(101, 213)), None)


# --- templates ---------------------------------------------------------------------------------------------------------


async def test_revisions(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        place = "/api/templates/clerk"

        async def state() -> tuple[int, bool, int | None]:
            shown = await managed.read(place)
            return shown["revision"], shown["published"], shown["publishedRevision"]

        assert await state() == (1, False, None)
        assert (await managed.change(place, purpose="Two.", published=True)).status == 200
        assert await state() == (2, True, 2)
        assert (await managed.change(place, purpose="Three.", published=False)).status == 200
        assert await state() == (3, False, 2)
        page = await managed.read(f"{place}/revisions?limit=2")
        assert [(each["revision"], each["purpose"], each["published"]) for each in page["items"]] == [
            (1, "Sell.", False),
            (2, "Two.", True),
        ]
        page = await managed.read(f"{place}/revisions?limit=2&after={page['next']}")
        assert ([each["revision"] for each in page["items"]], page["next"]) == ([3], None)
        assert (await managed.read(f"{place}/revisions/1"))["purpose"] == "Sell."

        stale = (await managed.ask("GET", place)).headers["etag"]
        published = await managed.ask("POST", f"{place}/revisions/1/publish")
        assert (published.status, published.json["publishedRevision"]) == (200, 1)
        assert published.headers["etag"] != stale
        assert (await managed.refusal("POST", f"{place}/revisions/3/publish", If_Match=stale))[0] == 412
        fresh = published.headers["etag"]
        assert (await managed.ask("POST", f"{place}/revisions/3/publish", If_Match=fresh)).status == 200
        assert await state() == (3, True, 3)


async def test_an_agent_is_made_from_what_is_published(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        place = "/api/templates/clerk"
        assert await managed.faults("PUT", "/api/agents/seller", agent("seller", template="clerk"), If_Match="*") == [
            ("/template", "template clerk has no published revision; publish one, or set templateRevision")
        ]
        await managed.change(place, purposeLocked=True, published=True)
        await managed.change("/api/agents/seller", template="clerk")

        async def purpose() -> str:
            found: Any = await managed.catalog.agent("seller")
            return str(found[0].purpose)

        assert await purpose() == "Sell."
        await managed.change(place, purpose="Buy.", published=False)
        assert await purpose() == "Sell."
        await managed.ask("POST", f"{place}/revisions/3/publish")
        assert await purpose() == "Buy."


async def test_revisions_that_are_not_there(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        for number in ("0", "2", "9", "x", "-1", "1.0", "%31%30", "9" * 20):
            for ref in ("clerk", "service", "gone"):
                assert (await managed.refusal("GET", f"/api/templates/{ref}/revisions/{number}"))[0] == 404
            assert (await managed.refusal("POST", f"/api/templates/clerk/revisions/{number}/publish"))[0] == 404


async def test_revisions_of_a_file(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        page = await managed.read("/api/templates/service/revisions")
        assert [(each["revision"], each["published"]) for each in page["items"]] == [(1, False), (3, True)]
        assert (await managed.read("/api/templates/service/revisions/1"))["purpose"] == "Old"
        status, reason = await managed.refusal("POST", "/api/templates/service/revisions/1/publish")
        assert (status, "change it there" in reason) == (409, True)


async def test_a_template_has_only_so_many_revisions(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        stored = await managed.store.get_resource(ResourceKind.TEMPLATE, "clerk")
        assert stored is not None
        full = TemplateRevisions.model_validate(stored.body).revisions * 1000
        body = {**stored.body, "revisions": full}
        await managed.store.put_resource(stored.model_copy(update={"body": body}), expected=None)
        assert (await managed.change("/api/templates/clerk", purpose="More.")).status == 409


async def test_a_revision_that_is_gone_is_empty(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        (revision,) = await managed.store.list_resources(ResourceKind.TEMPLATE_REVISION, limit=2)
        await managed.store.delete_resource(ResourceKind.TEMPLATE_REVISION, revision.id, expected=None)
        assert (await managed.read("/api/templates/clerk"))["purpose"] is None
        assert (await managed.read("/api/templates/clerk/revisions/1"))["createdAt"] is None


async def test_a_template_that_is_damaged_hides_no_other(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        damaged: list[dict[str, Any]] = [{}, {"ref": "x", "project": "shop", "revisions": []}]
        for number, body in enumerate(damaged):
            await keep(managed, ResourceKind.TEMPLATE, f"bad{number}", body)
            assert (await managed.refusal("GET", f"/api/templates/bad{number}"))[0] == 404
        listed = (await managed.read("/api/templates"))["items"]
        assert [each["ref"] for each in listed] == ["clerk", "service"]
    assert all("cannot be read" in record.message for record in caplog.records)


async def test_any_of_several_tags_may_match(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        place = "/api/agents/seller"
        tag = (await managed.ask("GET", place)).headers["etag"]
        for wrong in (f"W/{tag}", tag.strip('"'), '"x"', "", f'"{tag}"'):
            assert (await managed.refusal("PUT", place, agent("seller"), If_Match=wrong))[0] == 412, wrong
        assert (await managed.ask("PUT", place, agent("seller"), If_Match=f'"x", {tag}')).status == 200


async def test_nothing_that_was_sent_is_logged(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of what is refused nor of what goes wrong here."""

    class Broken(MemoryStore):
        async def put_resource(self, resource: Resource, *, expected: int | None) -> Resource:
            await trio.lowlevel.checkpoint()
            raise RuntimeError("a fault of ours")

    caplog.set_level("DEBUG")
    async with open_managed(tmp_path, store=Broken()) as managed:
        body = agent("hunter2", project="house", realtimeConfigurationId="house-voice", purpose="hunter2")
        answers = [
            await managed.ask("POST", "/api/agents", body),
            await managed.ask("POST", "/api/agents", {**body, "hunter2": "hunter2", "name": 2}),
            await managed.ask("POST", "/api/users", {"name": "hunter2", "passwordHash": "hunter2"}),
            await managed.ask("POST", "/api/agents", raw=b'{"hunter2'),
            await managed.ask("GET", "/api/agents/hunter2?hunter2=hunter2"),
            await managed.ask("GET", "/api/agents/hunter2", key="hunter2"),
            await managed.ask("GET", "/api/agents", key="", Authorization="Basic hunter2"),
        ]
    assert [answer.status for answer in answers] == [500, 422, 422, 400, 400, 401, 401]
    assert "a fault of ours" in caplog.text
    assert "hunter2" not in caplog.text
    for answer in answers[:1] + answers[2:]:
        assert b"hunter2" not in answer.body


# --- bodies ------------------------------------------------------------------------------------------------------------


BODIES: list[tuple[bytes, str, int]] = [
    (b"{}", "text/plain", 415),
    (b"{}", "", 415),
    (b"{}", "application/json; charset=latin-1", 415),
    (b"{}", "application/x-www-form-urlencoded", 415),
    (b"{", "application/json", 400),
    (b'{"ref":"a","ref":"b"}', "application/json; charset=utf-8", 400),
    (b"[" * 100_000, "application/json", 400),
    (b'{"ref": NaN}', "application/json", 400),
    (b'{"ref": ' + b"9" * 400 + b"}", "application/json", 400),
    (b'{"ref": "a\\u0000"}', "application/json", 400),
    (b"[]", "application/json", 422),
    (b"null", "application/json", 422),
    (b'"' + b"x" * (1 << 20) + b'"', "application/json", 413),
]


async def test_bodies_that_are_refused(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        for raw, content_type, status in BODIES:
            for method, path in (("POST", "/api/agents"), ("PUT", "/api/agents/a")):
                found, _ = await managed.refusal(method, path, raw=raw, content_type=content_type, If_Match="*")
                assert found == status, (raw[:50], content_type)
        assert await managed.store.list_resources(ResourceKind.AGENT, limit=2) == []


async def test_a_body_as_large_as_may_be(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        size = (1 << 20) - len(json.dumps(agent("big", purpose="")))
        assert (await managed.ask("POST", "/api/agents", agent("big", purpose="x" * size))).status == 201
        assert (await managed.refusal("POST", "/api/agents", agent("big", purpose="x" * (size + 1))))[0] == 413


async def test_names_that_would_be_operators_are_names(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Keys such as those of a database's queries are kept as they are, where any key may be."""
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        names = ["$ne", "a.b", "$where", "' OR 1=1 --", "__proto__", "constructor"]
        variables = [{"name": name} for name in names]
        await managed.make("/api/templates", template("odd", published=True, variables=variables))
        values = dict.fromkeys(names, "x'; DROP TABLE agents; --")
        made = await managed.make("/api/agents", agent("odd", template="odd", templateVariables=values))
        assert made.json["templateVariables"] == values
        assert (await managed.read("/api/agents/odd"))["templateVariables"] == values
        assert (await managed.faults("POST", "/api/agents", {"$ne": None, "ref": {"$gt": ""}}))[0][0] == ""


# --- paths and queries -------------------------------------------------------------------------------------------------


NAMES = ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "seller%00", "%00", "seller%0a", "sel%2Fler", "%ff", "seller%20", "$ne",
    "%7B%22%24ne%22%3A1%7D", "'", "%22", "SELLER", "seller%252F", "*", "x" * 4000]  # fmt: skip


async def test_ids_are_only_ids(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        for name in NAMES:
            for method, path in (
                ("GET", f"/api/agents/{name}"),
                ("DELETE", f"/api/agents/{name}"),
                ("GET", f"/api/templates/{name}/revisions"),
                ("GET", f"/api/sessions/{name}"),
            ):
                assert (await managed.refusal(method, path))[0] == 404, path


async def test_an_id_may_hold_anything(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Subjects of tokens and ids of sessions are made by others."""
    async with open_managed(tmp_path) as managed:
        for subject, path in {
            "auth0|1": "auth0%7C1",
            "a/b": "a%2Fb",
            "a%2Fb": "a%252Fb",
            "ü ñ": "%C3%BC%20%C3%B1",
            "..": "%2e%2e",
        }.items():
            body = {"name": "Ann", "email": "a@x.org", "source": "token", "lastSeenAt": "2030-01-01T00:00:00+00:00"}
            await keep(managed, ResourceKind.USER, subject, body)
            shown = await managed.read(f"/api/users/{path}")
            assert (shown["id"], shown["name"], shown["source"]) == (subject, "Ann", "token")


QUERIES = [
    ("limit=0", "limit has to be a whole number from 1 to 1000."),
    ("limit=1001", "limit has to be a whole number from 1 to 1000."),
    ("limit=%D9%A1", "limit has to be a whole number from 1 to 1000."),
    ("limit=1&limit=2", "limit may only be given once."),
    ("limit[$ne]=1", "There is no such parameter here; there are: limit, after."),
    ("hidden=1", "There is no such parameter here; there are: limit, after."),
    ("after=" + "x" * 1025, "after has to be the next of an earlier answer."),
]


async def test_queries_that_are_refused(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        for query, reason in QUERIES:
            assert await managed.refusal("GET", f"/api/projects?{query}") == (400, reason)
        assert (await managed.refusal("GET", "/api/projects/house?x=1"))[0] == 400


async def test_a_cursor_is_only_a_cursor(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        for after, expected in {
            "%00": ["house"],
            "'%20OR%201=1": ["house"],
            "$gt": ["house"],
            "../..": ["house"],
            "%F4%8F%BF%BF": [],
            "%ff": ["house"],
        }.items():
            page = await managed.read(f"/api/projects?after={after}")
            assert [each["ref"] for each in page["items"]] == expected


async def test_methods_that_are_not_there(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        for method in ("PATCH", "OPTIONS", "TRACE", "POST"):
            answer = await managed.ask(method, "/api/agents/seller")
            assert answer.status == 405
            assert {each.strip() for each in answer.headers["allow"].split(",")} == {"GET", "HEAD", "PUT", "DELETE"}


# --- a store that fails ------------------------------------------------------------------------------------------------


class FailingStore(MemoryStore):
    fails = False

    async def check(self) -> None:
        await super().check()
        if self.fails:
            raise StoreError("connection to db.internal refused")


async def test_a_store_that_fails(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = FailingStore()
    async with open_managed(tmp_path, store=store) as managed:
        await furnish(managed)
        store.fails = True
        for method, path in (
            ("GET", "/api/agents/seller"),
            ("GET", "/api/projects"),
            ("POST", "/api/agents"),
            ("DELETE", "/api/agents/seller"),
            ("GET", "/api/sessions"),
        ):
            answer = await managed.ask(method, path, agent("new") if method == "POST" else None)
            assert (answer.status, answer.headers["retry-after"].isdigit()) == (503, True)
            assert "db.internal" not in answer.body.decode()
        assert (await managed.read("/api/agents", key=""))["items"] == [{"ref": "host", "name": "Host"}]


async def test_a_client_that_leaves_in_the_middle_leaves_nothing_stale(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The framework cancels a handler whose client is gone, also right after its write has happened."""

    class SlowToTell(MemoryStore):
        async def put_resource(self, resource: Resource, *, expected: int | None) -> Resource:
            stored = await super().put_resource(resource, expected=expected)
            if expected:
                await trio.sleep(1)
            return stored

    async with open_managed(tmp_path, store=SlowToTell()) as managed:
        await furnish(managed)
        place = "/api/realtime-configurations/voice"
        assert await managed.catalog.realtime_configuration("voice") is not None
        body = {"id": "voice", "project": "shop", "properties": {"provider": "Internal", "temperature": 2}}
        headers = {"X-API-Key": "admin", "If-Match": "*", "Content-Type": "application/json"}
        client = managed.stack.dial()
        with trio.move_on_after(0.5) as patience:
            await ask(client, place, method="PUT", headers=headers, body=json.dumps(body).encode())
        assert patience.cancelled_caught
        await trio.aclose_forcefully(client)
        await managed.stack.wait_idle()
        found = await managed.catalog.realtime_configuration("voice")
        assert found is not None
        assert found[0].temperature == 2


# --- users and keys ----------------------------------------------------------------------------------------------------


async def test_passwords_are_sent_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a clock that jumps: a password is hashed in a thread."""
    async with open_managed(tmp_path) as managed:
        made = await managed.make("/api/users", {"name": "sam", "password": "hunter2 is long"})
        assert made.json["hasPassword"] is True
        account = await managed.catalog.user("sam")
        assert account is not None
        assert account.password_hash.startswith("$argon2id$")
        changed = await managed.change("/api/users/sam", role="owner")
        assert changed.status == 200
        again = await managed.catalog.user("sam")
        assert again is not None
        assert (again.password_hash, again.role) == (account.password_hash, "owner")
        other = account.password_hash
        changed = await managed.change("/api/users/sam", passwordHash=other)
        assert changed.json["hasPassword"] is True
        listed = (await managed.ask("GET", "/api/users")).body + changed.body + made.body
        assert b"argon2" not in listed
        assert b"hunter2" not in listed
        removed = await managed.change("/api/users/sam", password=None)
        assert removed.json["hasPassword"] is False
        for wrong, pointer in (
            ({"password": "a\nb"}, "/password"),
            ({"passwordHash": "hunter2"}, "/passwordHash"),
            ({"passwordHash": "$argon2id$v=19$m=9999999,t=2,p=1$c2FsdA$aGFzaA"}, "/passwordHash"),
            ({"password": "x", "passwordHash": other}, "/passwordHash"),
        ):
            ((found, told),) = await managed.faults("PUT", "/api/users/sam", {"name": "sam", **wrong}, If_Match="*")
            assert found == pointer
            assert "hunter2" not in told


async def test_users_of_tokens_can_be_shut_out(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        now = managed.services.environment.wall_clock()
        body = {"name": "Ann B.", "email": "", "source": "token", "lastSeenAt": now.isoformat()}
        await keep(managed, ResourceKind.USER, "auth0|1", body)
        until = (now + timedelta(hours=1)).isoformat()
        answer = await managed.change("/api/users/auth0%7C1", disabled=True, tokensValidFrom=until)
        assert answer.status == 200
        assert (answer.json["name"], answer.json["source"], answer.json["disabled"]) == ("Ann B.", "token", True)
        account = await managed.catalog.user("auth0|1")
        assert account is not None
        assert account.is_disabled
        assert account.tokens_valid_from == now + timedelta(hours=1)
        stored = await managed.store.get_resource(ResourceKind.USER, "auth0|1")
        assert stored is not None
        assert (stored.body["name"], stored.body["lastSeenAt"]) == ("Ann B.", now.isoformat())


async def test_a_key_is_told_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        sent = {"name": "ci", "projects": ["shop"], "expiresAt": "2031-01-01T00:00:00Z", "role": "owner"}
        made = await managed.make("/api/api-keys", sent)
        key, place = made.json["key"], made.headers["location"]
        assert key.startswith(f"sf_{made.json['id']}_")
        changed = await managed.change(place, name="deploy", projects=None)
        assert (changed.json["id"], changed.json["expiresAt"], changed.json["projects"]) == (
            made.json["id"],
            "2031-01-01T00:00:00Z",
            None,
        )
        kept = await managed.store.get_resource(ResourceKind.API_KEY, made.json["id"])
        assert kept is not None
        secret = kept.body["secretSha256"]
        for path in ("/api/api-keys", place):
            shown = (await managed.ask("GET", path)).body.decode() + changed.body.decode()
            assert key not in shown
            assert secret not in shown
        assert (await managed.refusal("PUT", "/api/api-keys/mine", {"name": "x"}, If_None_Match="*"))[0] == 404
        taken = await managed.make("/api/api-keys", {"id": "mine", "key": "mine"})
        assert taken.json["id"] != "mine"
