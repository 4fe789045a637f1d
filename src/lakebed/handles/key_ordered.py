"""Stored rows in the order of their keys, for files that are kept so.

The file alone says which order it has, not the table's settings: any writer may have written it. A file
whose row groups follow one another by their statistics comes a few row groups at a time, each put in order where it is
not; every other file is sorted as a whole, once, since what is written from it has such row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.engine.spill import Spill
from lakebed.format.footer_cache import key_ranges
from lakebed.format.key_order import key_order
from lakebed.merge.incoming import gather
from lakebed.model import RECORD_KEY

# Rows that come at a time: whole row groups up to about the first, no more than the others.
_STEP_ROWS = 1 << 16
_MOST_ROWS = 1 << 18
_MOST_BYTES = 128 << 20

Step = tuple[pa.RecordBatch, str | None]
"""A batch, and a key that no later row is below (None: no row follows)."""


def in_key_order(batches: Iterator[pa.RecordBatch], metadata: Any, spill: Spill) -> Iterator[Step]:
    """The rows of a file, of which `metadata` is Parquet's, in the order of their keys. `spill` holds them where all
    have to be sorted together."""
    steps = row_group_steps(metadata)
    if steps is None:
        yield from sorted_as_a_whole(batches, spill)
        return
    for rows, following in steps:
        parts: list[pa.RecordBatch] = []
        while sum(part.num_rows for part in parts) < rows:
            parts.append(next(batches))
        batch = parts[0] if len(parts) == 1 else _one_batch(parts)
        order = key_order(batch.column(RECORD_KEY))
        yield batch if order is None else batch.take(pa.array(order)), following


def row_group_steps(metadata: Any) -> list[tuple[int, str | None]] | None:
    """Runs of row groups that follow one another in the order of their keys: rows of each, and a key that no later row
    is below. None where a run would be too large to be held, or the file does not tell.
    """
    ranges = [r for r in key_ranges(metadata) if r is not None]
    count = metadata.num_row_groups
    if len(ranges) < count:
        return None
    # Python orders texts by code points, which is the order of their UTF-8 bytes
    greatest = list(accumulate((high for _, high in ranges), max))
    least = list(accumulate((low for low, _ in reversed(ranges)), min))[::-1]
    steps: list[tuple[int, str | None]] = []
    rows = size = 0
    for number in range(count):
        group = metadata.row_group(number)
        rows, size = rows + group.num_rows, size + group.total_byte_size
        if rows > _MOST_ROWS or size > _MOST_BYTES:
            return None
        following = least[number + 1] if number + 1 < count else None
        fits = following is None or greatest[number] <= following
        if fits and (following is None or rows + metadata.row_group(number + 1).num_rows > _STEP_ROWS):
            steps.append((rows, following))
            rows = size = 0
    return [step for step in steps if step[0]]


def sorted_as_a_whole(batches: Iterator[pa.RecordBatch], spill: Spill) -> Iterator[Step]:
    """All rows, held together until the last has come, in the order of their keys."""
    spill.extend(map(decoded, batches))
    table = spill.table(pa.schema([(RECORD_KEY, pa.string())]))
    if not table.num_rows:
        return
    keys = table.column(RECORD_KEY).combine_chunks()
    order = key_order(keys)
    order = np.arange(len(keys)) if order is None else order
    size = max(1, min(_STEP_ROWS, _MOST_BYTES * len(keys) // max(1, table.nbytes)))
    for start in range(0, len(order), size):
        following = keys[int(order[start + size])].as_py() if start + size < len(order) else None
        yield gather(table, order[start : start + size]), following


def _one_batch(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(parts).unify_dictionaries().combine_chunks().to_batches()[0]


def decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without dictionaries, of which a file of batches can have one a column only."""
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
