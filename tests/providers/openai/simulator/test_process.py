"""The simulator as a process of its own, and on sockets."""

import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed, open_websocket_url, wrap_client_stream

from providers.openai.simulation import command as simulator_command
from providers.openai.simulation.command import load_script
from providers.openai.simulator import Disconnect, Drop, Faults, Reply, Script, open_simulator
from tests.providers.openai.simulator.conftest import MakeSimulator

ROOT = Path(__file__).parents[4]
HEADERS = [(b"Authorization", b"Bearer sk-1")]

ONE = Script(replies=[Reply("From a module.")])
TWO = [ONE, Script()]
NONE: list[Script] = []


def made(number: int) -> Script:
    return Script(replies=[Reply(f"Number {number}.")])


def made_badly(number: int) -> str:
    return "no script"


@pytest.mark.sockets
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_prints_its_url_and_serves_until_it_is_stopped(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "providers.openai.simulator", "--port", "0", "--script", f"{__name__}:ONE"]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        with trio.fail_after(60):
            url = (await process.stdout.receive_some(200)).decode().strip()
            async with open_websocket_url(f"{url}/v1/realtime?model=gpt-realtime", extra_headers=HEADERS) as websocket:
                await websocket.send_message('{"type":"response.create"}')
                event = orjson.loads(await websocket.get_message())
                while event["type"] != "response.done":
                    event = orjson.loads(await websocket.get_message())
            assert event["response"]["output"][0]["content"][0]["transcript"] == "From a module."
            process.send_signal(number)
            assert await process.wait() == 0
    finally:
        with trio.move_on_after(5, shield=True):
            process.kill()
            await process.wait()


@pytest.mark.sockets
async def test_a_reset_is_seen_on_a_socket(make_simulator: MakeSimulator) -> None:
    simulator = make_simulator(Script(happens=[Disconnect(Drop.ABRUPT, at=0.05)]))
    async with open_simulator(simulator):
        host, port = simulator.url.removeprefix("ws://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream, trio.open_nursery() as nursery:
            # by hand, as `open_websocket` leaves the socket of a connection that was reset to the garbage collector
            target = "/v1/realtime?model=gpt-realtime"
            websocket = await wrap_client_stream(nursery, stream, host, target, extra_headers=HEADERS)
            await websocket.send_message('{"type":"session.update","session":{"type":"realtime"}}')
            with trio.fail_after(5), pytest.raises(ConnectionClosed) as caught:
                while True:
                    await websocket.get_message()
            assert caught.value.reason is not None
            assert caught.value.reason.code == 1006
        await simulator.connection.ended.wait()


@pytest.mark.sockets
async def test_a_port_may_be_given(make_simulator: MakeSimulator) -> None:
    async with open_simulator(make_simulator()) as first:
        port = int(first.url.rpartition(":")[2])
    async with open_simulator(make_simulator(), port=port) as second:
        assert second.url == first.url
        assert second.base_url == f"http://127.0.0.1:{port}/v1"


def test_scripts_are_loaded_by_name() -> None:
    assert load_script(f"{__name__}:ONE") is ONE
    assert load_script(f"{__name__}:TWO") == TWO
    scripts = load_script(f"{__name__}:made")
    assert callable(scripts)
    assert scripts(3).replies[0] == Reply("Number 3.")
    badly = load_script(f"{__name__}:made_badly")
    assert callable(badly)
    with pytest.raises(TypeError):
        badly(0)


@pytest.mark.parametrize("name", ["", "nowhere:x", f"{__name__}:gone", f"{__name__}:NONE", f"{__name__}:ROOT"])
def test_what_is_no_script_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"cannot be loaded|is no script"):
        load_script(name)
    if name:
        with pytest.raises(SystemExit):
            simulator_command.make_simulator(["--script", name])
        assert name in capsys.readouterr().err


async def test_arguments_name_who_is_let_in(autojump_clock: trio.testing.MockClock) -> None:
    arguments = ["--key", "k", "--key", "l", "--token", "t", "--records"]
    simulator = simulator_command.make_simulator(arguments).simulator
    async with trio.open_nursery() as nursery:
        for secret, is_known in (("k", True), ("l", True), ("t", True), ("x", False)):
            stream = simulator.connect(nursery)
            request = (
                f"GET /openai/v1/realtime?model=mine HTTP/1.1\r\nHost: simulator\r\nAuthorization: Bearer {secret}\r\n"
            )
            upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            await stream.send_all(f"{request}{upgrade}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 101" if is_known else b"HTTP/1.1 401")
            await stream.aclose()


def test_arguments_set_the_pace_and_the_faults() -> None:
    plain = simulator_command.make_simulator(["--delta-ms", "20", "--audio-speed", "1", "--token-seconds", "0.3"])
    assert (plain.host, plain.port) == ("127.0.0.1", 0)
    script = plain.simulator.script_of(0)
    assert (script.pace.delta_ms, script.pace.audio_speed, script.pace.token_seconds) == (20, 1.0, 0.3)
    assert plain.simulator.faults is None
    assert not plain.simulator.keeps_records
    faulty = simulator_command.make_simulator(["--seed", "7", "--drop", "0.1", "--reorder", "0.5", "--records"])
    assert faulty.simulator.faults == Faults(7, drop=0.1, reorder=0.5)
    assert faulty.simulator.keeps_records
