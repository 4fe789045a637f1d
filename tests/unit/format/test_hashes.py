from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.format.hashes import (
    bucket_ids,
    extract_hash_values,
    java_hash,
    java_list_hash,
    key_list_hash,
    record_index_shard,
)
from support.hudi_reference import bucket_id, extract, java_string_hash
from support.hudi_reference import java_list_hash as reference_list_hash

# key text, hash fields, values, list hash, bucket of 8, bucket of 256: what Hudi's own classes give
VECTORS = [
    ("k0", "id", ["k0"], 3396, 4, 68),
    ("abc", "id", ["abc"], 96385, 1, 129),
    ("", "id", [""], 31, 7, 31),
    ("é€😀", "id", ["é€😀"], 16752037, 5, 165),
    ("id:1,ts:2", "id", ["1"], 80, 0, 80),
    ("id:1,ts:2", "id,ts", ["1", "2"], 2530, 2, 226),
    ("id:1,ts:2", "ts,id", ["1", "2"], 2530, 2, 226),
    ("id:1", "id", ["id:1"], 3226033, 1, 177),
    ("id:__null__,ts:5", "id", [None], 31, 7, 31),
    ("id:__null__,ts:5", "id,ts", [None, "5"], 1014, 6, 246),
    ("id:__empty__,ts:5", "id,ts", ["", "5"], 1014, 6, 246),
    ("ts:2014-10-22 13:50:42,id:3", "ts", ["2014-10-22 13:50:42"], -2011593182, 2, 34),
    ("id:v1,v2,ts:7", "id", ["v1,v2"], 110481260, 4, 108),
    ("x:1,y:2", "id", ["x:1,y:2"], 833431571, 3, 19),
    ("id:1,ts:2", "nope", ["id:1,ts:2"], -1234145808, 0, 240),
]
any_text = st.text(st.characters(exclude_categories=["Cs"]))
key_pieces = st.lists(
    st.sampled_from(["id", "ts", "a", ":", ",", "::", ",:", "é", "😀", "__null__", "__empty__", " ", ""]), max_size=12
).map("".join)


@pytest.mark.parametrize(("key", "fields", "values", "list_hash", "of_8", "of_256"), VECTORS)
def test_the_bucket_of_a_key_is_hudis(
    key: str, fields: str, values: list[str | None], list_hash: int, of_8: int, of_256: int
):
    names = fields.split(",")
    assert extract_hash_values(key, names) == values
    assert key_list_hash(pa.array([key]), names).tolist() == [list_hash]
    assert bucket_ids(pa.array([key]), names, 8).tolist() == [of_8]
    assert bucket_ids(pa.array([key]), names, 256).tolist() == [of_256]


def test_all_vectors_in_one_column():
    keys = [v[0] for v in VECTORS if v[1] == "id"] * 50
    assert bucket_ids(pa.array(keys), ["id"], 256).tolist() == [bucket_id(k, ["id"], 256) for k in keys]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.none(), any_text, st.text("abc", max_size=3)), max_size=30))
def test_java_hash_of_any_text(values: list[str | None]):
    expected = [0 if v is None else java_string_hash(v) for v in values]
    column = pa.array(values, pa.string())
    assert java_hash(column).tolist() == expected
    assert java_hash(column.cast(pa.large_string())).tolist() == expected
    assert java_hash(column.dictionary_encode()).tolist() == expected
    assert java_hash(pa.chunked_array([column, column])).tolist() == expected * 2


def test_java_hash_of_slices_long_rows_and_string_views():
    rows = ["x" * 200_000, "short", "é" * 70_000, None, "", "tail" * 40_000]
    column = pa.array(rows, pa.string())
    expected = [0 if v is None else java_string_hash(v) for v in rows]
    assert java_hash(column).tolist() == expected
    assert java_hash(column[1:4]).tolist() == expected[1:4]
    assert java_hash(column[6:]).tolist() == []
    assert java_hash(column.cast(pa.string_view())).tolist() == expected


def test_a_null_over_stored_bytes_hashes_to_zero():
    whole = pa.array(["ab", "cd"])
    masked = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x01"), *whole.buffers()[1:]], null_count=1)
    assert java_hash(masked).tolist() == [java_string_hash("ab"), 0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.one_of(st.none(), any_text), min_size=3, max_size=3), min_size=1, max_size=10))
def test_list_hash_equals_javas(rows: list[list[str | None]]):
    columns = [java_hash(pa.array(column, pa.string())) for column in zip(*rows, strict=True)]
    assert java_list_hash(columns).tolist() == [reference_list_hash(row) for row in rows]


@settings(max_examples=50, deadline=None)
@given(st.lists(key_pieces, min_size=1, max_size=20), st.sampled_from([[], [""], ["id"], ["ts"], ["id", "ts"]]))
def test_buckets_of_confusing_keys(keys: list[str], fields: list[str]):
    assert [extract_hash_values(k, fields) for k in keys] == [extract(k, fields) for k in keys]
    assert bucket_ids(pa.array(keys), fields, 97).tolist() == [bucket_id(k, fields, 97) for k in keys]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(any_text, any_text), min_size=1, max_size=20),
    st.sampled_from([["id"], ["ts.x"], ["id", "ts.x"], ["ts.x", "id"]]),
)
def test_buckets_of_composite_keys(rows: list[tuple[str, str]], fields: list[str]):
    keys = [f"id:{a},ts.x:{b}" for a, b in rows]
    assert bucket_ids(pa.array(keys), fields, 1000).tolist() == [bucket_id(k, fields, 1000) for k in keys]


@pytest.mark.timeout(10)
def test_the_key_that_hangs_hudi_ends():
    assert extract_hash_values("id:1,ts:13:50:42", ["id"]) == ["1"]
    assert extract_hash_values("id:1,ts:13:50:42", ["id", "ts"]) == ["1", "13:50:42"]


def test_null_keys_are_empty_ones():
    assert bucket_ids(pa.array([None, ""], pa.string()), ["id"], 8).tolist() == [7, 7]
    assert bucket_ids(pa.array([], pa.string()), ["id"], 8).tolist() == []


def test_the_shard_of_a_key_in_the_record_index_is_hudis():
    assert record_index_shard(pa.array(["k1", "é€😀"]), 10).tolist() == [6, 6]
    assert record_index_shard(pa.array(["k1"]), 1000).tolist() == [366]
    # a hash of the least int, whose absolute value Java cannot hold
    least = "polygenelubricants"
    assert java_hash(pa.array([least])).tolist() == [-(2**31)]
    assert record_index_shard(pa.array([least]), 10).tolist() == [2**31 % 10]
    assert record_index_shard(pa.array([least]), 1).dtype == np.int32
