"""Running a scan plan without Spark: base files to Arrow batches, by threads, with bounded memory."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.base_file import check_rows, read_base_file, read_footer
from lakebed.model import RECORD_KEY, BaseFile
from lakebed.read.plan import ColumnSource, ScanPlan
from lakebed.schema.evolution import project
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map

BATCH_ROWS = 65_536
# A lookup decodes so many rows at a time, and none behind the last that it wants.
_TAKE_ROWS = 8_192
# Batches that one file may have waiting for the reader of the results.
_WAITING = 4
_DONE = object()


@dataclass(frozen=True)
class FileReader:
    """How to read a file of one `FileSet`: picklable, so that Spark tasks use it too."""

    sources: tuple[ColumnSource, ...]
    read_schema: pa.Schema
    columns: tuple[str, ...]
    condition: pc.Expression | None = None
    partition_values: Mapping[str, Mapping[str, Any]] | None = None
    page_checksums: bool = True

    def read(
        self, storage: Storage, file: BaseFile, row_groups: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The matching rows of the file (or of some of its row groups) in the table's types."""
        stored = [s.stored for s in self.sources if s.stored is not None]
        if not stored:
            stored = [RECORD_KEY]
        columns = list(dict.fromkeys(stored))
        for batch in read_base_file(
            storage,
            file.path,
            file.size,
            columns,
            batch_rows=BATCH_ROWS,
            row_groups=row_groups,
            page_checksums=self.page_checksums,
        ):
            yield from self._shape(batch, file)

    def take(
        self, parquet: Any, row_group: int, rows: npt.NDArray[np.int64], file: BaseFile, keys: pa.Array
    ) -> list[pa.RecordBatch]:
        """The rows (ascending numbers) of one row group of an open Parquet file that have one of the keys, in the
        table's types. Rows behind the last of them are not decoded."""
        wanted = list(dict.fromkeys([RECORD_KEY, *(s.stored for s in self.sources if s.stored is not None)]))
        found: list[pa.RecordBatch] = []
        start = end = 0
        for batch in parquet.iter_batches(_TAKE_ROWS, row_groups=[row_group], columns=wanted, use_threads=False):
            first, end = np.searchsorted(rows, [start, start + batch.num_rows])
            if end > first:
                some = batch.take(pa.array(rows[first:end] - start))
                found.append(some.filter(pc.is_in(some.column(RECORD_KEY), value_set=keys)))
            start += batch.num_rows
            if end == len(rows):
                break
        if end < len(rows):
            check_rows(file.path, start, parquet.metadata.row_group(row_group).num_rows)
        return [shaped for batch in found for shaped in self._shape(batch, file)]

    def _shape(self, batch: pa.RecordBatch, file: BaseFile) -> Iterator[pa.RecordBatch]:
        arrays: list[pa.Array] = []
        names: list[str] = []
        for source in self.sources:
            if source.from_path:
                value = (self.partition_values or {})[file.partition][source.name]
                kind = self.read_schema.field(source.name).type
                arrays.append(pa.repeat(pa.scalar(value, kind), batch.num_rows))
            elif source.stored is not None and source.stored in batch.schema.names:
                arrays.append(batch.column(source.stored))
            else:
                continue
            names.append(source.name)
        if arrays:
            shaped = project(pa.RecordBatch.from_arrays(arrays, names=names), self.read_schema)
        else:
            shaped = _nulls(self.read_schema, batch.num_rows)
        if self.condition is not None:
            shaped = shaped.filter(self.condition)
        if shaped.num_rows:
            yield shaped.select(list(self.columns))


def _nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if not len(schema):  # made of no arrays a batch would have no rows
        return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))
    return pa.RecordBatch.from_arrays([pa.nulls(rows, f.type) for f in schema], schema=schema)


def file_readers(plan: ScanPlan, condition: pc.Expression | None) -> list[tuple[BaseFile, FileReader]]:
    """Every file of the plan with its reader."""
    checks = plan.page_checksums
    return [
        (file, FileReader(g.sources, plan.read_schema, plan.columns, condition, plan.partition_values, checks))
        for g in plan.groups
        for file in g.files
    ]


def scan_batches(plan: ScanPlan, storage: Storage, threads: int | None = None) -> Iterator[pa.RecordBatch]:
    """The plan's rows, file after file. Memory is bound by a few batches of as many files as there are threads."""
    condition = plan.predicate.to_arrow() if plan.predicate is not None else None
    jobs = [_job(reader, storage, file) for file, reader in file_readers(plan, condition)]
    return in_order(jobs, threads or min(8, (os.cpu_count() or 1)))


def _job(reader: FileReader, storage: Storage, file: BaseFile) -> Callable[[], Iterator[pa.RecordBatch]]:
    return lambda: reader.read(storage, file)


def in_order(jobs: Sequence[Callable[[], Iterator[pa.RecordBatch]]], threads: int) -> Iterator[pa.RecordBatch]:
    """The batches of all jobs in the jobs' order, read ahead by `threads` threads, a few batches each."""
    if len(jobs) <= 1 or threads <= 1:
        for job in jobs:
            yield from job()
        return
    stop = threading.Event()
    waiting: list[queue.Queue[Any]] = []
    with ThreadPoolExecutor(threads, thread_name_prefix="lakebed-scan") as pool:
        try:
            for at in range(len(jobs)):
                while len(waiting) < min(at + threads, len(jobs)):
                    line: queue.Queue[Any] = queue.Queue(_WAITING)
                    pool.submit(_pump, jobs[len(waiting)], line, stop)
                    waiting.append(line)
                yield from _drain(waiting[at])
        finally:
            stop.set()
            for line in waiting:
                _empty(line)


def _pump(job: Callable[[], Iterator[pa.RecordBatch]], line: queue.Queue[Any], stop: threading.Event) -> None:
    last: Any = _DONE
    try:
        for batch in job():
            if not _put(line, batch, stop):
                return
    except BaseException as error:
        last = error
    _put(line, last, stop)


def _put(line: queue.Queue[Any], item: Any, stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            line.put(item, timeout=0.2)
        except queue.Full:
            continue
        return True
    return False


def _drain(line: queue.Queue[Any]) -> Iterator[pa.RecordBatch]:
    while (item := line.get()) is not _DONE:
        if isinstance(item, BaseException):
            raise item
        yield item


def _empty(line: queue.Queue[Any]) -> None:
    while True:
        try:
            line.get_nowait()
        except queue.Empty:
            return


def count_rows(plan: ScanPlan, storage: Storage) -> int:
    """The number of rows; without a filter only footers are read."""
    if plan.predicate is not None:
        return sum(b.num_rows for b in scan_batches(plan, storage))
    return sum(parallel_map(lambda f: read_footer(storage, f.path, f.size).rows, plan.files, 16))
