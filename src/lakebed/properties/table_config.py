"""The table's own settings: what the keys of `hoodie.properties` mean, its merge mode and its key fields among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

import pyarrow as pa

from lakebed.config.option_table import (
    MERGE_MODES,
    PAYLOAD_STRATEGY,
    PAYLOADS,
    PLAIN_PAYLOADS,
    STRATEGIES,
    MergeMode,
    generator_class,
    payload_class,
    simple_name,
    split_partition_types,
)
from lakebed.errors import CorruptFile, InvalidOption
from lakebed.expressions.key_generators import KINDS_OF_CLASSES, KeyGenerator, KeyGeneratorSpec, key_generator
from lakebed.model import (
    CHECK_PREFIX,
    DEFAULT_PREFIX,
    GENERATED_PREFIX,
    HOODIE,
    RECORD_INDEX,
    SECONDARY_INDEX,
    has_completion_times,
)
from lakebed.sharing import once

if TYPE_CHECKING:
    from lakebed.format.data_block import LogMode
    from lakebed.properties.checks import Check

STRATEGY_OF_MODE: dict[MergeMode, str] = {
    **{mode: strategy for strategy, mode in STRATEGIES.items()},
    "custom": PAYLOAD_STRATEGY,
}
MODE_STRATEGIES = tuple(STRATEGY_OF_MODE.values())
MODE_NAMES: dict[MergeMode, str] = {mode: text for text, mode in MERGE_MODES.items()}
PAYLOAD_PACKAGE = "org.apache.hudi.common.model."
DEFAULT_PAYLOAD = PAYLOAD_PACKAGE + "DefaultHoodieRecordPayload"
OVERWRITE_PAYLOAD = PAYLOAD_PACKAGE + "OverwriteWithLatestAvroPayload"
UNAVAILABLE_VALUE = "__debezium_unavailable_value"

_DEBEZIUM_DELETE = {
    "hoodie.payload.delete.field": "_change_operation_type",
    "hoodie.payload.delete.marker": "d",
}


@dataclass(frozen=True, slots=True)
class PayloadRule:
    """The meaning of a known payload class on a version 9 table.

    Below version 9 the class itself merges, not quite the same: it compares `lakebed_ordering` whatever the table's
    ordering fields are, as numbers of a file and a position in it (`file_positions`), under `deletes_win` a delete
    wins whatever its ordering value, under `late_meta` the row that comes late gives the meta columns even where it
    loses, and under `late_fills` a row takes values only from those that it replaces, not from rows of its batch.
    """

    mode: MergeMode
    partial_update_mode: str = ""
    merge_properties: Mapping[str, str] = field(default_factory=dict[str, str])
    ordering_fields: tuple[str, ...] = ()
    lakebed_ordering: tuple[str, ...] = ()
    file_positions: bool = False
    deletes_win: bool = False
    late_meta: bool = False
    late_fills: bool = False


PAYLOAD_RULES: Mapping[str, PayloadRule] = {
    DEFAULT_PAYLOAD: PayloadRule(PAYLOADS["DefaultHoodieRecordPayload"]),
    PAYLOAD_PACKAGE + "EventTimeAvroPayload": PayloadRule(PAYLOADS["EventTimeAvroPayload"]),
    OVERWRITE_PAYLOAD: PayloadRule(PAYLOADS["OverwriteWithLatestAvroPayload"]),
    PAYLOAD_PACKAGE + "OverwriteNonDefaultsWithLatestAvroPayload": PayloadRule(
        PAYLOADS["OverwriteNonDefaultsWithLatestAvroPayload"], "IGNORE_DEFAULTS"
    ),
    PAYLOAD_PACKAGE + "PartialUpdateAvroPayload": PayloadRule(
        PAYLOADS["PartialUpdateAvroPayload"], "IGNORE_DEFAULTS", deletes_win=True, late_meta=True
    ),
    PAYLOAD_PACKAGE + "AWSDmsAvroPayload": PayloadRule(
        PAYLOADS["AWSDmsAvroPayload"],
        merge_properties={"hoodie.payload.delete.field": "Op", "hoodie.payload.delete.marker": "D"},
    ),
    PAYLOAD_PACKAGE + "debezium.PostgresDebeziumAvroPayload": PayloadRule(
        PAYLOADS["PostgresDebeziumAvroPayload"],
        "FILL_UNAVAILABLE",
        {**_DEBEZIUM_DELETE, "hoodie.write.partial.update.unavailable.value": UNAVAILABLE_VALUE},
        ("_event_lsn",),
        lakebed_ordering=("_event_lsn",),
        late_fills=True,
    ),
    PAYLOAD_PACKAGE + "debezium.MySqlDebeziumAvroPayload": PayloadRule(
        PAYLOADS["MySqlDebeziumAvroPayload"],
        merge_properties=_DEBEZIUM_DELETE,
        ordering_fields=("_event_bin_file", "_event_pos"),
        lakebed_ordering=("_event_seq",),
        file_positions=True,
    ),
}
MODE, STRATEGY, OLD_STRATEGY = (
    "hoodie.record.merge.mode",
    "hoodie.record.merge.strategy.id",
    "hoodie.compaction.record.merger.strategy",
)
PAYLOAD, LEGACY_PAYLOAD = "hoodie.compaction.payload.class", "hoodie.table.legacy.payload.class"


def mode_of_payload(payload: str) -> MergeMode:
    """The merge mode that a payload class means below version 9: custom for all classes except the plain ones."""
    name = simple_name(payload_class(payload) or "")
    return PAYLOADS[name] if name in PLAIN_PAYLOADS else "custom"


INDEX_PREFIX = "lakebed.index."
TABLE_ID = "lakebed.table.id"
"""Distinguishes a table from another one that is made at its place later; a rename keeps it."""
INDEX_REASON = INDEX_PREFIX + "why"
INDEX_CHANGES = INDEX_PREFIX + "changes"
INDEX_REPEATED = INDEX_PREFIX + "repeated"
INDEX_CHECKED = INDEX_PREFIX + "checked"
# Settings of writes, which stay when the index changes.
_INDEX_WRITES = (INDEX_PREFIX + "bucket.advised.bytes", INDEX_PREFIX + "bucket.grow")
SORT = "lakebed.sort"
# Where a version 6 table of ours keeps them: Hudi has no place for them there.
PARTITION_TYPES = "lakebed.partition.types"
MERGE_PROPERTY_PREFIX = "hoodie.record.merge.property."
CURRENT_VERSION = 9


def key_generator_class(kind: str) -> str:
    """The Java class of a kind of key generator; empty for a kind for which Hudi has no class.

    >>> key_generator_class("NON_PARTITION")
    'org.apache.hudi.keygen.NonpartitionedKeyGenerator'
    """
    name = next((name for name, named_kind in KINDS_OF_CLASSES.items() if named_kind == kind), "")
    return f"org.apache.hudi.keygen.{name}" if name else ""


def _text_of(*keys: str) -> once[str]:
    """A property of `TableConfig`: the text under the first of these keys that has one, or empty."""

    def text(config: TableConfig) -> str:
        return config.first_text(*keys)

    return once(text)


def _list_of(*keys: str) -> once[tuple[str, ...]]:
    """A property of `TableConfig`: the entries, divided by commas, under the first of these keys that has some."""

    def entries(config: TableConfig) -> tuple[str, ...]:
        return config.first_list(*keys)

    return once(entries)


def _flag_of(key: str, *, default: bool) -> once[bool]:
    """A property of `TableConfig`: whether the key is true."""

    def flag(config: TableConfig) -> bool:
        text = config.first_text(key).lower()
        return text == "true" if text else default

    return once(flag)


@dataclass(frozen=True)
class TableConfig:
    """The settings of a table; `properties` holds all keys of the file, whether lakebed knows them or not. Each setting
    is parsed once, at first use."""

    properties: Mapping[str, str]

    def __repr__(self) -> str:
        return f"TableConfig(name={self.name!r}, version={self.version}, table_type={self.table_type!r})"

    @once
    def name(self) -> str:
        return self.properties["hoodie.table.name"]

    database = _text_of("hoodie.database.name")

    @property
    def identity(self) -> str:
        """A text that another table at this place does not have; a table of another writer has only its names."""
        return self.first_text(TABLE_ID) or f"{self.database}.{self.name}"

    @once
    def version(self) -> int:
        return int(self.first_text("hoodie.table.version") or CURRENT_VERSION)

    @once
    def table_type(self) -> Literal["cow", "mor"]:
        return "mor" if self.first_text("hoodie.table.type").upper() == "MERGE_ON_READ" else "cow"

    key_fields = _list_of("hoodie.table.recordkey.fields")
    """The columns the record key is made of; empty where keys are generated."""

    @once
    def partition_fields(self) -> tuple[str, ...]:
        return split_partition_types(self.first_list("hoodie.table.partition.fields"))[0]

    @once
    def partition_types(self) -> tuple[str, ...]:
        """The type of each partition field (SIMPLE or TIMESTAMP) of a CUSTOM key generator, if stored; otherwise
        empty."""
        fields = self.first_list("hoodie.table.partition.fields")
        if ":" in "".join(fields):
            return split_partition_types(fields)[1]
        return tuple([kind.upper() for kind in self.first_list(PARTITION_TYPES)])

    ordering_fields = _list_of("hoodie.table.ordering.fields", "hoodie.table.precombine.field")

    @once
    def key_generator(self) -> str:
        """SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM, GLOBAL_DELETE or USER_PROVIDED; derived from the fields
        if the table does not name it."""
        kind = self.first_text("hoodie.table.keygenerator.type").upper().removesuffix("_AVRO")
        if kind:
            return kind
        if java_class := self.first_text("hoodie.table.keygenerator.class"):
            return KINDS_OF_CLASSES.get(generator_class(java_class), "USER_PROVIDED")
        return default_key_generator(self.key_fields, self.partition_fields)

    @once
    def keys(self) -> KeyGenerator:
        """The table's key generator; a complex key of one field has the field's name in front. Raises
        `UnsupportedFeature` for a class that is not one of Hudi's."""
        return key_generator(key_generator_spec(self))

    @property
    def key_copy(self) -> str | None:
        """The column whose texts are the record keys, if it is a text column; None if there is none."""
        alone = self.populate_meta_fields and len(self.key_fields) == 1
        return self.key_fields[0] if alone and self.key_generator in ("SIMPLE", "NON_PARTITION") else None

    @once
    def names_key_generator(self) -> bool:
        """Whether the properties name the key generator, by its type or class."""
        return bool(self.first_text("hoodie.table.keygenerator.type", "hoodie.table.keygenerator.class"))

    @once
    def is_of_flink(self) -> bool:
        """Whether the properties have the form of Flink's writer: Spark's have neither this kind of key generator nor
        this database."""
        kind, java_class = (
            self.first_text("hoodie.table.keygenerator.type"),
            self.first_text("hoodie.table.keygenerator.class"),
        )
        by_avro = kind.upper().endswith("_AVRO") or java_class.endswith("AvroKeyGenerator")
        return by_avro or self.database == "default_database"

    @once
    def has_two_key_forms(self) -> bool:
        """Whether stored keys may be `id:1` or `1`: complex keys of one field, which releases of Hudi write in either
        form (`slices/newest_files.py`)."""
        return self.key_generator == "COMPLEX" and len(self.key_fields) == 1 and self.populate_meta_fields

    @once
    def merge_mode(self) -> MergeMode:
        """The mode by which rows of one key are merged.

        From version 8 on it is stored, and real Hudi's reader takes the stored one whatever the strategy id and the
        payload class are. On version 6 the payload class decides, since Hudi 0.15 stored the event-time strategy
        whatever the payload was, or a merger of the user's own. Where nothing is stored it is event time with an
        ordering field, commit time without. Raises `InvalidOption` for a mode that is unknown, or that on version 6 is
        not that of the payload.
        """
        stored, payload, strategy = self.first_text(MODE).upper(), self.first_text(PAYLOAD), self.merge_strategy
        if stored and stored not in MERGE_MODES:
            raise InvalidOption(
                f"{MODE}={stored!r} of table {self.name!r} is unknown",
                hint=f"it is one of {', '.join(MERGE_MODES)}",
                context={"property": MODE, "value": stored},
            )
        if stored and has_completion_times(self.version):
            return MERGE_MODES[stored]
        if strategy not in ("", *MODE_STRATEGIES):
            return "custom"
        if has_completion_times(self.version) and strategy:
            return STRATEGIES.get(strategy, "custom")
        default: MergeMode = "event_time" if self.ordering_fields else "commit_time"
        if not stored:
            return mode_of_payload(payload) if payload else default
        mode = MERGE_MODES[stored]
        if mode != mode_of_payload(payload) if payload else mode == "custom":
            because = f"its payload class {payload}, which means another one" if payload else "no payload class"
            raise InvalidOption(
                f"table {self.name!r} of version {self.version} has {MODE}={stored} and {because}",
                hint=f"Take {MODE} out of hoodie.properties: a table of this version merges by its payload class.",
                context={"property": MODE, "value": stored, "payload": payload},
            )
        return mode

    @once
    def names_merge_mode(self) -> bool:
        """Whether the properties say how rows are merged: by mode, strategy or payload class."""
        return bool(self.first_text(MODE, PAYLOAD) or self.merge_strategy)

    partial_update_mode = _text_of("hoodie.table.partial.update.mode")
    """IGNORE_DEFAULTS, FILL_UNAVAILABLE, ... or empty."""

    @once
    def payload(self) -> str:
        """The payload class that the table names (or with which a version 9 table was created), or empty."""
        payload = self.first_text(PAYLOAD, LEGACY_PAYLOAD)
        return payload_class(payload) or payload

    @once
    def payload_rule(self) -> PayloadRule | None:
        """The rule of the payload class that merges rows of the table, if lakebed knows it; None if the table's merge
        mode suffices, and for a merger or class of the user's own."""
        # Hudi 0.15 stored the event-time strategy whatever the payload was.
        of_payload = (PAYLOAD_STRATEGY,) if has_completion_times(self.version) else MODE_STRATEGIES
        if self.merge_mode != "custom" or self.merge_strategy not in ("", *of_payload):
            return None
        return PAYLOAD_RULES.get(self.payload)

    @once
    def merge_strategy(self) -> str:
        """The id of the merge strategy, or empty."""
        return self.first_text(STRATEGY, OLD_STRATEGY).lower()

    hive_style = _flag_of("hoodie.datasource.write.hive_style_partitioning", default=False)

    url_encode = _flag_of("hoodie.datasource.write.partitionpath.urlencode", default=False)

    slash_dates = _flag_of("hoodie.datasource.write.slash.separated.date.partitioning", default=False)

    drop_partition_columns = _flag_of("hoodie.datasource.write.drop.partition.columns", default=False)

    populate_meta_fields = _flag_of("hoodie.populate.meta.fields", default=True)

    @once
    def timezone(self) -> str:
        """The zone of instant times: `UTC`, or `LOCAL` for that of the writing process."""
        return self.first_text("hoodie.table.timeline.timezone").upper() or "LOCAL"

    @once
    def log_block_format(self) -> Literal["avro", "parquet"]:
        """The format of the data blocks of log files."""
        return "parquet" if self.first_text("hoodie.logfile.data.block.format").lower() == "parquet" else "avro"

    @once
    def has_record_positions(self) -> bool:
        """Whether log blocks may have the rows of the base file that their records are for."""
        return self.table_type == "mor" and has_completion_times(self.version)

    has_consumers = _flag_of("lakebed.consumers", default=False)
    """Whether the table has named consumers, or had some."""

    cdc_enabled = _flag_of("hoodie.table.cdc.enabled", default=False)

    @once
    def change_log(self) -> LogMode | None:
        """The mode of the table's change log; None without a change log."""
        from lakebed.format.data_block import COLUMNS as CHANGE_LOG_COLUMNS

        if not self.cdc_enabled:
            return None
        mode = self.first_text("hoodie.table.cdc.supplemental.logging.mode").upper() or "DATA_BEFORE_AFTER"
        if mode not in CHANGE_LOG_COLUMNS:
            raise InvalidOption(
                f"hoodie.table.cdc.supplemental.logging.mode={mode!r} is unknown",
                hint=f"it is one of {', '.join(CHANGE_LOG_COLUMNS)}",
                context={"property": "hoodie.table.cdc.supplemental.logging.mode", "value": mode},
            )
        return cast("LogMode", mode)

    metadata_partitions = _list_of("hoodie.table.metadata.partitions")
    """The complete partitions of the metadata table; empty where the table has none."""

    metadata_partitions_inflight = _list_of("hoodie.table.metadata.partitions.inflight")

    @once
    def key_indexes(self) -> tuple[str, ...]:
        """The partitions of the metadata table, complete or being built, that index the record keys of every write."""
        names = {*self.metadata_partitions, *self.metadata_partitions_inflight}
        return tuple([n for n in sorted(names) if n == RECORD_INDEX or n.startswith(SECONDARY_INDEX)])

    @once
    def base_format(self) -> str:
        """The format of base files in capitals, as Hudi names it: PARQUET, ORC, LANCE."""
        return (self.first_text("hoodie.table.base.file.format", "hoodie.table.ro.file.format") or "PARQUET").upper()

    @property
    def writes_base_files(self) -> bool:
        """Whether base files are written. ORC files are not: Arrow's writer gives them no key range and no bloom
        filter."""
        return self.base_format != "ORC"

    @once
    def layout(self) -> int:
        """The timeline's layout: 1 (version 6) or 2."""
        return int(self.properties["hoodie.timeline.layout.version"])

    @once
    def timeline_path(self) -> str:
        """The folder of the instant files, relative to the table."""
        return HOODIE if self.layout == 1 else f"{HOODIE}/{self._folder('hoodie.timeline.path', 'timeline')}"

    @once
    def archive_folder(self) -> str:
        """The folder of archived instants, relative to the table."""
        if self.layout == 1:
            return f"{HOODIE}/{self._folder('hoodie.archivelog.folder', 'archived')}"
        return f"{self.timeline_path}/{self._folder('hoodie.timeline.history.path', 'history')}"

    create_schema = _text_of("hoodie.table.create.schema")
    """The Avro schema given at creation as JSON, or empty."""

    @once
    def index_settings(self) -> Mapping[str, str]:
        """The settings that lakebed recorded about the table's index: the `lakebed.index.*` keys without that
        prefix."""
        reserved_keys = (INDEX_REASON, INDEX_CHANGES, INDEX_REPEATED, INDEX_CHECKED, *_INDEX_WRITES)
        noted = {k: v for k, v in self.properties.items() if k.startswith(INDEX_PREFIX) and k not in reserved_keys}
        return {k.removeprefix(INDEX_PREFIX): v for k, v in noted.items()}

    @once
    def checks(self) -> tuple[Check, ...]:
        """The conditions that rows, and the table as a whole, have to fulfil, by name."""
        if CHECK_PREFIX not in " ".join(self.properties) and not self.generated:  # as in most tables
            return ()
        from lakebed.properties.checks import checks_in
        from lakebed.properties.column_values import generated_checks

        return (*checks_in(self.properties), *generated_checks(self.generated))

    @once
    def defaults(self) -> Mapping[str, str]:
        """The expressions of the values that columns get where the rows of a write lack them, by column."""
        return self._expressions(DEFAULT_PREFIX)

    @once
    def generated(self) -> Mapping[str, str]:
        """The expressions of generated columns over the other columns of a row, by column."""
        return self._expressions(GENERATED_PREFIX)

    def _expressions(self, prefix: str) -> Mapping[str, str]:
        if prefix not in " ".join(self.properties):  # as in most tables
            return {}
        from lakebed.properties.column_values import expressions_in

        return expressions_in(self.properties, prefix)

    @once
    def table_checks(self) -> tuple[Check, ...]:
        """The conditions on aggregates of all rows."""
        return tuple(check for check in self.checks if check.on == "table")

    @once
    def has_index_changes(self) -> bool:
        """Whether changes of the index are recorded."""
        return bool(self.first_text(INDEX_CHANGES))

    @once
    def is_made_by_lakebed(self) -> bool:
        """Whether lakebed made the table or adopted its index: then it has properties of lakebed."""
        return any(key.startswith("lakebed.") for key in self.properties)

    index_reason = _text_of(INDEX_REASON)
    """Why "auto" took the table's index; empty where the index was named."""

    @once
    def repeats_keys(self) -> bool:
        """Whether inserts are known to have stored keys several times, so that a record index, which has one location
        per key, does not cover all rows."""
        return self.first_text(INDEX_REPEATED) == "true"

    keys_checked_until = _text_of(INDEX_CHECKED)
    """The completion time of the last commit when keys were found to be unique; empty if it was never checked."""

    @once
    def sorts_by_key(self) -> bool:
        """Whether lakebed keeps the rows of each base file in the order of their keys."""
        return self.first_text(SORT) == "key"

    @property
    def merge_properties(self) -> dict[str, str]:
        """The merge settings kept on version 9 tables, without their prefix."""
        start = MERGE_PROPERTY_PREFIX
        return {k.removeprefix(start): v for k, v in self.properties.items() if k.startswith(start)}

    delete_field = _text_of(MERGE_PROPERTY_PREFIX + "hoodie.payload.delete.field", "hoodie.payload.delete.field")
    """The column whose value `delete_marker` marks a deleted record, or empty."""

    delete_marker = _text_of(MERGE_PROPERTY_PREFIX + "hoodie.payload.delete.marker", "hoodie.payload.delete.marker")

    @once
    def unavailable_value(self) -> str:
        """The text that marks a value which the source did not send (FILL_UNAVAILABLE)."""
        key = "hoodie.write.partial.update.unavailable.value"
        return self.first_text(MERGE_PROPERTY_PREFIX + key, key) or UNAVAILABLE_VALUE

    def first_text(self, *keys: str) -> str:
        """The text under the first of these keys that has one, or empty."""
        for key in keys:
            if text := self.properties.get(key):
                return text
        return ""

    def _folder(self, key: str, default: str) -> str:
        """The name of a folder, or its path below another one."""
        path = self.first_text(key) or default
        if not {"", ".", ".."}.isdisjoint(path.split("/")):
            raise CorruptFile(
                f"hoodie.properties of table {self.name!r} has {key}={path}, which leads out of the table",
                hint=f"Put the folder's name there; Hudi's own is {default}.",
                context={"path": f"{HOODIE}/hoodie.properties", "key": key},
            )
        return path

    def first_list(self, *keys: str) -> tuple[str, ...]:
        """The entries, divided by commas, under the first of these keys that has some."""
        text = self.first_text(*keys)
        return tuple(filter(None, map(str.strip, text.split(",")))) if text else ()


def default_key_generator(key_fields: tuple[str, ...], partition_fields: tuple[str, ...]) -> str:
    """The key generator for these fields when none is named.

    >>> default_key_generator(("id",), ("a", "b"))
    'COMPLEX'
    """
    if not partition_fields:
        return "NON_PARTITION"
    return "COMPLEX" if len(partition_fields) > 1 or len(key_fields) > 1 else "SIMPLE"


_TIMEBASED = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")
_CONSISTENT = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"


def printed_partition_fields(config: TableConfig, columns: pa.Schema) -> list[str]:
    """The partition fields whose paths have times as formatted texts, by the key generator and the columns' types."""
    spec = key_generator_spec(config)
    kinds = config.partition_types or (config.key_generator,) * len(config.partition_fields)
    moments = {f.name for f in columns if getattr(f.type, "tz", None) is not None}
    return [
        name
        for name, kind in zip(config.partition_fields, kinds, strict=False)
        if kind == "TIMESTAMP" or (spec.consistent_logical_timestamp and name in moments)
    ]


def key_generator_spec(
    config: TableConfig,
    *,
    single_field_prefix: bool = True,
    timebased: Mapping[str, str] | None = None,
    partition_types: Sequence[str] | None = None,
) -> KeyGeneratorSpec:
    """The specification of the table's key generator, from its properties. `single_field_prefix` is used only for
    complex keys of one field.

    `timebased` and `partition_types` are a job's own `hoodie.keygen.timebased.*` options and the types it gives to the
    fields of a custom key generator: real Hudi does not keep them in every table.
    """
    timestamp = {
        key.removeprefix(prefix): value
        for prefix in reversed(_TIMEBASED)
        for key, value in {**(timebased or {}), **config.properties}.items()
        if key.startswith(prefix)
    }
    kind = config.key_generator
    if kind == "USER_PROVIDED":
        kind = config.properties.get("hoodie.table.keygenerator.class", kind)
    return KeyGeneratorSpec(
        kind=kind,
        key_fields=config.key_fields,
        partition_fields=config.partition_fields,
        partition_types=config.partition_types or tuple(partition_types or ()),
        hive_style=config.hive_style,
        url_encode=config.url_encode,
        slash_dates=config.slash_dates,
        dropped=config.drop_partition_columns,
        timestamp=timestamp,
        consistent_logical_timestamp=config.properties.get(_CONSISTENT, "false").lower() == "true",
        complex_single_field_prefix=single_field_prefix,
        timezone="UTC",
    )


@dataclass(frozen=True, slots=True)
class KeyTexts:
    """A function that computes the record keys of rows of a table that does not store them. It can be pickled."""

    config: TableConfig

    def __call__(self, rows: pa.RecordBatch) -> pa.Array:
        return self.config.keys.key_text_of(pa.Table.from_batches([rows]))
