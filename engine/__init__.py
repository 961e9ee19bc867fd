"""Souffleur's engine: what a program that embeds it needs.

Each name is imported when it is asked for. The package itself stays light: pytest imports `engine.testing.plugin` in every project of an
environment that has Souffleur.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.composition import open_services as open_services
    from engine.config import PipelineConfiguration as PipelineConfiguration
    from engine.config import Settings as Settings
    from engine.pipeline.line import open_line as open_line
    from engine.session.run import run_session as run_session

_HOMES = {
    "PipelineConfiguration": "engine.config",
    "Settings": "engine.config",
    "open_line": "engine.pipeline.line",
    "open_services": "engine.composition",
    "run_session": "engine.session.run",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
