"""The properties of a new table, key for key as Hudi 1.2.0 writes them for versions 9, 8 and 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from lakebed.config.option_table import payload_class
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.properties.file import SUPPORTED_VERSIONS, table_checksum
from lakebed.properties.table_config import (
    CURRENT_VERSION,
    DEFAULT_PAYLOAD,
    MERGE_PROPERTY_PREFIX,
    MODE_NAMES,
    OVERWRITE_PAYLOAD,
    PARTITION_TYPES,
    PAYLOAD_RULES,
    STRATEGY_OF_MODE,
    MergeMode,
    PayloadRule,
    default_key_generator,
    key_generator_class,
    mode_of_payload,
)

_EXTRACTOR_PACKAGE = "org.apache.hudi.hive."


def new_table_properties(
    *,
    name: str,
    table_type: Literal["cow", "mor"] = "cow",
    version: int = CURRENT_VERSION,
    key_fields: Sequence[str] = (),
    partition_fields: Sequence[str] = (),
    ordering_fields: Sequence[str] = (),
    key_generator: str | None = None,
    partition_types: Sequence[str] = (),
    merge_mode: MergeMode | None = None,
    payload: str | None = None,
    merge_strategy: str = "",
    partial_update_mode: str = "",
    delete_field: str = "",
    delete_marker: str = "",
    hive_style: bool = False,
    url_encode: bool = False,
    slash_dates: bool = False,
    drop_partition_columns: bool = False,
    populate_meta_fields: bool = True,
    cdc_mode: str = "",
    database: str = "",
    create_schema: str = "",
    timezone: str = "UTC",
    base_format: str = "PARQUET",
    index_settings: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The content of `hoodie.properties` for a new table without metadata table.

    `key_generator` None follows from the fields; `partition_types` go with CUSTOM. `payload` is a class name, short for
    those of Hudi's own package; `merge_strategy` the strategy id of a merger of the user's own. `cdc_mode` empty means
    no change data capture. Instant times are in UTC unless `timezone` is LOCAL. `index_settings` are stored under
    `lakebed.index.`; `extra` (such as the settings of a timestamp key generator) is added last.

    Raises `UnsupportedFeature` for another version, `InvalidOption` for a mode that contradicts the payload.

    >>> props = new_table_properties(name="trips", key_fields=["id"], partition_fields=["city"], ordering_fields=["ts"])
    >>> props["hoodie.record.merge.mode"], props["hoodie.table.keygenerator.type"]
    ('EVENT_TIME_ORDERING', 'SIMPLE')
    """
    if version not in SUPPORTED_VERSIONS:
        raise UnsupportedFeature(
            f"tables of version {version} cannot be created", hint="Choose table_version 9, 8 or 6."
        )
    generator = key_generator or default_key_generator(tuple(key_fields), tuple(partition_fields))
    payload = payload_class(payload) or payload if payload else None
    if partial_update_mode and version != CURRENT_VERSION:
        raise InvalidOption(
            f"tables of version {version} have no partial update mode",
            hint="Choose table_version 9, or a payload class such as PartialUpdateAvroPayload.",
        )
    rule = PAYLOAD_RULES.get(payload or "", PayloadRule("event_time"))
    ordering = tuple(ordering_fields) or (rule.ordering_fields if version == CURRENT_VERSION else ())
    props = _fixed_properties(name, table_type, version) | {"hoodie.table.base.file.format": base_format}
    props |= {
        "hoodie.table.keygenerator.type": generator,
        "hoodie.table.partition.fields": partition_text(partition_fields, partition_types, version),
        "hoodie.table.partition_extractor_class": _extractor(partition_fields, hive_style=hive_style),
        "hoodie.datasource.write.hive_style_partitioning": _flag(hive_style),
        "hoodie.datasource.write.partitionpath.urlencode": _flag(url_encode),
        "hoodie.datasource.write.drop.partition.columns": _flag(drop_partition_columns),
        "hoodie.populate.meta.fields": _flag(populate_meta_fields),
        "hoodie.table.cdc.enabled": _flag(bool(cdc_mode)),
        "hoodie.table.timeline.timezone": timezone.upper(),
        "hoodie.table.checksum": table_checksum(name, database),
    }
    optional = {
        "hoodie.table.recordkey.fields": ",".join(key_fields),
        "hoodie.table.ordering.fields": ",".join(ordering),
        # the only names by which Hudi before 1.1, and readers made for its tables, know these
        "hoodie.table.precombine.field": ",".join(ordering) if version < CURRENT_VERSION else "",
        "hoodie.table.keygenerator.class": key_generator_class(generator) if version < 8 else "",
        "hoodie.table.cdc.supplemental.logging.mode": cdc_mode.upper(),
        "hoodie.database.name": database,
        "hoodie.table.create.schema": create_schema,
        "hoodie.datasource.write.slash.separated.date.partitioning": _flag(slash_dates) if slash_dates else "",
        "hoodie.table.partial.update.mode": partial_update_mode,
        PARTITION_TYPES: ",".join(partition_types).upper() if version < 8 else "",
    }
    props |= {key: value for key, value in optional.items() if value}
    default_mode: MergeMode = "event_time" if ordering else "commit_time"
    props |= merge_properties(version, merge_mode, payload, default_mode, merge_strategy)
    props |= _delete_properties(version, delete_field, delete_marker)
    props |= {f"lakebed.index.{key}": value for key, value in (index_settings or {}).items()}
    return props | dict(extra or {})


def _fixed_properties(name: str, table_type: str, version: int) -> dict[str, str]:
    props = {
        "hoodie.table.name": name,
        "hoodie.table.type": "MERGE_ON_READ" if table_type == "mor" else "COPY_ON_WRITE",
        "hoodie.table.version": str(version),
        "hoodie.timeline.layout.version": "1" if version < 8 else "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.format": "native",
        "hoodie.partition.metafile.use.base.format": "false",
    }
    if version >= 8:
        props["hoodie.table.initial.version"] = str(version)
        props["hoodie.table.multiple.base.file.formats.enable"] = "false"
    return props


def merge_properties(
    version: int, mode: MergeMode | None, payload: str | None, default_mode: MergeMode, strategy: str
) -> dict[str, str]:
    """The merge mode, strategy id and payload in the form of the table version. Raises `InvalidOption` if two of them
    contradict each other."""
    if strategy:
        _refuse_contradiction(mode, "custom", strategy)
        named = {"hoodie.record.merge.strategy.id": strategy}
        if version >= 8:
            named["hoodie.record.merge.mode"] = MODE_NAMES["custom"]
        return named if version == CURRENT_VERSION else {**named, "hoodie.compaction.payload.class": DEFAULT_PAYLOAD}
    if version == CURRENT_VERSION:
        return _merge_properties_v9(mode, payload, default_mode)
    payload_mode = mode_of_payload(payload) if payload else None
    _refuse_contradiction(mode, payload_mode, payload)
    resolved_mode = payload_mode or mode or default_mode
    payload = payload or (OVERWRITE_PAYLOAD if resolved_mode == "commit_time" else DEFAULT_PAYLOAD)
    props = {
        "hoodie.record.merge.strategy.id": STRATEGY_OF_MODE[resolved_mode],
        "hoodie.compaction.payload.class": payload,
    }
    if version >= 8:
        props["hoodie.record.merge.mode"] = MODE_NAMES[resolved_mode]
    return props


def _merge_properties_v9(mode: MergeMode | None, payload: str | None, default_mode: MergeMode) -> dict[str, str]:
    if payload is None:
        return {"hoodie.record.merge.mode": MODE_NAMES[mode or default_mode]}
    rule = PAYLOAD_RULES.get(payload)
    if rule is None:
        _refuse_contradiction(mode, "custom", payload)
        return {
            "hoodie.record.merge.mode": MODE_NAMES["custom"],
            "hoodie.compaction.payload.class": payload,
            "hoodie.record.merge.strategy.id": STRATEGY_OF_MODE["custom"],
        }
    _refuse_contradiction(mode, rule.mode, payload)
    props = {"hoodie.record.merge.mode": MODE_NAMES[rule.mode], "hoodie.table.legacy.payload.class": payload}
    if rule.partial_update_mode:
        props["hoodie.table.partial.update.mode"] = rule.partial_update_mode
    return props | {MERGE_PROPERTY_PREFIX + key: value for key, value in rule.merge_properties.items()}


def _refuse_contradiction(mode: MergeMode | None, implied: MergeMode | None, payload: str | None) -> None:
    if mode is not None and implied is not None and mode != implied:
        raise InvalidOption(
            f"merge mode {mode} contradicts the payload or strategy {payload}, which means {implied}",
            hint="Give the merge mode or the payload, not both.",
        )


def _delete_properties(version: int, delete_field: str, delete_marker: str) -> dict[str, str]:
    """The properties of the delete field and marker. Version 9 stores them as merge properties; older tables have no
    such properties, so they are stored under their own key (Hudi retains keys it does not know)."""
    prefix = MERGE_PROPERTY_PREFIX if version == CURRENT_VERSION else ""
    settings = {"hoodie.payload.delete.field": delete_field, "hoodie.payload.delete.marker": delete_marker}
    return {prefix + key: value for key, value in settings.items() if value}


def partition_text(fields: Sequence[str], types: Sequence[str], version: int) -> str:
    """The partition fields in the form of a table of this version: from version 8 on with their types, if they have
    some."""
    if types and version >= 8:
        return ",".join(f"{name}:{kind.upper()}" for name, kind in zip(fields, types, strict=True))
    return ",".join(fields)


def _extractor(partition_fields: Sequence[str], *, hive_style: bool) -> str:
    """The class that catalog synchronisation uses to take a partition path apart."""
    if not partition_fields:
        kind = "NonPartitionedExtractor"
    elif len(partition_fields) > 1:
        kind = "MultiPartKeysValueExtractor"
    else:
        kind = "HiveStylePartitionValueExtractor" if hive_style else "SinglePartPartitionValueExtractor"
    return _EXTRACTOR_PACKAGE + kind


def _flag(value: bool) -> str:
    return "true" if value else "false"
