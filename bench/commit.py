"""Small commits in this process, the metadata table on: time on the clock by stage, and what storage was asked for.

    python bench/commit.py                     200 commits of 10 rows into one small file group, on local disk
    python bench/commit.py --folder /mnt/disk  on another disk

Bar: 60 ms, the median of whole commits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

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


def measured(folder: Path, commits: int, warm_up: int) -> dict[str, Any]:
    """Medians over the commits, in milliseconds, and the mutations of the last one."""
    uri = str(folder / "table")
    first = rows_of(0, KEYS, 1)
    lakebed.create(uri, first, key="id", ordering="ts", index="bucket", buckets=1).upsert(first)
    table = lakebed.open(uri)
    whole: list[float] = []
    stages: list[dict[str, float]] = []
    for n in range(warm_up + commits):
        rows = rows_of(n * 37, ROWS, n + 2)
        started = time.perf_counter()
        result = table.upsert(rows)
        if n >= warm_up:
            whole.append((time.perf_counter() - started) * 1e3)
            stages.append(dict(result.seconds))
    found = {name: statistics.median(s[name] for s in stages) * 1e3 for name in stages[0]}
    at = sorted(whole)
    return {"p50": statistics.median(whole), "p90": at[int(len(at) * 0.9)], **found, "mutations": mutations(uri)}


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
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        found = measured(Path(folder), asked.commits, asked.warm_up)
    for name, value in found.items():
        print(f"{name:10s} {value:8.1f}" + ("" if name == "mutations" else " ms"))
    print(f"{'pass' if found['p50'] <= BAR_MILLIS else 'MISS'}  {found['p50']:.1f} ms  (<= {BAR_MILLIS:.0f})  a commit")
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
