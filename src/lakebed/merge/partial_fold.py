"""Many records of a key made one in one go, where `pairs` would take a round for each: for partial updates.

The same answers as merging them two at a time, oldest first. Which record wins is known from deletes and ordering
values alone: behind the last commit-time delete each record that is not smaller than any before. A value is then that
of the last winner that says something, behind the last delete that won, or else of the first record that does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.merge.ordering import nulls_first
from lakebed.merge.pairs import CHANGING_META, Flags, Side, empty_values, is_data, ordering_of
from lakebed.merge.rules import MergeRules
from lakebed.storage.once import once

Positions = npt.NDArray[np.int64]


def folded(rules: MergeRules, side: Side, starts: Positions) -> Side:
    """One record of each key. The records of a key stand together from `starts` on, in their order."""
    return _Runs(rules, side, starts).folded()


@dataclass(frozen=True)
class _Runs:
    """Records of one key after another: `_last` and `_first` look for a record of each."""

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
    def places(self) -> Positions:
        return np.arange(self.side.length)

    @once
    def run(self) -> Positions:
        """The number of each record's key."""
        begins = np.zeros(self.side.length, dtype=np.int64)
        begins[self.starts[1:]] = 1
        return np.cumsum(begins)

    @once
    def begins(self) -> Positions:
        """The record of each key from which on records count; none where a commit-time delete is the end of it."""
        data = self._first(~self.side.deletes & (self.places > self.undone[self.run]))
        return np.where(self.undone < 0, self.starts, data)

    @once
    def undone(self) -> Positions:
        """The last commit-time delete of each key, -1 for none: what is before it does not count. Where the later
        record always wins it is a delete like any other."""
        if not self.rules.ordering:
            return np.full(len(self.starts), -1)
        forced = self.side.forced | self.side.deletes if self.rules.deletes_win else self.side.forced
        return self._last(forced)

    @once
    def wins(self) -> Flags:
        """The records that are not smaller than those before that count."""
        counts = self.places >= self.begins[self.run]
        ranks = 1 + self._ranks()
        raised = np.where(counts, ranks, 0) + self.run * (int(ranks.max(initial=0)) + 1)
        return counts & (raised == np.maximum.accumulate(raised))

    @once
    def winner(self) -> Positions:
        """Of each key the last record that wins; its last commit-time delete where none counts."""
        found = self._last(self.wins)
        return np.where(found < 0, self.undone, found)

    @once
    def gives(self) -> Flags:
        """The records that give values: from the first that wins behind the last delete that won."""
        deletes = self.side.deletes
        gone = self._last(self.wins & deletes)
        first = self._first(self.wins & ~deletes & (self.places > gone[self.run]))
        return (self.places >= first[self.run]) & ~deletes

    def _filled(self) -> list[tuple[str, Positions]]:
        """Columns that are not the winners' as they are, and the records that give them."""
        side = self.side
        names = side.rows.schema.names if side.present is None else side.present
        found: list[tuple[str, Positions]] = []
        for name in names:
            says = self._says(name)
            if says is None:
                continue
            latest, first = self._last(self.gives & self.wins & says), self._first(self.gives & says)
            other = np.where(first < side.length, first, self.winner)
            found.append((name, np.where(latest < 0, other, latest)))
        if self.rules.late_meta and side.present is None:
            latest = self._last(self.gives)
            at = np.where(latest < 0, self.winner, latest)
            found += [(name, at) for name in CHANGING_META if name in side.rows.schema.names]
        return found

    def _says(self, name: str) -> Flags | None:
        """Which records have a value of a column; None: all of them."""
        if self.side.present is not None:
            return self.side.has(name)
        empty = empty_values(self.rules, self.side.rows.column(name)) if is_data(name) else None
        return None if empty is None else ~empty

    def _is_there(self, name: str) -> Flags:
        has = self.side.has(name)
        given = self._first(self.gives & has) < self.side.length
        return np.where(self.side.deletes[self.winner], has[self.winner], given)

    def _ranks(self) -> Positions:
        """Numbers that compare as the ordering values do."""
        n = self.side.length
        if not self.rules.ordering:
            return np.zeros(n, dtype=np.int64)
        columns = nulls_first(self.rules.comparable(ordering_of(self.rules, self.side)))
        table = pa.table(columns, names=[str(i) for i in range(len(columns))])
        order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]).to_numpy()
        differs = np.zeros(n, dtype=bool)
        for column in columns:
            codes = pc.fill_null(column.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)[order]
            differs[1:] |= codes[1:] != codes[:-1]
        ranks = np.empty(n, dtype=np.int64)
        ranks[order] = np.cumsum(differs)
        return ranks

    def _last(self, flags: Flags) -> Positions:
        """Of each key the last record that is marked, -1 for none."""
        return np.maximum.reduceat(np.where(flags, self.places, -1), self.starts)

    def _first(self, flags: Flags) -> Positions:
        """Of each key the first record that is marked; the number of all records for none."""
        return np.minimum.reduceat(np.where(flags, self.places, self.side.length), self.starts)
