"""The winning log records of a slice with the rows that they replace in its base file, for a slice that is read again
after each commit: only the blocks that came since are decoded, and only their keys are looked up.

The winner of a key among all records is the winner among that of the earlier blocks and the records of the later ones:
what a delete undid before it does not come back, and the delete stays until a record wins against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.format.bounded_cache import BoundedCache
from lakebed.merge.key_table import key_codes
from lakebed.merge.log_entries import KeyColumns, LogEntries, Positions, fold, joined
from lakebed.merge.rules import MergeRules
from lakebed.slices.base_rows import plain_rows
from lakebed.slices.log_rows import LogRows, Replacements
from lakebed.slices.logs import MergeCounts, SliceLogs
from lakebed.slices.merged import MergedSlice, OlderRows

_CACHED_BYTES = 64 << 20
_BLOCK_BITS = 40
RowNumbers = Callable[[pa.Array, KeyColumns], Positions]
"""Gives the number of the first base row with each key, -1 for a key without a row."""


@dataclass(frozen=True, slots=True)
class PlacedRecords:
    """Winning records of the `blocks` of a slice, one for each key, whose `positions` are rows of the base file (-1:
    the key has none). `rows` are those of the records that the slice shows, which `locations` names by block and row,
    ascending. `kinds` are the types in which ordering values are compared."""

    blocks: tuple[Any, ...]
    kinds: tuple[pa.DataType, ...]
    entries: LogEntries
    locations: Positions
    rows: pa.RecordBatch
    replacements: Replacements

    @property
    def nbytes(self) -> int:
        """The bytes in memory."""
        entries = self.entries
        arrays = [entries.keys, *entries.ordering, self.rows]
        numbers = [entries.deletes, entries.forced, entries.block, entries.row, self.locations]
        return sum([array.nbytes for array in [*arrays, *numbers]]) + self.replacements.nbytes


PLACED = BoundedCache[PlacedRecords](_CACHED_BYTES)
"""By the base file, the rules of the merge and the columns of the rows."""


def placed_records(merge: MergedSlice, older: OlderRows, row_numbers: RowNumbers) -> PlacedRecords | None:
    """The winning records of a merge of a base file without restrictions, under rules by which one record of each key
    is retained unchanged. None if the merge does not fit into memory, or its logs have row numbers of their own."""
    key = merge.log_rows_key
    if (
        key is None
        or not merge.logs.stays_open
        or merge.rules.key_fields
        or merge.logs.has_positions(merge.base_instant)
    ):
        return None
    (base, blocks, rules), *columns = key
    cached_as = base, rules, *columns
    before = PLACED.get(cached_as)
    if before is not None and before.blocks == blocks[: len(before.blocks)]:
        placed = _placed(merge, older, row_numbers, blocks, before)
    else:
        placed = None
    placed = placed or _placed(merge, older, row_numbers, blocks, None)
    if placed is not None:
        PLACED.put(cached_as, placed)
    return placed


def _placed(
    merge: MergedSlice, older: OlderRows, row_numbers: RowNumbers, blocks: tuple[Any, ...], before: PlacedRecords | None
) -> PlacedRecords | None:
    """The records of a slice from those of its first blocks, and the others; None if these do not suffice."""
    first = 0 if before is None else len(before.blocks)
    logs = SliceLogs(merge.logs.blocks[first:], MergeCounts(), merge.logs.memory)
    newer = replace(merge, logs=logs)
    entries = newer.winners
    entries = replace(
        entries, block=entries.block + np.int32(first), positions=row_numbers(entries.keys, merge.base_keys)
    )
    if before is not None:
        if before.kinds != newer.kinds:
            return None
        entries = _winners(joined([before.entries, entries], newer.kinds), merge.rules)
    forced = older.are_below(entries, merge.rules) if newer.kinds else entries.forced
    matching, replacements, replacing = replace(merge, log_winners=replace(entries, forced=forced)).matched
    is_displayed = np.zeros(len(entries), np.bool_)
    is_displayed[replacing] = is_displayed[matching.rest] = True
    displayed = entries.take(np.flatnonzero(is_displayed))
    locations = (displayed.block.astype(np.int64) << _BLOCK_BITS) | displayed.row
    rows = _rows(newer, displayed, locations, first, before)
    return None if rows is None else PlacedRecords(blocks, newer.kinds, entries, locations, rows, replacements)


def _winners(entries: LogEntries, rules: MergeRules) -> LogEntries:
    """The winning one of the records of each key. Records of keys that the base file has are told apart by its rows,
    which costs less than by their keys."""
    positions = entries.positions
    assert positions is not None
    inserted = np.flatnonzero(positions < 0)
    numbers = positions.copy()
    numbers[inserted] = -1 - key_codes(entries.keys.take(pa.array(inserted)))[0]
    return entries.take(fold(replace(entries, positions=numbers), rules, by_position=True))


def _rows(
    newer: MergedSlice, displayed: LogEntries, locations: Positions, first: int, before: PlacedRecords | None
) -> pa.RecordBatch | None:
    """The rows of the records that a slice shows: those of its first blocks as they were `before`, the others decoded.
    None if a record of the first blocks was not shown before."""
    old = int(np.searchsorted(displayed.block, first))
    decoded = displayed.take(np.arange(old, len(displayed)))
    columns = LogRows(newer.logs, replace(decoded, block=decoded.block - np.int32(first)), newer.schema, newer.names)
    batches = [plain_rows(batch) for batch in columns.batches(np.arange(len(decoded)))]
    if newer.columns is not None:
        batches = [batch.select(list(newer.columns)) for batch in batches]
    if before is not None and old:
        at = np.searchsorted(before.locations, locations[:old])
        if at[-1] >= len(before.locations) or (before.locations[at] != locations[:old]).any():
            return None
        batches.insert(0, before.rows.take(pa.array(at)))
    if not batches:
        columns_of = newer.columns or newer.schema.names
        kinds = [newer.schema.field(name) for name in columns_of]
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in kinds], names=list(columns_of))
    return pa.concat_batches(batches)
