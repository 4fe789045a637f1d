"""Names and constants as Spark SQL text that means the same in every session."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakebed.errors import InvalidOption
from lakebed.expressions.base import sql_literal


def quote_name(name: str) -> str:
    """A name in backquotes.

    >>> quote_name("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def spark_literal(value: Any, type_: pa.DataType) -> str:
    """A typed constant as Spark SQL; timestamps carry their zone, so the session's does not matter."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"{value}L" if pa.types.is_int64(type_) and value > -(2**63) else str(value)
        case Decimal():
            return f"CAST('{value:f}' AS DECIMAL({type_.precision}, {type_.scale}))"
        case float():
            return f"CAST('{value!r}' AS {'FLOAT' if pa.types.is_float32(type_) else 'DOUBLE'})"
        case str():
            return sql_literal(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0")
            if value.tzinfo is None:
                return f"TIMESTAMP_NTZ '{text}'"
            offset = value.strftime("%z")
            return f"TIMESTAMP '{text}{offset[:3]}:{offset[3:5]}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:
            raise InvalidOption(f"a constant of type {type_} cannot stand in a filter")
