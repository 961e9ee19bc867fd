"""The simulator on sockets and as a process of its own, with the SDK's clients of both kinds."""

import signal
import subprocess
import sys
from pathlib import Path

import openai
import pytest
import trio
from openai.types.chat import ChatCompletionMessageParam

from providers.chat.simulation.command import load_script, make_simulator
from providers.chat.simulator import (
    ChatSimulator,
    Disconnect,
    Drop,
    Pace,
    Reply,
    Script,
    open_chat_simulator,
)
from tests.providers.chat_simulator.gate import hold

pytestmark = pytest.mark.sockets

ROOT = Path(__file__).parents[3]
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
ONE = Script(["From a module."])


def converse(base_url: str) -> list[str]:
    """The SDK's client for programs without a loop."""
    with openai.OpenAI(api_key="k", base_url=base_url, max_retries=0) as client:
        whole = client.chat.completions.create(model="m", messages=HI).choices[0].message.content
        with client.chat.completions.create(model="m", messages=HI, stream=True) as chunks:
            words = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    return [whole or "", words]


async def test_the_synchronous_client() -> None:
    async with open_chat_simulator(Script(["one"])) as simulator:
        with trio.fail_after(30):
            heard = await trio.to_thread.run_sync(converse, simulator.base_url, abandon_on_cancel=True)
    assert heard == ["one", "You said: hi"]
    assert simulator.accepted == 1
    for request in simulator.requests:
        hold(request)


@pytest.mark.parametrize("how", Drop)
async def test_a_loss_is_seen_on_a_socket(how: Drop) -> None:
    script = Script([Reply("one two", mishaps=[Disconnect(1, how)])], pace=Pace(first_after=0.01))
    async with open_chat_simulator(script) as simulator:
        client = openai.AsyncOpenAI(api_key="k", base_url=simulator.base_url, max_retries=0)
        heard: list[str] = []

        async def listen() -> None:
            async with await client.chat.completions.create(model="m", messages=HI, stream=True) as chunks:
                while (chunk := await anext(chunks, None)) is not None:
                    heard.append(chunk.choices[0].delta.content or "")

        async with client:
            with trio.fail_after(30):
                if how is Drop.CLEAN:
                    await listen()
                else:
                    with pytest.raises(openai.APIConnectionError):
                        await listen()
        assert heard == ["", "one"]
        assert simulator.requests[0].outcome == "lost"


async def test_a_client_that_leaves_is_seen() -> None:
    async with open_chat_simulator(Script([Reply("one two")], pace=Pace(token_seconds=500))) as simulator:
        async with openai.AsyncOpenAI(api_key="k", base_url=simulator.base_url) as client:
            async with await client.chat.completions.create(model="m", messages=HI, stream=True):
                assert simulator.connections == 1
            with trio.fail_after(30):
                await simulator.wait_connections(0)
        assert simulator.requests[0].outcome == "left"


async def test_a_port_may_be_given() -> None:
    async with open_chat_simulator() as first:
        port = int(first.url.rpartition(":")[2])
    async with open_chat_simulator(ChatSimulator(), port=port) as second:
        assert second.base_url == f"http://127.0.0.1:{port}/v1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_prints_its_url_and_serves_until_it_is_stopped(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "providers.chat.simulator", "--port", "0", "--script", f"{__name__}:ONE"]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        with trio.fail_after(60):
            url = (await process.stdout.receive_some(200)).decode().strip()
            heard = await trio.to_thread.run_sync(converse, url, abandon_on_cancel=True)
            process.send_signal(number)
            assert await process.wait() == 0
        assert heard == ["From a module.", "You said: hi"]
    finally:
        with trio.move_on_after(5, shield=True):
            process.kill()
            await process.wait()


def test_arguments_describe_a_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    serving = make_simulator(
        ["--first-after", "0.5", "--seed", "7", "--drop", "0.1", "--model", "m", "--requests-per-minute", "9"]
    )
    assert (serving.host, serving.port) == ("127.0.0.1", 0)
    assert serving.simulator.requests.maxlen == 0
    assert make_simulator(["--records"]).simulator.requests.maxlen == 1000
    for name in ("nowhere:x", f"{__name__}:gone", f"{__name__}:ROOT", ""):
        with pytest.raises(ValueError, match=r"cannot be loaded|is no script"):
            load_script(name)
    with pytest.raises(SystemExit):
        make_simulator(["--script", "nowhere:x"])
    assert "nowhere:x" in capsys.readouterr().err
