"""Rows of an insert whose key is stored another time, counted of a DataFrame as of a table in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.index import key_repetitions
from support.write_tables import SCHEMA, content, rows

COUNTED = "lakebed.insert.count.duplicates"
ON_SPARK = {"lakebed.local.rows": 0}


@pytest.mark.parametrize(
    ("index", "kind", "keys_here"),
    [
        ("simple", "cow", 1_000),
        ("global_bloom", "mor", -1),
        pytest.param("bloom", "mor", 1_000, marks=pytest.mark.rest),
        pytest.param("simple", "mor", -1, marks=pytest.mark.rest),
        pytest.param("global_simple", "cow", -1, marks=pytest.mark.rest),
        pytest.param("bucket", "cow", 1_000, marks=pytest.mark.rest),
    ],
)
def test_rows_of_stored_keys_are_counted_on_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str, kind: Any, keys_here: int
) -> None:
    monkeypatch.setattr(key_repetitions, "_KEYS_HERE", keys_here)
    table = lakebed.create(
        str(tmp_path / "t"), SCHEMA, key="id", partition_by="city", ordering="ts", type=kind, index=index, spark=spark
    )
    table.upsert(rows(*((n, "ab"[n % 2], "x", 1) for n in range(20))))
    table.delete([4])
    given = rows((1, "b", "y", 2), (3, "a", "y", 2), (4, "a", "y", 2), (30, "a", "y", 2), (30, "a", "z", 2))
    frame = spark.createDataFrame(given.to_pandas())
    blind = table.insert(frame.limit(0), options=ON_SPARK)
    assert blind.duplicates == (0 if keys_here > 0 and index != "bucket" else None)
    done = table.insert(frame, options={**ON_SPARK, COUNTED: True})
    assert done.duplicates == (3 if index.startswith("global") else 2)
    stored = [(n, "ab"[n % 2], "x", 1) for n in range(20) if n != 4]
    assert content(table) == sorted([*stored, *(tuple(row.values()) for row in given.to_pylist())])


@pytest.mark.rest
def test_a_delete_by_a_condition_takes_all_rows_of_a_key_on_spark(spark: Any, tmp_path: Path) -> None:
    table = lakebed.create(
        str(tmp_path / "t"), SCHEMA, key="id", ordering="ts", type="mor", index="bucket", buckets=1, spark=spark
    )
    frame = spark.createDataFrame(rows((1, "a", "x", 1), (1, "a", "y", 1), (2, "a", "x", 1)).to_pandas())
    assert table.insert(frame, options={**ON_SPARK, COUNTED: True}).duplicates == 1
    assert table.delete(where="id = 1", options=ON_SPARK).deleted == 2
    assert content(table) == [(2, "a", "x", 1)]
