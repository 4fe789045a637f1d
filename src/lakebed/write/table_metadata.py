"""The metadata table in a write: made at the first one, told of every action before that completes, kept in shape.

Everything here runs under the table lock, on settings that were read under it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Engine
from lakebed.errors import UnsupportedFeature
from lakebed.format.base_file import read_footer
from lakebed.format.column_ranges import from_stream
from lakebed.metadata.creation import PARTITIONS, PARTITIONS_INFLIGHT
from lakebed.metadata.definitions import DEFINITIONS_PATH, IndexDefinition, dump_definitions, load_definitions
from lakebed.metadata.expression_indexes import ExpressionIndex, reason_not_kept
from lakebed.metadata.file_ranges import ranges_of_file
from lakebed.metadata.group_files import WrittenLog
from lakebed.metadata.index_names import IndexName, remembered_indexes
from lakebed.metadata.key_indexes import KeyIndexes, is_key_index
from lakebed.metadata.layout import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    GroupSizing,
    fixed_file_groups,
    is_expression_index,
    is_known,
    partition_order,
)
from lakebed.metadata.routing import Records, split_by_group
from lakebed.metadata.schemas import form_of_version
from lakebed.metadata.stats_columns import Kinds, index_version_of, stats_columns, stats_definitions
from lakebed.metadata.stats_lookup import Stats
from lakebed.metadata.updates import (
    NewFile,
    bloom_records_of,
    column_stats_records,
    file_records,
    partition_stats_records,
    stats_of,
)
from lakebed.metadata.writer import GroupRecords, MetadataSettings, MetadataWriter
from lakebed.model import CommitMetadata
from lakebed.schema.arrow import without_meta
from lakebed.schema.avro import avro_to_arrow
from lakebed.slices.listing import list_table
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.side_by_side import side_by_side
from lakebed.timeline.table_config import TableConfig, update_table_config
from lakebed.timeline.timeline import Timeline
from lakebed.write.expression_records import ExpressionRecords, live_after
from lakebed.write.key_jobs import KeyJobs, is_large
from lakebed.write.key_records import KeyRecords, key_index_groups
from lakebed.write.status import WriteStatus

_log = logging.getLogger("lakebed")
# As a job's option, and as a property of a table that is to have none.
METADATA_OPTION = "hoodie.metadata.enable"
_DELETES_ONLY = frozenset({"DELETE_PARTITION"})


@dataclass(frozen=True)
class TableMetadata:
    """The metadata table of one table, as a write keeps it; `config` and `timeline` were read under the lock. `engine`
    runs jobs for many keys at a time."""

    storage: Storage
    config: TableConfig
    timeline: Timeline
    settings: WriteSettings
    engine: Engine | None = None

    @property
    def writer(self) -> MetadataWriter:
        settings = MetadataSettings(shard_max_bytes=self.settings.max_filegroup_size)
        return MetadataWriter(self.storage, self.config, self.timeline, settings)

    def make_ready(self) -> Snapshot:
        """As a write begins: take off what lakebed cannot keep, build what is wanted and missing, compact and clean
        what is due. Gives the table as it is after that, read under the lock: no later commit is in it."""
        config = self._without_unknown()
        ready = TableMetadata(self.storage, config, self.timeline, self.settings)
        missing = ready._missing()
        writer = ready._build(missing, ready.asked()) if missing else ready.writer
        if config.metadata_partitions:
            writer.run_services()
        snapshot = Snapshot(self.storage, writer.config, self.timeline)
        return snapshot.seeing(writer.view()) if writer.config.metadata_partitions else snapshot

    def tell(self, instant: str, commit: CommitMetadata, statuses: Sequence[WriteStatus]) -> None:
        """Say what this action does, in a delta commit that becomes visible when the action completes."""
        writer = self.writer
        if not writer.partitions:
            return
        snapshot = Snapshot(self.storage, self.config, self.timeline).seeing(writer.view())
        action = _Action(self, snapshot, instant, commit, statuses, writer.partitions)
        said = action.records()
        said |= self._expressions(snapshot, writer.partitions).of_action(instant, commit)
        keys = KeyRecords(snapshot, KeyIndexes.of(self.storage, self.config).of_partitions(writer.partitions))
        written: list[WrittenLog] = []
        if keys.indexes and self.engine is not None and is_large(statuses, self.engine):
            jobs = KeyJobs(self.engine, self.storage, instant, keys.indexes)
            written = jobs.run(writer, statuses, keys.replaced_files(commit))
            writer = self.writer  # one that sees what has begun
        if not written:
            said |= keys.of_action(instant, commit, statuses)
        writer.apply(instant, said, written)

    # what it consists of

    def _expressions(self, snapshot: Snapshot, partitions: Sequence[str]) -> ExpressionRecords:
        if not any(map(is_expression_index, partitions)):
            return ExpressionRecords(snapshot, {})
        return ExpressionRecords.of_partitions(snapshot, load_definitions(self.storage, self.config), partitions)

    def _cannot_keep(self) -> list[str]:
        """Partitions that lakebed does not know, and expression indexes that it does not compute."""
        partitions = self.writer.partitions
        unknown = [p for p in partitions if not is_known(p)]
        by_expression = [p for p in partitions if is_expression_index(p)]
        if not by_expression:
            return unknown
        definitions = load_definitions(self.storage, self.config)
        schema = Snapshot(self.storage, self.config, self.timeline, use_metadata=False).schema
        for name in by_expression:
            reason = reason_not_kept(definitions.get(name), schema, self.config.version)
            if reason is not None:
                _log.warning("%s of the metadata table cannot be kept up to date: %s", name, reason)
                unknown.append(name)
        return unknown

    def _without_unknown(self) -> TableConfig:
        unknown = self._cannot_keep()
        if not unknown:
            return self.config
        names = ", ".join(unknown)
        if self.settings.on_unknown_metadata == "refuse":
            raise UnsupportedFeature(
                f"the metadata table of {self.storage.url()} has partitions that lakebed does not know: {names}",
                hint="write with on_unknown_metadata='drop' to take them off, or with the engine that made them",
                context={"feature": "metadata partition", "partitions": unknown},
            )
        _log.warning("taking the metadata partition(s) %s off: lakebed cannot keep them up to date", names)
        kept = {
            PARTITIONS: self.config.metadata_partitions,
            PARTITIONS_INFLIGHT: self.config.metadata_partitions_inflight,
        }
        changes = {key: ",".join(p for p in names if p not in unknown) for key, names in kept.items()}
        config = update_table_config(self.storage, changes)
        definitions = load_definitions(self.storage, config)
        if definitions.keys() & set(unknown):
            body = dump_definitions((d for n, d in definitions.items() if n not in unknown), config.version)
            self.storage.write(DEFINITIONS_PATH, body)
        return config

    def _missing(self) -> list[str]:
        """The partitions to build now: at the table's first write those that every table gets, and what was asked."""
        have = set(self.writer.partitions)
        wanted = self.settings.metadata
        if wanted is None and self.config.properties.get(METADATA_OPTION, "").lower() == "false":
            wanted = False
        asked = self.asked()
        if wanted is False or (not have and wanted is None and self.timeline.commits and not asked):
            return []
        missing = [] if have else self._every()
        missing += [p for p in asked if p not in (*have, *missing)]
        if missing and self.config.version == 6 and self.timeline.pending:
            return []  # as real Hudi: the instant it is built at must not be behind a pending one
        return partition_order(missing)

    def asked(self) -> dict[str, IndexName]:
        """The indexes that the table or the job asks for, by partition; those of keys need stored keys."""
        config = self.config
        said = self.settings
        names = [*remembered_indexes(config.properties), *map(IndexName.parse, said.metadata_indexes)]
        names += [IndexName(BLOOM_FILTERS)] if said.bloom_filters_index else []
        if said.record_index or said.partitioned_record_index:
            names.append(IndexName(RECORD_INDEX, partitioned=said.partitioned_record_index))
        index = config.index_settings
        if index.get("type") == "record":
            names.append(IndexName(RECORD_INDEX, partitioned=index.get("partitioned", "").lower() == "true"))
        found = {name.partition: name for name in names}
        stored = config.populate_meta_fields
        return {name: one for name, one in found.items() if stored or not is_key_index(name)}

    def _every(self) -> list[str]:
        """What every metadata table has."""
        if self.config.version < 9:
            return [FILES]
        return [FILES, COLUMN_STATS, *([PARTITION_STATS] if self.config.partition_fields else [])]

    def add(self, *names: IndexName, sizing: GroupSizing | None = None) -> MetadataWriter:
        """Build indexes on a table that may have rows, and the metadata table where there is none."""
        chosen = {name.partition: name for name in names}
        every = [] if self.writer.partitions else self._every()
        return self._build(partition_order(list({*every, *chosen})), chosen, sizing)

    def _build(
        self, partitions: Sequence[str], names: Mapping[str, IndexName], sizing: GroupSizing | None = None
    ) -> MetadataWriter:
        writer = self.writer
        writer.create()
        build = _Build(self)
        for partition in partitions:
            name = names.get(partition) or IndexName(partition)
            if is_key_index(partition):
                groups, definition = key_index_groups(build.snapshot, name, sizing)
            elif name.expression is not None:
                groups, definition = build.expression_groups(name.expression)
            else:
                groups, definition = build.groups(partition)
            writer.initialise(partition, groups, definition)
        return writer

    def kinds(self, schema: pa.Schema) -> Kinds:
        """The columns with stats, for files of this schema."""
        return columns_with_stats(self.storage, self.config, schema, self.settings)


def columns_with_stats(storage: Storage, config: TableConfig, schema: pa.Schema, settings: WriteSettings) -> Kinds:
    """The columns whose ranges a file of this schema (without meta columns) must tell; none where the table keeps no
    stats."""
    kept = {*config.metadata_partitions, *config.metadata_partitions_inflight}
    if COLUMN_STATS not in kept:
        return {}
    definition = load_definitions(storage, config).get(COLUMN_STATS)
    return stats_columns(
        schema,
        definition,
        version=config.version,
        populate_meta=config.populate_meta_fields,
        named=settings.stats_columns,
        most=settings.stats_most_columns,
    )


@dataclass
class _Action:
    """One action and what it says to each partition."""

    table: TableMetadata
    snapshot: Snapshot
    instant: str
    commit: CommitMetadata
    statuses: Sequence[WriteStatus]
    partitions: Sequence[str]

    def records(self) -> dict[str, Records]:
        table = self.table
        form = form_of_version(table.config.version)
        files = self._files()
        paths = () if self.commit.operation in _DELETES_ONLY else tuple(self.commit.stats)
        said = {FILES: file_records(files, form, partitions=paths)}
        if COLUMN_STATS in self.partitions:
            index_version = index_version_of(table.config.version)
            new = stats_of(files, self.kinds)
            said[COLUMN_STATS] = column_stats_records(new, form, index_version)
            if PARTITION_STATS in self.partitions:
                said[PARTITION_STATS] = self._partition_stats(files, new, index_version)
        if BLOOM_FILTERS in self.partitions:
            said[BLOOM_FILTERS] = bloom_records_of(files, self.instant, form)
        return said

    @cached_property
    def kinds(self) -> Kinds:
        """The columns with stats; none where the table keeps none."""
        if COLUMN_STATS not in self.partitions:
            return {}
        return self.table.kinds(without_meta(avro_to_arrow(self.commit.schema)))

    def _files(self) -> list[NewFile]:
        """The files written, with their ranges; those whose tasks did not tell them are read."""
        told = {s.path: s for s in self.statuses if s.path is not None}
        found: list[NewFile] = []
        for partition, stats in self.commit.stats.items():
            for stat in stats:
                status = told.get(stat.path)
                stream = status.ranges if status is not None else None
                ranges = from_stream(stream) if stream is not None else None
                if self.kinds and ranges is None:
                    ranges = ranges_of_file(self.table.storage, stat.path, stat.file_size, self.kinds)
                bloom = None
                if BLOOM_FILTERS in self.partitions:
                    bloom = bloom_of_file(self.table.storage, stat.path, stat.file_size)
                name = stat.path.rpartition("/")[2]
                found.append(NewFile(partition, name, stat.file_size, ranges, bloom))
        return found

    def _partition_stats(self, files: Sequence[NewFile], new: Stats, index_version: int) -> Records:
        snapshot, kinds = self.snapshot, self.kinds
        live = live_after(snapshot, self.commit)
        new_names = {file.name for file in files}
        old = [path for path, names in live.items() if names - new_names]
        known = {}
        if old and snapshot.metadata is not None:
            known = snapshot.metadata.column_stats(list(kinds), old, kinds)
        form = form_of_version(self.table.config.version)
        return partition_stats_records(known, new, live, kinds, form, index_version)


class _Build:
    """What partitions begin with on a table that may have files already."""

    def __init__(self, table: TableMetadata) -> None:
        self._table = table
        self.snapshot = Snapshot(table.storage, table.config, table.timeline, use_metadata=False)
        self._files: list[NewFile] | None = None
        self._kinds: Kinds = {}

    def groups(self, partition: str) -> tuple[list[GroupRecords], IndexDefinition | None]:
        """The records of each of its file groups, and its definition where it has one."""
        table = self._table
        form = form_of_version(table.config.version)
        if partition == FILES:
            return _grouped(FILES, self._listed()), None
        files = self._ranged()
        index_version = index_version_of(table.config.version)
        if partition == COLUMN_STATS:
            definition = stats_definitions(list(self._kinds), version=table.config.version).get(COLUMN_STATS)
            return _grouped(
                partition, column_stats_records(stats_of(files, self._kinds), form, index_version)
            ), definition
        if partition == PARTITION_STATS:
            latest: dict[str, set[str]] = {}
            for base in self.snapshot.base_files():
                latest.setdefault(base.partition, set()).add(base.name)
            new = stats_of(files, self._kinds)
            records = partition_stats_records({}, new, latest, self._kinds, form, index_version)
            return _grouped(partition, Records.upserts(records.keys, records.values)), None
        with_blooms = [
            NewFile(f.partition, f.name, f.size, None, bloom_of_file(table.storage, _path(f), f.size)) for f in files
        ]
        instant = self.snapshot.instant or "0" * 17
        return _grouped(partition, bloom_records_of(with_blooms, instant, form)), None

    def expression_groups(self, definition: IndexDefinition) -> tuple[list[GroupRecords], IndexDefinition]:
        """The same for an expression index."""
        index = ExpressionIndex.of(definition, self.snapshot.schema)
        records = ExpressionRecords(self.snapshot, {}, self._table.engine)
        beginning = records.beginning(index, self.snapshot.instant or "0" * 17)
        return _grouped(definition.name, beginning), definition

    def _listed(self) -> Records:
        """Every file of a completed action, in folders that are partitions."""
        listing = list_table(self._table.storage)
        files = [
            NewFile(f.partition, f.name, f.size)
            for f in (*listing.base_files, *listing.log_files)
            if self.snapshot.is_visible(f.instant)
        ]
        form = form_of_version(self._table.config.version)
        return file_records(files, form, partitions=listing.partitions)

    def _ranged(self) -> list[NewFile]:
        if self._files is None:
            table = self._table
            schema = self.snapshot.schema
            self._kinds = stats_columns(
                schema,
                load_definitions(table.storage, table.config).get(COLUMN_STATS),
                version=table.config.version,
                populate_meta=table.config.populate_meta_fields,
                named=table.settings.stats_columns,
                most=table.settings.stats_most_columns,
            )
            bases = [b for b in list_table(table.storage).base_files if self.snapshot.is_visible(b.instant)]
            ranges = side_by_side(lambda b: ranges_of_file(table.storage, b.path, b.size, self._kinds), bases)
            self._files = [NewFile(b.partition, b.name, b.size, r) for b, r in zip(bases, ranges, strict=True)]
        return self._files


def _path(file: NewFile) -> str:
    return f"{file.partition}/{file.name}" if file.partition else file.name


def _grouped(partition: str, records: Records) -> list[GroupRecords]:
    """Records by file group, for a partition with a fixed number of them."""
    count = fixed_file_groups(partition)
    assert count is not None
    parts = split_by_group(partition, records, [str(n) for n in range(count)], 1)
    none: Mapping[int, tuple[pa.Array, pa.Array, pa.Array]] = {}
    empty = (pa.array([], pa.string()), pa.array([], pa.binary()), None)
    return [GroupRecords(*(parts or none).get(n, empty)[:2]) for n in range(count)]


def bloom_of_file(storage: Storage, path: str, size: int) -> tuple[str, str] | None:
    """Type code and text of the bloom filter in a base file's footer."""
    values = read_footer(storage, path, size).key_values
    text = values.get("org.apache.hudi.bloomfilter")
    return None if text is None else (values.get("hoodie_bloom_filter_type_code") or "SIMPLE", text)
