"""The vectors of rows, for a vector index: those that an action wrote, those that commits without a layer wrote, and
all of a table.

A row of a base file was written by an action if its `_hoodie_commit_time` is that of the action. No row is read that
was there before, and none of another file group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.file_names import parse_log_file
from lakebed.format.hashes import plain_strings
from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds.base import TableAction
from lakebed.metadata_kinds.key_changes import ActionKeys
from lakebed.metadata_kinds.stored import base_slice
from lakebed.metadata_kinds.vector_coverage import SERVICES
from lakebed.model import COMMIT_TIME, RECORD_KEY, FileSlice
from lakebed.schema.logical_types import is_vector, vector, vector_matrix, vector_size, vectors_of_bytes
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.reader import SliceReader
from lakebed.vector_index.shape import IndexShape
from lakebed.write_status import WriteStatus

Matrix = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]
Placed = tuple[pa.RecordBatch, Positions | None]
# Vectors that are decoded at a time.
_BATCH_BYTES = 16 << 20
_NEW_ROWS = ("INSERT", "INSERT_PREPPED", "BULK_INSERT", "BULK_INSERT_PREPPED", "BOOTSTRAP")


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
    """The rows of a vector column that one action wrote, file group by file group.

    A row in a log file may lose against an earlier one, and a column of it may come from an earlier row: it replaces
    none for certain, unless the later row always wins as a whole.
    """

    def __init__(self, action: TableAction, column: str, kind: pa.DataType) -> None:
        self._action, self._column, self._kind = action, column, kind
        blocks = action.snapshot.reader.blocks.with_writer_of(action.instant).of_instants({action.instant})
        self._reader = replace(action.snapshot.reader, blocks=blocks)
        rules = MergeRules.of_table(action.snapshot.config)
        self._later_wins = rules.picks_winners and not rules.ordering and not rules.partial
        self._merges = not rules.picks_winners
        self._is_insert = action.commit.operation.upper() in _NEW_ROWS

    def __iter__(self) -> Iterator[VectorRows]:
        if self._action.commit.operation.upper() in SERVICES:
            return
        for status in self._action.statuses:
            if status.path is None:
                continue
            batches = self._logged(status) if status.log_files is not None else self._stored(status)
            yield from (self._rows(status, *placed) for placed in batches)

    def removed(self) -> Iterator[tuple[str, pa.Array]]:
        """The partition paths and the keys of rows that the action deletes, as far as it is known which they are: those
        of replaced file groups, and those that tasks report for indexes of keys."""
        if self._action.commit.operation.upper() in SERVICES:
            return
        keys = self._action.shared(ActionKeys)
        for file_slice in keys.replaced:
            for batch in self._action.snapshot.reader.read(file_slice, [RECORD_KEY]):
                yield file_slice.partition, plain_strings(batch.column(RECORD_KEY))

    def _stored(self, status: WriteStatus) -> Iterator[Placed]:
        """The rows of a base file that the action wrote. Where rows are merged, a row with an earlier time may have got
        the vector of a later one: all rows of the file are taken."""
        assert status.path is not None
        file_slice = base_slice(status.partition, status.file_id, status.path, status.file_size)
        reader = self._action.snapshot.reader
        instants = None if self._merges else {self._action.instant}
        yield from rows_of_instants(reader, file_slice, instants, self._column, self._kind)

    def _logged(self, status: WriteStatus) -> Iterator[Placed]:
        """The rows of a log file that the action wrote, one for each key."""
        assert status.path is not None
        log = parse_log_file(status.partition, status.path.rpartition("/")[2], status.file_size)
        if log is None:
            return
        file_slice = FileSlice(status.partition, status.file_id, "", None, (log,))
        for batch in self._reader.read(file_slice, [RECORD_KEY, self._column]):
            yield batch, None

    def _rows(self, status: WriteStatus, batch: pa.RecordBatch, positions: Positions | None) -> VectorRows:
        keys = plain_strings(batch.column(RECORD_KEY))
        none = keys.slice(0, 0)
        is_log = status.log_files is not None
        if self._column not in batch.schema.names:  # a partial update of other columns
            return VectorRows(status.partition, status.file_id, none, empty(self._kind), none)
        replaced = none if self._is_insert or (is_log and not self._later_wins) else keys
        vectors = batch.column(self._column)
        if vectors.null_count:
            if is_log:  # of a column that the log file lacks all values are null
                replaced = replaced.filter(vectors.is_valid()) if len(replaced) else replaced
            keys, vectors, positions = _with_vectors(keys, vectors, positions)
        return VectorRows(status.partition, status.file_id, keys, matrix(vectors, self._kind), replaced, positions)


def _with_vectors(
    keys: pa.Array, vectors: pa.Array, positions: Positions | None
) -> tuple[pa.Array, pa.Array, Positions | None]:
    """The rows that have a vector."""
    if not vectors.null_count:
        return keys, vectors, positions
    is_valid = vectors.is_valid()
    positions = None if positions is None else positions[as_numpy(is_valid)]
    return keys.filter(is_valid), vectors.drop_null(), positions


def rows_of_instants(
    reader: SliceReader, file_slice: FileSlice, instants: Collection[str] | None, column: str, kind: pa.DataType
) -> Iterator[Placed]:
    """The record key and the vector of the rows of a slice that these instants wrote, or (None) of all rows, with the
    positions of the rows in the base file; without the column where the slice has none."""
    columns = [RECORD_KEY, column] if instants is None else [COMMIT_TIME, RECORD_KEY, column]
    requested = None if instants is None else pa.array(sorted(instants), pa.string())
    batch_rows = max(1, min(1 << 16, _BATCH_BYTES // vector_size(kind)))
    base, start = file_slice.base_file, 0
    has_positions = base is not None and not base.is_skeleton and not reader.is_merged(file_slice)
    for batch in reader.read(file_slice, columns, batch_rows=batch_rows):
        positions = np.arange(start, start + batch.num_rows)
        start += batch.num_rows
        if requested is not None:
            is_requested = pc.is_in(plain_strings(batch.column(COMMIT_TIME)), value_set=requested)
            batch, positions = batch.filter(is_requested), positions[as_numpy(is_requested)]
        if batch.num_rows:
            yield batch, positions if has_positions else None


def vectors_of_slices(
    reader: SliceReader, slices: Sequence[FileSlice], instants: Collection[str] | None, column: str, kind: pa.DataType
) -> Iterator[VectorRows]:
    """The rows with a vector in these slices that some instants wrote, or (None) all of them."""
    for file_slice in slices:
        for batch, placed in rows_of_instants(reader, file_slice, instants, column, kind):
            if column not in batch.schema.names:
                continue
            keys = plain_strings(batch.column(RECORD_KEY))
            none = keys.slice(0, 0)
            keys, vectors, positions = _with_vectors(keys, batch.column(column), placed)
            yield VectorRows(file_slice.partition, file_slice.file_id, keys, matrix(vectors, kind), none, positions)


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
