"""Deletes of a Spark session carry ordering values as those of this process do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed

pytestmark = pytest.mark.rest

SCHEMA = pa.schema(
    [("id", pa.int64()), ("city", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("text", pa.string())]
)


def frame(spark: Any, *given: tuple[int, int, str]) -> Any:
    rows = [{"id": n, "city": f"c{n % 2}", "ts": ts * 1_000_000, "text": text} for n, ts, text in given]
    return spark.createDataFrame(pa.Table.from_pylist(rows).cast(SCHEMA).to_pandas())


@pytest.mark.parametrize("index", ["bucket", "global_simple"])
def test_late_rows_stay_deleted(index: str, tmp_path: Path, spark: Any) -> None:
    table = lakebed.create(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        type="mor",
        index=index,
        buckets=2 if index == "bucket" else None,
        spark=spark,
    )
    table.upsert(frame(spark, *((n, 10, "old") for n in range(8))))
    table.delete(frame(spark, (0, 20, "old"), (1, 3, "old")))
    table.delete(where="text = 'old' AND id = 2")
    table.delete(spark.createDataFrame([(3,)], "id bigint"))
    table.upsert(frame(spark, (0, 15, "late"), (1, 5, "late"), (2, 5, "late"), (3, 11, "new")))
    late = [] if index == "bucket" else [(0, "late"), (1, "late"), (2, "late")]
    found = sorted((row["id"], row["text"]) for row in table.scan().to_spark().collect())
    assert found == [*late, (3, "new"), *((n, "old") for n in range(4, 8))]


@pytest.mark.parametrize("index", ["bucket", "bloom", "record"])
def test_keys_of_a_dataframe_that_the_table_lacks_are_unchanged(index: str, tmp_path: Path, spark: Any) -> None:
    buckets = 2 if index == "bucket" else None
    kind: dict[str, Any] = {"key": "id", "partition_by": "city", "index": index, "buckets": buckets}
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, **kind, spark=spark)
    table.upsert(frame(spark, *((n, 10, "old") for n in range(4))))
    jobs = {"lakebed.local.rows": 0}
    keys = spark.createDataFrame([(1,), (1,), (7,), (9,)], "id bigint")
    result = table.delete(keys, options=jobs)
    assert (result.rows, result.combined, result.deleted, result.unchanged) == (4, 1, 1, 2)
    result = table.delete(frame(spark, (2, 10, "old"), (8, 10, "old")), options=jobs)
    assert (result.rows, result.deleted, result.unchanged) == (2, 1, 1)
    assert sorted(row["id"] for row in table.scan().to_spark().collect()) == [0, 3]
