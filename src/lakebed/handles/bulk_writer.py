"""The row function of a bulk insert: a task writes what it has to new file groups, one open file a partition path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakebed.engine.base import Task
from lakebed.errors import LakebedError
from lakebed.format.file_names import new_file_id
from lakebed.handles.base import GroupJob
from lakebed.handles.file_writer import FileWriter, write_partition_metadata
from lakebed.handles.group_writer import accounted
from lakebed.model import PARTITION_PATH
from lakebed.schema.plain_arrow import as_numpy
from lakebed.write_status import WriteStatus, to_batch

# Bytes that the open files of one task may hold back together before the largest is closed.
_OPEN_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class BulkWriter:
    """A task function that writes batches of any rows and returns one status per file. With `sorted` the rows of a
    partition path are consecutive."""

    job: GroupJob
    sorted: bool

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        files = _OpenFiles(self.job, task, keep_open=not self.sorted)
        try:
            for batch in batches:
                for partition, part in by_partition(batch):
                    files.write(partition, part)
            yield to_batch(files.close())
        except LakebedError as error:
            files.abort()
            yield to_batch([WriteStatus("", error=error.to_json())])
        except BaseException:
            files.abort()
            raise


class _OpenFiles:
    """The open files of a task, by partition path."""

    def __init__(self, job: GroupJob, task: Task, *, keep_open: bool) -> None:
        self._job = job
        self._task = task
        self._keep_open = keep_open
        self._open: dict[str, FileWriter] = {}
        self._numbers: dict[str, int] = {}
        self._done: list[WriteStatus] = []
        self._combined = 0
        self._received = 0

    def write(self, partition: str, rows: pa.RecordBatch) -> None:
        if not self._keep_open:
            for open_partition in [p for p in self._open if p != partition]:
                self._finish(open_partition)
        self._received += rows.num_rows
        checked = self._job.intake.checked(iter([rows]), self._task)
        incoming = self._job.intake.split(pa.Table.from_batches(checked))
        self._combined += incoming.combined
        fresh = self._job.format.fresh_meta(self._job.instant, partition, self._task)
        for keys, data in incoming.alive_batches():
            self._append(partition, fresh.with_meta(keys, data))
        if len(self._open) > 1 and sum(w.size for w in self._open.values()) > _OPEN_BYTES:
            self._finish(max(self._open, key=lambda p: self._open[p].size))

    def _append(self, partition: str, coming: pa.RecordBatch) -> None:
        """Write rows, going on to a further file group whenever the file is full."""
        while coming.num_rows:
            writer = self._open.get(partition) or self._new(partition)
            self._open[partition] = writer
            before = coming.num_rows
            coming = writer.fill(coming, self._job.max_file_size)
            if coming.num_rows == before:
                self._finish(partition)

    def _new(self, partition: str) -> FileWriter:
        if partition not in self._numbers:
            self._job.path_check.require(partition)
            write_partition_metadata(self._job.storage, partition, self._job.instant)
        n = self._numbers[partition] = self._numbers.get(partition, -1) + 1
        file_id = new_file_id(self._job.instant, partition, self._task.partition, n=n)
        return FileWriter(
            self._job.storage,
            self._job.format,
            self._job.instant,
            partition,
            file_id,
            self._task,
            "CREATE",
            self._job.format.bloom(),
        )

    def _finish(self, partition: str) -> None:
        writer = self._open.pop(partition)
        self._done.append(replace(writer.finish(writer.rows), rows_in=writer.rows))

    def close(self) -> list[WriteStatus]:
        for partition in list(self._open):
            self._finish(partition)
        if self._combined:
            first = self._done[0] if self._done else WriteStatus("")
            more = self._combined
            self._done[:1] = [replace(first, rows_in=first.rows_in + more, num_combined=more)]
        if not self._received:
            return self._done
        return accounted(self._done or [WriteStatus("")], self._received)

    def abort(self) -> None:
        for writer in self._open.values():
            writer.abort()


def by_partition(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the rows of a batch by partition path, as pairs of the path and a batch; the rows of a path stay in
    order."""
    if batch.num_rows == 0:
        return
    encoded = batch.column(PARTITION_PATH).dictionary_encode()
    if len(encoded.dictionary) == 1:
        yield encoded.dictionary[0].as_py(), batch
        return
    codes = as_numpy(encoded.indices)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(codes[order]) != 0))
    for start, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        yield encoded.dictionary[int(codes[order[start]])].as_py(), batch.take(pa.array(order[start:end]))
