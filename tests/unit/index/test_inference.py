"""Which index a table has that does not say so: ids nominate, stored keys decide."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.errors import IndexInconsistent, InvalidOption
from lakebed.format.file_names import new_file_id
from lakebed.format.hashes import bucket_ids
from lakebed.index.base import Index
from lakebed.index.bucket import BucketIndex
from lakebed.index.inference import SampledSlice, adopt, check_requested, fitting_buckets
from lakebed.index.registry import index_of
from lakebed.index.simple import GlobalSimpleIndex, SimpleIndex

NewTable = Callable[..., Any]
Golden = Callable[[str], Any]
INSTANT = "20240102030405006"


def _fill(table: Any, keys: list[str], buckets: int, fields: list[str], partition: str = "eu") -> None:
    """Base files of a bucket table: each key where its hash says."""
    numbers = bucket_ids(pa.array(keys), fields, buckets)
    for number in np.unique(numbers):
        rows = pa.table({"key": [k for k, n in zip(keys, numbers, strict=True) if n == number]})
        table.add(partition, rows, file_id=new_file_id(INSTANT, partition, int(number), bucket=int(number)))


def _keys_of_bucket(number: int, buckets: int) -> list[str]:
    keys = pa.array([f"k{i}" for i in range(10_000)])
    return keys.filter(pa.array(bucket_ids(keys, ["key"], buckets) == number)).to_pylist()


def _settings(index: Index) -> dict[str, str]:
    return dict(index.settings())


def test_keys_have_a_count_and_fields(new_table: NewTable) -> None:
    table = new_table(["id", "code"])
    _fill(table, [f"id:{i},code:{i % 7}" for i in range(500)], 6, ["id"])
    _fill(table, [f"id:{i},code:x" for i in range(20)], 6, ["id"], partition="us")
    assert _settings(index_of(table)) == {"type": "bucket", "bucket.count": "6", "bucket.fields": "id"}


@pytest.mark.parametrize("buckets", [1, 2, 8, 100, 256])
def test_any_count_is_found(new_table: NewTable, buckets: int) -> None:
    table = new_table()
    _fill(table, [f"trip-{i}" for i in range(3000)], buckets, ["key"])
    assert _settings(index_of(table)) == {"type": "bucket", "bucket.count": str(buckets), "bucket.fields": "key"}


def test_several_fitting_counts_are_refused_for_writes(new_table: NewTable) -> None:
    table = new_table()
    _fill(table, _keys_of_bucket(1, 8)[:200], 8, ["key"])
    with pytest.raises(InvalidOption, match=r"more than one bucket index: 2 buckets.*4 buckets.*8 buckets") as caught:
        index_of(table)
    assert "t.indexes.adopt('bucket'" in caught.value.hint
    assert index_of(table, for_write=False).name == "simple"
    assert adopt(table, "bucket", buckets=8).settings()["bucket.count"] == "8"


def test_several_fitting_fields_are_refused(new_table: NewTable) -> None:
    table = new_table(["id", "code"])
    _fill(table, ["id:1,code:1"], 4, ["id"])
    with pytest.raises(InvalidOption, match="more than one bucket index"):
        index_of(table)


def test_a_chance_id_does_not_make_a_bucket_table(new_table: NewTable, caplog: pytest.LogCaptureFixture) -> None:
    table = new_table()
    table.add("eu", pa.table({"key": ["a"]}), file_id="83920175-aaaa-4bbb-8ccc-ddddddddddd0-0")
    assert index_of(table).name == "simple"
    assert "83920175" not in caplog.text


@pytest.mark.parametrize("number", [0, 3])
def test_small_numbers_do_not_either_if_the_keys_disagree(
    new_table: NewTable, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    table = new_table()
    keys = [f"k{i}" for i in range(100)]
    table.add("eu", pa.table({"key": keys}), file_id=new_file_id(INSTANT, "eu", 0, bucket=number))
    table.add("eu", pa.table({"key": keys[::-1]}), file_id=new_file_id(INSTANT, "eu", 0, bucket=number + 1))
    assert index_of(table).name == "simple"
    assert "keys do not hash to them" in caplog.text


def test_one_warning_a_table_names_adopt(new_table: NewTable, caplog: pytest.LogCaptureFixture) -> None:
    table = new_table()
    table.add("eu", pa.table({"key": ["a"]}))
    with caplog.at_level(logging.WARNING, logger="lakebed"):
        for _ in range(3):
            assert index_of(table).name == "simple"
        index_of(table, for_write=False)
    (record,) = caplog.records
    assert "t.indexes.adopt(" in record.getMessage()
    assert "'trips'" in record.getMessage()


def test_reading_warns_of_nothing(new_table: NewTable, caplog: pytest.LogCaptureFixture) -> None:
    table = new_table()
    table.add("eu", pa.table({"key": ["a"]}))
    assert index_of(table, for_write=False).name == "simple"
    assert not caplog.records


def test_the_recorded_index_wins_over_the_inferred_one(new_table: NewTable, caplog: pytest.LogCaptureFixture) -> None:
    table = new_table(settings={"type": "global_simple", "update_partition": "false"})
    _fill(table, [f"k{i}" for i in range(100)], 4, ["key"])
    assert _settings(index_of(table)) == {"type": "global_simple", "update_partition": "false"}
    assert not caplog.records


def test_hash_fields_with_equal_hashes_are_one_candidate() -> None:
    keys = pa.array([f"k{i}" for i in range(50)])
    numbers = bucket_ids(keys, ["a"], 2)
    files = [SampledSlice("f", n, keys.filter(pa.array(numbers == n))) for n in (0, 1)]
    assert fitting_buckets(files, ["a", "b"], 1) == [BucketIndex(2, ("a", "b"))]
    assert fitting_buckets([SampledSlice("f", 0, keys.slice(0, 0))], ["a"], 0)[0] == BucketIndex(1, ("a",))


def test_adopt_checks_every_stored_key(new_table: NewTable) -> None:
    table = new_table(["id", "code"])
    _fill(table, [f"id:{i},code:{i % 7}" for i in range(500)], 6, ["id"])
    assert _settings(adopt(table, "bucket", buckets=6, fields=["id"])) == {
        "type": "bucket",
        "bucket.count": "6",
        "bucket.fields": "id",
    }
    with pytest.raises(IndexInconsistent) as caught:
        adopt(table, "bucket", buckets=12, fields=["id"])
    assert caught.value.context["path"] in {f.path for f in table.files}
    assert caught.value.context["record_key"] in str(caught.value)
    with pytest.raises(IndexInconsistent, match="hashed on id, code"):
        adopt(table, "bucket", buckets=6)
    with pytest.raises(IndexInconsistent, match=r"is bucket [45], but the table's index has 4 buckets"):
        adopt(table, "bucket", buckets=4, fields=["id"])
    with pytest.raises(InvalidOption, match="none of the key fields"):
        adopt(table, "bucket", buckets=6, fields=["city"])
    with pytest.raises(InvalidOption, match="takes its number of buckets"):
        adopt(table, "bucket")
    with pytest.raises(InvalidOption, match="cannot be adopted"):
        adopt(table, "hbase")
    assert adopt(table, "simple").settings() == {"type": "simple"}
    assert adopt(table, "global_simple", update_partition_path=False).settings()["update_partition"] == "false"


def test_adopt_finds_one_misplaced_key_after_the_sample(new_table: NewTable) -> None:
    table = new_table()
    stray, right = _keys_of_bucket(1, 2)[-1], _keys_of_bucket(0, 2)
    table.add("eu", pa.table({"key": [*right, stray]}), file_id=new_file_id(INSTANT, "eu", 0, bucket=0))
    with pytest.raises(IndexInconsistent, match=f"'{stray}' in eu/00000000-.* belongs to bucket 1 under 2 buckets"):
        adopt(table, "bucket", buckets=2)


def test_an_index_named_by_options_is_checked(new_table: NewTable) -> None:
    table = new_table()
    check_requested(table, BucketIndex(4, ("key",)))
    check_requested(table, GlobalSimpleIndex())
    _fill(table, [f"k{i}" for i in range(200)], 4, ["key"])
    check_requested(table, BucketIndex(4, ("key",)))
    with pytest.raises(IndexInconsistent, match="under 8 buckets hashed on key"):
        check_requested(table, BucketIndex(8, ("key",)))
    with pytest.raises(IndexInconsistent, match="the table's index has 2 buckets"):
        check_requested(table, BucketIndex(2, ("key",)))
    with pytest.raises(InvalidOption, match=r"bucket index \(4 buckets hashed on key\), the write asks for simple"):
        check_requested(table, SimpleIndex())
    other = new_table()
    other.add("eu", pa.table({"key": ["a"]}))
    check_requested(other, GlobalSimpleIndex())
    with pytest.raises(IndexInconsistent, match="does not start with a bucket number"):
        check_requested(other, BucketIndex(4, ("key",)))


@pytest.mark.parametrize("version", ["v6", "v8", "v9"])
def test_bucket_tables_that_hudi_wrote(golden: Golden, version: str) -> None:
    snapshot = golden(f"{version}_cow_bucket_simple")
    index = index_of(snapshot)
    assert _settings(index) == {"type": "bucket", "bucket.count": "4", "bucket.fields": "id"}
    assert adopt(snapshot, "bucket", buckets=4, fields=["id"]) == index
    assert isinstance(index, BucketIndex)
    places = index.bucket_map(snapshot)
    assert {s.label for s in places.values()} == {f.path for f in snapshot.base_files()}
    assert {number for _, number in places} == {0, 1, 2, 3}
    with pytest.raises(IndexInconsistent):
        adopt(snapshot, "bucket", buckets=8, fields=["id"])


@pytest.mark.parametrize("name", ["v9_cow_simple", "v9_cow_bloom", "v6_cow_event_time"])
def test_other_tables_that_hudi_wrote(golden: Golden, name: str) -> None:
    assert index_of(golden(name)).settings() == {"type": "simple"}


def test_bucket_counts_by_partition_have_to_be_named(golden: Golden) -> None:
    snapshot = golden("v9_cow_bucket_partition_level")
    with pytest.raises(InvalidOption, match="another bucket count in each partition") as caught:
        index_of(snapshot)
    assert "partition_buckets='regex,count;...'" in caught.value.hint
    for asked in (BucketIndex(2, ("id",)), BucketIndex(4, ("id",)), SimpleIndex()):
        with pytest.raises(InvalidOption, match="another bucket count in each partition"):
            check_requested(snapshot, asked)
    named = BucketIndex(4, ("id",), (("eu", 2), ("us", 3)))
    check_requested(snapshot, named)
    assert adopt(snapshot, "bucket", buckets=4, partition_buckets="eu,2;us,3").settings() == named.settings()
    with pytest.raises(IndexInconsistent, match="under 5 buckets hashed on id"):
        adopt(snapshot, "bucket", buckets=4, partition_buckets="eu,5;us,3")
    assert index_of(snapshot, for_write=False).name == "simple"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("v9_cow_record_index", {"type": "record", "update_partition": "false"}),
        ("v9_cow_record_index_partitioned", {"type": "record", "partitioned": "true"}),
    ],
)
def test_a_record_index_in_the_metadata_table_is_taken(golden: Golden, name: str, settings: dict[str, str]) -> None:
    for for_write in (True, False):
        assert _settings(index_of(golden(name), for_write=for_write)) == settings
