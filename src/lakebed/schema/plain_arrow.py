"""What `to_numpy` of an array, and `sort_by`, `group_by` and `filter` (by an expression) of a table give, without the
import of pandas that comes with these (see `lakebed/deferred_pandas.py`); and what a list is in Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

# `pyarrow.acero`, which has them by these names, imports `pyarrow.dataset`
from pyarrow._acero import (
    AggregateNodeOptions,
    Declaration,
    FilterNodeOptions,
    HashJoinNodeOptions,
    ProjectNodeOptions,
    TableSourceNodeOptions,
)

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)
_NULL = pa.null()
_LISTS = frozenset(
    kind.id
    for kind in (
        pa.list_(_NULL),
        pa.large_list(_NULL),
        pa.list_(_NULL, 1),
        pa.list_view(_NULL),
        pa.large_list_view(_NULL),
    )
)
_INTEGERS = (pa.int8, pa.int16, pa.int32, pa.int64, pa.uint8, pa.uint16, pa.uint32, pa.uint64)
# The classes of NumPy by the ids of types.
_CLASSES: Mapping[int, Any] = {
    make().id: make().to_pandas_dtype() for make in (*_INTEGERS, pa.float16, pa.float32, pa.float64)
}


def is_list(kind: pa.DataType) -> bool:
    """Whether the type is one of Arrow's list layouts."""
    return kind.id in _LISTS


def has_map(kind: pa.DataType) -> bool:
    """Whether a type is a map, or has one at any depth.

    >>> has_map(pa.list_(pa.map_(pa.string(), pa.int64()))), has_map(pa.list_(pa.int64()))
    (True, False)
    """
    return pt.is_map(kind) or any(has_map(kind.field(number).type) for number in range(kind.num_fields))


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The values of a column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def as_numpy(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """The values as `to_numpy(zero_copy_only=False)` returns them. Only values with nulls, and values of other types
    than booleans, integers and floats, let pyarrow import pandas.

    >>> as_numpy(pa.array([3, 1], pa.int32())), as_numpy(pa.array([True, False])[1:])
    (array([3, 1], dtype=int32), array([False]))
    """
    kind = values.type
    numbers = _CLASSES.get(kind.id)
    if values.null_count or (numbers is None and not pt.is_boolean(kind)):
        return values.to_numpy(zero_copy_only=False)
    if isinstance(values, pa.ChunkedArray):
        parts = [as_numpy(chunk) for chunk in values.chunks] or [as_numpy(pa.array([], kind))]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    data, end = values.buffers()[1], values.offset + len(values)
    if numbers is None:
        bits = np.frombuffer(b"" if data is None else data, np.uint8)
        return np.unpackbits(bits, count=end, bitorder="little")[values.offset :].view(np.bool_)
    return np.frombuffer(b"" if data is None else data, numbers, count=end)[values.offset :]


def sorted_rows(table: pa.Table, by: Sequence[tuple[str, Literal["ascending", "descending"]]]) -> pa.Table:
    """The rows sorted by the columns in `by`; nulls are last, and rows that are equal in all of these columns retain
    their order."""
    return table.take(pc.sort_indices(table, sort_keys=list(by)))


def grouped_rows(table: pa.Table, by: Sequence[str], aggregations: Sequence[tuple[Any, ...]]) -> pa.Table:
    """The groups of rows that are equal in `by`, in the order of their first rows: these columns, then a column for
    each aggregation, as `pyarrow.TableGroupBy.aggregate` takes and names them.

    >>> rows = pa.table({"city": ["Oslo", "Rome", "Oslo"], "fare": [1, 2, 3]})
    >>> grouped_rows(rows, ["city"], [("fare", "sum"), ([], "count_all")]).to_pylist()
    [{'city': 'Oslo', 'fare_sum': 4, 'count_all': 2}, {'city': 'Rome', 'fare_sum': 2, 'count_all': 1}]
    """
    aggregates: list[tuple[list[str], str, Any, str]] = []
    for column, function, *options in aggregations:
        columns = [column] if isinstance(column, str) else list(column)
        name = "_".join([*columns, function])
        aggregates.append((columns, f"hash_{function}" if by else function, *(options or [None]), name))
    return _of_table(table, Declaration("aggregate", AggregateNodeOptions(aggregates, keys=list(by))))


def text_scalar(text: str | None) -> pa.StringScalar:
    """A text as a scalar that has its type: to infer one Arrow imports pandas.

    >>> text_scalar("a")
    <pyarrow.StringScalar: 'a'>
    """
    return pa.scalar(text, pa.string())


def matching_rows(rows: _Rows, condition: pc.Expression) -> _Rows:
    """The rows for which the condition is true, as a table or a batch, whichever they are."""
    if isinstance(rows, pa.Table):
        return _of_table(rows, Declaration("filter", FilterNodeOptions(condition)), use_threads=True)
    table = matching_rows(pa.Table.from_batches([rows]), condition).combine_chunks()
    return table.to_batches()[0] if len(table) else rows.slice(0, 0)


def matches(
    left: pa.Table, right: pa.Table, on: Sequence[str], how: Literal["inner", "left outer"], columns: tuple[str, str]
) -> pa.Table:
    """The pairs of rows that are equal in `on`, in any order: one column of the left rows and one of the right ones,
    which is null beside a left row without a match."""
    sides = [Declaration("table_source", TableSourceNodeOptions(rows)) for rows in (left, right)]
    options = HashJoinNodeOptions(how, list(on), list(on), left_output=[columns[0]], right_output=[columns[1]])
    return Declaration("hashjoin", options, inputs=sides).to_table(use_threads=False)


def computed_columns(table: pa.Table, expressions: Sequence[pc.Expression]) -> pa.Table:
    """The values of expressions in each row, as columns "0", "1" and so on."""
    names = [str(number) for number in range(len(expressions))]
    return _of_table(table, Declaration("project", ProjectNodeOptions(list(expressions), names)))


def _of_table(table: pa.Table, step: Declaration, *, use_threads: bool = False) -> pa.Table:
    source = Declaration("table_source", TableSourceNodeOptions(table))
    return Declaration.from_sequence([source, step]).to_table(use_threads=use_threads)


def gather(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The rows of a table at positions, taken chunk by chunk: the cost depends on the rows taken, not on the table."""
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0].take(pa.array(rows))
    if not len(rows):
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], schema=table.schema)
    starts = np.cumsum([0, *(b.num_rows for b in batches)])
    chunk = np.searchsorted(starts, rows, side="right") - 1
    order = np.argsort(chunk, kind="stable")
    parts = [batches[c].take(pa.array(rows[order[chunk[order] == c]] - starts[c])) for c in np.unique(chunk).tolist()]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return pa.concat_batches(parts).take(pa.array(back))
