"""Text as it is written, into words as they are said: what the phonemizer is given.

A pure function. What comes out holds ASCII letters, apostrophes inside words, single spaces and `. , ? ! ; :` behind words,
and nothing else, whatever came in; it is "" when nothing can be said. The rules run in the order of the table at the end: what
is recognized as a whole (an address, a date) goes before what would take its parts (a number, a word).
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from providers.local.numerals import MONTHS, cardinal, clock, decimal, digits, ordinal, year

LONGEST_WORD: Final = 40
"""Letters; what is longer is no word."""
LARGEST_FRACTION: Final = 20
"""Smaller ones are dates, pages or scores."""

Match = re.Match[str]
Rule = tuple[re.Pattern[str], "str | Callable[[Match], str]"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- characters ------------------------------------------------------------------------------------------------------

_CHARACTERS: Final = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′ʼ`´", "'"),
        **dict.fromkeys("“”„‟«»″‹›", '"'),
        **dict.fromkeys("‐‑−", "-"),
        **dict.fromkeys("–—―", " - "),
        **dict.fromkeys("。．", ". "),
        **dict.fromkeys("，、", ", "),
        "！": "! ",
        "？": "? ",
        "…": "... ",
        "ß": "ss",
        "æ": "ae",
        "Æ": "Ae",
        "œ": "oe",
        "Œ": "Oe",
        "ø": "o",
        "Ø": "O",
        "ł": "l",
        "Ł": "L",
        "đ": "d",
        "Đ": "D",
        "ð": "th",
        "Ð": "Th",
        "þ": "th",
        "Þ": "Th",
        "ı": "i",
        "½": " 1/2",
        "¼": " 1/4",
        "¾": " 3/4",
        "²": "^2",
        "³": "^3",
        "×": " times ",
        "÷": " divided by ",
        "±": " plus or minus ",
        "≈": " about ",
        "≤": " at most ",
        "≥": " at least ",
        "→": ", ",
        "•": ". ",
        "™": "",
        "®": "",
        "©": "",
        "µ": "u",
        "№": " number ",
    }
)


def _to_ascii(text: str) -> str:
    """Accents are dropped from their letters; characters of scripts that cannot be said become spaces."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(
        c if c in _KEPT or (c.isascii() and c.isprintable()) else " "
        for c in decomposed
        if not unicodedata.combining(c)
    )


_KEPT: Final = frozenset("€£¥°")
"""Characters that have words of their own."""


# --- rules -----------------------------------------------------------------------------------------------------------

_AMOUNT: Final = r"(?P<whole>\d{1,3}(?:,\d{3})++|\d++)(?:[.](?P<part>\d++))?"


def _amount(match: Match) -> str:
    """The number of an `_AMOUNT`."""
    whole = match["whole"].replace(",", "")
    return decimal(whole, match["part"]) if match["part"] else cardinal(whole)


def _is_one(match: Match) -> bool:
    return match["whole"] == "1" and not match["part"]


def _spell(letters: str) -> str:
    """Letter by letter. "A" alone would be read as the article."""
    return " ".join("ay" if letter in "Aa" else letter.upper() for letter in letters)


_SIGNS: Final = {
    ".": "dot",
    "/": "slash",
    "-": "dash",
    "_": "underscore",
    "@": "at",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "#": "hash",
    ":": "colon",
    "%": "percent",
    "+": "plus",
    "~": "tilde",
}
_ADDRESS_PART: Final = re.compile(r"[A-Za-z]+|\d+|[^A-Za-z\d]")


def _address(text: str) -> str:
    words: list[str] = []
    for part in _ADDRESS_PART.findall(text):
        if part.isdigit():
            words.append(digits(part) if len(part) > 2 else cardinal(part))
        elif part.isalpha():
            words.append(part.lower() if len(part) > 1 else _spell(part))
        else:
            words.append(_SIGNS.get(part, ""))
    return f" {' '.join(filter(None, words))} "


def _link(match: Match) -> str:
    text = match[0]
    end = re.search(r"[.,;:!?)\]'\"]*$", text)
    tail = end[0] if end else ""
    body = text[: len(text) - len(tail)]
    body = re.sub(r"^[a-z]+://", "", body, flags=re.IGNORECASE).removeprefix("www.").rstrip("/")
    return _address(body) + tail


def _iso_date(match: Match) -> str:
    month, day = int(match["month"]), int(match["day"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return " ".join(digits(part) for part in match[0].split("-"))
    return f"{MONTHS[month - 1]} {ordinal(match['day'])}, {year(match['year'])}"


def _time(match: Match) -> str:
    half = match["half"]
    said = clock(match["hours"], match["minutes"])
    if half:
        said = said.removesuffix(" o'clock") + " " + _spell(half + "m")
    return said


def _money(match: Match) -> str:
    one, many, cent, cents = _CURRENCIES[match["sign"]]
    scale = f" {match['scale']}" if match["scale"] else ""
    whole, part = match["whole"].replace(",", ""), match["part"]
    if scale or not part or len(part) != 2:
        return f"{_amount(match)}{scale} {one if _is_one(match) and not scale else many}"
    said = f"{cardinal(whole)} {one if int(whole) == 1 else many}"
    if part == "00":
        return said
    small = f"{cardinal(part.lstrip('0'))} {cent if int(part) == 1 else cents}"
    return small if int(whole) == 0 else f"{said} and {small}"


_CURRENCIES: Final = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "sen", "sen"),
    "EUR": ("euro", "euros", "cent", "cents"),
    "USD": ("dollar", "dollars", "cent", "cents"),
    "GBP": ("pound", "pounds", "penny", "pence"),
    "CZK": ("crown", "crowns", "heller", "hellers"),
    "Kc": ("crown", "crowns", "heller", "hellers"),
}
_CURRENCY_NAMES: Final = "|".join(name for name in _CURRENCIES if name.isalpha())

_UNITS: Final = {
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "m/s": ("meter per second", "meters per second"),
    "mph": ("mile per hour", "miles per hour"),
    "km": ("kilometer", "kilometers"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "m^2": ("square meter", "square meters"),
    "m^3": ("cubic meter", "cubic meters"),
    "m": ("meter", "meters"),
    "ft": ("foot", "feet"),
    "mi": ("mile", "miles"),
    "kg": ("kilogram", "kilograms"),
    "mg": ("milligram", "milligrams"),
    "g": ("gram", "grams"),
    "lbs": ("pound", "pounds"),
    "lb": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "ml": ("milliliter", "milliliters"),
    "dl": ("deciliter", "deciliters"),
    "l": ("liter", "liters"),
    "L": ("liter", "liters"),
    "ms": ("millisecond", "milliseconds"),
    "sec": ("second", "seconds"),
    "s": ("second", "seconds"),
    "min": ("minute", "minutes"),
    "hrs": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "h": ("hour", "hours"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "kW": ("kilowatt", "kilowatts"),
    "W": ("watt", "watts"),
    "V": ("volt", "volts"),
    "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "kB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "°": ("degree", "degrees"),
    "%": ("percent", "percent"),
}
_UNIT_NAMES: Final = "|".join(re.escape(name) for name in sorted(_UNITS, key=len, reverse=True))


def _unit(match: Match) -> str:
    one, many = _UNITS[match["unit"].replace("° ", "°")]
    return f" {_amount(match)} {one if _is_one(match) else many}"


_FRACTIONS: Final = {"2": ("half", "halves"), "3": ("third", "thirds"), "4": ("quarter", "quarters")}


def _fraction(match: Match) -> str:
    top, bottom = match["top"], match["bottom"]
    if int(top) >= int(bottom) or int(bottom) > LARGEST_FRACTION:
        return f"{match['whole'] or ''} {cardinal(top)} slash {cardinal(bottom)}"
    one, many = _FRACTIONS.get(bottom) or (ordinal(bottom), ordinal(bottom) + "s")
    if not match["whole"]:
        return f"{cardinal(top)} {one if top == '1' else many}"
    return f"{cardinal(match['whole'])} and {'a' if top == '1' else cardinal(top)} {one if top == '1' else many}"


def _decade(match: Match) -> str:
    """ "1990s": nineteen nineties."""
    tens = cardinal(match["tens"])
    return f"{cardinal(match['century'])} {tens[:-1]}ies" if tens.endswith("y") else f"{year(match[0][:4])}s"


def _phone(match: Match) -> str:
    """A phone number: its digits, with a breath between its groups."""
    plus = "plus " if match[0].lstrip("(").startswith("+") else ""
    return plus + ", ".join(digits(group) for group in re.findall(r"\d+", match[0]))


def _whole_number(match: Match) -> str:
    text = match[0]
    if len(text) == 4 and 1100 <= int(text) <= 2099 and text[2:] != "00":
        return year(text)
    if len(text) > 9 or (text.startswith("0") and len(text) > 1):
        return digits(text)
    return cardinal(text)


def _version(match: Match) -> str:
    return f" {' point '.join(map(cardinal, match[0].split('.')))} "


_ABBREVIATIONS: Final = {
    "dr": "doctor",
    "mr": "mister",
    "mrs": "missus",
    "ms": "miz",
    "prof": "professor",
    "st": "saint",
    "sr": "senior",
    "jr": "junior",
    "e.g": "for example",
    "i.e": "that is",
    "etc": "et cetera",
    "vs": "versus",
    "approx": "approximately",
    "dept": "department",
    "incl": "including",
    "min": "minimum",
    "max": "maximum",
    "jan": "January",
    "feb": "February",
    "mar": "March",
    "apr": "April",
    "jun": "June",
    "jul": "July",
    "aug": "August",
    "sep": "September",
    "sept": "September",
    "oct": "October",
    "nov": "November",
    "dec": "December",
    "mon": "Monday",
    "tue": "Tuesday",
    "wed": "Wednesday",
    "thu": "Thursday",
    "fri": "Friday",
    "sat": "Saturday",
}
_BEFORE_NAME: Final = frozenset({"dr", "mr", "mrs", "ms", "prof", "st"})
_ALSO_WORDS: Final = frozenset({"mar", "sat", "mon", "min", "max", "dec", "jan", "st"})
"""At the end of a sentence these are words, and the dot is the sentence's."""
_BEFORE_NUMBER: Final = {"no": "number", "nr": "number", "ext": "extension", "tel": "telephone"}
"""These are abbreviations only before a number."""


def _abbreviation(match: Match) -> str:
    """Its own dot goes, the sentence's stays."""
    name, ends = match["name"].lower(), match["ends"] is not None
    if ends and name in _ALSO_WORDS and name not in _BEFORE_NAME:
        return match[0]
    is_over = ends and (name not in _BEFORE_NAME or match.end() == len(match.string.rstrip()))
    return _ABBREVIATIONS[name] + ("." if is_over else "")


_WORDS_IN_CAPITALS: Final = _words(
    "ALL AND ANY ARE AS ASAP BACK BE BUT BY CAFE CAN COVID DO DONE EXIT FOR FREE GET GO HAD HAS HE HELP HER HIS HOW IF IN "
    "IS ITS LASER LET MAY ME MENU MY NASA NATO NEW NEXT NO NOT NOW OF OFF OLD ON ONE OPEN OR OUR OUT OWN PIN RADAR SALE SAY SEE "
    "SHE SIM SO STOP THE TO TOO TWO UNESCO UNICEF UP USE WAS WAY WE WHO WHY YES YOU AN"
)
_SPELLED: Final = frozenset({"IT", "US"})
"""Words in a sentence of capitals, letters in any other."""
_NOT_SPELLED: Final = _words("hm hmm mm mhm shh sh psst pst tsk nth brr grr pfft zzz")
_VOWELS: Final = re.compile(r"[aeiouy]", re.IGNORECASE)
_LONGEST_ABBREVIATION: Final = 5


def _capitals(text: str) -> str:
    """Words in capitals: an abbreviation is spelled out, anything else is a word said with emphasis."""
    words = re.findall(r"[A-Za-z]{2,}", text)
    is_loud = sum(word.isupper() for word in words) >= 3 and sum(word.isupper() for word in words) > len(words) / 2

    def say(match: Match) -> str:
        word, plural = match["word"], match["plural"]
        if word == "OK":
            return "okay"
        if word in _SPELLED or not _VOWELS.search(word):
            is_word = is_loud and word in _SPELLED
        else:
            is_word = is_loud or len(word) > 3 or word in _WORDS_IN_CAPITALS
        if is_word or len(word) > _LONGEST_ABBREVIATION:
            return word.capitalize() + plural
        return _spell(word) + ("'s" if plural else "")

    return re.sub(r"\b(?P<word>[A-Z]{2,})(?P<plural>s?)\b", say, text)


def _consonants(match: Match) -> str:
    """ "pdf", "cz": nobody can say it as a word."""
    return match[0] if match[0].lower() in _NOT_SPELLED else _spell(match[0])


def _punctuation(match: Match) -> str:
    """Of several marks in a row, the one that says most."""
    return next(mark for mark in "?!.:;," if mark in match[0]) + " "


def _dotted(match: Match) -> str:
    """ "U.S.", "p.m.": letters, and the dot that ends a sentence."""
    return _spell(match["letters"].replace(".", "")) + ("." if match["ends"] is not None else "")


_MARKUP: Final[tuple[Rule, ...]] = (
    (re.compile(r"```.*?(?:```|\Z)", re.DOTALL), " "),
    (re.compile(r"!\[([^\]\n]{0,300})\]\([^)\s]{0,2000}\)"), r"\1"),
    (re.compile(r"\[([^\]\n]{1,300})\]\([^)\s]{0,2000}\)"), r"\1"),
    (re.compile(r"<[^<>\n]{1,200}>"), " "),
    (re.compile(r"^[ \t]*#{1,6}[ \t]+(.*)$", re.MULTILINE), r"\1."),
    (re.compile(r"^[ \t]*(?:[-*+>]|\d{1,3}[.)])[ \t]+(.*)$", re.MULTILINE), r"\1."),
    (re.compile(r"^[ \t]*[-*_=|: \t]{3,}$", re.MULTILINE), " "),
    (re.compile(r"\n[ \t]*\n"), ". "),
    (re.compile(r"(?<![A-Za-z\d])[*_~`]+|[*_~`]+(?![A-Za-z\d])|\*+|`+"), ""),
    (re.compile(r"\|"), ", "),
)

_CLOCK: Final = r"(?P<hours>[01]?\d|2[0-4])"
_DOMAINS: Final = "com|org|net|io|dev|app|cz|eu|uk|de|example"
_ENDS: Final = r"(?P<ends>(?=\s*\Z|\s+(?-i:[A-Z][a-z])))?"
"""Whether a dot may be the end of a sentence."""

_RULES: Final[tuple[Rule, ...]] = (
    (re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}", re.ASCII), lambda match: _address(match[0])),
    (re.compile(r"\b(?:https?|ftp)://\S+|\bwww\.\S+", re.IGNORECASE), _link),
    (
        re.compile(rf"\b(?:[a-z\d-]{{1,63}}\.){{1,8}}(?:{_DOMAINS})\b(?:/[^\s,;!?]*)?", re.IGNORECASE),
        _link,
    ),
    (re.compile(r"\b(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})\b"), _iso_date),
    (
        re.compile(rf"\b{_CLOCK}[:.](?P<minutes>[0-5]\d)(?::[0-5]\d)?\s?(?P<half>[ap])\.?m\b", re.IGNORECASE),
        _time,
    ),
    (re.compile(rf"\b{_CLOCK}:(?P<minutes>[0-5]\d)(?::[0-5]\d)?(?P<half>)(?![\d:])"), _time),
    (
        # With a dot it is a time when a word before it says so, or when it stands alone and looks like one.
        re.compile(
            r"(?:(?<=\bat )|(?<=\bby )|(?<=\bto )|(?<=\bfrom )|(?<=\buntil )|(?<=\btill )|(?<=\bbefore )|(?<=\bafter )|"
            rf"(?<=\baround )){_CLOCK}\.(?P<minutes>[0-5]\d)(?P<half>)(?![\d%€£$°]|[.,]\d|\s?(?:{_UNIT_NAMES})\b)",
            re.IGNORECASE,
        ),
        _time,
    ),
    (re.compile(rf"\A\s*{_CLOCK}\.(?P<minutes>[0-5][05])(?P<half>)(?=[.!?\s]*\Z)"), _time),
    (re.compile(r"(?<![\w.)])-(?=[$€£]?\d)"), "minus "),
    (re.compile(r"\b(?P<century>[1-9]\d)(?P<tens>\d0)s\b"), _decade),
    (re.compile(rf"(?P<sign>[$€£¥])\s?{_AMOUNT}(?:\s(?P<scale>thousand|million|billion|trillion)\b)?"), _money),
    (re.compile(rf"\b{_AMOUNT}(?P<scale>)\s?(?P<sign>[$€£¥]|(?:{_CURRENCY_NAMES})\b)"), _money),
    (re.compile(rf"\b{_AMOUNT}\s?(?P<unit>°\s?[CF]\b|(?:{_UNIT_NAMES})(?![A-Za-z\d]))"), _unit),
    (
        re.compile(
            r"\+\d{1,3}(?:[ -]?\(?\d{2,4}\)?){2,5}|\(\d{3}\) ?\d{3}[- ]\d{4}|\b\d{3}(?:[- ]\d{3}){1,2}[- ]\d{3,4}\b"
            r"|\b\d{3}-\d{4}\b"
        ),
        _phone,
    ),
    (
        re.compile(rf"\b(?P<name>{'|'.join(_BEFORE_NUMBER)})\.\s?(?=[\d+(])", re.IGNORECASE),
        lambda match: _BEFORE_NUMBER[match["name"].lower()] + " ",
    ),
    (re.compile(r"\b(?:(?P<whole>\d{1,6})\s)?(?P<top>\d{1,3})/(?P<bottom>[1-9]\d{0,2})\b(?!/)"), _fraction),
    (re.compile(r"\b(?P<number>\d+)(?:st|nd|rd|th)\b", re.IGNORECASE), lambda match: ordinal(match["number"])),
    (re.compile(r"(?<![\d.])\d+(?:\.\d+){2,}"), _version),
    (re.compile(r"(?<=\d)\s?-\s?(?=[$€£]?\d)"), " to "),
    (re.compile(r"(?P<whole>\d{1,3}(?:,\d{3})+)(?!\d)(?:\.(?P<part>\d+))?"), _amount),
    (re.compile(r"(?<!\d)(?P<whole>\d*+)\.(?P<part>\d+)"), lambda match: f" {decimal(match['whole'], match['part'])} "),
    (re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])"), " "),
    (re.compile(r"\d+"), lambda match: f" {_whole_number(match)} "),
    (
        re.compile(rf"\b(?P<name>{'|'.join(map(re.escape, _ABBREVIATIONS))})\.{_ENDS}", re.IGNORECASE),
        _abbreviation,
    ),
    (re.compile(rf"\b(?P<letters>[A-Za-z](?:\.[A-Za-z])+)\b\.?{_ENDS}"), _dotted),
)

_SYMBOLS: Final[tuple[Rule, ...]] = (
    (re.compile(r"\^ ?two\b"), " squared"),
    (re.compile(r"\^ ?three\b"), " cubed"),
    (re.compile(r"\s*&\s*"), " and "),
    (re.compile(r"\s*%"), " percent"),
    (re.compile(r"\s*\+\s*"), " plus "),
    (re.compile(r"\s*=\s*"), " equals "),
    (re.compile(r"@"), " at "),
    (re.compile(r"#(?=\w)"), " number "),
    (re.compile(r"°"), " degrees "),
    (re.compile(r"€"), " euros "),
    (re.compile(r"£"), " pounds "),
    (re.compile(r"¥"), " yen "),
    (re.compile(r"\$"), " dollars "),
    (re.compile(r"(?<=[A-Za-z])/(?=[A-Za-z])"), " "),
    (re.compile(r"\s+[-–]+\s+|\s*[()\[\]{}]\s*"), ", "),
)

_TIDYING: Final[tuple[Rule, ...]] = (
    (re.compile(r"(?<![A-Za-z])'|'(?![A-Za-z])"), " "),
    (re.compile(r"[^A-Za-z'.,?!;:]+"), " "),
    (re.compile(r"\b[b-df-hj-np-tv-xz]{2,5}\b", re.IGNORECASE), _consonants),
    (re.compile(rf"[A-Za-z']{{{LONGEST_WORD},}}"), lambda match: match[0][: LONGEST_WORD - 1].rstrip("'")),
    (re.compile(r"\s?[.,?!;:][.,?!;:\s]*"), _punctuation),
    (re.compile(r"\s+"), " "),
)


def normalize(text: str) -> str:
    """What is to be said, in the alphabet that the module's docstring gives. Never raises."""
    for pattern, said in _MARKUP:
        text = pattern.sub(said, text)
    text = " ".join(_to_ascii(text.translate(_CHARACTERS)).split())
    for pattern, said in _RULES:
        text = pattern.sub(said, text)
    text = _capitals(text)
    for pattern, said in _SYMBOLS + _TIDYING:
        text = pattern.sub(said, text)
    text = text.strip().lstrip(".,?!;: ")
    return text if re.search(r"[A-Za-z]", text) else ""
