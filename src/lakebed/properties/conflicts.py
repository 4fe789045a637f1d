"""Conflicts: settings of a job that contradict those that its table has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from lakebed.config.collected import Options
from lakebed.config.option_table import PAYLOADS, simple_name
from lakebed.config.settings import IndexSettings, TableSettings
from lakebed.errors import InvalidOption
from lakebed.properties.table_config import TableConfig

_MOVES = {
    "record": "hoodie.record.index.update.partition.path",
    "global_simple": "hoodie.simple.index.update.partition.path",
    "global_bloom": "hoodie.bloom.index.update.partition.path",
    "hbase": "hoodie.hbase.index.update.partition.path",
}
_RECORD_NAMES = ("record_index", "global_record_level_index", "record_level_index")
# Settings that name columns, which have the same name in any case.
_COLUMNS = frozenset(f"hoodie.table.{role}.fields" for role in ("recordkey", "partition", "ordering"))


def conflicts_with_table(options: Options, config: TableConfig) -> None:
    """Raise `InvalidOption` if a job's options contradict the table's own `hoodie.properties`; the message shows both
    values. Settings that the options do not have are not compared."""
    properties = config.properties
    _check_table(options.table, config)
    _check_index(options.index, config)
    key = _MOVES.get(properties.get("lakebed.index.type", ""), "")
    moves, stays = options.explicit.get(key), properties.get("lakebed.index.update_partition")
    if moves is not None and stays is not None and moves.strip().lower() != stays.strip().lower():
        change = f" t.indexes.use({properties['lakebed.index.type']!r}, update_partition_path=...) changes it"
        raise _conflict(key, moves, stays, "leave the option out: a table remembers its settings." + change)


def _check_table(named: TableSettings, config: TableConfig) -> None:
    for key, requested, stored in _table_pairs(named, config):
        if key in _COLUMNS and _in_lower_case(requested) == _in_lower_case(stored):
            continue
        if requested is not None and stored is not None and requested != stored:
            raise _conflict(key, requested, stored)
    for key, requested in named.timestamp.items():
        if key in config.properties and config.properties[key] != requested:
            raise _conflict(key, requested, config.properties[key])


def _check_index(named: IndexSettings, config: TableConfig) -> None:
    """Raise `InvalidOption` for an index other than the one that the properties `lakebed.index.*` record."""
    properties = config.properties
    recorded = properties.get("lakebed.index.type")
    if recorded is None:
        return
    same = recorded == "record" and named.type in _RECORD_NAMES
    if named.type not in (None, "auto", recorded) and not same:
        raise _conflict("lakebed.index.type", named.type, recorded)
    if "lakebed.index.bucket.count" not in properties:
        return
    buckets = properties.get("lakebed.index.bucket.count")
    if named.buckets is not None and buckets is not None and named.buckets != int(buckets):
        raise _conflict("lakebed.index.bucket.count", named.buckets, int(buckets))
    rules = properties.get("lakebed.index.bucket.partitions", "")
    if named.partition_buckets is not None and named.partition_buckets.strip("; ") != rules:
        raise _conflict("lakebed.index.bucket.partitions", named.partition_buckets, rules or None)
    fields = config.first_list("lakebed.index.bucket.fields")
    if named.fields and fields and {*_in_lower_case(named.fields)} != {*_in_lower_case(fields)}:
        raise _conflict("lakebed.index.bucket.fields", named.fields, fields)


def _table_pairs(named: TableSettings, config: TableConfig) -> Iterator[tuple[str, Any, Any]]:
    """The triples (key, the job's value, the table's value) of every setting that a table records."""
    properties = config.properties
    yield "hoodie.table.name", named.name, properties.get("hoodie.table.name")
    yield "hoodie.database.name", named.database, config.database or named.database
    yield "hoodie.table.type", named.type, config.table_type
    yield "hoodie.table.version", named.version, config.version
    yield "hoodie.table.recordkey.fields", named.key_fields, config.key_fields
    yield "hoodie.table.partition.fields", named.partition_fields, config.partition_fields
    yield "hoodie.table.partition.fields (types)", named.partition_types, config.partition_types or None
    yield "hoodie.table.ordering.fields", named.ordering_fields, config.ordering_fields
    generator = config.key_generator if config.names_key_generator else None
    yield "hoodie.table.keygenerator.type", named.key_generator, generator
    yield from _pairs_of_merging(named, config)
    yield "hoodie.datasource.write.hive_style_partitioning", named.hive_style, config.hive_style
    yield "hoodie.datasource.write.partitionpath.urlencode", named.url_encode, config.url_encode
    yield "hoodie.datasource.write.slash.separated.date.partitioning", named.slash_dates, config.slash_dates
    dropped = config.drop_partition_columns
    yield "hoodie.datasource.write.drop.partition.columns", named.drop_partition_columns, dropped
    yield "hoodie.populate.meta.fields", named.populate_meta_fields, config.populate_meta_fields
    yield "hoodie.table.cdc.enabled", named.cdc, config.cdc_enabled
    yield "hoodie.table.cdc.supplemental.logging.mode", named.cdc_mode, config.change_log
    yield "hoodie.table.timeline.timezone", named.timezone, config.timezone
    yield "lakebed.sort", named.sort, properties.get("lakebed.sort", "none")
    yield "hoodie.payload.delete.field", named.delete_field, config.delete_field or None
    yield "hoodie.payload.delete.marker", named.delete_marker, config.delete_marker or None


def _pairs_of_merging(named: TableSettings, config: TableConfig) -> Iterator[tuple[str, Any, Any]]:
    mode, payload = named.merge_mode, config.payload
    if named.payload and payload:
        yield "hoodie.datasource.write.payload.class", named.payload, payload
    elif named.payload:
        mode = PAYLOADS[simple_name(named.payload)]
    yield "hoodie.record.merge.mode", mode, config.merge_mode if config.names_merge_mode else None
    yield "hoodie.record.merge.strategy.id", named.merge_strategy, config.merge_strategy or None
    yield "hoodie.table.partial.update.mode", named.partial_update_mode, config.partial_update_mode


def _in_lower_case(names: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(name.lower() for name in names or ())


def _conflict(
    key: str, requested: object, stored: object, hint: str = "leave the option out: a table remembers its settings"
) -> InvalidOption:
    return InvalidOption(
        f"{key}: the options have {_text_of(requested)}, the table has {_text_of(stored)}",
        hint=hint,
        context={"option": key, "given": requested, "table": stored},
    )


def _text_of(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value))) or "(none)"
    return str(value).lower() if isinstance(value, bool) else str(value)
