"""The demo's booking book."""

from datetime import UTC, date, datetime, time, timedelta

import pytest
import trio

from agents.demo import booking
from agents.demo.booking import FIRST_NUMBER, SEATS, STAY, TABLES, BookingBook, book_table, read_day, read_time
from agents.tools import FunctionTool
from engine.elements import OnInterruption
from engine.interfaces import Context, ToolError
from tests.agents.support import Clock, make_context

WEDNESDAY_NOON = datetime(2026, 4, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def empty_book(monkeypatch: pytest.MonkeyPatch) -> BookingBook:
    book = BookingBook()
    monkeypatch.setattr(booking, "book", book)
    return book


def at(now: datetime = WEDNESDAY_NOON, time_zone: str = "UTC") -> Context:
    return make_context(clock=Clock(now), time_zone=time_zone)


def test_the_model_sees_four_parameters() -> None:
    specification = FunctionTool.of(book_table).specification

    assert specification.name == "book_table"
    assert list(specification.parameters["properties"]) == ["day", "time", "people", "name"]
    assert specification.parameters["required"] == ["day", "time", "people", "name"]
    assert all(each["description"] for each in specification.parameters["properties"].values())
    assert specification.on_interruption is OnInterruption.SHIELD


async def test_a_booking_is_confirmed_with_a_number(empty_book: BookingBook) -> None:
    arguments = {"day": "Friday", "time": "7:30 pm", "people": 4, "name": "  Ana   Nováková "}

    result = await FunctionTool.of(book_table).call(arguments, at(time_zone="Europe/Prague"))

    assert result.output == {
        "number": FIRST_NUMBER,
        "confirmation": "Table for 4 people on Friday, 3 April 2026 at 19:30 in the name of Ana Nováková, "
        f"confirmation number {FIRST_NUMBER}.",
    }
    [kept] = empty_book.bookings
    assert kept.start == datetime(2026, 4, 3, 17, 30, tzinfo=UTC)
    again = await FunctionTool.of(book_table).call(arguments, at())
    assert again.output["number"] == FIRST_NUMBER + 1


@pytest.mark.parametrize(
    ("day", "hour", "people", "name", "told"),
    [
        ("today", "11:00", 2, "Ana", "Wednesday, 1 April 2026 at 11:00 has passed already"),
        ("today", "12:00", 2, "Ana", "has passed already"),
        ("2026-03-31", "19:00", 2, "Ana", "has passed already"),
        ("today", "22:00", 2, "Ana", "Tables are given from 08:00 to 20:30"),
        ("today", "3 am", 2, "Ana", "Tables are given from"),
        ("today", "19:00", 0, "Ana", f"one to {SEATS} people"),
        ("today", "19:00", SEATS + 1, "Ana", f"one to {SEATS} people"),
        ("today", "19:00", 2, "  ", "The name is missing"),
        ("2026-07-01", "19:00", 2, "Ana", "only 60 days ahead"),
        ("someday", "19:00", 2, "Ana", "Give it as today, tomorrow, a weekday, or a date such as 2026-04-01."),
        ("today", "soon", 2, "Ana", "The time is not clear"),
    ],
)  # fmt: skip
async def test_what_cannot_be_booked_says_what_to_do(
    day: str, hour: str, people: int, name: str, told: str, empty_book: BookingBook
) -> None:
    with pytest.raises(ToolError) as caught:
        await book_table(day, hour, people, name, at())

    assert told in str(caught.value)
    assert empty_book.bookings == []


async def test_tables_run_out_and_become_free_again(empty_book: BookingBook) -> None:
    for number in range(TABLES):
        await book_table("today", "18:00", 2, f"guest {number}", at())

    with pytest.raises(ToolError, match="All tables are taken"):
        await book_table("today", "19:29", 2, "Ana", at())
    with pytest.raises(ToolError, match="All tables are taken"):
        await book_table("today", "16:31", 2, "Ana", at())
    await book_table("today", "19:30", 2, "Ana", at())
    await book_table("tomorrow", "18:00", 2, "Ana", at())
    assert len(empty_book.bookings) == TABLES + 2

    await book_table("tomorrow", "18:00", 2, "Ana", at(WEDNESDAY_NOON + timedelta(hours=10)))
    assert len(empty_book.bookings) == 2  # the evening's are over and forgotten


async def test_the_users_own_day_and_zone_count() -> None:
    """Half past eleven in the evening in Prague is tomorrow already in Tokyo."""
    now = datetime(2026, 3, 31, 21, 30, tzinfo=UTC)

    in_prague = await book_table("tomorrow", "10:00", 2, "Ana", at(now, "Europe/Prague"))
    in_tokyo = await book_table("tomorrow", "10:00", 2, "Ana", at(now, "Asia/Tokyo"))

    assert "Wednesday, 1 April 2026 at 10:00" in str(in_prague["confirmation"])
    assert "Thursday, 2 April 2026 at 10:00" in str(in_tokyo["confirmation"])


async def test_the_day_the_clocks_change() -> None:
    """At 8:30 on that day in Prague it is 6:30 in UTC, not 7:30 as the evening before."""
    now = datetime(2026, 3, 29, 6, 30, tzinfo=UTC)

    with pytest.raises(ToolError, match="has passed already"):
        await book_table("today", "8:30", 2, "Ana", at(now, "Europe/Prague"))
    assert (await book_table("today", "8:31", 2, "Ana", at(now, "Europe/Prague")))["number"] == FIRST_NUMBER


async def test_a_cancelled_call_books_nothing(empty_book: BookingBook) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await book_table("today", "19:00", 2, "Ana", at())

    assert scope.cancelled_caught
    assert empty_book.bookings == []


EVENING = time(19)


@pytest.mark.parametrize(
    ("text", "hour", "expected"),
    [
        ("today", EVENING, date(2026, 4, 1)),
        ("Tonight", EVENING, date(2026, 4, 1)),
        ("tomorrow", EVENING, date(2026, 4, 2)),
        ("the day after tomorrow", EVENING, date(2026, 4, 3)),
        ("Friday", EVENING, date(2026, 4, 3)),
        ("on fri.", EVENING, date(2026, 4, 3)),
        ("this Tuesday", EVENING, date(2026, 4, 7)),
        ("Wednesday", EVENING, date(2026, 4, 1)),  # still ahead
        ("Wednesday", time(9), date(2026, 4, 8)),  # passed
        ("next Wednesday", EVENING, date(2026, 4, 8)),
        (" 2026-05-01 ", EVENING, date(2026, 5, 1)),
    ],
)
def test_days(text: str, hour: time, expected: date) -> None:
    assert read_day(text, hour, WEDNESDAY_NOON) == expected


@pytest.mark.parametrize("text", ["", "  ", "2026-02-30", "the 5th", "x" * 10_000])
def test_days_that_are_not_clear(text: str) -> None:
    with pytest.raises(ToolError):
        read_day(text, EVENING, WEDNESDAY_NOON)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("19:30", time(19, 30)),
        ("19.30", time(19, 30)),
        ("7 pm", time(19)),
        ("7:30pm", time(19, 30)),
        ("7.30 p.m.", time(19, 30)),
        ("seven", time(19)),
        ("at seven o'clock", time(19)),
        ("seven thirty", time(19, 30)),
        ("half past seven", time(19, 30)),
        ("quarter past eight in the evening", time(20, 15)),
        ("eight in the morning", time(8)),
        ("8", time(8)),
        ("12 pm", time(12)),
        ("12 am", time(0)),
        ("noon", time(12)),
        ("midday", time(12)),
        ("11", time(11)),
        ("19", time(19)),
    ],
)
def test_times(text: str, expected: time) -> None:
    assert read_time(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "25:00", "19:61", "7:5", "19:30:00", "1900", "9" * 10_000])
def test_times_that_are_not_clear(text: str) -> None:
    with pytest.raises(ToolError):
        read_time(text)


def test_the_book_cannot_grow_without_end(empty_book: BookingBook) -> None:
    """The days it looks ahead and the tables bound it: here, a week's worth of trying."""
    tried = 0
    for minutes in range(0, 7 * 24 * 60, 10):
        tried += 1
        try:
            empty_book.add(WEDNESDAY_NOON + timedelta(minutes=minutes), 2, "Ana", WEDNESDAY_NOON)
        except ToolError:
            continue

    assert len(empty_book.bookings) <= TABLES * (7 * 24 * 60 / (STAY.total_seconds() / 60) + 1) < tried * TABLES
