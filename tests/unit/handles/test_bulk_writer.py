"""Bulk inserts into many partition paths: one file a path, whatever the order and the source of the rows."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.handles import bulk_writer
from lakebed.storage import open_storage
from lakebed.table import Table
from support.calls import calls_of
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


@pytest.mark.parametrize("together", [1, 2, 256])
def test_the_statistics_of_each_of_many_files_are_those_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(bulk_writer, "_TOGETHER", together)
    odd: dict[int, tuple[Any, ...]] = {3: (math.nan, "c"), 4: (1.0, "z" * 5000), 5: (None, None)}
    values = [odd.get(n, (n / 2, f"t{n}")) for n in range(9)]
    data = pa.table(
        {
            "id": [f"k{n}" for n in range(9)],
            "city": [f"c{n % 7}" for n in range(9)],
            "ts": [1] * 9,
            "fare": pa.array([fare for fare, _ in values], pa.float64()),
            "note": pa.array([note for _, note in values], pa.string()),
        }
    )
    table = lakebed.create(str(tmp_path), data, key="id", partition_by="city", ordering="ts", type="cow")
    table.bulk_insert(data)
    assert "no difference" in str(table.indexes.verify())
    assert {row["files"] for row in table.indexes.ranges(["fare", "ts"]).to_arrow().to_pylist()} == {7}
    assert table.scan(where="isnan(fare)").to_arrow()["id"].to_pylist() == ["k3"]
    assert table.scan(where="note > 'y'").to_arrow()["id"].to_pylist() == ["k4"]
    assert sorted(table.scan(where="fare >= 3 and fare < 5").to_arrow()["id"].to_pylist()) == ["k6", "k7", "k8"]


def test_keys_outside_the_basic_plane_are_in_the_range_of_their_file(tmp_path: Path) -> None:
    keys = ["a", "\U0001f600", "\uffee", "b"]  # the second is before the third in Java's order alone
    data = pa.table({"id": keys, "city": ["x", "x", "x", "y"], "ts": [1] * 4})
    table = lakebed.create(str(tmp_path), data, key="id", partition_by="city", ordering="ts", type="cow", index="bloom")
    table.bulk_insert(data)
    storage = open_storage(table.uri)
    ends = {
        file.path.rpartition("/")[0]: pq.read_metadata(io.BytesIO(storage.read(file.path))).metadata
        for file in table.scan().files
    }
    assert [ends["x"][f"hoodie_{side}_record_key".encode()].decode() for side in ("min", "max")] == ["a", "\uffee"]
    assert sorted(table.get(keys)["id"].to_pylist()) == sorted(keys)


# Of Python, and of C from Python. A path has a file with its marker, and the metadata of the path.
MAX_CALLS_OF_A_PATH = 1_100


def test_a_partition_path_costs_a_bounded_number_of_calls(tmp_path: Path) -> None:
    calls: list[int] = []
    for paths in (20, 20, 60):  # the first fills caches
        data = pa.table(
            {
                "id": [f"k{n}" for n in range(5 * paths)],
                "city": [f"c{n % paths}" for n in range(5 * paths)],
                "ts": [1] * 5 * paths,
                **{f"v{n}": [0.5] * 5 * paths for n in range(6)},
            }
        )
        uri = str(tmp_path / str(len(calls)))
        table = lakebed.create(uri, data, key="id", partition_by="city", ordering="ts", type="cow")
        calls.append(calls_of(lambda table=table, data=data: table.bulk_insert(data)))
    assert (calls[2] - calls[1]) / 40 <= MAX_CALLS_OF_A_PATH
