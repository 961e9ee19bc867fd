"""Items that the client makes, finds, cuts and removes."""

import base64

import pytest

from providers.openai.simulation.checks import Json
from providers.openai.simulator import Call, Format, Pace, Reply, Rule, Script, tone
from tests.providers.openai.simulator.service import Service, audio_settings, error_of, types, user

ADDED = ["conversation.item.added", "conversation.item.done"]


def order(service: Service) -> list[str]:
    return [item.id for item in service.core.conversation.items]


def test_items_are_put_where_they_belong() -> None:
    service = Service()
    service.send("conversation.item.create", item=user("b", id="b"))
    service.send("conversation.item.create", item=user("d", id="d"), previous_item_id=None)
    first = service.send("conversation.item.create", item=user("a", id="a"), previous_item_id="root")
    middle = service.send("conversation.item.create", item=user("c", id="c"), previous_item_id="b")
    assert order(service) == ["a", "b", "c", "d"]
    assert first[0]["previous_item_id"] is None
    assert middle[0]["previous_item_id"] == "b"


def test_an_unknown_place_is_refused() -> None:
    service = Service()
    error = error_of(service.send("conversation.item.create", item=user("x"), previous_item_id="nowhere"))
    assert error["code"] == "item_create_invalid_previous_item_id"
    assert order(service) == []


def test_ids_are_new() -> None:
    service = Service()
    service.send("conversation.item.create", item=user("x", id="x"))
    assert error_of(service.send("conversation.item.create", item=user("y", id="x"), event_id="e"))["event_id"] == "e"
    assert service.rules == [Rule.DUPLICATE_ID]


def test_items_are_shown_complete_but_for_their_audio() -> None:
    service = Service()
    image = f"data:image/jpeg;base64,{base64.b64encode(b'x').decode()}"
    content: list[Json] = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": image},
        {"type": "input_audio", "audio": base64.b64encode(tone(Format.PCM, 100)).decode(), "transcript": "hm"},
    ]
    item = {"type": "message", "role": "user", "content": content, "status": "incomplete"}
    shown = service.send("conversation.item.create", item=item)[1]["item"]
    assert shown["status"] == "completed"
    assert shown["content"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": image, "detail": "auto"},
        {"type": "input_audio", "transcript": "hm"},
    ]
    service.send("response.create")
    assert service.response["usage"]["input_token_details"]["audio_tokens"] == 1


def test_history_is_replayed() -> None:
    service = Service()
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
    call = {"type": "function_call", "name": "x", "arguments": "{}", "call_id": "c1"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "y"}
    for item in (user("hi"), answer, call, output, {**call, "call_id": "c2"}):
        assert types(service.send("conversation.item.create", item=item)) == ADDED
    service.send("response.create")  # a call that the client made itself needs no output
    assert service.core.broken == []


def test_a_call_of_the_client_gets_an_id() -> None:
    service = Service()
    shown = service.send("conversation.item.create", item={"type": "function_call", "name": "x", "arguments": ""})
    assert shown[0]["item"]["call_id"].startswith("call_")


def test_bad_audio_in_an_item_is_refused() -> None:
    service = Service()
    item = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "AAA"}]}
    assert error_of(service.send("conversation.item.create", item=item))["param"] == "item.content[0].audio"
    assert service.rules == [Rule.AUDIO]


# --- outputs


def test_an_output_belongs_to_a_call() -> None:
    service = Service()
    item = {"type": "function_call_output", "call_id": "call_9", "output": "x"}
    error = error_of(service.send("conversation.item.create", item=item))
    assert error["code"] == "invalid_tool_call_id"
    assert error["message"] == "Tool call ID 'call_9' not found in conversation."


def test_a_second_output_passes_and_is_noted() -> None:
    service = Service(Script(replies=[Reply(Call("x", call_id="c1"))]))
    service.send("response.create")
    item = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    for _ in range(2):
        assert types(service.send("conversation.item.create", item=item)) == ADDED
    assert service.rules == [Rule.ANSWERED_TWICE]
    assert not service.core.broken[0].refused


def test_a_held_output_can_still_be_refused() -> None:
    slow = Reply([Call("x", call_id="c1"), "Wait here"], pace=Pace(token_seconds=1.0))
    service = Service(Script(replies=[slow]), output_modalities=["text"])
    service.send("response.create")
    item = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    assert service.send("conversation.item.create", item=item, previous_item_id="gone") == []
    assert [event.type for event in service.run(5)][-1] == "error"
    assert service.rules == [Rule.UNKNOWN_ITEM]


# --- retrieve and delete


def test_an_item_is_retrieved_with_its_audio() -> None:
    service = Service(audio=audio_settings(detection=None))
    audio = tone(Format.PCM, 200)
    service.append(audio)
    service.send("input_audio_buffer.commit")
    service.send("response.create")
    for item_id, length in zip(order(service), (200, 900), strict=True):
        (event,) = service.send("conversation.item.retrieve", item_id=item_id)
        assert event.type == "conversation.item.retrieved"
        assert len(base64.b64decode(event["item"]["content"][0]["audio"])) == length * Format.PCM.bytes_per_ms
    service.send("conversation.item.create", item=user("x", id="x"))
    (event,) = service.send("conversation.item.retrieve", item_id="x")
    assert event["item"]["content"] == [{"type": "input_text", "text": "x"}]


def test_without_audio_kept_none_is_retrieved() -> None:
    service = Service(keeps_audio=False, audio=audio_settings(detection=None))
    service.append(tone(Format.PCM, 200))
    service.send("input_audio_buffer.commit")
    (event,) = service.send("conversation.item.retrieve", item_id=order(service)[0])
    assert "audio" not in event["item"]["content"][0]


def test_an_item_is_deleted() -> None:
    service = Service()
    service.send("conversation.item.create", item=user("x", id="x"))
    (event,) = service.send("conversation.item.delete", item_id="x")
    assert (event.type, event["item_id"]) == ("conversation.item.deleted", "x")
    assert order(service) == []


def test_a_deleted_call_needs_no_output() -> None:
    service = Service(Script(replies=[Reply(Call("x")), Reply("Well.")]))
    service.send("response.create")
    service.send("conversation.item.delete", item_id=order(service)[0])
    service.send("response.create")
    assert service.core.broken == []


def test_an_item_deleted_while_it_comes_is_told_of_no_more() -> None:
    service = Service(Script(pace=Pace(token_seconds=1.0)), output_modalities=["text"])
    service.send("response.create")
    service.send("conversation.item.delete", item_id=order(service)[0])
    events = service.run(5)
    assert "conversation.item.done" not in types(events)
    assert "response.output_item.done" in types(events)


@pytest.mark.parametrize("verb", ["retrieve", "delete", "truncate"])
def test_unknown_ids_are_refused(verb: str) -> None:
    service = Service()
    more = {"content_index": 0, "audio_end_ms": 0} if verb == "truncate" else {}
    error = error_of(service.send(f"conversation.item.{verb}", item_id="gone", event_id="e", **more))
    assert (error["code"], error["event_id"]) == (f"item_{verb}_invalid_item_id", "e")
    assert service.rules == [Rule.UNKNOWN_ITEM]


# --- truncate


def truncate(service: Service, item_id: str, ms: int, index: int = 0) -> list[str]:
    return types(
        service.send("conversation.item.truncate", item_id=item_id, content_index=index, audio_end_ms=ms, event_id="t")
    )


def test_a_message_is_cut_and_loses_its_transcript() -> None:
    service = Service()
    service.say("hello")  # 900 ms of answer
    item_id = order(service)[-1]
    assert truncate(service, item_id, 500) == ["conversation.item.truncated"]
    assert service.last("conversation.item.truncated")["audio_end_ms"] == 500
    (event,) = service.send("conversation.item.retrieve", item_id=item_id)
    (part,) = event["item"]["content"]
    assert part.keys() == {"type", "audio"}
    assert len(base64.b64decode(part["audio"])) == 500 * Format.PCM.bytes_per_ms


def test_too_long_a_cut_is_an_error_and_is_done_as_far_as_there_is_audio() -> None:
    service = Service()
    service.say("hello")
    assert truncate(service, order(service)[-1], 1000) == ["error", "conversation.item.truncated"]
    error = service.last("error")["error"]
    assert (error["code"], error["event_id"]) == (None, None)
    assert error["message"] == "Audio content of 900ms is already shorter than 1000ms"
    assert service.last("conversation.item.truncated")["audio_end_ms"] == 900
    assert service.rules == [Rule.TRUNCATE_BOUNDS]


def test_the_service_may_take_its_audio_for_shorter() -> None:
    service = Service(Script(audio_shortfall_ms=85))
    service.say("hello")
    assert truncate(service, order(service)[-1], 815) == ["conversation.item.truncated"]
    service.say("again")
    assert truncate(service, order(service)[-1], 816) == ["error", "conversation.item.truncated"]


def test_only_spoken_messages_are_cut() -> None:
    service = Service(Script(replies=[Reply(Call("x")), Reply("Hi.", starts_after=1), Reply("Hello.")]))
    service.send("conversation.item.create", item=user("x", id="x"))
    service.send("response.create")
    for item_id in order(service):
        assert truncate(service, item_id, 0) == ["error"]
        assert service.last("error")["error"]["code"] == "unsupported_content_type"
    assert set(service.rules) == {Rule.TRUNCATE_KIND}


def test_a_message_without_audio_yet_is_not_cut() -> None:
    service = Service(Script(replies=[Reply("Hello there.", pace=Pace(audio_after=1.0))]))
    service.say("hi")
    item_id = order(service)[-1]
    assert truncate(service, item_id, 0) == ["error"]
    service.run(1)
    assert truncate(service, item_id, 0, index=1) == ["error"]
    assert truncate(service, item_id, 0) == ["conversation.item.truncated"]


def test_a_message_is_cut_while_it_comes() -> None:
    service = Service(Script(replies=[Reply("Hello there, dear guest.", pace=Pace(audio_speed=1.0, delta_ms=100))]))
    service.say("hi")
    service.run(0.45)
    item_id = order(service)[-1]
    assert truncate(service, item_id, 300) == ["conversation.item.truncated"]
    service.send("response.cancel")
    assert service.response["status"] == "cancelled"
    (event,) = service.send("conversation.item.retrieve", item_id=item_id)
    assert "transcript" not in event["item"]["content"][0]
