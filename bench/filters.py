"""Filtered scans in this process: what is saved by decoding the columns of a condition first, and by statistics.

    python bench/filters.py                  1,000,000 rows x 9 columns in 4 buckets
    python bench/filters.py --rows 200000    a quick look

CPU milliseconds of scans of all columns, the best of a few runs. The tables: base files alone, the same with ten writes
of a hundredth of the rows in log files (the first scan of a process, and a later one), and base files that clustering
has ordered by day. "At once" decodes all columns of a file and filters then, as lakebed did before; `pyarrow.dataset`
reads the base files of the first table.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
from mor import Tables, cpu

import lakebed
from lakebed.read import filtered_rows

_FIRST = filtered_rows._MIN_ROWS  # pyright: ignore[reportPrivateUsage]
_NEVER = 1 << 60


def cells(table: lakebed.Table, condition: pc.Expression | None, *, forgets: bool = False) -> str:
    """Both ways of one scan."""

    def scan() -> int:
        return sum(batch.num_rows for batch in table.scan(where=condition).to_batches())

    found: list[str] = []
    for least in (_NEVER, _FIRST):
        filtered_rows._MIN_ROWS = least  # pyright: ignore[reportPrivateUsage]
        found.append(f"{1000 * cpu(scan, forgets=forgets):.0f}")
    return " | ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        tables = Tables(Path(folder), asked.rows, "avro")
        plain = tables.loaded()
        logs = tables.copy(plain)
        for version in range(2, 12):
            tables.upsert(logs, tables.some(asked.rows // 100, version))
        by_day = tables.loaded("cow")
        by_day.maintenance.cluster(sort_columns=["day"])
        by_day = lakebed.open(by_day.uri)
        files = [file.path for file in plain.scan().plan.files]
        dataset = ds.dataset([f"{plain.uri.removeprefix('file://')}/{path}" for path in files])
        rows = plain.scan(["rider", "fare", "day"]).to_arrow()
        day, rider, fare = pc.field("day"), pc.field("rider"), pc.field("fare")
        conditions: dict[str, pc.Expression | None] = {
            "none": None,
            "one rider": rider == rows["rider"][5],
            "one day": day == rows["day"][5],
            "one fare in a thousand": fare > pc.quantile(rows["fare"], 0.999)[0],
            "a tenth of the fares": fare > pc.quantile(rows["fare"], 0.9)[0],
            "all": fare.is_valid(),
        }
        print("| condition | pyarrow.dataset | base files: at once | now | ordered by day: at once | now "
              "| logs, first: at once | now | logs, later: at once | now |")  # fmt: skip
        print("|---" * 10 + "|")
        for name, condition in conditions.items():
            count = cpu(lambda condition=condition: dataset.to_table(plain.schema.names, filter=condition).num_rows)
            columns = [f"{1000 * count:.0f}", cells(plain, condition), cells(by_day, condition)]
            columns += [cells(logs, condition, forgets=True), cells(logs, condition)]
            print(f"| {name} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
