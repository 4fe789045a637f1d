"""The columns that decide between the records of a slice's log blocks: key, ordering values, deletes.

`fold` selects which of several log records of a key stays, for all keys of a slice at once: no loop over records.

The rules are Hudi's fold of a log into one record a key. A commit-time delete replaces all records before it, and
ordered deletes after it have no effect until a data record follows. Of the rest the record with the greatest ordering
value stays; of equal ones the latest.

`blocks_in_merge_order` gives the blocks of a slice's log files that count, in the order in which they are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import CorruptFile
from lakebed.format.avro.wrappers import DECIMAL, INT, WRAPPED_DECIMAL, Wrapped, decimals
from lakebed.format.delete_block import ARRAY, Deletes
from lakebed.format.hashes import plain_strings
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey
from lakebed.model import IS_DELETED_COLUMN, OPERATION_COLUMN
from lakebed.schema.plain_arrow import as_numpy

if TYPE_CHECKING:
    from lakebed.format.data_block import DataBlock
    from lakebed.merge.rules import MergeRules

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BlockView:
    """A view that decides whether the records of an instant are visible: the instant is committed (or older than the
    active timeline, and thus archived), is not after `as_of`, and is in `within` if only some instants are read. With
    `committed` None all instants are visible.

    Without `committed` nothing is known of instants, and all of them count.
    """

    committed: Set[str] | None = None
    pending: Set[str] = frozenset()
    start: str = ""
    as_of: str | None = None
    within: Set[str] | None = None

    def shows(self, instant: str) -> bool:
        """Whether the view shows blocks of this instant."""
        if self.as_of is not None and instant > self.as_of:
            return False
        if self.within is not None and instant not in self.within:
            return False
        if self.committed is None or instant in self.committed:
            return True
        return instant not in self.pending and instant < self.start

    def with_writer_of(self, instant: str) -> BlockView:
        """This view with the blocks of one pending instant, as its own writer sees it."""
        if self.committed is None:
            return self
        return replace(self, committed={*self.committed, instant}, pending=self.pending - {instant})

    def of_instants(self, instants: Set[str]) -> BlockView:
        """The view of the records of only these instants."""
        return replace(self, within=instants)


@dataclass(frozen=True, slots=True)
class LogEntries:
    """The data of log records, oldest first, that decide which records win: record keys, values of the ordering fields
    (empty under commit-time ordering), and flags of deletes. `forced` marks commit-time deletes, which win whatever the
    ordering values are. `block` and `row` locate each record.

    `positions` are the records' rows in the base file, if all blocks have them.
    """

    keys: pa.Array
    ordering: tuple[pa.Array, ...]
    deletes: Flags
    forced: Flags
    block: npt.NDArray[np.int32]
    row: Positions
    positions: Positions | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, row_numbers: Positions) -> LogEntries:
        """The entries with these row numbers, in that order."""
        if len(row_numbers) == len(self) and (row_numbers == np.arange(len(self))).all():
            return self
        at = pa.array(row_numbers)
        return LogEntries(
            self.keys.take(at),
            tuple(values.take(at) for values in self.ordering),
            self.deletes[row_numbers],
            self.forced[row_numbers],
            self.block[row_numbers],
            self.row[row_numbers],
            None if self.positions is None else self.positions[row_numbers],
        )

    def of_block(self, number: int, rows: range) -> LogEntries:
        """The entries at `rows`, as the entries of block `number`, whose rows count from 0."""
        if len(rows) == len(self) and int(self.block[0] if len(self) else number) == number:
            return self
        span = slice(rows.start, rows.stop)
        count = len(rows)
        return LogEntries(
            self.keys[span],
            tuple(values[span] for values in self.ordering),
            self.deletes[span],
            self.forced[span],
            np.full(count, number, np.int32),
            np.arange(count),
        )


def fold(entries: LogEntries, rules: MergeRules, *, by_position: bool = False) -> Positions:
    """The positions (ascending) of the winning entries, one per key (or per row of the base file)."""
    codes, distinct = record_codes(entries, by_position=by_position)
    if distinct == len(entries):
        return np.arange(len(entries))
    if not rules.ordering:
        return np.sort(_last_of(codes, distinct, np.arange(len(entries))))
    single = np.bincount(codes, minlength=distinct)[codes] == 1
    several = np.flatnonzero(~single)
    stays = single
    stays[several[_latest_or_greatest(entries.take(several), codes[several], rules)]] = True
    return np.flatnonzero(stays)


def record_codes(entries: LogEntries, *, by_position: bool = False) -> tuple[Positions, int]:
    """A number from 0 for the key of each entry (or its row of the base file), and the number of different ones."""
    from lakebed.merge.key_table import key_codes

    if by_position:
        assert entries.positions is not None
        distinct, codes = np.unique(entries.positions, return_inverse=True)
        return codes, len(distinct)
    return key_codes(entries.keys)


def _latest_or_greatest(entries: LogEntries, codes: Positions, rules: MergeRules) -> Positions:
    """The position of the winning entry of each key under event-time ordering: the last entry with the greatest
    ordering values."""
    row_numbers = np.arange(len(entries))
    distinct = int(codes.max()) + 1
    counts = np.ones(len(entries), np.bool_)
    if entries.forced.any():
        counts = ~_undone(entries, codes, distinct, row_numbers)
    ranks = _ranks(rules.comparable(entries.ordering))
    best = np.full(distinct, np.iinfo(np.int64).min)
    np.maximum.at(best, codes[counts], ranks[counts])
    counts &= ranks == best[codes]
    return _last_of(codes[counts], distinct, row_numbers[counts])


def _undone(entries: LogEntries, codes: Positions, distinct: int, row_numbers: Positions) -> Flags:
    """Flags of the entries that commit-time deletes discard: all before the last such delete of a key, ordered deletes
    after it up to the next data record, and the delete itself if a data record follows."""
    forced = entries.forced
    last = np.full(distinct, -1)
    last[codes[forced]] = row_numbers[forced]
    of_key = last[codes]
    is_after = row_numbers > of_key
    data = is_after & ~entries.deletes & (of_key >= 0)
    first = np.full(distinct, len(entries))
    first[codes[data][::-1]] = row_numbers[data][::-1]
    begins = first[codes]
    undone = ~is_after & ~((row_numbers == of_key) & (begins == len(entries)))
    return undone | (is_after & (of_key >= 0) & (row_numbers < begins))


def _last_of(codes: Positions, distinct: int, row_numbers: Positions) -> Positions:
    """The last row number of each code that occurs."""
    last = np.full(distinct, -1)
    last[codes] = row_numbers
    return last[last >= 0]


def _ranks(columns: Sequence[pa.Array]) -> Positions:
    """Numbers in the order of the rows, which compare column by column from left to right, nulls first."""
    combined_ranks: Positions | None = None
    for values in columns:
        ranks = _ranks_of(values)
        if combined_ranks is None:
            combined_ranks = ranks
            continue
        _, ranks = np.unique(ranks, return_inverse=True)
        _, combined_ranks = np.unique(combined_ranks, return_inverse=True)
        combined_ranks = combined_ranks * (int(ranks.max(initial=0)) + 1) + ranks
    assert combined_ranks is not None
    return combined_ranks


def _ranks_of(values: pa.Array) -> Positions:
    kind = values.type
    if not values.null_count and (pt.is_integer(kind) or pt.is_timestamp(kind) or pt.is_date32(kind)):
        plain = pa.int32() if kind.bit_width == 32 and not pt.is_integer(kind) else None
        numbers = values.view(plain or (kind if pt.is_integer(kind) else pa.int64()))
        return as_numpy(numbers).astype(np.int64)
    if pt.is_null(kind):
        return np.zeros(len(values), np.int64)
    encoded = values.dictionary_encode()
    order = as_numpy(pc.sort_indices(encoded.dictionary))
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    ranks[len(order)] = 0
    codes = as_numpy(pc.fill_null(encoded.indices.cast(pa.int64()), len(order)))
    return ranks[codes]


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns that give a stored row's record key, and how."""

    names: tuple[str, ...]
    texts: Callable[[pa.RecordBatch], pa.Array] | None = None

    def of(self, rows: pa.RecordBatch, path: str) -> pa.Array:
        """The record keys of rows; raises `CorruptFile` for rows without them."""
        keys = plain_strings(rows.column(self.names[0]) if self.texts is None else self.texts(rows))
        if keys.null_count:
            raise CorruptFile(f"{path}: {keys.null_count} record(s) without a record key", context={"path": path})
        return keys


def ordering_types(schemas: Sequence[pa.Schema], table: pa.Schema, rules: MergeRules) -> tuple[pa.DataType, ...]:
    """The types in which the ordering fields are compared: the widest type that the files have for each, or the table's
    type if no file has one (for example if only deletes are logged)."""
    from lakebed.schema.evolution import is_promotion

    types: list[pa.DataType] = []
    for name in rules.ordering:
        kinds = [kind for schema in schemas if (kind := _type_of(schema, name)) is not None]
        widest = kinds[0] if kinds else _type_of(table, name) or pa.null()
        for kind in kinds[1:]:
            if not is_promotion(kind, widest):
                widest = kind
        types.append(widest)
    return tuple(types)


def roots(fields: Sequence[str], schema: pa.Schema) -> list[str]:
    """The top-level columns of fields, which may be inside structs."""
    known_names = frozenset(schema.names)
    return [name if name in known_names else name.partition(".")[0] for name in fields]


def ordering_values(rows: pa.RecordBatch, rules: MergeRules, kinds: Sequence[pa.DataType]) -> tuple[pa.Array, ...]:
    """The ordering fields of rows in the types `kinds`; null if the rows do not have a field."""
    from lakebed.schema.evolution import cast_column

    pairs = zip(rules.ordering, kinds, strict=True)
    return tuple([cast_column(_values_of(rows, name, kind), kind) for name, kind in pairs])


def data_entries(
    block: DataBlock, number: int, rules: MergeRules, kinds: Sequence[pa.DataType], keys: KeyColumns, path: str
) -> LogEntries:
    """The entries of a data block; `number` is the block's number in them."""
    marks = [IS_DELETED_COLUMN, OPERATION_COLUMN, *([rules.delete_field] if rules.delete_field else [])]
    names = [*keys.names, *roots(rules.ordering, block.schema), *marks]
    known_names = frozenset(block.schema.names)
    rows = block.read([name for name in dict.fromkeys(names) if name in known_names])
    n = rows.num_rows
    ordering = ordering_values(rows, rules, kinds)
    marked = rules.is_delete(rows)
    deletes = np.zeros(n, np.bool_) if marked is None else as_numpy(marked)
    forced = np.zeros(n, np.bool_)
    if rules.deletes_win:
        forced = deletes
    elif deletes.any() and len(ordering) == 1:
        forced = deletes & _is_default(ordering[0])
    return LogEntries(keys.of(rows, path), ordering, deletes, forced, np.full(n, number, np.int32), np.arange(n))


def delete_entries(deletes: Deletes, number: int, rules: MergeRules, kinds: Sequence[pa.DataType]) -> LogEntries:
    """The entries of a delete block."""
    n = len(deletes)
    wrapped = deletes.ordering
    forced = np.zeros(n, np.bool_)
    if INT in wrapped.values:
        rows, values = wrapped.values[INT]
        forced[rows] = as_numpy(values) == 0
    forced |= (wrapped.branch == 0) | rules.delete_blocks_win | rules.deletes_win
    if deletes.fields and len(deletes.fields) == len(kinds):
        several = np.flatnonzero(wrapped.branch == ARRAY)
        ordering = [_into(n, several, _unwrapped(w, k)) for w, k in zip(deletes.fields, kinds, strict=True)]
    elif len(kinds) == 1:
        ordering = [_unwrapped(wrapped, kinds[0], skip=forced)]
    else:
        ordering = [pa.nulls(n, kind) for kind in kinds]
    every = np.ones(n, np.bool_)
    return LogEntries(deletes.keys, tuple(ordering), every, forced, np.full(n, number, np.int32), np.arange(n))


def joined(parts: Sequence[LogEntries], kinds: Sequence[pa.DataType]) -> LogEntries:
    """The entries of several blocks, concatenated."""
    if len(parts) == 1:
        return parts[0]
    positions = [part.positions for part in parts if part.positions is not None]
    return LogEntries(
        pa.concat_arrays([part.keys for part in parts]) if parts else pa.array([], pa.string()),
        tuple(
            pa.concat_arrays([part.ordering[i] for part in parts]) if parts else pa.array([], kind)
            for i, kind in enumerate(kinds)
        ),
        _concatenated([part.deletes for part in parts], np.bool_),
        _concatenated([part.forced for part in parts], np.bool_),
        _concatenated([part.block for part in parts], np.int32),
        _concatenated([part.row for part in parts], np.int64),
        np.concatenate(positions) if parts and len(positions) == len(parts) else None,
    )


def _concatenated(arrays: Sequence[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, kind)


def _is_default(ordering: pa.Array) -> Flags:
    """Flags of the ordering values that count as missing: null, or the int 0, which Hudi takes for null (a long 0 is a
    value)."""
    flags = ordering.is_null()
    if pt.is_int32(ordering.type):
        flags = pc.or_kleene(flags, pc.equal(ordering, 0))
    return as_numpy(flags)


def _type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    if name in schema.names:
        return schema.field(name).type
    root, _, inner_path = name.partition(".")
    if not inner_path or root not in schema.names or not pt.is_struct(schema.field(root).type):
        return None
    return _type_of(pa.schema(list(schema.field(root).type)), inner_path)


def _values_of(rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    if name in rows.schema.names:
        return rows.column(name)
    if _type_of(rows.schema, name) is None:
        return pa.nulls(rows.num_rows, kind)
    root, _, inner_path = name.partition(".")
    return pc.struct_field(rows.column(root), inner_path.split("."))


def _unwrapped(wrapped: Wrapped, kind: pa.DataType, skip: Flags | None = None) -> pa.Array:
    """The wrapped values as a column of the type `kind`; null where `skip` is true."""
    n = len(wrapped.branch)
    parts: list[pa.Array] = [pa.nulls(1, kind)]
    row_numbers = np.zeros(n, np.int64)
    at = 1
    for branch, (rows, values) in wrapped.values.items():
        if skip is not None and skip[rows].all():
            continue
        if branch == DECIMAL:
            values = decimals(values, WRAPPED_DECIMAL)
        parts.append(_as(values, kind))
        row_numbers[rows] = at + np.arange(len(rows))
        at += len(rows)
    if skip is not None:
        row_numbers[skip] = 0
    return pa.concat_arrays(parts).take(pa.array(row_numbers))


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of a wrapper converted to a column's type; days and microseconds may be stored as plain numbers."""
    from lakebed.schema.evolution import cast_column

    if pt.is_integer(values.type) and pt.is_date32(kind):
        return values.cast(pa.int32()).view(kind)
    if pt.is_date32(values.type) and pt.is_integer(kind):
        return values.view(pa.int32()).cast(kind)
    if pt.is_timestamp(values.type) and pt.is_integer(kind):
        return values.view(pa.int64()).cast(kind)
    if pt.is_decimal(values.type) and pt.is_decimal(kind):
        return values.cast(pa.decimal256(76, max(values.type.scale, kind.scale))).cast(kind)
    if pt.is_null(kind):
        return pa.nulls(len(values), kind)
    return cast_column(values, kind)


def _into(n: int, rows: Positions, values: pa.Array) -> pa.Array:
    """An array of `n` rows that has `values` at the positions `rows` and null elsewhere."""
    row_numbers = np.zeros(n, np.int64)
    row_numbers[rows] = 1 + np.arange(len(rows))
    return pa.concat_arrays([pa.nulls(1, values.type), values]).take(pa.array(row_numbers))


_DATA = (BlockType.AVRO_DATA, BlockType.HFILE_DATA, BlockType.PARQUET_DATA)


def blocks_in_merge_order(
    blocks: Iterable[BlockHead], is_visible: Callable[[str], bool], *, by_instant: bool = False
) -> list[BlockHead]:
    """The data and delete blocks of a slice, oldest first, from all its blocks in the order of its files; with
    `by_instant` in the order of their instants, which the names of files of a bucket resize do not show.

    `is_visible(instant)` is whether a block's instant counts. Damaged blocks are left out, and so are those in
    front of a rollback command for their instant. The blocks of one instant stay together; a log-compacted block
    takes the place of the newest instant that it replaces.
    """
    counting: dict[str, list[BlockHead]] = {}
    for block in blocks:
        if block.type is BlockType.COMMAND:
            counting.pop(block.headers.get(HeaderKey.TARGET_INSTANT_TIME, ""), None)
        elif (block.type is BlockType.DELETE or block.type in _DATA) and is_visible(block.instant):
            counting.setdefault(block.instant, []).append(block)
    return _with_compacted(dict(sorted(counting.items())) if by_instant else counting)


def _with_compacted(by_instant: dict[str, list[BlockHead]]) -> list[BlockHead]:
    replaced_by: dict[str, str] = {}
    placed: set[str] = set()
    parts: list[Sequence[BlockHead]] = []
    for instant in reversed(by_instant):
        blocks = by_instant[instant]
        compacted = blocks[0].headers.get(HeaderKey.COMPACTED_BLOCK_TIMES)
        if compacted:
            final = replaced_by.get(instant, instant)
            replaced_by |= {time.strip(): final for time in compacted.split(",")}
            continue
        final = replaced_by.get(instant, instant)
        if final not in placed:
            placed.add(final)
            parts.append(by_instant[final])
    return [block for part in reversed(parts) for block in part]
