"""API keys over the API. The key itself is told once, when it is made; what is kept cannot be told."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

import attrs
from quart import Response

from engine.elements import JsonObject
from engine.errors import NotFoundError
from engine.identity.api_keys import new_api_key
from engine.principal import AccessRole
from engine.store.documents import Resource, ResourceKind
from engine.transport.management.collection import SHOWN_ONLY, Collection, Found
from engine.transport.requests import read_body, read_query

DEFAULTS: Mapping[str, Any] = {"name": "", "role": "member", "projects": None, "user": "", "expiresAt": None}


@attrs.frozen
class ApiKeys(Collection):
    """Its id is made here. One that is replaced stays the same key; with another role, user or projects, the sessions that were
    opened with it end."""

    kind = ResourceKind.API_KEY
    path = "/api/api-keys"
    noun = "API key"
    id_field = "id"
    shown_only: ClassVar[tuple[str, ...]] = (*SHOWN_ONLY, "id", "key")
    reading_is_for_admins = True

    async def create(self) -> Response:
        access = await self.access(writing=True)
        read_query()
        sent = self.stripped(await read_body())
        await self.check(sent, access)
        asked = {**DEFAULTS, **sent}
        expires_at, projects = asked["expiresAt"], asked["projects"]
        made = new_api_key(
            name=asked["name"],
            role=AccessRole(asked["role"]),
            projects=None if projects is None else frozenset(projects),
            expires_at=None if expires_at is None else datetime.fromisoformat(expires_at),
            user=asked["user"],
        )
        return await self.created(await self.put(made.id, made.body, expected=0), {"key": made.text})

    def as_shown(self, resource: Resource, shown: JsonObject) -> Found:
        return super().as_shown(resource, {"id": resource.id, **shown})

    async def write_new(self, document_id: str, sent: JsonObject) -> Resource:
        raise NotFoundError("There is no such API key; a new one is made by POST.")

    async def write_over(self, found: Found, sent: JsonObject) -> Resource:
        before = found.resource.body if found.resource else {}
        return await super().write_over(found, {**before, **DEFAULTS, **sent})
