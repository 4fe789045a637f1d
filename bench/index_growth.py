"""What tagging costs as a table grows: the same number of keys is looked up in one to ten times the rows.

    python bench/index_growth.py                                        4 to 40 files of 50,000 rows, 20,000 keys
    python bench/index_growth.py --picture docs/images/index_growth.svg
    python bench/index_growth.py --small

Then the largest table under a bucket and under a bloom index: an upsert of those keys, and a `get` of ten of them.

In this process, without Spark: CPU seconds, files whose content was asked for and bytes read, with nothing in the
caches of footers and index blocks. Keys are random, so that no file's key range rules it out. RFC-29, which brought the
bucket index to Hudi, left its "performance evaluation" open; this is ours.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bars import Bar
from svg import Axis, chart
from tagging import Tagging, counted, random_keys, tag

import lakebed

STEPS = (1, 2, 4, 7, 10)
BUCKETS = 8
QUIET = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.metadata.index.column.stats.enable": False,
    "hoodie.parquet.small.file.limit": 0,
}
LINES = ("bucket", "record", "bloom", "global_simple")
FLAT, GROWS = 1.5, 3.0


def part(number: int, rows: int) -> pa.Table:
    """The rows of one file."""
    dice, keys = np.random.default_rng(number), random_keys(rows, 1000 + number)
    columns: dict[str, Any] = {"id": keys, "day": ["d"] * rows, "ts": np.full(rows, number)}
    for n in range(6):
        columns[f"c{n}"] = dice.integers(0, 10**6, rows) if n % 2 else dice.random(rows)
    return pa.table(columns)


def made(path: Path, index: str, **words: Any) -> lakebed.Table:
    schema = part(0, 1).schema
    given: dict[str, Any] = {"key": "id", "partition_by": "day", "ordering": "ts", "index": index, "properties": QUIET}
    return lakebed.create(str(path), schema, **given | words)


def some_keys(files: int, rows: int, count: int) -> pa.Table:
    """As many keys of each file."""
    each = count // files
    picked = [part(n, rows).select(["id", "day"]).slice(0, each) for n in range(files)]
    return pa.concat_tables(picked).combine_chunks()


def measured(table: str, index: str, keys: pa.Table) -> Tagging:
    runs = [tag(table, index, keys, cold=True) for _ in range(3)]
    return min(runs, key=lambda run: run.cpu)


def compare(tables: dict[str, lakebed.Table], keys: pa.Table, files: int, rows: int) -> None:
    """What writes and reads by key cost under each index: tables of the same rows."""
    wanted = keys["id"].to_pylist()
    some = [wanted[n * len(wanted) // 10] for n in range(10)]
    stored = pa.concat_tables([part(n, rows) for n in range(files)])
    batch = stored.filter(pc.is_in(stored["id"], value_set=keys["id"].combine_chunks()))
    for name, table in tables.items():
        read = min((counted(table.uri, lambda t: t.get(some)) for _ in range(3)), key=lambda run: run.cpu)
        written = counted(table.uri, lambda t: t.upsert(batch))
        for what, run in (("get of 10 keys", read), (f"upsert of {len(batch):,} rows", written)):
            print(
                f"{name:14} {what:24} {run.cpu:7.3f} CPU-s  {run.data_files:4} data files"
                f"  {run.files:4} in all  {run.read / 1e6:8.2f} MB read",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4, help="at first")
    parser.add_argument("--rows", type=int, default=50_000, help="of each file")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--picture", help="an SVG file to write")
    parser.add_argument("--small", action="store_true", help="files of 5,000 rows, 2,000 keys")
    given = parser.parse_args()
    if given.small:
        given.rows, given.keys = 5_000, 2_000
    folder = Path(tempfile.mkdtemp(prefix="lakebed-bench-"))
    found: dict[str, dict[int, Tagging]] = {name: {} for name in LINES}
    try:
        looked_up = made(folder / "looked", "global_bloom", indexes=["record_index"])
        hashed = made(folder / "hashed", "bucket", buckets=BUCKETS)
        done = 0
        for step in STEPS:
            for number in range(done, given.files * step):
                looked_up.bulk_insert(part(number, given.rows))
            hashed.upsert(pa.concat_tables([part(n, given.rows) for n in range(done, given.files * step)]))
            done = given.files * step
            keys = some_keys(done, given.rows, given.keys)
            for name in LINES:
                run = measured((hashed if name == "bucket" else looked_up).uri, name, keys)
                found[name][step] = run
                print(
                    f"{done * given.rows:>11,} rows  {name:14} {run.cpu:7.3f} CPU-s  {run.data_files:4} data files"
                    f"  {run.files:4} in all  {run.read / 1e6:8.2f} MB read",
                    flush=True,
                )
        filtered = made(folder / "filtered", "bloom")
        for number in range(done):
            filtered.bulk_insert(part(number, given.rows))
        keys = some_keys(done, given.rows, given.keys)
        compare({"bucket": hashed, "bloom": filtered}, keys, done, given.rows)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if given.picture:
        Path(given.picture).write_text(picture(found, given.files * given.rows, given.keys))
    ratios = {name: runs[STEPS[-1]].cpu / runs[1].cpu for name, runs in found.items()}
    for name, ratio in ratios.items():
        print(f"{name:14} CPU at {STEPS[-1]} times the rows: {ratio:.2f} times")
    bars = [
        Bar("bucket: CPU of tagging at ten times the rows", ratios["bucket"], FLAT, False),
        Bar("bucket: data files that are read", found["bucket"][STEPS[-1]].data_files, 0, False),
        Bar("bloom: CPU of tagging at ten times the rows", ratios["bloom"], GROWS, True),
    ]
    print(*(bar.line() for bar in bars), sep="\n")
    return 1 if any(bar.held is False for bar in bars) else 0


def picture(found: dict[str, dict[int, Tagging]], rows: int, keys: int) -> str:
    """CPU seconds by the size of the table."""
    lines = {name: [(step * rows / 1e6, run.cpu) for step, run in runs.items()] for name, runs in found.items()}
    most = max(cost for line in lines.values() for _, cost in line)
    least = min(cost for line in lines.values() for _, cost in line)
    ticks = [tick for tick in (0.001, 0.01, 0.1, 1.0, 10.0) if least / 10 < tick < most * 10]
    across = Axis("million rows in the table", [step * rows / 1e6 for step in STEPS], log=True)
    return chart(f"CPU seconds to tag {keys:,} keys", across, Axis("CPU seconds", ticks, log=True), lines)


if __name__ == "__main__":
    sys.exit(main())
