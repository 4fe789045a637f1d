"""The input of the tasks of a read of the data source: file slices, or sources of changes; and how they read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from lakebed.model import FileSlice
from lakebed.read.batches import RowReader, row_readers
from lakebed.read.cdc import ChangeJob, ChangeLog
from lakebed.read.cdc_rows import ChangeReader
from lakebed.read.reopening import in_task
from lakebed.read.scan import Scan
from lakebed.schema.spark import as_spark_reads, read_by_spark
from lakebed.slices.reader import SliceReader
from lakebed.spark_source.filters import ZonedFilter, session_zone

# A task reads about this many bytes (less where there is little, so that a few cores have work), and not more files.
_TASK_BYTES = 128 << 20
_MIN_TASK_BYTES = 8 << 20
_MIN_TASKS = 8
_TASK_FILES = 64


class SliceBatch(InputPartition):
    """The file slices of one task, each with the number of its reader. It is self-contained, since Spark pickles the
    source's reader before it asks for partitions."""

    def __init__(
        self,
        slice_reader: SliceReader,
        readers: list[RowReader],
        slices: list[tuple[FileSlice, int]],
        schema: pa.Schema,
        zoned: ZonedFilter | None = None,
    ) -> None:
        super().__init__(None)
        self.slice_reader = slice_reader
        self.readers = readers
        self.slices = slices
        self.schema = schema
        self.zoned = zoned

    def __repr__(self) -> str:
        return f"SliceBatch({len(self.slices)} file slices)"


def slice_batches(scan: Scan, zoned: ZonedFilter | None = None) -> list[InputPartition]:
    """The file slices of a scan, by tasks of about the same size. `zoned` is a filter that only tasks can evaluate."""
    plan = scan.plan
    jobs = row_readers(plan, plan.predicate if zoned is None else None)
    readers = list({id(reader.sources): reader for _, reader in jobs}.values())
    numbers = {id(reader.sources): n for n, reader in enumerate(readers)}
    placed = [(file_slice, numbers[id(reader.sources)]) for file_slice, reader in jobs]
    schema = read_by_spark(plan.schema)
    return [SliceBatch(scan.reader, readers, slices, schema, zoned) for slices in _tasks(placed)]


def read_rows(partition: SliceBatch, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a task."""
    readers = partition.readers
    if partition.zoned is not None:
        predicate = partition.zoned.in_zone(session_zone(partition.zoned.planners_zone))
        readers = [replace(reader, predicate=predicate) for reader in readers]
    schema = pa.schema([partition.schema.field(name) for name in columns])
    for file_slice, number in partition.slices:
        reader = partition.slice_reader
        for batch in in_task(reader.storage, readers[number].read(reader, file_slice)):
            yield as_spark_reads(batch.select(columns), schema)


class ChangeBatch(InputPartition):
    """The sources of changes that one task reads."""

    def __init__(self, reader: ChangeReader, jobs: list[ChangeJob], schema: pa.Schema) -> None:
        super().__init__(None)
        self.schema = schema
        self.reader = reader
        self.jobs = jobs


def change_batches(changes: ChangeLog) -> list[InputPartition]:
    """The sources of a range's changes, by tasks."""
    jobs = changes.jobs
    size = max(1, min(_TASK_FILES, -(-len(jobs) // _MIN_TASKS)))
    schema = read_by_spark(changes.schema)
    return [ChangeBatch(changes.reader, jobs[start : start + size], schema) for start in range(0, len(jobs), size)]


def read_changes(partition: ChangeBatch) -> Iterator[pa.RecordBatch]:
    """The changes of a task."""
    for job in partition.jobs:
        rows = in_task(partition.reader.slices.storage, partition.reader.read(*job))
        yield from (as_spark_reads(batch, partition.schema) for batch in rows)


def _tasks(slices: list[tuple[FileSlice, int]]) -> Iterator[list[tuple[FileSlice, int]]]:
    """The file slices by tasks of about the same size."""
    total = sum(file_slice.size for file_slice, _ in slices)
    limit = min(_TASK_BYTES, max(_MIN_TASK_BYTES, total // _MIN_TASKS))
    task: list[tuple[FileSlice, int]] = []
    size = 0
    for file_slice, number in slices:
        if task and (size + file_slice.size > limit or len(task) >= _TASK_FILES):
            yield task
            task, size = [], 0
        task.append((file_slice, number))
        size += file_slice.size
    if task:
        yield task
