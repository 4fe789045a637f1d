"""The table's own settings: what the keys of `hoodie.properties` mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast

from lakebed.errors import CorruptFile, InvalidOption
from lakebed.format.data_block import COLUMNS as CHANGE_LOG_COLUMNS
from lakebed.format.data_block import LogMode
from lakebed.model import HOODIE, has_completion_times
from lakebed.timeline.merge_config import (
    MODE_STRATEGIES,
    PAYLOAD_RULES,
    UNAVAILABLE_VALUE,
    MergeMode,
    PayloadRule,
    merge_mode_of,
)

INDEX_PREFIX = "lakebed.index."
INDEX_REASON = INDEX_PREFIX + "why"
INDEX_CHANGES = INDEX_PREFIX + "changes"
INDEX_REPEATED = INDEX_PREFIX + "repeated"
INDEX_CHECKED = INDEX_PREFIX + "checked"
SORT = "lakebed.sort"
# Where a version 6 table of ours keeps them: Hudi has no place for them there.
PARTITION_TYPES = "lakebed.partition.types"
MERGE_PROPERTY_PREFIX = "hoodie.record.merge.property."
CURRENT_VERSION = 9

KEY_GENERATOR_CLASSES = {
    "SimpleKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
    "CustomKeyGenerator": "CUSTOM",
    "GlobalDeleteKeyGenerator": "GLOBAL_DELETE",
}


@dataclass(frozen=True)
class TableConfig:
    """What a table says about itself; `properties` holds every key of the file, known or not."""

    properties: Mapping[str, str]

    def __repr__(self) -> str:
        return f"TableConfig(name={self.name!r}, version={self.version}, table_type={self.table_type!r})"

    @property
    def name(self) -> str:
        return self.properties["hoodie.table.name"]

    @property
    def database(self) -> str:
        return self._text("hoodie.database.name")

    @cached_property
    def version(self) -> int:
        return int(self._text("hoodie.table.version") or CURRENT_VERSION)

    @property
    def table_type(self) -> Literal["cow", "mor"]:
        return "mor" if self._text("hoodie.table.type").upper() == "MERGE_ON_READ" else "cow"

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The columns the record key is made of; empty where keys are generated."""
        return self._list("hoodie.table.recordkey.fields")

    @property
    def partition_fields(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._partitioning())

    @property
    def partition_types(self) -> tuple[str, ...]:
        """For a CUSTOM key generator the type of each partition field (SIMPLE or TIMESTAMP), where stored."""
        types = tuple(kind for _, kind in self._partitioning())
        return types if any(types) else self._list(PARTITION_TYPES)

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        return self._list("hoodie.table.ordering.fields", "hoodie.table.precombine.field")

    @property
    def key_generator(self) -> str:
        """SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM, GLOBAL_DELETE or USER_PROVIDED; found from the fields
        where the table does not say."""
        kind = self._text("hoodie.table.keygenerator.type").upper().removesuffix("_AVRO")
        if kind:
            return kind
        java_class = self._text("hoodie.table.keygenerator.class").rpartition(".")[2]
        if java_class:
            plain = java_class.replace("AvroKeyGenerator", "KeyGenerator")
            return KEY_GENERATOR_CLASSES.get(plain, "USER_PROVIDED")
        return default_key_generator(self.key_fields, self.partition_fields)

    @property
    def merge_mode(self) -> MergeMode:
        return merge_mode_of(self.version, self.properties, has_ordering=bool(self.ordering_fields))

    @property
    def partial_update_mode(self) -> str:
        """IGNORE_DEFAULTS, FILL_UNAVAILABLE, ... or empty."""
        return self._text("hoodie.table.partial.update.mode")

    @property
    def payload(self) -> str:
        """The payload class the table names (also the one a version 9 table was created with), or empty."""
        return self._text("hoodie.compaction.payload.class", "hoodie.table.legacy.payload.class")

    @property
    def payload_rule(self) -> PayloadRule | None:
        """What the payload class does that merges rows of the table, where lakebed knows it; None where the table's
        merge mode says all, and for a merger or class of the user's own."""
        if self.merge_mode != "custom" or self.merge_strategy not in ("", *MODE_STRATEGIES):
            return None
        return PAYLOAD_RULES.get(self.payload)

    @property
    def merge_strategy(self) -> str:
        """The id of the merge strategy, or empty."""
        return self._text("hoodie.record.merge.strategy.id", "hoodie.compaction.record.merger.strategy").lower()

    @property
    def hive_style(self) -> bool:
        return self._flag("hoodie.datasource.write.hive_style_partitioning", default=False)

    @property
    def url_encode(self) -> bool:
        return self._flag("hoodie.datasource.write.partitionpath.urlencode", default=False)

    @property
    def slash_dates(self) -> bool:
        return self._flag("hoodie.datasource.write.slash.separated.date.partitioning", default=False)

    @property
    def drop_partition_columns(self) -> bool:
        return self._flag("hoodie.datasource.write.drop.partition.columns", default=False)

    @property
    def populate_meta_fields(self) -> bool:
        return self._flag("hoodie.populate.meta.fields", default=True)

    @property
    def timezone(self) -> str:
        """The zone of instant times: `UTC`, or `LOCAL` for that of the writing process."""
        return self._text("hoodie.table.timeline.timezone").upper() or "LOCAL"

    @property
    def log_block_format(self) -> Literal["avro", "parquet"]:
        """The format of the data blocks of log files."""
        return "parquet" if self._text("hoodie.logfile.data.block.format").lower() == "parquet" else "avro"

    @property
    def has_record_positions(self) -> bool:
        """Whether log blocks may tell at which rows of the base file their records stand."""
        return self.table_type == "mor" and has_completion_times(self.version)

    @property
    def cdc_enabled(self) -> bool:
        return self._flag("hoodie.table.cdc.enabled", default=False)

    @property
    def change_log(self) -> LogMode | None:
        """What the table's change log holds; None where it keeps none."""
        if not self.cdc_enabled:
            return None
        mode = self._text("hoodie.table.cdc.supplemental.logging.mode").upper() or "DATA_BEFORE_AFTER"
        if mode not in CHANGE_LOG_COLUMNS:
            raise InvalidOption(
                f"hoodie.table.cdc.supplemental.logging.mode={mode!r} is unknown",
                hint=f"it is one of {', '.join(CHANGE_LOG_COLUMNS)}",
                context={"property": "hoodie.table.cdc.supplemental.logging.mode", "value": mode},
            )
        return cast(LogMode, mode)

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """The complete partitions of the metadata table; empty where the table has none."""
        return self._list("hoodie.table.metadata.partitions")

    @property
    def metadata_partitions_inflight(self) -> tuple[str, ...]:
        return self._list("hoodie.table.metadata.partitions.inflight")

    @property
    def base_format(self) -> str:
        return (self._text("hoodie.table.base.file.format", "hoodie.table.ro.file.format") or "PARQUET").upper()

    @property
    def layout(self) -> int:
        """The timeline's layout: 1 (version 6) or 2."""
        return int(self.properties["hoodie.timeline.layout.version"])

    @property
    def timeline_path(self) -> str:
        """The folder of the instant files, relative to the table."""
        return HOODIE if self.layout == 1 else f"{HOODIE}/{self._folder('hoodie.timeline.path', 'timeline')}"

    @property
    def archive_folder(self) -> str:
        """The folder of archived instants, relative to the table."""
        if self.layout == 1:
            return f"{HOODIE}/{self._folder('hoodie.archivelog.folder', 'archived')}"
        return f"{self.timeline_path}/{self._folder('hoodie.timeline.history.path', 'history')}"

    @property
    def create_schema(self) -> str:
        """The Avro schema given at creation as JSON, or empty."""
        return self._text("hoodie.table.create.schema")

    @property
    def index_settings(self) -> dict[str, str]:
        """What lakebed noted about the table's index: the `lakebed.index.*` keys without that prefix."""
        other = (INDEX_REASON, INDEX_CHANGES, INDEX_REPEATED, INDEX_CHECKED)
        noted = {k: v for k, v in self.properties.items() if k.startswith(INDEX_PREFIX) and k not in other}
        return {k.removeprefix(INDEX_PREFIX): v for k, v in noted.items()}

    @property
    def is_made_by_lakebed(self) -> bool:
        """Whether lakebed made the table or adopted its index: it has properties of its own then."""
        return any(key.startswith("lakebed.") for key in self.properties)

    @property
    def index_reason(self) -> str:
        """Why "auto" took the table's index; empty where the index was named."""
        return self._text(INDEX_REASON)

    @property
    def repeats_keys(self) -> bool:
        """Whether inserts are known to have stored keys several times, so that a record index, which holds one place of
        each, does not answer for all rows."""
        return self._text(INDEX_REPEATED) == "true"

    @property
    def keys_checked_until(self) -> str:
        """The completion time of the last commit when keys were found to be unique; empty where nobody looked."""
        return self._text(INDEX_CHECKED)

    @property
    def sorts_by_key(self) -> bool:
        """Whether lakebed keeps the rows of each base file in the order of their keys."""
        return self._text(SORT) == "key"

    @property
    def merge_properties(self) -> dict[str, str]:
        """The merge settings kept on version 9 tables, without their prefix."""
        start = MERGE_PROPERTY_PREFIX
        return {k.removeprefix(start): v for k, v in self.properties.items() if k.startswith(start)}

    @property
    def delete_field(self) -> str:
        """The column whose value `delete_marker` marks a deleted record, or empty."""
        return self._merge_property("hoodie.payload.delete.field")

    @property
    def delete_marker(self) -> str:
        return self._merge_property("hoodie.payload.delete.marker")

    @property
    def unavailable_value(self) -> str:
        """The text that stands for a value which the source did not send (FILL_UNAVAILABLE)."""
        return self._merge_property("hoodie.write.partial.update.unavailable.value") or UNAVAILABLE_VALUE

    def _merge_property(self, key: str) -> str:
        return self._text(MERGE_PROPERTY_PREFIX + key, key)

    def _partitioning(self) -> list[tuple[str, str]]:
        parts = [entry.partition(":") for entry in self._list("hoodie.table.partition.fields")]
        return [(name, kind) for name, _, kind in parts]

    def _text(self, *keys: str) -> str:
        return next((self.properties[key] for key in keys if self.properties.get(key)), "")

    def _folder(self, key: str, default: str) -> str:
        """A folder's name or path below another one."""
        path = self._text(key) or default
        if any(part in ("", ".", "..") for part in path.split("/")):
            raise CorruptFile(
                f"hoodie.properties of table {self.name!r} has {key}={path}, which leads out of the table",
                hint=f"Put the folder's name there; Hudi's own is {default}.",
                context={"path": f"{HOODIE}/hoodie.properties", "key": key},
            )
        return path

    def _list(self, *keys: str) -> tuple[str, ...]:
        return tuple(entry.strip() for entry in self._text(*keys).split(",") if entry.strip())

    def _flag(self, key: str, *, default: bool) -> bool:
        text = self._text(key).lower()
        return text == "true" if text else default


def default_key_generator(key_fields: tuple[str, ...], partition_fields: tuple[str, ...]) -> str:
    """The key generator that goes with these fields when none is named.

    >>> default_key_generator(("id",), ("a", "b"))
    'COMPLEX'
    """
    if not partition_fields:
        return "NON_PARTITION"
    return "COMPLEX" if len(partition_fields) > 1 or len(key_fields) > 1 else "SIMPLE"
