"""The management API through the real stack: documents of a project file and of a store in memory, and callers of every role."""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from agents.catalog import LayeredCatalog
from agents.managed import ProjectDocuments
from agents.project import load_projects
from engine.errors import ErrorCode, RemoteError
from engine.principal import AccessRole, Authenticator, Credential, Principal, UnauthorizedError
from engine.session.services import Services
from engine.store.contract import Store
from engine.store.memory import MemoryStore
from tests.agents.support import COMPONENTS
from tests.engine.transport.stack import Answer, Recorder, Stack, new_services, open_stack

FILE = """
project: {ref: house, name: House, access: public, members: [olga]}
users: [{name: eva, role: member, passwordHash: "env:EVAS_PASSWORD"}]
realtimeConfigurations:
  - {id: house-voice, properties: {provider: Internal, apiKey: "env:VOICE_KEY"}}
templates:
  - {ref: service, revision: 1, purpose: "Old", variables: [{name: city}]}
  - {ref: service, revision: 3, published: true, purpose: "Serve {city}.", purposeLocked: true,
     variables: [{name: city}, {name: tone, type: enum, values: [warm, brief]}]}
agents:
  - {ref: host, type: basic, name: Host, published: true, realtimeConfigurationId: house-voice, purpose: "Greet."}
"""

PRINCIPALS: Mapping[str, Principal] = {
    "admin": Principal("admin:key", "admin:key", role=AccessRole.ADMIN),
    "olga": Principal("user:olga", "olga", role=AccessRole.OWNER),
    "oscar": Principal("user:oscar", "oscar", role=AccessRole.OWNER),
    "mia": Principal("user:mia", "mia", role=AccessRole.MEMBER),
    "limited": Principal("key:1", "key:1", role=AccessRole.ADMIN, projects=frozenset({"house"})),
}
"""By API key. Olga owns the house, Oscar owns nothing until somebody makes him a member, Mia only talks."""


@attrs.frozen
class Doorkeeper:
    """Knows the keys of PRINCIPALS."""

    async def authenticate(self, headers: Iterable[tuple[str, str]], subprotocols: Iterable[str]) -> Principal | None:
        await trio.lowlevel.checkpoint()
        shown = [value for name, value in headers if name in ("x-api-key", "authorization")]
        if not shown:
            return None
        if shown[0] == "busy":
            raise RemoteError(ErrorCode.TOO_BUSY, "Too many passwords are being checked; try again shortly.")
        if shown[0] not in PRINCIPALS:
            raise UnauthorizedError("The API key is not valid.")
        return PRINCIPALS[shown[0]]

    async def authenticate_value(self, value: str) -> Principal:
        raise AssertionError("nobody replaces credentials here")

    async def revoked(self, credentials: Sequence[Credential]) -> Sequence[Credential]:
        raise AssertionError("no sessions run here")


@attrs.define(eq=False)
class Managed:
    stack: Stack
    services: Services
    catalog: LayeredCatalog
    store: Store

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str = "admin",
        raw: bytes | None = None,
        content_type: str = "application/json",
        **headers: str,
    ) -> Answer:
        """`headers` have underscores for hyphens."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            sent["X-API-Key"] = key
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if data and content_type:
            sent["Content-Type"] = content_type
        return await self.stack.request(path, method=method, headers=sent, body=data)

    async def read(self, path: str, *, key: str = "admin") -> Any:
        answer = await self.ask("GET", path, key=key)
        assert answer.status == 200, answer.body
        return answer.json

    async def make(self, path: str, body: object, *, key: str = "admin") -> Answer:
        answer = await self.ask("POST", path, body, key=key)
        assert answer.status == 201, answer.body
        return answer

    async def change(self, path: str, *, key: str = "admin", **fields: Any) -> Answer:
        """Read it, change it, send it back."""
        before = await self.ask("GET", path, key=key)
        document = {**before.json, **fields}
        return await self.ask("PUT", path, document, key=key, If_Match=before.headers["etag"])

    async def refusal(self, method: str, path: str, body: object = None, **more: Any) -> tuple[int, str]:
        """Status and reason of a problem document."""
        answer = await self.ask(method, path, body, **more)
        assert answer.headers["content-type"] == "application/problem+json", answer.body
        assert answer.json["status"] == answer.status
        return answer.status, answer.json["detail"]

    async def faults(self, method: str, path: str, body: object, **more: Any) -> list[tuple[str, str]]:
        """Pointer and message of each fault of a document that is refused."""
        answer = await self.ask(method, path, body, **more)
        assert answer.status == 422, answer.body
        return [(each["pointer"], each["detail"]) for each in answer.json["errors"]]


@asynccontextmanager
async def open_managed(
    directory: Path, *, store: Store | None = None, file: str = FILE, authenticator: Authenticator | None = None
) -> AsyncGenerator[Managed]:
    """A server with one project file; `store` is in memory unless another is given, and a Doorkeeper lets people in."""
    path = directory / "house.yaml"
    path.write_text(file, encoding="utf-8")
    store = store or MemoryStore()
    catalog = LayeredCatalog(load_projects([path], components=COMPONENTS), store, components=COMPONENTS)
    services = attrs.evolve(
        new_services(),
        catalog=catalog,
        store=store,
        documents=ProjectDocuments(catalog),
        authenticator=authenticator or Doorkeeper(),
    )
    async with open_stack(Recorder(), services=services) as stack:
        yield Managed(stack, services, catalog, store)


async def furnish(managed: Managed) -> None:
    """A project of the API with one of everything: `shop`, which nobody but admins manages."""
    await managed.make("/api/projects", {"ref": "shop", "access": "private"})
    await managed.make(
        "/api/realtime-configurations", {"id": "voice", "project": "shop", "properties": {"provider": "Internal"}}
    )
    await managed.make("/api/templates", template("clerk"))
    await managed.make("/api/agents", agent("seller"))


def agent(ref: str, **fields: Any) -> dict[str, Any]:
    return {
        "ref": ref,
        "project": "shop",
        "type": "basic",
        "name": ref.title(),
        "realtimeConfigurationId": "voice",
        **fields,
    }


def template(ref: str, **fields: Any) -> dict[str, Any]:
    return {"ref": ref, "project": "shop", "purpose": "Sell.", **fields}
