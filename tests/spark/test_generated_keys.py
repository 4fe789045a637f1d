"""The update step of Hudi's quickstart without a key: rows that Spark read from the table are not appended to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakebed
from lakebed.errors import UnsupportedFeature

OPTIONS = {"hoodie.table.name": "trips", "hoodie.datasource.write.partitionpath.field": "city"}


def test_rows_that_spark_read_from_a_table_with_generated_keys_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "trips")
    schema = "ts int, rider string, fare double, city string"
    rows = spark.createDataFrame([(1, "a", 1.0, "x"), (2, "b", 2.0, "y")], schema)
    lakebed.write(rows, uri, OPTIONS, mode="overwrite")
    table = lakebed.open(uri, spark=spark)
    for read in (table.scan().to_spark(), spark.read.format("lakebed").load(uri)):
        updates = read.filter("rider = 'b'").withColumn("fare", F.col("fare") * 10)
        with pytest.raises(UnsupportedFeature, match="were read from this table"):
            lakebed.write(updates, uri, OPTIONS)
        assert table.count() == 2
    lakebed.write(rows.limit(1), uri, OPTIONS)
    assert table.count() == 3
