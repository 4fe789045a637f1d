"""Defaults and generated columns of a table where Spark writes: the tasks compute what this process computes."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.errors import CheckFailed

ON_SPARK = {"lakebed.local.rows": 0}
SCHEMA = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "fare": pa.float64(), "n": pa.int64()})
VERBS = ["upsert", "insert", "bulk_insert", "insert_overwrite"]


def at(day: int) -> dt.datetime:
    return dt.datetime(2026, 1, day, 23, 30, tzinfo=dt.UTC)


def new_table(spark: SparkSession, folder: Path, **words: Any) -> lakebed.Table:
    arguments: dict[str, Any] = {"defaults": {"fare": 0.5}, "generated": {"day": "CAST(ts AS DATE)"}, **words}
    return lakebed.create(str(folder / "t"), SCHEMA, key="id", partition_by="day", spark=spark, **arguments)


def frame(spark: SparkSession, *rows: tuple[Any, ...], names: str = "id bigint, ts timestamp, n bigint") -> Any:
    return spark.createDataFrame(list(rows), names)


def rows_of(table: lakebed.Table) -> list[tuple[Any, ...]]:
    stored = table.scan(["id", "ts", "fare", "n", "day"]).to_arrow().sort_by("id").to_pylist()
    return [tuple(row.values()) for row in stored]


def row(id: int, day: int, fare: float | None, n: int | None) -> tuple[Any, ...]:
    return id, at(day), fare, n, at(day).date()


@pytest.mark.parametrize("verb", VERBS)
def test_the_rows_of_a_frame_get_their_values_in_the_tasks(spark: SparkSession, tmp_path: Path, verb: str) -> None:
    t = new_table(spark, tmp_path)
    getattr(t, verb)(frame(spark, (1, at(1), 4), (2, at(2), None)), options=ON_SPARK)
    assert rows_of(t) == [row(1, 1, 0.5, 4), row(2, 2, 0.5, None)]
    assert sorted(t.partitions) == ["2026-01-01", "2026-01-02"]


def test_a_frame_with_another_value_of_a_generated_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    t = new_table(spark, tmp_path)
    rows = frame(spark, (1, at(1), 4, at(3).date()), names="id bigint, ts timestamp, n bigint, day date")
    with pytest.raises(CheckFailed, match="day_generated"):
        t.upsert(rows, options=ON_SPARK)
    assert rows_of(t) == []


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_partial_rows_of_a_frame_give_defaults_to_new_keys_alone(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    t = new_table(spark, tmp_path, type=kind, index="simple")
    t.upsert({"id": [1], "ts": [at(1)], "n": [1], "fare": [None]})
    rows = frame(spark, (1, at(1)), (2, at(2)), names="id bigint, ts timestamp")
    t.upsert(rows, partial=True, options=ON_SPARK)
    assert rows_of(t) == [row(1, 1, None, 1), row(2, 2, 0.5, None)]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("on", ["t.id = s.id", "t.id = s.id AND t.day = CAST(s.ts AS DATE)"])
def test_a_merge_of_a_frame_computes_generated_columns_in_utc(
    spark: SparkSession, tmp_path: Path, on: str, zone: str
) -> None:
    t = new_table(spark, tmp_path)
    t.upsert({"id": [1, 2], "ts": [at(1), at(2)], "n": [1, 1], "fare": [None, 3.0]})
    source = frame(spark, (2, at(2), 9), (3, at(3), 9))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        merge = t.merge(source, on).when_matched_update({"n": "s.n + 1", "ts": "s.ts + interval 5 minutes"})
        if zone == "UTC" or "day" not in on:
            merge.when_not_matched_insert().execute(options=ON_SPARK)
        else:
            merge.when_not_matched_insert().execute(options=ON_SPARK)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    moved = (2, at(2) + dt.timedelta(minutes=5), 3.0, 10, at(2).date())
    assert rows_of(t) == [row(1, 1, None, 1), moved, row(3, 3, 0.5, 9)]


def test_an_update_on_spark_moves_rows_to_the_partition_of_their_new_day(spark: SparkSession, tmp_path: Path) -> None:
    t = new_table(spark, tmp_path)
    t.upsert({"id": [1, 2], "ts": [at(1), at(2)], "n": [1, 1], "fare": [None, 3.0]})
    t.update({"ts": "ts + make_interval(0, 0, 0, 4)"}, where="id = 2", options=ON_SPARK)
    assert rows_of(t) == [row(1, 1, None, 1), row(2, 6, 3.0, 1)]


def test_statements_on_spark_leave_columns_to_the_table(spark: SparkSession, tmp_path: Path) -> None:
    tables = {"t": str(tmp_path / "t")}

    def run(text: str) -> Any:
        return lakebed.sql(text, tables, spark=spark)

    run(
        "CREATE TABLE t (id BIGINT, ts TIMESTAMP, fare DOUBLE DEFAULT 0.5, n BIGINT,"
        " day DATE GENERATED ALWAYS AS (CAST(ts AS DATE))) USING lakebed PARTITIONED BY (day)"
        " TBLPROPERTIES (primaryKey = 'id')"
    )
    run("INSERT INTO t (id, ts, n, fare) VALUES (1, TIMESTAMP '2026-01-01 23:30:00', 4, DEFAULT)")
    run("INSERT INTO t (id, ts, n) SELECT 2L, TIMESTAMP '2026-01-02 23:30:00', 5L")
    t = lakebed.open(tables["t"])
    assert rows_of(t) == [row(1, 1, 0.5, 4), row(2, 2, 0.5, 5)]


def test_a_stream_gets_defaults_and_generated_columns(spark: SparkSession, tmp_path: Path) -> None:
    t = new_table(spark, tmp_path)
    frame(spark, (1, at(1), 4)).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("id bigint, ts timestamp, n bigint").parquet(str(tmp_path / "in"))
    query = (
        stream.writeStream.format("lakebed")
        .option("path", t.uri)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert rows_of(lakebed.open(t.uri)) == [row(1, 1, 0.5, 4)]
