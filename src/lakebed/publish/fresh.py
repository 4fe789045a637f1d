"""The rows of log files, for lists of base files: which rows of a base file they replace or delete, and the rows that
the table shows in their place.

A list masks the first and names files with copies of the second. Both are found by the merge that scans read with, so a
reader of the list sees the rows of a scan, whichever rules decide between two rows of a key. Nothing of them grows with
the table: the keys of base files that have log files are read, and the rows of log files are written.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.parquet_writer import BaseFileWriter, ParquetSettings
from lakebed.model import BaseFile, FileSlice, path_in
from lakebed.publish.data_files import DataFile, read_data_file
from lakebed.publish.versions import TableVersion
from lakebed.read.batches import RowReader, row_readers
from lakebed.read.plan import plan_scan
from lakebed.schema.conversion import project
from lakebed.storage.base import Storage
from lakebed.storage.parallel import is_remote, parallel_map

ROWS_SUFFIX = "-rows.parquet"
"""The end of the names of files with copies of rows, which begin with the instant of their version."""
# So many file slices are in memory at a time.
_TOGETHER = 16
# So many are read at a time where answers are slow. Else threads take the interpreter from each other.
_READERS = 8

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FreshRows:
    """What a list shows besides base files: `masks` are the numbers of rows that are not shown, by the path of the base
    file, ascending; `files` have the rows that are shown instead."""

    masks: Mapping[str, Positions]
    files: Sequence[DataFile]


def write_fresh_rows(
    storage: Storage, version: TableVersion, folder: str, partition: Sequence[str], *, field_ids: bool
) -> FreshRows:
    """Write the rows of a version that its base files lack into files in `folder`, one for each value of the partition
    columns, and return them with the masks of the base files. `field_ids`: columns have the ids of their paths."""
    masks: dict[str, Positions] = {}
    files: list[DataFile] = []
    plan = plan_scan(version.view, slices=version.unmerged)
    jobs = sorted(row_readers(plan, None), key=lambda job: job[0].partition)
    slices = version.view.reader
    threads = _READERS if is_remote(storage) else 1

    def read(job: tuple[FileSlice, RowReader]) -> tuple[Positions, list[pa.RecordBatch]]:
        """The numbers of the rows of a slice's base file that its log records replace or delete, and the rows of the
        slice except the others of its base file."""
        file_slice, reader = job
        base = file_slice.base_file
        if base is None:
            return np.array([], np.int64), list(reader.read(slices, file_slice))
        touched = reader.touched(slices, file_slice, base, caches_keys=True)
        masked = np.flatnonzero(touched.flags())
        return masked, [rows for batch in touched.log_rows() for rows in reader.shaped(batch, file_slice.partition)]

    writer: _PartitionFiles | None = None
    try:
        for start in range(0, len(jobs), _TOGETHER):
            together = jobs[start : start + _TOGETHER]
            for (file_slice, _), (masked, batches) in zip(together, parallel_map(read, together, threads), strict=True):
                if writer is None or writer.path != file_slice.partition:
                    files += [] if writer is None else writer.close()
                    writer = _PartitionFiles(storage, version, folder, partition, file_slice.partition, field_ids)
                base = file_slice.base_file
                if base is not None and len(masked):
                    masks[base.path] = masked
                for batch in batches:
                    writer.write(batch)
        files += [] if writer is None else writer.close()
    except BaseException:
        if writer is not None:
            writer.abort()
        raise
    return FreshRows(masks, files)


class _PartitionFiles:
    """Writes the rows of one partition path of the table, a file for each value of the list's partition columns: the
    null and the empty text have one path."""

    def __init__(
        self,
        storage: Storage,
        version: TableVersion,
        folder: str,
        partition: Sequence[str],
        path: str,
        field_ids: bool,
    ) -> None:
        self.path = path
        self._storage, self._version, self._folder = storage, version, folder
        self._partition = list(partition)
        self._settings = ParquetSettings(field_ids=field_ids)
        self._open: dict[tuple[Any, ...], tuple[str, BaseFileWriter]] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        rows = pa.Table.from_batches([project(batch, self._version.schema)])
        if not self._partition:
            self._writer_of(()).write(rows)
            return
        for values in rows.select(self._partition).group_by(self._partition).aggregate([]).to_pylist():
            flags = [
                pc.is_null(rows[name]) if value is None else pc.fill_null(pc.equal(rows[name], value), False)
                for name, value in values.items()
            ]
            self._writer_of(tuple(values[name] for name in self._partition)).write(rows.filter(reduce(pc.and_, flags)))

    def close(self) -> list[DataFile]:
        """Make the files visible and return them."""
        files: list[DataFile] = []
        instant = self._version.position.instant
        while self._open:
            values, (name, writer) = next(iter(self._open.items()))
            size = writer.close({})
            del self._open[values]
            base = BaseFile(self._folder, name, "", instant, name, size)
            partition = dict(zip(self._partition, values, strict=True))
            files.append(read_data_file(self._storage, base, self._version.schema, partition))
        return files

    def abort(self) -> None:
        """Remove the files that are not visible yet."""
        for _, writer in self._open.values():
            with suppress(Exception):  # the error that stopped the writing is the one to report
                writer.abort()

    def _writer_of(self, values: tuple[Any, ...]) -> BaseFileWriter:
        if values not in self._open:
            name = f"{self._version.position.instant}-{uuid.uuid4().hex}{ROWS_SUFFIX}"
            upload = self._storage.create(path_in(self._folder, name))
            self._open[values] = name, BaseFileWriter(upload, self._version.schema, self._settings)
        return self._open[values][1]
