"""The records of a vector index in its partition of the metadata table, and the index that they are.

They are records of bloom filters by their type, so that every writer of the metadata table carries them along: the name
of the filter's type is `LAKEBED_IVF_1`, its bytes are ours, its time is the instant that wrote the record.

| key | bytes |
|---|---|
| `M` | the shape of the index |
| `C|<n>` | centroids |
| `B` | the witness of the build |
| `D|<instant>` | the head of a commit's layer; `D|0` that of the build, `D|<instant>+<n>` that of a repair |
| `L|<instant>|<n>` | a block of entries of that layer |
| `W|<instant>` | the witness of a commit |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.hashes import plain_strings
from lakebed.metadata_kinds import bloom_filters
from lakebed.metadata_kinds.stored import COMPARED, joined
from lakebed.metadata_kinds.vector_coverage import REPAIR, Coverage, Witness, coverage, instant_of_layer
from lakebed.metadata_kinds.vector_rows import VectorRows, vector_kind, vectors_of_slices
from lakebed.metadata_records.records import RecordForm, Records
from lakebed.sharing import once
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.snapshot import Snapshot
from lakebed.vector_index.centroids import Centroids
from lakebed.vector_index.codes import Coder
from lakebed.vector_index.entries import Entries, row_hashes
from lakebed.vector_index.layers import Changes, Groups, Layer, LayerHead, write_layer
from lakebed.vector_index.search import LayeredIndex
from lakebed.vector_index.shape import IndexShape

RECORD_TYPE: Final = "LAKEBED_IVF_1"
_SHAPE: Final = "M"
_BASE: Final = "B"
_CENTROIDS: Final = "C|"
_HEADS: Final = "D|"
_BLOCKS: Final = "L|"
_WITNESSES: Final = "W|"
COMMIT = "commit"
"""The `entry` of a compared row that is a commit."""
# Clusters whose centroids are as near as that to a vector may both be taken for the nearest one.
_TIE = 1e-3
# The rows of a layer whose blocks are read as a whole.
_SMALL_LAYER = 1 << 13
BUILD: Final = "0"
"""Stands for the instant of the layer of a build."""


@dataclass
class IndexRecords:
    """Collects records of a vector index, which an instant writes."""

    instant: str
    _keys: list[str] = field(default_factory=list[str])
    _values: list[bytes] = field(default_factory=list[bytes])

    def add(self, key: str, value: bytes) -> None:
        self._keys.append(key)
        self._values.append(value)

    def add_build(self, coder: Coder, witness: Witness) -> None:
        """The records of a build, but for its layer."""
        self.add(_SHAPE, coder.shape.to_bytes())
        self.add(_BASE, witness.to_bytes())
        for number, record in enumerate(coder.centroids.to_records()):
            self.add(f"{_CENTROIDS}{number:04x}", record)

    def add_layer(self, of: str, parts: Sequence[Entries], groups: Groups, changes: Changes | None) -> None:
        """The records of a layer: its blocks and its head."""
        numbers = iter(range(1 << 32))
        head = write_layer(parts, groups, changes, lambda data: self.add(_block_key(of, next(numbers)), data))
        self.add(_HEADS + of, head.to_bytes())

    def add_witness(self, of: str, witness: Witness) -> None:
        """The witness of a layer."""
        self.add(_WITNESSES + of, witness.to_bytes())

    def encoded(self, form: RecordForm) -> Records:
        """The records as the metadata table stores them."""
        count = len(self._keys)
        columns = [
            pa.array(self._keys, pa.string()),
            pa.repeat(pa.scalar(RECORD_TYPE), count),
            pa.repeat(pa.scalar(self.instant), count),
            pa.array(self._values, pa.binary()),
            pa.repeat(pa.scalar(False), count),
        ]
        return Records.upserts(*bloom_filters.encode(pa.Table.from_arrays(columns, schema=bloom_filters.SCHEMA), form))


def _block_key(of: str, number: int) -> str:
    return f"{_BLOCKS}{of}|{number:08x}"


@dataclass(frozen=True, eq=False)
class StoredIndex:
    """The records of a vector index in a metadata table; each is read when it is needed."""

    metadata: MetadataLookups
    partition: str
    _layered: dict[tuple[str, ...], LayeredIndex] = field(default_factory=dict, repr=False)

    @once
    def coder(self) -> Coder:
        """The coder of the index: its shape and its centroids."""
        centroids = self._beginning_with(_CENTROIDS)
        return Coder(
            IndexShape.from_bytes(self._record(_SHAPE)),
            Centroids.from_records([centroids[key] for key in sorted(centroids)]),
        )

    @once
    def base(self) -> Witness:
        """The witness of the build."""
        return Witness.of(self._record(_BASE))

    @once
    def witnesses(self) -> Mapping[str, Witness]:
        """The witnesses of layers, by the instant of the commit, for a repair with its number."""
        stored = self._beginning_with(_WITNESSES)
        return {key.removeprefix(_WITNESSES): Witness.of(data) for key, data in stored.items()}

    def coverage(self, snapshot: Snapshot) -> Coverage:
        """The commits and file groups of a view that the index covers and lacks."""
        return coverage(snapshot, self.base, self.witnesses)

    def layered(self, snapshot: Snapshot) -> LayeredIndex:
        """The index as of a view: the layer of the build, and those of commits that are in the view and not in the
        build."""
        heads, built = self._heads, {*self.base.instants}
        names = tuple(
            of for of in heads if of == BUILD or (of not in built and snapshot.is_visible(instant_of_layer(of)))
        )
        if names not in self._layered:
            self._layered[names] = LayeredIndex(
                self.coder, [Layer(of, heads[of], partial(self._blocks, of)) for of in names]
            )
        return self._layered[names]

    @once
    def _heads(self) -> Mapping[str, LayerHead]:
        """The heads of the layers by name, in the order in which the layers count."""
        stored = self._beginning_with(_HEADS)
        if _HEADS + BUILD not in stored:
            raise self._lost(_HEADS + BUILD)
        return {key.removeprefix(_HEADS): LayerHead.from_bytes(stored[key]) for key in sorted(stored)}

    def name_of_repair(self, instant: str) -> str:
        """A name for a new layer of a repair after this instant."""
        used = [of for of in self.witnesses if instant_of_layer(of) == instant]
        return f"{instant}{REPAIR}{len(used)}"

    def _blocks(self, of: str, numbers: Sequence[int]) -> list[bytes]:
        keys = [_block_key(of, number) for number in numbers]
        stored = self._small_layers if of in self._small else self._lookup(keys)
        for key in keys:
            if key not in stored:
                raise self._lost(key)
        return [stored[key] for key in keys]

    @once
    def _small(self) -> frozenset[str]:
        """The layers of commits of few rows: their blocks are read together, since a look-up for each layer would take
        longer than all of their bytes."""
        return frozenset(of for of, head in self._heads.items() if of != BUILD and head.rows <= _SMALL_LAYER)

    @once
    def _small_layers(self) -> Mapping[str, Any]:
        return self._bytes_by_key(
            self.metadata.beginning_with(self.partition, [f"{_BLOCKS}{of}|" for of in sorted(self._small)])
        )

    def _record(self, key: str) -> bytes:
        stored = self._lookup([key])
        if key not in stored:
            raise self._lost(key)
        return stored[key]

    def _lookup(self, keys: Sequence[str]) -> dict[str, Any]:
        return self._bytes_by_key(self.metadata.lookup(self.partition, pa.array(keys, pa.string())))

    def _beginning_with(self, prefix: str) -> dict[str, Any]:
        return self._bytes_by_key(self.metadata.beginning_with(self.partition, [prefix]))

    def _bytes_by_key(self, rows: pa.Table | None) -> dict[str, Any]:
        """The bytes of records by key."""
        if rows is None:
            return {}
        is_of_index: Any = pc.and_(pc.equal(rows["type"], RECORD_TYPE), pc.invert(rows["is_deleted"]))
        records: Any = rows.filter(is_of_index)
        keys = plain_strings(records["key"]).cast(pa.string()).to_pylist()
        values = (value for chunk in records["bloom"].chunks for value in chunk)
        return {key: memoryview(value.as_buffer()) for key, value in zip(keys, values, strict=True)}

    def _lost(self, key: str) -> CorruptFile:
        return CorruptFile(
            f"the index {self.partition} has lost the record {key!r}",
            hint=f"Build it again: t.indexes.repair({self.partition!r}).",
            context={"index": self.partition, "key": key},
        )


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
    key = (StoredIndex, partition)
    if key not in metadata.opened_indexes:
        metadata.opened_indexes[key] = StoredIndex(metadata, partition)
    return metadata.opened_indexes[key]


def open_index(stored: StoredIndex, snapshot: Snapshot) -> OpenedIndex:
    """The index of a view that it covers, at least in part."""
    return OpenedIndex(stored.partition, stored.layered(snapshot), len(stored.coder.centroids))


def expected_rows(snapshot: Snapshot, column: str, kind: pa.DataType) -> pa.Table:
    """A row for each row of the table with a vector."""
    return joined([_compared(rows) for rows in _stored_rows(snapshot, column, kind)])


def lacking_commits(stored: StoredIndex, snapshot: Snapshot) -> pa.Table:
    """A row for each commit that the index lacks. Raises `CorruptFile` for an index that must be built again."""
    instants = _usable(stored, snapshot)
    labels = pa.array([f"{COMMIT} {time}" for time in instants], pa.string())
    entries, texts = (pa.repeat(pa.scalar(text), len(instants)) for text in (COMMIT, ""))
    return pa.Table.from_arrays([pa.array(instants, pa.string()), entries, labels, texts], schema=COMPARED)


def indexed_rows(stored: StoredIndex, snapshot: Snapshot) -> pa.Table:
    """The rows of the table with a vector for which the index has an entry in the cluster of the vector."""
    _usable(stored, snapshot)
    entries: list[npt.NDArray[np.uint64]] = [np.empty(0, np.uint64)]

    def collect(folded: Entries) -> Entries:
        entries.append(_marks(folded.hashes, folded.coded.clusters))
        return folded

    stored.layered(snapshot).fold(lambda data: None, collect)
    marks = np.unique(np.concatenate(entries))
    parts: list[pa.Table] = []
    shape = stored.coder.shape
    for rows in _stored_rows(snapshot, shape.column, vector_kind(shape)):
        hashes = row_hashes(rows.keys, rows.partition)
        is_there = np.zeros(len(hashes), np.bool_)
        for clusters, is_near in _near_clusters(stored.coder, rows):
            is_there |= np.isin(_marks(hashes, clusters), marks) & is_near
        parts.append(_compared(rows).filter(pa.array(is_there)))
    return joined(parts)


def _usable(stored: StoredIndex, snapshot: Snapshot) -> list[str]:
    """The commits that the index lacks. Raises `CorruptFile` for an index that must be built again."""
    covered = stored.coverage(snapshot)
    if covered.reason is not None:
        raise CorruptFile(
            f"the index {stored.partition} does not fit the table: {covered.reason}",
            hint=f"Build it again: t.indexes.repair({stored.partition!r}).",
            context={"index": stored.partition},
        )
    return [gap.instant for gap in covered.gaps]


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
