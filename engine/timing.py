"""How long the parts of a session's start take: the caller hears nothing meanwhile."""

from collections.abc import Generator
from contextlib import contextmanager

import trio

from engine.interfaces import Context
from engine.observation import Outcome, Span, SpanKind


@contextmanager
def timed(context: Context, part: str) -> Generator[None]:
    """Tell the observer how long a part of the start takes."""
    span = Span(SpanKind.START, part, part, context.session.id)
    context.observer.began(span, trio.current_time())
    outcome = Outcome.CANCELLED
    try:
        yield
        outcome = Outcome.OK
    except Exception:
        outcome = Outcome.FAILED
        raise
    finally:
        context.observer.ended(span, trio.current_time(), outcome)
