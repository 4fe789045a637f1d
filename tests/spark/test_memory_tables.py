"""Tables in the memory of this process beside a Spark session: written here, whatever the data; not read by Spark."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.errors import UnsupportedFeature

ON_SPARK = {"lakebed.local.rows": 0}


def test_a_dataframe_is_collected_for_a_table_in_memory_and_spark_is_not_given_it_to_read(spark: SparkSession) -> None:
    rows = spark.range(4).selectExpr("id", "concat('v', id) AS v")
    uri = "memory://spark-memory/t"
    keeps = {"hoodie.table.cdc.enabled": True}
    table = lakebed.create(uri, rows, key="id", index="bucket", buckets=2, spark=spark, properties=keeps)
    plan = table.explain(upsert=rows, options=ON_SPARK)
    assert plan.engine == "local"
    assert "in the memory of this process" in str(plan)
    assert table.upsert(rows, options=ON_SPARK).inserted == 4
    assert table.delete(rows.filter("id = 3").select("id"), options=ON_SPARK).deleted == 1
    assert table.delete(where="id = 2", options=ON_SPARK).deleted == 1
    job = {"hoodie.table.name": "j", "hoodie.datasource.write.recordkey.field": "id", **ON_SPARK}
    written = lakebed.write(rows, "memory://spark-memory/j", job)
    assert written is not None
    assert written.inserted == 4
    table.indexes.create("record_index")
    assert table.scan().to_arrow().sort_by("id").to_pydict() == {"id": [0, 1], "v": ["v0", "v1"]}
    reads: list[Callable[[], object]] = [
        table.scan().to_spark,
        lambda: table.scan().to_spark(bucketed=True),
        table.changes("000").to_spark,
        table.cdc("000").to_spark,
        table.join(table).to_spark,
    ]
    for read in reads:
        with pytest.raises(UnsupportedFeature, match=r"memory://spark-memory/t is in the memory .*to_arrow\(\)"):
            read()
    source = spark.read.format("lakebed")
    with pytest.raises(Exception, match="in the memory of the process that made it"):
        source.load(uri)
    assert isinstance(table.scan().to_arrow(), pa.Table)
