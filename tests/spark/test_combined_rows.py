"""Rows of one key in a batch are counted on Spark as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from support.write_tables import SCHEMA, content, rows

pytestmark = pytest.mark.rest

MOVES = {f"hoodie.{name}.index.update.partition.path": True for name in ("record", "simple")}


@pytest.mark.parametrize("index", ["simple", "global_simple", "record", "bucket"])
def test_combined_rows_are_counted(spark: Any, tmp_path: Path, index: str) -> None:
    results: list[list[int]] = []
    contents: list[Any] = []
    for engine in (None, spark):
        moves = {} if index in ("simple", "bucket") else MOVES
        words: dict[str, Any] = {"buckets": 2} if index == "bucket" else {"properties": moves}
        where = str(tmp_path / ("spark" if engine else "local"))
        table = lakebed.create(
            where, SCHEMA, key="id", partition_by="city", ordering="ts", index=index, spark=engine, **words
        )
        batches = [
            rows((1, "a", "x", 1), (1, "a", "y", 2), (2, "b", "x", 1)),
            rows((1, "a" if index in ("simple", "bucket") else "b", "v", 4), (1, "b", "w", 3), (3, "b", "x", 1)),
        ]
        for batch in batches:
            result = table.upsert(spark.createDataFrame(batch.to_pylist()) if engine else batch, options=moves)
            results.append([result.rows, result.inserted, result.updated, result.deleted, result.combined])
        contents.append(content(table))
    assert results[:2] == results[2:]
    assert [one[-1] for one in results[:2]] == [1, 0 if index in ("simple", "bucket") else 1]
    assert contents[0] == contents[1]
