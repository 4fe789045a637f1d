"""Replacing rows of a column: every type, with and without nulls, of arrays that begin in the middle of a buffer."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.merge.pairs import put

VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [1, 2, 3, 4, -5, 6],
    pa.int32(): [1, 2, 3, 4, -5, 6],
    pa.int64(): [1, 2, 3, 4, -(1 << 60), 6],
    pa.float32(): [0.5, -0.0, float("inf"), 2.5, 3.5, 4.5],
    pa.float64(): [0.5, -0.0, float("inf"), 2.5, 3.5, 4.5],
    pa.bool_(): [True, False, True, True, False, False],
    pa.date32(): [date(1969, 1, n) for n in range(1, 7)],
    pa.timestamp("us", "UTC"): list(range(6)),
    pa.timestamp("us"): [datetime(2024, 1, n) for n in range(1, 7)],
    pa.decimal128(20, 2): [Decimal(n) for n in range(6)],
    pa.string(): ["a", "", "ü", "dd", "e" * 40, "f"],
    pa.binary(): [b"a", b"", b"\xff", b"dd", b"e", b"f"],
    pa.list_(pa.int32()): [[1], [], [2, 3], [4], [5], [6]],
    pa.dictionary(pa.int32(), pa.string()): ["a", "b", "a", "c", "b", "a"],
}


@pytest.mark.every_case
@pytest.mark.parametrize("nulls", ["no nulls", "old nulls", "new nulls"])
@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_rows_put_at_places_replace_what_was_there(kind: pa.DataType, nulls: str) -> None:
    values = VALUES[kind]
    old = pa.array([values[0], *values], kind).slice(1)
    new = pa.array([values[0], values[5], values[1]], kind).slice(1)
    if nulls == "old nulls":
        old = pa.concat_arrays([old.slice(0, 1), pa.nulls(1, kind), old.slice(2)])
    elif nulls == "new nulls":
        new = pa.concat_arrays([new.slice(0, 1), pa.nulls(1, kind)])
    before = old.to_pylist()
    at = np.array([1, 4])

    found = put(old, at, locations_of(len(old), at), new)

    expected = list(before)
    expected[1], expected[4] = new.to_pylist()
    assert found.to_pylist() == expected
    found.validate(full=True)
    assert old.to_pylist() == before, "the old rows were changed in place"


@pytest.mark.parametrize("nulls", ["no nulls", "old nulls", "new nulls"])
@pytest.mark.parametrize("rows", [127, 128, 129, 255, 256])
@pytest.mark.parametrize("count", [1, 2])
def test_a_few_of_many_texts_are_replaced(rows: int, count: int, nulls: str) -> None:
    """One in 128 is the most that is spliced."""
    texts = [None if nulls == "old nulls" and n % 5 == 2 else "ü" * (n % 4) + str(n) for n in range(rows + 6)]
    old = pa.array(texts).slice(3, rows)
    for first in (0, 1, 2, rows // 2, rows - count):
        at = np.arange(first, rows, rows - 1 - first or 1)[:count]
        new = pa.array(["x", "", None if nulls == "new nulls" else "longer than before", "x"]).slice(1)
        new = new.take(pa.array([2 - n % 2 - (n == 0) for n in range(len(at))]))
        found = put(old, at, locations_of(rows, at), new)
        expected = old.to_pylist()
        for n, text in zip(at.tolist(), new.to_pylist(), strict=True):
            expected[n] = text
        assert found.to_pylist() == expected
        found.validate(full=True)


def test_texts_that_stay_are_not_copied() -> None:
    old = pa.array([f"key-{n}" for n in range(100)])
    at = np.arange(10, 60)
    assert put(old, at, locations_of(100, at), old.take(pa.array(at))) is old


def test_one_text_after_the_first_compared_ones_is_enough() -> None:
    old = pa.array([f"key-{n}" for n in range(100)])
    at = np.arange(100)
    new = pa.array([*old.to_pylist()[:-1], "other"])
    assert put(old, at, locations_of(100, at), new).equals(new)


def locations_of(rows: int, at: Any) -> pa.Array:
    row_numbers = np.arange(rows)
    row_numbers[at] = rows + np.arange(len(at))
    return pa.array(row_numbers)
