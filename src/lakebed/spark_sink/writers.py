"""`format("lakebed")` as the target of a stream or a batch: tasks stage rows, and the driver commits them.

An upsert needs rows together that are in different tasks of Spark, and a data source cannot ask for a shuffle: the
driver's process writes the staged rows as it writes any others.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from lakebed.api import open as open_table
from lakebed.engine.spark_worker import SentToWorkers, tune_worker
from lakebed.operations.once import Once
from lakebed.spark_sink.creation import table_to_write
from lakebed.spark_sink.options import WriteOptions, refuse_memory
from lakebed.spark_sink.staging import (
    Staged,
    StagedRows,
    job_folder,
    remove_earlier,
    remove_staged,
    stage,
    stream_folder,
)
from lakebed.spark_sink.stream import query_of_checkpoint, write_method
from lakebed.storage.base import Storage


class _Writer(SentToWorkers):
    """The common part of both kinds of writers."""

    def __init__(self, options: WriteOptions, columns: pa.Schema, *, overwrite: bool) -> None:
        storage = options.storage()
        refuse_memory(options.path, storage)
        has_key = bool(table_to_write(storage, options, columns).key_fields)
        self.options = options
        self.columns = columns
        self.overwrite = overwrite
        self.operation = self._operation(has_key=has_key)

    @abstractmethod
    def _operation(self, *, has_key: bool) -> str:
        """The operation that the options ask for."""

    def _tune(self) -> None:
        if self.options.worker_tuning:
            tune_worker()

    def _commit(self, storage: Storage, staged: Sequence[Any], once: Once | None) -> None:
        files = [file for file in staged if file is not None and file.path]
        if not files and not self.overwrite:
            return
        rows = StagedRows(storage, files) if files else self.columns.empty_table()
        table = open_table(self.options.path, storage_options=self.options.storage_options)
        write_method(self.operation, self.options.retries, self.options.options)(table, rows, once)


class StreamTarget(_Writer, DataSourceStreamArrowWriter):
    """A Spark writer that commits each micro-batch of a stream once."""

    def _operation(self, *, has_key: bool) -> str:
        return self.options.operation_of_stream(complete=self.overwrite, has_key=has_key)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        self._tune()
        return stage(self.options.storage(), iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        self._tune()
        query = self._query(messages)
        if not query:
            return  # no task ran: there are no rows
        storage = self.options.storage()
        self._commit(storage, messages, Once(query, batchId, self.options.identifier))
        remove_earlier(storage, query, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        query = self._query(messages)
        if query:
            remove_staged(self.options.storage(), stream_folder(query, batchId))

    def _query(self, messages: Sequence[Any]) -> str:
        """The id of the query, from a successful task, otherwise from the checkpoint; empty if neither has it."""
        query = next((message.query for message in messages if message is not None), "")
        if query or not self.options.checkpoint:
            return query
        try:
            return query_of_checkpoint(self.options.checkpoint)
        except (OSError, ValueError, KeyError):
            return ""


class BatchTarget(_Writer, DataSourceArrowWriter):
    """A Spark writer that commits the rows of a DataFrame."""

    def __init__(self, options: WriteOptions, columns: pa.Schema, *, overwrite: bool) -> None:
        super().__init__(options, columns, overwrite=overwrite)
        self.folder = job_folder(uuid.uuid4().hex)

    def _operation(self, *, has_key: bool) -> str:
        return self.options.operation_of_batch(overwrite=self.overwrite, has_key=has_key)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        self._tune()
        return stage(self.options.storage(), iterator, self.folder)

    def commit(self, messages: Sequence[Any]) -> None:
        storage = self.options.storage()
        self._commit(storage, messages, None)
        remove_staged(storage, self.folder)
        remove_earlier(storage, "", 0)

    def abort(self, messages: Sequence[Any]) -> None:
        remove_staged(self.options.storage(), self.folder)
