"""A file slice with log files as its rows: base rows by batches, the winning log records in their places, the rest
after them.

Winners are found from keys and ordering values; the other columns of log records are decoded only where one stays.
What the records make of the rows of a base file is cached, so that a slice which is read again is not matched again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.spill import Spill
from lakebed.format.footer_cache import key_ranges
from lakebed.format.row_groups.stored import StoredGroups
from lakebed.merge.key_table import KeyTable
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
from lakebed.schema.plain_arrow import as_numpy
from lakebed.sharing import once
from lakebed.slices.base_rows import BaseRows, ColumnNames, shaped, stored_names
from lakebed.slices.log_rows import (
    NO_ROWS,
    REPLACEMENTS,
    LogRecords,
    LogRows,
    PairwiseFold,
    Replacements,
    ReplacementsWriter,
    replacements_key,
)
from lakebed.slices.logs import MergeCounts, SliceLogs

# In place of the entry that replaces a base row: none does, or one that deletes it.
STAYS, GOES = -1, -2
# So many rows, or bytes of them, are matched at a time: each time passes over all log records, which of few of them
# costs next to nothing.
_STRETCH_ROWS = 1 << 20
_STRETCH_BYTES = 64 << 20
_MAX_ENTRIES = 1 << 14
# Log records are decoded once where they take one part in so many of the memory bound at most, else for each stretch.
_DECODED_SHARE = 4
Targets = npt.NDArray[np.int32]
Stretch = Sequence[pa.RecordBatch]


@dataclass
class Matching:
    """Matches the rows of one base file with `entries` of different keys (or, if these have positions, of different
    rows). `kinds` are the types in which ordering fields are compared.

    `targets` gives for each row of the next stretch the entry that replaces it, STAYS or GOES. Of several rows with one
    key the first is matched; `repeated` is true if there were some.
    """

    entries: LogEntries
    keys: KeyColumns
    rules: MergeRules
    kinds: Sequence[pa.DataType]
    path: str
    repeated: bool = False
    updated: int = 0
    deleted: int = 0
    _matched: Flags = field(init=False)
    _first: Positions = field(init=False)
    _found: int = 0
    _at: int = 0

    def __post_init__(self) -> None:
        self._matched = np.zeros(len(self.entries), np.bool_)
        self._first = np.zeros(len(self.entries), np.int64)

    def columns(self, schema: pa.Schema) -> list[str]:
        """The columns of the base file by which rows are matched and compared: keys and ordering fields."""
        keys = () if self.entries.positions is not None else self.keys.names
        return list(dict.fromkeys([*keys, *roots(self.rules.ordering, schema)]))

    def stretches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Stretch]:
        """The rows in stretches of good size."""
        stretch: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            stretch.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _STRETCH_ROWS or size >= _STRETCH_BYTES or len(self.entries) <= _MAX_ENTRIES:
                yield stretch
                stretch, rows, size = [], 0, 0
        if stretch:
            yield stretch

    def targets(self, stretch: Stretch) -> Targets:
        """For each row of the next batches `stretch`: the entry that replaces it, STAYS or GOES."""
        rows = sum([batch.num_rows for batch in stretch])
        if not len(self.entries):
            return np.full(rows, STAYS, np.int32)
        targets = self._by_key(stretch) if self.entries.positions is None else self._by_position(rows)
        at = np.flatnonzero(targets >= 0)
        self._matched[targets[at]] = True
        if self.rules.ordering and len(at):
            at = self._winning(targets, at, stretch)
        deleted = self.entries.deletes[targets[at]]
        targets[at[deleted]] = GOES
        self.deleted += int(deleted.sum())
        self.updated += len(at) - int(deleted.sum())
        return targets

    @property
    def rest(self) -> Positions:
        """The entries that no row was matched with, without deletes."""
        return np.flatnonzero(~self._matched & ~self.entries.deletes)

    def _by_key(self, stretch: Stretch) -> Targets:
        targets = np.concatenate([self._table.find(self.keys.of(batch, self.path)) for batch in stretch])
        at = np.flatnonzero(targets >= 0)
        if not len(at):
            return targets
        entries, numbers = targets[at], self._found + np.arange(len(at))
        self._found += len(at)
        self._first[entries[::-1]] = numbers[::-1]
        several = self._matched[entries] | (self._first[entries] != numbers)
        if several.any():
            self.repeated = True
            targets[at[several]] = STAYS
        return targets

    @once
    def _table(self) -> KeyTable:
        return KeyTable(self.entries.keys)

    def _by_position(self, rows: int) -> Targets:
        assert self.entries.positions is not None
        targets = np.full(rows, STAYS, np.int32)
        in_batch = np.flatnonzero((self.entries.positions >= self._at) & (self.entries.positions < self._at + rows))
        targets[self.entries.positions[in_batch] - self._at] = in_batch
        self._at += rows
        return targets

    def _winning(self, targets: Targets, at: Positions, stretch: Stretch) -> Positions:
        """The rows whose entry wins against them by the ordering values; in `targets` the other rows are set to
        STAYS."""
        entries = self.entries
        compared = at[~entries.forced[targets[at]]]
        if not len(compared):
            return at
        schema = stretch[0].schema
        names = [name for name in dict.fromkeys(roots(self.rules.ordering, schema)) if name in schema.names]
        older = ordering_values(_taken(stretch, names, compared), self.rules, self.kinds)
        indices = pa.array(targets[compared])
        newer = [values.take(indices) for values in entries.ordering]
        wins = as_numpy(self.rules.newer_wins(older, newer))
        targets[compared[~wins]] = STAYS
        return at[targets[at] >= 0]


def _taken(stretch: Stretch, names: Sequence[str], rows: Positions) -> pa.RecordBatch:
    """The columns `names` of the rows of a stretch at these positions."""
    if not names:
        return pa.RecordBatch.from_struct_array(pa.nulls(len(rows), pa.struct([])))
    at = pa.array(rows)
    columns = [pa.chunked_array([batch.column(name) for batch in stretch]).take(at) for name in names]
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in columns], names=list(names))


_OF_META = KeyColumns((RECORD_KEY,))


@dataclass(frozen=True)
class RowGroups:
    """The row groups of a complete base file. `take` is called for each one whose rows are all unchanged, with the
    number of log records that will follow the file's rows (0 until its last row group); if it returns true, the rows of
    that row group are not returned."""

    source: StoredGroups
    take: Callable[[int, int], bool]

    def stretches(
        self, matching: Matching, deciding: Sequence[str], columns: Sequence[str]
    ) -> Iterator[tuple[Stretch, Targets]]:
        """The row groups that were not taken, in these columns, with the targets of their rows. Of taken row groups
        only the deciding columns are read, and not even these if the range of their keys decides."""
        ranges, sorted_keys = key_ranges(self.source.footer.metadata), _sorted_keys(matching)
        last = len(self.source.groups) - 1
        for number, group in enumerate(self.source.groups):
            span = ranges[number]
            if sorted_keys is not None and span is not None and not _any_between(sorted_keys, *span):
                read, targets = None, np.full(group.rows, STAYS, np.int32)
            else:
                read = self._columns(number, deciding)
                targets = matching.targets([read])
            following_rows = len(matching.rest) if number == last else 0
            if (targets == STAYS).all() and self.take(number, following_rows):
                continue
            yield [self._with(number, columns, read)], targets

    def _columns(self, number: int, names: Sequence[str]) -> pa.RecordBatch:
        if not names:
            return pa.RecordBatch.from_struct_array(pa.nulls(self.source.groups[number].rows, pa.struct([])))
        return self.source.columns(number, names)

    def _with(self, number: int, columns: Sequence[str], read: pa.RecordBatch | None) -> pa.RecordBatch:
        """The columns of a row group; those in `read` are not read again."""
        columns_by_name = {} if read is None else dict(zip(read.schema.names, read.columns, strict=True))
        more = self._columns(number, [name for name in columns if name not in columns_by_name])
        columns_by_name |= dict(zip(more.schema.names, more.columns, strict=True))
        return pa.RecordBatch.from_arrays([columns_by_name[name] for name in columns], names=list(columns))


def _sorted_keys(matching: Matching) -> pa.Array | None:
    """The keys to look for, in order; None if rows are matched by position, or by other columns than the one whose
    ranges a file has."""
    if matching.entries.positions is not None or matching.keys != _OF_META:
        return None
    return matching.entries.keys.take(pc.sort_indices(matching.entries.keys))


def _any_between(keys: pa.Array, low: str, high: str) -> bool:
    at = bisect_left(range(len(keys)), low, key=lambda n: keys[n].as_py())
    return at < len(keys) and keys[at].as_py() <= high


# A batch of rows, the number in the base file of the batch they come from (-1: there is none), and which of that go.
Part = tuple[pa.RecordBatch, int, Flags | None]


class OlderRows(Protocol):
    """The keys and ordering values of a base file's rows, used to decide which log records win against them."""

    def are_below(self, entries: LogEntries, rules: MergeRules) -> Flags:
        """Flags of the log records that certainly win against every row, known without reading the rows."""
        ...

    def of(self, keys: pa.Array, columns: Sequence[str]) -> BaseRows:
        """The `columns` of the rows that have one of the keys; there may be more rows."""
        ...


@dataclass
class MergedSlice:
    """The merged rows of one slice in the columns `schema` (whose types are those of the result; text columns may be
    dictionaries). `counts` is complete when all rows were read.

    `names` maps columns that files have under other names, `keys` restricts the log to records of these keys;
    `columns` are the columns that are returned, if not all are. `key_copy` is a column that holds the record
    key, too: where it is asked for the key itself is not read from the base file. Of row groups that `groups` takes as
    they are no rows come. What the log records make of the rows is cached for the base file `cached_as`, if that is
    named. `log_winners` are the winning log records if they are known.
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
    columns: Sequence[str] | None = None
    groups: RowGroups | None = None
    cached_as: Hashable = None
    log_winners: LogEntries | None = None
    counts: MergeCounts = field(default_factory=MergeCounts)
    _winners: Positions | None = field(default=None, init=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; memory is bounded by keys and ordering values of the log, and a stretch of rows."""
        for batch, _, _ in self._parts():
            yield batch

    def old_and_new(self) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """The rows in batches, each with whether its keys are only in the log."""
        for batch, first, _ in self._parts():
            yield batch, first < 0

    def numbered(self) -> Iterator[tuple[pa.RecordBatch, Positions]]:
        """The rows in batches, each row with its number in the base file: -1 for a row that is only in the log."""
        assert self.base is None or (self.base.is_complete and self.groups is None)
        for batch, first, deleted in self._parts():
            if first < 0:
                yield batch, np.full(batch.num_rows, -1)
            else:
                numbers = np.arange(first, first + (batch.num_rows if deleted is None else len(deleted)))
                yield batch, numbers if deleted is None else numbers[~deleted]

    def changed(self, since: str, older: OlderRows | None) -> Iterator[pa.RecordBatch]:
        """The rows from log records of instants from `since` on, under rules by which one record of a key is retained
        unchanged; without the base rows, which are `older` (None: there are none)."""
        winners = None if since else self._winners
        rows = self.winners.take(self._since(self.winners, since) if winners is None else winners)
        if self.rules.ordering and older is not None and winners is None:
            compared = np.flatnonzero(~older.are_below(rows, self.rules))
            if len(compared):
                stays = np.ones(len(rows), np.bool_)
                stays[compared] = self._wins(rows.take(compared), older)
                rows = rows.take(np.flatnonzero(stays))
        columns = LogRows(self.logs, rows, self.schema, self.names)
        with Spill(self.memory) as spill:
            if not self.logs.stays_open:
                columns.spill(spill)
            for batch in columns.batches(np.arange(len(rows))):
                yield batch if self.columns is None else batch.select(list(self.columns))

    def keys_since(self, since: str) -> pa.Array:
        """The keys of log records of instants from `since` on that are not deletes, in ascending order."""
        keys = self._entries.keys.take(pa.array(self._since(self._entries, since))).unique()
        return keys.take(pc.sort_indices(keys))

    def may_share_keys(self, since: str) -> bool:
        """Whether the key text of a log record of an instant from `since` on may be that of other key fields."""
        return self.rules.key_fields is not None and self._shares_keys(self.keys_since(since))

    def touched(self) -> Flags:
        """A flag for each row of the base file: whether a log record replaces or deletes it. The rules must retain one
        record of each key unchanged. Only keys and ordering values are read."""
        assert self.base is not None
        replacements = self._cached
        if replacements is None:
            matching, replacements, replacing = self.matched
            self._winners = np.sort(np.concatenate([replacing, matching.rest]))
            if self._cache_key is not None:
                REPLACEMENTS.put(self._cache_key, replacements)
        touched = np.zeros(self.base.rows, np.bool_)
        touched[replacements.replaced] = touched[replacements.deleted] = True
        return touched

    def _since(self, entries: LogEntries, since: str) -> Positions:
        """The positions of the entries of instants from `since` on that are not deletes."""
        is_recent = np.array([head.instant >= since for head in self.logs.blocks], np.bool_)
        return np.flatnonzero(is_recent[entries.block] & ~entries.deletes)

    def _wins(self, entries: LogEntries, older: OlderRows) -> Flags:
        """Flags of the entries that win against their base row, or have none."""
        assert self.base is not None
        matching = self._matching(entries, self.rules)
        deciding = matching.columns(self.base.schema)
        base = self.base if entries.positions is not None else older.of(entries.keys, deciding)
        wins = np.zeros(len(entries), np.bool_)
        for stretch in matching.stretches(base.read(deciding)):
            targets = matching.targets(stretch)
            wins[targets[targets >= 0]] = True
        wins[matching.rest] = True
        return wins

    def _parts(self) -> Iterator[Part]:
        with Spill(self.memory) as spill:
            parts = self._winning(spill) if self._picks else self._paired(spill)
            for batch, first, deleted in parts:
                if batch.num_rows:
                    yield batch if self.columns is None else batch.select(list(self.columns)), first, deleted

    def deletes(self) -> LogEntries:
        """The winning log records that delete their keys, under rules by which one record of a key is retained
        unchanged."""
        return self.winners.take(np.flatnonzero(self.winners.deletes))

    def deleted_keys(self) -> pa.Array:
        """The keys that log records delete, whichever record of a key wins, under any rules."""
        return self._entries.keys.filter(pa.array(self._entries.deletes))

    @property
    def picks_winners(self) -> bool:
        """Whether one of all records of a key is retained unchanged."""
        return self._picks

    def count(self) -> int:
        """The number of rows, from keys and ordering values alone if they suffice."""
        if self.rules.merger is not None:
            return sum(batch.num_rows for batch in self.batches())
        stored = 0 if self.base is None else self.base.rows
        cached = self._cached
        if cached is not None:
            return stored - len(cached.deleted) + cached.inserted
        _, replacements, _ = self.matched
        return stored - len(replacements.deleted) + replacements.inserted

    @property
    def needs_every_row(self) -> bool:
        """Whether only a merge of all rows, not one of some `keys`, can decide to which of several base rows of a key a
        log record belongs, because log blocks have row numbers."""
        return self.keys is not None and self.matched[0].repeated and self.logs.has_positions(self.base_instant)

    def _winning(self, spill: Spill) -> Iterator[Part]:
        """The merged rows under rules by which one record of each key is retained unchanged."""
        cached = self._cached
        if cached is not None and cached.has(self.schema, self._changing):
            yield from self._replaced(cached)
            return
        matching = self._matching(self.winners, self.rules)
        rows = LogRows(self.logs, matching.entries, self.schema, self.names)
        if not self.logs.stays_open:
            rows.spill(spill)
        elif self.logs.decoded_bytes * _DECODED_SHARE <= self.memory:
            rows.hold()
        shares_keys = self._shares_keys(matching.entries.keys)
        changing = list(self.schema.names) if shares_keys else self._changing
        is_cached = self._cache_key is not None and rows.is_decoded and not shares_keys
        writer = ReplacementsWriter(self._cache_key) if is_cached else None
        first = 0
        for stretch, targets in self._stretches(matching):
            winners = rows if rows.is_decoded else rows.of_some(targets[targets >= 0])
            start = 0
            for batch in stretch:
                part = targets[start : start + batch.num_rows]
                start += batch.num_rows
                at, goes = np.flatnonzero(part >= 0), part == GOES
                new = winners.take_columns(part[at].astype(np.int64), changing) if len(at) and changing else None
                if shares_keys and new is not None:
                    columns = shaped(batch, self.schema, self._base_names)
                    self._check_key_fields(columns, at, new, matching.entries.keys.take(pa.array(part[at])))
                if writer is not None:
                    writer.add(first, at, new, goes)
                put_in, deleted = self._put_in(batch, at, new, goes)
                yield put_in, first, deleted
                first += batch.num_rows
        self.counts.updated, self.counts.deleted = matching.updated, matching.deleted
        inserted: list[pa.RecordBatch] = []
        for batch in rows.batches(matching.rest):
            self.counts.inserted += batch.num_rows
            if writer is not None:
                inserted.append(batch)
            yield batch, -1, None
        if writer is not None:
            writer.put(inserted)

    def _replaced(self, replacements: Replacements) -> Iterator[Part]:
        """The merged rows, by the cached replacements of an earlier merge."""
        first = 0
        for batch, at, new, goes in replacements.parts(self.base, self._wanted_of_base or [RECORD_KEY], self._changing):
            put_in, deleted = self._put_in(batch, at, new, goes)
            yield put_in, first, deleted
            first += batch.num_rows
        for batch in replacements.inserted_rows(self.schema):
            yield batch, -1, None

    @property
    def _cached(self) -> Replacements | None:
        """The cached replacements of this slice, which may lack columns; None if there are none."""
        return None if self._cache_key is None else REPLACEMENTS.get(self._cache_key)

    @property
    def log_rows_key(self) -> tuple[Any, ...] | None:
        """The cache key of the rows from this slice's log records. None if they are not cached."""
        key = self._cache_key
        return None if key is None else (key, tuple(self.schema), None if self.columns is None else tuple(self.columns))

    @once
    def _cache_key(self) -> Hashable:
        """The cache key of this slice's replacements. None if they are not cached."""
        part_of_rows = self.keys is not None or (self.base is not None and not self.base.is_complete)
        if not self._picks or part_of_rows or self.groups is not None or self.names is not None:
            return None
        return replacements_key(self.cached_as, self.logs, self.rules)

    @once
    def _changing(self) -> list[str]:
        """The columns without those of the record key, which are equal in a record and in the base row that it
        replaces."""
        names = {RECORD_KEY} if self.names is not None or self.key_copy is None else {RECORD_KEY, self.key_copy}
        return [f.name for f in self.schema if f.name not in names or not pa.types.is_string(f.type)]

    def _paired(self, spill: Spill) -> Iterator[Part]:
        """The merged rows under rules by which all records of a key, and its base row, are merged into one row."""
        every, data = self._entries, frozenset(self.logs.data)
        schema = pa.schema([pa.field(column.name, column.type) for column in self.schema])
        rows = LogRows(self.logs, every, schema, self.names)
        partial = any(map(self.logs.is_partial, data))
        pairs = PairwiseFold(every, self.rules, schema, partial, rows.of_block, data)
        entries, records = pairs.run(spill, self.logs.decoded_bytes, self.memory)
        matching = self._matching(entries, MergeRules())
        more = [] if self.base is None else roots(self.rules.ordering, self.base.schema)
        first = 0
        for stretch, targets in self._stretches(matching, more):
            at = 0
            for batch in stretch:
                part = targets[at : at + batch.num_rows]
                at += batch.num_rows
                paired, deleted = self._pair_up(batch, part, records, entries.keys)
                yield paired, first, deleted
                first += batch.num_rows
        for batch in records.alive(matching.rest):
            self.counts.inserted += batch.num_rows
            yield batch, -1, None

    def _pair_up(
        self, batch: pa.RecordBatch, targets: Targets, records: LogRecords, keys: pa.Array
    ) -> tuple[pa.RecordBatch, Flags | None]:
        """The base rows merged with their log records, and flags of the deleted rows (None: none is)."""
        columns = shaped(batch, self.schema, self._base_names)
        ordering = ordering_values(batch, self.rules, self.kinds)
        at = np.flatnonzero(targets >= 0)
        at = at[~records.deletes[targets[at]]]
        if len(at) and self.rules.key_fields is not None:
            log_rows = records.side(targets[at].astype(np.int64)).rows
            self._check_key_fields(columns, at, log_rows, keys.take(pa.array(targets[at])))
        columns, deleted, changed = records.into(self.rules, columns, ordering, targets.astype(np.int64))
        self.counts.updated += changed
        self.counts.deleted += int(deleted.sum())
        rows = pa.RecordBatch.from_arrays(columns, names=self.schema.names)
        return (rows.filter(pa.array(~deleted)), deleted) if deleted.any() else (rows, None)

    def _put_in(
        self, batch: pa.RecordBatch, at: Positions, new: pa.RecordBatch | None, deleted: Flags
    ) -> tuple[pa.RecordBatch, Flags | None]:
        """The base rows with the `new` values in the rows `at`, in the columns of `new`, and without the deleted rows;
        and flags of the deleted rows (None: none is)."""
        if not len(self.schema):
            return batch.select([]), None
        columns = shaped(batch, self.schema, self._base_names)
        if len(at) and new is not None:
            order = np.arange(batch.num_rows)
            order[at] = batch.num_rows + np.arange(len(at))
            indices = pa.array(order)
            for name, values in zip(new.schema.names, new.columns, strict=True):
                number = self.schema.get_field_index(name)
                columns[number] = put(columns[number], at, indices, values)
        rows = pa.RecordBatch.from_arrays(columns, names=self.schema.names)
        return (rows.filter(pa.array(~deleted)), deleted) if deleted.any() else (rows, None)

    def _shares_keys(self, keys: pa.Array) -> bool:
        """Whether one of these key texts may be that of other key fields, so that stored rows have to be compared."""
        fields = self.rules.key_fields
        return fields is not None and len(fields.may_share(keys)) > 0

    def _check_key_fields(
        self, columns: Sequence[pa.Array], at: Positions, new: pa.RecordBatch, keys: pa.Array
    ) -> None:
        """Raise `InvalidRecord` if a log record replaces a base row, at `at`, that has the same key text and other key
        fields. Only key fields among the columns are compared, and a key that the log deletes in between is not
        compared."""
        fields = self.rules.key_fields
        if fields is None or not (names := fields.columns(self.schema)):
            return
        sharing = fields.may_share(keys)
        if len(sharing):
            every = self._entries
            deleted = pc.is_in(keys.take(pa.array(sharing)), value_set=every.keys.filter(pa.array(every.deletes)))
            sharing = sharing[~as_numpy(deleted)]
        if len(sharing):
            indices = pa.array(at[sharing])
            stored = [columns[self.schema.get_field_index(name)].take(indices) for name in names]
            older = pa.RecordBatch.from_arrays(stored, names=names)
            fields.check_equal(keys.take(pa.array(sharing)), older, new.select(names).take(pa.array(sharing)))

    @once
    def matched(self) -> tuple[Matching, Replacements, Positions]:
        """All base rows matched with the log: the matching, the replaced and deleted rows (without columns), and the
        entries that replace them; only the deciding columns are read, and none where no column decides."""
        matching = self._matching(self.winners, self.rules)
        replaced, deleted, replacing = [NO_ROWS], [NO_ROWS], [NO_ROWS]
        first, entries = 0, matching.entries
        if self.base is not None and len(entries):
            columns = matching.columns(self.base.schema)
            by_number = entries.positions is not None and (not columns or bool(entries.forced.all()))
            batches = (
                [pa.RecordBatch.from_struct_array(pa.nulls(self.base.rows, pa.struct([])))]
                if by_number
                else self.base.read(columns)
            )
            for stretch in matching.stretches(batches):
                targets = matching.targets(stretch)
                at = np.flatnonzero(targets >= 0)
                replacing.append(targets[at].astype(np.int64))
                replaced.append(at + first)
                deleted.append(np.flatnonzero(targets == GOES) + first)
                first += len(targets)
        rows = np.concatenate(replaced), np.concatenate(deleted)
        return matching, Replacements(*rows, {}, len(matching.rest), {}), np.concatenate(replacing)

    def _matching(self, entries: LogEntries, rules: MergeRules) -> Matching:
        return Matching(entries, self.base_keys, rules, self.kinds if rules.ordering else (), self.path)

    def _stretches(self, matching: Matching, more: Sequence[str] = ()) -> Iterator[tuple[Stretch, Targets]]:
        """The base rows with their targets, in all columns that are requested or decide."""
        if self.base is None:
            return
        deciding = matching.columns(self.base.schema) if len(matching.entries) else []
        columns = list(dict.fromkeys([*self._wanted_of_base, *deciding, *more]))
        if self.groups is not None:
            yield from self.groups.stretches(matching, deciding, columns)
            return
        for stretch in matching.stretches(self.base.read(columns or [RECORD_KEY])):
            yield stretch, matching.targets(stretch)

    @property
    def _wanted_of_base(self) -> list[str]:
        """The names of the requested columns that the base file has."""
        schema = pa.schema([]) if self.base is None else self.base.schema
        stored = stored_names(self.schema.names, schema, self._base_names)
        return [name for name in dict.fromkeys(stored) if name is not None]

    @once
    def _base_names(self) -> dict[str, str | None]:
        return {} if self.names is None else self.names.stored_names(self.base_instant, self.schema)

    @property
    def base_keys(self) -> KeyColumns:
        """The columns of the base file that give the record keys of its rows."""
        copy = self.key_copy
        if copy is None or self.base is None or self.names is not None or copy not in self.schema.names:
            return self.key_columns
        if RECORD_KEY in self.schema.names or copy not in self.base.schema.names:
            return self.key_columns
        return KeyColumns((copy,)) if pa.types.is_string(self.base.schema.field(copy).type) else self.key_columns

    @once
    def _picks(self) -> bool:
        """Whether one of all records of a key is retained unchanged."""
        return self.rules.picks_winners and not any(map(self.logs.is_partial, self.logs.data))

    @once
    def kinds(self) -> tuple[pa.DataType, ...]:
        """The types in which ordering fields are compared."""
        if not self.rules.ordering:
            return ()
        schemas = [self.logs.block(number).schema for number in self.logs.data]
        schemas += [] if self.base is None else [self.base.schema]
        return ordering_types(schemas, self.schema, self.rules)

    @once
    def winners(self) -> LogEntries:
        """The winning log records, one per key (or per row of the base file)."""
        if self.log_winners is not None:
            return self.log_winners
        every = self._entries
        return every.take(fold(every, self.rules, by_position=every.positions is not None))

    @once
    def _entries(self) -> LogEntries:
        """The log records as entries, with their row numbers in the base file if all blocks have these."""
        self.logs.ahead = self.schema.names
        entries = self.logs.entries(self.rules, self.kinds, self.key_columns)
        self.counts = self.logs.counts
        if self.keys is not None:
            return entries.take(np.flatnonzero(as_numpy(pc.is_in(entries.keys, value_set=self.keys))))
        if self.base is not None and self.base.is_complete and self.logs.has_positions(self.base_instant):
            return replace(entries, positions=self.logs.positions(entries, self.base_instant))
        return entries
