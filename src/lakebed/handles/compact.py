"""The compact handle makes the next base file of a file slice, the log-compact handle one log file of the blocks of
many. Rows keep their first four meta columns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Task
from lakebed.engine.spill import Spill
from lakebed.errors import CorruptFile, LakebedError, UnsupportedFeature
from lakebed.format.bloom import BloomFilter
from lakebed.format.data_block import encode_data_block
from lakebed.format.delete_block import encode_ordered_deletes
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.format.key_order import KeyRange
from lakebed.format.log_file import BlockType, HeaderKey, delete_block
from lakebed.format.parquet_encodings import ColumnForm
from lakebed.handles.append import pieces
from lakebed.handles.file_writer import FileFormat, FileWriter
from lakebed.handles.log_writer import LogWriter
from lakebed.handles.stored_rows import RowGroupCopies, StoredRows, sorted_in_full, texts_with_dictionary
from lakebed.model import OPERATION_COLUMN, PARTITION_PATH, UPDATE_OPERATION, BaseFile, FileSlice, path_in
from lakebed.slices.base_rows import DICTIONARY_META
from lakebed.slices.logs import MergeCounts
from lakebed.slices.merged import MergedSlice, RowGroups
from lakebed.slices.reader import SliceReader
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
# What a compaction's write stat has beyond that of a write, by Hudi's names.
_TOTALS = "totals"
_NO_KEYS = pa.array([], pa.string())
COMPACTED_SCHEMA = STATUS_SCHEMA.append(pa.field(_TOTALS, pa.string()))


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result for one file group: its status, and the counts of the data that was read, by the names of Hudi's write
    stat."""

    status: WriteStatus
    totals: Mapping[str, int]

    def stat(self) -> dict[str, Any]:
        """The write stat as the record of a commit body."""
        record = stat_record(self.status.stat(), **self.totals)
        record["runtimeStats"]["totalScanTime"] = self.totals.get("totalLogReadTimeMs", 0)
        return record


def operation_rows(operations: Sequence[CompactionOperation]) -> pa.Table:
    """The operations of a plan as rows for an engine, with one group for each operation."""
    columns = [pa.array([getattr(o, f.name) for o in operations], f.type) for f in _OPERATION]
    table = pa.Table.from_arrays(columns, schema=_OPERATION)
    table = table.append_column(PARTITION_PATH, pa.array([""] * len(operations), pa.string()))
    return table.append_column(GROUP, pa.array(range(len(operations)), pa.int32()))


def compacted(table: pa.Table) -> list[Compacted]:
    """The outcomes in the rows that tasks returned."""
    totals = [json.loads(text or "{}") for text in table.column(_TOTALS).to_pylist()]
    return [Compacted(*pair) for pair in zip(from_table(table), totals, strict=True)]


@dataclass(frozen=True, slots=True)
class SliceCompactor:
    """A task function that writes the next base file for an operation of a plan: exactly the
    files of the plan are merged. The status carries an error of the rows."""

    reader: SliceReader
    instant: str
    format: FileFormat

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        for operation in operations_in(batches):
            try:
                done = self.compact(planned_slice(self.reader.storage, operation), task)
            except LakebedError as error:
                done = Compacted(WriteStatus(operation.partition, operation.file_id, error=error.to_json()), {})
            yield as_batch(done)

    def compact(self, file_slice: FileSlice, task: Task) -> Compacted:
        """Write the merged rows of a slice; a file without rows if all are deleted. Row groups that no log record
        changes are copied as bytes."""
        started = time.monotonic()
        base = file_slice.base_file
        # its footer is read once
        stored = None if base is None else StoredRows(self.reader, self.format, file_slice.without_logs(), base)
        copied = None if stored is None else self._by_row_groups(file_slice, stored, task)
        writer, counts = copied or self._whole(file_slice, stored, task)
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

    def _by_row_groups(
        self, file_slice: FileSlice, stored: StoredRows, task: Task
    ) -> tuple[FileWriter, MergeCounts] | None:
        """An open file with the rows, some of them copied as bytes; None if that is not possible."""
        format_ = self.format
        if format_.sort or not format_.populate_meta:
            return None
        with stored.groups() as source:
            if source is None:
                return None
            writer = self._writer(file_slice, task, stored.encodings, *stored.stored_keys(), copies=True)
            groups = RowGroups(source, RowGroupCopies(writer, source, stored.parquet.row_group_rows).take)
            merged = self.reader.merged(file_slice, format_.schema, groups=groups, footer=stored.footer)
            with _aborting(writer):
                for batch, is_new in merged.old_and_new():
                    writer.write(batch, new_keys=None if is_new else _NO_KEYS)
            return writer, merged.counts

    def _whole(self, file_slice: FileSlice, stored: StoredRows | None, task: Task) -> tuple[FileWriter, MergeCounts]:
        """An open file with the rows, all of which are encoded."""
        footer, encodings = (None, {}) if stored is None else (stored.footer, stored.encodings)
        encoded = texts_with_dictionary(self.format.schema, encodings)
        merged = self.reader.merged(
            file_slice, self.format.schema, dictionary=(*DICTIONARY_META, *encoded), footer=footer
        )
        writer = self._writer(file_slice, task, encodings, self.format.bloom(), KeyRange())
        with Spill(self.format.settings.memory) as spill:
            batches = merged.batches()
            if self.format.sort:
                batches = (rows for rows, _ in sorted_in_full(batches, spill))
            with _aborting(writer):
                for batch in batches:
                    writer.write(batch, new_keys=None)
        return writer, merged.counts

    def _writer(
        self,
        file_slice: FileSlice,
        task: Task,
        encodings: Mapping[str, ColumnForm],
        bloom: BloomFilter | None,
        keys: KeyRange,
        *,
        copies: bool = False,
    ) -> FileWriter:
        return FileWriter(
            self.reader.storage,
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


def _with_operations(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with `_hoodie_operation` set where it is null, as in older log files: real Hudi cannot read nulls."""
    at = rows.schema.get_field_index(OPERATION_COLUMN)
    if at < 0:
        return rows
    return rows.set_column(at, OPERATION_COLUMN, pc.fill_null(rows.column(at), UPDATE_OPERATION))


@contextmanager
def _aborting(writer: FileWriter) -> Generator[None]:
    """Abort the writer if the block raises, so that no incomplete file remains."""
    try:
        yield
    except BaseException:
        writer.abort()
        raise


def totals_of(file_slice: FileSlice, counts: Any, changed: int, millis: int) -> dict[str, int]:
    """The fields of Hudi's write stat about the log files that were merged."""
    return {
        "totalLogRecords": counts.log_records,
        "totalUpdatedRecordsCompacted": changed,
        "totalLogBlocks": counts.log_blocks,
        "totalLogFilesCompacted": len(file_slice.log_files),
        "totalLogSizeCompacted": file_slice.log_bytes,
        "totalLogReadTimeMs": millis,
        "totalCorruptLogBlock": counts.corrupt_blocks,
        "totalRollbackBlocks": counts.rollback_blocks,
    }


def as_batch(done: Compacted) -> pa.RecordBatch:
    """One result as a batch of one row, for the driver."""
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
    """The file slice that an operation of a plan names, without files that were added to its group since. Raises
    `CorruptFile` if a file of it is missing."""
    base = None
    if operation.base_file:
        base = parse_base_file(operation.partition, operation.base_file, _size(storage, operation, operation.base_file))
    logs = [parse_log_file(operation.partition, name, _size(storage, operation, name)) for name in operation.log_files]
    if (operation.base_file and not isinstance(base, BaseFile)) or None in logs:
        raise CorruptFile(
            f"the plan of a table service for file group {operation.file_id} names what is no file of a file group",
            hint="Take the plan off the timeline; the service makes a new one.",
            context={"partition": operation.partition, "file_id": operation.file_id},
        )
    # a plan of clustering names the newest log file first
    log_files = tuple(in_merge_order([log for log in logs if log is not None]))
    return FileSlice(operation.partition, operation.file_id, operation.instant, base, log_files)


def _size(storage: Storage, operation: CompactionOperation, name: str) -> int:
    path = path_in(operation.partition, name)
    info = storage.head(path)
    if info is None:
        raise CorruptFile(
            f"{storage.url(path)} is missing, and a planned table service reads it",
            hint="Restore the file from a copy.",
            context={"path": path, "file_id": operation.file_id},
        )
    return info.size


# A block takes no more than this share of the memory of a task.
_SHARE = 4
_BLOCK_TYPES = {"avro": BlockType.AVRO_DATA, "parquet": BlockType.PARQUET_DATA}


@dataclass(frozen=True, slots=True)
class LogCompactor:
    """A task function that writes one log file from those of an operation: the winning records, one per key with the
    meta columns that it has, then the deletes with their ordering values."""

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
                for done in self.compact(operation, task):
                    yield as_batch(done)
            except LakebedError as error:
                status = WriteStatus(operation.partition, operation.file_id, error=error.to_json())
                yield as_batch(Compacted(status, {}))

    def compact(self, operation: CompactionOperation, task: Task) -> list[Compacted]:
        """Write the log file (several if it grows too large). Returns one result per file."""
        started = time.monotonic()
        file_slice = planned_slice(self.storage, operation)
        merged = self.reader.merged(replace(file_slice, base_file=None), self.format.schema)
        if not merged.picks_winners:
            raise UnsupportedFeature(
                f"{file_slice.label}: its log records are partial updates, which are merged with base rows alone",
                hint="Compact the table instead: t.maintenance.compact().",
                context={"feature": "log compaction of partial updates", "path": file_slice.label},
            )
        log = self._log_writer(file_slice, task)
        try:
            self._append(log, merged, file_slice)
            log.close()
        except BaseException:
            log.abort()
            raise
        millis = int((time.monotonic() - started) * 1000)
        changed = sum(file.rows + file.deletes for file in log.done)
        totals = totals_of(file_slice, merged.counts, changed, millis)
        statuses = self._statuses(file_slice, log)
        return [Compacted(status, {} if n else totals) for n, status in enumerate(statuses)]

    def _log_writer(self, file_slice: FileSlice, task: Task) -> LogWriter:
        return LogWriter(
            storage=self.storage,
            format=self.format,
            table_version=self.reader.config.version,
            instant=self.instant,
            log_instant=self.instant,
            partition=file_slice.partition,
            file_id=file_slice.file_id,
            task=task,
            next_version=1,
        )

    def _append(self, log: LogWriter, merged: MergedSlice, file_slice: FileSlice) -> None:
        covered = sorted({head.instant for head in merged.logs.blocks})
        headers = {
            int(HeaderKey.INSTANT_TIME): self.instant,
            int(HeaderKey.COMPACTED_BLOCK_TIMES): ",".join(covered),
        }
        limit = min(self.format.settings.log_block_bytes, self.reader.memory // _SHARE)
        parts: list[pa.RecordBatch] = []
        size = 0
        for part in (part for batch in merged.batches() for part in pieces(batch, limit)):
            if parts and size + part.nbytes > limit:
                self._append_block(log, parts, headers)
                parts, size = [], 0
            parts.append(part)
            size += part.nbytes
        if parts:
            self._append_block(log, parts, headers)
        deletes = merged.deletes()
        if len(deletes):
            content = encode_ordered_deletes(deletes.keys, file_slice.partition, deletes.ordering, deletes.forced)
            block = delete_block(content, self.instant, self.format.avro_schema)
            log.file.deletes += len(deletes)
            log.append(replace(block, headers={**block.headers, **headers}))

    def _append_block(self, log: LogWriter, rows: list[pa.RecordBatch], headers: dict[int, str]) -> None:
        rows = [_with_operations(part) for part in rows]
        block = encode_data_block(rows, self.format.avro_schema, headers, _BLOCK_TYPES[self.format.log_blocks])
        for part in rows:
            log.see(part)
            log.file.updates += part.num_rows
        log.append(block)

    def _statuses(self, file_slice: FileSlice, log: LogWriter) -> list[WriteStatus]:
        """One status for each written file; a file that the commit does not name would count as the file of a lost
        attempt."""
        names = [file.name for file in log.done]
        return [
            WriteStatus(
                file_slice.partition,
                file_slice.file_id,
                path=path_in(file_slice.partition, file.name),
                prev_commit=file_slice.instant,
                base_file="",
                log_files=names[: n + 1],
                log_version=file.version,
                log_offset=0,
                num_writes=file.rows,
                num_updates=file.updates,
                num_deletes=file.deletes,
                file_size=file.size,
                millis=file.millis,
                ranges=file.ranges,
                plain_keys=file.plain_keys,
                changes=b"",  # no key comes or goes
            )
            for n, file in enumerate(log.done)
        ]
