"""Rows that Spark's tasks put in Arrow files below the table, until the driver commits them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from lakebed.concurrency.markers import TEMP_FOLDER
from lakebed.engine.spark_worker import SentToWorkers
from lakebed.errors import StorageError
from lakebed.inputs.base import RowSource
from lakebed.storage.base import Storage

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
_OF_STREAM, _OF_JOB = "stream-", "write-"
# What an earlier job left is removed after so long; no job takes longer between its tasks and its commit.
_RETAINED_SECONDS = 7 * 24 * 3600.0


class Staged(SentToWorkers, WriterCommitMessage):
    """The result of a task for the driver: its file (None without rows), its numbers of rows and bytes, and the
    stream's query."""

    def __init__(self, path: str | None, rows: int, nbytes: int, query: str = "") -> None:
        self.path = path
        self.rows = rows
        self.nbytes = nbytes
        self.query = query


def stream_folder(query: str, batch: int | str) -> str:
    """The folder of the files of a micro-batch."""
    return f"{TEMP_FOLDER}/{_OF_STREAM}{query}-{batch}"


def job_folder(job: str) -> str:
    """The folder for the files of a job that writes one batch."""
    return f"{TEMP_FOLDER}/{_OF_JOB}{job}"


def stage(storage: Storage, batches: Iterator[pa.RecordBatch], folder: str = "") -> Staged:
    """Write the rows of this task to a new file, in `folder` or the folder of the task's micro-batch. Returns the file
    with its counts."""
    task = TaskContext.get()
    assert task is not None
    query = ""
    if not folder:
        query = task.getLocalProperty(_QUERY_ID) or ""
        folder = stream_folder(query, task.getLocalProperty(_BATCH_ID) or "")
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return Staged(None, 0, 0, query)
    path = f"{folder}/{task.partitionId()}-{task.attemptNumber()}-{task.taskAttemptId()}.arrow"
    count, size = 0, 0
    upload = storage.create(path)
    try:
        options = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=False)
        with pa.ipc.new_stream(upload, first.schema, options=options) as writer:
            batch: pa.RecordBatch | None = first
            while batch is not None:
                writer.write_batch(batch)
                count, size = count + batch.num_rows, size + batch.nbytes
                batch = next(rows, None)
    except BaseException:
        upload.abort()
        raise
    upload.close()
    return Staged(path, count, size, query)


@dataclass(frozen=True)
class StagedRows(RowSource):
    """The rows of staged files: only of files that a successful task has named."""

    storage: Storage
    files: Sequence[Staged]

    @property
    def schema(self) -> pa.Schema:
        with self.storage.open_input(self.files[0].path or "") as file, pa.ipc.open_stream(file) as reader:
            return reader.schema

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        for staged in self.files:
            with self.storage.open_input(staged.path or "") as file, pa.ipc.open_stream(file) as reader:
                names = None if columns is None else [name for name in reader.schema.names if name in set(columns)]
                for batch in reader:
                    yield batch if names is None else batch.select(names)


def remove_staged(storage: Storage, folder: str) -> None:
    """Remove a folder of staged files. If that fails a later commit does it."""
    with suppress(StorageError, OSError):
        storage.delete_folder(folder, durable=False)


def remove_earlier(storage: Storage, query: str, batch: int) -> None:
    """Remove the files of a stream's batches up to this one, and old files that other streams and jobs left."""
    with suppress(StorageError, OSError):
        for name in storage.list_folders(TEMP_FOLDER):
            number = name.removeprefix(f"{_OF_STREAM}{query}-")
            if query and number != name and number.isdigit():
                if int(number) <= batch:
                    storage.delete_folder(f"{TEMP_FOLDER}/{name}", durable=False)
            elif name.startswith((_OF_STREAM, _OF_JOB)) and _is_old(storage, f"{TEMP_FOLDER}/{name}"):
                storage.delete_folder(f"{TEMP_FOLDER}/{name}", durable=False)


def _is_old(storage: Storage, folder: str) -> bool:
    newest = max((info.modified for info in storage.list(folder)), default=0)
    return newest / 1000 < time.time() - _RETAINED_SECONDS
