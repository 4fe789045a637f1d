"""Two rows of each key made one: the kernel for every merge that is not "the winner stays as it is".

Where several records of a key meet, they are merged in rounds: the first with the second, the result with the third.
Pure: Arrow in, Arrow out, no loop over rows.

Columns with some of their rows replaced, or taken from two arrays; dictionaries stay dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import value_buffer
from lakebed.merge.mergers import Merger
from lakebed.merge.rules import MergeRules
from lakebed.merge.unavailable import filled_inside, may_mark_inside, unavailable_values
from lakebed.model import ALL_META_COLUMNS, COMMIT_SEQNO, COMMIT_TIME, DERIVED, FILE_NAME
from lakebed.schema.plain_arrow import as_numpy

Positions = npt.NDArray[np.int64]

# Texts that are compared first to see whether a column changes.
_PROBED_TEXTS = 32
# Texts of which at most one in so many changes are copied in pieces, without a take of all.
_SPLICED = 128
# Arrow's texts have offsets of 32 bits.
_MAX_BYTES = (1 << 31) - 1


def put(old: pa.Array, at: Positions, row_numbers: pa.Array, new: pa.Array) -> pa.Array:
    """The values of `old` with those at the rows `at` replaced by the values of `new`, in order; `row_numbers` are the
    result's rows in `old` followed by `new`.

    One take of both together: a third of what Arrow's `replace_with_mask` costs on texts, and good for every type.
    Numbers are set in a copy, and a text column that does not change, as the key's, is not copied at all.
    """
    if pa.types.is_dictionary(old.type):
        return _put_dictionary(old, at, new if pa.types.is_dictionary(new.type) else new.dictionary_encode())
    if pa.types.is_dictionary(new.type):
        new = new.dictionary_decode()
    if not old.null_count and not new.null_count and new.type.equals(old.type):
        if pa.types.is_primitive(old.type) and not pa.types.is_boolean(old.type):
            return _put_numbers(old, at, new)
        if pa.types.is_string(old.type) and _is_same(old, at, new):
            return old
    are_texts = pa.types.is_string(old.type) and new.type.equals(old.type)
    if are_texts and len(at) * _SPLICED <= len(old) and old.nbytes + new.nbytes <= _MAX_BYTES:
        return _spliced(old, at, new)
    return pa.concat_arrays([old, new]).take(row_numbers)


def _spliced(old: pa.Array, at: Positions, new: pa.Array) -> pa.Array:
    """The texts with new values at positions, as `put` returns them, for a case with few changes: the bytes between the
    changed texts are copied in runs."""
    old_bytes, old_edges = value_buffer(old)
    new_bytes, new_edges = value_buffer(new)
    old_data, new_data = old_bytes.data, new_bytes.data
    starts, ends = old_edges[at], old_edges[at + 1]
    size = int(old_edges[-1] - old_edges[0] + new_edges[-1] - new_edges[0] - (ends - starts).sum())
    buffer = pa.allocate_buffer(size)
    data, put_to, copied = memoryview(buffer).cast("B"), 0, int(old_edges[0])
    for start, end, first, last in zip(
        starts.tolist(), ends.tolist(), new_edges[:-1].tolist(), new_edges[1:].tolist(), strict=True
    ):
        middle = put_to + start - copied
        data[put_to:middle] = old_data[copied:start]
        put_to = middle + last - first
        data[middle:put_to] = new_data[first:last]
        copied = end
    data[put_to:] = old_data[copied : int(old_edges[-1])]
    edges = np.zeros(len(old) + 1, np.int32)
    edges[at + 1] = np.diff(new_edges) - (ends - starts)
    np.cumsum(edges, out=edges)
    edges += (old_edges - old_edges[0]).astype(np.int32)
    valid = None
    if old.null_count or new.null_count:
        flags = as_numpy(old.is_valid())
        flags[at] = as_numpy(new.is_valid())
        valid = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return pa.Array.from_buffers(old.type, len(old), [valid, pa.py_buffer(edges), buffer])


def _put_numbers(old: pa.Array, at: Positions, new: pa.Array) -> pa.Array:
    plain = f"u{old.type.bit_width // 8}"
    width = np.dtype(plain).itemsize
    values = np.frombuffer(old.buffers()[1], plain, len(old), old.offset * width).copy()
    values[at] = np.frombuffer(new.buffers()[1], plain, len(new), new.offset * width)
    return pa.Array.from_buffers(old.type, len(values), [None, pa.py_buffer(values)])


def _is_same(old: pa.Array, at: Positions, new: pa.Array) -> bool:
    """Whether `old` already has the values `new` at the rows `at`. A few rows are compared first."""
    few = min(len(at), _PROBED_TEXTS)
    return old.take(pa.array(at[:few])).equals(new.slice(0, few)) and old.take(pa.array(at)).equals(new)


def _put_dictionary(old: pa.DictionaryArray, at: Positions, new: pa.DictionaryArray) -> pa.DictionaryArray:
    unified = pa.chunked_array([old.cast(new.type), new]).unify_dictionaries()
    codes, new_codes = [as_numpy(pc.fill_null(chunk.indices, -1)) for chunk in unified.chunks]
    codes = codes.copy()
    codes[at] = new_codes
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), unified.chunk(0).dictionary)


def take_of_both(old: pa.Array, new: pa.Array, rows: pa.Array) -> pa.Array:
    """The values at the positions `rows` of `old` followed by `new`."""
    if pa.types.is_dictionary(old.type) and not pa.types.is_dictionary(new.type):
        new = new.dictionary_encode()
    elif pa.types.is_dictionary(new.type) and not pa.types.is_dictionary(old.type):
        new = new.dictionary_decode()
    if not pa.types.is_dictionary(old.type):
        return pa.concat_arrays([old, new]).take(rows)
    unified = pa.chunked_array([old.cast(new.type), new]).unify_dictionaries()
    codes = pa.concat_arrays([chunk.indices for chunk in unified.chunks]).take(rows)
    return pa.DictionaryArray.from_arrays(codes, unified.chunk(0).dictionary)


def plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with dictionary columns decoded."""
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def stacked(batch: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of `batch`, then those of `other`, with dictionary columns decoded."""
    first, second = plain(batch), plain(other)
    names = other.schema.names
    columns = [pa.concat_arrays([first.column(name), second.column(name)]) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=names)


Flags = npt.NDArray[np.bool_]
# The meta columns in which records of one key differ.
CHANGING_META = (COMMIT_TIME, COMMIT_SEQNO, FILE_NAME)


@dataclass(frozen=True, slots=True)
class Side:
    """One record per key, in the same order of keys on both sides of a merge.

    `rows` are the records in the reader's columns; of a delete only the key and the ordering values count, the rest may
    be null. `deletes` marks the records that are deletes, `forced` those that are commit-time deletes, which win
    whatever the ordering values are. `ordering` are the values of the rules' ordering fields where the rows do not
    hold them (a field inside a struct); None: they are columns of `rows`.

    `present` is None if no record comes from a partial block, or from a block after one. Otherwise records are merged
    field by field: for each column that some records lack, `present` marks the records that have it. Columns that it
    does not name are in all records. `rows` is null where a column is absent.
    """

    rows: pa.RecordBatch
    deletes: Flags
    forced: Flags
    present: Mapping[str, Flags] | None = None
    ordering: tuple[pa.Array, ...] | None = None

    @classmethod
    def of(cls, rows: pa.RecordBatch, *, partial: bool = False) -> Side:
        """A side of records that are not deletes. With `partial` it is merged field by field, although all records have
        all columns."""
        none = np.zeros(rows.num_rows, dtype=bool)
        return cls(rows, none, none, {} if partial else None)

    @classmethod
    def concat(cls, sides: Sequence[Side]) -> Side:
        """The records of several sides, one after another."""
        if len(sides) == 1:
            return sides[0]
        present: dict[str, Flags] | None = None
        if any(side.present is not None for side in sides):
            names = dict.fromkeys(name for side in sides for name in side.present or {})
            present = {name: np.concatenate([side.has(name) for side in sides]) for name in names}
        ordering = None
        values = [side.ordering for side in sides if side.ordering is not None]
        if len(values) == len(sides):
            ordering = tuple(pa.concat_arrays(parts) for parts in zip(*values, strict=True))
        deletes, forced = (np.concatenate(flags) for flags in zip(*((s.deletes, s.forced) for s in sides), strict=True))
        return cls(pa.concat_batches([side.rows for side in sides]), deletes, forced, present, ordering)

    @property
    def length(self) -> int:
        return self.rows.num_rows

    def has(self, name: str) -> Flags:
        """Flags of the records that have a column."""
        flags = (self.present or {}).get(name)
        return np.ones(self.length, dtype=bool) if flags is None else flags

    def with_columns(self, columns: Mapping[str, pa.Array]) -> Side:
        """These records with `columns` in place of the columns of those names."""
        if not columns:
            return self
        names = self.rows.schema.names
        values = [columns[name] if name in columns else self.rows.column(name) for name in names]
        return replace(self, rows=pa.RecordBatch.from_arrays(values, names=names))

    def slice(self, start: int, length: int | None = None) -> Side:
        """The records from `start` on, at most `length`; nothing is copied."""
        end = self.length if length is None else start + length
        present = None if self.present is None else {k: v[start:end] for k, v in self.present.items()}
        ordering = None if self.ordering is None else tuple(v.slice(start, end - start) for v in self.ordering)
        rows = self.rows.slice(start, end - start)
        return Side(rows, self.deletes[start:end], self.forced[start:end], present, ordering)

    def take(self, positions: npt.NDArray[np.int64]) -> Side:
        """The records at these positions, in that order."""
        at = pa.array(positions)
        present = None if self.present is None else {k: v[positions] for k, v in self.present.items()}
        ordering = None if self.ordering is None else tuple(values.take(at) for values in self.ordering)
        return Side(self.rows.take(at), self.deletes[positions], self.forced[positions], present, ordering)


def merge_pairs(rules: MergeRules, older: Side, newer: Side) -> Side:
    """The merge of both sides, row by row; `older` may be the stored rows, and `newer` their changes in the log.

    Both sides have the same keys, row by row, and the same columns and types (dictionaries aside); so has the result.
    The result still has its deletes: they delete a stored row, and among log records later rounds merge them further.
    Meta columns are those of the record that wins, unless the rules state otherwise.
    """
    return merge_into(rules, older, newer)[0]


def merge_into(rules: MergeRules, older: Side, newer: Side) -> tuple[Side, Flags]:
    """The merge of both sides, row by row, and flags of the merged records that differ from the older ones. Both sides
    have the same keys, row by row, and the same columns and types (dictionaries aside)."""
    if rules.merger is not None:
        return _by_merger(rules.merger, rules.fixed, older, newer)
    pairs = _Pairs(older, newer, newer_wins(rules, older, newer))
    merged = pairs.winners()
    filled: dict[str, pa.Array] = {}
    changed = pairs.wins
    for name, lacking in _lacking(rules, pairs, merged):
        if lacking.any():
            filled[name] = pairs.from_loser(name, lacking)
            changed = changed | (lacking & _has_values(rules, merged, newer, name, filled[name]))
    if rules.partial == "FILL_UNAVAILABLE" and merged.present is None:
        fills = pairs.alive & pairs.wins if rules.late_fills else pairs.alive
        for field in merged.rows.schema:
            if is_data(field.name) and may_mark_inside(field.type):
                others = pairs.from_loser(field.name, np.ones(older.length, dtype=bool))
                values, flags = filled_inside(merged.rows.column(field.name), others, rules.unavailable, fills)
                filled |= {field.name: values} if flags.any() else {}
                changed = changed | flags
    if rules.late_meta and merged.present is None:
        older_wins = pairs.alive & ~pairs.wins
        filled |= {
            name: pairs.from_loser(name, older_wins) for name in CHANGING_META if name in merged.rows.schema.names
        }
        changed = changed | older_wins
    return merged.with_columns(filled), changed


def newer_wins(rules: MergeRules, older: Side, newer: Side) -> Flags:
    """Flags of the pairs in which the newer record wins; for equal ordering values it does."""
    if not rules.ordering:
        return np.ones(older.length, dtype=bool)
    older_forced, newer_forced = (
        side.forced | side.deletes if rules.deletes_win else side.forced for side in (older, newer)
    )
    by_value = as_numpy(rules.newer_wins(ordering_of(rules, older), ordering_of(rules, newer)))
    # what follows a commit-time delete replaces it, unless it is a delete too
    return np.where(older_forced, ~newer.deletes, newer_forced | by_value)


def _by_merger(merger: Merger, fixed: Sequence[str], older: Side, newer: Side) -> tuple[Side, Flags]:
    """The rows that the user's merger makes of two sides, and flags of the records that differ from the older ones. A
    delete removes the older record, and a later record starts again: it is `forced`, so that it is not merged with
    records before the delete."""
    every = np.ones(older.length, dtype=bool)
    pairs = _Pairs(older, newer, every)
    result = pairs.winners()
    lacks = {name: ~newer.has(name) & pairs.alive for name in newer.present or {}}
    result = result.with_columns({name: pairs.from_loser(name, flags) for name, flags in lacks.items()})
    result = replace(result, forced=older.forced | older.deletes | newer.forced)
    pair_numbers = np.flatnonzero(pairs.alive & ~newer.forced)
    if not len(pair_numbers):
        return result, every
    names = [name for name in result.rows.schema.names if is_data(name)]
    at = pa.array(pair_numbers)
    old, new = (plain(rows.select(names).take(at)) for rows in (older.rows, result.rows))
    merged, deleted = merger.apply(old, new, fixed)
    row_numbers = np.arange(older.length)
    row_numbers[pair_numbers] = older.length + np.arange(len(pair_numbers))
    columns = {
        name: take_of_both(result.rows.column(name), merged.column(name), pa.array(row_numbers)) for name in names
    }
    deletes = result.deletes.copy()
    deletes[pair_numbers] = deleted
    return replace(result.with_columns(columns), deletes=deletes), every


def ordering_of(rules: MergeRules, side: Side) -> Sequence[pa.Array]:
    return side.ordering if side.ordering is not None else rules.ordering_of(side.rows)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Two sides of a merge, and flags of the pairs in which the newer record wins."""

    older: Side
    newer: Side
    wins: Flags

    @property
    def alive(self) -> Flags:
        """Flags of the pairs in which neither record is a delete; only these may take values of the loser."""
        return ~(self.older.deletes | self.newer.deletes)

    def of_winner(self, older: Flags, newer: Flags) -> Flags:
        return np.where(self.wins, newer, older)

    def winners(self) -> Side:
        """The winning records, with the columns that a field-by-field merge computes."""
        side = self.newer if self.wins.all() else self.older if not self.wins.any() else None
        deletes = self.of_winner(self.older.deletes, self.newer.deletes)
        forced = self.of_winner(self.older.forced, self.newer.forced)
        present = self._present()
        if side is not None:
            return Side(side.rows, deletes, forced, present, side.ordering)
        at = self._places(self.wins)
        names = self.older.rows.schema.names
        columns = [take_of_both(self.older.rows.column(name), self.newer.rows.column(name), at) for name in names]
        ordering = None
        if self.older.ordering is not None and self.newer.ordering is not None:
            pairs = zip(self.older.ordering, self.newer.ordering, strict=True)
            ordering = tuple(take_of_both(old, new, at) for old, new in pairs)
        return Side(pa.RecordBatch.from_arrays(columns, names=names), deletes, forced, present, ordering)

    def from_loser(self, name: str, lacking: Flags) -> pa.Array:
        """A column of the winners, with the losers' values in the rows `lacking`."""
        at = self._places(self.wins ^ lacking)
        return take_of_both(self.older.rows.column(name), self.newer.rows.column(name), at)

    def _present(self) -> Mapping[str, Flags] | None:
        older, newer = self.older.present, self.newer.present
        if older is None and newer is None:
            return None
        alive = self.alive
        present: dict[str, Flags] = {}
        for name in {**(older or {}), **(newer or {})}:
            old, new = self.older.has(name), self.newer.has(name)
            present[name] = np.where(alive, old | new, self.of_winner(old, new))
        return {name: flags for name, flags in present.items() if not flags.all()}

    def _places(self, newer: Flags) -> pa.Array:
        """Positions in both sides concatenated: of the newer record where `newer` is true, otherwise of the older
        one."""
        n = self.older.length
        return pa.array(np.where(newer, n, 0) + np.arange(n))


def _lacking(rules: MergeRules, pairs: _Pairs, merged: Side) -> Iterator[tuple[str, Flags]]:
    """The columns in which some winners take the loser's value, with flags of those winners."""
    if merged.present is None and not rules.partial:
        return
    alive = pairs.alive
    if merged.present is not None:
        for name in {**(pairs.older.present or {}), **(pairs.newer.present or {})}:
            yield name, ~pairs.of_winner(pairs.older.has(name), pairs.newer.has(name)) & alive
        return
    fills = alive & pairs.wins if rules.late_fills else alive
    for name in merged.rows.schema.names:
        if is_data(name):
            empty = empty_values(rules, merged.rows.column(name))
            if empty is not None:
                yield name, empty & fills


def _has_values(rules: MergeRules, merged: Side, newer: Side, name: str, values: pa.Array) -> Flags:
    """Flags of the losers that supply a value: the newer record has the column, or the value is not empty."""
    if merged.present is not None:
        return newer.has(name)
    empty = empty_values(rules, values)
    return np.ones(len(values), dtype=bool) if empty is None else ~empty


def is_data(name: str) -> bool:
    return name not in ALL_META_COLUMNS and not name.startswith(DERIVED)


def empty_values(rules: MergeRules, values: pa.Array) -> Flags | None:
    """Flags of the values that count as absent under the rules' partial update mode; None if none does."""
    if rules.partial == "IGNORE_DEFAULTS":
        return as_numpy(pc.is_null(values)) if values.null_count else None
    return unavailable_values(values, rules.unavailable)
