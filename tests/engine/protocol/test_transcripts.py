"""The engine's own recognition is made regular (M4): an interim before each final, no final without words."""

from hypothesis import given
from hypothesis import strategies as st

from engine.elements import Transcript
from engine.protocol.transcripts import INTERIM_TEXT, TranscriptNormalizer


def interim(text: str = ".") -> Transcript:
    return Transcript(text, is_interim=True, provider="R")


def final(text: str) -> Transcript:
    return Transcript(text, provider="R")


def test_an_interim_and_its_final_pass() -> None:
    normalizer = TranscriptNormalizer()
    assert normalizer.receive(interim("hel")) == [interim("hel")]
    assert normalizer.receive(final("hello")) == [final("hello")]


def test_a_final_without_an_interim_gets_one() -> None:
    normalizer = TranscriptNormalizer()
    made = Transcript(INTERIM_TEXT, is_interim=True, is_synthetic=True, provider="R")
    assert normalizer.receive(final("hello")) == [made, final("hello")]
    assert normalizer.receive(final("again")) == [made, final("again")]


def test_a_final_without_words_is_nothing() -> None:
    normalizer = TranscriptNormalizer()
    assert normalizer.receive(interim()) == [interim()]
    assert normalizer.receive(final("  ")) == []
    assert [t.is_interim for t in normalizer.receive(final("hello"))] == [True, False]


@given(st.lists(st.builds(Transcript, st.sampled_from(["", " ", "a", "b c"]), st.booleans()), max_size=30))
def test_every_final_has_words_and_an_interim_before_it(transcripts: list[Transcript]) -> None:
    normalizer = TranscriptNormalizer()
    passed = [t for transcript in transcripts for t in normalizer.receive(transcript)]
    assert [t for t in passed if not t.is_interim] == [t for t in transcripts if not t.is_interim and t.text.strip()]
    open_interim = False
    for transcript in passed:
        assert transcript.is_interim or open_interim
        open_interim = transcript.is_interim
