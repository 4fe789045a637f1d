"""Rows that differ each time they are evaluated, and shuffle files that are lost: each row is written once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import lakebed
from lakebed.engine.base import changed_input
from lakebed.engine.spark import SparkEngine
from lakebed.engine.spark_repeatable import is_repeatable

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.string())])
ROWS = 4000
OTHERS = [("bucket", "insert"), ("simple", "upsert"), ("simple", "insert"), ("record", "upsert"), ("bloom", "upsert")]
CASES = [("bucket", "upsert"), *(pytest.param(*case, marks=pytest.mark.rest) for case in OTHERS)]


def draw(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows whose partition is another one each time."""
    generator = np.random.default_rng()
    for batch in batches:
        ids = batch.column(0)
        cities = pa.array([f"c{n}" for n in generator.integers(0, 6, len(ids))])
        values = pa.array([f"v{n}" for n in ids.to_pylist()])
        yield pa.RecordBatch.from_arrays([ids, cities, values], names=SCHEMA.names)


def new_table(folder: Path, index: str, spark: SparkSession) -> lakebed.Table:
    buckets = 4 if index == "bucket" else None
    return lakebed.create(str(folder), SCHEMA, key="id", partition_by="city", index=index, buckets=buckets, spark=spark)


@contextmanager
def losing_shuffle_files(spark: SparkSession, folder: Path) -> Generator[list[int]]:
    """Once, when the first data file of the table is there, all files of shuffles are deleted; gives how many."""
    local = Path(str(spark.sparkContext.getConf().get("spark.local.dir")))
    done, lost = threading.Event(), list[int]()

    def watch() -> None:
        while not done.wait(0.002):
            if any(".hoodie" not in str(path) for path in folder.rglob("*.parquet")):
                files = list(local.rglob("shuffle_*"))
                for file in files:
                    file.unlink(missing_ok=True)
                lost.append(len(files))
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lost
    finally:
        done.set()
        thread.join()


def second_attempts(spark: SparkSession, group: str) -> int:
    """How many stages of a job group were tried again."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage is not None and stage.currentAttemptId > 0 for stage in stages)


@pytest.mark.parametrize(("index", "verb"), CASES)
def test_each_row_is_written_once_though_its_partition_differs_at_a_second_attempt(
    tmp_path: Path, index: str, verb: str
) -> None:
    # in a process of its own: Spark takes the executor for lost, which is the driver here, and later jobs suffer
    folders = os.pathsep.join(str(Path(__file__).parents[1] / name) for name in ("", "spark"))
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([folders, os.environ.get("PYTHONPATH", "")])}
    command = [
        sys.executable,
        "-c",
        f"import test_changed_input as t; t.write_once({str(tmp_path)!r}, {index!r}, {verb!r})",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, env=given)
    assert done.returncode == 0, done.stderr[-4000:]


def write_once(folder_of_test: str, index: str, verb: str) -> None:
    from support.small_spark import small_session  # tasks import this module, and have no folder of tests

    spark = small_session(Path(folder_of_test))
    folder = Path(folder_of_test) / "t"
    table = new_table(folder, index, spark)
    frame = spark.range(0, ROWS, 1, 4).mapInArrow(draw, "id long, city string, v string")
    group = f"{index} {verb}"
    spark.sparkContext.setJobGroup(group, "a write whose stages are tried again")
    with losing_shuffle_files(spark, folder) as lost:
        result = getattr(table, verb)(frame)
    assert lost
    assert second_attempts(spark, group), "no stage was tried again"
    assert (result.rows, result.inserted) == (ROWS, ROWS)
    stored = table.scan(columns=["id", "v"]).to_arrow().sort_by("id")
    assert stored["id"].to_pylist() == list(range(ROWS))
    assert stored["v"].to_pylist() == [f"v{n}" for n in range(ROWS)]
    assert table.indexes.verify().ok
    spark.stop()


def test_rows_that_are_lost_for_good_are_evaluated_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path / "t", "bucket", spark)
    real, attempts = SparkEngine.group_map, list[bool]()

    def group_map(engine: SparkEngine, rows: DataFrame, fn: Any, *arguments: Any, **more: Any) -> DataFrame:
        attempts.append(is_repeatable(rows))
        if len(attempts) < 3:
            raise changed_input("a machine has ended")
        return real(engine, rows, fn, *arguments, **more)

    monkeypatch.setattr(SparkEngine, "group_map", group_map)
    frame = spark.range(0, 50, 1, 2).mapInArrow(draw, "id long, city string, v string")
    assert table.upsert(frame).inserted == 50
    assert len(attempts) == 3
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(50))

    def failing(*_: Any, **__: Any) -> DataFrame:
        raise changed_input("always")

    monkeypatch.setattr(SparkEngine, "group_map", failing)
    with pytest.raises(lakebed.SourceError, match=r"changed while they were written: always") as raised:
        table.upsert(frame)
    assert raised.value.retryable
    assert table.count() == 50


def test_the_session_keeps_its_settings_and_stored_rows_are_released(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "simple", spark)
    names = ["enabled", "enableFullRetryOnMismatch"]
    keys = [f"spark.sql.shuffle.orderIndependentChecksum.{name}" for name in names]
    before = [spark.conf.get(key, None) for key in keys]
    context: Any = spark.sparkContext
    stored = set(context._jsc.getPersistentRDDs())
    table.upsert(spark.range(0, 50, 1, 2).mapInArrow(draw, "id long, city string, v string"))
    assert [spark.conf.get(key, None) for key in keys] == before
    assert set(context._jsc.getPersistentRDDs()) <= stored
    assert table.count() == 50


def test_rows_that_the_caller_stored_stay_stored_and_those_of_a_delete_are_released(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path / "t", "simple", spark)
    table.upsert(pa.table({"id": range(60), "city": ["c0"] * 60, "v": ["a"] * 60}, schema=SCHEMA))
    context: Any = spark.sparkContext
    in_spark = {"lakebed.local.rows": 0}

    def keys(begin: int) -> DataFrame:
        return spark.range(begin, begin + 10, 1, 2).selectExpr("id", "'c0' AS city")

    checkpoint = keys(0).mapInArrow(lambda batches: batches, "id long, city string").localCheckpoint()
    cached = keys(10).cache()
    assert cached.count() == 10
    frames = {
        "checkpoint": checkpoint,
        "cached": cached,
        "list": spark.createDataFrame([(n, "c0") for n in range(20, 30)], "id long, city string"),
        "function": keys(30).mapInArrow(lambda batches: batches, "id long, city string"),
    }
    for name, frame in frames.items():
        stored, level = set(context._jsc.getPersistentRDDs()), frame.storageLevel
        assert table.delete(frame, options=in_spark).deleted == 10, name
        assert set(context._jsc.getPersistentRDDs()) == stored, name
        assert frame.storageLevel == level, name
        assert sorted(row.id for row in frame.collect())[:1] == [list(frames).index(name) * 10], name
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(40, 60))
    cached.unpersist()


def test_a_merge_that_is_refused_keeps_no_rows_in_the_cache(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "simple", spark)
    table.upsert(pa.table({"id": range(5), "city": ["c0"] * 5, "v": ["a"] * 5}, schema=SCHEMA))
    context: Any = spark.sparkContext
    stored = set(context._jsc.getPersistentRDDs())
    source = spark.range(0, 4).selectExpr("id div 2 AS n")
    with pytest.raises(lakebed.AmbiguousMerge):
        table.merge(source, "t.id = s.n AND t.v = 'a'").when_matched_update({"v": "uuid()"}).execute()
    assert set(context._jsc.getPersistentRDDs()) == stored
    assert set(table.scan().to_arrow()["v"].to_pylist()) == {"a"}


def test_the_keys_that_are_erased_are_those_that_were_looked_for(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "simple", spark)
    table.upsert(pa.table({"id": range(60), "city": ["c0"] * 60, "v": [f"value {n}" for n in range(60)]}))
    context: Any = spark.sparkContext
    stored = set(context._jsc.getPersistentRDDs())

    def drawn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids = np.random.default_rng().permutation(60)[:5]
        yield from (pa.RecordBatch.from_arrays([pa.array(ids), pa.array(["c0"] * 5)], ["id", "city"]) for _ in batches)

    report = table.erase(spark.range(0, 1, 1, 1).mapInArrow(drawn, "id long, city string"))
    assert (report.rows, table.count()) == (5, 55)
    assert set(context._jsc.getPersistentRDDs()) == stored


def test_two_writes_at_a_time_restore_the_settings_of_their_session(spark: SparkSession) -> None:
    before: dict[str, str | None] = dict(spark.conf.getAll)
    first, second = SparkEngine(spark), SparkEngine(spark)
    with ExitStack() as earlier, ExitStack() as later:
        earlier.enter_context(first._settings(first._of_jobs()))
        later.enter_context(second._settings(second._of_jobs()))
        earlier.close()
    assert dict(spark.conf.getAll) == before


def test_a_value_that_a_merge_draws_is_drawn_once(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "simple", spark)
    table.upsert(pa.table({"id": range(50), "city": ["c0"] * 50, "v": ["a"] * 50}, schema=SCHEMA))
    source = spark.range(0, 50).selectExpr("id AS n")
    merge = table.merge(source, "t.id = s.n AND t.v = 'a'").when_matched_update({"v": "uuid()"})
    assert merge.execute().updated == 50
    stored = table.scan().to_arrow().sort_by("id")
    assert stored["id"].to_pylist() == list(range(50))
    assert len(set(stored["v"].to_pylist())) == 50


def total(ids: pd.Series) -> int:
    return int(ids.sum())


def frames(spark: SparkSession, folder: Path) -> tuple[dict[str, DataFrame], dict[str, DataFrame]]:
    """DataFrames that give the same rows each time, and others."""
    rows = spark.range(100).withColumn("g", F.col("id") % 3)
    rows.write.parquet(str(folder / "files"))
    rows.createOrReplaceTempView("same_rows")
    rows.withColumn("x", F.rand()).createOrReplaceTempView("other_rows")
    files = spark.read.parquet(str(folder / "files"))
    table = lakebed.create(str(folder / "t"), pa.schema([("id", pa.int64())]), key="id", type="mor", index="bucket",
                           buckets=1, spark=spark)  # fmt: skip
    table.upsert({"id": [1, 2]})
    table.upsert({"id": [1, 3]})
    udf = F.udf(lambda value: value, "long")
    over = Window.partitionBy("g").orderBy("g")
    same = {
        "range": rows,
        "files": files,
        "csv": spark.read.csv(str(folder / "files")),
        "join": files.join(rows, "id"),
        "aggregate": files.groupBy("g").agg(F.sum("id"), F.count("*"), F.max("id")),
        "list": spark.createDataFrame([(1, 2)], "a int, b int"),
        "pandas": spark.createDataFrame(pd.DataFrame({"a": [1]})),
        "arrow": spark.createDataFrame(pa.table({"a": [1]})),
        "union and sort": rows.union(rows).orderBy("id"),
        "repartition": files.repartition(3).repartition(2, "id"),
        "distinct": rows.distinct(),
        "view": spark.sql("SELECT * FROM same_rows WHERE id IN (SELECT max(id) FROM same_rows)"),
        "cte": spark.sql("WITH a AS (SELECT * FROM same_rows) SELECT * FROM a JOIN a b ON a.id = b.id"),
        "table": table.scan().to_spark(),
        "checkpoint": rows.mapInArrow(lambda batches: batches, rows.schema).localCheckpoint(),
        "explode": rows.withColumn("x", F.explode(F.array("id", "g"))),
        "time of the query": rows.withColumn("x", F.current_timestamp()),
        "cache": files.cache(),
    }
    other = {
        "function over batches": rows.mapInArrow(lambda batches: batches, rows.schema),
        "function": rows.withColumn("x", udf("id")),
        "function in a filter": rows.filter(udf("id") > 3),
        "function in an aggregate": rows.groupBy("g").agg(F.sum(udf("id"))),
        "function over groups": rows.groupBy("g").applyInPandas(lambda frame: frame, rows.schema),
        "rdd": rows.rdd.map(lambda row: row).toDF(),
        "rand": rows.withColumn("x", F.rand()),
        "uuid": rows.withColumn("x", F.expr("uuid()")),
        "number of a row": rows.withColumn("x", F.monotonically_increasing_id()),
        "view": spark.table("other_rows"),
        "subquery": spark.sql("SELECT * FROM same_rows WHERE id IN (SELECT x FROM other_rows)"),
        "cache": rows.withColumn("x", F.rand()).cache(),
        "checkpoint to come": rows.withColumn("x", F.rand()).localCheckpoint(eager=False),
        "function over the rows of a group": rows.groupBy("g").agg(F.pandas_udf(total, "long")("id")),
        "limit": rows.limit(3),
        "sample": rows.sample(0.5),
        "one row of each group": rows.dropDuplicates(["g"]),
        "first": rows.groupBy("g").agg(F.first("id")),
        "list of a group": rows.groupBy("g").agg(F.collect_list("id")),
        "window": rows.withColumn("x", F.row_number().over(over)),
        "table as it is then": spark.read.format("lakebed").load(str(folder / "t")),
    }
    return same, other


@pytest.mark.rest
def test_only_plans_that_surely_give_the_same_rows_are_repeatable(spark: SparkSession, tmp_path: Path) -> None:
    same, other = frames(spark, tmp_path)
    assert [name for name, frame in same.items() if not is_repeatable(frame)] == []
    assert [name for name, frame in other.items() if is_repeatable(frame)] == []
