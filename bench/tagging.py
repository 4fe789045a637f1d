"""Tagging in this process: the keys of a batch are looked up by an index, everything asked of storage is counted.

python bench/tagging.py                 bloom filters asked: probes a second and core, alone and within tagging
python bench/tagging.py --files 10 --keys 100000
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from bars import Bar

import lakebed
from lakebed.config.options import resolve_options
from lakebed.engine.base import GROUP
from lakebed.engine.local import LocalEngine
from lakebed.format.bloom import BloomFilter, ChainedHashes
from lakebed.format.footer_cache import FOOTERS, POSITIONS
from lakebed.format.hfile.entries import BLOCKS
from lakebed.index.base import KeyLookup, Tagged, key_hash_of
from lakebed.index.bloom.index import BloomIndex, GlobalBloomIndex
from lakebed.index.record import RecordIndex
from lakebed.index.simple import GlobalSimpleIndex
from lakebed.metadata.slices import HFILES, LOGS
from lakebed.model import FILE_ID, PARTITION_PATH, RECORD_KEY
from lakebed.opened_table import OpenedTable
from lakebed.operations.hudi_job import write_context
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import CountingStorage

INDEXES = {
    "record": RecordIndex(),
    "global_simple": GlobalSimpleIndex(update_partition_path=False),
    "bloom": BloomIndex(),
    "global_bloom": GlobalBloomIndex(update_partition_path=False),
}


@dataclass(frozen=True)
class Tagging:
    """One look-up of a batch: seconds on the clock and of CPU, files whose content was asked for (`data_files` of
    the table's own), bytes read, and what an index that looks into files tells of it."""

    seconds: float
    cpu: float
    files: int
    read: int
    found: int
    lookup: KeyLookup | None = None
    data_files: int = 0


def tag(table: str, index: str, batch: pa.Table, *, cold: bool = False) -> Tagging:
    """Look the batch's keys up from a new view of the table, by the index of that name, the table's own if that is not
    in `INDEXES`; `cold` empties what the process keeps of files."""
    if cold:
        for cache in (FOOTERS, BLOCKS, HFILES, LOGS):
            cache.clear()
    storage = CountingStorage(open_storage(table))
    read, started, used = _bytes_read(), time.perf_counter(), time.process_time()
    engine = LocalEngine()
    context = write_context(storage, load_table_config(storage), engine, resolve_options({}))
    rows = engine.from_arrow(batch.select(["id", "day"]).rename_columns([RECORD_KEY, PARTITION_PATH]))
    used_index = INDEXES.get(index) or context.index
    key_hash = key_hash_of(used_index)
    if key_hash is not None:
        rows = engine.derive(rows, {GROUP: key_hash.stored_group()})
    placed = used_index.place(rows, context.opened, engine)
    if isinstance(placed, Tagged):
        tagged, lookup = engine.collect(placed.rows), placed.lookup
        found = len(tagged) - tagged[FILE_ID].null_count
    else:
        numbers = engine.collect(rows)[GROUP].to_pylist()
        found, lookup = sum(("d", number) in placed.existing for number in numbers), None
    return Tagging(
        time.perf_counter() - started,
        time.process_time() - used,
        len(set(storage.opened)),
        _bytes_read() - read,
        found,
        lookup,
        len({path for path in storage.opened if not path.startswith(".hoodie")}),
    )


def counted(table: str, work: Callable[[lakebed.Table], object]) -> Tagging:
    """The same of a call of the table object, nothing cached before it; `found` says nothing."""
    for cache in (FOOTERS, BLOCKS, HFILES, LOGS, POSITIONS):
        cache.clear()
    storage = CountingStorage(open_storage(table))
    read, started, used = _bytes_read(), time.perf_counter(), time.process_time()
    work(Table(OpenedTable(storage, load_table_config(storage))))
    opened = set(storage.opened)
    own = {path for path in opened if not path.startswith(".hoodie")}
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    return Tagging(seconds, cpu, len(opened), _bytes_read() - read, 0, None, len(own))


def _bytes_read() -> int:
    """Bytes that this process has read by system calls."""
    facts: dict[str, Any] = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["rchar"])


def random_keys(count: int, seed: int) -> list[str]:
    """36 characters each."""
    raw = np.random.default_rng(seed).bytes(16 * count)
    return [str(uuid.UUID(bytes=raw[at : at + 16])) for at in range(0, len(raw), 16)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument(
        "--keys", type=int, default=1_000_000, help="looked for, all of them stored in one of the files"
    )
    given = parser.parse_args()
    each = given.keys // given.files
    keys = pa.array(random_keys(each * given.files, 1))
    filters: list[BloomFilter] = []
    for n in range(given.files):
        filters.append(BloomFilter.dynamic(60_000, 1e-9, 100_000))
        filters[-1].add(keys.slice(n * each, each))
    used = time.process_time()
    hashes, rows = ChainedHashes(keys), np.arange(len(keys))
    held = sum(int(one.holds(hashes, rows).sum()) for one in filters)
    alone = time.process_time() - used
    if held != len(keys):
        sys.exit(f"the filters hold {held} of {len(keys)} keys")

    uri = f"memory://bench-{uuid.uuid4().hex}/t"
    data = pa.table({"id": keys, "day": ["d"] * len(keys), "ts": [1] * len(keys)})
    table = lakebed.create(uri, data.schema, key="id", partition_by="day", ordering="ts", index="bloom")
    for n in range(given.files):
        table.bulk_insert(data.slice(n * each, each))
    runs = [tag(uri, "bloom", data, cold=True) for _ in range(3)]
    done = min(runs, key=lambda run: run.cpu)
    assert done.lookup is not None
    if done.found != len(keys):
        sys.exit(f"{done.found} of {len(keys)} keys were found")
    probes = len(keys) * given.files
    print(f"{given.files} files of {each:,} random keys, all {len(keys):,} looked for: {probes:,} probes")
    print(f"  filters alone  {alone:6.2f} CPU-s  {probes / alone / 1e6:6.1f} M probes a second")
    print(f"  whole tagging  {done.cpu:6.2f} CPU-s  {done.lookup.asked / done.cpu / 1e6:6.1f} M probes a second")
    print(f"  {done.lookup}")
    bars = [
        Bar("filters alone, M probes a second and core", probes / alone / 1e6, 5, True),
        Bar("whole tagging, M probes a second and core", done.lookup.asked / done.cpu / 1e6, 5, True),
    ]
    print(*(bar.line() for bar in bars), sep="\n")
    return 1 if any(bar.held is False for bar in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
