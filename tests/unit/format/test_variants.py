"""Shredded variants: what DuckDB writes in parts is put together as DuckDB itself does it, for any mix of values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import variant
from lakebed.format.variants import joined_parts
from lakebed.schema.logical_types import is_shredded, unshredded_type
from support.variant_tables import documents, shredded_file, shredded_table

NAMES = ["a", "b", "c", "d", "o'q", 'x"y']
SHREDDINGS = [
    "STRUCT(a INTEGER, b VARCHAR, c INTEGER[])",
    "STRUCT(a STRUCT(b INTEGER, c VARCHAR), d STRUCT(a INTEGER)[])",
    "INTEGER",
    "VARCHAR[]",
]


@pytest.mark.parametrize("shredding", SHREDDINGS)
def test_shredded_columns_have_the_values_that_went_in(shredding: str, tmp_path: Path) -> None:
    rows = documents(len(shredding))
    column = shredded_file(tmp_path / "v.parquet", rows, shredding)
    assert is_shredded(column.type)
    assert unshredded_type(column.type) == variant.TYPE
    assert [
        json.loads(t) if t else None for t in variant.to_json(joined_parts(column.combine_chunks())).to_pylist()
    ] == rows


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_with_a_shredded_base_file_is_read_filtered_and_written(kind: Any, tmp_path: Path) -> None:
    rows = [{"a": n, "b": f"t{n}", "rest": [n]} if n % 3 else {"a": "text"} for n in range(50)]
    table = shredded_table(tmp_path, rows, kind)
    assert values(table) == dict(enumerate(rows))
    found = table.scan(["id"], where="try_variant_get(v, '$.a', 'int') >= 47").to_arrow()["id"].to_pylist()
    assert sorted(found) == [47, 49]
    assert variant.decode(table.get([1, 3])["v"]) == [rows[1], rows[3]]
    table.upsert(pa.table({"id": [1], "v": variant.encode([{"a": -1}]), "note": ["n"]}))
    rows[1] = {"a": -1}
    assert values(table) == dict(enumerate(rows))


def values(table: lakebed.Table) -> dict[int, Any]:
    rows = table.scan().to_arrow()
    return dict(zip(rows["id"].to_pylist(), variant.decode(rows["v"]), strict=True))
