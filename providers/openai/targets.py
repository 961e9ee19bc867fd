"""Where a session connects to. OpenAI has one place; Azure's regions take turns, and one that fails is left out for a while (P3)."""

from collections.abc import Mapping
from typing import Protocol
from urllib.parse import quote

import attrs

from providers.openai.properties import OpenAIProperties
from providers.secrets import resolve_secret


@attrs.frozen
class Target:
    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)


class Targets(Protocol):
    """Asked for a target at each connection; one object serves many sessions. Times are `trio.current_time()`."""

    @property
    def count(self) -> int: ...

    def next(self, now: float) -> Target: ...

    def failed(self, target: Target, now: float, retry_after: float | None) -> bool:
        """It did not take a connection. Whether there is another one that may."""
        ...


@attrs.frozen
class OneTarget:
    target: Target
    count: int = 1

    def next(self, now: float) -> Target:
        return self.target

    def failed(self, target: Target, now: float, retry_after: float | None) -> bool:
        """There is no other."""
        return False


def openai_target(properties: OpenAIProperties) -> Target:
    """Raises ConfigurationError when the key is not where the configuration says."""
    key = resolve_secret(properties.key_reference, "apiKey")
    separator = "&" if "?" in properties.base_url else "?"
    url = f"{properties.base_url}{separator}model={quote(properties.model, safe='')}"
    return Target(url, {"Authorization": f"Bearer {key}"} if key else {})
