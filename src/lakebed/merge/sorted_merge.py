"""Merges incoming rows into stored rows that are kept in the order of their keys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakebed.format.key_order import insert_places
from lakebed.merge.put import Positions, stacked, take_of_both
from lakebed.merge.row_merge import Match, Merged, RowMerge, Touch
from lakebed.model import FILE_NAME, RECORD_KEY


@dataclass(slots=True)
class SortedRowMerge(RowMerge):
    """One group's incoming rows, in the order of their keys, against stored batches in that order.

    No more than `room` new rows are put among the stored ones, so that the file keeps to its size; the others come out
    of `rest`.
    """

    room: int | None = None
    _start: int = 0

    def may_touch(self, low: str, high: str, following: str | None = None) -> bool:
        """Whether incoming rows have keys between these, or belong before what follows."""
        return self._start < self._incoming_below(following, or_equal=True)

    def pass_by(self, following: str | None = None) -> None:
        """Go on behind stored rows that nothing touches."""
        self._start = self._incoming_below(following)

    def touch(self, batch: pa.RecordBatch, following: str | None = None) -> Touch:
        """What incoming rows may do to stored ones, of which the keys are enough."""
        start, end = self._start, self._incoming_below(following)
        positions = np.full(batch.num_rows, -1)
        if self.on_match != "none":
            positions = self._positions(batch, start, self._incoming_below(following, or_equal=True))
        fresh = ~self._seen[start:end] & ~self.incoming.deletes[start:end]
        here = positions[(positions >= start) & (positions < end)]
        fresh[here - start] = False
        return replace(self._touch(positions), adds=bool(fresh.any()))

    def merge(self, batch: pa.RecordBatch, following: str | None = None, touch: Touch | None = None) -> Merged:
        """A stored batch with the incoming rows that belong into it. `following` is a key that no later stored row is
        below (None: no row follows)."""
        end = self._incoming_below(following)
        # a key that equals the first of what follows may have rows on both sides
        match = self._match(batch, touch, self._start, self._incoming_below(following, or_equal=True))
        self.counts.unchanged += match.lost
        fresh = self._place_new(self._start, end)
        self._start = end
        return self._woven(batch, match, fresh, self.incoming.keys.take(pa.array(fresh)))

    def _incoming_below(self, key: str | None, *, or_equal: bool = False) -> int:
        """How many incoming rows have a smaller key; all where nothing follows."""
        if key is None:
            return self.incoming.rows
        side = bisect_right if or_equal else bisect_left
        return side(range(self.incoming.rows), key, key=self._key)

    def _key(self, row: int) -> str:
        return self.incoming.keys[row].as_py()

    def _place_new(self, start: int, end: int) -> Positions:
        """Incoming rows of a part that are new, as many as there is room for."""
        fresh = start + np.flatnonzero(~self._seen[start:end] & ~self.incoming.deletes[start:end])
        if self.room is not None:
            fresh = fresh[: max(0, self.room - self.counts.inserts)]
        self.counts.inserts += len(fresh)
        self.incoming.require_whole(fresh)
        self._seen[fresh] = True
        return fresh

    def _woven(self, batch: pa.RecordBatch, match: Match, fresh: Positions, new_keys: pa.Array) -> Merged:
        """The stored batch with winners in place, deleted rows gone and new rows where their keys belong."""
        if not len(match.stored) and not len(fresh):
            return Merged(batch, new_keys, updated=match.stored)
        at, source, deleted, data = match.split(self.incoming)
        self.counts.updates += len(at)
        self.counts.deletes += len(deleted)
        if not len(deleted) and not len(fresh):
            rows = self._updated(batch, at, data)
            return self._with_changes(Merged(rows, new_keys, updated=at), batch, rows, at, deleted)
        order = np.arange(batch.num_rows)
        order[at] = batch.num_rows + np.arange(len(at))
        order[deleted] = -1
        if not len(at) and not len(fresh):
            rows = batch.take(pa.array(order[order >= 0]))
            return self._tracked(rows, new_keys, batch, at, deleted, batch.slice(0, 0))
        keys = self.incoming.keys.take(pa.array(np.concatenate([source, fresh])))
        if len(fresh):
            data = stacked(data, self.incoming.take(fresh))
        new = self.fresh.with_meta(keys, data)
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
