"""A file slice with log files as its rows: base rows by batches, the log's winners in their places, the rest behind.

Winners are found from keys and ordering values; the other columns of log records are decoded only where one stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.spill import Spill
from lakebed.merge.log_entries import (
    Flags,
    KeyColumns,
    LogEntries,
    Positions,
    fold,
    ordering_types,
    ordering_values,
    roots,
)
from lakebed.merge.pairs import put
from lakebed.merge.rules import MergeRules
from lakebed.model import RECORD_KEY
from lakebed.slices.base_rows import BaseRows, ColumnNames, shaped, stored_name
from lakebed.slices.log_rows import LogRows
from lakebed.slices.logs import MergeCounts, SliceLogs
from lakebed.slices.matching import FEW_ENTRIES, GOES, Matching, Stretch, Targets
from lakebed.slices.pairwise import LogRecords, PairwiseFold
from lakebed.slices.row_group_rows import RowGroups
from lakebed.storage.parallel import once

# A batch of rows, the number in the base file of the batch they come from (-1: there is none), and which of that go.
Part = tuple[pa.RecordBatch, int, Flags | None]


@dataclass
class MergedSlice:
    """The merged rows of one slice in the columns `schema` (its types are those of the result; texts may come as
    dictionaries). `counts` is complete when the rows are exhausted.

    `names` tells of columns that files have under other names, `keys` restricts the log to records of these keys;
    `shown` are the columns that are given, where not all are. `key_copy` is a column of the table that holds the record
    key, too: where it is asked for the key itself is not read from the base file. Of row groups that `groups` takes as
    they are no rows come.
    """

    logs: SliceLogs
    base: BaseRows | None
    base_instant: str
    path: str
    schema: pa.Schema
    rules: MergeRules
    key_columns: KeyColumns
    key_copy: str | None = None
    names: ColumnNames | None = None
    keys: pa.Array | None = None
    memory: int = 512 << 20
    shown: Sequence[str] | None = None
    groups: RowGroups | None = None
    counts: MergeCounts = field(default_factory=MergeCounts)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; memory is bounded by keys and ordering values of the log, and a stretch of rows."""
        for batch, _, _ in self._parts():
            yield batch

    def old_and_new(self) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """The rows, and whether they are those whose keys stand in the log alone."""
        for batch, first, _ in self._parts():
            yield batch, first < 0

    def numbered(self) -> Iterator[tuple[pa.RecordBatch, Positions]]:
        """The rows, each with its number in the base file: -1 for one that stands in the log alone."""
        assert self.base is None or (self.base.is_whole and self.groups is None)
        for batch, first, gone in self._parts():
            if first < 0:
                yield batch, np.full(batch.num_rows, -1)
            else:
                numbers = np.arange(first, first + (batch.num_rows if gone is None else len(gone)))
                yield batch, numbers if gone is None else numbers[~gone]

    def _parts(self) -> Iterator[Part]:
        with Spill(self.memory) as spill:
            parts = self._winning(spill) if self._picks else self._paired(spill)
            for batch, first, gone in parts:
                if batch.num_rows:
                    yield batch if self.shown is None else batch.select(list(self.shown)), first, gone

    def deletes(self) -> LogEntries:
        """The log records that stay and delete their keys, where one record of a key stays as it is."""
        return self._folded.take(np.flatnonzero(self._folded.deletes))

    @property
    def picks_winners(self) -> bool:
        """Whether of all records of a key one stays as it is."""
        return self._picks

    def count(self) -> int:
        """The number of rows, from keys and ordering values alone where they tell."""
        if self.rules.merger is not None:
            return sum(batch.num_rows for batch in self.batches())
        matching = self._matched
        stored = 0 if self.base is None else self.base.rows
        return stored - matching.deleted + len(matching.rest)

    @property
    def needs_every_row(self) -> bool:
        """Whether a merge of some `keys` cannot tell which of several base rows of a key log records are for, and one
        of all rows can: log blocks name their rows by number."""
        return self.keys is not None and self._matched.repeated and self.logs.has_positions(self.base_instant)

    def _winning(self, spill: Spill) -> Iterator[Part]:
        """The rows where one record of a key stays as it is."""
        matching = self._matching(self._folded, self.rules)
        rows = LogRows(self.logs, matching.entries, self.schema, self.names)
        if not self.logs.stays_open:
            rows.spill(spill)
        elif len(matching.entries) <= FEW_ENTRIES:
            rows.hold()
        first = 0
        for stretch, targets in self._stretches(matching):
            used = np.zeros(len(matching.entries), np.bool_)
            used[targets[targets >= 0]] = True
            new = rows.take(np.flatnonzero(used))
            rows_of = np.cumsum(used) - 1
            at = 0
            for batch in stretch:
                part = targets[at : at + batch.num_rows]
                at += batch.num_rows
                put_in, gone = self._put_in(batch, part, rows_of, new, matching.entries.keys)
                yield put_in, first, gone
                first += batch.num_rows
        self.counts.updated, self.counts.deleted = matching.updated, matching.deleted
        for batch in rows.batches(matching.rest):
            self.counts.inserted += batch.num_rows
            yield batch, -1, None

    def _paired(self, spill: Spill) -> Iterator[Part]:
        """The rows where records of a key are merged with each other, and with the base row."""
        every, data = self._entries, frozenset(self.logs.data)
        schema = pa.schema([pa.field(one.name, one.type) for one in self.schema])
        rows = LogRows(self.logs, every, schema, self.names)
        partial = any(map(self.logs.is_partial, data))
        pairs = PairwiseFold(every, self.rules, schema, partial, rows.of_block, data)
        entries, records = pairs.run(spill, self.logs.data_bytes, self.memory)
        matching = self._matching(entries, MergeRules())
        more = [] if self.base is None else roots(self.rules.ordering, self.base.schema)
        first = 0
        for stretch, targets in self._stretches(matching, more):
            at = 0
            for batch in stretch:
                part = targets[at : at + batch.num_rows]
                at += batch.num_rows
                paired, gone = self._pair_up(batch, part, records, entries.keys)
                yield paired, first, gone
                first += batch.num_rows
        for batch in records.alive(matching.rest):
            self.counts.inserted += batch.num_rows
            yield batch, -1, None

    def _pair_up(
        self, batch: pa.RecordBatch, targets: Targets, records: LogRecords, keys: pa.Array
    ) -> tuple[pa.RecordBatch, Flags | None]:
        """Base rows with what their log records make of them, and which of them go."""
        columns = shaped(batch, self.schema, self._base_names)
        ordering = ordering_values(batch, self.rules, self._kinds)
        at = np.flatnonzero(targets >= 0)
        at = at[~records.deletes[targets[at]]]
        if len(at) and self.rules.key_fields is not None:
            mine = records.side(targets[at].astype(np.int64)).rows
            self._check_key_fields(columns, at, mine, keys.take(pa.array(targets[at])))
        columns, gone, changed = records.into(self.rules, columns, ordering, targets.astype(np.int64))
        self.counts.updated += changed
        self.counts.deleted += int(gone.sum())
        rows = pa.RecordBatch.from_arrays(columns, names=self.schema.names)
        return (rows.filter(pa.array(~gone)), gone) if gone.any() else (rows, None)

    def _put_in(
        self, batch: pa.RecordBatch, targets: Targets, rows_of: Positions, new: pa.RecordBatch, keys: pa.Array
    ) -> tuple[pa.RecordBatch, Flags | None]:
        """Base rows with the winners in place, and without the deleted ones, and which those are. `rows_of`
        are the rows of the entries in `new`, `keys` those of the entries."""
        columns = shaped(batch, self.schema, self._base_names)
        at = np.flatnonzero(targets >= 0)
        if len(at):
            mine = new.take(pa.array(rows_of[targets[at]]))
            self._check_key_fields(columns, at, mine, keys.take(pa.array(targets[at])))
            order = np.arange(len(targets))
            order[at] = len(targets) + np.arange(len(at))
            places = pa.array(order)
            columns = [put(old, at, places, column) for old, column in zip(columns, mine.columns, strict=True)]
        if not len(self.schema):
            return batch.select([]), None
        rows = pa.RecordBatch.from_arrays(columns, names=self.schema.names)
        gone = targets == GOES
        return (rows.filter(pa.array(~gone)), gone) if gone.any() else (rows, None)

    def _check_key_fields(
        self, columns: Sequence[pa.Array], at: Positions, new: pa.RecordBatch, keys: pa.Array
    ) -> None:
        """Raise `InvalidRecord` where a log record takes the place of a base row, at `at`, that has the same key text
        and other key fields, as far as these are among the columns. One that the log deletes in between made room."""
        fields = self.rules.key_fields
        if fields is None or not (names := fields.columns(self.schema)):
            return
        some = fields.may_share(keys)
        if len(some):
            every = self._entries
            deleted = pc.is_in(keys.take(pa.array(some)), value_set=every.keys.filter(pa.array(every.deletes)))
            some = some[~deleted.to_numpy(zero_copy_only=False)]
        if len(some):
            places = pa.array(at[some])
            stored = [columns[self.schema.get_field_index(name)].take(places) for name in names]
            older = pa.RecordBatch.from_arrays(stored, names=names)
            fields.check_equal(keys.take(pa.array(some)), older, new.select(names).take(pa.array(some)))

    @once
    def _matched(self) -> Matching:
        """All base rows matched, nothing but what decides read of them."""
        matching = self._matching(self._folded, self.rules)
        if self.base is not None and len(matching.entries):
            for stretch in matching.stretches(self.base.read(matching.columns(self.base.schema))):
                matching.targets(stretch)
        return matching

    def _matching(self, entries: LogEntries, rules: MergeRules) -> Matching:
        return Matching(entries, self._base_keys, rules, self._kinds if rules.ordering else (), self.path)

    def _stretches(self, matching: Matching, more: Sequence[str] = ()) -> Iterator[tuple[Stretch, Targets]]:
        """The base rows with what becomes of them, in all columns that are wanted or decide."""
        if self.base is None:
            return
        stored = (stored_name(name, self.base.schema, self._base_names) for name in self.schema.names)
        deciding = matching.columns(self.base.schema) if len(matching.entries) else []
        columns = list(dict.fromkeys([*(name for name in stored if name is not None), *deciding, *more]))
        if self.groups is not None:
            yield from self.groups.stretches(matching, deciding, columns)
            return
        for stretch in matching.stretches(self.base.read(columns or [RECORD_KEY])):
            yield stretch, matching.targets(stretch)

    @once
    def _base_names(self) -> dict[str, str | None]:
        return {} if self.names is None else self.names.stored_names(self.base_instant, self.schema)

    @property
    def _base_keys(self) -> KeyColumns:
        copy = self.key_copy
        if copy is None or self.base is None or self.names is not None or copy not in self.schema.names:
            return self.key_columns
        if RECORD_KEY in self.schema.names or copy not in self.base.schema.names:
            return self.key_columns
        return KeyColumns((copy,)) if pa.types.is_string(self.base.schema.field(copy).type) else self.key_columns

    @once
    def _picks(self) -> bool:
        """Whether of all records of a key one stays as it is."""
        return self.rules.picks_winners and not any(map(self.logs.is_partial, self.logs.data))

    @once
    def _kinds(self) -> tuple[pa.DataType, ...]:
        schemas = [*self.logs.schemas(), *([] if self.base is None else [self.base.schema])]
        return ordering_types(schemas, self.schema, self.rules) if self.rules.ordering else ()

    @once
    def _folded(self) -> LogEntries:
        """The log records that stay, one a key (or row of the base file)."""
        every = self._entries
        return every.take(fold(every, self.rules, by_position=every.positions is not None))

    @once
    def _entries(self) -> LogEntries:
        """What tells which log records stay, with their rows in the base file where all blocks tell those."""
        self.logs.ahead = self.schema.names
        found = self.logs.entries(self.rules, self._kinds, self.key_columns)
        self.counts = self.logs.counts
        if self.keys is not None:
            return found.take(_flags_at(pc.is_in(found.keys, value_set=self.keys)))
        if self.base is not None and self.base.is_whole and self.logs.has_positions(self.base_instant):
            return replace(found, positions=self.logs.positions(found, self.base_instant))
        return found


def _flags_at(flags: pa.Array) -> Positions:
    return np.flatnonzero(flags.to_numpy(zero_copy_only=False))
