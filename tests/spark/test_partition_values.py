"""Spark's tasks refuse values that make no partition path of the table; nothing of the write is visible."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.errors import InvalidRecord

pytestmark = pytest.mark.rest
IN_TASKS = {"lakebed.local.rows": 0}


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_bad_partition_values_are_refused_and_nothing_is_written(spark: SparkSession, tmp_path: Path, index: str):
    schema = "id long, city string, v string"
    good = spark.createDataFrame([(1, "a", "x"), (2, "b/c", "x")], schema)
    buckets = 2 if index == "bucket" else None
    table = lakebed.create(
        str(tmp_path / "t"), good, key="id", partition_by="city", index=index, buckets=buckets, spark=spark
    )
    table.upsert(good)
    inside = sorted(p.name for p in tmp_path.iterdir())
    for verb, value in (("upsert", "../x"), ("bulk_insert", ".hoodie/metadata"), ("insert_overwrite", "/abs")):
        with pytest.raises(InvalidRecord, match="partition path") as raised:
            getattr(table, verb)(spark.createDataFrame([(1, "a", "y"), (3, value, "y")], schema))
        assert value in str(raised.value)
        assert "city" in str(raised.value)
    stored = table.scan().to_spark().sort("id").collect()
    assert [tuple(row) for row in stored] == [(1, "a", "x"), (2, "b/c", "x")]
    assert sorted(p.name for p in tmp_path.iterdir()) == inside


@pytest.mark.parametrize("index", ["bucket", "global_simple"])
@pytest.mark.parametrize("hive_style", [True, False])
def test_texts_that_paths_would_give_as_null_are_refused_where_files_lack_the_column(
    spark: SparkSession, tmp_path: Path, index: str, hive_style: bool
):
    schema = "id long, city string, v string"
    good = spark.createDataFrame([(1, "a", "x"), (2, None, "x")], schema)
    options = {
        "hoodie.datasource.write.drop.partition.columns": True,
        "hoodie.datasource.write.hive_style_partitioning": hive_style,
    }
    buckets = 2 if index == "bucket" else None
    table = lakebed.create(
        str(tmp_path / "t"),
        good,
        key="id",
        partition_by="city",
        index=index,
        buckets=buckets,
        properties=options,
        spark=spark,
    )
    table.upsert(good)
    for verb in ("upsert", "bulk_insert", "insert_overwrite"):
        for value in ("", "__HIVE_DEFAULT_PARTITION__"):
            rows = spark.range(3, 5).selectExpr("id", f"if(id = 3, 'b', '{value}') city", "'y' v")
            with pytest.raises(InvalidRecord, match="would read null"):
                getattr(table, verb)(rows, options=IN_TASKS)
    stored = table.scan().to_spark().select("id", "city", "v").sort("id").collect()
    assert [tuple(row) for row in stored] == [(1, "a", "x"), (2, None, "x")]
