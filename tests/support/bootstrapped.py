"""Parquet folders to make bootstrapped tables of, and what such tables hold."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed

COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("rider", pa.string()),
        ("fare", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("born", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("spot", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("ts", pa.int64()),
    ]
)


def rows_of(numbers: Sequence[int], day: str | None = None, later: int = 0) -> pa.Table:
    """A row for each number, with the key `k001` for 1; `later` is added to its ordering value and its fare."""
    columns: dict[str, list[Any]] = {
        "id": [f"k{n:03d}" for n in numbers],
        "rider": [None if n % 7 == 0 else f"rider-{n % 5}é" for n in numbers],
        "fare": [n * 1.5 + later for n in numbers],
        "price": [Decimal(f"{n}.25") for n in numbers],
        "at": [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in numbers],
        "born": [date(1990, 1, 1) + timedelta(days=n) for n in numbers],
        "tags": [[f"t{n}", f"u{n % 3}"] for n in numbers],
        "spot": [{"x": n, "y": f"y{n}"} for n in numbers],
        "ts": [1000 + n + later for n in numbers],
    }
    table = pa.table(columns, COLUMNS)
    return table if day is None else table.append_column("day", pa.array([day] * len(table), pa.string()))


def hive_folder(folder: Path, days: Sequence[str] = ("a", "b", "c d")) -> Path:
    """Two files of ten rows a day, three row groups each, in folders `day=...`, whose column no file has."""
    first = 0
    for day in days:
        for name in ("part-0.parquet", "part-1.parquet"):
            path = folder / f"day={day}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows_of(range(first, first + 10)), path, row_group_size=4)
            first += 10
    return folder


def flat_folder(folder: Path) -> Path:
    """Three files of ten rows in one folder."""
    folder.mkdir(parents=True)
    for number in range(3):
        rows = rows_of(range(number * 10, number * 10 + 10), "x")
        pq.write_table(rows, folder / f"part-{number}.parquet", row_group_size=4)
    return folder


def rows_by_key(table: lakebed.Table) -> dict[str, dict[str, Any]]:
    """The table's rows by their `id`, each of which is there once."""
    rows = table.scan().to_arrow().to_pylist()
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def digests(folder: Path) -> dict[str, str]:
    """A digest of each file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
