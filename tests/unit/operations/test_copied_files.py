"""A deep clone copies files: its rows are those of the source, as rows of its own first commit."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.handles import stored_rows
from lakebed.operations import copied_files
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Mutation, crash_at
from support.checks import files_below

COUNT = 30_000
META = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]
TABLES: dict[str, dict[str, Any]] = {
    "cow, simple": {"index": "simple"},
    "cow, bloom, version 6": {"index": "bloom", "table_version": 6},
    "cow, bucket, version 8": {"index": "bucket", "buckets": 3, "table_version": 8},
    "mor, bucket": {"type": "mor", "index": "bucket", "buckets": 2},
    "mor, sorted": {"type": "mor", "index": "simple", "properties": {"hoodie.table.cdc.enabled": True}},
    "a record index beside": {"index": "global_simple", "properties": {"hoodie.metadata.record.index.enable": True}},
    "no partitions": {"index": "global_simple", "partition_by": ()},
    "hive style": {"index": "simple", "properties": {"hoodie.datasource.write.hive_style_partitioning": True}},
}


def rows(first: int, end: int, note: str = "n") -> pa.Table:
    numbers = list(range(first, end))
    return pa.table(
        {
            "id": numbers,
            "city": [f"c{n % 3}" for n in numbers],
            "fare": [None if n % 7 == 0 else n / 4 for n in numbers],
            "note": [f"{note}{n % 50}" for n in numbers],
            "tags": [[n, n + 1] if n % 5 else None for n in numbers],
        }
    )


def filled(folder: Path, count: int = COUNT, **settings: Any) -> lakebed.Table:
    arguments: dict[str, Any] = {"partition_by": "city", **settings}
    return lakebed.load(str(folder / "source"), rows(0, count), key="id", progress=False, **arguments)


def data_of(table: lakebed.Table) -> pa.Table:
    return table.scan().to_arrow().sort_by("id")


def check_clone(source: lakebed.Table, clone: lakebed.Table) -> None:
    """The clone has the rows of the source, each as a row of its one commit, in a file that exists."""
    assert data_of(clone).equals(data_of(source))
    (commit,) = clone.timeline
    stored = clone.scan([*META, "id"], meta=True).to_arrow()
    assert set(stored["_hoodie_commit_time"].to_pylist()) == {commit.time}
    numbers = stored["_hoodie_commit_seqno"].to_pylist()
    assert len(set(numbers)) == len(numbers)
    assert all(number.startswith(f"{commit.time}_") for number in numbers)
    names = {Path(path).name for path in files_below(clone.uri) if path.endswith(".parquet") and ".hoodie" not in path}
    assert set(stored["_hoodie_file_name"].to_pylist()) == names
    assert stored["_hoodie_record_key"].to_pylist() == [str(n) for n in stored["id"].to_pylist()]
    assert clone.changes("0000").to_arrow().num_rows == stored.num_rows
    assert clone.indexes.verify().ok


@pytest.mark.parametrize("kind", TABLES)
def test_a_copy_has_every_row_as_one_of_its_first_commit(kind: str, tmp_path: Path) -> None:
    source = filled(tmp_path, **TABLES[kind])
    clone = source.clone(str(tmp_path / "clone"), deep=True, progress=False)
    assert clone.loaded is not None
    assert (clone.loaded.operation, clone.loaded.inserted, clone.loaded.rows) == ("bulk_insert", COUNT, COUNT)
    groups = [{(f["partition"], f["file_id"]) for f in t.files.to_arrow().to_pylist()} for t in (source, clone)]
    assert groups[0] == groups[1]
    check_clone(source, clone)
    before = data_of(source)
    clone.upsert(rows(COUNT - 10, COUNT + 10, "new"))
    clone.delete([0, 1])
    assert data_of(source).equals(before)
    expected = pa.concat_tables([before.slice(2, COUNT - 12), rows(COUNT - 10, COUNT + 10, "new")])
    assert data_of(clone).to_pylist() == expected.to_pylist()
    assert clone.indexes.verify().ok


def test_rows_in_log_files_are_merged_into_the_copy(tmp_path: Path) -> None:
    source = filled(tmp_path, 3000, type="mor", index="bucket", buckets=2)
    source.upsert(rows(100, 200, "new"))
    source.delete([0, 7])
    clone = source.clone(str(tmp_path / "clone"), deep=True, progress=False)
    check_clone(source, clone)
    assert not any(name.endswith(".log") or ".log." in name for name in files_below(clone.uri) if ".hoodie" not in name)


@pytest.mark.parametrize("small", [1, 1 << 30])
def test_row_groups_of_each_size_are_copied_or_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(stored_rows, "_SMALL_ROWS", small)
    source = filled(tmp_path, 6000, index="simple", partition_by=())
    source.upsert(rows(6000, 6100))
    check_clone(source, source.clone(str(tmp_path / "clone"), deep=True, progress=False))


def test_files_of_earlier_columns_are_copied_as_rows_of_the_present_ones(tmp_path: Path) -> None:
    source = filled(tmp_path, 3000, index="simple")
    source.columns.add("more", "int")
    source.columns.rename("note", "remark")
    source.upsert(
        rows(0, 3)
        .rename_columns(["id", "city", "fare", "remark", "tags"])
        .append_column("more", pa.array([1, 2, 3], pa.int32()))
    )
    clone = source.clone(str(tmp_path / "clone"), deep=True, progress=False)
    check_clone(source, clone)
    assert clone.schema.names == ["id", "city", "fare", "remark", "tags", "more"]


def test_most_bytes_are_copied_and_not_encoded(tmp_path: Path) -> None:
    source = filled(tmp_path, 40_000, index="simple", partition_by=())
    clone = source.clone(str(tmp_path / "clone"), deep=True, progress=False)
    (one,), (other,) = (list(Path(t.uri).glob("*.parquet")) for t in (source, clone))
    stored, copied = pq.ParquetFile(one).metadata, pq.ParquetFile(other).metadata
    assert (copied.num_row_groups, copied.num_rows) == (stored.num_row_groups, stored.num_rows)
    for at in range(5, stored.num_columns):  # after the meta columns
        chunk = [m.row_group(0).column(at) for m in (stored, copied)]
        parts = [
            path.read_bytes()[c.data_page_offset :][: c.total_compressed_size // 2]
            for path, c in zip((one, other), chunk, strict=True)
        ]
        assert parts[0] == parts[1], chunk[0].path_in_schema


def test_a_file_that_is_cleaned_meanwhile_is_read_again(tmp_path: Path) -> None:
    source = filled(tmp_path, 300, index="simple", partition_by=())
    acted, other = list[bool](), lakebed.open(source.uri)

    def act(mutation: Mutation) -> bool:
        if not acted and mutation.path.endswith(".inflight"):
            acted.append(True)
            other.upsert(rows(0, 300, "later"), options={"hoodie.clean.commits.retained": 1})
            other.upsert(rows(0, 300, "last"), options={"hoodie.clean.commits.retained": 1})
            other.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
        return False

    with crash_at(act):
        clone = lakebed.open(source.uri).clone(str(tmp_path / "clone"), deep=True, progress=False)
    assert acted
    assert data_of(lakebed.open(clone.uri)).equals(rows(0, 300, "last"))
    assert lakebed.open(clone.uri).indexes.verify().ok


def test_tables_whose_files_do_not_suffice_are_written_again(tmp_path: Path) -> None:
    for settings in ({"index": "record"}, {"type": "mor", "index": "consistent", "buckets": 2}):
        source = lakebed.load(f"memory://copied/{uuid.uuid4().hex}", rows(0, 50), key="id", progress=False, **settings)
        assert not copied_files.follows_files(source.opened.snapshot())
        clone = source.clone(str(tmp_path / uuid.uuid4().hex), deep=True, progress=False)
        assert data_of(clone).equals(data_of(source))
    MemoryStorage.drop("copied")
