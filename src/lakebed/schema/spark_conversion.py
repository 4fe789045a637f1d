"""The conversions of `lakebed.schema.conversion` as Spark SQL, equal in result."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from lakebed.schema.arrow import is_list
from lakebed.schema.spark import quoted, spark_type

_PLAIN_SCALE = 6
_EPOCH_NTZ = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"


def spark_projection(file_schema: pa.Schema, table_schema: pa.Schema) -> list[str]:
    """Spark SQL expressions, one a table column, that turn rows read with `file_schema` into rows of
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
        return f"CAST(NULL AS {spark_type(field.type)}) AS {name}"
    sql = spark_cast(name, file_schema.field(at).type, field.type)
    return name if sql == name else f"{sql} AS {name}"


def spark_cast(sql: str, kind: pa.DataType, to_type: pa.DataType, depth: int = 0) -> str:
    """`sql`, a value of type `kind`, in another type, as `cast_column` has it; `depth` tells nested lambdas apart."""
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
    """Times in microseconds that become milliseconds: one type to Spark, another value."""
    return pt.is_timestamp(kind) and pt.is_timestamp(to_type) and kind.unit != "ms" and to_type.unit == "ms"


def _struct(sql: str, kind: pa.DataType, to_type: pa.DataType, depth: int) -> str:
    stored = {field.name: field.type for field in kind}
    parts: list[str] = []
    for field in to_type:
        own = f"{sql}.{quoted(field.name)}"
        if field.name in stored:
            parts.append(spark_cast(own, stored[field.name], field.type, depth))
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
