"""Filters over ranges, by brute force on made files: right records of every type, and the wrong ones of Hudi."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.errors import InvalidOption
from lakebed.filters.predicates import Predicate
from lakebed.filters.ranges import Bounds, may_match
from lakebed.filters.sql import parse_filter
from lakebed.metadata_records.stats_codec import stats_schema
from lakebed.read.statistics import bounds_of_files, bounds_of_partitions, of_slices
from support.random_filters import FilterMaker

FILES = 45
FILTERS = 40
NAN = float("nan")
_WORDS = ("", "a", "ab", "abc", "b", "ba", "Zürich", "\ue000", "\uffff", "😀", "😀a", "a😀", "zz", "a\ue001")


def _spread(numbers: Callable[[random.Random], Any]) -> Callable[[random.Random], list[Any]]:
    """Values of one file: a few, around a place of its own, some null."""

    def values(dice: random.Random) -> list[Any]:
        some = [numbers(dice) for _ in range(dice.choice((1, 2, 5)))]
        return [None if dice.random() < 0.2 else v for v in some] if dice.random() < 0.9 else [None, None]

    return values


MAKERS: dict[pa.DataType, Callable[[random.Random], list[Any]]] = {
    pa.int32(): _spread(lambda d: d.randint(-20, 20)),
    pa.int64(): _spread(lambda d: d.randint(-20, 20) * 10**9),
    pa.float64(): _spread(lambda d: d.choice((NAN, 0.0, -0.0, 1.5, -1.5, float("inf"), d.uniform(-9, 9)))),
    pa.float32(): _spread(lambda d: d.choice((NAN, 0.0, -0.0, 0.1, -1.5))),
    pa.string(): _spread(lambda d: d.choice(_WORDS)),
    pa.bool_(): _spread(lambda d: d.random() < 0.5),
    pa.date32(): _spread(lambda d: date(2024, 1, 1) + timedelta(days=d.randint(-9, 9))),
    pa.timestamp("us", "UTC"): _spread(lambda d: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=d.randint(-9, 9))),
    pa.timestamp("us"): _spread(lambda d: datetime(2024, 1, 1) + timedelta(hours=d.randint(-9, 9))),
    pa.decimal128(12, 2): _spread(lambda d: Decimal(d.randint(-500, 500)).scaleb(-2)),
}
every_type = pytest.mark.parametrize("kind", list(MAKERS), ids=str)


def made_files(kind: pa.DataType, seed: int) -> list[pa.Array]:
    dice = random.Random(seed)
    return [pa.array(MAKERS[kind](dice), kind) for _ in range(FILES)]


def extremes(values: pa.Array) -> tuple[Any, Any]:
    """As lakebed writes them: NaN is the greatest."""
    held = values.drop_null()
    if not len(held):
        return None, None
    if pa.types.is_floating(values.type):
        plain = held.filter(pc.invert(pc.is_nan(held)))
        ends = pc.min_max(plain).as_py()
        low = ends["min"] if len(plain) else NAN
        return low, ends["max"] if len(plain) == len(held) else NAN
    ends = pc.min_max(held).as_py()
    return ends["min"], ends["max"]


def records(files: list[pa.Array], of: Callable[[pa.Array], tuple[Any, Any, int]]) -> pa.Table:
    kind = files[0].type
    found = [of(values) for values in files]
    columns: dict[str, Any] = {
        "key": [f"k{n}" for n in range(len(files))],
        "file_name": [f"f{n}" for n in range(len(files))],
        "min": [low for low, _, _ in found],
        "max": [high for _, high, _ in found],
        "null_count": [nulls for _, _, nulls in found],
        "value_count": [len(values) for values in files],
        "total_size": [1] * len(files),
        "total_uncompressed": [1] * len(files),
        "is_deleted": [False] * len(files),
        "is_tight": [False] * len(files),
    }
    schema = stats_schema(kind)
    return pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


def names(files: list[pa.Array]) -> pa.Array:
    return pa.array([f"f{n}" for n in range(len(files))])


def right(values: pa.Array) -> tuple[Any, Any, int]:
    return (*extremes(values), values.null_count)


def as_hudi(values: pa.Array) -> tuple[Any, Any, int]:
    """NaN makes 0.0 of a range, texts are ordered as UTF-16, a text of some length has no statistics."""
    held = values.drop_null().to_pylist()
    if pa.types.is_floating(values.type) and any(v != v for v in held):
        return 0.0, 0.0, values.null_count
    if pa.types.is_string(values.type) and held:
        if max(map(len, held)) > 2:
            return None, None, len(values)
        ordered = sorted(held, key=lambda text: text.encode("utf-16-be"))
        return ordered[0], ordered[-1], values.null_count
    return right(values)


def filters(files: list[pa.Array], seed: int, count: int = FILTERS) -> list[Predicate]:
    rows = pa.table({"c": pa.concat_arrays(files)})
    maker = FilterMaker(rows, seed)
    found: list[Predicate] = []
    while len(found) < count:
        one = parse_filter(maker.filter(), rows.schema)
        try:
            one.to_arrow()
        except InvalidOption:
            continue
        found.append(one)
    return found


def holding(predicate: Predicate, files: list[pa.Array]) -> np.ndarray[Any, Any]:
    owner = np.repeat(np.arange(len(files)), [len(v) for v in files])
    rows = pa.table({"c": pa.concat_arrays(files), "owner": owner}).filter(predicate.to_arrow())
    held = np.zeros(len(files), np.bool_)
    held[rows["owner"].to_numpy()] = True
    return held


def check(bounds: Bounds, files: list[pa.Array], seed: int) -> int:
    """No file with a match is dropped; how many are."""
    dropped = 0
    for predicate in filters(files, seed):
        kept = may_match(predicate.root, {("c",): bounds}, len(files))
        lost = holding(predicate, files) & ~kept
        assert not lost.any(), (predicate.text, [files[n].to_pylist() for n in np.flatnonzero(lost)])
        dropped += int((~kept).sum())
    return dropped


@every_type
def test_right_statistics_never_hide_a_row(kind: pa.DataType) -> None:
    files = made_files(kind, 1)
    exact = np.ones(FILES, np.bool_)
    bounds = bounds_of_files(records(files, right), names(files), exact, kind)
    assert check(bounds, files, 2) > FILES * FILTERS // 5


@every_type
def test_bounds_from_statistics_as_hudi_writes_them_lose_no_row(kind: pa.DataType) -> None:
    files = made_files(kind, 3)
    bounds = bounds_of_files(records(files, as_hudi), names(files), np.zeros(FILES, np.bool_), kind)
    dropped = check(bounds, files, 4)
    assert pa.types.is_floating(kind) or dropped > FILES * FILTERS // 20


@every_type
def test_ranges_of_one_value_and_of_nulls_are_exact(kind: pa.DataType) -> None:
    """With one value in a file and right statistics, a leaf is decided without a doubt."""
    dice = random.Random(5)
    values = [v for v in MAKERS[kind](dice) + MAKERS[kind](dice) + MAKERS[kind](dice) if v is not None]
    files = [pa.array([v, v], kind) for v in values] + [pa.array([None], kind)]
    bounds = bounds_of_files(records(files, right), names(files), np.ones(len(files), np.bool_), kind)
    if pa.types.is_string(kind):  # such texts are left out of the ranges
        files = [f for f in files if not any(max(map(ord, v or ""), default=0) >= 0xE000 for v in f.to_pylist())]
        bounds = bounds_of_files(records(files, right), names(files), np.ones(len(files), np.bool_), kind)
    rows = pa.table({"c": pa.concat_arrays(files)})
    maker = FilterMaker(rows, 6)
    for _ in range(FILTERS):
        predicate = parse_filter(maker.leaf(), rows.schema)
        try:
            held = holding(predicate, files)
        except InvalidOption:
            continue
        kept = may_match(predicate.root, {("c",): bounds}, len(files))
        if "LIKE" in predicate.text:  # a pattern's inner part is not looked at
            assert not (held & ~kept).any()
        else:
            assert (kept == held).all(), predicate.text


@every_type
def test_slices_of_several_files(kind: pa.DataType) -> None:
    files = made_files(kind, 7)
    owner = np.sort(np.random.default_rng(8).integers(0, FILES // 3, FILES))
    owner = np.unique(owner, return_inverse=True)[1].astype(np.int64)
    slices = int(owner.max()) + 1
    exact = np.ones(FILES, np.bool_)
    stats = records(files, right).slice(0, FILES - 4)  # the last have no record
    bounds = of_slices(bounds_of_files(stats, names(files), exact, kind), owner, slices)
    merged = [pa.concat_arrays([files[n] for n in np.flatnonzero(owner == s)]) for s in range(slices)]
    assert check(bounds, merged, 9) > slices * FILTERS // 20
    last = np.unique(owner[-4:])
    assert not pc.any(bounds.low.take(pa.array(last)).is_valid()).as_py()


@pytest.mark.every_case
@every_type
@pytest.mark.parametrize("log_files", [False, True])
@pytest.mark.parametrize("version", [1, 2])
def test_partitions_by_records_of_hudi(kind: pa.DataType, log_files: bool, version: int) -> None:
    """Files that Hudi has no range of are left out of the partition's, but count as nulls."""
    files = made_files(kind, 10)
    owner = np.arange(FILES) // 3
    merged = [pa.concat_arrays([files[n] for n in np.flatnonzero(owner == p)]) for p in range(FILES // 3)]

    numbers = iter(range(len(merged)))

    def of(_: pa.Array) -> tuple[Any, Any, int]:
        at = next(numbers)
        own = [as_hudi(files[n]) for n in np.flatnonzero(owner == at)]
        ends = extremes(pa.array([e for low, high, _ in own for e in (low, high)], kind))
        return (*ends, sum(nulls for _, _, nulls in own))

    stats = records(merged, of)
    bounds = bounds_of_partitions(stats, names(merged), kind, version=version, log_files=log_files)
    check(bounds, merged, 11)


def test_a_file_without_a_record_or_with_two_says_nothing() -> None:
    files = [pa.array([n]) for n in range(4)]
    stats = pa.concat_tables([records(files, right), records(files, right).slice(1, 1)]).slice(1)
    bounds = bounds_of_files(stats, names(files), np.zeros(4, np.bool_), pa.int64())
    assert bounds.low.to_pylist() == [None, None, 2, 3]
    predicate = parse_filter("c = 100", pa.schema({"c": pa.int64()}))
    assert may_match(predicate.root, {("c",): bounds}, 4).tolist() == [True, True, False, False]
    nothing = bounds_of_files(None, names(files), np.zeros(4, np.bool_), pa.int64())
    assert may_match(predicate.root, {("c",): nothing}, 4).all()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("CAST(c AS DOUBLE) > 2.5", [False, False, False, True]),
        ("c > 2.5", [False, False, False, True]),
        ("CAST(c AS STRING) = '3'", [True] * 4),
        ("c = 1 OR d = 1", [True] * 4),
        ("c = 1 AND d = 1", [False, True, False, False]),
        ("NOT (c = 1 OR c > 2)", [True, False, True, False]),
        ("c IN (0, 7, 3)", [True, False, False, True]),
        ("c NOT IN (0, 7, 3)", [False, True, True, False]),
        ("c IN (5, NULL)", [False] * 4),
        ("c <=> NULL", [False] * 4),
    ],
)
def test_conditions_keep_the_files_that_may_match(text: str, kept: list[bool]) -> None:
    files = [pa.array([n], pa.int32()) for n in range(4)]
    bounds = bounds_of_files(records(files, right), names(files), np.zeros(4, np.bool_), pa.int32())
    predicate = parse_filter(text, pa.schema({"c": pa.int32(), "d": pa.int32()}))
    assert may_match(predicate.root, {("c",): bounds}, 4).tolist() == kept
