"""Rows that a global index left in the partition where their key was: filters on the partition column find them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.table import Table
from support.golden_tables import golden

REGION = "region"


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Table, pa.Table]:
    """A table that real Hudi made with a record index, after an update that names another region; and that row."""
    table = lakebed.open(str(golden("v9_cow_record_index").unpack(tmp_path)))
    row = table.scan().to_arrow().slice(0, 1)
    regions = pc.unique(table.scan([REGION]).to_arrow()[REGION]).to_pylist()
    other = next(r for r in sorted(regions) if r != row[REGION][0].as_py())
    row = row.set_column(row.schema.get_field_index(REGION), row.schema.field(REGION), pa.array([other]))
    table.upsert(row)
    return lakebed.open(table.uri), row


def test_a_filter_on_the_partition_column_finds_what_the_scan_shows(moved: tuple[Table, pa.Table]) -> None:
    table, _ = moved
    shown = table.scan(["_hoodie_record_key", "_hoodie_partition_path", REGION]).to_arrow()
    assert shown.num_rows == golden("v9_cow_record_index").expected.num_rows
    lying = shown.filter(pc.not_equal(shown[REGION], shown["_hoodie_partition_path"]))
    assert lying.num_rows == 1
    for region in pc.unique(shown[REGION]).to_pylist():
        wanted = shown.filter(pc.equal(shown[REGION], region))["_hoodie_record_key"].to_pylist()
        found = table.scan(["_hoodie_record_key"], where=f"{REGION} = '{region}'").to_arrow()
        assert sorted(found["_hoodie_record_key"].to_pylist()) == sorted(wanted)


def test_a_key_that_is_asked_for_with_its_partition_column_is_found(moved: tuple[Table, pa.Table]) -> None:
    table, row = moved
    asked = row.select([*table.properties["hoodie.table.recordkey.fields"].split(","), REGION])
    assert table.get(asked)[REGION].to_pylist() == row[REGION].to_pylist()
    assert table.exists(asked).to_pylist() == [True]


def test_a_delete_by_the_partition_column_takes_it(moved: tuple[Table, pa.Table]) -> None:
    table, row = moved
    table.delete(where=f"{REGION} = '{row[REGION][0].as_py()}'")
    left = lakebed.open(table.uri).scan([REGION]).to_arrow()[REGION].to_pylist()
    assert row[REGION][0].as_py() not in left
