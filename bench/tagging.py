"""Tagging in this process: the keys of a batch are looked up by an index, everything asked of storage is counted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakebed.config.options import resolve_options
from lakebed.engine.local import LocalEngine
from lakebed.format.footer_cache import FOOTERS
from lakebed.format.hfile.cache import BLOCKS
from lakebed.index.base import Tagged
from lakebed.index.record import RecordIndex
from lakebed.index.simple import GlobalSimpleIndex
from lakebed.metadata.store.small_files import HFILES, LOGS
from lakebed.model import FILE_ID, PARTITION_PATH, RECORD_KEY
from lakebed.operations.job import write_context
from lakebed.storage import open_storage
from lakebed.storage.counting import CountingStorage
from lakebed.timeline.properties_file import load_table_config

INDEXES = {"record": RecordIndex(), "global_simple": GlobalSimpleIndex(update_partition_path=False)}


@dataclass(frozen=True)
class Tagging:
    """One look-up of a batch: seconds on the clock and of CPU, files whose content was asked for, bytes read."""

    seconds: float
    cpu: float
    files: int
    read: int
    found: int


def tag(table: str, index: str, batch: pa.Table, *, cold: bool = False) -> Tagging:
    """Look the batch's keys up from a new view of the table; `cold` empties what the process keeps of files."""
    if cold:
        for cache in (FOOTERS, BLOCKS, HFILES, LOGS):
            cache.clear()
    storage = CountingStorage(open_storage(table))
    read, started, used = _bytes_read(), time.perf_counter(), time.process_time()
    engine = LocalEngine()
    context = write_context(storage, load_table_config(storage), engine, resolve_options({}))
    rows = engine.from_arrow(batch.select(["id", "day"]).rename_columns([RECORD_KEY, PARTITION_PATH]))
    placed = INDEXES[index].place(rows, context.opened, engine)
    assert isinstance(placed, Tagged)
    tagged = engine.collect(placed.rows)
    return Tagging(
        time.perf_counter() - started,
        time.process_time() - used,
        len(set(storage.opened)),
        _bytes_read() - read,
        len(tagged) - tagged[FILE_ID].null_count,
    )


def _bytes_read() -> int:
    """Bytes that this process has read by system calls."""
    facts: dict[str, Any] = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["rchar"])
