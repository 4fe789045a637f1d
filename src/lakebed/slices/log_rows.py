"""The rows of log records that stay, decoded when they are asked for or, where logs are large, once into a mapped
file; and the merge of slices whose log records change each other: rows of a key two at a time, oldest first.

The second is for merges where no row stays as it is: partial updates and mergers of the user's. All columns asked
for are decoded of all records, those of a share of the keys at a time where they take much memory.

What the records of a slice make of the rows of its base file is cached, so that a slice which is read again is neither
decoded nor matched again, and its keys are read only where they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.engine.spill import Spill
from lakebed.format.bounded_cache import BoundedCache, CacheEntry
from lakebed.format.data_block import DataBlock
from lakebed.merge.combine import in_rounds
from lakebed.merge.log_entries import Flags, LogEntries, Positions, record_codes
from lakebed.merge.pairs import Side, merge_into, put
from lakebed.merge.rules import MergeRules
from lakebed.model import RECORD_KEY
from lakebed.schema.plain_arrow import gather
from lakebed.slices.base_rows import DICTIONARY_META, BaseRows, ColumnNames, shaped, stored_names
from lakebed.slices.logs import SliceLogs

_CACHED_BYTES = 64 << 20
# Records whose blocks take more than one part in so many of the cache are not cached.
_SLICE_SHARE = 2
NO_ROWS = np.empty(0, np.int64)
_BATCH_ROWS = 1 << 16
# Of wide rows a batch has fewer.
_BATCH_BYTES = 16 << 20


@dataclass
class LogRows:
    """Columns of the records of a slice's data blocks, in the types of `schema`; text columns may be dictionaries."""

    logs: SliceLogs
    entries: LogEntries
    schema: pa.Schema
    names: ColumnNames | None
    _spilled: pa.Table | None = None
    _buffered: pa.RecordBatch | None = None
    _positions: Positions = field(default_factory=NO_ROWS.copy)

    @property
    def kinds(self) -> list[pa.DataType]:
        """The Arrow types of the columns that `take` returns."""
        return [coded_type(column) for column in self.schema]

    def spill(self, spill: Spill) -> None:
        """Decode all records that are not deletes into a spill file, for logs whose blocks are not cached."""
        every = np.flatnonzero(~self.entries.deletes)
        self._positions = np.zeros(len(self.entries), np.int64)
        self._positions[every] = np.arange(len(every))
        schema = pa.schema([pa.field(column.name, column.type) for column in self.schema])
        for number, rows in _by_block(self.entries.block[every], self.entries.row[every]):
            size = rows_of_batch(len(rows), self.logs.blocks[number].content_length)
            for start in range(0, len(rows), size):
                columns, _ = self.of_block(number, rows[start : start + size])
                spill.append(pa.RecordBatch.from_arrays([plain(c) for c in columns], schema=schema))
        self._spilled = spill.table(schema)

    def hold(self) -> None:
        """Decode all records that are not deletes into memory."""
        every = np.flatnonzero(~self.entries.deletes)
        rows = self.take(every)
        self._positions = np.zeros(len(self.entries), np.int64)
        self._positions[every] = np.arange(len(every))
        self._buffered = rows

    @property
    def is_decoded(self) -> bool:
        """Whether the records are decoded, in memory."""
        return self._buffered is not None

    def of_some(self, entries: npt.NDArray[Any]) -> LogRows:
        """The rows of these entries only, decoded into memory."""
        is_wanted = np.zeros(len(self.entries), np.bool_)
        is_wanted[entries] = True
        decoded = self.take(np.flatnonzero(is_wanted))
        return replace(self, _buffered=decoded, _positions=np.cumsum(is_wanted) - 1)

    def take_columns(self, entries: Positions, columns: Sequence[str]) -> pa.RecordBatch:
        """The rows of these entries, in their order, with the columns `columns`, from the decoded records."""
        assert self._buffered is not None
        return self._buffered.select(list(columns)).take(pa.array(self._positions[entries]))

    def take(self, entries: Positions) -> pa.RecordBatch:
        """The rows of these entries, in the order of `entries`."""
        if self._buffered is not None:
            return self._buffered.take(pa.array(self._positions[entries]))
        if self._spilled is not None:
            return gather(self._spilled, self._positions[entries])
        ascends = bool((np.diff(entries) > 0).all())
        sought = entries if ascends else np.unique(entries)
        parts = list(self._decoded(sought))
        if not parts:
            return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in self.kinds], names=self.schema.names)
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        return rows if ascends else rows.take(pa.array(np.searchsorted(sought, entries)))

    def batches(self, entries: Positions) -> Iterator[pa.RecordBatch]:
        """The rows of these entries, in the order of `entries`, as batches of limited size."""
        rows, stored = len(self.entries), self.logs.data_bytes
        if self._spilled is not None:
            rows, stored = self._spilled.num_rows, self._spilled.nbytes
        size = rows_of_batch(rows, stored)
        for start in range(0, len(entries), size):
            yield self.take(entries[start : start + size])

    def of_block(self, number: int, rows: Positions) -> tuple[list[pa.Array], list[str]]:
        """The columns of records of a block (ascending rows), and the names of the columns that the records of a
        partial block do not have."""
        return self._columns(self.logs.block(number), number, rows)

    def _columns(self, block: DataBlock, number: int, rows: Positions) -> tuple[list[pa.Array], list[str]]:
        names = {} if self.names is None else self.names.stored_names(self.logs.blocks[number].instant, self.schema)
        stored = dict(zip(self.schema.names, stored_names(self.schema.names, block.schema, names), strict=True))
        read = block.read([name for name in dict.fromkeys(stored.values()) if name] or [RECORD_KEY], rows)
        lacking = (
            [name for name, name_in_file in stored.items() if name_in_file is None]
            if self.logs.is_partial(number)
            else []
        )
        return shaped(read, self.schema, names), lacking

    def _decoded(self, positions: Positions) -> Iterator[pa.RecordBatch]:
        """The rows of the entries at these ascending positions, in batches."""
        blocks, rows = self.entries.block[positions], self.entries.row[positions]
        by_unit = self.names is None  # else each instant may have had names of its own
        if by_unit:
            blocks, rows = self._in_units(blocks, rows)
        for number, block_rows in _by_block(blocks, rows):
            block = self.logs.unit(number).block if by_unit else self.logs.block(number)
            columns, _ = self._columns(block, number, block_rows)
            arrays = [_as(column, kind) for column, kind in zip(columns, self.kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=self.schema.names)

    def _in_units(self, blocks: npt.NDArray[np.int32], rows: Positions) -> tuple[Positions, Positions]:
        """The blocks and rows of records, as the first blocks of their units and the rows in those."""
        leader = np.arange(len(self.logs.blocks))
        before = np.zeros(len(self.logs.blocks), np.int64)
        for number in np.flatnonzero(np.bincount(blocks, minlength=1)).tolist():
            unit = self.logs.unit(number)
            leader[number] = unit.numbers[0]
            before[number] = unit.rows_of[number].start
        return leader[blocks], rows + before[blocks]


def rows_of_batch(rows: int, stored: int) -> int:
    """The number of rows for a batch, if `rows` rows have `stored` bytes."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, stored)))


def plain(column: pa.Array) -> pa.Array:
    """The column without a dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _by_block(blocks: npt.NDArray[Any], rows: Positions) -> Iterator[tuple[int, Positions]]:
    """Groups of consecutive rows of one block: the block's number, and the rows in it."""
    edges: Sequence[int] = [*(np.flatnonzero(np.diff(blocks, prepend=-1))).tolist(), len(blocks)]
    for start, end in pairwise(edges):
        yield int(blocks[start]), rows[start:end]


def coded_type(column: pa.Field) -> pa.DataType:
    """The type in which a column of log records is returned."""
    if column.name in DICTIONARY_META and pa.types.is_string(column.type):
        return pa.dictionary(pa.int32(), column.type)
    return column.type


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type.equals(kind):
        return column
    if not pa.types.is_dictionary(kind):
        return plain(column)
    return column.cast(kind) if pa.types.is_dictionary(column.type) else column.dictionary_encode()


BlockRows = Callable[[int, Positions], tuple[Sequence[pa.Array], Sequence[str]]]
"""Wanted columns of some records of a data block, and the names of those that its records do not have."""


@dataclass(frozen=True, slots=True)
class LogRecords:
    """One record for each key in the log; `rows` may be in a mapped file."""

    rows: pa.Table
    deletes: Flags
    forced: Flags
    present: Mapping[str, Flags] | None
    ordering: tuple[pa.Array, ...]

    def side(self, positions: Positions) -> Side:
        """The records at these positions, as one side of a merge."""
        at = pa.array(positions)
        present = None if self.present is None else {name: has[positions] for name, has in self.present.items()}
        ordering = tuple(values.take(at) for values in self.ordering)
        return Side(gather(self.rows, positions), self.deletes[positions], self.forced[positions], present, ordering)

    def into(
        self, rules: MergeRules, columns: Sequence[pa.Array], ordering: tuple[pa.Array, ...], targets: Positions
    ) -> tuple[list[pa.Array], Flags, int]:
        """The columns of stored rows merged with their records, whose positions are in `targets`; flags of the rows
        that are deleted, and the number of the others that changed."""
        at = np.flatnonzero(targets >= 0)
        deleted = np.zeros(len(targets), np.bool_)
        if not len(at):
            return list(columns), deleted, 0
        where = pa.array(at)
        names = self.rows.column_names
        stored = pa.RecordBatch.from_arrays([_plain(c.take(where)) for c in columns], names=names)
        older = Side.of(stored, partial=self.present is not None)
        older = replace(older, ordering=tuple(values.take(where) for values in ordering))
        merged, changed = merge_into(rules, older, self.side(targets[at]))
        deleted[at[merged.deletes]] = True
        updated = np.flatnonzero(changed & ~merged.deletes)
        if not len(updated):
            return list(columns), deleted, 0
        new = merged.rows.take(pa.array(updated))
        order = np.arange(len(targets))
        order[at[updated]] = len(targets) + np.arange(len(updated))
        indices = pa.array(order)
        return (
            [put(c, at[updated], indices, n) for c, n in zip(columns, new.columns, strict=True)],
            deleted,
            len(updated),
        )

    def alive(self, positions: Positions) -> Iterator[pa.RecordBatch]:
        """The rows at these positions that are not deletes."""
        live = positions[~self.deletes[positions]]
        size = rows_of_batch(self.rows.num_rows, self.rows.nbytes)
        for start in range(0, len(live), size):
            rows = gather(self.rows, live[start : start + size])
            yield pa.RecordBatch.from_arrays(rows.columns, names=self.rows.column_names)


@dataclass(frozen=True)
class PairwiseFold:
    """A fold that merges all records of a key into one. `schema` are the columns; with `partial` merging is field by
    field. `data_blocks` are the numbers of blocks with rows."""

    entries: LogEntries
    rules: MergeRules
    schema: pa.Schema
    partial: bool
    of_block: BlockRows
    data_blocks: frozenset[int]

    def run(self, spill: Spill, decoded_bytes: int, memory: int) -> tuple[LogEntries, LogRecords]:
        """One entry for each key, which base rows are matched with, and its record, in the same order."""
        codes, distinct = record_codes(self.entries, by_position=self.entries.positions is not None)
        shares = max(1, min(distinct, -(-decoded_bytes // max(1, memory))))
        firsts: list[Positions] = []
        sides: list[Side] = []
        for number in range(shares):
            low, high = number * distinct // shares, (number + 1) * distinct // shares
            entry_numbers = np.flatnonzero((codes >= low) & (codes < high))
            if len(entry_numbers):
                first, side = self._share(entry_numbers, codes[entry_numbers] - low)
                spill.append(pa.RecordBatch.from_arrays(side.rows.columns, schema=self.schema))
                firsts.append(first)
                sides.append(replace(side, rows=side.rows.slice(0, 0)))
        entries = self.entries.take(np.concatenate(firsts) if firsts else np.empty(0, np.int64))
        none = np.zeros(len(entries), np.bool_)
        return replace(entries, deletes=none, forced=none, ordering=()), self._records(spill, sides)

    def _share(self, positions: Positions, codes: Positions) -> tuple[Positions, Side]:
        """The merged records of some keys, and the position of each key's first record."""
        counts = np.bincount(codes)[codes]
        order = np.lexsort((positions, codes, -counts))
        ordered = codes[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        side = self._decoded(positions).take(order)
        return positions[order][starts], in_rounds(self.rules, side, starts, counts[order][starts])

    def _decoded(self, positions: Positions) -> Side:
        """The records at these positions with all columns, as one side of a merge."""
        blocks = self.entries.block[positions]
        parts: list[pa.RecordBatch] = []
        absent: dict[str, Flags] = {}
        for start, end in pairwise(np.append(np.searchsorted(blocks, np.unique(blocks)), len(blocks)).tolist()):
            number = int(blocks[start])
            columns: Sequence[pa.Array] = [pa.nulls(end - start, f.type) for f in self.schema]
            lacking: Sequence[str] = ()
            if number in self.data_blocks:
                columns, lacking = self.of_block(number, self.entries.row[positions[start:end]])
            for name in lacking:
                absent.setdefault(name, np.zeros(len(positions), np.bool_))[start:end] = True
            parts.append(pa.RecordBatch.from_arrays([_plain(c) for c in columns], names=self.schema.names))
        selected = self.entries.take(positions)
        present = {name: ~lacks for name, lacks in absent.items()} if self.partial else None
        return Side(pa.concat_batches(parts), selected.deletes, selected.forced, present, selected.ordering)

    def _records(self, spill: Spill, sides: Sequence[Side]) -> LogRecords:
        kinds = [values.type for values in self.entries.ordering]
        ordering = [
            pa.concat_arrays([pa.array([], kind), *(side.ordering[i] for side in sides if side.ordering is not None)])
            for i, kind in enumerate(kinds)
        ]
        present: dict[str, Flags] | None = None
        if self.partial:
            names = dict.fromkeys(name for side in sides for name in side.present or {})
            present = {name: _joined([_has(side, name) for side in sides]) for name in names}
        deletes, forced = (_joined([getattr(side, flag) for side in sides]) for flag in ("deletes", "forced"))
        return LogRecords(spill.table(self.schema), deletes, forced, present, tuple(ordering))


def _has(side: Side, name: str) -> Flags:
    flags = (side.present or {}).get(name)
    return np.ones(len(side.deletes), np.bool_) if flags is None else flags


def _joined(flags: Sequence[Flags]) -> Flags:
    return np.concatenate(flags) if flags else np.empty(0, np.bool_)


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


@dataclass(frozen=True)
class Replacements:
    """The rows of a base file, by number, that log records replace, and those that they delete; the columns of the
    records in that order; and the columns of `inserted` records, whose keys the base file does not have."""

    replaced: Positions
    deleted: Positions
    columns: Mapping[str, pa.Array]
    inserted: int
    inserted_columns: Mapping[str, pa.Array]

    @property
    def nbytes(self) -> int:
        """The bytes in memory."""
        arrays = [*self.columns.values(), *self.inserted_columns.values()]
        return self.replaced.nbytes + self.deleted.nbytes + sum([array.nbytes for array in arrays])

    def has(self, schema: pa.Schema, changing: Collection[str]) -> bool:
        """Whether it has the `changing` columns, and all columns of the inserted rows, in the types in which log rows
        have those of `schema`."""
        every = [pa.field(f.name, coded_type(f)) for f in schema]
        has_replaced = not len(self.replaced) or _are_in([f for f in every if f.name in changing], self.columns)
        return has_replaced and (not self.inserted or _are_in(every, self.inserted_columns))

    def parts(
        self, base: BaseRows | None, columns: Sequence[str], changing: Sequence[str]
    ) -> Iterator[tuple[pa.RecordBatch, Positions, pa.RecordBatch | None, Flags]]:
        """Batches of base rows in these columns; for each the replaced rows, the new values of the `changing` columns
        (None: there are none), and flags of the deleted rows."""
        first = 0
        for batch in base.read(columns) if base is not None else ():
            start, end = np.searchsorted(self.replaced, [first, first + batch.num_rows]).tolist()
            names = list(changing) if start < end else []
            arrays = [self.columns[name].slice(start, end - start) for name in names]
            new = pa.RecordBatch.from_arrays(arrays, names=names) if names else None
            low, high = np.searchsorted(self.deleted, [first, first + batch.num_rows]).tolist()
            goes = np.zeros(batch.num_rows, np.bool_)
            goes[self.deleted[low:high] - first] = True
            yield batch, self.replaced[start:end] - first, new, goes
            first += batch.num_rows

    def inserted_rows(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The inserted rows in these columns, some at a time."""
        if not self.inserted:
            return
        if not len(schema):  # made of no arrays a batch would have no rows
            yield pa.RecordBatch.from_struct_array(pa.nulls(self.inserted, pa.struct([])))
            return
        rows = pa.RecordBatch.from_arrays([self.inserted_columns[name] for name in schema.names], names=schema.names)
        size = rows_of_batch(rows.num_rows, rows.nbytes)
        for start in range(0, rows.num_rows, size):
            yield rows.slice(start, size)


def _are_in(fields: Sequence[pa.Field], columns: Mapping[str, pa.Array]) -> bool:
    return all(f.name in columns and columns[f.name].type.equals(f.type) for f in fields)


@dataclass
class ReplacementsWriter:
    """A writer that collects the replacements in a slice while its rows are merged for the first time, and caches them
    under `key`."""

    key: Hashable
    _replaced: list[Positions] = field(default_factory=list[Positions])
    _deleted: list[Positions] = field(default_factory=list[Positions])
    _rows: list[pa.RecordBatch] = field(default_factory=list[pa.RecordBatch])

    def add(self, first: int, replaced: Positions, new: pa.RecordBatch | None, goes: Flags) -> None:
        """Add the replacements in a batch of base rows, whose first row has number `first`."""
        self._replaced.append(replaced + first)
        self._deleted.append(np.flatnonzero(goes) + first)
        if new is not None:
            self._rows.append(new)

    def put(self, inserted: Sequence[pa.RecordBatch]) -> None:
        """End the collection after all rows were merged, with the rows that are inserted."""
        replaced = np.concatenate([NO_ROWS, *self._replaced])
        deleted = np.concatenate([NO_ROWS, *self._deleted])
        columns, inserted_columns = _columns_of(self._rows), _columns_of(inserted)
        before = REPLACEMENTS.get(self.key)
        if before is not None:
            columns = {**before.columns, **columns}
            inserted_columns = {**before.inserted_columns, **inserted_columns}
        count = sum([batch.num_rows for batch in inserted])
        REPLACEMENTS.put(self.key, Replacements(replaced, deleted, columns, count, inserted_columns))


def _columns_of(batches: Sequence[pa.RecordBatch]) -> dict[str, pa.Array]:
    if not batches:
        return {}
    return {name: pa.concat_arrays([batch.column(name) for batch in batches]) for name in batches[0].schema.names}


def replacements_key(base: Hashable, logs: SliceLogs, rules: MergeRules) -> Hashable:
    """The cache key of the replacements of a base file; None without a base file, or if the log is too large to
    cache."""
    if base is None or logs.data_bytes * _SLICE_SHARE > _CACHED_BYTES:
        return None
    return base, tuple([(b.source.name, b.offset, b.content_length, b.instant) for b in logs.blocks]), rules


LOG_ROWS = BoundedCache[CacheEntry[Sequence[pa.RecordBatch]]](_CACHED_BYTES)
"""The rows that the log records of a slice give beside those of its base file."""

REPLACEMENTS = BoundedCache[Replacements](_CACHED_BYTES, "merged log records")
"""Files do not change: a slice has the same ones as long as the same blocks of its log files count."""
