"""Merges incoming rows into stored rows that are kept in the order of their keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.key_order import insert_places
from lakebed.merge.put import Positions, take_of_both
from lakebed.merge.row_merge import Match, Merged, RowMerge
from lakebed.model import FILE_NAME, RECORD_KEY


@dataclass(slots=True)
class SortedRowMerge(RowMerge):
    """One group's incoming rows, in the order of their keys, against stored batches in that order.

    No more than `room` new rows are put among the stored ones, so that the file keeps to its size; the others come out
    of `rest`.
    """

    room: int | None = None
    _start: int = 0

    def merge(self, batch: pa.RecordBatch, following: str | None = None) -> Merged:
        """A stored batch with the incoming rows that belong into it. `following` is a key that no later stored row is
        below (None: no row follows)."""
        end = self._incoming_below(following)
        # a key that equals the first of what follows may have rows on both sides
        match = self._match(batch, self._start, self._incoming_below(following, or_equal=True))
        self.counts.unchanged += match.lost
        fresh = self._place_new(self._start, end)
        self._start = end
        return self._woven(batch, match, fresh, self.incoming.keys.take(pa.array(fresh)))

    def _incoming_below(self, key: str | None, *, or_equal: bool = False) -> int:
        """How many incoming rows have a smaller key; all where nothing follows."""
        if key is None:
            return self.incoming.rows
        compare = pc.less_equal if or_equal else pc.less
        return pc.sum(compare(self.incoming.keys, key)).as_py() or 0

    def _place_new(self, start: int, end: int) -> Positions:
        """Incoming rows of a part that are new, as many as there is room for."""
        fresh = start + np.flatnonzero(~self._seen[start:end] & ~self.incoming.deletes[start:end])
        if self.room is not None:
            fresh = fresh[: max(0, self.room - self.counts.inserts)]
        self.counts.inserts += len(fresh)
        self._seen[fresh] = True
        return fresh

    def _woven(self, batch: pa.RecordBatch, match: Match, fresh: Positions, new_keys: pa.Array) -> Merged:
        """The stored batch with winners in place, deleted rows gone and new rows where their keys belong."""
        if not len(match.stored) and not len(fresh):
            return Merged(batch, new_keys)
        gone = self.incoming.deletes[match.incoming]
        at, source, deleted = match.stored[~gone], match.incoming[~gone], match.stored[gone]
        self.counts.updates += len(at)
        self.counts.deletes += len(deleted)
        order = np.arange(batch.num_rows)
        order[at] = batch.num_rows + np.arange(len(at))
        order[deleted] = -1
        taken = np.concatenate([source, fresh])
        if not len(taken):
            rows = batch.take(pa.array(order[order >= 0]))
            return self._tracked(rows, new_keys, batch, at, deleted, batch.slice(0, 0))
        keys = self.incoming.keys.take(pa.array(taken))
        new = self.fresh.with_meta(keys, self.incoming.take(taken))
        places = insert_places(batch.column(RECORD_KEY), keys.slice(len(at)))
        order = np.insert(order, places, batch.num_rows + len(at) + np.arange(len(fresh)))
        kept = pa.array(order[order >= 0])
        names = [name for name in batch.schema.names if name != FILE_NAME]
        columns = [take_of_both(batch.column(name), new.column(name), kept) for name in names]
        rows = pa.RecordBatch.from_arrays(columns, names=names)
        return self._tracked(rows, new_keys, batch, at, deleted, new)

    def _tracked(
        self,
        rows: pa.RecordBatch,
        new_keys: pa.Array,
        stored: pa.RecordBatch,
        at: Positions,
        deleted: Positions,
        new: pa.RecordBatch,
    ) -> Merged:
        """With the changes, where they are tracked; `new` are the updated rows and the fresh ones behind them."""
        if self.tracked is None:
            return Merged(rows, new_keys)
        removed = self.tracked_rows(stored, deleted)
        added = self.tracked_rows(new, np.arange(len(at), new.num_rows))
        if len(self.tracked) == 1:
            return Merged(rows, new_keys, removed, added)
        before, after = self.tracked_rows(stored, at), self.tracked_rows(new, np.arange(len(at)))
        return Merged(rows, new_keys, removed, added, before, after)
