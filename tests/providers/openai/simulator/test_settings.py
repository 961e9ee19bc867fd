"""What an update of the settings changes, keeps, clears and may not touch."""

import pytest

from providers.openai.simulation.checks import Json
from providers.openai.simulator import Opening, Pace, Reply, Rule, Script, Trouble
from tests.providers.openai.simulator.service import WHISPER, Service, audio_settings, error_of, types


def updated(service: Service, **session: object) -> Json:
    (event,) = service.send("session.update", session={"type": "realtime", **session})
    assert event.type == "session.updated", event
    found: Json = event["session"]
    return found


def test_only_what_is_present_changes() -> None:
    service = Service()
    before = updated(service, instructions="Be brief.", tools=[{"type": "function", "name": "x"}])
    after = updated(service, tool_choice="none")
    assert after == {**before, "tool_choice": "none"}
    assert updated(service, instructions="", tools=[])["instructions"] == ""


def test_settings_of_audio_merge_deeply() -> None:
    service = Service()
    audio = updated(service, audio=audio_settings(WHISPER, {"type": "server_vad", "silence_duration_ms": 700}))["audio"]
    assert audio["input"]["transcription"] == {"model": "gpt-realtime-whisper", "language": None, "prompt": None}
    assert audio["input"]["turn_detection"]["silence_duration_ms"] == 700
    audio = updated(
        service,
        audio={
            "input": {"transcription": {"language": "cs"}, "turn_detection": {"type": "server_vad", "threshold": 0.9}}
        },
    )["audio"]
    assert audio["input"]["transcription"]["model"] == "gpt-realtime-whisper"
    assert audio["input"]["transcription"]["language"] == "cs"
    assert audio["input"]["turn_detection"]["silence_duration_ms"] == 700
    assert audio["input"]["turn_detection"]["threshold"] == 0.9
    assert audio["output"] == {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "alloy", "speed": 1.0}


def test_another_detection_begins_with_its_own_defaults() -> None:
    service = Service(audio=audio_settings(detection={"type": "server_vad", "create_response": False}))
    changed = updated(service, audio=audio_settings(detection={"type": "semantic_vad"}))
    assert changed["audio"]["input"]["turn_detection"] == {
        "type": "semantic_vad",
        "eagerness": "auto",
        "create_response": True,
        "interrupt_response": True,
    }
    again = updated(service, audio=audio_settings(detection={"type": "server_vad"}))
    assert again["audio"]["input"]["turn_detection"]["create_response"] is True


@pytest.mark.parametrize("key", ["turn_detection", "noise_reduction", "transcription"])
def test_null_clears(key: str) -> None:
    on = {"noise_reduction": {"type": "far_field"}, "transcription": WHISPER, "turn_detection": {"type": "server_vad"}}
    service = Service(audio={"input": on})
    audio = updated(service, audio={"input": {key: None}})["audio"]["input"]
    assert audio[key] is None
    assert [name for name in on if audio[name] is None] == [key]


def test_noise_reduction_keeps_its_strength() -> None:
    service = Service(audio={"input": {"noise_reduction": {"type": "far_field"}}})
    assert service.last("session.updated")["session"]["audio"]["input"]["noise_reduction"]["strength"] == 1.0
    updated(service, audio={"input": {"noise_reduction": {"strength": 0.5}}})
    audio = updated(service, audio={"input": {"noise_reduction": {"type": "near_field"}}})["audio"]["input"]
    assert audio["noise_reduction"] == {"strength": 0.5, "type": "near_field"}


def test_the_format_is_taken_as_a_whole() -> None:
    service = Service()
    audio = updated(service, audio={"input": {"format": {"type": "audio/pcmu"}}})["audio"]
    assert audio["input"]["format"] == {"type": "audio/pcmu"}
    audio = updated(service, audio={"input": {"format": {"type": "audio/pcm"}}})["audio"]
    assert audio["input"]["format"] == {"type": "audio/pcm", "rate": 24000}


def test_the_model_never_changes() -> None:
    service = Service()
    assert updated(service, model="gpt-realtime")["model"] == "gpt-realtime"
    error = error_of(service.send("session.update", session={"type": "realtime", "model": "gpt-realtime-2"}))
    assert error["param"] == "session.model"
    assert service.rules == [Rule.IMMUTABLE]


def test_the_voice_changes_before_the_first_audio_only() -> None:
    service = Service()
    assert updated(service, audio={"output": {"voice": "marin"}})["audio"]["output"]["voice"] == "marin"
    service.say("hi")
    assert updated(service, audio={"output": {"voice": "marin"}})
    events = service.send(
        "session.update", session={"type": "realtime", "instructions": "x", "audio": {"output": {"voice": "ash"}}}
    )
    assert error_of(events)["code"] == "cannot_update_voice"
    assert updated(service)["instructions"] != "x"  # nothing of a refused update is taken
    assert error_of(service.send("response.create", response={"audio": {"output": {"voice": "ash"}}}))["code"] == (
        "cannot_update_voice"
    )


def test_written_words_do_not_fix_the_voice() -> None:
    service = Service(output_modalities=["text"])
    service.say("hi")
    assert updated(service, audio={"output": {"voice": "ash"}})


def test_a_custom_voice_is_named_by_its_id_in_a_response() -> None:
    service = Service(audio={"output": {"voice": {"id": "voice_7"}}})
    service.say("hi")
    assert service.response["audio"]["output"]["voice"] == "voice_7"


def test_the_speed_changes_between_turns_only() -> None:
    service = Service(Script(replies=[Reply("Long.", pace=Pace(audio_speed=1.0))]))
    service.say("hi")
    error = error_of(service.send("session.update", session={"type": "realtime", "audio": {"output": {"speed": 1.2}}}))
    assert error["param"] == "session.audio.output.speed"
    service.run(1)
    assert updated(service, audio={"output": {"speed": 1.2}})


def test_tracing_is_fixed_once_it_is_on() -> None:
    service = Service(tracing="auto")
    assert updated(service, tracing="auto")
    assert error_of(service.send("session.update", session={"type": "realtime", "tracing": None}))["param"] == (
        "session.tracing"
    )


@pytest.mark.parametrize("key", ["reasoning", "parallel_tool_calls"])
def test_reasoning_is_for_models_that_can(key: str) -> None:
    value: object = {"effort": "low"} if key == "reasoning" else True
    session = {"type": "realtime", key: value}
    assert error_of(Service().send("session.update", session=session))["param"] == f"session.{key}"
    assert error_of(Service().send("response.create", response={key: value}))["param"] == f"response.{key}"
    able = Service(opening=Opening(model="gpt-realtime-2.1"))
    assert updated(able, **{key: value})[key] == value
    assert types(able.send("response.create", response={key: value}))[0] == "response.created"


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        ({"language": "cs"}, "model"),
        ({"model": "gpt-live-1"}, "model"),
        ({"model": "whisper-1", "delay": "low"}, "delay"),
        ({"model": "whisper-1", "keywords": ["x"]}, "keywords"),
        ({"model": "gpt-4o-transcribe", "languages": ["cs"]}, "languages"),
        ({"model": "gpt-realtime-whisper", "prompt": "x"}, "prompt"),
    ],
)
def test_transcription_takes_what_its_model_has(settings: Json, param: str) -> None:
    error = error_of(Service().send("session.update", session={"type": "realtime", "audio": audio_settings(settings)}))
    assert error["param"] == f"session.audio.input.transcription.{param}"


def test_on_azure_names_of_models_are_names_of_deployments() -> None:
    service = Service(opening=Opening(azure=True, model="mine"))
    assert updated(service, audio=audio_settings({"model": "my-whisper", "delay": "low"}), reasoning={"effort": "low"})


def test_the_type_of_a_session_is_fixed() -> None:
    error = error_of(Service().send("session.update", session={"type": "transcription"}))
    assert error["code"] == "invalid_parameter"
    assert "transcription session update event to a realtime session" in error["message"]


def test_a_transcription_session_answers_nothing() -> None:
    service = Service(opening=Opening(kind="transcription"), audio=audio_settings({"model": "gpt-4o-transcribe"}))
    assert service.last("session.updated")["session"]["object"] == "realtime.transcription_session"
    service.append_speech(300)
    events = service.append_silence(400)
    assert types(events)[-1] == "conversation.item.input_audio_transcription.completed"
    assert "response.created" not in types(service.events)
    assert error_of(service.send("response.create"))["code"] == "invalid_parameter"


def test_live_whisper_takes_no_detection_in_a_transcription_session() -> None:
    service = Service(opening=Opening(kind="transcription"))
    session = {"type": "transcription", "audio": audio_settings(WHISPER)}
    assert error_of(service.send("session.update", session=session))["param"] == "session.audio.input.turn_detection"
    session = {"type": "transcription", "audio": audio_settings(WHISPER, None)}
    assert types(service.send("session.update", session=session)) == ["session.updated"]


# --- the answer to an update


def test_an_update_is_answered_when_the_script_says() -> None:
    service = Service(Script(acknowledges_after=0.5))
    assert types(service.events) == ["session.created"]
    service.append(b"\0\0")
    (event,) = service.run(1)
    assert (event.type, event.at) == ("session.updated", 0.5)
    assert service.rules == [Rule.NOT_READY]
    assert not service.core.broken[0].refused
    service.append(b"\0\0")
    assert len(service.rules) == 1


def test_an_update_is_never_answered() -> None:
    service = Service(Script(acknowledges_after=None))
    assert types(service.run(60)) == []


def test_the_first_update_fails() -> None:
    trouble = Trouble("invalid_value", "No such thing.", "invalid_request_error", "session.tools")
    service = Service(Script(acknowledges_after=0.5, update_failures=[trouble]), updates=False)
    service.send("session.update", event_id="u1", session={"type": "realtime"})
    error = error_of(service.run(1))
    assert (error["code"], error["param"], error["event_id"]) == ("invalid_value", "session.tools", "u1")
    service.send("session.update", session={"type": "realtime"})
    assert types(service.run(1)) == ["session.updated"]
    assert service.core.broken == []


def test_a_late_answer_tells_of_a_late_fault() -> None:
    service = Service(Script(acknowledges_after=0.5), updates=False)
    service.send("session.update", event_id="u1", session={"type": "realtime", "model": "another"})
    assert error_of(service.run(1))["event_id"] == "u1"
