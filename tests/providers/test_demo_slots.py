"""What the demo understands of a table: days, times, guests and names, as they are said and as recognition writes them."""

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.chat.demo_slots import Heard, Slot, Table, hear

MONDAY = date(2026, 6, 1)
DAY, TIME, PEOPLE, NAME = Slot


def minutes(hour: int, minute: int = 0) -> int:
    return hour * 60 + minute


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("I'd like to book a table for four tomorrow at half past seven", Heard("tomorrow", minutes(19, 30), 4)),
        ("table for for tomorrow at seven thirty p m", Heard("tomorrow", minutes(19, 30), 4)),
        ("book a table for to at ate", Heard("", minutes(20), 2)),
        ("two people at to pm", Heard("", minutes(14), 2)),
        ("A table for two people at two on Sunday.", Heard("Sunday", minutes(14), 2)),
        (
            "party of six tonight at 7:30 pm my name is Jana Nováková",
            Heard("today", minutes(19, 30), 6, "Jana Nováková"),
        ),
        (
            "can we come at seven tomorrow evening, for two people, under Novak please",
            Heard("tomorrow", 1140, 2, "Novak"),
        ),
        ("June 3rd at 19:30 for 3", Heard("2026-06-03", minutes(19, 30), 3)),
        ("we are five, on the third of June at noon", Heard("2026-06-03", minutes(12), 5)),
        ("a table for four, June fifth", Heard("2026-06-05", None, 4)),
        ("just me tomorrow at 9 in the morning", Heard("tomorrow", minutes(9), 1)),
        ("I am here tomorrow at seven", Heard("tomorrow", minutes(19))),
        ("at seven no at eight", Heard("", minutes(20))),
        ("not seven, eight people", Heard("", None, 8)),
        ("not tomorrow, Friday", Heard("Friday")),
        ("for seven thirty", Heard("", minutes(19, 30))),
        ("for seven", Heard("", None, 7)),
        ("make it eight", Heard(number=8)),
        ("Hello, I would like to come too", Heard()),
        ("two adults and three children", Heard("", None, 5)),
        ("me and my wife", Heard("", None, 2)),
        ("a couple of people", Heard("", None, 2)),
        ("my name's Anna and we are four people", Heard("", None, 4, "Anna")),
        ("change the name to Karel Čapek", Heard(name="Karel Čapek")),
        ("", Heard()),
    ],
)
def test_whole_sentences(text: str, heard: Heard) -> None:
    assert hear(text, today=MONDAY) == heard


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("seven", minutes(19)),
        ("ate", minutes(20)),
        ("for seven", minutes(19)),
        ("seven thirty", minutes(19, 30)),
        ("730", minutes(19, 30)),
        ("7.30 p.m.", minutes(19, 30)),
        ("7pm", minutes(19)),
        ("8 o' clock", minutes(20)),
        ("half seven", minutes(19, 30)),
        ("quarter to eight", minutes(19, 45)),
        ("quarter past six", minutes(18, 15)),
        ("ten minutes past six", minutes(18, 10)),
        ("twenty to one", minutes(12, 40)),
        ("seven oh five", minutes(19, 5)),
        ("nineteen thirty", minutes(19, 30)),
        ("19h30", minutes(19, 30)),
        ("nine", minutes(9)),
        ("nine in the evening", minutes(21)),
        ("eleven fifteen", minutes(11, 15)),
        ("noon", minutes(12)),
        ("12 am", minutes(0)),
        ("99", None),
        ("25:99", None),
        ("seven hundred thousand", minutes(19)),
    ],
)
def test_times_that_were_asked_for(text: str, time: int | None) -> None:
    assert hear(text, [TIME]).time == time


def test_an_hour_stays_in_its_half_of_the_day() -> None:
    assert hear("nine", [TIME], Table(time=minutes(10))).time == minutes(9)
    assert hear("eight thirty", [TIME], Table(time=minutes(10))).time == minutes(8, 30)
    assert hear("eight thirty", [TIME], Table(time=minutes(19))).time == minutes(20, 30)


@pytest.mark.parametrize(
    ("text", "people"),
    [
        ("for", 4),
        ("to", 2),
        ("too", 2),
        ("ate", 8),
        ("won", 1),
        ("uh four please", 4),
        ("for people", 4),
        ("we'll be three", 3),
        ("about 5", 5),
        ("just the two of us", 2),
        ("both of us", 2),
        ("me", 1),
        ("by myself", 1),
        ("a dozen", 12),
        ("twenty five", 25),
        ("nobody", None),
    ],
)
def test_guests_that_were_asked_for(text: str, people: int | None) -> None:
    assert hear(text, [PEOPLE]).people == people


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("to morrow", "tomorrow"),
        ("the day after tomorrow", "the day after tomorrow"),
        ("next Friday", "next Friday"),
        ("on wensday", "Wednesday"),
        ("this evening", "today"),
        ("the 5th", "2026-06-05"),
        ("the third", "2026-06-03"),
        ("May 5", "2027-05-05"),
        ("29th of February", "2028-02-29"),
        ("the twenty first of June", "2026-06-21"),
        ("in three days", "2026-06-04"),
        ("June 7 pm", ""),
        ("February 30", "February 30"),
        ("maybe", ""),
    ],
)
def test_days(text: str, day: str) -> None:
    assert hear(text, [DAY], today=MONDAY).day == day


def test_without_a_date_days_keep_their_names() -> None:
    assert hear("June third").day == "June 3"
    assert hear("in two days").day == "in 2 days"
    assert hear("on the 5th").day == "the 5th"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Anna", "Anna"),
        ("it's anna please", "Anna"),
        ("uh smith", "Smith"),
        ("Yes, it's Tomáš.", "Tomáš"),
        ("Name: O'Neil", "O'Neil"),
        ("for Anna", "Anna"),
        ("Anna Maria Nova", "Anna Maria Nova"),
        ("MCDONALD", "Mcdonald"),
        ("McDonald", "McDonald"),
        ("J. A. N. A.", "Jana"),
        ("April", "April"),
        ("My name is Jana. And the table should be quiet.", "Jana"),
        ("I'm sorry what", ""),
        ("what time do you open", ""),
        ("Thank you", ""),
        ("eight people actually", ""),
        ("I do not want to tell you that", ""),
        ("the quick brown fox jumps", ""),
    ],
)
def test_names_that_were_asked_for(text: str, name: str) -> None:
    assert hear(text, [NAME]).name == name


scraps = [
    "for",
    "to",
    "ate",
    "7",
    "730",
    ":",
    ".",
    "p",
    "m",
    "half",
    "past",
    "quarter",
    "twenty",
    "oh",
    "first",
    "of",
    "June",
]
scraps += [
    "the",
    "in",
    "days",
    "people",
    "is",
    "not",
    "and",
    "name",
    "Anna",
    "at",
    "tomorrow",
    "next",
    "morning",
    "1e9",
]


@settings(deadline=None)
@given(
    st.text() | st.lists(st.sampled_from(scraps)).map(" ".join),
    st.sets(st.sampled_from(Slot)),
    st.none() | st.dates(),
)
def test_nothing_raises_and_values_are_sane(text: str, asked: set[Slot], today: date | None) -> None:
    heard = hear(text, asked, Table(), today)
    assert heard.time is None or 0 <= heard.time < 24 * 60
    assert heard.people is None or heard.people >= 0
    assert len(heard.name) <= 40
    assert heard == hear(text, asked, Table(), today)
