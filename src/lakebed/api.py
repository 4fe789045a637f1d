"""`lakebed.create`, `lakebed.open`, `lakebed.write`: the ways to get hold of a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from lakebed.catalog.names import catalog_of_new_table, is_name, table_uri, target_uri, warehouse_names
from lakebed.catalog.registry import find_table, is_catalog_uri
from lakebed.config.arguments import Names, checks_arguments, names_of
from lakebed.config.option_table import split_partition_types
from lakebed.config.options import (
    Options,
    check_table_options,
    creation_properties,
    resolve_options,
)
from lakebed.config.settings import TableSettings
from lakebed.engine.spark_python import use_this_python
from lakebed.errors import InvalidOption, LakebedError, TableNotFound
from lakebed.index.base import Index
from lakebed.model import HOODIE, WAREHOUSE
from lakebed.opened_table import OpenedTable
from lakebed.operations import recreate
from lakebed.operations.recreate import load_settled
from lakebed.progress import display
from lakebed.properties.file import has_properties
from lakebed.storage import open_storage
from lakebed.table import Table

# Functions import what they run: `open` needs nothing of what makes and writes tables.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.index.ranking import TableProfile
    from lakebed.merge.mergers import Merger
    from lakebed.operations.once import Once
    from lakebed.operations.result import WriteResult

# The folders of lists of other formats, which `publish` writes.
_LISTS = ("metadata", "_delta_log")
_WORKER_TUNING = "lakebed.spark.worker.tuning"
_OPEN_OPTIONS = ("hoodie.metadata.enable", "hoodie.enable.data.skipping", "lakebed.read.page.checksums", _WORKER_TUNING)


@checks_arguments
def create(
    uri: str,
    schema_or_data: Any,
    *,
    key: Names = None,
    partition_by: Names = None,
    ordering: Names = None,
    type: Literal["cow", "mor"] = "cow",
    index: str | Index = "auto",
    buckets: int | None = None,
    hash_fields: Names = None,
    partition_buckets: str | None = None,
    indexes: Names = None,
    merge: str | Merger | type[Merger] | None = None,
    sort: Literal["key", "none"] | None = None,
    base_format: Literal["parquet", "lance"] | None = None,
    table_version: int = 9,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    properties: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    generated: Mapping[str, str] | None = None,
    allow_existing: bool = False,
) -> Table:
    """Create an empty table at a path, URL or name, and return it. A name (`sales.orders`) is one in the warehouse that
    the environment's `LAKEBED_WAREHOUSE` names (docs/warehouse.md).

    `schema_or_data` is an Arrow or Spark schema, or data with that schema, also the path of data files. No row is
    written, and of a stream (a `RecordBatchReader`) or `Scanner` no row is read: a following `upsert` of it writes them
    all. `key` names the record key column(s); without one keys are generated and rows can only be added. `partition_by`
    names the partition column(s), as `name:SIMPLE` or `name:TIMESTAMP` for a custom key generator. `ordering` names the
    column(s) that decide which of two rows of one key is newer. `merge` is `event_time` (the default with an ordering
    column), `commit_time`, the name of one of Hudi's payload classes ("PartialUpdateAvroPayload", ...), or a
    `lakebed.Merger` of your own.

    `index` is "bucket", "bloom", "global_bloom", "simple", "global_simple", "record", an index object, or "auto".
    "auto" is a bucket index where data is given that fills more than one or two base files, else a simple index
    (`t.indexes.reason` has the reason). `buckets`, `hash_fields` and `partition_buckets` (counts of partition paths:
    "regex,count;...") belong to the bucket index. `indexes` are further indexes that the first write makes in the
    metadata table (see `t.indexes.create`): "record_index", "bloom_filters", or a column for a secondary index.

    `sort="key"` orders the rows of each base file by record key, which makes lookups by key cheaper. `base_format` is
    "parquet" (the default) or "lance", for which the extra `lakebed[lance]` is installed. `properties` are
    Hudi's own keys for everything else, such as `hoodie.datasource.write.hive_style_partitioning`, or
    `hoodie.metadata.enable=false` for a table without a metadata table.

    `defaults` has the values of columns that the rows of a write lack, as `t.columns.set_default` takes them.
    `generated` has expressions over the other columns of a row, by column: `{"day": "CAST(ts AS DATE)"}`. Each write
    computes such a column, or refuses rows that give it another value (docs/defaults.md). A column that the schema
    lacks has the type of its expression.

    Raises `TableExists` if there is a table, or other data in the folder (`allow_existing=True` accepts it: the
    files stay, and the table does not read them), `SchemaConflict` or `InvalidOption`; nothing is written then.

    >>> import lakebed, pyarrow as pa
    >>> columns = pa.schema([("id", pa.int64()), ("at", pa.int64())])
    >>> t = lakebed.create("memory://docs/orders", columns, key="id", ordering="at")
    >>> t.name, t.schema.names
    ('orders', ['id', 'at'])
    """
    from lakebed.engine.base import session_of
    from lakebed.inputs.files import data_of
    from lakebed.metadata_upkeep.maintain import METADATA_OPTION
    from lakebed.operations.create import base_format_of, explicit_schema, merge_settings, profile_of
    from lakebed.operations.create import create as create_table
    from lakebed.operations.hudi_job import engine_of, session_engine
    from lakebed.operations.precommit import check_validators
    from lakebed.services.cleaning import check_filters

    location = table_uri(uri, new=True)
    storage = open_storage(location, storage_options)
    schema_or_data = data_of(schema_or_data, None, (location, storage_options or {}))
    options = resolve_options(properties)
    check_table_options(options)
    check_filters(options.cleaning)
    check_validators(options.write.validation)
    settings = _table_settings(
        options.table,
        type=type,
        version=table_version,
        key_fields=names_of(key),
        partition_fields=names_of(partition_by),
        ordering_fields=names_of(ordering),
        **merge_settings(merge),
        sort=sort,
        base_format=base_format_of(base_format),
    )
    named = options.index
    schema = explicit_schema(schema_or_data)
    engine = rows = None
    if schema is None:
        # a DataFrame is asked only for its schema and the optimizer's estimate of its size: no job runs
        engine = engine_of(schema_or_data) or session_engine(session_of(schema_or_data), options.read)
        rows = engine.rows(schema_or_data)
        schema = engine.schema(rows)
    columns = schema
    if defaults or generated:
        from lakebed.operations.column_values import with_value_columns

        columns = with_value_columns(schema, defaults or {}, generated or {})

    def profile() -> TableProfile:
        with display(enabled=engine is not None):  # this reads data given by path
            return profile_of(schema, settings, named, engine, rows)

    config = create_table(
        storage,
        columns,
        settings=settings,
        index=named.type or index,
        buckets=buckets if buckets is not None else named.buckets,
        hash_fields=names_of(hash_fields) or named.fields or (),
        update_partition_path=named.update_partition,
        hbase=named.hbase,
        partition_buckets=partition_buckets if partition_buckets is not None else named.partition_buckets,
        indexes=tuple(dict.fromkeys([*names_of(indexes), *_indexes_of(options)])),
        properties={
            **({METADATA_OPTION: "false"} if options.write.metadata is False else {}),
            **creation_properties(options.explicit),
        },
        profile=profile,
        allow_existing=allow_existing,
        values=(defaults or {}, generated or {}),
    )
    table = Table(OpenedTable(storage, config, spark, options.read))
    register_new_table(table, catalog_of_new_table(uri))
    return table


def register_new_table(table: Table, catalog: tuple[str, str] | None) -> None:
    """Register a table that was just created under its name in a catalog; it is deleted again if that fails. Does
    nothing without a catalog."""
    if catalog is None:
        return
    try:
        table.catalogs.register(*catalog)
    except BaseException:
        with suppress(LakebedError):
            recreate.drop(table.opened.storage, resolve_options(None).write)
        raise


@checks_arguments
def open(
    uri: str | os.PathLike[str] | None = None,
    *,
    catalog: str | None = None,
    name: str | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Table:
    """Open the table at a path or URL, or by its name, and return it.

    A name in a catalog is `catalog="hive://host:9083", name="shop.trips"`, or one URI: `"hive://host:9083/shop/trips"`.
    A name alone, `"shop.trips"`, is one in the warehouse that the environment's `LAKEBED_WAREHOUSE` names
    (docs/warehouse.md).

    `options` are for reads. `hoodie.metadata.enable=false` lists folders instead of reading the metadata table.
    `hoodie.enable.data.skipping=false` reads every file that partitions and buckets do not rule out.
    `lakebed.read.page.checksums=false` does not check the pages of base files (2 to 3 % less time for whole files). One
    is for all work on Spark: `lakebed.spark.worker.tuning=false` leaves Spark's Python workers as they are.

    Raises `TableNotFound` (for a Delta Lake or Iceberg table and for data files with the way to load them),
    `CorruptFile` for unreadable properties, `UnsupportedFeature` for another table version.

    >>> import lakebed
    >>> lakebed.open("memory://docs/nothing-here")
    Traceback (most recent call last):
    lakebed.errors.TableNotFound: ...
    """
    resolved = _open_options(options)
    if catalog is not None or (name is not None and uri is not None and is_catalog_uri(os.fspath(uri))):
        if catalog is not None and uri is not None:
            raise InvalidOption("open() got a URI and a catalog", hint="give one of them")
        location = find_table(catalog or os.fspath(uri or ""), name)
    elif uri is None or name is not None:
        raise InvalidOption(
            "open() got no URI", hint="give one, or a catalog (hive://host:9083) and the name (db.table)"
        )
    else:
        location = table_uri(uri)
    if spark is not None:
        use_this_python(spark)
    storage = open_storage(location, storage_options)
    try:
        config = load_settled(storage)
    except TableNotFound as error:
        from lakebed.operations.foreign_files import no_table_here

        raise _with_names(no_table_here(storage, error), os.fspath(uri or ".")) from None
    return Table(OpenedTable(storage, config, spark, resolved.read))


def _with_names(error: TableNotFound, text: str) -> TableNotFound:
    """The error for a table that does not exist; where it was named by a name, its hint has similar names."""
    if not is_name(text):
        return error
    names = warehouse_names()
    hint = (
        names.near(names.parse(text)) + error.hint
        if names is not None
        else f"{error.hint} For a name in a warehouse set {WAREHOUSE}, or take lakebed.Warehouse(uri).open({text!r})."
    )
    return TableNotFound(error.message, hint, error.context)


@checks_arguments
def exists(uri: str, *, storage_options: Mapping[str, str] | None = None) -> bool:
    """Whether there is a table at a path, URL or name, also a table that lakebed cannot open. Statements of SQL on it
    need this."""
    try:
        location = table_uri(uri)
    except TableNotFound:  # a name that a catalog does not have
        return False
    return recreate.exists(open_storage(location, storage_options))


@checks_arguments
def list_tables(
    uri: str | os.PathLike[str], *, depth: int = 3, storage_options: Mapping[str, str] | None = None
) -> list[str]:
    """The URIs of the tables in a folder, sorted, including tables that lakebed cannot open.

    `depth` is how many levels of folders are searched below `uri`; 0 looks at `uri` alone. Folders of tables, and those
    whose names begin with a dot or an underscore, are not searched. A folder that does not exist has no tables.

    >>> import lakebed
    >>> _ = lakebed.create("memory://docs/shop/orders", {"id": [1]}, key="id")
    >>> lakebed.list_tables("memory://docs/shop")
    ['memory://docs/shop/orders']
    """
    if depth < 0:
        raise InvalidOption(f"list_tables() takes 0 or more as depth, not {depth}")
    uri = os.fspath(uri)
    storage = open_storage(uri, storage_options)
    tables: list[str] = []
    level = [""]
    for _ in range(depth + 1):
        below: list[str] = []
        for path in level:
            start = f"{path}/" if path else ""
            folders = storage.list_folders(path)
            if HOODIE in folders and has_properties(storage, path):
                tables.append(f"{uri.rstrip('/')}/{path}" if path else uri)
            else:
                below += [start + name for name in folders if name[:1] not in "._"]
        level = below
    return sorted(tables)


@checks_arguments
def drop(
    uri: str,
    *,
    missing_ok: bool = False,
    dry_run: bool = False,
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> list[str]:
    """Delete a table with all its rows, its history and its published lists. It cannot be undone. No catalog is
    changed, except the one of `LAKEBED_WAREHOUSE` for a name.

    Only the table's own files are deleted: `.hoodie` and, in the folders of its partition paths, files with the names
    of Hudi's writers. Returns the paths of other files in its folder, which stay; as a rule there are none. With
    `dry_run` nothing is deleted. `options` may name the lock of the table's writers (`hoodie.write.lock.*`).

    Raises `TableNotFound` if there is no table, except with `missing_ok`.

    >>> import lakebed
    >>> _ = lakebed.create("memory://docs/passing", {"id": [1]}, key="id")
    >>> lakebed.drop("memory://docs/passing")
    []
    >>> lakebed.list_tables("memory://docs/passing")
    []
    """
    names = warehouse_names() if is_name(uri) else None
    try:
        storage = open_storage(table_uri(uri), storage_options)
        lists: list[str] = []
        if any(map(storage.list_names, _LISTS)):
            from lakebed.services.publishing import list_files

            lists = list_files(storage)
        left = recreate.drop(storage, resolve_options(options).write, lists=lists, dry_run=dry_run)
    except TableNotFound:
        if not missing_ok:
            raise
        return []
    if names is not None and not dry_run:
        names.forget(names.parse(uri))
    return left


@checks_arguments
def write(
    df: Any,
    uri: str,
    options: Mapping[str, Any],
    mode: str = "append",
    *,
    once: Once | None = None,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WriteResult | None:
    """Run the write of a Hudi job with its options dict unchanged, and return its result. The table is created if it
    does not exist.

    `mode` is Spark's, in any case: `append`, `errorifexists` (or `error`), `ignore` (returns None where there is a
    table), or `overwrite`. `overwrite` creates the table again from the options and the data (another key, partitioning
    or schema is allowed), then runs the operation; if that fails the old table stays as it was. The operations delete
    and delete_partition need `append`; insert_overwrite_table replaces the rows in one commit of the existing table.
    Columns widen as in real Hudi, unless the table is configured otherwise (`WriteResult.schema_changes` names them).
    `errorifexists` also refuses a folder that holds other data, and every mode a Delta Lake or Iceberg table
    (`TableExists`). `once` names a batch that is written once; `overwrite` without insert_overwrite_table refuses it.
    `message` and `metadata` are recorded with the commit, and `t.versions` shows them.

    Raises one error that names all options that lakebed does not know or implement, each with its replacement:
    `InvalidOption`, or `UnsupportedFeature` where real Hudi accepts them. `lakebed options check FILE` finds them
    before.

    >>> import lakebed
    >>> options = {"hoodie.table.name": "rides", "hoodie.datasource.write.recordkey.field": "id"}
    >>> lakebed.write({"id": [1, 2]}, "memory://docs/hudi-job", options).rows
    2
    >>> lakebed.open("memory://docs/hudi-job").count()
    2
    """
    from lakebed.config.commit_notes import with_note
    from lakebed.inputs.files import data_of, is_path_of_files
    from lakebed.operations import hudi_job
    from lakebed.services.due import run_due_services

    location = target_uri(uri)
    catalog = catalog_of_new_table(uri)
    is_new = catalog is not None and not exists(uri, storage_options=storage_options)
    is_delete = str(options.get(hudi_job.OPERATION, "")).strip().lower() == "delete"
    rows = df if is_delete and not is_path_of_files(df) else data_of(df, None, (location, storage_options or {}))
    with display():
        noted = with_note(options, message, metadata)
        result = hudi_job.write(
            rows, location, noted, mode, storage_options=storage_options, once=once, after=run_due_services
        )
    if is_new and catalog is not None:
        open(location, storage_options=storage_options).catalogs.register(*catalog)
    return result


def _open_options(options: Mapping[str, Any] | None) -> Options:
    resolved = resolve_options(options)
    unexpected_names = [key for key in resolved.explicit if key not in _OPEN_OPTIONS]
    if unexpected_names:
        raise InvalidOption(
            f"open() takes no option {unexpected_names[0]}",
            hint=f"it takes {', '.join(_OPEN_OPTIONS)}; give options of a write to its verb",
            context={"option": unexpected_names[0]},
        )
    return resolved


def _indexes_of(options: Options) -> list[str]:
    """The indexes that the options of a new table ask for, by the names that `indexes` takes."""
    write = options.write
    flags = {
        "record_index": write.record_index,
        "record_index:partitioned": write.partitioned_record_index,
        "bloom_filters": write.bloom_filters_index,
        "column_stats": write.column_stats,
    }
    return [name for name, requested in flags.items() if requested]


def _table_settings(named: TableSettings, **arguments: Any) -> TableSettings:
    """The settings of a table, each from its argument or from the property. Raises `InvalidOption` if both are given
    with different values."""
    values: dict[str, Any] = {name: getattr(named, name) for name in TableSettings.__slots__}
    if any(":" in field for field in arguments["partition_fields"]):
        arguments["partition_fields"], arguments["partition_types"] = split_partition_types(
            arguments["partition_fields"]
        )
    for name, value in arguments.items():
        if value in (None, ()):
            continue
        property_value = values.get(name)
        if property_value not in (None, ()) and property_value != value and name not in ("type", "version"):
            raise InvalidOption(
                f"create() has {name} {value!r}, its properties have {property_value!r}", hint="give it once"
            )
        values[name] = value
    return TableSettings(**values)
