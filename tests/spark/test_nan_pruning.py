"""Spark's reader rules out no row group that holds NaN, in files that lakebed writes and in those of older releases."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.row_groups import nan_chunks
from lakebed.handles import file_writer
from lakebed.table import Table

pytestmark = pytest.mark.rest

NAN = math.nan
SCHEMA = pa.schema(
    [("id", pa.int64()), ("d", pa.float64()), ("f", pa.float32()), ("s", pa.struct([("x", pa.float64())]))]
)
CONDITIONS = (
    "d > 100",
    "d = double('NaN')",
    "NOT (d <= 100)",
    "d <> 2",
    "d IN (77, double('NaN'))",
    "f > 100",
    "f <=> float('NaN')",
    "NOT (f < 100)",
    "s.x > 100",
    "s.x = double('NaN')",
    "NOT (s.x <= 100)",
    "isnan(d)",
)


def new_table(folder: Path, spark: Any, **words: Any) -> Table:
    """A file of several row groups, of which one has a NaN."""
    rows = [{"id": n, "d": n / 8, "f": n / 8, "s": {"x": n / 8}} for n in range(40)]
    rows[17] |= {"d": NAN, "f": NAN, "s": {"x": NAN}}
    table = lakebed.create(str(folder / "t"), SCHEMA, key="id", spark=spark, **words)
    table.bulk_insert(pa.Table.from_pylist(rows, SCHEMA))
    return lakebed.open(table.uri, spark=spark)


def assert_nan_is_found(table: Table, **to_spark: Any) -> None:
    frame = table.scan().to_spark(**to_spark)
    found = {text: {row.id for row in frame.where(text).select("id").collect()} for text in CONDITIONS}
    assert [text for text, ids in found.items() if 17 not in ids] == []
    asked = {text: {row.id for row in table.scan(where=text).to_spark(**to_spark).collect()} for text in CONDITIONS}
    assert asked == found


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "ROW_GROUP_ROWS", 10)


@pytest.fixture
def older_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written with the bounds of Arrow, under names that say nothing."""
    monkeypatch.setattr(nan_chunks.NanChunks, "without_bounds", lambda _self, footer: footer)
    monkeypatch.setattr(file_writer, "exact_token", lambda token: token)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_rows_of_nan_are_found_in_new_files(tmp_path: Path, spark: Any, type_: str) -> None:
    table = new_table(tmp_path, spark, index="bucket", buckets=1, type=type_)
    assert_nan_is_found(table)
    assert_nan_is_found(table, bucketed=True)
    # plain Spark, too
    files = [f"{table.uri}/{file.path}" for file in table.scan().files]
    frame = spark.read.parquet(*files)
    assert [text for text in CONDITIONS if 17 not in {r.id for r in frame.where(text).collect()}] == []


@pytest.mark.usefixtures("small_groups", "older_release")
def test_rows_of_nan_are_found_in_files_of_older_releases(tmp_path: Path, spark: Any) -> None:
    table = new_table(tmp_path, spark, index="bucket", buckets=1)
    files = [f"{table.uri}/{file.path}" for file in table.scan().files]
    assert spark.read.parquet(*files).where("d > 100").count() == 0  # what their statistics do
    assert_nan_is_found(table)
    assert_nan_is_found(table, bucketed=True)


@pytest.mark.usefixtures("small_groups")
def test_statistics_rule_out_row_groups_of_new_files_next_to_older_ones(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", index="simple", partition_by="id", spark=spark)
    rows = [{"id": n, "d": NAN if n else 0.5, "f": 1.0, "s": {"x": 0.5}} for n in range(2)]
    with monkeypatch.context() as older:
        older.setattr(nan_chunks.NanChunks, "without_bounds", lambda _self, footer: footer)
        older.setattr(file_writer, "exact_token", lambda token: token)
        table.insert(pa.Table.from_pylist(rows[:1], SCHEMA))
    table.insert(pa.Table.from_pylist(rows[1:], SCHEMA))
    frame = lakebed.open(table.uri, spark=spark).scan().to_spark()
    assert frame._jdf.queryExecution().optimizedPlan().toString().count("Relation") == 2
    only_keys = lakebed.open(table.uri, spark=spark).scan(columns=["id"]).to_spark()
    assert only_keys._jdf.queryExecution().optimizedPlan().toString().count("Relation") == 1
    assert [row.id for row in frame.where("d > 100").collect()] == [1]
