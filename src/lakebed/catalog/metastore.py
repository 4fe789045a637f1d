"""Entries as real Hudi's sync writes them, in any catalog that describes tables like the Hive metastore.

The order of requests: a missing entry is created without a commit, then partitions change, and the last request writes
columns, properties and the commit that the entry shows. A sync that is cut off anywhere leaves an entry with an older
commit or none, and the next sync compares from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from lakebed.catalog.base import (
    EntryChange,
    EntryName,
    EntryStore,
    RegisteredTable,
    StoreCatalog,
    SyncedCommit,
    elsewhere,
    is_below,
    no_hudi_table,
    refuse_memory,
    same_location,
)
from lakebed.catalog.columns import hive_type, spark_schema
from lakebed.config.settings import CatalogSettings
from lakebed.errors import CatalogError, InvalidOption, UnsupportedFeature

EXTERNAL_TABLE = "EXTERNAL_TABLE"
_INPUT = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
_REALTIME_INPUT = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
_OUTPUT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_INSTANT, _COMPLETED = "last_commit_time_sync", "last_commit_completion_time_sync"
_PROVIDER = "spark.sql.sources.provider"
_PATH = "path"
_PART = "spark.sql.sources.schema.part."
_SLASH_ENCODED = {"SlashEncodedDayPartitionValueExtractor": 3, "SlashEncodedHourPartitionValueExtractor": 4}

Values = tuple[str, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an entry."""

    name: str
    type: str
    comment: str = ""

    @property
    def plain(self) -> tuple[str, str]:
        """The name and type in the form in which metastores compare them."""
        return self.name.lower(), self.type.lower().replace(" ", "")


@dataclass(frozen=True, slots=True)
class Entry:
    """A table of a metastore. `stored` is the metastore's own object, which has more fields."""

    name: EntryName
    location: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    input_format: str
    output_format: str = _OUTPUT
    serde: str = _SERDE
    serde_properties: Mapping[str, str] = field(default_factory=dict[str, str])
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    kind: str = EXTERNAL_TABLE
    stored: Any = None

    @property
    def synced(self) -> SyncedCommit | None:
        """The commit that the entry shows; None if it is unknown."""
        instant, completed = self.properties.get(_INSTANT, ""), self.properties.get(_COMPLETED, "")
        return SyncedCommit(instant, completed) if instant and completed else None

    @property
    def is_of_hudi(self) -> bool:
        provider = self.properties.get(_PROVIDER, "").lower()
        return "VIEW" not in self.kind and (provider == "hudi" or ".hudi." in self.input_format)


class Metastore(EntryStore[Entry], Protocol):
    """The requests that a metastore answers. Each raises `CatalogError`."""

    def update(self, entry: Entry, *, cascade: bool) -> None:
        """Write the entry in place of `entry.stored`; with `cascade` the columns of its partitions as well."""
        ...

    def partitions(self, entry: Entry, values: Collection[Values] | None = None) -> Mapping[Values, str]:
        """The locations of all partitions, or of the existing ones with these values."""
        ...

    def add_partitions(self, entry: Entry, locations: Mapping[Values, str]) -> None: ...

    def move_partitions(self, entry: Entry, locations: Mapping[Values, str]) -> None: ...

    def drop_partitions(self, entry: Entry, values: Sequence[Values]) -> None:
        """Remove partitions from the entry; their files stay."""
        ...


class MetastoreCatalog(StoreCatalog[Metastore, Entry]):
    """A catalog over a metastore. A merge-on-read table has several entries: `_ro` reads base files alone, `_rt` and
    the plain name read log files too."""

    def register(
        self, table: RegisteredTable, name: EntryName, settings: CatalogSettings, *, full: bool = False
    ) -> Sequence[EntryChange]:
        """Create or update the entries of a table, and return the change of each. An entry shows the table's commit
        only after everything else is written, so a registration that was interrupted is repeated by the next one. With
        `full` every partition is compared."""
        refuse_memory(self.uri, table)
        desired = desired_entries(table, name, settings)
        existing = [self._store.find(entry.name) for entry in desired]
        for entry, before in zip(desired, existing, strict=True):
            if before is not None:
                self._check(entry, before, table)
        if not any(existing):
            self._require_database(name.database, settings)
        paths = _Paths(table, settings)
        return [
            self._sync(entry, before, paths, settings, full=full)
            for entry, before in zip(desired, existing, strict=True)
        ]

    def entry_names(self, name: EntryName) -> Sequence[EntryName]:
        """The names of the entries of a table: the plain one, and those of a merge-on-read table."""
        return [EntryName(name.database, f"{name.table}{suffix}") for suffix in ("", "_ro", "_rt")]

    def check_kind(self, entry: Entry) -> None:
        if not entry.is_of_hudi:
            raise no_hudi_table(self.uri, entry.name, entry.input_format or entry.kind)

    def _check(self, desired: Entry, before: Entry, table: RegisteredTable) -> None:
        self.check_kind(before)
        if not same_location(before.location, desired.location):
            raise elsewhere(self.uri, desired.name, before.location, table)
        columns, stored = ([c.plain for c in e.partition_columns] for e in (desired, before))
        if columns != stored:
            stored_text, table_text = (
                ", ".join(" ".join(column) for column in typed_columns) or "nothing"
                for typed_columns in (stored, columns)
            )
            raise CatalogError(
                f"{desired.name} in {self.uri} is partitioned by {stored_text}, the table by {table_text}",
                hint="No catalog changes partition columns: drop the entry there, and register the table again.",
                context={"catalog": self.uri, "name": str(desired.name)},
            )

    def _sync(
        self, desired: Entry, before: Entry | None, paths: _Paths, settings: CatalogSettings, *, full: bool
    ) -> EntryChange:
        commit = paths.table.commit
        created = before is None
        if before is None:
            before = self._created(desired)
            self._check(desired, before, paths.table)
        combined = _combined(before, desired, comments=settings.comments)
        same = not _differs(before, combined)
        if same and not full and before.synced == commit:
            return EntryChange(str(desired.name), "created" if created else "unchanged", compared="none")
        synced = before.synced if settings.incremental and not full else None
        added, moved, dropped, compared = self._sync_partitions(combined, paths, synced, settings)
        columns = [c.plain for c in before.columns] != [c.plain for c in combined.columns]
        written = added or moved or dropped or not same
        if commit.instant and (written or not settings.when_changed):
            commit_properties = {_INSTANT: commit.instant, _COMPLETED: commit.completed}
            combined = replace(combined, properties={**combined.properties, **commit_properties})
        if _differs(before, combined):
            self._store.update(combined, cascade=columns and bool(combined.partition_columns))
        elif not written and not created:
            return EntryChange(str(desired.name), "unchanged", compared=compared)
        action = "created" if created else "updated"
        return EntryChange(str(desired.name), action, columns, added, moved, dropped, compared)

    def _sync_partitions(
        self, entry: Entry, paths: _Paths, last_sync: SyncedCommit | None, settings: CatalogSettings
    ) -> tuple[int, int, int, str]:
        """How many partitions were added, moved and dropped, and which were compared."""
        if not entry.partition_columns or settings.no_partitions:
            return 0, 0, 0, "none"
        touched = None if last_sync is None else paths.touched_since(last_sync)
        if touched is not None and not touched:
            return 0, 0, 0, "touched"
        desired = paths.locations(touched)
        looked_at = None if touched is None else [*touched]
        registered = self._store.partitions(entry, looked_at)
        added = {values: location for values, location in desired.items() if values not in registered}
        existing = (
            (values, registered[values], location) for values, location in desired.items() if values in registered
        )
        moved = {values: location for values, former, location in existing if not same_location(former, location)}
        # partitions of other locations are not the table's
        root = paths.table.location
        dropped = [
            values for values, location in registered.items() if values not in desired and is_below(location, root)
        ]
        for write, locations in ((self._store.add_partitions, added), (self._store.move_partitions, moved)):
            for chunk in chunks(locations, settings.batch):
                write(entry, {values: locations[values] for values in chunk})
        for chunk in chunks(dropped, settings.batch):
            self._store.drop_partitions(entry, chunk)
        return len(added), len(moved), len(dropped), "all" if touched is None else "touched"


def chunks(values: Iterable[T], size: int) -> Iterable[Sequence[T]]:
    """The values in their order, in chunks of this size."""
    listed = list(values)
    return (listed[start : start + size] for start in range(0, len(listed), size))


class _Paths:
    """The partition paths of a table by their values, listed on demand."""

    def __init__(self, table: RegisteredTable, settings: CatalogSettings) -> None:
        self.table = table
        self._extractor = settings.extractor
        self._existing: Mapping[Values, str] | None = None

    def locations(self, touched: Mapping[Values, str] | None) -> Mapping[Values, str]:
        """The locations, by values, of the partitions with rows: of all of them, or of those in `touched`."""
        if self._existing is None:
            self._existing = self._by_values(self.table.partitions())
        existing = self._existing
        paths = existing if touched is None else {values: existing[values] for values in touched if values in existing}
        return {values: f"{self.table.location}/{path}" for values, path in paths.items()}

    def touched_since(self, commit: SyncedCommit) -> Mapping[Values, str] | None:
        paths = self.table.touched_since(commit)
        return None if paths is None else self._by_values(paths)

    def _by_values(self, paths: Iterable[str]) -> dict[Values, str]:
        fields = self.table.partition_fields
        extractor = next(iter(_SLASH_ENCODED)) if self.table.slash_dates else self._extractor
        return {partition_values(path, fields, extractor): path for path in paths}


def partition_values(path: str, fields: Sequence[str], extractor: str = "") -> Values:
    """The values of a partition path, one for each column.

    Raises `UnsupportedFeature`, naming the path, where it has another number of them.

    >>> partition_values("city=Oslo/day=1", ["city", "day"]), partition_values("a/b", ["city"])
    (('Oslo', '1'), ('a/b',))
    >>> partition_values("2026/01/31", ["day"], "SlashEncodedDayPartitionValueExtractor")
    ('2026-01-31',)
    """
    parts = path.split("/")
    plain = [part.partition("=")[2] if "=" in part else part for part in parts]
    if len(parts) == _SLASH_ENCODED.get(extractor):
        return ("-".join(plain),)
    if len(fields) == 1 and extractor not in _SLASH_ENCODED:
        return (path.removeprefix(f"{fields[0]}="),)
    if len(parts) != len(fields) or extractor in _SLASH_ENCODED:
        raise UnsupportedFeature(
            f"the partition path {path!r} has {len(parts)} parts, and the partition columns are {', '.join(fields)}",
            hint="Name the way of taking it apart: hoodie.datasource.hive_sync.partition_extractor_class; or register"
            " the table without partitions: hoodie.meta.sync.no_partition_metadata=true.",
            context={"partition": path},
        )
    return tuple(plain)


def desired_entries(table: RegisteredTable, name: EntryName, settings: CatalogSettings) -> list[Entry]:
    """The entries that a table must have, without the commit that they show.

    Raises `UnsupportedFeature` for a column without a type there, and `InvalidOption` for settings that do not fit.
    """
    base, plain = name.table, settings.plain_name
    if not table.is_merge_on_read:
        variants = [(base, False, False)]
    elif settings.strategy != "ALL":
        variants = [(base, settings.strategy == "RT", settings.strategy == "RO")]
    else:
        read_optimized = base if settings.skip_ro_suffix else f"{base}_ro"
        variants = [(read_optimized, False, True), (f"{base}_rt", True, False)]
        variants += [(base, True, False)] if plain and not settings.skip_ro_suffix else []
    fields = settings.partition_fields or table.partition_fields
    if len(fields) != len(table.partition_fields):
        raise InvalidOption(
            f"hoodie.datasource.hive_sync.partition_fields names {', '.join(fields)}, and the table is partitioned by"
            f" {', '.join(table.partition_fields) or 'nothing'}",
            hint="Name as many columns as the table has partition columns, or leave the option out.",
            context={"option": "hoodie.datasource.hive_sync.partition_fields"},
        )
    if settings.extractor == "NonPartitionedExtractor":
        fields = ()
    if settings.omit_meta:
        table = replace(table, schema=pa.schema([f for f in table.schema if not f.name.startswith("_hoodie_")]))
    columns, partition_columns = _columns(table, fields, settings)
    properties = {"EXTERNAL": "TRUE", **_pairs(settings.table_properties)}
    serde = {**_pairs(settings.serde_properties), "serialization.format": "1"}
    if settings.for_spark:
        properties |= _spark_properties(table, fields, settings)
        serde[_PATH] = table.location
    return [
        Entry(
            EntryName(name.database, entry),
            table.location,
            columns,
            partition_columns,
            _REALTIME_INPUT if realtime else _INPUT,
            serde_properties={**serde, "hoodie.query.as.ro.table": str(optimized).lower()}
            if settings.for_spark
            else serde,
            properties=properties,
        )
        for entry, realtime, optimized in variants
    ]


def _columns(
    table: RegisteredTable, fields: Sequence[str], settings: CatalogSettings
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    types = {f.name: hive_type(f.type, f.name, timestamps=settings.timestamps) for f in table.schema}
    comments = table.comments if settings.comments else {}
    data_columns = [n for n in types if n not in fields]
    texts = {
        f for f, table_field in zip(fields, table.partition_fields, strict=False) if table_field in table.text_fields
    }
    partition_types = {f: "string" if f in texts else types.get(f, "string") for f in fields}
    return (
        tuple(Column(n, types[n], comments.get(n, "")) for n in data_columns),
        tuple(Column(f, kind) for f, kind in partition_types.items()),
    )


def _spark_properties(table: RegisteredTable, fields: Sequence[str], settings: CatalogSettings) -> dict[str, str]:
    text, length = spark_schema(table.schema, tuple(fields)), settings.part_length
    parts = [text[start : start + length] for start in range(0, len(text), length)]
    properties = {_PROVIDER: "hudi", "spark.sql.sources.schema.numParts": str(len(parts))}
    properties |= {f"{_PART}{number}": part for number, part in enumerate(parts)}
    if settings.spark_version:
        properties["spark.sql.create.version"] = settings.spark_version
    if fields:
        properties["spark.sql.sources.schema.numPartCols"] = str(len(fields))
    return properties | {f"spark.sql.sources.schema.partCol.{n}": name for n, name in enumerate(fields)}


def _pairs(text: str) -> dict[str, str]:
    """The properties in a text of Hudi's options: `name=value`, one per line, or separated by commas.

    >>> _pairs("a=1\\nb=2,c=3")
    {'a': '1', 'b': '2', 'c': '3'}
    """
    properties: dict[str, str] = {}
    for pair in (part.strip() for line in text.splitlines() for part in line.split(",")):
        name, equals, value = pair.partition("=")
        if equals:
            properties[name.strip()] = value.strip()
        elif pair:
            raise InvalidOption(f"{pair!r} is no property of an entry", hint="Give name=value, one a line.")
    return properties


def _combined(before: Entry, desired: Entry, *, comments: bool) -> Entry:
    """The entry to write, in which additions of other writers are retained."""
    stored = {column.name.lower(): column.comment for column in before.columns}
    columns = tuple(
        column if comments else replace(column, comment=stored.get(column.name.lower(), ""))
        for column in desired.columns
    )
    parts = int(desired.properties.get("spark.sql.sources.schema.numParts", 0))
    outdated = {k for k in before.properties if parts and k.startswith(_PART) and k not in desired.properties}
    properties = {k: v for k, v in before.properties.items() if k not in outdated}
    serde = {**before.serde_properties, **desired.serde_properties}
    if _PATH in before.serde_properties and same_location(before.serde_properties[_PATH], serde[_PATH]):
        serde[_PATH] = before.serde_properties[_PATH]  # keep the stored text, or two writers would change it in turns
    return replace(
        before,
        columns=columns,
        input_format=desired.input_format,
        output_format=desired.output_format,
        serde=desired.serde,
        serde_properties=serde,
        properties={**properties, **desired.properties},
    )


def _differs(before: Entry, combined: Entry) -> bool:
    """Whether writing the entry changes something."""
    combined_columns, previous_columns = ([(*c.plain, c.comment) for c in e.columns] for e in (combined, before))
    formats = ((e.input_format, e.output_format, e.serde) for e in (combined, before))
    return (
        combined_columns != previous_columns
        or len({*formats}) > 1
        or dict(combined.serde_properties) != dict(before.serde_properties)
        or dict(combined.properties) != dict(before.properties)
    )
