"""The indexes of record keys that a table keeps, and what one action changes for them."""

from __future__ import annotations

from functools import cached_property

from lakebed.metadata.kinds.key_indexes import KeyIndexes
from lakebed.metadata.kinds.record_index_updates import GroupChanges
from lakebed.model import FileSlice
from lakebed.slices.listing import groups_of_ids
from lakebed.upkeep.changed_keys import group_changes, removed_changes
from lakebed.upkeep.kind import StoredTable, TableAction


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
        removed = removed_changes(reader, replaced, fields) if replaced else []
        return [*removed, *group_changes(reader, self._action.statuses, fields)]

    @cached_property
    def replaced(self) -> list[FileSlice]:
        """The slices of the file groups that the action replaces."""
        ids = {(path, name) for path, names in self._action.commit.replaced.items() for name in names}
        if not ids:
            return []
        slices = self._action.snapshot.file_slices({p for p, _ in ids}, groups_of_ids({name for _, name in ids}))
        return [s for s in slices if (s.partition, s.file_id) in ids]


def stored_key_indexes(table: StoredTable) -> KeyIndexes:
    """The indexes of record keys that a table keeps."""
    return KeyIndexes.of(table.snapshot.storage, table.snapshot.config)
