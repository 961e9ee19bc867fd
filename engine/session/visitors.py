"""Writing down who came: the device and the user of a session, each once, with when they were last seen (SPEC L5, L15)."""

import logging
from datetime import timedelta
from typing import Any

import trio

from engine.errors import RemoteError
from engine.interfaces import Context
from engine.principal import CredentialKind
from engine.session.services import Services
from engine.store.contract import ConflictError, StoreError
from engine.store.documents import Resource, ResourceKind

logger = logging.getLogger(__name__)

SEEN_AGAIN = timedelta(hours=1)
"""How old "last seen" may be before it is written again: a client that reconnects all the time is no write each."""


async def note_visitors(context: Context, services: Services) -> None:
    """Write them down; what cannot be written now is left out, as it says nothing that the session does not."""
    session, principal = context.session, context.principal
    shown = {"locale": session.locale, "timeZone": session.time_zone, "userId": session.user_id}
    try:
        if session.device_ref:
            await _note(ResourceKind.DEVICE, session.device_ref, shown, services)
        if principal.credential is not None and principal.credential.kind is CredentialKind.TOKEN:
            named = {"name": principal.name, "email": principal.email, "source": "token"}
            await _note(ResourceKind.USER, principal.user_id, named, services)
    except (StoreError, RemoteError) as exc:
        logger.warning("who came to session %s was not written down: %s", session.id, exc)


async def _note(kind: ResourceKind, visitor_id: str, shown: dict[str, Any], services: Services) -> None:
    now = services.environment.wall_clock()
    known = await services.store.get_resource(kind, visitor_id)
    if known is not None and now - known.updated_at < SEEN_AGAIN and shown.items() <= known.body.items():
        return
    body = {**(known.body if known else {}), **shown, "lastSeenAt": now.isoformat()}
    resource = Resource(kind=kind, id=visitor_id, body=body, created_at=now, updated_at=now)
    try:
        await services.store.put_resource(resource, expected=known.version if known else 0)
    except ConflictError:
        await trio.lowlevel.checkpoint()  # another session of theirs has just done it
