"""Spark schemas as text: the JSON a DataFrame gives of its schema, and DDL. No pyspark here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import SchemaConflict
from lakebed.schema.arrow import is_list, list_of, map_of, normalise

_FROM_SPARK = {
    "void": pa.null(),
    "boolean": pa.bool_(),
    "byte": pa.int32(),
    "short": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
}
_TO_DDL = {
    pa.null(): "VOID",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.binary(): "BINARY",
    pa.large_binary(): "BINARY",
    pa.date32(): "DATE",
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_TIME = re.compile(r"time\(\d\)")
_TEXT = re.compile(r"(?:char|varchar)\(\d+\)|string collate \S+")


def spark_json_to_arrow(schema_json: str) -> pa.Schema:
    """The Arrow schema a table stores for a DataFrame's `schema.json()`: byte and short become int32, char
    and varchar string.

    Raises `SchemaConflict`, naming the column, for intervals, variant, maps without string keys, and
    for columns that differ in case only.

    >>> spark_json_to_arrow('{"type":"struct","fields":[{"name":"n","type":"short","nullable":false}]}').field("n")
    pyarrow.Field<n: int32 not null>
    """
    return normalise(pa.schema(_fields(json.loads(schema_json), "")))


def _fields(struct: Mapping[str, Any], parent: str) -> list[pa.Field]:
    types = [_arrow_type(field["type"], f"{parent}{field['name']}") for field in struct["fields"]]
    return [
        pa.field(field["name"], kind, _has_nulls(kind, field.get("nullable", True)))
        for field, kind in zip(struct["fields"], types, strict=True)
    ]


def _has_nulls(kind: pa.DataType, declared: bool) -> bool:
    """What Spark declares; its void, which `array()` and `map()` declare as never null, is Arrow's null."""
    return declared or pt.is_null(kind)


def _arrow_type(spark: Any, column: str) -> pa.DataType:
    if isinstance(spark, str):
        return _simple_type(spark, column)
    kind = spark["type"]
    if kind == "struct":
        return pa.struct(_fields(spark, f"{column}."))
    if kind == "array":
        item = _arrow_type(spark["elementType"], f"{column}.element")
        return list_of(item, nullable=_has_nulls(item, spark.get("containsNull", True)))
    if kind == "map":
        key = _arrow_type(spark["keyType"], f"{column}.key")
        value = _arrow_type(spark["valueType"], f"{column}.value")
        nullable = _has_nulls(value, spark.get("valueContainsNull", True))
        if pt.is_string(key) or pt.is_null(key):  # of `map()`: it has no keys
            return map_of(value, nullable=nullable)
        return pa.map_(pa.field("key", key, False), pa.field("value", value, nullable))
    if kind == "udt":
        return _arrow_type(spark["sqlType"], column)
    raise _refused(str(kind), column)


def _simple_type(spark: str, column: str) -> pa.DataType:
    if spark in _FROM_SPARK:
        return _FROM_SPARK[spark]
    if _TEXT.fullmatch(spark):
        return pa.string()
    if _TIME.fullmatch(spark):
        return pa.time64("us")
    if found := _DECIMAL.fullmatch(spark):
        return pa.decimal128(int(found[1]), int(found[2]))
    raise _refused(spark, column)


def _refused(spark: str, column: str) -> SchemaConflict:
    return SchemaConflict(
        f"column {column} has Spark type {spark}, which a Hudi table cannot store",
        hint="Cast it (an interval or variant for example to string) or leave it out.",
        context={"column": column, "type": spark},
    )


def arrow_to_spark_ddl(schema: pa.Schema) -> str:
    """The schema as Spark DDL, names in backticks; a time with zone is TIMESTAMP_LTZ, one without TIMESTAMP_NTZ. What
    TIMESTAMP alone means depends on the session (`spark.sql.timestampType`).

    DDL cannot say that the elements of an array or map are not null.

    >>> arrow_to_spark_ddl(pa.schema([pa.field("a b", pa.int32(), False), ("at", pa.timestamp("us"))]))
    '`a b` INT NOT NULL, `at` TIMESTAMP_NTZ'
    """
    return ", ".join(f"{quoted(f.name)} {spark_type(f.type)}{'' if f.nullable else ' NOT NULL'}" for f in schema)


def read_by_spark(schema: pa.Schema) -> pa.Schema:
    """The Arrow schema that Spark itself has for what `arrow_to_spark_ddl` says of these columns: anything may be null,
    timestamps are in microseconds, times of a day in nanoseconds. Since 4.3 a data source's rows come in no other.

    >>> read_by_spark(pa.schema([pa.field("l", pa.list_(pa.field("element", pa.int32(), False)), False)])).field("l")
    pyarrow.Field<l: list<element: int32>>
    """
    return pa.schema([pa.field(f.name, _loose(f.type)) for f in schema])


def as_spark_reads(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in the types of `read_by_spark`."""
    schema = read_by_spark(batch.schema)
    return batch if batch.schema.equals(schema) else batch.cast(schema)


def _loose(kind: pa.DataType) -> pa.DataType:
    if pt.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pt.is_time(kind):
        return pa.time64("ns")
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, _loose(f.type)) for f in kind])
    if pt.is_map(kind):
        return pa.map_(pa.field("key", _loose(kind.key_type), False), pa.field("value", _loose(kind.item_type)))
    return list_of(_loose(kind.value_type)) if is_list(kind) else kind


def quoted(name: str) -> str:
    """A name as Spark SQL takes it whatever is in it.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def spark_type(kind: pa.DataType) -> str:
    """Spark's SQL name of an Arrow type.

    >>> spark_type(pa.struct([pa.field("x", pa.decimal128(5, 2), False)]))
    'STRUCT<`x`: DECIMAL(5,2) NOT NULL>'
    """
    if kind in _TO_DDL:
        return _TO_DDL[kind]
    if pt.is_timestamp(kind):
        return "TIMESTAMP_LTZ" if kind.tz else "TIMESTAMP_NTZ"
    if pt.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pt.is_fixed_size_binary(kind):
        return "BINARY"
    if pt.is_time(kind):
        # Spark reads Parquet's TIME only from 4.1 on, and then in microseconds
        return "TIME(3)" if pt.is_time32(kind) else "TIME(6)"
    if pt.is_struct(kind):
        inner = (f"{quoted(f.name)}: {spark_type(f.type)}{'' if f.nullable else ' NOT NULL'}" for f in kind)
        return f"STRUCT<{', '.join(inner)}>"
    if pt.is_map(kind):
        return f"MAP<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if is_list(kind):
        return f"ARRAY<{spark_type(kind.value_type)}>"
    if pt.is_dictionary(kind):
        return spark_type(kind.value_type)
    raise SchemaConflict(f"Spark has no type for Arrow's {kind}", context={"type": str(kind)})
