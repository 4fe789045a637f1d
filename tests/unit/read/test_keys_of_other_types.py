"""Keys that are given as values of another type find the row of the same value, or are refused: never a near one."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption

_numbers = count()
NOON = datetime(2020, 1, 1, 12, 0, 0, 5)
# A key type, its stored keys, and keys that Arrow would make one of them.
REFUSED: list[tuple[pa.DataType, list[Any], Any]] = [
    (pa.int64(), [1, 2], [2.5]),
    (pa.int64(), [1, 2], [1, 2.5]),
    (pa.int64(), [1, 2], np.array([2.5])),
    (pa.int64(), [1, 2], [Decimal("2.5")]),
    (pa.int64(), [1, 2], [True]),
    (pa.int64(), [1, 2], pa.array([2.5])),
    (pa.int64(), [1, 2], pa.array([True])),
    (pa.date32(), [date(2020, 1, 1)], [NOON]),
    (pa.date32(), [date(1970, 1, 6)], [5]),
    (pa.date32(), [date(2020, 1, 1)], pa.array([NOON])),
    (pa.date32(), [date(1970, 1, 6)], pa.array([5])),
    (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=UTC)], [NOON]),
    (pa.timestamp("us", "UTC"), [datetime(1970, 1, 1, 0, 0, 0, 5, UTC)], [5]),
    (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=UTC)], pa.array([NOON])),
    (pa.timestamp("us"), [NOON], [NOON.replace(tzinfo=UTC)]),
    (pa.timestamp("us"), [NOON], pa.array([NOON.replace(tzinfo=UTC)])),
    (pa.timestamp("ms"), [NOON.replace(microsecond=0)], [NOON]),
    (pa.decimal128(5, 2), [Decimal("1.00")], pa.array([1.004])),
    (pa.decimal128(5, 2), [Decimal("1.00")], [Decimal("1.004")]),
    (pa.bool_(), [True], pa.array([2])),
    (pa.float32(), [0.5, 1.0], pa.array([True])),
]
TAKEN: list[tuple[pa.DataType, list[Any], Any]] = [
    (pa.int64(), [1, 2], [2.0]),
    (pa.int64(), [1, 2], [Decimal(2)]),
    (pa.int64(), [1, 2], pa.array([2], pa.int8())),
    (pa.int64(), [1, 2], pa.array(["2"])),
    (pa.int64(), [1, 2], pa.array([2]).dictionary_encode()),
    (pa.date32(), [date(2020, 1, 1), date(2020, 1, 2)], pa.array([date(2020, 1, 2)], pa.date64())),
    (pa.date32(), [date(2020, 1, 1), date(2020, 1, 2)], pa.array([datetime(2020, 1, 2)])),
    (pa.timestamp("ms"), [datetime(2020, 1, 1), datetime(2020, 1, 2)], [datetime(2020, 1, 2)]),
    (pa.decimal128(5, 2), [Decimal("1.00"), Decimal("2.00")], [2]),
    (pa.float32(), [0.5, 0.1], [0.1]),
    (pa.string(), ["1", "2"], pa.array([2])),
]

pytestmark = pytest.mark.every_case


def table_of(kind: pa.DataType, keys: list[Any]) -> lakebed.Table:
    rows = pa.table({"k": pa.array(keys, kind), "n": range(len(keys))})
    table = lakebed.create(f"memory://keys-of-other-types/{next(_numbers)}", rows, key="k", index="simple")
    table.upsert(rows)
    return table


@pytest.mark.parametrize(("kind", "stored", "keys"), REFUSED, ids=str)
def test_a_key_that_would_become_another_one_is_refused_by_every_lookup(
    kind: pa.DataType, stored: list[Any], keys: Any
) -> None:
    table = table_of(kind, stored)
    for look in (table.get, table.exists, table.locate, table.delete):
        with pytest.raises(InvalidOption, match="key column"):
            look(keys)
    assert table.count() == len(stored)


@pytest.mark.parametrize(("kind", "stored", "keys"), TAKEN, ids=str)
def test_a_key_of_another_type_finds_the_row_of_its_value(kind: pa.DataType, stored: list[Any], keys: Any) -> None:
    table = table_of(kind, stored)
    assert table.get(keys)["n"].to_pylist() == [len(stored) - 1]
    assert table.exists(keys).to_pylist() == [True]
    assert table.delete(keys).deleted == 1
    assert table.scan().to_arrow()["n"].to_pylist() == list(range(len(stored) - 1))
