"""Search in the layers of a vector index: candidates for the rows that are nearest to a query.

The entries of a cluster are read once, from all layers, and without those that a later layer changed. They stay in
memory, so that the next query that comes to the cluster estimates distances at once.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.bounded_cache import BoundedCache
from lakebed.format.row_addresses import Hashes
from lakebed.schema.plain_arrow import as_numpy, one_array
from lakebed.vector_index.centroids import Floats, Numbers
from lakebed.vector_index.codes import Coded, Coder, Matrix
from lakebed.vector_index.entries import NO_ROW, Entries, vector_positions
from lakebed.vector_index.layers import (
    BlockWriter,
    Changes,
    Groups,
    Layer,
    LayerHead,
    Newest,
    numbered_groups,
    positions_among,
)
from lakebed.vector_index.shape import ELEMENTS

Flags = npt.NDArray[np.bool_]
CACHE_BYTES: Final = 256 << 20
"""The bytes of the clusters of all indexes that stay in memory."""
MAX_SKEW: Final = 8
MAX_NEW_SHARE: Final = 0.3
_CLUSTERS_TOGETHER: Final = 64
_FILTER_BITS: Final = 20
# So many allowed rows are compared for each candidate under a condition.
_COMPARED: Final = 16
# A row is named by the number of its cluster and its row among the entries of the cluster.
_ROW_BITS: Final = 32
_ROW_MASK: Final = (1 << _ROW_BITS) - 1


@dataclass(frozen=True, eq=False)
class Candidates:
    """Rows that may be among the nearest: for each query in ascending order of the estimated distance, query after
    query; a row comes once for each query and file group.

    `queries` are the numbers of the queries, `groups` numbers in `LayeredIndex.groups`, `rows` positions in base files
    or -1. `is_uncertain` marks rows of which a later commit may have written another version: who takes one looks at
    the row. `vectors` are exact vectors of some candidates, and `vector_rows` tells their rows in this matrix: -1 for a
    candidate without. `clusters` is the number of clusters that were looked at for a query, at most; `compared` that of
    the entries whose distances were estimated, `bytes_read` the bytes of blocks that were read.
    """

    queries: Numbers
    distances: npt.NDArray[np.float64]
    hashes: Hashes
    groups: Numbers
    rows: Numbers
    keys: pa.StringArray
    is_uncertain: Flags
    vectors: Matrix
    vector_rows: Numbers
    clusters: int = 0
    compared: int = 0
    bytes_read: int = 0

    def __len__(self) -> int:
        return len(self.queries)


class Allowed:
    """The rows that a condition leaves: those with one of some hashes, those in some file groups, or both.

    `hashes` come from `row_hashes`, in any order; `groups` has a flag for each file group of the index.
    """

    def __init__(self, hashes: Hashes | None = None, groups: Flags | None = None) -> None:
        self._groups = groups
        self._hashes = None if hashes is None else np.unique(hashes)
        if self._hashes is not None:
            self._filter = np.zeros(1 << _FILTER_BITS, np.bool_)
            self._filter[self._hashes >> np.uint64(64 - _FILTER_BITS)] = True

    def rows(self, parts: Sequence[Entries]) -> list[Numbers]:
        """The row numbers of the entries of each part that are allowed, in ascending order."""
        ends = np.cumsum([len(entries) for entries in parts])
        rows = np.arange(ends[-1])
        if self._groups is not None:
            rows = np.flatnonzero(np.concatenate([self._groups[entries.groups] for entries in parts]))
        if self._hashes is not None:
            hashes = np.concatenate([entries.hashes for entries in parts])[rows]
            # few hashes pass the filter, which is much faster than a binary search
            passed = np.flatnonzero(self._filter[hashes >> np.uint64(64 - _FILTER_BITS)])
            rows = rows[passed[positions_among(self._hashes, hashes[passed]) >= 0]]
        of_parts = np.split(rows, np.searchsorted(rows, ends[:-1]))
        return [of_part - end + len(entries) for of_part, end, entries in zip(of_parts, ends, parts, strict=True)]


@dataclass(frozen=True, eq=False)
class _Cluster:
    """The entries of one cluster that count, with group numbers of the index, and which of them are uncertain."""

    entries: Entries
    is_uncertain: Flags

    @property
    def nbytes(self) -> int:
        return self.entries.nbytes + self.is_uncertain.nbytes

    @staticmethod
    def together(parts: Sequence[_Cluster]) -> _Cluster:
        """The entries of one cluster from several blocks."""
        if len(parts) == 1:
            return parts[0]
        entries = Entries.together([part.entries for part in parts])
        return _Cluster(entries, np.concatenate([part.is_uncertain for part in parts]))


_CLUSTERS = BoundedCache[_Cluster](CACHE_BYTES)


def _least(distances: Floats, count: int) -> Numbers:
    """The positions of the least distances, in any order."""
    return np.argpartition(distances, count - 1)[:count] if count < len(distances) else np.arange(len(distances))


class _Hits:
    """The rows that a search has come to, with their estimated distances, for each of some prepared queries."""

    def __init__(self, coder: Coder, queries: Floats, count: int, allowed: Allowed | None) -> None:
        self._coder = coder
        self._queries = queries
        self._rounded = coder.rounded(queries)
        self._count = count
        self._allowed = allowed
        self._clusters: dict[int, _Cluster] = {}
        self._parts: list[list[tuple[Floats, Numbers]]] = [[] for _ in queries]
        self.numbers = np.zeros(len(queries), np.int64)
        """How many rows each query has been compared with."""
        self.bytes_read = 0

    def look(self, clusters: dict[int, _Cluster], queries: Numbers) -> None:
        """Compare some queries, by their numbers, with the entries of clusters."""
        coded = [cluster.entries.coded for cluster in clusters.values()]
        if self._allowed is None:
            rows = None
        else:
            rows = self._allowed.rows([cluster.entries for cluster in clusters.values()])
            coded = [part.take(of_cluster) for part, of_cluster in zip(coded, rows, strict=True)]
        counts = np.array([len(part) for part in coded])
        ends, numbers = np.cumsum(counts), np.array(list(clusters))
        self.numbers[queries] += ends[-1]
        if not ends[-1]:
            return
        self._clusters.update(clusters)
        rounded, prepared = self._rounded.take(queries), self._queries[queries]
        distances = self._coder.distances(numbers, counts, prepared, rounded, Coded.together(coded))
        for query, of_query in zip(queries.tolist(), distances, strict=True):
            near = _least(of_query, self._count)
            at = np.searchsorted(ends, near, side="right")
            of_entries = near - (ends - counts)[at] if rows is None else np.concatenate(rows)[near]
            self._parts[query].append((of_query[near], (numbers[at] << _ROW_BITS) + of_entries))

    def candidates(self) -> Candidates:
        """The nearest rows of each query."""
        queries, distances, positions = [np.empty(0, np.int64)], [np.empty(0, np.float32)], [np.empty(0, np.int64)]
        for query, parts in enumerate(self._parts):
            if parts:
                of_query = np.concatenate([part for part, _ in parts])
                of_positions = np.concatenate([part for _, part in parts])
                near = _least(of_query, self._count)
                queries.append(np.full(len(near), query))
                distances.append(of_query[near])
                positions.append(of_positions[near])
        return self._gathered(np.concatenate(queries), np.concatenate(distances), np.concatenate(positions))

    def _gathered(self, queries: Numbers, distances: Floats, positions: Numbers) -> Candidates:
        by_position = np.argsort(positions, kind="stable")
        clusters = positions[by_position] >> _ROW_BITS
        numbers, starts = np.unique(clusters, return_index=True)
        clusters = [self._clusters[number] for number in numbers.tolist()]
        rows = np.split(positions[by_position] & _ROW_MASK, starts[1:])[: len(clusters)]
        entries = [cluster.entries for cluster in clusters]
        hashes = _picked([part.hashes for part in entries], rows, np.uint64)
        exact_rows = _picked([part.vector_rows for part in entries], rows, np.int64)
        # the entries are in the order of `by_position`: first bring the queries into it, then all into theirs
        queries, distances = queries[by_position], distances[by_position]
        order = np.lexsort((distances, queries))
        # of several entries of one row the nearest stays; a key that was inserted twice has rows in two file groups
        groups = _picked([part.groups for part in entries], rows, np.int64)
        of_rows = hashes ^ groups.astype(np.uint64)
        by_hash = order[np.lexsort((of_rows[order], queries[order]))]
        is_again = (np.diff(of_rows[by_hash]) == 0) & (np.diff(queries[by_hash]) == 0)
        if is_again.any():
            order = order[~np.isin(order, by_hash[1:][is_again])]
        sizes = np.cumsum([0, *(len(part) for part in entries)])
        in_keys = _picked([np.arange(start, end) for start, end in pairwise(sizes)], rows, np.int64)
        keys = pa.chunked_array([part.keys for part in entries], pa.string())
        positions_of_rows = _picked([part.rows for part in entries], rows, np.uint32)[order]
        vectors = [part.exact_vectors(of) for part, of in zip(entries, rows, strict=True) if len(part.vectors)]
        return Candidates(
            queries[order],
            self._coder.in_units(distances[order]),
            hashes[order],
            groups[order],
            np.where(positions_of_rows == NO_ROW, -1, positions_of_rows.astype(np.int64)),
            one_array(keys.take(pa.array(in_keys[order]))),
            _picked([cluster.is_uncertain for cluster in clusters], rows, np.bool_)[order],
            np.concatenate([np.empty((0, self._coder.shape.dimension), ELEMENTS[self._coder.shape.element]), *vectors]),
            vector_positions(exact_rows >= 0)[order],
        )


def _picked(columns: Sequence[npt.NDArray[Any]], rows: Sequence[Numbers], kind: Any) -> npt.NDArray[Any]:
    """Some rows of each of several columns, one after the other."""
    return np.concatenate([np.empty(0, kind), *(part[of] for part, of in zip(columns, rows, strict=True))]).astype(kind)


@dataclass(frozen=True)
class Statistics:
    """How the entries of an index are spread, to decide whether it is built again."""

    rows: int
    new_rows: int
    changed_rows: int
    largest_cluster: int
    mean_cluster: float

    @property
    def needs_rebuild(self) -> bool:
        """Whether the clusters no longer fit the rows: the largest has more than 8 times as many rows as the mean, or
        more than 30 of 100 rows came after the build."""
        is_skewed = self.largest_cluster > MAX_SKEW * self.mean_cluster
        return self.rows > 0 and (is_skewed or self.new_rows > MAX_NEW_SHARE * self.rows)


def _without_repeats(entries: Entries) -> Entries:
    """Entries of one cluster without those that a later one of the same row and file group repeats."""
    order = np.argsort(entries.hashes, kind="stable")
    ordered, coded = entries.hashes[order], entries.coded
    is_again = ordered[1:] == ordered[:-1]
    earlier, later = order[:-1][is_again], order[1:][is_again]
    is_equal = (coded.codes[earlier] == coded.codes[later]).all(axis=1)
    is_equal &= (coded.factors[earlier] == coded.factors[later]) & (entries.groups[earlier] == entries.groups[later])
    return entries.take(np.delete(np.arange(len(entries)), earlier[is_equal])) if is_equal.any() else entries


class Relocation(Protocol):
    """Where the rows of entries are now, for a fold."""

    @property
    def groups(self) -> Groups:
        """The file groups whose numbers `relocated` gives."""
        ...

    def relocated(self, entries: Entries) -> Entries:
        """Entries of one cluster with the file groups and positions of today, without those of rows that are gone."""
        ...


class LayeredIndex:
    """A vector index as it is at one moment: the layer of a build or of a fold, and those of later commits in the order
    in which they count. Several threads may search it."""

    def __init__(self, coder: Coder, layers: Sequence[Layer], cache: BoundedCache[Any] | None = None) -> None:
        """The clusters that were read stay in `cache` (None: one that all indexes of the process share)."""
        self._coder = coder
        self._layers = tuple(layers)
        self._cache = _CLUSTERS if cache is None else cache
        self.name = object()
        """Names what was read of this index in caches."""
        heads = [layer.head for layer in self._layers]
        self.groups, self._group_numbers = numbered_groups([head.groups for head in heads])
        """The file groups of all layers, each once."""
        self._replaced = Newest([head.changes.replaced for head in heads])
        self._possible = Newest([head.changes.possible for head in heads])
        # for each file group the number of the newest layer that deleted its partition, -1 where none did
        self._deleted_groups = np.full(len(self.groups), -1)
        for number, head in enumerate(heads):
            if len(head.changes.partitions):
                deleted = pc.is_in(self.groups.partitions, head.changes.partitions)
                self._deleted_groups[as_numpy(deleted)] = number

    def of_instants(self, instants: Collection[str]) -> LayeredIndex:
        """The index with its first layer, and of the later ones only those of these instants."""
        layers = [layer for number, layer in enumerate(self._layers) if not number or layer.instant in instants]
        return LayeredIndex(self._coder, layers, self._cache)

    def search(self, queries: Matrix, count: int, probes: int, allowed: Allowed | None = None) -> Candidates:
        """The `count` rows with the least estimated distances to each query, of the `probes` clusters that are nearest
        to it. Where these have fewer rows that count, further clusters are searched; under a condition until there are
        16 allowed rows for each candidate, since its rows are few in each cluster.

        `queries` is a matrix with a row for each query.
        """
        prepared = self._coder.prepared(queries)
        hits = _Hits(self._coder, prepared, count, allowed)
        near = self._coder.nearness(prepared)
        clusters = near.shape[1]
        probes = max(1, min(probes, clusters))
        enough = count if allowed is None else _COMPARED * count
        is_open, is_done = np.arange(len(prepared)), np.zeros(near.shape, np.bool_)
        while len(is_open):
            if probes < clusters:
                nearest = np.argpartition(-near[is_open], probes - 1, axis=1)[:, :probes]
            else:
                nearest = np.broadcast_to(np.arange(clusters), (len(is_open), clusters))
            pairs = np.stack([np.repeat(is_open, probes), nearest.ravel()])
            pairs = pairs[:, ~is_done[pairs[0], pairs[1]]]
            is_done[pairs[0], pairs[1]] = True
            self._look(hits, pairs)
            is_open = is_open[hits.numbers[is_open] < enough] if probes < clusters else is_open[:0]
            probes = min(2 * probes, clusters)
        return replace(
            hits.candidates(),
            clusters=int(is_done.sum(axis=1).max(initial=0)),
            compared=int(hits.numbers.sum()),
            bytes_read=hits.bytes_read,
        )

    def _look(self, hits: _Hits, pairs: npt.NDArray[np.int64]) -> None:
        """Compare queries with clusters: pairs of the number of a query and that of a cluster."""
        pairs = pairs[:, np.argsort(pairs[1], kind="stable")]
        numbers, starts = np.unique(pairs[1], return_index=True)
        ends = np.append(starts[1:], pairs.shape[1])
        is_one = len(np.unique(pairs[0])) == 1
        for first in range(0, len(numbers), _CLUSTERS_TOGETHER):
            part = slice(first, first + _CLUSTERS_TOGETHER)
            clusters, size = self._clusters(numbers[part])
            hits.bytes_read += size
            if is_one and clusters:
                hits.look(clusters, pairs[0, :1])
                continue
            for number, start, end in zip(numbers[part].tolist(), starts[part], ends[part], strict=True):
                if number in clusters:
                    hits.look({number: clusters[number]}, pairs[0, start:end])

    def _clusters(self, numbers: Numbers) -> tuple[dict[int, _Cluster], int]:
        """The clusters with these numbers that have entries, by number, and the bytes that were read for them."""
        clusters: dict[int, _Cluster] = {}
        missing: list[int] = []
        for number in numbers.tolist():
            cluster = self._cache.get((self.name, number))
            if cluster is None:
                missing.append(number)
            else:
                clusters[number] = cluster
        read, size = self._read(np.array(missing, np.int64)) if missing else ({}, 0)
        for number, cluster in read.items():
            self._cache.put((self.name, number), cluster)
            clusters[number] = cluster
        return {number: cluster for number, cluster in clusters.items() if len(cluster.entries)}, size

    def _read(self, numbers: Numbers) -> tuple[dict[int, _Cluster], int]:
        """Clusters by number from the blocks of all layers, and the bytes of these."""
        size = 0
        parts: dict[int, list[_Cluster]] = {number: [] for number in numbers.tolist()}
        for of_layer, layer in enumerate(self._layers):
            blocks = layer.head.blocks_of(numbers)
            for data in layer.blocks(blocks) if blocks else ():
                size += len(data)
                entries = Entries.from_bytes(data, self._coder.shape)
                starts = np.searchsorted(entries.coded.clusters, numbers, side="left").tolist()
                ends = np.searchsorted(entries.coded.clusters, numbers, side="right").tolist()
                for number, start, end in zip(parts, starts, ends, strict=True):
                    if end > start:
                        parts[number].append(self._counting(entries.slice(start, end), of_layer))
        return {number: _Cluster.together(of_cluster) for number, of_cluster in parts.items() if of_cluster}, size

    def _counting(self, entries: Entries, number: int) -> _Cluster:
        """The entries of a layer that no later layer changed."""
        groups = self._group_numbers[number][entries.groups]
        is_dead = self._replaced.of(entries.hashes) > number
        is_dead |= self._deleted_groups[groups] > number
        entries = replace(entries, groups=groups)
        if is_dead.any():
            entries = entries.take(np.flatnonzero(~is_dead))
        return _Cluster(entries, self._possible.of(entries.hashes) >= number)

    def cluster_sizes(self) -> Numbers:
        """The number of entries of each cluster, with those that no longer count."""
        counts = np.zeros(self._coder.shape.clusters, np.int64)
        for layer in self._layers:
            counts[layer.head.clusters] += layer.head.counts
        return counts

    def statistics(self) -> Statistics:
        """How the entries are spread over the clusters, with those that no longer count."""
        counts = self.cluster_sizes()
        new_rows = self._coder.shape.new_rows + sum(layer.head.rows for layer in self._layers[1:])
        rows = int(counts.sum())
        return Statistics(rows, new_rows, len(self._replaced.hashes), int(counts.max()), rows / len(counts))

    def entries(self, clusters: Numbers | None = None) -> Iterator[tuple[Entries, Flags]]:
        """The entries that count, cluster after cluster in ascending order, with flags of the uncertain ones: those of
        the clusters with these numbers, which ascend (None: of all)."""
        numbers = np.arange(self._coder.shape.clusters) if clusters is None else clusters
        for start in range(0, len(numbers), _CLUSTERS_TOGETHER):
            for _, cluster in sorted(self._read(numbers[start : start + _CLUSTERS_TOGETHER])[0].items()):
                if len(cluster.entries):
                    yield cluster.entries, cluster.is_uncertain

    def fold(self, relocation: Relocation | None = None) -> Generator[bytes, None, LayerHead]:
        """The entries that count as the blocks of one layer, block after block; returns its head.

        Entries of one row with equal codes, which stay where a commit cannot know whether its row wins, become one. The
        entries of some clusters are in memory at a time. Without a `relocation` they have the file groups of
        `groups`.
        """
        blocks: list[bytes] = []
        writer = BlockWriter(blocks.append)
        possible: list[Hashes] = []
        for entries, is_uncertain in self.entries():
            possible.append(entries.hashes[is_uncertain])
            relocated = _without_repeats(entries if relocation is None else relocation.relocated(entries))
            if len(relocated):
                writer.add(relocated)
            yield from blocks
            blocks.clear()
        groups = self.groups if relocation is None else relocation.groups
        head = writer.finish(groups, Changes(possible=np.concatenate([np.empty(0, np.uint64), *possible])))
        yield from blocks
        return head
