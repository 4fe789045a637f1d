"""A load of 50 million rows on Spark within the machine's memory, and upserts into it.

    python bench/many_rows.py                       50,000,000 rows of 12 columns, copy-on-write and merge-on-read
    python bench/many_rows.py --rows 2000000        a quick look
    python bench/many_rows.py --types mor --folder /tmp/many      keeps the tables and inputs there

Steps: `bulk_insert` of all rows, `upsert` of 1 % of them and of 10,000 rows, a lookup of 100 keys, a filter of one day,
a scan. After the load and after the upserts Spark's sums over the table are held to those of the input. Memory is that
of the driver's JVM and of its Python workers, each at its most.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from cpu import TreeMeter
from rows import KEY, ORDERING, random_keys, trips_of, write_folder
from serve import local_session

import lakebed

ROWS_PER_FILE = 1_000_000
ROWS_PER_BUCKET = 2_000_000
COLUMNS = 7
SUMS = (
    "count(*)",
    f"count(distinct {KEY})",
    f"cast(sum(cast({ORDERING} as decimal(20, 0))) as string)",
    "round(sum(fare), 2)",
)


class Inputs:
    """Folders of Parquet files, and what Spark's sums over the rows must be after the load and after both upserts."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.load, self.large, self.small = folder / "load", folder / "large", folder / "small"
        self.rows = rows
        self.lookup: list[str] = []
        self.loaded = [0, 0, 0, 0.0]
        self.upserted = [0, 0, 0, 0.0]
        self._write()

    def _write(self) -> None:
        dice = np.random.default_rng(4)
        known, before = [], pa.table({})
        for number in range(self.rows // ROWS_PER_FILE):
            trips = trips_of(dice, random_keys(dice, ROWS_PER_FILE), 1, COLUMNS)
            write_folder(self.load / f"part={number}", trips, 1)
            self._add(self.loaded, trips, 1)
            known.append(trips.slice(0, ROWS_PER_FILE // 100))
        old = pa.concat_tables(known)
        self.upserted = list(self.loaded)
        self.lookup = old[KEY].slice(0, 100).to_pylist()
        for folder, version, taken in ((self.large, 2, old), (self.small, 3, old.slice(0, 10_000))):
            new = random_keys(dice, len(taken) // 20)
            keys = pa.concat_arrays([*taken[KEY].chunks, new])
            trips = trips_of(dice, keys.take(pa.array(dice.permutation(len(keys)))), version, COLUMNS)
            write_folder(folder, trips, 4)
            before = taken if version == 2 else before.take(pa.array(np.arange(len(taken))))
            self._add(self.upserted, before, -1)
            self._add(self.upserted, trips, 1)
            places = {key: place for place, key in enumerate(trips[KEY].to_pylist())}
            before = trips.take(pa.array([places[key] for key in old[KEY].slice(0, 10_000).to_pylist()]))

    @staticmethod
    def _add(sums: list[Any], rows: pa.Table, sign: int) -> None:
        sums[0] += sign * len(rows)
        sums[1] += sign * len(rows)
        sums[2] += sign * int(rows[ORDERING].to_numpy().sum())
        sums[3] += sign * float(rows["fare"].to_numpy().sum())


def check(table: lakebed.Table, sums: list[Any]) -> None:
    """Raise `AssertionError` where Spark's sums over the table are not these."""
    found = list(table.scan().to_spark().selectExpr(*SUMS).collect()[0])
    assert [*found[:2], int(found[2])] == sums[:3], (found, sums)
    assert abs(found[3] - sums[3]) < 1, (found, sums)


def steps_of(spark: Any, inputs: Inputs, table: lakebed.Table) -> dict[str, Callable[[], object]]:
    def consume(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    return {
        "load": lambda: table.bulk_insert(spark.read.parquet(str(inputs.load)).drop("part")),
        "check of the load": lambda: check(table, inputs.loaded),
        "upsert of 1 %": lambda: table.upsert(spark.read.parquet(str(inputs.large))),
        "upsert of 10,000 rows": lambda: table.upsert(spark.read.parquet(str(inputs.small))),
        "check of the upserts": lambda: check(table, inputs.upserted),
        "lookup of 100 keys": lambda: len(table.get(inputs.lookup)),
        "filter of one day": lambda: consume(table.scan(where="day = date '2022-01-10'").to_spark()),
        "scan": lambda: consume(table.scan().to_spark()),
    }


def run(spark: Any, inputs: Inputs, path: str, kind: str) -> None:
    rows = spark.read.parquet(str(inputs.load)).drop("part")
    buckets = max(2, inputs.rows // ROWS_PER_BUCKET)
    settings: dict[str, Any] = {"key": KEY, "ordering": ORDERING, "type": kind, "index": "bucket", "buckets": buckets}
    table = lakebed.create(path, rows, spark=spark, **settings)
    for name, step in steps_of(spark, inputs, table).items():
        started = time.perf_counter()
        with TreeMeter(os.getpid()) as meter:
            result = step()
        spent = meter.spent
        figures = f"{time.perf_counter() - started:7.1f} s  CPU {spent.total:7.1f} s (Python {spent.python:6.1f})"
        print(f"{kind}  {name:24}{figures}  memory {spent.memory / 1e6:6,.0f} MB  {result or ''}", flush=True)
    size = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
    print(f"{kind}  {inputs.rows:,} rows, {buckets} buckets, {size / 1e9:.2f} GB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--types", default="cow,mor")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch)
        inputs = Inputs(folder / "inputs", asked.rows)
        print("inputs are written", flush=True)
        spark = local_session({"spark.local.dir": str(folder / "spark")})
        for kind in asked.types.split(","):
            run(spark, inputs, str(folder / kind), kind)
        spark.stop()


if __name__ == "__main__":
    main()
