"""What a publication costs: small upserts into a table of many files, each published as Delta and as Iceberg.

    python bench/publish.py                       1,000 files, 20 upserts of 10 files each
    python bench/publish.py --files 20000 --rounds 5

CPU milliseconds of `t.catalogs.publish` in this process, the median of the rounds, with the caches of a process that
wrote the versions before. The table has no log files; each upsert replaces so many of its files by others.

    python bench/publish.py --fresh               1,000,000 rows, upserts of 10,000 into log files

CPU milliseconds of an upsert without a list, with one of base files, and with one that shows the rows of log files, in
turns, the least of the rounds after the first; their log files hold 20,000 to 60,000 rows.

Bar: 30 ms and 1 ms for each changed file (those that come and those that leave). An upsert with a fresh list takes at
most twice the time of one without a list.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import lakebed

FIXED_MS, FILE_MS = 30.0, 1.0
FORMATS: tuple[Literal["delta", "iceberg"], ...] = ("delta", "iceberg")


def rows_of(partitions: list[int], version: int) -> pa.Table:
    """One row in each of these partitions."""
    return pa.table(
        {
            "id": pa.array(partitions, pa.int64()),
            "part": pa.array([f"p{n:06d}" for n in partitions]),
            "name": pa.array([f"name-{n}-{version}" for n in partitions]),
            "v": pa.array([version] * len(partitions), pa.int64()),
        }
    )


def measure(uri: str, files: int, changed: int, rounds: int) -> dict[str, dict[str, float]]:
    """For each format the median milliseconds of a publication, those of the first one, and the bar."""
    table = lakebed.create(uri, rows_of([0], 0).schema, key="id", partition_by="part", index="simple")
    table.bulk_insert(rows_of(list(range(files)), 0))
    found: dict[str, dict[str, float]] = {}
    seconds: dict[str, list[float]] = {name: [] for name in FORMATS}
    for name in FORMATS:
        started = time.process_time()
        table.catalogs.publish(name)
        found[name] = {"first": round((time.process_time() - started) * 1000, 1)}
    for version in range(1, rounds + 1):
        table.upsert(rows_of([(version * changed + n) % files for n in range(changed)], version))
        for name in FORMATS:
            started = time.process_time()
            result = table.catalogs.publish(name)
            seconds[name].append(time.process_time() - started)
            assert [(one.added, one.removed) for one in result.published] == [(changed, changed)]
    for name, times in seconds.items():
        found[name] |= {
            "median": round(statistics.median(times) * 1000, 1),
            "bar": FIXED_MS + FILE_MS * 2 * changed,
        }
    return found


def measure_fresh(folder: Path, rows: int = 1_000_000, changed: int = 10_000, rounds: int = 6) -> dict[str, float]:
    """The CPU milliseconds of an upsert by the kind of list, and the ratio of the dearest to one without a list."""
    settings: dict[str, dict[str, Any]] = {"none": {}, "base": {"lakebed.publish": "iceberg"}}
    settings["fresh"] = {**settings["base"], "lakebed.publish.fresh": True}
    tables: dict[str, lakebed.Table] = {}
    for name, options in settings.items():
        table = lakebed.create(
            str(folder / name), fares(np.arange(rows), 0), key="id", type="mor", index="bucket", buckets=8
        )
        table.upsert(fares(np.arange(rows), 0))
        table.configure({"hoodie.compact.inline.max.delta.commits": 100, **options})
        tables[name] = table
    seconds: dict[str, list[float]] = {name: [] for name in tables}
    chance = np.random.default_rng(7)
    for version in range(1, rounds + 1):
        upserted = fares(chance.choice(rows, changed, replace=False), version)
        for name in list(tables)[:: 1 if version % 2 else -1]:
            started = time.process_time()
            tables[name].upsert(upserted)
            seconds[name].append(time.process_time() - started)
    found = {name: round(min(times[1:]) * 1000, 1) for name, times in seconds.items()}
    return {**found, "ratio": round(found["fresh"] / found["none"], 2)}


def fares(ids: npt.NDArray[np.int64], version: int) -> pa.Table:
    """Rows of these keys, of four columns."""
    fare = np.random.default_rng(version).random(len(ids))
    cities = [f"city-{n % 50}" for n in ids.tolist()]
    return pa.table({"id": ids, "city": cities, "ts": np.full(len(ids), version), "fare": fare})


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--changed", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--fresh", action="store_true")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="publish-"))
    try:
        if chosen.fresh:
            print(json.dumps(measure_fresh(folder)))
            return
        found = measure(str(folder / "t"), chosen.files, chosen.changed, chosen.rounds)
    finally:
        shutil.rmtree(folder)
    print(json.dumps({"files": chosen.files, "changed": chosen.changed, **found}))


if __name__ == "__main__":
    run()
