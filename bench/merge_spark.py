"""MERGE by key on Spark, the same statement: lakebed beside its own upsert, real Hudi and Delta Lake, in turn, warm.

    python bench/merge_spark.py                             300,000 rows into 3,000,000, three rounds
    python bench/merge_spark.py --rows 10000 --into 1000000 --only lakebed delta

CPU seconds of each process tree. Each round loads a table of each side, and merges the same rows into it; 14 of 15 keys
are known. The tables must hold the same rows at the end of a round.

Bars: no more than 1.15 times lakebed's upsert of the same rows; at least 8 times less than Hudi, and 5 times less than
Delta Lake.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bars import Bar
from rows import Inputs, make_inputs
from sides import Cost, Side, delta_side, hudi_side, lakebed_side

STATEMENT = (
    "MERGE INTO trips AS t USING changes AS s ON t.id = s.id"
    " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
SIDES: dict[str, Callable[[Path], Side]] = {"lakebed": lakebed_side, "hudi": hudi_side, "delta": delta_side}
MERGE_PER_UPSERT, HUDI_PER_MERGE, DELTA_PER_MERGE = 1.15, 8.0, 5.0


class Rounds:
    """The sides, the inputs and what was measured."""

    def __init__(self, sides: list[Side], inputs: Inputs, work: Path, buckets: int) -> None:
        self.steps: dict[str, list[Cost]] = defaultdict(list)
        self._sides, self._inputs, self._work, self._buckets = sides, inputs, work, buckets

    def run(self, *, counts: bool) -> None:
        """One round of every side, which must end with the same rows."""
        found: dict[str, str] = {}
        for side in self._sides:
            table = str(self._work / f"{side.name}-table")
            steps: dict[str, dict[str, Any]] = {"merge": {"statement": STATEMENT}}
            if side.name == "lakebed":
                steps["upsert"] = {"buckets": self._buckets}
            for step, words in steps.items():
                side.ask("load", table=table, data=self._inputs.load, buckets=self._buckets)
                cost = side.ask(step, table=table, data=self._inputs.upsert, **words)
                found[f"{side.name} {step}"] = str(side.ask("sums", table=table).answer)
                side.ask("forget")
                shutil.rmtree(table)
                if counts:
                    self.steps[f"{side.name} {step}"].append(cost)
                print(f"  {side.name} {step:<8} wall {cost.wall:7.2f}  CPU {cost.cpu:7.2f}", file=sys.stderr)
        if len(set(found.values())) > 1:
            sys.exit(f"the tables differ (rows, sum of ts, keys): {found}")


def bars(cpu: dict[str, float]) -> list[Bar]:
    def ratio(over: str, under: str) -> float | None:
        return cpu[over] / cpu[under] if {over, under} <= set(cpu) else None

    return [
        Bar("merge / upsert", ratio("lakebed merge", "lakebed upsert"), MERGE_PER_UPSERT, at_least=False),
        Bar("Hudi's merge / merge", ratio("hudi merge", "lakebed merge"), HUDI_PER_MERGE, at_least=True),
        Bar("Delta's merge / merge", ratio("delta merge", "lakebed merge"), DELTA_PER_MERGE, at_least=True),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--into", type=int, default=3_000_000)
    parser.add_argument("--columns", type=int, default=9)
    parser.add_argument("--buckets", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=SIDES, default=list(SIDES))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    sides: list[Side] = []
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        work = Path(folder)
        inputs = make_inputs(work / "inputs", given.into, given.columns, 0, given.rows)
        try:
            sides += [SIDES[name](work) for name in given.only]
            rounds = Rounds(sides, inputs, work, given.buckets)
            for number in range(given.rounds + 1):  # the first warms up
                rounds.run(counts=number > 0)
        finally:
            for side in sides:
                side.close()
    cpu = {name: median(cost.cpu for cost in costs) for name, costs in rounds.steps.items()}
    shape = f"{given.columns} columns, {given.buckets} buckets"
    print(f"{given.rows:,} rows into {given.into:,}, {shape}: CPU seconds (on the clock)")
    for name, seconds in cpu.items():
        print(f"  {name:20s}{seconds:8.2f}  ({median(cost.wall for cost in rounds.steps[name]):.2f})")
    found = bars(cpu)
    print(*(bar.line() for bar in found), sep="\n")
    if given.json:
        given.json.write_text(json.dumps({"rows": given.rows, "into": given.into, "cpu": cpu}, indent=1))
    return int(any(bar.held is False for bar in found))


if __name__ == "__main__":
    raise SystemExit(main())
