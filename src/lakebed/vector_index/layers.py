"""Layers of a vector index: the entries of a build, or those of one commit with the rows that it changed.

A layer is a head and numbered blocks. No commit reads an older layer: an entry counts until a later layer has the hash
of its row among those that it changed, or its partition path among those that it deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.row_addresses import Hashes
from lakebed.schema.plain_arrow import as_numpy
from lakebed.vector_index.centroids import Numbers
from lakebed.vector_index.entries import Entries
from lakebed.vector_index.frame import Kind, pack, unpack

_KIND: Final = Kind(b"LVIH", 1, "the head of a layer")
MAX_BLOCK_ENTRIES: Final = 2048
# Clusters of fewer entries share a block with those that follow them.
SHARED_BLOCK_ENTRIES: Final = 64
Unsigned = npt.NDArray[np.uint32]
Blocks = Callable[[Sequence[int]], Sequence[bytes | memoryview]]
"""Reads the blocks of a layer with these numbers, in their order."""


def _no_hashes() -> Hashes:
    return np.empty(0, np.uint64)


def _no_texts() -> pa.StringArray:
    return pa.array([], pa.string())


@dataclass(frozen=True, eq=False)
class Groups:
    """A list of file groups: the partition path and the id of each. Its positions are the group numbers of entries."""

    partitions: pa.StringArray = field(default_factory=_no_texts)
    ids: pa.StringArray = field(default_factory=_no_texts)

    def __len__(self) -> int:
        return len(self.ids)

    def taken(self, numbers: Numbers) -> list[tuple[str, str]]:
        """The partition path and the id of the file groups with these numbers."""
        at = pa.array(numbers)
        return list(zip(self.partitions.take(at).to_pylist(), self.ids.take(at).to_pylist(), strict=True))


@dataclass(frozen=True, eq=False)
class Changes:
    """What a commit changed, whether or not the rows have vectors.

    `replaced` are the hashes of rows that it wrote or deleted: older entries of them no longer count. `possible` are
    those of rows that it may have changed, where the row with the higher ordering value wins as it is read: older
    entries still count, and who finds one looks at the row. `partitions` are partition paths that it deleted with all
    of their rows; rows that the commit itself wrote there count.
    """

    replaced: Hashes = field(default_factory=_no_hashes)
    possible: Hashes = field(default_factory=_no_hashes)
    partitions: pa.StringArray = field(default_factory=_no_texts)


def positions_among(ordered: Hashes, hashes: Hashes) -> Numbers:
    """The position of each hash among unique hashes in ascending order, -1 for one that is not among them."""
    if not len(ordered):
        return np.full(len(hashes), -1)
    at = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
    return np.where(ordered[at] == hashes, at, -1)


class Newest:
    """The number of the newest layer that has each of some hashes."""

    def __init__(self, of_layers: Sequence[Hashes]) -> None:
        numbers = np.repeat(np.arange(len(of_layers)), [len(hashes) for hashes in of_layers])
        hashes = np.concatenate([np.empty(0, np.uint64), *of_layers])
        order = np.lexsort((numbers, hashes))
        hashes, numbers = hashes[order], numbers[order]
        is_last = np.append(hashes[1:] != hashes[:-1], np.ones(min(1, len(hashes)), np.bool_))
        self.hashes, self._numbers = hashes[is_last], numbers[is_last]

    def of(self, hashes: Hashes) -> Numbers:
        """The number of the newest layer with each hash, -1 where none has it."""
        if not len(self.hashes):
            return np.full(len(hashes), -1)
        at = positions_among(self.hashes, hashes)
        return np.where(at >= 0, self._numbers[at], -1)


def numbered_groups(of_layers: Sequence[Groups]) -> tuple[Groups, list[Numbers]]:
    """The file groups of all layers, and for each layer the number of each of its file groups among them."""
    partitions = pa.concat_arrays([groups.partitions for groups in of_layers])
    ids = pa.concat_arrays([groups.ids for groups in of_layers])
    names = pc.binary_join_element_wise(partitions, ids, "\0").dictionary_encode()
    numbers = as_numpy(names.indices).astype(np.int64)
    _, first = np.unique(numbers, return_index=True)
    positions = pa.array(first)
    ends = np.cumsum([len(groups) for groups in of_layers])
    return Groups(partitions.take(positions), ids.take(positions)), np.split(numbers, ends[:-1])


@dataclass(frozen=True, eq=False)
class LayerHead:
    """The head of a layer: its file groups, what the commit changed, the number of entries of each cluster that has
    some, and the first and the last cluster of each block."""

    groups: Groups
    changes: Changes
    clusters: Unsigned
    counts: Unsigned
    firsts: Unsigned
    lasts: Unsigned

    @property
    def rows(self) -> int:
        """The number of entries in all blocks."""
        return int(self.counts.sum(dtype=np.int64))

    @property
    def block_count(self) -> int:
        """The number of blocks."""
        return len(self.firsts)

    def blocks_of(self, clusters: Numbers) -> list[int]:
        """The numbers of the blocks with entries of these clusters, in ascending order."""
        with_entries = np.intersect1d(clusters, self.clusters)
        begin = np.searchsorted(self.lasts, with_entries, side="left")
        end = np.searchsorted(self.firsts, with_entries, side="right")
        return np.unique(np.concatenate([np.arange(a, b) for a, b in zip(begin, end, strict=True)] or [begin])).tolist()

    def to_bytes(self) -> bytes:
        """The record of the index with this head."""
        changes, groups = self.changes, self.groups
        numbers = [self.clusters, self.counts, self.firsts, self.lasts, changes.replaced, changes.possible]
        return pack(_KIND, [*numbers, changes.partitions, groups.partitions, groups.ids])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> LayerHead:
        """The head in a record. Raises `CorruptFile` for damaged bytes, `UnsupportedFeature` for a record of a newer
        release."""
        clusters, counts, firsts, lasts, replaced, possible, deleted, partitions, ids = unpack(_KIND, data)
        if len(clusters) != len(counts) or len(firsts) != len(lasts) or len(partitions) != len(ids):
            raise CorruptFile(
                "the head of a layer of a vector index has columns of other lengths",
                hint="Build the vector index again: drop it, and create it with the same name.",
                context={},
            )
        changes = Changes(replaced, possible, deleted)
        return cls(Groups(partitions, ids), changes, clusters, counts, firsts, lasts)


@dataclass(frozen=True, eq=False)
class Layer:
    """A stored layer: the instant of its commit, its head, and how its blocks are read."""

    instant: str
    head: LayerHead
    blocks: Blocks


class BlockWriter:
    """Writes the blocks of one layer: entries come in ascending order of their clusters, all entries of a cluster at
    once. `write` gets the bytes of each block; the first has the number 0."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._waiting: Entries | None = None
        self._clusters: list[npt.NDArray[Any]] = []
        self._counts: list[npt.NDArray[Any]] = []
        self._bounds: list[tuple[int, int]] = []

    def add(self, entries: Entries) -> None:
        """Write entries of one or several clusters, which are sorted by cluster."""
        clusters, counts = np.unique(entries.coded.clusters, return_counts=True)
        self._clusters.append(clusters)
        self._counts.append(counts)
        if self._waiting is not None:
            entries = Entries.together([self._waiting, entries])
        starts = np.flatnonzero(np.diff(entries.coded.clusters, prepend=-1))
        begin = 0
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(entries)], strict=True):
            if end - begin > MAX_BLOCK_ENTRIES and begin < start:
                self._put(entries.slice(begin, start))
                begin = start
            while end - begin > MAX_BLOCK_ENTRIES:
                self._put(entries.slice(begin, begin + MAX_BLOCK_ENTRIES))
                begin += MAX_BLOCK_ENTRIES
            if end - begin >= SHARED_BLOCK_ENTRIES:
                self._put(entries.slice(begin, end))
                begin = end
        self._waiting = entries.slice(begin, len(entries))

    def _put(self, entries: Entries) -> None:
        clusters = entries.coded.clusters
        self._bounds.append((int(clusters[0]), int(clusters[-1])))
        self._write(entries.to_bytes())

    def finish(self, groups: Groups, changes: Changes | None = None) -> LayerHead:
        """Write the last block; the head of the layer. The hashes of changes are sorted here."""
        if self._waiting is not None and len(self._waiting):
            self._put(self._waiting)
        empty = np.empty(0, np.uint32)
        bounds = np.array(self._bounds, np.uint32).reshape(-1, 2)
        changes = changes or Changes()
        return LayerHead(
            groups,
            Changes(np.unique(changes.replaced), np.unique(changes.possible), changes.partitions),
            np.concatenate([empty, *self._clusters]).astype(np.uint32),
            np.concatenate([empty, *self._counts]).astype(np.uint32),
            bounds[:, 0].copy(),
            bounds[:, 1].copy(),
        )


def write_layer(
    parts: Iterable[Entries], groups: Groups, changes: Changes | None, write: Callable[[bytes], object]
) -> LayerHead:
    """Write entries in any order as the blocks of one layer; its head. A commit has one part, a build one for each
    batch of rows: where these come from a generator, the entries are in memory once."""
    ordered = [part.take(np.argsort(part.coded.clusters, kind="stable")) for part in parts if len(part)]
    writer = BlockWriter(write)
    for first, end in _cluster_ranges([part.coded.clusters for part in ordered]):
        bounds = [np.searchsorted(part.coded.clusters, [first, end]).tolist() for part in ordered]
        entries = Entries.together([part.slice(*of_part) for part, of_part in zip(ordered, bounds, strict=True)])
        writer.add(entries.take(np.argsort(entries.coded.clusters, kind="stable")) if len(ordered) > 1 else entries)
    return writer.finish(groups, changes)


def _cluster_ranges(of_parts: Sequence[npt.NDArray[Any]]) -> list[tuple[int, int]]:
    """Ranges of clusters, the end not included, each with some thousand entries of all parts."""
    size = max((int(clusters[-1]) + 1 for clusters in of_parts), default=0)
    counts = np.zeros(size, np.int64)
    for clusters in of_parts:
        counts += np.bincount(clusters, minlength=size)
    ends, ranges, first = np.cumsum(counts), [], 0
    while first < size:
        before = int(ends[first - 1]) if first else 0
        end = min(int(np.searchsorted(ends, before + MAX_BLOCK_ENTRIES)) + 1, size)
        ranges.append((first, end))
        first = end
    return ranges
