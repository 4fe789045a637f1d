"""Which rows of a slice's base file its log records replace or delete, a stretch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.merge.key_table import KeyTable
from lakebed.merge.log_entries import Flags, KeyColumns, LogEntries, Positions, ordering_values, roots
from lakebed.merge.rules import MergeRules
from lakebed.storage.parallel import once

# In place of the entry that replaces a base row: none does, or one that deletes it.
STAYS, GOES = -1, -2
# So many rows, or bytes of them, are matched at a time: each time costs a hash table of all log records. Of few of them
# it costs next to nothing.
_STRETCH_ROWS = 1 << 20
_STRETCH_BYTES = 64 << 20
FEW_ENTRIES = 1 << 14
Targets = npt.NDArray[np.int32]
Stretch = Sequence[pa.RecordBatch]


@dataclass
class Matching:
    """Goes through the rows of one base file with `entries` of different keys (or, where these tell positions, of
    different rows). `kinds` are the types that ordering fields are compared in.

    `targets` gives for each row of the next stretch the entry that replaces it, STAYS or GOES. Of several rows with one
    key the first is matched; `repeated` tells that there were some.
    """

    entries: LogEntries
    keys: KeyColumns
    rules: MergeRules
    kinds: Sequence[pa.DataType]
    path: str
    repeated: bool = False
    updated: int = 0
    deleted: int = 0
    _seen: Flags = field(init=False)
    _at: int = 0

    def __post_init__(self) -> None:
        self._seen = np.zeros(len(self.entries), np.bool_)

    def columns(self, schema: pa.Schema) -> list[str]:
        """The columns of the base file that decide."""
        keys = () if self.entries.positions is not None else self.keys.names
        return list(dict.fromkeys([*keys, *roots(self.rules.ordering, schema)]))

    def stretches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Stretch]:
        """The rows in stretches of good size."""
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _STRETCH_ROWS or size >= _STRETCH_BYTES or len(self.entries) <= FEW_ENTRIES:
                yield held
                held, rows, size = [], 0, 0
        if held:
            yield held

    def targets(self, stretch: Stretch) -> Targets:
        """What becomes of the rows of the next stretch."""
        rows = sum(batch.num_rows for batch in stretch)
        if not len(self.entries):
            return np.full(rows, STAYS, np.int32)
        found = self._by_key(stretch) if self.entries.positions is None else self._by_position(rows)
        at = np.flatnonzero(found >= 0)
        self._seen[found[at]] = True
        if self.rules.ordering and len(at):
            at = self._winning(found, at, stretch)
        gone = self.entries.deletes[found[at]]
        found[at[gone]] = GOES
        self.deleted += int(gone.sum())
        self.updated += len(at) - int(gone.sum())
        return found

    @property
    def rest(self) -> Positions:
        """The entries that no row was matched with, deletes left out."""
        return np.flatnonzero(~self._seen & ~self.entries.deletes)

    def _by_key(self, stretch: Stretch) -> Targets:
        found = np.concatenate([self._table.find(self.keys.of(batch, self.path)) for batch in stretch])
        at = np.flatnonzero(found >= 0)
        if not len(at):
            return found
        several = _seen_before(found[at], self._seen)
        if several is not None:
            self.repeated = True
            found[at[several]] = STAYS
        return found

    @once
    def _table(self) -> KeyTable:
        return KeyTable(self.entries.keys)

    def _by_position(self, rows: int) -> Targets:
        assert self.entries.positions is not None
        found = np.full(rows, STAYS, np.int32)
        here = np.flatnonzero((self.entries.positions >= self._at) & (self.entries.positions < self._at + rows))
        found[self.entries.positions[here] - self._at] = here
        self._at += rows
        return found

    def _winning(self, found: Targets, at: Positions, stretch: Stretch) -> Positions:
        """The rows whose entry wins against them by the ordering values; in `found` the others stay."""
        entries = self.entries
        compared = at[~entries.forced[found[at]]]
        if not len(compared):
            return at
        schema = stretch[0].schema
        names = [name for name in dict.fromkeys(roots(self.rules.ordering, schema)) if name in schema.names]
        older = ordering_values(_taken(stretch, names, compared), self.rules, self.kinds)
        places = pa.array(found[compared])
        newer = [values.take(places) for values in entries.ordering]
        wins = self.rules.newer_wins(older, newer).to_numpy(zero_copy_only=False)
        found[compared[~wins]] = STAYS
        return at[found[at] >= 0]


def _taken(stretch: Stretch, names: Sequence[str], rows: Positions) -> pa.RecordBatch:
    """Some columns of rows of a stretch."""
    if not names:
        return pa.RecordBatch.from_struct_array(pa.nulls(len(rows), pa.struct([])))
    at = pa.array(rows)
    columns = [pa.chunked_array([batch.column(name) for batch in stretch]).take(at) for name in names]
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in columns], names=list(names))


def _seen_before(entries: Targets, seen: Flags) -> Flags | None:
    """Which of these come a second time; None where none does."""
    again = seen[entries]
    first = np.full(len(seen), -1)
    first[entries[::-1]] = np.arange(len(entries))[::-1]
    repeats = again | (first[entries] != np.arange(len(entries)))
    return repeats if repeats.any() else None
