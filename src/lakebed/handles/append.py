"""The append handle: the incoming rows of a file group go to log files, and no stored row is read to write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.data_block import avro_block, encode_data_block
from lakebed.format.delete_block import encode_ordered_deletes
from lakebed.format.file_names import parse_log_file
from lakebed.format.log_file import BlockType, HeaderKey, LogBlock, delete_block, encode_positions
from lakebed.handles.appended_keys import appended_changes, without_known
from lakebed.handles.base import GroupWrite
from lakebed.handles.delete_ordering import DeletedRows, delete_ordering, without_absent
from lakebed.handles.file_writer import FileFormat, write_partition_metadata
from lakebed.handles.log_writer import LogWriter, WrittenLogFile
from lakebed.handles.many_groups import EncodedRows
from lakebed.handles.partial_rows import appendable, partial_schema
from lakebed.merge.incoming import Incoming, Positions
from lakebed.merge.meta_columns import constant
from lakebed.model import FILE_NAME, LogFile, has_completion_times, path_in
from lakebed.upkeep.changed_keys import report_changes
from lakebed.write_status import WriteStatus

# A data block takes no more than this share of the memory of a task.
_SHARE = 4


def most_block_bytes(format_: FileFormat, memory: int) -> int:
    """How many bytes of rows a data block takes at most."""
    return min(format_.settings.log_block_bytes, memory // _SHARE)


class AppendHandle:
    """Writes data blocks, then one delete block. Which row of a key counts is found when the slice is read.

    Rows that came `encoded` are not encoded again. Those for a file group that is there count as updates, whether their
    keys are or not: nobody looks. The rows of a new file group, which non-blocking writers begin with a log file, are
    inserts. A delete counts where it is written. One without an ordering value is written where a row is stored for it.
    """

    def __init__(self, group: GroupWrite, encoded: EncodedRows | None = None) -> None:
        self._group = group
        self._encoded = encoded
        self._version = group.reader.config.version
        self._begun: LogWriter | None = None

    def begin(self) -> LogWriter:
        """Open the log file of rows that are no deletes; whoever calls this writes its marker."""
        self._begun = self._log_writer(())
        self._begun.begin(marked=True)
        return self._begun

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        group, received, combined = self._group, incoming.received, incoming.combined
        incoming, absent = appendable(group, without_known(group, incoming))
        incoming, stored = without_absent(group, incoming.by_position())
        # of a file group that a pending clustering is about to make a reader sees more than what is written here
        is_new = group.target.slice is None and group.target.log_instant is None
        # what a new file group could forget, it never held
        deletes = np.flatnonzero(incoming.deletes & ~incoming.forced if is_new else incoming.deletes)
        unchanged = received - combined - incoming.alive - len(deletes)
        counts: dict[str, Any] = {"rows_in": received, "num_unchanged": unchanged, "num_combined": combined}
        if not incoming.alive and not len(deletes):
            return [WriteStatus(group.partition, group.target.file_id, **counts)]
        if group.new_partition and is_new:
            group.path_check.require(group.partition)
            write_partition_metadata(group.storage, group.partition, group.instant)
        log = self._begun or self._log_writer(absent)
        try:
            self._append_rows(log, incoming, absent)
            if len(deletes):
                self._append_deletes(log, incoming, deletes, stored)
            log.close()
        except BaseException:
            log.abort()
            raise
        return self._statuses(incoming, counts, log.done)

    def _log_writer(self, absent: Sequence[str]) -> LogWriter:
        group, file_slice = self._group, self._group.target.slice
        log_instant, version = group.instant, 1
        if file_slice is None and group.target.log_instant is not None:
            log_instant = group.target.log_instant
            names = group.storage.list_names(group.partition)
            version = next_log_version(group.partition, names, group.target.file_id, log_instant)
        if not has_completion_times(self._version) and file_slice is not None:
            log_instant = group.target.log_instant or file_slice.instant
            versions = (log.version for log in file_slice.log_files if log.instant == log_instant)
            version = max(versions, default=0) + 1
        return LogWriter(
            storage=group.storage,
            format=replace(group.format, range_columns=tuple(n for n in group.format.range_columns if n not in absent)),
            table_version=self._version,
            instant=group.instant,
            log_instant=log_instant,
            partition=group.partition,
            file_id=group.target.file_id,
            task=group.task,
            next_version=version,
        )

    def _append_rows(self, log: LogWriter, incoming: Incoming, absent: Sequence[str]) -> None:
        """Blocks of the rows that are no deletes."""
        if self._encoded is not None:
            self._append_encoded(log, self._encoded)
            return
        limit = most_block_bytes(self._group.format, self._group.memory)
        told = self._positions(incoming, ~incoming.deletes)
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in self._rows(incoming):
            for part in pieces(batch, limit):
                if held and size + part.nbytes > limit:
                    told = self._append_block(log, held, absent, told)
                    held, size = [], 0
                held.append(part)
                size += part.nbytes
        if held:
            self._append_block(log, held, absent, told)

    def _rows(self, incoming: Incoming) -> Iterator[pa.RecordBatch]:
        """The rows with their meta columns, as a log file has them: the file id stands for the name of the file."""
        group, fresh = self._group, self._group.fresh_meta
        at = group.format.schema.get_field_index(FILE_NAME)
        for keys, data in incoming.alive_batches():
            batch = fresh.with_meta(keys, data)
            if group.format.populate_meta:
                batch = batch.set_column(at, FILE_NAME, constant(group.target.file_id, batch.num_rows))
            yield batch

    def _positions(self, incoming: Incoming, chosen: npt.NDArray[np.bool_]) -> Positions | None:
        """The rows of the base file that these rows are for, in their order; None where one of them is not known."""
        if incoming.positions is None:
            return None
        told = incoming.positions[chosen]
        return told if (told >= 0).all() else None

    def _position_headers(self, told: Positions | None) -> dict[int, str]:
        """As in real Hudi's blocks: where one row comes twice the base file is named and the rows are not."""
        base = self._group.base_of_positions
        if told is None or base is None:
            return {}
        headers = {int(HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS): base}
        if (np.diff(told) > 0).all():
            headers[int(HeaderKey.RECORD_POSITIONS)] = encode_positions(told)
        return headers

    def _append_block(
        self, log: LogWriter, rows: list[pa.RecordBatch], absent: Sequence[str], told: Positions | None
    ) -> Positions | None:
        """One block; gives what is `told` of the rows of later ones."""
        format_ = self._group.format
        count = sum(part.num_rows for part in rows)
        headers = {int(HeaderKey.INSTANT_TIME): self._group.instant}
        headers |= self._position_headers(None if told is None else told[:count])
        schema = format_.avro_schema
        if absent:
            headers[int(HeaderKey.IS_PARTIAL)] = "true"
            schema = partial_schema(schema, absent)
            given = [name for name in rows[0].schema.names if name not in absent]
            rows = [part.select(given) for part in rows]
        block = encode_data_block(rows, schema, headers, _BLOCK_TYPES[format_.log_blocks])
        for part in rows:
            log.see(part)
        self._append_data(log, block, count)
        return None if told is None else told[count:]

    def _append_encoded(self, log: LogWriter, encoded: EncodedRows) -> None:
        if encoded.rows:
            headers = {int(HeaderKey.INSTANT_TIME): self._group.instant}
            block = avro_block([encoded.records], encoded.rows, self._group.format.avro_schema, headers)
            log.see_known(encoded.ranges, encoded.plain_keys)
            self._append_data(log, block, encoded.rows)

    def _append_data(self, log: LogWriter, block: LogBlock, rows: int) -> None:
        if self._group.target.slice is None or self._group.takes_new_keys_only:
            log.file.inserts += rows
        else:
            log.file.updates += rows
        log.append(block)

    def _append_deletes(
        self, log: LogWriter, incoming: Incoming, deletes: npt.NDArray[np.int64], stored: DeletedRows | None
    ) -> None:
        """One block of all deletes. Those that win whatever the ordering value is carry that of the `stored` row."""
        group = self._group
        ordering, forced = delete_ordering(group.rules, incoming, deletes, stored)
        content = encode_ordered_deletes(incoming.keys.take(pa.array(deletes)), group.partition, ordering, forced)
        log.file.deletes += len(deletes)
        block = delete_block(content, group.instant, group.format.avro_schema)
        told = self._position_headers(self._positions(incoming, incoming.deletes))
        log.append(replace(block, headers={**block.headers, **told}))

    def _statuses(self, incoming: Incoming, counts: dict[str, Any], files: list[WrittenLogFile]) -> list[WriteStatus]:
        """One status a file; the first has what is known of the rows as a whole."""
        statuses = [self._status(file, files[: n + 1]) for n, file in enumerate(files)]
        changes = appended_changes(self._group, incoming, [self._log_file(file) for file in files])
        if changes is not None:
            reported = report_changes(self._group.storage, self._group.instant, statuses[0].path or "", changes)
            none = {} if len(statuses) == 1 else {"changes": b""}
            statuses = [replace(s, **(none if n else reported)) for n, s in enumerate(statuses)]
        statuses[0] = replace(statuses[0], **counts)
        return statuses

    def _log_file(self, file: WrittenLogFile) -> LogFile:
        group = self._group
        found = parse_log_file(group.partition, file.name, file.size)
        assert found is not None
        return found

    def _status(self, file: WrittenLogFile, written: list[WrittenLogFile]) -> WriteStatus:
        group, file_slice = self._group, self._group.target.slice
        names = [log.name for log in written]
        prev_commit, base = group.instant, ""
        # who reads changes, and versions before 8, find what the file stands on in its write stat
        if file_slice is not None and (not has_completion_times(self._version) or group.reader.config.cdc_enabled):
            begun = group.target.log_instant  # a slice that a pending compaction has begun has no base file yet
            prev_commit = begun or file_slice.instant
            base = file_slice.base_file.name if file_slice.base_file is not None and begun is None else ""
            earlier = (log for log in file_slice.log_files if begun is None or log.instant == begun)
            names = [*(log.name for log in earlier), *names]
        return WriteStatus(
            group.partition,
            group.target.file_id,
            path=path_in(group.partition, file.name),
            prev_commit=prev_commit,
            base_file=base,
            log_files=names,
            log_version=file.version,
            log_offset=0,
            num_writes=file.rows,
            num_inserts=file.inserts,
            num_updates=file.updates,
            num_deletes=file.deletes,
            file_size=file.size,
            millis=file.millis,
            ranges=file.ranges,
            plain_keys=file.plain_keys,
        )


_BLOCK_TYPES = {"avro": BlockType.AVRO_DATA, "parquet": BlockType.PARQUET_DATA}


def next_log_version(partition: str, names: Iterable[str], file_id: str, instant: str) -> int:
    """The version of the next log file of a file group that is named with an instant; `names` are those of the files in
    its folder."""
    parsed = (parse_log_file(partition, name, 0) for name in names)
    versions = (p.version for p in parsed if p is not None and (p.file_id, p.instant) == (file_id, instant))
    return max(versions, default=0) + 1


def pieces(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """A batch in parts of about so many bytes, a row at least."""
    rows = max(1, int(batch.num_rows * limit / max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
