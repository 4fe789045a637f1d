"""The centroids of clusters: how they are found, and which cluster a vector is in.

Products of matrices run in stacks of small ones: for a large one the libraries of numpy start threads, which spin while
they wait for each other and cost several times the processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from lakebed.errors import CorruptFile
from lakebed.vector_index.frame import Kind, pack, unpack
from lakebed.vector_index.shape import sample_rows

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
_KIND: Final = Kind(b"LVIC", 1, "a list of centroids")
_RECORD_BYTES: Final = 1 << 20
# OpenBLAS takes threads for products of matrices of more multiplications.
_ONE_THREAD: Final = 1 << 18
_STACKED_ELEMENTS: Final = 1 << 13
_BLOCK_ROWS: Final = 1 << 12
_ROUNDS: Final = 8


def products(left: Floats, right: Floats) -> Floats:
    """The products of all rows of two matrices: a row for each row of `left`, a column for each of `right`.

    >>> products(np.eye(2, dtype=np.float32), np.float32([[1, 2], [3, 4], [5, 6]])).tolist()
    [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
    """
    rows, size = left.shape
    if rows * len(right) * size <= _ONE_THREAD:
        return left @ right.T
    height = max(1, min(_STACKED_ELEMENTS // size, rows))
    width = max(1, _ONE_THREAD // size // height)
    stacks = -(-rows // height)
    if rows < stacks * height:
        left = np.concatenate([left, np.zeros((stacks * height - rows, size), np.float32)])
    stacked = left.reshape(stacks, height, size)
    result = np.empty((stacks, height, len(right)), np.float32)
    for start in range(0, len(right), width):
        np.matmul(stacked, right[start : start + width].T, out=result[:, :, start : start + width])
    return result.reshape(stacks * height, -1)[:rows]


@dataclass(frozen=True)
class Centroids:
    """The centre of each cluster, as the rows of a matrix of vectors that `Coder.prepared` returned."""

    matrix: Floats
    half_squares: Floats = field(init=False, repr=False)
    """Half of the square of the length of each centroid."""

    def __post_init__(self) -> None:
        squares = np.einsum("ij,ij->i", self.matrix, self.matrix)
        object.__setattr__(self, "half_squares", squares * np.float32(0.5))

    def __len__(self) -> int:
        return len(self.matrix)

    def nearest(self, vectors: Floats) -> Numbers:
        """The number of the cluster whose centroid is nearest to each vector."""
        clusters = np.empty(len(vectors), np.int64)
        for start in range(0, len(vectors), _BLOCK_ROWS):
            near = products(vectors[start : start + _BLOCK_ROWS], self.matrix)
            near -= self.half_squares
            near.argmax(axis=1, out=clusters[start : start + _BLOCK_ROWS])
        return clusters

    def to_records(self) -> list[bytes]:
        """The centroids as bytes of at most 1 MB each, in order."""
        size = self.matrix.shape[1]
        step = max(1, _RECORD_BYTES // (4 * size))
        parts = [self.matrix[start : start + step] for start in range(0, len(self.matrix), step)]
        return [pack(_KIND, [np.array([n, len(parts), size], np.uint32), part]) for n, part in enumerate(parts)]

    @classmethod
    def from_records(cls, records: Sequence[bytes | memoryview]) -> Centroids:
        """The centroids in all records of an index, in their order. Raises `CorruptFile` for damaged, missing and
        repeated records."""
        columns = [unpack(_KIND, record) for record in records]
        for number, (head, _) in enumerate(columns):
            if head[0] != number or head[1] != len(records):
                raise CorruptFile(
                    f"record {number} of {len(records)} with the centroids of a vector index is number {head[0]} of"
                    f" {head[1]}",
                    hint="Build the vector index again.",
                    context={},
                )
        if not columns:
            raise CorruptFile("a vector index has no centroids", hint="Build the vector index again.", context={})
        return cls(np.concatenate([part.reshape(-1, int(head[2])) for head, part in columns]))


def found_centroids(sample: Floats, clusters: int, seed: int) -> Centroids:
    """Centroids of at most so many clusters by k-means over a sample of vectors, equal for an equal sample and seed.

    A sample of more than 64 rows for each cluster is thinned out. Fewer rows than clusters make a cluster of each row;
    no rows make one cluster around zeros.
    """
    if not len(sample):
        return Centroids(np.zeros((1, sample.shape[1]), np.float32))
    order = _shuffled(len(sample), seed)
    clusters = min(clusters, len(sample))
    sample = sample[np.sort(order[: sample_rows(clusters)])] if len(order) > sample_rows(clusters) else sample
    order = _shuffled(len(sample), seed)
    matrix = sample[order[:clusters]].copy()
    for number in range(_ROUNDS if clusters < len(sample) else 0):
        nearest = Centroids(matrix).nearest(sample)
        by_cluster = np.argsort(nearest, kind="stable")
        counts = np.bincount(nearest, minlength=clusters)
        starts = np.cumsum(counts) - counts
        full = counts > 0
        matrix[full] = np.add.reduceat(sample[by_cluster], starts[full], axis=0) / counts[full, None]
        empty = np.flatnonzero(~full)
        # a cluster that lost all of its rows begins again at another row
        matrix[empty] = sample[order[(np.arange(len(empty)) + (number + 1) * clusters) % len(order)]]
    return Centroids(np.ascontiguousarray(matrix, np.float32))


def random_words(count: int, seed: int) -> npt.NDArray[np.uint64]:
    """Random numbers of 64 bits, which are equal in all releases of numpy."""
    return np.random.PCG64(seed).random_raw(count)


def _shuffled(count: int, seed: int) -> Numbers:
    return np.argsort(random_words(count, seed), kind="stable")
