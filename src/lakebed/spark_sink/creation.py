"""The table of a write by `format("lakebed")`: the one that exists, or a new one from the options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakebed.api import create
from lakebed.config.options import resolve_options, table_options
from lakebed.config.settings import IndexSettings, TableSettings
from lakebed.errors import TableExists, TableNotFound
from lakebed.operations.create import merge_settings
from lakebed.properties.conflicts import conflicts_with_table
from lakebed.properties.file import has_properties, load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.spark_sink.options import WriteOptions
from lakebed.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.table import Table


def table_to_write(storage: Storage, options: WriteOptions, columns: Any, *, name: str = "") -> TableConfig:
    """The properties of the table at the path of the options. If there is none, it is created with the columns of the
    rows, and of several writers that do so at once one creates it. `name` is its name in a warehouse.

    Raises `TableNotFound` if there is none and the options name no key, `InvalidOption` for options that contradict a
    table, `TableExists` for a folder with other data.
    """
    try:
        return _existing(storage, options)
    except TableNotFound as error:
        no_table = error
    try:
        create_table(options, columns, name=name)
    except TableNotFound as error:
        raise error from no_table
    except TableExists:
        if not has_properties(storage, ""):  # other data in the folder
            raise
    return _existing(storage, options)


def create_table(options: WriteOptions, columns: Any, *, name: str = "", spark: SparkSession | None = None) -> Table:
    """Create the table of a write with these columns, or those of a DataFrame. Raises `TableNotFound` if the options
    name no key, and `TableExists` if there is a table or other data."""
    if not options.names_key:
        raise TableNotFound(
            f"there is no table at {options.path}",
            hint="Name its key, and the write creates it: .option('key', 'id'), or the options of a Hudi job with"
            " hoodie.datasource.write.recordkey.field and hoodie.table.name. Or make it by lakebed.create(path, df,"
            " key=...), or lakebed.write(df, path, options).",
            context={"uri": options.path},
        )
    job = resolve_options(options.options).table
    # `create` has defaults for these two
    named: dict[str, Any] = {"type": job.type, "table_version": job.version}
    return create(
        name or options.path,
        columns,
        **{key: value for key, value in named.items() if value is not None} | dict(options.creation),
        properties=table_options(options.options),
        spark=spark,
        storage_options=options.storage_options,
    )


def _existing(storage: Storage, options: WriteOptions) -> TableConfig:
    """The properties of the table that exists. Raises `InvalidOption` if arguments for its creation contradict them."""
    config = load_table_config(storage)
    if options.creation:
        conflicts_with_table(replace(resolve_options(None), **_settings(options.creation)), config)
    return config


def _settings(creation: Any) -> dict[str, Any]:
    """The arguments of `lakebed.create` as the settings that a table records."""

    def names(argument: str) -> tuple[str, ...] | None:
        return tuple(creation[argument]) if argument in creation else None

    table = TableSettings(
        type=creation.get("type"),
        version=creation.get("table_version"),
        key_fields=names("key"),
        partition_fields=names("partition_by"),
        ordering_fields=names("ordering"),
        sort=creation.get("sort"),
        **merge_settings(creation.get("merge")),
    )
    index = IndexSettings(
        type=creation.get("index"),
        buckets=creation.get("buckets"),
        fields=names("hash_fields"),
        partition_buckets=creation.get("partition_buckets"),
    )
    return {"table": table, "index": index}
