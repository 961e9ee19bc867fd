"""The page's rules without the page: messages and times in, what a person would see out."""

import json
from typing import Any

import pytest

from tests.browser.devtools import Page

pytestmark = pytest.mark.browser

JsonObject = dict[str, Any]
Event = tuple[float, JsonObject]

TELL = """
(async () => {
  const { Conversation } = await import("/conversation.js");
  const { timings } = await import("/turn.js");
  const { events, limit } = ARGUMENTS;
  const conversation = new Conversation({ ref: "barista", name: "Barista" }, limit);
  const effects = [];
  const frames = [];
  for (const [now, event] of events) {
    if (event.kind === "frame") frames.push(conversation.audioFor(event.bytes)?.responseId ?? null);
    else effects.push(...conversation.apply(event, now));
  }
  const { phase, floor, turns, dropped, notices, pendingTyped, evaluations, interruptible, lastFatal } = conversation;
  const seen = turns.map((turn) => ({ ...turn, timings: timings(turn) }));
  return { phase, floor, turns: seen, dropped, notices, pendingTyped, evaluations, interruptible, lastFatal, effects, frames };
})()
"""


async def tell(rules: Page, *events: Event, limit: int = 200) -> JsonObject:
    """The state after the events, with the effects and where the binary frames went."""
    arguments = json.dumps({"events": events, "limit": limit})
    state: JsonObject = await rules.evaluate(TELL.replace("ARGUMENTS", arguments))
    return state


def message(now: float, kind: str, /, **fields: Any) -> Event:
    return now, {"kind": "message", "message": {"type": kind, **fields}}


def command(now: float, name: str, /, **parameters: Any) -> Event:
    return message(now, "command", name=name, parameters=parameters)


def transcript(now: float, turn: str, text: str, **flags: bool) -> Event:
    return message(now, "transcript", text=text, turnId=turn, provider="Local", **flags)


def interim(now: float, turn: str, **flags: bool) -> Event:
    return transcript(now, turn, ".", isInterim=True, **flags)


def word(now: float, turn: str, response: str, text: str) -> Event:
    return message(now, "token", text=text, turnId=turn, responseId=response)


def sentence(now: float, turn: str, response: str, text: str) -> Event:
    return message(now, "text", text=text, turnId=turn, responseId=response)


def speech_start(now: float, turn: str, response: str) -> Event:
    return message(now, "speech-start", encoding="pcm16", sampleRate=24000, turnId=turn, responseId=response)


def played(now: float, state: str, response: str, ms: float) -> Event:
    return now, {"kind": "player", "state": state, "responseId": response, "playedMs": ms}


READY = command(0, "ready", sessionId="s1", warnings=[])
FRAME: Event = (0, {"kind": "frame", "bytes": 960})


async def test_a_turn_with_its_timings(rules: Page) -> None:
    state = await tell(
        rules,
        READY,
        interim(1000, "t1"),
        message(1500, "partial", text="two", turnId="t1"),
        message(2000, "emotion", state="userNotSpeaking", turnId="t1"),
        message(2010, "partial", text="two coffees", turnId="t1"),
        transcript(2180, "t1", "Two coffees."),
        word(2400, "t1", "r1", "Gladly"),
        sentence(2450, "t1", "r1", "Gladly."),
        played(2600, "start", "r1", 0),
    )
    (turn,) = state["turns"]
    assert turn["user"]["text"] == "Two coffees."
    assert turn["lines"][0]["sentences"] == ["Gladly."]
    assert turn["timings"] == [
        {"what": "understood", "ms": 180},
        {"what": "first word", "ms": 400},
        {"what": "first sound", "ms": 600},
    ]
    assert [effect["text"] for effect in state["effects"] if effect["kind"] == "announce"] == [
        "You: Two coffees.",
        "Barista: Gladly.",
    ]


async def test_without_a_sign_speech_ends_with_the_last_partial(rules: Page) -> None:
    state = await tell(
        rules,
        READY,
        interim(0, "t1"),
        message(300, "partial", text="hi", turnId="t1"),
        transcript(500, "t1", "Hi."),
    )
    assert state["turns"][0]["timings"] == [{"what": "understood", "ms": 200}]
    assert state["floor"] == "thinking"


async def test_the_opening_is_asked_for_and_not_shown_as_words(rules: Page) -> None:
    state = await tell(
        rules,
        READY,
        (100, {"kind": "asked"}),
        transcript(150, "t1", "#intro", isSynthetic=True),
        word(400, "t1", "r1", "Good"),
    )
    (turn,) = state["turns"]
    assert turn["user"]["text"] == ""
    assert turn["timings"] == [{"what": "first word", "ms": 300}]


async def test_an_interruption_cuts_the_answer_and_whatever_comes_late(rules: Page) -> None:
    state = await tell(
        rules,
        READY,
        transcript(0, "t1", "Tell me everything."),
        word(100, "t1", "r1", "It began"),
        speech_start(110, "t1", "r1"),
        FRAME,
        played(120, "start", "r1", 0),
        played(1120, "progress", "r1", 1000),
        interim(1200, "t2"),
        FRAME,  # late, of the run that was open
        word(1201, "t1", "r1", " long ago"),
        sentence(1202, "t1", "r1", "It began long ago."),
        speech_start(1203, "t1", "r1"),
        FRAME,  # late, in a run of its own
        speech_start(1204, "t1", "r9"),
        FRAME,  # another response of the turn that is over
        command(1205, "response-end", turnId="t1", responseId="r1", status="cancelled"),
        command(1206, "exit", turnId="t1", saved=True),
        played(1207, "cut", "r1", 1080),
        transcript(1500, "t2", "Shorter, please."),
        speech_start(1600, "t2", "r2"),
        FRAME,
    )
    assert state["frames"] == ["r1", None, None, None, "r2"]
    first, second = state["turns"]
    (answer,) = first["lines"]
    assert (answer["cut"], answer["sentences"], answer["tail"], answer["heardMs"]) == (True, [], "It began", 1080)
    assert second["user"]["text"] == "Shorter, please."
    assert [effect["kind"] for effect in state["effects"]].count("silence") == 1


async def test_an_answer_heard_to_its_end_is_not_interrupted(rules: Page) -> None:
    state = await tell(
        rules,
        READY,
        sentence(0, "t1", "r1", "Good evening."),
        speech_start(0, "t1", "r1"),
        FRAME,
        message(10, "speech-end", cancelled=False, turnId="t1", responseId="r1"),
        command(11, "response-end", turnId="t1", responseId="r1", status="completed"),
        played(20, "start", "r1", 0),
        played(900, "end", "r1", 880),
        interim(2000, "t2"),
    )
    assert state["turns"][0]["lines"][0]["cut"] is False
    assert {"kind": "complete", "responseId": "r1"} in state["effects"]
    assert state["floor"] == "user"


async def test_a_complete_answer_that_was_not_heard_yet_is_interrupted(rules: Page) -> None:
    state = await tell(
        rules,
        READY,
        sentence(0, "t1", "r1", "Good evening."),
        speech_start(0, "t1", "r1"),
        FRAME,
        command(11, "response-end", turnId="t1", responseId="r1", status="completed"),
        command(12, "exit", turnId="t1", saved=True),
        interim(200, "t2", isSynthetic=True),
    )
    assert state["turns"][0]["lines"][0]["cut"] is True


async def test_an_asynchronous_interim_interrupts_nobody(rules: Page) -> None:
    state = await tell(rules, READY, sentence(0, "t1", "r1", "Well,"), interim(100, "t1", isAsynchronous=True))
    assert state["effects"] == [
        {"kind": "ready", "parameters": {"sessionId": "s1", "warnings": []}},
        {"kind": "announce", "text": "Barista: Well,"},
    ]


async def test_a_conversation_without_turns_still_alternates(rules: Page) -> None:
    state = await tell(
        rules,
        READY,
        transcript(0, "t0", "#intro", isSynthetic=True),
        sentence(100, "t0", "r0", "Hello."),
        transcript(2000, "t0", "Hello to you.", isAsynchronous=True),
        sentence(2500, "t0", "r0", "How are you?"),
        transcript(4000, "t0", "Fine.", isAsynchronous=True),
        transcript(4100, "t0", "And you?", isAsynchronous=True),
    )
    assert [(turn["user"]["text"], [line["sentences"] for line in turn["lines"]]) for turn in state["turns"]] == [
        ("", [["Hello."]]),
        ("Hello to you.", [["How are you?"]]),
        ("Fine. And you?", []),
    ]


async def test_silenced_by_hand_an_agent_without_turns_may_speak_again(rules: Page) -> None:
    state = await tell(
        rules,
        READY,
        transcript(0, "t0", "#intro", isSynthetic=True),
        speech_start(0, "t0", "r0"),
        FRAME,
        (10, {"kind": "interrupt"}),
        speech_start(20, "t0", "r0"),
        FRAME,
        transcript(2000, "t0", "Go on.", isAsynchronous=True),
        speech_start(2500, "t0", "r0"),
        FRAME,
    )
    assert state["frames"] == ["r0", None, "r0"]


async def test_a_cough_leaves_no_trace(rules: Page) -> None:
    cough = (READY, interim(0, "t1"))
    waiting = await tell(rules, *cough, (14000, {"kind": "tick"}))
    assert (waiting["floor"], len(waiting["turns"])) == ("user", 1)
    over = await tell(rules, *cough, (15000, {"kind": "tick"}))
    assert (over["floor"], over["turns"]) == ("open", [])
    late = await tell(rules, *cough, (15000, {"kind": "tick"}), transcript(16000, "t1", "Excuse me."))
    assert late["turns"][0]["user"]["text"] == "Excuse me."


async def test_only_the_newest_turns_are_kept(rules: Page) -> None:
    turns = [transcript(i, f"t{i}", f"line {i}") for i in range(10)]
    state = await tell(rules, READY, *turns, sentence(99, "t0", "r0", "too late"), limit=4)
    assert [turn["user"]["text"] for turn in state["turns"]] == ["line 6", "line 7", "line 8", "line 9"]
    assert state["dropped"] == 6


async def test_tools_whispers_cards_and_errors_stand_where_they_belong(rules: Page) -> None:
    state = await tell(
        rules,
        READY,
        transcript(0, "t1", "Coffee."),
        command(10, "tool-start", callId="c1", name="menu", owner="model", turnId="t1"),
        command(250, "tool-success", callId="c1", name="menu", owner="model", turnId="t1"),
        command(20, "tool-start", callId="c2", name="web", owner="planner", turnId="t1"),
        command(40, "tool-error", callId="c2", name="web", owner="planner", error="no answer", turnId="t1"),
        command(50, "realtime-planning", text="Be brief.", turnId="t1"),
        command(51, "realtime-planning", text="They are in a hurry.", turnId="t1"),
        command(52, "realtime-instruction", instructionType="INSTRUCTION", text="Offer cake.", turnId="t1"),
        message(60, "multimodal", kind="card", name="cake", data={"price": 72}, turnId="t1"),
        message(70, "error", code="synthesis_failed", message="", recoverable=True, whose="provider"),
        command(80, "exit", turnId="t1", saved=False),
        message(90, "error", code="internal", message="", recoverable=False, whose="server"),
    )
    (turn,) = state["turns"]
    assert [(line["kind"], line.get("state"), line.get("tookMs")) for line in turn["lines"]] == [
        ("tool", "done", 240),
        ("card", None, None),
        ("error", None, None),
    ]
    assert [(line["kind"], line.get("type"), line.get("text", line.get("error"))) for line in turn["whispers"]] == [
        ("tool", None, "no answer"),
        ("whisper", "PLANNING", "Be brief. They are in a hurry."),
        ("whisper", "INSTRUCTION", "Offer cake."),
    ]
    assert turn["saved"] is False
    assert state["notices"][0]["error"]["code"] == "internal"
    assert state["lastFatal"]["code"] == "internal"


def whisper(now: float, turn: str, name: str, kind: str = "SUPPORTING_CONTEXT") -> Event:
    told = {"instructionId": name, "passId": f"{turn}/1", "instructionType": kind, "text": f"About {name}."}
    return command(now, "realtime-instruction", turnId=turn, **told)


def became(now: float, turn: str, name: str, outcome: str, response: str = "") -> Event:
    told = {"instructionId": name, "outcome": outcome, "responseId": response}
    return command(now, "realtime-instruction-outcome", turnId=turn, **told)


def planning(now: float, turn: str, number: int, state: str) -> Event:
    return command(now, "planning-pass", turnId=turn, passId=f"{turn}/{number}", state=state)


def fates(turn: JsonObject) -> list[tuple[str | None, int | None, float | None, str | None, int | None]]:
    return [(w["id"], w["pass"], w["afterMs"], w["outcome"], w["answeredIn"]) for w in turn["whispers"]]


def steered_by(turn: JsonObject) -> list[str]:
    return [each["id"] for each in turn["steeredBy"]]


async def test_whispers_stand_beside_the_answer_they_steered(rules: Page) -> None:
    first: list[Event] = [
        READY,
        transcript(1000, "t1", "Hello."),
        sentence(1100, "t1", "r1", "Good evening."),
        planning(1200, "t1", 1, "began"),
        whisper(3300, "t1", "nuts"),
        whisper(3400, "t1", "cake", "INSTRUCTION"),
        became(3500, "t1", "cake", "spoken", "r2"),
        planning(4200, "t1", 1, "planned"),
        planning(4200, "t1", 2, "began"),
    ]
    (turn,) = (await tell(rules, *first))["turns"]
    assert fates(turn) == [("nuts", 1, 2300, "pending", None), ("cake", 1, 2400, "spoken", 0)]
    assert [(each["state"], each["tookMs"]) for each in turn["passes"]] == [("planned", 3000), ("running", None)]
    second: list[Event] = [
        interim(5000, "t2"),
        command(5001, "exit", turnId="t1", saved=True),
        transcript(5500, "t2", "And cake?"),
        became(5600, "t2", "nuts", "used", "r3"),
        sentence(5601, "t2", "r3", "We have."),
    ]
    one, two = (await tell(rules, *first, *second))["turns"]
    assert fates(one)[0] == ("nuts", 1, 2300, "used", 1)
    assert [each["state"] for each in one["passes"]] == ["planned", "stopped"]
    assert (steered_by(one), steered_by(two)) == ([], ["nuts"])
    third: list[Event] = [
        interim(5700, "t3"),
        became(5701, "t2", "nuts", "pending"),  # not a word of that answer was heard
        command(5702, "exit", turnId="t2", saved=True),
        transcript(6000, "t3", "Well?"),
        became(6100, "t3", "nuts", "used", "r4"),
        sentence(6101, "t3", "r4", "Apple cake."),
    ]
    one, two, three = (await tell(rules, *first, *second, *third))["turns"]
    assert fates(one)[0] == ("nuts", 1, 2300, "used", 2)
    assert (steered_by(two), steered_by(three)) == ([], ["nuts"])


@pytest.mark.parametrize(
    "end", [(5000, {"kind": "lost", "attempt": 1, "attempts": 5, "delayMs": 500}), (5000, {"kind": "ended"})]
)
async def test_what_waits_for_an_answer_at_the_end_waited_in_vain(rules: Page, end: Event) -> None:
    state = await tell(
        rules,
        READY,
        transcript(1000, "t1", "Hello."),
        sentence(1100, "t1", "r1", "Good evening."),
        planning(1200, "t1", 1, "began"),
        whisper(1300, "t1", "nuts"),
        end,
    )
    (turn,) = state["turns"]
    assert fates(turn) == [("nuts", 1, 300, "unused", None)]
    assert [each["state"] for each in turn["passes"]] == ["stopped"]


async def test_outcomes_of_whispers_that_are_not_there(rules: Page) -> None:
    """Their turn has left; or it is a server that tells no ids, or nothing of what became of them."""
    state = await tell(
        rules,
        READY,
        transcript(1000, "t1", "Hello."),
        command(1100, "realtime-instruction", instructionType="INSTRUCTION", text="Be kind.", turnId="t1"),
        became(1200, "t1", "gone", "used"),
        command(1300, "realtime-instruction-outcome", turnId="t1", outcome="used"),
    )
    (turn,) = state["turns"]
    assert fates(turn) == [(None, None, None, None, None)]
    assert turn["steeredBy"] == []


async def test_typed_lines_wait_for_their_echo(rules: Page) -> None:
    typed: Event = (100, {"kind": "typed", "text": "two coffees"})
    waiting = await tell(rules, READY, typed)
    assert (waiting["floor"], [line["text"] for line in waiting["pendingTyped"]]) == ("thinking", ["two coffees"])
    echoed = await tell(
        rules,
        READY,
        typed,
        interim(110, "t1", isSynthetic=True),
        message(120, "transcript", text="two coffees", provider="Client", turnId="t1"),
        word(300, "t1", "r1", "Gladly"),
    )
    assert echoed["pendingTyped"] == []
    assert echoed["turns"][0]["timings"] == [{"what": "first word", "ms": 200}]
    lost = await tell(rules, READY, typed, (200, {"kind": "lost", "attempt": 1, "attempts": 5, "delayMs": 500}))
    assert (lost["floor"], lost["pendingTyped"][0]["lost"]) == ("lost", True)


async def test_an_interruption_by_hand_silences_the_response_but_not_the_next(rules: Page) -> None:
    state = await tell(
        rules,
        READY,
        speech_start(0, "t1", "r1"),
        FRAME,
        (10, {"kind": "interrupt"}),
        FRAME,
        sentence(20, "t1", "r1", "unheard"),
        speech_start(30, "t1", "r2"),
        FRAME,
        (40, {"kind": "interrupt"}),
        (41, {"kind": "interrupt"}),  # nothing is left to cut
    )
    assert state["frames"] == ["r1", None, "r2"]
    assert [effect["kind"] for effect in state["effects"]].count("silence") == 2
    assert state["interruptible"] is False


@pytest.mark.parametrize(
    ("status", "tokens", "sentences", "shown"),
    [
        ("completed", "Yes. And", ["Yes."], ["Yes."]),  # the rest of the preview was taken out on its way
        ("completed", "Yes", [], ["Yes"]),
        ("incomplete", "Yes. And then", ["Yes."], ["Yes.", "And then"]),
        ("failed", "", [], []),
    ],
)
async def test_how_an_answer_ends(
    rules: Page, status: str, tokens: str, sentences: list[str], shown: list[str]
) -> None:
    state = await tell(
        rules,
        READY,
        *([word(0, "t1", "r1", tokens)] if tokens else []),
        *(sentence(1, "t1", "r1", text) for text in sentences),
        command(2, "response-end", turnId="t1", responseId="r1", status=status),
    )
    (line,) = state["turns"][0]["lines"]
    assert (line["sentences"], line["tail"], line["status"]) == (shown, "", status)


async def test_small_rules_about_text(rules: Page) -> None:
    rests = await rules.evaluate(
        """(async () => {
          const { consume, joinPieces } = await import("/text.js");
          return [
            consume("Two coffees. And", "Two coffees."),
            consume(" Two  coffees.And", "Two coffees."),
            consume("See https://x.example/a now. Then", "See now."),
            consume("something else", "Two coffees."),
            consume("今日は。明日", "今日は。"),
            joinPieces("One.", "Two."), joinPieces("plan", "ning"), joinPieces("One. ", "Two"), joinPieces("今日は。", "明日"),
          ];
        })()"""
    )
    assert rests == [" And", "And", " Then", "", "明日", "One. Two.", "planning", "One. Two", "今日は。明日"]


async def test_words_are_divided_as_their_sound_was(rules: Page) -> None:
    divided = await rules.evaluate(
        """(async () => {
          const { divideByHearing } = await import("/turn.js");
          const half = { receivedMs: 4000, heardMs: 2000 };
          return [
            divideByHearing("One two three four.", half),
            divideByHearing("One two three", half),
            divideByHearing("One two", { receivedMs: 4000, heardMs: 0 }),
            divideByHearing("One two", { receivedMs: 4000, heardMs: 4100 }),
            divideByHearing("One two", { receivedMs: 0, heardMs: 0 }),
            divideByHearing("", half),
          ];
        })()"""
    )
    assert divided == [
        ["One two ", "three four."],
        ["One ", "two three"],
        ["", "One two"],
        ["One two", ""],
        ["One two", ""],
        ["", ""],
    ]


async def test_every_error_of_the_protocol_has_plain_words(rules: Page) -> None:
    from engine.errors import ErrorCode

    explained = await rules.evaluate(
        """(async () => {
          const { ERROR_CODES, explainError } = await import("/words.js");
          return ERROR_CODES.map((code) => explainError({ code, message: "The provider's own words." }));
        })()"""
    )
    assert {error["code"] for error in explained} == {code.value for code in ErrorCode}
    for error in explained:
        assert error["what"].endswith(".")
        assert error["advice"].endswith(".")
        assert error["detail"] == "The provider's own words."
        assert "_" not in error["what"] + error["advice"]


async def test_the_end_is_explained_by_what_weighs_most(rules: Page) -> None:
    ends = await rules.evaluate(
        """(async () => {
          const { explainEnd } = await import("/words.js");
          const lost = { code: 1006, everOpen: true };
          return [
            explainEnd({ byUser: true, closed: lost }),
            explainEnd({ error: { code: "taken_over" }, closed: { code: 1008, everOpen: true } }),
            explainEnd({ end: { reason: "the agent ended the session" }, agent: "Barista" }),
            explainEnd({ end: { reason: "the weather changed" } }),
            explainEnd({ closed: { code: 1006, everOpen: false } }),
            explainEnd({ closed: lost }),
            explainEnd({ closed: { code: 1011, everOpen: true } }),
          ].map(({ what, advice, again }) => [what, advice, again]);
        })()"""
    )
    assert ends == [
        ["You ended the conversation.", "", "new"],
        [
            "This conversation was opened somewhere else, so it continues there.",
            "Close the other window if you want to talk here.",
            "new",
        ],
        ["Barista ended the conversation.", "", "new"],
        ["The conversation is over.", "The weather changed.", "new"],
        [
            "The server did not accept the conversation.",
            "It may be full, restarting, or want you to sign in. Try again in a moment.",
            "new",
        ],
        [
            "The connection was lost, and could not be restored.",
            "Check your network, then pick up where you left off.",
            "resume",
        ],
        ["Something broke on the server.", "Start a new conversation; what was said is kept.", "new"],
    ]
