"""Text to typed constants the way Spark casts string literals, and the zone rules for times without one."""

from __future__ import annotations

import errno
import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from lakebed.expressions.zones import SHORT_IDS
from lakebed.filters.predicates import Literal
from lakebed.storage.failure import from_os_error

INSTANT = pa.timestamp("us", tz="UTC")
LOCAL_TIME = pa.timestamp("us")

_DATE = re.compile(r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?\s*", re.ASCII)
_TIMESTAMP = re.compile(
    r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?\s?(\S+)?)?)?)?\s*",
    re.ASCII,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.ASCII)


class SparkOnly(Exception):
    """A piece of SQL that lakebed leaves to Spark; the text says why."""


def parse_date(text: str) -> date:
    """A date as Spark casts it from text.

    >>> parse_date("2024-2-3")
    datetime.date(2024, 2, 3)
    """
    found = _DATE.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        return date(int(found[1]), int(found[2] or 1), int(found[3] or 1))
    except ValueError:
        raise SparkOnly(f"{text!r} is no date as yyyy-MM-dd") from None


def parse_timestamp(text: str) -> datetime:
    """A time as Spark casts it from text: aware where the text names a zone, naive otherwise.

    >>> parse_timestamp("2024-02-03 04:05:06.5Z")
    datetime.datetime(2024, 2, 3, 4, 5, 6, 500000, tzinfo=datetime.timezone.utc)
    """
    found = _TIMESTAMP.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        year, month, day, hour, minute, second = (int(found[i] or (1 if i < 4 else 0)) for i in range(1, 7))
        micros = int((found[7] or "").ljust(6, "0"))
        zone = parse_zone(found[8]) if found[8] else None
        return datetime(year, month, day, hour, minute, second, micros, tzinfo=zone)
    except ValueError:
        raise SparkOnly(f"{text!r} is no time as yyyy-MM-dd HH:mm:ss") from None


def parse_zone(text: str) -> tzinfo:
    """A zone by offset, region name or one of Java's short names; `ValueError` for anything else.

    >>> parse_zone("+05:30").utcoffset(None)
    datetime.timedelta(seconds=19800)
    """
    if text in ("Z", "UTC", "GMT", "UT"):
        return UTC
    if found := _OFFSET.fullmatch(text):
        hours, minutes, seconds = (int(found[part] or 0) for part in (2, 3, 4))
        if max(minutes, seconds) > 59:
            raise ValueError(f"unknown time zone {text!r}")
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(SHORT_IDS.get(text, text))
    except (ZoneInfoNotFoundError, OSError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise from_os_error(error, "read", f"the time zone {text}") from error
        raise ValueError(f"unknown time zone {text!r}") from None


def as_instant(value: datetime, zone: tzinfo) -> Literal:
    """A time as a point in time; one without zone is taken in `zone`."""
    try:
        return Literal((value if value.tzinfo else value.replace(tzinfo=zone)).astimezone(UTC), INSTANT)
    except OverflowError:
        raise SparkOnly("a time at the edge of the calendar") from None


def midnight(value: date) -> datetime:
    return datetime(value.year, value.month, value.day)


def number_literal(text: str) -> Literal:
    """A number as Spark types it: int or bigint, decimal with a point, double with an exponent."""
    if "e" in text.lower():
        return Literal(float(text), pa.float64())
    if "." not in text and -(2**63) <= int(text) < 2**63:
        value = int(text)
        return Literal(value, pa.int32() if -(2**31) <= value < 2**31 else pa.int64())
    return decimal_literal(Decimal(text))


def decimal_literal(value: Decimal) -> Literal:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    if precision > 38:
        raise SparkOnly(f"{value} has more than 38 digits")
    return Literal(value, pa.decimal128(precision, scale))
