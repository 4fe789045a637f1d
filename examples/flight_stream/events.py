"""The flights as a stream of events, in the order in which they come in: late ones and repeats included."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from year_of_flights.flights import event_times, read_flights

COLUMNS = ("event", "flight", "kind", "at", "carrier", "month", "origin", "dest", "dep_delay", "arr_delay")
_SEED = 2013
# Shares of the flights whose delay is corrected, that are cancelled by mistake, and of events that come late or again.
_CORRECTED, _BY_MISTAKE, _LATE, _AGAIN = 0.1, 0.01, 0.03, 0.02


def flights_of(days: int) -> pl.DataFrame:
    """The flights of the first days of the year, with the times at which they should leave, left and landed."""
    flights = event_times(read_flights())
    first = flights["planned"].min()
    return flights.filter((pl.col("planned") - pl.lit(first)).dt.total_days() < days).with_columns(
        identifier=pl.concat_str("time_hour", "carrier", "flight", separator=" ")
    )


def events_of(flights: pl.DataFrame) -> pl.DataFrame:
    """All events of the flights in the order in which they come in; `event` is the number of each, `seen` its time.

    A flight is scheduled, departs, arrives, and its delay may be corrected; or it is cancelled. Some are cancelled by
    mistake and scheduled again. Departures and arrivals may come days late, and any event may come a second time.
    The same flights make the same events.
    """
    chance = np.random.default_rng(_SEED).random((5, flights.height))
    known = flights.with_columns(
        corrected=pl.Series(chance[0] < _CORRECTED) & pl.col("arr_delay").is_not_null(),
        wrong=pl.Series(chance[1] < _BY_MISTAKE),
        late_departure=pl.Series(chance[2] < _LATE),
        late_arrival=pl.Series(chance[3] < _LATE),
        guess=pl.col("arr_delay") + pl.Series((chance[4] * 40).astype(np.int32) - 20),
    )
    left = known.filter(pl.col("dep_time").is_not_null())
    landed = left.filter(pl.col("landed").is_not_null())
    planned, none = pl.col("planned"), pl.lit(None, pl.Int32)
    delay = pl.when("corrected").then("guess").otherwise("arr_delay")
    no_delay = pl.col("dep_delay")
    parts = [
        _events(known, "scheduled", planned.dt.offset_by("-1d"), none, none),
        _events(left.filter("wrong"), "cancelled", planned.dt.offset_by("-12h"), none, none),
        _events(left.filter("wrong"), "scheduled", planned.dt.offset_by("-6h"), none, none),
        _events(left, "departed", pl.col("left"), no_delay, none, late="late_departure"),
        _events(landed, "arrived", pl.col("landed"), no_delay, delay, late="late_arrival"),
        _events(
            landed.filter("corrected"), "corrected", pl.col("landed").dt.offset_by("2h"), no_delay, pl.col("arr_delay")
        ),
        _events(known.filter(pl.col("dep_time").is_null()), "cancelled", planned.dt.offset_by("3h"), none, none),
    ]
    events = pl.concat(parts).sort("seen", "flight", "kind", "at").with_row_index("event")
    events = events.with_columns(pl.col("event").cast(pl.Int64))
    again = events.filter(pl.Series(np.random.default_rng(_SEED + 1).random(events.height) < _AGAIN))
    repeats = again.with_columns(pl.col("seen").dt.offset_by("30h"))
    return pl.concat([events, repeats]).sort("seen", "event").select(*COLUMNS, "seen")


def rounds_of(events: pl.DataFrame, count: int) -> Iterator[pl.DataFrame]:
    """The events in so many parts, in order."""
    for at in range(count):
        start, end = events.height * at // count, events.height * (at + 1) // count
        yield events.slice(start, end - start)


def as_json(events: pl.DataFrame) -> bytes:
    """A line of JSON for each event."""
    rows = events.select(COLUMNS).with_columns(pl.col("at").dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    return rows.write_ndjson().encode()


def _events(
    flights: pl.DataFrame, kind: str, at: pl.Expr, dep_delay: pl.Expr, arr_delay: pl.Expr, late: str | None = None
) -> pl.DataFrame:
    rows = flights.with_columns(at=at, kind=pl.lit(kind)).with_columns(
        seen=pl.col("at") if late is None else pl.when(late).then(pl.col("at").dt.offset_by("2d")).otherwise("at")
    )
    rows = rows.with_columns(flight="identifier", dep_delay=dep_delay, arr_delay=arr_delay)
    return rows.select(*COLUMNS[1:], "seen")
