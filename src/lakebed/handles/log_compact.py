"""The log-compact handle: the blocks of a slice's log files become fewer, of one new log file, which stand for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.engine.base import Task
from lakebed.errors import LakebedError, UnsupportedFeature
from lakebed.format.data_block import encode_data_block
from lakebed.format.delete_block import encode_ordered_deletes
from lakebed.format.log_file import BlockType, HeaderKey, delete_block
from lakebed.handles.append import pieces
from lakebed.handles.compact import Compacted, as_batch, operations_in, planned_slice, totals_of
from lakebed.handles.file_writer import FileFormat
from lakebed.handles.log_writer import LogWriter
from lakebed.model import FileSlice, path_in
from lakebed.slices.merged import MergedSlice
from lakebed.slices.reader import SliceReader
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.plans import CompactionOperation
from lakebed.write_status import WriteStatus

# A block takes no more than this share of the memory of a task.
_SHARE = 4
_BLOCK_TYPES = {"avro": BlockType.AVRO_DATA, "parquet": BlockType.PARQUET_DATA}


@dataclass(frozen=True, slots=True)
class LogCompactor:
    """Sent to the tasks. Called with an operation of a plan it writes the records that stay of its log files, one a key
    with the meta columns that it has, then the deletes with their ordering values."""

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
        """Write the log file (more where it grows too large); one outcome each."""
        started = time.monotonic()
        file_slice = planned_slice(self.storage, operation)
        merged = self.reader.merged(replace(file_slice, base_file=None), self.format.schema)
        if not merged.picks_winners:
            raise UnsupportedFeature(
                f"{file_slice.label}: its log records are partial updates, which are merged with base rows alone",
                hint="Compact the table instead: t.compact().",
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
        held: list[pa.RecordBatch] = []
        size = 0
        for part in (part for batch in merged.batches() for part in pieces(batch, limit)):
            if held and size + part.nbytes > limit:
                self._append_block(log, held, headers)
                held, size = [], 0
            held.append(part)
            size += part.nbytes
        if held:
            self._append_block(log, held, headers)
        deletes = merged.deletes()
        if len(deletes):
            content = encode_ordered_deletes(deletes.keys, file_slice.partition, deletes.ordering, deletes.forced)
            block = delete_block(content, self.instant, self.format.avro_schema)
            log.file.deletes += len(deletes)
            log.append(replace(block, headers={**block.headers, **headers}))

    def _append_block(self, log: LogWriter, rows: list[pa.RecordBatch], headers: dict[int, str]) -> None:
        block = encode_data_block(rows, self.format.avro_schema, headers, _BLOCK_TYPES[self.format.log_blocks])
        for part in rows:
            log.see(part)
            log.file.updates += part.num_rows
        log.append(block)

    def _statuses(self, file_slice: FileSlice, log: LogWriter) -> list[WriteStatus]:
        """One a file: each is named in the commit, else it would be taken for a lost attempt's."""
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
