"""The record keys that the file groups of a write gained and lost: reported by its tasks, inline or in side files below
the markers.

Where a task did not report them (the index is younger than the write), the slice and the one before are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.markers import marker_folder
from lakebed.metadata.kinds.key_changes import GroupChanges, KeyChanges, as_bytes, changes_schema, from_bytes
from lakebed.model import RECORD_KEY, FileSlice
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map
from lakebed.upkeep.stored_rows import stored_rows
from lakebed.write_status import WriteStatus, on_slice

# Changes up to this size travel with the status through the driver, larger ones in a file.
INLINE_BYTES = 16 << 10


def report_changes(storage: Storage, instant: str, path: str, changes: KeyChanges) -> dict[str, Any]:
    """The part of a status that says which keys a file gained and lost. Many are put into a side file in the folder of
    the instant's markers, with which it goes."""
    table = changes.table()
    if not table.num_rows:  # of these fields: an index that came meanwhile may have another
        return {"changes": as_bytes(table)}
    reported: dict[str, Any] = {"changed_keys": table.num_rows}
    if table.nbytes <= INLINE_BYTES:
        return reported | {"changes": as_bytes(table)}
    side_file = f"{marker_folder(instant)}/{path}.keys"
    storage.write(side_file, as_bytes(table, compressed=True))
    return reported | {"changes_file": side_file}


def is_reported(status: WriteStatus) -> bool:
    """Whether the task that wrote the file said which keys it gained and lost."""
    return status.changes is not None or status.changes_file is not None


def changes_in(storage: Storage, changes: bytes | None, changes_file: str | None, fields: Sequence[str]) -> pa.Table:
    """What a status says of its keys."""
    data = storage.read(changes_file) if changes_file else changes
    return from_bytes(data) if data else changes_schema(fields).empty_table()


def group_changes(
    reader: SliceReader, statuses: Sequence[WriteStatus], fields: Sequence[str] = ()
) -> list[GroupChanges]:
    """The key changes of each file that was written."""

    def read(status: WriteStatus) -> GroupChanges:
        if is_reported(status):
            changes = changes_in(reader.storage, status.changes, status.changes_file, fields)
            if set(changes_schema(fields).names) <= set(changes.column_names):
                return GroupChanges(status.partition, status.file_id, changes)
        return GroupChanges(status.partition, status.file_id, compared(reader, status, fields))

    return parallel_map(read, [s for s in statuses if s.path is not None])


def on_their_slices(
    statuses: Sequence[WriteStatus], appended: Collection[str], snapshot: Snapshot
) -> list[WriteStatus]:
    """The statuses, those of log files of some file ids with all files of the slices that they were added to."""
    if not appended:
        return list(statuses)
    paths = {s.partition for s in statuses if s.file_id in appended}
    slices = snapshot.file_slices(paths, groups_of_ids(appended))
    stored = {(s.partition, s.file_id): s for s in slices if s.file_id in appended}
    return [on_slice(s, stored.get((s.partition, s.file_id))) if s.file_id in appended else s for s in statuses]


def compared(reader: SliceReader, status: WriteStatus, fields: Sequence[str]) -> pa.Table:
    """The key changes of a file group, from the keys (and indexed fields) of its slice and of the one before it."""
    changes = KeyChanges(tuple(fields))
    earlier, written = status.slices()
    after = stored_rows(reader, written, changes.columns)
    if earlier is None:
        changes.added(after)
        return changes.table()
    note_differences(changes, stored_rows(reader, earlier, changes.columns), after)
    return changes.table()


def note_differences(changes: KeyChanges, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
    """Note what makes `after` of `before`, rows of one file group at two times."""
    at = pc.index_in(before.column(RECORD_KEY), value_set=after.column(RECORD_KEY))
    changes.removed(before.filter(at.is_null()))
    changes.added(after.filter(pc.invert(pc.is_in(after.column(RECORD_KEY), value_set=before.column(RECORD_KEY)))))
    changes.updated(before.filter(at.is_valid()), after.take(at.drop_null()))


def removed_changes(
    reader: SliceReader, slices: Collection[FileSlice], fields: Sequence[str] = ()
) -> list[GroupChanges]:
    """The key changes of file groups that are replaced: all their keys go."""

    def read(file_slice: FileSlice) -> GroupChanges:
        changes = KeyChanges(tuple(fields))
        changes.removed(stored_rows(reader, file_slice, changes.columns))
        return GroupChanges(file_slice.partition, file_slice.file_id, changes.table())

    return parallel_map(read, list(slices))
