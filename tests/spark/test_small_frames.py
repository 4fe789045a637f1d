"""A DataFrame that Spark knows to be small is collected once and written in this process: the same table, no job."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakebed
from lakebed.engine.spark_session import optimizer_rows
from lakebed.table import Table

pytestmark = [pytest.mark.rest, pytest.mark.small_frames]

SCHEMA = "id bigint, city string, at timestamp, day date, price decimal(9,2), tags array<string>, ts bigint"


@pytest.fixture
def evaluated(spark: SparkSession) -> Any:
    """Counts the rows that a column of a DataFrame is computed for."""
    return spark.sparkContext.accumulator(0)


def frame(spark: SparkSession, rows: int = 40) -> DataFrame:
    return spark.range(rows).selectExpr(
        "id",
        "concat('c', id % 2) AS city",
        "timestamp_micros(1700000000000000 + id) AS at",
        "date_add(DATE'2024-01-01', cast(id AS int)) AS day",
        "cast(id / 4 AS decimal(9,2)) AS price",
        "array(cast(id AS string), NULL) AS tags",
        "id AS ts",
    )


def created(folder: Path, name: str, data: DataFrame, type: Any) -> Table:
    return lakebed.create(
        str(folder / name), data, key="id", partition_by="city", ordering="ts", index="bucket", buckets=2, type=type
    )


@pytest.mark.parametrize("type", ["cow", "mor"])
def test_writes_in_process_make_the_same_table_as_spark(spark: SparkSession, tmp_path: Path, type: str) -> None:
    data = frame(spark)
    tables = {}
    for name, most in (("here", 20_000), ("there", 0)):
        table = tables[name] = created(tmp_path, name, data, type)
        options = {"lakebed.local.rows": most}
        result = table.upsert(data, options=options)
        assert result.inserted == 40
        plan = table.explain(upsert=data, options=options)
        assert plan.engine == ("local" if most else "spark")
        assert ("it is collected and written here" in str(plan)) == bool(most)
        changed = data.filter("id % 3 = 0").withColumn("tags", F.array(F.lit("changed"))).withColumn("ts", F.lit(99))
        assert table.upsert(changed, options=options).rows == 14
        keys = data.filter("id > 35").select("id", "city")
        assert table.delete(keys, dry_run=True, options=options).deleted == 4
        assert table.delete(where="id > 35", dry_run=True, options=options).deleted == 4
        assert table.delete(keys, options=options).deleted == 4
    columns = ["id", "city", "at", "day", "price", "tags", "ts"]
    here, there = (t.scan(columns).to_arrow().sort_by("id") for t in tables.values())
    assert here.equals(there.cast(here.schema))
    assert here.num_rows == 36
    assert here["tags"].to_pylist()[:4] == [["changed"], ["1", None], ["2", None], ["changed"]]
    assert here["price"][6].as_py() == Decimal("1.50")
    assert tables["here"].schema == tables["there"].schema


def test_the_rows_are_evaluated_once(spark: SparkSession, tmp_path: Path, evaluated: Any) -> None:
    count = F.udf(lambda n: (evaluated.add(1), n)[1], "bigint").asNondeterministic()
    # what a Python function makes is not looked through: of cached rows the number is known
    data = frame(spark, 30).withColumn("ts", count("id")).cache()
    try:
        table = created(tmp_path, "t", frame(spark, 1), "mor")
        assert table.upsert(data).inserted == 30
        assert evaluated.value == 30
    finally:
        data.unpersist()
    written = lakebed.write(frame(spark, 5), str(tmp_path / "new"), JOB)
    assert written is not None
    assert written.inserted == 5


JOB = {
    "hoodie.table.name": "new",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
}


def test_the_optimizer_knows_the_rows_of_small_frames(spark: SparkSession, tmp_path: Path) -> None:
    arrow = pa.table({"id": pa.array(range(100), pa.int64()), "v": ["x"] * 100})
    held = spark.createDataFrame(arrow)  # pyright: ignore[reportArgumentType]
    assert optimizer_rows(spark.range(50)) == 50
    assert optimizer_rows(held) == 100
    assert optimizer_rows(spark.range(1_000_000).limit(7)) == 7
    assert (optimizer_rows(held.filter("id > 3")) or 0) <= 100
    assert optimizer_rows(spark.range(1_000_000)) == 1_000_000
    frame(spark, 1_000).write.parquet(str(tmp_path / "files"))
    stored = optimizer_rows(spark.read.parquet(str(tmp_path / "files")))
    assert stored is not None
    assert stored >= 1_000
    # nobody knows what a function makes of few rows, nor how many there are in an RDD
    assert optimizer_rows(spark.range(3).selectExpr("explode(sequence(1, 100000)) AS n")) is None
    assert optimizer_rows(spark.range(3).mapInArrow(lambda batches: batches, "id bigint")) is None
    unknown = optimizer_rows(spark.createDataFrame(spark.sparkContext.parallelize([(1,)]), "id bigint"))
    assert unknown is None or unknown > 1 << 50
    assert (optimizer_rows(spark.range(20_000).crossJoin(spark.range(20_000).toDF("x"))) or 1 << 60) > 20_000


@pytest.mark.parametrize("count", [1, 2, 10, 5_000])
def test_rows_of_a_list_are_held_by_the_driver_and_counted(spark: SparkSession, count: int) -> None:
    data = spark.createDataFrame([(n, f"v{n}") for n in range(count)], "id bigint, v string")
    known = optimizer_rows(data)
    assert known is not None
    assert count <= known < count + 1_024 * 2
    assert optimizer_rows(data.filter("id >= 0").selectExpr("id + 1 AS id", "upper(v) AS v").orderBy("id")) == known
    assert optimizer_rows(data.limit(1)) == known
    assert optimizer_rows(spark.createDataFrame([{"id": n} for n in range(count)])) == known
    # of other RDDs, and where rows may become more, nothing is known
    numbers = spark.sparkContext.parallelize([(n,) for n in range(count)])
    for unknown in (
        spark.createDataFrame(numbers, "id bigint"),
        spark.createDataFrame(numbers.flatMap(lambda row: [row] * 1_000), "id bigint"),
        data.selectExpr("explode(sequence(1, 1000)) AS id"),
        data.crossJoin(data.toDF("other", "w")),
        data.mapInArrow(lambda batches: batches, data.schema),
    ):
        assert (optimizer_rows(unknown) or 1 << 60) > 1 << 50


@pytest.mark.parametrize("type", ["cow", "mor"])
def test_rows_of_a_list_are_written_here(spark: SparkSession, tmp_path: Path, type: str) -> None:
    rows = frame(spark).collect()
    data = spark.createDataFrame(rows, frame(spark).schema)
    table = created(tmp_path, "t", data, type)
    assert table.explain(upsert=data).engine == "local"
    assert table.explain(upsert=data, options={"lakebed.local.rows": 0}).engine == "spark"
    assert table.upsert(data.withColumn("ts", F.lit(1))).inserted == 40
    assert table.upsert(data.filter("id < 7").withColumn("ts", F.lit(2))).rows == 7
    expected = frame(spark).withColumn("ts", F.when(F.col("id") < 7, 2).otherwise(1).cast("bigint")).orderBy("id")
    found = table.scan(["id", "city", "at", "day", "price", "tags", "ts"]).to_spark().orderBy("id")
    assert found.collect() == expected.collect()


@pytest.mark.parametrize(("most", "jobs"), [(1 << 24, 0), (0, 2)], ids=["files are small", "files are large"])
def test_a_service_after_a_write_on_spark_runs_where_it_is_cheaper(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, jobs: int
) -> None:
    monkeypatch.setattr("lakebed.services.driver.JOB_BYTES", most)
    table = created(tmp_path, "t", frame(spark, 1), "mor")
    context = spark.sparkContext

    def jobs_of_commit(number: int) -> tuple[int, tuple[str, ...]]:
        rows = frame(spark, 20).withColumn("ts", F.lit(number).cast("bigint"))
        data = rows.mapInArrow(lambda batches: batches, SCHEMA)
        context.setJobGroup(f"commit {number}", "")
        result = table.upsert(data, options={"hoodie.compact.inline.max.delta.commits": 3})
        found = context.statusTracker().getJobIdsForGroup(f"commit {number}")
        return len(found), result.services

    try:
        seen = [jobs_of_commit(number) for number in range(6)]
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # pyright: ignore[reportArgumentType]
    compacting = [number for number, (_, services) in enumerate(seen) if any("compact " in s for s in services)]
    assert compacting
    usual = min(count for count, _ in seen)
    assert {seen[number][0] - usual for number in compacting} == {jobs}
    assert table.scan(["id", "ts"]).to_arrow().sort_by("id").to_pydict() == {"id": [*range(20)], "ts": [5] * 20}


def test_where_spark_runs_in_one_process_more_is_small(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = frame(spark, 60_000)
    table = created(tmp_path, "t", frame(spark, 1), "mor")
    assert table.explain(upsert=data, options={"lakebed.local.rows": 20_000}).engine == "spark"
    plan = table.explain(upsert=data)
    assert plan.engine == "local"
    assert "Spark runs in one process, and the DataFrame takes about" in str(plan)
    assert table.upsert(data).inserted == 60_000
    assert lakebed.open(table.uri).scan(["id"]).to_arrow()["id"].sort().to_pylist() == list(range(60_000))
    for name, other in (("LOCAL_BYTES", 1), ("LOCAL_TABLE_BYTES", 1), ("is_in_one_process", lambda spark: False)):
        with monkeypatch.context() as patch:
            patch.setattr(f"lakebed.operations.hudi_job.{name}", other)
            assert table.explain(upsert=data).engine == "spark"


@pytest.mark.parametrize(
    ("column", "most"),
    [
        ("repeat('x', {})", 26_000),
        ("CAST(repeat('x', {}) AS BINARY)", 26_000),
        ("array(repeat('x', {}))", 26_000),
        ("map('k', named_struct('t', repeat('x', {})))", 26_000),
    ],
    ids=["text", "binary", "array", "map"],
)
def test_the_bytes_of_a_frame_are_bounded_not_guessed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, most: int
) -> None:
    monkeypatch.setattr("lakebed.operations.hudi_job.max_collected_bytes", lambda spark: 1 << 20)
    table = None
    for size, engine in ((most, "local"), (most + 500, "spark")):
        data = spark.range(40).selectExpr("id", f"{column.format(size)} AS wide")
        table = table or lakebed.create(str(tmp_path / "t"), data, key="id", index="bucket", buckets=1)
        assert table.explain(upsert=data).engine == engine
        table.upsert(data)
        assert table.scan(where="wide IS NOT NULL").count() == 40


def test_rows_that_a_small_file_or_cache_holds_are_counted_not_guessed(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "files")
    for count, engine in ((1_000, "local"), (200_000, "spark")):
        # one value: the file has some hundred bytes, whatever the number of its rows
        spark.range(count).selectExpr("7 AS id").coalesce(1).write.mode("overwrite").parquet(path)
        data = spark.read.parquet(path)
        assert (optimizer_rows(data) or 0) <= 20_000
        table = lakebed.create(str(tmp_path / f"t{count}"), data, key="id", index="bucket", buckets=1)
        assert table.explain(upsert=data).engine == engine
        table.upsert(data)
        assert table.scan().to_arrow()["id"].to_pylist() == [7]


def test_create_asks_a_frame_for_its_schema_and_runs_no_job(spark: SparkSession, tmp_path: Path) -> None:
    context = spark.sparkContext
    context.setJobGroup("creating", "tables are created")
    try:
        for number, rows in enumerate((40, 100_000, 20_000_000)):
            data = frame(spark, rows)
            table = lakebed.create(str(tmp_path / f"t{number}"), data, key="id", partition_by="city", ordering="ts")
            assert table.schema.names == data.columns
        assert context.statusTracker().getJobIdsForGroup("creating") == []
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # pyright: ignore[reportArgumentType]
    sized = lakebed.create(str(tmp_path / "sized"), spark.range(50_000_000).selectExpr("id", "id AS v"), key="id")
    assert "bucket" in str(sized.indexes)


def test_a_small_merge_runs_on_spark_if_only_spark_knows_its_functions(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    table = lakebed.load(str(tmp_path / "t"), rows, key="id", spark=spark)
    sources: list[Any] = [spark.createDataFrame([(1, "Robert")], "id long, name string")]
    sources.append(pa.table({"id": [2], "name": ["Rupert"]}))
    for source in sources:
        merge = table.merge(source).when_matched_update({"name": "soundex(s.name)"})
        assert "engine      spark" in str(merge.explain())
        assert merge.execute().updated == 1
        plain = table.merge(source).when_matched_update({"name": "s.name"})
        assert "engine      local" in str(plain.explain())
    assert sorted(row["name"] for row in table.scan().to_arrow().to_pylist()) == ["R163", "R163"]
