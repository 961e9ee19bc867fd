"""The door to tracing: OpenTelemetry is imported when it is asked for, and need not be installed before that.

Where the spans go is said by OpenTelemetry's own variables: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS,
OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_BSP_SCHEDULE_DELAY and their kin. They are sent over HTTP, by a thread of their own.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from engine.errors import ConfigurationError
from engine.observation import Observer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

logger = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 5.0
"""For the last spans to be sent at the end of the process; a collector that is not there must not hold it up."""


@asynccontextmanager
async def open_tracing(
    exporter: "SpanExporter | None" = None, *, shutdown_seconds: float = SHUTDOWN_SECONDS
) -> AsyncGenerator[Observer]:
    """An observer that traces; on the way out the last spans are sent, for a bounded time. `exporter` is where they go, in place of
    what the environment says.

    Raises:
        ConfigurationError: OpenTelemetry is not installed, or its variables make no sense.
    """
    try:
        from engine.observe.spans import TracingObserver, make_provider
    except ImportError as exc:
        message = 'tracing needs OpenTelemetry: install souffleur-engine with the extra "otel", or leave tracing off'
        raise ConfigurationError(message) from exc
    try:
        provider = make_provider(exporter)
    except ValueError as exc:
        raise ConfigurationError(f"the OTEL_ variables are not right: {exc}") from exc
    try:
        yield TracingObserver(provider.get_tracer(__name__))
    finally:
        with trio.move_on_after(shutdown_seconds, shield=True) as limit:
            await trio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1))
        if limit.cancelled_caught:
            logger.warning("the last spans could not be sent in %g s and are lost", shutdown_seconds)
