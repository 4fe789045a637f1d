"""Which rows of two batches differ, row by row.

Pure: Arrow in, masks out. Values are equal if they are stored as the same value: null equals null, NaN equals NaN, and
zero does not equal minus zero.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.schema.plain_arrow import as_numpy

Flags = npt.NDArray[np.bool_]
_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def rows_differ(batch: pa.RecordBatch, other: pa.RecordBatch) -> Flags:
    """Whether the rows at the same position of both differ in a column. Both have the same columns and types.

    >>> batch = pa.record_batch({"a": pa.array([1, None, None]), "b": pa.array([[1.5], [2.5], None])})
    >>> other = pa.record_batch({"a": pa.array([1, None, 3]), "b": pa.array([[1.5], [0.5], None])})
    >>> rows_differ(batch, other).tolist()
    [False, True, True]
    """
    differ = np.zeros(batch.num_rows, bool)
    for name in batch.schema.names:
        differ |= values_differ(_plain(batch.column(name)), _plain(other.column(name)))
    return differ


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def values_differ(array: pa.Array, other: pa.Array) -> Flags:
    """Whether the values at the same position of two columns of one type differ. Neither is dictionary encoded."""
    kind = array.type
    nulls, other_nulls = (as_numpy(values.is_null()) for values in (array, other))
    if pa.types.is_null(kind):
        return np.zeros(len(array), bool)
    if pa.types.is_struct(kind):
        values = np.zeros(len(array), bool)
        for number in range(kind.num_fields):
            values |= values_differ(_plain(pc.struct_field(array, [number])), _plain(pc.struct_field(other, [number])))
    elif pa.types.is_nested(kind):
        values = _lists_differ(array, other)
    else:
        if pa.types.is_floating(kind):
            array, other = array.view(_BITS[kind.bit_width]), other.view(_BITS[kind.bit_width])
        values = as_numpy(pc.fill_null(pc.not_equal(array, other), False))
    return np.where(nulls | other_nulls, nulls != other_nulls, values)


def _lists_differ(array: pa.Array, other: pa.Array) -> Flags:
    """Flags of the rows whose lists differ; a map counts as the list of its entries in their order."""
    entries, counts = zip(*map(_entries, (array, other)), strict=True)
    differ = counts[0] != counts[1]
    same_length = ~differ
    left, right = (
        values.filter(pa.array(np.repeat(same_length, count))) for values, count in zip(entries, counts, strict=True)
    )
    rows = np.repeat(np.flatnonzero(same_length), counts[0][same_length])
    differ[rows[values_differ(_plain(left), _plain(right))]] = True
    return differ


def _entries(values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The entries of all lists, concatenated, and the number of entries of each list."""
    if pa.types.is_fixed_size_list(values.type):
        values = values.cast(pa.list_(values.type.value_field))
    if pa.types.is_map(values.type):
        entry = pa.struct([values.type.key_field, values.type.item_field])
        start, stop = values.offsets[0].as_py(), values.offsets[len(values)].as_py()
        parts = [part.slice(start, stop - start) for part in (values.keys, values.items)]
        flat: pa.Array = pa.StructArray.from_arrays(parts, fields=list(entry))
        counts = np.diff(as_numpy(values.offsets))
        # values under a null list are no entries
        present = as_numpy(values.is_valid())
        return flat.filter(pa.array(np.repeat(present, counts))), np.where(present, counts, 0)
    counts = as_numpy(pc.fill_null(pc.list_value_length(values), 0))
    return values.flatten(), counts.astype(np.int64)
