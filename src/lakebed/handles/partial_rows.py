"""Rows that lack columns of the table, as the log files of a file group can hold them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.handles.base import GroupWrite
from lakebed.merge.incoming import Incoming
from lakebed.merge.pairs import Side, merge_into, stacked
from lakebed.merge.rules import MergeRules
from lakebed.model import IS_DELETED_COLUMN, META_COLUMNS, RECORD_KEY, has_completion_times
from lakebed.schema.conversion import project
from lakebed.upkeep.stored_rows import stored_rows


def appendable(group: GroupWrite, incoming: Incoming) -> tuple[Incoming, tuple[str, ...]]:
    """The rows of a log file, and the columns that its blocks leave out.

    Before table version 8 there are no such blocks, and real Hudi does not read them right in slices without a base
    file, nor where they lack the column that marks deletes: there the rows are filled from the stored ones, and rows
    that lose to them are left out. So they are where a key was deleted: a record behind a delete takes the columns that
    it lacks from the base file, where the deleted row still is.
    """
    if not incoming.absent and not incoming.required:
        return incoming, ()
    file_slice = group.target.slice
    if file_slice is None:
        if group.target.stored_in:
            return _filled(group, incoming), ()
        incoming.require_whole()
        return incoming, ()
    blocks = has_partial_blocks(group.reader.config.version, group.rules, incoming.absent)
    if not blocks or not incoming.absent or file_slice.base_file is None:
        return _filled(group, incoming), ()
    deletes = group.reader.logs(file_slice).has_deletes
    if incoming.required or deletes:
        known = stored_rows(group.reader, file_slice, [RECORD_KEY], keys=incoming.keys).column(RECORD_KEY)
        is_known = pc.is_in(incoming.keys, value_set=known).to_numpy(zero_copy_only=False)
        incoming.require_whole(np.flatnonzero(~is_known & ~incoming.deletes))
        if deletes and not is_known.all():
            return _filled(group, incoming), ()
    return incoming, incoming.absent


def has_partial_blocks(version: int, rules: MergeRules, absent: Sequence[str]) -> bool:
    """Whether log blocks may leave out these columns."""
    return has_completion_times(version) and not {IS_DELETED_COLUMN, rules.delete_field} & set(absent)


def partial_schema(avro: str, absent: Sequence[str]) -> str:
    """The Avro schema of a block without some columns."""
    record = json.loads(avro)
    return json.dumps(
        {**record, "fields": [f for f in record["fields"] if f["name"] not in absent]}, separators=(",", ":")
    )


def _filled(group: GroupWrite, incoming: Incoming) -> Incoming:
    """Whole rows: what the merge with the stored rows makes of known keys."""
    schema = pa.schema([f for f in group.format.schema if f.name not in META_COLUMNS])
    loose = pa.schema([f.with_nullable(True) for f in schema])
    names = [RECORD_KEY, *schema.names]
    parts = [stored_rows(group.reader, one, names, keys=incoming.keys) for one in group.target.stored_in]
    stored = pa.concat_batches([project(part, loose) for part in parts])
    held = pa.concat_arrays([part.column(RECORD_KEY) for part in parts])
    found = pc.fill_null(pc.index_in(incoming.keys, value_set=held), -1).to_numpy()
    known = np.flatnonzero((found >= 0) & ~incoming.forced)
    new = np.flatnonzero(found < 0)
    incoming.require_whole(new[~incoming.deletes[new]])
    older = Side.of(stored.take(pa.array(found[known])))
    made, changed = merge_into(group.rules, older, incoming.side(known))
    every = np.arange(incoming.rows)
    places = every.copy()
    places[known] = incoming.rows + np.arange(len(known))
    both = stacked(incoming.take(every), made.rows)
    data = pa.Table.from_batches([both.take(pa.array(places))])
    deletes = incoming.deletes.copy()
    deletes[known] = made.deletes
    kept = np.ones(incoming.rows, dtype=bool)
    kept[known[~changed]] = False
    return incoming.with_rows(data, deletes).where(kept)
