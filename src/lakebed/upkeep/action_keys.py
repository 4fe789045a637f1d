"""The indexes of record keys that a table keeps, and what one action changes for them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from lakebed.concurrency.conflicts import CLUSTER_OPERATION
from lakebed.metadata.kinds.key_changes import GroupChanges
from lakebed.metadata.kinds.key_indexes import KeyIndexes
from lakebed.model import FileSlice
from lakebed.slices.listing import groups_of_ids
from lakebed.upkeep.changed_keys import group_changes, is_reported, on_their_slices, removed_changes
from lakebed.upkeep.kind import StoredTable, TableAction
from lakebed.write_status import WriteStatus


class ActionKeys:
    """The indexes of record keys that an action must keep, and the keys that it changed."""

    def __init__(self, action: TableAction) -> None:
        self._action = action
        snapshot = action.snapshot
        self.indexes = KeyIndexes.of(snapshot.storage, snapshot.config).of_partitions(action.partitions)

    @cached_property
    def changes(self) -> list[GroupChanges]:
        """The key changes of all file groups: first those that are replaced, which are read."""
        reader, fields, replaced = self._action.snapshot.reader, self.indexes.fields, self.replaced
        own = replace(reader, blocks=reader.blocks.with_own(self._action.instant))
        removed = removed_changes(reader, replaced, fields) if replaced else []
        return [*removed, *group_changes(own, self._on_their_slices(), fields)]

    def _on_their_slices(self) -> list[WriteStatus]:
        """The statuses; those of log files whose keys may have to be read with all files of their slice."""
        statuses = list(self._action.statuses)
        logs = [s for s in statuses if s.path is not None and s.log_files is not None]
        return on_their_slices(
            statuses, {s.file_id for s in logs if self.indexes.fields or not is_reported(s)}, self._action.snapshot
        )

    @cached_property
    def replaced(self) -> list[FileSlice]:
        """The slices of the file groups that the action replaces and whose keys may go; a clustering's stay, in other
        file groups."""
        if self._action.commit.operation == CLUSTER_OPERATION:
            return []
        ids = {(path, name) for path, names in self._action.commit.replaced.items() for name in names}
        if not ids:
            return []
        slices = self._action.snapshot.file_slices({p for p, _ in ids}, groups_of_ids({name for _, name in ids}))
        return [s for s in slices if (s.partition, s.file_id) in ids]


def stored_key_indexes(table: StoredTable) -> KeyIndexes:
    """The indexes of record keys that a table keeps."""
    return KeyIndexes.of(table.snapshot.storage, table.snapshot.config)
