"""What a publication costs: small upserts into a table of many files, each published as Delta and as Iceberg.

    python bench/publish.py                       1,000 files, 20 upserts of 10 files each
    python bench/publish.py --files 20000 --rounds 5

CPU milliseconds of `t.catalogs.publish` in this process, the median of the rounds, with the caches of a process that
wrote the versions before. The table has no log files; each upsert replaces so many of its files by others.

Bar: 30 ms and 1 ms for each changed file (those that come and those that leave).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Literal

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


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--changed", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="publish-"))
    try:
        found = measure(str(folder / "t"), chosen.files, chosen.changed, chosen.rounds)
    finally:
        shutil.rmtree(folder)
    print(json.dumps({"files": chosen.files, "changed": chosen.changed, **found}))


if __name__ == "__main__":
    run()
