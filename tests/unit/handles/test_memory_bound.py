"""Rows of a file group beyond `lakebed.write.memory` lie on disk while they are merged, and come out the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.engine.spill import Spill
from lakebed.model import META_COLUMNS, RECORD_KEY
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from support.write_tables import content, rows

Make = Callable[..., Table]


class Watching:
    """A storage that notes the spill files there are whenever a data file is begun."""

    def __init__(self, inner: Any, folder: Path, seen: list[int]) -> None:
        self._inner = inner
        self._folder = folder
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, path: str) -> Any:
        self._seen.append(len(list(self._folder.glob("lakebed-spill-*"))))
        return self._inner.create(path)


@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize(("memory", "spills"), [(4_000, True), (100_000_000, False)])
def test_a_group_beyond_the_bound_spills(
    make: Make, index: str, memory: int, spills: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options = {"lakebed.write.memory": memory, "lakebed.write.tasks": 1}
    seen: list[int] = []
    table = make(index=index, partition_by=None, **({"buckets": 1} if index == "bucket" else {}))
    first = [(n, f"c{n}", "a" * 50, 10) for n in range(500)]
    second = [(n, f"c{n}", "b" * 50, 20 if n % 2 else 5) for n in range(250, 750)]
    with wrapping(lambda inner: Watching(inner, tmp_path, seen)):  # pyright: ignore[reportArgumentType]
        writer = lakebed.open(table.uri)
        writer.upsert(rows(*first), options=options)
        writer.upsert(rows(*second, *second[:10]), options=options)
        writer.delete(rows(*first[:100]), options=options)
    assert any(seen) == spills
    assert list(tmp_path.iterdir()) == []
    model = {r[0]: r for r in first}
    model |= {r[0]: r for r in second if r[0] >= 500 or r[3] == 20}
    assert content(table) == sorted(r for r in model.values() if r[0] >= 100)


def test_a_spill_gives_back_what_it_took(tmp_path: Path) -> None:
    batches = [
        pa.record_batch({"n": pa.array(range(at, at + 100)), "t": ["x" * 20] * 100}) for at in range(0, 1000, 100)
    ]
    for limit in (0, 5_000, 1 << 30):
        with Spill(limit, str(tmp_path)) as spill:
            spill.extend(batches)
            assert spill.spilled == (limit < 1 << 30)
            assert spill.table().equals(pa.Table.from_batches(batches))
            assert len(list(tmp_path.iterdir())) == int(spill.spilled)
        assert list(tmp_path.iterdir()) == []


ROWS, WIDTH = 1_050_000, 1_000
BOUND, BESIDES = 64 << 20, 300 << 20

MERGE = """
import re, sys
from pathlib import Path
import numpy as np, pyarrow as pa
import lakebed
def peak():  # of this program: `getrusage` tells that of the process which started it, too
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
uri, rows, width, bound = sys.argv[1], *map(int, sys.argv[2:])
table = lakebed.open(uri)
ids = np.arange(0, rows, 100)
given = pa.table({"id": ids, "ts": np.full(len(ids), 2), "payload": pa.array([b"new"] * len(ids))})
before = peak()
result = table.upsert(given, options={"lakebed.write.memory": bound})
print(result.updated, peak() - before)
"""


def gigabyte_file_group(folder: Path) -> tuple[str, int]:
    """A table of one base file of more than 1,000,000,000 bytes in a single row group, as other writers may make it;
    gives its size too."""
    payload = np.random.default_rng(1).bytes(ROWS * WIDTH)
    offsets = np.arange(0, WIDTH * (ROWS + 1), WIDTH, dtype=np.int32)
    data = pa.table(
        {
            "id": np.arange(ROWS),
            "ts": np.ones(ROWS, np.int64),
            "payload": pa.BinaryArray.from_buffers(
                pa.binary(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
            ),
        }
    )
    uri = str(folder / "t")
    table = lakebed.create(
        uri,
        data.schema,
        key="id",
        ordering="ts",
        index="bucket",
        buckets=1,
        table_version=6,  # its commits are JSON
        properties={"hoodie.metadata.enable": False},
    )
    table.bulk_insert(data.slice(0, 1))
    (path,) = (folder / "t").glob("*.parquet")
    (commit,) = (folder / "t/.hoodie").glob("*.commit")
    first_size = path.stat().st_size
    written = pq.read_table(path)
    same = {name: pa.repeat(written[name][0], ROWS) for name in META_COLUMNS}
    meta = {**same, RECORD_KEY: data["id"].cast(pa.string())}
    whole = pa.table({**meta, **{name: data[name] for name in data.column_names}})
    whole = whole.replace_schema_metadata(pq.read_metadata(path).metadata)
    pq.write_table(whole, path, row_group_size=ROWS, compression="zstd", use_dictionary=False, store_schema=False)
    size = path.stat().st_size
    commit.write_text(commit.read_text().replace(f": {first_size}", f": {size}"))
    return uri, size


@pytest.mark.rest
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_a_merge_into_a_gigabyte_stays_within_the_bound_and_300_mb(tmp_path: Path) -> None:
    uri, size = gigabyte_file_group(tmp_path)
    assert size > 1_000_000_000
    arguments = [sys.executable, "-c", MERGE, uri, str(ROWS), str(WIDTH), str(BOUND)]
    said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    updated, peak = map(int, said.split())
    assert updated == len(range(0, ROWS, 100))
    # batches of the old file alone take more than this: less would be no measure
    assert 50 << 20 < peak < BOUND + BESIDES
    shutil.rmtree(uri)
