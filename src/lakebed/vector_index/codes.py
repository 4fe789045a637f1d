"""Vectors as codes: how a vector is rotated and rounded, and how its distance to a query is estimated from its code.

A vector is the centroid of its cluster and what is left, the residual. The elements of the residual are rounded to 8
or 4 bits by its largest element. The product of a query with the residual is then the product with the code, times a
factor that makes it right along the residual. The rotation spreads what is in few elements over all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lakebed.vector_index.centroids import Centroids, Floats, Numbers, found_centroids, products, random_words
from lakebed.vector_index.lengths import row_lengths, unit_vectors
from lakebed.vector_index.shape import IndexShape

Codes = npt.NDArray[np.uint8]
Matrix = npt.NDArray[Any]
_MAX_NUMBER, _HALF_STEPS_4 = np.float32(127), np.float32(7.5)
# Elements of a scaled vector are cut to these, so that their squares have numbers of 32 bits.
_MAX_ELEMENT: Final = 1e12
_MAX_EXPONENT: Final = 1000
_BLOCK_ROWS: Final = 1 << 12
# So many queries are compared with a cluster by one product of matrices, of numbers that have no more than 24 bits.
_SEVERAL: Final = 4
_EXACT_DIMENSION: Final = 1040


@dataclass(frozen=True, eq=False)
class Coded:
    """Vectors as codes: the cluster of each, the bytes of its code (a row of a matrix), its factor, and for the metric
    l2 a norm: the square of its distance from the middle of all centroids, less that of its centroid."""

    clusters: npt.NDArray[np.integer[Any]]
    codes: Codes
    factors: Floats
    norms: Floats

    def __len__(self) -> int:
        return len(self.factors)

    def take(self, rows: Any) -> Coded:
        """The vectors with these row numbers, or those of a slice."""
        norms = self.norms[rows] if len(self.norms) else self.norms
        return Coded(self.clusters[rows], self.codes[rows], self.factors[rows], norms)

    @staticmethod
    def together(parts: Sequence[Coded]) -> Coded:
        """The vectors of all parts, of which there is at least one, in order."""
        if len(parts) == 1:
            return parts[0]
        return Coded(
            np.concatenate([part.clusters for part in parts]),
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.factors for part in parts]),
            np.concatenate([part.norms for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class RoundedQueries:
    """Queries as whole numbers of 8 bits: an element is its number times the step of its query."""

    numbers: npt.NDArray[np.int8]
    steps: Floats

    @classmethod
    def of(cls, queries: Floats) -> RoundedQueries:
        largest = np.abs(queries).max(axis=1, initial=0)
        largest[largest == 0] = 1
        numbers = np.rint(queries * (_MAX_NUMBER / largest)[:, None]).astype(np.int8)
        return cls(numbers, largest / _MAX_NUMBER)

    def take(self, rows: Any) -> RoundedQueries:
        """The queries with these row numbers."""
        return RoundedQueries(self.numbers[rows], self.steps[rows])


@dataclass(frozen=True)
class Coder:
    """Makes vectors of one index into codes, and estimates distances from codes."""

    shape: IndexShape
    centroids: Centroids
    _middle: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # what the metric l2 takes off all vectors, so that their products are small
        is_l2 = self.shape.metric == "l2"
        middle = self.centroids.matrix.mean(axis=0) if is_l2 else np.zeros(self.shape.dimension, np.float32)
        object.__setattr__(self, "_middle", middle)

    def encode(self, vectors: Matrix) -> Coded:
        """The codes of vectors, which are the rows of a matrix of the column's element type."""
        parts = [self._encoded(vectors[at : at + _BLOCK_ROWS]) for at in range(0, max(1, len(vectors)), _BLOCK_ROWS)]
        return Coded.together(parts)

    def _encoded(self, vectors: Matrix) -> Coded:
        prepared = prepared_vectors(self.shape, vectors)
        clusters = self.centroids.nearest(prepared)
        residuals = prepared - self.centroids.matrix[clusters]
        largest = np.abs(residuals).max(axis=1, initial=0)[:, None]
        largest[largest == 0] = 1
        if self.shape.bits == 8:
            numbers = np.rint(residuals * (_MAX_NUMBER / largest))
            codes = numbers.astype(np.int8).view(np.uint8)
        else:
            steps = np.clip(np.floor(residuals * (_HALF_STEPS_4 / largest)) + 8, 0, 15).astype(np.uint8)
            numbers = steps - _HALF_STEPS_4
            codes = pack_halves(steps)
        squares = np.einsum("ij,ij->i", residuals, residuals)
        shares = np.einsum("ij,ij->i", residuals, numbers)
        factors = np.divide(squares, shares, out=np.zeros(len(squares), np.float32), where=shares > 0)
        norms = np.empty(0, np.float32)
        if self.shape.metric == "l2":
            norms = squares + 2 * np.einsum("ij,ij->i", residuals, self.centroids.matrix[clusters] - self._middle)
        return Coded(clusters, codes, factors, norms)

    def prepared(self, queries: Matrix) -> Floats:
        """Queries as this index compares them: scaled and rotated, for the metric cosine with the length 1."""
        return prepared_vectors(self.shape, queries)

    def nearness(self, queries: Floats) -> Floats:
        """How near each centroid is to each prepared query: the nearest cluster has the largest number."""
        near = products(queries, self.centroids.matrix)
        return near if self.shape.metric == "dot_product" else near - self.centroids.half_squares

    def rounded(self, queries: Floats) -> RoundedQueries:
        """Prepared queries as whole numbers, for `distances`."""
        return RoundedQueries.of(queries - self._middle)

    def distances(
        self, clusters: Numbers, counts: Numbers, queries: Floats, rounded: RoundedQueries, coded: Coded
    ) -> Floats:
        """The estimated distances of prepared queries to vectors: a row for each query, a column for each vector. The
        first vectors, as many as the first of `counts`, are in the first of `clusters`, and so on."""
        codes, centres = coded.codes, self.centroids.matrix[clusters]
        numbers = codes.view(np.int8) if self.shape.bits == 8 else unpack_halves(codes, self.shape.dimension)
        estimates = dots(numbers, rounded.numbers)
        if self.shape.bits == 4:
            estimates -= _HALF_STEPS_4 * rounded.numbers.sum(axis=1, dtype=np.int32)[:, None]
        estimates = estimates.astype(np.float32)
        estimates *= coded.factors
        if self.shape.metric == "l2":
            apart = queries[:, None] - centres
            estimates *= -2 * rounded.steps[:, None]
            estimates += coded.norms
            estimates += np.repeat(np.einsum("ijk,ijk->ij", apart, apart), counts, axis=1)
            np.maximum(estimates, 0, out=estimates)
            return np.sqrt(estimates, out=estimates)
        estimates *= -rounded.steps[:, None]
        starts = np.float32(self.shape.metric == "cosine") - np.einsum("ik,jk->ij", queries, centres)
        estimates += np.repeat(starts, counts, axis=1)
        return estimates

    def in_units(self, distances: Floats) -> npt.NDArray[np.float64]:
        """Estimated distances in the units of the vectors, which have not been scaled."""
        in_units = distances.astype(np.float64)
        with np.errstate(over="ignore", under="ignore"):
            for _ in range({"cosine": 0, "l2": 1, "dot_product": 2}[self.shape.metric]):
                in_units /= self.shape.scale
        return in_units


def trained(shape: IndexShape, sample: Matrix) -> Coder:
    """A coder whose centroids fit a sample of vectors: the rows of a matrix of the column's element type.

    `shape.clusters` are found, or as many as there are rows; the shape of the coder has the number, and the scale of
    the vectors.
    """
    shape = replace(shape, scale=1.0 if shape.metric == "cosine" else scale_of(sample))
    prepared = prepared_vectors(shape, sample)
    centroids = found_centroids(prepared, shape.clusters, shape.seed)
    return Coder(replace(shape, clusters=len(centroids)), centroids)


def prepared_vectors(shape: IndexShape, vectors: Matrix) -> Floats:
    """Vectors as an index compares them: scaled and rotated, for the metric cosine with the length 1; a vector of zeros
    stays one."""
    parts: list[Floats] = []
    turned = rotation(shape.dimension, shape.seed)
    for at in range(0, max(1, len(vectors)), _BLOCK_ROWS):
        block = np.asarray(vectors[at : at + _BLOCK_ROWS], np.float64)
        if shape.metric == "cosine":
            block = unit_vectors(block)
        else:
            with np.errstate(over="ignore"):
                block = np.clip(block * shape.scale, -_MAX_ELEMENT, _MAX_ELEMENT)
        parts.append(products(block.astype(np.float32), turned))
    return np.concatenate(parts)


def scale_of(sample: Matrix) -> float:
    """A power of two by which the vectors of a sample get lengths around one.

    >>> scale_of(np.float64([[3, 4], [0, 0]]))
    0.25
    """
    sizes = row_lengths(np.asarray(sample, np.float64))
    sizes = sizes[(sizes > 0) & (sizes < np.inf)]
    exponent = -int(np.floor(np.log2(np.median(sizes)))) if len(sizes) else 0
    return 2.0 ** max(-_MAX_EXPONENT, min(_MAX_EXPONENT, exponent))


@lru_cache(maxsize=8)
def rotation(dimension: int, seed: int) -> Floats:
    """A rotation by random numbers, equal for an equal seed on all machines but for rounding."""
    uniform = random_words(dimension * dimension, seed).astype(np.float64) / 2.0**64 - 0.5
    turned, triangle = np.linalg.qr(uniform.reshape(dimension, dimension))
    return np.ascontiguousarray(turned * np.where(np.diag(triangle) < 0, -1.0, 1.0), np.float32)


def dots(codes: npt.NDArray[np.int8], queries: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
    """The products of whole numbers without rounding: a row for each query, a column for each code.

    >>> dots(np.int8([[1, 2], [-3, 4]]), np.int8([[10, -1]])).tolist()
    [[8.0, -34.0]]
    """
    native = _native_dots()
    if native is not None and codes.size and queries.size:
        return native(codes, queries)
    if len(queries) >= _SEVERAL and codes.shape[1] <= _EXACT_DIMENSION:
        return products(queries.astype(np.float32), codes.astype(np.float32)).astype(np.float64)
    products_of_queries = [np.einsum("ij,j->i", codes, query) for query in queries.astype(np.int32)]
    return np.array(products_of_queries, np.float64).reshape(len(queries), len(codes))


@lru_cache(maxsize=1)
def _native_dots() -> Callable[[npt.NDArray[np.int8], npt.NDArray[np.int8]], npt.NDArray[np.float64]] | None:
    """The products by `numkong`, which is several times as fast as numpy; None where it is not installed."""
    try:
        import numkong
    except ImportError:
        return None
    return lambda codes, queries: np.asarray(numkong.cdist(queries, codes, "dot"))


def pack_halves(steps: Codes) -> Codes:
    """Two numbers of 4 bits in each byte: an element of the first half of a row with one of the second.

    >>> pack_halves(np.uint8([[1, 2, 3]])).tolist(), unpack_halves(np.uint8([[49, 2]]), 3).tolist()
    ([[49, 2]], [[1, 2, 3]])
    """
    half = -(-steps.shape[1] // 2)
    codes = steps[:, :half].copy()
    codes[:, : steps.shape[1] - half] |= steps[:, half:] << 4
    return codes


def unpack_halves(codes: Codes, dimension: int) -> npt.NDArray[np.int8]:
    """The numbers of 4 bits in the bytes of codes, a row for each code."""
    half = codes.shape[1]
    steps = np.empty((len(codes), dimension), np.uint8)
    np.bitwise_and(codes, 15, out=steps[:, :half])
    np.right_shift(codes[:, : dimension - half], 4, out=steps[:, half:])
    return steps.view(np.int8)
