"""Rows are compared value by value, for every type that a table may have."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakebed.merge.row_differences import rows_differ

STRUCT = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
NAN = float("nan")
CASES: list[tuple[pa.DataType, list[Any], list[Any], list[bool]]] = [
    (pa.int32(), [1, 1, None, None], [1, 2, None, 0], [False, True, False, True]),
    (pa.bool_(), [True, False, None], [True, None, None], [False, True, False]),
    (pa.float64(), [NAN, 0.0, 1.5, None], [NAN, -0.0, 1.5, NAN], [False, True, False, True]),
    (pa.float32(), [NAN, 0.5], [NAN, 0.25], [False, True]),
    (pa.string(), ["", None, "é"], [None, None, "é"], [True, False, False]),
    (pa.binary(), [b"a", b"\x00"], [b"a", b""], [False, True]),
    (pa.decimal128(9, 2), [Decimal("1.20"), None], [Decimal("1.2"), Decimal("0")], [False, True]),
    (pa.date32(), [datetime.date(2026, 1, 1)], [datetime.date(2026, 1, 2)], [True]),
    (pa.timestamp("us", "UTC"), [5, None], [5, None], [False, False]),
    (pa.dictionary(pa.int32(), pa.string()), ["x", "y", None], ["x", "z", None], [False, True, False]),
    (pa.null(), [None], [None], [False]),
    (
        STRUCT,
        [{"a": 1, "b": ["x"]}, {"a": 1, "b": None}, None, {"a": None, "b": None}],
        [{"a": 1, "b": ["x"]}, {"a": 1, "b": []}, None, None],
        [False, True, False, True],
    ),
    (
        pa.list_(pa.float64()),
        [[1.0, NAN], [1.0], [], None, [2.0, 3.0], [None]],
        [[1.0, NAN], [1.0, 2.0], None, None, [2.0, 4.0], [None]],
        [False, True, True, False, True, False],
    ),
    (pa.list_(STRUCT), [[{"a": 1, "b": ["x", None]}]] * 2, [[{"a": 1, "b": ["x", None]}], [None]], [False, True]),
    (
        pa.map_(pa.string(), pa.int64()),
        [[("k", 1)], None, [("k", 1), ("l", 2)], [("k", 1)]],
        [[("k", 1)], None, [("k", 1), ("l", 3)], []],
        [False, False, True, True],
    ),
    (pa.list_(pa.int8(), 2), [[1, 2], None, [3, 4]], [[1, 2], [0, 0], [3, 5]], [False, True, True]),
]


@pytest.mark.parametrize(("kind", "old", "new", "differ"), CASES, ids=lambda case: str(case)[:20])
@pytest.mark.every_case
def test_values_of_a_type_differ_where_the_stored_values_would(
    kind: pa.DataType, old: list[Any], new: list[Any], differ: list[bool]
) -> None:
    one, other = (pa.record_batch([pa.array(values, kind)], names=["c"]) for values in (old, new))
    assert rows_differ(one, other).tolist() == differ
    again = [[0, *values] for values in (old, new)] if pa.types.is_integer(kind) else [old * 2, new * 2]
    padded = [pa.record_batch([pa.array(values, kind)], names=["c"]) for values in again]
    start = len(again[0]) - len(old)  # slices of larger arrays have an offset
    assert rows_differ(*(batch.slice(start) for batch in padded)).tolist() == differ


def test_a_row_differs_where_one_of_its_columns_does() -> None:
    one = pa.record_batch({"a": pa.array([1, 2, 3]), "b": pa.array(["x", "y", "z"])})
    other = pa.record_batch({"a": pa.array([1, 2, 4]), "b": pa.array(["x", "q", "z"])})
    assert rows_differ(one, other).tolist() == [False, True, True]
