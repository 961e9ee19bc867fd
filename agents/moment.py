"""What time it is where the user is. "Tomorrow" is a day off around midnight when a model is told the server's time (C48)."""

from datetime import UTC, date, datetime, tzinfo
from zoneinfo import ZoneInfo

from engine.interfaces import Context

# Not strftime: its names follow the process's C locale.
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def zone(name: str) -> tzinfo:
    """The IANA zone of that name. UTC when there is none: the door has warned the client of it already."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; not a zone's name; a directory of zones, such as "Europe"
        return UTC


def local_now(context: Context) -> datetime:
    """The wall clock's time in the user's own zone."""
    return context.environment.wall_clock().astimezone(zone(context.configuration.time_zone))


def describe_date(moment: date) -> str:
    """Such as "Sunday, 29 March 2026"."""
    return f"{WEEKDAYS[moment.weekday()]}, {moment.day} {MONTHS[moment.month - 1]} {moment.year}"


def describe(moment: datetime) -> str:
    """Such as "Sunday, 29 March 2026, 00:30 (2026-03-29T00:30+01:00, Europe/Prague)": for the model's speech and its tools."""
    return f"{describe_date(moment)}, {moment:%H:%M} ({moment.isoformat(timespec='minutes')}, {moment.tzinfo})"
