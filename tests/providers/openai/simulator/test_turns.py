"""The order of events in whole turns, as it was recorded from the service."""

from providers.openai.simulator import Call, Opening, Pace, Reply, Say, Script, Utterance
from tests.providers.openai.simulator.service import WHISPER, Service, audio_settings, types

SPOKEN = [
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_audio_transcript.delta",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
]
WRITTEN = [
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
]
CALLED = [
    "response.output_item.added",
    "conversation.item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "conversation.item.done",
    "response.output_item.done",
]
ADDED = ["conversation.item.added", "conversation.item.done"]


def test_a_session_begins_with_its_settings() -> None:
    service = Service(updates=False)
    (created,) = service.events
    assert created.type == "session.created"
    session = created["session"]
    assert session["object"] == "realtime.session"
    assert session["model"] == "gpt-realtime"
    assert session["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 200
    assert service.core.next_at() == 3600


def test_a_text_turn_is_spoken_by_default() -> None:
    service = Service()
    events = service.say("Good morning")
    assert types(events) == [*ADDED, "response.created", *SPOKEN, "response.done"]
    assert service.last("response.output_audio_transcript.done")["transcript"] == "You said: Good morning"
    assert service.response["status"] == "completed"
    assert service.response["output"][0]["content"] == [
        {"type": "output_audio", "transcript": "You said: Good morning"}
    ]


def test_a_part_is_audio_where_the_content_is_output_audio() -> None:
    service = Service()
    service.say("hi")
    assert service.last("response.content_part.added")["part"] == {"type": "audio", "transcript": ""}
    assert service.last("response.content_part.done")["part"] == {"type": "audio", "transcript": "You said: hi"}
    assert service.last("response.output_item.done")["item"]["content"][0]["type"] == "output_audio"


def test_a_written_turn() -> None:
    service = Service(output_modalities=["text"])
    events = service.say("hi")
    assert types(events) == [*ADDED, "response.created", *WRITTEN, "response.done"]
    assert service.last("response.content_part.added")["part"] == {"type": "text", "text": ""}
    assert service.response["output"][0]["content"] == [{"type": "output_text", "text": "You said: hi"}]


def test_items_know_the_one_before_them_when_they_are_added() -> None:
    service = Service()
    service.say("one")
    service.say("two")
    added = service.of_type("conversation.item.added")
    ids = [event["item"]["id"] for event in added]
    assert [event["previous_item_id"] for event in added] == [None, *ids[:-1]]
    done = [event["previous_item_id"] for event in service.of_type("conversation.item.done")]
    assert done == [None, None, ids[1], ids[2]]  # the first answer's is null, as it was recorded


def test_rate_limits_come_right_behind_the_response() -> None:
    service = Service()
    service.say("hi")
    assert [event.type for event in service.events[-2:]] == ["response.done", "rate_limits.updated"]
    (limit,) = service.last("rate_limits.updated")["rate_limits"]
    assert limit["name"] == "tokens"
    assert limit["remaining"] == 15_000_000 - service.response["usage"]["total_tokens"]


def test_a_tool_turn() -> None:
    service = Service(Script(replies=[Reply(Call("weather", {"city": "Brno"})), Reply("It rains.")]))
    events = service.say("And the weather?")
    assert types(events) == [*ADDED, "response.created", *CALLED, "response.done"]
    done = service.last("response.function_call_arguments.done")
    assert (done["name"], done["arguments"]) == ("weather", '{"city":"Brno"}')
    assert "".join(event["delta"] for event in service.of_type("response.function_call_arguments.delta")) == (
        '{"city":"Brno"}'
    )
    assert service.last("response.output_item.added")["item"]["arguments"] == ""
    output = {"type": "function_call_output", "call_id": done["call_id"], "output": "rain"}
    assert types(service.send("conversation.item.create", item=output)) == ADDED
    assert "status" not in service.last("conversation.item.done")["item"]
    service.send("response.create")
    assert service.last("response.output_audio_transcript.done")["transcript"] == "It rains."
    assert service.core.broken == []


def test_a_message_and_two_calls_in_one_response() -> None:
    reply = Reply(["One moment.", Call("weather", {"city": "Brno"}), Call("weather", {"city": "Plzen"})])
    service = Service(Script(replies=[reply]))
    events = service.send("response.create")
    assert types(events) == ["response.created", *SPOKEN, *CALLED, *CALLED, "response.done"]
    assert [event["output_index"] for event in service.of_type("response.output_item.added")] == [0, 1, 2]
    assert [item["type"] for item in service.response["output"]] == ["message", "function_call", "function_call"]


def test_an_early_output_waits_for_the_end_of_its_response() -> None:
    slow = Reply([Call("weather", "{}"), Say(["Wait", " here"])], pace=Pace(token_seconds=1.0))
    service = Service(Script(replies=[slow]), output_modalities=["text"])
    service.send("response.create")
    call_id = service.last("response.function_call_arguments.done")["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "rain"}
    assert service.send("conversation.item.create", item=output) == []
    assert types(service.run(2.0))[-3:] == ["response.done", *ADDED]
    assert types(service.send("response.create"))[0] == "response.created"
    assert service.core.broken == []


def test_a_voice_turn_with_server_detection() -> None:
    service = Service(
        Script(utterances=[Utterance("when do you open", transcribed_after=0.4)]),
        audio=audio_settings(WHISPER),
    )
    service.append_silence(500)
    events = service.append_speech(600) + service.append_silence(400) + service.run(1)
    assert types(events) == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        *ADDED,
        "response.created",
        *SPOKEN,
        "response.done",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
    ]
    started, stopped = (service.last(f"input_audio_buffer.speech_{what}") for what in ("started", "stopped"))
    assert started["audio_start_ms"] == 200  # at 500, less the padding
    assert stopped["audio_end_ms"] == 1300  # 1100 and 200 of silence
    item_ids = {event["item_id"] for event in (started, stopped, service.last("input_audio_buffer.committed"))}
    completed = service.last("conversation.item.input_audio_transcription.completed")
    assert item_ids == {completed["item_id"]}
    assert completed["transcript"] == "when do you open"
    assert completed["usage"] == {"type": "duration", "seconds": 1.1}
    assert service.of_type("conversation.item.added")[0]["item"]["content"] == [
        {"type": "input_audio", "transcript": None}
    ]
    assert service.response["output"][0]["content"][0]["transcript"] == "You said: when do you open"


def test_push_to_talk() -> None:
    service = Service(
        Script(utterances=[Utterance("a table for two")]),
        audio=audio_settings({"model": "gpt-4o-transcribe"}, None),
    )
    assert service.append_speech(500) == []
    events = service.send("input_audio_buffer.commit")
    assert types(events)[:3] == ["input_audio_buffer.committed", *ADDED]
    assert "response.created" not in types(events)
    completed = service.last("conversation.item.input_audio_transcription.completed")
    assert completed["usage"]["type"] == "tokens"
    assert types(service.send("response.create")) == ["response.created", *SPOKEN, "response.done"]
    assert service.response["output"][0]["content"][0]["transcript"] == "You said: a table for two"


def test_azure_repeats_the_part_as_content() -> None:
    service = Service(opening=Opening(azure=True))
    service.say("hi")
    for what in ("added", "done"):
        event = service.last(f"response.content_part.{what}")
        assert event["content"] == event["part"]


def test_text_like_deltas_are_filled_up() -> None:
    service = Service()
    service.say("hello there")
    for event in service.of_type("response.output_audio_transcript.delta"):
        assert (len(event["delta"]) + len(event["obfuscation"])) % 16 == 0
