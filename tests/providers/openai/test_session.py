"""The session in the whole engine: how it connects, converses and ends (SPEC M1, M3, M4, M9-M11)."""

import pytest
import trio
import trio.testing

from engine.elements import (
    Action,
    Commit,
    ControlToken,
    Image,
    InputAudio,
    InstructionType,
    JsonObject,
    OutPartial,
    RealtimeInstruction,
)
from engine.errors import ErrorCode
from engine.interfaces import Context, Emit, PlanningManager, TurnInput
from engine.store.documents import SessionState
from engine.testing.scripted import final, interim, speech
from providers.link import CLOSE_SECONDS
from providers.openai.lifeline import START_SECONDS
from providers.openai.simulator import (
    REAL_TIME,
    Call,
    Disconnect,
    Drop,
    Pace,
    Refusal,
    Reply,
    Script,
    Simulator,
    Usage,
    Utterance,
)
from tests.cases.support import Tools
from tests.providers.openai.scene import open_scene, properties, wall_clock

Clock = trio.testing.MockClock


class Says(PlanningManager):
    """Gives its instructions after the first turn, one after the other."""

    def __init__(self, *instructions: RealtimeInstruction) -> None:
        self.instructions = list(instructions)

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        while self.instructions:
            await emit(self.instructions.pop(0))


async def look_long(arguments: JsonObject) -> str:
    await trio.sleep(9)
    return "found"


# --- the beginning ----------------------------------------------------------------------------------------------------


async def test_the_settings(autojump_clock: Clock) -> None:
    tools = Tools({"look": look_long})
    openai = properties(voice="cedar", speed=1.2, max_output_tokens=500, noise_reduction="far_field")
    async with open_scene(openai=openai, tool_box=tools, locales=("cs-CZ", "cs")) as scene:
        await trio.sleep(1)
        handshake = scene.service.handshake
        assert handshake is not None
        assert handshake.target == "/v1/realtime?model=gpt-realtime"
        assert handshake.headers["authorization"] == "Bearer a key for the simulator"
        assert not {"origin", "openai-beta"} & set(handshake.headers)
        (update,) = scene.received("session.update")
        assert update["session"] == {
            "type": "realtime",
            "instructions": "Be brief.",
            "output_modalities": ["audio"],
            "tools": [
                {
                    "type": "function",
                    "name": "look",
                    "description": "The tool look.",
                    "parameters": {"type": "object"},
                }
            ],
            "tool_choice": "auto",
            "max_output_tokens": 500,
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "turn_detection": {"type": "server_vad", "create_response": True, "interrupt_response": True},
                    "transcription": {"model": "gpt-4o-mini-transcribe", "language": "cs"},
                    "noise_reduction": {"type": "far_field"},
                },
                "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "cedar", "speed": 1.2},
            },
        }


async def test_the_settings_when_the_engine_hears(autojump_clock: Clock) -> None:
    async with open_scene(openai=properties(stt_provider="Scripted"), text_only=True) as scene:
        await scene.client.send(InputAudio(speech(200)))
        await trio.sleep(1)
        (update,) = scene.received("session.update")
        assert update["session"]["output_modalities"] == ["text"]
        heard = update["session"]["audio"]["input"]
        assert (heard["turn_detection"], heard["transcription"]) == (None, None)
        assert scene.service.counts["input_audio_buffer.append"] == 0


@pytest.mark.parametrize(
    ("locales", "language"), [(("en-GB", "en"), "en"), (("cs", "en"), None), (("fil",), None), ((), None)]
)
async def test_a_language_is_fixed_when_there_is_no_other(
    locales: tuple[str, ...], language: str | None, autojump_clock: Clock
) -> None:
    """Speech in a language that is not expected is written down as nonsense."""
    async with open_scene(locales=locales) as scene:
        await trio.sleep(1)
        (update,) = scene.received("session.update")
        assert update["session"]["audio"]["input"]["transcription"].get("language") == language


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (Refusal(401), ErrorCode.PROVIDER_AUTH),
        (Refusal(403), ErrorCode.PROVIDER_AUTH),
        (Refusal(404), ErrorCode.MODEL_NOT_FOUND),
        (Refusal(302), ErrorCode.PROVIDER_UNAVAILABLE),
        (Refusal(400), ErrorCode.PROVIDER_UNAVAILABLE),
    ],
)
async def test_a_refusal_that_is_final(refusal: Refusal, code: ErrorCode, autojump_clock: Clock) -> None:
    async with open_scene(Script(refusal=refusal), locales=("de",)) as scene:
        await trio.sleep(30)
        assert [(error.code, error.recoverable) for error in scene.errors] == [(code, False)]
        assert len(scene.simulator.connections) == 1
        assert scene.at("session-end") == [0]
        assert scene.store.saved_sessions[-1].state is SessionState.DISCONNECTED
        assert len(scene.store.written_usage) == 1


async def test_a_refusal_that_passes(autojump_clock: Clock) -> None:
    scripts = [Script(refusal=Refusal(503)), Script(refusal=Refusal(429, retry_after=2)), Script()]
    async with open_scene(scripts) as scene:
        await scene.type("hello")
        await trio.sleep(5)
        assert scene.sentences == ["You said: hello"]
        assert scene.errors == []
        assert 2 <= scene.client.at(lambda e: getattr(e, "text", "") == "You said: hello")[0] < 3


async def test_too_many_requests(autojump_clock: Clock) -> None:
    async with open_scene(Script(refusal=Refusal(429, retry_after=60))) as scene:
        await trio.sleep(1)
        assert [error.code for error in scene.errors] == [ErrorCode.PROVIDER_QUOTA]
        assert len(scene.simulator.connections) == 1, "it is not waited for so long"


@pytest.mark.parametrize("attempts", [0, 2])
async def test_a_service_that_is_down(attempts: int, autojump_clock: Clock) -> None:
    async with open_scene(Script(refusal=Refusal(503)), openai=properties(reconnect_attempts=attempts)) as scene:
        await trio.sleep(START_SECONDS)
        assert [error.code for error in scene.errors] == [ErrorCode.PROVIDER_UNAVAILABLE]
        assert len(scene.simulator.connections) == attempts + 1


async def test_a_service_that_does_not_answer(autojump_clock: Clock) -> None:
    async with open_scene(Script(accepts_after=None)) as scene:
        await trio.sleep(30)
        assert [error.code for error in scene.errors] == [ErrorCode.PROVIDER_UNAVAILABLE]
        (ended,) = scene.at("session-end")
        assert ended <= START_SECONDS


@pytest.mark.parametrize("model", ["gpt-live-1", "gpt-realtime"])
async def test_a_model_that_is_not_for_this(model: str, autojump_clock: Clock) -> None:
    simulator = Simulator(models=["gpt-live-1"], wall_clock=wall_clock)
    openai = properties().model_copy(update={"model": model})  # the properties would not take gpt-live-1
    async with open_scene(simulator=simulator, openai=openai) as scene:
        await trio.sleep(1)
        assert [error.code for error in scene.errors] == [ErrorCode.MODEL_NOT_FOUND]


# --- conversations ----------------------------------------------------------------------------------------------------


async def test_a_voice_turn_by_audio(autojump_clock: Clock) -> None:
    """The service finds the speech in the audio, the client gets the words and the speech."""
    script = Script(utterances=[Utterance("When do you open?", transcribed_after=0.3)], replies=[Reply("At nine.")])
    async with open_scene(script, partials=True) as scene:
        await scene.send_audio(0.4)
        await scene.send_audio(1.0, silent=False)
        await scene.send_audio(1.5)
        assert scene.finals == ["When do you open?"]
        assert scene.sentences == ["At nine."]
        assert scene.client.speech_ms("response-1") == 600
        assert scene.lines == [("user", "When do you open?"), ("assistant", "At nine.")]
        assert [e.text for e in scene.client.elements if isinstance(e, OutPartial)][-1] == "When do you open?"
        scene.check_history()


async def test_a_client_that_stops_sending(autojump_clock: Clock) -> None:
    """A muted microphone is silence: the service would wait for it for ever."""
    script = Script(utterances=[Utterance("When do you open?")], replies=[Reply("At nine.")])
    async with open_scene(script) as scene:
        await scene.send_audio(1.0, silent=False)
        await trio.sleep(2)
        assert scene.sentences == ["At nine."]


async def test_push_to_talk(autojump_clock: Clock) -> None:
    script = Script(utterances=[Utterance("When do you open?", transcribed_after=0.3)], replies=[Reply("At nine.")])
    async with open_scene(script, openai=properties(turn_detection={"type": "none"})) as scene:
        await scene.send_audio(1.0, silent=False)
        await scene.client.send(Commit())
        await trio.sleep(1)
        assert scene.finals == ["When do you open?"]
        assert scene.sentences == ["At nine."]
        await scene.send_audio(0.06, silent=False)
        await scene.client.send(Commit())
        await trio.sleep(3)
        assert scene.sentences == ["At nine."]


async def test_recognition_by_the_engine(autojump_clock: Clock) -> None:
    async with open_scene(Script(replies=[Reply("At nine.")]), openai=properties(stt_provider="Scripted")) as scene:
        scene.recognizer.hear(interim(), final("When do you open?"))
        await trio.sleep(1)
        assert scene.finals == ["When do you open?"]
        assert scene.sentences == ["At nine."]
        assert [t.provider for t in scene.client.transcripts] == ["Scripted", "Scripted"]


async def test_the_opening(autojump_clock: Clock) -> None:
    async with open_scene(Script(replies=[Reply("Hello.")])) as scene:
        await scene.client.send(Action("intro"))
        await trio.sleep(1)
        assert scene.finals == ["#intro"]
        assert scene.lines == [("assistant", "Hello.")]


async def test_images(autojump_clock: Clock) -> None:
    async with open_scene() as scene:
        await scene.client.send(Image(b"\xff\xd8", "image/jpeg"))
        await scene.type("what is it?")
        await trio.sleep(1)
        assert [event["item"]["content"][0]["type"] for event in scene.received("conversation.item.create")] == [
            "input_image",
            "input_text",
        ]


async def test_a_tool_and_what_is_said_around_it(autojump_clock: Clock) -> None:
    async def look(arguments: JsonObject) -> str:
        await trio.sleep(2)
        return f"found {arguments['id']}"

    script = Script(
        replies=[Reply(["Let me see.", Call("look", {"id": 7})]), Reply("It is there.")], pace=Pace(audio_speed=4)
    )
    async with open_scene(script, tool_box=Tools({"look": look})) as scene:
        await scene.type("look")
        await trio.sleep(1)
        assert scene.sentences == ["Let me see."], "it does not wait for the tool"
        await trio.sleep(3)
        assert scene.sentences == ["Let me see.", "It is there."]
        assert scene.ends() == ["completed"]
        assert len(scene.at("exit")) == len(scene.at("tool-success")) == 1
        scene.check_history()


async def test_steering(autojump_clock: Clock) -> None:
    planner = Says(
        RealtimeInstruction("It is noon.", InstructionType.SUPPORTING_CONTEXT),
        RealtimeInstruction("Mention the discount.", InstructionType.INSTRUCTION, id="i1"),
        RealtimeInstruction("Good night.", InstructionType.COMMENTARY, id="i2"),
    )
    script = Script(answer=lambda asked: Reply(f"Said {asked.number}."))
    async with open_scene(script, planner=planner) as scene:
        await scene.type("hello")
        await trio.sleep(3)
        told = [event["item"]["content"][0]["text"] for event in scene.received("conversation.item.create")]
        assert told == ["hello", "It is noon.", "Instruction: Mention the discount.", "Instruction: Say: Good night."]
        assert scene.sentences == ["Said 0.", "Said 1.", "Said 2."]
        assert [each["instructionId"] for each in scene.client.commands("response-instruction-end")] == ["i1", "i2"]
        assert len(scene.at("exit")) == 1


async def test_usage(autojump_clock: Clock) -> None:
    script = Script(replies=[Reply("One.", usage=Usage(input=100, output=50, cached=40)), Reply("Two.", usage=None)])
    async with open_scene(script, test_mode=True) as scene:
        for text in ("one", "two"):
            await scene.type(text)
            await trio.sleep(2)
        await scene.client.send(ControlToken("exit"))
        await scene.client.wait_for_command("session-end")
        (record,) = scene.store.written_usage
        assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (100, 50, 40)
        assert (record.provider, record.agent, record.test_mode) == ("OpenAI", "tester", True)
        assert 2 < record.active_seconds <= 4


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_ms", range(0, 2001, 100))
async def test_the_client_vanishes(at_ms: int, autojump_clock: Clock) -> None:
    """Whatever is under way; also while connecting. Nothing is left, and everything is saved."""
    script = Script(
        accepts_after=0.2,
        acknowledges_after=0.2,
        replies=[Reply(["Let me see. It takes a moment.", Call("look")], pace=REAL_TIME)],
    )
    async with open_scene(script, tool_box=Tools({"look": look_long})) as scene:
        await scene.type("hello")
        await trio.sleep(at_ms / 1000)
        scene.vanish()
        await scene.over.wait()
        assert scene.ended_at is not None
        assert scene.ended_at - at_ms / 1000 <= CLOSE_SECONDS
        assert scene.store.saved_sessions[-1].state is SessionState.DISCONNECTED
    close = scene.service.client_close
    if at_ms > 200:
        assert close is not None
        assert close.code == 1000


@pytest.mark.parametrize("how", [Drop.SILENT, Drop.ABRUPT])
async def test_the_client_vanishes_while_the_service_is_gone(how: Drop, autojump_clock: Clock) -> None:
    script = Script(replies=[Reply("One two three.", pace=REAL_TIME)])
    async with open_scene(script, half_open=how is Drop.SILENT) as scene:
        await scene.type("hello")
        await trio.sleep(0.5)
        scene.service.happen(Disconnect(how))
        scene.vanish()
        await scene.over.wait()
        assert scene.ended_at is not None
        assert scene.ended_at <= 0.5 + CLOSE_SECONDS


async def test_the_session_is_left_in_good_order(autojump_clock: Clock) -> None:
    async with open_scene() as scene:
        await scene.type("hello")
        await scene.client.send(ControlToken("exit"))
        await scene.client.wait_for_command("session-end")
        assert scene.sentences == ["You said: hello"], "the answer under way is given"
        await trio.testing.wait_all_tasks_blocked()
        assert scene.service.ended.is_set()


async def test_an_idle_hour(autojump_clock: Clock) -> None:
    """Nothing is sent but pings, and nothing is lost."""
    script = Script(session_seconds=1e6)
    async with open_scene(script) as scene:
        await trio.sleep(3000)
        await scene.type("hello")
        await trio.sleep(1)
        assert scene.sentences == ["You said: hello"]
        assert scene.service.counts["session.update"] == 1
