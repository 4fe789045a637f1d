"""Spark reads lakebed's base files, and its SQL form of the schema conversions gives what the Arrow kernels give."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.format.base_file import read_footer
from lakebed.format.parquet_writer import BaseFileWriter
from lakebed.schema.arrow import list_of, map_of
from lakebed.schema.evolution import project, spark_projection
from lakebed.schema.spark import arrow_to_spark_ddl, spark_json_to_arrow
from lakebed.storage import open_storage

UTC = datetime.UTC
OLD = pa.schema(
    [
        pa.field("id", pa.string(), False),
        pa.field("i", pa.int32()),
        pa.field("i2", pa.int32()),
        pa.field("l", pa.int64()),
        pa.field("l_ntz", pa.int64()),
        pa.field("f", pa.float32()),
        pa.field("f_text", pa.float32()),
        pa.field("d", pa.float64()),
        pa.field("dec", pa.decimal128(9, 8)),
        pa.field("dec2", pa.decimal128(5, 2)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("ntz", pa.timestamp("us")),
        pa.field("bin", pa.binary()),
        pa.field("Größe", pa.string()),
        pa.field(
            "st", pa.struct([pa.field("a", pa.int32()), pa.field("it's", list_of(pa.float32())), ("gone", pa.int32())])
        ),
        pa.field("m", map_of(pa.struct([("x", pa.float32())]))),
        pa.field("same", pa.struct([("z", list_of(pa.int32()))])),
    ]
)
NEW = pa.schema(
    [
        pa.field("id", pa.string(), False),
        pa.field("i", pa.int64()),
        pa.field("i2", pa.string()),
        pa.field("l", pa.timestamp("us", "UTC")),
        pa.field("l_ntz", pa.timestamp("us")),
        pa.field("f", pa.float64()),
        pa.field("f_text", pa.string()),
        pa.field("d", pa.string()),
        pa.field("dec", pa.string()),
        pa.field("dec2", pa.decimal128(12, 4)),
        pa.field("day", pa.string()),
        pa.field("at", pa.timestamp("ms", "UTC")),
        pa.field("ntz", pa.timestamp("ms")),
        pa.field("bin", pa.string()),
        pa.field("Größe", pa.binary()),
        pa.field("st", pa.struct([("new", pa.date32()), ("it's", list_of(pa.float64())), ("a", pa.string())])),
        pa.field("m", map_of(pa.struct([("x", pa.float64())]))),
        pa.field("same", pa.struct([("z", list_of(pa.int32()))])),
        pa.field("added", map_of(pa.int32())),
    ]
)


def moment(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=UTC)


ROWS: list[dict[str, Any]] = [
    {
        "id": "a",
        "i": 7,
        "i2": -7,
        "l": 1706933106123456,
        "l_ntz": -1,
        "f": 1.1,
        "f_text": 1e10,
        "d": 123456789.125,
        "dec": Decimal("0.00000012"),
        "dec2": Decimal("-1.50"),
        "day": datetime.date(1582, 1, 1),
        "at": moment(1969, 12, 31, 23, 59, 59, 999999),
        "ntz": datetime.datetime(2024, 3, 31, 2, 30, 0, 123456),
        "bin": "é".encode(),
        "Größe": "ü",
        "st": {"a": 1, "it's": [1.1, None], "gone": 3},
        "m": [("k", {"x": 2.2}), ("l", None)],
        "same": {"z": [1]},
    },
    {
        "id": "b",
        "i": 2**31 - 1,
        "i2": 0,
        "l": -62135596800000000,
        "l_ntz": 1711852200123456,
        "f": float("inf"),
        "f_text": -0.0,
        "d": 1e-5,
        "dec": Decimal("-9.00000000"),
        "dec2": Decimal("999.99"),
        "day": datetime.date(2024, 2, 29),
        "at": moment(2024, 2, 29, 12, 0, 0, 1),
        "ntz": datetime.datetime(1, 1, 1, 0, 0, 0, 999999),
        "bin": b"",
        "Größe": "",
        "st": {"a": None, "it's": [], "gone": None},
        "m": [],
        "same": None,
    },
    {"id": "c"} | {f.name: None for f in OLD if f.name != "id"},
]


def base_file(folder: Path, data: pa.Table) -> str:
    storage = open_storage(str(folder))
    writer = BaseFileWriter(storage.create("f.parquet"), data.schema)
    writer.write(data)
    writer.close({})
    return str(folder / "f.parquet")


def comparable(value: Any) -> Any:
    """Rows as plain values: maps as lists of pairs, rows as dicts."""
    if hasattr(value, "asDict"):
        return {k: comparable(v) for k, v in value.asDict().items()}
    if isinstance(value, dict):
        return {k: comparable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [comparable(v) for v in value]
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("zone", ["UTC", "America/Sao_Paulo"])
def test_old_files_read_by_spark_as_by_arrow(spark: Any, tmp_path: Path, ansi: str, zone: str):
    data = pa.Table.from_pylist(ROWS, OLD)
    path = base_file(tmp_path, data)
    before = {key: spark.conf.get(key) for key in ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")}
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.read.schema(arrow_to_spark_ddl(OLD)).parquet(path).selectExpr(*spark_projection(OLD, NEW))
        got = spark_json_to_arrow(frame.schema.json())
        found = pa.Table.from_batches(frame.toArrow().combine_chunks().to_batches())
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)
    expected = project(data.to_batches()[0], NEW)
    assert [(f.name, str(f.type).replace(" not null", "").replace("[ms", "[us")) for f in got] == [
        (f.name, str(f.type).replace(" not null", "").replace("[ms", "[us")) for f in NEW
    ]
    rows = sorted(found.cast(pa.schema([pa.field(f.name, f.type) for f in NEW])).to_pylist(), key=lambda r: r["id"])
    for row, want in zip(rows, expected.to_pylist(), strict=True):
        assert comparable(row) == comparable(want)


def test_spark_reads_every_encoding_with_its_vectorised_reader(spark: Any, tmp_path: Path):
    rng = np.random.default_rng(0)
    rows = 20_000
    data = pa.table(
        {
            "key": pa.array([rng.bytes(16).hex() for _ in range(rows)]),
            "maybe": pa.array([None if i % 7 == 0 else f"w{i % 5}" for i in range(rows)]),
            "n": pa.array(rng.integers(0, 2**62, rows)),
            "dec": pa.array([Decimal(i) / 100 for i in range(rows)], pa.decimal128(12, 2)),
            "at": pa.array(rng.integers(-(10**15), 10**15, rows)).cast(pa.timestamp("us", "UTC")),
        }
    )
    path = base_file(tmp_path, data)
    footer = read_footer(open_storage(str(tmp_path)), "f.parquet")
    assert "DELTA_LENGTH_BYTE_ARRAY" in footer.metadata.row_group(0).column(0).encodings
    frame = spark.read.parquet(path)
    assert "Batched: true" in explained(frame)
    assert frame.toArrow().select(data.column_names).cast(data.schema).sort_by("key").equals(data.sort_by("key"))


def explained(frame: Any) -> str:
    mode = frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    return frame._jdf.queryExecution().explainString(mode)
