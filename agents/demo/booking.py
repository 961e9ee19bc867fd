"""The booking book of Café Souffleur, and an example of a tool: a typed function with a docstring.

It is a real book, with tables that run out and hours that have passed, but it is kept in memory and gone with the process.
"""

import re
from datetime import UTC, date, datetime, time, timedelta

import attrs
import trio

from agents.moment import WEEKDAYS, describe_date, local_now
from agents.tools import tool
from engine.interfaces import Context, ToolError

TABLES = 6
SEATS = 6
"""At each table; tables are not pushed together."""
STAY = timedelta(minutes=90)
"""How long a table is kept for its guests."""
OPENS, LAST_TABLE = time(8), time(20, 30)
DAYS_AHEAD = 60
"""How far ahead the book goes, which also bounds how much it can hold."""
FIRST_NUMBER = 101
NAME_CHARACTERS = 80

DAYS = {
    "today": 0,
    "tonight": 0,
    "this evening": 0,
    "tomorrow": 1,
    "day after tomorrow": 2,
    "the day after tomorrow": 2,
}

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
SPOKEN = (
    (r"(?<![a-z])([ap])\.? ?m\b\.?", r"\1m"),
    (r"\bin the (afternoon|evening)\b|\btonight\b", "pm"),
    (r"\bin the morning\b", "am"),
    (r"\b(at|around|about)\b|\bo'?clock\b", ""),
    *((rf"\b{word}\b", str(number)) for number, word in enumerate(NUMBERS, start=1)),
    (r"\bhalf past (\d+)|\b(\d+) thirty\b", r"\1\2:30"),
    (r"\bquarter past (\d+)|\b(\d+) fifteen\b", r"\1\2:15"),
    (r"\b(noon|midday)\b", "12:00"),
)
"""How a time is said, and how it is written; in this order."""


@attrs.frozen
class Booking:
    number: int
    start: datetime
    """Aware, in UTC: guests may call from anywhere, the tables are the same."""
    people: int
    name: str


@attrs.define(eq=False)
class BookingBook:
    """Which tables are taken, and when."""

    bookings: list[Booking] = attrs.field(factory=list[Booking])
    _next_number: int = FIRST_NUMBER

    def add(self, start: datetime, people: int, name: str, now: datetime) -> Booking:
        """Take a table. All times are aware, in UTC.

        Raises:
            ToolError: none is free at that time.
        """
        self.bookings = [booking for booking in self.bookings if booking.start + STAY > now]
        taken = sum(abs(booking.start - start) < STAY for booking in self.bookings)
        if taken >= TABLES:
            raise ToolError("All tables are taken at that time. Offer the user a time at least ninety minutes away.")
        booking = Booking(self._next_number, start, people, name)
        self._next_number += 1
        self.bookings.append(booking)
        return booking


book = BookingBook()


@tool(on_interruption="shield")  # a table must not be taken without the user hearing of it
async def book_table(day: str, time: str, people: int, name: str, context: Context) -> dict[str, object]:
    """Book a table at the café. Returns the confirmation with its number.

    Args:
        day: "today", "tomorrow", a weekday such as "Friday", or a date such as "2026-03-29".
        time: When the guests come, such as "19:30" or "7:30 pm".
        people: How many guests.
        name: In whose name.
    """
    now = local_now(context)
    if not 1 <= people <= SEATS:
        raise ToolError(f"A table is for one to {SEATS} people. Tell the user, and ask how many they are.")
    if not (guest := " ".join(name.split())[:NAME_CHARACTERS]):
        raise ToolError("The name is missing. Ask the user in whose name the table is.")
    at = read_time(time)
    if not OPENS <= at <= LAST_TABLE:
        raise ToolError(f"Tables are given from {OPENS:%H:%M} to {LAST_TABLE:%H:%M}. Ask the user for another time.")
    start = datetime.combine(read_day(day, at, now), at, now.tzinfo)
    # Compared in UTC: two times of one zone are compared by their clocks, which jump twice a year.
    if start.astimezone(UTC) <= now.astimezone(UTC):
        raise ToolError(f"{describe_date(start)} at {start:%H:%M} has passed already. Ask the user for a later time.")
    if start.date() > now.date() + timedelta(days=DAYS_AHEAD):
        raise ToolError(f"The book goes only {DAYS_AHEAD} days ahead. Ask the user for an earlier day.")
    await trio.lowlevel.checkpoint()  # the last moment to be cancelled: what follows is done whole
    tables = BookingBook() if context.session.test_mode else book  # nobody comes of a try, so it takes nobody's table
    booking = tables.add(start.astimezone(UTC), people, guest, now.astimezone(UTC))
    guests = "1 person" if people == 1 else f"{people} people"
    return {
        "number": booking.number,
        "confirmation": f"Table for {guests} on {describe_date(start)} at {start:%H:%M} in the name of {guest}, "
        f"confirmation number {booking.number}.",
    }


def read_day(text: str, at: time, now: datetime) -> date:
    """The date that is meant, seen from `now`. A weekday is the next one to come, today's if `at` is still ahead.

    Raises:
        ToolError: it cannot be told.
    """
    today = now.date()
    words = text.lower().strip(" .")
    if words in DAYS:
        return today + timedelta(days=DAYS[words])
    name = words.split(" ")[-1]
    for index, weekday in enumerate(WEEKDAYS):
        if name in (weekday.lower(), weekday[:3].lower()):
            ahead = (index - today.weekday()) % 7
            is_over = ahead == 0 and ("next" in words or at <= now.time())
            return today + timedelta(days=7 if is_over else ahead)
    try:
        return date.fromisoformat(words)
    except ValueError as exc:
        raise ToolError(
            f"The day is not clear. Give it as today, tomorrow, a weekday, or a date such as {today.isoformat()}."
        ) from exc


def read_time(text: str) -> time:
    """The time that is meant: "19:30", "7 pm", "7.30 p.m.", "half past seven", "noon". From one to seven it is the afternoon
    or evening when nothing else is said, as the café is closed in the small hours.

    Raises:
        ToolError: it cannot be told.
    """
    words = text.lower()
    for pattern, written in SPOKEN:
        words = re.sub(pattern, written, words)
    found = re.fullmatch(r"(\d{1,2})(?: ?[:.] ?(\d{2}))? ?(am|pm)?", " ".join(words.split()))
    if found:
        hour, minute, half_day = int(found[1]), int(found[2] or 0), found[3]
        if half_day and 1 <= hour <= 12:
            hour = hour % 12 + (12 if half_day == "pm" else 0)
        elif not half_day and 1 <= hour < OPENS.hour:
            hour += 12
        if hour < 24 and minute < 60:
            return time(hour, minute)
    raise ToolError('The time is not clear. Give it as "19:30" or "7:30 pm".')
