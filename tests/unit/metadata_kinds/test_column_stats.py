"""Statistics as they are compared."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakebed.metadata_kinds.column_stats import comparable_stats
from lakebed.metadata_records.stats_codec import stats_schema


def stats(low: bool | None, high: bool | None, *, nulls: int, values: int) -> pa.Table:
    counts = {"value_count": values, "null_count": nulls, "total_size": 0, "total_uncompressed": 0}
    row: dict[str, Any] = {"key": "k", "file_name": "f", "min": low, "max": high, **counts}
    return pa.Table.from_pylist([row | {"is_deleted": False, "is_tight": False}], schema=stats_schema(pa.bool_()))


def text(table: pa.Table, **options: Any) -> list[str]:
    return comparable_stats({"flag": table}, {}, **options)["text"].to_pylist()


def test_bounds_of_nothing_but_nulls_count_for_nothing() -> None:
    assert text(stats(False, False, nulls=3, values=3)) == text(stats(None, None, nulls=3, values=3)) == ["- - 3 3"]
    assert text(stats(False, False, nulls=2, values=3)) == ["false false 2 3"]
    assert text(stats(None, None, nulls=2, values=3)) == ["- - 2 3"]


def test_nulls_are_not_among_the_values_of_an_expression() -> None:
    assert text(stats(False, True, nulls=3, values=3), of_expression=True) == ["false true 3 3"]
    assert text(stats(False, False, nulls=3, values=0), of_expression=True) == ["- - 3 0"]
