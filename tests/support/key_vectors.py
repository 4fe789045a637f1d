"""What the key vectors are made of: typed columns as JSON, and back as Arrow."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(20,7)": pa.decimal128(20, 7),
    "decimal(38,18)": pa.decimal128(38, 18),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "struct": pa.struct([("b", pa.string()), ("Cd", pa.int32())]),
}


def column(kind: str, values: list[Any]) -> pa.Array:
    """An Arrow array of JSON values: times as epoch micros or days, decimals as text, binary as hex, NaN and infinity
    as text.
    """
    target = TYPES[kind]
    if kind.startswith("decimal"):
        return pa.array([None if v is None else Decimal(v) for v in values], target)
    if kind == "binary":
        return pa.array([None if v is None else bytes.fromhex(v) for v in values], target)
    if kind in ("float", "double"):
        return pa.array([None if v is None else float(v) for v in values], target)
    if kind.startswith("timestamp"):
        return pa.array(values, pa.int64()).cast(target)
    if kind == "date":
        return pa.array(values, pa.int32()).cast(target)
    return pa.array(values, target)


def rows_of(columns: dict[str, list[Any]]) -> pa.Table:
    """The table of a case; `columns` maps a name to [type, values]."""
    return pa.table({name: column(kind, values) for name, (kind, values) in columns.items()})
