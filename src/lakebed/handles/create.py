"""The create handle: rows of a new file group, written to its base file, or to more than one where they outgrow the
maximum file size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.concurrency.markers import MarkerKind, write_marker
from lakebed.errors import LakebedError
from lakebed.format.bloom import BloomFilter
from lakebed.format.file_names import bucket_of_file_id, new_file_id
from lakebed.format.key_order import KeyRange
from lakebed.format.parquet_encodings import ColumnForm
from lakebed.handles.base import GroupWrite
from lakebed.handles.change_log import ChangeLogWriter
from lakebed.handles.file_writer import FileWriter
from lakebed.handles.new_rows import NewRows
from lakebed.merge.incoming import Incoming
from lakebed.storage.parallel import in_background, is_remote
from lakebed.write_status import WriteStatus

# What the plan thought to fit may be a little more: better so than a second, tiny file.
ALLOWANCE = 1.05


class BaseFiles:
    """A writer that writes rows to the group's base file and on to further file groups; `done` are the statuses of full
    files."""

    def __init__(self, group: GroupWrite) -> None:
        self._group = group
        self.limit = int(group.job.max_file_size * ALLOWANCE)
        self.done: list[WriteStatus] = []
        self._marker: Callable[[], object] | None = None

    @contextmanager
    def marking(self, file_id: str) -> Generator[None]:
        """Write the marker of the file group's next base file while the block runs, if storage is slow: the previous
        base file is read meanwhile. A marker without a file is removed with the other markers of the write."""
        group = self._group
        if is_remote(group.job.storage):
            name = group.job.format.next_file_name(file_id, group.task, group.instant)
            may_be_late = group.task.may_be_late
            location = group.job.storage, group.instant, group.partition
            self._marker = in_background(partial(write_marker, *location, name, "MERGE", may_be_late=may_be_late))
        try:
            yield
        finally:
            if self._marker is not None:  # it comes before the task ends, also where no file is opened
                with suppress(LakebedError, OSError):
                    self._marker()

    def open(
        self,
        file_id: str,
        kind: MarkerKind,
        bloom: BloomFilter | None = None,
        keys: KeyRange | None = None,
        encodings: Mapping[str, ColumnForm] | None = None,
        log: ChangeLogWriter | None = None,
        *,
        copies: bool = False,
    ) -> FileWriter:
        """A writer of a new file; `bloom` and `keys` begin with the keys of the file's previous version. `log` gets the
        file's changes. With `copies` stored row groups can be copied into the file."""
        group = self._group
        is_marked = group.marked and kind == "CREATE" and file_id == group.target.file_id
        return FileWriter(
            group.job.storage,
            group.job.format,
            group.instant,
            group.partition,
            file_id,
            group.task,
            kind,
            bloom if bloom is not None else group.job.format.bloom(),
            keys if keys is not None else KeyRange(),
            encodings,
            log,
            copies,
            self._marker if kind == "MERGE" else (lambda: None) if is_marked else None,
        )

    def add(self, batches: Iterator[pa.RecordBatch], writer: FileWriter | None = None) -> None:
        """Write new rows, first to the open `writer` if there is one, then to new files, and close every file."""
        inserted = 0
        try:
            for batch in batches:
                rows = NewRows(batch)
                while before := rows.batch.num_rows:
                    if writer is None:
                        writer = self.open(self._next_file_id(), "CREATE")
                    rows = writer.fill(rows, self.limit if self._group.target.size_limited else None)
                    inserted += before - rows.batch.num_rows
                    if rows.batch.num_rows == before:
                        self.finish(writer, inserted)
                        writer, inserted = None, 0
        except BaseException:
            if writer is not None:
                writer.abort()
            raise
        if writer is not None:
            self.finish(writer, inserted)

    def finish(self, writer: FileWriter, inserted: int) -> None:
        """Close a file in which `inserted` rows are new."""
        self.done.append(writer.finish(inserted))

    def _next_file_id(self) -> str:
        """The group's own id for the first file, then the ids of further file groups."""
        group, n = self._group, len(self.done)
        if n == 0:
            return group.target.file_id
        bucket = group.target.bucket if group.target.size_limited else bucket_of_file_id(group.target.file_id)
        return new_file_id(group.instant, group.partition, group.number, bucket=bucket, n=n)


class CreateHandle:
    """A handle that writes all rows except deletes. It writes no file if there are only deletes."""

    def __init__(self, group: GroupWrite) -> None:
        self._group = group

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        return self.write_parts([incoming])

    def write_parts(self, parts: Iterable[Incoming]) -> list[WriteStatus]:
        """Write rows that come in several parts, each of which is in memory while it is written."""
        group, files, counts = self._group, BaseFiles(self._group), Counter[str]()
        files.add(self._batches(parts, counts))
        first, *other_statuses = files.done or [WriteStatus(group.partition, group.target.file_id)]
        received: dict[str, Any] = dict(counts)
        return [replace(first, **received), *other_statuses]

    def _batches(self, parts: Iterable[Incoming], counts: Counter[str]) -> Iterator[pa.RecordBatch]:
        """The rows to write, which are counted."""
        group, fresh = self._group, self._group.fresh_meta
        for incoming in parts:
            counts["rows_in"] += incoming.received
            counts["num_unchanged"] += incoming.rows - incoming.alive
            counts["num_combined"] += incoming.combined
            incoming.count("num_inserts", np.flatnonzero(~incoming.deletes))
            incoming.count("num_unchanged", np.flatnonzero(incoming.deletes))
            if incoming.alive:
                incoming.require_complete()
                group.prepare_partition()
                yield from (fresh.with_meta(keys, data) for keys, data in incoming.alive_batches())
