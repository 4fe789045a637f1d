"""Table services, lakebed and real Hudi in turn on copies of the same bytes: CPU seconds of the whole process trees.

    python bench/services.py                     1,000,000 rows clustered, 1,000 commits cleaned and archived
    python bench/services.py --rows 100000 --commits 100 --rounds 1
    python bench/services.py --only clustering

lakebed writes the tables in this process; both sides then work on copies of them: clustering of sixteen files to
one in the order of two columns, along a Z-order curve through them, and as they come; cleaning of what so many commits
to one file group have left, and archival of their instants. The metadata table is kept, as both keep it by default.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from bars import Bar, figures
from row_groups import rows_of
from sides import Cost, Side, hudi_side, lakebed_side

import lakebed

FILES = 16
KEPT = 10
INSTANTS = (20, 30)
LAYOUTS: dict[str, tuple[list[str], str]] = {
    "sort": (["word", "price"], "linear"),
    "Z-order": (["quantity", "price"], "zorder"),
    "as they come": ([], ""),
}
HUDIS_LAYOUTS = {"zorder": "z-order"}
QUIET = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}


class Services:
    """The sides, and what was measured of them."""

    def __init__(self, sides: Sequence[Side], work: Path) -> None:
        self.sides = sides
        self.work = work
        self.steps: dict[str, list[Cost]] = defaultdict(list)

    def each(self, step: str, table: Path, ask: Callable[[Side, str], Sequence[Cost]], *steps: str) -> None:
        """Let both sides do something to a copy of a table, which must hold the same rows then."""
        sums: dict[str, Any] = {}
        for side in self.sides:
            copy = self.work / "copy"
            shutil.copytree(table, copy)
            costs = ask(side, str(copy))
            for name, cost in zip(steps or (step,), costs, strict=True):
                self.steps[f"{side.name} {name}"].append(cost)
                print(f"  {side.name} {name:<14} wall {cost.wall:7.2f}  CPU {cost.cpu:7.2f}", file=sys.stderr)
            sums[side.name] = side.ask("sums", table=str(copy)).answer, [cost.answer for cost in costs][:1]
            shutil.rmtree(copy)
        if len({str(one[0]) for one in sums.values()}) > 1:
            sys.exit(f"the tables differ after {step} (rows, sum of ts, keys): {sums}")

    def cluster(self, table: Path) -> None:
        for name, (sort, layout) in LAYOUTS.items():

            def ask(side: Side, copy: str, sort: list[str] = sort, layout: str = layout) -> list[Cost]:
                words = HUDIS_LAYOUTS.get(layout, layout) if side.name == "hudi" else layout
                return [side.ask("cluster", table=copy, sort=sort, layout=words)]

            self.each(name, table, ask)

    def tidy(self, table: Path) -> None:
        least, most = INSTANTS

        def ask(side: Side, copy: str) -> list[Cost]:
            cleaned = side.ask("clean", table=copy, retained=KEPT)
            return [cleaned, side.ask("archive", table=copy, least=least, most=most, retained=KEPT)]

        self.each("clean and archive", table, ask, "clean", "archive")

    def bars(self) -> list[Bar]:
        found: list[Bar] = []
        for step in (*LAYOUTS, "clean", "archive"):
            ours, theirs = (self.steps.get(f"{side} {step}") for side in ("lakebed", "hudi"))
            ratio = median(c.cpu for c in theirs) / median(c.cpu for c in ours) if ours and theirs else None
            name = f"clustering, {step}" if step in LAYOUTS else step
            found.append(Bar(f"{name}, CPU: Hudi's / lakebed's", ratio, 5, True))
        return found


def small_files(folder: Path, rows: int) -> Path:
    """A table of sixteen files."""
    data = rows_of(rows, np.random.default_rng(1))
    part = -(-rows // FILES)
    properties = {**QUIET, "hoodie.parquet.small.file.limit": 0}
    table = lakebed.create(str(folder), data.schema, key="id", ordering="ts", index="simple", properties=properties)
    for n in range(FILES):
        table.bulk_insert(data.slice(n * part, part))
    return folder


def many_commits(folder: Path, commits: int) -> Path:
    """A table with so many commits of ten rows to one file group, which nobody has tidied."""
    dice = np.random.default_rng(2)
    rows = rows_of(1_000, dice)
    table = lakebed.create(
        str(folder), rows.schema, key="id", ordering="ts", index="bucket", buckets=1, properties=QUIET
    )
    for n in range(commits):
        some = rows.take(pa.array(dice.choice(len(rows), 10, replace=False)))
        table.upsert(some.set_column(6, "ts", pa.array(np.full(len(some), n))) if n else rows)
    return folder


def run(work: Path, asked: argparse.Namespace) -> Services:
    """Both sides do all of it on small tables first."""
    warm, whole = [], []
    if asked.only != "tidy":
        warm.append(("cluster", small_files(work / "warm-files", 16_000)))
        whole.append(("cluster", small_files(work / "files", asked.rows)))
    if asked.only != "clustering":
        warm.append(("tidy", many_commits(work / "warm-commits", 60)))
        whole.append(("tidy", many_commits(work / "commits", asked.commits)))
    sides: list[Side] = []
    try:
        sides += [lakebed_side(work), hudi_side(work)]
        for tables, rounds in ((warm, asked.warm_up), (whole, asked.rounds)):
            services = Services(sides, work)
            for _ in range(rounds):
                for verb, table in tables:
                    getattr(services, verb)(table)
    finally:
        for side in sides:
            side.close()
    return services


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--only", choices=["clustering", "tidy"])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        services = run(Path(folder), asked)
    found = services.bars()
    for line in [*figures(services.steps), "", *(bar.line() for bar in found)]:
        print(line)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(bar) for bar in found], indent=1))
    raise SystemExit(any(bar.held is False for bar in found))


if __name__ == "__main__":
    main()
