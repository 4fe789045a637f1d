"""Incoming rows merged into stored batches: pure functions over Arrow, in file order and in key order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.engine.base import Task
from lakebed.errors import InvalidRecord
from lakebed.merge.incoming import Incoming, Intake
from lakebed.merge.meta_columns import FreshMeta
from lakebed.merge.row_merge import Counts, Merged, RowMerge, SortedRowMerge
from lakebed.merge.rules import MergeRules
from lakebed.model import COMMIT_TIME, DELETE, FILE_NAME, META_COLUMNS, RECORD_KEY

DATA = pa.schema([("v", pa.string()), ("ts", pa.int64())])
FILE = pa.schema([*((name, pa.string()) for name in META_COLUMNS), *DATA])
Given = tuple[str, str, int]


def fresh() -> FreshMeta:
    return FreshMeta(FILE, "2", "p", Task(partition=7))


def stored(*given: Given) -> pa.RecordBatch:
    """Rows of an earlier commit."""
    keys, values, times = zip(*given, strict=True)
    rows = pa.RecordBatch.from_arrays([pa.array(values), pa.array(times, pa.int64())], schema=DATA)
    return FreshMeta(FILE, "1", "p", Task()).with_meta(pa.array(keys), rows)


def incoming(*given: Given, deleted: Sequence[str] = (), rules: MergeRules | None = None) -> Incoming:
    keys, values, times = zip(*given, strict=True)
    intake = Intake(DATA, rules or MergeRules(), combine=True, all_deletes=False, memory=1 << 20)
    flags = pa.array([key in deleted for key in keys])
    return intake.split(pa.table({RECORD_KEY: keys, DELETE: flags, "v": values, "ts": pa.array(times, pa.int64())}))


def row_tuples(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.column(n).to_pylist() for n in (RECORD_KEY, "v", COMMIT_TIME)), strict=True))


def test_winners_take_the_place_of_stored_rows() -> None:
    merge = RowMerge(incoming(("b", "B", 5), ("d", "D", 5), ("c", "-", 5), deleted=["c"]), MergeRules(), fresh())
    merged = merge.merge(stored(("a", "a", 1), ("b", "b", 1), ("c", "c", 1)))
    assert row_tuples(merged.rows) == [("a", "a", "1"), ("b", "B", "2")]
    assert (len(merged.new_keys), merged.removed, merged.before) == (0, None, None)
    assert [row_tuples(batch) for batch in merge.rest()] == [[("d", "D", "2")]]
    assert merge.counts == Counts(updates=1, deletes=1, inserts=1)


def test_ordering_values_decide_and_losers_are_counted() -> None:
    rules = MergeRules(ordering=("ts",))
    merge = RowMerge(incoming(("a", "A", 1), ("b", "B", 3), rules=rules), rules, fresh())
    batch = stored(("a", "a", 2), ("b", "b", 2))
    assert merge.changes_anything([batch])
    assert row_tuples(merge.merge(batch).rows) == [("a", "a", "1"), ("b", "B", "2")]
    assert merge.counts == Counts(updates=1, unchanged=1)
    losing = RowMerge(incoming(("a", "A", 1), rules=rules), rules, fresh())
    assert not losing.changes_anything([batch])


def test_nothing_is_read_where_a_change_is_certain() -> None:
    def unread() -> Any:
        raise AssertionError("stored rows were read")
        yield

    assert RowMerge(incoming(("a", "A", 1)), MergeRules(), fresh()).changes_anything(unread())
    assert RowMerge(incoming(("a", "A", 1)), MergeRules(), fresh(), "none").changes_anything(unread())


def test_known_keys_are_dropped_doubled_or_refused() -> None:
    batch = stored(("a", "a", 1))
    for on_match, rest, unchanged in (("skip", [("b", "B", "2")], 1), ("none", [("a", "A", "2"), ("b", "B", "2")], 0)):
        merge = RowMerge(incoming(("a", "A", 5), ("b", "B", 5)), MergeRules(), fresh(), on_match)  # type: ignore[arg-type]
        assert row_tuples(merge.merge(batch).rows) == [("a", "a", "1")]
        assert [row for rows in merge.rest() for row in row_tuples(rows)] == rest
        assert merge.counts.unchanged == unchanged
    with pytest.raises(InvalidRecord, match="'a' is in the table already"):
        RowMerge(incoming(("a", "A", 5)), MergeRules(), fresh(), "fail").changes_anything([batch])


@pytest.mark.parametrize("kind", [RowMerge, SortedRowMerge])
def test_changed_rows_are_given_back_in_the_tracked_columns(kind: type[RowMerge]) -> None:
    rows = incoming(("a", "A", 5), ("b", "-", 5), ("bb", "new", 5), deleted=["b"])
    merged = kind(rows, MergeRules(), fresh(), tracked=(RECORD_KEY, "v", "absent")).merge(
        stored(("a", "a", 1), ("b", "b", 1), ("c", "c", 1))
    )
    assert _plain(merged.removed) == [("b", "b")]
    assert (_plain(merged.before), _plain(merged.after)) == ([("a", "a")], [("a", "A")])
    if kind is SortedRowMerge:
        assert _plain(merged.added) == [("bb", "new")]
    only_keys = kind(rows, MergeRules(), fresh(), tracked=(RECORD_KEY,)).merge(stored(("a", "a", 1)))
    assert (only_keys.before, only_keys.after) == (None, None)


def test_rows_in_key_order_go_where_their_keys_belong() -> None:
    rows = incoming(("a", "new", 5), ("c", "C", 5), ("d", "new", 5), ("z", "new", 5)).by_key()
    merge = SortedRowMerge(rows, MergeRules(), fresh())
    first = merge.merge(stored(("b", "b", 1), ("c", "c", 1)), "e")
    last = merge.merge(stored(("e", "e", 1)), None)
    assert shown_but_name(first) == [("a", "new", "2"), ("b", "b", "1"), ("c", "C", "2"), ("d", "new", "2")]
    assert shown_but_name(last) == [("e", "e", "1"), ("z", "new", "2")]
    assert (first.new_keys.to_pylist(), last.new_keys.to_pylist()) == (["a", "d"], ["z"])
    assert list(merge.rest()) == []
    assert merge.counts == Counts(updates=1, inserts=3)


def test_rows_without_room_are_left_for_the_next_file() -> None:
    merge = SortedRowMerge(incoming(("a", "1", 5), ("b", "2", 5), ("c", "3", 5)), MergeRules(), fresh(), room=1)
    assert shown_but_name(merge.merge(stored(("x", "x", 1)))) == [("a", "1", "2"), ("x", "x", "1")]
    assert [row for rows in merge.rest() for row in row_tuples(rows)] == [("b", "2", "2"), ("c", "3", "2")]


@pytest.mark.parametrize("kind", [RowMerge, SortedRowMerge])
def test_merging_equals_a_dictionary(kind: type[RowMerge]) -> None:
    random = np.random.default_rng(11)
    for _ in range(30):
        old = {f"k{n:03d}": f"old{n}" for n in sorted(random.choice(200, 80, replace=False).tolist())}
        new = {f"k{n:03d}": f"new{n}" for n in sorted(random.choice(200, 60, replace=False).tolist())}
        gone = [key for n, key in enumerate(new) if n % 3 == 0]
        merge = kind(incoming(*((k, v, 1) for k, v in new.items()), deleted=gone), MergeRules(), fresh())
        items, found = list(old.items()), dict[str, str]()
        for start in range(0, len(items), 16):
            part, later = items[start : start + 16], items[start + 16 :]
            merged = merge.merge(stored(*((k, v, 1) for k, v in part)), later[0][0] if later else None)
            found |= dict(zip(*(merged.rows.column(n).to_pylist() for n in (RECORD_KEY, "v")), strict=True))
        for batch in merge.rest():
            found |= dict(zip(*(batch.column(n).to_pylist() for n in (RECORD_KEY, "v")), strict=True))
        assert found == {k: v for k, v in (old | new).items() if k not in gone}


def test_new_rows_get_meta_columns_or_nulls() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(["v"]), pa.array([1], pa.int64())], schema=DATA)
    made = fresh().with_meta(pa.array(["k"]), rows)
    assert [made.column(n)[0].as_py() for n in META_COLUMNS] == ["2", "2_7_0", "k", "p", None]
    without = FreshMeta(FILE, "2", "p", Task(), populated=False).with_meta(pa.array(["k"]), rows)
    assert [without.column(n)[0].as_py() for n in META_COLUMNS] == [None] * 5


def shown_but_name(merged: Merged) -> list[tuple[Any, ...]]:
    """The rows; a batch with woven rows has no file name yet."""
    assert set(FILE.names) - set(merged.rows.schema.names) <= {FILE_NAME}
    return row_tuples(merged.rows)


def _plain(rows: pa.RecordBatch | None) -> list[tuple[Any, ...]]:
    assert rows is not None
    return list(zip(*(c.to_pylist() for c in rows.columns), strict=True))
