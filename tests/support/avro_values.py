"""Rows of every Avro type by chance, and fastavro's bytes for them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from lakebed.schema.avro import avro_to_arrow

_avro: Any = fastavro
NULL = "null"


def record(*fields: tuple[str, Any]) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": listed})


def by_fastavro(rows: list[dict[str, Any]], schema: str) -> bytes:
    parsed = _avro.parse_schema(json.loads(schema))
    out = b""
    for row in rows:
        one = io.BytesIO()
        _avro.schemaless_writer(one, parsed, row)
        out += len(one.getvalue()).to_bytes(4, "big") + one.getvalue()
    return out


def fixed_decimal(precision: int, scale: int, size: int) -> dict[str, Any]:
    return {
        "type": "fixed", "name": f"f{precision}", "size": size,
        "logicalType": "decimal", "precision": precision, "scale": scale,
    }  # fmt: skip


POINT = {
    "type": "record",
    "name": "point",
    "fields": [{"name": "x", "type": [NULL, "int"]}, {"name": "y", "type": "double"}],
}
CHANCE = random.Random(7)


def text() -> str:
    return "".join(CHANCE.choice("aé日😀z") for _ in range(CHANCE.choice([0, 1, 3, 90])))


def whole(bits: int) -> int:
    return CHANCE.choice([0, -1, 1, 63, 64, -64, -65, CHANCE.randrange(-(1 << bits - 1), 1 << bits - 1)])


def some(make: Callable[[], Any]) -> list[Any]:
    return [make() for _ in range(CHANCE.randrange(4))]


MAKERS: dict[str, tuple[Any, Any]] = {
    "boolean": ("boolean", lambda: CHANCE.random() < 0.5),
    "int": ("int", lambda: whole(32)),
    "long": ("long", lambda: whole(64)),
    "float": ("float", lambda: float(np.float32(CHANCE.uniform(-9, 9)))),
    "double": ("double", lambda: CHANCE.uniform(-1e300, 1e300)),
    "string": ("string", text),
    "bytes": ("bytes", lambda: CHANCE.randbytes(CHANCE.choice([0, 1, 200]))),
    "date": ({"type": "int", "logicalType": "date"}, lambda: date(1600, 1, 1) + timedelta(CHANCE.randrange(300_000))),
    "moment": (
        {"type": "long", "logicalType": "timestamp-micros"},
        lambda: datetime(1900, 1, 1, tzinfo=UTC) + timedelta(microseconds=CHANCE.randrange(1 << 52)),
    ),
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        lambda: datetime(1900, 1, 1, tzinfo=UTC) + timedelta(milliseconds=CHANCE.randrange(1 << 42)),
    ),
    "time": ({"type": "long", "logicalType": "time-micros"}, lambda: time(CHANCE.randrange(24), 5, 6, 7)),
    "fixed": ({"type": "fixed", "name": "four", "size": 4}, lambda: CHANCE.randbytes(4)),
    "price": (fixed_decimal(10, 2, 5), lambda: Decimal(CHANCE.randrange(-(10**10) + 1, 10**10)).scaleb(-2)),
    "wide": (fixed_decimal(38, 3, 17), lambda: Decimal(CHANCE.randrange(-(10**37), 10**37)).scaleb(-3)),
    "sum": (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
        lambda: Decimal(CHANCE.randrange(-(10**20) + 1, 10**20)).scaleb(-4),
    ),
    "word": ({"type": "enum", "name": "word", "symbols": ["A", "B", "C"]}, lambda: CHANCE.choice("ABC")),
    "list": ({"type": "array", "items": [NULL, "long"]}, lambda: some(lambda: CHANCE.choice([None, whole(64)]))),
    "lists": (
        {"type": "array", "items": {"type": "array", "items": "string"}},
        lambda: some(lambda: some(text)),
    ),
    "map": (
        {"type": "map", "values": [NULL, "double"]},
        lambda: {f"{i}{text()}": CHANCE.choice([None, 2.5]) for i in range(CHANCE.randrange(4))},
    ),
    "point": (POINT, lambda: {"x": CHANCE.choice([None, whole(32)]), "y": 1.5}),
    "points": (
        {"type": "array", "items": [NULL, {**POINT, "name": "p2"}]},
        lambda: [CHANCE.choice([None, {"x": 1, "y": 0.5}]) for _ in range(CHANCE.randrange(4))],
    ),
}  # fmt: skip


def batch_of(rows: list[dict[str, Any]], schema: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, avro_to_arrow(schema))


ORDERS = ("plain", "null first", "null last")


def column(name: str, order: str, count: int) -> tuple[str, list[dict[str, Any]]]:
    """A schema with a column of this maker between two others, and rows; every third value null where it may be."""
    kind, make = MAKERS[name]
    nullable = {"plain": kind, "null first": [NULL, kind], "null last": [kind, NULL]}[order]
    schema = record(("before", "int"), ("v", nullable), ("after", [NULL, "string"]))
    rows = [{"before": i, "v": make(), "after": "x"} for i in range(count)]
    if order != "plain":
        for row in rows[::3]:
            row["v"] = None
    return schema, rows
