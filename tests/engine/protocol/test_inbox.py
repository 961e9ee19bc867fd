"""What a client has sent waits in order and within bounds; tiny audio frames cost what their bytes cost."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.elements import Action, BadInput, Commit, Image, InputAudio, InputElement, InputText, Playback
from engine.errors import ErrorCode
from engine.protocol.inbox import Inbox


def inbox(max_bytes: int = 1000, max_elements: int = 4) -> Inbox:
    return Inbox(max_bytes, max_elements)


def take_all(box: Inbox) -> list[InputElement]:
    taken: list[InputElement] = []
    while (element := box.take()) is not None:
        taken.append(element)
    return taken


def test_neighbouring_audio_is_joined() -> None:
    box = inbox()
    for data in (b"ab", b"cd", b"ef"):
        box.put(InputAudio(data))
    box.put(Commit())
    box.put(InputAudio(b"gh"))
    assert len(box) == 3
    assert take_all(box) == [InputAudio(b"abcdef"), Commit(), InputAudio(b"gh")]
    assert box.waiting_bytes == 0


def test_ten_thousand_tiny_frames_are_one_element() -> None:
    box = Inbox(1 << 20, 8)
    for _ in range(10_000):
        assert box.has_room(InputAudio(b"0123456789"))
        box.put(InputAudio(b"0123456789"))
    assert (len(box), box.waiting_bytes) == (1, 100_000)


def test_bytes_are_bounded() -> None:
    box = inbox(max_bytes=100)
    box.put(InputAudio(bytes(90)))
    assert box.has_room(InputAudio(bytes(10)))
    assert not box.has_room(InputAudio(bytes(11)))
    assert not box.has_room(Image(bytes(11), "image/png"))
    assert not box.has_room(InputText("abc")), "a character may take four bytes"
    assert not box.has_room(Commit())
    assert box.has_room(BadInput(ErrorCode.BAD_JSON, "no JSON"))


def test_elements_are_bounded_and_audio_joins_all_the_same() -> None:
    box = inbox(max_bytes=10_000, max_elements=2)
    box.put(Action("intro"))
    box.put(InputAudio(b"ab"))
    assert not box.has_room(Playback("r1", 10))
    assert box.has_room(InputAudio(b"cd"))
    box.put(InputAudio(b"cd"))
    assert box.has_room(InputAudio(b"ef")), "it joins what was joined before"


def test_an_empty_inbox_takes_anything() -> None:
    box = inbox(max_bytes=10)
    assert box.has_room(InputAudio(bytes(1000)))
    box.put(InputAudio(bytes(1000)))
    assert not box.has_room(InputAudio(b"ab"))
    assert box.take() == InputAudio(bytes(1000))
    assert box.take() is None


ELEMENTS: st.SearchStrategy[InputElement] = st.one_of(
    st.builds(InputAudio, st.binary(max_size=20)),
    st.builds(InputText, st.text(max_size=5)),
    st.just(Commit()),
    st.builds(Image, st.binary(max_size=20), st.just("image/png")),
    st.builds(BadInput, st.just(ErrorCode.BAD_JSON), st.text(max_size=5)),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.one_of(ELEMENTS, st.none()), max_size=40))
def test_nothing_is_lost_and_nothing_changes_places(steps: list[InputElement | None]) -> None:
    """None takes one. Audio may come out in longer pieces, everything else as it went in; no bound is broken."""
    box = inbox(max_bytes=600, max_elements=6)
    sent: list[InputElement] = []
    taken: list[InputElement] = []
    for step in steps:
        if step is None:
            element = box.take()
            taken += [] if element is None else [element]
        elif box.has_room(step):
            was_empty = len(box) == 0
            box.put(step)
            sent.append(step)
            assert len(box) <= 6
            assert was_empty or box.waiting_bytes <= 600
    taken += take_all(box)
    assert box.waiting_bytes == 0
    assert flat(taken) == flat(sent)


def flat(elements: list[InputElement]) -> list[object]:
    """Byte by byte for audio, so that pieces do not matter."""
    items: list[object] = []
    for element in elements:
        items += list(element.data) if isinstance(element, InputAudio) else [element]
    return items


def test_what_waits_can_be_looked_at() -> None:
    inbox = Inbox(1000, 8)
    inbox.put(InputText("hello"))
    inbox.put(InputAudio(b"ab"))
    inbox.put(InputAudio(b"cd"))
    inbox.put(InputText("again"))
    waiting = [InputText("hello"), InputAudio(b"abcd"), InputText("again")]
    assert inbox.waiting() == waiting
    assert [inbox.take() for _ in range(4)] == [*waiting, None]
    assert inbox.waiting() == []
