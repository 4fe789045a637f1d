"""Two rows of a key made one, by every mode: the observed answers of real Hudi 1.2.0."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.merge.combine import folded
from lakebed.merge.pairs import Side, merge_into, merge_pairs
from lakebed.merge.rules import MergeRules

SCHEMA = pa.schema([("_hoodie_commit_time", pa.string()), ("ts", pa.int64()), ("s", pa.string()), ("n", pa.int32())])
EVENT = MergeRules(ordering=("ts",))
COMMIT = MergeRules()


def row(at: str, ts: int | None, s: str | None = None, n: int | None = None) -> Side:
    return Side.of(
        pa.RecordBatch.from_arrays(
            [pa.array([v], f.type) for v, f in zip((at, ts, s, n), SCHEMA, strict=True)], schema=SCHEMA
        )
    )


def delete(ts: int | None, *, forced: bool = False) -> Side:
    one = row("d", ts)
    return Side(one.rows, np.array([True]), np.array([forced]))


def partial(at: str, ts: int, **given: Any) -> Side:
    values = {"_hoodie_commit_time": at, "ts": ts, **given}
    rows = pa.RecordBatch.from_pylist([values], SCHEMA)
    none = np.zeros(1, dtype=bool)
    return Side(rows, none, none, {name: none for name in SCHEMA.names if name not in values})


def merged(rules: MergeRules, base: Side | None, *log: Side) -> list[Any] | None:
    """The row that a slice shows: log records folded, then merged with the base row; None: it is gone."""
    folded = reduce(lambda older, newer: merge_pairs(rules, older, newer), log)
    result = folded if base is None else merge_pairs(rules, base, folded)
    return None if result.deletes[0] else list(result.rows.to_pylist()[0].values())


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ([row("1", 10, "new")], "new"),
        ([row("1", 9, "new")], "base"),
        ([row("1", 11, "new")], "new"),
        ([delete(9)], "base"),
        ([delete(10)], None),
        ([delete(11)], None),
        ([delete(11), row("1", 10, "late")], None),
        ([delete(11), row("1", 11, "tie")], "tie"),
        ([delete(0, forced=True)], None),
        ([delete(0, forced=True), row("1", 5, "low")], "base"),
        ([delete(0, forced=True), row("1", 10, "again")], "again"),
        ([delete(0, forced=True), delete(3)], None),
        ([row("1", 12, "high"), delete(0, forced=True)], None),
        ([row("1", 12, "high"), delete(11)], "high"),
        ([row("1", 12, "high"), row("2", 11, "lower")], "high"),
        ([row("1", 12, "one"), row("2", 12, "two")], "two"),
        ([row("1", None, "null")], "base"),
    ],
)
def test_event_time_keeps_the_greatest_ordering_value_and_of_equal_ones_the_later(
    log: Sequence[Side], shown: str | None
) -> None:
    found = merged(EVENT, row("0", 10, "base"), *log)
    assert (None if found is None else found[2]) == shown


def test_commit_time_keeps_the_later_record_whatever_it_is() -> None:
    base = row("0", 10, "base")
    assert merged(COMMIT, base, row("1", 9, "a"), row("2", 1, None, 4)) == ["2", 1, None, 4]
    assert merged(COMMIT, base, row("1", 9, "a"), delete(1)) is None
    assert merged(COMMIT, base, delete(20), row("2", 1, "b")) == ["2", 1, "b", None]


IGNORE_BY_EVENT = MergeRules(ordering=("ts",), partial="IGNORE_DEFAULTS")
IGNORE_BY_COMMIT = MergeRules(partial="IGNORE_DEFAULTS")
LATE_META = MergeRules(ordering=("ts",), partial="IGNORE_DEFAULTS", deletes_win=True, late_meta=True)
BASE = row("0", 10, "base", 1)


def test_ignore_defaults_takes_the_other_rows_value_for_nulls() -> None:
    assert merged(IGNORE_BY_EVENT, BASE, row("1", 11, None, 5), row("2", 12, "z")) == ["2", 12, "z", 5]
    assert merged(IGNORE_BY_EVENT, BASE, row("1", 10, "tie")) == ["1", 10, "tie", 1]
    assert merged(IGNORE_BY_EVENT, BASE, row("1", 9, "old"), row("2", 8, None, 77)) == ["0", 10, "base", 1]
    assert merged(IGNORE_BY_COMMIT, BASE, row("1", 9, "old"), row("2", 8, None, 77)) == ["2", 8, "old", 77]


def test_a_late_row_fills_the_gaps_of_the_newer_one() -> None:
    assert merged(IGNORE_BY_EVENT, row("0", 10, None, 1), row("1", 3, "late", 9)) == ["0", 10, "late", 1]


def test_below_version_9_a_late_row_gives_its_meta_columns() -> None:
    assert merged(LATE_META, row("1", 10, None, 1), row("2", 9, "late", 2)) == ["2", 10, "late", 1]
    assert merged(LATE_META, None, row("1", 10, "a", 1), row("2", 9), row("3", 8)) == ["3", 10, "a", 1]
    assert merged(LATE_META, row("1", 10, "a"), row("2", 10, None, 7)) == ["2", 10, "a", 7]
    assert merged(LATE_META, row("1", 10, "a"), delete(9)) is None
    assert merged(LATE_META, None, row("1", 10, "a"), delete(9), row("2", 8)) == ["2", 8, None, None]
    older, late = row("1", 10, "a", 1), row("2", 9)
    assert [
        flags.tolist() for _, flags in [merge_into(rules, older, late) for rules in (LATE_META, IGNORE_BY_EVENT)]
    ] == [
        [True],
        [False],
    ]


def test_a_delete_gives_no_values_and_takes_none() -> None:
    assert merged(IGNORE_BY_EVENT, BASE, delete(11), row("1", 12, None, 5)) == ["1", 12, "base", 5]
    assert merged(IGNORE_BY_EVENT, None, delete(11), row("1", 12, None, 5)) == ["1", 12, None, 5]
    assert merged(IGNORE_BY_EVENT, BASE, row("1", 12, None, 5), delete(13)) is None


def test_fill_unavailable_takes_the_other_rows_text_for_the_marker() -> None:
    rules = MergeRules(ordering=("ts",), partial="FILL_UNAVAILABLE", unavailable="?")
    assert merged(rules, BASE, row("1", 11, "?", None)) == ["1", 11, "base", None]
    assert merged(rules, BASE, row("1", 10, "?", 4)) == ["1", 10, "base", 4]
    assert merged(rules, BASE, row("1", 9, "text", 4)) == ["0", 10, "base", 1]
    assert merged(rules, row("0", 10, "?", 1), row("1", 9, "text", 4)) == ["0", 10, "text", 1]


def test_records_of_partial_blocks_merge_field_by_field() -> None:
    base = Side.of(BASE.rows, partial=True)
    assert merged(EVENT, base, partial("1", 11, n=5), partial("2", 12, s="z")) == ["2", 12, "z", 5]
    assert merged(EVENT, base, partial("1", 11, s=None)) == ["1", 11, None, 1]
    assert merged(EVENT, base, partial("1", 9, s="late")) == ["0", 10, "base", 1]
    assert merged(EVENT, base, partial("1", 12, n=5), partial("2", 11, n=6, s="late")) == ["1", 12, "late", 5]
    assert merged(EVENT, None, partial("1", 11, n=5)) == ["1", 11, None, 5]
    assert merged(COMMIT, base, partial("1", 11, n=5), partial("2", 3, s="z")) == ["2", 3, "z", 5]


def test_many_pairs_are_decided_each_by_itself() -> None:
    generator = np.random.default_rng(7)
    n = 500
    sides = [
        pa.RecordBatch.from_pydict(
            {
                "ts": pa.array(generator.integers(0, 4, n)),
                "s": pa.array([None if v < 0.4 else f"{v:.3f}" for v in generator.random(n)]),
                "list": pa.array([None if v < 0.4 else [v] for v in generator.random(n)]),
                "dict": pa.array([None if v < 0.4 else f"{v:.1f}" for v in generator.random(n)]).dictionary_encode(),
            }
        )
        for _ in range(2)
    ]
    result = merge_pairs(IGNORE_BY_EVENT, *map(Side.of, sides)).rows.to_pylist()
    for old, new, found in zip(*(side.to_pylist() for side in sides), result, strict=True):
        high, low = (new, old) if new["ts"] >= old["ts"] else (old, new)
        assert found == {name: low[name] if value is None else value for name, value in high.items()}


@pytest.mark.parametrize("present", [False, True])
@pytest.mark.parametrize(
    "rules",
    [
        IGNORE_BY_EVENT,
        IGNORE_BY_COMMIT,
        MergeRules(ordering=("ts", "n"), partial="IGNORE_DEFAULTS"),
        MergeRules(ordering=("ts",), partial="IGNORE_DEFAULTS", deletes_win=True),
        LATE_META,
        MergeRules(ordering=("ts",), partial="FILL_UNAVAILABLE", unavailable="a"),
        MergeRules(partial="FILL_UNAVAILABLE", unavailable="a"),
        EVENT,
        COMMIT,
    ],
    ids=lambda rules: f"{rules.partial}-{'-'.join(rules.ordering)}-{rules.deletes_win}-{rules.late_meta}",
)
def test_many_records_of_a_key_in_one_go_are_what_they_are_two_at_a_time(rules: MergeRules, present: bool) -> None:
    if not present and not rules.partial:
        return
    generator = np.random.default_rng(3)
    for _ in range(60):
        counts = np.sort(generator.integers(1, 9, generator.integers(1, 7)))[::-1]
        side = records(generator, int(counts.sum()), present=present)
        side = replace(side, ordering=tuple(rules.ordering_of(side.rows)))
        starts = np.cumsum([0, *counts[:-1]])
        runs = zip(starts.tolist(), counts.tolist(), strict=True)
        one = Side.concat([two_at_a_time(rules, side, *run) for run in runs])
        other = folded(rules, side, starts)
        alive = ~one.deletes
        assert other.deletes.tolist() == one.deletes.tolist()
        if not rules.deletes_win:  # all deletes are alike there
            assert other.forced.tolist() == one.forced.tolist()
        kept = pa.array(alive)
        assert other.rows.filter(kept).to_pylist() == one.rows.filter(kept).to_pylist()
        if present:
            for name in SCHEMA.names:
                assert other.has(name)[alive].tolist() == one.has(name)[alive].tolist()
        assert (other.present is None) == (one.present is None)


def two_at_a_time(rules: MergeRules, side: Side, start: int, count: int) -> Side:
    return reduce(lambda a, b: merge_pairs(rules, a, b), (side.slice(start + i, 1) for i in range(count)))


def records(generator: np.random.Generator, n: int, *, present: bool) -> Side:
    def some(values: Sequence[Any], type: pa.DataType) -> pa.Array:
        return pa.array([values[i] for i in generator.integers(0, len(values), n)], type)

    has = {name: generator.random(n) < 0.6 for name in ("s", "n")} if present else {}
    s, number = some([None, "a", "b", "c"], pa.string()), some([None, 1, 2, 3], pa.int32())
    if present:
        s, number = (pc.if_else(pa.array(has[k]), v, None) for k, v in (("s", s), ("n", number)))
    at = pa.array([str(i) for i in range(n)])
    rows = pa.RecordBatch.from_arrays([at, some([None, 0, 1, 2, 3], pa.int64()), s, number], schema=SCHEMA)
    deletes = generator.random(n) < 0.3
    return Side(rows, deletes, deletes & (generator.random(n) < 0.4), has if present else None)
