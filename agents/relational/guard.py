"""The link guard at work: one for each response that is under way (SPEC R15)."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeVarTuple

import attrs

from agents.relational.links import KnownLinks, LinkGuard, removed_phrase

Arguments = TypeVarTuple("Arguments")

MAX_OPEN = 8
"""Responses of which something may be held back: one speaks, and a few were cut."""


@attrs.define(eq=False)
class SpeakerGuard:
    """See `engine.interfaces.TextGuard`."""

    locale: str
    on_removed: Callable[[], None] = attrs.field(default=lambda: None)
    """Called for each link that is taken out."""
    known: KnownLinks = attrs.field(factory=KnownLinks)
    _open: OrderedDict[str, LinkGuard] = attrs.field(factory=OrderedDict[str, LinkGuard], init=False)
    removed: int = attrs.field(default=0, init=False)
    """Links that were taken out."""

    def feed(self, response_id: str, text: str) -> str:
        guard = self._open.get(response_id)
        if guard is None:
            guard = self._open[response_id] = LinkGuard(self.known, removed_phrase(self.locale))
            while len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        return self._counted(guard, guard.feed, text)

    def finish(self, response_id: str) -> str:
        guard = self._open.pop(response_id, None)
        if guard is None:
            return ""
        return self._counted(guard, guard.finish)

    def _counted(self, guard: LinkGuard, step: Callable[[*Arguments], str], *args: *Arguments) -> str:
        before = guard.removed
        text = step(*args)
        for _ in range(guard.removed - before):
            self.removed += 1
            self.on_removed()
        return text

    def see(self, text: str) -> None:
        self.known.learn(text)

    def see_urls(self, urls: Iterable[str]) -> None:
        """Those of the cards that may be shown."""
        self.known.learn_urls(urls)

    def forget(self) -> None:
        """The session is over."""
        self.known.forget()
        self._open.clear()
