"""`MetadataStore`: the metadata table as a table with a timeline of its own, as its writers see it.

On version 6 what the metadata table does by itself has the instant of the last delta commit with digits after it;
from version 8 on it has instants of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from lakebed.errors import (
    CommitConflict,
    CommitStateUnknown,
    ConflictKind,
    CorruptFile,
    LakebedError,
    StorageError,
    TableNotFound,
)
from lakebed.metadata.slices import MetadataSlices
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_records.definitions import IndexDefinition, load_definitions
from lakebed.metadata_records.group_files import FileGroup
from lakebed.metadata_records.layout import METADATA_FOLDER, PARTITIONED_SIZING, GroupSizing, is_of_data, parse_files
from lakebed.metadata_records.records import record_form, record_schema
from lakebed.model import Action, BaseFile, FileSlice, Instant, LogFile, State
from lakebed.properties.table_config import TableConfig
from lakebed.slices.snapshot import REPAIR_HINT
from lakebed.storage.base import Durable, FileInfo, Storage
from lakebed.storage.folder import FolderStorage
from lakebed.storage.parallel import at_once, is_remote, parallel_map
from lakebed.timeline.bodies.commit import commit_from_record, encode_commit
from lakebed.timeline.instants import InstantClock, without_suffix
from lakebed.timeline.timeline import Timeline, load_table, remember_commit
from lakebed.timeline.transitions import TimelineWriter


class Suffix(StrEnum):
    """The digits appended to the instant of a delta commit for the instants of services."""

    RESHARDING = "000"
    COMPACTION = "001"
    CLEAN = "002"
    RESTORE = "003"
    LOG_COMPACTION = "005"
    ROLLBACK = "006"


# A repair takes the first free one that sorts after all instants; Hudi does not use 007 to 009.
REPAIRS = (Suffix.RESHARDING, "007", "008", "009")
# The building of a partition: this one, or the next that is free.
FIRST_BUILD = 10


T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """The settings of the metadata table's maintenance; the defaults are Hudi's.

    - `compact_after`: delta commits since the last compaction after which the next one is due.
    - `clean_commits`: commits whose file slices cleaning keeps.
    - `archive_above`, `archive_down_to`: with more commits than the first, archival leaves the second.
    - `log_compaction`, `log_compact_after`: whether logs of so many blocks are merged into one between compactions.
    - `sizing`, `partitioned_sizing`: file groups of record and secondary indexes.
    - `shard_max_bytes`: mean size of an index's file groups beyond which their number is doubled; 0 for never. At a
      little more than 20 bytes a key it is what Hudi's sizing rules give a file group at most, 22 million keys.
    - `threads`: files that are written side by side.
    """

    compact_after: int = 10
    clean_commits: int = 20
    archive_above: int = 31
    archive_down_to: int = 21
    log_compaction: bool = False
    log_compact_after: int = 5
    sizing: GroupSizing = field(default_factory=GroupSizing)
    partitioned_sizing: GroupSizing = PARTITIONED_SIZING
    shard_max_bytes: int = 512 << 20
    threads: int = 8


class StoredState(NamedTuple):
    """The metadata table's own settings and timeline, the table's index definitions (None: not read yet), and the
    listed folders of partitions; or a view of all that, which was `opened` under the same lock."""

    config: TableConfig
    timeline: Timeline
    definitions: Mapping[str, IndexDefinition] | None = None
    folders: Mapping[str, Sequence[FileInfo]] = {}
    opened: MetadataSlices | None = None


def read_stored(storage: Storage, config: TableConfig, partitions: Sequence[str] | None = None) -> StoredState | None:
    """The stored state of a table's metadata table, with the folders of these partitions (None: of all); None if the
    table does not have one, or it is damaged. The caller has the lock, so that the parts fit together. On a fast
    storage, folders are listed and definitions read when they are needed."""
    if not config.metadata_partitions:
        return None
    store = FolderStorage(storage, METADATA_FOLDER)
    names = tuple(config.metadata_partitions) if partitions is None else partitions
    try:
        if not is_remote(storage):
            return StoredState(*load_table(store))
        (store_config, timeline), definitions, *folders = at_once(
            storage,
            lambda: load_table(store),
            lambda: load_definitions(storage, config),
            *(partial(_listed, store, name) for name in names),
        )
        return StoredState(store_config, timeline, definitions, dict(zip(names, folders, strict=True)))
    except (LakebedError, FileNotFoundError):
        return None  # its first user reads it again, and reports the error


def _listed(storage: Storage, partition: str) -> Sequence[FileInfo]:
    return list(storage.list(partition, recursive=False))


class MetadataStore:
    """The metadata table, which is read when first used, and again after `changed`. The caller holds the data table's
    lock.

    `data_storage`, `data_config` and `data_timeline` are the data table's, `storage` the metadata table's own.
    `lock_is_held` returns whether that lock is still held: a process may be suspended for longer than it is valid;
    `no_lock` is that of a store that only reads. `stored` is what `read_stored` gave under that lock, where it was
    called. `durable` is "later" where this process completes the data table's instant under the same lock, after what
    it completes here. `shown_inflight` are the instants whose inflight files it has made under that lock.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        timeline: Timeline,
        settings: MetadataSettings | None = None,
        *,
        lock_is_held: Callable[[], bool],
        stored: StoredState | None = None,
    ) -> None:
        self.lock_is_held = lock_is_held
        self.durable: Durable = True
        self.shown_inflight: set[str] = set()
        self._stored = stored
        self.data_storage = storage
        self.data_config = config
        self.data_timeline = timeline
        self.settings = settings or MetadataSettings()
        self.storage: Storage = FolderStorage(storage, METADATA_FOLDER)
        self._clock = InstantClock(config.timezone)
        self._slices: MetadataSlices | None = None

    @property
    def version(self) -> int:
        return self.data_config.version

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that every write maintains: the complete ones and those that are being built."""
        config = self.data_config
        return tuple(dict.fromkeys([*config.metadata_partitions, *config.metadata_partitions_inflight]))

    @property
    def slices(self) -> MetadataSlices:
        """The present timeline and file slices. Raises `CorruptFile` if there is no metadata table."""
        if self._slices is None:
            try:
                self._slices = self._read()
            except TableNotFound as cause:
                raise CorruptFile(
                    f"the metadata table of {self.data_storage.url()} cannot be read: it is missing, the table's"
                    " properties name it",
                    hint=REPAIR_HINT,
                    context={"path": METADATA_FOLDER},
                ) from cause
        return self._slices

    @property
    def timeline(self) -> Timeline:
        return self.slices.timeline

    @property
    def transitions(self) -> TimelineWriter:
        return TimelineWriter(self.storage, self.slices.config, self.durable)

    def exists(self) -> bool:
        """Whether the metadata table's properties exist; reads them with the timeline."""
        if self._slices is None:
            try:
                self._slices = self._read()
            except TableNotFound:
                return False
        return True

    def is_maintained(self) -> bool:
        """Whether the data table's properties name partitions of the metadata table, and it exists."""
        return bool(self.partitions) and self.exists()

    def changed(self, data_config: TableConfig | None = None) -> None:
        """Drop cached state after a change of storage."""
        self.data_config = data_config or self.data_config
        self._slices = self._stored = None

    def new_time(self) -> str:
        """An instant time greater than all on the two timelines."""
        return self._clock.next(after=max(self.timeline.greatest_time, self.data_timeline.greatest_time))

    def service_time(self, suffix: Suffix) -> str | None:
        """The instant of a service of the metadata table: a new one, or on version 6 the one right after the last delta
        commit; None if a service of this kind has already run there."""
        if self.version >= 8:
            return self.new_time()
        times = [instant.time for instant in self.timeline.commits if instant.action is Action.DELTACOMMIT]
        if suffix is Suffix.LOG_COMPACTION:  # completes as a delta commit, after which there is none of its kind
            times = [without_suffix(time) for time in times]
        instant = f"{max(times)}{suffix}"
        return None if any(existing.time == instant for existing in self.timeline.instants) else instant

    def pending(self, *actions: Action) -> list[Instant]:
        """The metadata table's own pending instants of these actions."""
        return [instant for instant in self.timeline.pending if instant.action in actions]

    def orphan_instants(self) -> list[str]:
        """The instants whose delta commits here, completed or pending, come from writers that continued after their
        rollback on the data table. A pending one has no living writer: writers of this timeline hold the lock, and this
        process holds it now."""
        data_times = {instant.time for instant in self.data_timeline.instants}
        pending = [i.time for i in self.pending(Action.DELTACOMMIT)]
        orphans = {time for time in pending if is_of_data(time) and time not in data_times}
        return sorted(self.slices.rolled_back_in_data | orphans)

    def listed_files(self, partition: str) -> list[BaseFile | LogFile]:
        """All files in a partition's folder, whatever their state, from a listing."""
        listed = self.storage.list(partition, recursive=False)
        files = (parse_files(partition, info.path.rpartition("/")[2], info.size) for info in listed)
        return [file for file in files if file is not None]

    def group(self, file_slice: FileSlice) -> FileGroup:
        """The file group with `file_slice` as its latest slice, in the form that its writers need."""
        base = file_slice.base_file.name if file_slice.base_file else ""
        hfile = kind_of(file_slice.partition).hfile
        if self.version >= 8:
            return FileGroup(self.version, file_slice.partition, file_slice.file_id, hfile, file_slice.instant, base)
        waiting = self.timeline.pending_compaction.get((file_slice.partition, file_slice.file_id))
        instant = waiting.time if waiting is not None else file_slice.instant
        logs = [log for log in file_slice.log_files if log.instant == instant]
        return FileGroup(
            self.version,
            file_slice.partition,
            file_slice.file_id,
            hfile,
            instant,
            base,
            tuple(log.name for log in logs),
            max((log.version for log in logs), default=0) + 1,
        )

    def new_group(self, partition: str, file_id: str, instant: str = "") -> FileGroup:
        """A file group with this id without files; `instant` is that of its next slice."""
        return FileGroup(self.version, partition, file_id, kind_of(partition).hfile, instant)

    def complete(
        self,
        action: Action,
        instant: str,
        operation: str,
        stats: Iterable[Mapping[str, Any]],
        replaced: Mapping[str, Sequence[str]] | None = None,
    ) -> Instant:
        """Make a commit of any kind visible, with these write stats; returns its completed instant. A service that has
        lost the lock deletes its files: another process may have completed the instant with other files."""
        by_partition: dict[str, list[Mapping[str, Any]]] = {}
        for stat in stats:
            by_partition.setdefault(stat["partitionPath"], []).append(stat)
        record = {
            "partitionToWriteStats": by_partition,
            "extraMetadata": {"schema": record_schema(record_form(self.version), meta_columns=False)},
            "operationType": operation,
            "partitionToReplaceFileIds": {partition: list(ids) for partition, ids in (replaced or {}).items()},
        }
        commit = commit_from_record(record)
        body = encode_commit(commit, self.version, action)
        config = self.slices.config
        try:
            done = self.finish(action, instant, body)
        except CommitConflict:
            if action is not Action.DELTACOMMIT:  # of those the data table's writer takes care
                paths = [stat["path"] for of in by_partition.values() for stat in of]
                parallel_map(self.storage.delete, paths, self.settings.threads)
            raise
        remember_commit(self.storage, config, done, commit, len(body))
        return done

    def finish(self, action: Action, instant: str, body: bytes) -> Instant:
        """Complete an instant with this body, and return the completed instant.

        An answer in doubt is a `StorageError` here: the data table's instant is not completed yet, and rolling that
        back takes this one back too, whether it is there or not.
        """
        self.check_lock()
        completion = self._clock.next(after=max(without_suffix(instant), self.timeline.greatest_time))
        try:
            is_inflight = instant in self.shown_inflight
            done = self.transitions.complete(action, instant, completion, body, is_inflight=is_inflight)
            if not self.lock_is_held():
                self.storage.delete(f"{self.slices.config.timeline_path}/{done.file_name}")
                self.check_lock()
            return done
        except CommitStateUnknown as cause:
            raise cause.__cause__ if isinstance(cause.__cause__, StorageError) else cause from cause
        finally:
            self.changed()

    def check_lock(self) -> None:
        """Raise `CommitConflict` if another writer may have taken the lock: this writer's view of the metadata table
        may be out of date."""
        if not self.lock_is_held():
            raise CommitConflict(
                f"the lock of {self.data_storage.url()} was lost while its metadata table was written",
                hint="Another writer took it after it expired; run the write again.",
                kind=ConflictKind.LOCK_LOST,
            )

    def request(self, action: Action, instant: str, plan: bytes = b"") -> None:
        """Write an action of the metadata table to its timeline as requested; a plan is valid as long as the caller has
        the lock."""
        self.transitions.request(action, instant, plan)
        if not self.lock_is_held():
            self.transitions.remove_pending(Instant(instant, action, State.REQUESTED))
            self.check_lock()

    def _read(self) -> MetadataSlices:
        stored, self._stored = self._stored or StoredState(*load_table(self.storage)), None
        if stored.opened is not None:
            return stored.opened.with_data(self.data_config, self.data_timeline)
        slices = MetadataSlices(
            self.storage, stored.config, stored.timeline, self.data_storage, self.data_config, self.data_timeline
        ).of_last_commit()
        return slices if stored.definitions is None else slices.seeing(stored.definitions, stored.folders)
