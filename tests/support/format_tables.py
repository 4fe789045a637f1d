"""Tables with ORC and Lance base files: those that real Hudi wrote (`tests/golden/formats`), and small ones."""

from __future__ import annotations

import itertools
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "formats"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("emb", lakebed.vector(4)),
        ("name", pa.string()),
        ("n", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("a", pa.int32())])),
        ("ts", pa.int64()),
        ("part", pa.string()),
    ]
)
_numbers = itertools.count()


def unpacked(name: str, parent: Path) -> str:
    """A table of real Hudi in a folder of its own below `parent`."""
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(parent / name)
    return str(parent / name)


def expected(name: str) -> pa.Table:
    """The rows that real Hudi read, ordered by key."""
    return pq.read_table(FOLDER / f"{name}.expected.parquet")


def lance_rows(numbers: range, ts: int = 1, **values: Any) -> list[dict[str, Any]]:
    """Rows of `SCHEMA`; each tenth has nothing but its key, ordering value and partition."""
    empty = dict.fromkeys(SCHEMA.names)
    full = {
        "tags": ["a", None],
        "inner": {"a": None},
    }
    return [
        {
            **empty,
            **(full | {"emb": [n, 1, 2, 3], "name": f"n{n}", "n": n} if n % 10 else {}),
            "id": f"k{n:03d}",
            "ts": ts,
            "part": f"p{n % 2}",
            **values,
        }
        for n in numbers
    ]


def lance_table(kind: str = "cow", uri: str = "", **given: Any) -> lakebed.Table:
    """An empty table with Lance base files, in memory unless `uri` says where."""
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "partition_by": "part", "type": kind, **given}
    return lakebed.create(uri or f"memory://formats/{next(_numbers)}", SCHEMA, base_format="lance", **words)


def by_key(table: lakebed.Table) -> dict[str, dict[str, Any]]:
    """The rows of a table by their keys."""
    return {row["id"]: row for row in table.scan().to_arrow().to_pylist()}


def in_file(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows as a Lance file gives them back, by their keys: a struct that is null has become one of nulls."""
    return {row["id"]: {**row, "inner": row["inner"] or {"a": None}} for row in rows}
