"""Playing the year: writes through Spark, then every kind of read held against the straight computation."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pyarrow as pa

import lakebed
from year_of_flights import hourly
from year_of_flights.check import Check, Mismatch, compare, compare_counts
from year_of_flights.flights import KEY, PARTITION, read_flights
from year_of_flights.model import State, final_state
from year_of_flights.reporter import Played, Reporter
from year_of_flights.session import demo_session
from year_of_flights.year import Step, year

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUCKETS = 2
_LOOK_BACK_TO = "May, Jun"
_HOURLY = "-hourly"


@dataclass
class _Play:
    """What has happened so far: the writes, the model's state after each, the checks."""

    table: lakebed.Table
    spark: SparkSession
    scratch: Path
    reporter: Reporter
    state: State
    states: list[State] = field(default_factory=list)
    played: list[Played] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    week: hourly.Hourly | None = None

    def write(self, step: Step) -> None:
        self.reporter.say(f"{step.name}: {step.story}")
        data = self._data(step) if step.predicate is None else None
        started = time.perf_counter()
        if data is None:
            result = self.table.delete(where=step.predicate)
        else:
            result = getattr(self.table, step.operation)(data)
        seconds = time.perf_counter() - started
        self.state, counts = self.state.after(step)
        compare_counts(step.name, result, counts)
        self.states.append(self.state)
        self.played.append(Played(step, result, seconds))

    def _data(self, step: Step) -> Any:
        """The batch as a data engineer would get it: Parquet files, read by Spark."""
        file = self.scratch / f"batch-{len(self.played):02}.parquet"
        step.rows.write_parquet(file, row_group_size=32_768)
        return self.spark.read.parquet(str(file))

    def check(self, name: str, found: pl.DataFrame, expected: pl.DataFrame, started: float) -> None:
        seconds = time.perf_counter() - started
        check = compare(name, found, expected, seconds)
        self.checks.append(check)
        self.reporter.checked(check)


def main(path: str | None = None, output: Literal["text", "json"] = "text") -> int:
    """Run the demo and leave its tables at `path` and `path`-hourly (default: in a new temporary folder).

    Gives the exit code. Raises `Mismatch` if a value, a row or a count differs from the straight computation.
    """
    started = time.perf_counter()
    reporter = Reporter(quiet=output == "json")
    uri = path.rstrip("/") if path else str(Path(tempfile.mkdtemp(prefix="lakebed-demo-")) / "flights")
    scratch = Path(tempfile.mkdtemp(prefix="lakebed-demo-batches-"))
    try:
        flights = read_flights()
        reporter.say(f"{flights.height:,} flights left New York in 2013, one row each, keyed by {', '.join(KEY)}.")
        reporter.say("Starting Spark.")
        with demo_session(scratch) as spark:
            play = _play(uri, flights, spark, scratch, reporter)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    seconds = time.perf_counter() - started
    if output == "json":
        print(json.dumps(_report(uri, play, seconds)))
        return 0
    reporter.closing(play.played)
    reporter.say(f"All equal, in {seconds:.0f} s. The tables are at {uri} and {uri}{_HOURLY}; look at them with")
    command = _command()
    reporter.say(f"  {command} table describe {uri}")
    reporter.say(f"  {command} timeline show {uri}{_HOURLY}")
    return 0


def _command() -> str:
    """The command line as the caller's shell finds it: `make demo` runs in an environment that is not on its path."""
    own = Path(sys.executable).with_name("lakebed")
    if shutil.which("lakebed") or not own.exists():
        return "lakebed"
    return str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own)


def _play(uri: str, flights: pl.DataFrame, spark: SparkSession, scratch: Path, reporter: Reporter) -> _Play:
    steps = list(year(flights))
    schema = steps[0].rows.to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    table = lakebed.create(
        uri,
        schema,
        key=KEY,
        partition_by=PARTITION,
        ordering="event_time",
        index="bucket",
        buckets=_BUCKETS,
        spark=spark,
        properties={"hoodie.datasource.write.hive_style_partitioning": True},
    )
    merged = hourly.make(uri + _HOURLY, schema, spark)
    reporter.say(f"Made {table!r}.\n")
    play = _Play(table, spark, scratch, reporter, State(pl.DataFrame()))
    with reporter.progress as progress:
        task = progress.add_task("", total=len(steps) + 2)
        for step in steps:
            progress.update(task, description=f"{step.operation} {step.name}")
            play.write(step)
            progress.advance(task)
        progress.update(task, description="reading and comparing")
        _read_back(play, flights)
        progress.advance(task)
        progress.update(task, description="the last week by the hour")
        play.week = hourly.play(merged, flights, spark, scratch, reporter, play.check)
        progress.advance(task)
    return play


def _read_back(play: _Play, flights: pl.DataFrame) -> None:
    reporter, table = play.reporter, play.table
    reporter.say("\nReading back, and comparing every value with a straight computation over the whole input.")
    expected = final_state(flights)
    started = time.perf_counter()
    play.check("the table, read by Spark", _polars(table.scan().to_spark().toArrow()), expected, started)
    started = time.perf_counter()
    play.check("the table, read without Spark", _polars(table.scan().to_arrow()), expected, started)
    _look_back(play)
    _incremental(play)
    _lookup(play, expected)


def _look_back(play: _Play) -> None:
    """Time travel: the table as an earlier batch left it."""
    at = max(i for i, one in enumerate(play.played) if one.step.name == _LOOK_BACK_TO)
    started = time.perf_counter()
    found = play.table.scan(as_of=play.played[at].result.instant).to_arrow()
    play.check(f"the table as of {_LOOK_BACK_TO}", _polars(found), play.states[at].table, started)


def _incremental(play: _Play) -> None:
    """An incremental read: what the last batch of reports changed, without what it came too late for."""
    last = max(i for i, one in enumerate(play.played) if one.step.operation == "upsert")
    number = play.states[last].writes
    expected = play.states[-1].rows.filter(pl.col("written") == number).drop("written")
    started = time.perf_counter()
    changes = play.table.changes(play.played[last - 1].result.checkpoint)
    play.check("the changes since the last batch", _polars(changes.to_arrow()), expected, started)


def _lookup(play: _Play, expected: pl.DataFrame) -> None:
    """A point lookup of a flight that landed, and of one that was cancelled."""
    row = expected.filter((pl.col("month") == 7) & (pl.col("day") == 4)).sort(KEY).head(1)
    key = row.select(KEY).row(0)
    cancelled = next(one.step.rows for one in play.played if one.step.operation == "delete").select(KEY).row(0)
    started = time.perf_counter()
    play.check(f"the lookup of {key}", _polars(play.table.get([key])), row, started)
    there = play.table.exists([key, cancelled]).to_pylist()
    if there != [True, False]:
        raise Mismatch(f"exists({key}, {cancelled}) gives {there}, it must be [True, False]")


def _polars(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _report(uri: str, play: _Play, seconds: float) -> dict[str, Any]:
    return {
        "table": uri,
        "seconds": round(seconds, 2),
        "batches": [one.to_dict() for one in play.played],
        "hourly": play.week.to_dict() if play.week else None,
        "checks": [asdict(check) for check in play.checks],
    }
