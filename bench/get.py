"""Point lookups in this process: 10 keys of a table of 1 M rows and 12 columns in 8 file groups, cold and warm.

    python bench/get.py                          1 M rows, with and without the record index, files sorted by key or not
    python bench/get.py --rows 100000 --folder /tmp/get      keeps the tables there, and takes those that are there

Bars (warm, local disk, the median of the rounds): 50 ms where files are sorted by key, 150 ms otherwise. Warm is what a
process reaches that has looked up many keys before: footers, index blocks and places of keys are known. `soon` are the
first lookups after a single one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lakebed
from lakebed.format.footer_cache import FOOTERS, POSITIONS
from lakebed.format.hfile.entries import BLOCKS
from lakebed.metadata.store.slices import HFILES, LOGS
from lakebed.table import Table

FILE_GROUPS = 8
# Lookups of a thousand keys after which caches hold what they are going to hold.
WARMING = 5
BARS = {"sorted": 50.0, "unsorted": 150.0}


def rows_of(count: int, seed: int = 1) -> pa.Table:
    """Keys in random order; numbers, texts and times beside them."""
    dice = np.random.default_rng(seed)
    numbers = dice.permutation(count)
    columns: dict[str, Any] = {"id": pa.array([f"key-{n:012d}" for n in numbers.tolist()])}
    words = np.array([f"word-{n:06d}" for n in range(5_000)])
    makers: list[Callable[[], Any]] = [
        lambda: pa.array(dice.integers(0, 10**9, count)),
        lambda: pa.array(dice.random(count)),
        lambda: pa.array(words[dice.integers(0, len(words), count)]),
        lambda: pa.array(dice.integers(0, 10**15, count)).cast(pa.timestamp("us", "UTC")),
    ]
    for number in range(11):
        columns[f"c{number}"] = makers[number % len(makers)]()
    return pa.table(columns)


def made_table(folder: Path, rows: pa.Table, *, order: str, indexes: list[str]) -> str:
    """The table's path; made where it is not there, or not whole."""
    path = folder / f"{order}-{'-'.join(indexes) or 'plain'}-{len(rows)}"
    if (path / ".hoodie").exists():
        if lakebed.open(str(path)).count() == len(rows):
            return str(path)
        shutil.rmtree(path)  # left behind by a run that was stopped
    sort = "key" if order == "sorted" else "none"
    table = lakebed.create(str(path), rows.schema, key="id", index="simple", indexes=indexes, sort=sort)
    size = -(-len(rows) // FILE_GROUPS)
    for number in range(FILE_GROUPS):
        table.bulk_insert(rows.slice(number * size, size))
    return str(path)


def measured(path: str, rows: pa.Table, rounds: int) -> dict[str, float]:
    """Milliseconds of wall time and of this process's CPU for ten keys, other ones each round."""
    dice = np.random.default_rng(7)
    table = lakebed.open(path)
    for cache in (FOOTERS, BLOCKS, POSITIONS, HFILES, LOGS):
        cache.clear()
    cold, _ = looked_up(table, rows, dice, 1)
    soon, _ = looked_up(table, rows, dice, rounds)
    for _ in range(WARMING):
        table.get(some_keys(rows, dice, 1_000))
    warm, cpu = looked_up(table, rows, dice, rounds)
    return {
        "cold_ms": round(cold[0], 1),
        "soon_ms": round(statistics.median(soon), 1),
        "warm_ms": round(statistics.median(warm), 1),
        "warm_min_ms": round(min(warm), 1),
        "warm_cpu_ms": round(statistics.median(cpu), 1),
    }


def looked_up(table: Table, rows: pa.Table, dice: np.random.Generator, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of wall time and of CPU of each round."""
    wall: list[float] = []
    cpu: list[float] = []
    for _ in range(rounds):
        keys = some_keys(rows, dice, 10)
        started, used = time.perf_counter(), time.process_time()
        found = table.get(keys)
        wall.append((time.perf_counter() - started) * 1000)
        cpu.append((time.process_time() - used) * 1000)
        assert sorted(found["id"].to_pylist()) == sorted(keys.unique().to_pylist())
    return wall, cpu


def some_keys(rows: pa.Table, dice: np.random.Generator, count: int) -> pa.Array:
    return rows["id"].take(pa.array(dice.integers(0, len(rows), count))).combine_chunks()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, help="keep the tables here")
    given = parser.parse_args()
    rows = rows_of(given.rows)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        for order, bar in BARS.items():
            for indexes in (["record_index"], []):
                path = made_table(folder, rows, order=order, indexes=indexes)
                figures = measured(path, rows, given.rounds)
                print(json.dumps({"files": order, "indexes": indexes, "bar_ms": bar, **figures}), flush=True)


if __name__ == "__main__":
    main()
