"""Ranges of a file's columns are those of its rows, whatever Parquet's statistics leave out."""

from __future__ import annotations

import datetime
import io
import math
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakebed.format.column_ranges import ColumnRanges, RowRanges, are_ordinary, rows_of

CASES: dict[str, tuple[pa.DataType, list[list[Any]]]] = {
    "int": (pa.int32(), [[3, None, 1], [2, 7, 7]]),
    "long": (pa.int64(), [[-(1 << 62), 5]]),
    "boolean": (pa.bool_(), [[True, None], [False]]),
    "text": (pa.string(), [["b", "é"], ["a", None]]),
    "long text": (pa.string(), [["b" * 9000, "c"], ["x"]]),
    "bytes": (pa.binary(), [[b"\xff", b"\x00"]]),
    "fixed": (pa.binary(2), [[b"\xff\x00", b"\x00\x01"]]),
    "date": (pa.date32(), [[datetime.date(1500, 1, 1), datetime.date(9999, 12, 31)]]),
    "micros": (pa.timestamp("us", "UTC"), [[-5, 1]]),
    "far micros": (pa.timestamp("us"), [[-(1 << 61), 1 << 61]]),
    "millis": (pa.timestamp("ms"), [[1, 2]]),
    "decimal": (pa.decimal128(10, 2), [[Decimal("1.50"), Decimal("-2.25")], [Decimal("99999999.99")]]),
    "wide decimal": (pa.decimal128(38, 10), [[Decimal("1e27"), Decimal("-1e27")]]),
    "float": (pa.float32(), [[1.5, None], [-2.5]]),
    "nulls": (pa.string(), [[None, None]]),
}


def ranges_of(kind: pa.DataType, groups: list[list[Any]], *, dictionary: bool = False) -> dict[str, Any]:
    tables = [pa.table({"c": pa.array(g, kind)}) for g in groups]
    if dictionary:
        tables = [pa.table({"c": t["c"].dictionary_encode()}) for t in tables]
    ranges = ColumnRanges(pa.schema([("c", kind)]), ["c"])
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, tables[0].schema, store_schema=False) as writer:
        for table in tables:
            ranges.see(table)
            writer.write_table(table)
    row = ranges.row(pq.read_metadata(sink)).column("c")
    assert row.type.field("min").type == kind
    return {f.name: row.field(f.name) for f in row.type}


def test_the_range_is_that_of_the_values() -> None:
    for name, (kind, groups) in CASES.items():
        values = pa.concat_arrays([pa.array(g, kind) for g in groups])
        found = ranges_of(kind, groups)
        wanted = pc.min_max(values)
        assert (found["min"][0], found["max"][0]) == (wanted["min"], wanted["max"]), name
        counts = found["null_count"][0].as_py(), found["value_count"][0].as_py()
        assert counts == (values.null_count, len(values)), name
        assert found["total_size"][0].as_py() > 0, name
        assert found["total_uncompressed"][0].as_py() > 0, name


# Lengths around the one from which on Parquet's writer leaves a row group's range out.
LENGTHS = (3999, 4000, 4001, 4095, 4096, 4097, 70_000)
# Row groups of chunks; a text that ends with L is so long.
LAYOUTS: tuple[list[list[list[str | None]]], ...] = (
    [[["a", "z"], ["mL"]]],
    [[["mL"], ["a", "z"]]],
    [[["aL"], ["z"], [None]]],
    [[["a"], ["zL", None]]],
    [[["k", "l"]], [["mL"], ["a", "z"]], [["n"]]],
    [[["a", "z"]], [["mL"]], [["nL"], ["o"]]],
    [[[None], ["bL"]], [[None]], [["c"]]],
)


def test_a_long_value_in_one_chunk_hides_no_value_of_the_others() -> None:
    for layout, length, kind, dictionary in product(LAYOUTS, LENGTHS, (pa.string(), pa.binary()), (False, True)):
        case = (layout, length, kind, dictionary)
        texts = [[[t and t[0] * (length if t.endswith("L") else 1) for t in c] for c in group] for group in layout]
        chunks = [[pa.array(chunk, pa.string()).cast(kind) for chunk in group] for group in texts]
        if dictionary:
            chunks = [pa.chunked_array(group).dictionary_encode().chunks for group in chunks]
        groups = [pa.table({"c": pa.chunked_array(group)}) for group in chunks]
        ranges = ColumnRanges(pa.schema([("c", kind)]), ["c"])
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, groups[0].schema, store_schema=False) as writer:
            for group in groups:
                ranges.see(group)
                writer.write_table(group)
        (found,) = ranges.row(pq.read_metadata(sink)).column("c").to_pylist()
        values = [v for group in groups for v in group["c"].to_pylist()]
        known = [v for v in values if v is not None]
        assert (found["min"], found["max"]) == (min(known), max(known)), case
        assert (found["null_count"], found["value_count"]) == (values.count(None), len(values)), case


def footer_of(groups: list[list[Any]], kind: pa.DataType, **options: Any) -> Any:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema([("c", kind)]), store_schema=False, **options) as writer:
        for group in groups:
            writer.write_table(pa.table({"c": pa.array(group, kind)}))
    return pq.read_metadata(sink)


def test_a_row_group_without_a_footer_range_makes_the_range_unknown() -> None:
    metadata = footer_of([["b", "c"], ["a", "z" * 5000], ["d"]], pa.string())
    (found,) = ColumnRanges(pa.schema([("c", pa.string())]), ["c"]).row(metadata).column("c").to_pylist()
    assert (found["min"], found["max"]) == (None, None)
    assert (found["null_count"], found["value_count"]) == (0, 5)


def test_a_row_group_of_nulls_leaves_the_footer_range_complete() -> None:
    metadata = footer_of([["b", "c"], [None, None]], pa.string())
    (found,) = ColumnRanges(pa.schema([("c", pa.string())]), ["c"]).row(metadata).column("c").to_pylist()
    assert (found["min"], found["max"], found["null_count"]) == ("b", "c", 2)


@pytest.mark.parametrize("kind", [pa.int32(), pa.string()])
def test_a_file_without_statistics_is_not_taken_for_nulls(kind: pa.DataType) -> None:
    metadata = footer_of([[1, 2]] if pa.types.is_int32(kind) else [["a"]], kind, write_statistics=False)
    (found,) = ColumnRanges(pa.schema([("c", kind)]), ["c"]).row(metadata).column("c").to_pylist()
    assert (found["min"], found["max"], found["null_count"]) == (None, None, None)


def test_a_dictionary_counts_only_the_values_that_occur() -> None:
    found = ranges_of(pa.string(), [["m", "n" * 9000], ["o"]], dictionary=True)
    assert [found["min"][0].as_py(), found["max"][0].as_py()] == ["m", "o"]


@pytest.mark.parametrize("groups", [[[0.0, 1.0], [-0.0, 2.0]], [[-0.0, -1.0], [0.0, -2.0]], [[-0.0], [0.0], [0.0]]])
def test_a_zero_has_the_sign_that_keeps_both_zeros_within_in_any_order_of_row_groups(groups: list[list[float]]) -> None:
    for order in (groups, groups[::-1]):
        found = ranges_of(pa.float64(), order)
        low, high = found["min"][0].as_py(), found["max"][0].as_py()
        assert low < 0 or math.copysign(1, low) < 0
        assert high > 0 or math.copysign(1, high) > 0


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_is_the_greatest(kind: pa.DataType) -> None:
    found = ranges_of(kind, [[1.0, math.nan], [2.0]])
    assert found["min"][0].as_py() == 1.0
    assert math.isnan(found["max"][0].as_py())


def test_the_range_of_a_column_of_nan_alone_is_nan() -> None:
    found = ranges_of(pa.float64(), [[math.nan, None]])
    assert math.isnan(found["min"][0].as_py())
    assert math.isnan(found["max"][0].as_py())
    assert found["null_count"][0].as_py() == 1


def test_fields_of_structs_and_elements_have_their_paths() -> None:
    rows = [{"s": {"f": math.nan, "t": "x" * 9000}, "l": [3, 1]}, {"s": {"f": 1.0, "t": None}, "l": [2]}]
    table = pa.Table.from_pylist(rows)
    ranges = ColumnRanges(table.schema, ["s.f", "s.t", "l.list.element", "s.gone"])
    sink = io.BytesIO()
    ranges.see(table)
    pq.write_table(table, sink, store_schema=False)
    (row,) = ranges.row(pq.read_metadata(sink)).to_pylist()
    assert list(row) == ["s.f", "s.t", "l.list.element"]
    assert row["s.f"]["min"] == 1.0
    assert math.isnan(row["s.f"]["max"])
    assert (row["s.t"]["min"], row["s.t"]["null_count"]) == ("x" * 9000, 1)
    assert (row["l.list.element"]["min"], row["l.list.element"]["max"]) == (1, 3)


def test_columns_without_order_have_no_range() -> None:
    schema = pa.schema([("a", pa.list_(pa.int32())), ("b", pa.int32())])
    ranges = ColumnRanges(schema, ["a", "b"])
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [[1]], "b": [1]}, schema=schema), sink)
    assert ranges.row(pq.read_metadata(sink)).schema.names == ["b"]


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        (pa.string(), [["b", "c"], [None], ["a"]]),
        (pa.float64(), [[-0.0, 2.5], [None], [0.0]]),
        (pa.decimal128(12, 2), [[Decimal("1.20"), None], [None], [Decimal("-3.00")]]),
        (pa.timestamp("us", "UTC"), [[datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)], [None], [None]]),
        (pa.bool_(), [[True, False], [None], [True]]),
    ],
    ids=str,
)
def test_the_ranges_of_many_files_are_those_of_each(kind: pa.DataType, files: list[list[Any]]) -> None:
    schema = pa.schema([("c", kind)])
    footers = [footer_of([values], kind) for values in files]
    stored = [ColumnRanges(schema, ["c"]).stored(footer) for footer in footers]
    together = rows_of([ranges for ranges in stored if ranges is not None])
    assert together.num_rows == len(files)
    for at, (values, footer) in enumerate(zip(files, footers, strict=True)):
        (found,), known = together.slice(at, 1).column("c").to_pylist(), [v for v in values if v is not None]
        assert (found["min"], found["max"]) == (min(known, default=None), max(known, default=None))
        assert (found["null_count"], found["value_count"]) == (values.count(None), len(values))
        assert together.slice(at, 1) == ColumnRanges(schema, ["c"]).row(footer)


def test_a_file_of_several_row_groups_or_with_nan_has_no_stored_ranges() -> None:
    assert ColumnRanges(pa.schema([("c", pa.int64())]), ["c"]).stored(footer_of([[1], [2]], pa.int64())) is None
    ranges = ColumnRanges(pa.schema([("c", pa.float64())]), ["c"])
    ranges.see(pa.table({"c": [1.0, math.nan]}))
    assert ranges.stored(footer_of([[1.0, math.nan]], pa.float64())) is None


@pytest.mark.parametrize(
    ("values", "ordinary"),
    [
        (pa.array([1.0, None]), True),
        (pa.array([1.0, math.nan]), False),
        (pa.array([[1.0], [math.nan]]), False),
        (pa.array(["a", "z" * 4000]), True),
        (pa.array(["a", "z" * 4001]), False),
        (pa.array(["a", "z" * 4001]).dictionary_encode(), False),
        (pa.array([{"text": "z" * 4001}]), False),
        (pa.array([1, None]), True),
        (pa.array([Decimal("1.20")]), True),
    ],
    ids=str,
)
def test_rows_with_nan_or_a_long_text_are_not_ordinary(values: pa.Array, ordinary: bool) -> None:
    assert are_ordinary(pa.RecordBatch.from_arrays([values], names=["c"])) is ordinary


def test_the_ranges_of_rows_that_come_in_several_batches_are_those_of_all() -> None:
    schema = pa.schema([("c", pa.float64()), ("t", pa.string()), ("n", pa.int64())])
    ranges = RowRanges(schema, schema.names)
    for numbers, texts in (([2.0, math.nan], ["b", None]), ([None, None], [None, None]), ([1.0], ["a"])):
        ranges.see(pa.record_batch([pa.array(numbers, pa.float64()), texts, [None] * len(texts)], schema=schema))
    row = ranges.row().to_pylist()[0]
    assert (row["c"]["min"], math.isnan(row["c"]["max"]), row["c"]["null_count"]) == (1.0, True, 2)
    assert (row["t"]["min"], row["t"]["max"], row["t"]["null_count"], row["t"]["value_count"]) == ("a", "b", 3, 5)
    assert (row["n"]["min"], row["n"]["max"], row["n"]["null_count"]) == (None, None, 5)
    assert RowRanges(schema, ["t"]).row().to_pylist()[0]["t"]["value_count"] == 0
