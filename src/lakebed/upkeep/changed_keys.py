"""The record keys that a write's files gained and lost: told by the tasks, inline or in side files below the markers.

Where a task did not tell (the index is younger than the write), old and new file are read and compared.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.base_file import read_base_file
from lakebed.metadata.kinds.key_changes import KeyChanges, as_bytes, changes_schema, from_bytes
from lakebed.metadata.kinds.record_index_updates import GroupChanges
from lakebed.model import RECORD_KEY, BaseFile, path_in
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.markers import marker_folder
from lakebed.upkeep.write_status import WriteStatus

# Changes up to this size travel with the status through the driver, larger ones in a file.
INLINE_BYTES = 16 << 10
T = TypeVar("T")
R = TypeVar("R")


def tell_changes(storage: Storage, instant: str, path: str, changes: KeyChanges) -> dict[str, Any]:
    """The part of a status that says which keys a file gained and lost. Many are put into a side file in the folder of
    the instant's markers, with which it goes."""
    table = changes.table()
    if not table.num_rows:
        return {"changes": b""}
    told: dict[str, Any] = {"changed_keys": table.num_rows}
    if table.nbytes <= INLINE_BYTES:
        return told | {"changes": as_bytes(table)}
    side_file = f"{marker_folder(instant)}/{path}.keys"
    storage.write(side_file, as_bytes(table, compressed=True))
    return told | {"changes_file": side_file}


def was_told(status: WriteStatus) -> bool:
    """Whether the task that wrote the file said which keys it gained and lost."""
    return status.changes is not None or status.changes_file is not None


def changes_in(storage: Storage, changes: bytes | None, changes_file: str | None, fields: Sequence[str]) -> pa.Table:
    """What a status says of its keys."""
    data = storage.read(changes_file) if changes_file else changes
    return from_bytes(data) if data else changes_schema(fields).empty_table()


def group_changes(storage: Storage, statuses: Sequence[WriteStatus], fields: Sequence[str] = ()) -> list[GroupChanges]:
    """The key changes of each file that was written."""

    def read(status: WriteStatus) -> GroupChanges:
        if was_told(status):
            changes = changes_in(storage, status.changes, status.changes_file, fields)
            if set(changes_schema(fields).names) <= set(changes.column_names):
                return GroupChanges(status.partition, status.file_id, changes)
        return GroupChanges(status.partition, status.file_id, compared(storage, status, fields))

    return parallel_map(read, [s for s in statuses if s.path is not None])


def compared(storage: Storage, status: WriteStatus, fields: Sequence[str]) -> pa.Table:
    """The key changes of a file, from the keys (and indexed fields) of it and of the one before it."""
    assert status.path is not None
    folder = status.path.rpartition("/")[0]
    changes = KeyChanges(tuple(fields))
    after = stored_keys(storage, status.path, changes.columns)
    if not status.prev_base_file:
        changes.added(after)
        return changes.table()
    path = path_in(folder, status.prev_base_file)
    before = stored_keys(storage, path, changes.columns)
    at = pc.index_in(before.column(RECORD_KEY), value_set=after.column(RECORD_KEY))
    changes.removed(before.filter(at.is_null()))
    changes.added(after.filter(pc.invert(pc.is_in(after.column(RECORD_KEY), value_set=before.column(RECORD_KEY)))))
    changes.updated(before.filter(at.is_valid()), after.take(at.drop_null()))
    return changes.table()


def removed_changes(storage: Storage, files: Collection[BaseFile], fields: Sequence[str] = ()) -> list[GroupChanges]:
    """The key changes of file groups that are replaced: all their keys go."""

    def read(file: BaseFile) -> GroupChanges:
        changes = KeyChanges(tuple(fields))
        changes.removed(stored_keys(storage, file.path, changes.columns, file.size))
        return GroupChanges(file.partition, file.file_id, changes.table())

    return parallel_map(read, list(files))


def stored_keys(storage: Storage, path: str, columns: Sequence[str], size: int | None = None) -> pa.RecordBatch:
    """Some columns of a base file as one batch; one that it does not have is left out."""
    batches = list(read_base_file(storage, path, size, columns))
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], pa.string())], names=[RECORD_KEY])
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
