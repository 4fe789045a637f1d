"""What a read hands out: the first rows, batches, streams for other libraries; tables that go to other processes."""

from __future__ import annotations

import pickle

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.opened_table import OpenedTable
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import CountingStorage

ROWS = pa.table({"id": list(range(100)), "city": ["a", "b"] * 50, "v": [n * 2 for n in range(100)]})


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    made = lakebed.create(
        f"memory://results/{request.node.name}", ROWS, key="id", partition_by="city", index="bucket", buckets=4
    )
    made.upsert(ROWS)
    return made


def test_head_and_limit_give_the_first_rows(table: Table) -> None:
    assert table.scan(where="v >= 100").head(3).num_rows == 3
    some = table.scan(columns=["v"], where="v >= 100").limit(60)
    assert some.schema == pa.schema([("v", pa.int64())])
    assert sorted(some.to_arrow().column("v").to_pylist()) == list(range(100, 200, 2))
    assert some.limit(7).count() == 7
    assert table.scan().limit(0).to_arrow().num_rows == 0
    assert table.changes("000").head(2).num_rows == 2
    assert str(some).endswith("limit       60 rows")


@pytest.mark.parametrize("rows", [-1, 1.5, "3", None, True])
def test_a_limit_is_a_number_of_rows(table: Table, rows: object) -> None:
    with pytest.raises(InvalidOption, match=r"limit\(\) takes"):
        table.scan().limit(rows)  # pyright: ignore[reportArgumentType]


def test_head_opens_no_more_files_than_it_needs(table: Table) -> None:
    storage = CountingStorage(open_storage(table.uri))
    counted = Table(OpenedTable(storage, table.opened.config))
    counted.count()
    storage.reset()
    assert counted.scan().head(1).num_rows == 1
    assert len({path for path in storage.opened if path.endswith(".parquet")}) < 8


def test_a_scan_is_its_batches(table: Table) -> None:
    assert sum(batch.num_rows for batch in table.scan()) == 100
    assert len(table) == 100
    assert list(table.partitions) == ["a", "b"]
    table.delete_partitions("a")
    assert list(table.partitions) == ["b"]


def test_other_libraries_take_the_table_itself(table: Table) -> None:
    assert pl.DataFrame(table).sort("id")["v"].to_list() == ROWS["v"].to_pylist()
    trips = table  # noqa: F841 - the query names it
    found = duckdb.sql("select sum(v) from trips").fetchall()
    assert found == [(sum(ROWS["v"].to_pylist()),)]
    assert pa.table(table).num_rows == 100


def test_a_scan_of_no_columns_has_all_rows(table: Table) -> None:
    assert table.scan(columns=[]).to_arrow().num_rows == 100
    assert table.scan(columns=[], where="v >= 100").to_arrow().num_rows == 50
    assert len(table.scan(columns=[]).to_pandas()) == 100


def test_a_table_pickles_after_reads(table: Table) -> None:
    table.get([3])
    table.scan(where="v = 4").to_arrow()
    table.indexes.verify()
    twin = pickle.loads(pickle.dumps(table))
    assert twin.get([3]).to_pylist() == table.get([3]).to_pylist()
    assert twin.count() == 100


@pytest.mark.rest
def test_a_table_of_5000_columns_is_written_scanned_and_looked_up() -> None:
    data = pa.table({"id": [1, 2], **{f"c{n}": [n, -n] for n in range(5000)}})
    wide = lakebed.create("memory://results/wide", data, key="id", index="bucket", buckets=1)
    wide.upsert(data)
    assert wide.scan().to_arrow().sort_by("id").equals(data)
    assert wide.get([2]).equals(data.slice(1))
    assert wide.get([1], ["C4999"]).to_pylist() == [{"c4999": 4999}]
    assert wide.scan(columns=["c7"], where="c4000 < 0").to_arrow().to_pylist() == [{"c7": -7}]
