"""Hudi jobs that append to a table with generated keys: new rows are added, rows of the table itself are refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import duckdb
import polars as pl
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
    rows = times_ten(lakebed.open(uri).scan(where="rider = 'b'").to_arrow())
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


def _frames(uri: str) -> dict[str, Callable[[], Any]]:
    """Reads of the table whose data carry no note, each with its fares times ten."""
    table, scan = lakebed.open(uri), lakebed.polars.scan(uri)
    tenfold = pl.col("fare") * 10
    return {
        "frame": lambda: table.scan().to_polars().filter(pl.col("rider") == "b").with_columns(tenfold),
        "lazy frame": lambda: table.scan().to_polars().lazy().with_columns(tenfold),
        "scan": lambda: scan.with_columns(tenfold),
        "query": lambda: lakebed.sql("select ts, rider, fare * 10 as fare, city from t", tables={"t": table}),
        "duckdb": lambda: duckdb.from_arrow(table.to_arrow()).project("ts, rider, fare * 10 as fare, city"),
    }


@pytest.mark.parametrize("kind", ["frame", "lazy frame", "scan", "query", "duckdb"])
def test_an_update_with_a_library_that_takes_no_note_along_is_refused_by_its_values(uri: str, kind: str) -> None:
    with pytest.raises(UnsupportedFeature, match="were read from this table") as raised:
        lakebed.write(_frames(uri)[kind](), uri, OPTIONS)
    assert "operation=bulk_insert" in raised.value.hint
    assert fares(uri) == [1.0, 2.0, 3.0]
    lakebed.write(_frames(uri)[kind](), uri, APPENDED)
    assert len(fares(uri)) == (4 if kind == "frame" else 6)


def test_rows_of_polars_that_are_new_are_added(uri: str) -> None:
    read = lakebed.open(uri).scan().to_polars()
    new = {
        "other values": read.with_columns(pl.col("ts") + 10, pl.col("fare") + 0.5),
        "new and one stored row": pl.concat([read.head(1), read.with_columns(pl.col("ts") + 20, fare=7.0)]),
        "no rows": read.head(0),
        "another column": read.with_columns(tip=pl.lit(1.0)),
    }
    count = 3
    for name, rows in new.items():
        lakebed.write(rows, uri, {**OPTIONS, "lakebed.write.evolution": "add"})
        count += rows.height
        assert len(fares(uri)) == count, name


def test_rows_of_polars_that_name_no_single_stored_row_are_added() -> None:
    place = f"memory://generated-keys/{next(_numbers)}"
    beats = pl.DataFrame({"host": ["a", "a", "b", "b"], "level": ["info"] * 4})
    for appended in range(3):
        lakebed.write(beats, place, {"hoodie.table.name": "beats"})
        assert lakebed.open(place).scan().to_polars().height == 4 * (appended + 1)


@pytest.mark.parametrize("rows", [2, 3])
def test_only_so_many_stored_rows_are_compared(uri: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakebed.operations.hudi_job._COMPARED_ROWS", rows)
    last = lakebed.open(uri).scan().to_polars().tail(1).with_columns(pl.col("fare") * 10)
    if rows == 3:
        with pytest.raises(UnsupportedFeature, match="were read from this table"):
            lakebed.write(last, uri, OPTIONS)
    else:
        lakebed.write(last, uri, OPTIONS)
    assert len(fares(uri)) == (3 if rows == 3 else 4)


def test_a_batch_a_scan_and_the_table_itself_are_rows_of_the_table(uri: str) -> None:
    table = lakebed.open(uri)
    for data in (table, table.scan(), table.scan().to_reader(), next(table.scan().to_batches())):
        with pytest.raises(UnsupportedFeature, match="were read from this table"):
            lakebed.write(data, uri, OPTIONS)
    assert fares(uri) == [1.0, 2.0, 3.0]


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
