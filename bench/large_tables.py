"""What each action on a table of many file groups costs: CPU seconds, requests, memory. Files are tiny, so that only
the cost of their number is seen.

    python bench/large_tables.py                                  20,000 file groups, both types of tables
    python bench/large_tables.py --partitions 5000                100,000
    python bench/large_tables.py --types mor --only count,scan    some steps on one type
    python bench/large_tables.py --folder /tmp/large              keeps the tables there, and takes those that are there

The picture of docs/scale.md is drawn from the figures of several runs:

    python bench/large_tables.py --picture docs/images/scale.svg --figures 2000=a.json 20000=b.json 100000=c.json

Each step runs in a process of its own: it opens the table and does the action twice, `first` and `again`. Requests are
those that reach storage, counted by `lakebed.testing.CountingStorage`; memory is the process's largest resident set.
Steps that read run before those that write; the writes of a step are part of the table of the next one.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from svg import Axis, Points, chart

import lakebed
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import CountingStorage

BUCKETS = 20
ROWS_PER_GROUP = 10
ROWS_PER_COMMIT = 20_000 * ROWS_PER_GROUP
TYPES = ("mor", "cow")
# CPU seconds at 20,000 file groups (of the second run, unless it says otherwise), and MB of memory in any step.
BARS = {"count": 0.5, "get": 0.2, "scan": 8.0, "changes": 8.0, "load": 60.0}
MEMORY_BAR = 600
# Lines of the picture: a step of the merge-on-read table, and whether its first or its second run is shown.
LINES = {
    "scan of all": ("scan", -1),
    "upsert of 1,000": ("upsert of 1000 rows", 0),
    "first count": ("count", 0),
    "scan of one path": ("partition filter", -1),
}
ONE_PARTITION = "part = 'p00007'"


def rows_of(partitions: int, start: int = 0, count: int | None = None) -> pa.Table:
    """Rows by partition path; the key `id` and the number `fare` grow with the row's number."""
    total = partitions * BUCKETS * ROWS_PER_GROUP
    numbers = np.arange(start, total if count is None else start + count)
    per_partition = BUCKETS * ROWS_PER_GROUP
    return pa.table(
        {
            "id": pa.array([f"key-{n:010d}" for n in numbers.tolist()]),
            "part": pa.array([f"p{n:05d}" for n in (numbers // per_partition).tolist()]),
            "fare": pa.array(numbers.astype(np.float64)),
            "day": pa.array((numbers % 365).astype(np.int32)),
            "note": pa.array([f"note {n % 97}" for n in numbers.tolist()]),
        }
    )


def some_rows(partitions: int, count: int, seed: int) -> pa.Table:
    """Rows that the table has, from all over it."""
    rows = rows_of(partitions)
    return rows.take(np.random.default_rng(seed).choice(len(rows), count, replace=False))


def make_table(path: str, kind: str, partitions: int) -> None:
    """The table, by `bulk_insert`s of up to 20,000 file groups each."""
    rows = rows_of(partitions)
    settings: dict[str, Any] = {"key": "id", "partition_by": "part", "ordering": "day", "type": kind}
    table = lakebed.create(path, rows.schema, index="bucket", buckets=BUCKETS, **settings)
    for start in range(0, len(rows), ROWS_PER_COMMIT):
        table.bulk_insert(rows.slice(start, ROWS_PER_COMMIT))


def least_and_greatest(table: Table) -> object:
    found: Any = lakebed.sql("select min(fare), max(fare), count(*) from t", tables={"t": table})
    return found.to_arrow()


def steps_of(partitions: int) -> dict[str, Callable[[Table], object]]:
    """The actions, in the order in which they run; those that write are the last ones."""
    total = len(rows_of(partitions))
    key = f"key-{total // 2:010d}"
    known = pa.table({"id": [key], "part": [f"p{total // 2 // (BUCKETS * ROWS_PER_GROUP):05d}"]})
    seeds = iter(range(100))
    return {
        "open": lambda t: t.schema,
        "count": lambda t: t.count(),
        "count of a partition": lambda t: t.count(where=ONE_PARTITION),
        "min and max": least_and_greatest,
        "get": lambda t: t.get([key]),
        "get with partition": lambda t: t.get(known),
        "partition filter": lambda t: t.scan(where=ONE_PARTITION).to_arrow(),
        "statistics filter": lambda t: t.scan(where=f"fare between {total // 2} and {total // 2 + 50}").to_arrow(),
        "scan": lambda t: t.scan().to_arrow(),
        "changes": lambda t: t.changes("0").to_arrow(),
        "clean plan": lambda t: t.maintenance.clean(dry_run=True),
        "verify": lambda t: t.indexes.verify(),
        "upsert of 1 row": lambda t: t.upsert(some_rows(partitions, 1, next(seeds))),
        "upsert of 1000 rows": lambda t: t.upsert(some_rows(partitions, 1_000, next(seeds))),
        "archive": lambda t: t.maintenance.archive(),
        "count after upserts": lambda t: t.count(),
        "scan after upserts": lambda t: t.scan().to_arrow(),
    }


def measured(path: str, step: str, partitions: int) -> dict[str, Any]:
    """CPU seconds and requests of a step's two runs on a table that this process opens, and its memory in MB."""
    counted: list[CountingStorage] = []

    def counting(inner: Any) -> CountingStorage:
        counted.append(CountingStorage(inner))
        return counted[-1]

    runs: list[dict[str, Any]] = []
    action = steps_of(partitions)[step]
    with wrapping(counting):
        table: Table | None = None
        for _ in range(1 if step == "verify" else 2):
            for storage in counted:
                storage.reset()
            cpu, wall = time.process_time(), time.perf_counter()
            table = lakebed.open(path) if table is None or step == "open" else table
            action(table)
            runs.append(
                {
                    "cpu": time.process_time() - cpu,
                    "wall": time.perf_counter() - wall,
                    "requests": sum(sum(s.counts.values()) for s in counted),
                    "opened": len({name for s in counted for name in s.opened}),
                }
            )
    return {"runs": runs, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def in_process(*arguments: str) -> Any:
    """What this script prints as JSON, called with arguments in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])


def loaded(path: Path, kind: str, partitions: int) -> dict[str, Any] | None:
    """The figures of making the table; None where it is there."""
    if (path / ".hoodie").exists():
        return None
    before = time.process_time(), time.perf_counter()
    make_table(str(path), kind, partitions)
    run = {"cpu": time.process_time() - before[0], "wall": time.perf_counter() - before[1], "requests": 0, "opened": 0}
    return {"runs": [run], "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def printed(kind: str, step: str, figures: dict[str, Any]) -> None:
    first, again = figures["runs"][0], figures["runs"][-1]
    print(
        f"{kind:5}{step:22}{first['cpu']:10.2f}{again['cpu']:10.2f}{again['wall']:10.2f}"
        f"{first['requests']:10}{again['requests']:10}{again['opened']:10}{figures['mb']:8.0f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1_000, help="partition paths of 20 buckets each")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--only", help="names of steps, by commas")
    parser.add_argument("--folder", type=Path, help="where the tables are, and stay")
    parser.add_argument("--json", type=Path, help="where every figure is written")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--table", help=argparse.SUPPRESS)
    parser.add_argument("--picture", type=Path, help="where the picture of some --figures is written")
    parser.add_argument("--figures", nargs="+", default=[], help="file groups=the --json of a run")
    options = parser.parse_args()
    if options.picture:
        options.picture.write_text(picture(options.figures))
        return
    if options.step:
        figures = (
            loaded(Path(options.table), options.types, options.partitions)
            if options.step == "load"
            else measured(options.table, options.step, options.partitions)
        )
        print(json.dumps(figures))
        return
    folder = options.folder or Path(tempfile.mkdtemp(prefix="lakebed-large-"))
    steps = [s for s in steps_of(options.partitions) if options.only is None or s in options.only.split(",")]
    print(
        f"{'':27}{'CPU-s':>10}{'again':>10}{'wall':>10}{'requests':>10}{'again':>10}{'opened':>10}{'MB':>8}", flush=True
    )
    every: dict[str, Any] = {}
    try:
        for kind in options.types.split(","):
            path = str(folder / f"{kind}-{options.partitions}")
            for step in ("load", *steps):
                arguments = ["--step", step, "--table", path, "--partitions", str(options.partitions), "--types", kind]
                figures = in_process(*arguments)
                if figures is not None:
                    every[f"{kind} {step}"] = figures
                    printed(kind, step, figures)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
        if options.json:
            options.json.write_text(json.dumps(every, indent=1))
    report(every, options.partitions)


def picture(runs: Sequence[str]) -> str:
    """CPU seconds of some steps by the file groups of the table."""
    figures = {int(groups): json.loads(Path(path).read_text()) for groups, _, path in (r.partition("=") for r in runs)}
    lines: dict[str, Points] = {
        name: [(groups, of[f"mor {step}"]["runs"][at]["cpu"]) for groups, of in sorted(figures.items())]
        for name, (step, at) in LINES.items()
    }
    x = Axis("file groups", sorted(figures), log=True)
    y = Axis("CPU seconds", (0.01, 0.1, 1, 10, 100), log=True)
    return chart("A merge-on-read table of tiny files", x, y, lines)


def report(every: dict[str, Any], partitions: int) -> None:
    """The bars, which are those of 20,000 file groups."""
    if partitions * BUCKETS != 20_000:
        return
    for name, figures in every.items():
        bar = BARS.get(name.split(" ", 1)[1])
        if bar is not None:
            cpu = figures["runs"][-1]["cpu"]
            print(f"{'pass' if cpu <= bar else 'MISS'}  {name}: {cpu:.2f} CPU-s, bar {bar}")
    most = max((figures["mb"] for figures in every.values()), default=0)
    print(f"{'pass' if most <= MEMORY_BAR else 'MISS'}  memory: {most:.0f} MB, bar {MEMORY_BAR}")


if __name__ == "__main__":
    main()
