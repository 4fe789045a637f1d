"""`index="auto"` for DataFrames: their size is the optimizer's guess, no job runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.engine.spark import SparkEngine


@pytest.mark.parametrize(
    ("rows", "partition_by", "index", "reason"),
    [
        (1_000, None, "simple", "a base file or two"),
        (100_000_000, None, "bucket", "make 8 buckets"),
        (100_000_000, "city", "simple", "whose number is not known"),
    ],
)
def test_auto_chooses_by_the_size_of_a_dataframe(
    spark: SparkSession, tmp_path: Path, rows: int, partition_by: str | None, index: str, reason: str
):
    data = spark.range(rows).selectExpr("id", "id % 3 as city", "id as ts")
    table = lakebed.create(str(tmp_path / "t"), data, key="id", ordering="ts", partition_by=partition_by)
    assert table.indexes.index.name == index
    assert reason in table.indexes.reason


def test_auto_says_so_where_the_optimizer_has_no_estimate(spark: SparkSession, tmp_path: Path):
    unknown = spark.sparkContext.parallelize([(1, 1)]).toDF("id long, ts long")
    assert SparkEngine(spark).estimated_rows(unknown, 10.0) is None
    table = lakebed.create(str(tmp_path / "t"), unknown, key="id")
    assert "the size of the table is not known" in table.indexes.reason
