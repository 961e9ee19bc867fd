"""The user cuts in, or the client cancels: what ends, in which order, and what still comes."""

import pytest

from providers.openai.simulation.checks import Json
from providers.openai.simulator import (
    REAL_TIME,
    Call,
    Incomplete,
    Pace,
    Reply,
    Rule,
    Say,
    Script,
    Stall,
    Utterance,
)
from tests.providers.openai.simulator.service import WHISPER, Service, audio_settings, error_of, types

STARTED = "input_audio_buffer.speech_started"
TAIL = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
]
LONG = "The first option is the blue room, which looks over the river."
NO_INTERRUPT: Json = {"type": "server_vad", "interrupt_response": False}


def test_speech_ends_the_response_behind_its_start() -> None:
    service = Service(
        Script(replies=[Reply(LONG, pace=REAL_TIME, barge_in=Utterance("and Friday?", at=1.0))]),
        audio=audio_settings(WHISPER),
    )
    service.say("rooms?")
    events = [event for event in service.run(5) if event.at == 1.0]
    assert types(events)[: len(TAIL) + 1] == [STARTED, *TAIL]
    cut = service.of_type("response.done")[0]["response"]
    assert cut["status"] == "cancelled"
    assert cut["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    (item,) = cut["output"]
    assert item["status"] == "incomplete"
    assert item["content"][0]["transcript"] == "The first option is"
    assert cut["usage"]["output_tokens"] == 24  # four words, 1000 ms of audio
    assert service.response["output"][0]["content"][0]["transcript"] == "You said: and Friday?"
    assert service.core.broken == []


def test_loud_audio_cuts_in_as_well() -> None:
    service = Service(Script(replies=[Reply(LONG, pace=REAL_TIME)]))
    service.say("rooms?")
    service.append_silence(500)
    service.append_speech(100)
    assert service.response["status_details"]["reason"] == "turn_detected"


def test_a_response_that_must_not_be_interrupted_goes_on() -> None:
    service = Service(
        Script(replies=[Reply(LONG, pace=REAL_TIME, barge_in=Utterance("hm", at=1.0))]),
        audio=audio_settings(detection=NO_INTERRUPT),
    )
    service.say("rooms?")
    service.run(10)
    assert service.response["status"] == "completed"
    error = service.last("error")["error"]  # the answer that the service itself wanted to give
    assert (error["code"], error["event_id"]) == ("conversation_already_has_active_response", None)
    assert service.core.broken == []


def test_the_client_cancels() -> None:
    service = Service(Script(replies=[Reply(LONG, pace=REAL_TIME)]))
    service.say("rooms?")
    service.run(1.0)
    assert types(service.send("response.cancel")) == TAIL
    assert service.response["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    assert types(service.run(10)) == []


def test_the_client_cancels_by_id() -> None:
    service = Service(Script(replies=[Reply(LONG, pace=REAL_TIME)]))
    service.say("rooms?")
    assert error_of(service.send("response.cancel", response_id="resp_other", event_id="c"))["code"] == (
        "response_cancel_not_active"
    )
    assert (
        types(service.send("response.cancel", response_id=service.last("response.created")["response"]["id"])) == TAIL
    )


def test_nothing_was_said_yet() -> None:
    service = Service(Script(replies=[Reply(LONG, starts_after=2.0)]))
    service.say("rooms?")
    assert types(service.send("response.cancel")) == ["response.done"]
    assert service.response["output"] == []
    assert service.response["usage"]["total_tokens"] == 0


@pytest.mark.parametrize("when", ["never", "before", "behind"])
def test_there_is_nothing_to_cancel(when: str) -> None:
    service = Service()
    if when == "behind":
        service.say("hi")
    error = error_of(service.send("response.cancel", event_id="c1"))
    assert (error["code"], error["event_id"]) == ("response_cancel_not_active", "c1")
    assert service.rules == [Rule.NOTHING_TO_CANCEL]


def test_a_cancellation_overtakes_the_response() -> None:
    service = Service(Script(replies=[Reply("Hello.", created_after=0.2)]))
    assert types(service.say("hi")) == ["conversation.item.added", "conversation.item.done"]
    assert error_of(service.send("response.cancel"))["code"] == "response_cancel_not_active"
    assert types(service.run(1))[0] == "response.created"
    assert service.response["status"] == "completed"


def test_speech_ends_a_response_that_is_about_to_come() -> None:
    service = Service(Script(replies=[Reply("Hello.", created_after=2.0)], utterances=[Utterance("x", at=1.0)]))
    service.say("hi")
    events = service.run(1.5)
    assert types(events) == [STARTED, "response.created", "response.done"]
    assert service.response["output"] == []
    service.run(3)
    assert len(service.of_type("response.created")) == 2


def test_what_is_under_way_still_comes() -> None:
    service = Service(
        Script(replies=[Reply(LONG, pace=Pace(token_seconds=0.1, audio_speed=1.0, delta_ms=100), cancel_lag=0.6)])
    )
    service.say("rooms?")
    service.run(1.0)
    assert types(service.send("response.cancel")) == []
    assert types(service.send("response.cancel")) == []  # it is being cancelled
    assert error_of(service.send("response.create"))["code"] == "conversation_already_has_active_response"
    late = service.run(0.5)
    assert len([event for event in late if event.type == "response.output_audio.delta"]) == 5
    assert types(service.run(0.2))[-6:] == TAIL
    assert service.last("response.done").at == pytest.approx(1.6)
    assert service.response["status"] == "cancelled"


def test_it_may_come_to_its_own_end_meanwhile() -> None:
    service = Service(Script(replies=[Reply(Say(["a", "b"]), pace=Pace(token_seconds=1.0), cancel_lag=5.0)]))
    service.say("x")
    service.send("response.cancel")
    service.run(9)
    assert service.response["status"] == "cancelled"
    assert service.response["output"][0]["status"] == "completed"
    assert service.last("response.done").at == 1.0


def test_a_call_is_cut_in_its_arguments() -> None:
    reply = Reply(Call("book", {"city": "Brno", "nights": 2}), pace=Pace(token_seconds=0.5))
    service = Service(Script(replies=[reply, Reply("Then not.")]))
    service.send("response.create")
    service.run(0.6)
    events = service.send("response.cancel")
    assert types(events)[0] == "response.function_call_arguments.done"
    assert service.last("response.function_call_arguments.done")["arguments"] == '{"city":"Brno","'
    assert service.response["output"][0]["status"] == "incomplete"
    service.send("response.create")  # a call that is not complete needs no output
    assert service.response["status"] == "completed"
    assert service.core.broken == []


def test_a_cut_call_of_several_leaves_none_to_answer() -> None:
    reply = Reply([Call("a"), Call("b", '{"x": 1, "y": 2}')], pace=Pace(token_seconds=0.5))
    service = Service(Script(replies=[reply]))
    service.send("response.create")
    service.send("response.cancel")
    assert [item["status"] for item in service.response["output"]] == ["completed", "incomplete"]
    service.send("response.create")
    assert service.core.broken == []


def test_a_silent_response_is_cancelled() -> None:
    service = Service(Script(replies=[Reply("We open at nine. On Sund", mishaps=[Stall()])]))
    service.say("hours?")
    assert types(service.run(60)) == []
    assert types(service.send("response.cancel")) == TAIL


def test_an_incomplete_response_is_no_cancelled_one() -> None:
    service = Service(Script(replies=[Reply("You can mo", ends=Incomplete())]))
    service.say("move it?")
    assert service.response["status"] == "incomplete"
    assert service.response["status_details"] == {"type": "incomplete", "reason": "max_output_tokens"}
    assert service.response["output"][0]["status"] == "incomplete"
