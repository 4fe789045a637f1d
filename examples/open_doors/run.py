"""One warehouse and the doors to it: a month of flights is loaded, updated and cancelled by lakebed, then read by name
in DuckDB, polars, pyiceberg, pandas and Spark SQL. All of them see the rows of log files that no compaction has merged.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lakebed
from year_of_flights.flights import KEY, read_flights
from year_of_flights.session import demo_session

_TABLE = "flights.departures"
_SUM = "select count(*) as flights, sum(distance) as miles, sum(dep_delay) as minutes from flights.departures"
Sums = tuple[int, int, int]


class Mismatch(Exception):
    """Two doors show different rows."""


def run(uri: str) -> int:
    """Fill the warehouse, read it through each door, and print the sums. Raises `Mismatch` if two of them differ."""
    warehouse = fill(uri)
    logs = sum(len(file_slice.log_files) for file_slice in warehouse.open(_TABLE).files)
    print(f"{warehouse.list()} in {uri}, with {logs} log files that no compaction has merged", flush=True)
    first: Sums | None = None
    with served(uri) as catalog:
        for door, sums in chain(doors(warehouse, catalog), spark_door(warehouse)):
            flights, miles, minutes = sums
            print(f"{door:32}  {flights:7,} flights  {miles:12,} miles  {minutes:10,} minutes late", flush=True)
            if first not in (None, sums):
                raise Mismatch(f"{door} shows {sums}, and the doors before it {first}")
            first = sums
    return 0


def fill(uri: str) -> lakebed.Warehouse:
    """The warehouse at `uri` with the flights of January: loaded, some of them late after all, some cancelled."""
    flights = _flights()
    warehouse = lakebed.Warehouse(uri)
    table = warehouse.create(
        _TABLE,
        flights.schema,
        key=list(KEY),
        partition_by="origin",
        type="mor",
        properties={"lakebed.publish.fresh": True},
    )
    table.bulk_insert(flights, progress=False, message="the month as it was planned")
    table.update({"dep_delay": "dep_delay + 5"}, where="carrier = 'B6'", message="JetBlue was later")
    table.delete(where="dep_time is null", progress=False, message="cancelled")
    return warehouse


def doors(warehouse: lakebed.Warehouse, catalog: str) -> Generator[tuple[str, Sums]]:
    """The doors of this process one after the other, each with its sums."""
    import polars as pl
    from pyiceberg.catalog import load_catalog

    yield "lakebed, Arrow", _of_arrow(warehouse.open(_TABLE).to_arrow())
    yield "lakebed.sql on DuckDB", _of_row(warehouse.sql(_SUM).to_pylist()[0])
    yield "polars, lakebed.polars.scan", _of_polars(lakebed.polars.scan(warehouse.open(_TABLE)))
    listed = load_catalog("demo", type="rest", uri=catalog).load_table(tuple(_TABLE.split(".")))
    yield "pyiceberg, lakebed serve", _of_arrow(listed.scan().to_arrow())
    yield "pandas, lakebed serve", _of_arrow(pa.Table.from_pandas(listed.scan().to_pandas()))
    warnings.filterwarnings("ignore", message="Iceberg scan planning")  # a package of polars that is optional
    yield "polars, lakebed serve", _of_polars(pl.scan_iceberg(listed))


def spark_door(warehouse: lakebed.Warehouse) -> Generator[tuple[str, Sums]]:
    """The door of Spark, in a session of its own."""
    with demo_session(Path(tempfile.mkdtemp())) as spark:
        lakebed.spark.attach(spark, warehouse)
        yield "Spark SQL, lakebed.spark.attach", _of_row(spark.sql(_SUM).collect()[0].asDict())


@contextmanager
def served(uri: str) -> Generator[str]:
    """`lakebed serve` in a process of its own; the address of the catalog."""
    command = [sys.executable, "-m", "lakebed", "serve", "--warehouse", uri, "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().rpartition(": ")[2].partition(" ")[0]
        finally:
            server.terminate()


def _flights() -> pa.Table:
    flights = read_flights().filter(month=1).select(*KEY, "origin", "dest", "dep_time", "dep_delay", "distance")
    return flights.to_arrow()


def _of_arrow(rows: pa.Table) -> Sums:
    miles, minutes = (int(pc.sum(rows[name]).as_py()) for name in ("distance", "dep_delay"))
    return rows.num_rows, miles, minutes


def _of_row(row: dict[str, Any]) -> Sums:
    return int(row["flights"]), int(row["miles"]), int(row["minutes"])


def _of_polars(frame: Any) -> Sums:
    import polars as pl

    sums = frame.select(pl.len().alias("flights"), miles=pl.col("distance").sum(), minutes=pl.col("dep_delay").sum())
    return _of_row(sums.collect().to_dicts()[0])
