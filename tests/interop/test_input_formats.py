"""Hive's, Presto's and Athena's input formats read lakebed's tables of each version, by releases that know it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakebed
from conftest import unavailable
from lakebed.table import Table
from oracle.environment import Unavailable
from oracle.input_formats import Read, rows_by_input_formats

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("n", pa.int64()),
        ("share", pa.float64()),
        ("ok", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("ts", pa.int64()),
        ("city", pa.string()),
    ]
)
TYPES = ["int", "string", "bigint", "double", "boolean", "decimal(10,2)", "bigint", "string"]
CITIES = ("oslo", "são paulo", "rome")
RELEASES = {9: ("1.2.0",), 8: ("1.2.0", "1.0.2"), 6: ("0.15.0",)}


def row(number: int, ts: int = 1, change: int = 0) -> dict[str, Any]:
    return {
        "id": number,
        "name": None if number == 7 else f"n{number}-{change} ü",
        "n": number * 10**12 + change,
        "share": number / 4,
        "ok": None if number == 8 else number % 2 == 0,
        "price": Decimal(number * 100 + 21 + change).scaleb(-2),  # Hive leaves out zeros at the end
        "ts": ts,
        "city": CITIES[number % 3],
    }


def rows(*found: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(found), schema=SCHEMA)


def written(
    folder: Path, version: int, kind: Literal["cow", "mor"], partition_by: str | None, **settings: Any
) -> Table:
    """A table of three commits: rows, then updates (one of them late) with a new row, then deletes."""
    name = f"v{version}-{kind}-{partition_by or 'flat'}"
    table = lakebed.create(
        str(folder / name), SCHEMA, key="id", ordering="ts", type=kind, index="bucket", buckets=2,
        partition_by=partition_by, table_version=version, **settings,
    )  # fmt: skip
    table.upsert(rows(*(row(number) for number in range(1, 13))))
    table.upsert(rows(row(2, 2, 5), row(3, 0, 6), row(20, 2)))
    table.delete([4])
    return table


def as_texts(found: pa.Table) -> list[list[str]]:
    """Rows as the input formats print them."""

    def text(value: Any) -> str:
        return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    return sorted([text(line[name]) for name in SCHEMA.names] for line in found.to_pylist())


@pytest.mark.parametrize("release", ["1.2.0", "1.0.2", "0.15.0"])
def test_input_formats_read_the_rows_of_the_table_with_and_without_log_files(release: str, tmp_path: Path):
    reads: list[Read] = []
    expected: list[tuple[str, list[list[str]]]] = []
    for version in (version for version, releases in RELEASES.items() if release in releases):
        for kind in ("cow", "mor"):
            for partition_by in (None, "city"):
                table = written(tmp_path, version, kind, partition_by)
                folders = [f"{table.uri}/{path}" for path in table.partitions] if partition_by else [table.uri]
                snapshot = as_texts(table.scan().to_arrow())
                base_files = as_texts(table.scan(query="read_optimized").to_arrow())
                assert len(snapshot) == 12
                assert (snapshot == base_files) is (kind == "cow")
                for realtime in (True, False) if kind == "mor" else (False,):
                    reads.append(Read(realtime, SCHEMA.names, TYPES, folders))
                    name = f"{Path(table.uri).name}, {'with' if realtime else 'without'} log files"
                    expected.append((name, snapshot if realtime else base_files))
    try:
        answers = rows_by_input_formats(release, reads)
    except Unavailable as reason:
        unavailable(str(reason))
    assert len(answers) == len(expected)
    for found, (name, wanted) in zip(answers, expected, strict=True):
        assert sorted(found) == wanted, name
