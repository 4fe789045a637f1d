"""Lists inside lists as Spark hands them over: where there is not one inner list, Java writes no offsets. Arrow reads
the first one all the same where it counts bytes or writes a stream, and the process dies of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.types as pt


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with offsets for all lists and maps in it.

    >>> batch = pa.record_batch({"x": [[["a"]], []]})
    >>> with_offsets(batch).equals(batch)
    True
    """
    given = batch.columns
    columns = [_filled(column) for column in given]
    if all(new is old for new, old in zip(columns, given, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def table_with_offsets(table: pa.Table) -> pa.Table:
    """The same for all batches of a table."""
    if not any(_holds_lists(kind) for kind in table.schema.types):
        return table
    return pa.Table.from_batches([with_offsets(batch) for batch in table.to_batches()], table.schema)


@cache
def _holds_lists(kind: pa.DataType) -> bool:
    """Whether lists or maps stand anywhere in a type."""
    if _is_list(kind):
        return True
    return pt.is_struct(kind) and any(_holds_lists(kind.field(n).type) for n in range(kind.num_fields))


def _is_list(kind: pa.DataType) -> bool:
    return pt.is_list(kind) or pt.is_map(kind)


def _filled(array: Any) -> Any:
    kind = array.type
    if array.offset or not _holds_lists(kind):
        return array
    if not len(array):
        return pa.array([], kind)
    if _is_list(kind):
        own, inside = 2, [array.values]
    else:
        own, inside = 1, [array.field(n) for n in range(kind.num_fields)]
    filled = [_filled(one) for one in inside]
    if all(new is old for new, old in zip(filled, inside, strict=True)):
        return array
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:own], array.null_count, children=filled)
