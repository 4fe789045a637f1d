"""A table that is written again and again with the default services: what a commit, an open and a `get` cost, how many
files there are, the memory of the process and what its caches hold.

python bench/long_life.py                  2,000 commits of 10 rows into one small file group, on local disk
python bench/long_life.py --commits 5000 --picture docs/images/long_life.svg
python bench/long_life.py --reopen         the table is opened anew for each commit
python bench/long_life.py --uri memory://x elsewhere

Times are CPU time of this process, beside them the median commit on the clock. At the end the old table and a new one
are written in turn, 50 commits each, so that what else the machine does falls on both. Bars, of the old table against
the new one: commit, `get` and open at most 1.3 times; its files at most twice those at 200 commits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bars import Bar
from commit import KEYS, ROWS, rows_of
from svg import Axis, Points, chart

import lakebed
from lakebed.format.footer_cache import FOOTERS, POSITIONS
from lakebed.format.hfile.entries import BLOCKS
from lakebed.metadata import slices
from lakebed.metadata_kinds import files as files_module
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.timeline import timeline

MARKS = (50, 100, 200, 500, 1_000, 1_500, 2_000, 3_000, 5_000)
# The median over so many commits before a mark.
WINDOW = 50
LOOKUPS = 31


def made(uri: str) -> lakebed.Table:
    first = rows_of(0, KEYS, 1)
    table = lakebed.create(uri, first, key="id", ordering="ts", index="bucket", buckets=1)
    table.upsert(first)
    return table


def run(uri: str, commits: int, *, reopen: bool) -> list[dict[str, Any]]:
    table = made(uri)
    spent: list[float] = []
    clock: list[float] = []
    found: list[dict[str, Any]] = []
    for n in range(1, commits + 1):
        rows = rows_of(n * 37, ROWS, n + 2)
        started, at_first = time.process_time(), time.perf_counter()
        if reopen:
            table = lakebed.open(uri)
        table.upsert(rows)
        spent.append((time.process_time() - started) * 1e3)
        clock.append((time.perf_counter() - at_first) * 1e3)
        if n in MARKS or n == commits:
            window = spent[-WINDOW:]
            at = {"commits": n, "rss MB": resident(), "clock ms": statistics.median(clock[-WINDOW:])}
            at |= {"CPU ms": statistics.median(window), "least": min(window), **lookups(uri)}
            found.append({**at, "instants": instants(uri), "files": files(uri), **caches()})
            print(line(found[-1], head=len(found) == 1), flush=True)
    return found


def in_turn(uris: Sequence[str], first: int) -> list[dict[str, float]]:
    """The medians of commits from number `first` on, opens and lookups of tables of which each has its turn."""
    tables = [lakebed.open(uri) for uri in uris]
    spent: list[dict[str, list[float]]] = [{"CPU ms": [], "clock ms": []} for _ in uris]
    for n in range(first, first + WINDOW):
        rows = rows_of(n * 37, ROWS, n + 2)
        for table, times in zip(tables, spent, strict=True):
            started, at_first = time.process_time(), time.perf_counter()
            table.upsert(rows)
            times["CPU ms"].append((time.process_time() - started) * 1e3)
            times["clock ms"].append((time.perf_counter() - at_first) * 1e3)
    looked = [[lookups(uri) for uri in uris] for _ in range(3)]
    return [
        {name: statistics.median(values) for name, values in times.items()}
        | {name: min(turn[at][name] for turn in looked) for name in ("open ms", "get ms")}
        for at, times in enumerate(spent)
    ]


def line(row: dict[str, Any], *, head: bool) -> str:
    shown = "".join(f"{value:>10.1f}" if "ms" in name else f"{value:>10.0f}" for name, value in row.items())
    return ("".join(f"{name:>10}" for name in row) + "\n" if head else "") + shown


def lookups(uri: str) -> dict[str, float]:
    """Milliseconds to open the table, and to get a row of it then; the medians of a few."""
    opens: list[float] = []
    gets: list[float] = []
    for n in range(LOOKUPS):
        started = time.process_time()
        table = lakebed.open(uri)
        opened = time.process_time()
        assert table.get([f"key-{n:06d}"]).num_rows == 1
        opens.append((opened - started) * 1e3)
        gets.append((time.process_time() - opened) * 1e3)
    return {"open ms": statistics.median(opens), "get ms": statistics.median(gets)}


def files(uri: str) -> int:
    """All files of the table, its metadata table's among them."""
    return sum(1 for _ in open_storage(uri).list())


def picture(found: list[dict[str, Any]]) -> str:
    """Commits, opens and lookups as the table grows old."""
    names = {"CPU ms": "a commit", "get ms": "get", "open ms": "open"}
    lines: dict[str, Points] = {
        name: [(row["commits"], max(row[key], 0.1)) for row in found] for key, name in names.items()
    }
    x = Axis(
        "commits", [mark for mark in (50, 100, 200, 500, 1_000, 2_000, 5_000) if mark <= found[-1]["commits"]], log=True
    )
    top = max(point[1] for line in lines.values() for point in line)
    y = Axis("milliseconds of CPU time", [tick for tick in (0.1, 1, 10, 100, 1_000) if tick < 10 * top], log=True)
    return chart("Small commits with the default services", x, y, lines)


def bars(found: list[dict[str, Any]], old: dict[str, float], new: dict[str, float]) -> list[Bar]:
    last = found[-1]
    settled = next((row for row in found if row["commits"] >= 200), last)
    return [
        Bar("commit, p50 of CPU time: old / new", old["CPU ms"] / new["CPU ms"], 1.3, False),
        Bar("commit, p50 on the clock: old / new", old["clock ms"] / new["clock ms"], 1.3, False),
        Bar("get: old / new", old["get ms"] / new["get ms"], 1.3, False),
        Bar("open: old / new", old["open ms"] / new["open ms"], 1.3, False),
        Bar("files: last / at 200", last["files"] / settled["files"], 2, False),
    ]


def resident() -> float:
    """Memory of this process, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def instants(uri: str) -> int:
    """Files on the table's timeline."""
    storage = open_storage(uri)
    return len(storage.list_names(load_table_config(storage).timeline_path))


def caches() -> dict[str, float]:
    """What the process keeps of files, in MB by their own account."""
    held = {
        "blocks": BLOCKS,
        "hfiles": slices.HFILES._cache,  # pyright: ignore[reportPrivateUsage]
        "logs": slices.LOGS._cache,  # pyright: ignore[reportPrivateUsage]
        "lists": files_module._LONG,  # pyright: ignore[reportPrivateUsage]
        "bodies": timeline._BODIES,  # pyright: ignore[reportPrivateUsage]
        "timelines": timeline._LISTED,  # pyright: ignore[reportPrivateUsage]
        "footers": FOOTERS,
        "positions": POSITIONS,
    }
    return {name: cache.nbytes / (1 << 20) for name, cache in held.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=2_000)
    parser.add_argument("--reopen", action="store_true")
    parser.add_argument("--uri")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uri = asked.uri or f"{folder}/table"
        found = run(uri, asked.commits, reopen=asked.reopen)
        made(f"{uri}-new")
        turns = in_turn([uri, f"{uri}-new"], asked.commits + 1)
    for name, turn in zip(("old", "new"), turns, strict=True):
        print(f"{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in turn.items()))
    for bar in bars(found, *turns):
        print(bar.line())
    if asked.picture:
        asked.picture.write_text(picture(found))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
