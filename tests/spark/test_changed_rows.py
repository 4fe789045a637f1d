"""A DataFrame of changes has the rows of the range by log records alone, in tasks as in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed

pytestmark = pytest.mark.rest


@pytest.mark.parametrize("merge", ["event_time", "commit_time"])
def test_changes_of_log_files_are_the_same_on_spark(merge: Any, tmp_path: Path, spark: Any) -> None:
    rows = pa.table({"id": range(40), "v": ["old"] * 40, "o": range(40)})
    ordering = "o" if merge == "event_time" else None
    table = lakebed.create(
        str(tmp_path / "t"), rows, key="id", ordering=ordering, merge=merge, type="mor", index="bucket", buckets=2
    )
    start = table.bulk_insert(rows).checkpoint
    table.upsert(pa.table({"id": [3, 9, 30, 41], "v": ["new"] * 4, "o": [99, 99, 0, 0]}))
    expected = {3: "new", 9: "new", 41: "new"} | ({} if ordering else {30: "new"})
    changes = lakebed.open(table.uri, spark=spark).changes(start)
    assert {row["id"]: row["v"] for row in changes.to_spark().toArrow().to_pylist()} == expected
    assert {row["id"]: row["v"] for row in changes.to_arrow().to_pylist()} == expected
    source = spark.read.format("lakebed").option("query", "incremental").option("start", start).load(table.uri)
    assert {row["id"]: row["v"] for row in source.toArrow().to_pylist()} == expected
    assert changes.count() == len(expected)
