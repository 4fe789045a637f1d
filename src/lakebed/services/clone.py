"""Clones: a table with the rows of another one, whose writes and services never touch that one.

A shallow clone copies no rows. It is a table over the base files of the source (Hudi's metadata-only bootstrap): its
first commit has a skeleton file for each of them, with the file group's id. A savepoint of the source retains the
files; as long as it is there, cleaning does not delete them. A deep clone has files of its own.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakebed.config.options import Options
from lakebed.engine.local import LocalEngine
from lakebed.errors import LakebedError, SchemaConflict, UnsupportedFeature
from lakebed.format.bootstrap import BASE_PATH
from lakebed.format.file_names import parse_base_file
from lakebed.inputs.file_formats import DataFile
from lakebed.inputs.files import FilesSource
from lakebed.inputs.source_folder import PlainParquet, SourceFolder, check_apart
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import RECORD_KEY
from lakebed.operations.bootstrap import SkeletonWriter, bootstrap
from lakebed.operations.context import WriteContext, incoming_schema
from lakebed.operations.copied_files import SourceChanged, can_copy_files, copy_files, follows_files
from lakebed.operations.create import name_of
from lakebed.operations.foreign_files import refuse_foreign_files
from lakebed.operations.hudi_job import write_context
from lakebed.operations.recreate import drop, remove_interrupted_load
from lakebed.operations.result import WriteResult
from lakebed.operations.upsert import bulk_insert
from lakebed.progress import display
from lakebed.properties.file import PROPERTIES_PATH, create_table, table_checksum
from lakebed.properties.table_config import TABLE_ID, TableConfig
from lakebed.read.scan import Scan
from lakebed.schema.arrow import without_meta
from lakebed.schema.logical_types import is_vector
from lakebed.services.savepoint import Savepoint, delete_savepoint, savepoint, savepoints
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import FileInfo, Storage
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.commit_names import CLONE_NAME

_log = logging.getLogger("lakebed")
_READERS = 8
# What is about the source as a place, and not about its rows.
_OF_SOURCE = (
    *("hoodie.table.checksum", "hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight"),
    *("hoodie.table.index.defs.path", "hoodie.table.initial.version", "hoodie.bootstrap.", BASE_PATH, TABLE_ID),
    *("lakebed.catalogs", "lakebed.publish", "lakebed.datasource.", "hoodie.datasource.hive_sync.", "lakebed.moved."),
    *("lakebed.index.change", "hoodie.datasource.meta.sync."),
)


def clone_properties(source: TableConfig, target: Storage, schema: str) -> dict[str, str]:
    """The properties of a clone at `target`: those of the source with the columns of `schema`, without those that are
    about its place, its indexes in the metadata table, and its lists and catalogs."""
    properties = {k: v for k, v in source.properties.items() if not k.startswith(_OF_SOURCE)}
    name = name_of(target)
    return {
        **properties,
        "hoodie.table.name": name,
        "hoodie.table.checksum": table_checksum(name, source.database),
        "hoodie.table.initial.version": str(source.version),
        **({"hoodie.table.create.schema": schema} if schema else {}),
        TABLE_ID: uuid.uuid4().hex,
    }


def check_shallow(view: Snapshot) -> None:
    """Raise `UnsupportedFeature` with the reason if a table cannot be made over the base files of this view."""
    config = view.config
    slices = view.file_slices()
    logged = [s for s in slices if s.log_files]
    if config.properties.get(BASE_PATH):
        raise _refused(config, "its rows are in files of yet another table or folder", "deep")
    if logged:
        hint = "compact it first: t.maintenance.compact(); or take"
        raise _refused(config, f"{len(logged)} of its {len(slices)} file slices have rows in log files", "logs", hint)
    if not config.populate_meta_fields or not config.key_fields:
        raise _refused(config, "its files hold no keys that identify rows", "keys")
    if any(s.base_file is not None and not s.base_file.is_parquet for s in slices):
        raise _refused(config, f"its base files are {config.base_format}, not Parquet", "files")
    if view.history is not None:
        raise _refused(config, "columns were renamed or dropped in its schema history", "columns")
    if config.drop_partition_columns:
        raise _refused(config, "its files lack the partition columns", "partitioning")
    if not follows_files(view):
        kind = view.index_settings.get("type", "simple")
        raise _refused(config, f"its index {kind!r} notes the place of each key", "index")


def _refused(config: TableConfig, why: str, feature: str, hint: str = "take") -> UnsupportedFeature:
    return UnsupportedFeature(
        f"table {config.name!r} cannot be cloned without a copy of its rows: {why}",
        hint=f"{hint} deep=True (in SQL DEEP CLONE), which writes the rows again",
        context={"feature": f"shallow clone: {feature}", "table": config.name},
    )


def retained(context: WriteContext, target: str) -> Savepoint:
    """The savepoint of the newest commit, which retains its files for a clone at `target`; made unless there is one.
    Raises `InvalidOption` for a table without commits."""
    newest = context.opened.timeline.last_completed
    existing = [s for s in savepoints(context.opened.timeline) if newest is not None and s.instant == newest.time]
    if not existing:
        return savepoint(context, name=f"{CLONE_NAME}{target}")
    _log.warning(
        "the files of the clone %s are kept by %s, which was there before: leave it as long as the clone is used",
        target,
        existing[0],
    )
    return existing[0]


def base_files_of(view: Snapshot) -> SourceFolder:
    """The base files of a view, for a table that is made over them. Raises `UnsupportedFeature` unless each file has
    the columns that the table has now, in their types, and for vectors."""
    vectors = [field.name for field in view.schema if is_vector(field.type)]
    if vectors:
        reason = f"of vectors such as {vectors[0]} the bytes alone are read from files of another table"
        raise _refused(view.config, reason, "vectors")
    storage, files = view.storage, sorted(view.base_files(), key=lambda file: file.path)
    data = [DataFile(storage, file.path, file.size, storage.url(file.path)) for file in files]
    reason = "its files differ in columns or types, since columns were added or widened"
    try:
        rows = FilesSource(data, {file.path: {} for file in data}, PlainParquet(), {})
        columns = incoming_schema(without_meta(rows.schema))
    except SchemaConflict as error:
        raise _refused(view.config, reason, "columns") from error
    if not columns.equals(view.schema):
        raise _refused(view.config, reason, "columns")
    listed = parallel_map(partial(_listed, storage), sorted({file.partition for file in files}), _READERS)
    modified = {info.path: info.modified for infos in listed for info in infos}
    return SourceFolder(storage, rows, {file.path: modified[file.path] for file in files})


def _listed(storage: Storage, partition: str) -> list[FileInfo]:
    return list(storage.list(partition, recursive=False))


@dataclass(frozen=True)
class CloneWriter(SkeletonWriter):
    """A writer of the skeleton files of a clone: the ids of file groups and the keys are those of the source."""

    def file_id(self, number: int, file: DataFile, partition: str) -> str:
        base = parse_base_file(partition, file.path.rpartition("/")[2], file.size)
        assert base is not None
        return base.file_id

    def keys(self, file: DataFile, partition: str) -> Iterator[pa.Array]:
        for rows in self.files.rows.batches_of(file, [RECORD_KEY]):
            yield rows.column(0).cast(pa.string())


def new_clone(context: WriteContext, target: Storage, view: Snapshot) -> TableConfig:
    """Make an empty table with the properties and the columns of this view. Raises `TableExists`."""
    if target.head(PROPERTIES_PATH) is None:  # a table's own files are not foreign
        refuse_foreign_files(target)
    return create_table(target, clone_properties(context.config, target, view.avro_schema))


def copied_clone(context: WriteContext, target: Storage, rows: Scan, *, progress: bool) -> WriteResult | None:
    """Make a table with copies of these rows of the table, the newest ones, also of rows that break its checks. Returns
    the result of its commit; None for a clone without rows. After an error there is no clone."""
    check_apart(target.url(), context.storage.url())
    remove_interrupted_load(target)
    config = new_clone(context, target, context.opened)
    try:
        if not context.opened.commits:
            return None
        engine, written = context.engine, write_context(target, config, context.engine, context.options)
        with display(enabled=progress):
            if can_copy_files(context, context.opened):
                with suppress(SourceChanged):  # a read opens the table again
                    return copy_files(replace(written, judges=False), context.opened)
        data = rows.to_spark() if engine.is_distributed else rows.to_reader()
        with display(enabled=progress):
            return bulk_insert(replace(written, judges=False), data)
    except BaseException:
        with suppress(LakebedError, OSError):  # the error is that of the clone
            drop(target, context.settings)
        raise


def shallow_clone(context: WriteContext, target: Storage, options: Options) -> WriteResult | None:
    """Make a table over the base files of the newest commit, which a savepoint retains. Returns the result of the
    clone's commit; None for a clone without files. After an error there is neither the clone nor a new savepoint."""
    check_apart(target.url(), context.storage.url())
    check_shallow(context.opened)
    remove_interrupted_load(target)
    before = {s.instant for s in savepoints(context.opened.timeline)}
    saved = retained(context, target.url())
    is_made = False
    try:
        view = open_snapshot(context.storage, context.config, saved.instant)
        check_shallow(view)
        files = base_files_of(view) if view.file_slices() else None
        config = new_clone(context, target, view)
        is_made = True
        if files is None:
            return None
        return bootstrap(write_context(target, config, LocalEngine(), options), files, CloneWriter)
    except BaseException:
        with suppress(LakebedError, OSError):  # the error is that of the clone
            if is_made:
                drop(target, options.write)
            if saved.instant not in before:
                delete_savepoint(context, saved.instant)
        raise
