"""A relational agent's conversations, as their timelines show them: what the engine really notes is what the page needs."""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.capsule.timeline import timeline_of
from tests.agents.relational.test_replay import keep


def lane(document: Mapping[str, Any], name: str) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = document["lanes"][name]
    return found


def test_a_planner_that_is_cut() -> None:
    document = timeline_of(keep("whispers, and a planner that is cut"))
    planned, cut = lane(document, "passes")
    assert (planned["text"], planned["outcome"], planned["at"], planned["until"]) == ("1", "planned", 0.3, 0.8)
    assert (cut["outcome"], cut["reason"], cut["at"], cut["until"]) == ("cancelled", "barge-in", 0.8, 1.5)
    (cancelled,) = [each for each in lane(document, "cancels") if each.get("scope") == "legs"]
    assert cancelled["id"] in cut["links"]
    whisper = next(each for each in lane(document, "whispers") if "Ask for the day" in each["text"])
    answer = lane(document, "agent")[1]
    assert (whisper["outcome"], whisper["response"], answer["text"]) == ("used", answer["response"], "For which day?")
    assert {planned["id"], answer["id"]} <= set(whisper["links"])
    told = [each for each in document["told"] if each.get("whisper") == whisper["id"]]
    assert [each["at"] for each in told] == [0.8]
    assert document["told"][0]["what"] == "prompt"
    assert (document["end"]["state"], document["summary"]["bargeIns"]) == ("whole", 1)
    asked = [
        each for each in lane(document, "outside") if each["text"] == "chat planner" and each["until"] > each["at"]
    ]
    assert [(each["outcome"], each.get("reason")) for each in asked] == [("ok", None), ("left", "barge-in")]


def test_a_goodbye() -> None:
    document = timeline_of(keep("a goodbye that planning approves"))
    (whisper,) = [each for each in lane(document, "whispers") if each["kind"] == "whisper"]
    assert (whisper["text"], whisper["outcome"]) == ("Instruction: Thank you, goodbye.", "spoken")
    (tool,) = lane(document, "tools")
    assert (tool["text"], tool["owner"], tool["outcome"]) == ("finish_session", "model", "ok")
    assert tool["id"] in [each.get("tool") for each in document["told"]]
    assert document["end"]["reason"] == "the agent ended the session"


def test_a_client_that_vanishes() -> None:
    document = timeline_of(keep("a client that vanishes while the planner thinks"))
    (planning,) = [each for each in lane(document, "legs") if each["text"] == "planning"]
    assert (planning["outcome"], planning["reason"]) == ("cancelled", "the client is gone")
