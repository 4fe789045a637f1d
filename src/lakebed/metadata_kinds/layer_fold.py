"""The fold of an index that has layers: what a compaction of the metadata table makes of them.

The entries that count become one base, without those that later commits replaced, and name the file groups of today.
Layers whose commits are not complete, or that a commit which is being written comes before, stay as they are. A view
from before the newest commit of a fold has no base any more: it is searched exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.hashes import plain_strings
from lakebed.metadata_kinds.layer_records import BUILD, LaterLayer, StoredLayers, batches_of_base
from lakebed.metadata_kinds.vector_coverage import Witness, instant_of_layer
from lakebed.metadata_records.records import RecordForm
from lakebed.model import RECORD_KEY, FileSlice
from lakebed.sharing import once
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.instants import completes_as
from lakebed.timeline.timeline import COMMITS
from lakebed.vector_index.entries import NO_ROW, row_hashes
from lakebed.vector_index.layers import Groups

# Layers are folded when they change this share of the rows of the base, or when there are more than so many of them.
MIN_SHARE = 0.02
MAX_LAYERS = 15
# Where clusterings moved more rows than this, or writes put them into new files, entries keep their file groups and
# positions, and searches look the rows up.
MAX_MOVED = 4_000_000
Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def folded_records(
    stored: StoredLayers, snapshot: Snapshot, form: RecordForm
) -> Iterator[tuple[pa.Array, pa.Array]] | None:
    """The records of an index with its layers in the base, in batches of keys and values in ascending order of the
    keys; None where the layers stay as they are."""
    if stored.coverage(snapshot).reason is not None:
        return None
    heads, layers = stored.layer_heads, _layers_to_fold(stored, snapshot)
    changed = sum(heads[of].rows + len(heads[of].changes.replaced) for of in layers)
    is_due = len(layers) > MAX_LAYERS or (len(layers) > 0 and changed >= heads[BUILD].rows * MIN_SHARE)
    return _Fold(stored, snapshot, tuple(layers)).records(form) if is_due else None


def _layers_to_fold(stored: StoredLayers, snapshot: Snapshot) -> list[str]:
    """The layers of complete commits that no pending commit comes before: its layer must count after the base."""
    pending = (i.time for i in snapshot.timeline.pending if completes_as(i.action) in COMMITS)
    bound = min(pending, default=None)
    built = {*stored.base.instants}

    def is_complete(of: str) -> bool:
        instant = instant_of_layer(of)
        return of in built or (snapshot.is_visible(instant) and (bound is None or instant < bound))

    return [of for of in stored.layer_heads if of != BUILD and is_complete(of)]


@dataclass(frozen=True, eq=False)
class _Fold:
    """The fold of some layers into the base, on a table as it is."""

    stored: StoredLayers
    snapshot: Snapshot
    layers: tuple[str, ...]

    def records(self, form: RecordForm) -> Iterator[tuple[pa.Array, pa.Array]]:
        """All records of the index after the fold."""
        stored, built = self.stored, {*self.stored.base.instants}
        newest = max([*stored.base.instants, *map(instant_of_layer, self.layers)])
        # a view of the newest of these instants and one of today have the same base
        view = replace(self.snapshot, as_of=newest)
        folded = stored.fold((BUILD, *(of for of in self.layers if of not in built)), view)
        later = [
            LaterLayer(of, head, stored.blocks_of(of), stored.witnesses.get(of))
            for of, head in stored.layer_heads.items()
            if of != BUILD and of not in self.layers
        ]
        shape = stored.shape_after_fold(newest, sum(stored.layer_heads[of].rows for of in self.layers))
        return batches_of_base(stored.beginning(newest, self._witness), form, folded, later, shape)

    @once
    def _witness(self) -> Witness:
        """The witness of the base, with what those of the layers cover. Of archived commits the newest stays, by which
        a view shows that it is not older than the base."""
        witnesses = [self.stored.base, *(w for of, w in self.stored.witnesses.items() if of in self.layers)]
        covered = {*map(instant_of_layer, self.layers), *(time for w in witnesses for time in w.instants)}
        start = self.snapshot.timeline.start or ""
        archived = max((time for time in covered if time < start), default=None)
        instants = sorted(time for time in covered if time >= start or time == archived)
        return Witness(tuple(instants), max(witness.horizon for witness in witnesses))


@dataclass(frozen=True, eq=False)
class _KeyRows:
    """Rows by the hashes of their keys: the number of the slice of each, and its position in the base file, `NO_ROW`
    where it is not known."""

    hashes: Hashes
    slices: Numbers
    positions: npt.NDArray[np.uint32]

    @classmethod
    def together(cls, parts: Sequence[_KeyRows]) -> _KeyRows:
        """The rows of all parts, in ascending order of the hashes."""
        hashes = np.concatenate([part.hashes for part in parts])
        order = np.argsort(hashes, kind="stable")
        slices = np.concatenate([part.slices for part in parts])[order]
        return cls(hashes[order], slices, np.concatenate([part.positions for part in parts])[order])


_NO_ROWS = _KeyRows(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.uint32))


@dataclass(frozen=True, eq=False)
class Locations:
    """Where rows are now: `at` are their numbers among those that were asked for, `groups` the numbers of the file
    groups that have them. A row that is gone is missing, a row whose key is in several file groups comes for each: a
    table without unique keys may have it there. `is_moved` marks those that were in another file group, `is_placed`
    those whose place in its base file is another: it is in `positions`, `NO_ROW` where it is not known."""

    at: Numbers
    groups: Numbers
    is_moved: Flags
    is_placed: Flags
    positions: npt.NDArray[np.uint32]


class Locators:
    """Where the rows of entries are now.

    Entries of file groups that are no longer in the table get the group that has their key; those whose key is in none
    are dropped. Entries of file groups whose base file was written after the instant `since` get the position of their
    row in it (None: of none). `groups` are the file groups whose numbers entries get.
    """

    def __init__(self, snapshot: Snapshot, groups: Groups, since: str | None = None) -> None:
        self._snapshot = snapshot
        slices = {(s.partition, s.file_id): s for s in snapshot.file_slices()}
        old = list(zip(groups.partitions.to_pylist(), groups.ids.to_pylist(), strict=True))
        emptied = {path for path, file_id in old if (path, file_id) not in slices}
        rewritten = {
            group
            for group, s in slices.items()
            if since is not None and s.base_file is not None and s.base_file.instant > since
        }
        changed = [s for group, s in slices.items() if s.partition in emptied or group in rewritten]
        rows = self._rows_of(changed, emptied)
        self._rows = _NO_ROWS if rows is None else rows
        added = [] if rows is None else [(s.partition, s.file_id) for s in changed if s.partition in emptied]
        listed = list(dict.fromkeys([*(g for g in old if rows is None or g in slices), *added]))
        paths, ids = [path for path, _ in listed], [file_id for _, file_id in listed]
        self.groups = Groups(pa.array(paths, pa.string()), pa.array(ids, pa.string()))
        positions = {group: number for number, group in enumerate(listed)}
        self._numbers = np.array([positions.get(group, -1) for group in old], np.int64)
        self._of_slices = np.array([positions.get((s.partition, s.file_id), -1) for s in changed], np.int64)
        self._is_rewritten = np.array([rows is not None and group in rewritten for group in listed], np.bool_)
        self.has_logs = np.array([group in slices and bool(slices[group].log_files) for group in listed], np.bool_)
        """Flags of the file groups that have log files."""

    def _rows_of(self, slices: Sequence[FileSlice], emptied: Collection[str]) -> _KeyRows | None:
        """The rows of these slices, of those in other partitions than the emptied ones the rows of their base files;
        None where they have too many rows, or a file is cleaned by now."""
        parts, total = [_NO_ROWS], 0
        try:
            for number, file_slice in enumerate(slices):
                start = 0
                file_slice = file_slice if file_slice.partition in emptied else file_slice.without_logs()
                for batch in self._snapshot.reader.read(file_slice, [RECORD_KEY]):
                    hashes = row_hashes(plain_strings(batch.column(RECORD_KEY)), file_slice.partition)
                    positions = np.arange(start, start + len(hashes), dtype=np.uint32)
                    if file_slice.log_files:
                        positions = np.full(len(hashes), NO_ROW, np.uint32)
                    parts.append(_KeyRows(hashes, np.full(len(hashes), number, np.int64), positions))
                    start += len(hashes)
                    total += len(hashes)
                    if total > MAX_MOVED:
                        return None
        except FileNotFoundError:
            return None
        return _KeyRows.together(parts)

    def locations(self, hashes: Hashes, groups: npt.NDArray[np.integer[Any]]) -> Locations:
        """Where the rows with these hashes are that were in file groups with these numbers."""
        numbers = self._numbers[groups]
        is_moved, at = numbers < 0, np.arange(len(numbers))
        positions = np.full(len(numbers), NO_ROW, np.uint32)
        if is_moved.any():
            first = np.searchsorted(self._rows.hashes, hashes, side="left")
            counts = np.where(is_moved, np.searchsorted(self._rows.hashes, hashes, side="right") - first, 1)
            at = np.repeat(at, counts)
            among = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
            is_moved, numbers = is_moved[at], numbers[at]
            in_rows = (first[at] + among)[is_moved]
            numbers[is_moved] = self._of_slices[self._rows.slices[in_rows]]
            positions = np.full(len(numbers), NO_ROW, np.uint32)
            positions[is_moved] = self._rows.positions[in_rows]
        is_rewritten = self._is_rewritten[numbers] & ~is_moved
        if is_rewritten.any() and len(self._rows.hashes):
            nearest = np.minimum(np.searchsorted(self._rows.hashes, hashes[at]), len(self._rows.hashes) - 1)
            is_there = is_rewritten & (self._rows.hashes[nearest] == hashes[at])
            is_there &= self._of_slices[self._rows.slices[nearest]] == numbers
            positions[is_there] = self._rows.positions[nearest[is_there]]
        return Locations(at, numbers, is_moved, is_moved | is_rewritten, positions)
