from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakebed.engine.base import GROUP
from lakebed.engine.local import LocalEngine
from lakebed.errors import IndexInconsistent, InvalidOption, SchemaConflict
from lakebed.expressions.key_generators import KeyGeneratorSpec, key_generator
from lakebed.format.file_names import new_file_id
from lakebed.format.hashes import bucket_ids
from lakebed.index.base import Index
from lakebed.index.bucket import BucketIndex
from lakebed.model import BaseFile, FileSlice, LogFile

NewTable = Callable[..., Any]
INSTANT = "20240102030405006"


def _id(bucket: int, partition: str = "eu") -> str:
    return new_file_id(INSTANT, partition, bucket, bucket=bucket)


def based(buckets: dict[tuple[str, int], FileSlice]) -> dict[tuple[str, int], BaseFile | None]:
    """The base files of the buckets' slices."""
    return {key: file_slice.base_file for key, file_slice in buckets.items()}


def test_a_bucket_index_fulfils_the_protocol() -> None:
    index = BucketIndex(4, ("id",))
    assert isinstance(index, Index)
    assert (index.key_hash, index.is_global) == (index, False)
    assert "hash of id modulo 4" in index.explain()


def test_group_column_is_hudis_bucket_of_the_key() -> None:
    keys = key_generator(KeyGeneratorSpec("COMPLEX", ("id", "code")))
    batch = pa.record_batch({"code": ["1", "2", None], "id": ["a", "b,x:1", ""], "v": [1, 2, 3]})
    index = BucketIndex(4, ("id",)).resolved(["id", "code"])
    text = keys.record_key.arrow(batch)
    expression = index.group_column(keys, batch.schema)
    assert expression.arrow(batch).to_pylist() == bucket_ids(text, ["id"], 4).tolist()
    assert index.groups_of(text).equals(expression.arrow(batch))
    with pytest.raises(SchemaConflict, match="code"):
        index.group_column(keys, pa.schema([("id", pa.string())]))


def test_the_bucket_map_gives_the_file_of_each_bucket(new_table: NewTable) -> None:
    table = new_table()
    rows = pa.table({"key": ["a"]})
    eu0, eu3 = (table.add("eu", rows, file_id=_id(n)) for n in (0, 3))
    # real Hudi's bulk insert leaves the suffix out
    us0 = table.add("us", rows, file_id=_id(0, "us").removesuffix("-0"))
    index = BucketIndex(4)
    assert based(index.bucket_map(table)) == {("eu", 0): eu0, ("eu", 3): eu3, ("us", 0): us0}
    assert based(index.bucket_map(table, ["us"])) == {("us", 0): us0}
    assert based(index.bucket_map(table, ["eu", "us", "fr"], [0, 2])) == {("eu", 0): eu0, ("us", 0): us0}
    assert index.bucket_map(table, ["eu"], []) == {}


def test_a_bucket_of_log_files_alone_is_in_the_map(new_table: NewTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    file_id = _id(1)
    log = LogFile("eu", file_id, INSTANT, 1, "0-0-0", f".{file_id}_{INSTANT}.log.1_0-0-0", 10)
    only_logs = FileSlice("eu", file_id, INSTANT, None, (log,))
    monkeypatch.setattr(table, "file_slices", lambda *_: (only_logs,))
    assert BucketIndex(4).bucket_map(table) == {("eu", 1): only_logs}


def test_two_file_groups_of_one_bucket_are_named(new_table: NewTable) -> None:
    table = new_table()
    files = [
        table.add("eu", pa.table({"key": ["a"]}), file_id=new_file_id(f"2024010203040500{n}", "eu", 1, bucket=1))
        for n in (1, 2)
    ]
    with pytest.raises(IndexInconsistent, match="bucket 1 of partition 'eu' has two file groups") as caught:
        BucketIndex(4).bucket_map(table)
    with pytest.raises(IndexInconsistent, match="two file groups"):
        BucketIndex(4).bucket_map(table, ["eu"], [1])
    assert all(f.path in str(caught.value) for f in files)
    assert "insert_overwrite" in caught.value.hint


def test_ids_that_are_no_buckets_of_the_table_are_named(new_table: NewTable) -> None:
    table = new_table()
    table.add("eu", pa.table({"key": ["a"]}), file_id=_id(4))
    with pytest.raises(IndexInconsistent, match="'eu' is bucket 4, but the table's index has 4 buckets"):
        BucketIndex(4).bucket_map(table)
    with pytest.raises(IndexInconsistent, match="is bucket 4"):
        BucketIndex(4).bucket_map(table, ["eu"], [0])
    other = new_table(partition_fields=())
    other.add("", pa.table({"key": ["a"]}))
    with pytest.raises(IndexInconsistent, match="the table folder does not start with a bucket number") as caught:
        BucketIndex(4).bucket_map(other)
    with pytest.raises(IndexInconsistent, match="does not start with a bucket number"):
        BucketIndex(4).bucket_map(other, [""], [0])
    assert "adopt('simple')" in caught.value.hint


def test_rows_are_placed_by_the_hash_alone(new_table: NewTable) -> None:
    table = new_table()
    files = {n: table.add("eu", pa.table({"key": ["x"]}), file_id=_id(n)) for n in (0, 1, 2)}
    table.add("us", pa.table({"key": ["x"]}), file_id=_id(1))
    rows = pa.table({"_hoodie_partition_path": ["eu", "eu", "asia"], GROUP: pa.array([0, 2, 1], pa.int32())})
    engine = LocalEngine()
    placed = BucketIndex(4, ("key",)).place(engine.from_arrow(rows), table, engine)
    assert placed.existing["eu", 0].base_file == files[0]
    assert placed.existing["eu", 2].base_file == files[2]
    assert {partition for partition, _ in placed.existing} == {"eu"}


def test_the_number_of_a_stored_key_is_hudis_bucket() -> None:
    keys = pa.array([f"k{i}" for i in range(50)])
    assert BucketIndex(4, ("key",)).groups_of(keys).to_pylist() == list(bucket_ids(keys, ["key"], 4))


def test_impossible_bucket_counts_and_fields_are_refused() -> None:
    for buckets in (0, -1, 100_000_001):
        with pytest.raises(InvalidOption, match=f"cannot have {buckets} buckets"):
            BucketIndex(buckets)
    with pytest.raises(InvalidOption, match="needs key fields"):
        BucketIndex(4).resolved([])
