"""Makes a table over Parquet files where they are: Hudi's metadata-only bootstrap.

Each file gets a skeleton file in the table, with the meta columns of its rows, and the bootstrap index names both. One
commit makes them visible, at the instant that Hudi reserves for it. The files themselves are only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.engine.base import Task
from lakebed.errors import InvalidRecord
from lakebed.format.bootstrap import BASE_PATH, IndexedFile, index_files
from lakebed.format.column_ranges import as_stream
from lakebed.format.file_names import new_file_id
from lakebed.handles.file_writer import FileFormat, FileWriter, write_partition_metadata
from lakebed.inputs.file_formats import DataFile
from lakebed.inputs.source_folder import SourceFolder, folder_of, refused
from lakebed.metadata_kinds.column_stats import columns_with_stats
from lakebed.metadata_kinds.stats_values import ranges_of_file
from lakebed.model import BOOTSTRAP_INSTANT, Action, has_completion_times
from lakebed.operations.context import TableSchema, WriteContext, file_format, incoming_schema, table_schema
from lakebed.operations.result import StageTimes, WriteResult
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.progress import progress
from lakebed.properties.file import update_table_config
from lakebed.schema.arrow import with_meta
from lakebed.schema.avro import arrow_to_avro, avro_with_meta
from lakebed.storage.parallel import parallel_map
from lakebed.write_status import WriteStatus

OPERATION = "BOOTSTRAP"
_WRITERS = 4
_INDEX_CLASS = "org.apache.hudi.common.bootstrap.index.hfile.HFileBootstrapIndex"


@dataclass(frozen=True)
class SkeletonWriter:
    """A writer of the skeleton files of a new table. `columns` are the columns from which keys and partition paths are
    made, in the table's types."""

    context: WriteContext
    files: SourceFolder
    format: FileFormat
    columns: pa.Schema

    def write(self, number: int, file: DataFile) -> tuple[WriteStatus, IndexedFile]:
        """Write the skeleton of one file. Returns its status, and its entry in the bootstrap index."""
        partition, task = folder_of(file), Task(number)
        storage = self.context.storage
        write_partition_metadata(storage, partition, BOOTSTRAP_INSTANT)
        file_id = self.file_id(number, file, partition)
        writer = FileWriter(
            storage, self.format, BOOTSTRAP_INSTANT, partition, file_id, task, "CREATE", self.format.bloom()
        )
        fresh = self.format.fresh_meta(BOOTSTRAP_INSTANT, partition, task)
        try:
            for keys in self.keys(file, partition):
                no_columns = pa.RecordBatch.from_struct_array(pa.nulls(len(keys), pa.struct([])))
                writer.write(fresh.with_meta(keys, no_columns), new_keys=None)
            status = writer.finish(writer.rows)
        except BaseException:
            writer.abort()
            raise
        url = self.files.storage.url(file.path)
        entry = IndexedFile(partition, file_id, partition, url, file.size, self.files.modified[file.path])
        return replace(status, rows_in=status.num_writes), entry

    def file_id(self, number: int, file: DataFile, partition: str) -> str:
        """The id of the file group of a skeleton."""
        # a changed file at this path gets another id, so that a cached skeleton of the old file is not used for it
        identity = f"{partition}\0{self.files.storage.url(file.path)}\0{file.size}\0{self.files.modified[file.path]}"
        return new_file_id(BOOTSTRAP_INSTANT, identity, number)

    def keys(self, file: DataFile, partition: str) -> Iterator[pa.Array]:
        """The record keys of the rows of a file, in their order, batch by batch."""
        for rows in self.files.rows.batches_of(file, self.columns.names):
            yield self._keys(rows.cast(self.columns), partition, file)

    def _keys(self, rows: pa.RecordBatch, partition: str, file: DataFile) -> pa.Array:
        """The record keys of rows of a file. Raises `InvalidRecord` if their partition path is not the file's
        folder."""
        keys = self.context.keys.record_key.arrow(rows)
        keys = keys.dictionary_decode() if pa.types.is_dictionary(keys.type) else keys
        if keys.null_count:
            raise InvalidRecord(
                f"{file.label} has {keys.null_count} rows without a key",
                hint="name key columns that have a value in every row",
                context={"path": file.label, "fields": list(self.context.config.key_fields)},
            )
        if self.context.keys.partition_fields and rows.num_rows:
            path = self.context.keys.partition_path.arrow(rows.slice(0, 1))[0].as_py()
            if path != partition:
                raise refused(f"the folder of {file.label} would be the partition path {path!r}", "partitioning")
        return keys.cast(pa.string())


def bootstrap(
    context: WriteContext, files: SourceFolder, writer_type: type[SkeletonWriter] = SkeletonWriter
) -> WriteResult:
    """Write the skeleton files and the bootstrap index of a table without commits, and commit them. Raises
    `InvalidRecord` for a row without a key, or whose partition path is not its folder."""
    config = context.config
    action = Action.DELTACOMMIT if config.table_type == "mor" else Action.COMMIT
    old = not has_completion_times(config.version)
    times = StageTimes()
    with WriteTransaction(context, action, OPERATION, planned_index=context.opened.index_settings) as tx:
        with tx.begin():
            times.mark("begin")
            tx.prepare_metadata()
            times.mark("metadata")
            # readers learn from these properties that rows of the table are in other files
            kind = {"hoodie.bootstrap.index.class": _INDEX_CLASS} if old else {"hoodie.bootstrap.index.type": "HFILE"}
            tx.config = update_table_config(context.storage, {BASE_PATH: files.storage.url(), **kind}, tx.lock_is_held)
            tx.request(instant=BOOTSTRAP_INSTANT)
        tx.inflight()
        times.mark("begin")
        schema = table_schema(context, tx.snapshot, incoming_schema(files.rows.schema))
        needed = {name.split(".")[0] for name in (*context.keys.key_fields, *config.partition_fields)}
        columns = pa.schema([pa.field(f.name, f.type) for f in schema.data if f.name in needed])
        writer = writer_type(context, files, _skeleton_format(context, tx, schema), columns)
        source = files.rows.files
        with progress("writing keys", len(source), "files") as advance:

            def write(at: int) -> tuple[WriteStatus, IndexedFile]:
                result = writer.write(at, source[at])
                advance(1)
                return result

            written = parallel_map(write, range(len(source)), _WRITERS)
        # releases before 1.0 look keys up with HBase's reader
        for path, data in index_files(files.storage.url(), [entry for _, entry in written], hbase_keys=old).items():
            context.storage.write(path, data)
        statuses = _with_ranges(context, tx, schema, [status for status, _ in written])
        times.mark("write")
        done = tx.commit(statuses, schema.avro, {})
        times.mark("commit")
    completed = done.completion_time or tx.instant
    return WriteResult.of(tx.instant, completed, OPERATION.lower(), statuses, seconds=times.seconds)


def _skeleton_format(context: WriteContext, tx: WriteTransaction, schema: TableSchema) -> FileFormat:
    """The format of skeleton files: only the meta columns, in the order of their source files."""
    nothing = pa.schema([])
    return replace(
        file_format(context, tx.snapshot, schema),
        schema=with_meta(nothing),
        avro_schema=avro_with_meta(arrow_to_avro(nothing, context.config.name)),
        range_columns=(),
        sort=False,
        change_log=None,
        plain_keys=(),
    )


def _with_ranges(
    context: WriteContext, tx: WriteTransaction, schema: TableSchema, statuses: Sequence[WriteStatus]
) -> list[WriteStatus]:
    """The statuses, with the ranges of the columns that have statistics; the ranges are from the source files'
    footers."""
    kinds = columns_with_stats(tx.snapshot, schema.data, context.file_settings)
    if not kinds:
        return list(statuses)

    def ranged(status: WriteStatus) -> WriteStatus:
        ranges = ranges_of_file(context.storage, status.path or "", status.file_size, kinds)
        return replace(status, ranges=as_stream(ranges))

    return parallel_map(ranged, statuses, _WRITERS)
