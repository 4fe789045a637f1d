"""A large merge-on-read table on Spark: queries whose base files Spark reads itself, beside those through Python.

    python bench/untouched.py                   20,000,000 rows x 7 columns in 16 buckets, three logs of 300,000 rows
    python bench/untouched.py --rows 6000000    a quick look

CPU seconds of the process tree, JVM and Python workers, the best of the last two of four runs in a session of its own
for each way; and those of the first one. The table is made in this process, on local disk: 5 GB for 20,000,000 rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from cpu import TreeMeter
from rows import KEY, ORDERING, random_keys, trips_of
from serve import local_session

import lakebed

COLUMNS, BUCKETS, LOGS = 7, 16, 3
_SEED = 3
_PART = 2_000_000
_RUNS = 4
_QUERIES: dict[str, Callable[[Any], Any]] = {
    "all columns of all rows": lambda rows: rows.write.format("noop").mode("overwrite").save(),
    "sum(fare)": lambda rows: rows.selectExpr("sum(fare)").collect(),
    "where city = 'city-003' and fare > 30": lambda rows: (
        rows.where("city = 'city-003' and fare > 30").selectExpr("count(*)", "sum(fare)").collect()
    ),
    'groupBy("city").sum("fare")': lambda rows: rows.groupBy("city").sum("fare").collect(),
}
# Bytes of base files from which on Spark reads them.
_WAYS = {"compacted": 0, "by Spark": 0, "through Python": 1 << 60}


def made(folder: Path, rows: int) -> None:
    """Two tables of the same rows: one with logs, one compacted."""
    rng = np.random.default_rng(_SEED)
    keys = random_keys(rng, rows)
    data = pa.concat_tables([trips_of(rng, keys.slice(start, _PART), 1, COLUMNS) for start in range(0, rows, _PART)])
    table = lakebed.create(
        str(folder / "logs"), data, key=KEY, ordering=ORDERING, type="mor", index="bucket", buckets=BUCKETS,
        properties={"hoodie.compact.inline": "false"},
    )  # fmt: skip
    table.bulk_insert(data)
    for version in range(2, 2 + LOGS):
        at = rng.choice(rows, rows * 3 // 200, replace=False)
        table.upsert(trips_of(rng, keys.take(pa.array(at)), version, COLUMNS))
    shutil.copytree(folder / "logs", folder / "compacted")
    lakebed.open(str(folder / "compacted")).maintenance.compact()


def measured(folder: Path, way: str) -> dict[str, list[float]]:
    """CPU seconds of each run of each query, in this process's own session."""
    from lakebed.read import spark_untouched

    spark = local_session({})
    spark_untouched._MIN_BYTES = _WAYS[way]  # pyright: ignore[reportPrivateUsage]
    uri = str(folder / ("compacted" if way == "compacted" else "logs"))
    found: dict[str, list[float]] = {}
    for name, query in _QUERIES.items():
        for _ in range(_RUNS):
            with TreeMeter(os.getpid()) as meter:
                query(lakebed.open(uri, spark=spark).scan().to_spark())
            found.setdefault(name, []).append(meter.spent.jvm + meter.spent.python)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measured(asked.folder, asked.measure)))
        return
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        made(Path(name), asked.rows)
        found: dict[str, dict[str, list[float]]] = {}
        for way in _WAYS:
            command = [sys.executable, __file__, "--folder", name, "--measure", way]
            run = subprocess.run(command, check=True, capture_output=True, text=True)
            found[way] = json.loads(run.stdout.splitlines()[-1])
    print(f"| query | {' | '.join(_WAYS)} |\n|---|{'---|' * len(_WAYS)}")
    for query in _QUERIES:
        print(f"| `{query}` | {' | '.join(f'{min(found[way][query][-2:]):.2f}' for way in _WAYS)} |")
    first = next(iter(_QUERIES))
    print(f"| {first}, the first time | {' | '.join(f'{found[way][first][0]:.1f}' for way in _WAYS)} |")


if __name__ == "__main__":
    main()
