"""The column `_hoodie_operation`: every writer goes on with it, since readers look at the newest files alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.base_file import read_footer
from lakebed.model import FileSlice, LogFile
from lakebed.operations.context import WriteContext
from lakebed.slices import newest_files
from lakebed.slices.snapshot import Snapshot
from support.golden_tables import golden

COLUMN = "_hoodie_operation"
NAMES = ["flinklike_v6_mor_changelog", "flinklike_v9_mor_changelog_bucket_flat"]
SCHEMA = pa.schema(
    [("id", pa.int32()), ("city", pa.string()), ("name", pa.string()), ("n", pa.int64()), ("ts", pa.int64())]
)


def rows(ids: list[int], ts: int) -> pa.Table:
    columns = [ids, ["abc"[i % 3] for i in ids], [f"x{i}" for i in ids], ids, [ts] * len(ids)]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True))).cast(SCHEMA)


def operations_of(table: lakebed.Table) -> dict[int, str | None]:
    return {row["id"]: row[COLUMN] for row in table.scan(meta=True).to_arrow().to_pylist()}


def files_without_the_column(table: lakebed.Table) -> list[str]:
    """The files with rows that the newest file slices have and that lack the column."""
    snapshot: Snapshot = table.scan().snapshot
    lacking: list[str] = []
    for file_slice in snapshot.file_slices():
        base = file_slice.base_file
        if base is not None and COLUMN not in read_footer(snapshot.storage, base.path, base.size).schema.names:
            lacking.append(base.path)
        lacking += [log.path for log in file_slice.log_files if not _log_has_column(snapshot, file_slice, log)]
    return lacking


def _log_has_column(snapshot: Snapshot, file_slice: FileSlice, log: LogFile) -> bool:
    logs = snapshot.reader.logs(FileSlice(file_slice.partition, file_slice.file_id, file_slice.instant, None, (log,)))
    return all(COLUMN in logs.block(number).schema.names for number in logs.data)


@pytest.mark.parametrize("name", NAMES)
def test_the_column_is_shown_with_the_meta_columns_and_named_as_a_feature(name: str, tmp_path: Path) -> None:
    table = golden(name)
    t = lakebed.open(str(table.unpack(tmp_path)))
    expected = {row["id"]: row[COLUMN] for row in table.expected.to_pylist()}
    assert operations_of(t) == expected == {1: "U", 3: "I", 4: "I", 5: "U", 7: "I"}
    assert t.scan(meta=True).to_arrow().column_names.index(COLUMN) == 5
    assert COLUMN not in t.scan().to_arrow().column_names
    assert COLUMN not in t.schema.names
    assert "column of operations (_hoodie_operation)" in [feature.name for feature in t.features]
    filtered = t.scan(["id"], where=f"{COLUMN} = 'U'").to_arrow()
    assert sorted(filtered["id"].to_pylist()) == [1, 5]


def test_a_table_without_the_column_does_not_have_the_feature_and_does_not_show_it(tmp_path: Path) -> None:
    t = lakebed.open(str(golden("flinklike_v8_mor_state").unpack(tmp_path)))
    assert "column of operations (_hoodie_operation)" not in [feature.name for feature in t.features]
    t.upsert(rows([1], 9))
    assert COLUMN not in t.scan(meta=True).to_arrow().column_names


@pytest.mark.parametrize("name", NAMES)
def test_every_file_that_is_written_has_the_column_where_the_newest_ones_do(name: str, tmp_path: Path) -> None:
    t = lakebed.open(str(golden(name).unpack(tmp_path)))
    new = "I" if "v6" in name else "U"  # a bucket is not searched
    t.upsert(rows([1, 20], 9))
    expected = {1: "U", 3: "I", 4: "I", 5: "U", 7: "I", 20: new}
    assert operations_of(t) == expected
    assert files_without_the_column(t) == []
    t.delete(rows([4], 0).select(["id", "city"]))
    t.upsert(rows([5], 10).drop_columns(["n"]), options={"lakebed.write.partial": "true"})
    t.upsert(rows([30, 31], 3))
    del expected[4]
    expected |= {30: operations_of(t)[30], 31: operations_of(t)[31]}
    assert {expected[30], expected[31]} <= {"I", "U"}
    assert operations_of(t) == expected
    t.maintenance.compact()
    assert operations_of(t) == expected
    assert files_without_the_column(t) == []
    t.update({"name": "'z'"}, where="id = 3")
    expected[3] = "U"
    t.maintenance.compact()
    if "bucket" not in name:
        t.maintenance.cluster()
    assert operations_of(t) == expected
    assert files_without_the_column(t) == []
    assert sorted(t.scan(["id", "name"]).to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "name": "x1"},
        {"id": 3, "name": "z"},
        {"id": 5, "name": "x5"},
        {"id": 7, "name": "n7-0 ü"},
        {"id": 20, "name": "x20"},
        {"id": 30, "name": "x30"},
        {"id": 31, "name": "x31"},
    ]


def test_merged_row_groups_of_a_copy_on_write_table_say_what_their_rows_are(tmp_path: Path) -> None:
    for sort in ("none", "key"):
        t = lakebed.create(str(tmp_path / sort), SCHEMA, key="id", ordering="ts", sort=sort)
        t.upsert(rows([1, 3, 5], 1), options={"hoodie.allow.operation.metadata.field": "true"})
        t.upsert(rows([2, 3, 6], 2))
        t.upsert(rows([4], 3))
        assert operations_of(t) == {1: "I", 2: "I", 3: "U", 4: "I", 5: "I", 6: "I"}
        assert files_without_the_column(t) == []


def test_a_table_of_flink_gets_the_column_back_after_commits_that_left_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = lakebed.open(str(golden(NAMES[0]).unpack(tmp_path)))
    with monkeypatch.context() as patch:
        patch.setattr(WriteContext, "writes_operations", property(lambda _: False))
        t.upsert(rows([1], 9))
    assert files_without_the_column(t) != []
    t = lakebed.open(t.uri)
    t.upsert(rows([3], 9))
    assert operations_of(t) == {1: None, 3: "U", 4: "I", 5: "U", 7: "I"}


def test_no_more_than_some_files_of_others_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(golden("flinklike_v9_mor_state_compacted").unpack(tmp_path))
    for most in (0, 1):
        monkeypatch.setattr(newest_files, "MAX_FILES", most)
        assert not lakebed.open(folder).scan().snapshot.has_operations
