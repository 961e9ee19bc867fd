"""The input audio buffer, turn detection, transcripts."""

import math

import pytest

from providers.openai.simulation.checks import Json
from providers.openai.simulator import (
    NOT_DEPLOYED,
    Format,
    Pace,
    Reply,
    Rule,
    Script,
    ScriptError,
    Trouble,
    Utterance,
    silence,
    tone,
)
from tests.providers.openai.simulator.service import WHISPER, Service, audio_settings, error_of, types

STARTED, STOPPED = "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"
COMMITTED, TRANSCRIPT = "input_audio_buffer.committed", "conversation.item.input_audio_transcription"
QUIET: Json = {"type": "server_vad", "create_response": False}


def heard(service: Service) -> list[str]:
    return [event["transcript"] for event in service.of_type(f"{TRANSCRIPT}.completed")]


# --- formats and sizes


@pytest.mark.parametrize("of", list(Format))
def test_speech_is_found_in_every_format(of: Format) -> None:
    wire = {"type": of.wire_name}
    service = Service(audio={"input": {"format": wire}, "output": {"format": wire}})
    service.append_silence(600, of)
    service.append_speech(400, of)
    service.append_silence(400, of)
    assert service.last(STARTED)["audio_start_ms"] == 300
    assert service.last(STOPPED)["audio_end_ms"] == 1200
    (event,) = service.send("conversation.item.retrieve", item_id=service.last(COMMITTED)["item_id"])
    assert len(event["item"]["content"][0]["audio"]) == 4 * math.ceil(900 * of.bytes_per_ms / 3)
    assert service.response["audio"]["output"]["format"]["type"] == of.wire_name
    assert service.last("response.output_audio.delta")["delta"]


def test_how_audio_is_cut_does_not_matter() -> None:
    audio = silence(Format.PCM, 500) + tone(Format.PCM, 500) + silence(Format.PCM, 500)
    whole, pieces = Service(), Service()
    whole.append(audio)
    for start in range(0, len(audio), 734):
        pieces.append(audio[start : start + 734])
    for event_type in (STARTED, STOPPED):
        one, other = whole.last(event_type), pieces.last(event_type)
        assert {**one.fields, "event_id": ""} == {**other.fields, "event_id": ""} | {"item_id": one["item_id"]}


@pytest.mark.parametrize("audio", ["AAA", "A A=", "not base64!", "A===", "AA\nAA"])
def test_bad_audio_is_refused(audio: str) -> None:
    service = Service()
    error = error_of(service.send("input_audio_buffer.append", audio=audio, event_id="a"))
    assert (error["code"], error["param"], error["event_id"]) == ("invalid_value", "audio", "a")
    assert service.rules == [Rule.AUDIO]


def test_half_a_sample_is_refused() -> None:
    service = Service()
    assert error_of(service.append(b"\0\0\0"))["code"] == "invalid_value"
    pcmu = Service(audio={"input": {"format": {"type": "audio/pcmu"}}})
    assert pcmu.append(b"\0\0\0") == []


def test_an_append_holds_15_mib() -> None:
    service = Service(keeps_audio=False, audio=audio_settings(detection=None))
    assert service.append(bytes(15 * 1024 * 1024)) == []
    assert error_of(service.append(bytes(15 * 1024 * 1024 + 2)))["param"] == "audio"
    assert service.rules == [Rule.TOO_LARGE]


# --- push to talk


def test_less_than_100_ms_are_not_committed() -> None:
    service = Service(audio=audio_settings(detection=None))
    error = error_of(service.send("input_audio_buffer.commit", event_id="c"))
    assert error["code"] == "input_audio_buffer_commit_empty"
    assert "only has 0.00ms" in error["message"]
    service.append(tone(Format.PCM, 80))
    assert "only has 80.00ms" in error_of(service.send("input_audio_buffer.commit"))["message"]
    service.append(tone(Format.PCM, 20))
    assert types(service.send("input_audio_buffer.commit"))[0] == COMMITTED
    assert service.rules == [Rule.COMMIT_TOO_SHORT] * 2


def test_the_buffer_is_cleared() -> None:
    service = Service(audio=audio_settings(detection=None))
    service.append_speech(200)
    assert types(service.send("input_audio_buffer.clear")) == ["input_audio_buffer.cleared"]
    assert error_of(service.send("input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"


def test_clearing_forgets_speech_under_way() -> None:
    service = Service()
    service.append_speech(300)
    service.send("input_audio_buffer.clear")
    assert types(service.append_silence(500)) == []


def test_the_client_may_commit_while_speech_goes_on() -> None:
    service = Service(audio=audio_settings(WHISPER))
    service.append_speech(300)
    events = service.send("input_audio_buffer.commit")
    assert events[0]["item_id"] == service.last(STARTED)["item_id"]
    assert "response.created" not in types(events)
    assert types(service.append_silence(500)) == []  # it has not stopped: it was committed
    service.append_speech(100)
    assert len(service.of_type(STARTED)) == 2


def test_detection_has_committed_before() -> None:
    service = Service(Script(replies=[Reply("Yes.", created_after=9)]))
    service.append_speech(300)
    service.append_silence(200)
    assert error_of(service.send("input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"


# --- detection


def test_silence_of_its_length_ends_speech() -> None:
    service = Service(audio=audio_settings(detection={**QUIET, "silence_duration_ms": 500}))
    service.append_speech(200)
    assert types(service.append_silence(480)) == []
    service.append_speech(20)
    assert types(service.append_silence(480)) == []
    assert types(service.append_silence(20)) == [
        STOPPED,
        COMMITTED,
        "conversation.item.added",
        "conversation.item.done",
    ]


def test_semantic_detection_is_taken() -> None:
    service = Service(audio=audio_settings(detection={"type": "semantic_vad", "eagerness": "high"}))
    service.append_speech(200)
    assert types(service.append_silence(480)) == []
    assert types(service.append_silence(20))[0] == STOPPED


def test_the_threshold_tells_speech_from_noise() -> None:
    noise = tone(Format.PCM, 20, level=0.015)  # 0.0106 of full scale
    for threshold, finds in ((0.5, True), (0.6, False)):
        service = Service(audio=audio_settings(detection={**QUIET, "threshold": threshold}))
        service.append(noise)
        assert bool(service.of_type(STARTED)) is finds


def test_nothing_is_found_without_detection_or_without_ears() -> None:
    service = Service(audio=audio_settings(detection=None))
    assert types(service.append_speech(300) + service.append_silence(500)) == []
    deaf = Service(Script(hears=False))
    assert types(deaf.append_speech(300) + deaf.append_silence(500)) == []


def test_no_response_is_made_when_none_is_wanted() -> None:
    service = Service(audio=audio_settings(detection=QUIET))
    service.append_speech(300)
    assert types(service.append_silence(300))[-1] == "conversation.item.done"


def test_memory_of_silence_is_short() -> None:
    service = Service()
    service.append_silence(60_000)
    service.append_speech(200)
    service.append_silence(200)
    (event,) = service.send("conversation.item.retrieve", item_id=service.last(COMMITTED)["item_id"])
    held_ms = len(event["item"]["content"][0]["audio"]) * 3 / 4 / Format.PCM.bytes_per_ms
    assert held_ms == 700  # padding, speech, silence
    assert service.last(STARTED)["audio_start_ms"] == 59_700


def test_detection_is_switched_off_while_the_user_speaks() -> None:
    service = Service()
    service.append_speech(200)
    service.send("session.update", session={"type": "realtime", "audio": audio_settings(detection=None)})
    assert types(service.append_silence(500)) == []
    assert types(service.send("input_audio_buffer.commit"))[0] == COMMITTED


# --- scripted speech


def test_the_script_speaks_by_itself() -> None:
    script = Script(utterances=[Utterance("hello", at=1.0, seconds=0.5), Utterance("bye", at=3.0, seconds=0.5)])
    service = Service(script, audio=audio_settings(WHISPER))
    service.run(5)
    assert [event.at for event in service.of_type(STARTED)] == [1.0, 3.0]
    assert [event.at for event in service.of_type(STOPPED)] == [1.5, 3.5]
    assert heard(service) == ["hello", "bye"]
    assert service.last(f"{TRANSCRIPT}.completed")["usage"]["seconds"] == 0.5


def test_scripted_speech_is_somewhere_in_the_audio() -> None:
    service = Service(Script(utterances=[Utterance("hello", at=1.0, seconds=0.5)]))
    service.append_silence(2000)
    assert service.last(STARTED)["audio_start_ms"] in range(640, 740)
    assert service.last(STOPPED)["audio_end_ms"] in range(1440, 1540)


def test_loud_audio_is_not_heard_while_the_script_speaks() -> None:
    service = Service(Script(utterances=[Utterance("hello", at=0.1, seconds=1.0), Utterance("mine")]))
    service.append_silence(200)
    service.append_speech(500)
    service.append_silence(600)
    assert len(service.of_type(STARTED)) == 1


def test_time_counts_from_the_settings() -> None:
    service = Service(Script(acknowledges_after=2.0, utterances=[Utterance("hello", at=1.0)]))
    service.run(5)
    assert service.last(STARTED).at == 3.0


def test_speech_whose_end_is_never_found() -> None:
    script = Script(utterances=[Utterance(at=1.0, ends=False), Utterance("hello", at=9.0)])
    service = Service(script, audio=audio_settings(WHISPER))
    assert types(service.run(8.5)) == [STARTED]
    service.run(5)
    assert heard(service) == ["hello"]


def test_new_speech_ends_what_was_said_before() -> None:
    script = Script(utterances=[Utterance("one", at=1.0, seconds=3), Utterance("two", at=2.0)])
    service = Service(script, audio=audio_settings(WHISPER, QUIET))
    service.run(6)
    assert [event.at for event in service.of_type(STOPPED)] == [2.0, 3.0]
    assert heard(service) == ["one", "two"]


def test_scripted_speech_comes_again() -> None:
    script = Script(
        utterances=[Utterance("one", at=1.0, seconds=0.5)], replies=[Reply("A."), Reply("B.")], repeat_seconds=2.0
    )
    service = Service(script)
    service.run(8)
    assert [event.at for event in service.of_type(STARTED)] == [1.0, 3.0, 5.0, 7.0]
    said = [event["transcript"] for event in service.of_type("response.output_audio_transcript.done")]
    assert said == ["A.", "B.", "A.", "B."]


def test_speech_without_detection_is_a_mistake_of_the_script() -> None:
    service = Service(audio=audio_settings(detection=None))
    with pytest.raises(ScriptError):
        service.core.speak(Utterance("x"), service.now)


# --- transcripts


def test_words_are_asked_for_when_they_are_needed() -> None:
    asked: list[str] = []

    def now() -> str:
        asked.append("once")
        return "said now"

    service = Service(Script(utterances=[Utterance(now, at=1.0)]), audio=audio_settings(WHISPER))
    service.run(1.5)
    assert asked == []
    service.run(1)
    assert asked == ["once"]
    assert heard(service) == ["said now"]


def test_without_transcription_the_model_still_hears() -> None:
    service = Service(Script(utterances=[Utterance("hello", at=1.0)]))
    service.run(3)
    assert service.of_type(f"{TRANSCRIPT}.completed") == []
    assert service.response["output"][0]["content"][0]["transcript"] == "You said: hello"


def test_words_come_while_they_are_spoken() -> None:
    utterance = Utterance("a table for two", at=1.0, seconds=2.0, during_speech=True, piece_seconds=0.4)
    service = Service(Script(utterances=[utterance]), audio=audio_settings(WHISPER))
    service.run(5)
    deltas = service.of_type(f"{TRANSCRIPT}.delta")
    assert [event["delta"] for event in deltas] == ["a", " table", " for", " two"]
    assert [event.at for event in deltas] == pytest.approx([1.0, 1.4, 1.8, 2.2])
    assert service.last(f"{TRANSCRIPT}.completed").at == 3.0


def test_a_transcript_comes_behind_the_answer_or_never() -> None:
    script = Script(
        utterances=[Utterance("late", at=1.0, transcribed_after=1.4), Utterance("lost", at=5.0, transcribed_after=None)]
    )
    service = Service(script, audio=audio_settings(WHISPER))
    service.run(20)
    assert service.of_type(f"{TRANSCRIPT}.completed")[0].at == pytest.approx(3.4)
    assert heard(service) == ["late"]


def test_two_transcripts_cross() -> None:
    script = Script(
        utterances=[
            Utterance("I need a taxi", pieces=["I need a ta", "xi"], piece_seconds=0.2, transcribed_after=0.6),
            Utterance("for two", pieces=["for", " two"], piece_seconds=0.2, transcribed_after=0.2),
        ]
    )
    service = Service(script, audio=audio_settings(WHISPER, None))
    for _ in range(2):
        service.append(tone(Format.PCM, 200))
        service.send("input_audio_buffer.commit")
        service.run(0.1)
    service.run(1)
    first, second = (event["item_id"] for event in service.of_type(COMMITTED))
    assert service.of_type(COMMITTED)[1]["previous_item_id"] == first
    assert [(event["item_id"], event["delta"]) for event in service.of_type(f"{TRANSCRIPT}.delta")] == [
        (first, "I need a ta"),
        (second, "for"),
        (first, "xi"),
        (second, " two"),
    ]
    assert [event["item_id"] for event in service.of_type(f"{TRANSCRIPT}.completed")] == [second, first]


def test_a_transcript_fails() -> None:
    script = Script(
        utterances=[Utterance("x", at=1.0, failure=Trouble("audio_unintelligible", "What?")), Utterance("y", at=4)]
    )
    service = Service(script, audio=audio_settings(WHISPER))
    service.run(8)
    failed = service.last(f"{TRANSCRIPT}.failed")
    assert failed["error"]["code"] == "audio_unintelligible"
    assert heard(service) == ["y"]
    assert len(service.of_type("response.done")) == 2


def test_transcripts_of_a_model_that_is_not_deployed_fail_every_time() -> None:
    script = Script(utterances=[Utterance("x", at=1.0), Utterance("y", at=4.0)], transcription_failure=NOT_DEPLOYED)
    service = Service(script, audio=audio_settings(WHISPER))
    service.run(8)
    assert [event["error"]["code"] for event in service.of_type(f"{TRANSCRIPT}.failed")] == ["DeploymentNotFound"] * 2
    assert service.of_type(f"{TRANSCRIPT}.delta") == []


def test_no_transcript_of_an_item_that_is_gone() -> None:
    service = Service(Script(utterances=[Utterance("x", at=1.0, transcribed_after=2.0)]), audio=audio_settings(WHISPER))
    service.run(2.5)
    service.send("conversation.item.delete", item_id=service.last(COMMITTED)["item_id"])
    service.run(5)
    assert heard(service) == []


@pytest.mark.parametrize(("language", "expected"), [(None, []), ("cs", [{"code": "cs"}])])
def test_languages_and_probabilities(language: str | None, expected: list[Json]) -> None:
    service = Service(
        Script(utterances=[Utterance("hi", at=1.0)]),
        audio=audio_settings({"model": "gpt-transcribe", "language": language}),
        include=["item.input_audio_transcription.logprobs"],
    )
    service.run(3)
    completed = service.last(f"{TRANSCRIPT}.completed")
    assert completed["languages"] == expected
    assert [one["token"] for one in completed["logprobs"]] == ["hi"]
    assert service.last(f"{TRANSCRIPT}.delta")["logprobs"]


# --- nobody speaks


def test_silence_after_an_answer_makes_the_model_ask() -> None:
    detection = {"type": "server_vad", "idle_timeout_ms": 5000}
    service = Service(
        Script(replies=[Reply("Hello.", pace=Pace(audio_speed=None))]), audio=audio_settings(WHISPER, detection)
    )
    service.say("hi")  # 300 ms of answer
    service.append_silence(5200)
    assert service.of_type("input_audio_buffer.timeout_triggered") == []
    events = service.append_silence(200)
    assert types(events)[:7] == [
        "input_audio_buffer.timeout_triggered",
        "conversation.item.added",
        "conversation.item.done",
        COMMITTED,
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
    ]
    triggered = service.last("input_audio_buffer.timeout_triggered")
    assert triggered.at == pytest.approx(5.3)
    assert triggered["audio_end_ms"] - triggered["audio_start_ms"] == 5000
    assert triggered["item_id"] == service.last(COMMITTED)["item_id"]
    assert service.of_type("conversation.item.added")[2]["item"]["role"] == "system"
    assert heard(service) == [""]


def test_speech_and_answers_put_the_timeout_off() -> None:
    detection = {"type": "server_vad", "idle_timeout_ms": 5000}
    service = Service(Script(utterances=[Utterance("x", at=3.0)]), audio=audio_settings(detection=detection))
    service.say("hi")
    service.run(6)
    service.say("and")
    service.run(4)
    assert service.of_type("input_audio_buffer.timeout_triggered") == []
    service.run(3)
    assert len(service.of_type("input_audio_buffer.timeout_triggered")) == 1


def test_no_timeout_while_something_goes_on() -> None:
    detection = {"type": "server_vad", "idle_timeout_ms": 5000}
    service = Service(
        Script(replies=[Reply("A."), Reply("B.", created_after=20)]), audio=audio_settings(detection=detection)
    )
    service.say("hi")
    service.run(1)
    service.say("and")
    service.run(15)
    assert service.of_type("input_audio_buffer.timeout_triggered") == []
