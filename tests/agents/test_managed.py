"""What documents may hold that come over the API, and what project files show there."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from agents.catalog import LayeredCatalog
from agents.managed import ADMINS_ONLY, MAX_FAULTS, ProjectDocuments
from agents.project import check_files, load_projects
from engine.elements import JsonObject
from engine.interfaces import InvalidDocumentError
from engine.store.documents import Resource, ResourceKind
from engine.store.memory import MemoryStore
from tests.agents.support import COMPONENTS

FILE = """
project: {ref: house, name: House, access: public, members: [olga]}
users: [{name: eva, passwordHash: "env:EVAS_HASH", role: owner}, {name: tom}]
realtimeConfigurations: [{id: house-voice, properties: {provider: Internal}}]
templates:
  - {ref: service, revision: 1, purpose: "Old."}
  - {ref: service, revision: 4, published: true, variables: [{name: city}, {name: tone, type: enum, values: [warm, brief]}]}
agents:
  - {ref: host, type: basic, name: Host, realtimeConfigurationId: house-voice, knowledge: [menu.md]}
"""
NOW = datetime(2030, 1, 1, tzinfo=UTC)
AGENT: JsonObject = {
    "ref": "seller",
    "project": "shop",
    "type": "basic",
    "name": "Seller",
    "realtimeConfigurationId": "voice",
}
CONFIGURATION: JsonObject = {"id": "voice", "project": "shop", "properties": {"provider": "Internal"}}


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectDocuments:
    monkeypatch.setenv("EVAS_HASH", "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA")
    path = tmp_path / "house.yaml"
    path.write_text(FILE, encoding="utf-8")
    files = load_projects([path], components=COMPONENTS)
    return ProjectDocuments(LayeredCatalog(files, MemoryStore(), components=COMPONENTS))


async def keep(documents: ProjectDocuments, kind: ResourceKind, document_id: str, body: JsonObject) -> None:
    resource = Resource(kind=kind, id=document_id, body=body, created_at=NOW, updated_at=NOW)
    await documents.catalog.store.put_resource(resource, expected=None)


async def furnish(documents: ProjectDocuments) -> None:
    """The project `shop` with a configuration, two agents, and a template of two revisions."""
    await keep(documents, ResourceKind.PROJECT, "shop", {"ref": "shop"})
    await keep(documents, ResourceKind.REALTIME_CONFIGURATION, "voice", CONFIGURATION)
    await keep(documents, ResourceKind.AGENT, "baker", {**AGENT, "ref": "baker", "template": "clerk"})
    await keep(documents, ResourceKind.AGENT, "cook", {**AGENT, "ref": "cook", "handover": "baker"})
    variables = [{"name": "what"}]
    revision = {"ref": "clerk", "project": "shop", "variables": variables}
    await keep(documents, ResourceKind.TEMPLATE_REVISION, "r1", {"ref": "clerk", "project": "shop"})
    await keep(documents, ResourceKind.TEMPLATE_REVISION, "r2", revision)
    head = {"ref": "clerk", "project": "shop", "published": 2, "revisions": ["r1", "r2"]}
    await keep(documents, ResourceKind.TEMPLATE, "clerk", head)


async def faults(
    documents: ProjectDocuments, body: JsonObject, kind: ResourceKind = ResourceKind.AGENT, **more: Any
) -> list[tuple[str, str]]:
    """Pointer and message of everything that is wrong with a document."""
    try:
        await documents.check(kind, body, **more)
    except InvalidDocumentError as exc:
        return [(fault.pointer, fault.message) for fault in exc.faults]
    return []


# --- what a document may hold ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"handover": "baker", "purpose": None, "preSessionWebhook": None},
        {"handover": "seller"},
        {"template": "clerk", "templateVariables": {"what": "tea"}},
        {"template": "clerk", "templateRevision": 1},
        {"mcpServers": [{"name": "m", "url": "https://tools.example/mcp"}]},
        {"postSessionWebhooks": [{"url": "https://a.example", "secret": "env:HOOK_SECRET"}]},
        {"type": "relational", "llmConfiguration": {"initialPlanning": {"apiKey": "none", "model": "m"}}},
        {"type": "relational", "sharedMemoryAgentRefs": ["nobody"]},  # skipped when the agent is loaded (R3)
        {"realtimeConfigurationId": "house-voice"},
        {"project": "house", "template": "service", "templateVariables": {"tone": "warm"}},
    ],
)
async def test_good_agents(fields: JsonObject, documents: ProjectDocuments, autojump_clock: MockClock) -> None:
    await furnish(documents)
    assert await faults(documents, {**AGENT, **fields}) == []


@pytest.mark.parametrize(
    ("fields", "pointer", "message"),
    [
        ({"ref": "a b"}, "/ref", "ref may hold only letters, digits and . _ ~ -, at most 128"),
        ({"name": 7}, "/name", "name should be a valid string (put it in quotes if it is meant as text)"),
        ({"purpos": "x"}, "/purpos", "unknown field 'purpos'; did you mean 'purpose'?"),
        ({"a/b~c": "x"}, "/a~1b~0c", "unknown field 'a/b~c'"),
        ({"type": "basik"}, "/type", "unknown type 'basik'; did you mean 'basic'?"),
        ({"maxSessionMinutes": 0}, "/maxSessionMinutes", "maxSessionMinutes should be greater than 0"),
        ({"project": "shap"}, "/project", "unknown project 'shap'; did you mean 'shop'?"),
        (
            {"realtimeConfigurationId": "voize"},
            "/realtimeConfigurationId",
            "unknown realtime configuration 'voize'; did you mean 'voice'?",
        ),
        ({"handover": "bakr"}, "/handover", "unknown agent 'bakr'; did you mean 'baker'?"),
        ({"handover": "host"}, "/handover", "unknown agent 'host'; known: baker, cook, seller"),  # of another project
        ({"template": "clark"}, "/template", "unknown template 'clark'; did you mean 'clerk'?"),
        ({"template": "service"}, "/template", "unknown template 'service'; known: clerk"),
        (
            {"template": "clerk", "templateRevision": 3},
            "/templateRevision",
            "template clerk has no revision 3; it has 1, 2",
        ),
        (
            {"template": "clerk", "templateVariables": {"wat": "tea"}},
            "/templateVariables/wat",
            "unknown template variable 'wat'; did you mean 'what'?",
        ),
        (
            {"project": "house", "template": "service", "templateVariables": {"tone": "loud"}},
            "/templateVariables/tone",
            "tone must be one of warm, brief",
        ),
        ({"templateRevision": 1}, "/templateRevision", "templateRevision without a template"),
        (
            {"tools": ["os:system"]},
            "/tools/0",
            "tools may only be names of installed ones here; module:function is for project files",
        ),
        ({"tools": ["hammer"]}, "/tools/0", "no tool named 'hammer' is installed; installed: none"),
        ({"knowledge": ["/etc"]}, "/knowledge", "knowledge names paths, which is for project files"),
        ({"skills": ["~"]}, "/skills", "skills names paths, which is for project files"),
        (
            {"mcpServers": [{"name": "m", "command": ["sh"]}]},
            "/mcpServers/0/command",
            "a server may only be reached at a url here; command is for project files",
        ),
        (
            {"preSessionWebhook": {"url": "https://a.example", "secret": "file:/etc/passwd"}},
            "/preSessionWebhook/secret",
            "secret may only be env:NAME here; file:PATH is for project files",
        ),
        (
            {"postSessionWebhooks": [{"url": "https://a.example", "secret": "env:SOUFFLEUR_JWT_SECRET"}]},
            "/postSessionWebhooks/0/secret",
            "secret may not be one of the server's own settings (SOUFFLEUR_…)",
        ),
        (
            {"type": "relational", "llmConfiguration": {"initialPlanning": {"apiKey": "env:SOUFFLEUR_ADMIN_KEY"}}},
            "/llmConfiguration/initialPlanning/apiKey",
            "apiKey may not be one of the server's own settings (SOUFFLEUR_…)",
        ),
    ],
)
async def test_faults_of_an_agent(
    fields: JsonObject, pointer: str, message: str, documents: ProjectDocuments, autojump_clock: MockClock
) -> None:
    await furnish(documents)
    assert await faults(documents, {**AGENT, **fields}) == [(pointer, message)]


@pytest.mark.parametrize(
    ("properties", "pointer", "message"),
    [
        ({}, "/properties", "missing field 'provider'"),
        ({"provider": "Intern"}, "/properties/provider", "unknown provider 'Intern'; did you mean 'Internal'?"),
        ({"provider": "Internal", "stt": {"apiKey": "sk-1"}}, "/properties/stt/apiKey", "never the key itself"),
        ({"provider": "Internal", "apiKey": "file:/k"}, "/properties/apiKey", "file:PATH is for project files"),
        ({"provider": "Internal", "stt": {"x": ["file:/k"]}}, "/properties/stt/x/0", "file:PATH is for project files"),
        ({"provider": "Internal", "stt": {"x": "env:SOUFFLEUR_A"}}, "/properties/stt/x", "the server's own settings"),
        (
            {"provider": "Internal", "stt": {"modelsDirectory": "/"}},
            "/properties/stt/modelsDirectory",
            "modelsDirectory names a path, which is for project files",
        ),
        (
            {"provider": "Internal", "chat": {"provider": "Domo"}},
            "/properties/chat/provider",
            "unknown chat model 'Domo'",
        ),
        ({"provider": "Internal", "temperature": 3}, "/properties/temperature", "less than or equal to 2"),
        ("Internal", "/properties", "properties should be a mapping of names to values"),
    ],
)
async def test_faults_of_a_configuration(
    properties: Any, pointer: str, message: str, documents: ProjectDocuments, autojump_clock: MockClock
) -> None:
    await furnish(documents)
    body = {**CONFIGURATION, "properties": properties}
    ((found, told),) = await faults(documents, body, ResourceKind.REALTIME_CONFIGURATION)
    assert found == pointer
    assert message in told


@pytest.mark.parametrize(
    ("kind", "body", "pointer", "message"),
    [
        (
            ResourceKind.PROJECT,
            {"ref": "shop", "featuredAgent": "bakr"},
            "/featuredAgent",
            "unknown agent 'bakr'; did you mean 'baker'?",
        ),
        (
            ResourceKind.PROJECT,
            {"ref": "new", "featuredAgent": "a"},
            "/featuredAgent",
            "unknown agent 'a'; known: none",
        ),
        (
            ResourceKind.TEMPLATE_REVISION,
            {"ref": "t", "project": "nowhere"},
            "/project",
            "unknown project 'nowhere'; known: house, shop",
        ),
        (
            ResourceKind.TEMPLATE_REVISION,
            {"ref": "t", "project": "shop", "variables": [{"name": "a", "type": "enum"}]},
            "/variables/0",
            "an enum variable lists its values, a text variable has none",
        ),
        (ResourceKind.USER, {"name": "a:b"}, "/name", "without colons"),
        (ResourceKind.USER, {"name": ".."}, "/name", "beginning with neither a dot nor a space"),
        (ResourceKind.USER, {"name": "a", "tokensValidFrom": 1}, "/tokensValidFrom", "must be a time with its zone"),
        (ResourceKind.USER, {"name": "a", "tokensValidFrom": "2030-01-01T00:00"}, "/tokensValidFrom", "timezone"),
        (ResourceKind.USER, {"name": "a", "email": "x"}, "/email", "must be an e-mail address"),
        (ResourceKind.USER, {"name": "a", "password": ""}, "/password", "at least 1 character"),
        (ResourceKind.API_KEY, {"projects": ["nowhere"]}, "/projects/0", "unknown project 'nowhere'"),
        (ResourceKind.API_KEY, {"user": "nobody"}, "/user", "unknown user"),
        (ResourceKind.API_KEY, {"expiresAt": "tomorrow"}, "/expiresAt", "must be a time with its zone"),
    ],
)
async def test_faults_of_others(
    kind: ResourceKind,
    body: JsonObject,
    pointer: str,
    message: str,
    documents: ProjectDocuments,
    autojump_clock: MockClock,
) -> None:
    await furnish(documents)
    ((found, told),) = await faults(documents, body, kind)
    assert found == pointer
    assert message in told


async def test_every_fault_is_told_at_once(documents: ProjectDocuments, autojump_clock: MockClock) -> None:
    await furnish(documents)
    body = {"ref": "x", "type": "basic", "project": "shop", "handover": "nobody", "tools": ["a:b"], "template": "none"}
    assert [pointer for pointer, _ in await faults(documents, body)] == [
        "/name",
        "/realtimeConfigurationId",
        "/tools/0",
        "/handover",
        "/template",
    ]


async def test_not_more_faults_than_anybody_reads(documents: ProjectDocuments, autojump_clock: MockClock) -> None:
    await furnish(documents)
    assert len(await faults(documents, {**AGENT, **{f"field{number}": 1 for number in range(5000)}})) == MAX_FAULTS
    many = {**AGENT, "template": "clerk", "templateVariables": {f"v{number}": "" for number in range(5000)}}
    assert len(await faults(documents, many)) == MAX_FAULTS
    shared = [f"a{number}" for number in range(5000)]  # one that is not there is skipped; so many are a mistake
    planner = {**AGENT, "type": "relational", "sharedMemoryAgentRefs": shared}
    assert [pointer for pointer, _ in await faults(documents, planner)] == [f"/sharedMemoryAgentRefs/{MAX_FAULTS - 1}"]


async def test_a_document_stays_in_its_project(documents: ProjectDocuments, autojump_clock: MockClock) -> None:
    await furnish(documents)
    moved = {**AGENT, "project": "house", "realtimeConfigurationId": "house-voice"}
    message = "project cannot be changed; make a new document in the other project"
    assert await faults(documents, moved, stored=AGENT) == [("/project", message)]


# --- owners ------------------------------------------------------------------------------------------------------------


async def test_an_owner_knows_only_their_projects(documents: ProjectDocuments, autojump_clock: MockClock) -> None:
    await furnish(documents)
    mine = frozenset({"shop"})
    assert await faults(documents, AGENT, projects=mine) == []
    assert await faults(documents, {**AGENT, "project": "house"}, projects=mine) == [
        ("/project", "unknown project 'house'; known: shop")
    ]
    lent = {**AGENT, "realtimeConfigurationId": "house-voice"}
    message = "unknown realtime configuration 'house-voice'; did you mean 'voice'?"
    assert await faults(documents, lent, projects=mine) == [("/realtimeConfigurationId", message)]
    assert await faults(documents, {**lent, "purpose": "x"}, stored=lent, projects=mine) == []


REACHING: JsonObject = {
    "llmConfiguration": {"initialPlanning": {"baseUrl": "https://evil.example", "apiKey": "env:OPENAI_API_KEY"}},
    "mcpServers": [{"name": "m", "url": "http://10.0.0.1"}],
    "preSessionWebhook": {"url": "http://169.254.169.254"},
    "postSessionWebhooks": [{"url": "http://localhost", "secret": "env:SECRET"}],
}


@pytest.mark.parametrize("field", ADMINS_ONLY)
async def test_what_reaches_out_is_for_admins(
    field: str, documents: ProjectDocuments, autojump_clock: MockClock
) -> None:
    await furnish(documents)
    planner = {**AGENT, "type": "relational"}
    reaching = {**planner, field: REACHING[field]}
    assert await faults(documents, reaching) == []
    mine = frozenset({"shop"})
    refused = [(f"/{field}", f"{field} is for admins to change: it decides what the server spends or reaches")]
    assert await faults(documents, reaching, projects=mine) == refused
    assert await faults(documents, planner, stored=reaching, projects=mine) == refused
    assert await faults(documents, {**reaching, "purpose": "x"}, stored=reaching, projects=mine) == []


async def test_an_owner_gives_their_project_no_minutes(documents: ProjectDocuments, autojump_clock: MockClock) -> None:
    stored = {"ref": "shop", "subscription": {"minutesPerMonth": 10}}
    mine = frozenset({"shop"})
    kind = ResourceKind.PROJECT
    assert await faults(documents, {**stored, "name": "Shop"}, kind, stored=stored, projects=mine) == []
    ((pointer, _),) = await faults(documents, {"ref": "shop"}, kind, stored=stored, projects=mine)
    assert pointer == "/subscription"


# --- showing -----------------------------------------------------------------------------------------------------------


def test_documents_of_files(documents: ProjectDocuments, tmp_path: Path) -> None:
    def bodies(kind: ResourceKind) -> dict[str, JsonObject]:
        found = documents.in_files(kind)
        assert {each.file for each in found.values()} <= {str(tmp_path / "house.yaml")}
        return {name: each.body for name, each in found.items()}

    assert bodies(ResourceKind.PROJECT)["house"]["members"] == ["olga", "eva", "tom"]
    host = bodies(ResourceKind.AGENT)["host"]
    assert (host["project"], host["knowledge"], host["sessionEndSupport"]) == ("house", ["menu.md"], True)
    assert list(bodies(ResourceKind.TEMPLATE_REVISION)) == ["service/1", "service/4"]
    assert bodies(ResourceKind.TEMPLATE)["service"]["revision"] == 4
    assert bodies(ResourceKind.REALTIME_CONFIGURATION)["house-voice"]["properties"] == {"provider": "Internal"}
    users = bodies(ResourceKind.USER)
    assert [users[name]["hasPassword"] for name in ("eva", "tom")] == [True, False]
    assert "HASH" not in str(users)
    assert bodies(ResourceKind.API_KEY) == {}


def test_a_document_is_shown_with_its_defaults(documents: ProjectDocuments) -> None:
    shown = documents.complete(ResourceKind.AGENT, AGENT)
    assert (shown["showSteering"], shown["tools"], shown["project"]) == (True, [], "shop")
    old = {"ref": "x", "fromAnotherVersion": 1}
    assert documents.complete(ResourceKind.AGENT, old) == old


def test_no_secret_is_shown(documents: ProjectDocuments) -> None:
    user = {"name": "sam", "passwordHash": "$argon2id$x", "source": "api"}
    assert documents.complete(ResourceKind.USER, user)["hasPassword"] is True
    damaged = {**user, "role": "king"}
    key = {"name": "k", "secretSha256": "abc", "role": "member", "somethingNew": "abc"}
    for kind, body in [(ResourceKind.USER, user), (ResourceKind.USER, damaged), (ResourceKind.API_KEY, key)]:
        shown = str(documents.complete(kind, body))
        assert "argon2" not in shown
        assert "abc" not in shown


async def test_what_is_in_use(documents: ProjectDocuments, autojump_clock: MockClock) -> None:
    await furnish(documents)
    await keep(documents, ResourceKind.PROJECT, "shop", {"ref": "shop", "featuredAgent": "baker"})
    uses = documents.uses
    assert await uses(ResourceKind.PROJECT, "shop") == [
        "agent baker",
        "agent cook",
        "template clerk",
        "realtime configuration voice",
    ]
    assert await uses(ResourceKind.AGENT, "baker") == ["agent cook", "project shop"]
    assert await uses(ResourceKind.TEMPLATE, "clerk") == ["agent baker"]
    assert await uses(ResourceKind.REALTIME_CONFIGURATION, "voice") == ["agent baker", "agent cook"]
    assert await uses(ResourceKind.USER, "eva") == []


def test_a_templates_ref_is_the_whole_servers(tmp_path: Path) -> None:
    """The management API names templates without their project."""
    for name in ("a", "b"):
        file = f"project: {{ref: {name}}}\ntemplates:\n  - {{ref: service, revision: 1}}\n  - {{ref: service, revision: 2}}\n"
        (tmp_path / f"{name}.yaml").write_text(file, encoding="utf-8")
    faults = check_files([tmp_path / "a.yaml", tmp_path / "b.yaml"], components=COMPONENTS)
    assert [(fault.line, fault.message) for fault in faults] == [
        (line, f"template service is in {tmp_path / 'a.yaml'} as well") for line in (3, 4)
    ]
