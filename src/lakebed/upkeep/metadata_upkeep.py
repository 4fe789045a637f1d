"""The metadata table in a write: made at the first one, written with every action before that completes, kept in shape.

Everything here runs under the table lock, on settings that were read under it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Engine
from lakebed.errors import CommitConflict, UnsupportedFeature
from lakebed.metadata.kinds.definitions import DEFINITIONS_PATH, IndexName, dump_definitions, load_definitions
from lakebed.metadata.kinds.index_names import parse_index_name, remembered_indexes
from lakebed.metadata.kinds.registry import in_build_order, in_write_order, kind_of
from lakebed.metadata.layout import FILES, GroupSizing
from lakebed.metadata.read.metadata_table import snapshot_of
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import form_of_version
from lakebed.metadata.store.creation import PARTITIONS, PARTITIONS_INFLIGHT
from lakebed.metadata.store.group_files import WrittenLog
from lakebed.metadata.store.requested_order import overruled
from lakebed.metadata.store.writer import MetadataSettings, MetadataWriter
from lakebed.model import CommitMetadata
from lakebed.properties.file import update_table_config
from lakebed.properties.table_config import INDEX_REPEATED, TableConfig
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.timeline import Timeline
from lakebed.upkeep.action_keys import ActionKeys
from lakebed.upkeep.key_jobs import KeyJobs, is_large
from lakebed.upkeep.kind import FirstBuild, Removal, StoredTable, TableAction
from lakebed.upkeep.registry import every_upkeep, find_upkeep, upkeep_of
from lakebed.upkeep.repeated_keys import RepeatedKeys
from lakebed.write_status import WriteStatus

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
        config = self.without_unknown()
        ready = replace(self, config=config)
        missing = ready.missing()
        writer = ready._build(missing, ready.requested()) if missing else ready.writer
        if config.metadata_partitions:
            writer.take_off_strays()
            writer.run_services()
        snapshot = snapshot_of(self.storage, writer.config, self.timeline)
        return snapshot.seeing(writer.view()) if writer.config.metadata_partitions else snapshot

    def record_action(
        self,
        instant: str,
        commit: CommitMetadata,
        statuses: Sequence[WriteStatus],
        *,
        rows_stay: bool = False,
        looks_up: bool = True,
    ) -> None:
        """Write what this action changes, in a delta commit that becomes visible when the action completes.

        Where the table's `rows_stay` as they are, whoever wrote ranges of partition paths since it was requested has
        them in there: real Hudi's stand for all files that there were. An action that does not look keys up may store
        one again, which the table's properties say from then on.
        """
        writer = self.writer
        if not writer.partitions:
            return
        snapshot = snapshot_of(self.storage, self.config, self.timeline).seeing(writer.view())
        action = TableAction(snapshot, self.settings, instant, commit, statuses, writer.partitions)
        repeats = RepeatedKeys.of(action, looks_up=looks_up)
        written = self._by_jobs(writer, action, repeats)
        if repeats.found(action):
            self._note_repeated_keys()
        partitions = {log.group.partition for log in written}
        records: dict[str, Records] = {}
        for partition in in_write_order(p for p in writer.partitions if p not in partitions):
            upkeep = find_upkeep(partition)
            found = upkeep.of_action(partition, action) if upkeep is not None else None
            if found is not None:
                records[partition] = found
        checked = {p: r for p, r in records.items() if p == FILES or not rows_stay}
        wrong = overruled(writer.view().slices, instant, checked, form_of_version(self.config.version))
        if wrong is not None:
            raise CommitConflict(
                f"what instant {instant} changes would not be found by {wrong}: instants that were requested after it"
                " have committed to the same partition paths by now",
                hint="Run the write again: it then comes last.",
                context={"instant": instant, "metadata_partition": wrong},
            )
        writer.apply(instant, records, written)

    def _note_repeated_keys(self) -> None:
        if not self.still_mine():
            raise CommitConflict(
                f"the table lock was lost before {self.config.name!r} could note that it holds keys several times",
                hint="Another process took it after it expired; try again.",
            )
        update_table_config(self.storage, {INDEX_REPEATED: "true"})

    def record_removal(self, instant: str, files: Mapping[str, Sequence[str]], gone: Collection[str]) -> None:
        """Write that a clean has deleted these files, by partition path, and that partition paths are `gone`."""
        writer = self.writer
        if not writer.partitions:
            return
        snapshot = snapshot_of(self.storage, self.config, self.timeline).seeing(writer.view())
        removal = Removal(snapshot, files, gone, self.settings)
        records: dict[str, Records] = {}
        for partition in in_write_order(writer.partitions):
            upkeep = find_upkeep(partition)
            found = upkeep.of_removal(partition, removal) if upkeep is not None else None
            if found is not None:
                records[partition] = found
        writer.apply(instant, records)

    def _by_jobs(self, writer: MetadataWriter, action: TableAction, repeats: RepeatedKeys) -> list[WrittenLog]:
        """The log files of indexes of record keys where an action changed many keys; else none."""
        if self.engine is None or not is_large(action.statuses, self.engine, looks=repeats.looks):
            return []
        keys = action.shared(ActionKeys)
        if not keys.indexes:
            return []
        return KeyJobs(self.engine, action.snapshot.reader, action.instant, keys.indexes).run(
            writer, action.statuses, keys.replaced, repeats
        )

    # what it consists of

    def _cannot_keep(self) -> list[str]:
        """Partitions that lakebed does not know, and those of a kind that it knows but cannot compute."""
        table = StoredTable(snapshot_of(self.storage, self.config, self.timeline, use_metadata=False))
        refused: list[str] = []
        for partition in self.writer.partitions:
            upkeep = find_upkeep(partition)
            reason = upkeep.reason_not_kept(partition, table) if upkeep is not None else None
            if reason is not None:
                _log.warning("%s of the metadata table cannot be kept up to date: %s", partition, reason)
            if upkeep is None or reason is not None:
                refused.append(partition)
        return refused

    def without_unknown(self) -> TableConfig:
        """Take partitions off that lakebed cannot keep, or refuse them; gives the settings that are left."""
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

    def missing(self) -> list[str]:
        """The partitions to build now: at the table's first write those that every table gets, and what was asked."""
        have = set(self.writer.partitions)
        enabled = self.settings.metadata
        if enabled is None and self.config.properties.get(METADATA_OPTION, "").lower() == "false":
            enabled = False
        requested = self.requested()
        if enabled is False or (not have and enabled is None and self.timeline.commits and not requested):
            return []
        missing = [] if have else self._every()
        missing += [p for p in requested if p not in (*have, *missing)]
        if missing and self.config.version == 6 and self.timeline.pending:
            return []  # as real Hudi: the instant it is built at must not be behind a pending one
        return in_build_order(missing)

    def requested(self) -> dict[str, IndexName]:
        """The indexes that the table or the job asks for, by partition; those of keys need stored keys."""
        config, settings = self.config, self.settings
        names = [*remembered_indexes(config.properties), *map(parse_index_name, settings.metadata_indexes)]
        names += [name for one in every_upkeep() if (name := one.requested(settings, config)) is not None]
        found = {name.partition: name for name in names}
        stored = config.populate_meta_fields
        return {name: one for name, one in found.items() if stored or not kind_of(name).grows}

    def _every(self) -> list[str]:
        """What every metadata table has."""
        return [one.kind.name for one in every_upkeep() if one.is_in_every_table(self.settings, self.config)]

    def add(self, *names: IndexName, sizing: GroupSizing | None = None) -> MetadataWriter:
        """Build indexes on a table that may have rows, and the metadata table where there is none."""
        chosen = {name.partition: name for name in names}
        every = [] if self.writer.partitions else self._every()
        return self._build(in_build_order({*every, *chosen}), chosen, sizing)

    def _build(
        self, partitions: Sequence[str], names: Mapping[str, IndexName], sizing: GroupSizing | None = None
    ) -> MetadataWriter:
        writer = self.writer
        writer.create()
        files = snapshot_of(self.storage, self.config, self.timeline, use_metadata=False)
        build = FirstBuild(files, self.settings, self.engine)
        kept = kept_as(self.settings)
        for partition in partitions:
            name = names.get(partition) or IndexName(partition)
            usual = kept.partitioned_sizing if name.partitioned else kept.sizing
            groups, definition = upkeep_of(partition).initial(name, build, sizing or usual)
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
