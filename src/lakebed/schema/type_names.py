"""Types of columns by their SQL names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakebed.errors import SchemaConflict
from lakebed.schema.arrow import MAX_PRECISION, list_of, map_of, normalise
from lakebed.schema.logical_types import BLOB, VARIANT, descriptor_of, parse_vector

_NAMES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int32(),
    "smallint": pa.int32(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "variant": VARIANT,
    "blob": BLOB,
}
_DECIMAL = re.compile(r"(?:decimal|numeric)(?:\((\d+)(?:,\s*(\d+))?\))?")


def column_type(declared: Any, column: str) -> pa.DataType:
    """The stored type for an Arrow type or a SQL type name. Raises `SchemaConflict` for anything else.

    >>> column_type("decimal(10, 2)", "fare"), column_type(pa.int16(), "stops"), column_type("array<bigint>", "at")
    (Decimal128Type(decimal128(10, 2)), DataType(int32), ListType(list<element: int64>))
    """
    if isinstance(declared, pa.DataType):
        field = pa.field(column, declared)
        stored = normalise(pa.schema([field])).field(0).type
        # a struct that is declared to be a logical type shows it by itself
        return declared if pa.types.is_struct(declared) and descriptor_of(field) else stored
    if not isinstance(declared, str):
        raise _refused(declared, column)
    kind = _parsed(declared.strip(), declared, column)
    normalise(pa.schema([pa.field(column, kind)]))  # refuses a vector inside another type
    return kind


def typed_columns(names: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """The Arrow types of SQL names by column.

    >>> typed_columns({"id": "bigint", "fare": "decimal(10, 2)"})
    {'id': DataType(int64), 'fare': Decimal128Type(decimal128(10, 2))}
    """
    return {name: column_type(kind, name) for name, kind in names.items()}


def _parsed(text: str, declared: str, column: str) -> pa.DataType:
    name, _, inner = text.partition("<")
    name = name.strip().lower()
    if inner:
        if not inner.rstrip().endswith(">"):
            raise _refused(declared, column)
        return _nested(name, _parts(inner.rstrip()[:-1]), declared, column)
    if name in _NAMES:
        return _NAMES[name]
    if (vector := parse_vector(name)) is not None:
        return vector
    match = _DECIMAL.fullmatch(name)
    if match is None:
        raise _refused(declared, column)
    precision, scale = int(match[1] or 10), int(match[2] or 0)
    if not 0 < precision <= MAX_PRECISION or scale > precision:
        raise _refused(declared, column)
    return pa.decimal128(precision, scale)


def _nested(name: str, parts: list[str], declared: str, column: str) -> pa.DataType:
    if name == "array" and len(parts) == 1:
        return list_of(_parsed(parts[0], declared, column), nullable=True)
    if name == "map" and len(parts) == 2 and _parsed(parts[0], declared, column) == pa.string():
        return map_of(_parsed(parts[1], declared, column), nullable=True)
    if name != "struct" or not all(":" in part for part in parts):
        raise _refused(declared, column)
    fields = [part.partition(":") for part in parts]
    return pa.struct(
        [pa.field(field_name.strip(" `"), _parsed(kind.strip(), declared, column)) for field_name, _, kind in fields]
    )


def _parts(text: str) -> list[str]:
    """The parts between commas that are not in brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _refused(declared: Any, column: str) -> SchemaConflict:
    return SchemaConflict(
        f"{declared!r} is no type that column {column} could have",
        hint="Types are Arrow types or SQL names: boolean, int, bigint, float, double, decimal(10, 2), string, binary,"
        " date, timestamp, timestamp_ntz, array<...>, map<string, ...>, struct<name: ...>, vector(4),"
        " vector(4, double), blob, variant.",
        context={"column": column, "type": str(declared)},
    )
