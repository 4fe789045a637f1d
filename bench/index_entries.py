"""A record index of a billion entries: what lookups and upserts cost as its shards become more.

    python bench/index_entries.py                        1, 10 and 100 shards of 10,000,000 entries each
    python bench/index_entries.py --shards 1,4 --entries 200000      a quick look
    python bench/index_entries.py --folder /tmp/entries  keeps the tables there, and takes those that are there

The table has 200,000 rows. The base files of its record index are links to one HFile, which has the entries of all rows
and as many made ones beside them as it takes: so each shard has what a lookup of any row in it finds, and is as large
as a real one. Each step runs in a process of its own, twice on one table object. What is found is held to the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rows import random_keys

import lakebed
from lakebed.format.hfile.reader import open_hfile
from lakebed.format.hfile.writer import HFileWriter
from lakebed.metadata_records.group_files import _BASE_BLOCK_BYTES  # pyright: ignore[reportPrivateUsage]
from lakebed.storage.opening import wrapping
from lakebed.testing import CountingStorage

ROWS, BATCH = 200_000, 10_000
SHARDS = ".hoodie/metadata/record_index"


def rows_of(numbers: np.ndarray, version: int) -> pa.Table:
    fare = numbers * 0.5
    return pa.table({"id": keys_of_rows().take(pa.array(numbers)), "ts": np.full(len(numbers), version), "fare": fare})


@cache
def keys_of_rows() -> pa.Array:
    return random_keys(np.random.default_rng(7), ROWS)


def chosen(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).choice(ROWS, count, replace=False)


def make_table(path: Path, shards: int, entries: int) -> None:
    rows = rows_of(np.arange(ROWS), 1)
    settings: dict[str, Any] = {"key": "id", "ordering": "ts", "type": "mor", "index": "record"}
    table = lakebed.create(str(path), rows.schema, **settings)
    table.bulk_insert(rows)
    table.indexes.reshard("record_index", 2)
    table.indexes.reshard("record_index", 1)
    made = path.parent / f"{path.name}.hfile"
    write_entries(base_files(path)[-1], made, entries)
    if shards > 1:
        table.indexes.reshard("record_index", shards)
    for file in base_files(path):
        file.unlink()
        os.link(made, file)
    made.unlink()


def base_files(path: Path) -> list[Path]:
    """The base files of the newest shards."""
    files = sorted((path / SHARDS).glob("*.hfile"), key=lambda file: file.name.rsplit("_", 1)[1])
    newest = files[-1].name.rsplit("_", 1)[1]
    return [file for file in files if file.name.endswith(newest)]


def write_entries(source: Path, target: Path, entries: int) -> None:
    """An HFile of the entries of another one, and of made keys with the same values."""
    reader = open_hfile(source.read_bytes())
    stored = reader.read()
    keys, values = stored.keys, stored.values
    more = random_keys(np.random.default_rng(8), entries - len(keys))
    places = pa.array(np.resize(np.arange(len(keys)), entries))
    every = pa.concat_arrays([keys.cast(pa.string()), more])
    order = pc.sort_indices(every)
    every, places = every.take(order), places.take(order)
    with target.open("wb") as file:
        writer = HFileWriter(file.write, schema_json=reader.schema_json, block_size=_BASE_BLOCK_BYTES)
        for start in range(0, entries, 1 << 20):
            writer.write(every.slice(start, 1 << 20), values.take(places.slice(start, 1 << 20)))
        writer.finish()


def get(count: int, table: lakebed.Table, turn: int) -> Callable[[], Callable[[], None]]:
    """A lookup of so many rows, which gives a check of what it found."""
    wanted = rows_of(chosen(count, 100 + turn), 1).sort_by("id").select(["id", "fare"])
    keys = wanted["id"].to_pylist()

    def act() -> Callable[[], None]:
        found = table.get(keys)

        def check() -> None:
            assert found.sort_by("id").select(["id", "fare"]).equals(wanted)

        return check

    return act


def upsert(count: int, table: lakebed.Table, turn: int) -> Callable[[], Callable[[], None]]:
    """An upsert of so many rows that are there."""
    rows = rows_of(chosen(count, 200 + turn), 2 + turn)

    def act() -> Callable[[], None]:
        result = table.upsert(rows)

        def check() -> None:
            assert (result.updated, result.inserted) == (count, 0), result

        return check

    return act


STEPS: dict[str, Callable[[lakebed.Table, int], Callable[[], Callable[[], None]]]] = {
    "get of 1 key": partial(get, 1),
    "get of 100 keys": partial(get, 100),
    "get of 10,000 keys": partial(get, BATCH),
    "upsert of 10 rows": partial(upsert, 10),
    "upsert of 10,000 rows": partial(upsert, BATCH),
}


def measured(path: str, step: str) -> dict[str, Any]:
    """CPU seconds, requests and bytes of two runs, and the process's memory in MB."""
    counted: list[CountingStorage] = []

    def counting(inner: Any) -> CountingStorage:
        counted.append(CountingStorage(inner))
        return counted[-1]

    runs: list[dict[str, Any]] = []
    with wrapping(counting):
        table = lakebed.open(path)
        for turn in range(2):
            act = STEPS[step](table, turn)
            for storage in counted:
                storage.reset()
            cpu, read = time.process_time(), _bytes_read()
            check = act()
            cpu, read = time.process_time() - cpu, _bytes_read() - read
            requests = sum(sum(storage.counts.values()) for storage in counted)
            runs.append({"cpu": cpu, "requests": requests, "read": read})
            check()
    return {"runs": runs, "mb": _most_memory()}


def _most_memory() -> float:
    """The most memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _bytes_read() -> int:
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["rchar"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", default="1,10,100")
    parser.add_argument("--entries", type=int, default=10_000_000, help="entries of a shard")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--table", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.step:
        print(json.dumps(measured(asked.table, asked.step)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        for shards in map(int, asked.shards.split(",")):
            path = folder / f"table-{shards}"
            if not path.exists():
                make_table(path, shards, asked.entries)
            size = base_files(path)[0].stat().st_size
            print(f"{shards} shards of {asked.entries:,} entries, {size / 1e6:,.0f} MB each", flush=True)
            for step in STEPS:
                command = [sys.executable, __file__, "--step", step, "--table", str(path)]
                figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
                print(f"  {step:24}" + "".join(_told(run) for run in figures["runs"]), f"{figures['mb']:6.0f} MB")


def _told(run: dict[str, Any]) -> str:
    return f"{run['cpu']:9.3f} CPU-s {run['requests']:6} requests {run['read'] / 1e6:8.1f} MB read"


if __name__ == "__main__":
    main()
