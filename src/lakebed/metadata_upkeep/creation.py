"""Creating the metadata table, building and dropping its partitions; the data table's properties follow.

A partition that is built while others write has its file groups from the start: writers log to them while base files
are made from the table as it was then. The build's instant appears on the timeline when the base files are complete.
Until then no reader uses the partition, and no writer removes its files as leftovers of a dead writer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from lakebed.errors import CommitConflict, ConflictKind, TableExists
from lakebed.format.text import dump_properties, parse_properties
from lakebed.metadata_kinds.registry import find_kind, kind_of
from lakebed.metadata_records.definitions import (
    IndexDefinition,
    load_definitions,
    write_definitions,
)
from lakebed.metadata_records.group_files import (
    CREATION_TOKEN,
    FileGroup,
    WrittenBase,
    in_key_order,
    write_base,
    write_creation_log,
)
from lakebed.metadata_records.layout import (
    FILES,
    INITIAL_INSTANT,
    LOGGED_SINCE,
    METADATA_FOLDER,
    group_number,
    metadata_properties,
    partition_metadata,
)
from lakebed.metadata_records.records import GroupRecords
from lakebed.metadata_upkeep.commit import file_groups
from lakebed.metadata_upkeep.rollback import finish_rollbacks
from lakebed.metadata_upkeep.store import FIRST_BUILD, MetadataStore
from lakebed.model import Action, BaseFile, Instant, LogFile
from lakebed.properties.file import create_table, load_table_config, update_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.archive_writer import archive
from lakebed.timeline.instants import suffix_of

PARTITIONS = "hoodie.table.metadata.partitions"
PARTITIONS_INFLIGHT = f"{PARTITIONS}.inflight"
_PARTITION_METADATA = ".hoodie_partition_metadata"
_OPERATION = "BULK_INSERT_PREPPED"
# The instants of this many builds can be distinguished from others.
_MAX_BUILDS = 1_000


@dataclass(frozen=True, slots=True)
class NewPartition:
    """A partition that is being built at this instant, with its file groups in the order of their ids."""

    partition: str
    instant: str
    groups: tuple[FileGroup, ...]


def create(store: MetadataStore) -> None:
    """Create the metadata table unless it exists; one without any completed instant is created again."""
    if store.exists():
        if store.timeline.completed:
            return
        store.data_storage.delete_folder(METADATA_FOLDER)
        store.changed()
    try:
        create_table(store.storage, metadata_properties(store.data_config.name, store.version))
    except TableExists:  # only its backup was left
        store.data_storage.delete_folder(METADATA_FOLDER)
        create_table(store.storage, metadata_properties(store.data_config.name, store.version))
    store.changed()


def start_partition(store: MetadataStore, partition: str, counts: int | Mapping[str, int]) -> NewPartition:
    """Create an empty partition with `counts` file groups (for a partitioned record index a number for each partition
    path of the data) and its build as inflight: base files may be written now."""
    store.check_lock()
    drop_unfinished(store)
    if next(store.storage.list(partition), None) is not None:
        store.storage.delete_folder(partition)
        store.changed()
    new = new_partition(store, partition, counts)
    store.request(Action.DELTACOMMIT, new.instant)
    store.transitions.inflight(Action.DELTACOMMIT, new.instant)
    make_groups(store, new)
    return new


def new_partition(store: MetadataStore, partition: str, counts: int | Mapping[str, int]) -> NewPartition:
    """A partition with `counts` file groups (for a partitioned record index a number for each partition path of the
    data), of which nothing is written yet."""
    instant = _initial_instant(store)
    requested: Mapping[str | None, int] = {None: counts} if isinstance(counts, int) else {**counts}
    ids = [
        kind_of(partition).file_id(partition, first + number, path)
        for path, count in requested.items()
        for first in [first_free_number(store, partition, path)]
        for number in range(count)
    ]
    groups = tuple(store.new_group(partition, id_, instant) for id_ in sorted(ids))
    return NewPartition(partition, instant, groups)


def make_groups(store: MetadataStore, new: NewPartition, *, logged_since: str | None = None) -> None:
    """Create the folder of a new partition with its file groups, each with the log that creates it. `logged_since` is
    the time from which on writers log to it, if that is before it is complete."""
    properties = {**partition_metadata(new.instant), **({LOGGED_SINCE: logged_since} if logged_since else {})}
    body = dump_properties(properties, "partition metadata", datetime.now(UTC))
    store.check_lock()
    store.storage.put_if_absent(f"{new.partition}/{_PARTITION_METADATA}", body)

    def make(group: FileGroup) -> None:
        store.check_lock()  # the folder may be another writer's by now
        write_creation_log(store.data_storage, group, new.instant)

    parallel_map(make, new.groups, store.settings.threads)
    store.changed()


def complete_partition(
    store: MetadataStore, new: NewPartition, written: Sequence[WrittenBase], definition: IndexDefinition | None = None
) -> TableConfig:
    """Complete the build of a partition with these base files (none for groups without records): from now on readers
    use it. Returns the data table's new settings."""
    store.complete(Action.DELTACOMMIT, new.instant, _OPERATION, [base.stat() for base in written])
    _archive_builds(store)
    return show_complete(store, new, definition)


def _archive_builds(store: MetadataStore) -> None:
    """Archive the builds of partitions once later instants are archived. Other engines take the first instant of the
    timeline for its start, and treat later instants that are missing as not committed: they would ignore base files
    that no compaction has rewritten."""
    timeline = store.timeline
    builds = [instant for instant in timeline.completed if instant.time.startswith(INITIAL_INSTANT)]
    if len(builds) == len(timeline.commits):
        return
    if builds and any(not instant.time.startswith(INITIAL_INSTANT) for instant in timeline.archived().instants):
        archive(timeline, builds, store.lock_is_held)
        store.changed()


def show_complete(store: MetadataStore, new: NewPartition, definition: IndexDefinition | None = None) -> TableConfig:
    """Record in the table's properties that a partition is complete. Returns the new settings."""
    partition = new.partition
    changes: dict[str, str | None] = {}
    if definition is not None:
        changes |= define(store, [definition])
    complete = {*store.data_config.metadata_partitions, partition}
    inflight = {*store.data_config.metadata_partitions_inflight} - {partition}
    changes |= {PARTITIONS: ",".join(sorted(complete)), PARTITIONS_INFLIGHT: ",".join(sorted(inflight))}
    config = _update(store, changes)
    if not store.lock_is_held():
        _withdraw(store, new)
    return config


def _withdraw(store: MetadataStore, new: NewPartition) -> None:
    """Remove the mark that a partition is complete: the lock was lost while the properties were written, and other
    writers may have left the partition out. A partition that another process has built since is retained."""
    config = load_table_config(store.data_storage)
    try:
        built = parse_properties(store.storage.read(f"{new.partition}/{_PARTITION_METADATA}")).get("commitTime")
    except FileNotFoundError:  # it was dropped
        built = new.instant
    if built == new.instant:
        left = [name for name in config.metadata_partitions if name != new.partition]
        # the lock is gone, and the request replaces nothing that another process has written since
        withdrawn = update_table_config(store.data_storage, {PARTITIONS: ",".join(left)}, lambda: True)
        store.changed(withdrawn)
    store.check_lock()


def initialise(
    store: MetadataStore, partition: str, groups: Sequence[GroupRecords], definition: IndexDefinition | None = None
) -> TableConfig:
    """Build a partition from its first records: one entry of `groups` for each of its file groups, in order. Returns
    the data table's new settings."""
    counts: int | dict[str, int] = len(groups)
    if groups and groups[0].data_partition is not None:
        counts = {}
        for group in groups:
            assert group.data_partition is not None
            counts[group.data_partition] = counts.get(group.data_partition, 0) + 1
    new = start_partition(store, partition, counts)
    waiting: dict[str | None, list[FileGroup]] = {}
    for group in new.groups:
        waiting.setdefault(kind_of(partition).data_partition_of(group.file_id), []).append(group)
    filled = [(waiting[group_records.data_partition].pop(0), group_records) for group_records in groups]
    filled = [(group, group_records) for group, group_records in filled if not group_records.is_empty]

    def write(item: tuple[FileGroup, GroupRecords]) -> WrittenBase:
        group, group_records = item
        store.check_lock()
        return write_base(store.data_storage, group, new.instant, in_key_order(group_records))

    return complete_partition(store, new, parallel_map(write, filled, store.settings.threads), definition)


def drop(store: MetadataStore, partitions: Sequence[str]) -> TableConfig:
    """Remove partitions: first from the properties, so that no reader uses them. If `files` is among them, the complete
    metadata table is removed. Returns the data table's new settings."""
    if FILES in partitions:
        return drop_all(store)
    dropped = set(partitions)
    remaining = [name for name in store.data_config.metadata_partitions if name not in dropped]
    inflight = [name for name in store.data_config.metadata_partitions_inflight if name not in dropped]
    _update(store, {PARTITIONS: ",".join(sorted(remaining)), PARTITIONS_INFLIGHT: ",".join(sorted(inflight))})
    _undefine(store, dropped)
    config = store.data_config
    for partition in partitions:
        store.check_lock()
        store.storage.delete_folder(partition)
    store.changed()
    return config


def drop_all(store: MetadataStore) -> TableConfig:
    """Remove the complete metadata table. Returns the data table's new settings."""
    config = _update(store, {PARTITIONS: "", PARTITIONS_INFLIGHT: ""})
    _undefine(store, None)
    store.check_lock()
    store.data_storage.delete_folder(METADATA_FOLDER)
    store.changed()
    return config


def first_free_number(store: MetadataStore, partition: str, path: str | None) -> int:
    """The first number for new file groups, after all replaced ones: readers ignore a file group while the timeline
    records its id as replaced."""
    ids = [id_ for part, id_ in store.timeline.replaced_files if part == partition]
    kind = kind_of(partition)
    numbers = [group_number(id_) for id_ in ids if kind.data_partition_of(id_) == path]
    return max(numbers, default=-1) + 1


def define(store: MetadataStore, definitions: Sequence[IndexDefinition]) -> dict[str, str | None]:
    """Write index definitions, in place of definitions with the same names. Returns the change of the table's
    properties that belongs to it."""
    existing = load_definitions(store.data_storage, store.data_config)
    every = {**existing, **{definition.name: definition for definition in definitions}}
    store.check_lock()
    return write_definitions(store.data_storage, store.data_config, every.values())


def _undefine(store: MetadataStore, names: Collection[str] | None) -> None:
    store.check_lock()
    config = without_definitions(store.data_storage, store.data_config, names, store.lock_is_held)
    if config is not store.data_config:
        store.changed(config)


def without_definitions(
    storage: Storage, config: TableConfig, names: Collection[str] | None, lock_is_held: Callable[[], bool]
) -> TableConfig:
    """Remove the definitions of indexes with these names (None: of all) from a table, whose settings have been read
    under the lock. Returns the table's settings after that."""
    existing = load_definitions(storage, config)
    remaining = [definition for name, definition in existing.items() if names is not None and name not in names]
    if len(remaining) == len(existing):
        return config
    changes = write_definitions(storage, config, remaining)
    return update_table_config(storage, changes, lock_is_held) if changes else config


def drop_unfinished(store: MetadataStore) -> None:
    """Undo the builds of partitions by writers that died, and delete their folders. Partitions that an indexing of
    Hudi's builds while others write are not touched."""
    finish_rollbacks(store)
    if any(instant.action is Action.INDEXING for instant in store.data_timeline.pending):
        return
    unfinished = [instant for instant in store.pending(Action.DELTACOMMIT) if _builds_partition(store, instant)]
    if not unfinished:
        return
    store.check_lock()
    for folder in store.storage.list_folders():
        if find_kind(folder) is not None and folder not in store.partitions:
            store.storage.delete_folder(folder)
    for instant in unfinished:
        store.transitions.remove_pending(instant)
    store.changed()


def _builds_partition(store: MetadataStore, instant: Instant) -> bool:
    if store.version >= 8:
        return instant.time.startswith(INITIAL_INSTANT)
    digits = (
        instant.time.removeprefix(INITIAL_INSTANT)
        if instant.time.startswith(INITIAL_INSTANT)
        else suffix_of(instant.time)
    )
    return len(digits) == len("010") and int(digits) >= FIRST_BUILD


def _initial_instant(store: MetadataStore) -> str:
    """An unused instant for the build of the next partition."""
    used = {instant.time for instant in store.timeline.instants}
    # a build during writes is on the timeline only when it is complete
    building = store.data_config.metadata_partitions_inflight
    used |= {file.instant for partition in building for file in store.listed_files(partition)}
    if store.version >= 8:
        if not all(time.startswith(INITIAL_INSTANT) for time in used):
            used |= {instant.time for instant in store.timeline.archived().instants}
        # greater than all used ones, since lower ones are archived first, as long as three digits suffice
        last = max((int(time) for time in used if time.startswith(INITIAL_INSTANT)), default=-1)
        numbers = chain(range(last + 1, _MAX_BUILDS), range(last + 1))
        return next(time for number in numbers if (time := f"{number:017d}") not in used)
    completed = store.data_timeline.completed
    start = max((instant.time for instant in completed), default=INITIAL_INSTANT)
    numbers = range(FIRST_BUILD, FIRST_BUILD + len(used) + 1)
    return next(time for number in numbers if (time := f"{start}{number:03d}") not in used)


def _update(store: MetadataStore, changes: Mapping[str, Any]) -> TableConfig:
    store.check_lock()
    config = update_table_config(store.data_storage, changes, store.lock_is_held)
    store.changed(config)
    return config


def begin_building(
    store: MetadataStore,
    partition: str,
    counts: int | Mapping[str, int],
    definition: IndexDefinition | None,
    since: str,
) -> NewPartition | None:
    """Begin to build a partition while others write: create its file groups and have writers log to them, from the
    instant `since` on. A build whose process died is resumed. None if the partition is complete."""
    finish_rollbacks(store)
    if partition in store.data_config.metadata_partitions:
        return None
    previous = _begun(store, partition)
    if previous is not None and _is_completed(store, previous):  # its builder died before it wrote the properties
        show_complete(store, previous)
        return None
    if previous is not None and _is_unchanged(store, previous):
        _remove_base_files(store, previous)
        return previous
    store.check_lock()
    store.storage.delete_folder(partition)
    store.changed()
    new = new_partition(store, partition, counts)
    make_groups(store, new, logged_since=since)
    changes = {} if definition is None else define(store, [definition])
    store.check_lock()
    names = {*store.data_config.metadata_partitions_inflight, partition}
    changes[PARTITIONS_INFLIGHT] = ",".join(sorted(names))
    store.changed(update_table_config(store.data_storage, changes, store.lock_is_held))
    store.check_lock()  # others may have written before they saw the partition: the next builder reads the table again
    return new


def current_groups(store: MetadataStore, new: NewPartition) -> NewPartition:
    """The partition with its current file groups, including those of new partition paths. Raises `CommitConflict` if
    the partition was dropped."""
    if not _is_there(store, new):
        raise _changed(new)
    return NewPartition(new.partition, new.instant, file_groups(store, new.partition))


def complete_building(store: MetadataStore, new: NewPartition, written: Sequence[WrittenBase]) -> TableConfig:
    """Complete a partition with these base files: from now on readers use it. Returns the data table's new settings.

    Raises `CommitConflict` if the partition was dropped, or its file groups were compacted, since they were made.
    """
    if not _is_there(store, new) or not _is_unchanged(store, new):
        raise _changed(new)
    store.request(Action.DELTACOMMIT, new.instant)
    store.transitions.inflight(Action.DELTACOMMIT, new.instant)
    return complete_partition(store, new, written)


def _begun(store: MetadataStore, partition: str) -> NewPartition | None:
    """The build that another process began: its file groups, with the records that writers have logged, are used. None
    if there is none, or if `begin_building` did not begin it."""
    if partition not in store.data_config.metadata_partitions_inflight:
        return None
    instants = {
        file.instant
        for file in store.listed_files(partition)
        if isinstance(file, LogFile) and file.write_token == CREATION_TOKEN and file.instant.startswith(INITIAL_INSTANT)
    }
    if len(instants) != 1:
        return None
    previous = NewPartition(partition, instants.pop(), file_groups(store, partition))
    pending = next((i for i in store.pending(Action.DELTACOMMIT) if i.time == previous.instant), None)
    if pending is not None:  # it died as it completed
        store.transitions.remove_pending(pending)
        store.changed()
    return previous


def _is_there(store: MetadataStore, new: NewPartition) -> bool:
    return new.partition in store.data_config.metadata_partitions_inflight


def _changed(new: NewPartition) -> CommitConflict:
    return CommitConflict(
        f"{new.partition} was dropped or changed by another process while it was built",
        hint="Build it again.",
        context={"index": new.partition},
        kind=ConflictKind.TABLE,
    )


def _is_completed(store: MetadataStore, new: NewPartition) -> bool:
    archived = store.timeline.archived().instants  # a build is archived when later instants are
    return any(instant.time == new.instant for instant in (*store.timeline.completed, *archived))


def unpublished(store: MetadataStore, new: NewPartition, written: Sequence[WrittenBase]) -> list[WrittenBase]:
    """The base files that the completed build of the partition does not name; empty if the build is archived."""
    done = next((i for i in store.timeline.completed if i.time == new.instant), None)
    if done is None:
        return [] if _is_completed(store, new) else list(written)
    named = set(store.timeline.commit_metadata(done).paths)
    return [base for base in written if f"{base.partition}/{base.name}" not in named]


def _is_unchanged(store: MetadataStore, new: NewPartition) -> bool:
    """Whether no file group has a base file of another instant, which only a compaction of logs would write."""
    bases = [file for file in store.listed_files(new.partition) if isinstance(file, BaseFile)]
    ids = {group.file_id for group in new.groups}
    now = {group.file_id for group in file_groups(store, new.partition)}
    return ids <= now and all(file.instant == new.instant for file in bases)


def _remove_base_files(store: MetadataStore, new: NewPartition) -> None:
    files = store.listed_files(new.partition)
    store.check_lock()
    for file in files:
        if isinstance(file, BaseFile):
            store.storage.delete(file.path)
    store.changed()
