"""A process of Spark with Delta Lake's and Iceberg's jars, which reads published lists: `python list_readers.py FILE`.

The file is JSON with the `jars` and the `reads`: format, URI, version (none for the newest) and the file for the rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.feather
from pyspark.sql import SparkSession


def read_all(jars: list[str], reads: list[list[Any]]) -> None:
    settings = {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    for form, uri, version, target in reads:
        reader = spark.read.format(form)
        if version is not None:
            reader = reader.option("versionAsOf", version)
        pyarrow.feather.write_feather(reader.load(uri).toArrow(), target)
    spark.stop()


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    read_all(given["jars"], given["reads"])
