"""Streams that write tables: by `stream_into`, and by `format("lakebed")`, which writes DataFrames, too."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

import lakebed
from lakebed import Table
from lakebed.engine.spark import SparkEngine
from lakebed.errors import InvalidOption
from lakebed.timeline.streams import STREAMS

NOW = {"availableNow": True}
Rows = list[dict[str, int]]
# Each file is a micro-batch.
BATCHES: list[Rows] = [[{"id": n, "n": n}, {"id": n + 1, "n": n}] for n in range(3)]


def source(spark: Any, folder: Path, batches: list[Rows] = BATCHES) -> Any:
    """A stream whose micro-batches are these rows."""
    (folder / "in").mkdir()
    for n, rows in enumerate(batches):
        file = folder / "in" / f"{n:03}.parquet"
        pq.write_table(pa.Table.from_pylist(rows), file)
        os.utime(file, (n, n))  # Spark takes them in this order
    return spark.readStream.schema("id long, n long").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))


def created(path: Path, kind: str = "mor") -> Table:
    return lakebed.create(str(path), {"id": [1], "n": [1]}, key="id", type=kind, index="bucket", buckets=2)


def commits(t: Table) -> list[tuple[int, int]]:
    """The batch and the rows that each commit of a stream wrote, the first commit first."""
    timeline = t.opened.snapshot().timeline
    found: list[tuple[int, int]] = []
    for instant in timeline.commits_by_completion:
        body = timeline.commit_metadata(instant)
        if body.operation != "COMPACT":
            batch = list(json.loads(body.extra[STREAMS]).values())[-1]
            found.append((batch, sum(stat.num_writes for stats in body.stats.values() for stat in stats)))
    return found


def rows_of(t: Table) -> Rows:
    return t.scan(["id", "n"]).to_arrow().sort_by("id").to_pylist()


def run(query: Any) -> None:
    assert query.awaitTermination(120)


AFTER_ALL = [{"id": n, "n": min(n, 2)} for n in range(4)]


def test_each_batch_is_one_commit_and_small_ones_are_collected(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = created(tmp_path / "t")
    kinds: list[bool] = []
    upsert = Table.upsert

    def noted(table: Table, rows: Any, **words: Any) -> Any:
        kinds.append(isinstance(rows, pa.Table))
        return upsert(table, rows, **words)

    monkeypatch.setattr(Table, "upsert", noted)
    stream = source(spark, tmp_path)
    for _ in range(2):
        run(lakebed.stream_into(stream, t, checkpoint=tmp_path / "checkpoint", trigger=NOW))
        assert kinds == [False, True, True]  # rows of the first batch are not known before
    assert commits(t) == [(n, 2) for n in range(3)]
    assert rows_of(t) == AFTER_ALL
    # a new checkpoint location is another stream: its batches 0 to 2 are written
    run(lakebed.stream_into(stream, t, checkpoint=tmp_path / "new", trigger=NOW, max_local_bytes=0))
    assert kinds[3:] == [False] * 3
    assert commits(t)[3:] == [(n, 2) for n in range(3)]
    assert rows_of(t) == AFTER_ALL


def test_a_batch_that_is_larger_than_expected_is_written_by_a_job(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = created(tmp_path / "t")

    def refused(engine: SparkEngine, rows: Any) -> Any:
        raise RuntimeError("Total size of serialized results (2 GiB) is bigger than spark.driver.maxResultSize (1 GiB)")

    monkeypatch.setattr(SparkEngine, "collect_normalised", refused)
    run(lakebed.stream_into(source(spark, tmp_path, BATCHES[:2]), t, checkpoint=tmp_path / "checkpoint", trigger=NOW))
    assert commits(t) == [(0, 2), (1, 2)]


@pytest.mark.rest
def test_operations_of_a_stream(spark: Any, tmp_path: Path) -> None:
    t = created(tmp_path / "t", "cow")
    stream = source(spark, tmp_path, BATCHES[:2])
    totals = stream.groupBy((stream.id % 2).alias("id")).sum("n").withColumnRenamed("sum(n)", "n")
    for mode in ("update", "complete"):
        checkpoint = tmp_path / mode
        run(lakebed.stream_into(totals, t, checkpoint=checkpoint, output_mode=mode, trigger=NOW))  # pyright: ignore[reportArgumentType]
        assert rows_of(t) == [{"id": 0, "n": 1}, {"id": 1, "n": 1}]
    t.upsert({"id": [8], "n": [8]})
    run(
        lakebed.stream_into(
            totals,
            t,
            checkpoint=tmp_path / "replaced",
            output_mode="complete",
            operation="insert_overwrite_table",
            trigger=NOW,
        )
    )
    assert rows_of(t) == [{"id": 0, "n": 1}, {"id": 1, "n": 1}]

    def added(table: Table, rows: Any, once: lakebed.Once) -> None:
        merge = table.merge(rows.groupBy("id").sum("n").withColumnRenamed("sum(n)", "n"))
        merge.when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert().execute(once=once)

    run(lakebed.stream_into(stream, t, checkpoint=tmp_path / "added", operation=added, trigger=NOW))
    assert rows_of(t) == [{"id": 0, "n": 1}, {"id": 1, "n": 2}, {"id": 2, "n": 1}]
    run(lakebed.stream_into(stream.select("id"), t, checkpoint=tmp_path / "gone", operation="delete", trigger=NOW))
    assert rows_of(t) == []


def test_streams_that_cannot_be_written_are_refused(spark: Any, tmp_path: Path) -> None:
    t = created(tmp_path / "t")
    stream = source(spark, tmp_path)
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: lakebed.stream_into(spark.range(1), t, checkpoint="c"), "takes a streaming DataFrame"),
        (lambda: lakebed.stream_into(stream, t, checkpoint="c", operation="merge"), "not 'merge'"),  # pyright: ignore[reportArgumentType]
        (lambda: lakebed.stream_into(stream, t, checkpoint="c", output_mode="all"), "append, update or complete"),  # pyright: ignore[reportArgumentType]
        (
            lambda: lakebed.stream_into(stream, t, checkpoint="c", operation="insert", output_mode="complete"),
            "would add a row again each time that it changes",
        ),
        (lambda: lakebed.stream_into(stream, t, checkpoint="c", options={"hoodie.x": 1}), "hoodie.x"),
    ]
    for call, message in refusals:
        with pytest.raises(InvalidOption, match=message):
            call()
    assert len(t.timeline) == 0


def target(stream: Any, t: Table, checkpoint: Path, **options: str) -> Any:
    writer = stream.writeStream.format("lakebed").option("path", t.uri).option("checkpointLocation", str(checkpoint))
    return writer.options(**options).trigger(availableNow=True)


def staged(t: Table) -> list[str]:
    folder = Path(t.uri) / ".hoodie" / ".temp"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_stream_into_the_format_commits_each_batch_once(spark: Any, tmp_path: Path) -> None:
    t = created(tmp_path / "t")
    stream = source(spark, tmp_path)
    for _ in range(2):
        run(target(stream, t, tmp_path / "checkpoint").start())
    assert commits(t) == [(n, 2) for n in range(3)]
    assert rows_of(t) == AFTER_ALL
    assert staged(t) == []
    run(target(stream, t, tmp_path / "new", operation="delete", identifier="other").start())
    assert (rows_of(t), staged(t)) == ([], [])
    totals = stream.groupBy("id").sum("n").withColumnRenamed("sum(n)", "n")
    t.upsert({"id": [77], "n": [7]})
    run(target(totals, t, tmp_path / "complete").outputMode("complete").start())
    assert Counter(row["id"] for row in rows_of(t)) == Counter(range(4))
    with pytest.raises(StreamingQueryException, match="would add a row again each time"):
        run(target(totals, t, tmp_path / "added", operation="insert").outputMode("complete").start())


@pytest.mark.rest
@pytest.mark.parametrize("face", ["stream_into", "format"])
def test_a_batch_that_spark_runs_again_is_skipped(face: str, spark: Any, tmp_path: Path) -> None:
    t = created(tmp_path / "t", "cow")
    stream = source(spark, tmp_path, BATCHES[:2])

    def start(checkpoint: Path) -> None:
        if face == "format":
            run(target(stream, t, checkpoint, operation="insert").start())
        else:
            run(lakebed.stream_into(stream, t, checkpoint=checkpoint, operation="insert", trigger=NOW))

    start(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    written = [batch for batch, _ in commits(t)]
    assert (written, t.count()) == ([0, 1], 4)
    # as a driver leaves it that dies between the commit and Spark's own record of the batch
    for left in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        left.unlink()
    start(tmp_path / "checkpoint")
    assert ([batch for batch, _ in commits(t)], t.count(), staged(t)) == ([0, 1], 4, [])
    # two drivers of one query: the second one finds the next batch written
    pq.write_table(pa.table({"id": [8], "n": [8]}), tmp_path / "in" / "009.parquet")
    start(tmp_path / "checkpoint")
    start(tmp_path / "copy")
    assert ([batch for batch, _ in commits(t)], t.count(), staged(t)) == ([0, 1, 2], 5, [])


def test_a_batch_with_a_failing_task_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    t = created(tmp_path / "t")
    stream = source(spark, tmp_path, [BATCHES[0], [{"id": 9, "n": 0}]])
    failing = stream.selectExpr("id", "IF(id = 9, raise_error('the ninth'), n) AS n")
    with pytest.raises(StreamingQueryException, match="the ninth"):
        run(target(failing, t, tmp_path / "checkpoint").start())
    assert commits(t) == [(0, 2)]
    assert staged(t) == []
    # the query goes on behind it
    run(target(stream, t, tmp_path / "checkpoint").start())
    assert commits(t) == [(0, 2), (1, 1)]


def test_a_dataframe_is_written_by_the_format(spark: Any, tmp_path: Path) -> None:
    t = created(tmp_path / "t")
    frame = spark.createDataFrame([(1, 10), (2, 20)], "id long, n long")
    for mode in ("append", "overwrite"):
        frame.write.format("lakebed").mode(mode).save(t.uri)
        assert rows_of(t) == [{"id": 1, "n": 10}, {"id": 2, "n": 20}]
    spark.createDataFrame([(1,)], "id long").write.format("lakebed").mode("append").option(
        "hoodie.datasource.write.operation", "delete"
    ).save(t.uri)
    assert rows_of(t) == [{"id": 2, "n": 20}]
    frame.where("id > 5").write.format("lakebed").mode("append").save(t.uri)
    assert len([i for i in t.timeline if i.action.value in ("deltacommit", "replacecommit")]) == 3
    frame.where("id > 5").write.format("lakebed").mode("overwrite").save(t.uri)
    assert rows_of(t) == []
    assert staged(t) == []


def test_a_view_takes_inserts(spark: Any, tmp_path: Path) -> None:
    t = created(tmp_path / "t")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_t USING lakebed OPTIONS (path '{t.uri}', operation 'upsert')")
    spark.sql("INSERT INTO of_t VALUES (1, 10), (2, 20)")
    spark.sql("INSERT INTO of_t SELECT id, n + 1 FROM of_t WHERE id = 2")
    assert rows_of(t) == [{"id": 1, "n": 10}, {"id": 2, "n": 21}]
    spark.sql("INSERT OVERWRITE of_t VALUES (3, 30)")
    assert rows_of(t) == [{"id": 3, "n": 30}]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_some USING lakebed OPTIONS (path '{t.uri}', where 'id = 3')")
    with pytest.raises(AnalysisException, match="'where' is an option of reads"):
        spark.sql("INSERT INTO of_some VALUES (1, 10)")


@pytest.mark.rest
def test_writes_that_the_format_refuses_name_the_better_way(spark: Any, tmp_path: Path) -> None:
    t = created(tmp_path / "t")
    frame = spark.createDataFrame([(1, 10)], "id long, n long")
    for options, uri, message in (
        ({"operation": "merge"}, t.uri, "t.merge"),
        ({}, str(tmp_path / "nothing"), "lakebed.create"),
    ):
        with pytest.raises(AnalysisException, match=message):
            frame.write.format("lakebed").mode("append").options(**options).save(uri)
    assert len(t.timeline) == 0


def test_a_write_and_a_stream_create_their_table(spark: Any, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, 1), (2, 2)], "id long, n long")
    of_hudi = {
        "hoodie.table.name": "trips",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "n",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    }
    for mode in ("append", "overwrite"):
        path = str(tmp_path / mode)
        for _ in range(2):  # the options stay where the table exists
            rows.write.format("lakebed").options(**of_hudi).mode(mode).save(path)
        t = lakebed.open(path)
        assert rows_of(t) == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]
        assert (t.name, t.properties["hoodie.table.type"]) == ("trips", "MERGE_ON_READ")
    writer = source(spark, tmp_path).writeStream.format("lakebed").option("checkpointLocation", str(tmp_path / "c"))
    writer.option("key", "id").trigger(**NOW).start(str(tmp_path / "streamed")).awaitTermination()
    assert rows_of(lakebed.open(str(tmp_path / "streamed"))) == [{"id": n, "n": min(n, 2)} for n in range(4)]
    for options, message in (({}, "Name its key"), ({"key": "nope"}, "not in the schema"), ({"kye": "id"}, "'key'")):
        with pytest.raises(AnalysisException, match=message):
            rows.write.format("lakebed").options(**options).mode("append").save(str(tmp_path / "none"))
        assert not (tmp_path / "none").exists()
