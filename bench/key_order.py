"""Files sorted by key, row addresses, and neither: lookups by key, and what the writes cost for it.

    python bench/key_order.py                        1 M rows x 9 in 4 buckets, copy-on-write, in this process
    python bench/key_order.py --spark                3 M rows x 9 in 8 buckets, upserts on Spark
    python bench/key_order.py --rows 100000 --rounds 3

CPU seconds, medians; the tables take turns, and the order of the turns changes. `cold` is a lookup after all caches
were cleared, `warm` one after another lookup. The rule that decides the default of `sort`: by key if lookups are 4
times cheaper and upserts on Spark are at most 15 % dearer.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from get import clear_caches, rows_of, some_keys
from rows import Inputs, make_inputs
from sides import Side, lakebed_side

import lakebed
from lakebed.table import Table

COLUMNS = 9
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"sort": "none", "addresses": False},
    "addresses": {"sort": "none", "addresses": True},
    "sorted": {"sort": "key", "addresses": False},
}
LOOKUPS = (10, 1_000)
CHEAPER, DEARER = 4.0, 1.15


def in_process(folder: Path, rows: pa.Table, rounds: int) -> dict[str, dict[str, float]]:
    """CPU seconds by step and kind of table."""
    dice = np.random.default_rng(7)
    found: dict[str, dict[str, float]] = {}
    loads: dict[str, list[float]] = {}
    tables: dict[str, Table] = {}
    for name, words in KINDS.items():
        tables[name] = lakebed.create(
            str(folder / name), rows.schema, key="id", index="bucket", buckets=4, sort=words["sort"],
            properties={"lakebed.row.addresses": words["addresses"]},
        )  # fmt: skip
        loads[name] = [_cpu(lambda table=tables[name]: table.bulk_insert(rows))]
    found["load"] = _medians(loads)
    for count in LOOKUPS:
        for temperature in ("cold", "warm"):

            def look_up(table: Table, count: int = count, cold: bool = temperature == "cold") -> float:
                keys = some_keys(rows, dice, count)
                if cold:
                    clear_caches()
                else:
                    table.get(some_keys(rows, dice, count))
                return _cpu(lambda: _check(table.get(keys), keys))

            found[f"get of {count:,} keys, {temperature}"] = _in_turn(tables, look_up, rounds)
    found["scan"] = _in_turn(tables, lambda table: _cpu(lambda: table.scan().to_arrow()), 3)
    for count in (10, 10_000, len(rows) // 10):

        def upsert(table: Table, count: int = count) -> float:
            batch = rows.take(pa.array(dice.choice(len(rows), min(count, len(rows)), replace=False)))
            return _cpu(lambda: table.upsert(batch))

        found[f"upsert of {count:,} rows"] = _in_turn(tables, upsert, rounds)
    return found


def on_spark(folder: Path, rows: int, rounds: int) -> dict[str, dict[str, float]]:
    """CPU seconds of the process tree of one Spark session, by step and kind of table."""
    sizes = (rows // 100, 10_000)
    inputs = [make_inputs(folder / f"inputs-{size}", rows, COLUMNS, 0, size) for size in sizes]
    side = lakebed_side(folder)
    try:
        _spark_round(side, folder, inputs)  # warms up
        runs = [_spark_round(side, folder, inputs) for _ in range(rounds)]
    finally:
        side.close()
    return {step: _medians({kind: [run[step][kind] for run in runs] for kind in KINDS}) for step in runs[0]}


def _spark_round(side: Side, folder: Path, inputs: Sequence[Inputs]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for name, words in KINDS.items():
        table = str(folder / name)
        cost = side.ask("load", table=table, data=inputs[0].load, buckets=8, **words)
        found.setdefault("load", {})[name] = cost.cpu
        for turn in ("", ", again"):
            for given in inputs:
                cost = side.ask("upsert", table=table, data=given.upsert, buckets=8)
                found.setdefault(f"upsert of {given.upsert_rows:,} rows{turn}", {})[name] = cost.cpu
        shutil.rmtree(table)
    return found


def _in_turn(tables: dict[str, Table], step: Callable[[Table], float], rounds: int) -> dict[str, float]:
    used: dict[str, list[float]] = {name: [] for name in tables}
    for number in range(rounds):
        for name in sorted(tables, reverse=number % 2 == 1):
            used[name].append(step(tables[name]))
    return _medians(used)


def _check(found: pa.Table, keys: pa.Array) -> None:
    assert sorted(found["id"].to_pylist()) == sorted(keys.unique().to_pylist())


def _cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _medians(used: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(statistics.median(each), 4) for name, each in used.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="1,000,000; with --spark 3,000,000")
    parser.add_argument("--rounds", type=int, help="9; with --spark 3")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.spark:
            found = on_spark(Path(folder), given.rows or 3_000_000, given.rounds or 3)
        else:
            found = in_process(Path(folder), rows_of(given.rows or 1_000_000, others=COLUMNS - 1), given.rounds or 9)
    print(f"{'CPU seconds':<34}" + "".join(f"{name:>11}" for name in KINDS))
    for step, used in found.items():
        shares = "".join(f"{used[name] / used['plain']:>11.2f}" for name in KINDS if name != "plain")
        print(f"{step:<34}" + "".join(f"{used[name]:>11.3f}" for name in KINDS) + "   times plain:" + shares)
    print(f"by key if lookups cost a {CHEAPER:g}th and upserts on Spark at most {DEARER:g} times as much")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
