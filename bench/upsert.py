"""A keyed upsert, lakebed on PySpark against real Hudi: CPU seconds of each process tree, in turn, warm.

    python bench/upsert.py                       3 M rows, both sides, three rounds
    python bench/upsert.py --rows 300000 --only lakebed

See README.md in this folder for what is measured and what the bars mean.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from bars import as_json, bars, figures
from rows import Inputs, make_inputs
from sides import Cost, Side, floor_side, hudi_side, lakebed_side


class Bench:
    """The sides, the inputs and what was measured."""

    def __init__(self, sides: list[Side], floor: Side | None, inputs: Inputs, work: Path, buckets: int) -> None:
        self.sides = sides
        self.floor = floor
        self.inputs = inputs
        self.work = work
        self.buckets = buckets
        self.steps: dict[str, list[Cost]] = defaultdict(list)

    def warm_up(self, rounds: int) -> None:
        """The same steps on other tables, not counted."""
        kept, self.steps = self.steps, defaultdict(list)
        for n in range(rounds):
            self.round(f"warm-{n}")
        self.steps = kept

    def round(self, name: str) -> None:
        """Every step once, the sides in turn."""
        for side in self.sides:
            self._step(side, "load", name, self.inputs.load)
        for side in self.sides:
            if side.name == "lakebed":
                self._baselines(side, name)
        for side in self.sides:
            self._step(side, "upsert", name, self.inputs.upsert)
        for small in self.inputs.small:
            for side in self.sides:
                self._step(side, "upsert", name, small, as_="small")
        self._same(name)
        for side in self.sides:
            shutil.rmtree(self._table(side, name))

    def _step(self, side: Side, cmd: str, name: str, data: Path, as_: str = "") -> None:
        cost = side.ask(cmd, table=self._table(side, name), data=data, buckets=self.buckets)
        self._note(f"{side.name} {as_ or cmd}", cost)

    def _baselines(self, side: Side, name: str) -> None:
        """What lakebed is held against, on the files it has just loaded."""
        table, out = self._table(side, name), self.work / "baseline"
        self._note("spark write", side.ask("spark_write", data=self.inputs.load, out=out, buckets=self.buckets))
        self._note("count only", side.ask("count_only", table=table, data=self.inputs.upsert))
        self._note("count only, load", side.ask("count_only", table=table, data=self.inputs.load))
        for _ in range(3):
            self._note("lakebed scan", side.ask("scan", table=table))
            self._note("spark scan", side.ask("scan_files", table=table, columns=self.inputs.columns))
        if self.floor is not None:
            files = side.ask("files", table=table).answer
            self._note("floor", self.floor.ask("rewrite", files=files, out=out / "floor"))
        shutil.rmtree(out)

    def _same(self, name: str) -> None:
        """Both tables must hold the same rows."""
        sums = {side.name: side.ask("sums", table=self._table(side, name)).answer for side in self.sides}
        if len({str(s) for s in sums.values()}) > 1:
            sys.exit(f"the tables differ (rows, sum of ts, keys): {sums}")

    def _table(self, side: Side, name: str) -> str:
        return str(self.work / f"{side.name}-{name}")

    def _note(self, step: str, cost: Cost) -> None:
        self.steps[step].append(cost)
        print(f"  {step:<18} wall {cost.wall:7.2f}  CPU {cost.cpu:7.2f}  {cost.answer or ''}", file=sys.stderr)


def main() -> int:
    arguments = _arguments()
    os.environ["BENCH_METADATA"] = "1" if arguments.metadata else "0"
    os.environ["BENCH_SORT"] = arguments.sort
    work = Path(tempfile.mkdtemp(prefix="lakebed-bench-", dir=arguments.work))
    sides: list[Side] = []
    floor: Side | None = None
    try:
        inputs = make_inputs(work / "inputs", arguments.rows, arguments.columns, arguments.small)
        if arguments.only != "hudi":
            sides.append(lakebed_side(work))
            floor = floor_side(work)
        if arguments.only != "lakebed":
            sides.append(hudi_side(work))
        bench = Bench(sides, floor, inputs, work, arguments.buckets)
        bench.warm_up(arguments.warm_up)
        for n in range(arguments.rounds):
            bench.round(str(n))
    finally:
        for side in (*sides, *([floor] if floor else [])):
            side.close()
        if arguments.keep:
            print(f"left at {work}", file=sys.stderr)
        else:
            shutil.rmtree(work, ignore_errors=True)
    return _report(bench, arguments)


def _metadata(arguments: argparse.Namespace) -> str:
    return "metadata table with column stats and record index" if arguments.metadata else "no metadata table"


def _report(bench: Bench, arguments: argparse.Namespace) -> int:
    rows, upserted = bench.inputs.rows, bench.inputs.upsert_rows
    print(
        f"{rows:,} rows x {len(bench.inputs.columns) + 5} columns (5 are Hudi's), {bench.buckets} buckets; upsert of "
        f"{upserted:,}; zstd, {_metadata(arguments)}, both sides; sort={arguments.sort}; "
        f"medians of {arguments.rounds} rounds"
    )
    print(*figures(bench.steps), sep="\n")
    found = bars(bench.steps)
    print(*(bar.line() for bar in found), sep="\n")
    if arguments.json:
        about: dict[str, Any] = {
            "rows": rows,
            "columns": list(bench.inputs.columns),
            "buckets": bench.buckets,
            "upsert": upserted,
            "rounds": arguments.rounds,
            "cores": os.cpu_count(),
            "machine": platform.machine(),
        }
        Path(arguments.json).write_text(json.dumps(as_json(bench.steps, about), indent=1))
    return 1 if any(bar.held is False for bar in found) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows to load; a tenth as many are upserted")
    parser.add_argument("--columns", type=int, default=7, choices=range(6, 13), metavar="6-12", help="data columns")
    parser.add_argument("--buckets", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=2, help="rounds before the counted ones")
    parser.add_argument("--small", type=int, default=2, help="upserts of 1,000 rows a round")
    parser.add_argument("--metadata", action="store_true", help="with column stats and record index on both sides")
    parser.add_argument("--sort", choices=("key", "none"), default="none", help="the order of rows in lakebed's files")
    parser.add_argument("--only", choices=("lakebed", "hudi"), help="run one side only")
    parser.add_argument("--json", metavar="FILE", help="write every figure there as well")
    parser.add_argument("--work", help="where tables go (default: the temporary folder)")
    parser.add_argument("--keep", action="store_true", help="leave inputs, logs and tables")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
