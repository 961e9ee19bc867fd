"""Passwords: argon2 hashes, made and checked, in threads of their own and never many at a time."""

import hashlib
import unicodedata

import argon2
import attrs
import trio

from engine.errors import ConfigurationError, ErrorCode, RemoteError, Whose
from engine.identity.shown import MAX_PASSWORD_BYTES

AT_ONCE = 2
"""Checks at the same time. Each takes 19 MiB and 25 ms of a processor: more of them would be felt in conversations."""
MAX_WAITING = 16
WAIT_SECONDS = 3.0
"""How many checks may wait for a thread, and for how long. Who comes later is told so at once: a queue without an end would
only make everybody's answer late."""
MAX_MEMORY_KIB = 256 << 10
MAX_PASSES = 16
MAX_LANES = 16
"""The costliest hash that is checked at all. One that asks for more would be a way to stop the server."""

HASHER = argon2.PasswordHasher(memory_cost=19 << 10, time_cost=2, parallelism=1)
"""The costs of OWASP's Password Storage Cheat Sheet for argon2id. The library's own, those of RFC 9106, are eight times as much
(190 ms of a processor, measured), which a server in the middle of conversations cannot spare. A hash says what it costs, so
that an operator may have others."""
NOBODYS = "$argon2id$v=19$m={},t={},p={}${}${}".format(
    HASHER.memory_cost, HASHER.time_cost, HASHER.parallelism, "A" * 22, "A" * 43
)
"""No password's hash, which costs as much as one that is made here: what an unknown user's password is checked against. An
operator who makes hashes elsewhere, with other costs, lets the time tell which users there are."""


def hash_password(text: str) -> str:
    """What a user's `passwordHash` is for that password. Takes some 25 ms.

    Raises:
        ConfigurationError: it is none that could be sent: empty, too long, or with control characters.
    """
    if not text or len(text.encode("utf-8", "surrogatepass")) > MAX_PASSWORD_BYTES:
        raise ConfigurationError(f"A password has 1 to {MAX_PASSWORD_BYTES} bytes.")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):  # Cs: bytes that were not UTF-8
        raise ConfigurationError("A password has no control characters.")
    return HASHER.hash(text)


def is_password_hash(text: str) -> bool:
    """Whether it is an argon2 hash, and one that is not too costly to be checked."""
    try:
        costs = argon2.extract_parameters(text)
    except (argon2.exceptions.InvalidHashError, argon2.exceptions.UnsupportedParametersError):
        return False
    return costs.memory_cost <= MAX_MEMORY_KIB and costs.time_cost <= MAX_PASSES and costs.parallelism <= MAX_LANES


def password_version(password_hash: str) -> str:
    """Another for another password, and for the same one with another salt; nothing can be made of it."""
    return hashlib.sha256(password_hash.encode()).hexdigest()[:16]


@attrs.define(eq=False)
class PasswordChecker:
    """Checks passwords, a few at a time."""

    _limiter: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(AT_ONCE), init=False)

    async def fits(self, password: str, password_hash: str) -> bool:
        """Whether it is that hash's password. "" for nobody's hash: False, in the same time.

        Raises:
            RemoteError: TOO_BUSY: too many passwords are waiting to be checked.
        """
        if self._limiter.statistics().tasks_waiting < MAX_WAITING:
            with trio.move_on_after(WAIT_SECONDS):  # of waiting: a check that has begun is not given up
                return await trio.to_thread.run_sync(_fits, password, password_hash or NOBODYS, limiter=self._limiter)
        raise RemoteError(
            ErrorCode.TOO_BUSY, "Too many passwords are being checked; try again shortly.", whose=Whose.SERVER
        )


def _fits(password: str, password_hash: str) -> bool:
    try:
        return HASHER.verify(password_hash, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
