"""Whose request it is: credentials where there are some, else the device or speaker it names (SPEC L8)."""

from collections.abc import Iterable

import attrs

from engine.config import PipelineConfiguration
from engine.principal import Principal
from engine.protocol.admission import Refusal
from engine.session.services import Services
from engine.transport.asgi import Problem

AUTHENTICATION_SUBPROTOCOL = "souffleur.auth."
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="souffleur", Basic realm="souffleur", charset="UTF-8"'}


async def identify(
    headers: Iterable[tuple[str, str]],
    subprotocols: Iterable[str],
    configuration: PipelineConfiguration,
    services: Services,
) -> tuple[Principal, PipelineConfiguration]:
    """Who it is, and the configuration, which then names a device when nothing else says who it is.

    The kind is part of an anonymous owner, so that a device cannot pass for a speaker, nor either for a user.

    Raises:
        RemoteError: there are credentials and they do not hold, or cannot be checked now.
    """
    principal = await services.authenticator.authenticate(headers, subprotocols)
    if principal is not None:
        return principal, configuration
    if configuration.device_ref:
        return Principal(f"device:{configuration.device_ref}"), configuration
    if configuration.speaker_ref:
        return Principal(f"speaker:{configuration.speaker_ref}"), configuration
    made = services.environment.new_id("device")
    return Principal(f"device:{made}"), attrs.evolve(configuration, device_ref=made)


def offered_token(offered: Iterable[str]) -> str | None:
    """The offered subprotocol that carries a token. It is chosen as it was offered, else a browser would hang up."""
    return next((each for each in offered if each.startswith(AUTHENTICATION_SUBPROTOCOL)), None)


def busy(refused: Refusal) -> Problem:
    """The answer to somebody for whom there is no room now."""
    return Problem(503, refused.message, {"Retry-After": str(refused.retry_after)})
