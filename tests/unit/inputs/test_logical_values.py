"""Vectors and documents in JSON files and in rows of Python, for tables that have such columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import variant
from lakebed.errors import InvalidOption, InvalidRecord

DOCUMENTS: list[Any] = [{"b": 1, "a": [1.5, None]}, [1, "x"], "text", 2.5, True, None, {"metadata": "m", "other": 1}]
SCHEMA = pa.schema([("id", pa.int64()), ("emb", lakebed.vector(2)), ("facts", variant.TYPE)])


def rows() -> list[dict[str, Any]]:
    return [{"id": n, "emb": [n, 0.5], "facts": document} for n, document in enumerate(DOCUMENTS)]


def stored(table: lakebed.Table) -> list[dict[str, Any]]:
    found = table.scan().to_arrow().sort_by("id")
    documents = variant.decode(found["facts"])
    return [{**row, "facts": fact} for row, fact in zip(found.to_pylist(), documents, strict=True)]


@pytest.mark.parametrize("form", ["lines", "array", "rows", "columns"])
def test_lists_are_vectors_and_values_of_any_kind_are_documents(form: str, tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", type="mor")
    data: Any = rows()
    if form == "columns":
        data = {name: [row[name] for row in data] for name in SCHEMA.names}
    elif form != "rows":
        path = tmp_path / "rows.json"
        path.write_text("\n".join(map(json.dumps, data)) if form == "lines" else json.dumps(data))
        data = str(path)
    table.upsert(data)
    assert stored(table) == rows()
    table.upsert(table.get([1, 2]).to_pylist())  # as they come out
    assert stored(table) == rows()


def test_a_value_that_does_not_fit_is_refused_by_its_column(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id")
    path = tmp_path / "rows.json"
    for emb, problem in (([1], "expected 2 elements, got 1"), (["x", 1], "column emb"), (5, "column emb")):
        path.write_text(json.dumps({"id": 1, "emb": emb, "facts": None}))
        with pytest.raises(InvalidRecord, match=problem):
            table.upsert(str(path))
    with pytest.raises((InvalidRecord, InvalidOption), match="position 0 is no variant"):
        table.upsert([{"id": 1, "emb": [1, 2], "facts": object()}])
    assert table.count() == 0
