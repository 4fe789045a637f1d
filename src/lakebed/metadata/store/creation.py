"""Creating the metadata table, building its partitions, dropping them; the data table's properties follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lakebed.errors import TableExists
from lakebed.format.properties import dump_properties
from lakebed.metadata.kinds.definitions import (
    DEFINITIONS_PATH,
    DEFINITIONS_PROPERTY,
    IndexDefinition,
    dump_definitions,
    load_definitions,
)
from lakebed.metadata.layout import (
    FILES,
    INITIAL_INSTANT,
    METADATA_FOLDER,
    RECORD_INDEX,
    data_partition_of,
    file_id,
    group_number,
    is_known,
    metadata_properties,
    partition_metadata,
)
from lakebed.metadata.store.group_files import FileGroup, WrittenBase, sorted_by_key, write_base, write_creation_log
from lakebed.metadata.store.rollback import finish_rollbacks
from lakebed.metadata.store.store import OwnTable
from lakebed.model import Action, Instant
from lakebed.timeline.properties_file import create_table, update_table_config
from lakebed.timeline.table_config import TableConfig

PARTITIONS = "hoodie.table.metadata.partitions"
PARTITIONS_INFLIGHT = f"{PARTITIONS}.inflight"
_PARTITION_METADATA = ".hoodie_partition_metadata"
_OPERATION = "BULK_INSERT_PREPPED"
# The first of the digits that version 6 puts behind an instant for a partition that is built.
_FIRST_SUFFIX = 10


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """What one file group begins with: entries in any order, no key twice. `data_partition` goes with a partitioned
    record index."""

    keys: pa.StringArray
    values: pa.BinaryArray
    data_partition: str | None = None


@dataclass(frozen=True, slots=True)
class NewPartition:
    """A partition that is being built at this instant, with its file groups in the order of their ids."""

    partition: str
    instant: str
    groups: tuple[FileGroup, ...]


def create(own: OwnTable) -> None:
    """Make the metadata table where there is none; one without any completed instant is made anew."""
    if own.exists():
        if own.timeline.completed:
            return
        own.data_storage.delete_folder(METADATA_FOLDER)
        own.changed()
    try:
        create_table(own.storage, metadata_properties(own.data_config.name, own.version))
    except TableExists:  # its backup alone was left
        own.data_storage.delete_folder(METADATA_FOLDER)
        create_table(own.storage, metadata_properties(own.data_config.name, own.version))
    own.changed()


def begin_partition(own: OwnTable, partition: str, counts: int | Mapping[str, int]) -> NewPartition:
    """Make an empty partition with so many file groups (for each partition path of the data, where it is a partitioned
    record index) and show its building as inflight: base files may be written now."""
    drop_unfinished(own)
    if next(own.storage.list(partition), None) is not None:
        own.storage.delete_folder(partition)
        own.changed()
    instant = _initial_instant(own)
    wanted: Mapping[str | None, int] = {None: counts} if isinstance(counts, int) else {**counts}
    ids = [
        file_id(partition, first + number, path)
        for path, count in wanted.items()
        for first in [first_free_number(own, partition, path)]
        for number in range(count)
    ]
    groups = tuple(FileGroup(own.version, partition, id_, instant) for id_ in sorted(ids))
    own.transitions.request(Action.DELTACOMMIT, instant)
    own.transitions.inflight(Action.DELTACOMMIT, instant)
    body = dump_properties(partition_metadata(instant), "partition metadata", datetime.now(UTC))
    own.storage.put_if_absent(f"{partition}/{_PARTITION_METADATA}", body)
    own.side_by_side(lambda group: write_creation_log(own.data_storage, group, instant), groups)
    own.changed()
    return NewPartition(partition, instant, groups)


def complete_partition(
    own: OwnTable, new: NewPartition, written: Sequence[WrittenBase], definition: IndexDefinition | None = None
) -> TableConfig:
    """Complete the building of a partition with these base files (none for groups without records): from now on readers
    use it. Gives the data table's new settings."""
    own.complete(Action.DELTACOMMIT, new.instant, _OPERATION, [base.stat() for base in written])
    changes: dict[str, str | None] = {}
    if definition is not None:
        changes |= define(own, [definition])
    complete = {*own.data_config.metadata_partitions, new.partition}
    inflight = {*own.data_config.metadata_partitions_inflight} - {new.partition}
    changes |= {PARTITIONS: ",".join(sorted(complete)), PARTITIONS_INFLIGHT: ",".join(sorted(inflight))}
    return _update(own, changes)


def initialise(
    own: OwnTable, partition: str, groups: Sequence[GroupRecords], definition: IndexDefinition | None = None
) -> TableConfig:
    """Build a partition from records in memory: one entry of `groups` for each of its file groups, in order."""
    counts: int | dict[str, int] = len(groups)
    if groups and groups[0].data_partition is not None:
        counts = {}
        for group in groups:
            assert group.data_partition is not None
            counts[group.data_partition] = counts.get(group.data_partition, 0) + 1
    new = begin_partition(own, partition, counts)
    waiting: dict[str | None, list[FileGroup]] = {}
    for group in new.groups:
        waiting.setdefault(data_partition_of(group.file_id) if partition == RECORD_INDEX else None, []).append(group)
    filled = [(waiting[given.data_partition].pop(0), given) for given in groups]
    filled = [(group, given) for group, given in filled if len(given.keys)]

    def write(item: tuple[FileGroup, GroupRecords]) -> WrittenBase:
        group, given = item
        return write_base(own.data_storage, group, new.instant, [sorted_by_key(given.keys, given.values)])

    return complete_partition(own, new, own.side_by_side(write, filled), definition)


def drop(own: OwnTable, partitions: Sequence[str]) -> TableConfig:
    """Take partitions off: first the properties, so that nobody reads what is going. Without `files` nothing stays."""
    if FILES in partitions:
        return drop_all(own)
    gone = set(partitions)
    kept = [name for name in own.data_config.metadata_partitions if name not in gone]
    inflight = [name for name in own.data_config.metadata_partitions_inflight if name not in gone]
    config = _update(own, {PARTITIONS: ",".join(sorted(kept)), PARTITIONS_INFLIGHT: ",".join(sorted(inflight))})
    undefine(own, gone)
    for partition in partitions:
        own.storage.delete_folder(partition)
    own.changed()
    return config


def drop_all(own: OwnTable) -> TableConfig:
    """Take the whole metadata table off."""
    config = _update(own, {PARTITIONS: "", PARTITIONS_INFLIGHT: ""})
    undefine(own, None)
    own.data_storage.delete_folder(METADATA_FOLDER)
    own.changed()
    return config


def first_free_number(own: OwnTable, partition: str, path: str | None) -> int:
    """The first number for file groups behind those that were replaced: while the timeline says so of an id, nobody
    looks at a group that has it."""
    ids = [id_ for part, id_ in own.timeline.replaced_files() if part == partition]
    numbers = [group_number(id_) for id_ in ids if partition != RECORD_INDEX or data_partition_of(id_) == path]
    return max(numbers, default=-1) + 1


def define(own: OwnTable, definitions: Sequence[IndexDefinition]) -> dict[str, str | None]:
    """Write index definitions, in place of those of the same name; gives the property that says where they are."""
    known = load_definitions(own.data_storage, own.data_config)
    body = dump_definitions({**known, **{one.name: one for one in definitions}}.values(), own.version)
    own.data_storage.write(DEFINITIONS_PATH, body)
    return {DEFINITIONS_PROPERTY: own.data_config.properties.get(DEFINITIONS_PROPERTY) or DEFINITIONS_PATH}


def undefine(own: OwnTable, names: set[str] | None) -> None:
    """Take index definitions off, all without names."""
    known = load_definitions(own.data_storage, own.data_config)
    kept = [one for name, one in known.items() if names is not None and name not in names]
    if len(kept) < len(known):
        own.data_storage.write(DEFINITIONS_PATH, dump_definitions(kept, own.version))


def drop_unfinished(own: OwnTable) -> None:
    """Take back the building of partitions by writers that died, folders and all. Those that an indexing of Hudi's
    builds beside the writers are left alone."""
    finish_rollbacks(own)
    if any(instant.action is Action.INDEXING for instant in own.data_timeline.pending):
        return
    unfinished = [instant for instant in own.pending(Action.DELTACOMMIT) if _builds_partition(own, instant)]
    if not unfinished:
        return
    for folder in own.storage.list_folders():
        if is_known(folder) and folder not in own.partitions:
            own.storage.delete_folder(folder)
    for instant in unfinished:
        own.transitions.remove_pending(instant)
    own.changed()


def _builds_partition(own: OwnTable, instant: Instant) -> bool:
    if own.version >= 8:
        return instant.time.startswith(INITIAL_INSTANT)
    digits = (
        instant.time.removeprefix(INITIAL_INSTANT) if instant.time.startswith(INITIAL_INSTANT) else instant.time[17:]
    )
    return len(digits) == len("010") and int(digits) >= _FIRST_SUFFIX


def _initial_instant(own: OwnTable) -> str:
    """The instant at which the next partition is built: none that was used before."""
    used = {instant.time for instant in own.timeline.instants}
    if own.version >= 8:
        if not any(time.startswith(INITIAL_INSTANT) for time in used):
            used |= {instant.time for instant in own.timeline.archived().instants}
        return next(time for number in range(len(used) + 1) if (time := f"{number:017d}") not in used)
    completed = own.data_timeline.completed
    start = max((instant.time for instant in completed), default=INITIAL_INSTANT)
    numbers = range(_FIRST_SUFFIX, _FIRST_SUFFIX + len(used) + 1)
    return next(time for number in numbers if (time := f"{start}{number:03d}") not in used)


def _update(own: OwnTable, changes: Mapping[str, Any]) -> TableConfig:
    config = update_table_config(own.data_storage, changes)
    own.changed(config)
    return config
