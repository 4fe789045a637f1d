"""Merge-on-read in this process: small upserts, scans of slices with log files, and what merging them costs.

    python bench/mor.py                      1,000,000 rows x 9 columns in 4 buckets
    python bench/mor.py --rows 200000        a quick look
    python bench/mor.py --logs parquet       log blocks of Parquet instead of Avro

    python bench/mor.py --spark              on Spark, in turn with real Hudi: 3,000,000 rows
    python bench/mor.py --spark --rows 300000 --only lakebed
    python bench/mor.py --peers PYTHON       beside other table formats, in an interpreter that has them

CPU seconds of this process, the best of a few runs; with `--spark` those of each side's process tree, medians. The
tables are made by each side's own writes, on local disk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from bars import Bar
from mor_peers import beside
from mor_sides import lines, run
from rows import KEY, ORDERING, random_keys, trips_of

import lakebed
from lakebed.slices.log_rows import LOG_ROWS, REPLACEMENTS

COLUMNS = 9
BUCKETS = 4
_SEED = 7
_FORMAT = "hoodie.logfile.data.block.format"
# Scans of hundreds of milliseconds vary; the best of so many is steady.
_RUNS = 5
# That many upserts before a scan, one of them before those that are measured.
_UPSERTS = 10


class Tables:
    """The rows, and tables made of them below a folder."""

    def __init__(self, folder: Path, rows: int, logs: str) -> None:
        self._rng = np.random.default_rng(_SEED)
        self._folder = folder
        self._options = {_FORMAT: logs, "hoodie.compact.inline": "false"}
        self._keys = random_keys(self._rng, rows)
        self._number = 0

    def loaded(self, kind: Literal["cow", "mor"] = "mor") -> lakebed.Table:
        """A table of all rows, one base file a bucket."""
        self._number += 1
        rows = trips_of(self._rng, self._keys, 1, COLUMNS)
        uri = str(self._folder / f"table-{self._number}")
        table = lakebed.create(
            uri, rows, key=KEY, ordering=ORDERING, type=kind, index="bucket", buckets=BUCKETS,
            properties={"hoodie.compact.inline": "false"},
        )  # fmt: skip
        table.bulk_insert(rows)
        return lakebed.open(uri)

    def copy(self, table: lakebed.Table) -> lakebed.Table:
        self._number += 1
        to = self._folder / f"table-{self._number}"
        shutil.copytree(table.uri.removeprefix("file://"), to)
        return lakebed.open(str(to))

    def some(self, count: int, version: int) -> pa.Table:
        """Newer rows of known keys."""
        at = self._rng.choice(len(self._keys), min(count, len(self._keys)), replace=False)
        return trips_of(self._rng, self._keys.take(pa.array(at)), version, COLUMNS)

    def upsert(self, table: lakebed.Table, rows: pa.Table) -> None:
        table.upsert(rows, options=self._options)


def cpu(work: Callable[[], Any], runs: int = _RUNS, *, forgets: bool = False) -> float:
    """CPU seconds of the best run; one goes before. With `forgets` no run knows log records that were merged before."""
    work()
    found: list[float] = []
    for _ in range(runs):
        if forgets:
            REPLACEMENTS.clear()
            LOG_ROWS.clear()
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def scanned(table: lakebed.Table, columns: list[str] | None = None) -> Callable[[], int]:
    return lambda: sum(batch.num_rows for batch in table.scan(columns=columns).to_batches())


def shares(table: lakebed.Table, compacted: lakebed.Table) -> tuple[float, float]:
    """What the first scan of a table costs, and the next one, in scans of the compacted table."""
    whole = cpu(scanned(compacted))
    return cpu(scanned(table), forgets=True) / whole, cpu(scanned(table)) / whole


def measured(folder: Path, rows: int, logs: str) -> list[Bar]:
    tables = Tables(folder, rows, logs)
    small = tables.loaded()
    versions = iter(range(2, 1000))
    one = cpu(lambda: tables.upsert(small, tables.some(10, next(versions))), _UPSERTS - 1)
    compacted = tables.copy(small)
    compacted.maintenance.compact()
    assert scanned(compacted)() == scanned(small)() == rows
    first, again = shares(small, compacted)
    found = [
        Bar("upsert of 10 rows, CPU s", one, 0.06, at_least=False),
        Bar("first scan after ten upserts of 10 rows, times that of the compacted table", first, 1.5, at_least=False),
        Bar("the next one", again, 1.3, at_least=False),
    ]
    big = tables.loaded()
    for _ in range(3):
        tables.upsert(big, tables.some(rows // 10, next(versions)))
    assert scanned(big)() == rows
    found += [
        Bar("snapshot with three logs of a tenth each, CPU s", cpu(scanned(big), forgets=True), 0.8, at_least=False),
        Bar("the next one", cpu(scanned(big)), 0.5, at_least=False),
        Bar("key and two columns, CPU s", cpu(scanned(big, [KEY, "fare", "day"]), forgets=True), 0.5, at_least=False),
        Bar("the next one", cpu(scanned(big, [KEY, "fare", "day"])), 0.3, at_least=False),
        Bar("its count, CPU s", cpu(big.count, forgets=True), 0.5, at_least=False),
    ]
    twin = tables.copy(big)
    started = time.process_time()
    twin.maintenance.compact()
    found.append(Bar("its compaction, CPU s", time.process_time() - started, 2.8, at_least=False))
    ten = tables.loaded()
    each = cpu(lambda: tables.upsert(ten, tables.some(rows // 100, next(versions))), _UPSERTS - 1)
    found.append(Bar("upsert of a hundredth, CPU s", each, 0.15, at_least=False))
    compacted = tables.copy(ten)
    compacted.maintenance.compact()
    first, again = shares(ten, compacted)
    found.append(Bar("first scan after ten of them, times that of the compacted table", first, 1.9, at_least=False))
    found.append(Bar("the next one", again, 1.3, at_least=False))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="1,000,000; with --spark 3,000,000")
    parser.add_argument("--spark", action="store_true", help="lakebed on Spark against real Hudi")
    parser.add_argument("--only", choices=("lakebed", "hudi"), help="with --spark: run one side only")
    parser.add_argument("--rounds", type=int, default=2, help="with --spark")
    parser.add_argument("--warm-up", type=int, default=1, help="with --spark: rounds before the counted ones")
    parser.add_argument("--no-metadata", action="store_true", help="with --spark: no metadata table")
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter with deltalake, pylance or pyiceberg")
    parser.add_argument("--logs", choices=("avro", "parquet"), default="avro")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        if asked.spark:
            rows, metadata = asked.rows or 3_000_000, not asked.no_metadata
            spark = run(Path(folder), rows, asked.rounds, asked.warm_up, asked.only, metadata=metadata)
            print(*lines(spark), sep="\n")
            found = spark.bars()
        else:
            found = measured(Path(folder), asked.rows or 1_000_000, asked.logs)
            if asked.peers:
                beside(Path(folder), asked.rows or 1_000_000, asked.peers)
    for bar in found:
        print(bar.line())
    if asked.json:
        asked.json.write_text(json.dumps([asdict(bar) for bar in found], indent=1))


if __name__ == "__main__":
    main()
