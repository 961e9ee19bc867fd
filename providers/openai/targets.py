"""Where a session connects to. OpenAI has one place; Azure's regions take turns, and one that fails is left out for a while (P3)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol
from urllib.parse import quote

import attrs

from engine.boundary import PASSES, Boundary, Outside
from providers.openai.properties import OpenAIProperties
from providers.secrets import resolve_secret

Authorization = Callable[[], Mapping[str, str]]
"""Gives the headers that authorize a connection, at the moment it is made. Raises LinkRefusedError when it has none."""


def no_authorization() -> Mapping[str, str]:
    return {}


@attrs.frozen
class Target:
    url: str
    authorization: Authorization = attrs.field(default=no_authorization, repr=False)

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of a connection that is made now. Raises LinkRefusedError."""
        return self.authorization()


class Targets(Protocol):
    """Asked for a target at each connection; one object serves many sessions. Times are `trio.current_time()`."""

    @property
    def count(self) -> int: ...

    def next(self, now: float) -> Target: ...

    def connected(self, target: Target, now: float) -> None:
        """It has taken a connection and its settings."""
        ...

    def failed(self, target: Target, now: float, retry_after: float | None, *, is_final: bool = False) -> bool:
        """It did not take a connection, or has lost one. Whether there is another one that may.

        Args:
            retry_after: The seconds it asked for.
            is_final: To try again there would be in vain.
        """
        ...


@attrs.frozen
class OneTarget:
    target: Target
    count: int = 1

    def next(self, now: float) -> Target:
        return self.target

    def connected(self, target: Target, now: float) -> None:
        """Nothing follows from it."""

    def failed(self, target: Target, now: float, retry_after: float | None, *, is_final: bool = False) -> bool:
        """There is no other."""
        return False


def openai_target(properties: OpenAIProperties, boundary: Boundary = PASSES) -> Target:
    """Raises ConfigurationError when the key is not where the configuration says."""
    key = boundary.secret(partial(resolve_secret, properties.key_reference, "apiKey"))
    separator = "&" if "?" in properties.base_url else "?"
    url = f"{properties.base_url}{separator}model={quote(properties.model, safe='')}"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return Target(url, lambda: headers)


@attrs.define(eq=False)
class _TargetsAtBoundary:
    """Targets whose decisions pass a session's boundary: others' connections have a part in them."""

    boundary: Boundary
    targets: Targets
    count: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.count = self.boundary.know(Outside.LINK, "targets", lambda: self.targets.count)

    def next(self, now: float) -> Target:
        if self.boundary.is_replayed:
            return Target("", partial(self._headers, None))
        target = self.targets.next(now)
        return attrs.evolve(target, authorization=partial(self._headers, target))

    def _headers(self, target: Target | None) -> Mapping[str, str]:
        found: list[Mapping[str, str]] = []

        def look() -> None:
            assert target is not None, "there is nothing outside"
            found.append(target.headers)

        self.boundary.know(Outside.LINK, "authorization", look)
        return found[0] if found else {}

    def connected(self, target: Target, now: float) -> None:
        if not self.boundary.is_replayed:
            self.targets.connected(target, now)

    def failed(self, target: Target, now: float, retry_after: float | None, *, is_final: bool = False) -> bool:
        fail = partial(self.targets.failed, target, now, retry_after, is_final=is_final)
        return self.boundary.know(Outside.LINK, "another target", fail)


def targets_at(boundary: Boundary, targets: Targets) -> Targets:
    """The same targets, as one session meets them."""
    return targets if boundary is PASSES else _TargetsAtBoundary(boundary, targets)
