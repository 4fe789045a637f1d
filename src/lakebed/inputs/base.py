"""What every source of rows has: a schema, and batches that are read as they are asked for."""

from __future__ import annotations

import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

# Rows of no more bytes in memory are a table; more are read batch by batch, as often as they are asked for.
TABLE_BYTES = 64 << 20
# Rows of a batch where the source lets the reader choose.
BATCH_ROWS = 1 << 16


class RowSource(ABC):
    """Rows that can be read more than once, in the same order, without all of them being in memory."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema: ...

    @abstractmethod
    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows, in batches of the schema (or of the columns `columns`, in the schema's order)."""
        ...

    @property
    def rows(self) -> int | None:
        """The number of rows; None if counting takes reading them."""
        return None

    @property
    def nbytes(self) -> int | None:
        """The approximate bytes of the rows in memory; None if that takes reading them."""
        return None

    def distinct(self, columns: Sequence[str]) -> int:
        """How many different values these columns have together. Only these columns are read."""
        distinct: pa.Table | None = None
        for batch in self.batches(columns):
            values = pa.Table.from_batches([batch]).select(list(columns))
            combined = values if distinct is None else pa.concat_tables([distinct, values])
            distinct = combined.group_by(list(columns), use_threads=False).aggregate([])
        return 0 if distinct is None else distinct.num_rows

    def table(self) -> pa.Table:
        """All rows in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def table_if_small(self) -> pa.Table | None:
        """All rows in memory if they take at most `TABLE_BYTES`; otherwise None."""
        if self.nbytes is not None and self.nbytes > TABLE_BYTES:
            return None
        head, remaining = first_batches(self.batches(), TABLE_BYTES)
        return pa.Table.from_batches(head, self.schema) if remaining is None else None


def first_batches(
    batches: Iterator[pa.RecordBatch], limit: int
) -> tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch] | None]:
    """The batches up to `limit` bytes, and an iterator over the remaining ones; None if there are none."""
    head: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        head.append(batch)
        size += batch.nbytes
        if size > limit:
            return head, batches
    return head, None


class DatasetSource(RowSource):
    """A pyarrow `Dataset`."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    @property
    def schema(self) -> pa.Schema:
        return self._dataset.schema

    @property
    def rows(self) -> int | None:
        return self._dataset.count_rows() if type(self._dataset).__name__ == "InMemoryDataset" else None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        import pyarrow.dataset as ds  # has been imported where there is a dataset; with it comes pandas

        names = None if columns is None else [name for name in self.schema.names if name in set(columns)]
        options: dict[str, Any] = {}
        if isinstance(getattr(self._dataset, "format", None), ds.ParquetFileFormat):
            options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(pre_buffer=False)
        # few batches ahead, and no threads that read more: all that waits is in memory
        yield from self._dataset.to_batches(
            columns=names, batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False, **options
        )


class MappedSource(RowSource):
    """Another source whose batches are passed through a function; `schema` is that of its results."""

    def __init__(
        self, source: RowSource, function: Callable[[pa.RecordBatch], pa.RecordBatch], schema: pa.Schema
    ) -> None:
        self._source = source
        self._function = function
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def rows(self) -> int | None:
        return self._source.rows

    @property
    def nbytes(self) -> int | None:
        return self._source.nbytes

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return map(self._function, self._source.batches(columns))


class SpooledSource(RowSource):
    """The rows of a stream, which can be read once, stored in a temporary file so that they can be read again. The file
    is deleted when the source is no longer used, or the process ends."""

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        handle, name = tempfile.mkstemp(suffix=".arrow", prefix="lakebed-rows-")
        os.close(handle)
        self._path = Path(name)
        self._delete = weakref.finalize(self, self._path.unlink, missing_ok=True)
        self._schema = schema
        self._rows = self._bytes = 0
        options = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=False)
        with pa.ipc.new_stream(name, schema, options=options) as writer:
            for batch in batches:
                writer.write_batch(batch)
                self._rows += batch.num_rows
                self._bytes += batch.nbytes

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def rows(self) -> int | None:
        return self._rows

    @property
    def nbytes(self) -> int | None:
        return self._bytes

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = None if columns is None else [name for name in self._schema.names if name in set(columns)]
        with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                yield batch if names is None else batch.select(names)


def rows_of_stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table | RowSource:
    """Rows that can be read more than once, from a stream: a table if they take at most `TABLE_BYTES`, otherwise a
    `SpooledSource`."""
    head, remaining = first_batches(iter(batches), TABLE_BYTES)
    if remaining is None:
        return pa.Table.from_batches(head, schema)
    return SpooledSource(schema, chain(head, remaining))
