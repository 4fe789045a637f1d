"""Formats of base files other than Parquet, behind one interface: how a file is opened, what its footer has, and how
its rows are read.

The name of a file shows its format (`lakebed.format.base_file.other_format`). What readers ask of a Parquet file's
metadata (numbers and sizes of row groups) `GroupSizes` answers for the others, which have no statistics of columns; and
what they ask of Arrow's `ParquetFile`, a `RowGroupReader`. So files of every format go through the same code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from lakebed.format.base_file import Footer
    from lakebed.format.column_ranges import StoredRanges
    from lakebed.storage.base import Storage

Rows = npt.NDArray[np.int64]


class GroupSize(NamedTuple):
    """The rows and bytes of a row group of a file without statistics of columns, in the names of Parquet's metadata."""

    num_rows: int
    total_byte_size: int
    num_columns: int = 0


class BaseFileSink(Protocol):
    """Writes one base file, batch by batch."""

    @property
    def bytes_written(self) -> int:
        """The size of the file so far, without footer."""
        ...

    @property
    def max_bytes(self) -> int:
        """An upper bound of the size."""
        ...

    @property
    def pending_rows(self) -> int:
        """The number of rows that are in no row group yet."""
        ...

    def write(self, data: pa.RecordBatch, *, is_ordinary: bool = False, nbytes: int | None = None) -> None:
        """Append rows, which are `is_ordinary` if they are known to have neither NaN nor long texts, and whose bytes in
        memory are `nbytes`, if these were counted."""
        ...

    def range_row(self) -> pa.RecordBatch | None:
        """The ranges of columns of the closed file; None if they are not computed."""
        ...

    def stored_ranges(self) -> StoredRanges | None:
        """The ranges of columns as the footer of the closed file has them; None if it does not have all of them."""
        ...

    def close(self, footer: Mapping[str, str]) -> int:
        """Write the footer and make the file visible; returns its size."""
        ...

    def abort(self) -> None:
        """Stop writing and remove the file."""
        ...


@dataclass(frozen=True)
class GroupSizes:
    """The row groups and the size of a file without statistics of columns, by the names of Parquet's file metadata."""

    groups: Sequence[GroupSize]
    serialized_size: int
    """About how many bytes the file's description takes."""

    num_columns: int = 0
    schema: tuple[()] = ()
    metadata: None = None
    created_by: str = ""

    @property
    def num_rows(self) -> int:
        return sum(group.num_rows for group in self.groups)

    @property
    def num_row_groups(self) -> int:
        return len(self.groups)

    def row_group(self, number: int) -> GroupSize:
        return self.groups[number]


class RowGroupReader(Protocol):
    """Reads row groups of an open file, as Arrow's `ParquetFile` does."""

    def iter_batches(
        self, batch_size: int, row_groups: Sequence[int], columns: Sequence[str], use_threads: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the row groups in batches of at most `batch_size` rows, in the types of the footer."""
        ...

    def read_row_group(self, number: int, /, columns: Sequence[str], use_threads: bool = False) -> pa.Table:
        """The rows of one row group, in the types of the footer."""
        ...


@runtime_checkable
class RowPicker(Protocol):
    """A `RowGroupReader` of a format whose rows are read one by one."""

    def take(self, number: int, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """The rows with these ascending numbers of a row group."""
        ...


class OtherFormat(Protocol):
    """A format of base files."""

    name: str
    """The name in error messages."""

    def open(self, storage: Storage, path: str, size: int | None) -> AbstractContextManager[Any]:
        """The open file. Raises `ValueError` if it has another size."""
        ...

    def open_bytes(self, data: Any) -> AbstractContextManager[Any]:
        """The file with this content, open."""
        ...

    def footer(self, source: Any, path: str) -> Footer:
        """The footer of an open file."""
        ...

    def rows(self, source: Any, footer: Footer) -> RowGroupReader:
        """The reader of an open file's rows."""
        ...


def batches_of(rows: pa.Table, batch_size: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches of at most `batch_size` rows."""
    for start, end in pairwise([*range(0, rows.num_rows, batch_size), rows.num_rows]):
        yield from rows.slice(start, end - start).combine_chunks().to_batches()
