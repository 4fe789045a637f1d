"""Which log record of a key stays: the fold of all at once against Hudi's rules, one record after another."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.merge.log_entries import LogEntries, fold
from lakebed.merge.rules import MergeRules

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [-3, 0, 1, 7]),
    "long": (pa.int64(), [0, 1, 1 << 40]),
    "double": (pa.float64(), [-1.5, 0.0, 2.5, float("inf"), float("nan")]),
    "decimal": (pa.decimal128(10, 2), [Decimal("-1.00"), Decimal("0.25"), Decimal("99.99")]),
    "text": (pa.string(), ["", "a", "b", "é", "\U0001f600"]),
    "date": (pa.date32(), [date(1960, 1, 1), date(1970, 1, 1), date(2024, 2, 3)]),
    "boolean": (pa.bool_(), [False, True]),
}


def entries_of(rng: np.random.Generator, count: int, kinds: list[str], *, nulls: bool) -> LogEntries:
    """Random records of few keys."""
    columns: list[pa.Array] = []
    for name in kinds:
        kind, values = KINDS[name]
        chosen = [values[at] for at in rng.integers(0, len(values), count)]
        columns.append(pa.array([None if nulls and rng.random() < 0.2 else v for v in chosen], kind))
    deletes = rng.random(count) < 0.4
    forced = deletes & (rng.random(count) < 0.4)
    keys = pa.array([f"k{n}" for n in rng.integers(0, max(1, count // 4), count)])
    return LogEntries(
        keys, tuple(columns), deletes, forced, np.zeros(count, np.int32), np.arange(count, dtype=np.int64)
    )


def one_by_one(entries: LogEntries, rules: MergeRules) -> list[int]:
    """The fold as Hudi does it: a map from key to the record that counts so far."""
    ranks = [_rank(values) for values in entries.ordering]
    kept: dict[str, int] = {}
    for new, key in enumerate(entries.keys.to_pylist()):
        old = kept.get(key)
        if old is None or not rules.ordering:
            kept[key] = new
            continue
        less = [r[new] for r in ranks] < [r[old] for r in ranks]
        if entries.deletes[new]:
            stays = entries.forced[old] or (not entries.forced[new] and less)
        else:
            stays = not entries.forced[old] and less
        kept[key] = old if stays else new
    return sorted(kept.values())


def _rank(values: pa.Array) -> list[tuple[int, Any]]:
    """What Python compares as the values do: nulls are smallest, NaN is greatest."""
    ranks: list[tuple[int, Any]] = []
    for value in values.to_pylist():
        if value is None:
            ranks.append((0, 0))
        elif value != value:
            ranks.append((2, 0))
        else:
            ranks.append((1, value.encode() if isinstance(value, str) else value))
    return ranks


@pytest.mark.parametrize(
    "kinds", [[], *([name] for name in KINDS), ["long", "text"], ["date", "int", "decimal"]], ids=str
)
@pytest.mark.parametrize("nulls", [False, True])
def test_the_record_that_stays_is_that_of_the_fold(kinds: list[str], nulls: bool) -> None:
    rng = np.random.default_rng(len(kinds) + nulls)
    rules = MergeRules(ordering=tuple(kinds))
    for count in (1, 2, 7, 40, 200):
        for _ in range(20):
            entries = entries_of(rng, count, kinds, nulls=nulls)
            assert outcomes(entries, fold(entries, rules).tolist()) == outcomes(entries, one_by_one(entries, rules))


def outcomes(entries: LogEntries, kept: list[int]) -> dict[str, int]:
    """The record of each key; of commit-time deletes one is like the other."""
    assert kept == sorted(kept)
    return {entries.keys[at].as_py(): -1 if entries.forced[at] and entries.ordering else at for at in kept}


def test_records_of_rows_of_the_base_file_are_distinguished_by_those() -> None:
    entries = LogEntries(
        pa.array(["a", "a", "a"]),
        (),
        np.zeros(3, np.bool_),
        np.zeros(3, np.bool_),
        np.zeros(3, np.int32),
        np.arange(3),
        np.array([4, 9, 4]),
    )
    assert fold(entries, MergeRules()).tolist() == [2]
    assert fold(entries, MergeRules(), by_position=True).tolist() == [1, 2]
