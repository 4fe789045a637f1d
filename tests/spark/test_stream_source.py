"""`spark.readStream.format("lakebed")` on Spark: exactly the rows, also after a stop, and a copy of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import lakebed
from support.write_tables import SCHEMA, content, rows

# Spark gives a source the start of a batch, and runs `availableNow` to its end.
ADMITS = hasattr(__import__("pyspark.sql.datasource", fromlist=["_"]).DataSourceStreamReader, "getDefaultReadLimit")


def run(stream: Any, checkpoint: Path, sink: Any) -> None:
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination(120)


def test_a_stream_copies_a_table_over_stops_with_limits_and_deletes(tmp_path: Path, spark: Any) -> None:
    properties = {"hoodie.table.cdc.enabled": True, "hoodie.clean.automatic": False, "hoodie.compact.inline": False}
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "index": "bucket", "buckets": 2, "type": "mor"}
    source = lakebed.create(str(tmp_path / "source"), SCHEMA, properties=properties, **words)
    copy = lakebed.create(str(tmp_path / "copy"), SCHEMA, **words)
    stream = (
        spark.readStream.format("lakebed").option("query", "cdc").option("maxCommitsPerTrigger", "2").load(source.uri)
    )
    sizes: list[int] = []

    def apply(frame: Any, number: int) -> None:
        changes = frame.toArrow().to_pylist()
        sizes.append(len(changes))
        if written := [change["after"] for change in changes if change["after"] is not None]:
            copy.upsert(pa.Table.from_pylist(written, SCHEMA))
        if deleted := [change["before"]["id"] for change in changes if change["op"] == "d"]:
            copy.delete(deleted)

    def catch_up() -> None:
        for _ in range(1 if ADMITS else 3):  # before 4.2 a run has one batch
            run(stream, tmp_path / "checkpoint", apply)

    source.upsert(rows(*((n, "a", "0", 0) for n in range(4))))
    source.upsert(rows((1, "a", "1", 1)))
    source.maintenance.compact()
    source.delete([2])
    source.upsert(rows((9, "b", "9", 1)))
    catch_up()
    assert content(copy) == content(source)
    assert sizes == [5, 2]
    source.upsert(rows((3, "a", "33", 2)))
    source.maintenance.compact()
    catch_up()
    assert content(copy) == content(source)
    assert sizes == [5, 2, 1]


@pytest.mark.rest
def test_rows_of_a_stream_go_on_after_a_restart_and_its_errors_name_the_first_start(tmp_path: Path, spark: Any) -> None:
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", ordering="ts", index="simple")
    table.upsert(rows((1, "a", "1", 1), (2, "a", "2", 1)))
    seen: list[list[tuple[int, str]]] = []

    def collect(frame: Any, number: int) -> None:
        seen.append(sorted((row["id"], row["v"]) for row in frame.toArrow().to_pylist()))

    stream = spark.readStream.format("lakebed").option("consumer", "spark").option("where", "id > 1").load(table.uri)
    run(stream, tmp_path / "checkpoint", collect)
    table.upsert(rows((2, "a", "22", 2), (3, "a", "3", 2)))
    run(stream, tmp_path / "checkpoint", collect)
    assert seen == [[(2, "2")], [(2, "22"), (3, "3")]]
    assert [consumer.name for consumer in table.consumers] == ["spark"]
    options = {
        "lakebed.consumers.max_lag": 0,
        "hoodie.clean.commits.retained": 1,
        "hoodie.keep.min.commits": 3,
        "hoodie.keep.max.commits": 4,
        "hoodie.metadata.compact.max.delta.commits": 1,
    }
    for n in range(8):
        table.upsert(rows((2, "a", str(n), 10 + n)), options=options)
    with pytest.raises(StreamingQueryException, match=r"CheckpointBehind.*go on from the first position"):
        run(stream, tmp_path / "checkpoint", collect)


@pytest.mark.rest
def test_a_stream_of_rows_goes_into_a_table_each_batch_once(tmp_path: Path, spark: Any) -> None:
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "index": "bucket", "buckets": 2}
    source = lakebed.create(str(tmp_path / "source"), SCHEMA, type="mor", **words)
    copy = lakebed.create(str(tmp_path / "copy"), SCHEMA, **words)
    stream = spark.readStream.format("lakebed").load(source.uri)
    for n in range(2):
        source.upsert(rows((1, "a", str(n), n), (10 + n, "b", str(n), n)))
        trigger = {"availableNow": True}
        lakebed.stream_into(stream, copy, checkpoint=str(tmp_path / "c"), trigger=trigger).awaitTermination(120)
        assert content(copy) == content(source)
    assert len([instant for instant in copy.timeline if instant.action.value == "commit"]) == 2
