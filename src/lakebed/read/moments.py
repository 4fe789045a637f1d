"""Moments that a caller names: an instant, a time, a date, the number of a version, the name of a savepoint, or the
result of a write. Each becomes one instant time of the table's timeline.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, time, tzinfo
from typing import Protocol, runtime_checkable

from lakebed.config.arguments import is_integer
from lakebed.errors import InvalidOption
from lakebed.filters.coercion import parse_zone
from lakebed.model import Instant
from lakebed.properties.table_config import TableConfig
from lakebed.timeline.commit_names import commit_of_number, instant_of_savepoint, savepoint_names
from lakebed.timeline.instants import format_time, parse_time, time_zone
from lakebed.timeline.timeline import Timeline


@runtime_checkable
class AtInstant(Protocol):
    """What happened at an instant of the timeline: the result of a write, a savepoint, a version."""

    @property
    def instant(self) -> str | None: ...


When = str | int | datetime | date | Instant | AtInstant
# What `When` becomes once names and numbers are instants.
Time = str | datetime | date
BEGINNING, LATEST = "earliest", "latest"
_DIGITS = re.compile(r"\d{17}|\d{14}|\d{8}", re.ASCII)
# A text of fewer digits is no time, but the number of a version.
_MIN_DIGITS = 8


def resolve_as_of(when: When, config: TableConfig, timeline: Callable[[], Timeline], *, option: str = "as_of") -> str:
    """The instant time up to which a time-travel read sees commits, by their requested time.

    Texts are `yyyyMMddHHmmss[SSS]`, `yyyyMMdd`, `yyyy-MM-dd`, `yyyy-MM-dd HH:mm:ss[.SSS]`, ISO with `T` and an offset.
    A time without zone is in the table's zone, a date means its midnight; fourteen digits are the whole second. What
    `named_time` knows is an instant of the `timeline`, which is read only for numbers and names. Raises `InvalidOption`
    for anything else, which the caller gave as `option`.
    """
    time = named_time(when, timeline, option=option)
    try:
        return to_instant_time(time, config.timezone, option=option)
    except InvalidOption as error:
        if isinstance(time, str) and not is_time(time):
            raise _no_name(time, timeline(), option) from error
        raise


def named_time(when: When, timeline: Callable[[], Timeline], *, option: str) -> Time:
    """The instant that a number of a version, the name of a savepoint, or an object with an instant means. Other values
    are unchanged: times, dates, and texts that no savepoint has as its name.

    A text that reads as a time is a time, also if a savepoint has it as its name. A text of fewer than eight digits is
    the number of a version. Raises `InvalidOption` for a number that no commit has, and for a name of several
    savepoints.
    """
    if isinstance(when, Instant):
        return when.time
    if isinstance(when, (datetime, date)):
        return when
    if not isinstance(when, str) and is_integer(when):
        return commit_of_number(timeline(), int(when)).time  # pyright: ignore[reportArgumentType]
    if isinstance(when, AtInstant):
        if not when.instant:
            raise InvalidOption(
                f"{option} is a {type(when).__name__} without an instant: nothing was written",
                hint="name an instant of the timeline",
                context={"option": option},
            )
        return when.instant
    if not isinstance(when, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(
            f"{option} cannot be {when!r}, which is of type {type(when).__name__}",
            hint="give an instant of the timeline, a datetime, a date, the number of a version, the name of a savepoint"
            " or the result of a write",
            context={"option": option},
        )
    text = when.strip()
    if text.isdecimal() and text.isascii() and len(text) < _MIN_DIGITS and text.strip("0"):
        return commit_of_number(timeline(), int(text)).time
    if is_time(text):
        return when
    return instant_of_savepoint(timeline(), when) or when


def instant_of(when: When, timeline: Timeline) -> str:
    """The requested time of the commit that a caller names: by its instant, number or savepoint, or by a result that
    has an instant. Texts that name no commit are unchanged. Raises `InvalidOption` for times and dates."""
    named = named_time(when, lambda: timeline, option="the instant")
    if not isinstance(named, str) or _is_iso(named):
        raise InvalidOption(
            f"{str(named)!r} is a time, and a commit is needed",
            hint="name an instant of the timeline, the number of a version or a savepoint",
            context={"value": str(named)},
        )
    return named.strip()


def is_time(text: str) -> bool:
    """Whether a text reads as a time, or is a word for the beginning or the end of a timeline."""
    text = text.strip()
    if text.isdigit() or text.lower() in ("", BEGINNING, LATEST):
        return True
    return _is_iso(text)


def _is_iso(text: str) -> bool:
    """Whether a text is a time that does not consist of digits alone, as those of the timeline do."""
    with suppress(ValueError):
        return not text.strip().isdigit() and bool(datetime.fromisoformat(text.strip()))
    return False


def is_found_by_name(name: str) -> bool:
    """Whether `as_of` finds a savepoint by this name: a text that reads as a time or as a number is that.

    >>> is_found_by_name("before the import"), is_found_by_name("2026-11-30"), is_found_by_name("3")
    (True, False, False)
    """
    return bool(name.strip()) and not is_time(name)


def in_local_zone(when: When, session_zone: str | None = None) -> When:
    """The time with a zone: for a datetime without a zone, or a date, the zone of the Spark session, or of the machine
    without a session, as in Spark and Python. Others are unchanged; texts are written like the instants of the table's
    timeline.

    >>> in_local_zone(datetime(2026, 11, 21, 12), "+02:00").isoformat()
    '2026-11-21T12:00:00+02:00'
    """
    if not isinstance(when, date) or (isinstance(when, datetime) and when.tzinfo is not None):
        return when
    # pandas has datetimes of its own, which have no local zone
    local = datetime.combine(when, when.time() if isinstance(when, datetime) else time())
    return _aware(local, None if session_zone is None else parse_zone(session_zone), "a time")


def to_instant_time(when: Time, zone: str, *, option: str) -> str:
    """A time in any of the accepted forms as 17 digits in the table's zone (`UTC` or `LOCAL`).

    >>> to_instant_time("2026-11-21 11:01:49.683", "UTC", option="as_of")
    '20261121110149683'
    >>> to_instant_time("20261121110149", "UTC", option="as_of")
    '20261121110149999'
    """
    if isinstance(when, str):
        text = when.strip()
        if text.isdigit():
            check_digits(text, option)
            return {17: text, 14: text + "999", 8: text + "000000000"}[len(text)]
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise _no_time(when, option) from None
    if not isinstance(when, datetime):
        when = datetime(when.year, when.month, when.day)
    if when.tzinfo is None:
        when = _aware(when, time_zone(zone) if zone.upper() == "UTC" else None, option)
    return format_time(when, zone)


def check_digits(text: str, option: str) -> None:
    """Raise `InvalidOption` for digits that are not a time. Real Hudi's bootstrap has instants of year 0."""
    if _DIGITS.fullmatch(text):
        with suppress(InvalidOption):
            if not text.startswith("0000"):
                parse_time(text.ljust(17, "0"), "UTC")
            return
    raise _no_time(text, option)


def _no_time(when: str, option: str) -> InvalidOption:
    return InvalidOption(
        f"{option} {when!r} is no time",
        hint="give an instant of the timeline, '2026-11-21', '2026-11-21 11:01:49' or a datetime",
        context={"option": option, "value": when},
    )


def _no_name(when: str, timeline: Timeline, option: str) -> InvalidOption:
    names = ", ".join(map(repr, savepoint_names(timeline)))
    return InvalidOption(
        f"{option} {when!r} is neither a time nor the name of a savepoint",
        hint=f"The table has savepoints named {names}."
        if names
        else "Give an instant of the timeline, '2026-11-21', '2026-11-21 11:01:49', a datetime, or the number of a"
        " version; no savepoint of the table has a name.",
        context={"option": option, "value": when},
    )


def _aware(when: datetime, zone: tzinfo | None, option: str) -> datetime:
    """The time in `zone`, or in the machine's zone if it is None."""
    try:
        return when.replace(tzinfo=zone) if zone is not None else when.astimezone()
    except (ValueError, OverflowError):
        raise InvalidOption(
            f"{option} {when} is in no year from 1 to 9999 everywhere",
            hint='give "000" for the beginning',
            context={"value": str(when)},
        ) from None
