"""Law 3: commands are kept in order whatever is cut; speech and everything else is bounded."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.elements import (
    OutCommand,
    OutError,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    SpeechCut,
)
from engine.errors import ErrorCode, RemoteError, Whose
from engine.protocol.hearing import Hearing
from engine.protocol.outbox import Outbox, OutboxFullError, speech_ms

RATE = 24000


def speech(ms: int, response_id: str = "r1", *, is_last: bool = False) -> OutSpeech:
    return OutSpeech(b"\1\0" * (RATE * ms // 1000), RATE, "t1", response_id, is_last=is_last)


def text(words: str, response_id: str = "r1") -> OutText:
    return OutText(words, "t1", response_id)


def response_end(response_id: str = "r1", status: str = "completed") -> OutCommand:
    return OutCommand("response-end", {"responseId": response_id, "status": status}, "t1")


def outbox(max_speech_ms: float = 10_000, max_elements: int = 100, *, text_only: bool = False) -> Outbox:
    return Outbox(Hearing(text_only), max_speech_ms, max_elements)


def take_all(box: Outbox, now: float = 0.0) -> list[OutputElement]:
    taken: list[OutputElement] = []
    while (element := box.take(now)) is not None:
        taken.append(element)
    return taken


def test_what_goes_in_comes_out_in_order() -> None:
    box = outbox()
    elements: list[OutputElement] = [
        *(OutToken("One", "t1", "r1"), speech(100), text("One.")),
        *(speech(0, is_last=True), response_end()),
    ]
    assert all(box.put(element) for element in elements)
    assert (len(box), box.unsent_speech_ms) == (5, 100)
    assert take_all(box) == elements
    assert (len(box), box.unsent_speech_ms) == (0, 0)


def test_the_hearing_learns_what_was_queued_and_sent() -> None:
    box = outbox()
    for element in (text("One two."), speech(1000)):
        box.put(element)
    assert box.hearing.queued_ms("r1") == 1000
    assert box.hearing.heard_ms("r1", 5.0) == 0
    take_all(box, 1.0)
    assert box.hearing.heard_ms("r1", 1.5) == 500
    assert box.hearing.heard_text("r1", 1.5) == "One"


def test_a_cut_takes_back_the_speech_and_words_of_one_response() -> None:
    box = outbox()
    kept: list[OutputElement] = [
        OutCommand("tool-start", {"callId": "c1"}, "t1"),
        speech(100, "r2"),
        text("Two.", "r2"),
        response_end("r2"),
    ]
    for element in (speech(100), kept[0], OutToken("One", "t1", "r1"), text("One."), kept[1], speech(50), *kept[2:]):
        box.put(element)
    assert box.cut_response("r1", "t1") == 150
    assert take_all(box) == [SpeechCut("t1", "r1"), *kept]
    assert box.unsent_speech_ms == 0
    assert box.hearing.queued_ms("r1") == 0


def test_a_cut_of_what_was_sent_stands_at_the_end() -> None:
    box = outbox()
    box.put(speech(100))
    assert box.take(0.0) == speech(100)
    box.put(OutCommand("tool-start", {}, "t1"))
    assert box.cut_response("r1", "t1") == 0
    assert take_all(box) == [OutCommand("tool-start", {}, "t1"), SpeechCut("t1", "r1")]


@pytest.mark.parametrize("waiting", [speech(100), text("One."), OutToken("One", "t1", "r1")])
def test_an_end_that_the_client_will_not_hear_becomes_a_cancelled_one(waiting: OutputElement) -> None:
    box = outbox()
    for element in (waiting, response_end("r2"), response_end()):
        box.put(element)
    box.cut_response("r1", "t1")
    ends = [e for e in take_all(box) if isinstance(e, OutCommand)]
    assert ends == [response_end("r2"), response_end(status="cancelled")]


def test_an_end_of_what_was_sent_whole_stays() -> None:
    box = outbox()
    for element in (speech(100, is_last=True), response_end()):
        box.put(element)
    box.take(0.0)
    box.cut_response("r1", "t1")
    assert take_all(box) == [response_end(), SpeechCut("t1", "r1")]


def test_speech_over_the_limit_is_shed_until_the_response_ends() -> None:
    box = outbox(max_speech_ms=250)
    assert box.put(speech(200))
    assert not box.put(speech(100))
    box.take(0.0)
    assert not box.put(speech(50)), "a hole in the middle is worse than a missing end"
    assert box.put(speech(50, "r2"))
    assert not box.put(speech(50, is_last=True)), "the mark is kept, its speech is not"
    assert box.put(speech(50))
    assert take_all(box) == [speech(50, "r2"), speech(0, is_last=True), speech(50)]
    assert box.hearing.queued_ms("r1") == 250


def test_the_mark_of_a_shed_response_comes_without_speech() -> None:
    box = outbox(max_speech_ms=100)
    box.put(speech(100))
    assert not box.put(speech(100))
    assert box.put(speech(0, is_last=True))
    assert take_all(box) == [speech(100), speech(0, is_last=True)]


def test_a_cut_ends_the_shedding() -> None:
    box = outbox(max_speech_ms=100)
    box.put(speech(100))
    assert not box.put(speech(100))
    box.cut_response("r1", "t1")
    assert box.put(speech(100))


def test_a_client_too_far_behind_is_lost() -> None:
    box = outbox(max_elements=3)
    for _ in range(3):
        box.put(OutCommand("tool-start", {}, "t1"))
    with pytest.raises(OutboxFullError) as caught:
        box.put(text("One."))
    assert isinstance(caught.value, RemoteError)
    assert (caught.value.code, caught.value.whose) == (ErrorCode.SLOW_CLIENT, Whose.CLIENT)
    assert box.put(speech(100)), "speech has its own bound"
    box.take(0.0)
    assert box.put(text("One."))


@attrs.frozen
class Step:
    kind: str
    response_id: str
    ms: int


STEPS = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(
            ["speech", "speech", "text", "token", "end", "command", "error", "interim", "take", "cut"]
        ),
        response_id=st.sampled_from(["r1", "r2", "r3"]),
        ms=st.integers(0, 400),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(STEPS)
def test_a_cut_keeps_every_command_in_order_and_the_bounds_hold(steps: list[Step]) -> None:
    box = outbox(max_speech_ms=1000, max_elements=20)
    commands: list[object] = []
    taken: list[OutputElement] = []
    cut: dict[str, int] = {}
    for number, step in enumerate(steps):
        element: OutputElement | None = None
        match step.kind:
            case "speech":
                element = speech(step.ms, step.response_id)
            case "text":
                element = text(f"Sentence {number}.", step.response_id)
            case "token":
                element = OutToken(f"token {number}", "t1", step.response_id)
            case "end":
                element = response_end(step.response_id)
            case "command":
                element = OutCommand("tool-start", {"callId": f"c{number}"}, "t1")
            case "error":
                element = OutError(ErrorCode.INTERNAL, f"error {number}", recoverable=True, whose=Whose.SERVER)
            case "interim":
                element = OutTranscript(f"interim {number}", True, False, False, "Scripted", "t1")
            case "take":
                item = box.take(float(number))
                if item is not None:
                    taken.append(item)
            case _:
                box.cut_response(step.response_id, "t1")
                cut[step.response_id] = number
        if element is not None:
            before = len(box)
            try:
                box.put(element)
            except OutboxFullError:
                assert before >= 20
            else:
                if not isinstance(element, OutSpeech | OutText | OutToken):
                    commands.append(element)
        assert box.unsent_speech_ms <= 1000
    taken += take_all(box, 100.0)
    told = [e for e in taken if not isinstance(e, OutSpeech | OutText | OutToken | SpeechCut)]
    assert [_without_status(e) for e in told] == [_without_status(e) for e in commands]
    for response_id in cut:
        assert sum(isinstance(e, SpeechCut) and e.response_id == response_id for e in taken) >= 1


def _without_status(element: object) -> object:
    if isinstance(element, OutCommand) and element.name == "response-end":
        return element.parameters["responseId"]
    return element


def test_the_length_of_speech() -> None:
    assert speech_ms(speech(250)) == 250
