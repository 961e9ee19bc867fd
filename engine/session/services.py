"""What a session is given: everything that outlives it, made once by the composition root."""

from collections.abc import Callable, Mapping, Sequence

import attrs

from engine.boundary import Keep
from engine.config import Settings
from engine.interfaces import (
    ActionMapper,
    Catalog,
    ElementFilter,
    Environment,
    InteractionManager,
    ManagedDocuments,
    PartFactory,
    RealtimeModel,
)
from engine.observation import Observer
from engine.principal import Authenticator, NobodyKnown
from engine.protocol.admission import Admission
from engine.recording import OpenRecorder
from engine.session.live import LiveSessions
from engine.store.contract import Store


def _nobody() -> None:
    """There is no worker to wake in this process."""


def _open_door(services: "Services") -> Admission:
    settings, live = services.settings, services.live
    return Admission(settings.max_sessions, settings.max_lateness_seconds, is_stopping=lambda: live.is_stopping)


@attrs.frozen
class Parts:
    """The components that are installed, which sessions are composed of."""

    models: Mapping[str, RealtimeModel]
    """By name (M2)."""
    managers: Sequence[InteractionManager]
    recognizers: Mapping[str, PartFactory] = attrs.field(factory=dict[str, PartFactory])
    """The engine's own recognition, by the name in `sttProvider` (M3)."""
    filters: Sequence[ElementFilter] = ()
    """Seen by every input element, in this order (L10)."""
    action_mappers: Mapping[str, ActionMapper] = attrs.field(factory=dict[str, ActionMapper])
    """By the name of the action, beside the built-in ones."""


@attrs.frozen
class Services:
    """The process's parts, shared by its sessions."""

    settings: Settings
    catalog: Catalog
    store: Store
    environment: Environment
    models: Mapping[str, RealtimeModel]
    """By name (M2)."""
    managers: Sequence[InteractionManager]
    recognizers: Mapping[str, PartFactory] = attrs.field(factory=dict[str, PartFactory])
    """The engine's own recognition, by the name in `sttProvider` (M3)."""
    filters: Sequence[ElementFilter] = ()
    """Seen by every input element, in this order (L10)."""
    action_mappers: Mapping[str, ActionMapper] = attrs.field(factory=dict[str, ActionMapper])
    """By the name of the action, beside the built-in ones."""
    open_recorder: OpenRecorder | None = None
    """Of conversations whose agent wants that (L10)."""
    keep: Keep | None = None
    """Keeps what comes from outside to each session, in a capsule."""
    wake_deliveries: Callable[[], None] = _nobody
    """Tells this process's worker that a webhook call is owed."""
    authenticator: Authenticator = attrs.field(factory=NobodyKnown)
    observer: Observer = attrs.field(factory=Observer)
    live: LiveSessions = attrs.field(factory=LiveSessions)
    """The sessions that run in this process."""
    admission: Admission = attrs.field(default=attrs.Factory(_open_door, takes_self=True))
    """Who may open a connection or a session in this process."""
    documents: ManagedDocuments | None = None
    """What there is to manage; None: nothing is managed over HTTP."""
