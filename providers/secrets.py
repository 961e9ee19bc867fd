"""Secrets by reference, for the providers: the engine's own reading of them, under the name they know it by."""

from engine.secrets import NO_SECRET, resolve_secret

__all__ = ["NO_SECRET", "resolve_secret"]
