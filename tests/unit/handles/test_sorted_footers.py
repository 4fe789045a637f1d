"""Base files of `sort="key"` tables say in their footers that they are sorted, if and only if they are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed.format.key_order import SORTED_BY


def trips(ids: list[int], x: int) -> pa.Table:
    return pa.table({"id": [f"k{n:05}" for n in ids], "x": [x] * len(ids)})


def newest(folder: Path) -> pq.FileMetaData:
    return pq.read_metadata(max(folder.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns))


def is_marked_sorted(folder: Path) -> bool:
    return SORTED_BY.encode() in newest(folder).metadata


def test_loads_merges_copied_row_groups_and_compactions_stay_sorted(tmp_path: Path) -> None:
    order = [n * 7919 % 50_000 for n in range(50_000)]
    for type_ in ("cow", "mor"):
        table = lakebed.create(
            str(tmp_path / type_), trips([1], 0), key="id", index="bucket", buckets=1, sort="key", type=type_
        )
        table.upsert(trips(order, 0))
        table.upsert(trips([5, 60_000], 1))
        if type_ == "mor":
            table.maintenance.compact()
        assert is_marked_sorted(tmp_path / type_)
        assert newest(tmp_path / type_).num_row_groups > 1
        keys = table.scan(["_hoodie_record_key"]).to_arrow().column(0).to_pylist()
        assert keys == sorted(keys)
        assert len(keys) == 50_001


def test_files_of_other_tables_say_nothing(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), trips([1], 0), key="id", index="bucket", buckets=1)
    table.upsert(trips([3, 1, 2], 0))
    assert not is_marked_sorted(tmp_path / "t")
