"""Whether an action stores a record key again. The record index can hold only one location of a key.

Checked when the records of the index are made, by this process or by tasks, before the action completes. At that time
the index has the locations of all committed rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.metadata_kinds.base import TableAction
from lakebed.metadata_kinds.key_changes import ActionKeys
from lakebed.metadata_kinds.record_index import added_keys, data_partition_of, removed_keys
from lakebed.model import RECORD_INDEX
from lakebed.slices.metadata_lookups import MetadataLookups


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """A task function that finds the keys that an action stores again. `metadata` is None if the table has no rows
    yet."""

    metadata: MetadataLookups | None

    def of_group(self, rows: pa.Table, file_id: str) -> int:
        """The number of keys that are repeated by these changes of one file group of the record index (`key`, and
        whether it was `added`)."""
        added = rows.filter(rows["added"])["key"].combine_chunks()
        removed = rows.filter(pc.invert(rows["added"]))["key"].combine_chunks()
        return self.repeated(added, removed, data_partition_of(file_id))

    def repeated(self, added: pa.Array, removed: pa.Array, path: str | None) -> int:
        """The number of added keys that are added twice, or already have a location from which they are not removed; in
        one partition `path`, or anywhere (None)."""
        distinct = pc.unique(added)
        again = len(added) - len(distinct)
        if self.metadata is None or not len(distinct):
            return again
        locations = self.metadata.record_locations(distinct, path)
        stay = pc.invert(pc.is_in(locations["key"], value_set=removed))
        return again + int(pc.sum(stay, min_count=0).as_py())


@dataclass(slots=True)
class RepeatedKeys:
    """The repeated keys of one action. `check` is None if no check is needed. `rows` is the number of rows of the
    action whose key is stored more than once, None if that was not checked."""

    check: KeyCheck | None
    is_known: bool = False
    rows: int | None = field(default=None, init=False)

    @classmethod
    def of(cls, action: TableAction, *, looks_up: bool) -> RepeatedKeys:
        """The check for an action; an action that looks its keys up needs none. Earlier inserts of real Hudi count as
        repeated keys."""
        snapshot = action.snapshot
        config = snapshot.config
        if RECORD_INDEX not in action.partitions or config.repeats_keys:
            return cls(None)
        if snapshot.repeats_keys:
            return cls(None, is_known=True)
        if looks_up:
            return cls(None)
        metadata = snapshot.metadata if snapshot.commits else None
        # an index that is being built has no locations yet to compare with
        is_complete = metadata is not None and metadata.has(RECORD_INDEX)
        return cls(KeyCheck(metadata if is_complete else None))

    @property
    def looks(self) -> bool:
        """Whether keys are looked for in the record index."""
        return self.check is not None and self.check.metadata is not None

    def in_tasks(self, partition: str) -> KeyCheck | None:
        """The check that the tasks make which write the log files of this partition of the metadata table; None if
        there is nothing to check."""
        if self.check is None or partition != RECORD_INDEX:
            return None
        metadata = self.check.metadata
        return KeyCheck(None if metadata is None else metadata.to_be_sent(partition))

    def checked(self, rows: int) -> None:
        """Record the number of repeated keys that the tasks found."""
        self.rows = rows

    def found(self, action: TableAction) -> bool:
        """Whether the table holds a key several times, according to the changes of this action. The changes are only
        checked once."""
        if self.check is None or self.rows is not None:
            return self.is_known or bool(self.rows)
        keys = action.shared(ActionKeys)
        by_path: dict[str | None, tuple[list[pa.Array], list[pa.Array]]] = {}
        for group in keys.changes:
            path = group.partition if keys.indexes.partitioned else None
            added, removed = by_path.setdefault(path, ([], []))
            added.append(added_keys(group))
            removed.append(removed_keys(group))
        self.rows = sum(
            self.check.repeated(pa.concat_arrays(added), pa.concat_arrays(removed), path)
            for path, (added, removed) in by_path.items()
        )
        return bool(self.rows)
