"""Spark's tasks refuse values that make no partition path of the table; nothing of the write is visible."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.errors import InvalidRecord

pytestmark = pytest.mark.rest


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
