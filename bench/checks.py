"""What three simple checks cost an upsert of 100,000 rows: CPU seconds of paired upserts into two tables that differ in
their checks alone.

    python bench/checks.py             20 pairs on local disk
    python bench/checks.py --pairs 60
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakebed

ROWS = 100_000


def rows(seed: int) -> pa.Table:
    dice = np.random.default_rng(seed)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "city": pa.array(["rome", "oslo", "bern"]).take(pa.array(dice.integers(0, 3, ROWS))),
            "fare": dice.random(ROWS) * 100,
            "tip": dice.random(ROWS) * 10,
            "ts": dice.integers(0, 10**9, ROWS),
        }
    )


def cost(table: lakebed.Table, data: pa.Table) -> float:
    """The CPU seconds of an upsert."""
    start = time.process_time()
    table.upsert(data, progress=False)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        plain, checked = (
            lakebed.load(str(Path(folder) / name), rows(0), key="id", index="bucket", buckets=4)
            for name in ("plain", "checked")
        )
        for condition in ("fare >= 0", "tip BETWEEN 0 AND 100"):
            checked.checks.add(condition)
        checked.checks.require("city")
        for table in (plain, checked):  # what is read and compiled once
            table.upsert(rows(1), progress=False)
        ratios: list[float] = []
        for number in range(pairs):
            data = rows(number + 2)
            tables = (plain, checked) if number % 2 else (checked, plain)
            seconds = {table.name: cost(table, data) for table in tables}
            ratios.append(seconds["checked"] / seconds["plain"])
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"CPU with three checks / without, {pairs} pairs: {middle:.3f} (half of them {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
