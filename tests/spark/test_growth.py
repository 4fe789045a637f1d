"""Buckets that split while Spark writes them: rows and files as in this process, by upserts and by streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.format.file_names import bucket_of_file_id
from lakebed.table import Table
from support.compaction_tables import snapshot
from support.write_tables import SCHEMA, content, rows

GROW = {"hoodie.compact.inline": False, "lakebed.index.bucket.grow": True}
ADVISED = "lakebed.index.bucket.advised.bytes"
ON_SPARK = {"lakebed.local.rows": 0}
FIRST = [(n, f"c{n % 2}", f"v{n}", 1) for n in range(80)]
BATCH = [(1, "c1", "w", 2), (3, "c1", "w", 2), (201, "c1", "w", 2)]


def new_table(folder: Path, name: str, **given: Any) -> Table:
    words: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "bucket", "buckets": 2}
    table = lakebed.create(str(folder / name), SCHEMA, properties=GROW, **words | given)
    table.upsert(rows(*FIRST))
    table.upsert(rows((1, "c1", "newer", 1), (2, "c0", "newer", 1)))
    return table


def buckets(table: Table) -> dict[tuple[str, int | None], list[int]]:
    """The keys of each bucket."""
    view = snapshot(lakebed.open(table.uri))
    return {
        (one.partition, bucket_of_file_id(one.file_id)): sorted(
            key for batch in view.reader.read(one, ["id"]) for key in batch.column(0).to_pylist()
        )
        for one in view.file_slices()
    }


@pytest.mark.parametrize(("kind", "path"), [("cow", "city"), ("mor", None)])
def test_an_upsert_on_spark_splits_as_one_in_this_process(
    tmp_path: Path, spark: Any, kind: Any, path: str | None
) -> None:
    table, local = (new_table(tmp_path, name, type=kind, partition_by=path) for name in ("spark", "local"))
    frame = spark.createDataFrame(rows(*BATCH).to_pandas())
    # some bucket of the table is too large, none that the rows go to
    if path is not None:
        large = rows(*((n, "c9", "large", 1) for n in range(1000, 3000)))
        for one in (table, local):
            one.upsert(large)
        done = table.upsert(frame, options={**ON_SPARK, ADVISED: 5000})
        assert done.bucket_changes == ()
        local.upsert(rows(*BATCH))
    options = {ADVISED: 2500}
    done = table.upsert(frame, options={**options, **ON_SPARK})
    here = local.upsert(rows(*BATCH), options=options)
    assert done.bucket_changes
    assert done.bucket_changes == here.bucket_changes
    counts = (done.rows, done.inserted, done.updated, done.unchanged)
    assert counts == (here.rows, here.inserted, here.updated, here.unchanged)
    assert content(table) == content(local)
    assert buckets(table) == buckets(local)
    assert lakebed.open(table.uri).indexes.verify().ok


def test_the_batches_of_a_stream_split_buckets(tmp_path: Path, spark: Any) -> None:
    table = new_table(tmp_path, "stream")
    source = tmp_path / "source"
    frame = spark.createDataFrame(rows(*((n, f"c{n % 2}", "s", 2) for n in range(40, 160))).to_pandas())
    frame.write.parquet(str(source))
    table.configure({ADVISED: 2500})
    stream = spark.readStream.schema(frame.schema).parquet(str(source))
    query = lakebed.stream_into(stream, table, checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True})
    assert query.awaitTermination(120)
    model = {n: (n, f"c{n % 2}", f"v{n}", 1) for n in range(40)} | {n: (n, f"c{n % 2}", "s", 2) for n in range(40, 160)}
    model |= {1: (1, "c1", "newer", 1), 2: (2, "c0", "newer", 1)}
    assert content(table) == sorted(model.values())
    found = buckets(table)
    assert {path for path, _ in found} == {"c0", "c1"}
    assert len(found) == 8
    opened = lakebed.open(table.uri)
    assert opened.properties["lakebed.index.bucket.partitions"] == "^c1$,4;^c0$,4"
    opened.indexes.index.check(snapshot(opened))
    assert opened.indexes.verify().ok
