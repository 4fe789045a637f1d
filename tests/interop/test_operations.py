"""Tables with `_hoodie_operation`: real Hudi shows no deleted row again after lakebed has written to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.model import OPERATION_COLUMN
from oracle.client import HudiOracle
from support.golden_tables import golden

OPTION = "hoodie.allow.operation.metadata.field"
Rows = dict[int, tuple[Any, ...]]


def rows_of(ids: list[int], name: str, ts: int) -> pa.Table:
    cities = ["abc"[i % 3] for i in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "city": cities,
            "name": [f"{name}{i}" for i in ids],
            "n": pa.array(ids, pa.int64()),
            "ts": pa.array([ts] * len(ids), pa.int64()),
        }
    )


def read_by_hudi(oracle: HudiOracle, table: lakebed.Table) -> Rows:
    return _by_id(oracle.read(table.uri))


def read_here(table: lakebed.Table) -> Rows:
    return _by_id(table.scan(meta=True).to_arrow())


def _by_id(rows: pa.Table) -> Rows:
    columns = [OPERATION_COLUMN, "city", "name", "n", "ts"]
    found = {row["id"]: tuple(row[name] for name in columns) for row in rows.to_pylist()}
    assert len(found) == rows.num_rows
    return found


# The rows of both tables, but for their operations: 2 and 6 were deleted by records, 3 was deleted and came back.
STORED = {
    1: ("b", "n1-2 ü", 1002, 3),
    3: ("a", "n3-7 ü", 3007, 4),
    4: ("b", "n4-0 ü", 4000, 2),
    5: ("c", "n5-8 ü", 5008, 4),
    7: ("b", "n7-0 ü", 7000, 4),
}


@pytest.mark.parametrize("name", ["flinklike_v6_mor_changelog", "flinklike_v9_mor_changelog_bucket_flat"])
def test_deleted_rows_stay_deleted_in_a_table_with_a_changelog(name: str, tmp_path: Path, oracle: HudiOracle) -> None:
    table = lakebed.open(str(golden(name).unpack(tmp_path)))
    located = "bucket" not in name
    table.upsert(rows_of([1, 20], "x", 9))
    expected: Rows = {i: ("U" if i in (1, 5) else "I", *row) for i, row in STORED.items()}
    expected[1], expected[20] = ("U", "b", "x1", 1, 9), ("I" if located else "U", "c", "x20", 20, 9)
    assert read_here(table) == expected
    assert read_by_hudi(oracle, table) == expected
    assert oracle.problems(table.uri) == []

    table.delete(rows_of([4], "", 0).select(["id", "city"]))
    del expected[4]
    assert read_here(table) == expected
    assert read_by_hudi(oracle, table) == expected

    table.upsert(rows_of([5], "p", 10).drop_columns(["n"]), options={"lakebed.write.partial": "true"})
    expected[5] = ("U", "c", "p5", 5008, 10)
    assert read_here(table) == expected
    assert read_by_hudi(oracle, table) == expected

    table.maintenance.compact()
    table.upsert(rows_of([7], "y", 11))
    expected[7] = ("U", "b", "y7", 7, 11)
    assert read_here(table) == expected
    assert read_by_hudi(oracle, table) == expected

    if located:
        table.maintenance.compact()
        table.maintenance.cluster()
        assert read_here(table) == expected
        assert read_by_hudi(oracle, table) == expected
    assert oracle.problems(table.uri) == []


def test_a_copy_on_write_table_gets_the_column_by_the_option_and_keeps_it(tmp_path: Path, oracle: HudiOracle) -> None:
    table = lakebed.create(
        str(tmp_path / "t"), rows_of([1], "", 0).schema, key="id", partition_by="city", ordering="ts"
    )
    table.upsert(rows_of([1, 2], "a", 1), options={OPTION: "true"})
    table.upsert(rows_of([2, 3], "b", 2))
    expected: Rows = {
        1: ("I", "b", "a1", 1, 1),
        2: ("U", "c", "b2", 2, 2),
        3: ("I", "a", "b3", 3, 2),
    }
    assert read_here(table) == expected
    assert read_by_hudi(oracle, table) == expected
    oracle.write(table.uri, rows_of([1], "h", 3), options={OPTION: "true"})
    table.upsert(rows_of([3], "c", 4))
    expected |= {1: (None, "b", "h1", 1, 3), 3: ("U", "a", "c3", 3, 4)}
    assert read_here(table) == expected
    assert read_by_hudi(oracle, table) == expected
