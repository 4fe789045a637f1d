"""A file slice whose log files are larger than the memory bound is merged within it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.slices import log_rows
from support.sampling import HISTORIES, todays

MERGES = ("event_time", "PartialUpdateAvroPayload")
ROWS, WIDTH, LOGS = 60_000, 1_000, 4
# Batches, keys and modules: less than the logs, so that a merge that holds them is found out.
BOUND, BESIDES = 32 << 20, 176 << 20

MERGE = """
import re, sys, threading, time
from dataclasses import replace
from pathlib import Path
import lakebed
from lakebed.metadata.lookups import open_snapshot
from lakebed.storage import open_storage
from lakebed.properties.file import load_table_config
def held():  # mapped files aside: their pages may be dropped
    return int(re.search(r"RssAnon:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
def watch():
    while True:
        peak[0] = max(peak[0], held())
        time.sleep(0.002)
storage = open_storage(sys.argv[1])
snapshot = open_snapshot(storage, load_table_config(storage))
reader = replace(snapshot.reader, memory=int(sys.argv[2]))
before = held()
peak = [before]
threading.Thread(target=watch, daemon=True).start()
(file_slice,) = snapshot.file_slices()
rows = sum(batch.num_rows for batch in reader.read(file_slice))
print(rows, peak[0] - before)
"""


def wide_rows(version: int) -> pa.Table:
    """The same keys in every version, with bytes that nothing makes smaller."""
    offsets = np.arange(0, WIDTH * (ROWS + 1), WIDTH, dtype=np.int32)
    payload = pa.py_buffer(np.random.default_rng(version).bytes(ROWS * WIDTH))
    columns = [pa.array(np.arange(ROWS)), pa.array(np.full(ROWS, version))]
    columns.append(pa.BinaryArray.from_buffers(pa.binary(), ROWS, [None, pa.py_buffer(offsets), payload]))
    return pa.table(columns, names=["id", "ts", "payload"])


@pytest.mark.rest
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("merge", todays(MERGES, 2, HISTORIES))
def test_logs_beyond_the_bound_are_merged_within_it(merge: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    off = {"hoodie.compact.inline": False, "hoodie.metadata.enable": False}
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "index": "bucket", "buckets": 1, "properties": off}
    table = lakebed.create(uri, wide_rows(0).schema, type="mor", merge=merge, **words)
    table.bulk_insert(wide_rows(0).slice(0, 100))
    for version in range(1, LOGS + 1):
        table.upsert(wide_rows(version), options={"lakebed.write.memory": BOUND})
    logs = sum(path.stat().st_size for path in Path(uri).glob(".*.log.*"))
    assert logs > BOUND + BESIDES
    arguments = [sys.executable, "-c", MERGE, uri, str(BOUND)]
    said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    rows, held = map(int, said.split())
    assert rows == ROWS
    assert held < BOUND + BESIDES
    found = lakebed.open(uri).scan().to_arrow().sort_by("id")
    assert found.equals(wide_rows(LOGS))


@pytest.mark.parametrize("merge", MERGES)
def test_wide_rows_of_logs_come_in_small_batches(merge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "index": "bucket", "buckets": 1, "merge": merge}
    rows = wide_rows(1).slice(0, 100)
    table = lakebed.create(f"memory://log-memory/{merge}", rows.schema, type="mor", **words)
    table.bulk_insert(rows.slice(0, 1))
    table.upsert(rows)
    for bound in (10 * WIDTH, 1):
        monkeypatch.setattr(log_rows, "_BATCH_BYTES", bound)
        batches = list(lakebed.open(table.uri).scan().to_batches())
        assert max(batch.num_rows for batch in batches) == max(1, bound // WIDTH - 1)
        assert pa.Table.from_batches(batches).sort_by("id").equals(rows)
