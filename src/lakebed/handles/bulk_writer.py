"""The row function of a bulk insert: a task writes what it has to new file groups, one open file a partition path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakebed.concurrency.markers import write_markers
from lakebed.engine.base import Task
from lakebed.errors import LakebedError
from lakebed.format.column_ranges import StoredRanges, are_ordinary, as_stream, rows_of
from lakebed.format.file_names import new_file_id
from lakebed.format.key_order import ends_of_runs
from lakebed.format.parquet_encodings import ColumnForm, shared_forms
from lakebed.format.row_addresses import fingerprints
from lakebed.handles.base import GroupJob
from lakebed.handles.file_writer import FileWriter, write_partition_metadata
from lakebed.handles.group_writer import accounted
from lakebed.handles.new_rows import NewRows
from lakebed.merge.incoming import Incoming
from lakebed.merge.meta_columns import constant
from lakebed.model import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakebed.schema.plain_arrow import as_numpy
from lakebed.write_status import WriteStatus, to_batch

# Bytes that the open files of one task may hold back together before the largest are closed.
_OPEN_BYTES = 256 << 20
# The files are measured again after so many more bytes: each time all are asked.
_MEASURED_BYTES = _OPEN_BYTES // 16

# Files that begin with fewer rows have the forms of columns that were chosen by the rows of several files.
_SMALL_ROWS = 4096
# New partition paths that are prepared together.
MAX_PREPARED = 64
# Files whose ranges of columns are put into bytes together.
_TOGETHER = 256


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
                files.write(batch)
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
        # an upper bound of what the open files hold, and where it calls for a measurement
        self._held_back = 0
        self._measured_at = _OPEN_BYTES
        self._forms: Mapping[str, ColumnForm] | None = None
        # the file ids of partition paths whose first file has a marker
        self._marked: dict[str, str] = {}
        # of files in `_done`, by their numbers in it, ranges that are not in a status yet
        self._ranges: dict[int, StoredRanges] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows to the files of their partition paths."""
        self._received += rows.num_rows
        format_ = self._job.format
        paths = rows.column(PARTITION_PATH)
        checked = self._job.intake.checked(iter([rows]), self._task)
        incoming = self._job.intake.split(pa.Table.from_batches(checked))
        self._combined += incoming.combined
        if incoming.row_numbers is not None:
            paths = paths.take(pa.array(incoming.row_numbers))
        for partitions, keys, data in by_partition(paths, incoming):
            if self._forms is None and any(
                stop - start < min(_SMALL_ROWS, incoming.rows) for _, start, stop in partitions
            ):
                self._forms = _forms_of(incoming)
            batch = format_.fresh_meta(self._job.instant, "", self._task).with_meta(keys, data)
            fields = [g.with_nullable(f.nullable) for f, g in zip(format_.schema, batch.schema, strict=True)]
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))
            hashes = fingerprints(keys) if format_.has_addresses else None
            new = NewRows(batch, hashes, is_ordinary=are_ordinary(batch))
            ends = ends_of_runs(keys, [start for _, start, _ in partitions]) or [None] * len(partitions)
            for at, (partition, start, stop) in enumerate(partitions):
                if at % MAX_PREPARED == 0:
                    self._prepare(
                        [name for name, _, _ in partitions[at : at + MAX_PREPARED] if name not in self._numbers]
                    )
                self._write_to(partition, new.slice(start, stop - start, ends[at]))

    def _prepare(self, partitions: Sequence[str]) -> None:
        """Prepare several new partition paths, and write the markers of their first files together, so that they are
        made durable once for all."""
        if len(partitions) < 2 or self._task.may_be_late:
            return
        for partition in partitions:
            self._prepare_path(partition)
        name, instant = self._job.format.next_file_name, self._job.instant
        ids = {partition: new_file_id(instant, partition, self._task.partition) for partition in partitions}
        files = [(partition, name(file_id, self._task, instant)) for partition, file_id in ids.items()]
        write_markers(self._job.storage, instant, files, "CREATE")
        self._marked |= ids

    def _prepare_path(self, partition: str) -> None:
        self._job.path_check.require(partition)
        write_partition_metadata(self._job.storage, partition, self._job.instant)

    def _write_to(self, partition: str, rows: NewRows) -> None:
        """Write the rows of a partition path; they lack its name."""
        if not self._keep_open:
            for open_partition in [p for p in self._open if p != partition]:
                self._finish(open_partition)
        if self._job.format.populate_meta:
            at, names = rows.batch.schema.get_field_index(PARTITION_PATH), constant(partition, rows.batch.num_rows)
            field = rows.batch.schema.field(at)
            rows = replace(rows, batch=rows.batch.set_column(at, field, names))
        self._append(partition, rows)
        if self._held_back > self._measured_at:
            self._close_largest()

    def _close_largest(self) -> None:
        """Close the largest files if the open ones hold back too many bytes; what their rows take is measured."""
        sizes = {partition: writer.size for partition, writer in self._open.items()}
        total = sum(sizes.values())
        for partition in sorted(sizes, key=lambda p: -sizes[p]):
            if total <= _OPEN_BYTES or len(self._open) == 1:
                break
            total -= sizes[partition]
            self._finish(partition)
        self._held_back = sum(writer.max_bytes for writer in self._open.values())
        self._measured_at = max(_OPEN_BYTES, self._held_back + _MEASURED_BYTES)

    def _append(self, partition: str, coming: NewRows) -> None:
        """Write rows, going on to a further file group whenever the file is full."""
        while before := coming.batch.num_rows:
            writer = self._open.get(partition) or self._new(partition, before)
            self._open[partition] = writer
            size = writer.max_bytes
            coming = writer.fill(coming, self._job.max_file_size)
            self._held_back += writer.max_bytes - size
            if coming.batch.num_rows == before:
                self._finish(partition)

    def _new(self, partition: str, rows: int) -> FileWriter:
        n = self._numbers[partition] = self._numbers.get(partition, -1) + 1
        marked_id = self._marked.get(partition) if n == 0 else None
        if n == 0 and marked_id is None:
            self._prepare_path(partition)
        return FileWriter(
            self._job.storage,
            self._job.format,
            self._job.instant,
            partition,
            marked_id or new_file_id(self._job.instant, partition, self._task.partition, n=n),
            self._task,
            "CREATE",
            self._job.format.bloom(),
            encodings=self._forms if rows < _SMALL_ROWS else None,
            marker=None if marked_id is None else _no_marker,
            keeps_ranges=True,
        )

    def _finish(self, partition: str) -> None:
        writer = self._open.pop(partition)
        self._held_back -= writer.max_bytes
        status = replace(writer.finish(writer.rows), rows_in=writer.rows)
        if writer.stored_ranges is not None:
            self._ranges[len(self._done)] = writer.stored_ranges
        self._done.append(status)
        if len(self._ranges) == _TOGETHER:
            self._put_ranges()

    def _put_ranges(self) -> None:
        """Put the ranges of the last files into the status of the first of them."""
        if self._ranges:
            paths = [self._done[number].path or "" for number in self._ranges]
            rows = as_stream(rows_of(list(self._ranges.values())))
            first = next(iter(self._ranges))
            self._done[first] = replace(self._done[first], ranges=rows, ranged_paths=paths)
            self._ranges = {}

    def close(self) -> list[WriteStatus]:
        for partition in list(self._open):
            self._finish(partition)
        self._put_ranges()
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


def _no_marker() -> None:
    """Do nothing: the marker of the file is written."""


def _forms_of(incoming: Incoming) -> Mapping[str, ColumnForm]:
    """The forms of the columns of small files, by a sample of the rows of all of them."""
    sample = np.linspace(0, incoming.rows - 1, min(incoming.rows, _SMALL_ROWS)).astype(np.int64)
    keys = incoming.keys.take(pa.array(sample))
    meta = dict.fromkeys(META_COLUMNS, constant("", len(sample)))
    rows = incoming.take(sample)
    columns = {**meta, RECORD_KEY: keys, **dict(zip(rows.schema.names, rows.columns, strict=True))}
    return shared_forms(pa.table(columns))


def by_partition(
    paths: pa.Array, incoming: Incoming
) -> Iterator[tuple[list[tuple[str, int, int]], pa.Array, pa.RecordBatch]]:
    """Yields the rows except deletes, in batches with their keys. In each batch the rows of a partition path are
    consecutive, and in the order in which they came: of each path it has the name, its first row, and the row after its
    last one. `paths` are those of the rows."""
    encoded = paths.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    codes = as_numpy(encoded.indices)
    # codes are numbered as they occur first: of paths that follow each other each is one run
    if np.count_nonzero(np.diff(codes)) >= len(names):
        order = np.argsort(codes, kind="stable")
        codes, incoming = codes[order], incoming.at(order)
    codes, first = codes[~incoming.deletes], 0
    for keys, data in incoming.alive_batches():
        of_batch = codes[first : first + data.num_rows]
        first += data.num_rows
        starts = np.flatnonzero(np.append(True, np.diff(of_batch) != 0)).tolist()
        stops = [*starts[1:], len(of_batch)]
        yield [(names[of_batch[start]], start, stop) for start, stop in zip(starts, stops, strict=True)], keys, data
