"""A newcomer's way, in real processes over real sockets: a simulated service, `souffleur serve` with a project file that names it, and a
client that speaks, hears, interrupts and leaves. Nothing sleeps here: each step waits for what it needs, within a bound."""

import base64
import json
import signal
import sys
import urllib.request
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import attrs
import pytest
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from engine.testing.wire import WireJudge
from providers.openai.simulator import Format, silence, tone
from tests.endurance.server import ADMIN_KEY, ROOT, RealServer, last_words, open_server
from tests.scenarios.openai_served import AFTERWARDS, ANSWER, INTERRUPTION, QUESTION

pytestmark = pytest.mark.sockets

BOUND_SECONDS = 60.0
"""The whole of it takes three on a quiet machine, most of which are Python's start."""
KEY, TOKEN = "simulated-key", "simulated-token"
FRAME = 960
"""Bytes of 20 ms."""

AGENT = """
project: {ref: house, name: House, access: public}
agents: [{ref: host, type: basic, name: Host, published: true, purpose: Show the rooms., realtimeConfigurationId: voice}]
realtimeConfigurations:
  - id: voice
"""
OPENAI = """
    properties: {provider: OpenAI, model: gpt-realtime, baseUrl: "%(url)s/v1/realtime", apiKey: "env:SOUFFLEUR_VOICE_KEY"}
"""
AZURE = """
    properties:
      provider: AzureOpenAI
      apiKey: env:SOUFFLEUR_VOICE_KEY
      regions:
        - {name: gone, endpoint: "ws://127.0.0.1:1", deployment: ours}
        - {name: here, endpoint: "%(url)s", deployment: ours, token: "file:%(directory)s/token"}
"""
PREVIEW = """
    properties:
      provider: AzureOpenAI
      model: ours
      apiVersion: 2025-04-01-preview
      regions: [{endpoint: "%(url)s", apiKey: "env:SOUFFLEUR_VOICE_KEY"}]
"""


@asynccontextmanager
async def simulated_service() -> AsyncGenerator[str]:
    """The URL of one in a process of its own, which is stopped as a person would, and then has nothing to say."""
    command = [sys.executable, "-m", "providers.openai.simulator", "--port", "0", "--key", KEY, "--token", TOKEN]
    command += ["--script", "tests.scenarios.openai_served:TALK"]
    process = await trio.lowlevel.open_process(command, stdout=PIPE, stderr=PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said = b""
        while not said.endswith(b"\n"):
            said += await process.stdout.receive_some(200)
        yield said.decode().strip()
        process.send_signal(signal.SIGINT)
        said = b"".join([data async for data in process.stderr])
        assert (await process.wait(), said.decode()) == (0, "")
    finally:
        with trio.move_on_after(5, shield=True):
            process.kill()
            await process.wait()
            await process.stdout.aclose()
            await process.stderr.aclose()


@attrs.define
class Guest:
    """Somebody at a microphone. What it heard is kept in order."""

    socket: WebSocketConnection
    heard: list[dict[str, Any]] = attrs.field(factory=list[dict[str, Any]])
    judge: WireJudge = attrs.field(factory=WireJudge)

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Listen until that comes."""
        while not self.heard or not wanted(self.heard[-1]):
            message = await self.socket.get_message()
            self.judge.heard(message, trio.current_time())
            self.heard.append(json.loads(message))
            assert self.heard[-1]["type"] != "error", self.heard[-1]
        return self.heard[-1]

    async def command(self, name: str) -> dict[str, Any]:
        """The next command of that name: its parameters."""
        before = len(self.commands(name))
        await self.until(lambda message: len(self.commands(name)) > before)
        return self.commands(name)[-1]

    async def speak(self) -> None:
        """Half a second of sound and as much of quiet, at once: its own time is that of the audio."""
        audio = tone(Format.PCM, 500) + silence(Format.PCM, 500)
        for start in range(0, len(audio), FRAME):
            data = base64.b64encode(audio[start : start + FRAME]).decode()
            await self.send(type="audio", data=data)

    async def send(self, **message: Any) -> None:
        await self.socket.send_message(json.dumps(message))

    def speech(self, turn_id: str = "") -> bytes:
        parts = (message for message in self.heard if message["type"] == "speech")
        return b"".join(base64.b64decode(part["data"]) for part in parts if turn_id in ("", part["turnId"]))

    def words(self, turn_id: str) -> str:
        return " ".join(m["text"] for m in self.heard if m["type"] == "text" and m["turnId"] == turn_id)

    def commands(self, name: str) -> list[dict[str, Any]]:
        return [message["parameters"] for message in self.heard if message.get("name") == name]

    @property
    def finals(self) -> list[str]:
        return [message["text"] for message in self.heard if message.get("isInterim") is False]


async def stored(server: RealServer, path: str) -> Any:
    def get() -> Any:
        request = urllib.request.Request(f"{server.url}/api/sessions/{path}", headers={"X-API-Key": ADMIN_KEY})
        with urllib.request.urlopen(request, timeout=BOUND_SECONDS) as answer:
            return json.load(answer)

    return await trio.to_thread.run_sync(get, abandon_on_cancel=True)


async def converse(server: RealServer, provider: str) -> None:
    wishes = "sessionId=visit&deviceRef=guest&inputSampleRate=24000&outputSampleRate=24000"
    path = f"/api/pipeline/agent:host?{wishes}"
    # by hand, as `open_websocket_url` leaves a socket that the server has closed to the garbage collector
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream, trio.open_nursery() as nursery:
        guest = Guest(await wrap_client_stream(nursery, stream, "127.0.0.1", path, message_queue_size=100))
        ready = await guest.command("ready")
        assert (ready["provider"], ready["sampleRate"]) == (provider, 24000)

        await guest.speak()
        await guest.until(lambda message: guest.finals == [QUESTION] and any(guest.speech()))

        await guest.speak()
        cut = await guest.command("response-end")
        first = cut["turnId"]
        assert cut["status"] == "cancelled"
        exited = await guest.command("exit")
        assert (exited["turnId"], exited["saved"]) == (first, True)
        before = guest.speech(first)
        assert ANSWER.startswith(guest.words(first))

        exited = await guest.command("exit")
        second = exited["turnId"]
        assert exited["saved"] is True
        assert guest.finals == [QUESTION, INTERRUPTION]
        assert guest.words(second) == AFTERWARDS
        assert any(guest.speech(second))
        assert guest.speech(first) == before, "nothing of what was cut comes later"
        assert [ended["status"] for ended in guest.commands("response-end")] == ["cancelled", "completed"]

        await guest.send(type="token", text="#exit")
        end = await guest.command("session-end")
        assert (end["sessionId"], end["state"]) == ("visit", "CLOSED")
        await guest.send(type="token", text="#end")
        with pytest.raises(ConnectionClosed) as closed:
            await guest.until(lambda message: False)
        assert closed.value.reason is not None
        assert closed.value.reason.code == 1000
    turns = (await stored(server, "visit/turns"))["items"]
    assert [turn["input"]["text"] for turn in turns] == [QUESTION, INTERRUPTION]
    assert [turn["interrupted"] for turn in turns] == [True, False]
    assert turns[1]["output"][0]["text"] == AFTERWARDS
    assert (await stored(server, "visit"))["state"] == "CLOSED"


@pytest.mark.parametrize(
    ("provider", "configuration", "logged"),
    [
        ("OpenAI", OPENAI, []),
        ("AzureOpenAI", AZURE, ["region gone fails; it is left out for 5 s"]),
        ("AzureOpenAI", PREVIEW, []),
    ],
    ids=["OpenAI", "Azure", "Azure's preview"],
)
async def test_a_visit(provider: str, configuration: str, logged: list[str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    project = tmp_path / "house.yaml"
    with trio.fail_after(BOUND_SECONDS):
        async with simulated_service() as url:
            project.write_text(AGENT + configuration.lstrip("\n") % {"url": url, "directory": tmp_path})
            async with open_server("sqlite:house.db", tmp_path, project=project, voice_key=KEY) as server:
                await converse(server, provider)
                await server.stop()
                said = last_words(server.log)
    assert KEY not in said
    assert TOKEN not in said
    # that a busy machine holds the loop up is none of the provider's
    troubles = [line for line in said.splitlines() if "WARNING providers." in line or "ERROR" in line]
    assert [line.partition("]: ")[2] for line in troubles] == logged, said
