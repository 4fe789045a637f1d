"""Merge-on-read on Spark, lakebed against real Hudi in turn: the steps, their figures and bars. Called by mor.py."""

from __future__ import annotations

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow.compute as pc
from bars import Bar, figures
from rows import ORDERING, Inputs, make_inputs, random_keys, trips_of, write_folder
from sides import Cost, Side, hudi_side, lakebed_side

COLUMNS = 7
BUCKETS = 8
LOGS = 3
_READS = 2
# Small upserts by index: those under the record index take real Hudi seven times as long.
_SMALL = {"bucket": 8, "record": 2}
_SEED = 4
INDEXES = ("bucket", "record")


class Spark:
    """The sides, the inputs and what was measured."""

    def __init__(self, sides: Sequence[Side], inputs: Inputs, logs: Sequence[Path], work: Path) -> None:
        self.sides = sides
        self.inputs = inputs
        self.logs = logs
        self.work = work
        self.steps: dict[str, list[Cost]] = defaultdict(list)

    def round(self, name: str) -> None:
        for index in INDEXES:
            self._each("load", name, index, self.inputs.load)
            if index == "bucket":
                self._logs(name)
            self._each("upsert", name, index, self.inputs.upsert)
            for small in self.inputs.small[: _SMALL[index]]:
                self._each("upsert", name, index, small, as_="small")
                self._collect(small)
            self._same(name, index)
            for side in self.sides:
                shutil.rmtree(self._table(side, name, index))

    def warm_up(self, rounds: int) -> None:
        kept, self.steps = self.steps, defaultdict(list)
        for n in range(rounds):
            self.round(f"warm-{n}")
        self.steps = kept

    def _logs(self, name: str) -> None:
        """Log versions one after another, a read of what they make, and their compaction."""
        for log in self.logs:
            self._each("upsert", name, "bucket", log, as_="log")
        self._same(name, "bucket")
        for _ in range(_READS):
            for side in self.sides:
                self._note(side, "read", side.ask("mor_read", table=self._table(side, name, "bucket")))
        for side in self.sides:
            self._note(side, "compaction", side.ask("mor_compact", table=self._table(side, name, "bucket")))
        self._same(name, "bucket")

    def _each(self, what: str, name: str, index: str, data: Path, as_: str = "") -> None:
        """A step of each side. The DataFrame of an upsert is there before the clock starts: that Spark looks at the
        files for their schema is no part of it."""
        for side in self.sides:
            table = self._table(side, name, index)
            if what == "upsert":
                side.ask("frame", data=data)
            cost = side.ask(f"mor_{what}", table=table, data=data, index=index, buckets=BUCKETS)
            self._note(side, f"{as_ or what}, {index}", cost)

    def _collect(self, data: Path) -> None:
        """The floor of an upsert of a small DataFrame: its rows have to come to this process."""
        for side in self.sides:
            if side.name == "lakebed":
                side.ask("frame", data=data)
                self._note(side, "collect", side.ask("collect", data=data))

    def _same(self, name: str, index: str) -> None:
        """Both tables must hold the same rows."""
        sums = {side.name: side.ask("sums", table=self._table(side, name, index)).answer for side in self.sides}
        if len({str(s) for s in sums.values()}) > 1:
            sys.exit(f"the tables differ (rows, sum of ts, keys): {sums}")

    def _table(self, side: Side, name: str, index: str) -> str:
        return str(self.work / f"{side.name}-{name}-{index}")

    def _note(self, side: Side, step: str, cost: Cost) -> None:
        self.steps[f"{side.name} {step}"].append(cost)
        print(f"  {side.name} {step:<18} wall {cost.wall:7.2f}  CPU {cost.cpu:7.2f}", file=sys.stderr)

    def bars(self) -> list[Bar]:
        def ratio(step: str, of: Callable[[Cost], float] = lambda cost: cost.cpu) -> float | None:
            ours, theirs = (self.steps.get(f"{side} {step}") for side in ("lakebed", "hudi"))
            return median(map(of, theirs)) / median(map(of, ours)) if ours and theirs else None

        small = ratio("small, bucket", lambda cost: cost.wall)
        return [
            Bar("upsert of a tenth, bucket index, CPU: Hudi's / lakebed's", ratio("upsert, bucket"), 8, True),
            Bar("upsert of a tenth, record index, CPU: Hudi's / lakebed's", ratio("upsert, record"), 8, True),
            Bar(f"read with {LOGS} logs, CPU: Hudi's / lakebed's", ratio("read"), 8, True),
            Bar("compaction of them, CPU: Hudi's / lakebed's", ratio("compaction"), 5, True),
            Bar("upsert of 1,000 rows, wall: lakebed's / Hudi's", 1 / small if small else None, 1 / 20, False),
        ]


def log_inputs(folder: Path, rows: int) -> list[Path]:
    """Newer rows of a thirtieth of the loaded keys, for each log version."""
    # the keys of `make_inputs`, of which the first are loaded
    keys = random_keys(np.random.default_rng(_SEED), rows + rows // 10 // 15 + 50 * max(_SMALL.values())).slice(0, rows)
    rng = np.random.default_rng(_SEED + 1)
    found: list[Path] = []
    for n in range(LOGS):
        some = keys.take(rng.choice(rows, rows // 30, replace=False))
        trips = trips_of(rng, some, 1, COLUMNS)
        newer = pc.add(trips[ORDERING], 10**9 * (n + 1))
        found.append(write_folder(folder / f"log-{n}", trips.set_column(1, ORDERING, newer), 1))
    return found


def run(work: Path, rows: int, rounds: int, warm_up: int, only: str | None = None, *, metadata: bool = True) -> Spark:
    """Every step so often, the sides in turn; the metadata table as both make it by themselves, or none but for the
    record index."""
    os.environ["BENCH_METADATA"], os.environ["BENCH_SORT"] = str(int(metadata)), "none"
    sides: list[Side] = []
    try:
        inputs = make_inputs(work / "inputs", rows, COLUMNS, max(_SMALL.values()))
        if only != "hudi":
            sides.append(lakebed_side(work))
        if only != "lakebed":
            sides.append(hudi_side(work))
        spark = Spark(sides, inputs, log_inputs(work / "inputs", rows), work)
        spark.warm_up(warm_up)
        for n in range(rounds):
            spark.round(str(n))
    finally:
        for side in sides:
            side.close()
    return spark


def lines(spark: Spark) -> list[str]:
    return figures(spark.steps)
