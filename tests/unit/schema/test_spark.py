from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import SchemaConflict
from lakebed.schema.arrow import list_of, map_of
from lakebed.schema.spark import arrow_to_spark_ddl, spark_json_to_arrow

UTC = pa.timestamp("us", "UTC")


def struct(*fields: tuple[str, Any, bool]) -> dict[str, Any]:
    entries = [{"name": n, "type": t, "nullable": nullable, "metadata": {}} for n, t, nullable in fields]
    return {"type": "struct", "fields": entries}


def arrow(spark: Any) -> pa.Field:
    return spark_json_to_arrow(json.dumps(struct(("c", spark, True)))).field("c")


@pytest.mark.parametrize(
    ("spark", "expected"),
    [
        ("boolean", pa.bool_()),
        ("byte", pa.int32()),
        ("short", pa.int32()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("string collate UNICODE_CI", pa.string()),
        ("char(5)", pa.string()),
        ("varchar(10)", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", UTC),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal(38,18)", pa.decimal128(38, 18)),
        ({"type": "array", "elementType": "short", "containsNull": False}, list_of(pa.int32(), nullable=False)),
        (
            {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": True},
            map_of(pa.date32()),
        ),
        (
            struct(("a", "byte", False), ("b", "string", True)),
            pa.struct([pa.field("a", pa.int32(), False), ("b", pa.string())]),
        ),
        ({"type": "udt", "class": "x", "sqlType": "double"}, pa.float64()),
    ],
    ids=str,
)
def test_every_spark_type_has_its_arrow_type(spark: Any, expected: pa.DataType):
    assert arrow(spark).type.equals(expected)


@pytest.mark.parametrize("spark", ["variant", "interval", "interval year to month", "interval day to second", "null"])
def test_types_hudi_cannot_hold_are_refused_by_column(spark: str):
    with pytest.raises(SchemaConflict, match=rf"column c\.x has Spark type {spark}"):
        arrow(struct(("x", spark, True)))


def test_maps_with_other_keys_are_refused():
    with pytest.raises(SchemaConflict, match="column c is a map with keys"):
        arrow({"type": "map", "keyType": "integer", "valueType": "string", "valueContainsNull": True})


def test_nullability_and_order_survive():
    schema = spark_json_to_arrow(json.dumps(struct(("b", "long", False), ("A", "string", True))))
    assert schema.equals(pa.schema([pa.field("b", pa.int64(), False), pa.field("A", pa.string())]))


def test_ddl_names_every_type():
    schema = pa.schema(
        [
            pa.field("id", pa.string(), False),
            pa.field("we`ird name", pa.decimal128(10, 2)),
            pa.field("at", UTC),
            pa.field("st", pa.struct([pa.field("x", pa.timestamp("ms"), False), ("y", list_of(pa.date32()))])),
            pa.field("m", map_of(pa.binary())),
            pa.field("d", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
    assert arrow_to_spark_ddl(schema) == (
        "`id` STRING NOT NULL, `we``ird name` DECIMAL(10,2), `at` TIMESTAMP_LTZ, "
        "`st` STRUCT<`x`: TIMESTAMP_NTZ NOT NULL, `y`: ARRAY<DATE>>, `m` MAP<STRING, BINARY>, `d` STRING"
    )


def test_ddl_refuses_what_spark_has_no_type_for():
    with pytest.raises(SchemaConflict, match="duration"):
        arrow_to_spark_ddl(pa.schema([("c", pa.duration("s"))]))
