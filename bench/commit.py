"""Small commits in this process, the metadata table on: time on the clock by stage, and what storage was asked for.

    python bench/commit.py                     200 commits of 10 rows into one small file group, on local disk
    python bench/commit.py --folder /mnt/disk  on another disk
    python bench/commit.py --type cow          of a copy-on-write table (default: merge-on-read)

Bar: 60 ms, the median of whole commits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

import lakebed
from lakebed.storage.opening import wrapping
from lakebed.testing import CountingStorage

BAR_MILLIS = 60.0
ROWS, KEYS = 10, 1_000


def rows_of(first: int, count: int, version: int) -> pa.Table:
    numbers = [(first + n) % KEYS for n in range(count)]
    return pa.table(
        {
            "id": [f"key-{n:06d}" for n in numbers],
            "ts": [version] * count,
            **{f"c{c}": [float(n * c + version) for n in numbers] for c in range(8)},
        }
    )


def measured(folder: Path, kind: Literal["cow", "mor"], commits: int, warm_up: int) -> dict[str, Any]:
    """Medians over the commits, in milliseconds, of whole ones with their services; the CPU time and the time in which
    files and folders were synced (several at once count each); the mutations of the last one."""
    uri = str(folder / "table")
    first = rows_of(0, KEYS, 1)
    lakebed.create(uri, first, key="id", ordering="ts", type=kind, index="bucket", buckets=1).upsert(first)
    table = lakebed.open(uri)
    whole: list[float] = []
    stages: list[dict[str, float]] = []
    costs: list[dict[str, float]] = []
    for n in range(warm_up + commits):
        rows = rows_of(n * 37, ROWS, n + 2)
        with counted_syncs() as syncs:
            started, cpu = time.perf_counter(), time.process_time()
            result = table.upsert(rows)
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        if n >= warm_up:
            whole.append(seconds * 1e3)
            stages.append(dict(result.seconds))
            costs.append({"cpu": cpu * 1e3, "in syncs": sum(syncs) * 1e3, "syncs": len(syncs)})
    found = {name: statistics.median(s[name] for s in stages) * 1e3 for name in stages[0]}
    found |= {name: statistics.median(cost[name] for cost in costs) for name in costs[0]}
    at = sorted(whole)
    return {"p50": statistics.median(whole), "p90": at[int(len(at) * 0.9)], **found, "mutations": mutations(uri)}


@contextmanager
def counted_syncs() -> Generator[list[float]]:
    """The seconds that each sync of a file or folder takes in the block."""
    seconds: list[float] = []
    fsync = os.fsync

    def timed(fd: int) -> None:
        started = time.perf_counter()
        fsync(fd)
        seconds.append(time.perf_counter() - started)

    os.fsync = timed
    try:
        yield seconds
    finally:
        os.fsync = fsync


def mutations(uri: str) -> int:
    """How many times one such commit changes storage."""
    seen: list[CountingStorage] = []

    def wrap(storage: Any) -> CountingStorage:
        seen.append(CountingStorage(storage))
        return seen[-1]

    with wrapping(wrap):
        lakebed.open(uri).upsert(rows_of(0, ROWS, 1 << 20))
    return sum(len(storage.written) for storage in seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", choices=["cow", "mor"], default="mor")
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        found = measured(Path(folder), asked.type, asked.commits, asked.warm_up)
    for name, value in found.items():
        print(f"{name:10s} {value:8.1f}" + ("" if name in ("mutations", "syncs") else " ms"))
    print(f"{'pass' if found['p50'] <= BAR_MILLIS else 'MISS'}  {found['p50']:.1f} ms  (<= {BAR_MILLIS:.0f})  a commit")
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
