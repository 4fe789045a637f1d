"""Hudi jobs that append to a table with generated keys: new rows are added, rows of the table itself are refused."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import UnsupportedFeature

ROWS = pa.table({"ts": [1, 2, 3], "rider": ["a", "b", "a"], "fare": [1.0, 2.0, 3.0], "city": ["x", "x", "y"]})
OPTIONS = {"hoodie.table.name": "trips", "hoodie.datasource.write.partitionpath.field": "city"}
APPENDED = {**OPTIONS, "hoodie.datasource.write.operation": "bulk_insert"}
_numbers = count()


@pytest.fixture
def uri() -> str:
    place = f"memory://generated-keys/{next(_numbers)}"
    lakebed.write(ROWS, place, OPTIONS, mode="overwrite")
    return place


def fares(uri: str) -> list[float]:
    return sorted(lakebed.open(uri).scan().to_arrow()["fare"].to_pylist())


def times_ten(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("fare")
    return rows.set_column(at, "fare", pc.multiply(rows["fare"], 10.0))


def test_the_update_of_hudis_quickstart_is_refused_with_both_ways_out(uri: str) -> None:
    rows = times_ten(lakebed.open(uri).scan(filter="rider = 'b'").to_arrow())
    with pytest.raises(UnsupportedFeature, match="were read from this table") as raised:
        lakebed.write(rows, uri, OPTIONS)
    assert "recordkey.field" in raised.value.hint
    assert "operation=bulk_insert" in raised.value.hint
    assert fares(uri) == [1.0, 2.0, 3.0]
    lakebed.write(rows, uri, APPENDED)
    assert fares(uri) == [1.0, 2.0, 3.0, 20.0]


def test_an_update_with_pandas_is_refused_too(uri: str) -> None:
    table = lakebed.open(uri)
    for frame in (table.to_pandas(where="rider = 'b'"), table.scan().to_pandas()):
        updates = frame[frame["rider"] == "b"].assign(fare=lambda rows: rows["fare"] * 10).reset_index(drop=True)
        with pytest.raises(UnsupportedFeature, match="were read from this table"):
            lakebed.write(updates, uri, OPTIONS)
    assert fares(uri) == [1.0, 2.0, 3.0]
    lakebed.write(updates, uri, APPENDED)
    assert fares(uri) == [1.0, 2.0, 3.0, 20.0]


def test_rows_with_their_generated_keys_are_refused(uri: str) -> None:
    rows = pa.Table.from_pylist(lakebed.open(uri).scan(meta=True).to_arrow().to_pylist())
    with pytest.raises(UnsupportedFeature, match="bring record keys"):
        lakebed.write(rows, uri, OPTIONS)
    assert fares(uri) == [1.0, 2.0, 3.0]


def test_other_rows_are_added_whether_they_equal_stored_ones_or_not(uri: str) -> None:
    other = f"{uri}-other"
    lakebed.write(ROWS, other, OPTIONS)
    lakebed.write(lakebed.open(other).scan().to_arrow().slice(0, 1), uri, OPTIONS)
    lakebed.write(ROWS.slice(1, 1), uri, OPTIONS)
    assert len(fares(uri)) == 5


def test_a_table_with_a_key_updates_the_rows_that_were_read_from_it(uri: str) -> None:
    options = {**OPTIONS, "hoodie.datasource.write.recordkey.field": "ts"}
    lakebed.write(ROWS, uri, options, mode="overwrite")
    lakebed.write(times_ten(lakebed.open(uri).scan().to_arrow()), uri, options)
    assert fares(uri) == [10.0, 20.0, 30.0]
