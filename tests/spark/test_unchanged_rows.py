"""Rows that change nothing are left unwritten on Spark as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.operations.result import WriteResult

SKIP = {"lakebed.write.skip.unchanged": True}


def counts(result: WriteResult) -> list[int | None]:
    return [getattr(result, name) for name in ("rows", "inserted", "updated", "deleted", "unchanged", "combined")]


@pytest.mark.one_case
@pytest.mark.parametrize(("kind", "index"), [("cow", "simple"), ("mor", "bucket")])
def test_delivered_again_equal_rows_are_unchanged(spark: Any, tmp_path: Path, kind: Any, index: str) -> None:
    more: dict[str, Any] = {"buckets": 1} if index == "bucket" else {}
    batch = [{"id": n, "v": n / 2, "at": None} for n in range(20)]
    frame = spark.createDataFrame(batch, "id long, v double, at timestamp")
    table = lakebed.create(str(tmp_path), frame, key="id", type=kind, index=index, spark=spark, **more)
    first = table.upsert(frame, options=SKIP)
    again = table.upsert(frame, options=SKIP)
    assert counts(first) == [20, 20, 0, 0, 0, 0]
    assert (counts(again), again.files) == ([20, 0, 0, 0, 20, 0], ())
    other = spark.createDataFrame([(1, 0.5, None), (2, 7.0, None), (99, 1.0, None)], frame.schema)
    options = {"hoodie.datasource.write.operation": "upsert", "hoodie.datasource.write.recordkey.field": "id"}
    done = lakebed.write(other, str(tmp_path), {**options, **SKIP}, mode="append")
    assert done is not None
    assert counts(done) == [3, 1, 1, 0, 1, 0]
    rows = {row.id: row.v for row in table.scan().to_spark().collect()}
    assert rows == {**{n: n / 2 for n in range(20)}, 2: 7.0, 99: 1.0}
    changed = table.changes(again.checkpoint).to_spark().collect()
    assert sorted(row.id for row in changed) == [2, 99]
