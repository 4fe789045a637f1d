"""On Spark too user columns may have any name: no derived column meets them, whatever the case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.index.record import RecordIndex
from support.hostile_columns import hostile_rows, hostile_schema

pytestmark = pytest.mark.rest


@pytest.mark.parametrize(
    "index",
    [{"index": "bucket", "buckets": 2}, {"index": "global_simple"}, {"index": RecordIndex(update_partition_path=True)}],
    ids=["bucket", "global_simple", "record"],
)
def test_columns_of_every_name_keep_their_values(spark: SparkSession, tmp_path: Path, index: dict[str, Any]):
    def frame(ids: list[int], ts: int, cities: list[str] | None = None) -> Any:
        return spark.createDataFrame(hostile_rows(ids, ts, cities))  # pyright: ignore[reportArgumentType]

    def stored() -> list[dict[str, Any]]:
        return table.scan().to_spark().toArrow().sort_by("id").to_pylist()

    def expected(*parts: pa.Table) -> list[dict[str, Any]]:
        return pa.concat_tables(parts).sort_by("id").to_pylist()

    table = lakebed.create(
        str(tmp_path / "t"), hostile_schema(), key="id", partition_by="city", ordering="ts", spark=spark, **index
    )
    table.upsert(frame([1, 2, 3, 4], 10))
    table.upsert(frame([3, 4, 5], 20))
    assert stored() == expected(hostile_rows([1, 2], 10), hostile_rows([3, 4, 5], 20))
    if "buckets" not in index:
        table.upsert(frame([5], 30, ["elsewhere"]))
        assert stored()[-1] == hostile_rows([5], 30, ["elsewhere"]).to_pylist()[0]
    table.delete(frame([5], 0, ["elsewhere" if "buckets" not in index else "c2"]))
    table.delete(where="_FILE_ID = '_file_id-1-10' AND _delete AND bounds LIKE '%1%'")
    assert stored() == expected(hostile_rows([2], 10), hostile_rows([3, 4], 20))
    table.insert_overwrite(frame([7, 8], 40), "table")
    assert stored() == expected(hostile_rows([7, 8], 40))
    assert lakebed.open(table.uri).get([7]).to_pylist() == expected(hostile_rows([7], 40))
