"""Where a job's options and the table's own `hoodie.properties` disagree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from lakebed.config.settings import IndexSettings, TableSettings
from lakebed.config.values import (
    MERGE_MODES,
    PAYLOAD_STRATEGY,
    PAYLOADS,
    PLAIN_PAYLOADS,
    STRATEGIES,
    TABLE_TYPES,
    key_generator,
    simple_name,
)
from lakebed.errors import InvalidOption

_FLAGS = {
    "hive_style": "hoodie.datasource.write.hive_style_partitioning",
    "url_encode": "hoodie.datasource.write.partitionpath.urlencode",
    "slash_dates": "hoodie.datasource.write.slash.separated.date.partitioning",
    "drop_partition_columns": "hoodie.datasource.write.drop.partition.columns",
}
LEGACY_PAYLOAD = "hoodie.table.legacy.payload.class"
OLD_STRATEGY = "hoodie.compaction.record.merger.strategy"
_RECORD_NAMES = ("record_index", "global_record_level_index", "record_level_index")


def check_table(named: TableSettings, properties: Mapping[str, str]) -> None:
    """Raise InvalidOption for the first setting in `said` that the table has otherwise."""
    for key, requested, stored in _table_pairs(named, properties):
        if requested is not None and stored is not None and requested != stored:
            raise _conflict(key, requested, stored)
    for key, requested in named.timestamp.items():
        if key in properties and properties[key] != requested:
            raise _conflict(key, requested, properties[key])


def check_index(named: IndexSettings, properties: Mapping[str, str]) -> None:
    """The same for the index, where the table has one recorded (`lakebed.index.*`)."""
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
    fields = _names(properties.get("lakebed.index.bucket.fields"))
    if named.fields and fields and set(named.fields) != set(fields):
        raise _conflict("lakebed.index.bucket.fields", named.fields, fields)


def _table_pairs(named: TableSettings, properties: Mapping[str, str]) -> Iterator[tuple[str, Any, Any]]:
    """(key, what the job says, what the table has) for every setting a table remembers."""
    get = properties.get
    yield "hoodie.table.name", named.name, get("hoodie.table.name")
    yield "hoodie.database.name", named.database, get("hoodie.database.name") or named.database
    yield "hoodie.table.type", named.type, TABLE_TYPES.get(get("hoodie.table.type", "COPY_ON_WRITE"))
    yield "hoodie.table.version", named.version, int(get("hoodie.table.version", "9"))
    yield "hoodie.table.recordkey.fields", named.key_fields, _names(get("hoodie.table.recordkey.fields", ""))
    partition = _names(get("hoodie.table.partition.fields", "")) or ()
    plain = tuple(name.partition(":")[0] for name in partition)
    yield "hoodie.table.partition.fields", named.partition_fields, plain
    types = tuple(kind.upper() for _, found, kind in (name.partition(":") for name in partition) if found)
    types = types or _names(get("lakebed.partition.types", "")) or ()
    yield "hoodie.table.partition.fields (types)", named.partition_types, types or None
    ordering = get("hoodie.table.ordering.fields", get("hoodie.table.precombine.field", ""))
    yield "hoodie.table.ordering.fields", named.ordering_fields, _names(ordering)
    generator = get("hoodie.table.keygenerator.type") or get("hoodie.table.keygenerator.class")
    stored_generator = key_generator(generator) or generator if generator else None
    yield "hoodie.table.keygenerator.type", named.key_generator, stored_generator
    yield from _merge_pairs(named, properties)
    for field, key in _FLAGS.items():
        yield key, getattr(named, field), get(key, "false").lower() == "true"
    meta = get("hoodie.populate.meta.fields", "true").lower() == "true"
    yield "hoodie.populate.meta.fields", named.populate_meta_fields, meta
    logged = get("hoodie.table.cdc.enabled", "false").lower() == "true"
    yield "hoodie.table.cdc.enabled", named.cdc, logged
    mode = get("hoodie.table.cdc.supplemental.logging.mode", "DATA_BEFORE_AFTER").upper()
    yield "hoodie.table.cdc.supplemental.logging.mode", named.cdc_mode, mode if logged else None
    yield "hoodie.table.timeline.timezone", named.timezone, get("hoodie.table.timeline.timezone", "LOCAL").upper()
    yield "lakebed.sort", named.sort, get("lakebed.sort", "none")
    for field, key in (("delete_field", "field"), ("delete_marker", "marker")):
        name = f"hoodie.payload.delete.{key}"
        stored = get(f"hoodie.record.merge.property.{name}", get(name))
        yield name, getattr(named, field), stored


def _merge_pairs(named: TableSettings, properties: Mapping[str, str]) -> Iterator[tuple[str, Any, Any]]:
    mode, stored = named.merge_mode, stored_merge_mode(properties)
    if named.payload:
        payload = properties.get("hoodie.compaction.payload.class") or properties.get(LEGACY_PAYLOAD)
        if payload:
            yield "hoodie.datasource.write.payload.class", simple_name(named.payload), simple_name(payload)
        else:
            mode = PAYLOADS[simple_name(named.payload)]
    yield "hoodie.record.merge.mode", mode, stored
    strategy = properties.get("hoodie.record.merge.strategy.id", properties.get(OLD_STRATEGY))
    yield "hoodie.record.merge.strategy.id", named.merge_strategy, strategy
    partial = properties.get("hoodie.table.partial.update.mode", "")
    yield "hoodie.table.partial.update.mode", named.partial_update_mode, partial


def stored_merge_mode(properties: Mapping[str, str]) -> str | None:
    """The merge mode of a table as `event_time`, `commit_time` or `custom`; a version 6 table goes by its payload.

    >>> stored_merge_mode({"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"})
    'event_time'
    """
    mode = properties.get("hoodie.record.merge.mode")
    if mode:
        return MERGE_MODES.get(mode.upper(), "custom")
    strategy = properties.get("hoodie.record.merge.strategy.id", properties.get(OLD_STRATEGY))
    if strategy not in (None, "", PAYLOAD_STRATEGY, *STRATEGIES):
        return "custom"
    payload = simple_name(properties.get("hoodie.compaction.payload.class", ""))
    return (PAYLOADS[payload] if payload in PLAIN_PAYLOADS else "custom") if payload else None


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _conflict(key: str, requested: object, stored: object) -> InvalidOption:
    return InvalidOption(
        f"{key}: the options say {_shown(requested)}, the table has {_shown(stored)}",
        hint="leave the option out: a table remembers its settings",
        context={"option": key, "given": requested, "table": stored},
    )


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value))) or "(none)"
    return str(value).lower() if isinstance(value, bool) else str(value)
