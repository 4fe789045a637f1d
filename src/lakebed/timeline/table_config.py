"""The table's own settings: `hoodie.properties` read, checked, created and updated."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Literal

from lakebed.errors import (
    CommitConflict,
    CorruptFile,
    LakebedError,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lakebed.format.properties import dump_properties, parse_properties
from lakebed.model import HOODIE
from lakebed.storage.base import Storage
from lakebed.timeline.creation import put_once
from lakebed.timeline.merge_config import MergeMode, merge_mode_of

PROPERTIES_PATH = f"{HOODIE}/hoodie.properties"
BACKUP_PATH = f"{PROPERTIES_PATH}.backup"
INDEX_PREFIX = "lakebed.index."
SORT = "lakebed.sort"
# Where a version 6 table of ours keeps them: Hudi has no place for them there.
PARTITION_TYPES = "lakebed.partition.types"
MERGE_PROPERTY_PREFIX = "hoodie.record.merge.property."
SUPPORTED_VERSIONS = (6, 8, 9)
CURRENT_VERSION = 9

_LAYOUT_OF_VERSION = {6: 1, 8: 2, 9: 2}
_READ_ATTEMPTS = 3
_READ_PAUSE_SECONDS = 0.05
_KEY_GENERATOR_CLASSES = {
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
        """SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM, GLOBAL_DELETE or USER_PROVIDED; told from the fields
        where the table does not say."""
        kind = self._text("hoodie.table.keygenerator.type").upper().removesuffix("_AVRO")
        if kind:
            return kind
        java_class = self._text("hoodie.table.keygenerator.class").rpartition(".")[2]
        if java_class:
            plain = java_class.replace("AvroKeyGenerator", "KeyGenerator")
            return _KEY_GENERATOR_CLASSES.get(plain, "USER_PROVIDED")
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
    def partition_metafile_base_format(self) -> bool:
        """Whether partition metadata files are empty base files with the keys in the footer."""
        return self._flag("hoodie.partition.metafile.use.base.format", default=False)

    @property
    def timezone(self) -> str:
        """The zone of instant times: `UTC`, or `LOCAL` for that of the writing process."""
        return self._text("hoodie.table.timeline.timezone").upper() or "LOCAL"

    @property
    def cdc_enabled(self) -> bool:
        return self._flag("hoodie.table.cdc.enabled", default=False)

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
        return HOODIE if self.layout == 1 else f"{HOODIE}/{self._text('hoodie.timeline.path') or 'timeline'}"

    @property
    def archive_folder(self) -> str:
        """The folder of archived instants, relative to the table."""
        if self.layout == 1:
            return f"{HOODIE}/{self._text('hoodie.archivelog.folder') or 'archived'}"
        return f"{self.timeline_path}/{self._text('hoodie.timeline.history.path') or 'history'}"

    @property
    def create_schema(self) -> str:
        """The Avro schema given at creation as JSON, or empty."""
        return self._text("hoodie.table.create.schema")

    @property
    def index_settings(self) -> dict[str, str]:
        """What lakebed noted about the table's index: the `lakebed.index.*` keys without that prefix."""
        return {k.removeprefix(INDEX_PREFIX): v for k, v in self.properties.items() if k.startswith(INDEX_PREFIX)}

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

    def _merge_property(self, key: str) -> str:
        return self._text(MERGE_PROPERTY_PREFIX + key, key)

    def _partitioning(self) -> list[tuple[str, str]]:
        parts = [entry.partition(":") for entry in self._list("hoodie.table.partition.fields")]
        return [(name, kind) for name, _, kind in parts]

    def _text(self, *keys: str) -> str:
        return next((self.properties[key] for key in keys if self.properties.get(key)), "")

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


def table_checksum(name: str, database: str = "") -> str:
    """The value of `hoodie.table.checksum`.

    >>> table_checksum("cow9")
    '3987789233'
    """
    return str(zlib.crc32(f"{database}.{name}".encode()))


def load_table_config(storage: Storage) -> TableConfig:
    """The table's settings, from the backup where an update was cut short.

    Raises `TableNotFound` where there is no table, `CorruptFile` where neither file can be used, and
    `UnsupportedFeature` for a table version lakebed does not know.
    """
    found = _first_valid(storage)
    for _ in range(_READ_ATTEMPTS - 1):
        if isinstance(found, dict):
            break
        # An updater may have been between two steps. Broken files are given a moment, missing ones only a second look.
        if isinstance(found, CorruptFile):
            time.sleep(_READ_PAUSE_SECONDS)
        found = _first_valid(storage)
    if isinstance(found, dict):
        return _checked(storage, found)
    if isinstance(found, CorruptFile):
        raise found
    raise TableNotFound(
        f"there is no table at {storage.url()}: {PROPERTIES_PATH} is missing",
        hint="Check the path, or create the table with lakebed.create.",
        context={"uri": storage.url()},
    )


def _first_valid(storage: Storage) -> dict[str, str] | CorruptFile | None:
    """The first usable of the file and its backup; what is wrong with them where none is; None where none exists."""
    broken: list[CorruptFile] = []
    for path in (PROPERTIES_PATH, BACKUP_PATH):
        try:
            return _valid_properties(storage.read(path), path)
        except FileNotFoundError:
            continue
        except CorruptFile as cause:
            broken.append(cause)
    return broken[0] if broken else None


def create_table(storage: Storage, properties: Mapping[str, str]) -> TableConfig:
    """Create an empty table with these properties (see `new_table_properties`).

    Only `hoodie.properties` is written: the empty folders beside it are optional in the format. Raises `TableExists`.
    """
    exists = TableExists(
        f"there is a table at {storage.url()} already",
        hint="Open it with lakebed.open, or choose another path.",
        context={"uri": storage.url()},
    )
    if storage.head(PROPERTIES_PATH) or storage.head(BACKUP_PATH):
        raise exists
    now = datetime.now(UTC)
    body = dump_properties(properties, f"Properties saved on {_iso(now)}", now)
    config = _checked(storage, _valid_properties(body, PROPERTIES_PATH))
    if not put_once(storage, PROPERTIES_PATH, body):
        raise exists
    return config


def update_table_config(storage: Storage, changes: Mapping[str, str | None]) -> TableConfig:
    """Set keys, or remove those given as None; all others are kept, known or not. The caller holds the table lock.

    The old content is kept beside the file until the new one is in place, so a writer that dies at any point leaves a
    table that opens with the old or the new settings. Raises `CommitConflict` if another writer is updating as well.
    """
    _recover(storage)
    old_body = storage.read(PROPERTIES_PATH)
    old = _valid_properties(old_body, PROPERTIES_PATH)
    new = {key: value for key, value in {**old, **changes}.items() if value is not None}
    if new == old:
        return _checked(storage, old)
    new["hoodie.table.checksum"] = table_checksum(new["hoodie.table.name"], new.get("hoodie.database.name", ""))
    now = datetime.now(UTC)
    body = dump_properties(new, f"Updated at {_iso(now)}", now)
    config = _checked(storage, _valid_properties(body, PROPERTIES_PATH))
    if not storage.put_if_absent(BACKUP_PATH, old_body):
        raise CommitConflict(
            f"another writer is updating the settings of {storage.url()}",
            hint="Try again; if it died, the next update recovers from its backup.",
        )
    # Hudi deletes the file before it writes the new one; `write` replaces it atomically, so readers always find one.
    storage.write(PROPERTIES_PATH, body)
    if storage.read(PROPERTIES_PATH) != body:
        raise CorruptFile(f"{PROPERTIES_PATH} does not hold what was written", context={"path": PROPERTIES_PATH})
    storage.delete(BACKUP_PATH)
    return config


def _recover(storage: Storage) -> None:
    """Bring back the backup an unfinished update left, if the file itself cannot be used, and clear it away."""
    backup = _read_or_none(storage, BACKUP_PATH)
    if backup is None:
        return
    current = _read_or_none(storage, PROPERTIES_PATH)
    if (current is None or not _is_valid(current)) and _is_valid(backup):
        storage.write(PROPERTIES_PATH, backup)
    storage.delete(BACKUP_PATH)


def _read_or_none(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except FileNotFoundError:
        return None


def _is_valid(body: bytes) -> bool:
    try:
        return bool(_valid_properties(body, PROPERTIES_PATH))
    except LakebedError:
        return False


def _valid_properties(body: bytes, path: str) -> dict[str, str]:
    """The parsed file, refused as corrupt where it names no table or its checksum is another table's."""
    props = dict(_parsed(body))
    name = props.get("hoodie.table.name", "")
    stored = props.get("hoodie.table.checksum")
    expected = table_checksum(name, props.get("hoodie.database.name", ""))
    if name and stored in (None, expected):
        return props
    wrong = f"its checksum is {stored}, not {expected}" if name else "it does not name the table"
    raise CorruptFile(
        f"{path} cannot be used: {wrong}",
        hint="Restore the file from a copy; hoodie.table.name and hoodie.database.name must be those of the table.",
        context={"path": path},
    )


@lru_cache(maxsize=64)  # a commit reads the two tables' files several times, and they rarely change
def _parsed(body: bytes) -> Mapping[str, str]:
    return parse_properties(body)


def _checked(storage: Storage, props: Mapping[str, str]) -> TableConfig:
    """The settings, if lakebed knows this kind of table."""
    where = storage.url()
    layout = props.get("hoodie.timeline.layout.version", "")
    if not layout:
        raise TableNotFound(
            f"{where} is not a table lakebed can open: {PROPERTIES_PATH} has no hoodie.timeline.layout.version",
            hint="It was made before release 0.5, or the file was edited; upgrade the table with Hudi first.",
            context={"uri": where},
        )
    version = props.get("hoodie.table.version") or str(CURRENT_VERSION)
    if not (version.isdecimal() and int(version) in SUPPORTED_VERSIONS):
        raise UnsupportedFeature(
            f"{where} has table version {version}; lakebed reads and writes versions 6, 8 and 9",
            hint=_version_hint(version),
            context={"uri": where, "version": version},
        )
    if layout != str(_LAYOUT_OF_VERSION[int(version)]):
        raise CorruptFile(
            f"{where} has table version {version} but timeline layout {layout}",
            hint=f"Version {version} goes with layout {_LAYOUT_OF_VERSION[int(version)]}: an upgrade or downgrade was "
            "cut short; run it again with Hudi.",
            context={"path": PROPERTIES_PATH},
        )
    return TableConfig(dict(props))


def _version_hint(version: str) -> str:
    if version.isdecimal() and int(version) > CURRENT_VERSION:
        return "A newer release of Hudi wrote it; use a newer lakebed, or downgrade the table to version 9 with Hudi."
    return "Upgrade the table to version 9 with Hudi (call upgrade_table), then open it again."


def _iso(when: datetime) -> str:
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")
