"""Columns that came to the table after its statistics were built have statistics, which go with their files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.metadata.lookups import open_snapshot
from lakebed.storage import open_storage
from lakebed.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64())])
NOW = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}


def written(folder: Path, kind: str, version: int) -> Table:
    """A table with three rows and statistics, that is not cleaned by itself."""
    table = lakebed.create(
        str(folder / "t"),
        SCHEMA,
        key="id",
        partition_by="city",
        type=kind,  # type: ignore[arg-type]
        index="simple",
        indexes=["column_stats"],
        table_version=version,
        properties={"hoodie.clean.automatic": False},
    )
    table.upsert([{"id": n, "city": "a", "v": n} for n in range(3)])
    return table


def files_with_statistics(table: Table, column: str) -> set[str]:
    metadata = open_snapshot(open_storage(table.uri)).metadata
    assert metadata is not None
    found = metadata.column_stats([column], None, {column: pa.int64()})[column]
    return {
        n for n, gone in zip(found["file_name"].to_pylist(), found["is_deleted"].to_pylist(), strict=True) if not gone
    }


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_cleaning_takes_the_statistics_of_a_joined_column_off(kind: str, version: int, tmp_path: Path) -> None:
    table = written(tmp_path, kind, version)
    for n in range(3):
        table.upsert(pa.table({"id": [0, 1, 2], "city": ["a"] * 3, "v": [n] * 3, "w": [n, n + 1, n + 2]}))
    if kind == "mor":
        table.maintenance.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
    assert len(files_with_statistics(table, "w")) >= 2
    lakebed.open(table.uri).maintenance.clean(options=NOW)
    table = lakebed.open(table.uri)
    assert files_with_statistics(table, "w") == {path.name for path in Path(table.uri, "a").glob("*.parquet")}
    assert table.indexes.verify().ok
    assert table.scan(where="w = 4").to_arrow()["id"].to_pylist() == [2]


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_statistics_of_a_column_go_when_it_is_dropped(kind: str, version: int, tmp_path: Path) -> None:
    table = written(tmp_path, kind, version)
    for n in range(2):
        table.upsert(pa.table({"id": [0, 1], "city": ["a", "b"], "v": [n] * 2, "w": [n, n + 1]}))
    assert files_with_statistics(table, "w")
    drop = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": True}
    table.upsert(pa.table({"id": [3], "city": ["a"], "v": [7]}), options=drop)
    table = lakebed.open(table.uri)
    assert table.schema.names == ["id", "city", "v"]
    metadata = open_snapshot(open_storage(table.uri)).metadata
    assert metadata is not None
    stored = [metadata.column_stats(["w"], None, {"w": pa.int64()})]
    if metadata.has("partition_stats"):
        stored.append(metadata.partition_stats(["w"], {"w": pa.int64()}))
    assert [len(one["w"].filter(pc.invert(one["w"]["is_deleted"]))) for one in stored if "w" in one] == []
    assert files_with_statistics(table, "v")
    assert table.indexes.verify().ok
    assert table.scan(where="v = 7").to_arrow()["id"].to_pylist() == [3]
