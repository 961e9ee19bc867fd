"""Numbers as they are said in American English. Pure functions; digits in, words out."""

from typing import Final

_SMALL: Final = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_TENS: Final = (
    "zero",
    "ten",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
)
_SCALES: Final = ("", "thousand", "million", "billion", "trillion")
LONGEST: Final = 3 * len(_SCALES)
"""Digits of the largest number that has a name here."""
_ORDINALS: Final = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def digits(text: str) -> str:
    """ "007": zero zero seven."""
    return " ".join(_SMALL[int(digit)] for digit in text)


def cardinal(text: str) -> str:
    """ "1204": one thousand two hundred four. With a leading zero, or longer than any name: digit by digit."""
    if len(text) > LONGEST or (text.startswith("0") and len(text) > 1):
        return digits(text)
    value = int(text)
    if value < 1000:
        return _hundreds(value)
    groups: list[str] = []
    for scale in _SCALES:
        value, group = divmod(value, 1000)
        if group:
            groups.append(f"{_hundreds(group)} {scale}".strip())
    return " ".join(reversed(groups))


def ordinal(text: str) -> str:
    """ "21": twenty first."""
    head, _, last = cardinal(text.lstrip("0") or "0").rpartition(" ")
    last = _ORDINALS.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")
    return f"{head} {last}".strip()


def year(text: str) -> str:
    """ "2026": twenty twenty six."""
    century, rest = int(text[:2]), int(text[2:])
    if text.startswith("0"):
        return digits(text)
    if rest == 0:
        return cardinal(text) if century % 10 == 0 else f"{_hundreds(century)} hundred"
    if rest < 10:
        return cardinal(text) if century % 10 == 0 else f"{_hundreds(century)} oh {_SMALL[rest]}"
    return f"{_hundreds(century)} {_hundreds(rest)}"


def decimal(whole: str, fraction: str) -> str:
    """ "3", "14": three point one four."""
    return f"{cardinal(whole or '0')} point {digits(fraction)}"


def clock(hours: str, minutes: str) -> str:
    """ "10", "05": ten oh five."""
    hour, minute = int(hours), int(minutes)
    if minute == 0:
        return f"{_hundreds(hour)} o'clock" if 0 < hour <= 12 else f"{_hundreds(hour)} hundred"
    return f"{_hundreds(hour)} {'oh ' if minute < 10 else ''}{_hundreds(minute)}"


def _hundreds(value: int) -> str:
    hundred, rest = divmod(value, 100)
    words = [_SMALL[hundred], "hundred"] if hundred else []
    if rest and rest < 20:
        words.append(_SMALL[rest])
    elif rest:
        words.append(_TENS[rest // 10])
        if rest % 10:
            words.append(_SMALL[rest % 10])
    return " ".join(words) or _SMALL[0]
