"""Secrets by reference: a project file or a setting names where a secret is, never the secret itself (SPEC Q7)."""

import os
from pathlib import Path

from engine.errors import ConfigurationError

NO_SECRET = "none"
"""What a project file says for an endpoint that asks for no key."""


def resolve_secret(reference: str, setting: str) -> str | None:
    """The secret that `env:NAME` or `file:PATH` refers to; None for "none". Read once, when a component is made.

    `setting` names the field in messages ("chat.apiKey"). The messages never repeat what was written there, as it may be
    a secret pasted by mistake.

    Raises:
        ConfigurationError: it is no reference, or nothing is where it points. The message says what to set.
    """
    if reference == NO_SECRET:
        return None
    kind, _, place = reference.partition(":")
    if kind == "env" and place:
        return _present(os.environ.get(place, ""), f"{setting}: set the environment variable {place}")
    if kind == "file" and place:
        try:
            text = Path(place).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigurationError(f"{setting}: the file {place} cannot be read ({type(exc).__name__})") from exc
        return _present(text, f"{setting}: put the secret into the file {place}, which is empty")
    raise ConfigurationError(
        f'{setting}: write "env:NAME" or "file:PATH" (or "none" for an endpoint without keys), never the secret itself'
    )


def _present(value: str, otherwise: str) -> str:
    """The value without the line break that editors and `echo` leave behind it."""
    value = value.strip()
    if not value:
        raise ConfigurationError(otherwise)
    if not value.isprintable() or not value.isascii():
        raise ConfigurationError(f"{otherwise}; what is there now is not one line of plain characters")
    return value
