"""What the OpenAI-compatible chat, speech and transcription parts share: configuration, connections, tries, errors.

The laws of this room:

- Every endpoint has its own address, key and model; a key is sent only to the address it was configured for.
- One pool of connections serves a whole process. Making one costs 20 ms of certificates (measured), which no session's start
  should pay; the part objects, one per session, only borrow it.
- The SDK's iteration never runs under anyone else's code. A pump task reads it inside `async with` and feeds a bounded
  channel; when the reader leaves, the pump unwinds the SDK's generators from inside and closes the response.
- The SDK's own retries are off. There are at most two tries, and the second only before the first output (SPEC P8).
- Nothing a provider says is repeated in a message: its errors may quote the key or the conversation.
"""

import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Annotated, Any, Protocol, TypeVar

import attrs
import httpx2
import openai
import trio
from pydantic import Field, ValidationError

from engine.config import CamelModel
from engine.errors import ConfigurationError, ErrorCode, RealtimeException
from providers.secrets import resolve_secret

logger = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "env:OPENAI_API_KEY"

KEEPALIVE_SECONDS = 60.0
"""How long an idle connection is kept. The turns of a conversation are 5 to 60 s apart; the SDK's 5 s would pay for a new
handshake in most of them. One the other side has closed is noticed before it is used again."""
CLOSE_SECONDS = 2.0
"""Bound of closing all connections at the end of the process."""
TRIES = 2
RETRY_SECONDS = 0.25
"""Pause before the second try when the endpoint names none; somebody is waiting for an answer."""

Seconds = Annotated[float, Field(gt=0, le=600)]
Headers = dict[str, str | openai.Omit]
_T = TypeVar("_T")
_Item = TypeVar("_Item", covariant=True)


# --- configuration ---------------------------------------------------------------------------------------------------


class Endpoint(CamelModel):
    """The settings each of the three parts has."""

    provider: str = "OpenAI"
    base_url: str = Field(default=OPENAI_URL, pattern=r"^https?://[^\s?#@]+$")
    api_key: str = ""
    """A reference: `env:NAME`, `file:PATH` or `none`. May be left out for OpenAI itself, then `env:OPENAI_API_KEY`."""
    timeout_seconds: Seconds = 20.0
    """The longest silence of the endpoint: before its first output, all tries included, and between two outputs."""

    @property
    def is_openai(self) -> bool:
        """True for the original, whose requests have a few fields that others do not know, and the other way round."""
        return re.match(r"https://([a-z]{2}\.)?api\.openai\.com(/|$)", self.base_url) is not None


_EndpointT = TypeVar("_EndpointT", bound=Endpoint)


def read_configuration(kind: type[_EndpointT], configuration: Mapping[str, Any], part: str) -> _EndpointT:
    """The part's settings out of its mapping in the project file.

    Raises:
        ConfigurationError: a field is unknown, missing or does not fit; every one of them is named.
    """
    try:
        return kind.model_validate(dict(configuration))
    except ValidationError as exc:
        # The values themselves stay out: one of them may be a key that was pasted into the wrong field.
        faults = "; ".join(
            f"{'.'.join([part, *map(str, error['loc'])])}: {error['msg'][:1].lower()}{error['msg'][1:]}"
            for error in exc.errors()
        )
        raise ConfigurationError(f"the part {part!r} is not configured properly: {faults}") from exc


def api_key(endpoint: Endpoint, part: str) -> str | None:
    """The endpoint's key, read once; None for an endpoint without keys.

    Raises:
        ConfigurationError: there is none, or OpenAI's own would go to somebody else.
    """
    reference = endpoint.api_key or (OPENAI_KEY if endpoint.is_openai else "")
    if not reference:
        raise ConfigurationError(
            f'{part}.apiKey: write "env:NAME" or "file:PATH" for the key of {endpoint.base_url}, or "none" when it has none'
        )
    return resolve_secret(reference, f"{part}.apiKey")


# --- the process's connections ---------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Connections:
    """The one pool of a Trio run, and the SDK clients that use it, by address and key."""

    http: openai.DefaultAsyncHttpxClient
    clients: dict[tuple[str, str | None], openai.AsyncOpenAI] = attrs.field(
        factory=dict[tuple[str, str | None], openai.AsyncOpenAI]
    )


_connections: trio.lowlevel.RunVar[_Connections] = trio.lowlevel.RunVar("OpenAI-compatible connections")
_loading = trio.CapacityLimiter(1)


async def _close_at_the_end(http: openai.DefaultAsyncHttpxClient) -> None:
    """A system task: Trio cancels it when the program's main task has ended."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await http.aclose()


def _make_pool() -> openai.DefaultAsyncHttpxClient:
    limits = httpx2.Limits(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=KEEPALIVE_SECONDS)
    return openai.DefaultAsyncHttpxClient(limits=limits)


def _find_connections(made: openai.DefaultAsyncHttpxClient | None = None) -> _Connections:
    """The connections of this Trio run; made now, out of the given pool, when there are none."""
    try:
        return _connections.get()
    except LookupError:
        connections = _Connections(made or _make_pool())
        _connections.set(connections)
        trio.lowlevel.spawn_system_task(_close_at_the_end, connections.http, name="OpenAI-compatible connections")
        return connections


def have_connections() -> bool:
    try:
        _connections.get()
    except LookupError:
        return False
    return True


async def load_connections() -> None:
    """Make the pool in a thread, before anybody waits for it: the certificates alone hold a thread up for 20 to 130 ms."""
    if not have_connections():
        _find_connections(await trio.to_thread.run_sync(_make_pool, limiter=_loading))


def sdk_client(base_url: str, key: str | None) -> openai.AsyncOpenAI:
    """The SDK's client for an address and a key, on the pool of this Trio run."""
    connections = _find_connections()
    client = connections.clients.get((base_url, key))
    if client is None:
        client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=key or "none",  # the SDK insists on some key
            http_client=connections.http,
            max_retries=0,
        )
        connections.clients[base_url, key] = client
    return client


def request_headers(key: str | None) -> Headers:
    """The headers of each request: an endpoint without keys gets no made-up one."""
    return {} if key else {"Authorization": openai.omit}


# --- whose fault a failure is ----------------------------------------------------------------------------------------

SDK_FAILURES = (
    openai.OpenAIError,
    httpx2.HTTPError,  # raw audio is read without the SDK's own mapping
    httpx2.StreamError,
    json.JSONDecodeError,  # an event that is not JSON, or not UTF-8
    UnicodeDecodeError,
)

_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "quota_exceeded"})
_RATE_CODES = frozenset({"rate_limit_exceeded", "rate_limit_error", "requests", "tokens"})
_AUTH_CODES = frozenset({"invalid_api_key", "authentication_error", "permission_error", "invalid_authentication"})
_MODEL_CODES = frozenset({"model_not_found", "model_not_available", "invalid_model"})


class BrokenAnswer(Exception):
    """An answer that ended without giving anything, or before it was complete."""


@attrs.frozen
class Failure:
    error: RealtimeException
    again: bool = False
    """Whether a second try may go better."""
    pause: float = RETRY_SECONDS
    """Seconds until then."""


@attrs.frozen
class PartErrors:
    """What the failures of one of the three parts are called."""

    noun: str
    """What it is called: chat, synthesis, recognition."""
    setting: str
    """Its name in the project file: chat, tts, stt."""
    failed: ErrorCode
    """The code of those that have none of their own."""
    model: str

    def explain(self, exc: Exception) -> Failure:
        """What a failure of the SDK means. Its class and its identifiers decide; its sentences are never repeated."""
        status = exc.status_code if isinstance(exc, openai.APIStatusError) else None
        codes = _codes(exc)
        if status in (401, 403) or codes & _AUTH_CODES:
            return self._is(ErrorCode.PROVIDER_AUTH, f"refused the key: check {self.setting}.apiKey")
        if codes & _QUOTA_CODES:
            return self._is(ErrorCode.PROVIDER_QUOTA, "has no quota left for this account")
        if status == 429 or codes & _RATE_CODES:
            return self._is(
                ErrorCode.PROVIDER_QUOTA, "gets more requests than it accepts", again=True, pause=_retry_after(exc)
            )
        if codes & _MODEL_CODES or (status == 404 and _speaks_of(exc, "model")):
            return self._is(
                ErrorCode.MODEL_NOT_FOUND, f"does not know the model {self.model!r}: check {self.setting}.model"
            )
        if status == 404:
            return self._is(self.failed, f"has nothing at this address (HTTP 404): check {self.setting}.baseUrl")
        if status is not None:
            again = status >= 500 or status in (408, 409)
            return self._is(self.failed, f"answered HTTP {status}", again=again, pause=_retry_after(exc))
        if isinstance(exc, openai.APITimeoutError):
            return self._is(self.failed, "did not accept a connection in time", again=True)
        if isinstance(exc, openai.APIConnectionError | httpx2.HTTPError | httpx2.StreamError):
            return self._is(self.failed, "cannot be reached, or the connection broke", again=True)
        return self._is(self.failed, "gave a broken answer", again=True)

    def silent(self, seconds: float) -> RealtimeException:
        return self._is(self.failed, f"gave nothing for {seconds:g} s").error

    def _is(self, code: ErrorCode, what: str, *, again: bool = False, pause: float = RETRY_SECONDS) -> Failure:
        return Failure(RealtimeException(code, f"The {self.noun} endpoint {what}."), again, pause)


def _codes(exc: Exception) -> set[str]:
    """The machine-readable names in an API error."""
    if not isinstance(exc, openai.APIError):
        return set()
    return {name for name in (exc.code, exc.type) if isinstance(name, str)}


def _speaks_of(exc: Exception, word: str) -> bool:
    """Whether an API error is about `word`: by the parameter it names, else in its own sentence."""
    return isinstance(exc, openai.APIError) and (
        exc.param == word or re.search(rf"\b{re.escape(word)}\b", str(exc.body), re.IGNORECASE) is not None
    )


def refuses(exc: Exception, parameter: str) -> bool:
    """Whether the endpoint refused a request because of an optional parameter it does not support."""
    return isinstance(exc, openai.BadRequestError | openai.UnprocessableEntityError) and _speaks_of(exc, parameter)


def _retry_after(exc: Exception) -> float:
    """Seconds the endpoint asks to wait; the usual pause when it says nothing readable (a date, for example)."""
    if isinstance(exc, openai.APIStatusError):
        for header, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
            value: str = exc.response.headers.get(header, "")
            if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
                return float(value) * unit
    return RETRY_SECONDS


# --- tries within a bound --------------------------------------------------------------------------------------------


class Silence(Exception):
    """The endpoint has given nothing for as long as it may."""


@attrs.define(eq=False)
class Patience:
    """How long the endpoint may be silent, and whether it has given anything yet.

    Before the first output one deadline holds for all tries. Afterwards each wait has a deadline of its own; the time our side
    takes to pass the output on never counts.
    """

    seconds: float
    deadline: float
    """Of the first output, on Trio's clock."""
    started: bool = False

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Around each wait for the endpoint.

        Raises:
            Silence: the deadline has passed.
        """
        deadline = trio.current_time() + self.seconds if self.started else self.deadline
        with trio.move_on_at(deadline) as scope:
            yield
        if scope.cancelled_caught:
            raise Silence


async def run_tries(
    once: Callable[[Patience], Awaitable[None]],
    errors: PartErrors,
    seconds: float,
    *,
    adapt: Callable[[Exception], bool] = lambda exc: False,
) -> None:
    """Run `once` until it succeeds: at most twice, the second time only when the first has given nothing.

    `once` sets `started` with its first output. `adapt` is asked whether a failure was the refusal of something optional that
    has now been left out; such a run is no try (each option can be refused only once, which bounds the number of runs).

    Raises:
        RealtimeException: it failed for good.
    """
    patience = Patience(seconds, trio.current_time() + seconds)
    tries = 0
    while True:
        try:
            return await once(patience)
        except Silence as exc:
            raise errors.silent(seconds) from exc
        except (*SDK_FAILURES, BrokenAnswer) as exc:
            if not patience.started and adapt(exc):
                continue
            tries += 1
            failure = errors.explain(exc)
            too_late = trio.current_time() + failure.pause >= patience.deadline
            if patience.started or tries == TRIES or not failure.again or too_late:
                raise failure.error from exc
        logger.warning("%s Trying once more.", failure.error.message)
        await trio.sleep(failure.pause)


# --- streams ---------------------------------------------------------------------------------------------------------


class SDKStream(Protocol[_Item]):
    """What the pump needs of an SDK stream."""

    def __anext__(self) -> Awaitable[_Item]: ...


async def pump_stream(stream: SDKStream[_T], patience: Patience, give: Callable[[_T], Awaitable[None]]) -> None:
    """Read an SDK stream to its end and give each item on.

    However this ends, the SDK's generators are unwound from inside: left suspended at a `yield` they would live on until the
    garbage collector finds them.
    """
    try:
        while True:
            with patience.waiting():
                try:
                    item = await anext(stream)
                except StopAsyncIteration:
                    return
            await give(item)
    finally:
        # What is buffered comes out at once; the first wait for the socket is cancelled, inside the SDK's frames.
        with trio.move_on_after(0, shield=True), suppress(StopAsyncIteration, *SDK_FAILURES):
            while True:
                await anext(stream)


@asynccontextmanager
async def open_pump(
    pump: Callable[[trio.MemorySendChannel[_T]], Awaitable[None]], size: int, name: str
) -> AsyncGenerator[trio.MemoryReceiveChannel[_T]]:
    """A channel that `pump` feeds from a task of its own; leaving the context ends that task.

    When the pump fails, the reader gets what came before, then the end of the channel, and the failure is raised on leaving the
    context. The reader's own exceptions pass as they are, not as a group.
    """
    send, receive = trio.open_memory_channel[_T](size)
    failure: RealtimeException | None = None
    raised: Exception | None = None

    async def run() -> None:
        nonlocal failure
        with send:
            try:
                await pump(send)
            except RealtimeException as exc:
                failure = exc

    with receive:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, name=name)  # noqa: ASYNC113 - nothing relies on its having begun
            try:
                yield receive
            except Exception as exc:
                raised = exc
            nursery.cancel_scope.cancel(reason="the reader has left")
    if failure is not None and (raised is None or isinstance(raised, trio.EndOfChannel)):
        raise failure
    if raised is not None:
        raise raised
