"""The rules of a response's speech: every visible character is spoken once and shown once, and each sentence knows its place."""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.elements import Text
from providers.internal.speech import Piece, SpokenResponse
from providers.internal.words import behind, count_visible, upto

PARTS = [
    "a", "Well", "sure thing my dear friend", "i will book it", "14", "3.5", "Dr", "října", "Friday", "你好", "元気です",
    " ", " ", "  ", "\n", ". ", "? ", "! ", ".", ", ", "; ", " – ", "。", "？", "…", "🙂", "\"", "(", ")", "- ", "info@x.example",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), max_size=60).map("".join) | st.text(max_size=120)


def visible(texts: Sequence[str]) -> str:
    return "".join("".join(text.split()) for text in texts)


def response(*, is_silent: bool = False) -> SpokenResponse:
    return SpokenResponse("r", "en", is_silent)


@attrs.define(eq=False)
class Speaker:
    """Speaks each piece as it comes, `word_ms` for every visible character, and shows what can be shown."""

    response: SpokenResponse
    lag: int = 0
    """How many pieces the speech is behind the words."""
    pieces: list[Piece] = attrs.field(factory=list[Piece])
    starts: list[float] = attrs.field(factory=list[float])
    """Where each piece's speech began."""
    texts: list[Text] = attrs.field(factory=list[Text])
    ms: float = 0

    def take(self, pieces: Sequence[Piece]) -> None:
        self.pieces += pieces
        self.speak(len(self.pieces) - self.lag)

    def speak(self, upto: int) -> None:
        for piece in self.pieces[len(self.starts) : max(0, upto)]:
            self.response.begin(piece)
            self.starts.append(self.ms)
            self.show()
            self.response.speak(count_visible(piece.text) * 10)
            self.ms += count_visible(piece.text) * 10
        self.show()

    def show(self) -> None:
        while (text := self.response.next_text()) is not None:
            self.texts.append(text)


def cut(text: str, places: Sequence[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places} | {len(text)})
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False) if start < end]


@given(st.lists(TEXTS, max_size=3), st.lists(st.integers(min_value=0), max_size=30), st.integers(0, 5))
def test_every_character_is_spoken_and_shown_once_and_each_sentence_knows_its_place(
    windows: list[str], places: list[int], lag: int
) -> None:
    spoken = response()
    speaker = Speaker(spoken, lag)
    for window in windows:
        for token in cut(window, places):
            speaker.take(spoken.feed(token))
        speaker.take(spoken.flush())
    speaker.speak(len(speaker.pieces))
    assert spoken.text == "".join(windows)
    assert visible([piece.text for piece in speaker.pieces]) == visible(windows)
    assert visible([text.text for text in speaker.texts]) == visible(windows)
    # A sentence's speech begins where the visible characters before it have been spoken.
    before = 0
    for text in speaker.texts:
        assert text.speech_ms == before * 10
        before += count_visible(text.text)


@given(TEXTS, st.lists(st.integers(min_value=0), max_size=30))
def test_the_cuts_of_the_tokens_do_not_matter(text: str, places: list[int]) -> None:
    whole, tokens = response(), response()
    expected = [*whole.feed(text), *whole.flush()]
    pieces = [piece for token in cut(text, places) for piece in tokens.feed(token)]
    assert [*pieces, *tokens.flush()] == expected


@given(TEXTS)
def test_only_the_first_sentence_of_a_window_is_spoken_in_parts(text: str) -> None:
    spoken = response()
    pieces = [*spoken.feed(text), *spoken.flush()]
    sentences = [piece.sentence for piece in pieces]
    assert sentences == sorted(sentences)
    assert sentences.count(0) <= 2
    assert all(sentences.count(sentence) == 1 for sentence in sentences if sentence)


@given(st.lists(TEXTS, max_size=3))
def test_without_speech_sentences_are_shown_as_they_are_complete(windows: list[str]) -> None:
    silent, aloud = response(is_silent=True), response()
    speaker, shown = Speaker(aloud), Speaker(silent)
    for window in windows:
        assert silent.feed(window) == []
        assert silent.flush() == []
        shown.show()
        speaker.take([*aloud.feed(window), *aloud.flush()])
    assert [text.text for text in shown.texts] == [text.text for text in speaker.texts]
    assert all(text.speech_ms is None for text in shown.texts)


def test_a_sentence_is_shown_when_it_is_complete_and_its_speech_has_begun() -> None:
    spoken = response()
    [first] = spoken.feed("Of course I can do that, if you ")
    spoken.begin(first)
    spoken.speak(1500)
    assert spoken.next_text() is None
    rest, second = spoken.feed("want. See you. ") + spoken.flush()
    assert spoken.next_text() == Text("Of course I can do that, if you want.", "r", 0)
    assert spoken.next_text() is None
    spoken.begin(rest)
    spoken.speak(700)
    assert spoken.next_text() is None
    spoken.begin(second)
    assert spoken.next_text() == Text("See you.", "r", 2200)
    assert spoken.next_text() is None


@pytest.mark.parametrize(
    ("text", "place", "front", "rest"),
    [
        ("Hello there", 0, "", "Hello there"),
        ("Hello there", 5, "Hello", "there"),
        ("Hello there", 6, "Hello t", "here"),
        ("Hello there", 10, "Hello there", ""),
        ("Hello there ", 99, "Hello there ", ""),
        (" \n", 0, " \n", ""),
        ("", 3, "", ""),
    ],
)
def test_places_in_a_text_are_counted_in_visible_characters(text: str, place: int, front: str, rest: str) -> None:
    assert upto(text, place) == front
    assert behind(text, place) == rest


@given(st.text(), st.integers(0, 40))
def test_a_text_falls_into_its_front_and_its_rest(text: str, place: int) -> None:
    assert visible([upto(text, place), behind(text, place)]) == visible([text])
    assert count_visible(upto(text, place)) == min(place, count_visible(text))
