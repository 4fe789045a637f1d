"""The merge of a slice whose log records change each other: rows of a key are merged two at a time, oldest first.

For merges where no row stays as it is: partial updates and mergers of the user's. All columns asked for are decoded of
all records, those of a share of the keys at a time where they take much memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lakebed.engine.spill import Spill
from lakebed.merge.combine import in_rounds
from lakebed.merge.incoming import gather
from lakebed.merge.log_entries import Flags, LogEntries, Positions, record_codes
from lakebed.merge.pairs import Side, merge_into, put
from lakebed.merge.rules import MergeRules
from lakebed.slices.log_rows import rows_of_batch

# What decoded records take in memory for each byte of their blocks, and twice while they are merged, about.
_DECODED = 6
BlockRows = Callable[[int, Positions], tuple[Sequence[pa.Array], Sequence[str]]]
"""Wanted columns of some records of a data block, and the names of those that its records do not have."""


@dataclass(frozen=True, slots=True)
class LogRecords:
    """One record of each key that the log has: `rows` may lie in a mapped file."""

    rows: pa.Table
    deletes: Flags
    forced: Flags
    present: Mapping[str, Flags] | None
    ordering: tuple[pa.Array, ...]

    def side(self, places: Positions) -> Side:
        """Some of them."""
        at = pa.array(places)
        present = None if self.present is None else {name: has[places] for name, has in self.present.items()}
        ordering = tuple(values.take(at) for values in self.ordering)
        return Side(gather(self.rows, places), self.deletes[places], self.forced[places], present, ordering)

    def into(
        self, rules: MergeRules, columns: Sequence[pa.Array], ordering: tuple[pa.Array, ...], targets: Positions
    ) -> tuple[list[pa.Array], Flags, int]:
        """Stored rows with what their records, named in `targets`, make of them; which of the rows are gone, and how
        many of the others changed."""
        at = np.flatnonzero(targets >= 0)
        gone = np.zeros(len(targets), np.bool_)
        if not len(at):
            return list(columns), gone, 0
        where = pa.array(at)
        names = self.rows.column_names
        stored = pa.RecordBatch.from_arrays([_plain(c.take(where)) for c in columns], names=names)
        older = Side.of(stored, partial=self.present is not None)
        older = replace(older, ordering=tuple(values.take(where) for values in ordering))
        merged, changed = merge_into(rules, older, self.side(targets[at]))
        gone[at[merged.deletes]] = True
        kept = np.flatnonzero(changed & ~merged.deletes)
        if not len(kept):
            return list(columns), gone, 0
        new = merged.rows.take(pa.array(kept))
        order = np.arange(len(targets))
        order[at[kept]] = len(targets) + np.arange(len(kept))
        places = pa.array(order)
        return [put(c, at[kept], places, n) for c, n in zip(columns, new.columns, strict=True)], gone, len(kept)

    def alive(self, places: Positions) -> Iterator[pa.RecordBatch]:
        """Those of the places that are no deletes."""
        kept = places[~self.deletes[places]]
        size = rows_of_batch(self.rows.num_rows, self.rows.nbytes)
        for start in range(0, len(kept), size):
            rows = gather(self.rows, kept[start : start + size])
            yield pa.RecordBatch.from_arrays(rows.columns, names=self.rows.column_names)


@dataclass(frozen=True)
class PairwiseFold:
    """Makes one record of all those of a key. `schema` are the columns; `partial` says that merging is field by field.
    `data_blocks` are the numbers of blocks that have rows."""

    entries: LogEntries
    rules: MergeRules
    schema: pa.Schema
    partial: bool
    of_block: BlockRows
    data_blocks: frozenset[int]

    def run(self, spill: Spill, data_bytes: int, memory: int) -> tuple[LogEntries, LogRecords]:
        """One entry a key, to be found by, and its record, in the same order."""
        codes, distinct = record_codes(self.entries, by_position=self.entries.positions is not None)
        shares = max(1, min(distinct, -(-data_bytes * _DECODED // max(1, memory))))
        firsts: list[Positions] = []
        sides: list[Side] = []
        for number in range(shares):
            low, high = number * distinct // shares, (number + 1) * distinct // shares
            places = np.flatnonzero((codes >= low) & (codes < high))
            if len(places):
                first, side = self._share(places, codes[places] - low)
                spill.append(pa.RecordBatch.from_arrays(side.rows.columns, schema=self.schema))
                firsts.append(first)
                sides.append(replace(side, rows=side.rows.slice(0, 0)))
        entries = self.entries.take(np.concatenate(firsts) if firsts else np.empty(0, np.int64))
        none = np.zeros(len(entries), np.bool_)
        return replace(entries, deletes=none, forced=none, ordering=()), self._records(spill, sides)

    def _share(self, places: Positions, codes: Positions) -> tuple[Positions, Side]:
        """The records of some keys merged, and the place of each key's first one."""
        counts = np.bincount(codes)[codes]
        order = np.lexsort((places, codes, -counts))
        ordered = codes[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        side = self._decoded(places).take(order)
        return places[order][starts], in_rounds(self.rules, side, starts, counts[order][starts])

    def _decoded(self, places: Positions) -> Side:
        """All columns of some records."""
        blocks = self.entries.block[places]
        parts: list[pa.RecordBatch] = []
        absent: dict[str, Flags] = {}
        for start, end in pairwise(np.append(np.searchsorted(blocks, np.unique(blocks)), len(blocks)).tolist()):
            number = int(blocks[start])
            columns: Sequence[pa.Array] = [pa.nulls(end - start, f.type) for f in self.schema]
            lacking: Sequence[str] = ()
            if number in self.data_blocks:
                columns, lacking = self.of_block(number, self.entries.row[places[start:end]])
            for name in lacking:
                absent.setdefault(name, np.zeros(len(places), np.bool_))[start:end] = True
            parts.append(pa.RecordBatch.from_arrays([_plain(c) for c in columns], names=self.schema.names))
        some = self.entries.take(places)
        present = {name: ~lacks for name, lacks in absent.items()} if self.partial else None
        return Side(pa.concat_batches(parts), some.deletes, some.forced, present, some.ordering)

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
    found = (side.present or {}).get(name)
    return np.ones(len(side.deletes), np.bool_) if found is None else found


def _joined(flags: Sequence[Flags]) -> Flags:
    return np.concatenate(flags) if flags else np.empty(0, np.bool_)


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
