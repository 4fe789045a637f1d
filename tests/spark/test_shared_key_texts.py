"""Composite keys that share a key text are told apart on Spark as in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRecord
from lakebed.expressions.key_text import SharedText

pytestmark = pytest.mark.rest

ON_SPARK = {"lakebed.local.rows": 0}
ONE, OTHER = ("x", "y,b:z"), ("x,b:y", "z")
SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string()), ("v", pa.int64())])


@pytest.mark.parametrize(("kind", "index"), [("cow", "simple"), ("mor", "bucket"), ("mor", "bloom")])
def test_no_row_replaces_a_row_of_another_key(spark: Any, tmp_path: Path, kind: str, index: str) -> None:
    def frame(*rows: tuple[Any, ...]) -> Any:
        return spark.createDataFrame(list(rows), "a string, b string, v long")

    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key=["a", "b"], type=kind, index=index, spark=spark)
    attempts: list[Any] = [lambda: table.upsert(frame((*ONE, 1), (*OTHER, 2)), options=ON_SPARK)]
    table.upsert(frame((*ONE, 1), ("q", "r", 3)), options=ON_SPARK)
    drop = {**ON_SPARK, "hoodie.datasource.insert.dup.policy": "drop"}
    attempts += [
        lambda: table.upsert(frame((*OTHER, 2)), options=ON_SPARK),
        lambda: table.insert(frame((*OTHER, 2)), options=drop),
        lambda: table.delete(frame((*OTHER, 2)).drop("v"), options=ON_SPARK),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidRecord, match=r"a='x', b='y,b:z'.*a='x,b:y', b='z'"):
            attempt()
    table.insert(frame((*ONE, 9), ("s", "t", 4)), options=drop)
    stored = {tuple(row.values()) for row in lakebed.open(table.uri).scan().to_arrow().to_pylist()}
    assert stored == {(*ONE, 1), ("q", "r", 3), ("s", "t", 4)}


def test_both_sides_agree_which_key_texts_may_be_shared(spark: Any) -> None:
    shared = SharedText("k", ("a", "b", "it's.c"))
    texts = [
        "a:x,b:y,it's.c:z",
        "a:x,b:y,b:z,it's.c:z",
        "a:,it's.c:1,b:2,it's.c:3",
        "a:__null__,b:x",
        "a:b:,,__empty__",
    ]
    frame = spark.createDataFrame([(text,) for text in texts], "k string")
    said = [row[0] for row in frame.selectExpr(shared.sql(pa.schema([("k", pa.string())]))).collect()]
    assert said == shared.of_texts(pa.array(texts)).to_pylist() == [False, True, True, True, True]
