"""What rows that are appended to a file slice do to its keys, for inserts that look and for the indexes of keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.handles.base import GroupWrite
from lakebed.merge.incoming import Incoming
from lakebed.merge.row_merge import refuse_known
from lakebed.metadata.kinds.key_changes import KeyChanges
from lakebed.model import RECORD_KEY, FileSlice, LogFile
from lakebed.timeline.file_slices import in_merge_order
from lakebed.upkeep.changed_keys import note_differences
from lakebed.upkeep.stored_rows import stored_rows


def without_known(group: GroupWrite, incoming: Incoming) -> Incoming:
    """The rows whose keys the slice does not hold, for an insert that leaves known keys out; `InvalidRecord` for one
    that refuses them. Other writes do not look."""
    if not group.takes_new_keys_only:
        return incoming
    known = np.zeros(incoming.rows, bool)
    for one in group.target.stored_in:
        stored = stored_rows(group.reader, one, [RECORD_KEY], keys=incoming.keys).column(RECORD_KEY)
        known |= pc.is_in(incoming.keys, value_set=stored).to_numpy(zero_copy_only=False)
    if not known.any():
        return incoming
    if group.on_match == "fail":
        raise refuse_known(incoming.keys[int(np.argmax(known))].as_py(), group.partition)
    return incoming.where(~known)


def appended_changes(group: GroupWrite, incoming: Incoming, written: Sequence[LogFile]) -> KeyChanges | None:
    """The keys that log files, just written, add to the slice and take off it; None where nobody asks.

    A key that an index found is there, and stays with a new row; a delete that wins whatever the ordering value is
    takes it off. All else (a delete that may lose, a key that nobody looked for, a value of an indexed field) shows
    when the rows of the keys are merged without these files and with them.
    """
    changes = group.format.key_changes()
    if changes is None:
        return None
    before = group.target.slice
    if before is None:
        alive = np.flatnonzero(~incoming.deletes)
        changes.added(_rows(incoming, alive, changes.columns))
        return changes
    keys = incoming.keys
    if group.located and not changes.fields:
        certain = incoming.forced if group.rules.ordering else np.ones(incoming.rows, bool)
        changes.removed(_rows(incoming, np.flatnonzero(incoming.deletes & certain), [RECORD_KEY]))
        keys = keys.filter(pa.array(incoming.deletes & ~certain))
    if len(keys):
        after = with_logs(before, written)
        own = replace(group.reader, blocks=group.reader.blocks.with_own(group.instant))
        sides = (stored_rows(own, side, changes.columns, keys=keys) for side in (before, after))
        note_differences(changes, *sides)
    return changes


def _rows(incoming: Incoming, rows: np.ndarray, columns: Sequence[str]) -> pa.RecordBatch:
    """Keys and some columns of these rows."""
    keys = incoming.keys.take(pa.array(rows))
    others = [name for name in columns if name in incoming.columns]
    data = incoming.take(rows, others) if others else None
    arrays = [data.column(name) for name in others] if data is not None else []
    return pa.RecordBatch.from_arrays([keys, *arrays], names=[RECORD_KEY, *others])


def with_logs(file_slice: FileSlice, logs: Sequence[LogFile]) -> FileSlice:
    """A slice with more log files."""
    return replace(file_slice, log_files=tuple(in_merge_order((*file_slice.log_files, *logs))))
