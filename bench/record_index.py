"""The record index on a wide table of 5,000 small files, against the simple index and real Hudi.

    python bench/record_index.py                 5,000 file groups, 500,000 rows, batches of 500 keys
    python bench/record_index.py --small         500 file groups, a check in a few minutes
    python bench/record_index.py --only lakebed --folder /tmp/wide      keeps the tables there
    python bench/record_index.py --only process      tagging and point queries, without Spark and Hudi

Upserts under record index, global simple and bucket, lakebed and real Hudi in turn on the same table; tagging alone,
cold and warm, with the files opened and bytes read; a point query with and without the index; and the batch from which
on the simple index is the cheaper one. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bars import Bar, figures
from sides import Cost, Side, hudi_side, lakebed_side
from svg import Axis, chart
from tagging import Tagging, tag

import lakebed
from lakebed.index.costs import Batch, crossover, record_cost, simple_cost

COLUMNS = 16
ROWS_A_FILE = 100
FILES_A_PARTITION = 10
TOUCHED = 25
QUICK = {"hoodie.metadata.index.column.stats.column.list": "ts", "hoodie.parquet.small.file.limit": 0}


class Wide:
    """The rows: random keys, so that no file's key range says anything; file groups are filled one a partition path and
    commit."""

    def __init__(self, files: int) -> None:
        self.partitions = files // FILES_A_PARTITION
        self.files = files
        self.rows = files * ROWS_A_FILE

    def part(self, commit: int) -> pa.Table:
        """The rows of one commit: a file's worth for each partition path."""
        return self._table(commit, np.repeat(np.arange(self.partitions), ROWS_A_FILE), 1)

    def batch(self, count: int, turn: int) -> pa.Table:
        """Rows of known keys that lie in a few file groups: `TOUCHED` of them, more for a batch that fills these."""
        groups = max(TOUCHED, -(-count // ROWS_A_FILE))
        dice = np.random.default_rng(turn)
        chosen = dice.choice(self.files, min(groups, self.files), replace=False)
        places = [(g % FILES_A_PARTITION, g // FILES_A_PARTITION) for g in chosen.tolist()]
        share = -(-count // len(places))
        keys = [(c, p * ROWS_A_FILE + n, p) for c, p in places for n in range(min(share, ROWS_A_FILE))][:count]
        return self._made([_key(c, n) for c, n, _ in keys], np.array([p for *_, p in keys]), 10 + turn)

    def _table(self, commit: int, partitions: Any, ts: int) -> pa.Table:
        return self._made([_key(commit, n) for n in range(len(partitions))], partitions, ts)

    def _made(self, keys: list[str], partitions: Any, ts: int) -> pa.Table:
        dice = np.random.default_rng(ts)
        count = len(keys)
        days = pa.array([f"d{n:04d}" for n in range(self.partitions)])
        columns: dict[str, Any] = {"id": keys, "day": days.take(pa.array(partitions)), "ts": np.full(count, ts)}
        for n in range(COLUMNS - 3):
            columns[f"c{n:02d}"] = dice.integers(0, 10**6, count) if n % 2 else dice.random(count)
        return pa.table(columns)


def _key(commit: int, number: int) -> str:
    return hashlib.md5(f"{commit} {number}".encode()).hexdigest()


def built(folder: Path, name: str, wide: Wide, **index: Any) -> Path:
    """The table's path; made where it is not there."""
    path = folder / name
    if not (path / ".hoodie").exists():
        started = time.perf_counter()
        first = wide.part(0)
        table = lakebed.create(
            str(path),
            first.schema,
            key="id",
            partition_by="day",
            ordering="ts",
            properties={"hoodie.table.name": "wide"},
            **index,
        )
        for commit in range(FILES_A_PARTITION):
            table.bulk_insert(wide.part(commit), options=QUICK)
        print(f"  {name}: {wide.files} file groups in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return path


def copied(source: Path, name: str) -> Path:
    path = source.parent / name
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(source, path)
    return path


class Bench:
    """The tables and what was measured."""

    def __init__(self, wide: Wide, folder: Path, sides: list[Side], rounds: int, keys: int) -> None:
        self.wide, self.folder, self.sides, self.rounds, self.keys = wide, folder, sides, rounds, keys
        self.steps: dict[str, list[Cost]] = defaultdict(list)
        self.tagging: dict[tuple[str, str, int], list[Tagging]] = defaultdict(list)
        self.queries: dict[str, list[float]] = defaultdict(list)
        self.record = built(folder, "record", wide, index="record")
        self.simple = folder / "simple"
        if not (self.simple / ".hoodie").exists():
            copied(self.record, "simple")
            indexes = lakebed.open(str(self.simple)).indexes
            indexes.adopt("global_simple", update_partition_path=False)
            indexes.drop("record_index")

    def tag_alone(self) -> None:
        """Both indexes, cold and warm, for batches of several sizes: in this process."""
        sizes = sorted({self.keys, self.keys * 20, self.keys * 100, self.wide.rows // 2})
        for size in sizes:
            batch = self.wide.batch(size, 1)
            for index, table in (("record", self.record), ("global_simple", self.simple)):
                for turn in range(self.rounds + 1 if size == self.keys else 2):
                    done = tag(str(table), index, batch, cold=turn == 0)
                    if done.found != len(batch):
                        sys.exit(f"{index} found {done.found} of {len(batch)} keys")
                    self.tagging[index, "warm" if turn else "cold", len(batch)].append(done)

    def point_queries(self) -> None:
        """One key: by the index, by a scan of all files, by real Hudi's index."""
        keys = self.wide.batch(self.rounds * 5 + 2, 3)["id"].to_pylist()
        table = lakebed.open(str(self.record))
        for number, key in enumerate(keys):
            started = time.perf_counter()
            found = lakebed.open(str(self.record)).get([key]) if not number else table.get([key])
            self._asked("get, cold" if not number else "get, warm", started, found["id"].to_pylist() == [key])
        for key in keys[:2]:
            started = time.perf_counter()
            rows = lakebed.open(str(self.simple)).scan(where=f"id = '{key}'", columns=["id", "ts"]).to_arrow()
            self._asked("full scan", started, rows["id"].to_pylist() == [key])
        hudi = next((side for side in self.sides if side.name == "hudi"), None)
        for number, key in enumerate(keys[: self.rounds + 2] if hudi else ()):
            assert hudi is not None
            cost = hudi.ask("point_query", table=str(self.record), key=key)
            if [row[0] for row in cost.answer] != [key]:
                sys.exit(f"real Hudi found {cost.answer} for {key}")
            self.queries["hudi, cold" if number < 2 else "hudi, warm"].append(cost.wall)

    def upserts(self, bucket: bool) -> None:
        """Whole upserts of the same batches, the sides in turn."""
        sources = {"record": self.record, "global_simple": self.simple}
        if bucket:
            sources["bucket"] = built(self.folder, "bucket", self.wide, index="bucket", buckets=FILES_A_PARTITION)
        for index, source in sources.items():
            tables = {side.name: copied(source, f"{side.name}-{index}") for side in self.sides}
            # minutes each under global simple: one turn, in which warming up is no share worth leaving out
            turns = range(1, 2) if index == "global_simple" else range(self.rounds + 1)
            for turn in turns:
                data = self.folder / f"batch-{turn}.parquet"
                pq.write_table(self.wide.batch(self.keys, 20 + turn), data)
                for side in self.sides:
                    more = {"index": index, "buckets": FILES_A_PARTITION} if side.name == "hudi" else {}
                    cost = side.ask("upsert_by", table=str(tables[side.name]), data=data, **more)
                    print(f"  {side.name} {index} {cost.wall:.2f} s {cost.answer}", file=sys.stderr)
                    if turn:
                        self.steps[f"{side.name} {index}"].append(cost)
            for path in tables.values():
                shutil.rmtree(path)

    def _asked(self, what: str, started: float, right: bool) -> None:
        self.queries[what].append(time.perf_counter() - started)
        if not right:
            sys.exit(f"{what}: a wrong answer")


def report(bench: Bench) -> int:
    wide = bench.wide
    print(f"{wide.files:,} file groups, {wide.rows:,} rows x {COLUMNS} columns, batches of {bench.keys:,} keys")
    print(f"\n{'tagging, in process':<22}{'keys':>9}{'':>6}{'seconds':>9}{'CPU s':>8}{'files':>8}{'MB read':>9}")
    for (index, how, keys), runs in bench.tagging.items():
        print(
            f"{index:<22}{keys:>9,}{how:>6}{median(r.seconds for r in runs):>9.3f}{median(r.cpu for r in runs):>8.3f}"
            f"{runs[-1].files:>8,}{runs[-1].read / 1e6:>9.1f}"
        )
    print("\npoint query, seconds  " + "   ".join(f"{k} {min(v):.4f}-{max(v):.4f}" for k, v in bench.queries.items()))
    if bench.steps:
        print("\nupsert")
        print(*figures(bench.steps), sep="\n")
        for step, costs in bench.steps.items():
            told = [c.answer for c in costs]
            stages = {k: round(median(t[k] for t in told), 3) for k in told[0] if k != "shuffled"}
            print(f"  {step:<22}{median(t['shuffled'] for t in told):>12,.0f} bytes shuffled  {stages or ''}")
    print("\n" + _crossover(bench))
    found = _bars(bench)
    print(*(bar.line() for bar in found), sep="\n")
    return 1 if any(bar.held is False for bar in found) else 0


def picture(bench: Bench) -> str:
    """CPU seconds of tagging by the keys of a batch, nothing cached."""
    lines = {
        index.replace("_", " "): [
            (keys, median(run.cpu for run in runs))
            for (name, how, keys), runs in bench.tagging.items()
            if (name, how) == (index, "cold")
        ]
        for index in ("global_simple", "record")
    }
    keys = [keys for keys, _ in lines["record"]]
    costs = [cost for line in lines.values() for _, cost in line]
    ticks = [tick for tick in (0.01, 0.1, 1.0, 10.0, 100.0) if min(costs) / 10 < tick < max(costs) * 10]
    title = f"CPU seconds to tag a batch in {bench.wide.files:,} files"
    return chart(title, Axis("keys of the batch", keys, log=True), Axis("CPU seconds", ticks, log=True), lines)


def _crossover(bench: Bench) -> str:
    """What the cost model says of these tables, beside what was measured."""
    size = sum(p.stat().st_size for p in (bench.record / ".hoodie/metadata/record_index").iterdir())
    lines = ["cost model (lakebed.index.costs), CPU seconds of this process, measured ones in brackets"]
    for keys in sorted({keys for _, _, keys in bench.tagging}):
        batch = Batch(keys, bench.wide.files, bench.wide.rows, shards=10, index_bytes=size)
        measured = {i: bench.tagging[i, "cold", keys][0].cpu for i in ("record", "global_simple")}
        lines.append(
            f"  {keys:>9,} keys: record {record_cost(batch):.3f} ({measured['record']:.3f}), global simple"
            f" {simple_cost(batch):.3f} ({measured['global_simple']:.3f})"
        )
    at = crossover(Batch(0, bench.wide.files, bench.wide.rows, shards=10, index_bytes=size))
    lines.append(
        f"  global simple is cheaper from {at:,} keys on" if at else "  the record index is cheaper for any batch"
    )
    few = crossover(Batch(0, 8, bench.wide.rows, shards=10, index_bytes=size))
    lines.append(f"  (were the same rows in 8 files: from {few:,} keys on)" if few else "  (in 8 files as well)")
    return "\n".join(lines)


def _bars(bench: Bench) -> list[Bar]:
    def tagged(how: str) -> float | None:
        record, simple = (bench.tagging.get((i, how, bench.keys)) for i in ("record", "global_simple"))
        return median(r.cpu for r in record) / median(r.cpu for r in simple) if record and simple else None

    def step(name: str, stage: str = "") -> float | None:
        costs = bench.steps.get(name)
        return median(c.answer[stage] if stage else c.cpu for c in costs) if costs else None

    def asked(name: str) -> float | None:
        return min(bench.queries[name]) if bench.queries.get(name) else None

    def ratio(a: float | None, b: float | None) -> float | None:
        return a / b if a is not None and b else None

    warm = asked("get, warm")
    return [
        Bar("tagging cold, CPU: record index / global simple", tagged("cold"), 0.28, False),
        Bar("tagging warm, CPU: record index / global simple", tagged("warm"), 0.28, False),
        Bar(
            "tagging on Spark, wall: record index / global simple",
            ratio(step("lakebed record", "tag"), step("lakebed global_simple", "tag")),
            0.28,
            False,
        ),
        Bar(
            "upsert by record index, CPU: Hudi's / lakebed's",
            ratio(step("hudi record"), step("lakebed record")),
            4,
            True,
        ),
        Bar("point query, warm: full scan / indexed", ratio(asked("full scan"), warm), 50, True),
        Bar("point query, warm: Hudi's indexed / lakebed's", ratio(asked("hudi, warm"), warm), 10, True),
    ]


def main() -> int:
    given = _arguments()
    folder = Path(given.folder or tempfile.mkdtemp(prefix="lakebed-bench-", dir=given.work))
    folder.mkdir(parents=True, exist_ok=True)
    wide = Wide(500 if given.small else given.files)
    keys = given.keys or max(25, wide.rows // 1000)
    sides: list[Side] = []
    try:
        bench = Bench(wide, folder, sides, given.rounds, keys)
        bench.tag_alone()
        if given.only in (None, "lakebed"):
            sides.append(lakebed_side(folder))
        if given.only in (None, "hudi"):
            sides.append(hudi_side(folder))
        bench.point_queries()
        if sides:
            bench.upserts(given.bucket)
        missed = report(bench)
    finally:
        for side in sides:
            side.close()
        if not given.folder:
            shutil.rmtree(folder, ignore_errors=True)
    if given.picture:
        Path(given.picture).write_text(picture(bench))
    if given.json:
        steps = {name: [[c.wall, c.cpu, c.answer] for c in costs] for name, costs in bench.steps.items()}
        Path(given.json).write_text(json.dumps({"steps": steps, "queries": bench.queries}, indent=1, default=str))
    return missed


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5_000, help="file groups, of 100 rows each")
    parser.add_argument("--keys", type=int, help="keys of a batch; a thousandth of the rows by itself")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="500 file groups")
    parser.add_argument("--bucket", action="store_true", help="a bucket table of as many file groups as well")
    parser.add_argument("--only", choices=("lakebed", "hudi", "process"), help="one side's upserts, or without Spark")
    parser.add_argument("--picture", metavar="FILE", help="an SVG file of what tagging costs by the keys of a batch")
    parser.add_argument("--json", metavar="FILE", help="write every figure there as well")
    parser.add_argument("--work", help="where tables go (default: the temporary folder)")
    parser.add_argument("--folder", help="keep the tables here, and take those that are there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
