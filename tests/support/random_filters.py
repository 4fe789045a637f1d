"""Random SQL filters over a table's columns, with constants from near its values."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakebed.filters.text import spark_literal

_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "<=>")


def can_filter(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )


class FilterMaker:
    """Makes filters over columns, from values that they hold."""

    def __init__(self, rows: pa.Table, seed: int) -> None:
        self.random = random.Random(seed)
        self.fields = [f for f in rows.schema if can_filter(f.type)]
        self.values = {f.name: [v for v in rows[f.name].to_pylist() if v is not None] for f in self.fields}

    def filter(self, depth: int = 2) -> str:
        pick = self.random.random()
        if depth and pick < 0.45:
            word = self.random.choice((" AND ", " OR "))
            return "(" + word.join(self.filter(depth - 1) for _ in range(self.random.choice((2, 2, 3)))) + ")"
        if depth and pick < 0.55:
            return f"NOT ({self.filter(depth - 1)})"
        return self.leaf()

    def leaf(self) -> str:
        field = self.random.choice(self.fields)
        name = f"`{field.name}`"
        kinds = ["compare"] * 4 + ["in", "between", "null"]
        if pa.types.is_string(field.type):
            kinds += ["like", "like"]
        if pa.types.is_boolean(field.type):
            kinds = ["compare", "null", "bare"]
        match self.random.choice(kinds):
            case "in":
                some = [self.constant(field) for _ in range(self.random.choice((1, 3, 25)))]
                return f"{name} {self.random.choice(('', 'NOT '))}IN ({', '.join(some)})"
            case "between":
                return f"{name} BETWEEN {self.constant(field)} AND {self.constant(field)}"
            case "null":
                return f"{name} IS {self.random.choice(('', 'NOT '))}NULL"
            case "like":
                text = self.value(field)
                pattern = text[: self.random.randint(0, len(text))] + self.random.choice(("%", "%", "_%", ""))
                return f"{name} {self.random.choice(('', 'NOT '))}LIKE {quoted(pattern)}"
            case "bare":
                return name
            case _:
                return f"{name} {self.random.choice(_COMPARISONS)} {self.constant(field)}"

    def value(self, field: pa.Field) -> Any:
        known = self.values[field.name]
        value = self.random.choice(known) if known else _ANY[_kind(field.type)]
        return self._near(value) if self.random.random() < 0.5 else value

    def constant(self, field: pa.Field) -> str:
        value, kind = self.value(field), field.type
        if pa.types.is_floating(kind):
            return f"CAST('{value!r}' AS DOUBLE)" if value == value else "CAST('NaN' AS DOUBLE)"
        if pa.types.is_timestamp(kind):
            text = value.replace(tzinfo=None).isoformat(" ")
            return f"CAST('{text}' AS TIMESTAMP_NTZ)" if kind.tz is None else f"CAST('{text}Z' AS TIMESTAMP)"
        if pa.types.is_integer(kind):
            return str(value)
        return spark_literal(value, kind)

    def _near(self, value: Any) -> Any:
        step = self.random.choice((-1, 1)) * self.random.choice((1, 1, 3, 100))
        match value:
            case bool():
                return not value
            case int():
                return max(min(value + step, 2**31 - 1), -(2**31)) if abs(value) < 2**31 else value
            case float():
                return self.random.choice((value + step, -value, float("nan"), 0.0, -0.0))
            case Decimal():
                return value + step * Decimal(1).scaleb(int(value.as_tuple().exponent)) if abs(value) < 100 else value
            case datetime():
                return value + timedelta(seconds=step)
            case date():
                return value + timedelta(days=step)
            case _:
                return self.random.choice((value + "a", value[:-1], value[:1] + "zz", ""))


def _kind(kind: pa.DataType) -> str:
    return str(kind).partition("[")[0].partition("(")[0]


_ANY: dict[str, Any] = {
    "int32": 5,
    "int64": 5,
    "float": 0.5,
    "double": 0.5,
    "string": "x",
    "bool": True,
    "date32": date(2024, 1, 1),
    "timestamp": datetime(2024, 1, 1),
    "decimal128": Decimal("1.5"),
}


def quoted(text: str) -> str:
    """A string literal of SQL as a user writes it, with escapes for quotes, backslashes and control characters."""
    escaped = "".join(c if c not in "\\'" and c.isprintable() else f"\\U{ord(c):08X}" for c in text)
    return f"'{escaped}'"
