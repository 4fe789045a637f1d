"""One workload under an index, lakebed and real Hudi in turn: the bloom index, which is Hudi's most used one, or every.

    python bench/index.py                  40 files of 50,000 rows, batches of 100,000 keys
    python bench/index.py --every          under each index: CPU, shuffled bytes, files opened, bytes read
    python bench/index.py --small          a check in a few minutes
    python bench/index.py --only lakebed

Two kinds of keys: random ones, which no range rules out, so that every file's filter is asked; and keys that begin with
the time, of which a batch touches the newest files. With `--every` random ones alone; indexes that real Hudi does not
write are measured without it. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bars import Bar, figures
from opened import Opened
from sides import Cost, Side, hudi_side, lakebed_side
from tagging import random_keys, tag

import lakebed

COLUMNS = 12
PARTITIONS = 4
LIMITS = {"hoodie.metadata.index.column.stats.column.list": "ts", "hoodie.parquet.small.file.limit": 0}

BUCKETS = 2
# What `create` is told for each index, and whether real Hudi writes such a table as well.
EVERY: dict[str, tuple[dict[str, Any], bool]] = {
    "bucket": ({"buckets": BUCKETS}, True),
    "bucket_groups": ({"buckets": BUCKETS}, False),
    "consistent": ({"buckets": BUCKETS, "type": "mor"}, True),
    "record": ({}, True),
    "record_level_index": ({}, True),
    "simple": ({}, True),
    "global_simple": ({}, True),
    "bloom": ({}, True),
    "global_bloom": ({}, True),
}


class Workload:
    """Rows in commits of one file for each partition path; `kind` says how keys look."""

    def __init__(self, kind: str, files: int, rows: int, batch: int) -> None:
        self.kind, self.commits, self.rows, self.batch = kind, files // PARTITIONS, rows, batch

    def _keys(self, commit: int) -> list[str]:
        keys = random_keys(self.rows * PARTITIONS, 1000 + commit)
        return keys if self.kind == "random" else [f"{commit:06}-{key[7:]}" for key in keys]

    def part(self, commit: int, ts: int = 1) -> pa.Table:
        """The rows of one commit."""
        dice, keys = np.random.default_rng(commit), self._keys(commit)
        days = pa.array([f"d{n}" for n in range(PARTITIONS)]).take(pa.array(np.arange(len(keys)) % PARTITIONS))
        columns: dict[str, Any] = {"id": keys, "day": days, "ts": np.full(len(keys), ts)}
        for n in range(COLUMNS - 3):
            columns[f"c{n:02}"] = dice.integers(0, 10**6, len(keys)) if n % 2 else dice.random(len(keys))
        return pa.table(columns)

    def upserts(self, turn: int) -> pa.Table:
        """Known keys, of all files or of the newest ones, and a tenth of new ones."""
        known = self.batch * 9 // 10
        commits = range(self.commits) if self.kind == "random" else range(self.commits - 2, self.commits)
        parts = [self.part(commit, 2 + turn) for commit in commits]
        dice = np.random.default_rng(turn)
        pieces = [p.take(pa.array(dice.choice(len(p), known // len(parts), replace=False))) for p in parts]
        return pa.concat_tables([*pieces, self.part(500 + turn).slice(0, self.batch - known)]).combine_chunks()


def built(path: Path, work: Workload, index: str = "bloom", **more: Any) -> Path:
    """A table of that workload."""
    started = time.perf_counter()
    words: dict[str, Any] = {"key": "id", "partition_by": "day", "ordering": "ts", "index": index, **more}
    properties = {"hoodie.table.name": "wide", "hoodie.compact.inline": False}
    table = lakebed.create(str(path), work.part(0).schema, properties=properties, **words)
    write = table.upsert if more else table.bulk_insert
    for commit in range(work.commits):
        write(work.part(commit), options=LIMITS)
    print(f"  {work.kind} keys: table of {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return path


def run(work: Workload, folder: Path, sides: list[Side], rounds: int, steps: dict[str, list[Cost]]) -> None:
    source = built(folder / work.kind, work)
    tables = {side.name: folder / f"{side.name}-{work.kind}" for side in sides}
    for path in tables.values():
        shutil.copytree(source, path)
    counts: dict[str, Any] = {}
    for turn in range(rounds + 1):
        data = folder / "batch.parquet"
        pq.write_table(work.upserts(turn), data)
        for side in sides:
            if side.name == "hudi":
                cost = side.ask("upsert_by", table=str(tables["hudi"]), data=data, index="bloom", buckets=0)
            else:
                cost = side.ask("upsert_told", table=str(tables["lakebed"]), data=data)
            print(f"  {side.name} {work.kind} {cost.wall:.1f} s, {cost.cpu:.1f} CPU-s {cost.answer}", file=sys.stderr)
            if turn:
                steps[f"{side.name} {work.kind}"].append(cost)
            counts[side.name] = lakebed.open(str(tables[side.name])).scan().count()
    if len(set(counts.values())) > 1:
        sys.exit(f"{work.kind}: the tables have {counts} rows")
    for path in (source, *tables.values()):
        shutil.rmtree(path)


def run_every(work: Workload, folder: Path, sides: list[Side], rounds: int, names: list[str]) -> list[str]:
    """A line of a table for each of the indexes."""
    lines = [
        "| index | CPU-s lakebed / Hudi | shuffled MB | data files opened | other files | MB read"
        " | tagging alone, lakebed: data files, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for index in names:
        words, both = EVERY[index]
        source = built(folder / index, work, index, **words)
        everything = len(lakebed.open(str(source)).files.to_arrow())
        tagged = tag(str(source), index, work.upserts(0), cold=True)
        steps: dict[str, list[Cost]] = defaultdict(list)
        opened: dict[str, Opened] = {}
        counts: dict[str, int] = {}
        for side in sides:
            if side.name == "hudi" and not both:
                continue
            path = folder / f"{side.name}-{index}"
            shutil.copytree(source, path)
            for turn in range(rounds + 1):
                data = folder / "batch.parquet"
                pq.write_table(work.upserts(turn), data)
                told = {"index": index, "buckets": BUCKETS} if side.name == "hudi" else {}
                with Opened(path) as opened[side.name]:
                    cost = side.ask("upsert_by", table=str(path), data=data, **told)
                if turn:
                    steps[side.name].append(cost)
            counts[side.name] = lakebed.open(str(path)).scan().count()
            shutil.rmtree(path)
        shutil.rmtree(source)
        if len(set(counts.values())) > 1:
            sys.exit(f"{index}: the tables have {counts} rows")
        spent = [_median(steps, name, lambda one: one.cpu) for name in ("lakebed", "hudi")]
        moved = [_median(steps, name, lambda one: one.answer["shuffled"] / 1e6) for name in ("lakebed", "hudi")]
        read = [_median(steps, name, lambda one: (one.answer["read"] + one.read) / 1e6) for name in ("lakebed", "hudi")]
        files = [opened[name] for name in ("lakebed", "hudi") if name in opened]
        cells = [
            index,
            " / ".join(spent),
            " / ".join(moved),
            " / ".join(str(len(one.data_files)) for one in files),
            " / ".join(str(len(one.files) - len(one.data_files)) for one in files),
            " / ".join(read),
            f"{tagged.data_files} of {everything}, {tagged.read / 1e6:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _median(steps: dict[str, list[Cost]], side: str, of: Callable[[Cost], float]) -> str:
    return f"{median(map(of, steps[side])):.2f}" if steps[side] else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--rows", type=int, default=50_000, help="of each file")
    parser.add_argument("--batch", type=int, default=100_000, help="keys of an upsert")
    parser.add_argument("--rounds", type=int, default=3, help="that are counted; one more warms up")
    parser.add_argument("--keys", choices=("random", "time"), help="one kind of keys only")
    parser.add_argument("--only", choices=("lakebed", "hudi"))
    parser.add_argument("--every", nargs="*", choices=list(EVERY), metavar="INDEX", help="every index, or these")
    parser.add_argument("--small", action="store_true", help="16 files of 10,000 rows, one round")
    parser.add_argument("--work", help="where tables go (default: the temporary folder)")
    given = parser.parse_args()
    if given.small:
        given.files, given.rows, given.batch, given.rounds = 16, 10_000, 20_000, 1
    folder = Path(tempfile.mkdtemp(prefix="lakebed-bench-", dir=given.work))
    sides: list[Side] = []
    steps: dict[str, list[Cost]] = defaultdict(list)
    try:
        if given.only != "hudi":
            sides.append(lakebed_side(folder))
        if given.only != "lakebed":
            sides.append(hudi_side(folder))
        if given.every is not None:
            work = Workload("random", given.files, given.rows, given.batch)
            print(*run_every(work, folder, sides, given.rounds, given.every or list(EVERY)), sep="\n")
            return 0
        kinds = [given.keys] if given.keys else ["random", "time"]
        for kind in kinds:
            run(Workload(kind, given.files, given.rows, given.batch), folder, sides, given.rounds, steps)
    finally:
        for side in sides:
            side.close()
        shutil.rmtree(folder, ignore_errors=True)
    return report(kinds, steps)


def report(kinds: list[str], steps: dict[str, list[Cost]]) -> int:
    print(*figures(steps), sep="\n")
    bars: list[Bar] = []
    for kind in kinds:
        for cost in steps.get(f"lakebed {kind}", [])[-1:]:
            print(f"{kind} keys: {cost.answer}")
        ours, theirs = (steps.get(f"{side} {kind}") for side in ("lakebed", "hudi"))
        ratio = median(c.cpu for c in theirs) / median(c.cpu for c in ours) if ours and theirs else None
        bars.append(Bar(f"upsert under bloom, {kind} keys, CPU: Hudi's / lakebed's", ratio, 6, True))
    print(*(bar.line() for bar in bars), sep="\n")
    return 1 if any(bar.held is False for bar in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
