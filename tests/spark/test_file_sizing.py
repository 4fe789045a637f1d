"""No base file goes much beyond the maximum, whatever writes it on Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakebed

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


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_no_file_outgrows_its_maximum(spark: SparkSession, tmp_path: Path, operation: str) -> None:
    data = pa.concat_tables([part(0, 1_500, like=True), part(10_000, 4_500, like=False)])
    frame = spark.createDataFrame(data)  # pyright: ignore[reportArgumentType]
    table = lakebed.create(str(tmp_path / "t"), data.schema, key="id", index="simple", spark=spark)
    assert table.explain(upsert=frame, options=LIMITS).engine == "spark"
    getattr(table, operation)(frame, options=LIMITS)
    sizes = [file_slice.base_file.size for file_slice in table.files if file_slice.base_file]
    assert max(sizes) <= 1.1 * LIMIT, sizes
    assert len(sizes) <= 12, sizes
    assert table.scan().to_arrow().sort_by("id").equals(data.combine_chunks())
