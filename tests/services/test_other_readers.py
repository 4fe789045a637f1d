"""DuckDB, Daft, DataFusion, polars, hudi-rs and ClickHouse read tables of lakebed and their published lists."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakebed
from conftest import unavailable
from lakebed.table import Table

from .readers import rows_by_readers
from .s3_server import S3
from .service import ServiceError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("day", pa.date32()),
        ("n", pa.int32()),
        ("amount", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("score", pa.float64()),
        ("ok", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("attrs", pa.map_(pa.string(), pa.int64())),
        ("pos", pa.struct([("x", pa.float64()), ("y", pa.string())])),
        ("raw", pa.binary()),
        ("ts", pa.int64()),
    ]
)
CITIES = ("oslo", "são paulo", "new york")
LISTS = ("delta", "iceberg")


def row(number: int, ts: int = 1, change: int = 0) -> dict[str, Any]:
    return {
        "id": number,
        "city": CITIES[number % 3],
        "day": dt.date(2024, 1, 1 + number % 28),
        "n": None if number % 7 == 0 else number * 10 + change,
        "amount": Decimal(number * 100 + 21 + change).scaleb(-2),
        "at": dt.datetime(2024, 1, 1, 0, 0, number, 5_000, dt.UTC),
        "score": number / 4,
        "ok": number % 2 == 0,
        "tags": ["a", f"t{number}"] if number % 5 else [],
        "attrs": {"k": number},
        "pos": {"x": number / 2, "y": f"y{change}"},
        "raw": bytes([number]),
        "ts": ts,
    }


def written(uri: str, version: int, kind: Literal["cow", "mor"], options: dict[str, str] | None = None) -> Table:
    """A table of three commits, with its lists: rows, then updates (one of them late) and a new row, then a delete."""
    table = lakebed.create(
        uri, SCHEMA, key="id", ordering="ts", type=kind, index="bucket", buckets=2, partition_by="city",
        table_version=version, storage_options=options,
    )  # fmt: skip
    table.upsert(pa.Table.from_pylist([row(number) for number in range(1, 31)], schema=SCHEMA))
    table.upsert(pa.Table.from_pylist([row(2, 2, 5), row(3, 0, 6), row(40, 2)], schema=SCHEMA))
    table.delete([4])
    for form in LISTS:
        table.catalogs.publish(form)
    return table


def plain(found: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    """Rows by their keys, with what readers show differently made alike: times without a zone are UTC's, maps are
    lists of entries or dicts, bytes are texts."""

    def value(name: str, cell: Any) -> Any:
        if isinstance(cell, dt.datetime):
            return cell.replace(tzinfo=dt.UTC) if cell.tzinfo is None else cell.astimezone(dt.UTC)
        if name == "attrs":
            return (
                {entry["key"]: entry["value"] for entry in cell} if cell and isinstance(cell[0], dict) else dict(cell)
            )
        if name == "ok":
            return bool(cell)
        return cell.encode("latin-1") if name == "raw" and isinstance(cell, str) else cell

    rows = [{name: value(name, line[name]) for name in names} for line in found.to_pylist()]
    return sorted(rows, key=lambda line: line["id"])


def assert_reads(reads: list[tuple[str, Table, str]], folder: Path, s3: dict[str, str] | None = None) -> None:
    """Each reader, table and query of lakebed (`snapshot`, `read_optimized`) whose rows the reader shows."""
    try:
        found = rows_by_readers([(reader, table.uri) for reader, table, _ in reads], folder, s3)
    except ServiceError as reason:
        unavailable(str(reason))
    for (reader, table, query), rows in zip(reads, found, strict=True):
        shown = table.scan(query="snapshot" if query == "snapshot" else "read_optimized").to_arrow()
        expected = plain(shown, shown.schema.names)
        assert len(expected) >= 30
        assert plain(rows, shown.schema.names) == expected, f"{reader} of {table.uri}"


def test_python_engines_read_tables_and_published_lists(tmp_path: Path):
    reads: list[tuple[str, Table, str]] = []
    for version in (9, 8, 6):
        for kind in ("cow", "mor"):
            table = written(str(tmp_path / f"v{version}_{kind}"), version, kind)
            reads.append(("hudi-rs", table, "snapshot"))
            for engine in ("daft", "duckdb", "polars"):
                # Daft 0.7 reads no Iceberg list that leaves out a file's first columns, here Hudi's meta columns
                forms = LISTS[:1] if engine == "daft" else LISTS
                reads += [(f"{engine} {form}", table, "read_optimized") for form in forms]
            if kind == "mor":  # of copy-on-write tables it encodes the spaces of paths twice
                reads.append(("datafusion hudi", table, "snapshot"))
    (tmp_path / "rows").mkdir()
    assert_reads(reads, tmp_path / "rows")


def test_lists_of_tables_with_new_and_dropped_columns_are_read(tmp_path: Path):
    table = written(str(tmp_path / "table"), 9, "cow")
    wider = SCHEMA.append(pa.field("new", pa.string()))
    rows = [row(5, 3, 7) | {"new": "a"}, row(41, 1) | {"new": "b"}]
    table.upsert(pa.Table.from_pylist(rows, schema=wider))
    table.catalogs.publish("iceberg")
    table.columns.drop("n")
    table.delete([6])
    table.catalogs.publish("iceberg")
    names = table.schema.names
    assert "new" in names
    assert "n" not in names
    (tmp_path / "rows").mkdir()
    reads = [(f"{engine} iceberg", table, "snapshot") for engine in ("duckdb", "polars", "chdb local")]
    assert_reads(reads, tmp_path / "rows")


def test_engines_show_the_rows_of_log_files_in_fresh_lists(tmp_path: Path):
    reads: list[tuple[str, Table, str]] = []
    for masks in ("positions", "vectors"):
        for partition in ("city", None):
            table = lakebed.create(
                str(tmp_path / f"{masks}_{partition}"), SCHEMA, key="id", ordering="ts", type="mor",
                index="bucket", buckets=2, partition_by=partition, properties={"lakebed.publish.masks": masks},
            )  # fmt: skip
            table.upsert(pa.Table.from_pylist([row(number) for number in range(1, 41)], schema=SCHEMA))
            for changed in ([row(2, 2, 5), row(3, 0, 6), row(50, 2)], [row(2, 3, 8), row(9, 2, 4)]):
                table.upsert(pa.Table.from_pylist(changed, schema=SCHEMA))
                table.delete([changed[-1]["id"] - 5])
                table.catalogs.publish("iceberg", fresh=True)
            # ClickHouse 26.9 refuses vectors
            engines = ("duckdb", "polars", *(["chdb local"] if masks == "positions" else []))
            reads += [(f"{engine} iceberg", table, "snapshot") for engine in engines]
            if partition is None:  # polars finds no mask of a path that URLs escape
                table.catalogs.publish("delta", fresh=True)
                reads += [(f"{engine} delta", table, "snapshot") for engine in ("duckdb", "polars")]
    (tmp_path / "rows").mkdir()
    assert_reads(reads, tmp_path / "rows")


def test_daft_reads_a_copy_on_write_table_of_version_6(tmp_path: Path):
    table = written(str(tmp_path / "table"), 6, "cow")
    (tmp_path / "rows").mkdir()
    assert_reads([("daft hudi", table, "snapshot")], tmp_path / "rows")


@pytest.fixture(scope="module")
def s3() -> Any:
    try:
        server = S3().start()
    except ServiceError as error:
        unavailable(str(error))
    yield server.info
    server.stop()


@pytest.mark.rest
def test_clickhouse_reads_tables_and_published_lists_on_s3(s3: dict[str, Any], tmp_path: Path):
    reads: list[tuple[str, Table, str]] = []
    for version in (9, 6):
        for kind in ("cow", "mor"):
            table = written(f"s3://lake/v{version}_{kind}", version, kind, s3["options"])
            reads += [(f"chdb {form}", table, "read_optimized") for form in ("hudi", *LISTS)]
    assert_reads(reads, tmp_path, {name: s3[name] for name in ("endpoint", "access_key", "secret_key")})
