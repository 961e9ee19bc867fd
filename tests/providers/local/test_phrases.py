"""Pieces of text and of phonemes."""

from hypothesis import given
from hypothesis import strategies as st

from providers.local.phrases import PIECE_LENGTH, TOKEN_LIMIT, phoneme_pieces, pieces


def test_sentences_are_pieces_and_short_ones_go_together() -> None:
    text = "Good morning. Yes. It is open today, and tomorrow as well. What can I do for you?"
    assert pieces(text) == [
        "Good morning.",
        "Yes. It is open today, and tomorrow as well.",
        "What can I do for you?",
    ]


def test_a_long_sentence_is_divided_at_its_commas() -> None:
    clause = "this is a clause of a sentence that does not want to end"
    found = pieces(", ".join([clause] * 8) + ".")
    assert all(len(piece) <= PIECE_LENGTH and piece.endswith((",", ".")) for piece in found)
    assert len(found) == 3


def test_nothing_is_no_piece() -> None:
    assert pieces("") == []
    assert pieces("  ") == []
    assert phoneme_pieces("  ") == []


@given(st.text(alphabet="ab'.,?!;: ", max_size=1500))
def test_no_word_is_lost(text: str) -> None:
    found = pieces(text)
    assert " ".join(found).split() == text.split()
    assert all(len(piece) <= PIECE_LENGTH or len(max(piece.split(), key=len)) > PIECE_LENGTH - 1 for piece in found)


@given(st.text(alphabet="aˈə. ", max_size=3000))
def test_no_piece_is_too_long_for_the_model(phonemes: str) -> None:
    found = phoneme_pieces(phonemes)
    assert all(0 < len(piece) <= TOKEN_LIMIT for piece in found)
    assert "".join(found).replace(" ", "") == phonemes.replace(" ", "")
