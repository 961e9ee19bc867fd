"""C29 on the OpenAI provider: nothing goes out before the settings were taken, and the client knows when they are not."""

import base64

import pytest
import trio

from engine.elements import InputAudio
from engine.errors import ErrorCode
from engine.store.documents import SessionState
from engine.testing.scripted import speech
from providers.openai.connection import READY_SECONDS
from providers.openai.lifeline import START_SECONDS
from providers.openai.simulator import Script, Trouble
from tests.providers.openai.scene import open_scene


async def test_c29_a_the_first_audio_waits_for_the_acknowledgement(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(Script(acknowledges_after=0.5)) as scene:
        for number in range(20):
            await scene.client.send(InputAudio(bytes([number, 0]) * 480))
            await trio.sleep(0.02)
        await trio.sleep(0.05)
        assert [one.type for one in scene.service.received] == ["session.update"]
        await trio.sleep(1)
        appended = b"".join(base64.b64decode(event["audio"]) for event in scene.received("input_audio_buffer.append"))
        assert appended == b"".join(bytes([number, 0]) * 480 for number in range(20))
        assert scene.service.received[1].at == 0.5


async def test_c29_b_the_settings_are_refused(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    trouble = Trouble(
        "invalid_value", "Invalid value: 'nobody'.", "invalid_request_error", "session.audio.output.voice"
    )
    async with open_scene(Script(acknowledges_after=0.5, update_failures=[trouble] * 9), locales=("cs",)) as scene:
        await scene.client.send(InputAudio(speech(100)))
        await trio.sleep(1)
        assert [(error.code, error.message, error.recoverable) for error in scene.errors] == [
            (ErrorCode.PROVIDER_UNAVAILABLE, "Hlasová služba není dostupná.", False)
        ]
        assert scene.at("session-end") == [0.5]
        assert scene.store.saved_sessions[-1].state is SessionState.DISCONNECTED
        assert len(scene.simulator.connections) == 1
        assert "session.audio.output.voice" in caplog.text
        assert "nobody" not in caplog.text


async def test_c29_the_settings_fail_for_a_moment(autojump_clock: trio.testing.MockClock) -> None:
    scripts = [Script(update_failures=[Trouble("server_error")]), Script()]
    async with open_scene(scripts) as scene:
        await scene.type("hello")
        await trio.sleep(2)
        assert scene.sentences == ["You said: hello"]


async def test_c29_c_the_settings_are_never_acknowledged(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(Script(acknowledges_after=None)) as scene:
        for _ in range(50):
            await scene.client.send(InputAudio(speech(200)))
            await trio.sleep(0.2)
        assert [error.code for error in scene.errors] == [ErrorCode.PROVIDER_UNAVAILABLE]
        (ended,) = scene.at("session-end")
        assert READY_SECONDS <= ended <= START_SECONDS
        assert all(
            set(connection.counts) <= {"session.update", "session.created"}
            for connection in scene.simulator.connections
        )
