"""Upserts of 10 rows from threads of one process into one table on a local disk: upserts a second, with group commit
and without, in turn.

    python bench/group_commit.py                     1, 2 and 8 threads with own file groups, 8 with keys in all
    python bench/group_commit.py --folder /mnt/disk  on another disk
    python bench/group_commit.py --seconds 20        longer runs

Bars: with 8 threads at least 3 times the upserts a second (2 times on copy-on-write tables, where each file group is
rewritten in any case), with fewer threads no fewer (0.9 times, for what runs differ).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

import lakebed

BUCKETS, KEYS, ROWS = 8, 8_000, 10
MIN_RATIO = {"mor": 3.0, "cow": 2.0}
MIN_ALONE = 0.9
Spread = Literal["own file groups", "all file groups"]


def rows_of(numbers: list[int], version: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"key-{n:06d}" for n in numbers],
            "ts": [version] * len(numbers),
            **{f"c{c}": [float(n * c + version) for n in numbers] for c in range(8)},
        }
    )


class Writers:
    """Threads with a table object each. `ways` are the two tables, the first with group commit."""

    def __init__(self, folder: Path, kind: Literal["cow", "mor"]) -> None:
        self.kind = kind
        self.uris = {is_joined: str(folder / f"{kind}-{is_joined}") for is_joined in (True, False)}
        first = rows_of(list(range(KEYS)), 1)
        for is_joined, uri in self.uris.items():
            properties = {"lakebed.write.group.commit": is_joined}
            table = lakebed.create(
                uri, first, key="id", ordering="ts", type=kind, index="bucket", buckets=BUCKETS, properties=properties
            )
            table.upsert(first)
        located = lakebed.open(self.uris[True]).locate(first["id"])
        self.groups: dict[str, list[int]] = {}
        for key, file_id in zip(located["key"].to_pylist(), located["file_id"].to_pylist(), strict=True):
            self.groups.setdefault(file_id.partition("-")[0], []).append(int(key.removeprefix("key-")))
        self._version = 1

    def run(self, is_joined: bool, spread: Spread, threads: int, seconds: float) -> dict[str, Any]:
        """Upserts a second, actions, and CPU milliseconds an upsert."""
        results: list[lakebed.WriteResult] = []
        end = time.perf_counter() + seconds

        def work(number: int) -> None:
            table = lakebed.open(self.uris[is_joined])
            own = sorted(self.groups.items())[number % BUCKETS][1]
            keys = own if spread == "own file groups" else list(range(number, KEYS, threads))
            at = 0
            while time.perf_counter() < end:
                self._version += 1
                chosen = [keys[(at + n) % len(keys)] for n in range(ROWS)]
                results.append(table.upsert(rows_of(chosen, self._version), retries=50))
                at += ROWS

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        started, cpu = time.perf_counter(), time.process_time()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        took, cpu = time.perf_counter() - started, time.process_time() - cpu
        return {
            "upserts a second": len(results) / took,
            "upserts an action": len(results) / len({result.instant for result in results}),
            "cpu ms": cpu / len(results) * 1e3,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    spreads: tuple[Spread, ...] = ("own file groups", "all file groups")
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for kind in ("mor", "cow"):
            writers = Writers(Path(folder), kind)
            cases: list[tuple[int, Spread]] = [(1, spreads[0]), (2, spreads[0]), (8, spreads[0]), (8, spreads[1])]
            for threads, spread in cases:
                ways: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
                for _ in range(asked.rounds):
                    for is_joined, runs in ways.items():
                        runs.append(writers.run(is_joined, spread, threads, asked.seconds))
                joined, alone = (
                    {name: statistics.median(run[name] for run in runs) for name in runs[0]} for runs in ways.values()
                )
                ratio = joined["upserts a second"] / alone["upserts a second"]
                found[f"{kind}, {threads} threads, {spread}"] = {"joined": joined, "alone": alone, "ratio": ratio}
                bar = MIN_RATIO[kind] if threads == 8 else MIN_ALONE
                print(
                    f"{'pass' if ratio >= bar else 'MISS'}  {kind}  {threads} threads  {spread}:"
                    f" {joined['upserts a second']:6.1f} upserts/s, alone {alone['upserts a second']:6.1f}"
                    f"  ({ratio:.2f}, bar {bar}); {joined['upserts an action']:.1f} an action;"
                    f" CPU {joined['cpu ms']:.1f} ms, alone {alone['cpu ms']:.1f}",
                    flush=True,
                )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
