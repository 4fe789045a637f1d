from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRecord, SchemaConflict
from lakebed.schema.arrow import list_of, map_of
from lakebed.schema.conversion import can_cast, cast_column, project

F32, F64, TEXT, BYTES = pa.float32(), pa.float64(), pa.string(), pa.binary()
UTC_US, UTC_MS, LOCAL_US = pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("us")
WHEN = datetime.datetime(2024, 2, 3, 4, 5, 6, 123456, datetime.UTC)
DAY = datetime.date(2024, 2, 3)

CASES: list[tuple[pa.DataType, Any, pa.DataType, Any]] = [
    (pa.int32(), 7, pa.int64(), 7),
    (pa.int32(), 7, F32, 7.0),
    (pa.int64(), 2**53 + 1, F64, float(2**53)),
    (pa.int64(), 16777217, F32, 16777216.0),
    (pa.int32(), -7, TEXT, "-7"),
    (F32, 1.1, F64, 1.1),
    (F32, float("inf"), F64, float("inf")),
    (F32, -0.0, TEXT, "-0.0"),
    (F32, 1.1, TEXT, "1.1"),
    (F64, 1e10, TEXT, "1.0E10"),
    (pa.decimal128(5, 2), Decimal("1.50"), TEXT, "1.50"),
    (pa.decimal128(9, 8), Decimal("0.00000012"), TEXT, "0.00000012"),
    (pa.decimal128(5, 2), Decimal("1.50"), pa.decimal128(12, 4), Decimal("1.5000")),
    (pa.decimal128(5, 2), Decimal("-1.25"), pa.decimal128(5, 1), Decimal("-1.3")),
    (pa.date32(), DAY, TEXT, "2024-02-03"),
    (TEXT, "2024-02-03", pa.date32(), DAY),
    (TEXT, "é", BYTES, "é".encode()),
    (BYTES, "é".encode(), TEXT, "é"),
    (BYTES, b"a\xff", TEXT, "a\ufffd"),
    (pa.binary(2), b"ab", BYTES, b"ab"),
    (pa.int64(), 1706933106123456, UTC_US, WHEN),
    (pa.int64(), 1706933106123, UTC_MS, WHEN.replace(microsecond=123000)),
    (UTC_US, WHEN, UTC_MS, WHEN.replace(microsecond=123000)),
    (
        UTC_US,
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, datetime.UTC),
        UTC_MS,
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, datetime.UTC),
    ),
    (UTC_MS, WHEN.replace(microsecond=123000), UTC_US, WHEN.replace(microsecond=123000)),
    (LOCAL_US, WHEN.replace(tzinfo=None), UTC_US, WHEN),
    (pa.int32(), 7, pa.decimal128(5, 2), Decimal("7.00")),
    (F64, 2.345, pa.decimal128(5, 2), Decimal("2.35")),
    (TEXT, "-1.005", pa.decimal128(5, 2), Decimal("-1.01")),
    (pa.null(), None, list_of(TEXT), None),
    (pa.dictionary(pa.int8(), TEXT), "a", TEXT, "a"),
]


@pytest.mark.parametrize(("kind", "value", "to_type", "expected"), CASES, ids=str)
def test_stored_values_convert_as_hudi_converts_them(
    kind: pa.DataType, value: Any, to_type: pa.DataType, expected: Any
):
    converted = cast_column(pa.array([value, None, value], kind), to_type)
    assert converted.type.equals(to_type)
    assert converted.to_pylist() == [expected, None, expected]
    assert cast_column(pa.array([], kind), to_type).to_pylist() == []
    if not pa.types.is_dictionary(kind):
        chunked = pa.chunked_array([pa.array([value], kind), pa.array([None], kind)])
        assert cast_column(chunked, to_type).to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("kind", "to_type"),
    [
        (pa.int64(), pa.int32()),
        (TEXT, pa.int32()),
        (TEXT, pa.bool_()),
        (pa.bool_(), pa.int32()),
        (pa.date32(), UTC_US),
        (pa.date32(), pa.decimal128(5, 2)),
        (TEXT, list_of(TEXT)),
        (list_of(TEXT), TEXT),
        (pa.struct([("a", TEXT)]), map_of(TEXT)),
    ],
    ids=str,
)
def test_conversions_hudi_does_not_know(kind: pa.DataType, to_type: pa.DataType):
    with pytest.raises(SchemaConflict, match="cannot be read as"):
        cast_column(pa.array([None], kind), to_type)


NESTED = pa.struct(
    [
        ("n", pa.int32()),
        ("gone", TEXT),
        ("list", pa.list_(pa.field("array", F32, False))),
        ("map", pa.map_(TEXT, pa.struct([("k", pa.int32())]))),
    ]
)
WIDER = pa.struct(
    [
        ("new", TEXT),
        ("map", map_of(pa.struct([("k", pa.int64()), ("l", pa.date32())]))),
        ("list", list_of(F64)),
        ("n", TEXT),
    ]
)


@pytest.mark.parametrize("part", [slice(0, 4), slice(1, 3), slice(3, 4), slice(0, 0)], ids=str)
def test_nested_values_are_converted_inside(part: slice):
    rows = [
        {"n": 1, "gone": "x", "list": [1.1, 2.5], "map": [("a", {"k": 1}), ("b", None)]},
        None,
        {"n": None, "gone": None, "list": None, "map": None},
        {"n": 3, "gone": "y", "list": [], "map": []},
    ]
    expected = [
        {"new": None, "map": [("a", {"k": 1, "l": None}), ("b", None)], "list": [1.1, 2.5], "n": "1"},
        None,
        {"new": None, "map": None, "list": None, "n": None},
        {"new": None, "map": [], "list": [], "n": "3"},
    ]
    converted = cast_column(pa.array(rows, NESTED)[part], WIDER)
    converted.validate(full=True)
    assert converted.type.equals(WIDER)
    assert converted.to_pylist() == expected[part]


def test_lists_of_any_layout():
    for kind in (pa.large_list(pa.int32()), pa.list_(pa.int32(), 2), pa.list_view(pa.int32())):
        converted = cast_column(pa.array([[1, 2], [3, None]], kind)[1:], list_of(TEXT))
        assert converted.to_pylist() == [["3", None]]


def test_project_goes_by_name():
    batch = pa.record_batch({"x": [1], "id": ["a"], "f": pa.array([1.1], F32)})
    schema = pa.schema([pa.field("id", TEXT, False), ("f", F64), ("new", list_of(pa.int32()))])
    projected = project(batch, schema)
    assert projected.schema.equals(schema)
    assert projected.to_pylist() == [{"id": "a", "f": 1.1, "new": None}]


def test_project_leaves_a_fitting_batch_alone():
    batch = pa.record_batch({"id": ["a"]})
    assert project(batch, batch.schema) is batch


def test_project_refuses_nulls_where_none_may_be():
    schema = pa.schema([pa.field("id", TEXT, False)])
    with pytest.raises(InvalidRecord, match="column id"):
        project(pa.record_batch({"id": pa.array([None], TEXT)}), schema)


EVERY = [
    *(pa.null(), pa.bool_(), pa.int32(), pa.int64(), F32, F64, TEXT, BYTES, pa.large_string(), pa.date32()),
    *(UTC_US, UTC_MS, LOCAL_US, pa.time32("ms"), pa.time64("us"), pa.decimal128(9, 2), pa.decimal128(38, 20)),
    *(list_of(pa.int32()), list_of(BYTES), map_of(pa.int32()), map_of(pa.date32()), pa.dictionary(pa.int32(), TEXT)),
    *(pa.struct([("a", pa.int32())]), pa.struct([("a", pa.date32()), ("b", TEXT)])),
]


@pytest.mark.parametrize("kind", EVERY, ids=str)
def test_a_cast_that_is_announced_succeeds(kind: pa.DataType):
    for to_type in EVERY:
        if pa.types.is_dictionary(to_type) or pa.types.is_null(to_type):
            continue
        try:
            cast_column(pa.nulls(1, kind), to_type)
        except SchemaConflict:
            assert not can_cast(kind, to_type), to_type
        else:
            assert can_cast(kind, to_type), to_type


@pytest.mark.parametrize(("unit", "coarse", "step"), [("ns", "us", 10**3), ("ns", "ms", 10**6), ("us", "ms", 10**3)])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_at_the_ends_of_a_unit_are_cut_downwards(unit: str, coarse: str, step: int, zone: str | None) -> None:
    numbers = [-(2**63), -(2**63) + 1, -(2**63) + step, -step - 1, -step, -1, 0, 1, step - 1, 2**63 - 1, None]
    given = pa.array(numbers, pa.int64()).view(pa.timestamp(unit, zone))
    found = cast_column(given, pa.timestamp(coarse, zone))
    assert found.type == pa.timestamp(coarse, zone)
    assert found.cast(pa.int64()).to_pylist() == [None if n is None else n // step for n in numbers]
    assert cast_column(given.slice(3, 4), pa.timestamp(coarse, zone)).equals(found.slice(3, 4))


def test_the_least_time_of_pandas_is_a_key_and_a_value() -> None:
    times = pa.array([-(2**63) + 1, 5], pa.int64()).view(pa.timestamp("ns"))
    rows = pa.table({"at": times, "seen": times, "n": [1, 2]})
    table = lakebed.create("memory://conversion/least", rows, key="at", index="bucket", buckets=1)
    table.upsert(rows)
    found = table.to_arrow().sort_by("n")
    for name in ("at", "seen"):
        assert found[name].cast(pa.int64()).to_pylist() == [-(2**63) // 1000, 0]
    table.upsert(rows.set_column(2, "n", pa.array([3, 4])))
    assert table.to_arrow().sort_by("n")["n"].to_pylist() == [3, 4]
