"""A process that commits again and again: its memory, its CPU time a commit, and what its caches hold.

python bench/long_life.py                  2,000 commits of 10 rows into one small file group, on local disk
python bench/long_life.py --reopen         the table is opened anew for each commit
python bench/long_life.py --uri memory://x elsewhere
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from commit import KEYS, ROWS, rows_of

import lakebed
from lakebed.format.footer_cache import FOOTERS
from lakebed.format.hfile.cache import BLOCKS
from lakebed.format.key_positions import POSITIONS
from lakebed.metadata.kinds import files_records
from lakebed.metadata.store import small_files
from lakebed.storage import open_storage
from lakebed.timeline import timeline
from lakebed.timeline.properties_file import load_table_config

MARKS = (50, 100, 200, 500, 1_000, 1_500, 2_000, 3_000, 5_000)
# CPU time is the median over so many commits before a mark.
WINDOW = 50


def run(uri: str, commits: int, *, reopen: bool) -> list[dict[str, Any]]:
    first = rows_of(0, KEYS, 1)
    table = lakebed.create(uri, first, key="id", ordering="ts", index="bucket", buckets=1)
    table.upsert(first)
    spent: list[float] = []
    found: list[dict[str, Any]] = []
    for n in range(1, commits + 1):
        rows = rows_of(n * 37, ROWS, n + 2)
        started = time.process_time()
        if reopen:
            table = lakebed.open(uri)
        table.upsert(rows)
        spent.append((time.process_time() - started) * 1e3)
        if n in MARKS or n == commits:
            window = spent[-WINDOW:]
            at = {"commits": n, "rss MB": resident(), "CPU ms": statistics.median(window), "least": min(window)}
            found.append({**at, "files": instants(uri), **caches()})
            print(line(found[-1], head=len(found) == 1), flush=True)
    return found


def line(row: dict[str, Any], *, head: bool) -> str:
    shown = "".join(f"{value:>10.0f}" for value in row.values())
    return ("".join(f"{name:>10}" for name in row) + "\n" if head else "") + shown


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
        "hfiles": small_files.HFILES._kept,  # pyright: ignore[reportPrivateUsage]
        "logs": small_files.LOGS._kept,  # pyright: ignore[reportPrivateUsage]
        "lists": files_records._LONG,  # pyright: ignore[reportPrivateUsage]
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
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(asked.uri or f"{folder}/table", asked.commits, reopen=asked.reopen)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
