from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import InvalidOption
from lakebed.expressions.bucket import Bucket, JavaHash
from lakebed.expressions.key_generators import KeyGenerator, KeyGeneratorSpec, key_generator
from lakebed.expressions.key_text import KeyText
from lakebed.format.hashes import extract_hash_values

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("day", pa.date32())])


def keys_of(kind: str, *fields: str) -> KeyGenerator:
    return key_generator(KeyGeneratorSpec(kind, fields, ("n",)))


def test_the_formula_serves_rows_that_cannot_confuse_and_types_decide_which_can() -> None:
    assert Bucket(keys_of("SIMPLE", "n"), (), 8).confusing_sql(SCHEMA) == "FALSE"
    assert Bucket(keys_of("COMPLEX", "n", "day"), (), 8).confusing_sql(SCHEMA) == "FALSE"
    assert Bucket(keys_of("COMPLEX", "n", "id"), ("n",), 8).confusing_sql(SCHEMA) != "FALSE"
    confusing = Bucket(keys_of("SIMPLE", "id"), (), 8).confusing_sql(SCHEMA)
    assert confusing == "coalesce(contains(`id`, ',') AND contains(`id`, ':'), FALSE)"
    assert Bucket(keys_of("COMPLEX", "id"), (), 8).confusing_sql(SCHEMA) == "coalesce(contains(`id`, ','), FALSE)"


def test_a_single_integer_key_is_one_call_of_java() -> None:
    assert Bucket(keys_of("SIMPLE", "n"), (), 8).sql(SCHEMA) == (
        "CAST(((31L + CAST(java_method('java.util.Objects', 'hashCode', CAST(`n` AS STRING)) AS BIGINT))"
        " & 2147483647L) % 8L AS INT)"
    )


def test_hash_fields_come_in_the_order_of_the_key() -> None:
    keys = keys_of("COMPLEX", "id", "n")
    rows = pa.record_batch({"id": ["1"], "n": [2]})
    assert Bucket(keys, ("n", "id"), 256).hash_fields == ("id", "n")
    assert Bucket(keys, ("n", "id"), 256).arrow(rows).to_pylist() == [226]
    assert Bucket(keys, ("id",), 256).arrow(rows).to_pylist() == [80]
    assert Bucket(keys, (), 256).arrow(rows).type == pa.int32()


def test_foreign_hash_fields_no_buckets_and_generated_keys_are_refused() -> None:
    with pytest.raises(InvalidOption, match="no key fields: day"):
        Bucket(keys_of("COMPLEX", "id", "n"), ("day",), 8)
    with pytest.raises(InvalidOption, match="0 buckets"):
        Bucket(keys_of("SIMPLE", "id"), (), 0)
    with pytest.raises(InvalidOption, match="needs key fields"):
        Bucket(keys_of("SIMPLE"), (), 8).sql(SCHEMA)


def parsed_like_the_sql(key: str, fields: tuple[str, ...]) -> list[str | None]:
    """What `exact_hash_sql` does, in Python's regular expressions."""
    if "," not in key or ":" not in key:
        return [key]
    first, _, rest = key.partition(":")
    parts = re.split(",(?=[^,:]*:)", rest)
    pairs = [part.partition(":") for part in [f"{first}:{parts[0]}", *parts[1:]]]
    special = {"__null__": None, "__empty__": ""}
    return [special.get(value, value) for name, _, value in pairs if name in fields] or [key]


pieces = st.sampled_from(["a", ",", ":", "id:", ",id:", "ts:", ",ts:", "__null__", "__empty__", "é", "\n"])


@settings(deadline=None)
@given(st.lists(pieces, max_size=10).map("".join), st.sampled_from([("id",), ("id", "ts"), ("ts",), ("",)]))
def test_a_field_begins_after_each_comma_with_no_comma_or_colon_up_to_the_next_colon(
    key: str, fields: tuple[str, ...]
) -> None:
    if fields != ("",):
        assert parsed_like_the_sql(key, fields) == extract_hash_values(key, list(fields))


texts = st.none() | st.lists(pieces, max_size=6).map("".join)


@settings(deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=20), st.sampled_from([(), ("id",), ("ts",)]))
def test_field_values_give_the_bucket_of_the_text_hudi_parses(
    rows: list[tuple[str | None, str | None]], fields: tuple[str, ...]
) -> None:
    batch = pa.record_batch([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], ["id", "ts"])
    for names in (("id", "ts"), ("id",)):
        if set(fields) <= set(names):
            bucket = Bucket(keys_of("COMPLEX", *names), fields, 1009)
            keys = bucket.keys.record_key.arrow(batch)
            ours = bucket.arrow(batch).filter(keys.is_valid())
            assert ours.equals(bucket.of_texts(keys.filter(keys.is_valid())))


def test_java_hash_of_text_and_null() -> None:
    rows = pa.record_batch({"id": ["é€😀", None, "k0"]})
    assert JavaHash(KeyText("id")).arrow(rows).to_pylist() == [16752006, 0, 3365]
    assert JavaHash(KeyText("id")).arrow(rows).type == pa.int32()


def test_buckets_spread_and_stay_in_range() -> None:
    rows = pa.record_batch({"id": [f"trip-{n}" for n in range(5000)]})
    counts = np.bincount(np.asarray(Bucket(keys_of("SIMPLE", "id"), (), 7).arrow(rows)), minlength=7)
    assert len(counts) == 7
    assert counts.min() > 400
