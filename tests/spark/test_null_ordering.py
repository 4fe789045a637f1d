"""On Spark a null in an ordering field loses against every value, as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from support.write_tables import SCHEMA, content, rows

pytestmark = pytest.mark.rest


@pytest.mark.parametrize(
    ("kind", "index"), [("cow", "simple"), ("mor", "bucket"), ("mor", "record"), ("cow", "global_simple")]
)
def test_a_null_loses_against_every_value(spark: Any, tmp_path: Path, kind: str, index: str) -> None:
    words: dict[str, Any] = {"buckets": 2} if index == "bucket" else {}
    table = lakebed.create(
        str(tmp_path / "t"), SCHEMA, key="id", partition_by="city", ordering="ts", index=index, type=kind, **words
    )
    table = lakebed.open(table.uri, spark=spark)
    lowest = {"lakebed.write.null.ordering": "lowest", "lakebed.local.rows": 0}
    second = "b" if index == "global_simple" else "a"
    for batch in (
        rows((1, "a", "null", None), (1, "a", "value", 1), (2, "a", "null", None), (3, "a", "value", -5)),
        rows((1, second, "null", None), (2, second, "later null", None), (3, second, "null", None)),
    ):
        table.upsert(
            spark.createDataFrame(batch.to_pylist(), "id long, city string, v string, ts long"), options=lowest
        )
    assert content(table) == [(1, "a", "value", 1), (2, second, "later null", None), (3, "a", "value", -5)]
    if kind == "mor":
        table.maintenance.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
        assert [row[2] for row in content(table)] == ["value", "later null", "value"]
