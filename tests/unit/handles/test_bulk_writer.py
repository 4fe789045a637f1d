"""Bulk inserts into many partition paths: one file a path, whatever the order and the source of the rows."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.handles import bulk_writer
from lakebed.storage import open_storage
from lakebed.table import Table
from support.write_tables import SCHEMA, content, rows

Make = Callable[..., Table]
PATHS = 2 * bulk_writer.MAX_PREPARED + 3


def interleaved(count: int) -> pa.Table:
    return rows(*[(n, f"c{n * 7 % PATHS:03d}", f"v{n}", 1) for n in range(count)])


def files_by_path(table: Table) -> Counter[str]:
    return Counter(file.path.rpartition("/")[0] for file in lakebed.open(table.uri).scan().files)


@pytest.mark.parametrize("streamed", [False, True], ids=["table", "stream"])
def test_rows_of_many_paths_become_a_file_each_in_their_order(
    make: Make, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    monkeypatch.setattr("lakebed.inputs.base.TABLE_BYTES", 0)
    data = interleaved(3 * PATHS)
    table = make(index="simple")
    table.bulk_insert(pa.RecordBatchReader.from_batches(SCHEMA, data.to_batches(100)) if streamed else data)
    assert files_by_path(table) == Counter({f"c{n:03d}": 1 for n in range(PATHS)})
    assert content(table) == sorted(tuple(row.values()) for row in data.to_pylist())
    storage = open_storage(table.uri)
    for file in lakebed.open(table.uri).scan().files:
        stored = pq.read_table(io.BytesIO(storage.read(file.path)))
        path = file.path.rpartition("/")[0]
        assert stored["id"].to_pylist() == [n for n in range(3 * PATHS) if n * 7 % PATHS == int(path[1:])]
        assert set(stored["_hoodie_partition_path"].to_pylist()) == {path}
    assert not [info.path for info in storage.list(".hoodie/.temp")]


def test_a_bad_path_among_many_leaves_nothing(make: Make) -> None:
    table = make(index="simple")
    bad = [(n, "x" * 300 if n == PATHS - 1 else f"c{n}", "v", 1) for n in range(PATHS)]
    with pytest.raises(lakebed.LakebedError, match="partition path"):
        table.bulk_insert(rows(*bad))
    assert content(table) == []


@pytest.mark.parametrize(("limit", "files"), [(1 << 20, 1), (1, 3)])
def test_open_files_that_hold_too_much_are_closed(
    make: Make, monkeypatch: pytest.MonkeyPatch, limit: int, files: int
) -> None:
    monkeypatch.setattr(bulk_writer, "_OPEN_BYTES", limit)
    monkeypatch.setattr(bulk_writer, "_MEASURED_BYTES", 0)
    monkeypatch.setattr("lakebed.inputs.base.TABLE_BYTES", 0)
    data = rows(*[(n, f"c{n % 2}", f"v{n}", 1) for n in range(6)])
    table = make(index="simple")
    table.bulk_insert(pa.RecordBatchReader.from_batches(SCHEMA, data.to_batches(2)))
    found = files_by_path(table)
    assert content(table) == sorted(tuple(row.values()) for row in data.to_pylist())
    assert max(found.values()) == files, found
