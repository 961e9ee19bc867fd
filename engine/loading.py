"""Loading the parts that the served configurations need, beside the serving, and telling which are not there yet."""

import logging
from collections.abc import Mapping

import attrs
import trio

from engine.config import RealtimeProperties
from engine.errors import ConfigurationError
from engine.interfaces import Part
from engine.session.services import Services
from engine.session.start import NO_RECOGNITION

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class PartLoader:
    """`run` loads; `readiness` is what `/readyz` tells."""

    services: Services
    _states: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    """By part: why it is not ready, or ""."""

    async def run(self) -> None:
        """Load every part of every configuration, one after the other. One that cannot be is logged and stops no other."""
        parts: dict[str, Part] = {}
        for properties in await self.services.catalog.all_realtime_properties():
            try:
                parts |= self._parts(properties)
            except ConfigurationError as exc:
                logger.error("a realtime configuration of %s cannot be used: %s", properties.provider, exc)
                self._states[f"{properties.provider} configuration"] = "it cannot be used; the log says why"
        self._states |= {name: "" if part.is_ready else "loading" for name, part in parts.items()}
        await self._load_agents()
        for name, part in parts.items():
            try:
                await part.load()
                self._states[name] = ""
            except ConfigurationError as exc:
                logger.error("%s cannot be loaded: %s", name, exc)
                self._states[name] = "it cannot be loaded; the log says why"
            except Exception:
                logger.exception("%s cannot be loaded", name)
                self._states[name] = "it cannot be loaded; the log says why"

    async def _load_agents(self) -> None:
        agents = await self.services.catalog.published_agents()
        for manager in self.services.managers:
            own = [agent for agent in agents if isinstance(agent, manager.content_classes)]
            if not own:
                continue
            try:
                await manager.load(own)
            except Exception:
                logger.exception("what %s needs is not ready yet", type(manager).__name__)

    def _parts(self, properties: RealtimeProperties) -> dict[str, Part]:
        model = self.services.models.get(properties.provider)
        parts = list(model.parts(properties)) if model else []
        if properties.stt_provider != NO_RECOGNITION and properties.stt_provider in self.services.recognizers:
            parts.append(self.services.recognizers[properties.stt_provider](properties.recognition))
        return {f"{part.name} {_kind(part)}": part for part in parts}

    async def readiness(self) -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        return dict(self._states)


def _kind(part: Part) -> str:
    """What kind of part it is, in the words of the contracts."""
    kinds = [base.__name__ for base in type(part).__mro__ if base.__module__ == Part.__module__]
    return {"Recognizer": "recognition", "ChatModel": "chat", "Synthesizer": "synthesis"}.get(kinds[0], "part")
