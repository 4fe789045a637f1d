"""What actions tell of their files: statistics of columns and partitions that real Hudi can go by."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.metadata_kinds.stats_values import Kinds, combined_partition_stats, stats_of, together
from lakebed.metadata_kinds.stored import NewFile
from lakebed.metadata_records.layout import column_prefix
from lakebed.metadata_records.stats_codec import widest_bounds

NAN, INF = float("nan"), float("inf")
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
def test_a_column_with_nan_may_hold_anything(odd: tuple[float, float]) -> None:
    """Real Hudi finds `x > 1` true for NaN in rows and false for it in statistics, and takes a file without a record
    for one of nulls once another file has one."""
    stats = stats_of(together([file("a", *odd), file("b", 3.0, 4.0)]), KINDS, 2)
    assert bounds(stats["x"]) == [("a", -INF, INF), ("b", 3.0, 4.0)]
    assert stats["x"]["null_count"].to_pylist() == [0, 0]
    merged, deleted = combined_partition_stats({}, stats, {"p": ["a", "b"], "q": []}, KINDS)
    assert bounds(merged["x"]) == [("p", -INF, INF)]
    assert bounds(merged["n"]) == [("p", 1, 2)]
    assert deleted == [column_prefix("x", "q"), column_prefix("n", "q")]


def test_zero_to_zero_may_be_real_hudis_nan() -> None:
    known = stats_of(together([file("a", 0.0, 0.0)]), KINDS, 2)
    new = stats_of(together([file("b", 3.0, 4.0)]), KINDS, 2)
    merged, deleted = combined_partition_stats(known, new, {"p": ["a", "b"]}, KINDS)
    assert bounds(merged["x"]) == [("p", -INF, INF)]
    assert deleted == []


def test_a_partition_path_of_which_a_file_has_no_record_may_hold_anything() -> None:
    """Not one of which no file has one: there the column came later, and has nulls alone."""
    stats = stats_of(together([file("a", 1.0, 2.0), file("b", 3.0, 4.0)]), {"n": pa.int64()}, 2)
    live = {"p": ["a", "older"], "q": ["older"]}
    merged, deleted = combined_partition_stats({}, stats, live, {"n": pa.int64()})
    assert bounds(merged["n"]) == [("p", -(1 << 63), (1 << 63) - 1)]
    assert 0 < merged["n"]["null_count"][0].as_py() < merged["n"]["value_count"][0].as_py()
    assert deleted == [column_prefix("n", "q")]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [False, True]),
        (pa.int32(), [-(1 << 31), (1 << 31) - 1]),
        (pa.float32(), [-INF, INF]),
        (pa.string(), ["", "\U0010ffff", "zz"]),
        (pa.date32(), [date.min, date.max]),
        (pa.timestamp("us", "UTC"), [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
        (pa.timestamp("ms"), [datetime(1, 1, 1), datetime(9999, 12, 31)]),
        (pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("999.99")]),
    ],
)
def test_the_widest_bounds_hold_all_values(kind: pa.DataType, values: list[object]) -> None:
    found = widest_bounds(kind)
    assert found is not None
    low, high = found
    column = pa.array(values, kind)
    assert pc.all(pc.less_equal(low, column)).as_py()
    assert pc.all(pc.greater_equal(high, column)).as_py()


def bounds(stats: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(stats[name].to_pylist() for name in ("file_name", "min", "max")), strict=True))


def test_infinities_and_nulls_are_ranges() -> None:
    inf = float("inf")
    stats = stats_of(together([file("a", -inf, 1.0), file("b", None, None, nulls=3), file("c", 0.0, inf)]), KINDS, 2)
    merged, deleted = combined_partition_stats({}, stats, {"p": ["a", "b", "c"]}, KINDS)
    assert deleted == []
    assert [merged["x"][side].to_pylist() for side in ("min", "max")] == [[-inf], [inf]]


def test_ranges_of_many_files_share_batches() -> None:
    files = [file(f"f{number}", float(number), float(number + 1)) for number in range(300)]
    runs = list(together(files))
    assert [len(run.names) for run in runs] == [128, 128, 44]
    assert [name for run in runs for name in run.names] == [each.name for each in files]
    shared = sum(run.ranges.nbytes for run in runs)
    assert shared == sum(each.ranges.nbytes for each in files if each.ranges is not None)


def test_ranges_of_other_columns_begin_another_batch() -> None:
    narrow = NewFile("p", "b", 10, file("b", 1.0, 2.0).ranges.select(["n"]))  # pyright: ignore[reportOptionalMemberAccess]
    without = NewFile("p", "c", 10)
    runs = list(together([file("a", 1.0, 2.0), narrow, without, file("d", 3.0, 4.0)]))
    assert [run.names for run in runs] == [["a"], ["b"], ["d"]]
    assert stats_of(runs, KINDS, 2)["x"]["file_name"].to_pylist() == ["a", "d"]
    assert stats_of(runs, KINDS, 2)["n"]["file_name"].to_pylist() == ["a", "b", "d"]
