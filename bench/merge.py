"""MERGE by key in this process: lakebed's merge beside its upsert of the same rows, and beside the merges of others.

    python bench/merge.py                       10,000 rows into 1,000,000, every side, three rounds
    python bench/merge.py --only merge lance    beside Lance, which `pip install pylance` brings
    python bench/merge.py --rows 300000 --into 3000000 --only merge upsert

CPU seconds of this process, the median of the rounds, each on a table of its own that is loaded beforehand. The sides
do the same: nine tenths of the keys are known and get new values in all columns, the others are inserted.

Bar: a merge takes no more than 1.15 times the CPU of an upsert of the same rows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lakebed

BAR = 1.15
BUCKETS = 8
Side = Callable[[Path, pa.Table, pa.Table], Callable[[], Any]]


def rows_of(numbers: np.ndarray[Any, Any], version: int) -> pa.Table:
    """Rows of these keys: texts, numbers and a day."""
    dice = np.random.default_rng(version)
    count = len(numbers)
    words = pa.array([f"word-{n:06d}" for n in range(5_000)])
    return pa.table(
        {
            "id": pa.array([f"key-{n:012d}" for n in numbers.tolist()]),
            "city": words.take(pa.array(dice.integers(0, 50, count))),
            "word": words.take(pa.array(dice.integers(0, 5_000, count))),
            "fare": dice.random(count),
            "seats": dice.integers(0, 10**9, count),
            "day": pa.array(dice.integers(0, 20_000, count).astype(np.int32)).cast(pa.date32()),
            "ts": pa.array(np.full(count, version)),
        }
    )


def lakebed_table(folder: Path, stored: pa.Table, kind: str) -> lakebed.Table:
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "type": kind, "index": "bucket", "buckets": BUCKETS}
    table = lakebed.create(str(folder), stored.schema, **words)
    table.bulk_insert(stored)
    return table


def lakebed_upsert(kind: str) -> Side:
    def prepare(folder: Path, stored: pa.Table, rows: pa.Table) -> Callable[[], Any]:
        table = lakebed_table(folder, stored, kind)
        return lambda: table.upsert(rows)

    return prepare


def lakebed_merge(kind: str) -> Side:
    def prepare(folder: Path, stored: pa.Table, rows: pa.Table) -> Callable[[], Any]:
        table = lakebed_table(folder, stored, kind)
        return lambda: table.merge(rows).when_matched_update().when_not_matched_insert().execute()

    return prepare


def lakebed_sum(kind: str) -> Side:
    """Known keys get the sum of both values: the stored ones are read."""

    def prepare(folder: Path, stored: pa.Table, rows: pa.Table) -> Callable[[], Any]:
        table = lakebed_table(folder, stored, kind)
        merge = table.merge(rows).when_matched_update({"fare": "t.fare + s.fare", "ts": "s.ts"})
        return merge.when_not_matched_insert().execute

    return prepare


def delta_merge(folder: Path, stored: pa.Table, rows: pa.Table) -> Callable[[], Any]:
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(str(folder), stored)
    table = DeltaTable(str(folder))
    return lambda: (
        table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )


def iceberg_upsert(folder: Path, stored: pa.Table, rows: pa.Table) -> Callable[[], Any]:
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.rides", stored.schema)
    table.append(stored)
    return lambda: table.upsert(rows, join_cols=["id"])


def lance_merge(folder: Path, stored: pa.Table, rows: pa.Table) -> Callable[[], Any]:
    import lance  # pip install pylance

    dataset = lance.write_dataset(stored, str(folder))
    dataset.create_scalar_index("id", "BTREE")
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return lambda: merge.execute(rows)


SIDES: Mapping[str, Side] = {
    "upsert": lakebed_upsert("cow"),
    "merge": lakebed_merge("cow"),
    "upsert, merge-on-read": lakebed_upsert("mor"),
    "merge, merge-on-read": lakebed_merge("mor"),
    "merge of sums": lakebed_sum("cow"),
    "merge of sums, merge-on-read": lakebed_sum("mor"),
    "deltalake": delta_merge,
    "pyiceberg": iceberg_upsert,
    "lance": lance_merge,
}


def measured(side: Side, folder: Path, stored: pa.Table, rows: pa.Table) -> tuple[float, float]:
    """CPU seconds of this process, and seconds on the clock."""
    run = side(folder, stored, rows)
    cpu, clock = time.process_time(), time.monotonic()
    run()
    spent = time.process_time() - cpu, time.monotonic() - clock
    shutil.rmtree(folder)
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--into", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=SIDES, default=[name for name in SIDES if name != "lance"])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    stored = rows_of(np.random.default_rng(1).permutation(given.into), 1)
    known = np.random.default_rng(2).choice(given.into, given.rows * 9 // 10, replace=False)
    rows = rows_of(np.concatenate([known, np.arange(given.into, given.into + given.rows - len(known))]), 2)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in given.only}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.rounds + 1):  # the first warms up
            for name in given.only:
                spent = measured(SIDES[name], Path(folder) / f"{number}", stored, rows)
                if number:
                    found[name].append(spent)
    cpu = {name: statistics.median(c for c, _ in spent) for name, spent in found.items()}
    print(f"{given.rows:,} rows into {given.into:,}: CPU seconds (seconds on the clock)")
    for name, seconds in cpu.items():
        print(f"  {name:30s}{seconds:8.3f}  ({statistics.median(w for _, w in found[name]):.3f})")
    missed = False
    for other in set(cpu) - {"merge"} if "merge" in cpu else ():
        print(f"  merge / {other}: {cpu['merge'] / cpu[other]:.2f}")
    if {"merge", "upsert"} <= set(cpu):
        missed = cpu["merge"] / cpu["upsert"] > BAR
        print(f"  bar of merge / upsert, {BAR}: {'MISS' if missed else 'pass'}")
    if given.json:
        given.json.write_text(json.dumps({"rows": given.rows, "into": given.into, "cpu": cpu}, indent=1))
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
