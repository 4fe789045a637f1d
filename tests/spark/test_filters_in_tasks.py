"""Rows that come through Python are filtered there: of `scan(where=)` tasks apply what compares columns with
constants, Spark the whole condition."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.table import Table
from support.same_rows import assert_same_rows
from support.spark_plans import rows_from_python

COUNT = 40_000  # of more than 16,384 rows the columns of a condition are decoded first


@pytest.fixture
def table(tmp_path: Path, spark: Any) -> Table:
    """Two buckets whose log files update one row in five thousand; some values are null and NaN."""
    numbers = [None if n % 10 == 3 else n for n in range(COUNT)]
    rows = pa.table(
        {
            "id": pa.array(range(COUNT), pa.int64()),
            "n": pa.array(numbers, pa.int64()),
            "f": [math.nan if n % 10 == 4 else float(n) for n in range(COUNT)],
            "v": [f"v{n % 4}" for n in range(COUNT)],
        }
    )
    made = lakebed.create(
        str(tmp_path / "t"), rows.schema, key="id", type="mor", index="bucket", buckets=2,
        properties={"hoodie.compact.inline": False},
    )  # fmt: skip
    made.insert(rows)
    changed = rows.filter(pa.array([n % 5_000 == 0 for n in range(COUNT)]))
    made.upsert(changed.set_column(3, "v", pa.array(["new"] * len(changed))))
    return lakebed.open(made.uri, spark=spark)


@pytest.mark.parametrize(
    ("condition", "crossing"),
    [
        ("n < 10", 9),
        ("n < 10 AND upper(v) = 'V1'", 9),
        ("n < 10 OR upper(v) = 'V1'", COUNT),
        ("upper(v) = 'NEW'", COUNT),
        ("f > 39990", COUNT // 10 + 8),  # NaN is greater
        ("n IS NULL AND v LIKE 'v3%'", COUNT // 20),
        ("v = 'new'", 8),
        ("n IN (0, 50, 5000) AND length(v) = 3", 3),
    ],
)
def test_rows_that_fulfil_no_plain_condition_stay_in_python(table: Table, condition: str, crossing: int) -> None:
    frame = table.scan(where=condition).to_spark()
    rows = frame.collect()
    expected = lakebed.open(table.uri).scan(where=condition).to_arrow()
    assert len(rows) == expected.num_rows
    assert sorted(row["id"] for row in rows) == sorted(expected["id"].to_pylist())
    assert sum(rows_from_python(frame)) == crossing
    assert_same_rows(table.scan(where=condition).to_spark().toArrow(), expected)
