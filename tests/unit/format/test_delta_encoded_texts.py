"""Texts in encodings that Arrow does not read as dictionaries: tables with such files are read and written on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.format import parquet_writer
from lakebed.format.base_file import read_base_file
from lakebed.format.parquet_encodings import Encodings
from lakebed.handles import file_writer, stored_rows
from lakebed.storage import open_storage
from lakebed.table import Table

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
ENCODINGS = ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")


def rows(*numbers: int, n: int = 0) -> pa.Table:
    return pa.Table.from_pylist([{"id": f"key-{i}", "city": "oslo", "n": n or i} for i in numbers], SCHEMA)


@pytest.fixture(params=ENCODINGS)
def encoding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Until it is undone all texts are written as another writer may have them, in row groups of three rows."""
    with monkeypatch.context() as patched:

        def choose(table: pa.Table, _known: Any = None, **_: Any) -> Encodings:
            texts = [f.name for f in table.schema if pa.types.is_string(f.type) or pa.types.is_dictionary(f.type)]
            return Encodings((), dict.fromkeys(texts, request.param))

        patched.setattr(parquet_writer, "choose_encodings", choose)
        patched.setattr(file_writer, "ROW_GROUP_ROWS", 3)
        yield patched


def table_of(folder: Path, encoding: pytest.MonkeyPatch, **words: Any) -> Table:
    table = lakebed.create(str(folder / "t"), SCHEMA, key="id", partition_by="city", **words)
    table.insert(rows(*range(6)))
    encoding.undo()
    return lakebed.open(table.uri)


@pytest.mark.parametrize("index", ["simple", "bloom", "global_simple", "bucket"])
@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_such_files_are_upserted_and_deleted_from(
    tmp_path: Path, encoding: pytest.MonkeyPatch, index: str, type_: str
) -> None:
    words = {"buckets": 1} if index == "bucket" else {}
    table = table_of(tmp_path, encoding, index=index, type=type_, **words)
    table.upsert(rows(1, 9, n=77))
    table.delete(["key-2"])
    found = lakebed.open(table.uri).scan().to_arrow().sort_by("id").to_pylist()
    assert [(r["id"], r["n"]) for r in found] == [
        ("key-0", 0),
        ("key-1", 77),
        *[(f"key-{i}", i) for i in (3, 4, 5)],
        ("key-9", 77),
    ]


def test_row_groups_of_such_files_are_copied(
    tmp_path: Path, encoding: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_rows, "_WORTH_COPYING", 1)
    table = table_of(tmp_path, encoding, index="simple")
    table.upsert(rows(1, n=77))
    found = lakebed.open(table.uri).scan(meta=True).to_arrow().sort_by("id")
    assert found["n"].to_pylist() == [0, 77, 2, 3, 4, 5]
    assert found["_hoodie_record_key"].to_pylist() == found["id"].to_pylist()


@pytest.mark.parametrize("other", [*ENCODINGS, "PLAIN"])
def test_texts_asked_for_as_dictionaries_come_as_such(tmp_path: Path, other: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(
        rows(1, 2, 3, 4),
        path,
        use_dictionary=False,
        column_encoding={"id": other, "city": "PLAIN", "n": "PLAIN"},
        row_group_size=2,
    )
    batches = list(read_base_file(open_storage(str(tmp_path)), "a.parquet", dictionary=["id", "city"]))
    assert {str(b.schema.field(name).type.index_type) for b in batches for name in ("id", "city")} == {"int32"}
    assert pa.Table.from_batches(batches)["id"].to_pylist() == ["key-1", "key-2", "key-3", "key-4"]
