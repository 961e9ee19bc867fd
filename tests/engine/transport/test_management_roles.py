"""Who may manage what: every route for every role, and what owners may not do."""

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from engine.store.documents import Resource, ResourceKind
from tests.engine.transport.managed import FILE, Managed, agent, furnish, open_managed, template

NOBODY, STRANGER = "", "wrong"
ROUTES = (
    ("GET", "/api/projects"),
    ("POST", "/api/projects"),
    ("GET", "/api/projects/house"),
    ("PUT", "/api/projects/house"),
    ("DELETE", "/api/projects/house"),
    ("POST", "/api/agents"),
    ("GET", "/api/agents/host"),
    ("PUT", "/api/agents/host"),
    ("DELETE", "/api/agents/host"),
    ("GET", "/api/templates"),
    ("POST", "/api/templates"),
    ("GET", "/api/templates/service"),
    ("PUT", "/api/templates/service"),
    ("DELETE", "/api/templates/service"),
    ("GET", "/api/templates/service/revisions"),
    ("GET", "/api/templates/service/revisions/1"),
    ("POST", "/api/templates/service/revisions/1/publish"),
    ("GET", "/api/realtime-configurations"),
    ("POST", "/api/realtime-configurations"),
    ("GET", "/api/realtime-configurations/house-voice"),
    ("PUT", "/api/realtime-configurations/house-voice"),
    ("DELETE", "/api/realtime-configurations/house-voice"),
    ("GET", "/api/users"),
    ("POST", "/api/users"),
    ("GET", "/api/users/eva"),
    ("PUT", "/api/users/eva"),
    ("DELETE", "/api/users/eva"),
    ("GET", "/api/api-keys"),
    ("POST", "/api/api-keys"),
    ("GET", "/api/api-keys/1"),
    ("PUT", "/api/api-keys/1"),
    ("DELETE", "/api/api-keys/1"),
)
FOR_ADMINS = ("/api/users", "/api/api-keys")


@pytest.fixture(autouse=True)
def _passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVAS_PASSWORD", "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA")


async def status(managed: Managed, method: str, path: str, key: str, **headers: str) -> int:
    sent: dict[str, Any] = {**headers}
    answer = await managed.ask(method, path, {} if method in ("POST", "PUT") else None, key=key, **sent)
    return answer.status


async def test_those_who_manage_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        for method, path in ROUTES:
            answer = await managed.ask(method, path, key=NOBODY)
            assert answer.status == 401, path
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert await status(managed, method, path, STRANGER) == 401
            assert await status(managed, method, path, "mia") == 403
            assert await status(managed, method, path, "busy") == 503


async def test_users_and_keys_are_for_admins(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        for method, path in ROUTES:
            for key in ("olga", "oscar", "limited"):
                if path.startswith(FOR_ADMINS):
                    assert await status(managed, method, path, key) == 403, path


async def test_an_owner_sees_their_projects(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        mine = {
            "projects": ["house"],
            "agents": ["host"],
            "templates": ["service"],
            "realtime-configurations": ["house-voice"],
        }
        theirs = ["projects/shop", "agents/seller", "templates/clerk", "realtime-configurations/voice"]
        for key in ("olga", "limited"):
            for kind, names in mine.items():
                page = await managed.read(f"/api/{kind}", key=key)
                assert [each.get("ref", each.get("id")) for each in page["items"]] == names
                assert page["next"] is None
                assert await status(managed, "GET", f"/api/{kind}/{names[0]}", key) == 200
            for path in theirs:
                assert await managed.refusal("GET", f"/api/{path}", key=key) == await managed.refusal(
                    "GET", f"/api/{path}x", key=key
                )
        for kind in mine:
            assert (await managed.read(f"/api/{kind}", key="oscar"))["items"] == []


async def test_an_owner_of_few_among_many_gets_short_pages(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        now = managed.services.environment.wall_clock()
        for number in range(5200):
            ref = f"b{number:04}"
            body = agent(ref, project="house" if number == 5100 else "shop")
            resource = Resource(kind=ResourceKind.AGENT, id=ref, body=body, created_at=now, updated_at=now)
            await managed.store.put_resource(resource, expected=0)
        page = await managed.read("/api/agents?limit=1", key="olga")
        assert (page["items"], page["next"]) == ([], "b4999")
        page = await managed.read(f"/api/agents?limit=1&after={page['next']}", key="olga")
        assert [each["ref"] for each in page["items"]] == ["b5100"]
        page = await managed.read(f"/api/agents?limit=1&after={page['next']}", key="olga")
        assert ([each["ref"] for each in page["items"]], page["next"]) == (["host"], None)


async def test_an_owner_manages_agents_and_templates(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        mine = agent("waiter", project="house", realtimeConfigurationId="house-voice")
        await managed.make("/api/agents", mine, key="olga")
        assert (await managed.change("/api/agents/waiter", key="olga", purpose="Serve.")).status == 200
        await managed.make("/api/templates", template("menu", project="house"), key="olga")
        assert (await managed.change("/api/templates/menu", key="olga", published=True)).status == 200
        assert (await managed.ask("POST", "/api/templates/menu/revisions/1/publish", key="olga")).status == 200
        for path in ("agents/waiter", "templates/menu"):
            assert (await managed.ask("DELETE", f"/api/{path}", key="olga")).status == 204


async def test_what_of_others_an_owner_cannot_do(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        unknown = [("/project", "unknown project 'shop'; known: house")]
        lent = "unknown realtime configuration 'voice'; did you mean 'house-voice'?"
        assert await managed.faults("POST", "/api/agents", agent("mine"), key="olga") == [
            *unknown,
            ("/realtimeConfigurationId", lent),
        ]
        assert await managed.faults("POST", "/api/templates", template("mine"), key="olga") == unknown
        stolen = agent("seller", project="house", realtimeConfigurationId="house-voice")
        for path, body in (
            ("/api/agents/seller", stolen),
            ("/api/templates/clerk", template("clerk", project="house")),
        ):
            assert (await managed.refusal("PUT", path, body, key="olga", If_Match="*"))[0] == 412
            assert (await managed.refusal("PUT", path, body, key="olga", If_None_Match="*"))[0] == 412
            assert (await managed.refusal("DELETE", path, key="olga"))[0] == 404
        assert (await managed.refusal("POST", "/api/agents", stolen, key="olga"))[0] == 409
        assert (await managed.refusal("POST", "/api/templates/clerk/revisions/1/publish", key="olga"))[0] == 404
        assert (await managed.read("/api/agents/seller"))["project"] == "shop"


async def test_a_file_of_others_is_not_told(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Nor where it lies."""
    async with open_managed(tmp_path, file=FILE.replace("members: [olga]", "members: [oscar]")) as managed:
        await furnish(managed)
        await managed.change("/api/projects/shop", members=["olga"])
        body = agent("host", realtimeConfigurationId="voice")
        for method, path, headers in (
            ("POST", "/api/agents", {}),
            ("PUT", "/api/agents/host", {"If_Match": "*"}),
            ("PUT", "/api/agents/host", {"If_None_Match": "*"}),
        ):
            told = await managed.refusal(method, path, body, key="olga", **headers)
            assert told == (409, "The agent host is there already.")
        assert await managed.refusal("DELETE", "/api/agents/host", key="olga") == (404, "There is no such agent.")


async def test_the_project_itself(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Its owner says what it is called and who is in it; how much it may use, and whether it is there, an admin."""
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        place = "/api/projects/shop"
        await managed.change(place, members=["oscar"], subscription={"minutesPerMonth": 10})
        assert (await managed.change(place, key="oscar", name="Shop", members=["oscar", "mia"])).status == 200
        more = {"ref": "shop", "subscription": {"minutesPerMonth": 10_000}}
        ((pointer, _),) = await managed.faults("PUT", place, more, key="oscar", If_Match="*")
        assert pointer == "/subscription"
        assert await status(managed, "DELETE", place, "oscar") == 403
        assert await status(managed, "POST", "/api/projects", "oscar") == 403
        assert await status(managed, "PUT", "/api/projects/new", "oscar", If_None_Match="*") == 403
        assert (await managed.change(place, key="oscar", members=[])).status == 200
        assert await status(managed, "GET", place, "oscar") == 404  # they have left it


async def test_configurations_are_read_by_owners(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        await managed.change("/api/projects/shop", members=["oscar"])
        place = "/api/realtime-configurations/voice"
        assert (await managed.ask("GET", place, key="oscar")).status == 200
        body: dict[str, Any] = {"id": "voice", "project": "shop", "properties": {"provider": "Internal"}}
        for method, path in (("PUT", place), ("DELETE", place), ("POST", "/api/realtime-configurations")):
            sent = body if method != "DELETE" else None
            assert (await managed.refusal(method, path, sent, key="oscar", If_Match="*"))[0] == 403


async def test_the_list_of_agents_is_for_everybody(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        public = {"items": [{"ref": "host", "name": "Host"}], "next": None}
        assert await managed.read("/api/agents", key=NOBODY) == public
        assert await managed.read("/api/agents", key="mia") == public
        assert [each["ref"] for each in (await managed.read("/api/agents"))["items"]] == ["host", "seller"]
        assert (await managed.read("/api/agents", key="oscar"))["items"] == []
        assert (await managed.refusal("GET", "/api/agents", key=STRANGER))[0] == 401
        for key in (NOBODY, "mia"):
            listed = await managed.ask("GET", "/api/agents", key=key)
            same = await managed.ask("GET", "/api/agents", key=key, If_None_Match=listed.headers["etag"])
            assert same.status == 304


async def test_a_page_of_another_origin_changes_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        for method, path in ROUTES:
            if method != "GET":
                assert await status(managed, method, path, "admin", Origin="https://evil.example") == 403
