"""The service without a network: requests go in, steps come out."""

from typing import Any

import orjson

from providers.chat.simulation.core import ChatService, Model, RateLimit, Request
from providers.chat.simulation.refusals import Refusal
from providers.chat.simulation.steps import Body, End, Head, Step
from providers.chat.simulator import ECHO, Faults, Script
from tests.providers.chat_simulator.gate import hold

HEADERS = {"authorization": "Bearer sk-1", "content-type": "application/json"}
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "book"}}


def make_service(
    script: Script = ECHO,
    *,
    models: list[str | Model] | None = None,
    faults: Faults | None = None,
    rate_limit: RateLimit | None = None,
) -> ChatService:
    return ChatService(
        script,
        keys=None,
        needs_key=True,
        models=models,
        rate_limit=rate_limit,
        faults=faults,
        wall_clock=lambda: 1_800_000_000.0,
    )


def ask(service: ChatService, now: float = 0.0, **body: Any) -> Request:
    """Ask for a completion; without more, for one that is not streamed."""
    data = orjson.dumps({"model": "m", "messages": HI, **body})
    return service.receive("POST", "/v1/chat/completions", HEADERS, data, now)


def steps_of(request: Request) -> list[Step]:
    return list(request.steps)


def take(request: Request) -> Request:
    """Take all steps as the network would, and hold what comes."""
    for step in request.steps:
        match step:
            case Head():
                request.status = step.status
            case Body():
                request.sent.append(step.data)
            case End():
                request.outcome = "answered"
            case _:
                pass
    hold(request)
    return request


def message(request: Request) -> dict[str, Any]:
    """The message of a completion that is not streamed."""
    return dict(choice(request)["message"])


def choice(request: Request) -> dict[str, Any]:
    return dict(orjson.loads(take(request).sent[0])["choices"][0])


def refusal(request: Request) -> Refusal:
    assert request.broken is not None
    take(request)
    assert request.status == request.broken.status
    assert orjson.loads(request.sent[0])["error"] == request.broken.wire
    return request.broken
