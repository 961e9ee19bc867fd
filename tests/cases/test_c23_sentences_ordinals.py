"""C23: ordinals, titles, times of day and initials do not end a sentence that goes on (vectors S07 to S12)."""

import pytest

from engine.protocol.sentences import SentenceAssembler

VECTORS = {
    "S07": (["Sejdeme se 14.", " října v 9.", "30", ".", " Platí", "?"], ["Sejdeme se 14. října v 9.30.", "Platí?"]),
    "S08": (["Je to 3.", " patro", ".", " Výtah je vlevo", "."], ["Je to 3. patro.", "Výtah je vlevo."]),
    "S09": (["Am 3.", " Juni fängt es an", ".", " Kommst du", "?"], ["Am 3. Juni fängt es an.", "Kommst du?"]),
    "S10": (["Ask Dr.", " Novak about it", ".", " He knows", "."], ["Ask Dr. Novak about it.", "He knows."]),
    "S11": (
        ["We open at 9 a.", "m.", " on weekdays", ".", " See you", "."],
        ["We open at 9 a.m. on weekdays.", "See you."],
    ),
    "S12": (
        ["The book is by J.", " K.", " Larsen", ".", " Do you know it", "?"],
        ["The book is by J. K. Larsen.", "Do you know it?"],
    ),
}


def _sentences(tokens: list[str], locale: str) -> list[str]:
    assembler = SentenceAssembler(locale)
    return [sentence for token in tokens for sentence in assembler.feed(token)] + assembler.flush()


@pytest.mark.parametrize("locale", ["en", "cs", "de"])
@pytest.mark.parametrize("name", VECTORS)
def test_c23_ordinals_and_titles_stay_whole_with_the_given_cuts(name: str, locale: str) -> None:
    tokens, expected = VECTORS[name]
    assert _sentences(tokens, locale) == expected


@pytest.mark.parametrize("name", VECTORS)
def test_c23_ordinals_and_titles_stay_whole_with_every_cut(name: str) -> None:
    tokens, expected = VECTORS[name]
    text = "".join(tokens)
    assert _sentences(list(text), "en") == expected
    assert _sentences([text], "en") == expected
    for cut in range(1, len(text)):
        assert _sentences([text[:cut], text[cut:]], "en") == expected
