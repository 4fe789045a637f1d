"""Rows of keys that log files of their file group delete, with greater ordering values or above a base row with one.

A late row of an upsert stays deleted. A row that a merge inserts, or that an update moves to another partition path,
has to be seen, whatever was deleted there before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CommitConflict, ConflictKind
from lakebed.handles.append import AppendHandle
from lakebed.handles.base import GroupWrite, Handle
from lakebed.handles.merge import MergeHandle
from lakebed.merge.incoming import Incoming, Positions
from lakebed.merge.log_entries import LogEntries
from lakebed.model import IS_DELETED_COLUMN, RECORD_KEY, FileSlice
from lakebed.schema.evolution import cast_column
from lakebed.schema.plain_arrow import as_numpy, one_array
from lakebed.slices.key_rows import rows_of_keys

_NOTHING = np.array([], np.int64)


def revealing(group: GroupWrite, incoming: Incoming, handle: Handle) -> Handle:
    """The handle to write the rows with: `handle`, or another one if readers would not see a row of a new key. That
    handle rewrites the base file, or, if there is none, first writes a delete that overrides all earlier ones. Raises
    `CommitConflict` for a file group that must not be rewritten now."""
    hidden = hidden_rows(group, incoming)
    if not len(hidden):
        return handle
    target = group.target
    if target.slice is not None and target.slice.base_file is None:
        return AppendHandle(group, undeleted=incoming.keys.take(pa.array(hidden)))
    waits = target.slice is None or target.log_instant is not None
    if waits or not group.job.may_rewrite:
        key = incoming.keys[int(hidden[0])].as_py()
        raise CommitConflict(
            f"record key {key!r} comes back to file group {target.file_id} in partition {group.partition!r}, whose log"
            " files delete it with a greater ordering value, and the file group cannot be rewritten "
            + ("while a service is about to do so" if waits else "by writers that do not wait for one another"),
            hint="Nothing of this write is visible. Run it again after "
            + (
                "t.maintenance.cluster()."
                if target.slice is None
                else "t.maintenance.compact(): retries= waits for one that runs."
            ),
            context={"record_key": key, "partition": group.partition, "file_id": target.file_id},
            kind=ConflictKind.PLANNED,
        )
    return MergeHandle(group)


def hidden_rows(group: GroupWrite, incoming: Incoming) -> Positions:
    """The positions of incoming rows whose keys the file group does not show, and would not show after an append
    either."""
    rules = group.job.rules
    slices = [file_slice for file_slice in group.target.stored_in if file_slice.log_files]
    if not rules.ordering or not slices or not set(rules.ordering_columns) <= set(incoming.columns):
        return _NOTHING
    alive = np.flatnonzero(~incoming.deletes)
    parts = [_hidden_in(group, file_slice, incoming, alive) for file_slice in slices] if len(alive) else []
    return np.unique(np.concatenate([_NOTHING, *parts]))


def _hidden_in(group: GroupWrite, file_slice: FileSlice, incoming: Incoming, alive: Positions) -> Positions:
    reader, rules = group.job.reader, group.job.rules
    logs = reader.logs(file_slice)
    marks = {IS_DELETED_COLUMN, rules.delete_field} & set(group.job.format.schema.names)
    if not (logs.has_deletes or marks):
        return _NOTHING
    keys = incoming.keys.take(pa.array(alive))
    compared = pa.schema([group.job.format.schema.field(name) for name in rules.ordering_columns])
    deletes = replace(reader, opened=logs).open_merge(file_slice, compared, None, keys=keys).deletes()
    at = as_numpy(pc.fill_null(pc.index_in(keys, value_set=deletes.keys), -1))
    alive, at = alive[at >= 0], at[at >= 0]
    if not len(alive):
        return _NOTHING
    rows = incoming.take(alive, rules.ordering_columns)
    kinds = [values.type for values in rules.ordering_of(rows)]
    return alive[_loses(group, file_slice, incoming.keys.take(pa.array(alive)), rows, deletes.take(at), kinds)]


def _loses(
    group: GroupWrite,
    file_slice: FileSlice,
    keys: pa.Array,
    rows: pa.RecordBatch,
    deletes: LogEntries,
    kinds: list[pa.DataType],
) -> np.ndarray:
    """Flags of the rows that lose against the delete of their key, or against the base row that it hides. A base row
    that wins over the delete is visible: the rules decide between it and the row."""
    rules = group.job.rules
    new = rules.ordering_of(rows)
    deleted = [cast_column(values, kind) for values, kind in zip(deletes.ordering, kinds, strict=True)]
    loses = ~deletes.forced & ~_flags(rules.newer_wins(deleted, new))
    if file_slice.base_file is None:
        return loses
    ordered = keys.take(pc.sort_indices(keys))
    columns = rules.ordering_columns
    batches = rows_of_keys(group.job.reader, file_slice.without_logs(), ordered, columns)
    stored = (
        pa.Table.from_batches([b.select([RECORD_KEY, *columns]) for b in batches if b.num_rows]) if batches else None
    )
    if stored is None or not stored.num_rows:
        return loses
    at = pc.index_in(keys, value_set=one_array(stored.column(RECORD_KEY)).cast(pa.string()))
    has_base_row = as_numpy(pc.is_valid(at))
    base = [cast_column(values.take(at), kind) for values, kind in zip(rules.ordering_of(stored), kinds, strict=True)]
    is_seen = has_base_row & ~deletes.forced & ~_flags(rules.newer_wins(base, deleted))
    return (loses | (has_base_row & ~_flags(rules.newer_wins(base, new)))) & ~is_seen


def _flags(values: pa.Array) -> np.ndarray:
    return as_numpy(values)
