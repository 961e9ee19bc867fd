"""Users over the API. A password is sent and never shown, nor is its hash."""

from collections.abc import Sequence
from typing import ClassVar

import attrs
import trio

from engine.elements import JsonObject
from engine.errors import ConfigurationError
from engine.identity.passwords import hash_password, is_password_hash
from engine.interfaces import DocumentFault
from engine.store.documents import Resource, ResourceKind
from engine.transport.management.access import Access
from engine.transport.management.collection import SHOWN_ONLY, Collection, Found, invalid

KEPT = ("source", "lastSeenAt", "passwordHash")
"""What a user who is replaced keeps."""
TOKEN = "token"
SOME_NAME = "name"

_hashing = trio.CapacityLimiter(1)
"""A hash costs 19 MiB and 25 ms of a processor, which conversations would feel."""


@attrs.frozen
class Users(Collection):
    """One who came by a token has the name their issuer gave them, and their subject as id; they can be disabled, signed out, and
    given a role for other credentials."""

    kind = ResourceKind.USER
    path = "/api/users"
    noun = "user"
    id_field = "name"
    shown_only: ClassVar[tuple[str, ...]] = (*SHOWN_ONLY, "id", "hasPassword", "lastSeenAt")
    reading_is_for_admins = True

    def as_shown(self, resource: Resource, shown: JsonObject) -> Found:
        return super().as_shown(resource, {"id": resource.id, **shown})

    def in_file(self, document_id: str) -> Found:
        found = super().in_file(document_id)
        return attrs.evolve(found, shown={"id": document_id, **found.shown})

    def names(self, document_id: str, found: Found | None) -> Sequence[object]:
        return (document_id, found.shown["name"]) if found is not None and _is_by_token(found) else (document_id,)

    async def check(self, sent: JsonObject, access: Access, found: Found | None = None) -> None:
        named = {**sent, "name": SOME_NAME} if _is_by_token(found) else sent
        await super().check(named, access, found)
        password_hash = sent.get("passwordHash")
        if password_hash is not None and sent.get("password") is not None:
            raise invalid([DocumentFault("/passwordHash", "give either password or passwordHash")])
        if password_hash is not None and not is_password_hash(password_hash):
            message = "passwordHash has to be an argon2 hash, in its encoded form, that is not too costly to check"
            raise invalid([DocumentFault("/passwordHash", message)])

    async def write_new(self, document_id: str, sent: JsonObject) -> Resource:
        return await super().write_new(document_id, await _with_hash(sent))

    async def write_over(self, found: Found, sent: JsonObject) -> Resource:
        before = found.resource.body if found.resource else {}
        kept = {name: before[name] for name in KEPT if name in before}
        if _is_by_token(found):
            kept["name"], sent = before.get("name", ""), {**sent}
            del sent["name"]
        return await super().write_over(found, {**kept, **await _with_hash(sent)})


def _is_by_token(found: Found | None) -> bool:
    return found is not None and found.shown["source"] == TOKEN


async def _with_hash(sent: JsonObject) -> JsonObject:
    """With the hash of the password in its place. One that is null takes the password away.

    Raises:
        RefusedError: it is no password that could be sent.
    """
    body = {name: value for name, value in sent.items() if name != "password"}
    password = sent.get("password")
    if password is None:
        return {**body, "passwordHash": None} if "password" in sent and "passwordHash" not in body else body
    try:
        made = await trio.to_thread.run_sync(hash_password, password, limiter=_hashing)
    except ConfigurationError as exc:
        raise invalid([DocumentFault("/password", str(exc))]) from None
    return {**body, "passwordHash": made}
