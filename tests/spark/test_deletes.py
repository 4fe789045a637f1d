"""Deletes on Spark that find nothing: the rows are looked up once, before the delete begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakebed

ON_SPARK = {"lakebed.local.rows": 0}


@pytest.mark.parametrize(("kind", "index"), [("cow", "simple"), ("mor", "bucket"), ("mor", "record")])
def test_a_delete_on_spark_that_finds_nothing_makes_no_commit(
    spark: SparkSession, tmp_path: Path, kind: str, index: str
) -> None:
    words: dict[str, Any] = {"type": kind, "index": index, **({"buckets": 2} if index == "bucket" else {})}
    rows = {"id": [1, 2, 3], "part": ["a", "b", "b"], "v": [1, 2, 3]}
    t = lakebed.load(str(tmp_path / "t"), rows, key="id", partition_by="part", progress=False, **words)
    t = lakebed.open(t.uri, spark=spark)
    before = [str(instant) for instant in t.timeline]
    keys = spark.createDataFrame([(98,), (99,)], "id bigint")
    for selector in ({"keys": keys}, {"where": "v > 50"}, {"where": "upper(part) = 'Z'"}):
        done = t.delete(**selector, options=ON_SPARK)
        assert (done.instant, done.deleted) == ("", 0)
        assert done.unchanged == (2 if "keys" in selector else 0)
    assert [str(instant) for instant in t.timeline] == before
    assert t.delete(spark.createDataFrame([(1,), (99,)], "id bigint"), options=ON_SPARK).deleted == 1
    assert t.delete(where="v >= 3", options=ON_SPARK).deleted == 1
    assert t.to_arrow().column("id").to_pylist() == [2]
    assert t.delete(where="v > 50", metadata={"position": "7"}, options=ON_SPARK).instant
