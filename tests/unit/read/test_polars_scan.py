"""`lakebed.polars.scan`: the rows that polars gives of the same rows in memory, and what is opened for them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, date, datetime

import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import UnsupportedFeature
from lakebed.opened_table import OpenedTable
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.testing import CountingStorage

ROWS = pa.table(
    {
        "id": pa.array(range(40), pa.int64()),
        "small": pa.array([n % 5 for n in range(40)], pa.int32()),
        "city": [None if n % 7 == 0 else f"c{n % 5}" for n in range(40)],
        "fare": [float("nan") if n == 11 else n / 2 for n in range(40)],
        "day": pa.array([date(2026, 1, 1 + n % 20) for n in range(40)]),
        "at": pa.array([datetime(2026, 1, 1, n % 24, tzinfo=UTC) for n in range(40)], pa.timestamp("us", "UTC")),
        "is_new": [n % 3 == 0 for n in range(40)],
    }
)
CONDITIONS: dict[str, pl.Expr] = {
    "equal": pl.col("id") == 7,
    "constant first": pl.lit(30) < pl.col("id"),
    "another type": pl.col("small") == pl.lit(3, dtype=pl.Int64),
    "in": pl.col("id").is_in([3, 4, 100]),
    "texts in": pl.col("city").is_in(["c1", "c2"]),
    "between": pl.col("id").is_between(5, 9, closed="left"),
    "not": ~(pl.col("city") == "c1"),
    "not equal": pl.col("city") != "c1",
    "null": pl.col("city").is_null() | (pl.col("id") == 1),
    "missing": pl.col("city").ne_missing("c1"),
    "nan": pl.col("fare") > 18,
    "function": pl.col("city").str.contains("3") & (pl.col("id") > 10),
    "date": pl.col("day") >= date(2026, 1, 19),
    "time": pl.col("at") < datetime(2026, 1, 1, 2, tzinfo=UTC),
    "flag": (pl.col("is_new") == True) & (pl.col("id") < 9),  # noqa: E712
    "two columns": pl.col("id") == pl.col("small"),
    "python": pl.col("id").map_batches(lambda s: s > 35, return_dtype=pl.Boolean),
}


@pytest.fixture(scope="module")
def table() -> lakebed.Table:
    t = lakebed.create("memory://polars/t", ROWS, key="id", type="mor", index="bucket", buckets=4)
    t.upsert(ROWS)
    t.upsert(ROWS.slice(0, 3))
    return t


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_gives_the_rows_that_it_gives_in_memory(table: lakebed.Table, name: str) -> None:
    condition = CONDITIONS[name]
    expected = pl.DataFrame(ROWS).filter(condition).sort("id")
    assert expected.height
    found = lakebed.polars.scan(table).filter(condition).collect().sort("id")
    assert found.equals(expected, null_equal=True)
    few = lakebed.polars.scan(table).filter(condition).select("small", "id").collect().sort("id")
    assert few.equals(expected.select("small", "id"))


def test_a_point_query_opens_one_file_and_reads_the_columns_asked_for(table: lakebed.Table) -> None:
    storage = CountingStorage(open_storage(table.uri))
    lazy = lakebed.polars.scan(lakebed.Table(OpenedTable(storage, load_table_config(storage))))
    for condition in (pl.col("id") == 7, pl.col("id").is_in([7])):
        storage.reset()
        assert lazy.filter(condition).select("fare").collect().rows() == [(3.5,)]
        opened = {path for path in storage.opened if path.endswith(".parquet") and ".hoodie" not in path}
        assert len(opened) == 1
    storage.reset()
    assert lazy.head(2).collect().height == 2
    assert len({path for path in storage.opened if path.endswith(".parquet") and ".hoodie" not in path}) < 4


def test_numbers_of_rows_and_batch_sizes_are_those_asked_for(table: lakebed.Table) -> None:
    lazy = lakebed.polars.scan(table)
    counts: list[tuple[Callable[[], int], int]] = [
        (lambda: lazy.select(pl.len()).collect().item(), 40),
        (lambda: lazy.head(3).filter(pl.col("id") >= 0).collect().height, 3),
        (lambda: lazy.collect(engine="streaming").height, 40),
    ]
    assert [count() for count, _ in counts] == [expected for _, expected in counts]
    assert lazy.collect_schema() == pl.DataFrame(ROWS).schema


def test_a_filter_and_a_time_narrow_the_rows(table: lakebed.Table) -> None:
    first = next(iter(table.timeline)).time
    few = lakebed.polars.scan(table.uri, where="id < 5").filter(pl.col("id") > 2)
    assert sorted(few.collect()["id"].to_list()) == [3, 4]
    assert lakebed.polars.scan(table, as_of=first).select(pl.len()).collect().item() == 40


def test_without_polars_the_error_names_the_extra(table: lakebed.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UnsupportedFeature, match=r"lakebed\[polars\]"):
        lakebed.polars.scan(table)
