"""Spark schemas as text (the JSON of a DataFrame's schema, DDL), and conversions as Spark SQL that give the results
of `lakebed.schema.conversion`. No pyspark here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import SchemaConflict
from lakebed.schema.arrow import list_of, map_of, normalise
from lakebed.schema.logical_types import (
    HUDI_TYPE,
    VARIANT,
    as_variants,
    descriptor_of,
    is_variant,
    is_vector,
    vector_name,
)
from lakebed.schema.plain_arrow import is_list

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
# Spark's VARIANT as the rows of Python functions have it: the mark is what Spark knows it by.
_VARIANT_MARK = {b"variant": b"true"}
_SPARK_VARIANT = pa.struct(
    [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False, _VARIANT_MARK)]
)
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

    Raises `SchemaConflict`, naming the column, for intervals, variants inside other types, maps without string keys,
    and for columns that differ in case only.

    >>> spark_json_to_arrow('{"type":"struct","fields":[{"name":"n","type":"short","nullable":false}]}').field("n")
    pyarrow.Field<n: int32 not null>
    """
    return normalise(pa.schema(_fields(json.loads(schema_json), "")))


def _fields(struct: Mapping[str, Any], parent: str) -> list[pa.Field]:
    types = [
        VARIANT if not parent and field["type"] == "variant" else _arrow_type(field["type"], f"{parent}{field['name']}")
        for field in struct["fields"]
    ]
    return [
        pa.field(field["name"], kind, _has_nulls(kind, field.get("nullable", True)), _metadata(field))
        for field, kind in zip(struct["fields"], types, strict=True)
    ]


def _metadata(field: Mapping[str, Any]) -> dict[bytes, bytes] | None:
    """The name of the logical type that a Spark field has in its metadata."""
    descriptor = (field.get("metadata") or {}).get(HUDI_TYPE.decode())
    return {HUDI_TYPE: str(descriptor).encode()} if descriptor else None


def _has_nulls(kind: pa.DataType, declared: bool) -> bool:
    """Whether Spark declares the type as nullable, or it is Spark's void: `array()` and `map()` declare void as never
    null, although it is null in Arrow."""
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
    if match := _DECIMAL.fullmatch(spark):
        return pa.decimal128(int(match[1]), int(match[2]))
    raise _refused(spark, column)


def _refused(spark: str, column: str) -> SchemaConflict:
    return SchemaConflict(
        f"column {column} has Spark type {spark}, which a Hudi table cannot store",
        hint="Cast it (an interval, or a variant inside another type, for example to string) or leave it out.",
        context={"column": column, "type": spark},
    )


def arrow_to_spark_ddl(schema: pa.Schema) -> str:
    """The schema as Spark DDL, names in backticks; a time with zone is TIMESTAMP_LTZ, one without TIMESTAMP_NTZ. The
    meaning of TIMESTAMP depends on the session (`spark.sql.timestampType`).

    DDL cannot express that the elements of an array or map are not null.

    >>> arrow_to_spark_ddl(pa.schema([pa.field("a b", pa.int32(), False), ("at", pa.timestamp("us"))]))
    '`a b` INT NOT NULL, `at` TIMESTAMP_NTZ'
    """
    return ", ".join(f"{quoted(f.name)} {spark_type(f.type)}{'' if f.nullable else ' NOT NULL'}" for f in schema)


def read_by_spark(schema: pa.Schema) -> pa.Schema:
    """The Arrow schema that Spark itself has for columns of a table: all are nullable, timestamps are in microseconds,
    times of day in nanoseconds, vectors are lists, and variants Spark's own. `arrow_to_spark_ddl` makes DDL of it.
    Since 4.3 the rows of a data source must have it.

    >>> read_by_spark(pa.schema([pa.field("l", pa.list_(pa.field("element", pa.int32(), False)), False)])).field("l")
    pyarrow.Field<l: list<element: int32>>
    """
    return pa.schema([pa.field(f.name, _loose(_spark_form(f))) for f in schema])


def as_spark_reads(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the types of `schema`, which is one of `read_by_spark`."""
    batch = as_spark_takes(batch, schema)
    return batch if batch.schema.equals(schema) else batch.cast(schema)


def in_spark_types(schema: pa.Schema) -> pa.Schema:
    """The schema with plain lists in place of vectors, since Spark has no lists of a fixed size, and with Spark's
    variants in place of Hudi's."""
    return pa.schema([f.with_type(_spark_form(f)) for f in schema])


def as_spark_takes(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with their vectors and variants in the types of `schema`, one of `in_spark_types`."""
    for at, field in enumerate(batch.schema):
        if pt.is_nested(field.type) and (is_vector(field.type) or _has_variants(schema.field(field.name).type)):
            to_field = schema.field(field.name)
            batch = batch.set_column(at, to_field, _in_form(batch.column(at), to_field.type))
    return batch


def _in_form(values: Any, kind: pa.DataType) -> Any:
    if _is_spark_variant(kind):
        return as_variants(values, kind)
    if pt.is_struct(kind) and _has_variants(kind):
        parts = [_in_form(values.field(part.name), part.type) for part in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    return values.cast(kind)


def _spark_form(field: pa.Field) -> pa.DataType:
    """The type that Spark has for a column, also for columns inside the images of a change."""
    if is_vector(field.type):
        return list_of(field.type.value_type)
    if is_variant(field.type) and descriptor_of(field).upper() == "VARIANT":
        return _SPARK_VARIANT
    if pt.is_struct(field.type):
        return pa.struct([part.with_type(_spark_form(part)) for part in field.type])
    return field.type


def _has_variants(kind: pa.DataType) -> bool:
    return _is_spark_variant(kind) or (pt.is_struct(kind) and any(_has_variants(part.type) for part in kind))


def _is_spark_variant(kind: pa.DataType) -> bool:
    return kind.equals(_SPARK_VARIANT) and kind.field("metadata").metadata == _VARIANT_MARK


def _loose(kind: pa.DataType) -> pa.DataType:
    if _is_spark_variant(kind):
        return kind
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
    """The name quoted for Spark SQL, whatever characters it has.

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
    if _is_spark_variant(kind):
        return "VARIANT"
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


def type_name(kind: pa.DataType) -> str:
    """The name of a column's type for people: Hudi's name of a vector, else Spark's name.

    >>> type_name(pa.int64()), type_name(pa.list_(pa.float32(), 4))
    ('BIGINT', 'VECTOR(4)')
    """
    return vector_name(kind) if is_vector(kind) else spark_type(kind)


def name_of_type(field: pa.Field) -> str:
    """The name of a column's type for people: Hudi's name of a logical type (`VARIANT`), else that of `type_name`."""
    return descriptor_of(field) or type_name(field.type)


_PLAIN_SCALE = 6
_EPOCH_NTZ = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"


def spark_projection(file_schema: pa.Schema, table_schema: pa.Schema) -> list[str]:
    """The Spark SQL expressions, one per table column, that turn rows read with `file_schema` into rows of
    `table_schema`.

    >>> old, new = pa.schema([("f", pa.float32())]), pa.schema([("f", pa.float64()), ("n", pa.int32())])
    >>> spark_projection(old, new)
    ['CAST(CAST(`f` AS STRING) AS DOUBLE) AS `f`', 'CAST(NULL AS INT) AS `n`']
    """
    return [_column(file_schema, field) for field in table_schema]


def _column(file_schema: pa.Schema, field: pa.Field) -> str:
    name = quoted(field.name)
    at = file_schema.get_field_index(field.name)
    if at < 0:
        return f"{spark_null(field)} AS {name}"
    sql = spark_cast(name, file_schema.field(at).type, field.type)
    return name if sql == name else f"{sql} AS {name}"


def spark_null(field: pa.Field) -> str:
    """The SQL of a null in the type that Spark has for a column.

    >>> spark_null(pa.field("n", pa.int32()))
    'CAST(NULL AS INT)'
    """
    return f"CAST(NULL AS {spark_type(_loose(_spark_form(field)))})"


def spark_cast(sql: str, kind: pa.DataType, to_type: pa.DataType, depth: int = 0) -> str:
    """The SQL that converts `sql`, a value of type `kind`, to another type as `cast_column` does; `depth` numbers
    nested lambdas."""
    if kind.equals(to_type) or (
        not pt.is_nested(to_type) and spark_type(kind) == spark_type(to_type) and not _cuts(kind, to_type)
    ):
        return sql
    if pt.is_struct(kind):
        return _struct(sql, kind, to_type, depth)
    if pt.is_map(kind):
        key, value = f"k{depth}", f"v{depth}"
        inside = spark_cast(value, kind.item_type, to_type.item_type, depth + 1)
        return sql if inside == value else f"transform_values({sql}, ({key}, {value}) -> {inside})"
    if is_list(kind):
        item = f"x{depth}"
        inside = spark_cast(item, kind.value_type, to_type.value_type, depth + 1)
        return sql if inside == item else f"transform({sql}, {item} -> {inside})"
    return _simple(sql, kind, to_type)


def _cuts(kind: pa.DataType, to_type: pa.DataType) -> bool:
    """Whether times in microseconds become milliseconds: for Spark both are one type, but the value changes."""
    return pt.is_timestamp(kind) and pt.is_timestamp(to_type) and kind.unit != "ms" and to_type.unit == "ms"


def _struct(sql: str, kind: pa.DataType, to_type: pa.DataType, depth: int) -> str:
    stored = {field.name: field.type for field in kind}
    parts: list[str] = []
    for field in to_type:
        field_sql = f"{sql}.{quoted(field.name)}"
        if field.name in stored:
            parts.append(spark_cast(field_sql, stored[field.name], field.type, depth))
        else:
            parts.append(f"CAST(NULL AS {spark_type(field.type)})")
    if list(stored) == [f.name for f in to_type] and parts == [f"{sql}.{quoted(f.name)}" for f in to_type]:
        return sql
    pairs = ", ".join(f"{_literal(f.name)}, {part}" for f, part in zip(to_type, parts, strict=True))
    return f"IF({sql} IS NULL, NULL, named_struct({pairs}))"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _simple(sql: str, kind: pa.DataType, to_type: pa.DataType) -> str:
    target = spark_type(to_type)
    if pt.is_float32(kind) and pt.is_float64(to_type):
        return f"CAST(CAST({sql} AS STRING) AS DOUBLE)"
    if pt.is_string(to_type):
        if pt.is_decimal(kind) and kind.scale > _PLAIN_SCALE:
            # CAST gives 1E-7 or 0.0000001, as the session's ANSI setting has it
            return f"format_number({sql}, '0.{'0' * kind.scale}')"
        if pt.is_timestamp(kind):
            return f"CAST({_stored_number(sql, kind)} AS STRING)"
    if pt.is_timestamp(to_type):
        return _timestamp(sql, kind, to_type)
    if pt.is_decimal(to_type) and (pt.is_floating(kind) or pt.is_string(kind)):
        return f"CAST(CAST({sql} AS STRING) AS {target})"
    return f"CAST({sql} AS {target})"


def _stored_number(sql: str, kind: pa.DataType) -> str:
    micros = f"unix_micros({sql})" if kind.tz else f"unix_micros(to_utc_timestamp({sql}, current_timezone()))"
    return f"{micros} DIV 1000" if kind.unit == "ms" else micros


def _timestamp(sql: str, kind: pa.DataType, to_type: pa.DataType) -> str:
    if pt.is_integer(kind):
        unit = "0.001BD" if to_type.unit == "ms" else "0.000001BD"
        if to_type.tz:
            return f"timestamp_{'millis' if to_type.unit == 'ms' else 'micros'}({sql})"
        seconds = f"CAST(CAST({sql} AS DECIMAL(20, 0)) * {unit} AS DECIMAL(18, 6))"
        return f"{_EPOCH_NTZ} + make_dt_interval(0, 0, 0, {seconds})"
    if kind.tz and to_type.tz:
        return f"timestamp_micros(unix_micros({sql}) - pmod(unix_micros({sql}), 1000))"
    if not kind.tz and not to_type.tz:
        return f"{sql} - make_dt_interval(0, 0, 0, extract(SECOND FROM {sql}) % 0.001BD)"
    return f"CAST({sql} AS {spark_type(to_type)})"
