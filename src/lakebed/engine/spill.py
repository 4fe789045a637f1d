"""Rows in memory up to a bound, beyond it in a memory-mapped Arrow file: the same table either way."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import pyarrow as pa


class Spill:
    """A buffer that collects batches of one schema; `table()` returns them as one table.

    `rows` is their number. Batches beyond `limit` bytes are written to a file in `folder` (default: the system's
    temporary folder) and mapped back, so that the operating system may drop their pages. Use as a context manager:
    leaving it removes the file.

    >>> batch = pa.record_batch({"a": [1, 2]})
    >>> with Spill(limit=8) as spill:
    ...     spill.extend([batch, batch])
    ...     spill.table().num_rows, spill.spilled
    (4, True)
    """

    def __init__(self, limit: int, folder: str | None = None) -> None:
        self._limit = limit
        self._folder = folder
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self.rows = 0
        self._path: Path | None = None
        self._writer: pa.RecordBatchFileWriter | None = None
        self._schema: pa.Schema | None = None

    @property
    def spilled(self) -> bool:
        return self._path is not None

    def extend(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self.append(batch)

    def append(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0 and self._schema is not None:
            return
        self._schema = self._schema or batch.schema
        self._batches.append(batch)
        self._bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._bytes > self._limit:
            self._flush()

    def table(self, schema: pa.Schema | None = None) -> pa.Table:
        """All rows so far; `schema` is needed when nothing was appended."""
        if self._path is not None:
            self._flush()
            assert self._writer is not None
            self._writer.close()
            self._writer = None
            table = pa.ipc.open_file(pa.memory_map(str(self._path))).read_all()
        else:
            table = pa.Table.from_batches(self._batches, self._schema or schema)
        assert table.num_rows == self.rows, f"{self.rows} rows were appended, and {table.num_rows} are there"
        return table

    def _flush(self) -> None:
        if self._path is None:
            handle, name = tempfile.mkstemp(suffix=".arrow", prefix="lakebed-spill-", dir=self._folder)
            os.close(handle)
            self._path = Path(name)
            assert self._schema is not None
            self._writer = pa.ipc.new_file(name, self._schema)
        assert self._writer is not None
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches, self._bytes = [], 0

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
