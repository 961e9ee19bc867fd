"""C22: numbers, prices, versions and addresses are not cut at the dot (vectors S01 to S06)."""

import pytest

from engine.protocol.sentences import SentenceAssembler

VECTORS = {
    "S01": (
        ["The pool is at 27", ".", "5 °C today", ".", " Bring a towel", "."],
        ["The pool is at 27.5 °C today.", "Bring a towel."],
    ),
    "S02": (["It costs $4", ".99", ".", " Tax is 21 %", "."], ["It costs $4.99.", "Tax is 21 %."]),
    "S03": (
        ["Install v2.", "10.", "3 first", ".", " Then restart", "."],
        ["Install v2.10.3 first.", "Then restart."],
    ),
    "S04": (["The box is at 10.0.", "0.7", ".", " Ping it", "."], ["The box is at 10.0.0.7.", "Ping it."]),
    "S05": (
        [
            "Write to info@kavarna.",
            "example or open www.kavarna.",
            "example/menu.html",
            ".",
            " We answer fast",
            ".",
        ],
        ["Write to info@kavarna.example or open www.kavarna.example/menu.html.", "We answer fast."],
    ),
    "S06": (
        ["Is it https://shop.example/a?", "b=1.5&c=2", "?", " Good", "."],
        ["Is it https://shop.example/a?b=1.5&c=2?", "Good."],
    ),
}


def _sentences(tokens: list[str], locale: str) -> list[str]:
    assembler = SentenceAssembler(locale)
    return [sentence for token in tokens for sentence in assembler.feed(token)] + assembler.flush()


@pytest.mark.parametrize("locale", ["en", "cs", "de"])
@pytest.mark.parametrize("name", VECTORS)
def test_c22_numbers_and_addresses_stay_whole_with_the_given_cuts(name: str, locale: str) -> None:
    tokens, expected = VECTORS[name]
    assert _sentences(tokens, locale) == expected


@pytest.mark.parametrize("name", VECTORS)
def test_c22_numbers_and_addresses_stay_whole_with_every_cut(name: str) -> None:
    tokens, expected = VECTORS[name]
    text = "".join(tokens)
    assert _sentences(list(text), "en") == expected
    assert _sentences([text], "en") == expected
    for cut in range(1, len(text)):
        assert _sentences([text[:cut], text[cut:]], "en") == expected
