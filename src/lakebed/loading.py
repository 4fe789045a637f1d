"""`lakebed.load` and `lakebed.convert`: a new table that is filled in the same call, and left out where that fails."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.api import create, drop, exists
from lakebed.api import open as open_table
from lakebed.catalog.names import table_uri, target_uri
from lakebed.config.arguments import checks_arguments
from lakebed.config.options import resolve_options
from lakebed.engine.arrow_data import arrow_rows
from lakebed.engine.base import GROUP, session_of
from lakebed.engine.shuffle import Shuffle
from lakebed.errors import InvalidOption, InvalidRecord, LakebedError
from lakebed.format.hashes import java_hash
from lakebed.inputs.base import TABLE_BYTES, RowSource
from lakebed.inputs.files import DataFiles, FilesSource, Partitioning, data_of
from lakebed.inputs.other_tables import DeltaTable, IcebergTable, OtherTable
from lakebed.inputs.source_folder import SourceFolder, check_apart, files_of_folder, files_of_table, refused
from lakebed.model import COMMIT_ACTIONS, PARTITION_PATH, RECORD_KEY
from lakebed.opened_table import OpenedTable
from lakebed.operations.bootstrap import bootstrap
from lakebed.operations.foreign_files import DELTA, ICEBERG, kind_of_folder
from lakebed.operations.hudi_job import engine_of, session_engine, write_context
from lakebed.operations.recreate import remove_interrupted_load
from lakebed.operations.result import WriteResult
from lakebed.progress import display
from lakebed.progress import progress as shown_progress
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.wording import count_text

_log = logging.getLogger("lakebed")
_LOOKUP_INDEXES = ("auto", "simple", "global_simple", "bloom", "global_bloom")
_COMBINE = "hoodie.combine.before.insert"
_LET_NEWEST_STAY = f"let the newest row of each key stay: options={{{_COMBINE!r}: True}} with an ordering column"
_COPY_AND_COMBINE = f"make a copy, without in_place, and {_LET_NEWEST_STAY}"
# This many rows of a partition path are compared at a time.
_COMPARED_ROWS = 500_000


@checks_arguments
def load(
    uri: str,
    data: Any,
    *,
    partitioning: Partitioning | None = None,
    progress: bool = True,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    **create_options: Any,
) -> Table:
    """Create a table at a path, URL or name, bulk insert the data, and return the table, whose repr also shows the
    result of the load.

    `data` is what `create` and every write take: a Spark DataFrame, Arrow, pandas or polars data, or the path of data
    files, which are read in batches. `options` are those of the bulk insert, all others those of `lakebed.create`
    (`key`, `partition_by`, `ordering`, `index`, ...). The stored rows are counted and their keys compared. A terminal
    shows how far it is, unless `progress` is False. `message` and `metadata`, a dict of names and values, are recorded
    with the commit.

    Raises what `create` and `Table.bulk_insert` raise, and `InvalidRecord` where two rows have one key: with
    `options={"hoodie.combine.before.insert": True}` the newest of them stays. After an error there is no table, unless
    another process has written to it.

    >>> import lakebed, pyarrow as pa
    >>> t = lakebed.load("memory://docs/loaded-at-once", pa.table({"id": [1, 2], "fare": [9.5, 12.0]}), key="id")
    >>> t.count(), t.loaded.inserted
    (2, 2)
    """
    storage_options = create_options.get("storage_options")
    with display(enabled=progress):
        rows = data_of(data, partitioning, (target_uri(uri), storage_options or {}))
        return _load(uri, rows, OpenedTable.noted(options, message, metadata), create_options)


@checks_arguments
def convert(
    source: Any,
    uri: str | None = None,
    *,
    in_place: bool = False,
    source_options: Mapping[str, str] | None = None,
    progress: bool = True,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    **create_options: Any,
) -> Table:
    """Make a new table from a Delta Lake or Iceberg table, or from a folder of data files, and return it: a copy, or
    with `in_place` a table at `uri` over the Parquet files where they are, which the table then needs unchanged.

    `source` is a path or URL, or a table that `pyiceberg` opened. The copy has the rows that the source holds now, in
    its columns, and its partition columns unless `partition_by` names others. It is written in batches; then rows are
    counted and keys compared with what the source says. `source_options` are options of the source's storage: those of
    `deltalake`, `pyiceberg` or, for files, of lakebed. `options` are those of the bulk insert, all others those of
    `lakebed.create`: `key`, `ordering`, `index`, `type`, ... `progress`, `message` and `metadata` are those of `load`.

    The source is only read. Its history is not taken over. Delta and Iceberg tables need
    `pip install 'lakebed[convert]'`.

    Raises `UnsupportedFeature` for a table that these packages cannot read, and for files that cannot stay where they
    are: with other columns or types, deleted rows, or partition values that are not the names of their folders. It also
    raises what `load` raises. After an error there is no new table.

    >>> import lakebed, pyarrow as pa, pyarrow.parquet, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> pyarrow.parquet.write_to_dataset(pa.table({"id": [1, 2], "day": ["a", "b"]}), folder, ["day"])
    >>> t = lakebed.convert(folder, "memory://docs/converted", key="id")
    >>> t.count(), t.partitions
    (2, ('a', 'b'))
    """
    if uri is None:
        raise InvalidOption(
            "convert() makes a new table, also with in_place=True, and there is no uri for it",
            hint="name a folder outside of the source: lakebed.convert(source, new_uri, key=...)",
        )
    noted = OpenedTable.noted(options, message, metadata)
    with display(enabled=progress):
        with shown_progress("listing the source"):
            rows, partition_columns = _source_of(source, dict(source_options or {}))
        if in_place:
            return _convert_over_files(uri, rows, source_options, noted, create_options)
        if partition_columns and not create_options.get("partition_by"):
            create_options["partition_by"] = list(partition_columns)
        return _load(uri, rows, noted, create_options, expected=rows.rows)


def _convert_over_files(
    uri: str,
    rows: RowSource,
    source_options: Mapping[str, str] | None,
    options: Mapping[str, Any] | None,
    create_options: dict[str, Any],
) -> Table:
    storage_options = create_options.get("storage_options")
    if source_options and dict(source_options) != dict(storage_options or {}):
        raise InvalidOption(
            "with in_place=True the table reads the source files with its own storage options",
            hint="give storage_options= with the same values as source_options=",
        )
    assert isinstance(rows, FilesSource | OtherTable)
    files = files_of_folder(rows) if isinstance(rows, FilesSource) else files_of_table(rows)
    storage = open_storage(target_uri(uri), storage_options)
    check_apart(storage.url(), files.storage.url())
    _remove_interrupted_load(uri, storage_options)
    table = create(uri, files.rows.schema, **_options_over_files(files, create_options))
    result: WriteResult | None = None
    try:
        context = write_context(storage, load_table_config(storage), session_engine(None), resolve_options(options))
        result = bootstrap(context, files)
        table = open_table(uri, spark=create_options.get("spark"), storage_options=storage_options)
        _check_rows(table, result, files.rows.rows, combined=False, way_out=_COPY_AND_COMBINE)
    except BaseException:
        drop_unless_used(table, result, uri, storage_options)
        raise
    table.loaded = result
    return table


def _options_over_files(files: SourceFolder, create_options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `create` for a table over source files: those of the caller, with the columns in the files'
    folders as partition columns, in the folders' style, and with the index "simple" for "auto". Raises an error for
    partition columns other than the folders', and for an index that gives rows their files."""
    options = dict(create_options)
    partition_by = options.get("partition_by")
    named = [partition_by] if isinstance(partition_by, str) else list(partition_by or ())
    if named and named != list(files.partition_columns):
        raise refused(f"folders name {list(files.partition_columns)}, and partition_by is {named}", "partitioning")
    index = options.setdefault("index", "auto")
    if index not in _LOOKUP_INDEXES or options.get("indexes"):
        raise InvalidOption(
            "the rows stay in the files that they are in: an index that gives rows their files cannot be had",
            hint=f"take one of {', '.join(_LOOKUP_INDEXES)}; further ones come later: t.indexes.create(...)",
            context={"index": str(index)},
        )
    style = {
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": str(files.is_encoded).lower(),
    }
    options["index"] = "simple" if index == "auto" else index
    options["partition_by"] = list(files.partition_columns) or None
    options["properties"] = {
        **(style if files.partition_columns else {}),
        **(options.get("properties") or {}),
    }
    return options


def _source_of(source: Any, options: dict[str, str]) -> tuple[RowSource, tuple[str, ...]]:
    """The rows of the source, and the names of its partition columns."""
    if hasattr(source, "scan") and hasattr(source, "spec"):
        return _with_partition_columns(IcebergTable(source, options))
    if not isinstance(source, str | os.PathLike | DataFiles):
        raise InvalidOption(
            f"convert() takes a path, a URL or a table of pyiceberg, not {type(source).__name__}",
            hint="rows in memory and DataFrames are for lakebed.load(uri, rows, key=...)",
            context={"argument": "source"},
        )
    path = os.fspath(source.path if isinstance(source, DataFiles) else source)
    if path.endswith(".metadata.json"):
        return _with_partition_columns(IcebergTable(path, options))
    try:
        storage = open_storage(path, options)
    except InvalidOption:  # options by the names of deltalake or pyiceberg: the environment has to do for a look
        storage = open_storage(path)
    kind = kind_of_folder(storage)
    if kind in (DELTA, ICEBERG):
        return _with_partition_columns((DeltaTable if kind == DELTA else IcebergTable)(path, options))
    files = source if isinstance(source, DataFiles) else DataFiles(path, storage_options=options or None)
    rows = files.read({})
    assert isinstance(rows, FilesSource)  # only partial writes read a list of dicts
    return rows, rows.folder_columns


def _with_partition_columns(table: OtherTable) -> tuple[OtherTable, tuple[str, ...]]:
    if table.hidden_partitioning:
        _log.warning(
            "the table is partitioned by %s, which the copy is not; name columns with partition_by to partition it",
            ", ".join(table.hidden_partitioning),
        )
    return table, table.partition_columns


def _load(
    uri: str,
    data: Any,
    options: Mapping[str, Any],
    create_options: Mapping[str, Any],
    expected: int | None = None,
) -> Table:
    # a stream is read once and for all, since the choice of an index also looks at the rows
    engine = engine_of(data)
    rows = engine.rows(data) if engine is not None else arrow_rows(data, {})
    storage_options = create_options.get("storage_options")
    _remove_interrupted_load(uri, storage_options)
    table = create(uri, rows, **create_options)
    result: WriteResult | None = None
    try:
        result = table.bulk_insert(rows, options=options)
        if expected is None:
            # a DataFrame of Spark has an attribute for each of its columns
            expected = None if session_of(rows) is not None else getattr(rows, "rows", None)
            expected = rows.num_rows if isinstance(rows, pa.Table) else expected
        _check_rows(table, result, expected, combined=str(options.get(_COMBINE, "")).lower() == "true")
    except BaseException:
        drop_unless_used(table, result, uri, storage_options)
        raise
    table.loaded = result
    return table


def drop_unless_used(
    table: Table, result: WriteResult | None, uri: str, storage_options: Mapping[str, str] | None
) -> None:
    """Drop the table, unless others than this call have committed to it."""
    instant = None if result is None else result.instant
    if not any(i.is_completed and i.action in COMMIT_ACTIONS and i.time != instant for i in table.timeline):
        drop(uri, missing_ok=True, storage_options=storage_options)


def _remove_interrupted_load(uri: str, storage_options: Mapping[str, str] | None) -> None:
    """Drop the table that a killed load left."""
    if exists(uri, storage_options=storage_options):
        remove_interrupted_load(open_storage(table_uri(uri), storage_options))


def _check_rows(
    table: Table, result: WriteResult, expected: int | None, *, combined: bool, way_out: str = _LET_NEWEST_STAY
) -> None:
    """Raise an error if the number of rows in the table differs from that in the source, or if a key has several
    rows."""
    if expected is not None and result.rows != expected:
        raise LakebedError(
            f"the source has {count_text(expected, 'row')}, and {result.rows:,} were read",
            hint="the source may have changed meanwhile: run it again",
            context={"expected": expected, "rows": result.rows},
        )
    stored = table.count()
    if stored != result.inserted:
        raise LakebedError(
            f"{result.inserted:,} rows were written, and the table has {stored:,}",
            hint="another process wrote to the table meanwhile: load into another folder",
            context={"written": result.inserted, "stored": stored},
        )
    if combined or not table.properties.get("hoodie.table.recordkey.fields"):
        return
    if table.properties.get("hoodie.populate.meta.fields", "true").lower() == "false":
        return
    repeated = _repeated_keys(table, stored)
    if repeated:
        (stored, path, count), *_ = repeated
        key = table.opened.config.keys.readable_text(stored, table.schema)
        where = f" in partition path {path!r}" if path else ""
        more = f"; so have at least {count_text(len(repeated) - 1, 'other key')}" if len(repeated) > 1 else ""
        raise InvalidRecord(
            f"the key is not unique: {count} rows have the key {key!r}{where}{more}",
            hint=f"name more key columns, or {way_out}",
            context={"record_key": key, "partition": path, "count": count},
        )


def _repeated_keys(table: Table, rows: int) -> list[tuple[str, str, int]]:
    """The keys with several rows, as tuples of key, partition path and number of rows. They are from the first part of
    the keys, by hash, that has such keys; empty if no part has."""
    parts = max(1, rows // _COMPARED_ROWS // max(1, len(table.partitions)))
    with Shuffle(TABLE_BYTES) as shuffle:
        with shown_progress("comparing keys", rows, "rows") as advance:
            for batch in table.scan(columns=[PARTITION_PATH, RECORD_KEY]).to_batches():
                numbers = np.mod(java_hash(batch.column(RECORD_KEY)).astype(np.int64), parts).astype(np.int32)
                columns = [batch.column(PARTITION_PATH), batch.column(RECORD_KEY)]
                columns = [c.cast(pa.string()) for c in columns]
                names = [PARTITION_PATH, RECORD_KEY, GROUP]
                shuffle.add(pa.RecordBatch.from_arrays([*columns, pa.array(numbers)], names=names))
                advance(batch.num_rows)
        for group in shuffle.finish():
            keys = pa.chunked_array([batch.column(RECORD_KEY) for batch in shuffle.read(group)])
            counts = keys.value_counts()
            several = counts.filter(pc.greater(counts.field("counts"), 1))
            if len(several):
                pairs = zip(several.field("values").to_pylist(), several.field("counts").to_pylist(), strict=True)
                return [(key, group[0], count) for key, count in pairs]
    return []
