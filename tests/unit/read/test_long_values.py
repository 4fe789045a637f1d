"""Texts and bytes longer than any bound on statistics: what filters, lookups and deletes find is what is stored."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds.stats_values import ranges_of_file
from lakebed.read.lookup import get
from lakebed.storage import open_storage
from lakebed.table import Table
from support.sampling import HISTORIES, todays_of

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.string()), ("raw", pa.binary())])
# around the lengths at which Parquet's writers, and lakebed's reader of their footers, change their ways
LENGTHS = [64, 3999, 4000, 4001, 4095, 4096, 4097, 8192, 70_000]


def data(rows: list[dict[str, Any]], chunk: int) -> pa.Table:
    """Rows in Arrow chunks of so many."""
    whole = pa.Table.from_pylist([r | {"raw": r["v"] and r["v"].encode()} for r in rows], SCHEMA)
    return pa.Table.from_batches(whole.to_batches(max_chunksize=chunk))


def table_of(uri: str, rows: list[dict[str, Any]], chunk: int, **options: Any) -> Table:
    table = lakebed.create(uri, SCHEMA, key="id", partition_by="part", index="global_simple", **options)
    table.bulk_insert(data(rows, chunk))
    return lakebed.open(uri)


def values(length: int, long_at: int) -> list[dict[str, Any]]:
    """Nine rows in each of two partitions, one of whose values is long, in the middle of the order."""
    return [
        {"id": f"{part}{n}", "part": part, "v": f"{part}{n}" + ("m" * length if n == long_at else "")}
        for part in "pq"
        for n in range(9)
    ]


def matching_ids(table: Table, filter_: str) -> list[str]:
    return sorted(table.scan(["id"], where=filter_).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize(
    ("version", "length", "long_at"), todays_of([9, 8, 6], LENGTHS, [0, 4, 8], parts=3, variable=HISTORIES)
)
def test_filters_find_every_value_of_a_file_with_a_long_one(version: int, length: int, long_at: int) -> None:
    rows = values(length, long_at)
    uri = f"memory://long-values/{version}-{length}-{long_at}"
    table = table_of(uri, rows, 3, table_version=version, indexes=["column_stats"])
    for row in rows:
        assert matching_ids(table, f"v = '{row['v']}'") == [row["id"]]
        assert matching_ids(table, f"raw = X'{row['v'].encode().hex()}'") == [row["id"]]
        assert matching_ids(table, f"v >= '{row['v']}'") == sorted(r["id"] for r in rows if r["v"] >= row["v"])
        assert matching_ids(table, f"v < '{row['v']}'") == sorted(r["id"] for r in rows if r["v"] < row["v"])


def test_a_delete_by_condition_takes_the_row_that_is_shorter_than_its_neighbours() -> None:
    table = table_of("memory://long-values/delete", values(5000, 8), 3)
    table.delete(where="v = 'p2'")
    assert matching_ids(table, "part = 'p'") == [f"p{n}" for n in range(9) if n != 2]


@pytest.mark.parametrize("length", [4096, 4097, 20_000])
def test_keys_in_files_with_long_keys_are_found(length: int) -> None:
    parts = [f"p{n:02d}" for n in range(20)]  # more files than are looked at one by one
    keys = {part: [f"{part}-{n}" + ("k" * length if n == 5 else "") for n in range(6)] for part in parts}
    rows = [{"id": key, "part": part, "v": key} for part in parts for key in keys[part]]
    table = table_of(f"memory://long-values/keys-{length}", rows, 2)
    wanted = [key for part in parts for key in keys[part]]
    assert table.exists(wanted).to_pylist() == [True] * len(wanted)
    for key in (keys["p03"][0], keys["p03"][3], keys["p19"][5]):
        assert get(open_snapshot(open_storage(table.uri)), [key], ["id"]).to_pylist() == [{"id": key}]
        assert matching_ids(table, f"id = '{key}'") == [key]


def foreign(groups: list[list[str | None]], **options: Any) -> tuple[Any, int]:
    """A file of another writer: a row group each."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema([("c", pa.string())]), **options) as writer:
        for group in groups:
            writer.write_table(pa.table({"c": pa.array(group, pa.string())}))
    storage = open_storage("memory://long-values/foreign")
    storage.write("f.parquet", sink.getvalue())
    return storage, len(sink.getvalue())


@pytest.mark.parametrize("options", [{}, {"write_statistics": False}])
def test_a_foreign_file_is_read_where_a_row_group_has_no_range(options: dict[str, Any]) -> None:
    storage, size = foreign([["b", "c"], ["z" * 5000, "a"], [None]], **options)
    (row,) = ranges_of_file(storage, "f.parquet", size, {"c": pa.string()}).column("c").to_pylist()
    assert (row["min"], row["max"]) == ("a", "z" * 5000)
    assert (row["null_count"], row["value_count"]) == (1, 5)
