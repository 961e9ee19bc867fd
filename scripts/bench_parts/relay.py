"""The reference: no engine at all, only what goes from one socket to the other, with the provider's simulators and the clients of
the measurement.

It is what a program comes to that uses trio-websocket on both sides and does nothing but relay: a WebSocket for the client, one for
the provider, resampling, base64 and JSON, and dropping what comes of an answer after the user has cut in. No turns, no history, no
playback, no outbox, no deadlines, nothing saved.
"""

from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pybase64
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, open_websocket_url, serve_websocket

from bench_parts.conversation import INTERIM, MODEL_RATE, session_number
from bench_parts.meter import Meter
from bench_parts.sampling import Sampler
from bench_parts.setting import INSTRUCTIONS
from bench_parts.worker import Options
from engine.protocol.resample import Resampler
from providers.openai import frames
from providers.openai.properties import OpenAIProperties

HOST = "127.0.0.1"
QUEUE = 16
"""Messages read and not yet taken."""
MAX_MESSAGE_BYTES = 1 << 20
UPDATE = frames.session_update(OpenAIProperties(), INSTRUCTIONS, (), ("en",), text_only=False)


async def relay(simulators: list[str], request: WebSocketRequest) -> None:
    """One session: what the client asked for is in its URL, as it is for the engine."""
    parts = urlsplit(request.path)
    model = parts.path.rpartition(":")[2]
    (rate,) = parse_qs(parts.query)["inputSampleRate"]
    url = f"{simulators[session_number(model) % len(simulators)]}/v1/realtime?model={model}"
    provided = open_websocket_url(
        url,
        extra_headers=[(b"Authorization", b"Bearer any")],
        message_queue_size=QUEUE,
        max_message_size=MAX_MESSAGE_BYTES,
        receive_buffer_size=None,
    )
    try:
        async with await request.accept() as client, provided as provider:
            await provider.send_message(UPDATE)
            while orjson.loads(await provider.get_message())["type"] != "session.updated":
                pass
            await client.send_message(_text(type="command", name="ready"))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_up, client, provider, Resampler(int(rate), MODEL_RATE), nursery.cancel_scope)
                nursery.start_soon(_down, client, provider, nursery.cancel_scope)
    except* ConnectionClosed:
        pass  # a client may leave at any time


async def _up(
    client: WebSocketConnection, provider: WebSocketConnection, resampler: Resampler, session: trio.CancelScope
) -> None:
    try:
        while True:
            message = await client.get_message()
            if isinstance(message, bytes):
                await provider.send_message(frames.audio_append(resampler.feed(message)))
    except ConnectionClosed:
        session.cancel(reason="one side has left")


async def _down(client: WebSocketConnection, provider: WebSocketConnection, session: trio.CancelScope) -> None:
    running = dead = ""
    try:
        while True:
            event = orjson.loads(await provider.get_message())
            match event["type"]:
                case "response.output_audio.delta" if event["response_id"] != dead:
                    if event["response_id"] != running:
                        running = event["response_id"]
                        await client.send_message(_text(type="speech-start", responseId=running))
                    await client.send_message(pybase64.b64decode(event["delta"]))
                case "input_audio_buffer.speech_started":
                    dead = running
                    await client.send_message(_text(type="transcript", isInterim=True, text=INTERIM))
                case _:
                    pass
    except ConnectionClosed:
        session.cancel(reason="one side has left")


def _text(**message: Any) -> str:
    return orjson.dumps(message).decode()


async def run(options: Options) -> None:
    """Serve until told to stop. Options: as for the server."""
    meter = Meter(sampler=Sampler() if options["profile"] else None)
    async with trio.open_nursery() as nursery:
        serve = partial(
            serve_websocket,
            partial(relay, options["simulators"]),
            HOST,
            0,
            None,
            message_queue_size=QUEUE,
            max_message_size=MAX_MESSAGE_BYTES,
            receive_buffer_size=None,
        )
        server = await nursery.start(serve, name="relay")
        await meter.serve({"port": server.port})
        nursery.cancel_scope.cancel(reason="all is measured")
