"""Checks of a table where Spark writes: a bad row found in a task stops the write, and quarantined rows stay apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.errors import CheckFailed, TableNotFound
from support.checks import rows_and_instants

ON_SPARK = {"lakebed.local.rows": 0}
SCHEMA = "id bigint, city string, fare double"


def _table(spark: SparkSession, folder: Path, **arguments: Any) -> lakebed.Table:
    table = lakebed.load(
        str(folder / "trips"), {"id": [1, 2], "city": ["Oslo", "Rome"], "fare": [1.0, None]}, key="id", **arguments
    )
    table.checks.add("positive", "fare >= 0")
    return lakebed.open(table.uri, spark=spark)


def _rows(table: lakebed.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(["id", "city", "fare"]).to_arrow().to_pylist())


@pytest.mark.parametrize("verb", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_a_bad_row_in_a_task_stops_the_write_and_leaves_nothing(spark: SparkSession, tmp_path: Path, verb: str) -> None:
    table = _table(spark, tmp_path)
    before = rows_and_instants(table.uri)
    rows = spark.createDataFrame(
        [(number, "Oslo" if number % 2 else "Rome", -1.0 if number % 10 == 0 else 2.0) for number in range(3, 43)],
        SCHEMA,
    )
    with pytest.raises(CheckFailed) as caught:
        getattr(table, verb)(rows, options=ON_SPARK)
    if verb != "bulk_insert":  # whose tasks stop at their first batch with a bad row
        assert caught.value.checks == {"positive": 4}
    assert {row["row"]["id"] for row in caught.value.rows} <= {10, 20, 30, 40}
    assert all(row["position"] is None and row["check"] == "positive" for row in caught.value.rows)
    assert rows_and_instants(table.uri) == before
    assert _rows(table) == [(1, "Oslo", 1.0), (2, "Rome", None)]


def test_rows_that_pass_are_written_and_null_passes(spark: SparkSession, tmp_path: Path) -> None:
    table = _table(spark, tmp_path)
    rows = spark.createDataFrame([(2, "Rome", 5.0), (3, "Rome", None)], SCHEMA)
    table.upsert(rows, options=ON_SPARK)
    assert _rows(table) == [(1, "Oslo", 1.0), (2, "Rome", 5.0), (3, "Rome", None)]


def test_quarantined_rows_of_a_dataframe_go_to_the_rejects(spark: SparkSession, tmp_path: Path) -> None:
    table = _table(spark, tmp_path)
    table.checks.add("cheap", "fare < 100", on_failure="quarantine")
    table.checks.add("low", "id < 1000", on_failure="warn")
    with pytest.raises(TableNotFound):
        _ = table.rejects
    rows = spark.createDataFrame(
        [(1, "Oslo", 500.0), (4, "Rome", 7.0), (5, "Rome", 200.0), (4000, "Rome", 1.0)], SCHEMA
    )
    result = table.upsert(rows, options=ON_SPARK)
    assert (result.quarantined, dict(result.broken_checks)) == (2, {"cheap": 2, "low": 1})
    assert _rows(table) == [(1, "Oslo", 1.0), (2, "Rome", None), (4, "Rome", 7.0), (4000, "Rome", 1.0)]
    rejects = table.rejects.scan(["check", "row"]).to_arrow().to_pylist()
    assert sorted(rejects, key=lambda one: one["row"]["id"]) == [
        {"check": "cheap", "row": {"id": 1, "city": "Oslo", "fare": 500.0}},
        {"check": "cheap", "row": {"id": 5, "city": "Rome", "fare": 200.0}},
    ]


@pytest.mark.parametrize("on", ["t.id = s.id", "t.id = s.id AND t.city <> s.city", "t.city = s.city"])
def test_a_merge_on_spark_judges_the_rows_that_it_makes(spark: SparkSession, tmp_path: Path, on: str) -> None:
    table = _table(spark, tmp_path)
    before = rows_and_instants(table.uri)
    source = spark.createDataFrame([(1, "Oslo" if "<>" not in on else "Bern", -3.0)], SCHEMA)
    with pytest.raises(CheckFailed, match="positive"):
        table.merge(source, on=on).when_matched_update({"fare": "s.fare"}).execute(options=ON_SPARK)
    assert rows_and_instants(table.uri) == before


def test_a_check_of_a_set_and_another_column_uses_the_stored_value_on_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = _table(spark, tmp_path)
    table.checks.add("oslo", "city <> 'Oslo' OR fare < 10")
    source = spark.createDataFrame([("Oslo", 50.0), ("Rome", 60.0)], "city string, fare double")
    for on in ("t.city = s.city", "t.id = CASE WHEN s.city = 'Oslo' THEN 1 ELSE 2 END"):
        with pytest.raises(CheckFailed, match="oslo"):
            table.merge(source, on=on).when_matched_update({"fare": "s.fare"}).execute(options=ON_SPARK)
    only_rome = source.filter("city = 'Rome'")
    table.merge(only_rome, on="t.city = s.city").when_matched_update({"fare": "s.fare"}).execute(options=ON_SPARK)
    assert _rows(table) == [(1, "Oslo", 1.0), (2, "Rome", 60.0)]


def test_a_stream_stops_at_a_bad_row(spark: SparkSession, tmp_path: Path) -> None:
    table = _table(spark, tmp_path)
    source = tmp_path / "in"
    spark.createDataFrame([(7, "Rome", -7.0)], SCHEMA).write.parquet(str(source))
    stream = spark.readStream.schema(SCHEMA).parquet(str(source))
    query = (
        stream.writeStream.foreachBatch(lambda rows, batch: table.upsert(rows, options=ON_SPARK) and None)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="positive"):
        query.awaitTermination()
    assert _rows(table) == [(1, "Oslo", 1.0), (2, "Rome", None)]


def test_a_check_of_the_table_runs_on_the_session(spark: SparkSession, tmp_path: Path) -> None:
    table = _table(spark, tmp_path)
    table.checks.add("cities", "count(DISTINCT city) = count_if(city IS NOT NULL)", on="table")
    with pytest.raises(CheckFailed, match="cities"):
        table.upsert(spark.createDataFrame([(3, "Oslo", 1.0)], SCHEMA), options=ON_SPARK)
    table.upsert(spark.createDataFrame([(3, "Bern", 1.0)], SCHEMA), options=ON_SPARK)
    assert [row[1] for row in _rows(table)] == ["Oslo", "Rome", "Bern"]
    assert table.checks.run()
