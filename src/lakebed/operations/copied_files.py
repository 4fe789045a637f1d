"""The rows of a view as the first rows of another table with its settings: file by file, row groups as they are.

Keys, partition paths and file groups are those of the view. Only the columns that say which commit and which file a row
belongs to are encoded; rows of slices with log files are merged first, and encoded as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakebed.engine.base import Task
from lakebed.format.footer_cache import read_footer
from lakebed.format.parquet_encodings import encodings_of
from lakebed.handles.file_writer import FileFormat, FileWriter, write_partition_metadata
from lakebed.handles.stored_rows import of_commit, put_file, texts_with_dictionary
from lakebed.model import Action, FileSlice
from lakebed.operations.context import WriteContext, file_format, table_schema
from lakebed.operations.result import StageTimes, WriteResult
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.progress import progress
from lakebed.read.reopening import MISSING
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot, table_features
from lakebed.storage.parallel import parallel_map
from lakebed.write_status import WriteStatus

OPERATION = "BULK_INSERT"
_WRITERS = 4
# Indexes that find keys by the files that there are, wherever these came from.
FILE_INDEXES = frozenset(("simple", "bloom", "global_simple", "global_bloom", "bucket"))


class SourceChanged(Exception):
    """A file of the view was deleted by a cleaning before it was copied. Nothing of the copy is visible."""


def follows_files(view: Snapshot) -> bool:
    """Whether the index of a table finds its keys in a table with the same file groups, and needs nothing else."""
    features = table_features(view)
    kind = view.index_settings.get("type", "simple")
    return kind in FILE_INDEXES and not features.partition_buckets and not features.consistent_buckets


def can_copy_files(context: WriteContext, view: Snapshot) -> bool:
    """Whether the files of a view can be copied by this process into a table of the same settings."""
    config = view.config
    slices = view.file_slices()
    is_whole = all(s.base_file is None or (s.base_file.is_parquet and not s.base_file.is_skeleton) for s in slices)
    return (
        bool(slices)
        and is_whole
        and follows_files(view)
        and not context.engine.is_distributed
        and not context.writes_operations
        and not config.drop_partition_columns
        and not (config.sorts_by_key and any(s.log_files for s in slices))
    )


@dataclass(frozen=True)
class FileCopier:
    """A writer of the files of a new table, each with the rows of one slice of another table."""

    context: WriteContext
    reader: SliceReader
    format: FileFormat
    instant: str

    def copy(self, number: int, file_slice: FileSlice) -> WriteStatus | None:
        """Write the file of one slice, and return its status; None for a slice without rows."""
        storage, partition, task = self.context.storage, file_slice.partition, Task(number)
        write_partition_metadata(storage, partition, self.instant)
        base = file_slice.base_file
        source = None if base is None else read_footer(self.reader.storage, base.path, base.size, encoded=True)
        encodings = None if source is None else encodings_of(source.metadata)
        writer = FileWriter(
            storage,
            self.format,
            self.instant,
            partition,
            file_slice.file_id,
            task,
            "CREATE",
            self.format.bloom(),
            encodings=encodings,
            copies=True,
        )
        fresh = self.format.fresh_meta(self.instant, partition, task) if self.format.populate_meta else None
        try:
            if self.reader.is_merged(file_slice):
                texts = texts_with_dictionary(self.format.schema, encodings or {})
                for batch in self.reader.merged(file_slice, self.format.schema, dictionary=texts).batches():
                    writer.write(of_commit(batch, fresh), new_keys=None)
            else:
                put_file(writer, self.reader, self.format, file_slice, fresh)
            if not writer.rows:
                writer.abort()
                return None
            return replace(writer.finish(writer.rows), rows_in=writer.rows)
        except BaseException:
            writer.abort()
            raise


def copy_files(context: WriteContext, view: Snapshot) -> WriteResult:
    """Commit the rows of the view of another table to a table without commits, and return the result. All of them are
    rows of this commit. Raises `SourceChanged` if a file of the view is not there any more."""
    times = StageTimes()
    action = Action.DELTACOMMIT if context.config.table_type == "mor" else Action.COMMIT
    planned = context.opened.index_settings
    with WriteTransaction(context, action, OPERATION, planned_index=planned, looks_up=False) as tx:
        with tx.begin():
            times.mark("begin")
            tx.prepare_metadata()
            times.mark("metadata")
            tx.request()
        tx.inflight()
        times.mark("begin")
        schema = table_schema(context, tx.snapshot, view.schema)
        copier = FileCopier(
            context, view.reader, file_format(context, tx.snapshot, schema, key_changes=True), tx.instant
        )
        statuses = _copied(copier, view.file_slices())
        times.mark("write")
        tx.plain_keys = context.watched_keys(schema.data)
        done = tx.commit(statuses, schema.avro, {})
        times.mark("commit")
    completed = done.completion_time or tx.instant
    return WriteResult.of(tx.instant, completed, OPERATION.lower(), statuses, seconds=times.seconds)


def _copied(copier: FileCopier, slices: Sequence[FileSlice]) -> list[WriteStatus]:
    with progress("copying files", len(slices), "files") as advance:

        def copy(at: int) -> WriteStatus | None:
            status = copier.copy(at, slices[at])
            advance(1)
            return status

        try:
            written = parallel_map(copy, range(len(slices)), _WRITERS)
        except MISSING as error:
            raise SourceChanged from error
    return [status for status in written if status is not None]
