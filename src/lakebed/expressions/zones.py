"""Time zones by their Java names and the wall-clock time in them, in Spark SQL and in Arrow; years, months and days
of NumPy arrays of days since 1970-01-01 (proleptic Gregorian).
"""

from __future__ import annotations

import errno
import re
import zoneinfo
from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption
from lakebed.expressions.arrow_functions import call, register
from lakebed.schema.plain_arrow import as_numpy
from lakebed.storage.base import from_os_error

Int64s = npt.NDArray[np.int64]

DAY_MILLIS = 86_400_000


def civil_of_days(days: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The year, month and day of month of days since 1970-01-01.

    >>> [part.tolist() for part in civil_of_days(np.array([0, -1, 19756]))]
    [[1970, 1969, 2024], [1, 12, 2], [1, 31, 3]]
    """
    months = days.astype("M8[D]").astype("M8[M]")
    first_day = months.astype("M8[D]").astype(np.int64)
    since_1970 = months.astype(np.int64)
    return since_1970 // 12 + 1970, since_1970 % 12 + 1, days - first_day + 1


def days_of_civil(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """The days since 1970-01-01 of valid dates (a day beyond the month's end counts into the next month).

    >>> int(days_of_civil(np.array([2024]), np.array([2]), np.array([3]))[0])
    19756
    """
    months = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    return months.astype("M8[D]").astype(np.int64) + day - 1


def iso_week(days: Int64s) -> tuple[Int64s, Int64s]:
    """The ISO week-based year, and the week of that year.

    >>> [part.tolist() for part in iso_week(np.array([0, 19722]))]
    [[1970, 2023], [1, 52]]
    """
    thursday = days - day_of_week(days) + 4
    year = civil_of_days(thursday)[0]
    ones = np.ones_like(year)
    return year, (thursday - days_of_civil(year, ones, ones)) // 7 + 1


def day_of_week(days: Int64s) -> Int64s:
    """The day of the week: 1 for Monday to 7 for Sunday."""
    return (days + 3) % 7 + 1


# Names that Java resolves and the tz database does not hold.
SHORT_IDS = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
_FIXED_IDS = {"UTC": 0, "GMT": 0, "Z": 0, "UCT": 0, "EST": -5, "MST": -7, "HST": -10}
_GMT_OFFSET = re.compile(r"GMT([+-])(\d{1,2})(?::?(\d{2}))?")

# Offsets are looked up within years 1 to 9999; beyond them the nearest one holds.
_FIRST_MILLI, _LAST_MILLI = -62_135_596_800_000, 253_402_300_799_999
# The system's tz files list transitions up to 2037 only; what comes later follows from a rule Arrow does not read.
_LAST_LISTED_MILLI = 2_114_380_800_000
# Offsets follow from rules up to the year 9998; later ones from those of 400 years before.
_LAST_RULED_MILLI = 253_370_764_799_999
_CYCLE_MILLIS = 146_097 * 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_TIMES = "local_time"
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone: a name of the tz database, or a fixed offset in milliseconds when `name` is None."""

    name: str | None
    offset: int = 0

    @property
    def id(self) -> str:
        """The name as Joda prints it: `America/New_York`, `+08:00`, `UTC`."""
        if self.name is not None:
            return self.name
        sign, minutes = ("-" if self.offset < 0 else "+"), abs(self.offset) // 60_000
        return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if self.offset else "UTC"

    def local_millis(self, millis: pa.Array) -> pa.Array:
        """The wall-clock milliseconds of instants (int64 epoch milliseconds)."""
        return pc.add(millis, self.offsets(millis))

    def offsets(self, millis: pa.Array) -> pa.Array:
        """The zone's offset from UTC at instants, in milliseconds."""
        if self.name is None:
            return pc.multiply(millis, 0) if not self.offset else pc.add(pc.multiply(millis, 0), self.offset)
        at = pc.min_element_wise(pc.max_element_wise(millis, _FIRST_MILLI), _LAST_MILLI)
        at = pc.if_else(pc.is_valid(millis), at, pa.scalar(None, pa.int64()))
        stamps = at.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("ms", self.name))
        offsets = pc.subtract(pc.local_timestamp(stamps).cast(pa.int64()), at)
        is_unlisted = pc.fill_null(pc.greater(at, _LAST_LISTED_MILLI), False)
        if pc.any(is_unlisted).as_py():
            offsets = pc.replace_with_mask(offsets, is_unlisted, _offsets_by_rule(self.name, at.filter(is_unlisted)))
        return offsets

    def utc_millis(self, local: pa.Array) -> pa.Array:
        """The instants of wall-clock milliseconds: the earlier one when clocks are put back, null in a gap."""
        # the offset before any change on that day and the one after it: one of the two is right
        before = pc.subtract(local, self.offsets(pc.subtract(local, 86_400_000)))
        after = pc.subtract(local, self.offsets(pc.add(local, 86_400_000)))
        fits = [pc.equal(self.local_millis(candidate), local) for candidate in (before, after)]
        missing = pa.scalar(None, pa.int64())
        return pc.if_else(fits[0], before, pc.if_else(fits[1], after, missing))

    def offsets_sql(self, millis: str) -> str:
        """`offsets` over a Spark SQL bigint expression, which is repeated in the text."""
        if self.name is None:
            return f"{self.offset}L"
        at = f"greatest(least({millis}, {_LAST_MILLI}L), {_FIRST_MILLI}L)"
        return f"(unix_micros(from_utc_timestamp(timestamp_micros({at} * 1000L), '{self.name}')) DIV 1000L - {at})"

    def local_sql(self, millis: str) -> str:
        """`local_millis` over a Spark SQL bigint expression, which is repeated in the text."""
        return f"({millis} + {self.offsets_sql(millis)})"

    def utc_sql(self, local: str) -> str:
        """`utc_millis` over a Spark SQL bigint expression, which is repeated in the text."""
        if self.name is None:
            return f"({local} - {self.offset}L)"
        before = f"({local} - {self.offsets_sql(f'({local} - 86400000L)')})"
        after = f"({local} - {self.offsets_sql(f'({local} + 86400000L)')})"
        return (
            f"CASE WHEN {self.local_sql(before)} = {local} THEN {before} "
            f"WHEN {self.local_sql(after)} = {local} THEN {after} END"
        )


UTC_ZONE = Zone(None)


@lru_cache
def java_zone(text: str) -> Zone:
    """The zone Java means by a name: `UTC`, `GMT+8:00`, `America/New_York`, `PST`.

    Java takes a name it does not know (`+08:00`, `UTC+8`) for GMT without a word; here that is InvalidOption.

    >>> java_zone("GMT+8:00").offset, java_zone("PST").name
    (28800000, 'America/Los_Angeles')
    """
    name = text.strip()
    if name in _FIXED_IDS:
        return Zone(None, _FIXED_IDS[name] * 3_600_000)
    matched = _GMT_OFFSET.fullmatch(name)
    if matched:
        minutes = int(matched[2]) * 60 + int(matched[3] or 0)
        if int(matched[2]) < 24 and int(matched[3] or 0) < 60:
            return Zone(None, (-minutes if matched[1] == "-" else minutes) * 60_000)
    zone_name = SHORT_IDS.get(name, name)
    try:
        zoneinfo.ZoneInfo(zone_name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise from_os_error(error, "read", f"the time zone {zone_name}") from error
        raise InvalidOption(
            f"unknown time zone {text!r}",
            hint="Name it as the tz database does (Asia/Tokyo), or like GMT+8:00; Hudi takes this one for GMT",
            context={"zone": text},
        ) from error
    return UTC_ZONE if zone_name in ("Etc/UTC", "Etc/GMT", "Zulu", "Universal", "Greenwich") else Zone(zone_name)


def local_times(instants: pa.Array, zone: str) -> pa.Array:
    """The wall-clock times, `timestamp[us]`, of instants of that unit in a zone of Arrow's (a name, or `+05:30`).

    >>> noon = pa.array([2_540_289_600_000_000], pa.timestamp("us", "UTC"))
    >>> local_times(noon, "America/New_York")[0].as_py().isoformat()
    '2050-07-01T08:00:00'
    """
    local = pc.local_timestamp(instants.cast(pa.timestamp("us", zone)))
    micros = instants.cast(pa.int64())
    is_unlisted = pc.fill_null(pc.greater(micros, _LAST_LISTED_MILLI * 1000), False)
    if zone[:1] in "+-" or not pc.any(is_unlisted).as_py():
        return local
    unlisted_micros = micros.filter(is_unlisted)
    offsets = _offsets_by_rule(zone, pc.divide(unlisted_micros, 1000))
    return pc.replace_with_mask(
        local, is_unlisted, pc.add(unlisted_micros, pc.multiply(offsets, 1000)).cast(local.type)
    )


def local_expression(instant: pc.Expression, zone: str) -> pc.Expression:
    """The expression of the local times of an instant, as `local_times` computes them for values."""
    return call(_LOCAL_TIMES, instant.cast(_INSTANT), pc.scalar(zone))


register(
    _LOCAL_TIMES,
    "the wall-clock time of an instant, also after 2037",
    {"instant": _INSTANT, "zone": pa.string()},
    pa.timestamp("us"),
    local_times,
)


def _offsets_by_rule(name: str, millis: pa.Array) -> pa.Array:
    """The offsets of late instants, from the changes of their years. Beyond the year 9999 they are those of some 400
    years before, after which days and weekdays repeat."""
    at: Int64s = as_numpy(millis)
    at = at - np.maximum(0, -((_LAST_RULED_MILLI - at) // _CYCLE_MILLIS)) * _CYCLE_MILLIS
    years = at.astype("datetime64[ms]").astype("datetime64[Y]").astype(np.int64) + 1970
    changes = [_changes(name, year) for year in np.unique(years).tolist()]
    starts, offsets = (
        np.array([value for year_changes in changes for value in year_changes[side]], np.int64) for side in (0, 1)
    )
    return pa.array(offsets[np.searchsorted(starts, at, side="right") - 1])


@lru_cache(1 << 14)
def _changes(name: str, year: int) -> tuple[list[int], list[int]]:
    """The instants in a year at which the offset changes, in milliseconds, preceded by the beginning of the year, and
    the offset from each of them on."""
    zone, begin = zoneinfo.ZoneInfo(name), datetime(year, 1, 1, tzinfo=UTC)
    first = (begin - _EPOCH) // timedelta(milliseconds=1)
    starts, offsets = [first], [_offset_at(begin, zone)]
    days = (datetime(year, 12, 31, tzinfo=UTC) - begin).days + 1
    for day in range(1, days + 1):
        after = begin + timedelta(days=day)
        offset = _offset_at(after, zone)
        if offset != offsets[-1]:
            before, seconds = after - timedelta(days=1), range(86_401)
            second = bisect_left(seconds, True, key=partial(_is_changed, before, zone, offsets[-1]))
            starts.append(first + (day - 1) * 86_400_000 + second * 1000)
            offsets.append(offset)
    return starts, offsets


def _is_changed(begin: datetime, zone: zoneinfo.ZoneInfo, offset: int, second: int) -> bool:
    """Whether the offset differs `second` seconds later."""
    return _offset_at(begin + timedelta(seconds=second), zone) != offset


def _offset_at(moment: datetime, zone: zoneinfo.ZoneInfo) -> int:
    offset = moment.astimezone(zone).utcoffset()
    return 0 if offset is None else round(offset.total_seconds() * 1000)
