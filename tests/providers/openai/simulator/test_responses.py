"""Responses: what is asked for, one at a time or beside, and the ways in which they end and go wrong."""

import pytest

from providers.openai.simulation.checks import Json
from providers.openai.simulation.script import Mishap
from providers.openai.simulator import (
    Asked,
    Call,
    Cancelled,
    Disconnect,
    Drop,
    ErrorEvent,
    Failed,
    Pace,
    RateLimits,
    Reply,
    Rule,
    Say,
    Script,
    Stall,
    Stray,
    Trouble,
    Usage,
)
from tests.providers.openai.simulator.service import Service, error_of, types, user

SLOW = Reply("Long.", pace=Pace(token_seconds=1.0))


# --- one at a time


def test_a_second_response_is_refused_by_the_name_of_its_request() -> None:
    service = Service(Script(replies=[SLOW]))
    service.send("response.create", event_id="r1")
    error = error_of(service.send("response.create", event_id="r2"))
    assert (error["code"], error["event_id"]) == ("conversation_already_has_active_response", "r2")
    assert service.last("response.created")["response"]["id"] in error["message"]
    assert service.rules == [Rule.ONE_RESPONSE]
    service.run(5)
    assert service.send("response.create", event_id="r3")
    assert len(service.of_type("response.done")) == 2


def test_a_response_about_to_come_counts() -> None:
    service = Service(Script(replies=[Reply("x", created_after=1.0)]))
    assert service.send("response.create") == []
    assert error_of(service.send("response.create"))["code"] == "conversation_already_has_active_response"


def test_every_call_is_answered_first() -> None:
    service = Service(Script(replies=[Reply([Call("a", call_id="c1"), Call("b", call_id="c2")]), Reply("Done.")]))
    service.send("response.create")
    for call_id in ("c1", "c2"):
        error = error_of(service.send("response.create"))
        assert call_id in error["message"]
        output = {"type": "function_call_output", "call_id": call_id, "output": "x"}
        service.send("conversation.item.create", item=output)
    service.send("response.create")
    assert service.response["status"] == "completed"
    assert service.rules == [Rule.UNANSWERED_CALL] * 2


def test_a_response_from_input_of_its_own_does_not_wait_for_outputs() -> None:
    service = Service(Script(replies=[Reply(Call("a"))]))
    service.send("response.create")
    service.send("response.create", response={"input": [user("hi")]})
    assert service.core.broken == []


# --- what is asked for


def test_a_response_is_asked_for_in_its_own_way() -> None:
    service = Service(instructions="Be brief.")
    service.send(
        "response.create",
        response={
            "instructions": "Be long.",
            "output_modalities": ["text"],
            "max_output_tokens": 50,
            "metadata": {"topic": "x"},
            "audio": {"output": {"format": {"type": "audio/pcmu"}, "voice": "marin"}},
            "tools": [],
        },
    )
    assert service.response["output_modalities"] == ["text"]
    assert service.response["max_output_tokens"] == 50
    assert service.response["metadata"] == {"topic": "x"}
    assert service.response["audio"]["output"] == {"format": {"type": "audio/pcmu"}, "voice": "marin"}
    service.send("response.create")
    assert service.response["output_modalities"] == ["audio"]
    assert service.response["metadata"] is None


def test_out_of_band_touches_no_conversation() -> None:
    service = Service(Script(replies=[SLOW, Reply("Aside.")]))
    service.send("response.create")
    aside: Json = {"conversation": "none", "metadata": {"topic": "aside"}, "output_modalities": ["text"], "input": []}
    events = service.send("response.create", response=aside)
    assert not [event for event in events if event.type.startswith("conversation.")]
    response = service.response
    assert (response["conversation_id"], response["metadata"]) == (None, {"topic": "aside"})
    assert response["status"] == "completed"
    service.run(5)
    assert service.response["conversation_id"] == service.core.conversation.id
    assert len(service.core.conversation.items) == 1
    assert service.core.broken == []


def test_out_of_band_is_cancelled_by_id() -> None:
    service = Service(Script(replies=[SLOW, SLOW]))
    service.send("response.create")
    service.send("response.create", response={"conversation": "none"})
    aside = service.last("response.created")["response"]["id"]
    service.send("response.cancel", response_id=aside)
    assert service.response["id"] == aside
    service.send("response.cancel")
    assert len(service.of_type("response.done")) == 2
    assert service.core.broken == []


def test_input_may_refer_to_items() -> None:
    service = Service()
    service.send("conversation.item.create", item=user("the first", id="one"))
    service.send("conversation.item.create", item=user("the second"))
    service.send("response.create", response={"input": [{"type": "item_reference", "id": "one"}]})
    assert service.response["output"][0]["content"][0]["transcript"] == "You said: the first"
    error = error_of(
        service.send("response.create", response={"input": [user("x"), {"type": "item_reference", "id": "gone"}]})
    )
    assert error["param"] == "response.input[1].id"
    assert service.rules == [Rule.UNKNOWN_ITEM]


def test_the_model_is_asked() -> None:
    asked: list[Asked] = []

    def answer(question: Asked) -> Reply:
        asked.append(question)
        return Reply(Call("x", call_id="c")) if question.number == 0 else Reply("Fine.")

    service = Service(Script(answer=answer), instructions="Be kind.")
    service.say("hello")
    output = {"type": "function_call_output", "call_id": "c", "output": "42"}
    service.send("conversation.item.create", item=output)
    service.send("response.create", response={"metadata": {"a": "b"}})
    assert [(one.text, one.is_tool_output) for one in asked] == [("hello", False), ("42", True)]
    assert asked[0].session["instructions"] == "Be kind."
    assert asked[1].overrides == {"metadata": {"a": "b"}}
    assert [item["type"] for item in asked[1].items] == ["message", "function_call", "function_call_output"]


def test_the_echo_greets_and_repeats_tools() -> None:
    service = Service(Script(replies=[Reply(Call("x", call_id="c"))]))
    service.send("response.create")
    output = {"type": "function_call_output", "call_id": "c", "output": "42"}
    service.send("conversation.item.create", item=output)
    service.send("response.create")
    assert service.response["output"][0]["content"][0]["transcript"] == "The tool says: 42"
    greeting = Service()
    greeting.send("response.create")
    assert greeting.response["output"][0]["content"][0]["transcript"] == "Hello."


# --- the pace


def test_words_and_audio_come_at_their_pace() -> None:
    pace = Pace(token_seconds=0.3, audio_after=0.1, audio_speed=2.0, delta_ms=100)
    service = Service(
        Script(replies=[Reply(Say("One two three", audio_ms=450), pace=pace, created_after=1, starts_after=0.5)])
    )
    service.send("response.create")
    service.run(9)
    assert service.last("response.created").at == 1.0
    assert service.last("response.output_item.added").at == 1.5
    words = service.of_type("response.output_audio_transcript.delta")
    assert [event.at for event in words] == pytest.approx([1.5, 1.8, 2.1])
    audio = service.of_type("response.output_audio.delta")
    assert [event.at for event in audio] == pytest.approx([1.6, 1.65, 1.7, 1.75, 1.8])
    assert [len(event["delta"]) * 3 // 4 // 48 for event in audio] == [100, 100, 100, 100, 50]
    assert service.last("response.done").at == pytest.approx(2.1)


def test_at_the_same_time_words_go_first() -> None:
    service = Service(Script(replies=[Reply("One two", pace=Pace(token_seconds=0.2, audio_speed=1.0, delta_ms=200))]))
    service.send("response.create")
    service.run(5)
    deltas = [event.type.split(".")[1] for event in service.events if event.type.endswith(".delta")]
    assert deltas == [
        "output_audio_transcript",
        "output_audio",
        "output_audio_transcript",
        "output_audio",
        "output_audio",
    ]


def test_pieces_may_be_given() -> None:
    service = Service(Script(replies=[Reply(Say([" is the", " blue room"], audio_ms=0))]))
    service.send("response.create")
    assert [e["delta"] for e in service.of_type("response.output_audio_transcript.delta")] == [" is the", " blue room"]
    assert service.of_type("response.output_audio.delta") == []


@pytest.mark.parametrize("text", ["", "One.", " One,  two\n", "žluťoučký kůň", "a-b c'd 3.14", "\n"])
def test_no_text_is_lost_in_pieces(text: str) -> None:
    assert "".join(Say(text).pieces) == text


@pytest.mark.parametrize("arguments", ["", "null", '{"city": "Brno', "[1, 2]", '{"nights": NaN}'])
def test_arguments_may_be_any_text(arguments: str) -> None:
    service = Service(Script(replies=[Reply(Call("book", arguments))]))
    service.send("response.create")
    assert service.last("response.function_call_arguments.done")["arguments"] == arguments
    assert service.response["output"][0]["arguments"] == arguments


# --- endings and usage


@pytest.mark.parametrize(
    ("ending", "status", "details"),
    [
        (
            Failed("inference_rate_limit_exceeded", "Slow down."),
            "failed",
            {
                "type": "failed",
                "error": {"type": "server_error", "code": "inference_rate_limit_exceeded", "message": "Slow down."},
            },
        ),
        (Cancelled(), "cancelled", {"type": "cancelled", "reason": "turn_detected"}),
    ],
)
def test_a_response_ends_as_the_script_says(ending: Failed | Cancelled, status: str, details: Json) -> None:
    service = Service(Script(replies=[Reply(ends=ending), Reply(["One.", "Two."], ends=ending)]))
    assert types(service.send("response.create")) == ["response.created", "response.done"]
    assert (service.response["status"], service.response["status_details"]) == (status, details)
    service.send("response.create")
    assert [item["status"] for item in service.response["output"]] == ["completed", "incomplete"]


def test_usage_is_what_the_script_says() -> None:
    usages = [Usage(100, 50, cached=40), Usage(80, 10, input_audio=30, output_audio=5, cached=8, cached_audio=3), None]
    service = Service(Script(replies=[Reply("x", usage=usage) for usage in usages]))
    seen: list[Json] = []
    for _ in usages:
        service.send("response.create")
        seen.append(service.response["usage"])
    assert seen[0]["total_tokens"] == 150
    assert seen[0]["input_token_details"]["cached_tokens"] == 40
    assert seen[1]["input_token_details"] == {
        "text_tokens": 50,
        "audio_tokens": 30,
        "image_tokens": 0,
        "cached_tokens": 8,
        "cached_tokens_details": {"text_tokens": 5, "audio_tokens": 3, "image_tokens": 0},
    }
    assert seen[1]["output_token_details"] == {"text_tokens": 5, "audio_tokens": 5}
    assert seen[2] is None


def test_a_cancelled_response_may_have_usage() -> None:
    service = Service(Script(replies=[Reply("x", usage=Usage(80, 10), starts_after=1.0)]))
    service.send("response.create")
    service.send("response.cancel")
    assert service.response["usage"]["total_tokens"] == 90


def test_rate_limits_may_be_said_or_left_out() -> None:
    service = Service(Script(replies=[Reply("x", rate_limits=RateLimits(5, 10, 2.5)), Reply("y", rate_limits=None)]))
    service.send("response.create")
    assert service.last("rate_limits.updated")["rate_limits"] == [
        {"name": "tokens", "limit": 10, "remaining": 5, "reset_seconds": 2.5}
    ]
    assert types(service.send("response.create"), without=())[-1] == "response.done"


# --- mishaps


def test_a_response_goes_silent_and_comes_back() -> None:
    reply = Reply("We open at nine. On Sund", mishaps=[Stall(24.7)], pace=Pace(token_seconds=0.05))
    service = Service(Script(replies=[reply]))
    service.say("hours?")
    service.run(20)
    assert types(service.events)[-1] == "response.output_audio_transcript.delta"
    service.run(10)
    assert service.last("response.done").at == pytest.approx(24.7 + 6 * 0.05)
    assert service.response["status"] == "completed"


def test_a_response_goes_silent_in_its_middle() -> None:
    reply = Reply("One two three", mishaps=[Stall(10.0, at=1.5)], pace=Pace(token_seconds=1.0))
    service = Service(Script(replies=[reply]), output_modalities=["text"])
    service.say("x")
    service.run(20)
    assert [event.at for event in service.of_type("response.output_text.delta")] == pytest.approx([0, 1, 12])


def test_an_empty_response_goes_silent() -> None:
    service = Service(Script(replies=[Reply(mishaps=[Stall()])]))
    service.say("x")
    assert types(service.run(60)) == []
    assert types(service.events)[-1] == "response.created"


def test_errors_and_stray_events_in_the_middle() -> None:
    late: Json = {
        "type": "response.output_text.delta",
        "response_id": "resp_old",
        "item_id": "item_old",
        "output_index": 0,
        "content_index": 0,
        "delta": "late",
    }
    mishaps: list[Mishap] = [ErrorEvent(Trouble("server_overload", "Busy."), at=0.5), Stray(late, at=0.6)]
    service = Service(Script(replies=[Reply("One two", mishaps=mishaps, pace=Pace(token_seconds=1.0))]))
    service.order.strays.add("resp_old")
    service.say("x")
    service.run(5)
    assert service.last("error").at == 0.5
    assert service.last("error")["error"]["code"] == "server_overload"
    assert service.of_type("response.output_text.delta")[0]["event_id"].startswith("event_")
    assert service.response["status"] == "completed"


@pytest.mark.parametrize("how", list(Drop))
def test_the_connection_is_lost_in_the_middle(how: Drop) -> None:
    mishap = Disconnect(how, at=0.5, code=1011, reason="gone")
    service = Service(Script(replies=[Reply("One two", mishaps=[mishap], pace=Pace(token_seconds=1.0))]))
    service.say("x")
    service.run(5)
    assert service.closing is not None
    assert (service.closing.at, service.closing.how) == (0.5, how)
    assert len(service.of_type("response.output_audio_transcript.delta")) == 1
    assert service.send("response.cancel") == []
    assert service.core.next_at() is None


def test_things_happen_by_themselves() -> None:
    service = Service(Script(happens=[ErrorEvent(at=1.0), Disconnect(Drop.CLOSE, at=2.0, code=1000)]))
    service.run(5)
    assert service.last("error").at == 1.0
    assert service.closing is not None
    assert (service.closing.at, service.closing.code) == (2.0, 1000)


def test_a_test_makes_things_happen() -> None:
    service = Service(Script(replies=[SLOW]))
    service.say("x")
    service.core.happen(Stall(), 0.5)
    service.run(5)
    assert service.of_type("response.done") == []
    service.core.happen(Stall())  # nothing more to silence
    quiet = Service()
    quiet.core.happen(Stall())  # nothing under way
    assert quiet.say("x")


# --- the end of a session


def test_a_session_ends_after_an_hour() -> None:
    service = Service()
    events = service.run(3600)
    assert error_of(events)["code"] == "session_expired"
    assert service.closing is not None
    assert (service.closing.at, service.closing.code) == (3600, 1001)
    assert service.closing.reason == "Your session hit the maximum duration of 60 minutes."


def test_a_session_may_end_without_a_word() -> None:
    service = Service(Script(session_seconds=90, says_expired=False))
    assert service.run(100) == []
    assert service.closing is not None
    assert service.closing.reason == "Your session hit the maximum duration of 1.5 minutes."


def test_an_admission_error_comes_in_place_of_the_session() -> None:
    service = Service(
        Script(admission_error=Trouble("insufficient_quota", "Pay.", "insufficient_quota")), updates=False
    )
    assert error_of(service.events)["code"] == "insufficient_quota"
    assert service.closing is not None
    assert (service.closing.code, service.closing.reason) == (4000, "insufficient_quota.insufficient_quota")


def test_output_buffers_are_for_calls() -> None:
    service = Service()
    assert error_of(service.send("output_audio_buffer.clear"))["type"] == "invalid_request_error"
    assert service.rules == [Rule.UNSUPPORTED]
