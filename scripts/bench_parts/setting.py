"""Around a conversation that is measured: its agent, whose manager does as little as can be.

Every session has an agent of its own, so that each can be sent to a provider's simulator of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import attrs
import trio

from bench_parts.conversation import ID_PREFIX, session_number
from engine.config import RealtimeProperties
from engine.interfaces import Agent, Context, RealtimeModel, SystemPrompt, TurnInteractionManager, Webhook
from engine.principal import ProjectAccess

INSTRUCTIONS = "You take reservations."


@attrs.frozen
class BenchAgent:
    ref: str
    realtime_configuration_id: str
    name: str = "Bench"
    published: bool = True
    recording: bool = False
    post_session_webhooks: tuple[Webhook, ...] = ()
    show_steering: bool = True
    max_session_minutes: float | None = None
    user_idle_seconds: float | None = None


@attrs.frozen
class BenchCatalog:
    """`properties` are those of the session of that number."""

    properties: Callable[[int], RealtimeProperties]

    async def published_agents(self) -> Sequence[Agent]:
        await trio.lowlevel.checkpoint()
        return ()

    async def agent(self, ref: str) -> tuple[Agent, str] | None:
        await trio.lowlevel.checkpoint()
        return (BenchAgent(ref, ref), "bench") if ref.startswith(ID_PREFIX) else None

    async def realtime_configuration(self, configuration_id: str) -> tuple[RealtimeProperties, str] | None:
        await trio.lowlevel.checkpoint()
        return self.properties(session_number(configuration_id)), "bench"

    async def all_realtime_properties(self) -> Sequence[RealtimeProperties]:
        await trio.lowlevel.checkpoint()
        return ()

    async def project(self, ref: str) -> ProjectAccess | None:
        await trio.lowlevel.checkpoint()
        return ProjectAccess(ref, is_public=True)

    async def shared_agents(self, ref: str) -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        return {}

    async def user(self, name: str) -> None:
        await trio.lowlevel.checkpoint()


class BenchManager(TurnInteractionManager):
    """Extracts and plans nothing; the engine's work around that is done all the same."""

    setups: ClassVar[frozenset[str]] = frozenset({"agent"})

    async def get_system_prompt(self, context: Context, model: RealtimeModel) -> SystemPrompt:
        return SystemPrompt(INSTRUCTIONS)
