"""What a write tells of its search for keys is counted on Spark as in this process, by the jobs that run anyway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.engine.spark import SparkEngine
from support.lookup_tables import CASES, NAMES, NEXT, Counts, check, lookup_table


@pytest.mark.parametrize(("counts", "kind"), CASES, ids=NAMES)
def test_a_write_on_spark_reports_its_key_lookups(
    spark: SparkSession, tmp_path: Path, counts: Counts, kind: Any
) -> None:
    uri = str(tmp_path / "t")
    lookup_table(uri, counts.index, kind)
    rows = spark.createDataFrame(NEXT.to_pandas())
    # the simple indexes leave base files to Spark's own reader
    check(counts, lakebed.open(uri, spark=spark).upsert(rows).lookup, knows_bytes="simple" not in counts.index)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", ["global_simple", "global_bloom"])
def test_a_row_that_moves_is_one_updated_row_on_spark(
    spark: SparkSession, tmp_path: Path, index: str, kind: Any
) -> None:
    uri = str(tmp_path / "t")
    lookup_table(uri, index, kind)
    table = lakebed.open(uri, spark=spark)
    done = table.upsert(spark.createDataFrame(NEXT.to_pandas()))
    assert (done.rows, done.inserted, done.updated, done.deleted) == (4, 1, 3, 0)
    found = table.get(["a0", "b0", "n0", "b1"], columns=["id", "region"]).to_pylist()
    assert sorted((row["id"], row["region"]) for row in found) == [
        ("a0", "eu"),
        ("b0", "eu"),
        ("b1", "us"),
        ("n0", "asia"),
    ]


def test_keys_are_counted_without_a_job_more(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "t")
    lookup_table(uri, "record", "cow")
    jobs: list[int] = []
    collect = SparkEngine.collect

    def counted(self: SparkEngine, rows: Any) -> pa.Table:
        table = collect(self, rows)
        jobs.append(table.num_rows)
        return table

    monkeypatch.setattr(SparkEngine, "collect", counted)
    done = lakebed.open(uri, spark=spark).upsert(spark.createDataFrame(NEXT.to_pandas()))
    # rows by place, a sample of new rows, and the statuses of the file groups
    assert jobs == [3, 4, 3]
    assert done.lookup is not None
    assert (done.lookup.keys, done.lookup.tagged, done.lookup.index_files > 0) == (4, 3, True)
