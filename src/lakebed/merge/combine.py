"""Combines the rows of each key in one batch into one row, by the table's merge rules.

`folded` combines all records of a key at once, for partial updates; `pairs` would take a round for each record.

The result is the same as merging the records two at a time, oldest first. Deletes and ordering values alone decide
which records win: after the last commit-time delete, each record that is not smaller than any before it. A column's
value comes from the last winner that has one, after the last delete that won; if no winner has one, from the first
record that has one.

`combine_by_key` combines the rows of a key before a global index looks the key up: a shuffle by key, then one row per
key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Engine, Rows, Task
from lakebed.merge.pairs import CHANGING_META, Flags, Side, empty_values, is_data, merge_pairs, ordering_of
from lakebed.merge.rules import MergeRules, nulls_first
from lakebed.merge.unavailable import may_mark_inside
from lakebed.model import COMBINED, DELETE, RECORD_KEY
from lakebed.schema.plain_arrow import as_numpy, one_array
from lakebed.sharing import once


def folded(rules: MergeRules, side: Side, starts: Positions) -> Side:
    """The records merged to one per key. The records of a key are adjacent, from its position in `starts` on, and are
    merged in the given order."""
    return _Runs(rules, side, starts).folded()


@dataclass(frozen=True)
class _Runs:
    """The records of several keys, those of a key consecutive: `_last` and `_first` look for one record per key."""

    rules: MergeRules
    side: Side
    starts: Positions

    def folded(self) -> Side:
        winner, side = self.winner, self.side
        result = side.take(winner)
        values = {name: side.rows.column(name).take(pa.array(at)) for name, at in self._filled()}
        present = None
        if side.present is not None:
            present = {name: self._is_there(name) for name in side.present}
            present = {name: has for name, has in present.items() if not has.all()}
        return Side(result.with_columns(values).rows, result.deletes, result.forced, present, result.ordering)

    @once
    def row_numbers(self) -> Positions:
        return np.arange(self.side.length)

    @once
    def run(self) -> Positions:
        """The number of each record's key."""
        begins = np.zeros(self.side.length, dtype=np.int64)
        begins[self.starts[1:]] = 1
        return np.cumsum(begins)

    @once
    def begins(self) -> Positions:
        """The position of each key's first record that counts; no record of the key counts if a commit-time delete is
        its last."""
        data = self._first(~self.side.deletes & (self.row_numbers > self.undone[self.run]))
        return np.where(self.undone < 0, self.starts, data)

    @once
    def undone(self) -> Positions:
        """The position of the last commit-time delete of each key, -1 if it has none: earlier records do not count. If
        the later record always wins such a delete is like any other, and all are -1."""
        if not self.rules.ordering:
            return np.full(len(self.starts), -1)
        forced = self.side.forced | self.side.deletes if self.rules.deletes_win else self.side.forced
        return self._last(forced)

    @once
    def wins(self) -> Flags:
        """Flags of the records whose ordering values are not lower than those of every earlier counting record of the
        key."""
        counts = self.row_numbers >= self.begins[self.run]
        ranks = 1 + self._ranks()
        raised = np.where(counts, ranks, 0) + self.run * (int(ranks.max(initial=0)) + 1)
        return counts & (raised == np.maximum.accumulate(raised))

    @once
    def winner(self) -> Positions:
        """The position of each key's last record that wins; its last commit-time delete if no record counts."""
        winner = self._last(self.wins)
        return np.where(winner < 0, self.undone, winner)

    @once
    def gives(self) -> Flags:
        """Flags of the records that may supply column values: from the first winner after the key's last winning delete
        on."""
        deletes = self.side.deletes
        last_delete = self._last(self.wins & deletes)
        first = self._first(self.wins & ~deletes & (self.row_numbers > last_delete[self.run]))
        return (self.row_numbers >= first[self.run]) & ~deletes

    def _filled(self) -> list[tuple[str, Positions]]:
        """The columns whose values come from records other than the winners, each with the position of the record that
        supplies each key's value."""
        side = self.side
        names = side.rows.schema.names if side.present is None else side.present
        sources: list[tuple[str, Positions]] = []
        for name in names:
            says = self._says(name)
            if says is None:
                continue
            latest, first = self._last(self.gives & self.wins & says), self._first(self.gives & says)
            fallback = np.where(first < side.length, first, self.winner)
            sources.append((name, np.where(latest < 0, fallback, latest)))
        if self.rules.late_meta and side.present is None:
            latest = self._last(self.gives)
            at = np.where(latest < 0, self.winner, latest)
            sources += [(name, at) for name in CHANGING_META if name in side.rows.schema.names]
        return sources

    def _says(self, name: str) -> Flags | None:
        """Flags of the records that have a value in a column; None if all have one."""
        if self.side.present is not None:
            return self.side.has(name)
        empty = empty_values(self.rules, self.side.rows.column(name)) if is_data(name) else None
        return None if empty is None else ~empty

    def _is_there(self, name: str) -> Flags:
        has = self.side.has(name)
        has_value = self._first(self.gives & has) < self.side.length
        return np.where(self.side.deletes[self.winner], has[self.winner], has_value)

    def _ranks(self) -> Positions:
        """The rank of each record by its ordering values, from 0; equal ordering values have equal ranks. Without
        ordering fields all ranks are 0."""
        n = self.side.length
        if not self.rules.ordering:
            return np.zeros(n, dtype=np.int64)
        columns = nulls_first(self.rules.comparable(ordering_of(self.rules, self.side)))
        table = pa.table(columns, names=[str(i) for i in range(len(columns))])
        order = as_numpy(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]))
        differs = np.zeros(n, dtype=bool)
        for column in columns:
            codes = as_numpy(pc.fill_null(column.dictionary_encode().indices, -1))[order]
            differs[1:] |= codes[1:] != codes[:-1]
        ranks = np.empty(n, dtype=np.int64)
        ranks[order] = np.cumsum(differs)
        return ranks

    def _last(self, flags: Flags) -> Positions:
        """The position of the last flagged record of each key; -1 if it has none."""
        return np.maximum.reduceat(np.where(flags, self.row_numbers, -1), self.starts)

    def _first(self, flags: Flags) -> Positions:
        """The position of the first flagged record of each key; the number of all records if it has none."""
        return np.minimum.reduceat(np.where(flags, self.row_numbers, self.side.length), self.starts)


Positions = npt.NDArray[np.int64]

# More records of a key than this are merged in rounds only where there is no other way.
_MAX_ITEMS = 4


@dataclass(frozen=True, slots=True)
class Combined:
    """Rows in which the rows of each key are combined into one.

    `row_numbers` are their positions in `rows`: the rows as they came, followed by those made of several. `last` is the
    position of each key's last row among those that came.
    """

    rows: pa.Table
    row_numbers: Positions
    last: Positions
    deletes: Flags
    forced: Flags

    def in_rows(self, numbers: Positions) -> Positions:
        """The numbers of the received rows, in the positions of `rows`: a row made of several has the number of the
        last of them."""
        numbers_in_rows = np.zeros(self.rows.num_rows, np.int64)
        numbers_in_rows[self.row_numbers] = numbers[self.last]
        return numbers_in_rows


def combine(rows: pa.Table, keys: Sequence[str], rules: MergeRules) -> pa.Table:
    """One row per key, in the order of the rows: the winner (`winners`), or the row that they make together. A column
    `DELETE` marks the rows that the user's merger deletes; a column `COMBINED` counts the rows that were combined."""
    if COMBINED in rows.column_names:
        return _counted(rows, keys, rules)
    if rules.picks_winners:
        row_numbers = winners(rows, keys, rules)
        return rows if row_numbers is None else rows.take(pa.array(row_numbers))
    combined = merged_duplicates(rows, keys, rules)
    if combined is None:
        return rows
    result = combined.rows.take(pa.array(combined.row_numbers))
    if rules.merger is not None and DELETE in result.column_names:
        result = result.set_column(result.column_names.index(DELETE), DELETE, pa.array(combined.deletes))
    return result


def _counted(rows: pa.Table, keys: Sequence[str], rules: MergeRules) -> pa.Table:
    result = combine(rows.drop_columns([COMBINED]), keys, rules)
    if result.num_rows == rows.num_rows:
        return rows
    codes, distinct = key_codes(pa.concat_tables([rows.select(keys), result.select(keys)]), keys)
    counts = np.bincount(codes[: rows.num_rows], minlength=distinct)[codes[rows.num_rows :]]
    column = pa.array(counts.astype(np.int64) - 1)
    return result.add_column(rows.column_names.index(COMBINED), rows.schema.field(COMBINED), column)


def winners(rows: pa.Table, keys: Sequence[str], rules: MergeRules) -> Positions | None:
    """The positions of the winning row of each key: the greatest ordering value, of equal ones the later row; without
    ordering the later row. None if no key is repeated.

    A null ordering value is smaller than every other. Raises `InvalidRecord` if rows of one key text have other key
    fields. Costs a hash of the keys when there are no duplicates.
    """
    codes, distinct = key_codes(rows, keys)
    if distinct >= rows.num_rows:
        return None
    counts = np.bincount(codes, minlength=distinct)
    several = np.nonzero(counts[codes] > 1)[0]
    _check_key_fields(rows, codes, several, rules)
    part = rows.select(rules.ordering_columns).take(pa.array(several))
    values = nulls_first(rules.comparable(rules.ordering_of(part)))
    order = pa.table({"key": codes[several], **{f"o{i}": v for i, v in enumerate(values)}, "at": several})
    ranked = as_numpy(pc.sort_indices(order, sort_keys=[(name, "ascending") for name in order.column_names]))
    sorted_codes = codes[several][ranked]
    last = np.append(sorted_codes[1:] != sorted_codes[:-1], True)
    keep = np.ones(rows.num_rows, dtype=bool)
    keep[several] = False
    keep[several[ranked[last]]] = True
    return np.flatnonzero(keep)


def merged_duplicates(
    rows: pa.Table, keys: Sequence[str], rules: MergeRules, forced: Flags | None = None
) -> Combined | None:
    """The rows with the rows of each key merged; None if no key is repeated. Only the rows of repeated keys are copied.
    `forced` marks deletes that win whatever their ordering value is."""
    codes, distinct = key_codes(rows, keys)
    if distinct >= rows.num_rows:
        return None
    counts = np.bincount(codes, minlength=distinct)
    several = np.nonzero(counts[codes] > 1)[0]
    _check_key_fields(rows, codes, several, rules)
    order = several[np.lexsort((several, codes[several], -counts[codes[several]]))]
    ends = np.flatnonzero(np.append(codes[order][1:] != codes[order][:-1], True)) + 1
    starts = np.append(0, ends[:-1])
    part = rows.take(pa.array(order)).combine_chunks().to_batches()[0]
    merged = in_rounds(rules, side_of(rules, part, None if forced is None else forced[order]), starts, ends - starts)
    last = order[ends - 1]
    keep = np.ones(rows.num_rows, dtype=bool)
    keep[several] = False
    keep[last] = True
    remaining = np.flatnonzero(keep)
    row_numbers = np.arange(rows.num_rows)
    row_numbers[last] = rows.num_rows + np.arange(len(last))
    deletes, force = (flags.copy() for flags in _deletes(rules, rows, forced))
    deletes[last], force[last] = merged.deletes, merged.forced & merged.deletes
    stacked_rows = pa.concat_tables([rows, pa.Table.from_batches([merged.rows]).cast(rows.schema)])
    return Combined(stacked_rows, row_numbers[remaining], remaining, deletes[remaining], force[remaining])


def _check_key_fields(rows: pa.Table, codes: Positions, several: Positions, rules: MergeRules) -> None:
    """Raise `InvalidRecord` if rows of one key text differ in the fields of the key."""
    if rules.key_fields is not None:
        rules.key_fields.check_batch(rows, codes, several)


def side_of(rules: MergeRules, rows: pa.RecordBatch, forced: Flags | None = None) -> Side:
    """Complete rows as a side of a merge, with the deletes that their own columns mark."""
    return Side(rows, *_deletes(rules, rows, forced))


def _deletes(rules: MergeRules, rows: pa.Table | pa.RecordBatch, forced: Flags | None) -> tuple[Flags, Flags]:
    """Flags of the rows that are deletes, and flags of the deletes that win whatever their ordering value is."""
    marked = rules.is_delete(rows)
    none = np.zeros(rows.num_rows, dtype=bool)
    deletes = none if marked is None else as_numpy(marked)
    forced = none if forced is None else forced
    return deletes | forced, forced


def in_rounds(rules: MergeRules, side: Side, starts: Positions, counts: Positions) -> Side:
    """The records merged to one per key. The records of a key are adjacent, from its position in `starts` on, and are
    merged in the given order; keys with more records come first, so that the keys of a round are the first ones."""
    folds = rules.merger is None and not rules.late_fills
    if rules.partial == "FILL_UNAVAILABLE":
        folds = folds and not any(map(may_mark_inside, side.rows.schema.types))
    if folds and counts[0] > _MAX_ITEMS and (rules.partial or side.present is not None):
        return folded(rules, side, starts)
    merged = side.take(starts)
    done: list[Side] = []
    for number in range(1, int(counts[0])):
        left = int(np.searchsorted(-counts, -number, side="left"))
        if left < merged.length:
            done.append(merged.slice(left))
            merged = merged.slice(0, left)
        merged = merge_pairs(rules, merged, side.take(starts[:left] + number))
    return Side.concat([merged, *reversed(done)])


def key_codes(rows: pa.Table | pa.RecordBatch, keys: Sequence[str]) -> tuple[np.ndarray, int]:
    """The key of each row as a number from 0, and the number of different keys (at least one); nulls are one key."""
    combined: np.ndarray | None = None
    distinct = 1
    for name in keys:
        encoded = one_array(rows.column(name)).dictionary_encode()
        size = len(encoded.dictionary)
        codes = as_numpy(pc.fill_null(encoded.indices.cast(pa.int64()), size))
        size += 1 if encoded.null_count or not size else 0
        combined = codes if combined is None else combined * size + codes
        distinct *= size
    assert combined is not None
    if len(keys) > 1:
        unique, combined = np.unique(combined, return_inverse=True)
        distinct = len(unique)
    return combined, distinct


@dataclass(frozen=True, slots=True)
class _Combine:
    rules: MergeRules

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        parts = list(batches)
        if parts:
            yield from combine(pa.Table.from_batches(parts), [RECORD_KEY], self.rules.in_batch).to_batches()


def combine_by_key(engine: Engine, rows: Rows, rules: MergeRules) -> Rows:
    """One row per record key over all partition paths."""
    return engine.map_by_key(rows, RECORD_KEY, _Combine(rules))
