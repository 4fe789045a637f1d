"""Making a table: its properties from a few arguments, the columns and size of the data it is made for, the merge
mode, and the empty folders.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from lakebed.concurrency.conflicts import GIVES_WAY
from lakebed.config.option_table import PAYLOADS, payload_class
from lakebed.config.options import service_settings
from lakebed.config.settings import IndexSettings, TableSettings
from lakebed.engine.arrow_data import schema_of_stream
from lakebed.engine.base import Engine, Rows, cluster_of
from lakebed.errors import InvalidOption, SchemaConflict
from lakebed.expressions.key_generators import CUSTOM, kind_of
from lakebed.index.base import Index
from lakebed.index.ranking import TableProfile, advise
from lakebed.index.registry import check_new_indexes, make_index
from lakebed.merge.mergers import ENTRY_POINTS, Merger, merger_named, register
from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds.registry import parse_index_name, remembered_property
from lakebed.operations.context import (
    check_has_order,
    check_makes_keys,
    incoming_schema,
    warn_of_unknown_stats_columns,
)
from lakebed.operations.foreign_files import refuse_foreign_files
from lakebed.operations.recreate import finish_interrupted_overwrite
from lakebed.properties.file import PROPERTIES_PATH, create_table
from lakebed.properties.new_table import new_table_properties
from lakebed.properties.table_config import (
    INDEX_REASON,
    SORT,
    TABLE_ID,
    TableConfig,
    printed_partition_fields,
)
from lakebed.schema.avro import arrow_to_avro
from lakebed.schema.column_names import did_you_mean, in_any_case
from lakebed.schema.field_ids import BY_PATH, FIELD_IDS
from lakebed.slices.row_size import from_types
from lakebed.storage.base import Storage
from lakebed.timeline.schema_versions import document
from lakebed.timeline.streams import ROLLING_KEYS, TAKEN_OVER

_log = logging.getLogger("lakebed")
SMALL_FILES = "lakebed.small_files"
# New merge-on-read tables compact as they are written, when that is due.
COMPACT_INLINE = "lakebed.compact.inline"
# What they compact are the file slices whose logs are heavy, many or old.
COMPACT_DUE = "lakebed.compact.due"
# In new tables no pending clustering stops a writer.
CLUSTERING_UPDATES = "lakebed.clustering.updates.strategy"
# Sorts before every instant.
NO_INSTANT = "0" * 14


def create(
    storage: Storage,
    schema: pa.Schema,
    *,
    settings: TableSettings,
    index: str | Index,
    buckets: int | None,
    hash_fields: Sequence[str],
    update_partition_path: bool | None,
    partition_buckets: str | None,
    hbase: Mapping[str, Any] | None = None,
    properties: Mapping[str, str],
    indexes: Sequence[str] = (),
    profile: Callable[[], TableProfile],
    allow_existing: bool = True,
    values: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
) -> TableConfig:
    """Check everything, then write the properties. Raises before anything is written; `TableExists` by the storage.

    `values` are the defaults and the expressions of generated columns, by column.
    Without `allow_existing` a folder that holds other data is refused. `profile` gives the measures from which "auto"
    chooses an index; the table records the reason for the choice.
    """
    columns = incoming_schema(schema)
    settings, hash_fields = _named_as_columns(settings, columns), [in_any_case(n, columns.names) for n in hash_fields]
    _check_choices(settings, buckets)
    _check_named_once(settings)
    key_fields = settings.key_fields or ()
    _check_columns(columns, settings)
    table_index, why = _choose_index(
        index, profile, key_fields, buckets, hash_fields, update_partition_path, partition_buckets, hbase
    )
    _check_table_type(table_index, settings.type or "cow")
    if why:
        _log.info("table %s: index %s", storage.url(), why)
    index_names = [parse_index_name(text) for text in indexes]
    name = settings.name or name_of(storage)
    created = new_table_properties(
        name=name,
        table_type=settings.type or "cow",
        version=9 if settings.version is None else settings.version,
        key_fields=key_fields,
        partition_fields=settings.partition_fields or (),
        ordering_fields=settings.ordering_fields or (),
        key_generator=_key_generator(settings),
        partition_types=settings.partition_types or (),
        merge_mode=settings.merge_mode,
        payload=settings.payload,
        merge_strategy=settings.merge_strategy or "",
        partial_update_mode=settings.partial_update_mode or "",
        delete_field=settings.delete_field or "",
        delete_marker=settings.delete_marker or "",
        hive_style=bool(settings.hive_style),
        url_encode=bool(settings.url_encode),
        slash_dates=bool(settings.slash_dates),
        drop_partition_columns=bool(settings.drop_partition_columns),
        populate_meta_fields=settings.populate_meta_fields is not False,
        cdc_mode=(settings.cdc_mode or "DATA_BEFORE_AFTER") if settings.cdc else "",
        database=settings.database or "",
        create_schema=document(arrow_to_avro(columns, name), _comments(schema)) if len(columns) else "",
        timezone=settings.timezone or "UTC",
        base_format=settings.base_format or "PARQUET",
        index_settings=table_index.settings(),
        extra={
            **({INDEX_REASON: why} if why else {}),
            **settings.timestamp,
            **_key_options(settings),
            **remembered_property(index_names),
            **_sort(settings),
            **({COMPACT_INLINE: "true", COMPACT_DUE: "logs"} if settings.type == "mor" else {}),
            # an index that looks keys up finds them in any file, so new keys need not go into existing files
            **({SMALL_FILES: "deferred"} if settings.type == "mor" and table_index.hashing is None else {}),
            CLUSTERING_UPDATES: GIVES_WAY,
            ROLLING_KEYS: ",".join(TAKEN_OVER),
            FIELD_IDS: BY_PATH,
            **properties,
            TABLE_ID: uuid.uuid4().hex,
        },
    )
    config = TableConfig(created)
    _check_config(config, columns)
    created |= _value_properties(config, columns, values)
    check_new_indexes([*table_index.metadata_indexes, *index_names], config, columns, table_index)
    finish_interrupted_overwrite(storage)
    if not allow_existing and storage.head(PROPERTIES_PATH) is None:  # a table's own files are not foreign
        refuse_foreign_files(storage)
    config = create_table(storage, created)
    if len(columns):
        named = service_settings({}, config.properties).write.stats_columns
        warn_of_unknown_stats_columns(storage, config.name, named, columns)
    if table_index.hashing is not None:
        table_index.hashing.before_change(NO_INSTANT, storage)
    return config


def _named_as_columns(settings: TableSettings, columns: pa.Schema) -> TableSettings:
    """The settings in which the names of key, partition and ordering fields, given in any case, are spelled as the
    columns are."""
    roles = ("key_fields", "partition_fields", "ordering_fields")
    names = {role: getattr(settings, role) for role in roles}
    return replace(
        settings,
        **{role: tuple(in_any_case(n, columns.names) for n in fields) for role, fields in names.items() if fields},
    )


def _value_properties(
    config: TableConfig, columns: pa.Schema, values: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> dict[str, str]:
    """The properties that record the defaults and the generated columns of a new table."""
    defaults, generated = values
    if not defaults and not generated:  # as of most tables
        return {}
    from lakebed.operations.column_values import check_new_values
    from lakebed.properties.column_values import properties_of

    default_texts, expressions = check_new_values(config, columns, defaults, generated)
    return properties_of(default_texts, expressions)


def _check_table_type(index: Index, type_: str) -> None:
    if type_ not in index.table_types:
        raise InvalidOption(
            f"the index {index.name!r} is for {' and '.join(index.table_types)} tables, and this one is {type_}",
            hint=f'create it with type="{index.table_types[0]}", or take another index',
            context={"index": index.name, "type": type_},
        )


def _choose_index(
    index: str | Index,
    profile: Callable[[], TableProfile],
    key_fields: Sequence[str],
    buckets: int | None,
    fields: Sequence[str],
    update_partition_path: bool | None,
    partition_buckets: str | None,
    hbase: Mapping[str, Any] | None,
) -> tuple[Index, str]:
    """The index, and the reason why "auto" chose it; the reason is empty if the index was named."""
    why = ""
    if isinstance(index, str) and index.strip().lower() == "auto":
        advice = advise(profile(), buckets, fields)
        index, buckets, why = advice.index, advice.settings.get("buckets"), advice.why
    table_index = make_index(
        index,
        key_fields=key_fields,
        buckets=buckets,
        fields=fields,
        update_partition_path=update_partition_path,
        partition_buckets=partition_buckets,
        hbase=hbase,
    )
    return table_index, why


def _key_options(settings: TableSettings) -> dict[str, str]:
    prefix = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
    return {prefix: "true"} if settings.consistent_logical_timestamp else {}


def _sort(settings: TableSettings) -> dict[str, str]:
    """The properties of the table's sort order. Raises `InvalidOption` for sorted files without stored keys."""
    if settings.sort == "key" and (not settings.key_fields or settings.populate_meta_fields is False):
        raise InvalidOption(
            "sort='key' on a table without " + ("meta fields" if settings.key_fields else "a record key"),
            hint="name a key and keep the meta fields, or leave the sort out",
        )
    return {} if settings.sort is None else {SORT: settings.sort}


def _check_choices(settings: TableSettings, buckets: int | None) -> None:
    for argument, value, allowed in (
        ("type", settings.type, ("cow", "mor")),
        ("merge", settings.merge_mode, ("event_time", "commit_time", "custom")),
        ("sort", settings.sort, ("key", "none")),
    ):
        if value is not None and value not in allowed:
            raise InvalidOption(f"{argument}={value!r} is unknown", hint=f"use {' or '.join(map(repr, allowed))}")
    if buckets is not None and not _is_count(buckets):
        raise InvalidOption(f"a bucket index cannot have {buckets!r} buckets", hint="give a number from 1 on")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _check_named_once(settings: TableSettings) -> None:
    for role, fields in _roles(settings):
        repeated = next((name for at, name in enumerate(fields) if name in fields[:at]), None)
        if repeated is not None:
            raise InvalidOption(
                f"the {role} columns name {repeated!r} twice: {', '.join(fields)}",
                hint="name each column once",
                context={"column": repeated, "role": role},
            )


def _roles(settings: TableSettings) -> tuple[tuple[str, Sequence[str]], ...]:
    return (
        ("key", settings.key_fields or ()),
        ("partition", settings.partition_fields or ()),
        ("ordering", settings.ordering_fields or ()),
    )


def _key_generator(settings: TableSettings) -> str | None:
    """The kind of key generator, as Hudi infers it if none is named: the custom one for partition fields with types.
    None if it follows from the fields."""
    generator = kind_of(settings.key_generator) if settings.key_generator else None
    if not settings.partition_types:
        return generator
    if generator not in (None, CUSTOM):
        raise InvalidOption(
            f"partition fields with types belong to a custom key generator, and the table's is {generator}",
            hint="leave the types out, or the key generator",
            context={"key_generator": generator, "types": list(settings.partition_types)},
        )
    return CUSTOM


def _check_columns(columns: pa.Schema, settings: TableSettings) -> None:
    if not len(columns):
        return
    for role, fields in _roles(settings):
        for name in fields:
            if name not in columns.names and name.split(".")[0] not in columns.names:
                raise SchemaConflict(
                    f"the {role} column {name!r} is not in the schema",
                    hint=did_you_mean(name, columns.names, "the schema has"),
                    context={"column": name, "role": role},
                )
    for name in settings.ordering_fields or ():
        check_has_order(columns, name)


def _check_config(config: TableConfig, columns: pa.Schema) -> None:
    """Raise for a table that could be created, but never written."""
    if config.table_type == "mor" and not config.populate_meta_fields:
        raise InvalidOption(
            "a merge-on-read table needs the meta fields: without stored keys it is neither updated nor compacted",
            hint="leave hoodie.populate.meta.fields as it is, or take type='cow' for a table of inserts",
            context={"type": "mor", "option": "hoodie.populate.meta.fields"},
        )
    if config.merge_mode == "event_time" and not config.ordering_fields:
        raise InvalidOption(
            "merge='event_time' needs an ordering column",
            hint="name it: create(..., ordering='updated_at'), or use merge='commit_time'",
        )
    for name in MergeRules.of_table(config).ordering_columns:
        if len(columns) and name not in columns.names:
            raise SchemaConflict(
                f"rows are ordered by the column {name!r}, which is not in the schema",
                hint=did_you_mean(name, columns.names, "the schema has"),
                context={"column": name, "role": "ordering"},
            )
    if config.base_format == "LANCE":
        from lakebed.format.lance_file import check_lance_columns, require_lance

        require_lance()
        check_lance_columns(columns)
    keys = config.keys
    if len(columns):
        check_makes_keys(keys, columns)
    if config.drop_partition_columns:
        for name in printed_partition_fields(config, columns):
            raise InvalidOption(
                f"the paths of partition column {name!r} have its times as printed texts, and files would not have its"
                " values",
                hint="leave hoodie.datasource.write.drop.partition.columns out",
                context={"column": name, "option": "hoodie.datasource.write.drop.partition.columns"},
            )


def name_of(storage: Storage) -> str:
    """The name of the table: the name of its folder, in letters that Avro names may have."""
    last = storage.spec.uri.rstrip("/").rpartition("/")[2]
    name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in last)
    return name if name and not name[0].isdigit() else f"t_{name}"


def _comments(schema: pa.Schema) -> dict[str, str]:
    """The comments of columns by name; Spark stores them in the columns' metadata."""
    texts = {field.name: (field.metadata or {}).get(b"comment", b"").decode() for field in schema}
    return {name: text for name, text in texts.items() if text}


def explicit_schema(data: Any) -> pa.Schema | None:
    """The Arrow schema if the caller gave one (Arrow's, or Spark's StructType) or a stream, whose rows are not read;
    None for other data."""
    if isinstance(data, pa.Schema):
        return data
    if cluster_of(data) is not None:  # a DataFrame of Spark Connect claims to have a column of every name
        return None
    if hasattr(data, "jsonValue") and hasattr(data, "json"):
        from lakebed.schema.spark import spark_json_to_arrow

        return spark_json_to_arrow(data.json())
    if hasattr(data, "__arrow_c_schema__") and not hasattr(data, "__arrow_c_stream__"):
        return pa.schema(data)
    return schema_of_stream(data)


def profile_of(
    schema: pa.Schema,
    settings: TableSettings,
    expected: IndexSettings,
    engine: Engine | None = None,
    rows: Rows | None = None,
) -> TableProfile:
    """The profile of the table that the options expect; values that they do not give are taken from the rows, if any,
    without running a job."""
    width = from_types(schema)
    count, partitions = expected.expected_rows, expected.expected_partitions
    if engine is not None and rows is not None:
        count = count or engine.estimated_rows(rows, width)
        partitions = partitions or _partitions(engine, rows, schema, settings)
    return TableProfile(
        rows=count,
        row_bytes=width,
        partitions=partitions if settings.partition_fields else 0,
        keys_grow=expected.growing_keys,
        unique_keys=expected.unique_keys,
        batch=expected.expected_batch,
        has_key=bool(settings.key_fields),
    )


def _partitions(engine: Engine, rows: Rows, schema: pa.Schema, settings: TableSettings) -> int | None:
    """The number of partition paths of the rows; None if counting them takes a job or a key generator."""
    fields = settings.partition_fields or ()
    if engine.is_distributed or settings.key_generator or settings.partition_types:
        return None
    return engine.aggregate(rows, fields).num_rows if fields and set(fields) <= set(schema.names) else None


def base_format_of(text: str | None) -> str | None:
    """The format of base files in Hudi's spelling, from the name that a caller gave; None for no name. Raises
    `InvalidOption` for a format that is not written.

    >>> base_format_of("lance")
    'LANCE'
    """
    if text is None or text.upper() in ("PARQUET", "LANCE"):
        return None if text is None else text.upper()
    raise InvalidOption(
        f"base_format={text!r} is not written",
        hint="use 'parquet' or 'lance'; tables of Hudi with ORC base files are read and take log files",
        context={"base_format": text},
    )


def merge_settings(merge: Any) -> dict[str, Any]:
    """The settings of the table for a mode, a payload class of Hudi's, a merger, or the entry point of a merger.

    >>> merge_settings("event_time")
    {'merge_mode': 'event_time'}
    >>> merge_settings("PartialUpdateAvroPayload")
    {'payload': 'PartialUpdateAvroPayload'}
    """
    if merge is None:
        return {}
    if isinstance(merge, type) and issubclass(merge, Merger):
        merge = merge()
    if isinstance(merge, Merger):
        return _of_merger(register(merge))
    if isinstance(merge, str) and merge in ("event_time", "commit_time"):
        return {"merge_mode": merge}
    if isinstance(merge, str) and payload_class(merge) is not None:
        return {"payload": merge}
    merger = merger_named(merge) if isinstance(merge, str) else None
    if merger is None:
        choices = ["event_time", "commit_time", *PAYLOADS]
        near = get_close_matches(str(merge), choices, n=1, cutoff=0.6)
        raise InvalidOption(
            f"merge={merge!r} is unknown",
            hint=(f"did you mean {near[0]!r}? " if near else "")
            + f"It takes 'event_time', 'commit_time', one of Hudi's payload classes ({', '.join(PAYLOADS)}), a"
            f" lakebed.Merger, or the name of an entry point of {ENTRY_POINTS!r}",
            context={"merge": str(merge)},
        )
    return _of_merger(merger)


def _of_merger(merger: Merger) -> dict[str, Any]:
    return {"merge_mode": "custom", "merge_strategy": merger.strategy_id.lower()}
