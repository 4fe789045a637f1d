"""What a user means by "as of": instants, timestamps and dates as one instant time."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, tzinfo

from lakebed.errors import InvalidOption
from lakebed.filters.coercion import parse_zone
from lakebed.properties.table_config import TableConfig
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.instants import format_time, time_zone
from lakebed.timeline.timeline import COMMITS

When = str | datetime | date
_DIGITS = re.compile(r"\d{17}|\d{14}|\d{8}")


def resolve_as_of(when: str | datetime | date, config: TableConfig) -> str:
    """The instant time that a time-travel read is cut at: commits with a requested time up to it are seen.

    Texts are `yyyyMMddHHmmss[SSS]`, `yyyyMMdd`, `yyyy-MM-dd`, `yyyy-MM-dd HH:mm:ss[.SSS]`, ISO with `T` and an offset.
    A time without zone is in the table's zone, a date means its midnight; fourteen digits are the whole second. Raises
    `InvalidOption` for anything else.
    """
    return to_instant_time(when, config.timezone, what="as_of")


def in_local_zone(when: When, session_zone: str | None = None) -> When:
    """A datetime without a zone, or a date, in that of the Spark session, without one in the machine's, as everywhere
    in Spark and in Python. Texts stay as they are: they are written like the instants of the table's timeline.

    >>> in_local_zone(datetime(2026, 11, 21, 12), "+02:00").isoformat()
    '2026-11-21T12:00:00+02:00'
    """
    if isinstance(when, str) or (isinstance(when, datetime) and when.tzinfo is not None):
        return when
    # pandas has datetimes of its own, which have no local zone
    local = datetime.combine(when, when.time() if isinstance(when, datetime) else time())
    return _aware(local, None if session_zone is None else parse_zone(session_zone), "a time")


def refuse_outside(view: Snapshot) -> None:
    """Raise `InvalidOption` for a view as of a time before the table's first commit, or in the future. A table without
    commits is empty at any time."""
    as_of, timeline = view.as_of, view.timeline
    if as_of is None or not timeline.commits:
        return
    first, last = timeline.commits[0].time, timeline.commits[-1].time
    now = format_time(datetime.now(UTC), view.config.timezone)
    if as_of < first:
        archived = (i.time for i in timeline.archived().instants if i.is_completed and i.action in COMMITS)
        first = min(archived, default=first)
    if first <= as_of <= max(now, last):
        return
    where = "before its first commit" if as_of < first else "in the future"
    raise InvalidOption(
        f"the time {as_of} is {where}, so table {view.config.name!r} cannot be read as of then",
        hint=f"Its commits are from {first} to {last}: name a time from the first on, up to now.",
        context={"option": "as_of", "value": as_of, "first": first, "last": last},
    )


def to_instant_time(when: str | datetime | date, zone: str, *, what: str) -> str:
    """A time in any of the accepted forms as 17 digits in the table's zone (`UTC` or `LOCAL`).

    >>> to_instant_time("2026-11-21 11:01:49.683", "UTC", what="as_of")
    '20261121110149683'
    >>> to_instant_time("20261121110149", "UTC", what="as_of")
    '20261121110149999'
    """
    if isinstance(when, str):
        text = when.strip()
        if _DIGITS.fullmatch(text):
            return {17: text, 14: text + "999", 8: text + "000000000"}[len(text)]
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidOption(
                f"{what} {when!r} is no time",
                hint="give an instant of the timeline, '2026-11-21', '2026-11-21 11:01:49' or a datetime",
                context={"option": what, "value": when},
            ) from None
    if not isinstance(when, datetime):
        when = datetime(when.year, when.month, when.day)
    if when.tzinfo is None:
        when = _aware(when, time_zone(zone) if zone.upper() == "UTC" else None, what)
    return format_time(when, zone)


def _aware(when: datetime, zone: tzinfo | None, what: str) -> datetime:
    """The time in this zone, without one in the machine's."""
    try:
        return when.replace(tzinfo=zone) if zone is not None else when.astimezone()
    except (ValueError, OverflowError):
        raise InvalidOption(
            f"{what} {when} is in no year from 1 to 9999 everywhere",
            hint='give "000" for the beginning',
            context={"value": str(when)},
        ) from None
