"""Offsets of time zones after 2037, where Arrow knows no summer time: those of the tz database's rules."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.expressions.zones import java_zone, local_times

ZONES = ["America/New_York", "Europe/Berlin", "Australia/Sydney", "America/Sao_Paulo", "Asia/Tokyo", "Europe/London"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The last summer before the bound, and both sides of it.
AROUND = [datetime(2036, 7, 1, tzinfo=UTC), datetime(2037, 1, 1, tzinfo=UTC), datetime(2037, 7, 1, tzinfo=UTC)]


def instants(zone: str) -> list[datetime]:
    """Some of every time, and those around each change of a few years."""
    chance = random.Random(zone)
    found = [EPOCH + timedelta(seconds=chance.randrange(-2_000_000_000, 250_000_000_000)) for _ in range(300)]
    found += [at + timedelta(microseconds=n) for at in AROUND for n in (-1, 0, 1)]
    for year in (2030, 2038, 2050, 2400, 9998):
        before = datetime(year, 1, 1, tzinfo=UTC)
        for hour in range(1, 365 * 24):
            at = datetime(year, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
            if at.astimezone(ZoneInfo(zone)).utcoffset() != before.astimezone(ZoneInfo(zone)).utcoffset():
                found += [at + timedelta(microseconds=n) for n in (-1, 0, 1)]
            before = at
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_local_times_are_those_of_the_tz_database(zone: str) -> None:
    given = instants(zone)
    expected = [at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for at in given]
    found = local_times(pa.array([*given, None], pa.timestamp("us", "UTC")), zone)
    assert found.to_pylist() == [*expected, None]


@pytest.mark.parametrize("zone", ZONES)
def test_instants_of_local_times_are_found_again(zone: str) -> None:
    given = pa.array(instants(zone), pa.timestamp("us", "UTC")).cast(pa.timestamp("ms", "UTC"), safe=False)
    millis = given.cast(pa.int64())
    there = java_zone(zone)
    again = there.utc_millis(there.local_millis(millis))
    # where clocks go back the earlier of two instants is meant
    assert pc.all(pc.equal(there.local_millis(again), there.local_millis(millis))).as_py()
    assert pc.all(pc.less_equal(again, millis)).as_py()


def test_years_beyond_9999_have_the_offsets_of_400_years_before() -> None:
    summer = 253_402_300_800_000_000 + 200 * 86_400_000_000  # in the year 10000
    found = local_times(pa.array([summer], pa.timestamp("us", "UTC")), "America/New_York").cast(pa.int64())
    assert found.to_pylist() == [summer - 4 * 3_600_000_000]


def test_fixed_offsets_have_no_rule() -> None:
    late = pa.array([datetime(2050, 7, 1, 12, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert local_times(late, "+05:30").to_pylist() == [datetime(2050, 7, 1, 17, 30)]
    assert local_times(late, "UTC").to_pylist() == [datetime(2050, 7, 1, 12)]
