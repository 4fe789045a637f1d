"""Rows brought together by group in a bound of memory: what does not fit is in a temporary file."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from lakebed.engine.base import GROUP
from lakebed.model import PARTITION_PATH
from lakebed.schema.plain_arrow import as_numpy

Group = tuple[str, int]


class Shuffle:
    """A shuffle that takes rows in any order, and returns the rows of one (partition path, number) together, in their
    original order. Rows beyond `limit` bytes are written to a file, sorted by group; leaving the context removes it.

    >>> rows = pa.record_batch({PARTITION_PATH: ["a", "b", "a"], GROUP: [0, 0, 0], "n": [1, 2, 3]})
    >>> with Shuffle(limit=0) as shuffle:
    ...     shuffle.add(rows)
    ...     shuffle.finish(), [b.column("n").to_pylist() for b in shuffle.read(("a", 0))]
    ([('a', 0), ('b', 0)], [[1, 3]])
    """

    def __init__(self, limit: int, folder: str | None = None) -> None:
        self._limit = limit
        self._folder = folder
        self._buffered: list[pa.RecordBatch] = []
        self._bytes = 0
        self._codes: dict[str, int] = {}
        self._parts: dict[Group, list[int]] = {}
        self._count = 0
        self._path: Path | None = None
        self._writer: pa.RecordBatchFileWriter | None = None
        self._file: pa.NativeFile | None = None
        self._reader: pa.RecordBatchFileReader | None = None
        self._lock = threading.Lock()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, which have the columns `PARTITION_PATH` and `GROUP`."""
        if batch.num_rows:
            self._buffered.append(batch)
            self._bytes += batch.nbytes
            if self._bytes > self._limit:
                self._flush()

    def finish(self) -> list[Group]:
        """The groups, by the partition paths in the order of their first rows, then by number. No rows may be added
        after that."""
        if self._buffered:
            self._flush()
        if self._writer is not None:
            self._writer.close()
            self._file = pa.OSFile(str(self._path))
            self._reader = pa.ipc.open_file(self._file)
        return sorted(self._parts, key=lambda group: (self._codes[group[0]], group[1]))

    def read(self, group: Group) -> Iterator[pa.RecordBatch]:
        """The rows of a group; threads may read several groups at a time."""
        assert self._reader is not None
        for number in self._parts[group]:
            with self._lock:
                batch = self._reader.get_batch(number)
            yield batch

    def _flush(self) -> None:
        """Write the buffered rows, those of each group as a separate batch."""
        table = pa.Table.from_batches(self._buffered)
        self._buffered, self._bytes = [], 0
        partitions = table.column(PARTITION_PATH).combine_chunks().dictionary_encode()
        codes = np.array([self._codes.setdefault(p, len(self._codes)) for p in partitions.dictionary.to_pylist()])
        rows = codes[as_numpy(partitions.indices)].astype(np.int64)
        numbers = as_numpy(table.column(GROUP).combine_chunks()).astype(np.int64)
        order = np.lexsort((numbers, rows))
        edges = np.flatnonzero(np.append(True, (np.diff(rows[order]) != 0) | (np.diff(numbers[order]) != 0)))
        names = list(self._codes)
        for start, stop in zip(edges.tolist(), [*edges[1:].tolist(), len(order)], strict=True):
            part = table.take(pa.array(order[start:stop])).combine_chunks()
            first = order[start]
            batch_numbers = self._parts.setdefault((names[int(rows[first])], int(numbers[first])), [])
            for batch in part.to_batches():
                self._write(batch)
                batch_numbers.append(self._count)
                self._count += 1

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            handle, name = tempfile.mkstemp(suffix=".arrow", prefix="lakebed-shuffle-", dir=self._folder)
            os.close(handle)
            self._path = Path(name)
            self._writer = pa.ipc.new_file(name, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        self._writer.write_batch(batch)

    def __enter__(self) -> Shuffle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader = None
        if self._file is not None:
            self._file.close()
        if self._writer is not None:
            with suppress(OSError, pa.ArrowException):  # a full disk, of which the writer has raised before
                self._writer.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
