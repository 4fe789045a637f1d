"""Save mode overwrite of DataFrames: a table with other columns and another key takes the old one's place."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.errors import InvalidRecord


def test_overwrite_with_another_key_and_schema(spark: SparkSession, tmp_path: Path):
    uri = str(tmp_path / "t")
    old = spark.createDataFrame([(1, "a", 1), (2, "b", 1)], "id long, city string, ts long")
    keyed = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "city"}
    lakebed.write(old, uri, keyed)
    new = spark.createDataFrame([("x", 1.5, 1), ("x", 2.5, 2), ("y", 3.5, 1)], "name string, n double, at long")
    options = {"hoodie.datasource.write.recordkey.field": "name", "hoodie.table.ordering.fields": "at"}
    bad = spark.createDataFrame([("x", 1.5, 1), (None, 2.5, 2)], "name string, n double, at long")
    with pytest.raises(InvalidRecord, match="null"):
        lakebed.write(bad, uri, options, mode="overwrite")
    assert [tuple(r) for r in lakebed.open(uri, spark=spark).scan().to_spark().sort("id").collect()] == [
        (1, "a", 1),
        (2, "b", 1),
    ]
    lakebed.write(new, uri, options, mode="overwrite")
    table = lakebed.open(uri, spark=spark)
    found = [tuple(r) for r in table.scan().to_spark().sort("name").collect()]
    assert found == [("x", 2.5, 2), ("y", 3.5, 1)]
    # a table may be overwritten with rows of its own
    lakebed.write(table.scan(where="name = 'y'").to_spark(), uri, options, mode="overwrite")
    assert [tuple(r) for r in lakebed.open(uri).scan().to_spark().collect()] == [("y", 3.5, 1)]
    assert lakebed.open(uri).indexes.verify().ok
