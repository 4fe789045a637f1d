"""Running a scan plan without Spark: file slices to Arrow batches, by threads, with bounded memory."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.base_file import SMALL_BYTES, Footer, read_footer
from lakebed.model import RECORD_KEY, BaseFile, FileSlice
from lakebed.read.plan import ColumnSource, PathValues, ScanPlan, TableColumns, null_rows
from lakebed.schema.plain_arrow import matching_rows
from lakebed.sharing import once
from lakebed.slices.key_rows import rows_of_keys
from lakebed.slices.reader import BATCH_ROWS, SliceReader
from lakebed.storage.parallel import is_remote

if TYPE_CHECKING:
    from lakebed.filters.predicates import Predicate
    from lakebed.read.filtered_rows import FilteredRows
    from lakebed.slices.base_rows import ColumnNames
    from lakebed.slices.changed_rows import TouchedSlice

# Batches that one slice may have waiting for the reader of the results.
_WAITING = 4
# Bytes of them from which a slice waits: encoded rows of some kilobytes may be objects of megabytes.
_MAX_WAITING_BYTES = 64 << 20
# Bytes of a slice's log files, of which decoding by the caller's thread takes less time than handing rows to it.
_SMALL_LOGS = 1 << 20
# So many small slices are read together.
_TOGETHER = 64
_DONE = object()


@dataclass(frozen=True)
class RowReader:
    """A reader that reads the slices of one `SliceSet` in the table's types. It can be pickled, so that Spark tasks use
    it too."""

    sources: tuple[ColumnSource, ...]
    read_schema: pa.Schema
    columns: tuple[str, ...]
    predicate: Predicate | None = None
    partition_values: PathValues | None = None
    page_checksums: bool = True
    names: ColumnNames | None = None
    since: str = ""
    without_untouched: bool = False
    batch_rows: int = BATCH_ROWS
    base_sources: Mapping[str, tuple[ColumnSource, ...]] = field(default_factory=dict[str, tuple[ColumnSource, ...]])

    @property
    def stored(self) -> list[str]:
        """The columns that are read from the slices."""
        return list(dict.fromkeys([s.stored for s in self.sources if s.stored is not None]))

    def read(self, slices: SliceReader, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        """The matching rows of the slice; rows of commits before `since` may be missing, and with `without_untouched`
        the rows of the base file that no log record changes."""
        from lakebed.slices.changed_rows import changed_rows, holds_older_rows, row_groups_since

        columns = self.stored or [RECORD_KEY]
        if self.without_untouched and file_slice.base_file is not None:
            for batch in self.touched(slices, file_slice, file_slice.base_file).log_rows():
                yield from self.shaped(batch, file_slice.partition)
            return
        if self.since and holds_older_rows(slices, file_slice, self.since):
            for batch in changed_rows(
                slices, file_slice, self.since, columns, schema=self.merged_schema, names=self.names
            ):
                yield from self.shaped(batch, file_slice.partition)
            return
        if slices.is_merged(file_slice) and (parts := self._filtered_parts(slices, file_slice)) is not None:
            yield from parts
            return
        schema = self.merged_schema if slices.is_composed(file_slice) else None
        footer = recent_groups = None
        base = file_slice.base_file
        # a small file is one request as a whole, and its footer another
        if self.since and schema is None and base is not None and not 0 < base.size <= SMALL_BYTES:
            footer, recent_groups = row_groups_since(slices, base, self.since)
        filtered = None if schema is not None else self._filtered(slices, file_slice)
        if filtered is not None:
            for batch in filtered.batches(recent_groups):
                yield batch.select(list(self.columns))
            return
        for batch in slices.read(
            file_slice,
            columns,
            schema=schema,
            names=self.names,
            row_groups=recent_groups,
            batch_rows=self.batch_rows,
            footer=footer,
            page_checksums=self.page_checksums,
        ):
            yield from self.shaped(batch, file_slice.partition)

    def positions(self, slices: SliceReader, file_slice: FileSlice) -> npt.NDArray[np.int64] | None:
        """The positions of the matching rows of the slice in its base file, from the columns of the predicate alone;
        None where it has log files, or where reading these columns first does not pay."""
        filtered = self._filtered(slices, file_slice) if file_slice.is_base_file else None
        return None if filtered is None else filtered.positions()

    def touched(
        self, slices: SliceReader, file_slice: FileSlice, base: BaseFile, *, caches_keys: bool = False
    ) -> TouchedSlice:
        """The slice in two parts, of which a reader with `without_untouched` reads one. `caches_keys`: the keys of its
        base file stay in memory, for a slice that is read again with more log records."""
        from lakebed.slices.changed_rows import TouchedSlice

        columns = self.stored or [RECORD_KEY]
        return TouchedSlice(slices, file_slice, base, columns, self.merged_schema, self.names, caches_keys)

    def count(self, slices: SliceReader, file_slice: FileSlice) -> int:
        """The number of matching rows of the slice; only its footer is read if the filtered columns have one value in
        all rows."""
        if not slices.is_merged(file_slice) and file_slice.base_file is not None:
            footer = read_footer(slices.storage, file_slice.base_file.path, file_slice.base_file.size)
            row = _common_row(self, file_slice, footer)
            if row is not None and self.condition is not None:
                return footer.rows if matching_rows(row, self.condition).num_rows else 0
        return sum(batch.num_rows for batch in self.read(slices, file_slice))

    @property
    def merged_schema(self) -> pa.Schema:
        """The columns that a merge of log files returns, in the types of the table."""
        kinds = {s.stored: self.read_schema.field(s.name).type for s in self.sources if s.stored is not None}
        return pa.schema(list((kinds or {RECORD_KEY: pa.string()}).items()))

    def rows_of_keys(
        self, slices: SliceReader, file_slice: FileSlice, keys: pa.Array, *, use_bloom: bool
    ) -> list[pa.RecordBatch]:
        """The rows of a slice that have one of the keys (in ascending order) and that fulfil the predicate, as
        batches."""
        schema = self.merged_schema if slices.is_composed(file_slice) else None
        batches = rows_of_keys(
            slices, file_slice, keys, self.stored, use_bloom=use_bloom, schema=schema, names=self.names
        )
        return [shaped for batch in batches for shaped in self.shaped(batch, file_slice.partition)]

    def shaped(self, batch: pa.RecordBatch, partition: str) -> Iterator[pa.RecordBatch]:
        """The matching rows of a stored batch, with the columns and types of the table; no batch if no row matches."""
        shaped = self._table_columns.of(batch, partition)
        if self.condition is not None:
            shaped = matching_rows(shaped, self.condition)
        if shaped.num_rows:
            yield shaped.select(list(self.columns))

    def unfiltered(self, names: Sequence[str]) -> RowReader:
        """A reader of these of the columns that this one reads, for all rows of a slice."""
        named, _ = self._table_columns.divided(frozenset(names))
        return replace(self, sources=named.sources, read_schema=named.schema, columns=tuple(names), predicate=None)

    @once
    def condition(self) -> pc.Expression | None:
        """The predicate of the reader as an expression of Arrow; None if there is no predicate."""
        return None if self.predicate is None else self.predicate.to_arrow()

    @property
    def _table_columns(self) -> TableColumns:
        return TableColumns(self.sources, self.read_schema, self.partition_values)

    def _filtered_parts(self, slices: SliceReader, file_slice: FileSlice) -> Iterator[pa.RecordBatch] | None:
        """The matching rows of a slice with log files, unchanged base rows first; None if this takes longer than
        reading all rows."""
        from lakebed.merge.rules import MergeRules

        base = file_slice.base_file
        if base is None or base.instant not in self.base_sources or slices.blocks.within is not None:
            return None
        if not MergeRules.of_table(slices.config).picks_winners:
            return None
        of_base = replace(self, sources=self.base_sources[base.instant])
        filtered = of_base._filtered(slices, file_slice.without_logs())
        touched = self.touched(slices, file_slice, base)
        if filtered is None or not touched.has_untouched_rows:
            return None
        base_rows = (rows.select(list(self.columns)) for rows in filtered.batches(without=touched.flags()))
        log_rows = (rows for batch in touched.log_rows() for rows in self.shaped(batch, file_slice.partition))
        return chain(base_rows, log_rows)

    def _filtered(self, slices: SliceReader, file_slice: FileSlice) -> FilteredRows | None:
        """A reader of the base file that reads the filtered columns first; None if that takes longer."""
        from lakebed.read.filtered_rows import FilteredRows

        base, predicate, condition = file_slice.base_file, self.predicate, self.condition
        if predicate is None or condition is None or base is None or base.is_skeleton or base.size <= SMALL_BYTES:
            return None
        if slices.history is not None and self.names is None:
            return None
        first, others = self._table_columns.divided(frozenset(predicate.columns))
        reader = replace(slices, history=None)  # the sources have the names of the file
        filtered = FilteredRows(reader, file_slice, base, predicate, condition, first, others, self.page_checksums)
        return filtered if filtered.pays else None


def row_readers(plan: ScanPlan, predicate: Predicate | None) -> list[tuple[FileSlice, RowReader]]:
    """All file slices of the plan with their readers, which filter by the predicate. Raises `InvalidOption` for a
    predicate that only Spark can evaluate."""
    if predicate is not None:
        predicate.to_arrow()
    checks = plan.page_checksums
    readers = [
        RowReader(
            s.sources,
            plan.read_schema,
            plan.columns,
            predicate,
            plan.partition_values,
            checks,
            plan.names,
            plan.since,
            base_sources={} if predicate is None else plan.base_sources,
        )
        for s in plan.sets
    ]
    return [(file_slice, r) for slice_set, r in zip(plan.sets, readers, strict=True) for file_slice in slice_set.slices]


def scan_batches(plan: ScanPlan, slices: SliceReader, threads: int | None = None) -> Iterator[pa.RecordBatch]:
    """The plan's rows, slice after slice. Memory is limited to a few batches of as many slices as there are threads.

    The first slices are read one by one, for callers that take few rows, small ones after them together.
    """
    from lakebed.slices.changed_rows import holds_older_rows

    threads = threads or min(8, (os.cpu_count() or 1))
    jobs: list[Callable[[], Iterator[pa.RecordBatch]]] = []
    group = _SmallSlices(slices)
    for file_slice, reader in row_readers(plan, plan.predicate):
        if len(jobs) < 2 * threads or file_slice.size > SMALL_BYTES:
            jobs += [group.read] if group.readers else []
            jobs.append(partial(reader.read, slices, file_slice))
            group = _SmallSlices(slices)
            continue
        if len(group.readers) == _TOGETHER:
            jobs.append(group.read)
            group = _SmallSlices(slices)
        group.readers.append((file_slice, reader))
    jobs += [group.read] if group.readers else []
    # the base files of small logs may all be older than the commits that are read
    is_of_logs = bool(plan.since) and all(file_slice.log_bytes <= _SMALL_LOGS for file_slice in plan.slices)
    is_of_logs = is_of_logs and all(holds_older_rows(slices, file_slice, plan.since) for file_slice in plan.slices)
    is_little = sum([file_slice.size for file_slice in plan.slices]) <= SMALL_BYTES
    is_quick = is_little or len(jobs) < len(plan.slices) / 2 or is_of_logs
    # Python's part of reading small files, which threads do not share, is the larger one
    return in_order(jobs, 1 if is_quick and not is_remote(slices.storage) else threads)


@dataclass(frozen=True, slots=True)
class _SmallSlices:
    """Small slices that are read together, since filtering and returning the rows of each alone costs more than reading
    them."""

    slices: SliceReader
    readers: list[tuple[FileSlice, RowReader]] = field(default_factory=list[tuple[FileSlice, RowReader]])

    def read(self) -> Iterator[pa.RecordBatch]:
        """The matching rows of these slices, in the slices' order."""
        waiting: list[pa.RecordBatch] = []
        unfiltered: dict[int, RowReader] = {}
        for file_slice, reader in self.readers:
            if not len(reader.read_schema):  # Arrow loses the number of rows without columns
                yield from reader.read(self.slices, file_slice)
                continue
            if id(reader) not in unfiltered:
                unfiltered[id(reader)] = replace(reader, predicate=None, columns=tuple(reader.read_schema.names))
            for batch in unfiltered[id(reader)].read(self.slices, file_slice):
                waiting.append(batch)
                if sum(rows.num_rows for rows in waiting) >= BATCH_ROWS:  # a small file may have many
                    yield from self._matching(waiting)
                    waiting = []
        yield from self._matching(waiting)

    def _matching(self, rows: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = self.readers[0][1]  # all have the condition and the columns of the plan
        if rows:
            batch = pa.concat_batches(rows)
            batch = batch if reader.condition is None else matching_rows(batch, reader.condition)
            if batch.num_rows:
                yield batch.select(list(reader.columns))


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
                    line = _Line(_WAITING)
                    pool.submit(_pump, jobs[len(waiting)], line, stop)
                    waiting.append(line)
                yield from _drain(waiting[at])
        finally:
            stop.set()
            for line in waiting:
                _empty(line)


class _Line(queue.Queue[Any]):
    """A queue of batches, which is full by their number or by their bytes."""

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)
        self._bytes = 0

    def _qsize(self) -> int:
        return self.maxsize if self._bytes >= _MAX_WAITING_BYTES else super()._qsize()

    def _put(self, item: Any) -> None:
        super()._put(item)
        self._bytes += item.nbytes if isinstance(item, pa.RecordBatch) else 0

    def _get(self) -> Any:
        item = super()._get()
        self._bytes -= item.nbytes if isinstance(item, pa.RecordBatch) else 0
        return item


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


def _common_row(reader: RowReader, file_slice: FileSlice, footer: Footer) -> pa.RecordBatch | None:
    """The values that all rows of a base file have in the columns that are read; None if its footer does not show
    them."""
    arrays: list[pa.Array] = []
    for source in reader.sources:
        kind = reader.read_schema.field(source.name).type
        if source.from_path:
            value = (reader.partition_values or {})[file_slice.partition][source.name]
        elif source.name == source.stored and source.type == kind:
            value = footer.constant(source.name)
        else:
            return None
        if value is None:
            return None
        arrays.append(pa.array([value], kind))
    return pa.RecordBatch.from_arrays(arrays, schema=reader.read_schema) if arrays else null_rows(reader.read_schema, 1)
