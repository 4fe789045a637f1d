"""Fresh values of the meta columns, made as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GroupOfRows, Task
from lakebed.model import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    INSERT_OPERATION,
    META_COLUMNS,
    OPERATION_COLUMN,
    PARTITION_PATH,
    RECORD_KEY,
    UPDATE_OPERATION,
)

_SEPARATOR = pa.scalar("_", pa.string())
# The codes of columns that have one value in few rows: to make them takes longer than to cut them.
MAX_CUT_ROWS = 1 << 12
_ZEROS = pa.array(np.zeros(MAX_CUT_ROWS, np.int32))


def constant(value: str, rows: int) -> pa.DictionaryArray:
    """A column with one value in every row, without a string per row."""
    codes = _ZEROS.slice(0, rows) if rows <= MAX_CUT_ROWS else pa.array(np.zeros(rows, np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array([value], pa.string()))


def sequence_numbers(instant: str, task: Task, rows: int) -> pa.Array:
    """Unique `_hoodie_commit_seqno` values: instant, task partition, running number."""
    first = task.take(rows)
    return numbered_texts(f"{instant}_{task.partition}_", first, rows)


def numbered_texts(prefix: str, first: int, rows: int) -> pa.Array:
    """Texts that begin with `prefix` and end with a running number from `first` on.

    >>> numbered_texts("a", 9, 2).to_pylist()
    ['a9', 'a10']
    """
    start, end = np.frombuffer(prefix.encode(), np.uint8), first + rows
    parts: list[npt.NDArray[np.uint8]] = []
    widths: list[npt.NDArray[np.int32]] = []
    while first < end:
        digits = len(str(first))
        stop = min(end, 10**digits)
        texts = np.empty((stop - first, len(start) + digits), np.uint8)
        texts[:, : len(start)] = start
        # NumPy divides short numbers several at a time
        numbers = np.arange(first, stop, dtype=np.uint32 if stop <= 1 << 32 else np.uint64)
        for at in range(len(start) + digits - 1, len(start) - 1, -1):
            tens = numbers // 10
            texts[:, at] = numbers - 10 * tens + ord("0")
            numbers = tens
        parts.append(texts.reshape(-1))
        widths.append(np.full(stop - first, texts.shape[1], np.int32))
        first = stop
    if not parts:
        return pa.array([], pa.string())
    offsets = np.concatenate([np.zeros(1, np.int32), *widths]).cumsum(dtype=np.int32)
    data = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@dataclass(frozen=True, slots=True)
class FreshMeta:
    """The meta columns of rows that a task writes to one partition path.

    `schema` has all columns of the file, meta columns among them; without `populated` the first five are null. Where
    `_hoodie_operation` is one of them, new rows have `I` there, and rows as they are after an update `U`.
    """

    schema: pa.Schema
    instant: str
    partition: str
    task: Task
    populated: bool = True

    def commit_columns(self, rows: int) -> dict[str, pa.Array]:
        """The commit time and sequence number columns for `rows` rows."""
        return {
            COMMIT_TIME: constant(self.instant, rows),
            COMMIT_SEQNO: sequence_numbers(self.instant, self.task, rows),
        }

    def with_meta(
        self, keys: pa.Array, rows: pa.RecordBatch, operation: str = INSERT_OPERATION, *, updates: int = 0
    ) -> pa.RecordBatch:
        """New rows in the file's schema; the file's name is added when they are written. `operation` is the operation
        of all rows after the first `updates`, which are updates."""
        n = rows.num_rows
        if self.populated:
            meta: dict[str, pa.Array] = {
                **self.commit_columns(n),
                RECORD_KEY: keys,
                PARTITION_PATH: constant(self.partition, n),
                FILE_NAME: pa.nulls(n, pa.string()),
            }
        else:
            meta = _unpopulated(n)
        if OPERATION_COLUMN in self.schema.names:
            meta[OPERATION_COLUMN] = pa.concat_arrays(
                [operations(UPDATE_OPERATION, updates), operations(operation, n - updates)]
            )
        return _in_front(meta, rows, self.schema)


@dataclass(frozen=True, slots=True)
class MetaOfGroups:
    """The meta columns of rows for the log files of several file groups, with the file id of each. `schema` and
    `populated` are as in `FreshMeta`."""

    schema: pa.Schema
    instant: str
    groups: Sequence[GroupOfRows]
    file_ids: Sequence[str]
    populated: bool = True

    def with_meta(self, codes: npt.NDArray[np.int32], keys: pa.Array, rows: pa.RecordBatch) -> pa.RecordBatch:
        """New rows in the file's schema, with the meta columns that `FreshMeta.with_meta` makes for each group; `codes`
        are the group numbers of the rows, in ascending order."""
        if not self.populated:
            return _in_front(_unpopulated(rows.num_rows), rows, self.schema)
        counts = np.bincount(codes, minlength=len(self.groups))
        first = [group.task.take(count) for group, count in zip(self.groups, counts.tolist(), strict=True)]
        numbers = np.arange(rows.num_rows) - (np.cumsum(counts) - counts - first)[codes]
        prefixes = pa.array([f"{self.instant}_{group.task.partition}" for group in self.groups], pa.string())
        partitions = pa.array([group.partition for group in self.groups], pa.string())
        meta: dict[str, pa.Array] = {
            COMMIT_TIME: constant(self.instant, rows.num_rows),
            COMMIT_SEQNO: pc.binary_join_element_wise(
                prefixes.take(pa.array(codes)), pa.array(numbers).cast(pa.string()), _SEPARATOR
            ),
            RECORD_KEY: keys,
            PARTITION_PATH: pa.DictionaryArray.from_arrays(codes, partitions),
            FILE_NAME: pa.DictionaryArray.from_arrays(codes, pa.array(self.file_ids, pa.string())),
        }
        return _in_front(meta, rows, self.schema)


def _unpopulated(rows: int) -> dict[str, pa.Array]:
    return {name: pa.nulls(rows, pa.string()) for name in META_COLUMNS}


def operations(operation: str, rows: int) -> pa.Array:
    """The values of `_hoodie_operation` for `rows` rows."""
    return pa.repeat(pa.scalar(operation, pa.string()), rows)


def _in_front(meta: Mapping[str, pa.Array], rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [meta[f.name] if f.name in meta else rows.column(f.name) for f in schema]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)
