"""Tables over files of another folder on Spark: scans, the data source, and writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakebed
from support.bootstrapped import digests, rows_by_key, rows_of
from support.golden_tables import GoldenTable, bootstrapped_tables
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays


@pytest.mark.parametrize("table", todays(bootstrapped_tables(), 4, INTEROP), ids=str)
def test_spark_reads_and_writes_rows_of_source_files(table: GoldenTable, tmp_path: Path, spark: SparkSession) -> None:
    path = table.unpack(tmp_path)
    source = digests(table.source_of(path))
    opened = lakebed.open(str(path), spark=spark)
    columns = table.expected.column_names
    assert_same_rows(opened.scan(columns=columns).to_spark().toArrow(), table.expected)
    by_format = spark.read.format("lakebed").load(str(path))
    assert_same_rows(by_format.toArrow(), table.expected.select(by_format.columns))
    rare = opened.scan(where="rider is null and id like 'k00%'").to_spark().toArrow()
    assert rare["id"].to_pylist() == ["k000", "k007"]

    opened.indexes.adopt("simple")
    expected, day = rows_by_key(opened), "x" if table.name.endswith("flat") else "a"
    changed = rows_of([4, 12, 990], day, 5000)
    opened.upsert(spark.createDataFrame(changed.to_pandas(), schema=opened.scan().to_spark().schema))
    expected |= {row["id"]: row for row in changed.to_pylist()}
    assert rows_by_key(lakebed.open(str(path))) == expected
    found = opened.scan(columns=changed.column_names).to_spark().toArrow()
    assert_same_rows(found, pa.Table.from_pylist(list(expected.values()), changed.schema))
    assert digests(table.source_of(path)) == source
