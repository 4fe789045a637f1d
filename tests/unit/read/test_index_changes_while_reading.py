"""Readers that opened the table before another process dropped an index, or dropped and built it again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CorruptFile
from lakebed.filters.sql import parse_filter
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_records.layout import METADATA_FOLDER
from lakebed.read.keys import find_keys
from lakebed.read.skip import skip_slices
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64())])


def table_with(folder: Path, index: str, version: int) -> Table:
    table = lakebed.create(
        str(folder / "t"),
        SCHEMA,
        key="id",
        partition_by="city",
        index="global_simple",
        indexes=[index],
        table_version=version,
    )
    for n in range(6):
        table.upsert([{"id": n, "city": f"c{n}", "v": n}])
    return table


def read(snapshot: Snapshot, index: str) -> list[int]:
    """How many file slices are left of each kind of question."""
    if index == "record":
        found = find_keys(snapshot, pa.array(["3"]))
        return [] if found is None else [len(found.locations)]
    predicate = parse_filter("v = 3", SCHEMA)
    return [len(skip_slices(snapshot, predicate, snapshot.file_slices(), SCHEMA, log_files=True)[0])]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize(("index", "without"), [("column_stats", [6]), ("record", [])])
def test_readers_go_on_without_an_index_that_went(
    index: str, without: list[int], version: int, again: bool, tmp_path: Path
) -> None:
    table = table_with(tmp_path, index, version)
    reader, beside = (open_snapshot(open_storage(table.uri)) for _ in range(2))
    assert read(open_snapshot(open_storage(table.uri)), index) == [1]
    assert reader.metadata is not None
    assert beside.metadata is not None
    table.indexes.drop(index)
    assert read(reader, index) == without
    if again:
        table.indexes.create(index)
        assert read(beside, index) in (without, [1])
        assert read(open_snapshot(open_storage(table.uri)), index) == [1]


@pytest.mark.parametrize(("index", "partition"), [("column_stats", "column_stats"), ("record", "record_index")])
def test_files_that_are_lost_are_damage(index: str, partition: str, tmp_path: Path) -> None:
    table = table_with(tmp_path, index, 6)  # without statistics of partition paths
    for path in Path(table.uri, METADATA_FOLDER, partition).glob("*.hfile"):
        path.unlink()
    for path in Path(table.uri, METADATA_FOLDER, partition).glob(".*.log.*"):
        path.unlink()
    with pytest.raises(CorruptFile, match=partition):
        read(open_snapshot(open_storage(table.uri)), index)
