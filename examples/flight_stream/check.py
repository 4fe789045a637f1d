"""What the tables must hold, computed straight from the events and from the flights, and compared value by value."""

from __future__ import annotations

import duckdb
import polars as pl

import lakebed
from flight_stream.events import COLUMNS
from flight_stream.steps import Lake
from lakebed.errors import LakebedError

_SILVER = """
    SELECT * EXCLUDE (event, seen, number) FROM (
        SELECT *, row_number() OVER (PARTITION BY flight ORDER BY "at" DESC) AS number
        FROM (SELECT DISTINCT * EXCLUDE (seen), NULL AS seen FROM events)
    ) WHERE number = 1 AND kind <> 'cancelled'
"""
_GOLD = """
    SELECT carrier, month, count(*) AS flights, count(arr_delay) AS arrived,
        coalesce(sum(arr_delay), 0)::BIGINT AS delay
    FROM flown GROUP BY ALL
"""
_MEANS = "SELECT carrier, month, delay / arrived AS mean_delay FROM gold"


class Mismatch(LakebedError):
    """A table holds something else than the straight computation."""


def compare(name: str, found: pl.DataFrame, expected: pl.DataFrame, key: list[str], *, only_all: bool = True) -> int:
    """The number of rows, which are equal in every value; with `only_all` there are no other columns.

    Raises `Mismatch` with the first difference.
    """
    lacking = set(expected.columns) - set(found.columns)
    if lacking or (only_all and found.width > expected.width):
        raise Mismatch(f"{name}: the columns are {found.columns}, they must be {expected.columns}")
    found = found.select(expected.columns).sort(key)
    expected = expected.cast(dict(found.schema)).sort(key)  # pyright: ignore[reportArgumentType]
    if found.equals(expected):
        return found.height
    for one, other, what in ((expected, found, "missing"), (found, expected, "too many")):
        lone = one.join(other, on=expected.columns, how="anti", nulls_equal=True)
        if lone.height:
            raise Mismatch(f"{name}: {lone.height:,} rows are {what}, first {lone.row(0, named=True)}")
    raise Mismatch(f"{name}: rows are there more than once ({found.height:,}, it must be {expected.height:,})")


def check(lake: Lake, events: pl.DataFrame, flights: pl.DataFrame) -> list[tuple[str, int]]:
    """Hold the tables against the events, silver and gold against the flights as well; what was equal, with rows."""
    bronze, silver, gold = (_rows(uri) for uri in lake.tables)
    silver = silver.drop("_hoodie_is_deleted")
    raw = events.select(COLUMNS).unique("event")
    latest = _query(_SILVER, "events", events)
    flown = flights.filter(pl.col("dep_time").is_not_null()).select(
        pl.col("identifier").alias("flight"), "carrier", "month", "origin", "dest", "dep_delay", "arr_delay"
    )
    sums = _query(_GOLD, "flown", flown)
    means = flown.group_by("carrier", "month").agg(mean_delay=pl.col("arr_delay").mean())
    read = lakebed.sql(_MEANS, {"gold": lake.gold})
    assert isinstance(read, lakebed.QueryResult)
    by = ["carrier", "month"]
    return [
        ("bronze, each event once", compare("bronze", bronze, raw, ["event"])),
        ("silver, the latest event of each flight", compare("silver", silver, latest, ["flight"])),
        (
            "silver, the flights that left by the airlines' file",
            compare("silver", silver, flown, ["flight"], only_all=False),
        ),
        ("gold, carriers and months of these flights", compare("gold", gold, sums, by)),
        ("gold, their mean delays by a query", compare("mean delays", read.to_polars(), means, by)),
    ]


def _rows(uri: str) -> pl.DataFrame:
    rows = pl.from_arrow(lakebed.open(uri).to_arrow())
    assert isinstance(rows, pl.DataFrame)
    return rows


def _query(text: str, name: str, rows: pl.DataFrame) -> pl.DataFrame:
    with duckdb.connect() as connection:
        relation = connection.register(name, rows.to_arrow()).sql(text)
        assert relation is not None
        return relation.pl()
