"""Writes on a Spark cluster of three workers, the table on S3: what lost workers, executors, tasks and stages leave."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from conftest import unavailable
from lakebed import sharing
from lakebed.engine.spark import SparkEngine
from lakebed.format.column_ranges import as_stream
from lakebed.schema.spark import arrow_to_spark_ddl
from lakebed.storage import Storage, open_storage
from lakebed.write_status import STATUS_SCHEMA, WriteStatus, checked_statuses, to_batch

from .s3_server import S3
from .service import HOST, ServiceError
from .spark_cluster import SparkCluster, loopback

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())])
Model = dict[int, dict[str, Any]]
EXECUTOR_CODE = Path(__file__).parent / "executor"
# executors run the code of the driver, also where another lakebed is installed
SOURCES = str(Path(lakebed.__file__).parents[1])
MAP_TASKS = 4
# a task that takes longer is tried a second time beside the first
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.2",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "4s",
}


@pytest.fixture(scope="module")
def s3() -> Generator[dict[str, Any]]:
    try:
        server = S3().start()
    except ServiceError as error:
        unavailable(str(error))
    yield server.info
    server.stop()


@pytest.fixture(scope="module")
def cluster() -> Generator[str]:
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        unavailable("no Java on this machine")
    if loopback(1) == HOST:
        unavailable("one loopback address only: Spark makes second attempts on another host")
    try:
        server = SparkCluster(workers=3, cores=1, memory="600m").start()
    except ServiceError as error:
        unavailable(str(error))
    yield server.info["master"]
    server.stop()


@pytest.fixture(scope="module")
def deeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deeds")


@pytest.fixture(scope="module")
def spark(cluster: str, deeds: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master(cluster).appName("lakebed-cluster")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "600m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dderby.system.home={folder}",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.python.daemon.module": "struck_daemon",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(EXECUTOR_CODE), SOURCES]),
        "spark.executorEnv.LAKEBED_TEST_DEEDS": str(deeds),
        **SPECULATION,
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def strike(deeds: Path) -> Iterator[Callable[[str], Callable[[], str]]]:
    """`strike("kill")` does so in the next write; what it gives tells the file that was struck."""

    def set_up(deed: str) -> Callable[[], str]:
        (deeds / deed).touch()
        return (deeds / f"{deed}.taken").read_text

    yield set_up
    for left in deeds.iterdir():
        left.unlink()


def batch(start: int, stop: int, ts: int) -> tuple[list[str], Model]:
    """A range of ids as columns in SQL, and the same rows in Python. Older rows of every third key come with them."""
    sql = [
        f"cast({start} + id % {stop - start} as bigint) as id",
        f"concat('c', ({start} + id % {stop - start}) % 3) as city",
        "concat('v', id) as v",
        f"{ts} - id div {stop - start} as ts",
    ]
    return sql, {i: {"id": i, "city": f"c{i % 3}", "v": f"v{i - start}", "ts": ts} for i in range(start, stop)}


def frame(spark: Any, start: int, stop: int, ts: int) -> Any:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(0.5)  # long enough for both executors to get a task
        yield from batches

    rows = (stop - start) + (stop - start) // 3
    return spark.range(0, rows, 1, MAP_TASKS).mapInArrow(slowly, "id long").selectExpr(*batch(start, stop, ts)[0])


def arrow(start: int, stop: int, ts: int) -> pa.Table:
    width = stop - start
    rows = [(start + n % width, n, ts - n // width) for n in range(width + width // 3)]
    columns = [[i for i, _, _ in rows], [f"c{i % 3}" for i, _, _ in rows], [f"v{n}" for _, n, _ in rows]]
    return pa.table([*columns, [t for _, _, t in rows]], schema=SCHEMA)


def make(s3: dict[str, Any], spark: Any, name: str, index: str) -> lakebed.Table:
    return lakebed.create(
        f"s3://lake/{name}",
        SCHEMA,
        key="id",
        partition_by=None if index == "bucket" else "city",
        ordering="ts",
        index=index,
        buckets=6 if index == "bucket" else None,
        spark=spark,
        storage_options=s3["options"],
    )


def read_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.select(SCHEMA.names).to_pylist(), key=lambda row: row["id"])


def expected(model: Model) -> list[dict[str, Any]]:
    return [model[i] for i in sorted(model)]


def data_files(storage: Storage, instant: str) -> list[str]:
    """The data files of one write in a listing of everything that the table has."""
    return sorted(i.path for i in storage.list() if i.path.endswith(f"_{instant}.parquet") and ".hoodie" not in i.path)


def check(table: lakebed.Table, s3: dict[str, Any], result: lakebed.WriteResult, model: Model) -> None:
    """Each row once, and nothing on storage of the write but what it names."""
    assert read_rows(table.scan().to_arrow()) == expected(model)
    storage = open_storage(table.uri, s3["options"])
    assert data_files(storage, result.instant) == sorted(result.files)
    assert [i.path for i in storage.list(".hoodie/.temp")] == []
    assert [i.path for i in storage.list(".hoodie/.heartbeat")] == []


@pytest.mark.rest
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_same_upserts_as_in_process(
    spark: Any, s3: dict[str, Any], index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(s3, spark, f"same-{index}", index)
    twin = make(s3, None, f"twin-{index}", index)
    model: Model = {}
    for start, stop, ts in ((0, 150, 10), (100, 250, 20)):
        model |= batch(start, stop, ts)[1]
        ours = table.upsert(frame(spark, start, stop, ts))
        theirs = twin.upsert(arrow(start, stop, ts))
        assert (ours.rows, ours.inserted, ours.updated) == (theirs.rows, theirs.inserted, theirs.updated)
        check(table, s3, ours, model)
    assert read_rows(twin.scan().to_arrow()) == expected(model)
    monkeypatch.setattr(sharing, "matters", set[Any]())
    with pytest.warns(UserWarning, match="no file system for s3a") as warned:
        frames = [table.scan().to_spark(), table.scan(where="id >= 100 and city = 'c1'").to_spark()]
    assert len(warned) == 1
    assert read_rows(frames[0].toArrow()) == expected(model)
    assert frames[1].count() == 50
    assert table.delete(spark.range(0, 40)).deleted == 40
    assert table.count() == 210


@pytest.mark.parametrize(("index", "deed"), [("bucket", "kill before"), ("bucket", "kill"), ("simple", "kill")])
def test_a_killed_task_leaves_the_right_rows_and_no_file_in_the_commit(
    spark: Any, s3: dict[str, Any], strike: Any, index: str, deed: str
) -> None:
    table = make(s3, spark, f"{deed.replace(' ', '-')}-{index}", index)
    table.upsert(arrow(0, 100, 10))
    struck = strike(deed)
    result = table.upsert(frame(spark, 50, 200, 20))
    assert struck() not in result.files
    check(table, s3, result, batch(0, 100, 10)[1] | batch(50, 200, 20)[1])


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_a_killed_executor_and_the_stage_it_held_the_input_of(
    spark: Any, s3: dict[str, Any], strike: Any, index: str
) -> None:
    table = make(s3, spark, f"executor-{index}", index)
    table.upsert(arrow(0, 100, 10))
    struck = strike("kill executor")
    result = with_a_second_attempt(spark, f"executor-{index}", table)
    assert struck() not in result.files
    check(table, s3, result, batch(0, 100, 10)[1] | batch(50, 200, 20)[1])


DRAWN = [
    pytest.param(index, verb, marks=() if (index, verb) == ("simple", "upsert") else pytest.mark.rest)
    for index in ("simple", "bucket", "record", "bloom")
    for verb in ("upsert", "insert")
]


@pytest.mark.rest
@pytest.mark.parametrize(("index", "verb"), DRAWN)
def test_a_killed_executor_and_rows_whose_partition_is_drawn(
    spark: Any, s3: dict[str, Any], strike: Any, index: str, verb: str
) -> None:
    """The second attempt of a task draws other partitions: each row is written once nevertheless."""

    def draw(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(0.5)  # long enough for both executors to get a task
        for batch in batches:
            cities = pa.array([f"c{random.randrange(6)}" for _ in range(batch.num_rows)])
            values = pa.array([f"v{n}" for n in batch.column(0).to_pylist()])
            times = pa.array([10] * batch.num_rows)
            yield pa.RecordBatch.from_arrays([batch.column(0), cities, values, times], names=SCHEMA.names)

    table = lakebed.create(
        f"s3://lake/drawn-{index}-{verb}",
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index=index,
        buckets=4 if index == "bucket" else None,
        spark=spark,
        storage_options=s3["options"],
    )
    struck = strike("kill executor")
    rows = spark.range(0, 4000, 1, MAP_TASKS).mapInArrow(draw, "id long, city string, v string, ts long")
    result = getattr(table, verb)(rows)
    assert struck() not in result.files
    assert (result.rows, result.inserted) == (4000, 4000)
    stored = table.scan(columns=["id", "v"]).to_arrow().sort_by("id")
    assert stored["id"].to_pylist() == list(range(4000))
    assert stored["v"].to_pylist() == [f"v{n}" for n in range(4000)]
    assert table.indexes.verify().ok


@pytest.mark.rest
def test_lost_shuffle_files_are_made_again_and_a_clean_leaves_no_orphan(
    spark: Any, s3: dict[str, Any], strike: Any
) -> None:
    table = make(s3, spark, "shuffle", "bucket")
    first = table.upsert(arrow(0, 100, 10))
    strike("lose shuffle")
    second = with_a_second_attempt(spark, "shuffle", table)
    check_after_clean(table, s3, [first, second], batch(0, 100, 10)[1] | batch(50, 200, 20)[1])


def with_a_second_attempt(spark: Any, group: str, table: lakebed.Table) -> lakebed.WriteResult:
    """An upsert of which Spark tries a stage again."""
    context = spark.sparkContext
    context.setJobGroup(group, "a write whose stages are tried again")
    result = table.upsert(frame(spark, 50, 200, 20))
    tracker = context.statusTracker()
    stages = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup(group)
        for stage in tracker.getJobInfo(job).stageIds
    ]
    assert any(stage is not None and stage.currentAttemptId > 0 for stage in stages), "no stage was tried again"
    return result


def check_after_clean(
    table: lakebed.Table, s3: dict[str, Any], results: list[lakebed.WriteResult], model: Model
) -> None:
    """`check` after a clean that retains one commit: no data file is left that no commit names."""
    table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
    check(table, s3, results[-1], model)
    paths = [item.path for item in open_storage(table.uri, s3["options"]).list()]
    stored = {path for path in paths if path.endswith(".parquet") and not path.startswith(".hoodie")}
    assert stored <= {path for result in results for path in result.files}


@pytest.mark.rest
def test_a_speculative_attempt_leaves_one_file(spark: Any, s3: dict[str, Any], strike: Any) -> None:
    table = make(s3, spark, "speculation", "bucket")
    struck = strike("hang")
    result = table.upsert(frame(spark, 0, 150, 10))
    assert struck() not in result.files
    check(table, s3, result, batch(0, 150, 10)[1])


@pytest.mark.rest
def test_an_attempt_that_ends_after_the_commit(spark: Any, s3: dict[str, Any], strike: Any, deeds: Path) -> None:
    table = make(s3, spark, "late", "bucket")
    struck = strike("outlive")
    result = table.upsert(frame(spark, 0, 150, 10))
    storage = open_storage(table.uri, s3["options"])
    end = time.monotonic() + 60
    while not (deeds / "outlived").exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert (deeds / "outlived").read_text() == struck()
    while data_files(storage, result.instant) != sorted(result.files) and time.monotonic() < end:
        time.sleep(0.1)
    check(table, s3, result, batch(0, 150, 10)[1])


@pytest.mark.rest
def test_half_of_all_rows_in_one_bucket_are_written_by_executors_of_512_mib(spark: Any, s3: dict[str, Any]) -> None:
    """The bucket is of the city, and half of all rows are in one city: one task writes half of the table."""
    rows, cities = 400_000, 64
    table = lakebed.create(
        "s3://lake/skew",
        SCHEMA,
        key=["city", "id"],
        ordering="ts",
        index="bucket",
        buckets=8,
        spark=spark,
        hash_fields="city",
        storage_options=s3["options"],
    )
    city = f"case when id % 2 = 0 then 'c0' else concat('c', id % {cities}) end as city"
    for ts in (10, 20):
        many = spark.range(0, rows, 1, MAP_TASKS).selectExpr("id", city, f"concat('v', id + {ts}) as v", f"{ts} as ts")
        result = table.upsert(many.selectExpr("id", "city", "v", "cast(ts as bigint) as ts"))
        assert result.rows == rows
    found_rows = table.scan().to_arrow().sort_by("id")
    ids = list(range(rows))
    assert found_rows["id"].to_pylist() == ids
    assert found_rows["v"].to_pylist() == [f"v{i + 20}" for i in ids]
    assert found_rows["city"].to_pylist() == ["c0" if i % 2 == 0 else f"c{i % cities}" for i in ids]
    largest = max(table.scan().files, key=lambda file: file.size)
    assert table.scan(where="city = 'c0'").files == (largest,)


@pytest.mark.rest
def test_a_driver_of_600_mib_collects_100_000_statuses_with_statistics_of_14_columns(spark: Any) -> None:
    """Uncompressed the statistics alone would take 960 MB."""
    count = 100_000
    values = {"min": 1, "max": 2, "null_count": 0, "value_count": 3, "total_size": 4, "total_uncompressed": 5}
    ranges = as_stream(pa.RecordBatch.from_pylist([{f"column_{n}": values for n in range(14)}]))

    def statuses(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in batches:
            numbers = some.column(0).to_pylist()
            yield to_batch([WriteStatus("p", str(n), path=f"p/{n}", num_writes=n, ranges=ranges) for n in numbers])

    engine = SparkEngine(spark)
    written = spark.range(0, count, 1, 8).mapInArrow(statuses, arrow_to_spark_ddl(STATUS_SCHEMA))
    collected = checked_statuses(engine.collect(written))
    assert [int(status.file_id) for status in collected] == list(range(count))
    assert sum(status.num_writes for status in collected) == count * (count - 1) // 2
    assert {status.ranges for status in collected} == {ranges}


@pytest.mark.rest
def test_a_killed_worker_leaves_the_right_rows_and_a_clean_no_orphan(
    spark: Any, s3: dict[str, Any], strike: Any
) -> None:
    """The last test of the cluster: it has one worker less."""
    table = make(s3, spark, "worker", "bucket")
    first = table.upsert(arrow(0, 100, 10))
    struck = strike("kill worker")
    second = table.upsert(frame(spark, 50, 200, 20))
    assert struck() not in second.files
    check_after_clean(table, s3, [first, second], batch(0, 100, 10)[1] | batch(50, 200, 20)[1])
