"""The fold of an index that has layers: what a compaction of the metadata table makes of them.

The entries that count become one base, without those that later commits replaced, and name the file groups of today.
Layers whose commits are not complete, or that a commit which is being written comes before, stay as they are. A view
from before the newest commit of a fold has no base any more: it is searched exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.hashes import plain_strings
from lakebed.metadata_kinds.layer_records import BUILD, Head, StoredLayers
from lakebed.metadata_kinds.vector_coverage import Witness, instant_of_layer
from lakebed.metadata_records.records import RecordForm
from lakebed.model import RECORD_KEY, FileGroupId, FileSlice
from lakebed.sharing import once
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.instants import completes_as
from lakebed.timeline.timeline import COMMITS
from lakebed.vector_index.entries import row_hashes
from lakebed.vector_index.layers import Groups

# Layers are folded when they change this share of the rows of the base, or when there are more than so many of them.
MIN_SHARE = 0.02
MAX_LAYERS = 15
# Where clusterings moved more rows than this, entries keep their file groups, and searches look the rows up.
MAX_MOVED = 4_000_000
_BATCH_BYTES = 4 << 20
_BLOCKS_TOGETHER = 16
Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NO_KEYS: Hashes = np.empty(0, np.uint64)
_NO_NUMBERS: Numbers = np.empty(0, np.int64)


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
        stored, heads = self.stored, self.stored.layer_heads
        remaining = [of for of in heads if of != BUILD and of not in self.layers]
        newest = max([*stored.base.instants, *map(instant_of_layer, self.layers)])
        view = replace(self.snapshot, as_of=newest)
        records = stored.beginning(newest, self._witness)
        built = {*stored.base.instants}
        # a view of the newest of these instants and one of today have the same base
        folded = stored.fold((BUILD, *(of for of in self.layers if of not in built)), view)
        head: Head | None = None
        for number in count():
            try:
                records.add_block(BUILD, number, next(folded))
            except StopIteration as end:
                head = end.value
                break
            yield from records.batch(form, _BATCH_BYTES)
        for of in remaining:
            blocks = range(heads[of].block_count)
            for start in range(0, len(blocks), _BLOCKS_TOGETHER):
                numbers = blocks[start : start + _BLOCKS_TOGETHER]
                for number, data in zip(numbers, stored.blocks(of, numbers), strict=True):
                    records.add_block(of, number, bytes(data))
                yield from records.batch(form, _BATCH_BYTES)
        assert head is not None
        for of, its_head in [(BUILD, head), *((of, heads[of]) for of in remaining)]:
            records.add_head(of, its_head.to_bytes())
            yield from records.batch(form, _BATCH_BYTES)
        records.add_shape(stored.shape_after_fold(newest, sum(heads[of].rows for of in self.layers)))
        for of in remaining:
            if of in stored.witnesses:
                records.add_witness(of, stored.witnesses[of])
        yield from records.batch(form)

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
class Locations:
    """Where rows are now: `at` are their numbers among those that were asked for, `groups` the numbers of the file
    groups that have them. A row that is gone is missing, a row whose key is in several file groups comes for each: a
    table without unique keys may have it there. `is_moved` marks those that were in another file group."""

    at: Numbers
    groups: Numbers
    is_moved: Flags


class Locators:
    """Where the rows of entries are now.

    Entries of file groups that are no longer in the table get the group that has their key; those whose key is in none
    are dropped. `groups` are the file groups whose numbers entries get.
    """

    def __init__(self, snapshot: Snapshot, groups: Groups) -> None:
        self._snapshot = snapshot
        slices = {(s.partition, s.file_id): s for s in snapshot.file_slices()}
        old = list(zip(groups.partitions.to_pylist(), groups.ids.to_pylist(), strict=True))
        emptied = {path for path, file_id in old if (path, file_id) not in slices}
        moved = self._moved([s for s in slices.values() if s.partition in emptied])
        self._keys, numbers, added = moved if moved is not None else (_NO_KEYS, _NO_NUMBERS, [])
        listed = list(dict.fromkeys([*(g for g in old if moved is None or g in slices), *added]))
        paths, ids = [path for path, _ in listed], [file_id for _, file_id in listed]
        self.groups = Groups(pa.array(paths, pa.string()), pa.array(ids, pa.string()))
        positions = {group: number for number, group in enumerate(listed)}
        self._numbers = np.array([positions.get(group, -1) for group in old], np.int64)
        self._of_keys = np.array([positions[group] for group in added], np.int64)[numbers] if added else numbers
        self.has_logs = np.array([group in slices and bool(slices[group].log_files) for group in listed], np.bool_)
        """Flags of the file groups that have log files."""

    def _moved(self, slices: Sequence[FileSlice]) -> tuple[Hashes, Numbers, list[FileGroupId]] | None:
        """The hashes of the rows of these slices in ascending order, the number of the slice of each, and the slices;
        None where they have too many rows, or a file is cleaned by now."""
        hashes, numbers, rows = [_NO_KEYS], [_NO_NUMBERS], 0
        try:
            for number, file_slice in enumerate(slices):
                for batch in self._snapshot.reader.read(file_slice, [RECORD_KEY]):
                    hashes.append(row_hashes(plain_strings(batch.column(RECORD_KEY)), file_slice.partition))
                    numbers.append(np.full(batch.num_rows, number, np.int64))
                    rows += batch.num_rows
                    if rows > MAX_MOVED:
                        return None
        except FileNotFoundError:
            return None
        joined = np.concatenate(hashes)
        order = np.argsort(joined, kind="stable")
        return joined[order], np.concatenate(numbers)[order], [(s.partition, s.file_id) for s in slices]

    def locations(self, hashes: Hashes, groups: npt.NDArray[np.integer[Any]]) -> Locations:
        """Where the rows with these hashes are that were in file groups with these numbers."""
        numbers = self._numbers[groups]
        is_moved, at = numbers < 0, np.arange(len(numbers))
        if is_moved.any():
            first = np.searchsorted(self._keys, hashes, side="left")
            counts = np.where(is_moved, np.searchsorted(self._keys, hashes, side="right") - first, 1)
            at = np.repeat(at, counts)
            among = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
            is_moved, numbers = is_moved[at], numbers[at]
            numbers[is_moved] = self._of_keys[(first[at] + among)[is_moved]]
        return Locations(at, numbers, is_moved)
