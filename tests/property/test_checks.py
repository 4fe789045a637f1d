"""Random checks over random rows with nulls: a write is refused for the rows that DuckDB says break its CHECK."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot

import lakebed
from lakebed.errors import CheckFailed
from support.random_filters import FilterMaker
from support.sampling import so_many, today

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("word", pa.string()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us")),
    ]
)
VALUES: dict[str, list[Any]] = {
    "n": [-3, 0, 1, 5, 70],
    "x": [-1.5, 0.0, -0.0, 2.25, float("nan"), float("inf")],
    "word": ["", "a", "ab", "abc", "zz"],
    "flag": [True, False],
    "day": [date(2024, 1, 1), date(2024, 2, 29), date(1969, 12, 31)],
    "price": [Decimal("-1.50"), Decimal("0.00"), Decimal("12.34")],
    "at": [datetime(2024, 1, 1), datetime(2024, 6, 1, 12, 30), datetime(1969, 12, 31, 23)],
}
CONDITIONS = so_many(200, small=60)
ROWS = 24


def random_rows(dice: random.Random) -> pa.Table:
    def value(name: str) -> Any:
        return None if dice.random() < 0.25 else dice.choice(VALUES[name])

    rows = [{"id": number, **{name: value(name) for name in VALUES}} for number in range(ROWS)]
    return pa.Table.from_pylist(rows, SCHEMA)


def broken_by_duckdb(rows: pa.Table, condition: str) -> list[int]:
    """The positions of the rows that break SQL's CHECK of this condition."""
    connection = duckdb.connect()
    connection.register("given", rows)
    text = sqlglot.transpile(condition, read="spark", write="duckdb")[0]
    found = connection.execute(f"SELECT id FROM given WHERE ({text}) IS FALSE ORDER BY id").fetchall()
    return [number for (number,) in found]


@pytest.fixture(scope="module")
def table() -> Iterator[lakebed.Table]:
    table = lakebed.create("memory://property/checks", SCHEMA, key="id", index="bucket", buckets=1)
    yield table
    lakebed.drop(table.uri)


@pytest.mark.parametrize("seed", range(CONDITIONS // 20))
def test_duckdb_agrees_which_rows_break_a_check(seed: int, table: lakebed.Table) -> None:
    dice = random.Random(today() * 1000 + seed)
    for number in range(20):
        rows = random_rows(dice)
        condition = FilterMaker(rows, seed * 1000 + number).filter()
        expected = broken_by_duckdb(rows, condition)
        table.checks.add("one", condition, validate=False)
        if expected:
            with pytest.raises(CheckFailed) as caught:
                table.upsert(rows)
            assert caught.value.checks == {"one": len(expected)}, condition
            assert [row["position"] for row in caught.value.rows] == expected[:5], condition
            assert [row["row"]["id"] for row in caught.value.rows] == expected[:5]
        else:
            table.upsert(rows)
            assert repr(table.scan().to_arrow().sort_by("id").to_pylist()) == repr(rows.to_pylist())
        table.checks.drop("one")


@pytest.mark.parametrize("seed", range(so_many(8, small=2)))
def test_a_run_over_stored_rows_finds_the_rows_that_duckdb_finds(seed: int) -> None:
    dice = random.Random(today() * 1000 + 500 + seed)
    rows = random_rows(dice)
    table = lakebed.load(f"memory://property/stored_{seed}", rows, key="id", partition_by="flag")
    try:
        for number in range(15):
            condition = FilterMaker(rows, seed * 1000 + number).filter()
            table.checks.add(f"c{number}", condition, on_failure="warn")
        report = {run.check.name: run for run in table.checks.run()}
        for check in table.checks:
            expected = broken_by_duckdb(rows, check.condition)
            run = report[check.name]
            assert run.rows == len(expected), check.condition
            assert sum(run.partitions.values()) == len(expected)
            assert {row["id"] for row in run.first} <= set(expected)
    finally:
        lakebed.drop(table.uri)
