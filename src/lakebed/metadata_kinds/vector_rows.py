"""The vectors of rows, for a vector index: those that an action wrote, and those of file slices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.metadata_kinds.base import TableAction
from lakebed.metadata_kinds.written_rows import ColumnRows, WrittenRows, rows_of_slices
from lakebed.model import FileSlice
from lakebed.schema.logical_types import is_vector, vector, vector_matrix, vector_size, vectors_of_bytes
from lakebed.slices.reader import SliceReader
from lakebed.vector_index.shape import IndexShape

Matrix = npt.NDArray[Any]
# Vectors that are decoded at a time.
_BATCH_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class VectorRows:
    """Rows of one file group: their record keys, their vectors (a matrix with a row for each key), the keys of rows
    that this replaces for certain, whose earlier vectors do not count any more, and the positions of the rows in the
    base file (None: they are in no base file, or may be in another one)."""

    partition: str
    file_id: str
    keys: pa.Array
    vectors: Matrix
    replaced: pa.Array
    positions: npt.NDArray[np.int64] | None = None


class WrittenVectors:
    """The rows of a vector column that one action wrote, file group by file group."""

    def __init__(self, action: TableAction, column: str, kind: pa.DataType) -> None:
        self._rows, self._kind = WrittenRows(action, column, _batch_rows(kind)), kind

    def __iter__(self) -> Iterator[VectorRows]:
        yield from (_with_vectors(rows, self._kind) for rows in self._rows)

    def deleted(self) -> Iterator[tuple[str, pa.Array, bool]]:
        """The partition paths and keys of rows that the action deletes, and whether they are deleted for certain."""
        yield from self._rows.deleted()


def vectors_of_slices(
    reader: SliceReader, slices: Sequence[FileSlice], instants: Collection[str] | None, column: str, kind: pa.DataType
) -> Iterator[VectorRows]:
    """The rows with a vector in these slices that some instants wrote, or (None) all of them."""
    for rows in rows_of_slices(reader, slices, instants, column, _batch_rows(kind)):
        yield _with_vectors(rows, kind)


def _with_vectors(rows: ColumnRows, kind: pa.DataType) -> VectorRows:
    vectors = empty(kind) if rows.values is None else matrix(rows.values, kind)
    return VectorRows(rows.partition, rows.file_id, rows.keys, vectors, rows.replaced, rows.positions)


def _batch_rows(kind: pa.DataType) -> int:
    return max(1, min(1 << 16, _BATCH_BYTES // vector_size(kind)))


def matrix(vectors: pa.Array, kind: pa.DataType) -> Matrix:
    """Vectors without nulls, or their bytes as a file holds them, as a matrix of the column's elements."""
    if not len(vectors):
        return empty(kind)
    return vector_matrix(vectors if is_vector(vectors.type) else vectors_of_bytes(vectors, kind))


def empty(kind: pa.DataType) -> Matrix:
    """No vectors."""
    return np.empty((0, kind.list_size), kind.value_type.to_pandas_dtype())


def vector_kind(shape: IndexShape) -> pa.DataType:
    """The type of the column that an index of this shape is on."""
    element: Any = shape.element
    return vector(shape.dimension, element)
