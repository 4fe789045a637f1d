"""The metadata table in a write: created by the first write, updated by every action before it completes, compacted and
cleaned.

Everything here runs under the table lock, on settings that were read under it.

Many key changes of one action: tasks read what the writers reported, a shuffle by file group, tasks write the log
files.

This makes the same records as `records_of_action` of the kinds, which handles few changes in one process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.providers import writers_lock
from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Engine, Rows, Task
from lakebed.errors import CommitConflict, ConflictKind, UnsupportedFeature
from lakebed.metadata.lookups import MetadataTable, snapshot_of
from lakebed.metadata_kinds.base import FirstBuild, Removal, StoredTable, TableAction
from lakebed.metadata_kinds.key_changes import (
    GROUPED,
    ActionKeys,
    KeyIndexes,
    KeyIndexKind,
    group_changes,
    key_kind_of,
    removed_changes,
)
from lakebed.metadata_kinds.registry import (
    find_kind,
    in_build_order,
    in_write_order,
    kind_of,
    kinds,
    parse_index_name,
    remembered_indexes,
)
from lakebed.metadata_records.definitions import IndexName
from lakebed.metadata_records.group_files import FileGroup, WrittenLog, write_log
from lakebed.metadata_records.layout import FILES, GroupSizing
from lakebed.metadata_records.records import Records, record_form
from lakebed.metadata_upkeep.commit import apply_delta, begin_delta, file_groups, superseded
from lakebed.metadata_upkeep.creation import PARTITIONS, PARTITIONS_INFLIGHT, create, initialise, without_definitions
from lakebed.metadata_upkeep.repeated_keys import KeyCheck, RepeatedKeys
from lakebed.metadata_upkeep.rollback import remove_instant
from lakebed.metadata_upkeep.services import run_services
from lakebed.metadata_upkeep.store import MetadataSettings, MetadataStore, StoredState
from lakebed.model import CommitMetadata, FileSlice
from lakebed.properties.file import load_same_table, load_table_config, update_table_config
from lakebed.properties.table_config import INDEX_REPEATED, TableConfig
from lakebed.sharing import once
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.timeline import load_timeline
from lakebed.write_status import STATUS_SCHEMA, WriteStatus, from_table, of_slice

_log = logging.getLogger("lakebed")

# Changed keys of an action from which on jobs make their records: this process makes a million in 1.5 s.
LARGE_KEYS = 2_000_000
# The same where they are looked for in the record index as well.
CHECKED_KEYS = 50_000
# The input for one file group: its write status, or its slice if it is replaced.
_REPORTED = pa.schema([*STATUS_SCHEMA, ("replaced", pa.bool_()), *GROUPED])
_LOGS = pa.schema(
    [
        ("file_id", pa.string()),
        ("name", pa.string()),
        ("size", pa.int64()),
        ("writes", pa.int64()),
        ("deletes", pa.int64()),
        ("millis", pa.int64()),
        ("repeated", pa.int64()),
    ]
)


def is_large(statuses: Sequence[WriteStatus], engine: Engine | None, *, looks: bool = False) -> bool:
    """Whether an action changed so many keys that jobs pay off. The bound is lower if keys are also looked up
    (`looks`)."""
    threshold = CHECKED_KEYS if looks else LARGE_KEYS
    return engine is not None and engine.is_distributed and sum(s.changed_keys for s in statuses) >= threshold


@dataclass(frozen=True)
class KeyJobs:
    """The jobs that write the log files of one action to the indexes of record keys."""

    engine: Engine
    reader: SliceReader
    instant: str
    indexes: KeyIndexes

    def run(
        self,
        store: MetadataStore,
        statuses: Sequence[WriteStatus],
        replaced: Sequence[FileSlice],
        repeats: RepeatedKeys,
    ) -> list[WrittenLog]:
        """Begin the delta commit and write the log files of all file groups that get records; record whether a key
        repeats. Returns the log files.

        Writes nothing where an index by partition path has no file groups yet for some of the partition paths.
        """
        paths = {s.partition for s in statuses if s.path is not None}
        by_path = [p for p in self.indexes.partitions if self.indexes.partitioned and kind_of(p).by_data_partition]
        for partition in by_path:
            data_partition_of = kind_of(partition).data_partition_of
            if not paths <= {data_partition_of(group.file_id) for group in file_groups(store, partition)}:
                return []
        groups = begin_delta(store, self.instant, self.indexes.partitions)
        reported = self._reported(statuses, replaced)
        return [
            log for partition, its in groups.items() for log in self._written(partition, tuple(its), reported, repeats)
        ]

    def _reported(self, statuses: Sequence[WriteStatus], replaced: Sequence[FileSlice]) -> pa.Table:
        removed = [of_slice(file_slice) for file_slice in replaced]
        listed = [*removed, *(s for s in statuses if s.path is not None)]
        columns = [pa.array([getattr(s, f.name) for s in listed], f.type) for f in STATUS_SCHEMA]
        columns.append(pa.array([i < len(removed) for i in range(len(listed))]))
        columns.append(pa.repeat(pa.scalar(""), len(listed)))
        return pa.Table.from_arrays([*columns, pa.array(range(len(listed)), pa.int32())], schema=_REPORTED)

    def _written(
        self, partition: str, groups: tuple[FileGroup, ...], reported: pa.Table, repeats: RepeatedKeys
    ) -> list[WrittenLog]:
        kind = key_kind_of(partition)
        read = KeyChangeReader(self.reader, self.indexes, partition, groups, kind)
        changes = self._by_group(self.engine.from_arrow(reported), read, kind.changes_schema, reported.num_rows)
        check = repeats.in_tasks(partition)
        write = KeyLogWriter(self.reader.storage, self.instant, groups, kind, check)
        done = self.engine.collect(self._by_group(changes, write, _LOGS, len(groups)))
        if check is not None:
            repeats.checked(sum(done["repeated"].to_pylist()))
        groups_by_id = {group.file_id: group for group in groups}
        return [
            WrittenLog(groups_by_id[row["file_id"]], self.instant, *(row[name] for name in _LOGS.names[1:-1]))
            for row in done.to_pylist()  # one a file group
        ]

    def _by_group(self, rows: Rows, fn: KeyChangeReader | KeyLogWriter, schema: pa.Schema, groups: int) -> Rows:
        return self.engine.group_map(rows, fn, schema, groups=max(1, groups), one_group_per_task=True)


@dataclass(frozen=True, slots=True)
class KeyChangeReader:
    """A task function that reads key changes of file groups, each with the index file group that stores it."""

    reader: SliceReader
    indexes: KeyIndexes
    partition: str
    groups: tuple[FileGroup, ...]
    kind: KeyIndexKind

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            removed, written = (table.filter(m) for m in (table["replaced"], pc.invert(table["replaced"])))
            slices = [status.slices()[1] for status in from_table(removed)]
            changes = removed_changes(self.reader, slices, self.indexes.fields) if slices else []
            changes += group_changes(self.reader, list(from_table(written)), self.indexes.fields)
            for part in changes:
                rows = self.kind.grouped_changes(self.partition, part, self.indexes, self.groups)
                yield from rows.to_batches()


@dataclass(frozen=True, slots=True)
class KeyLogWriter:
    """A task function that writes the log file of one index file group from all its changes."""

    storage: Storage
    instant: str
    groups: tuple[FileGroup, ...]
    kind: KeyIndexKind
    check: KeyCheck | None = None

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        group = self.groups[number]
        rows = pa.Table.from_batches(list(batches))
        records = self.kind.group_records(rows, self.instant, record_form(group.version))
        deleted = records.deleted.filter(pc.invert(pc.is_in(records.deleted, value_set=records.keys)))
        if not len(records.keys) and not len(deleted):
            return
        log = write_log(
            self.storage, group, self.instant, records.keys, records.values, deleted, token=task.write_token
        )
        repeated = 0 if self.check is None else self.check.of_group(rows, group.file_id)
        row = [group.file_id, log.name, log.size, log.writes, log.deletes, log.millis, repeated]
        columns = [pa.array([value], field.type) for value, field in zip(row, _LOGS, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=_LOGS)


# As a job's option, and as a property of a table that is to have none.
METADATA_OPTION = "hoodie.metadata.enable"


@contextmanager
def locked_table(storage: Storage, settings: WriteSettings) -> Generator[tuple[Snapshot, Callable[[], bool]]]:
    """The latest view of a table, read under its lock, which is held for the block; and a function that returns whether
    it is still held. Raises `LockTimeout`, and `CommitConflict` where another table has taken the place of this one."""
    before = load_table_config(storage)
    with writers_lock(storage, settings, before.name) as lock:
        config = load_same_table(storage, before)
        yield snapshot_of(storage, config, load_timeline(storage, config)), lock.lock_is_held


@dataclass(frozen=True)
class MetadataUpkeep:
    """Maintains the metadata table of one table during a write; `config` and `timeline` were read under the lock.
    `engine` runs jobs for many keys at a time. `lock_is_held` is whether the lock is still held (`no_lock` for a caller
    that only reads); `stored` is the result of `read_stored` under the lock."""

    table: Snapshot
    settings: WriteSettings
    engine: Engine | None
    lock_is_held: Callable[[], bool]
    stored: StoredState | None = None

    @once
    def store(self) -> MetadataStore:
        """The metadata table, opened for writing."""
        return MetadataStore(
            self.table.storage,
            self.table.config,
            self.table.timeline,
            metadata_settings(self.settings),
            lock_is_held=self.lock_is_held,
            stored=self.stored,
        )

    def prepare(self) -> Snapshot:
        """Drop partitions that lakebed cannot maintain, build requested partitions that are missing, finish the work of
        dead writers, and compact and clean if that is due, at the beginning of an action: after a compaction the last
        commit could not be rolled back. Returns the table after that, read under the lock, so without later commits."""
        config = self.without_unknown()
        ready = self
        if config is not self.table.config:
            ready = replace(self, table=snapshot_of(self.table.storage, config, self.table.timeline), stored=None)
        missing = ready.missing()
        if missing:
            ready._build(missing, ready.requested())
        store = ready.store
        if config.metadata_partitions:
            for instant in store.orphan_instants():
                remove_instant(store, instant)
            run_services(store)
        table = ready.table
        if store.data_config is not table.config:
            table = snapshot_of(table.storage, store.data_config, table.timeline)
        return table.seeing(MetadataTable(store.slices)) if store.data_config.metadata_partitions else table

    def maintain(self) -> list[str]:
        """Compact the metadata table if that is due, and clean and archive it then. Returns a line of text about each
        step."""
        return run_services(self.store) if self.table.config.metadata_partitions else []

    def record_action(
        self,
        instant: str,
        commit: CommitMetadata,
        statuses: Sequence[WriteStatus],
        *,
        unchanged_rows: bool = False,
        looks_up: bool = True,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> int | None:
        """Write the changes of this action in a delta commit that becomes visible when the action completes. Returns
        the number of its rows whose key is stored more than once, None if that was not checked.

        With `unchanged_rows` the action changes no row of the table: another writer's ranges of partition paths,
        written since it was requested, include its rows (real Hudi's cover all files that there were). An action that
        does not look keys up may store one again, which the table's properties record from then on. `meanwhile` is
        called during the last step, for a check that must be done before the action completes.
        """
        store = self.store
        store.durable = "later"  # the action's completed instant follows
        if not store.partitions:
            meanwhile()
            return None
        snapshot = self.table.seeing(MetadataTable(store.slices))
        action = TableAction(snapshot, self.settings, instant, commit, statuses, store.partitions)
        repeats = RepeatedKeys.of(action, looks_up=looks_up) if self.table.config.key_indexes else None
        written = self._key_logs(store, action, repeats) if repeats is not None else []
        partitions = {log.group.partition for log in written}
        records: dict[str, Records] = {}
        for partition in in_write_order([p for p in store.partitions if p not in partitions]):
            upkeep = find_kind(partition)
            partition_records = upkeep.records_of_action(partition, action) if upkeep is not None else None
            if partition_records is not None:
                records[partition] = partition_records
        checked = {p: r for p, r in records.items() if p == FILES or not unchanged_rows}
        wrong = superseded(store.slices, instant, checked, record_form(self.table.config.version))
        if wrong is not None:
            raise CommitConflict(
                f"what instant {instant} changes would not be found by {wrong}: instants that were requested after it"
                " have committed to the same partition paths by now",
                hint="Run the write again: it then comes last.",
                context={"instant": instant, "metadata_partition": wrong},
                kind=ConflictKind.CHANGED,
            )
        del action, checked  # statistics and records of many files take much memory
        apply_delta(store, instant, records, written, meanwhile)
        return None if repeats is None else repeats.rows

    def _note_repeated_keys(self) -> None:
        table = self.table
        if not self.lock_is_held():
            raise CommitConflict(
                f"the table lock was lost before {table.config.name!r} could note that it holds keys several times",
                hint="Another process took it after it expired; try again.",
                kind=ConflictKind.LOCK_LOST,
            )
        update_table_config(table.storage, {INDEX_REPEATED: "true"}, self.lock_is_held)

    def record_removal(
        self, instant: str, files: Mapping[str, Sequence[str]], deleted_partitions: Collection[str]
    ) -> None:
        """Record that a clean has deleted these files, by partition path, and all files of the `deleted_partitions`."""
        store = self.store
        store.durable = "later"  # the clean's completed instant follows
        if not store.partitions:
            return
        snapshot = self.table.seeing(MetadataTable(store.slices))
        removal = Removal(snapshot, files, deleted_partitions, self.settings)
        records: dict[str, Records] = {}
        for partition in in_write_order(store.partitions):
            upkeep = find_kind(partition)
            partition_records = upkeep.records_of_clean(partition, removal) if upkeep is not None else None
            if partition_records is not None:
                records[partition] = partition_records
        apply_delta(store, instant, records)

    def _key_logs(self, store: MetadataStore, action: TableAction, repeats: RepeatedKeys) -> list[WrittenLog]:
        """Record whether an action repeats a key, and return the log files that jobs have written for it."""
        written = self._by_jobs(store, action, repeats)
        if repeats.found(action):
            self._note_repeated_keys()
        return written

    def _by_jobs(self, store: MetadataStore, action: TableAction, repeats: RepeatedKeys) -> list[WrittenLog]:
        """The log files of indexes of record keys, written by jobs if an action changed many keys; otherwise empty."""
        if self.engine is None or not is_large(action.statuses, self.engine, looks=repeats.looks):
            return []
        keys = action.shared(ActionKeys)
        if not keys.indexes:
            return []
        return KeyJobs(self.engine, action.snapshot.reader, action.instant, keys.indexes).run(
            store, action.statuses, keys.replaced, repeats
        )

    # which partitions it has

    def _cannot_keep(self) -> list[str]:
        """The partitions that lakebed cannot maintain: unknown ones, and those that it knows but cannot compute."""
        table = StoredTable(self.table.of_folders())
        refused: list[str] = []
        for partition in self.store.partitions:
            upkeep = find_kind(partition)
            reason = upkeep.reason_not_maintained(partition, table) if upkeep is not None else None
            if reason is not None:
                _log.warning("%s of the metadata table cannot be kept up to date: %s", partition, reason)
            if upkeep is None or reason is not None:
                refused.append(partition)
        return refused

    def without_unknown(self) -> TableConfig:
        """Drop partitions that lakebed cannot maintain, or raise an error, as the settings choose. Returns the table's
        settings after that."""
        unknown = self._cannot_keep()
        if not unknown:
            return self.table.config
        names = ", ".join(unknown)
        if self.settings.on_unknown_metadata == "refuse":
            raise UnsupportedFeature(
                f"the metadata table of {self.table.storage.url()} has partitions that lakebed does not know: {names}",
                hint="write with lakebed.metadata.on_unknown=drop to take them off, or with the engine that made them",
                context={"feature": "metadata partition", "partitions": unknown},
            )
        _log.warning("taking the metadata partition(s) %s off: lakebed cannot keep them up to date", names)
        partitions_by_property = {
            PARTITIONS: self.table.config.metadata_partitions,
            PARTITIONS_INFLIGHT: self.table.config.metadata_partitions_inflight,
        }
        changes = {key: ",".join(p for p in names if p not in unknown) for key, names in partitions_by_property.items()}
        config = update_table_config(self.table.storage, changes, self.lock_is_held)
        return without_definitions(self.table.storage, config, unknown, self.lock_is_held)

    def missing(self) -> list[str]:
        """The partitions to build now: the requested ones and, at the table's first write, those that every table
        gets."""
        have = set(self.store.partitions)
        enabled = self.settings.metadata
        if enabled is None and self.table.config.properties.get(METADATA_OPTION, "").lower() == "false":
            enabled = False
        requested = self.requested()
        if enabled is False or (not have and enabled is None and self.table.timeline.commits and not requested):
            return []
        missing = [] if have else self._every()
        missing += [p for p in requested if p not in (*have, *missing)]
        if missing and self.table.config.version == 6 and self.table.timeline.pending:
            return []  # as real Hudi: the instant it is built at must not be after a pending one
        return in_build_order(missing) if missing else missing

    def requested(self) -> dict[str, IndexName]:
        """The indexes that the table or the job requests, by partition; indexes of keys require stored keys."""
        config, settings = self.table.config, self.settings
        names = [*remembered_indexes(config.properties), *map(parse_index_name, settings.metadata_indexes)]
        names += [kind.requested(settings, config) for kind in kinds() if kind.is_requested(settings, config)]
        indexes = {name.partition: name for name in names}
        stored = config.populate_meta_fields
        return {name: index for name, index in indexes.items() if stored or not kind_of(name).grows}

    def _every(self) -> list[str]:
        """The partitions that every metadata table has."""
        return [kind.name for kind in kinds() if kind.is_in_every_table(self.settings, self.table.config)]

    def add(self, *names: IndexName, sizing: GroupSizing | None = None) -> TableConfig:
        """Build indexes on a table that may have rows, and the metadata table if there is none. Returns the table's new
        settings."""
        indexes = {name.partition: name for name in names}
        every = [] if self.store.partitions else self._every()
        self._build(in_build_order({*every, *indexes}), indexes, sizing)
        return self.store.data_config

    def _build(
        self, partitions: Sequence[str], names: Mapping[str, IndexName], sizing: GroupSizing | None = None
    ) -> None:
        create(self.store)
        files = self.table.of_folders()
        build = FirstBuild(files, self.settings, self.engine)
        settings = metadata_settings(self.settings)
        for partition in partitions:
            name = names.get(partition) or IndexName(partition)
            usual = settings.partitioned_sizing if name.partitioned else settings.sizing
            groups, definition = kind_of(partition).first_records(name, build, sizing or usual)
            initialise(self.store, partition, groups, definition)


def metadata_settings(settings: WriteSettings) -> MetadataSettings:
    """The settings of the metadata table's maintenance, from the settings of a write."""
    growth, size = settings.index_growth, settings.index_group_bytes
    return MetadataSettings(
        compact_after=settings.metadata_compact_after,
        log_compaction=settings.metadata_log_compaction,
        log_compact_after=settings.metadata_log_compact_after,
        sizing=GroupSizing(settings.min_index_groups, settings.max_index_groups, growth, size),
        partitioned_sizing=GroupSizing(settings.min_partitioned_groups, settings.max_partitioned_groups, growth, size),
        shard_max_bytes=settings.max_filegroup_size,
    )
