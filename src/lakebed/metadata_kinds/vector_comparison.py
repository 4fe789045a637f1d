"""A vector index compared with the rows of its table: each commit has a witness, and each row with a vector has an
entry in the cluster of that vector."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptFile
from lakebed.metadata_kinds.stored import COMPARED, joined
from lakebed.metadata_kinds.vector_rows import VectorRows, vector_kind, vectors_of_slices
from lakebed.metadata_kinds.vector_store import StoredIndex
from lakebed.slices.snapshot import Snapshot
from lakebed.vector_index.codes import Coder
from lakebed.vector_index.entries import Entries, row_hashes

COMMIT = "commit"
"""The `entry` of a compared row that is a commit."""
# Clusters whose centroids are as near as that to a vector may both be taken for the nearest one.
_TIE = 1e-3


def expected_rows(snapshot: Snapshot, column: str, kind: pa.DataType) -> pa.Table:
    """A row for each row of the table with a vector."""
    return joined([_compared(rows) for rows in _stored_rows(snapshot, column, kind)])


def lacking_commits(stored: StoredIndex, snapshot: Snapshot) -> pa.Table:
    """A row for each commit that the index lacks. Raises `CorruptFile` for an index that must be built again."""
    return _commits(_usable(stored, snapshot))


def found_rows(stored: StoredIndex, snapshot: Snapshot) -> pa.Table:
    """Those of the expected rows that the index has."""
    _usable(stored, snapshot)
    entries: list[npt.NDArray[np.uint64]] = [np.empty(0, np.uint64)]

    def collect(some: Entries) -> Entries:
        entries.append(_marks(some.hashes, some.coded.clusters))
        return some

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


def _commits(instants: list[str]) -> pa.Table:
    times = pa.array(instants, pa.string())
    labels = pa.array([f"{COMMIT} {time}" for time in instants], pa.string())
    entries = pa.repeat(pa.scalar(COMMIT), len(times))
    return pa.Table.from_arrays([times, entries, labels, pa.repeat(pa.scalar(""), len(times))], schema=COMPARED)
