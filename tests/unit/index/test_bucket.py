from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakebed.engine.local import LocalEngine
from lakebed.errors import IndexInconsistent, InvalidOption, SchemaConflict
from lakebed.expressions.key_generators import KeyGeneratorSpec, key_generator
from lakebed.format.file_names import new_file_id
from lakebed.format.hashes import bucket_ids
from lakebed.index import base
from lakebed.index.base import Index
from lakebed.index.bucket import BucketIndex
from lakebed.merge.rules import MergeRules
from lakebed.model import FILE_ID

NewTable = Callable[..., Any]
INSTANT = "20240102030405006"


def _id(bucket: int, partition: str = "eu") -> str:
    return new_file_id(INSTANT, partition, bucket, bucket=bucket)


def test_a_bucket_index_fulfils_the_protocol() -> None:
    index = BucketIndex(4, ("id",))
    assert isinstance(index, Index)
    assert (index.hashes_to_groups, index.is_global) == (True, False)
    assert "hash of id modulo 4" in index.explain()


def test_group_expression_is_hudis_bucket_of_the_key() -> None:
    keys = key_generator(KeyGeneratorSpec("COMPLEX", ("id", "code")))
    batch = pa.record_batch({"code": ["1", "2", None], "id": ["a", "b,x:1", ""], "v": [1, 2, 3]})
    index = BucketIndex(4, ("id",)).resolved(["id", "code"])
    text = keys.record_key.arrow(batch)
    expression = index.group_expression(keys, batch.schema)
    assert expression.arrow(batch).to_pylist() == bucket_ids(text, ["id"], 4).tolist()
    assert index.buckets_of(text).equals(expression.arrow(batch))
    with pytest.raises(SchemaConflict, match="code"):
        index.group_expression(keys, pa.schema([("id", pa.string())]))


def test_the_bucket_map_gives_the_file_of_each_bucket(new_table: NewTable) -> None:
    table = new_table()
    rows = pa.table({"key": ["a"]})
    eu0, eu3 = (table.add("eu", rows, file_id=_id(n)) for n in (0, 3))
    # real Hudi's bulk insert leaves the suffix out
    us0 = table.add("us", rows, file_id=_id(0, "us").removesuffix("-0"))
    index = BucketIndex(4)
    assert index.bucket_map(table) == {("eu", 0): eu0, ("eu", 3): eu3, ("us", 0): us0}
    assert index.bucket_map(table, ["us"]) == {("us", 0): us0}
    assert index.bucket_map(table, ["eu", "us", "fr"], [0, 2]) == {("eu", 0): eu0, ("us", 0): us0}
    assert index.bucket_map(table, ["eu"], []) == {}


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


def test_tag_by_hash_of_the_stored_key(new_table: NewTable) -> None:
    table = new_table()
    keys = [f"k{i}" for i in range(50)]
    numbers = bucket_ids(pa.array(keys), ["key"], 4)
    files = {n: table.add("eu", pa.table({"key": ["x"]}), file_id=_id(n)) for n in (0, 2)}
    rows = pa.table({"_hoodie_record_key": keys, "_hoodie_partition_path": ["eu"] * 49 + ["us"], "v": range(50)})
    engine = LocalEngine()
    tagged = engine.collect(BucketIndex(4, ("key",)).tag(engine.from_arrow(rows), table, engine, MergeRules()))
    expected = [files[n].file_id if n in files else None for n in numbers]
    assert tagged.column(FILE_ID).to_pylist() == [*expected[:49], None]
    assert tagged.column(base.INSTANT).to_pylist() == [e and INSTANT for e in [*expected[:49], None]]
    assert tagged.select(rows.column_names).equals(rows)


def test_impossible_bucket_counts_and_fields_are_refused() -> None:
    for buckets in (0, -1, 100_000_001):
        with pytest.raises(InvalidOption, match=f"cannot have {buckets} buckets"):
            BucketIndex(buckets)
    with pytest.raises(InvalidOption, match="needs key fields"):
        BucketIndex(4).resolved([])
