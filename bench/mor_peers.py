"""The same upserts by other table formats, a process each: deltalake's merge, Lance's merge_insert, pyiceberg's upsert.

Run by mor.py with an interpreter that has some of these packages; one that is missing is said, and left out. It imports
nothing of lakebed.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install deltalake pylance 'pyiceberg[sql-sqlite,pyarrow]' numpy
    python bench/mor.py --peers /tmp/peers/bin/python
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rows import KEY, random_keys, trips_of

COLUMNS = 9
_SEED = 7
PEERS = ("deltalake", "lance", "pyiceberg")
# Slow: it goes by one filter expression of all keys.
_MAX_ITEMS = {"pyiceberg": 1_000}
SIZES = (10, 1_000, 10_000)


class DeltaLake:
    """One table of one folder; the merge reads, joins and rewrites the files that hold a key."""

    def __init__(self, folder: Path, rows: pa.Table) -> None:
        from deltalake import DeltaTable, write_deltalake

        write_deltalake(str(folder), rows)
        self._table = DeltaTable(str(folder))

    def upsert(self, rows: pa.Table) -> None:
        merge = self._table.merge(rows, predicate=f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def scan(self) -> int:
        return self._table.to_pyarrow_table().num_rows


class Lance:
    """One dataset, rows of known keys marked as deleted and written anew."""

    def __init__(self, folder: Path, rows: pa.Table) -> None:
        import lance

        self._lance, self._uri = lance, str(folder)
        lance.write_dataset(rows, self._uri)

    def upsert(self, rows: pa.Table) -> None:
        dataset = self._lance.dataset(self._uri)
        dataset.merge_insert(KEY).when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def scan(self) -> int:
        return self._lance.dataset(self._uri).to_table().num_rows


class PyIceberg:
    """A table of a catalog in SQLite; known rows are found by a filter, and their files rewritten."""

    def __init__(self, folder: Path, rows: pa.Table) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        folder.mkdir(parents=True)
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        catalog.create_namespace("bench")
        self._table = catalog.create_table("bench.trips", schema=rows.schema)
        self._table.append(rows)

    def upsert(self, rows: pa.Table) -> None:
        self._table.upsert(rows, join_cols=[KEY])

    def scan(self) -> int:
        return self._table.scan().to_arrow().num_rows


_KINDS: dict[str, Callable[[Path, pa.Table], Any]] = {"deltalake": DeltaLake, "lance": Lance, "pyiceberg": PyIceberg}


def beside(folder: Path, rows: int, python: str) -> None:
    """Print the figures of each peer, run in that interpreter, one process after another."""
    for peer in PEERS:
        command = [python, __file__, peer, str(folder / peer), str(rows)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
        if done.returncode:
            print(f"{peer}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}", file=sys.stderr)
            continue
        print(peer, *(f"{step} {seconds:.2f}" for step, seconds in json.loads(done.stdout).items()), sep="  ")


def measure(peer: str, folder: Path, rows: int) -> dict[str, float]:
    """CPU seconds of each step, threads and all."""
    rng = np.random.default_rng(_SEED)
    keys = random_keys(rng, rows)
    found: dict[str, float] = {}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        started = time.process_time()
        answer = work()
        found[step] = min(found.get(step, float("inf")), time.process_time() - started)
        return answer

    loaded = trips_of(rng, keys, 1, COLUMNS)
    table = timed("load", lambda: _KINDS[peer](folder, loaded))
    for size in SIZES:
        if size > _MAX_ITEMS.get(peer, size):
            continue
        for version in (2, 3):
            some = keys.take(pa.array(rng.choice(rows, min(size, rows), replace=False)))
            newer = trips_of(rng, some, version, COLUMNS)
            timed(f"upsert of {size:,}", lambda newer=newer: table.upsert(newer))
    for _ in range(2):
        if timed("scan", table.scan) != rows:
            raise RuntimeError("the table has other rows than it must")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", type=int)
    asked = parser.parse_args()
    print(json.dumps(measure(asked.peer, asked.folder, asked.rows)))
