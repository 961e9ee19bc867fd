"""The services of a process, as one session meets them at its boundary."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

import attrs

from engine.boundary import Boundary, Note, Outside
from engine.config import RealtimeProperties
from engine.interfaces import Agent, Catalog
from engine.observation import Happening, Observer, Observers, Outcome, Span
from engine.principal import Authenticator, Credential, Principal, ProjectAccess, UserAccount
from engine.session.services import Services
from engine.session.start import stored_owner
from engine.store.contract import Store


def services_at(boundary: Boundary, services: Services) -> Services:
    """The same services; what is nondeterministic about them passes the boundary, and what they observe is noted."""
    return attrs.evolve(
        services,
        store=store_at(boundary, services.store),
        catalog=CatalogAtBoundary(boundary, services.catalog),
        environment=boundary.environment(services.environment),
        authenticator=AuthenticatorAtBoundary(boundary, services.authenticator),
        observer=Observers([services.observer, Notes(boundary)]),
    )


def store_at(boundary: Boundary, store: Store) -> Store:
    """All operations of the contract pass, whichever it has: none can be forgotten, and none is written twice."""
    return _StoreAtBoundary(boundary, store)


def _passing(name: str) -> Callable[..., Awaitable[Any]]:
    @wraps(getattr(Store, name), updated=())  # what is abstract says so in its `__dict__`
    async def passing(self: "_Passing", *args: Any, **kwargs: Any) -> Any:
        return await self.boundary.ask(Outside.STORE, name, partial(getattr(self.store, name), *args, **kwargs))

    return passing


@attrs.frozen(eq=False)
class _Passing:
    boundary: Boundary
    store: Store


_StoreAtBoundary: Callable[[Boundary, Store], Store] = type(
    "StoreAtBoundary", (_Passing, Store), {name: _passing(name) for name in Store.__abstractmethods__}
)


@attrs.frozen
class CatalogAtBoundary:
    """See `engine.interfaces.Catalog`."""

    boundary: Boundary
    catalog: Catalog

    async def published_agents(self) -> Sequence[Agent]:
        return await self.boundary.ask(Outside.CATALOG, "published_agents", self.catalog.published_agents)

    async def agent(self, ref: str) -> tuple[Agent, str] | None:
        return await self.boundary.ask(Outside.CATALOG, "agent", partial(self.catalog.agent, ref))

    async def realtime_configuration(self, configuration_id: str) -> tuple[RealtimeProperties, str] | None:
        look_up = partial(self.catalog.realtime_configuration, configuration_id)
        return await self.boundary.ask(Outside.CATALOG, "realtime_configuration", look_up)

    async def all_realtime_properties(self) -> Sequence[RealtimeProperties]:
        return await self.boundary.ask(Outside.CATALOG, "all_realtime_properties", self.catalog.all_realtime_properties)

    async def project(self, ref: str) -> ProjectAccess | None:
        return await self.boundary.ask(Outside.CATALOG, "project", partial(self.catalog.project, ref))

    async def shared_agents(self, ref: str) -> Mapping[str, str]:
        return await self.boundary.ask(Outside.CATALOG, "shared_agents", partial(self.catalog.shared_agents, ref))

    async def user(self, name: str) -> UserAccount | None:
        return await self.boundary.ask(Outside.CATALOG, "user", partial(self.catalog.user, name))


@attrs.frozen
class Notes(Observer):
    """What is observed of one session, as notes for whoever reads its capsule."""

    boundary: Boundary

    def happened(self, what: Happening, session_id: str = "") -> None:
        self.boundary.note(Note.HAPPENED, {"what": what.value})

    def began(self, span: Span, at: float) -> None:
        values = {"kind": span.kind.value, "id": span.id, "name": span.name, "turn_id": span.turn_id}
        self.boundary.note(Note.BEGAN, values)

    def ended(self, span: Span, at: float, outcome: Outcome = Outcome.OK) -> None:
        self.boundary.note(Note.ENDED, {"kind": span.kind.value, "id": span.id, "outcome": outcome.value})


@attrs.frozen
class AuthenticatorAtBoundary:
    """See `engine.principal.Authenticator`. What passes the boundary holds nothing that could open a door."""

    boundary: Boundary
    authenticator: Authenticator

    async def authenticate(self, headers: Iterable[tuple[str, str]], subprotocols: Iterable[str]) -> Principal | None:
        return await self.authenticator.authenticate(headers, subprotocols)

    async def authenticate_value(self, value: str) -> Principal:
        found: list[Principal] = []

        async def authenticate() -> Principal:
            found.append(await self.authenticator.authenticate_value(value))
            return without_secrets(found[0])

        known = await self.boundary.ask(Outside.CREDENTIALS, "authenticate", authenticate)
        return found[0] if found else known

    async def revoked(self, credentials: Sequence[Credential]) -> Sequence[Credential]:
        return await self.authenticator.revoked(credentials)


def without_secrets(principal: Principal) -> Principal:
    """As it may be kept."""
    return attrs.evolve(principal, owner=stored_owner(principal), credential=None)
