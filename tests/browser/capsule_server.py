"""The real application with a directory of capsules, behind a real socket: for the pages that show them."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from engine.principal import AccessRole, Credential, CredentialKind, NobodyKnown, Principal, UnauthorizedError
from engine.transport.app import create_app
from engine.transport.server import BoundAddress, run_server
from tests.engine.transport.stack import Recorder, new_services

ADMIN_KEY = "the-admins-key"


class Keys(NobodyKnown):
    async def authenticate(self, headers: Iterable[tuple[str, str]], subprotocols: Iterable[str]) -> Principal | None:
        key = dict(headers).get("x-api-key")
        if not key:
            return None
        role = {ADMIN_KEY: AccessRole.ADMIN, "a-members-key": AccessRole.MEMBER}.get(key)
        if role is None:
            raise UnauthorizedError("This key is not right.")
        return Principal("key", user_id="key", role=role, credential=Credential(CredentialKind.API_KEY, "key"))


@asynccontextmanager
async def serve_capsules(directory: Path | None) -> AsyncGenerator[str]:
    """Gives the address, without a slash at its end."""
    services = attrs.evolve(new_services(), authenticator=Keys())
    app = create_app(services, run=Recorder(), capsules_directory=directory)
    serve = partial(run_server, app, "127.0.0.1", 0, settings=services.settings, graceful_seconds=0)
    async with trio.open_nursery() as nursery:
        bound: BoundAddress = await nursery.start(serve)
        yield bound.url
        nursery.cancel_scope.cancel(reason="the test is over")
