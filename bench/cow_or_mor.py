"""Copy-on-write beside merge-on-read, in this process: the figures and pictures of docs/cow_or_mor.md.

    python bench/cow_or_mor.py                        1,000,000 rows x 9 columns in 4 buckets
    python bench/cow_or_mor.py --pictures docs/images  draws the pictures there as well
    python bench/cow_or_mor.py --rows 100000          a quick look

CPU seconds of this process. Upserts and compactions are the least of a few runs, scans too.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Literal

from mor import BUCKETS, COLUMNS, Tables, scanned
from svg import Axis, Points, chart

import lakebed

Kind = Literal["cow", "mor"]
KINDS: tuple[Kind, ...] = ("cow", "mor")
SIZES = (10, 100, 1_000, 10_000, 100_000)
UPSERTS = (0, 1, 2, 5, 10, 20)
_NAMES = {"cow": "copy-on-write", "mor": "merge-on-read"}
_RUNS = 3


def least(work: Callable[[], Any], runs: int = _RUNS) -> float:
    """CPU seconds of the best run."""
    return min(_timed(work) for _ in range(runs))


def _timed(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


class Comparison:
    """Both kinds of table with the same rows, and what was measured of them."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._tables = Tables(folder, rows, "avro")
        self._rows = rows
        self._versions: Iterator[int] = count(2)

    def upserts(self, kind: Kind) -> Points:
        """The cost of an upsert by its number of rows."""
        table = self._tables.loaded(kind)
        self._upsert(table, 10)
        sizes = [size for size in SIZES if size <= self._rows // 10]
        return [(size, least(lambda size=size: self._upsert(table, size))) for size in sizes]

    def scans(self, kind: Kind, query: Literal["snapshot", "read_optimized"] = "snapshot") -> tuple[Points, float]:
        """The cost of a scan after so many upserts of a hundredth of the rows each; that of all these upserts."""
        table = self._tables.loaded(kind)
        found: list[tuple[float, float]] = []
        done, spent = 0, 0.0
        for upserts in UPSERTS:
            while done < upserts:
                spent += self._upsert(table, self._rows // 100)
                done += 1
            found.append((upserts, least(scanned(table))))
        self.last = table
        return found, spent

    def compactions(self) -> Points:
        """The cost of a compaction after so many upserts of a hundredth of the rows each."""
        table = self._tables.loaded("mor")
        found: list[tuple[float, float]] = []
        done = 0
        for upserts in UPSERTS[1:]:
            while done < upserts:
                self._upsert(table, self._rows // 100)
                done += 1
            twins = iter([self._tables.copy(table) for _ in range(_RUNS)])
            found.append((upserts, least(lambda twins=twins: next(twins).maintenance.compact())))
        return found

    def _upsert(self, table: lakebed.Table, size: int) -> float:
        rows = self._tables.some(size, next(self._versions))
        return _timed(lambda: self._tables.upsert(table, rows))


def measured(folder: Path, rows: int) -> dict[str, Any]:
    comparison = Comparison(folder, rows)
    found: dict[str, Any] = {"upserts": {kind: comparison.upserts(kind) for kind in KINDS}, "scans": {}, "spent": {}}
    for kind in KINDS:
        found["scans"][kind], found["spent"][kind] = comparison.scans(kind)
    found["compactions"] = comparison.compactions()
    return found


def printed(found: dict[str, Any], rows: int) -> None:
    print(f"{rows:,} rows x {COLUMNS} columns in {BUCKETS} buckets, CPU seconds")
    print(f"\n{'upsert of':>12}{'cow':>10}{'mor':>10}{'cow/mor':>10}")
    for (size, cow), (_, mor) in zip(*(found["upserts"][kind] for kind in KINDS), strict=True):
        print(f"{size:>12,}{cow:>10.3f}{mor:>10.3f}{cow / mor:>10.1f}")
    print(f"\n{'upserts':>12}{'scan cow':>10}{'scan mor':>10}{'mor/cow':>10}{'compaction':>12}")
    compactions = dict(found["compactions"])
    for (upserts, cow), (_, mor) in zip(*(found["scans"][kind] for kind in KINDS), strict=True):
        print(f"{upserts:>12,}{cow:>10.3f}{mor:>10.3f}{mor / cow:>10.1f}{compactions.get(upserts, 0):>12.3f}")
    print(f"\nall {UPSERTS[-1]} upserts: cow {found['spent']['cow']:.1f}, mor {found['spent']['mor']:.1f}")


def draw(found: dict[str, Any], folder: Path, rows: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    named = {_NAMES[kind]: found["upserts"][kind] for kind in KINDS}
    top = next(t for t in (1, 10, 100) if t >= max(y for line in named.values() for _, y in line))
    sizes = [x for x, _ in found["upserts"]["cow"]]
    costs = Axis("CPU seconds", [t for t in (0.01, 0.1, 1, 10, 100) if t <= top], log=True)
    title = f"An upsert into {rows:,} rows"
    (folder / "upsert.svg").write_text(chart(title, Axis("rows upserted", sizes, log=True), costs, named))
    named = {_NAMES[kind]: found["scans"][kind] for kind in KINDS} | {"compaction": found["compactions"]}
    most = max(y for line in named.values() for _, y in line)
    step = next(s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10) if most / s <= 6)
    costs = Axis("CPU seconds", [round(step * n, 1) for n in range(int(most / step) + 2)])
    counts = Axis("upserts of 1 % of the rows since the last compaction", UPSERTS[:1] + UPSERTS[3:])
    (folder / "scan.svg").write_text(chart(f"A scan of {rows:,} rows, and a compaction", counts, costs, named))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pictures", type=Path, help="a folder for the pictures")
    parser.add_argument("--folder", type=Path, help="where tables go")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        found = measured(Path(folder), asked.rows)
    printed(found, asked.rows)
    if asked.pictures:
        draw(found, asked.pictures, asked.rows)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
