"""Conversations at Azure's regions: real engine, real link, simulated service, virtual time."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from engine.elements import Image, JsonObject
from engine.errors import ErrorCode
from providers.azure_openai.model import AzureOpenAIRealtimeModel
from providers.azure_openai.properties import AzureOpenAIProperties
from providers.azure_openai.regions import CONNECT_SECONDS
from providers.link import open_link
from providers.openai.lifeline import RECONNECT_SECONDS
from providers.openai.simulator import (
    NOT_DEPLOYED,
    REAL_TIME,
    Call,
    Disconnect,
    Drop,
    Pace,
    Refusal,
    Reply,
    Script,
    Simulator,
    Trouble,
    Utterance,
)
from providers.openai.texts import APOLOGIZE
from tests.cases.support import Tools
from tests.providers.openai.scene import Scene, open_scene, wall_clock
from tests.providers.openai.simulator.gate import hold_client_event, hold_server_frame

Clock = trio.testing.MockClock
KEY, TOKEN = "AZURE_SIMULATED_KEY", "AZURE_SIMULATED_TOKEN"
PREVIEW = "2025-04-01-preview"
NAMES = ("sweden", "east", "west")


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "the key")
    monkeypatch.setenv(TOKEN, "the token")


def azure(count: int = 2, **more: Any) -> AzureOpenAIProperties:
    credentials = {"api_key": f"env:{KEY}"} if "token" not in more else {}
    regions = [region(name) for name in NAMES[:count]]
    return AzureOpenAIProperties.model_validate({"regions": regions} | credentials | more)


def region(name: str, **more: str) -> dict[str, str]:
    return {"name": name, "endpoint": f"https://{name}.test", "deployment": name, **more}


open_azure = partial(open_scene, make_model=AzureOpenAIRealtimeModel)
"""A scene with the provider; `openai` are the properties."""


def simulated(*scripts: Script) -> Simulator:
    return Simulator(list(scripts), keys=["the key"], tokens=["the token"], models=NAMES, wall_clock=wall_clock)


def asked(scene: Scene) -> list[str]:
    """The regions, in the order in which they were. Each has a deployment of its name."""
    handshakes = [connection.handshake for connection in scene.simulator.connections]
    return [handshake.target.rpartition("=")[2] for handshake in handshakes if handshake]


def settled_at(scene: Scene) -> float:
    """When the newest region was sent the settings."""
    return round(scene.service.received[0].at, 6)


async def look(arguments: JsonObject) -> str:
    await trio.sleep(0.1)
    return "found"


# --- the first connection ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal",
    [Refusal(status) for status in (302, 401, 403, 404, 429, 500, 503)] + [Refusal(429, retry_after=60)],
    ids=lambda refusal: f"{refusal.status}-{refusal.retry_after}",
)
async def test_a_region_refuses(refusal: Refusal, autojump_clock: Clock) -> None:
    """The next one is asked at once, and nobody notices."""
    async with open_azure(simulator=simulated(Script(refusal=refusal), Script()), openai=azure()) as scene:
        assert settled_at(scene) == 0
        assert asked(scene) == ["sweden", "east"]
        await scene.type("hello")
        await trio.sleep(2)
        assert scene.sentences == ["You said: hello"]
        assert scene.errors == []


@pytest.mark.parametrize(
    "script",
    [
        Script(admission_error=Trouble("rate_limit_exceeded")),
        Script(update_failures=[Trouble("rate_limit_exceeded")]),
        Script(happens=[Disconnect(Drop.CLOSE, code=1013)], acknowledges_after=1),
    ],
    ids=["at the door", "instead of the settings", "before the settings"],
)
async def test_a_region_takes_the_connection_and_no_more(script: Script, autojump_clock: Clock) -> None:
    async with open_azure(simulator=simulated(script, Script()), openai=azure()) as scene:
        if script.acknowledges_after:
            scene.service.happen(Disconnect(Drop.CLOSE, code=1013))
        await trio.sleep(0.1)
        assert asked(scene) == ["sweden", "east"]
        assert len(scene.at("ready")) == 1
        assert scene.errors == []


async def test_a_region_does_not_answer(autojump_clock: Clock) -> None:
    def make_model(link: Callable[..., Any]) -> AzureOpenAIRealtimeModel:
        return AzureOpenAIRealtimeModel(partial(link, connect_seconds=CONNECT_SECONDS))

    simulator = simulated(Script(accepts_after=None), Script())
    async with open_scene(simulator=simulator, openai=azure(), make_model=make_model) as scene:
        await trio.sleep(CONNECT_SECONDS + 1)
        assert asked(scene) == ["sweden", "east"]
        assert settled_at(scene) == CONNECT_SECONDS
        assert scene.errors == []


async def test_a_region_is_not_in_the_books(autojump_clock: Clock, nursery: trio.Nursery) -> None:
    """No address for its name, and nobody at the address, are the same."""
    simulator = simulated(Script())

    async def open_stream(url: str) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if "sweden" in url:
            raise OSError("no such host")
        return simulator.connect(nursery)

    def make_model(_: object) -> AzureOpenAIRealtimeModel:
        return AzureOpenAIRealtimeModel(partial(open_link, open_stream=open_stream))

    async with open_scene(simulator=simulator, openai=azure(), make_model=make_model) as scene:
        assert settled_at(scene) == 0
        assert asked(scene) == ["east"]


@pytest.mark.parametrize("locale", ["en", "cs", "de"])
async def test_every_region_refuses_us(locale: str, autojump_clock: Clock) -> None:
    simulator = simulated(Script())
    openai = azure(3, api_key=f"env:{TOKEN}")  # which is no key
    async with open_azure(simulator=simulator, openai=openai, locales=(locale,)) as scene:
        await trio.sleep(1)
        assert asked(scene) == ["sweden", "east", "west"]
        assert [(error.code, error.recoverable) for error in scene.errors] == [(ErrorCode.PROVIDER_AUTH, False)]
        assert scene.at("session-end") == [0]
        message = scene.errors[0].message
    texts = {
        "en": "The voice service does not accept this server's credentials.",
        "cs": "Hlasová služba nepřijímá přihlašovací údaje tohoto serveru.",
        "de": "Der Sprachdienst nimmt die Zugangsdaten dieses Servers nicht an.",
    }
    assert message == texts[locale]


async def test_that_one_refuses_us_does_not_hide_that_others_are_busy(autojump_clock: Clock) -> None:
    busy, refuses = Script(refusal=Refusal(429, retry_after=60)), Script(refusal=Refusal(401))
    async with open_azure(simulator=simulated(busy, refuses, busy), openai=azure()) as scene:
        await trio.sleep(20)
        assert asked(scene) == ["sweden", "east", "sweden"]
        assert [error.code for error in scene.errors] == [ErrorCode.PROVIDER_QUOTA]


async def test_a_wrong_deployment_everywhere(autojump_clock: Clock) -> None:
    async with open_azure(
        simulator=simulated(Script()), openai=azure(regions=[region("one"), region("another")])
    ) as scene:
        await trio.sleep(1)
        assert [error.code for error in scene.errors] == [ErrorCode.MODEL_NOT_FOUND]
        assert len(scene.simulator.connections) == 2


# --- both forms of the address, both ways of authentication ------------------------------------------------------------


@pytest.mark.parametrize("api_version", [None, PREVIEW])
@pytest.mark.parametrize("credential", ["key", "token"])
async def test_a_whole_conversation(api_version: str | None, credential: str, autojump_clock: Clock) -> None:
    """Words, voice, a call, a barge-in; with no rule of the service broken, and every frame as the SDK's types have it."""
    script = Script(
        replies=[
            Reply(["Let me see.", Call("look")]),
            Reply("It is there."),
            Reply("One two three four five six seven eight nine ten.", pace=REAL_TIME),
            Reply("Yes?"),
        ]
    )
    more: dict[str, Any] = {"token": f"env:{TOKEN}"} if credential == "token" else {}
    openai = azure(api_version=api_version, noise_reduction="near_field", speed=1.1, max_output_tokens=500, **more)
    async with open_azure(simulator=simulated(script), openai=openai, tool_box=Tools({"look": look})) as scene:
        await scene.type("find it")
        await trio.sleep(3)
        scene.service.speak(Utterance("count", seconds=0.5, transcribed_after=0.2))
        await trio.sleep(2)
        scene.service.speak(Utterance("stop", seconds=0.5, transcribed_after=0.2))
        await trio.sleep(4)
        assert scene.finals == ["find it", "count", "stop"]
        assert scene.sentences[:2] == ["Let me see.", "It is there."]
        assert scene.sentences[-1] == "Yes?"
        assert scene.ends() == ["completed", "cancelled", "completed"]
        assert [truncated["content_index"] for truncated in scene.received("conversation.item.truncate")] == [0]
        assert scene.errors == []
        assert scene.manager.contexts[-1].properties == openai
        scene.check_history()
    handshake = scene.service.handshake
    assert handshake is not None
    if api_version is None:
        assert handshake.target == "/openai/v1/realtime?model=sweden"
    else:
        assert handshake.target == f"/openai/realtime?api-version={PREVIEW}&deployment=sweden"
    sent = {name: value for name, value in handshake.headers.items() if name in ("api-key", "authorization")}
    assert sent == ({"authorization": "Bearer the token"} if more else {"api-key": "the key"})
    for each in scene.service.sent:
        hold_server_frame(each.frame, azure=True, preview=api_version is not None)
    for received in scene.service.received:
        assert received.event is not None
        hold_client_event(received.event, preview=api_version is not None)


@pytest.mark.parametrize("api_version", [None, PREVIEW])
async def test_a_conversation_in_text(api_version: str | None, autojump_clock: Clock) -> None:
    openai = azure(api_version=api_version)
    async with open_azure(simulator=simulated(Script()), openai=openai, text_only=True) as scene:
        await scene.type("hello")
        await trio.sleep(2)
        assert scene.sentences == ["You said: hello"]
        assert scene.ends() == ["completed"]


async def test_the_preview_api_is_shown_no_images(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with open_azure(simulator=simulated(Script()), openai=azure(api_version=PREVIEW)) as scene:
        for _ in range(3):
            await scene.say(Image(b"\x89PNG", "image/png"))
        await scene.type("what is it?")
        await trio.sleep(2)
        assert scene.sentences == ["You said: what is it?"]
        assert scene.errors == []
    assert caplog.messages.count("the preview API takes no images; they are left out") == 1


async def test_the_transcription_is_not_deployed(autojump_clock: Clock) -> None:
    """It is said in every turn, and the conversation goes on."""
    heard = Utterance("hello", at=0.5, seconds=0.5, failure=NOT_DEPLOYED)
    async with open_azure(simulator=simulated(Script(utterances=[heard])), openai=azure()) as scene:
        await trio.sleep(5)
        assert len(scene.at("session-end")) == 0
        await scene.type("still there?")
        await trio.sleep(2)
        assert scene.sentences[-1] == "You said: still there?"


# --- lost connections -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api_version", [None, PREVIEW])
async def test_a_connection_is_lost_in_an_answer(api_version: str | None, autojump_clock: Clock) -> None:
    """Another region goes on, and knows what was said."""
    first = Script(replies=[Reply("At nine."), Reply("One. Two. Three. Four.", pace=REAL_TIME)])
    openai = azure(api_version=api_version)
    async with open_azure(simulator=simulated(first, Script()), openai=openai) as scene:
        await scene.type("when?")
        await trio.sleep(2)
        await scene.type("count")
        await trio.sleep(0.65)
        scene.service.happen(Disconnect(Drop.ABRUPT))
        await trio.sleep(RECONNECT_SECONDS)
        assert asked(scene) == ["sweden", "east"]
        items = [event["item"] for event in scene.service.events("conversation.item.create")]
        assert [(item["role"], item["content"][0]["text"]) for item in items] == [
            ("user", "when?"),
            ("assistant", "At nine."),
            ("user", "count"),
            ("assistant", "One. Two"),
            ("system", f"Instruction: {APOLOGIZE}"),
        ]
        assert items[1]["content"][0]["type"] == ("output_text" if api_version is None else "text")
        assert [(error.code, error.recoverable) for error in scene.errors] == [(ErrorCode.PROVIDER_UNAVAILABLE, True)]
        await scene.type("still there?")
        await trio.sleep(2)
        assert scene.sentences[-1] == "You said: still there?"


async def test_a_region_that_drops_what_it_takes(autojump_clock: Clock) -> None:
    """It is not asked again at once."""
    drops = Script(happens=[Disconnect(Drop.ABRUPT, at=0.2)])
    async with open_azure(simulator=simulated(drops, Script()), openai=azure()) as scene:
        await trio.sleep(60)
        assert asked(scene) == ["sweden", "east"]
        assert len(scene.at("session-end")) == 0


async def test_all_regions_drop_the_connection(autojump_clock: Clock) -> None:
    drops = Script(happens=[Disconnect(Drop.ABRUPT, at=0.2)])
    async with open_azure(simulator=simulated(drops), openai=azure()) as scene:
        await trio.sleep(60)
        assert [error.recoverable for error in scene.errors] == [True, True, False]
        assert asked(scene) == ["sweden", "east", "sweden"]


async def test_the_limit_of_a_session_is_no_fault_of_the_region(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    simulator = Simulator(Script(session_seconds=100), wall_clock=lambda: 0.0)
    async with open_azure(simulator=simulator, openai=azure()) as scene:
        await trio.sleep(101)
        assert [error.code for error in scene.errors] == [ErrorCode.SESSION_LIMIT]
    assert not [message for message in caplog.messages if "left out" in message]


async def test_a_renewal_may_be_at_another_region(autojump_clock: Clock) -> None:
    slow = Script(session_seconds=1000, pace=Pace(token_seconds=0.1))
    async with open_azure(simulator=simulated(slow), openai=azure()) as scene:
        await trio.sleep(990)
        assert asked(scene) == ["sweden", "east"]
        assert scene.errors == []


# --- credentials ------------------------------------------------------------------------------------------------------


async def test_a_token_is_read_for_every_connection(tmp_path: Path, autojump_clock: Clock) -> None:
    """Others renew it while a conversation runs."""
    (tmp_path / "token").write_text("first\n")
    simulator = Simulator([Script(), Script()], tokens=["first", "second"], wall_clock=wall_clock)
    async with open_azure(simulator=simulator, openai=azure(1, token=f"file:{tmp_path}/token")) as scene:
        await trio.sleep(100)
        (tmp_path / "token").write_text("second\n")
        scene.service.happen(Disconnect(Drop.ABRUPT))
        await trio.sleep(1)
        await scene.type("hello")
        await trio.sleep(2)
        assert scene.sentences[-1] == "You said: hello"
    handshakes = [connection.handshake for connection in simulator.connections]
    assert [each.headers["authorization"] for each in handshakes if each] == ["Bearer first", "Bearer second"]


async def test_a_region_whose_secret_is_missing(
    tmp_path: Path, autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, and the others do."""
    regions = [region("sweden", token=f"file:{tmp_path}/token"), region("east")]
    async with open_azure(simulator=simulated(Script()), openai=azure(regions=regions)) as scene:
        assert settled_at(scene) == 0
        assert asked(scene) == ["east"]
        assert scene.errors == []
    assert f"region sweden: token: the file {tmp_path}/token cannot be read (FileNotFoundError)" in caplog.messages
    assert "region sweden refuses us; it is left out for 5 s" in caplog.messages


async def test_no_secret_is_there(autojump_clock: Clock) -> None:
    async with open_azure(simulator=simulated(Script()), openai=azure(api_key="env:AZURE_NOT_SET")) as scene:
        await trio.sleep(1)
        assert [(error.recoverable, error.whose.value) for error in scene.errors] == [(False, "server")]
        assert scene.simulator.connections == []


@pytest.mark.parametrize("secret", ["the key", "the token"])
async def test_secrets_are_never_logged(secret: str, autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    more: dict[str, Any] = {"token": f"env:{TOKEN}"} if secret == "the token" else {}
    scripts = [Script(refusal=Refusal(500)), Script(), Script(refusal=Refusal(401))]
    async with open_azure(simulator=simulated(*scripts), openai=azure(**more)) as scene:
        scene.service.happen(Disconnect(Drop.ABRUPT))
        await trio.sleep(10)
    assert secret not in caplog.text
