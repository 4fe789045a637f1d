"""No base file goes much beyond the maximum, whatever writes it on Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.services import driver
from lakebed.table import Table

LIMIT = 300_000
LIMITS = {
    "hoodie.parquet.max.file.size": LIMIT,
    "hoodie.parquet.small.file.limit": LIMIT // 2,
    "lakebed.local.rows": 0,
}


def part(start: int, rows: int, *, like: bool) -> pa.Table:
    """Rows of 200 bytes: all alike, or random ones, which no codec makes smaller."""
    bytes_ = b"x" * (200 * rows) if like else np.random.default_rng(start).bytes(200 * rows)
    values = [bytes_[at : at + 200] for at in range(0, len(bytes_), 200)]
    return pa.table({"id": np.arange(start, start + rows), "v": pa.array(values, pa.binary())})


def sizes(table: Table) -> list[int]:
    return [file_slice.base_file.size for file_slice in table.files if file_slice.base_file]


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_no_file_outgrows_its_maximum(spark: SparkSession, tmp_path: Path, operation: str) -> None:
    data = pa.concat_tables([part(0, 1_500, like=True), part(10_000, 4_500, like=False)])
    frame = spark.createDataFrame(data)  # pyright: ignore[reportArgumentType]
    table = lakebed.create(str(tmp_path / "t"), data.schema, key="id", index="simple", spark=spark)
    assert table.explain(upsert=frame, options=LIMITS).engine == "spark"
    getattr(table, operation)(frame, options=LIMITS)
    assert max(sizes(table)) <= 1.1 * LIMIT, sizes(table)
    assert len(sizes(table)) <= 12, sizes(table)
    assert table.scan().to_arrow().sort_by("id").equals(data.combine_chunks())


@pytest.mark.parametrize("sorts", [None, ["id"]], ids=["as bytes", "sorted"])
def test_services_keep_the_maximum(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sorts: list[str] | None
) -> None:
    """A compaction of inserts that are in log files, then a clustering of many small files, both on Spark."""
    monkeypatch.setattr(driver, "IN_PROCESS_BYTES", 0)
    given = [part(n * 10_000, 700, like=n == 2) for n in range(6)]
    quiet = {"hoodie.compact.inline": False}
    table = lakebed.create(
        str(tmp_path / "t"), given[0].schema, key="id", index="simple", type="mor", spark=spark, properties=quiet
    )
    table.upsert(given[0], options=LIMITS)
    for rows in given[1:3]:
        table.upsert(pa.concat_tables([given[0].slice(0, 200), rows]), options=LIMITS)
    assert any(file_slice.log_files for file_slice in table.files)
    table.maintenance.compact(options=LIMITS)
    assert not any(file_slice.log_files for file_slice in table.files)
    assert max(sizes(table)) <= 1.1 * LIMIT, sizes(table)
    for rows in given[3:]:
        table.insert(rows, options=LIMITS | {"hoodie.parquet.small.file.limit": 0})
    before = len(sizes(table))
    table.maintenance.cluster(sorts, options=LIMITS | {"hoodie.clustering.plan.strategy.target.file.max.bytes": LIMIT})
    assert len(sizes(table)) < before
    assert max(sizes(table)) <= 1.1 * LIMIT, sizes(table)
    assert table.scan().to_arrow().sort_by("id").equals(pa.concat_tables(given).combine_chunks())
