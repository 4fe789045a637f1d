"""The compact handle: a file slice becomes the next base file of its group. Rows keep their first four meta columns."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakebed.engine.base import GROUP, Task
from lakebed.engine.spill import Spill
from lakebed.errors import CorruptFile, LakebedError
from lakebed.format.base_file import read_footer
from lakebed.format.bloom import BloomFilter
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.format.key_order import KeyRange
from lakebed.format.parquet_encodings import encodings_of
from lakebed.handles.file_writer import FileFormat, FileWriter
from lakebed.handles.key_ordered import sorted_as_a_whole
from lakebed.handles.row_group_copies import RowGroupCopies
from lakebed.handles.stored_rows import StoredRows, texts_with_dictionary
from lakebed.model import PARTITION_PATH, BaseFile, FileSlice, LogFile, path_in
from lakebed.slices.base_rows import DICTIONARY_META
from lakebed.slices.logs import MergeCounts
from lakebed.slices.reader import SliceReader
from lakebed.slices.row_group_rows import RowGroups
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.commit import NEW_FILE, stat_record
from lakebed.timeline.bodies.plans import CompactionOperation
from lakebed.timeline.file_slices import in_merge_order
from lakebed.write_status import STATUS_SCHEMA, WriteStatus, from_table, to_batch

_OPERATION = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("instant", pa.string()),
        ("base_file", pa.string()),
        ("log_files", pa.list_(pa.string())),
    ]
)
# What a compaction's write stat tells beyond that of a write, by Hudi's names.
_TOTALS = "totals"
_NO_KEYS = pa.array([], pa.string())
COMPACTED_SCHEMA = STATUS_SCHEMA.append(pa.field(_TOTALS, pa.string()))


@dataclass(frozen=True, slots=True)
class Compacted:
    """One file group's outcome: its status, and what was read for it by the names of Hudi's write stat."""

    status: WriteStatus
    totals: Mapping[str, int]

    def stat(self) -> dict[str, Any]:
        """The write stat as the record of a commit body."""
        record = stat_record(self.status.stat(), **self.totals)
        record["runtimeStats"]["totalScanTime"] = self.totals.get("totalLogReadTimeMs", 0)
        return record


def operation_rows(operations: Sequence[CompactionOperation]) -> pa.Table:
    """The operations of a plan as rows for an engine, each a group of its own."""
    columns = [pa.array([getattr(o, f.name) for o in operations], f.type) for f in _OPERATION]
    table = pa.Table.from_arrays(columns, schema=_OPERATION)
    table = table.append_column(PARTITION_PATH, pa.array([""] * len(operations), pa.string()))
    return table.append_column(GROUP, pa.array(range(len(operations)), pa.int32()))


def compacted(table: pa.Table) -> list[Compacted]:
    """What the tasks gave back."""
    totals = [json.loads(text or "{}") for text in table.column(_TOTALS).to_pylist()]
    return [Compacted(*pair) for pair in zip(from_table(table), totals, strict=True)]


@dataclass(frozen=True, slots=True)
class SliceCompactor:
    """Sent to the tasks. Called with an operation of a plan it writes the next base file of its group: exactly the
    files of the plan are merged. An error of the rows comes back in the status."""

    reader: SliceReader
    instant: str
    format: FileFormat

    @property
    def storage(self) -> Storage:
        return self.reader.storage

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        for operation in operations_in(batches):
            try:
                done = self.compact(planned_slice(self.storage, operation), task)
            except LakebedError as error:
                done = Compacted(WriteStatus(operation.partition, operation.file_id, error=error.to_json()), {})
            yield as_batch(done)

    def compact(self, file_slice: FileSlice, task: Task) -> Compacted:
        """Write the merged rows of a slice; a file without rows where all are deleted. Row groups that no log record
        touches are copied as bytes."""
        started = time.monotonic()
        writer, counts = self._by_row_groups(file_slice, task) or self._whole(file_slice, task)
        base = file_slice.base_file
        status = replace(
            writer.finish(counts.inserted if base is not None else writer.rows),
            prev_commit=file_slice.instant if base is not None else NEW_FILE,
            prev_base_file=base.name if base is not None else None,
            num_updates=counts.updated if base is not None else 0,
            num_deletes=counts.deleted,
            # the keys of the group are what they were: indexes follow log files as they are written
            changes=b"",
        )
        changed = counts.updated + counts.deleted + counts.inserted
        return Compacted(status, totals_of(file_slice, counts, changed, int((time.monotonic() - started) * 1000)))

    def _by_row_groups(self, file_slice: FileSlice, task: Task) -> tuple[FileWriter, MergeCounts] | None:
        """An open file with the rows, of which some were moved as bytes; None where that is not possible."""
        base, format_ = file_slice.base_file, self.format
        if base is None or format_.sort or not format_.populate_meta:
            return None
        stored = StoredRows(self.reader, format_, file_slice.without_logs(), base)
        with stored.groups() as source:
            if source is None:
                return None
            writer = self._writer(file_slice, task, stored.encodings, *stored.known_keys(), copies=True)
            groups = RowGroups(source, RowGroupCopies(writer, source, stored.parquet.row_group_rows).take)
            merged = self.reader.merged(file_slice, format_.schema, groups=groups)
            with _aborting(writer):
                for batch, is_new in merged.old_and_new():
                    writer.write(batch, new_keys=None if is_new else _NO_KEYS)
            return writer, merged.counts

    def _whole(self, file_slice: FileSlice, task: Task) -> tuple[FileWriter, MergeCounts]:
        """An open file with the rows, all of which are encoded."""
        encodings = self._encodings(file_slice)
        encoded = texts_with_dictionary(self.format.schema, encodings)
        merged = self.reader.merged(file_slice, self.format.schema, dictionary=(*DICTIONARY_META, *encoded))
        writer = self._writer(file_slice, task, encodings, self.format.bloom(), KeyRange())
        with Spill(self.format.settings.memory) as spill:
            batches = merged.batches()
            if self.format.sort:
                batches = (rows for rows, _ in sorted_as_a_whole(batches, spill))
            with _aborting(writer):
                for batch in batches:
                    writer.write(batch, new_keys=None)
        return writer, merged.counts

    def _encodings(self, file_slice: FileSlice) -> Mapping[str, str]:
        """How the columns of the base file are encoded, which is kept."""
        base = file_slice.base_file
        return {} if base is None else encodings_of(read_footer(self.storage, base.path, base.size).metadata)

    def _writer(
        self,
        file_slice: FileSlice,
        task: Task,
        encodings: Mapping[str, str],
        bloom: BloomFilter | None,
        keys: KeyRange,
        *,
        copies: bool = False,
    ) -> FileWriter:
        return FileWriter(
            self.storage,
            self.format,
            self.instant,
            file_slice.partition,
            file_slice.file_id,
            task,
            "MERGE",
            bloom,
            keys,
            encodings or None,
            copies=copies,
        )


@contextmanager
def _aborting(writer: FileWriter) -> Generator[None]:
    """A file whose writing fails leaves nothing."""
    try:
        yield
    except BaseException:
        writer.abort()
        raise


def totals_of(file_slice: FileSlice, counts: Any, changed: int, millis: int) -> dict[str, int]:
    """What Hudi's write stat tells of the log files that were merged."""
    return {
        "totalLogRecords": counts.log_records,
        "totalUpdatedRecordsCompacted": changed,
        "totalLogBlocks": counts.log_blocks,
        "totalLogFilesCompacted": len(file_slice.log_files),
        "totalLogSizeCompacted": sum(log.size for log in file_slice.log_files),
        "totalLogReadTimeMs": millis,
        "totalCorruptLogBlock": counts.corrupt_blocks,
        "totalRollbackBlocks": counts.rollback_blocks,
    }


def as_batch(done: Compacted) -> pa.RecordBatch:
    """One outcome as a row for the driver."""
    batch = to_batch([done.status])
    totals = pa.array([json.dumps(done.totals)], pa.string())
    return pa.RecordBatch.from_arrays([*batch.columns, totals], schema=COMPACTED_SCHEMA)


def operations_in(batches: Iterator[pa.RecordBatch]) -> Iterator[CompactionOperation]:
    """The operations that a task gets as rows."""
    for batch in batches:
        for row in batch.select(_OPERATION.names).to_pylist():  # one a file group
            texts = row["partition"], row["file_id"], row["instant"], row["base_file"]
            yield CompactionOperation(*texts, tuple(row["log_files"]))


def planned_slice(storage: Storage, operation: CompactionOperation) -> FileSlice:
    """The file slice that an operation of a plan names, whatever came to its group since. Raises `CorruptFile` where a
    file of it is gone."""
    base = None
    if operation.base_file:
        base = parse_base_file(operation.partition, operation.base_file, _size(storage, operation, operation.base_file))
    logs = [parse_log_file(operation.partition, name, _size(storage, operation, name)) for name in operation.log_files]
    if (operation.base_file and not isinstance(base, BaseFile)) or not all(isinstance(log, LogFile) for log in logs):
        raise CorruptFile(
            f"the plan of a table service for file group {operation.file_id} names what is no file of a file group",
            hint="Take the plan off the timeline; the service makes a new one.",
            context={"partition": operation.partition, "file_id": operation.file_id},
        )
    # a plan of clustering names the newest log file first
    found = tuple(in_merge_order([log for log in logs if log is not None]))
    return FileSlice(operation.partition, operation.file_id, operation.instant, base, found)


def _size(storage: Storage, operation: CompactionOperation, name: str) -> int:
    path = path_in(operation.partition, name)
    info = storage.head(path)
    if info is None:
        raise CorruptFile(
            f"{storage.url(path)} is gone, and a table service that is planned reads it",
            hint="Restore the file from a copy.",
            context={"path": path, "file_id": operation.file_id},
        )
    return info.size
