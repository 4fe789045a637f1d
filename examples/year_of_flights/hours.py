"""The year as another feed: all of it until Christmas at once, then the last week hour by hour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import polars as pl

from year_of_flights.flights import KEY, PARTITION
from year_of_flights.year import Step, marked, rows_at

WEEK = datetime(2013, 12, 25, tzinfo=UTC)
BEFORE = "before"
_BEFORE = -1
# Reports that the feed holds up come so many hours later: departures then follow their own arrivals.
_HELD_UP = 3


def hours(flights: pl.DataFrame) -> Iterator[Step]:
    """The writes, in order: three for the year until the last week, then one for each hour that has reports, and one
    each night that deletes the day's cancelled flights. The name of an hour's write is its day."""
    known = marked(flights)
    planned = known.filter(~pl.col("extra"))
    yield Step("schedule", "bulk_insert", "", rows_at(planned, "scheduled"))
    reports = _by_hour(_reports(known))
    cancelled = _by_hour(_cancelled(known))
    for hour in sorted({*reports, *cancelled}):
        name = BEFORE if hour == _BEFORE else f"{WEEK + timedelta(hours=hour):%d %b}"
        if hour in reports:
            yield Step(name, "upsert", "", reports[hour])
        if hour in cancelled:
            yield Step(name, "delete", "", cancelled[hour])


def rows_after(steps: Sequence[Step]) -> pl.DataFrame:
    """What a table holds after these writes: of each flight the latest report, without what was deleted."""
    given = pl.concat([step.rows for step in steps if step.operation != "delete"])
    latest = given.sort("event_time", maintain_order=True).unique(KEY, keep="last")
    for step in steps:
        if step.operation == "delete":
            latest = latest.join(step.rows, on=KEY, how="anti")
    return latest


def _reports(known: pl.DataFrame) -> pl.DataFrame:
    gone = known.filter(pl.col("dep_time").is_not_null())
    landed = gone.filter(pl.col("landed").is_not_null())
    left = rows_at(gone, "departed", _hour("left") + _HELD_UP * pl.col("departure_late"))
    back = rows_at(landed, "arrived", _hour("landed") + _HELD_UP * pl.col("arrival_late"))
    extra = rows_at(known.filter("extra"), "scheduled", _hour("planned") - 24)
    reports = pl.concat([extra, left, left.filter(gone["departure_twice"]), back])
    return reports.with_columns(pl.col("batch").clip(lower_bound=_BEFORE))


def _cancelled(known: pl.DataFrame) -> pl.DataFrame:
    """Flights that never left, by the last hour of the day on which they should have."""
    night = _hour("planned") // 24 * 24 + 23
    never = known.filter(pl.col("dep_time").is_null())
    return never.select(*KEY, PARTITION, batch=night.cast(pl.Int32).clip(lower_bound=_BEFORE))


def _hour(column: str) -> pl.Expr:
    return (pl.col(column) - pl.lit(WEEK)).dt.total_minutes() // 60


def _by_hour(rows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    return {int(at[0]): part for at, part in rows.partition_by("batch", as_dict=True, include_key=False).items()}
