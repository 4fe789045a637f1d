"""Partitions that are built beside writers: those log to the new file groups from the moment that these are there,
while their base files are made from the table as it was then. Both together are what the table says.

The partition's file groups are made under an instant that comes to the timeline when the base files are complete: until
then no reader looks at it, and nobody takes its files for those of a dead writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.errors import CommitConflict
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.layout import INITIAL_INSTANT
from lakebed.metadata.store import creation
from lakebed.metadata.store.creation import PARTITIONS_INFLIGHT, NewPartition
from lakebed.metadata.store.deltacommit import file_groups
from lakebed.metadata.store.group_files import CREATION_TOKEN, WrittenBase
from lakebed.metadata.store.rollback import finish_rollbacks
from lakebed.metadata.store.store import MetadataStore
from lakebed.model import Action, BaseFile, LogFile
from lakebed.properties.file import update_table_config
from lakebed.properties.table_config import TableConfig


def begin(
    store: MetadataStore,
    partition: str,
    counts: int | Mapping[str, int],
    definition: IndexDefinition | None,
    since: str,
) -> NewPartition | None:
    """Make the file groups of a partition and have writers log to them, from the instant `since` on; what a builder
    began that died is taken up. None where the partition is complete."""
    finish_rollbacks(store)
    if partition in store.data_config.metadata_partitions:
        return None
    found = _begun(store, partition)
    if found is not None and _is_completed(store, found):  # its builder died before the properties said so
        creation.show_complete(store, partition)
        return None
    if found is not None and _is_unchanged(store, found):
        _remove_base_files(store, found)
        return found
    store.storage.delete_folder(partition)
    store.changed()
    new = creation.new_partition(store, partition, counts)
    creation.make_groups(store, new, logged_since=since)
    changes = {} if definition is None else creation.define(store, [definition])
    names = {*store.data_config.metadata_partitions_inflight, partition}
    changes[PARTITIONS_INFLIGHT] = ",".join(sorted(names))
    store.changed(update_table_config(store.data_storage, changes))
    return new


def groups_now(store: MetadataStore, new: NewPartition) -> NewPartition:
    """The same with the file groups that there are now: those of partition paths that came since. Raises
    `CommitConflict` where the partition was dropped."""
    if not _is_there(store, new):
        raise _changed(new)
    return NewPartition(new.partition, new.instant, file_groups(store, new.partition))


def complete(store: MetadataStore, new: NewPartition, written: Sequence[WrittenBase]) -> TableConfig:
    """Complete a partition with these base files: from now on readers use it. Gives the data table's new settings.

    Raises `CommitConflict` where the partition was dropped, or its file groups were compacted, since they were made.
    """
    if not _is_there(store, new) or not _is_unchanged(store, new):
        raise _changed(new)
    store.transitions.request(Action.DELTACOMMIT, new.instant)
    store.transitions.inflight(Action.DELTACOMMIT, new.instant)
    return creation.complete_partition(store, new, written)


def _begun(store: MetadataStore, partition: str) -> NewPartition | None:
    """What another builder began: its file groups go on, with what writers have logged to them. None where there is
    nothing, or nothing that `begin` made."""
    if partition not in store.data_config.metadata_partitions_inflight:
        return None
    instants = {
        file.instant
        for file in store.listed_files(partition)
        if isinstance(file, LogFile) and file.write_token == CREATION_TOKEN and file.instant.startswith(INITIAL_INSTANT)
    }
    if len(instants) != 1:
        return None
    found = NewPartition(partition, instants.pop(), file_groups(store, partition))
    pending = next((i for i in store.pending(Action.DELTACOMMIT) if i.time == found.instant), None)
    if pending is not None:  # it died as it completed
        store.transitions.remove_pending(pending)
        store.changed()
    return found


def _is_there(store: MetadataStore, new: NewPartition) -> bool:
    return new.partition in store.data_config.metadata_partitions_inflight


def _changed(new: NewPartition) -> CommitConflict:
    return CommitConflict(
        f"{new.partition} was dropped or changed by another process while it was built",
        hint="Build it again.",
        context={"index": new.partition},
    )


def _is_completed(store: MetadataStore, new: NewPartition) -> bool:
    return any(instant.time == new.instant for instant in store.timeline.completed)


def _is_unchanged(store: MetadataStore, new: NewPartition) -> bool:
    """Whether no file group has a base file of another instant: a compaction of logs alone."""
    bases = [file for file in store.listed_files(new.partition) if isinstance(file, BaseFile)]
    ids = {group.file_id for group in new.groups}
    now = {group.file_id for group in file_groups(store, new.partition)}
    return ids <= now and all(file.instant == new.instant for file in bases)


def _remove_base_files(store: MetadataStore, new: NewPartition) -> None:
    for file in store.listed_files(new.partition):
        if isinstance(file, BaseFile):
            store.storage.delete(file.path)
    store.changed()
