"""The judge is judged first."""

from tests.providers.local.wer import word_error_rate, word_errors


def test_counts_words_wrong_missing_and_too_many() -> None:
    assert word_errors("Good morning!", "good, morning") == 0
    assert word_errors("a b c", "a x c") == 1
    assert word_errors("a b c", "a c") == 1
    assert word_errors("a c", "a b c") == 1
    assert word_errors("it's on", "") == 2
    assert word_error_rate([("a b c d", "a b c d"), ("a b c d", "a b")]) == 0.25
