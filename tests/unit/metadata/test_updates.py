"""What actions tell of their files: statistics of columns and partitions that real Hudi can go by."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.metadata.keys import column_prefix
from lakebed.metadata.updates import Kinds, NewFile, merged_partition_stats, stats_of

NAN = float("nan")
KINDS: Kinds = {"x": pa.float64(), "n": pa.int64()}


def file(name: str, low: float | None, high: float | None, nulls: int = 0) -> NewFile:
    counts = {"null_count": nulls, "value_count": 3, "total_size": 9, "total_uncompressed": 9}
    columns = {
        "x": pa.array([{"min": low, "max": high, **counts}], struct(pa.float64())),
        "n": pa.array([{"min": 1, "max": 2, **counts}], struct(pa.int64())),
    }
    return NewFile("p", name, 10, pa.RecordBatch.from_pydict(columns))


def struct(kind: pa.DataType) -> pa.StructType:
    counts = ("null_count", "value_count", "total_size", "total_uncompressed")
    return pa.struct([("min", kind), ("max", kind), *((name, pa.int64()) for name in counts)])


@pytest.mark.parametrize("odd", [(1.0, NAN), (NAN, NAN)])
def test_nothing_is_said_of_a_column_with_nan(odd: tuple[float, float]) -> None:
    """Real Hudi finds `x > 1` true for NaN in rows, and false for it in statistics."""
    stats = stats_of([file("a", *odd), file("b", 3.0, 4.0)], KINDS, 2)
    assert stats["x"]["file_name"].to_pylist() == ["b"]
    assert stats["n"]["file_name"].to_pylist() == ["a", "b"]
    merged, deleted = merged_partition_stats({}, stats, {"p": ["a", "b"]}, KINDS)
    assert "x" not in merged
    assert deleted == [column_prefix("x", "p")]
    assert merged["n"]["max"].to_pylist() == [2]


def test_zero_to_zero_may_be_real_hudis_nan() -> None:
    known = stats_of([file("a", 0.0, 0.0)], KINDS, 2)
    new = stats_of([file("b", 3.0, 4.0)], KINDS, 2)
    merged, deleted = merged_partition_stats(known, new, {"p": ["a", "b"]}, KINDS)
    assert "x" not in merged
    assert deleted == [column_prefix("x", "p")]


def test_infinities_and_nulls_are_ranges() -> None:
    inf = float("inf")
    stats = stats_of([file("a", -inf, 1.0), file("b", None, None, nulls=3), file("c", 0.0, inf)], KINDS, 2)
    merged, deleted = merged_partition_stats({}, stats, {"p": ["a", "b", "c"]}, KINDS)
    assert deleted == []
    assert [merged["x"][side].to_pylist() for side in ("min", "max")] == [[-inf], [inf]]
