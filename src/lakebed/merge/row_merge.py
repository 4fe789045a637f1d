"""Merges the incoming rows of a file group into its stored rows, which come batch by batch: winners are put in place.

Rows that nobody touched keep their meta columns; rows that changed or are new get fresh ones. Pure: Arrow batches in,
Arrow batches out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRecord
from lakebed.merge.incoming import Incoming
from lakebed.merge.meta_columns import FreshMeta
from lakebed.merge.put import Positions, put
from lakebed.merge.rules import MergeRules
from lakebed.model import FILE_NAME, PARTITION_PATH, RECORD_KEY

OnMatch = Literal["keys", "none", "skip", "fail"]
"""A stored row of the same key is: replaced by the merge rules; not looked for (duplicates stay); kept while the
incoming row is dropped; an error."""


@dataclass(slots=True)
class Counts:
    """What a merge did, row by row."""

    updates: int = 0
    deletes: int = 0
    inserts: int = 0
    unchanged: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """The rows of a stored batch that incoming rows replace: positions in the batch and in the incoming rows. `lost` is
    how many incoming rows lose to the stored one."""

    stored: Positions
    incoming: Positions
    lost: int


@dataclass(frozen=True, slots=True)
class Merged:
    """One stored batch after the merge: its rows, the keys among them that are new, and the changes where they are
    tracked: rows that are gone or new, and those before and after an update, in the same order (not where only the key
    is tracked, which no update changes)."""

    rows: pa.RecordBatch
    new_keys: pa.Array
    removed: pa.RecordBatch | None = None
    added: pa.RecordBatch | None = None
    before: pa.RecordBatch | None = None
    after: pa.RecordBatch | None = None


@dataclass(slots=True)
class RowMerge:
    """One group's incoming rows against its stored rows.

    `tracked` are columns in which changed rows are given back (None: nobody asks; where the rows lack one it is left
    out). `following` of `merge` matters to `SortedRowMerge` only.
    """

    incoming: Incoming
    rules: MergeRules
    fresh: FreshMeta
    on_match: OnMatch = "keys"
    tracked: tuple[str, ...] | None = None
    counts: Counts = field(default_factory=Counts)
    _seen: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = np.zeros(self.incoming.rows, dtype=bool)

    def changes_anything(self, stored: Iterable[pa.RecordBatch]) -> bool:
        """Whether any incoming row will change the stored ones, by their keys and ordering columns.

        Reads nothing of them when that is certain, otherwise up to the first change.
        """
        if self.incoming.alive and (self.on_match == "none" or (self.on_match == "keys" and not self.rules.ordering)):
            return True
        seen = np.zeros(self.incoming.rows, dtype=bool)
        for batch in stored:
            positions = self._positions(batch)
            if self.on_match == "keys" and len(self._winners(batch, positions).stored):
                return True
            seen[positions[positions >= 0]] = True
            self._refuse_known(seen)
        return bool((~seen & ~self.incoming.deletes).any())

    def merge(self, batch: pa.RecordBatch, following: str | None = None) -> Merged:
        """A stored batch with winners in place and deleted rows gone."""
        match = self._match(batch)
        self.counts.unchanged += match.lost
        no_keys = batch.column(RECORD_KEY).slice(0, 0)
        if not len(match.stored):
            return Merged(batch, no_keys)
        gone = self.incoming.deletes[match.incoming]
        at, source, deleted = match.stored[~gone], match.incoming[~gone], match.stored[gone]
        self.counts.updates += len(at)
        self.counts.deletes += len(deleted)
        updated = self._updated(batch, at, source) if len(at) else batch
        rows = updated
        if len(deleted):
            keep = np.ones(batch.num_rows, dtype=bool)
            keep[deleted] = False
            rows = updated.filter(pa.array(keep))
        if self.tracked is None:
            return Merged(rows, no_keys)
        removed = self.tracked_rows(batch, deleted)
        if len(self.tracked) == 1:
            return Merged(rows, no_keys, removed)
        before, after = (self.tracked_rows(side, at) for side in (batch, updated))
        return Merged(rows, no_keys, removed, before=before, after=after)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The incoming rows that no `merge` has placed, in the file's schema, to be added."""
        fresh = np.flatnonzero(~self._seen & ~self.incoming.deletes)
        self.counts.inserts += len(fresh)
        for keys, data in self.incoming.batches(fresh):
            yield self.fresh.with_meta(keys, data)

    def tracked_rows(self, batch: pa.RecordBatch, rows: Positions) -> pa.RecordBatch:
        """Some rows in the tracked columns."""
        names = [name for name in self.tracked or () if name in batch.schema.names]
        return batch.select(names).take(pa.array(rows))

    def _positions(self, batch: pa.RecordBatch, start: int = 0, end: int | None = None) -> Positions:
        """For each stored row the incoming row (of a part of them) with its key, -1 for none."""
        found = pc.index_in(batch.column(RECORD_KEY), value_set=self.incoming.keys[start:end])
        positions = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return np.where(positions < 0, -1, positions + start) if start else positions

    def _match(self, batch: pa.RecordBatch, start: int = 0, end: int | None = None) -> Match:
        if self.on_match == "none":
            return _NO_MATCH
        positions = self._positions(batch, start, end)
        if self.on_match == "keys":
            return self._winners(batch, positions)
        known = positions[positions >= 0]
        self._seen[known] = True
        return Match(_NO_MATCH.stored, _NO_MATCH.incoming, len(known))

    def _winners(self, batch: pa.RecordBatch, positions: Positions) -> Match:
        stored = np.flatnonzero(positions >= 0)
        incoming = positions[stored]
        self._seen[incoming] = True
        if not len(stored) or not self.rules.ordering:
            return Match(stored, incoming, 0)
        forced = self.incoming.forced[incoming]
        if forced.all():
            return Match(stored, incoming, 0)
        fields = [f for f in self.rules.ordering if f in self.incoming.columns]
        new = self.incoming.take(incoming, fields)
        old = batch.select(fields).take(pa.array(stored))
        wins = self.rules.incoming_wins(new, old)
        assert wins is not None
        kept = wins.to_numpy(zero_copy_only=False) | forced
        return Match(stored[kept], incoming[kept], int((~kept).sum()))

    def _refuse_known(self, seen: npt.NDArray[np.bool_]) -> None:
        if self.on_match == "fail" and seen.any():
            key = self.incoming.keys[int(np.argmax(seen))].as_py()
            partition = self.fresh.partition
            raise InvalidRecord(
                f"record key {key!r} is in the table already (partition {partition!r})",
                hint="upsert it, or insert with drop_duplicates to leave known keys out",
                context={"record_key": key, "partition": partition},
            )

    def _updated(self, batch: pa.RecordBatch, at: Positions, source: Positions) -> pa.RecordBatch:
        order = np.arange(batch.num_rows)
        order[at] = batch.num_rows + np.arange(len(at))
        places = pa.array(order)
        rows = self.incoming.take(source)
        fresh = self.fresh.commit_columns(len(at))
        columns: list[pa.Array] = []
        for name in batch.schema.names:
            old = batch.column(name)
            if name in (RECORD_KEY, PARTITION_PATH, FILE_NAME):
                columns.append(old)
            else:
                columns.append(put(old, at, places, fresh[name] if name in fresh else rows.column(name)))
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


_NO_MATCH = Match(np.array([], dtype=np.int64), np.array([], dtype=np.int64), 0)
