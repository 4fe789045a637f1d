"""Merges the incoming rows of a file group into its stored rows, which come batch by batch: winners are put in place.

Unchanged rows keep their meta columns; rows that changed or are new get fresh ones. Pure: Arrow batches in,
Arrow batches out.

Merges incoming rows into stored rows that are kept in the order of their keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRecord
from lakebed.format.key_order import insertion_points
from lakebed.merge.incoming import Incoming
from lakebed.merge.key_table import KeyTable
from lakebed.merge.meta_columns import FreshMeta, operations
from lakebed.merge.pairs import Flags, Positions, Side, merge_into, put, stacked, take_of_both
from lakebed.merge.rules import MergeRules
from lakebed.merge.shares import CountName
from lakebed.model import FILE_NAME, OPERATION_COLUMN, PARTITION_PATH, RECORD_KEY, UPDATE_OPERATION
from lakebed.schema.plain_arrow import as_numpy

OnMatch = Literal["keys", "one", "none", "skip", "fail"]
"""A stored row of the same key is: replaced by the merge rules; replaced, and all others of the key in the file group
deleted; not looked for (duplicates stay); kept while the incoming row is dropped; an error."""


# Incoming keys that are looked at first to see whether any falls among stored ones.
_PROBED_KEYS = 1_024


def refuse_stored(key: str, partition: str) -> InvalidRecord:
    """The error of an insert that must not meet stored keys."""
    return InvalidRecord(
        f"record key {key!r} is in the table already (partition {partition!r})",
        hint="upsert it, or insert with drop_duplicates to leave known keys out",
        context={"record_key": key, "partition": partition},
    )


@dataclass(slots=True)
class Counts:
    """The numbers of rows that a merge updated, deleted, inserted and left unchanged."""

    updates: int = 0
    deletes: int = 0
    inserts: int = 0
    unchanged: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """The rows of a stored batch that incoming rows change: their positions in the batch and in the incoming rows, and
    flags of those that are deleted. `rows` are the merged data columns, None if they are those of the incoming rows.
    `lost` are the incoming rows that lose to the stored row."""

    stored: Positions
    incoming: Positions
    deleted: Flags
    lost: Positions
    rows: pa.RecordBatch | None = None

    def split(self, incoming: Incoming) -> tuple[Positions, Positions, Positions, pa.RecordBatch]:
        """Four results: the positions in the stored batch of the rows that are updated, the positions of their new
        values in the incoming rows, the positions in the stored batch of the rows that are deleted, and the complete
        new rows for the updated ones."""
        left = ~self.deleted
        at, source, deleted = self.stored[left], self.incoming[left], self.stored[self.deleted]
        if self.rows is None:
            return at, source, deleted, incoming.take(source)
        return at, source, deleted, self.rows if left.all() else self.rows.filter(pa.array(left))


@dataclass(frozen=True, slots=True)
class Merged:
    """One stored batch after the merge: its rows, the keys among them that are new, and the changes if they are
    tracked: rows that are deleted or new, and the rows before and after an update, in the same order (not if only the
    key is tracked, which no update changes). `updated` are the positions of changed rows if all rows retain their
    positions, None if some were added or deleted."""

    rows: pa.RecordBatch
    new_keys: pa.Array
    removed: pa.RecordBatch | None = None
    added: pa.RecordBatch | None = None
    before: pa.RecordBatch | None = None
    after: pa.RecordBatch | None = None
    updated: Positions | None = None


@dataclass(frozen=True, slots=True)
class Touch:
    """The possible effect of incoming rows on stored ones: for each stored row the incoming row with its key (-1:
    none), whether there are any, and whether rows are deleted or added."""

    positions: Positions
    matches: bool = False
    removes: bool = False
    adds: bool = False


@dataclass(slots=True)
class RowMerge:
    """The merge of one group's incoming rows with its stored rows.

    `tracked` are columns in which changed rows are returned (None: not requested; a column that the rows lack is left
    out). `following` matters to `SortedRowMerge` only.
    """

    incoming: Incoming
    rules: MergeRules
    fresh: FreshMeta
    on_match: OnMatch = "keys"
    tracked: tuple[str, ...] | None = None
    counts: Counts = field(default_factory=Counts)
    _outcomes: dict[CountName, list[Positions]] = field(init=False, default_factory=dict[CountName, list[Positions]])
    _matched: npt.NDArray[np.bool_] = field(init=False)
    _placed: npt.NDArray[np.bool_] = field(init=False)
    _table: KeyTable | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._matched = np.zeros(self.incoming.rows, dtype=bool)
        self._placed = np.zeros(self.incoming.rows if self.on_match == "one" else 0, dtype=bool)

    def changes_anything(self, stored: Iterable[pa.RecordBatch]) -> bool:
        """Whether any incoming row may change the stored ones, by their keys and ordering columns.

        Reads none of them if that is certain or takes full rows to decide, otherwise up to the first change.
        """
        if self.changes_for_sure or (self._in_pairs and self.on_match == "keys"):
            return True
        is_stored = np.zeros(self.incoming.rows, dtype=bool)
        for batch in stored:
            positions = self._positions(batch)
            if self.on_match == "keys" and len(self._winners(batch, positions).stored):
                return True
            is_stored[positions[positions >= 0]] = True
            self._refuse_stored(is_stored)
        return bool((~is_stored & ~self.incoming.deletes).any())

    @property
    def changes_for_sure(self) -> bool:
        """Whether the stored rows will change, whatever they are."""
        certain = self.on_match == "keys" and not self._in_pairs and not self.rules.ordering
        return bool(self.incoming.alive) and (self.on_match in ("none", "one") or certain)

    def may_touch(
        self, low: str, high: str, following: str | None = None, *, has_unmerged_before: bool = False
    ) -> bool:
        """Whether incoming rows may change stored rows with keys from `low` to `high`. `has_unmerged_before` is whether
        stored rows before `low` still have to be merged."""
        if self.on_match == "none" or not self.incoming.rows:
            return False
        keys = self.incoming.keys
        for probed_keys in (keys.slice(0, _PROBED_KEYS), keys):
            if pc.any(pc.and_(pc.greater_equal(probed_keys, low), pc.less_equal(probed_keys, high))).as_py():
                return True
        return False

    def pass_by(self, following: str | None = None) -> None:
        """Skip the stored rows before the key `following`, which no incoming row changes."""

    def touch(
        self, batch: pa.RecordBatch, following: str | None = None, touched_positions: Positions | None = None
    ) -> Touch:
        """The possible effect of the incoming rows on the stored rows of `batch`, which needs only their keys.
        `touched_positions`, if given, are the `positions` of an earlier touch of a batch that these rows are a part
        of: they are not searched again."""
        if self.on_match == "none":
            return Touch(np.full(batch.num_rows, -1))
        return self._touch(self._positions(batch) if touched_positions is None else touched_positions)

    def touched_columns(self, names: Sequence[str]) -> list[str]:
        """The columns that a merge reads of stored rows if it deletes and adds no rows; all other columns are not
        changed."""
        unchanged = {PARTITION_PATH, FILE_NAME}
        if self.rules.merger is None:
            unchanged |= set(self.incoming.absent)
        needed = {*self.rules.ordering_columns, *(self.tracked or ())}
        return [name for name in names if name not in unchanged or name in needed]

    def share_counts(self) -> None:
        """Count the outcomes for each of the several upserts that the rows belong to."""
        for name, parts in self._outcomes.items():
            self.incoming.count(name, np.concatenate(parts))
        self.incoming.count("num_unchanged", np.flatnonzero(~self._matched & self.incoming.deletes))

    def _note(self, name: CountName, rows: Positions) -> None:
        if self.incoming.shares is not None:
            self._outcomes.setdefault(name, []).append(rows)

    def _note_lost(self, match: Match) -> None:
        self.counts.unchanged += len(match.lost)
        self._note("num_unchanged", match.lost)

    def _note_match(self, match: Match, updated: Positions) -> None:
        self.counts.updates += len(updated)
        self.counts.deletes += int(match.deleted.sum())
        self._note("num_updates", updated)
        self._note("num_deletes", match.incoming[match.deleted])

    @property
    def changed(self) -> bool:
        """Whether a row was updated, deleted or added, or will be added. Stored rows that were not read yet do not
        count."""
        return bool(self.counts.updates or self.counts.deletes or self.counts.inserts or self.new_rows)

    @property
    def new_rows(self) -> int:
        """The number of incoming rows that no stored row has matched so far and that will be added."""
        return int((~self._matched & ~self.incoming.deletes).sum())

    @property
    def absent_deletes(self) -> int:
        """The number of incoming deletes that no stored row has matched so far."""
        return int((~self._matched & self.incoming.deletes).sum())

    def refuse_stored(self) -> None:
        """Raise `InvalidRecord` if an incoming row has the key of a stored row, in a write that does not allow that."""
        self._refuse_stored(self._matched)

    def merge(self, batch: pa.RecordBatch, following: str | None = None, touch: Touch | None = None) -> Merged:
        """A stored batch with winners in place, without deleted rows. `touch` saves the search for keys."""
        match = self._match(batch, touch)
        self._note_lost(match)
        no_keys = batch.column(RECORD_KEY).slice(0, 0)
        if not len(match.stored):
            return Merged(batch, no_keys, updated=match.stored)
        at, source, deleted, data = match.split(self.incoming)
        self._note_match(match, source)
        updated = self._updated(batch, at, data) if len(at) else batch
        rows = updated
        if len(deleted):
            keep = np.ones(batch.num_rows, dtype=bool)
            keep[deleted] = False
            rows = updated.filter(pa.array(keep))
        merged = Merged(rows, no_keys, updated=None if len(deleted) else at)
        return self._with_changes(merged, batch, updated, at, deleted)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The incoming rows that no `merge` has added, in the file's schema."""
        fresh = np.flatnonzero(~self._matched & ~self.incoming.deletes)
        self.counts.inserts += len(fresh)
        self._note("num_inserts", fresh)
        self.incoming.require_complete(fresh)
        for keys, data in self.incoming.batches(fresh):
            yield self.fresh.with_meta(keys, data)

    def _with_changes(
        self, merged: Merged, before: pa.RecordBatch, after: pa.RecordBatch, at: Positions, deleted: Positions
    ) -> Merged:
        """`merged` with the changed rows before and after the merge, if changes are tracked."""
        if self.tracked is None:
            return merged
        merged = replace(merged, removed=self.tracked_rows(before, deleted))
        if len(self.tracked) == 1:
            return merged
        return replace(merged, before=self.tracked_rows(before, at), after=self.tracked_rows(after, at))

    def tracked_rows(self, batch: pa.RecordBatch, rows: Positions) -> pa.RecordBatch:
        """The rows at the positions `rows`, in the tracked columns."""
        known_names = frozenset(batch.schema.names)
        names = [name for name in self.tracked or () if name in known_names]
        return batch.select(names).take(pa.array(rows))

    def _positions(self, batch: pa.RecordBatch, start: int = 0, end: int | None = None) -> Positions:
        """For each stored row the position of the incoming row with its key (from `start` up to `end`), -1 for none."""
        keys = batch.column(RECORD_KEY)
        if start == 0 and end is None:  # all incoming keys, again for the next stored rows
            self._table = self._table or KeyTable(self.incoming.keys)
            return self._table.find(keys).astype(np.int64)
        indices = pc.index_in(keys, value_set=self.incoming.keys[start:end])
        positions = as_numpy(pc.fill_null(indices, -1)).astype(np.int64)
        return np.where(positions < 0, -1, positions + start) if start else positions

    def _touch(self, positions: Positions) -> Touch:
        matches = positions[positions >= 0]
        removes = self.on_match == "one" or (self.on_match == "keys" and bool(self.incoming.deletes[matches].any()))
        return Touch(positions, bool(len(matches)), bool(len(matches)) and removes)

    def _match(self, batch: pa.RecordBatch, touch: Touch | None, start: int = 0, end: int | None = None) -> Match:
        if self.on_match == "none":
            return _NO_MATCH
        positions = self._positions(batch, start, end) if touch is None else touch.positions
        if self.on_match == "keys":
            return self._winners(batch, positions)
        if self.on_match == "one":
            return self._only_one(positions)
        matches = positions[positions >= 0]
        self._matched[matches] = True
        return replace(_NO_MATCH, lost=matches)

    def _only_one(self, positions: Positions) -> Match:
        """The match that replaces the first stored row of each key and deletes the others."""
        stored = np.flatnonzero(positions >= 0)
        incoming = positions[stored]
        is_repeat = self._placed[incoming]
        first = np.zeros(len(stored), dtype=bool)
        first[np.unique(incoming, return_index=True)[1]] = True
        self._matched[incoming] = self._placed[incoming] = True
        return Match(stored, incoming, is_repeat | ~first, _NOWHERE)

    def _winners(self, batch: pa.RecordBatch, positions: Positions) -> Match:
        stored = np.flatnonzero(positions >= 0)
        incoming = positions[stored]
        self._matched[incoming] = True
        deletes, forced = self.incoming.deletes[incoming], self.incoming.forced[incoming]
        if not len(stored) or forced.all():
            return Match(stored, incoming, deletes, _NOWHERE)
        if self._in_pairs:
            return self._merged(batch, stored, incoming)
        if not self.rules.ordering:
            return Match(stored, incoming, deletes, _NOWHERE)
        fields = [f for f in self.rules.ordering_columns if f in self.incoming.columns]
        new = self.incoming.take(incoming, fields)
        old = batch.select(fields).take(pa.array(stored))
        wins = self.rules.incoming_wins(new, old)
        assert wins is not None
        is_winner = as_numpy(wins) | forced
        if self.rules.deletes_win:
            is_winner |= deletes
        return Match(stored[is_winner], incoming[is_winner], deletes[is_winner], incoming[~is_winner])

    @property
    def _in_pairs(self) -> bool:
        """Whether a stored row and an incoming row may make a row that differs from both."""
        return not self.rules.picks_winners or bool(self.incoming.absent)

    def _merged(self, batch: pa.RecordBatch, stored: Positions, incoming: Positions) -> Match:
        """The match with the merged row of each pair. Incoming rows that leave the stored row unchanged count as
        lost."""
        known_names = frozenset(batch.schema.names)
        names = [name for name in self.incoming.columns if name in known_names]
        older = Side.of(batch.select(names).take(pa.array(stored)))
        merged, changed = merge_into(self.rules, older, self.incoming.side(incoming, names))
        lost = incoming[~changed]
        if len(lost):
            merged = merged.take(np.flatnonzero(changed))
        return Match(stored[changed], incoming[changed], merged.deletes, lost, merged.rows)

    def _refuse_stored(self, matched: npt.NDArray[np.bool_]) -> None:
        if self.on_match == "fail" and matched.any():
            raise refuse_stored(self.incoming.keys[int(np.argmax(matched))].as_py(), self.fresh.partition)

    def _updated(self, batch: pa.RecordBatch, at: Positions, rows: pa.RecordBatch) -> pa.RecordBatch:
        order = np.arange(batch.num_rows)
        order[at] = batch.num_rows + np.arange(len(at))
        row_numbers = pa.array(order)
        fresh = {**self.fresh.commit_columns(len(at)), OPERATION_COLUMN: operations(UPDATE_OPERATION, len(at))}
        columns: list[pa.Array] = []
        for name in batch.schema.names:
            old = batch.column(name)
            if name in (RECORD_KEY, PARTITION_PATH, FILE_NAME):
                columns.append(old)
            else:
                columns.append(put(old, at, row_numbers, fresh[name] if name in fresh else rows.column(name)))
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


_NOWHERE = np.array([], dtype=np.int64)
_NO_MATCH = Match(_NOWHERE, _NOWHERE, np.array([], dtype=bool), _NOWHERE)


@dataclass(slots=True)
class SortedRowMerge(RowMerge):
    """The merge of one group's incoming rows, in the order of their keys, with stored batches in that order.

    No more than `room` new rows are put among the stored ones, so that the file keeps to its size; `rest` gives the
    others.
    """

    room: int | None = None
    _start: int = 0

    def may_touch(
        self, low: str, high: str, following: str | None = None, *, has_unmerged_before: bool = False
    ) -> bool:
        """Whether incoming rows have keys from `low` to `high`, or are inserted before the key `following`."""
        start = self._incoming_below(low) if has_unmerged_before else self._start
        return start < self._incoming_below(following, or_equal=True)

    def pass_by(self, following: str | None = None) -> None:
        """Skip the stored rows before the key `following`, which no incoming row changes."""
        self._start = self._incoming_below(following)

    def touch(
        self, batch: pa.RecordBatch, following: str | None = None, touched_positions: Positions | None = None
    ) -> Touch:
        """The possible effect of the incoming rows on the stored rows of `batch`, which needs only their keys.
        `touched_positions`, if given, are the `positions` of an earlier touch of a batch that these rows are a part
        of: they are not searched again."""
        start, end = self._start, self._incoming_below(following)
        positions = np.full(batch.num_rows, -1) if touched_positions is None else touched_positions
        if self.on_match != "none" and touched_positions is None:
            positions = self._positions(batch, start, self._incoming_below(following, or_equal=True))
        fresh = ~self._matched[start:end] & ~self.incoming.deletes[start:end]
        range_positions = positions[(positions >= start) & (positions < end)]
        fresh[range_positions - start] = False
        return replace(self._touch(positions), adds=bool(fresh.any()))

    def merge(self, batch: pa.RecordBatch, following: str | None = None, touch: Touch | None = None) -> Merged:
        """A stored batch merged with the incoming rows that belong into it. `following` is a key that is not greater
        than any later stored row's (None: no row follows)."""
        end = self._incoming_below(following)
        # a key that equals the first of what follows may have rows on both sides
        match = self._match(batch, touch, self._start, self._incoming_below(following, or_equal=True))
        self._note_lost(match)
        fresh = self._place_new(self._start, end)
        self._start = end
        return self._woven(batch, match, fresh, self.incoming.keys.take(pa.array(fresh)))

    def _incoming_below(self, key: str | None, *, or_equal: bool = False) -> int:
        """The number of incoming rows with a smaller key than `key`; all rows if it is None."""
        if key is None:
            return self.incoming.rows
        side = bisect_right if or_equal else bisect_left
        return side(range(self.incoming.rows), key, key=self._key)

    def _key(self, row: int) -> str:
        return self.incoming.keys[row].as_py()

    def _place_new(self, start: int, end: int) -> Positions:
        """The positions of new incoming rows from `start` to `end`, at most as many as the file still takes."""
        fresh = start + np.flatnonzero(~self._matched[start:end] & ~self.incoming.deletes[start:end])
        if self.room is not None:
            fresh = fresh[: max(0, self.room - self.counts.inserts)]
        self.counts.inserts += len(fresh)
        self._note("num_inserts", fresh)
        self.incoming.require_complete(fresh)
        self._matched[fresh] = True
        return fresh

    def _woven(self, batch: pa.RecordBatch, match: Match, fresh: Positions, new_keys: pa.Array) -> Merged:
        """The stored batch with winners in their positions, without deleted rows, and with new rows at the positions of
        their keys."""
        if not len(match.stored) and not len(fresh):
            return Merged(batch, new_keys, updated=match.stored)
        at, source, deleted, data = match.split(self.incoming)
        self._note_match(match, source)
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
        new = self.fresh.with_meta(keys, data, updates=len(source))
        row_numbers = insertion_points(batch.column(RECORD_KEY), keys.slice(len(at)))
        order = np.insert(order, row_numbers, batch.num_rows + len(at) + np.arange(len(fresh)))
        indices = pa.array(order[order >= 0])
        names = [name for name in batch.schema.names if name != FILE_NAME]
        columns = [take_of_both(batch.column(name), new.column(name), indices) for name in names]
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
        """The merged `rows`, with their changes if changes are tracked; `new` has the updated rows, then the added
        rows."""
        if self.tracked is None:
            return Merged(rows, new_keys)
        removed = self.tracked_rows(stored, deleted)
        added = self.tracked_rows(new, np.arange(len(at), new.num_rows))
        if len(self.tracked) == 1:
            return Merged(rows, new_keys, removed, added)
        before, after = self.tracked_rows(stored, at), self.tracked_rows(new, np.arange(len(at)))
        return Merged(rows, new_keys, removed, added, before, after)
