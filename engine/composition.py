"""Putting the parts together: the only place where the world's clock, ids and randomness come in (DESIGN section 3, law 11)."""

import random
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import trio

from engine import registry
from engine.boundary import Keep
from engine.config import Settings
from engine.deliveries import Deliveries, open_post
from engine.errors import ConfigurationError
from engine.identity.admin_key import AdminKey
from engine.identity.authenticator import make_authenticator
from engine.interfaces import Catalog, Environment, ManagedDocuments
from engine.observation import Observer
from engine.observe.recorder import Recordings
from engine.observe.store_meter import measured_store
from engine.session.services import Parts, Services
from engine.session.watch import watch_sessions
from engine.store.locate import open_store, recordings_directory
from engine.testing.schedule import passes_counted


def real_environment() -> Environment:
    """The wall clock, unguessable ids and true randomness."""
    return Environment(
        wall_clock=lambda: datetime.now(UTC),
        new_id=lambda kind: f"{kind[0]}-{secrets.token_urlsafe(12)}",
        random=random.Random(secrets.randbits(64)),
    )


def load_projects(projects: Sequence[Path]) -> Any:
    """The projects of some files, as the installed catalog wants them; the demo when there are none.

    Raises:
        ConfigurationError: something is wrong with them; names every file and line.
    """
    paths = list(projects) or [registry.load("projects", "demo")]
    return registry.load("projects", "yaml")(paths)


def installed_parts() -> Parts:
    """Every component that is installed, made anew."""
    return Parts(
        models={name: model() for name, model in registry.load_all("models").items()},
        managers=[make() for make in registry.load_all("interaction_managers").values()],
        recognizers={name: _part("recognizers", name) for name in registry.names("recognizers")},
        filters=list(registry.load_all("filters").values()),
        action_mappers=registry.load_all("action_mappers"),
    )


@asynccontextmanager
async def open_services(
    *,
    projects: Iterable[Path | str] = (),
    store: str = "memory:",
    settings: Settings | None = None,
    environment: Environment | None = None,
    admin_key: AdminKey | None = None,
    observer: Observer | None = None,
    keep: Keep | None = None,
) -> AsyncGenerator[Services]:
    """Everything a session needs, from the installed components, and what a process does beside its sessions: making owed webhook
    calls, and looking for sessions that were taken over or whose credentials were revoked. All of it ends on the way out, and
    what leaves the context in an exception leaves in a group.

    `projects` are project files (none: the demo project), `store` is `memory:`, `sqlite:PATH`, `sqlite:` or `mongodb://…`.
    Without `admin_key` nobody is an admin by key. `keep` keeps the sessions in capsules.

    Raises:
        ConfigurationError: a project file, the store or a component is not as it has to be; says what to do.
    """
    parts = installed_parts()
    loaded = load_projects([Path(project) for project in projects])
    settings, environment = settings or Settings(), environment or real_environment()
    observer = observer or Observer()
    counted = nullcontext() if keep is None else passes_counted(secrets.randbits(63))
    async with open_store(store) as opened:
        kept = measured_store(opened, observer)
        catalog: Catalog = registry.load("projects", "catalog")(loaded, kept, settings.configuration_cache_seconds)
        documents: ManagedDocuments = registry.load("projects", "documents")(catalog)
        await documents.warn_of_hidden()
        post = partial(open_post, allow_private=settings.webhook_private_addresses)
        deliveries = Deliveries(kept, environment, post)
        async with make_authenticator(settings, catalog, kept, admin_key, environment.wall_clock) as authenticator:
            services = Services(
                settings=settings,
                catalog=catalog,
                store=kept,
                environment=environment,
                models=parts.models,
                managers=parts.managers,
                recognizers=parts.recognizers,
                filters=parts.filters,
                action_mappers=parts.action_mappers,
                keep=keep,
                open_recorder=Recordings(recordings_directory(store)).open,
                wake_deliveries=deliveries.wake,
                authenticator=authenticator,
                observer=observer,
                documents=documents,
            )
            async with trio.open_nursery() as background:
                background.start_soon(deliveries.run, name="webhook deliveries")  # noqa: ASYNC113 - nothing relies on its having begun
                background.start_soon(watch_sessions, services, name="watch: sessions")  # noqa: ASYNC113 - as above
                with counted:
                    yield services
                background.cancel_scope.cancel(reason="the services are closed")


def _part(group: str, name: str) -> "LazyPart":
    return LazyPart(group, name)


class LazyPart:
    """A part's factory that is imported when it is first used: an engine that nobody talks to costs nothing."""

    def __init__(self, group: str, name: str) -> None:
        self.group = group
        self.name = name

    def __call__(self, configuration: object) -> object:
        """Raises ConfigurationError when the part is not installed or not configured."""
        factory = registry.load(self.group, self.name)
        if not callable(factory):
            raise ConfigurationError(f"{self.name} of {self.group} is not a factory")
        return factory(configuration)
