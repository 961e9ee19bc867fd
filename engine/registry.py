"""Components found by entry point: adding one changes no other file (SPEC L20).

Groups: `souffleur.models` (RealtimeModel classes), `souffleur.recognizers`, `souffleur.chat_models` and
`souffleur.synthesizers` (part factories), `souffleur.interaction_managers` (InteractionManager classes), `souffleur.projects`
(project loaders), `souffleur.tools` (typed functions), `souffleur.filters` and `souffleur.action_mappers` (what a client sends, on
its way to the model).
A component is imported when it is first asked for, so that what is not used costs nothing.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from engine.errors import ConfigurationError

PREFIX = "souffleur."


@cache
def _group(group: str) -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=PREFIX + group)}


def names(group: str) -> list[str]:
    """The names declared in a group, without importing anything."""
    return sorted(_group(group))


def load(group: str, name: str) -> Any:
    """The component of that name.

    Raises:
        ConfigurationError: nothing of that name is installed, or its module cannot be imported (a missing extra).
    """
    point = _group(group).get(name)
    if point is None:
        known = ", ".join(names(group)) or "none"
        raise ConfigurationError(
            f"no {group.removesuffix('s').replace('_', ' ')} named {name!r} is installed; installed: {known}"
        )
    try:
        return point.load()
    except ImportError as exc:
        raise ConfigurationError(
            f"{group.removesuffix('s').replace('_', ' ')} {name!r} cannot be loaded: {exc}"
        ) from exc


def load_all(group: str) -> dict[str, Any]:
    """Every component of a group by name, in the order of their names."""
    return {name: load(group, name) for name in names(group)}
