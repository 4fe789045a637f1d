"""Converts stored values to another type: they become what Hudi reads from an older base file. Incoming values have
rules of their own, in `lakebed.schema.assignment`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import SchemaConflict
from lakebed.schema.arrow import MAX_WIDE_PRECISION, check_nulls, is_text
from lakebed.schema.java_text import to_java_text
from lakebed.schema.layouts import list_offsets
from lakebed.schema.logical_types import (
    file_values,
    fixed_length,
    is_bytes,
    is_vector,
    vector_name,
    vectors_of_bytes,
    vectors_of_rows,
)
from lakebed.schema.plain_arrow import as_numpy, is_list

_A_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def cast_column(array: Any, to_type: pa.DataType) -> Any:
    """The column in another type, with Hudi's results: a float becomes the double of the same decimal text
    (1.1 stays 1.1), numbers and dates become Java's text, bytes the UTF-8 string, a long the timestamp of
    that many units.

    Structs, arrays and maps are converted inside, struct fields by name; missing ones are null. Raises
    `SchemaConflict` where Hudi knows no conversion.

    >>> cast_column(pa.array([1.1], pa.float32()), pa.float64()).to_pylist()
    [1.1]
    """
    kind = array.type
    if kind.equals(to_type):
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([cast_column(chunk, to_type) for chunk in array.chunks], to_type)
    if pt.is_dictionary(kind):
        return cast_column(array.dictionary, to_type).take(array.indices)
    if isinstance(array, pa.ExtensionArray):
        as_text = kind == pa.uuid() and pt.is_string(to_type)
        return uuid_texts(array) if as_text else cast_column(array.storage, to_type)
    if pt.is_null(kind):
        return pa.nulls(len(array), to_type)
    if is_vector(kind) or is_vector(to_type):
        return _cast_vectors(array, to_type)
    if pt.is_nested(kind) or pt.is_nested(to_type):
        return converted_inside(array, to_type, lambda values, inner, _: cast_column(values, inner))
    return _cast_simple(array, to_type)


def _cast_vectors(array: Any, to_type: pa.DataType) -> Any:
    """Vectors of the bytes or lists that hold them, and the bytes or lists of vectors."""
    if is_vector(to_type) and is_bytes(array.type):
        return vectors_of_bytes(array, to_type)
    if is_vector(to_type) and is_list(array.type):
        return vectors_of_rows(array, to_type, vector_name(to_type))
    if is_list(to_type) and not is_vector(to_type):
        return cast_column(array.cast(pa.list_(array.type.value_type)), to_type)
    if is_bytes(to_type):
        return cast_column(file_values(array), to_type)
    raise _no_conversion(array.type, to_type)


def with_vectors(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a file has them, with the vectors of `schema` in place of their bytes."""
    for field in schema:
        if is_vector(field.type) and (at := batch.schema.get_field_index(field.name)) >= 0:
            batch = batch.set_column(at, field, cast_column(batch.column(at), field.type))
    return batch


def uuid_texts(array: Any) -> pa.Array:
    """The texts of Arrow's UUIDs.

    >>> uuid_texts(pa.array([bytes(range(16)), None], pa.uuid())).to_pylist()
    ['00010203-0405-0607-0809-0a0b0c0d0e0f', None]
    """
    stored = pc.fill_null(array.storage, bytes(16))
    raw = np.frombuffer(stored.buffers()[1], np.uint8)[16 * stored.offset :][: 16 * len(stored)]
    digits = _HEX[np.stack([raw >> 4, raw & 15], axis=1)].reshape(len(stored), 32)
    texts = np.full((len(stored), 36), ord("-"), np.uint8)
    texts[:, _DIGITS_OF_UUID] = digits
    offsets = pa.array(np.arange(len(stored) + 1, dtype=np.int32) * 36)
    strings = pa.StringArray.from_buffers(len(stored), offsets.buffers()[1], pa.py_buffer(texts))
    return pc.if_else(array.is_null(), pa.scalar(None, pa.string()), strings) if array.null_count else strings


_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DIGITS_OF_UUID = [at for at in range(36) if at not in (8, 13, 18, 23)]


def can_cast(kind: pa.DataType, to_type: pa.DataType) -> bool:
    """Whether `cast_column` can convert between the types.

    >>> can_cast(pa.int32(), pa.string()), can_cast(pa.int32(), pa.date32())
    (True, False)
    """
    if kind.equals(to_type) or pt.is_null(kind):
        return True
    if pt.is_dictionary(kind):
        return can_cast(kind.value_type, to_type)
    if is_vector(to_type):
        return is_bytes(kind)
    if is_vector(kind):
        return False
    if pt.is_struct(kind) and pt.is_struct(to_type):
        stored = {field.name: field.type for field in kind}
        return all(can_cast(stored[f.name], f.type) for f in to_type if f.name in stored)
    if pt.is_map(kind) and pt.is_map(to_type):
        return can_cast(kind.key_type, to_type.key_type) and can_cast(kind.item_type, to_type.item_type)
    if is_list(kind) and is_list(to_type):
        return can_cast(kind.value_type, to_type.value_type)
    if pt.is_nested(kind) or pt.is_nested(to_type):
        return False
    if pt.is_string(to_type) or _is_widening(kind, to_type):
        return True
    if pt.is_floating(to_type):
        return pt.is_integer(kind) or pt.is_floating(kind)
    if pt.is_timestamp(to_type):
        return pt.is_integer(kind) or pt.is_timestamp(kind)
    numbers = pt.is_decimal(kind) or pt.is_integer(kind) or pt.is_floating(kind)
    return pt.is_decimal(to_type) and (numbers or is_text(kind))


def _no_conversion(kind: pa.DataType, to_type: pa.DataType) -> SchemaConflict:
    return SchemaConflict(
        f"values of type {kind} cannot be read as {to_type}",
        hint="Rewrite the column in one type.",
        context={"from": str(kind), "to": str(to_type)},
    )


def _cast_simple(array: pa.Array, to_type: pa.DataType) -> pa.Array:
    kind = array.type
    if pt.is_string(to_type):
        return _to_string(array)
    if pt.is_float64(to_type) and pt.is_float32(kind):
        return array.cast(pa.string()).cast(pa.float64())
    if pt.is_floating(to_type) and (pt.is_integer(kind) or pt.is_floating(kind)):
        return array.cast(to_type, safe=False)
    if pt.is_timestamp(to_type):
        return _to_timestamp(array, to_type)
    if pt.is_decimal(to_type):
        return _to_decimal(array, to_type)
    if pt.is_fixed_size_binary(to_type) and is_bytes(kind):
        return fixed_length(array, to_type.byte_width)
    if _is_widening(kind, to_type):
        return array.cast(to_type)
    raise _no_conversion(kind, to_type)


def _is_widening(kind: pa.DataType, to_type: pa.DataType) -> bool:
    if pt.is_integer(to_type):
        return pt.is_integer(kind) and kind.bit_width <= to_type.bit_width
    if is_bytes(to_type):
        return is_text(kind) or is_bytes(kind)
    if pt.is_date(to_type):
        return is_text(kind) or pt.is_date(kind)
    return pt.is_time(to_type) and pt.is_time(kind)


def _to_string(array: pa.Array) -> pa.Array:
    if is_text(array.type):
        return array.cast(pa.string())
    if not is_bytes(array.type):
        return to_java_text(array)
    try:
        return array.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        # bytes that are no UTF-8: Java puts a replacement character, and so must this, value by value
        return pa.array([v if v is None else v.decode("utf-8", "replace") for v in array.to_pylist()], pa.string())


def readable_texts(table: pa.Table) -> pa.Table:
    """The rows with U+FFFD for bytes of texts that are not UTF-8, so that they can be displayed."""
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        for at, field in enumerate(table.schema):
            chunks = [_readable(chunk, field.type) for chunk in table.column(at).chunks]
            table = table.set_column(at, field, pa.chunked_array(chunks, field.type))
    return table


def _readable(array: Any, kind: pa.DataType) -> Any:
    if pt.is_nested(kind):
        return converted_inside(array, kind, lambda values, inner, _: _readable(values, inner))
    return _to_string(array.cast(pa.binary())).cast(kind) if pt.is_string(kind) or pt.is_large_string(kind) else array


def _to_timestamp(array: pa.Array, to_type: pa.DataType) -> pa.Array:
    kind = array.type
    if pt.is_integer(kind):
        return array.cast(pa.int64()).cast(to_type)
    if not pt.is_timestamp(kind):
        raise _no_conversion(kind, to_type)
    if (kind.unit, to_type.unit) in (("ns", "us"), ("ns", "ms"), ("us", "ms")):
        array = floored_times(array, to_type.unit)
    return array.cast(to_type)


def floored_times(array: pa.Array, unit: Literal["us", "ms"]) -> pa.Array:
    """The timestamps in a coarser unit, rounded down: a cast would round those before 1970 towards 1970, and Arrow's
    `floor_temporal` gives wrong numbers near the least time of a unit (`pandas.Timestamp.min`).

    >>> floored_times(pa.array([-1, 1999, None]).view(pa.timestamp("ns")), "us").cast(pa.int64()).to_pylist()
    [-1, 1, None]
    """
    step = _A_SECOND[array.type.unit] // _A_SECOND[unit]
    numbers = as_numpy(pc.fill_null(array.cast(pa.int64()), 0))
    nulls = as_numpy(array.is_null())
    return pa.array(np.floor_divide(numbers, step), mask=nulls).view(pa.timestamp(unit, array.type.tz))


def _to_decimal(array: pa.Array, to_type: pa.DataType) -> pa.Array:
    kind = array.type
    if pt.is_decimal(kind):
        if kind.scale <= to_type.scale:
            return array.cast(to_type)
    elif pt.is_integer(kind):
        return array.cast(pa.decimal128(19, 0)).cast(to_type)
    elif pt.is_floating(kind) or is_text(kind):
        array = array.cast(pa.string()).cast(pa.decimal256(MAX_WIDE_PRECISION, 38))
    else:
        raise _no_conversion(kind, to_type)
    rounded = pc.round(array, ndigits=to_type.scale, round_mode="half_towards_infinity")
    return rounded.cast(pa.decimal256(MAX_WIDE_PRECISION, to_type.scale)).cast(to_type)


def converted_inside(array: Any, to_type: pa.DataType, convert: Callable[[Any, pa.DataType, str], Any]) -> Any:
    """A struct, array or map converted to another type of its kind by converting its parts; `convert` gets the values,
    their type and the step of their path. Fields are matched by name, and missing ones are null."""
    kind = array.type
    mask = array.is_null() if array.null_count else None
    if pt.is_struct(kind) and pt.is_struct(to_type):
        children = {field.name: array.field(i) for i, field in enumerate(kind)}
        inside = [
            convert(children[f.name], f.type, f".{f.name}") if f.name in children else pa.nulls(len(array), f.type)
            for f in to_type
        ]
        return pa.StructArray.from_arrays(inside, fields=list(to_type), mask=mask)
    if pt.is_map(kind) and pt.is_map(to_type):
        offsets = array.offsets
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        keys = convert(array.keys.slice(first, last - first), to_type.key_type, ".key")
        items = convert(array.items.slice(first, last - first), to_type.item_type, ".value")
        return pa.MapArray.from_arrays(pc.subtract(offsets, first), keys, items, type=to_type, mask=mask)
    if is_list(kind) and is_list(to_type):
        # flatten works the same for all list layouts and for slices; a null list has no elements there
        values = convert(array.flatten(), to_type.value_type, ".element")
        return pa.ListArray.from_arrays(list_offsets(array), values, type=to_type, mask=mask)
    raise _no_conversion(kind, to_type)


def project(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the columns of `schema`, matched by name and converted by `cast_column`; missing columns are null,
    additional ones are left out. Raises `InvalidRecord` for a null in a required column.

    >>> project(pa.record_batch({"a": pa.array([7])}), pa.schema([("b", pa.int32()), ("a", pa.string())])).to_pylist()
    [{'b': None, 'a': '7'}]
    """
    if batch.schema.equals(schema):
        return batch
    columns: list[pa.Array] = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if at < 0 else cast_column(batch.column(at), field.type)
        check_nulls(column, field)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def may_lose(kind: pa.DataType, to_type: pa.DataType) -> bool:
    """Whether a simple type has values that another type, to which Hudi promotes it, cannot hold.

    >>> may_lose(pa.int32(), pa.float32()), may_lose(pa.int32(), pa.float64())
    (True, False)
    """
    if pt.is_integer(kind):
        return pt.is_float32(to_type) or (pt.is_float64(to_type) and kind.bit_width > 32)
    if pt.is_timestamp(kind):
        return pt.is_timestamp(to_type) and kind.unit in ("us", "ns") and to_type.unit == "ms"
    return (pt.is_binary(kind) or pt.is_fixed_size_binary(kind)) and pt.is_string(to_type)
