"""A short job with an installed lakebed: `python smoke_job.py FOLDER`. With PySpark installed it uses a session, too.

It prints one line, and fails where a row is not what it should be.
"""

from __future__ import annotations

import sys
import sysconfig
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

import lakebed

ROWS = {"id": [1, 2, 3], "city": ["rome", "oslo", "rome"], "fare": [9.5, 12.0, 7.25], "at": [1, 1, 1]}


def without_spark(uri: str) -> None:
    """Create, upsert, read, delete, changes."""
    rows = pa.table(ROWS)
    t = lakebed.create(uri, rows, key="id", partition_by="city", ordering="at", type="mor", index="bucket", buckets=2)
    first = t.upsert(rows)
    assert first.rows == 3, first
    t.upsert({"id": [2, 4], "city": ["oslo", "bern"], "fare": [13.0, 1.0], "at": [2, 2]})
    assert t.get([2])["fare"].to_pylist() == [13.0]
    assert sorted(t.changes(first.checkpoint).to_arrow()["id"].to_pylist()) == [2, 4]
    assert t.delete([4]).rows == 1
    assert sorted(t.scan(where="fare > 7").to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert t.scan(as_of=first.instant).count() == 3
    assert t.maintenance.compact().runs
    assert lakebed.open(uri).count() == 3


def with_spark(uri: str) -> None:
    """A DataFrame into the table and out of it, and Spark's data source."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    t = lakebed.open(uri, spark=spark)
    t.upsert(spark.createDataFrame([(5, "oslo", 3.0, 5)], "id long, city string, fare double, at long"))
    assert sorted(row.id for row in t.scan().to_spark().collect()) == [1, 2, 3, 5]
    assert spark.read.format("lakebed").load(uri).filter("id = 5").count() == 1
    spark.stop()


if __name__ == "__main__":
    installed = Path(sysconfig.get_path("purelib")).resolve()
    module = Path(lakebed.__file__).resolve()
    assert module.is_relative_to(installed), f"lakebed is not the installed one: {module}"
    assert (module.parent / "py.typed").is_file()
    table = str(Path(sys.argv[1]) / "trips")
    without_spark(table)
    pyspark = version("pyspark") if find_spec("pyspark") else "none"
    if pyspark != "none":
        with_spark(table)
    print(f"lakebed {version('lakebed')}: Python {sys.version.split()[0]}, PySpark {pyspark}: passed")
