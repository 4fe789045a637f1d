"""The metadata table in a write: made at the first one, told of every action before that completes, kept in shape.

Everything here runs under the table lock, on settings that were read under it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Engine
from lakebed.errors import CommitConflict, UnsupportedFeature
from lakebed.metadata.kinds.definitions import DEFINITIONS_PATH, dump_definitions, load_definitions
from lakebed.metadata.kinds.expression_indexes import reason_not_kept
from lakebed.metadata.kinds.index_names import IndexName, remembered_indexes
from lakebed.metadata.kinds.key_indexes import KeyIndexes, is_key_index
from lakebed.metadata.layout import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    GroupSizing,
    is_expression_index,
    is_known,
    partition_order,
)
from lakebed.metadata.schemas import form_of_version
from lakebed.metadata.store.creation import PARTITIONS, PARTITIONS_INFLIGHT
from lakebed.metadata.store.group_files import WrittenLog
from lakebed.metadata.store.requested_order import overruled
from lakebed.metadata.store.writer import MetadataSettings, MetadataWriter
from lakebed.model import CommitMetadata
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.properties_file import update_table_config
from lakebed.timeline.table_config import TableConfig
from lakebed.timeline.timeline import Timeline
from lakebed.upkeep.action_records import ActionRecords
from lakebed.upkeep.expression_records import ExpressionRecords
from lakebed.upkeep.initial_records import InitialRecords
from lakebed.upkeep.key_jobs import KeyJobs, is_large
from lakebed.upkeep.key_records import KeyRecords, key_index_groups
from lakebed.upkeep.write_status import WriteStatus

_log = logging.getLogger("lakebed")
# As a job's option, and as a property of a table that is to have none.
METADATA_OPTION = "hoodie.metadata.enable"


@dataclass(frozen=True)
class MetadataUpkeep:
    """The metadata table of one table, as a write keeps it; `config` and `timeline` were read under the lock. `engine`
    runs jobs for many keys at a time. `still_mine` says whether the lock is held yet."""

    storage: Storage
    config: TableConfig
    timeline: Timeline
    settings: WriteSettings
    engine: Engine | None = None
    still_mine: Callable[[], bool] = lambda: True

    @property
    def writer(self) -> MetadataWriter:
        return MetadataWriter(self.storage, self.config, self.timeline, kept_as(self.settings), self.still_mine)

    def prepare(self) -> Snapshot:
        """As a write begins: take off what lakebed cannot keep, build what is wanted and missing, compact and clean
        what is due. Gives the table as it is after that, read under the lock: no later commit is in it."""
        config = self._without_unknown()
        ready = replace(self, config=config)
        missing = ready._missing()
        writer = ready._build(missing, ready.asked()) if missing else ready.writer
        if config.metadata_partitions:
            writer.take_off_strays()
            writer.run_services()
        snapshot = Snapshot(self.storage, writer.config, self.timeline)
        return snapshot.seeing(writer.view()) if writer.config.metadata_partitions else snapshot

    def tell(self, instant: str, commit: CommitMetadata, statuses: Sequence[WriteStatus]) -> None:
        """Say what this action does, in a delta commit that becomes visible when the action completes."""
        writer = self.writer
        if not writer.partitions:
            return
        snapshot = Snapshot(self.storage, self.config, self.timeline).seeing(writer.view())
        action = ActionRecords(snapshot, self.settings, instant, commit, statuses, writer.partitions)
        said = action.records()
        said |= self._expressions(snapshot, writer.partitions).of_action(instant, commit)
        keys = KeyRecords(snapshot, KeyIndexes.of(self.storage, self.config).of_partitions(writer.partitions))
        written: list[WrittenLog] = []
        if keys.indexes and self.engine is not None and is_large(statuses, self.engine):
            jobs = KeyJobs(self.engine, self.storage, instant, keys.indexes)
            written = jobs.run(writer, statuses, keys.replaced_files(commit))
        if not written:
            said |= keys.of_action(instant, commit, statuses)
        wrong = overruled(writer.view().slices, instant, said, form_of_version(self.config.version))
        if wrong is not None:
            raise CommitConflict(
                f"what instant {instant} changes would not be found by {wrong}: instants that were requested after it"
                " have committed to the same partition paths by now",
                hint="Run the write again: it then comes last.",
                context={"instant": instant, "metadata_partition": wrong},
            )
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
                hint="write with lakebed.metadata.on_unknown=drop to take them off, or with the engine that made them",
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
        names += [IndexName(partition) for partition in self._statistics()] if said.column_stats else []
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
        wanted = self.settings.column_stats
        return [FILES, *(self._statistics() if wanted or (wanted is None and self.config.version >= 9) else [])]

    def _statistics(self) -> list[str]:
        of_paths = self.config.version >= 8 and self.config.partition_fields
        return [COLUMN_STATS, *([PARTITION_STATS] if of_paths else [])]

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
        files = Snapshot(self.storage, self.config, self.timeline, use_metadata=False)
        build = InitialRecords(files, self.settings, self.engine)
        kept = kept_as(self.settings)
        for partition in partitions:
            name = names.get(partition) or IndexName(partition)
            if is_key_index(partition):
                usual = kept.partitioned_sizing if name.partitioned else kept.sizing
                groups, definition = key_index_groups(build.snapshot, name, sizing or usual)
            elif name.expression is not None:
                groups, definition = build.expression_groups(name.expression)
            else:
                groups, definition = build.groups(partition)
            writer.initialise(partition, groups, definition)
        return writer


def kept_as(settings: WriteSettings) -> MetadataSettings:
    """How the metadata table is kept, by the settings of a write."""
    growth, size = settings.index_growth, settings.index_group_bytes
    return MetadataSettings(
        compact_after=settings.metadata_compact_after,
        log_compaction=settings.metadata_log_compaction,
        log_compact_after=settings.metadata_log_compact_after,
        sizing=GroupSizing(settings.index_groups_least, settings.index_groups_most, growth, size),
        partitioned_sizing=GroupSizing(
            settings.partitioned_groups_least, settings.partitioned_groups_most, growth, size
        ),
        shard_max_bytes=settings.max_filegroup_size,
    )
