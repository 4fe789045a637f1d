"""Point lookups in this process: 10 keys of a table of 1 M rows and 12 columns in 8 file groups, cold and warm.

    python bench/get.py                     1 M rows, with and without the record index, files sorted by key or not
    python bench/get.py --addresses         1 M rows x 9 in 4 unsorted buckets, with and without row addresses: 10 and
                                            1,000 keys, upserts of 10,000 rows, and Lance where `pylance` is installed
    python bench/get.py --rows 100000 --folder /tmp/get     keeps the tables there, and takes those that are there

Bars (warm, local disk, the median of the rounds): 50 ms where files are sorted by key, 150 ms otherwise. Warm is what a
process reaches that has looked up many keys before: footers, index blocks and places of keys are known. `soon` are the
first lookups after a single one. `--addresses` gives CPU seconds, the sides in turn; each cold lookup is the first
after all caches were cleared.
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
from lakebed.format.row_groups.pages import INDEXES
from lakebed.metadata.slices import HFILES, LOGS
from lakebed.table import Table

FILE_GROUPS = 8
# Lookups of a thousand keys after which caches hold what they are going to hold.
WARMING = 5
BARS = {"sorted": 50.0, "unsorted": 150.0}


BUCKETS = 4
COLUMNS = 8
UPSERT = 10_000


def clear_caches() -> None:
    """Forget all files that were read."""
    for cache in (FOOTERS, INDEXES, BLOCKS, POSITIONS, HFILES, LOGS):
        cache.clear()


def rows_of(count: int, seed: int = 1, others: int = 11) -> pa.Table:
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
    for number in range(others):
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
    clear_caches()
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


def lance_lookup(folder: Path, rows: pa.Table) -> Callable[[pa.Array], int] | None:
    """A lookup of keys in a Lance dataset with a B-tree; None where Lance is not installed."""
    try:
        import lance  # pip install pylance
    except ImportError:
        return None
    path = str(folder / "lance")
    shutil.rmtree(path, ignore_errors=True)
    lance.write_dataset(rows, path, max_rows_per_file=-(-len(rows) // BUCKETS)).create_scalar_index("id", "BTREE")

    def look_up(keys: pa.Array) -> int:
        texts = ", ".join(f"'{key}'" for key in keys.to_pylist())
        return lance.dataset(path).to_table(filter=f"id in ({texts})").num_rows

    return look_up


def compare_addresses(folder: Path, rows: pa.Table, rounds: int) -> None:
    """CPU seconds of lookups and upserts with and without row addresses, and of Lance's lookups."""
    dice = np.random.default_rng(7)
    tables: dict[str, Table] = {}
    for name, has_addresses in (("plain", False), ("addresses", True)):
        properties = {"lakebed.row.addresses": has_addresses}
        path = str(folder / f"{name}-{len(rows)}")
        shutil.rmtree(path, ignore_errors=True)
        tables[name] = lakebed.create(
            path, rows.schema, key="id", index="bucket", buckets=BUCKETS, properties=properties
        )
        tables[name].upsert(rows)
    lookups: dict[str, Callable[[pa.Array], Any]] = {name: table.get for name, table in tables.items()}
    lance_side = lance_lookup(folder, rows)
    lookups |= {} if lance_side is None else {"lance": lance_side}
    for count in (10, 1_000):
        for temperature in ("cold", "warm"):
            used: dict[str, list[float]] = {name: [] for name in lookups}
            for _ in range(rounds):
                keys = some_keys(rows, dice, count)
                for name, look_up in lookups.items():
                    if temperature == "cold":
                        clear_caches()
                    else:
                        look_up(some_keys(rows, dice, count))
                    started = time.process_time()
                    look_up(keys)
                    used[name].append(time.process_time() - started)
            print(json.dumps({"keys": count, "caches": temperature, **medians(used)}), flush=True)
    used = {name: [] for name in tables}
    for number in range(rounds):
        batch = rows.take(pa.array(np.sort(dice.choice(len(rows), min(UPSERT, len(rows)), replace=False))))
        for name in sorted(tables, reverse=number % 2 == 1):
            started = time.process_time()
            tables[name].upsert(batch)
            used[name].append(time.process_time() - started)
    print(json.dumps({"upsert": UPSERT, **medians(used)}), flush=True)


def medians(used: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(statistics.median(each), 4) for name, each in used.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, help="keep the tables here")
    parser.add_argument("--addresses", action="store_true", help="row addresses and Lance")
    given = parser.parse_args()
    rows = rows_of(given.rows, others=COLUMNS if given.addresses else 11)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        if given.addresses:
            compare_addresses(folder, rows, given.rounds)
            return
        for order, bar in BARS.items():
            for indexes in (["record_index"], []):
                path = made_table(folder, rows, order=order, indexes=indexes)
                figures = measured(path, rows, given.rounds)
                print(json.dumps({"files": order, "indexes": indexes, "bar_ms": bar, **figures}), flush=True)


if __name__ == "__main__":
    main()
