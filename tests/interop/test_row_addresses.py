"""Real Hudi reads, writes and cleans tables whose base files have row addresses and offset indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import assert_both_read, hudi_job, replaced
from lakebed.format.footer_cache import FOOTERS
from lakebed.handles import file_writer, stored_rows
from lakebed.metadata.lookups import open_snapshot
from lakebed.storage import open_storage
from lakebed.table import Table
from oracle.client import HudiOracle
from support.same_rows import assert_same_rows

ROWS = 600


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "ROW_GROUP_ROWS", 200)
    monkeypatch.setattr(file_writer, "PAGE_ROWS", 20)
    monkeypatch.setattr(stored_rows, "_WORTH_COPYING", 1)


def rows_of(first: int, count: int, ts: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"key-{n * 7919 % 10007:05}" for n in numbers],
            "ts": [ts] * count,
            "word": [("oak", "elm", None)[n % 3] for n in numbers],
            "number": [float("nan") if n % 50 == 0 else n / 7 for n in numbers],
            "text": [f"text {n} of {ts}" for n in numbers],
        }
    )


def new_table(folder: Path, **options: Any) -> tuple[Table, pa.Table]:
    rows = rows_of(0, ROWS, 1)
    table = lakebed.create(
        str(folder / "t"),
        rows.schema,
        key="id",
        ordering="ts",
        index="bucket",
        buckets=1,
        properties={"lakebed.row.addresses": True},
        **options,
    )
    table.upsert(rows)
    batch = rows_of(100, 3, 2)
    table.upsert(batch)
    return table, replaced(rows, batch, ["id"])


def with_addresses(table: Table) -> list[bool]:
    """Of each current base file whether it has row addresses; its pages are known."""
    storage = open_storage(table.uri)
    footers = [FOOTERS.read(storage, file.path, file.size) for file in open_snapshot(storage).base_files()]
    assert all(footer.pages is not None for footer in footers if footer.addresses)
    return [footer.addresses is not None for footer in footers]


def check_get(table: Table, rows: pa.Table) -> None:
    for start in (0, 99, ROWS - 9):
        some = rows.slice(start, 9)
        assert_same_rows(lakebed.open(table.uri).get(some["id"]), some)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_goes_on_with_files_that_have_addresses(oracle: HudiOracle, kind: str, tmp_path: Path) -> None:
    table, rows = new_table(tmp_path, type=kind)
    assert with_addresses(table) == [True]
    assert_both_read(oracle, table, rows)
    for turn in range(2):
        batch = rows_of(200 + turn, 5, 3 + 2 * turn)
        clean = {"hoodie.clean.automatic": "true", "hoodie.clean.commits.retained": "1"}
        oracle.write(table.uri, batch, options={**hudi_job(table), **clean})
        rows = replaced(rows, batch, ["id"])
        check_get(table, rows)
        batch = rows_of(300 + turn, 5, 4 + 2 * turn)
        lakebed.open(table.uri).upsert(batch)
        rows = replaced(rows, batch, ["id"])
        assert_both_read(oracle, table, rows)
        check_get(table, rows)
    if kind == "mor":
        lakebed.open(table.uri).maintenance.compact()
    assert with_addresses(table) == [True], "files of Hudi have none, and those that are written after have them again"
    check_get(table, rows)
    assert_both_read(oracle, table, rows)


def test_hudis_own_files_are_read_by_page(oracle: HudiOracle, tmp_path: Path) -> None:
    """Its Parquet writer puts an offset index."""
    table, rows = new_table(tmp_path)
    batch = rows_of(50, 400, 3)
    oracle.write(table.uri, batch, options=hudi_job(table))
    rows = replaced(rows, batch, ["id"])
    storage = open_storage(table.uri)
    footers = [FOOTERS.read(storage, file.path, file.size) for file in open_snapshot(storage).base_files()]
    assert [(footer.addresses, footer.pages is not None) for footer in footers] == [(None, True)]
    check_get(table, rows)


def test_duckdb_and_polars_read_them(tmp_path: Path) -> None:
    table, rows = new_table(tmp_path)
    (file,) = table.scan().files
    path = str(Path(table.uri) / file.path)
    assert_same_rows(pl.read_parquet(path).to_arrow().select(rows.column_names), rows)
    with duckdb.connect() as connection:
        found = connection.sql(f"select * from read_parquet('{path}')").to_arrow_table()
        assert_same_rows(found.select(rows.column_names).cast(rows.schema), rows)
        asked = f"select count(*) from read_parquet('{path}') where number > 80"
        assert connection.sql(asked).fetchall() == [(sum(not x <= 80 for x in rows["number"].to_pylist()),)]
