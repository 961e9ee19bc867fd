"""The public keys of tokens as they are kept in a process: fetched when they are needed, and not more often.

One task fetches. A key nobody knows wakes it, and everybody who misses one meanwhile waits for the same fetch; for
`REFRESH_SECONDS` after its begin no other is made, whatever keys are asked for. What was had is kept until there is something
better: an issuer that is down, or answers nonsense, takes nobody's key away.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import jwt
import trio

from engine.errors import ConfigurationError, ErrorCode, RemoteError, Whose
from engine.identity.fetch import FETCH_SECONDS, Fetch, FetchError, open_source
from engine.identity.keys import KeySet, parse_keys
from engine.identity.tokens import TokenHeader

REFRESH_SECONDS = 10.0
"""The least time between two fetches. A key that was published after the last fetch is known this much later at most."""
MAX_AGE_SECONDS = 900.0
"""Keys are fetched again after this time although none is missing, as one that was withdrawn must not be taken for ever."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_key_ring(place: str) -> AsyncGenerator["KeyRing"]:
    """The keys of a JWKS file or URL. A file has to be right from the start; an issuer may be reached later.

    Raises:
        ConfigurationError: the file is not as it has to be, or the URL is one keys must not come from.
    """
    async with open_source(place) as fetch:
        ring = KeyRing(fetch)
        if "://" not in place:
            await ring.load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ring.run, name="token keys")  # noqa: ASYNC113 - nothing relies on its having begun
            yield ring
            nursery.cancel_scope.cancel(reason="nobody asks for keys any more")


@attrs.define(eq=False)
class KeyRing:
    """The keys, and the task that keeps them fresh."""

    _fetch: Fetch
    _keys: KeySet = attrs.field(factory=KeySet, init=False)
    _fault: str = attrs.field(default="", init=False)
    """Why the last fetch failed; "" when it did not."""
    _wanted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _fetched: trio.Event | None = attrs.field(default=None, init=False)
    """Set when the fetch under way, or asked for, is over."""
    _rests_until: float = attrs.field(default=0.0, init=False)

    async def find(self, header: TokenHeader) -> jwt.PyJWK | None:
        """The key for a token with that header; None when its issuer has none such, as far as can be known.

        Raises:
            RemoteError: TOO_BUSY: the keys could not be fetched, so that it is not known whether there is such a key.
        """
        key = self._keys.find(header)
        if key is not None:
            return key
        if self._fetched is None and trio.current_time() >= self._rests_until:
            self._fetched = trio.Event()
            self._wanted.set()
        if self._fetched is not None:
            await self._fetched.wait()  # as long as a fetch takes, which is bounded
        key = self._keys.find(header)
        if key is None and self._fault:
            message = "The token cannot be checked now: the keys of its issuer are out of reach. Try again shortly."
            raise RemoteError(ErrorCode.TOO_BUSY, message, whose=Whose.SERVER)
        return key

    async def load(self) -> None:
        """Fetch before anybody asks.

        Raises:
            ConfigurationError: there are no keys that can be used.
        """
        await self._refresh()
        if self._fault:
            raise ConfigurationError(f"SOUFFLEUR_JWT_KEYS: the keys of tokens cannot be had: {self._fault}.")

    async def run(self) -> None:
        """Fetch at once when nothing is there yet, then whenever a key is missing, and now and then."""
        if not self._keys.keys:
            self._wanted.set()
        while True:
            with trio.move_on_after(MAX_AGE_SECONDS):
                await self._wanted.wait()
            self._wanted = trio.Event()
            fetched = self._fetched = trio.Event() if self._fetched is None else self._fetched
            await self._refresh()
            self._fetched = None
            fetched.set()

    async def _refresh(self) -> None:
        self._rests_until = trio.current_time() + REFRESH_SECONDS
        try:
            with trio.fail_after(FETCH_SECONDS):
                document = await self._fetch()
            self._keys = parse_keys(document)
        except FetchError as exc:
            self._fault = str(exc)
        except trio.TooSlowError:
            self._fault = f"no answer in {FETCH_SECONDS:g} s"
        except ValueError:  # what is wrong may quote what is there
            self._fault = "what is there is no JWKS with RSA or P-256 keys"
        except Exception as exc:  # the border: whatever a fetch runs into must not end the server
            self._fault = f"unexpectedly a {type(exc).__name__}"
        else:
            self._fault = ""
        if self._fault:
            logger.warning("the keys of tokens could not be fetched, older ones are kept: %s", self._fault)
