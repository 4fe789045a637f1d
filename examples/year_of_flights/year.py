"""The year as a stream of batches: a schedule, then what a messy feed of departures and arrivals makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np
import polars as pl

from year_of_flights.flights import ACTUALS, KEY, PARTITION, event_times

_PUBLISHED = datetime(2012, 12, 1, tzinfo=UTC)
_MONTHS = ("Jan, Feb", "Mar, Apr", "May, Jun", "Jul, Aug", "Sep, Oct", "Nov, Dec")
_SEED = 2013
# Shares of the flights that the feed treats badly.
_EXTRA, _LATE_DEPARTURE, _LATE_ARRIVAL, _TWICE, _AGAIN = 0.03, 0.02, 0.05, 0.02, 0.01

Operation = Literal["bulk_insert", "upsert", "delete"]


@dataclass(frozen=True)
class Step:
    """One write: its rows (for a delete: key and partition columns, or a predicate) and what there is to say of it."""

    name: str
    operation: Operation
    story: str
    rows: pl.DataFrame
    predicate: str | None = None


def year(flights: pl.DataFrame) -> Iterator[Step]:
    """The writes of the year, in order. The same flights give the same batches every time."""
    known = marked(flights)
    planned = known.filter(~pl.col("extra"))
    yield Step(
        "schedule",
        "bulk_insert",
        f"The schedule is loaded: {planned.height:,} flights, their actual times still empty.",
        rows_at(planned, "scheduled"),
    )
    feed = _feed(known)
    for number, months in enumerate(_MONTHS):
        batch = feed.filter(pl.col("batch") == number)
        yield Step(months, "upsert", _story(batch), _shuffled(batch, number))
        cancelled = known.filter((pl.col("period") == number) & pl.col("dep_time").is_null())
        if number < len(_MONTHS) - 1:
            yield Step(
                months,
                "delete",
                f"{cancelled.height:,} flights were cancelled: deleted by key.",
                cancelled.select(*KEY, PARTITION),
            )
    late = feed.filter(pl.col("batch") == len(_MONTHS))
    yield Step(
        "stragglers",
        "upsert",
        f"After New Year {late.height:,} reports are still coming in, some for rows that know better already.",
        _shuffled(late, len(_MONTHS)),
    )
    yield Step(
        "never left",
        "delete",
        "What has not left by now never will: deleted by predicate, dep_time IS NULL.",
        pl.DataFrame(),
        predicate="dep_time IS NULL",
    )


def marked(flights: pl.DataFrame) -> pl.DataFrame:
    """Each flight with its two-month period and what the feed does to it."""
    chance = np.random.default_rng(_SEED).random((6, flights.height))
    return event_times(flights).with_columns(
        period=(pl.col("month") - 1) // 2,
        extra=pl.Series(chance[0] < _EXTRA),
        departure_late=pl.Series(chance[1] < _LATE_DEPARTURE),
        arrival_late=pl.Series(chance[2] < _LATE_ARRIVAL),
        departure_twice=pl.Series(chance[3] < _TWICE),
        arrival_twice=pl.Series(chance[4] < _TWICE),
        again=pl.Series(chance[5] < _AGAIN),
    )


def _feed(known: pl.DataFrame) -> pl.DataFrame:
    """All reports of the year with the batch they come in with.

    Late ones come a batch later than their period, so a departure may follow its own arrival; some come twice in one
    batch, some again in the next.
    """
    gone = known.filter(pl.col("dep_time").is_not_null())
    landed = gone.filter(pl.col("landed").is_not_null())
    extra = rows_at(known.filter("extra"), "scheduled", "period")
    left = rows_at(gone, "departed", pl.col("period") + pl.col("departure_late"))
    back = rows_at(landed, "arrived", pl.col("period") + pl.col("arrival_late"))
    return pl.concat(
        [
            extra,
            left,
            back,
            left.filter(gone["departure_twice"]),
            back.filter(landed["arrival_twice"]),
            back.filter(landed["again"]).with_columns(pl.col("batch") + 1),
        ]
    ).filter(pl.col("batch") <= len(_MONTHS))


def rows_at(
    flights: pl.DataFrame,
    status: Literal["scheduled", "departed", "arrived"],
    batch: str | pl.Expr | None = None,
) -> pl.DataFrame:
    """The flights as table rows at one point of their life, with what is known then."""
    unknown = {"scheduled": ACTUALS, "departed": ("arr_time", "arr_delay", "air_time"), "arrived": ()}[status]
    at = {
        "scheduled": pl.when("extra").then(pl.col("planned").dt.offset_by("-1d")).otherwise(pl.lit(_PUBLISHED)),
        "departed": pl.col("left"),
        "arrived": pl.col("landed"),
    }[status]
    number = pl.lit(None) if batch is None else (pl.col(batch) if isinstance(batch, str) else batch)
    rows = flights.with_columns(
        *[pl.lit(None, pl.Int32).alias(name) for name in unknown],
        status=pl.lit(status),
        event_time=at.cast(pl.Datetime("us", "UTC")),
        batch=number.cast(pl.Int32),
    )
    columns = [*flights.columns[: flights.columns.index("planned")], "status", "event_time"]
    return rows.select(columns if batch is None else [*columns, "batch"])


def _shuffled(batch: pl.DataFrame, seed: int) -> pl.DataFrame:
    return batch.drop("batch").sample(fraction=1.0, shuffle=True, seed=_SEED + seed)


def _story(batch: pl.DataFrame) -> str:
    counts = dict(batch.group_by("status").len().iter_rows())
    keys = batch.select(KEY).n_unique()
    return (
        f"{counts.get('departed', 0):,} departures, {counts.get('arrived', 0):,} arrivals and "
        f"{counts.get('scheduled', 0):,} new flights come in, for {keys:,} flights, in no order."
    )
