"""The columns of a table as Hive's types, and as the JSON by which Spark knows them: those of real Hudi's sync."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import UnsupportedFeature
from lakebed.schema.logical_types import is_vector, logical_metadata
from lakebed.schema.plain_arrow import is_list

_HIVE: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.time32("ms"): "int",
    pa.time64("us"): "bigint",
}
_SPARK: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "integer",
    pa.int16(): "integer",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}
# Hive's type texts have no quotes: names of fields in structs are plain.
_FIELD_NAME = re.compile(r"[\w$ .-]+")


def hive_type(kind: pa.DataType, column: str, *, timestamps: bool) -> str:
    """A column's type in Hive, in lower case. Timestamps are numbers, unless `timestamps`.

    Raises `UnsupportedFeature`, naming the column, for a type that Hive does not have.

    >>> hive_type(pa.struct([("Km", pa.int32()), ("at", pa.timestamp("us"))]), "leg", timestamps=True)
    'struct<km:int,at:timestamp>'
    """
    if pt.is_timestamp(kind):
        return "timestamp" if timestamps else "bigint"
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_fixed_size_binary(kind) or is_vector(kind):  # Hive's reader finds the bytes of a vector in the files
        return "binary"
    if pt.is_struct(kind):
        for part in kind:
            if not _FIELD_NAME.fullmatch(part.name):
                raise _no_equivalent(column, f"a field {part.name!r}, a name that Hive's structs cannot have")
        parts = (
            # structs of Hive have no hyphens, as real Hudi writes them
            f"{part.name.replace('-', '_')}:{hive_type(part.type, f'{column}.{part.name}', timestamps=timestamps)}"
            for part in kind
        )
        return f"struct<{','.join(parts)}>".lower()
    if pt.is_map(kind):
        key = hive_type(kind.key_type, column, timestamps=timestamps)
        return f"map<{key},{hive_type(kind.item_type, column, timestamps=timestamps)}>"
    if is_list(kind):
        return f"array<{hive_type(kind.value_type, column, timestamps=timestamps)}>"
    if kind in _HIVE:
        return _HIVE[kind]
    raise _no_equivalent(column, f"the type {kind}, which Hive does not have")


def spark_schema(schema: pa.Schema, partition_fields: tuple[str, ...]) -> str:
    """The schema as Spark reads it from an entry: partition columns last, spaces where real Hudi has them.

    Raises `UnsupportedFeature`, naming the column, for times of day, which real Hudi has no Spark type for.

    >>> spark_schema(pa.schema([("id", pa.int64())]), ())
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
    """
    names = set(schema.names)
    data = [field for field in schema if field.name not in partition_fields]
    last = [schema.field(n) if n in names else pa.field(n, pa.string(), nullable=False) for n in partition_fields]
    return _struct([*data, *last], "")


def _struct(fields: list[pa.Field], path: str) -> str:
    texts = (
        f'{{"name":{json.dumps(field.name, ensure_ascii=False)},"type":{_spark_type(field.type, path + field.name)},'
        f'"nullable":{_flag(field.nullable)},"metadata":{json.dumps(logical_metadata(field) or {})}}}'
        for field in fields
    )
    return f'{{"type":"struct","fields":[{",".join(texts)}]}}'


def _spark_type(kind: pa.DataType, column: str) -> str:
    if pt.is_timestamp(kind):
        return '"timestamp"' if kind.tz else '"timestamp_ntz"'
    if pt.is_decimal(kind):
        return f'"decimal({kind.precision},{kind.scale})"'
    if pt.is_fixed_size_binary(kind):
        return '"binary"'
    if pt.is_struct(kind):
        return _struct(list(kind), f"{column}.")
    if pt.is_map(kind):
        key, value = _spark_type(kind.key_type, column), _spark_type(kind.item_type, column)
        nullable = _flag(kind.item_field.nullable)
        return f'{{"type":"map", "keyType":{key},"valueType":{value},"valueContainsNull":{nullable}}}'
    if is_list(kind):
        item = _spark_type(kind.value_type, column)
        return f'{{"type":"array", "elementType":{item},"containsNull":{_flag(kind.value_field.nullable)}}}'
    if kind in _SPARK:
        return f'"{_SPARK[kind]}"'
    raise _no_equivalent(column, f"the type {kind}, which Spark's readers of entries do not have")


def _flag(value: Any) -> str:
    return "true" if value else "false"


def _no_equivalent(column: str, problem: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"column {column} has {problem}",
        hint="Cast the column, or leave Spark's properties out with"
        " hoodie.datasource.hive_sync.sync_as_datasource=false where only those lack the type.",
        context={"column": column},
    )
