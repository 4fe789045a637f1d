"""Types of columns in Hive and Spark, as real Hudi 1.2.0 writes them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.catalog.columns import hive_type, spark_schema
from lakebed.errors import UnsupportedFeature

# Arrow, Hive, Spark: what a sync of real Hudi 1.2.0 wrote of these columns.
TYPES = [
    (pa.bool_(), "boolean", '"boolean"'),
    (pa.int32(), "int", '"integer"'),
    (pa.int64(), "bigint", '"long"'),
    (pa.float32(), "float", '"float"'),
    (pa.float64(), "double", '"double"'),
    (pa.string(), "string", '"string"'),
    (pa.binary(), "binary", '"binary"'),
    (pa.date32(), "date", '"date"'),
    (pa.timestamp("us", "UTC"), "bigint", '"timestamp"'),
    (pa.timestamp("us"), "bigint", '"timestamp_ntz"'),
    (pa.decimal128(10, 2), "decimal(10,2)", '"decimal(10,2)"'),
    (pa.list_(pa.string()), "array<string>", '{"type":"array", "elementType":"string","containsNull":true}'),
    (
        pa.map_(pa.string(), pa.int32()),
        "map<string,int>",
        '{"type":"map", "keyType":"string","valueType":"integer","valueContainsNull":true}',
    ),
    (
        pa.struct([("Xy", pa.int64()), ("z", pa.string())]),
        "struct<xy:bigint,z:string>",
        '{"type":"struct","fields":[{"name":"Xy","type":"long","nullable":true,"metadata":{}},'
        '{"name":"z","type":"string","nullable":true,"metadata":{}}]}',
    ),
]


@pytest.mark.parametrize(("kind", "hive", "spark"), TYPES, ids=[str(one[0]) for one in TYPES])
def test_types_are_those_of_real_hudis_sync(kind: pa.DataType, hive: str, spark: str) -> None:
    assert hive_type(kind, "c", timestamps=False) == hive
    field = f'{{"name":"c","type":{spark},"nullable":true,"metadata":{{}}}}'
    assert spark_schema(pa.schema([("c", kind)]), ()) == f'{{"type":"struct","fields":[{field}]}}'


def test_timestamps_are_timestamps_where_that_is_asked_for() -> None:
    assert hive_type(pa.list_(pa.timestamp("us")), "c", timestamps=True) == "array<timestamp>"


def test_partition_columns_come_last_and_unknown_ones_are_texts() -> None:
    text = spark_schema(pa.schema([("day", pa.int32()), pa.field("id", pa.int64(), False)]), ("day", "city"))
    assert [part.split('"')[0] for part in text.split('"name":"')[1:]] == ["id", "day", "city"]
    assert '{"name":"id","type":"long","nullable":false,"metadata":{}}' in text
    assert '{"name":"city","type":"string","nullable":false,"metadata":{}}' in text


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (pa.struct([("a:b", pa.int32())]), "column c has a field 'a:b'"),
        (pa.null(), "column c has the type null"),
        (pa.duration("us"), r"column c has the type duration\[us\]"),
    ],
)
def test_types_that_hive_does_not_have_are_refused_by_name(kind: pa.DataType, words: str) -> None:
    with pytest.raises(UnsupportedFeature, match=words):
        hive_type(kind, "c", timestamps=False)
