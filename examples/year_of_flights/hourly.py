"""The same year in a merge-on-read table: small upserts that append to log files, compaction by itself when due."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

import lakebed
from lakebed import WriteResult
from year_of_flights.check import Mismatch
from year_of_flights.flights import KEY, PARTITION
from year_of_flights.hours import BEFORE, hours, rows_after
from year_of_flights.model import final_state
from year_of_flights.reporter import Reporter
from year_of_flights.year import Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUCKETS = 2
_COMPACT_AFTER = 24
# So many writes back the past is read; cleaning keeps what the last ten commits see.
_KEPT = 6

Check = Callable[[str, pl.DataFrame, pl.DataFrame, float], None]


@dataclass
class Day:
    """The writes of one day of the last week, or of all days before it."""

    name: str
    writes: int = 0
    rows: int = 0
    log_files: int = 0
    log_bytes: int = 0
    seconds: float = 0.0
    compactions: int = 0

    def add(self, step: Step, result: WriteResult, seconds: float) -> None:
        self.writes += 1
        self.rows += step.rows.height
        logs = [file for file in result.files if ".log." in file]
        self.log_files += len(logs)
        self.log_bytes += result.bytes if logs else 0
        self.seconds += seconds
        self.compactions += has_compacted(result)


@dataclass
class Hourly:
    """What was written and when the table was compacted: `compacted` counts the writes before it last was."""

    table: lakebed.Table
    steps: list[Step]
    results: list[WriteResult]
    days: dict[str, Day]
    compacted: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {"table": self.table.uri, "days": [asdict(day) for day in self.days.values()]}


def make(uri: str, schema: pa.Schema, spark: SparkSession) -> lakebed.Table:
    """An empty merge-on-read table that is to be compacted every so many writes."""
    return lakebed.create(
        uri,
        schema,
        key=KEY,
        partition_by=PARTITION,
        ordering="event_time",
        type="mor",
        index="bucket",
        buckets=_BUCKETS,
        spark=spark,
        properties={
            "hoodie.datasource.write.hive_style_partitioning": True,
            "hoodie.compact.inline.max.delta.commits": _COMPACT_AFTER,
        },
    )


def play(
    table: lakebed.Table, flights: pl.DataFrame, spark: SparkSession, scratch: Path, reporter: Reporter, check: Check
) -> Hourly:
    """Write the year, its last week by the hour in this process, and hold every kind of read against the input."""
    reporter.say(
        "\nThe same year once more, merge-on-read: until Christmas in three writes by Spark, then the last week as it "
        f"comes,\na small write each hour, in this process. The table compacts itself every {_COMPACT_AFTER} writes."
    )
    done = Hourly(lakebed.open(table.uri), [], [], {})
    for step in hours(flights):
        large = step.name in ("schedule", BEFORE)
        data: Any = step.rows
        if large:
            file = scratch / f"hourly-{len(done.steps)}.parquet"
            step.rows.write_parquet(file, row_group_size=32_768)
            data = spark.read.parquet(str(file))
        _write(done, step, table if large else done.table, data)
    reporter.week(list(done.days.values()))
    if not done.compacted:
        raise Mismatch(f"{len(done.steps)} writes, and the table did not compact itself")
    _read_back(done, flights, check, reporter, table)
    return done


def has_compacted(result: WriteResult) -> bool:
    """Whether the write made a compaction due; its report has cleaning and archival too."""
    return any(line.startswith("compact ") for line in result.services)


def _write(done: Hourly, step: Step, table: lakebed.Table, data: Any) -> None:
    started = time.perf_counter()
    result = getattr(table, step.operation)(data)
    seconds = time.perf_counter() - started
    if result.rows != step.rows.height:
        raise Mismatch(f"{step.name}: the write reports {result.rows:,} rows, it must be {step.rows.height:,}")
    done.days.setdefault(step.name, Day(step.name)).add(step, result, seconds)
    done.steps.append(step)
    done.results.append(result)
    if has_compacted(result):
        done.compacted = len(done.steps)


def _read_back(done: Hourly, flights: pl.DataFrame, check: Check, reporter: Reporter, by_spark: lakebed.Table) -> None:
    table, expected = done.table, final_state(flights)
    started = time.perf_counter()
    check("base and log files merged, by Spark", _polars(by_spark.scan().to_spark().toArrow()), expected, started)
    started = time.perf_counter()
    check("base and log files merged, without Spark", _polars(table.scan().to_arrow()), expected, started)
    started = time.perf_counter()
    base = _polars(table.scan(query="read_optimized").to_arrow())
    check("base files alone, as of the last compaction", base, rows_after(done.steps[: done.compacted]), started)
    recent = len(done.steps) - _KEPT
    started = time.perf_counter()
    found = _polars(table.scan(as_of=done.results[recent].instant).to_arrow())
    check(f"the table as of a write on {done.steps[recent].name}", found, rows_after(done.steps[: recent + 1]), started)
    run = table.maintenance.compact()
    reporter.say(f"  {run}")
    started = time.perf_counter()
    base = _polars(table.scan(query="read_optimized").to_arrow())
    check("base files alone, everything compacted", base, expected, started)


def _polars(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame
