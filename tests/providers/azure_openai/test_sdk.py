"""The official SDK as the referee: the addresses and headers that it makes of the same settings are ours."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
from openai import AsyncAzureOpenAI, AsyncOpenAI
from websockets.exceptions import InvalidStatus

from providers.azure_openai.model import AzureOpenAIRealtimeModel, target
from providers.azure_openai.properties import AzureOpenAIProperties
from providers.link import LinkRefusedError, open_link
from providers.openai.simulator import Simulator, open_simulator
from tests.providers.openai.simulator.conftest import make_simulator
from tests.providers.openai.simulator.test_sdk import in_thread

__all__ = ["make_simulator"]

pytestmark = pytest.mark.sockets
PREVIEW = "2025-04-01-preview"
Client = Callable[[Simulator, str], AbstractAsyncContextManager[AsyncOpenAI]]


def preview_by_key(simulator: Simulator, secret: str) -> AsyncAzureOpenAI:
    return AsyncAzureOpenAI(
        api_key=secret,
        api_version=PREVIEW,
        azure_endpoint=simulator.url.replace("ws:", "http:"),
        websocket_base_url=f"{simulator.url}/openai",  # it would take TLS otherwise
    )


def preview_by_token(simulator: Simulator, secret: str) -> AsyncAzureOpenAI:
    return AsyncAzureOpenAI(
        azure_ad_token=secret,
        api_version=PREVIEW,
        azure_endpoint=simulator.url.replace("ws:", "http:"),
        websocket_base_url=f"{simulator.url}/openai",
    )


def current(simulator: Simulator, secret: str) -> AsyncOpenAI:
    """It sends a token as it sends a key."""
    return AsyncOpenAI(api_key=secret, base_url=f"{simulator.url.replace('ws:', 'http:')}/openai/v1")


CASES = pytest.mark.parametrize(
    ("client", "setting", "secret", "version"),
    [
        (preview_by_key, "api_key", "the-key", PREVIEW),
        (preview_by_token, "token", "the-token", PREVIEW),
        (current, "token", "the-token", None),
    ],
)


@CASES
async def test_the_handshakes_are_the_same(
    client: Client,
    setting: str,
    secret: str,
    version: str | None,
    make_simulator: Callable[..., Simulator],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_SECRET", secret)
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    simulator = make_simulator(keys=["the-key"], tokens=["the-token"], models=["my deployment/1"])

    async def converse() -> Any:
        async with client(simulator, secret) as sdk:
            async with sdk.realtime.connect(model="my deployment/1") as connection:
                return (await connection.recv()).type

    async with open_simulator(simulator):
        assert await in_thread(converse) == "session.created"
        region = {"endpoint": simulator.url, "deployment": "my deployment/1", setting: "env:A_SECRET"}
        properties = AzureOpenAIProperties.model_validate({"regions": [region], "api_version": version})
        ours = target(properties, properties.regions[0])
        with trio.fail_after(10):
            async with open_link(ours.url, ours.headers) as link:
                assert "session.created" in str(await link.receive())
    first, second = (connection.handshake for connection in simulator.connections)
    assert first is not None
    assert second is not None
    assert second.target.replace("%20", "+") == first.target.replace("%20", "+")  # both stand for a blank in a query
    for header in ("api-key", "authorization", "openai-beta", "origin"):
        assert second.headers.get(header) == first.headers.get(header)


@CASES
async def test_a_wrong_secret_is_refused_to_both(
    client: Client,
    setting: str,
    secret: str,
    version: str | None,
    make_simulator: Callable[..., Simulator],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_SECRET", f"not {secret}")
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    simulator = make_simulator(keys=["the-key"], tokens=["the-token"])

    async def converse() -> int:
        async with client(simulator, f"not {secret}") as sdk:
            try:
                async with sdk.realtime.connect(model="mine"):
                    return 101
            except InvalidStatus as exc:
                return exc.response.status_code

    async with open_simulator(simulator):
        assert await in_thread(converse) == 401
        region = {"endpoint": simulator.url, setting: "env:A_SECRET"}
        properties = AzureOpenAIProperties.model_validate({"regions": [region], "api_version": version})
        regions = AzureOpenAIRealtimeModel().regions(properties)
        with trio.fail_after(10), pytest.RaisesGroup(LinkRefusedError, flatten_subgroups=True) as caught:
            place = regions.next(0)
            async with open_link(place.url, place.headers):
                pass
        (refused,) = caught.value.exceptions
        assert isinstance(refused, LinkRefusedError)
        assert refused.status == 401
