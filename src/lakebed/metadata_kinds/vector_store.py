"""The records of a vector index in its partition of the metadata table, and the index that they are.

They are those of `layer_records`, and in addition the centroids, under the keys `C|<n>`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.metadata_kinds.layer_records import BUILD, SHAPE, LayerRecords, StoredLayers, block_key, opened_once
from lakebed.metadata_kinds.stored import COMPARED, joined
from lakebed.metadata_kinds.vector_coverage import Coverage, Witness
from lakebed.metadata_kinds.vector_fold import VectorLocators
from lakebed.metadata_kinds.vector_rows import VectorRows, vector_kind, vectors_of_slices
from lakebed.sharing import once
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.snapshot import Snapshot
from lakebed.vector_index.centroids import Centroids
from lakebed.vector_index.codes import Coder
from lakebed.vector_index.entries import Entries, row_hashes
from lakebed.vector_index.layers import Changes, Groups, Layer, LayerHead, write_layer
from lakebed.vector_index.search import LayeredIndex
from lakebed.vector_index.shape import IndexShape
from lakebed.wording import count_text

RECORD_TYPE: Final = "LAKEBED_IVF_1"
_CENTROIDS: Final = "C|"
# Clusters whose centroids are as near as that to a vector may both be taken for the nearest one.
_TIE = 1e-3
# The entries of so many rows are read to tell how many entries count.
_COUNTED: Final = 1 << 15
# The rows of a layer whose blocks are read as a whole.
_SMALL_LAYER = 1 << 13


@dataclass
class IndexRecords(LayerRecords):
    """Collects records of a vector index, which an instant writes."""

    record_type: str = field(default=RECORD_TYPE, init=False)

    @classmethod
    def of_base(cls, instant: str, witness: Witness, coder: Coder) -> IndexRecords:
        """The witness and the centroids of a base."""
        records = cls(instant)
        records.add_base(witness)
        for number, record in enumerate(coder.centroids.to_records()):
            records.add(f"{_CENTROIDS}{number:04x}", record)
        return records

    def add_layer(self, of: str, parts: Sequence[Entries], groups: Groups, changes: Changes | None) -> None:
        """The records of a layer: its blocks and its head."""
        numbers = iter(range(1 << 32))
        head = write_layer(parts, groups, changes, lambda data: self.add_block(of, next(numbers), data))
        self.add_head(of, head.to_bytes())


@dataclass(frozen=True, eq=False)
class StoredIndex(StoredLayers):
    """The records of a vector index in a metadata table; each is read when it is needed."""

    descriptions: ClassVar[tuple[str, ...]] = (*StoredLayers.descriptions, _CENTROIDS)

    record_type: str = field(default=RECORD_TYPE, init=False)
    _layered: dict[tuple[str, ...], LayeredIndex] = field(default_factory=dict, repr=False)

    @once
    def coder(self) -> Coder:
        """The coder of the index: its shape and its centroids."""
        centroids = sorted(key for key in self._described if key.startswith(_CENTROIDS))
        return Coder(
            IndexShape.from_bytes(self.described(SHAPE)),
            Centroids.from_records(self.records_of(self._described, centroids)),
        )

    def reason_by_entries(self, snapshot: Snapshot, covered: Coverage, least_rows: int) -> str | None:
        statistics = self.layered(snapshot).statistics()
        if statistics.rows < least_rows or not statistics.needs_rebuild:
            return None
        return (
            f"{count_text(statistics.new_rows, 'row')} of {statistics.rows:,} came after it was built, and its"
            f" largest cluster has {statistics.largest_cluster:,}"
        )

    def cluster_sizes(self, snapshot: Snapshot) -> npt.NDArray[np.int64]:
        return self.layered(snapshot).cluster_sizes()

    def counting(self, snapshot: Snapshot, covered: Coverage) -> tuple[int, int]:
        layered = self.layered(snapshot)
        sizes = layered.cluster_sizes()
        order = np.random.default_rng(0).permutation(len(sizes))
        read = order[: max(1, int(np.searchsorted(sizes[order].cumsum(), _COUNTED, side="right")))]
        lacking = pa.array([file_id for _, file_id in covered.groups], pa.string())
        is_covered = ~np.asarray(pc.is_in(layered.groups.ids, value_set=lacking))
        counting = sum(int(is_covered[entries.groups].sum()) for entries, _ in layered.entries(np.sort(read)))
        return counting, int(sizes[read].sum())

    def layered(self, snapshot: Snapshot) -> LayeredIndex:
        """The index as of a view: the layer of the build, and those of commits that are in the view and not in the
        build."""
        return self.of_layers(self.names_in(snapshot))

    def of_layers(self, names: tuple[str, ...]) -> LayeredIndex:
        """The index with these layers, in the order in which they count."""
        if names not in self._layered:
            layers = [Layer(of, self.layer_heads[of], partial(self.blocks, of)) for of in names]
            self._layered[names] = LayeredIndex(self.coder, layers)
        return self._layered[names]

    @once
    def layer_heads(self) -> Mapping[str, LayerHead]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return {of: LayerHead.from_bytes(head) for of, head in self.heads.items()}

    def beginning(self, instant: str, witness: Witness) -> IndexRecords:
        return IndexRecords.of_base(instant, witness, self.coder)

    def fold(self, names: tuple[str, ...], snapshot: Snapshot) -> Generator[bytes, None, LayerHead]:
        index = self.of_layers(names)
        return index.fold(VectorLocators(snapshot, index.groups, self.coder.shape.instant))

    def shape_after_fold(self, instant: str, new_rows: int) -> bytes:
        shape = self.coder.shape
        generation, new_rows = shape.generation + 1, shape.new_rows + new_rows
        return replace(shape, generation=generation, instant=instant, new_rows=new_rows).to_bytes()

    def blocks(self, of: str, numbers: Sequence[int]) -> list[bytes]:
        """The blocks of a layer with these numbers, in their order. Those of small layers are read together: a look-up
        for each layer would take longer than all of their bytes."""
        if of not in self._small:
            return super().blocks(of, numbers)
        return self.records_of(self._small_layers, [block_key(of, number) for number in numbers])

    @once
    def _small(self) -> frozenset[str]:
        return frozenset(of for of, head in self.layer_heads.items() if of != BUILD and head.rows <= _SMALL_LAYER)

    @once
    def _small_layers(self) -> Mapping[str, Any]:
        return self.all_blocks(sorted(self._small))


@dataclass(frozen=True, eq=False)
class OpenedIndex:
    """A vector index as it is searched in one view."""

    partition: str
    layered: LayeredIndex
    clusters: int

    @once
    def entries(self) -> int:
        """The number of entries of all layers."""
        return self.layered.statistics().rows

    def groups_among(self, ids: pa.Array) -> npt.NDArray[np.bool_]:
        """Flags of the file groups of the index that are among these ids."""
        return np.asarray(pc.is_in(self.layered.groups.ids, value_set=ids))


def stored_index(metadata: MetadataLookups, partition: str) -> StoredIndex:
    """The records of an index, with what was read of them from this view of the metadata table before."""
    return opened_once(metadata, StoredIndex, partition)


def open_index(stored: StoredIndex, snapshot: Snapshot) -> OpenedIndex:
    """The index of a view that it covers, at least in part."""
    return OpenedIndex(stored.partition, stored.layered(snapshot), len(stored.coder.centroids))


def expected_rows(snapshot: Snapshot, column: str, kind: pa.DataType) -> pa.Table:
    """A row for each row of the table with a vector."""
    return joined([_compared(rows) for rows in _stored_rows(snapshot, column, kind)])


def indexed_rows(stored: StoredIndex, snapshot: Snapshot) -> pa.Table:
    """The rows of the table with a vector for which the index has an entry in the cluster of the vector."""
    stored.usable(snapshot)
    entries = (_marks(part.hashes, part.coded.clusters) for part, _ in stored.layered(snapshot).entries())
    marks = np.unique(np.concatenate([np.empty(0, np.uint64), *entries]))
    parts: list[pa.Table] = []
    shape = stored.coder.shape
    for rows in _stored_rows(snapshot, shape.column, vector_kind(shape)):
        hashes = row_hashes(rows.keys, rows.partition)
        is_there = np.zeros(len(hashes), np.bool_)
        for clusters, is_near in _near_clusters(stored.coder, rows):
            is_there |= np.isin(_marks(hashes, clusters), marks) & is_near
        parts.append(_compared(rows).filter(pa.array(is_there)))
    return joined(parts)


def _stored_rows(snapshot: Snapshot, column: str, kind: pa.DataType) -> Iterator[VectorRows]:
    return vectors_of_slices(snapshot.reader, snapshot.file_slices(), None, column, kind)


def _near_clusters(coder: Coder, rows: VectorRows) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]:
    """The nearest cluster of each vector, then the second nearest, with flags of those that may be the nearest."""
    prepared = coder.prepared(rows.vectors)
    nearest = coder.centroids.nearest(prepared)
    yield nearest, np.ones(len(nearest), np.bool_)
    if len(coder.centroids) == 1:
        return
    near = prepared @ coder.centroids.matrix.T - coder.centroids.half_squares
    at = np.arange(len(near))
    best = near[at, nearest]
    near[at, nearest] = -np.inf
    second = near.argmax(axis=1)
    yield second, best - near[at, second] <= _TIE * np.maximum(1, np.abs(best))


def _marks(hashes: npt.NDArray[np.uint64], clusters: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """A number of each row and its cluster."""
    return hashes ^ (clusters.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))


def _compared(rows: VectorRows) -> pa.Table:
    count = len(rows.keys)
    keys, empty = rows.keys.cast(pa.string()), pa.repeat(pa.scalar(""), count)
    return pa.Table.from_arrays([keys, pa.repeat(pa.scalar(rows.partition), count), keys, empty], schema=COMPARED)
