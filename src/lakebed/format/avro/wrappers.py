"""Hudi's value wrappers, unions that hold a value of any simple type: read and written column by column.

Column statistics store their bounds in them, delete blocks their ordering values, which are compared with rows as
Hudi's readers do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import CorruptFile, InvalidRecord, UnsupportedFeature
from lakebed.format.avro.columns import AvroCursors, encode_binaries, encode_fixed, encode_longs, join_pieces
from lakebed.format.avro.encoder import encode_long
from lakebed.format.hashes import value_buffer
from lakebed.schema.plain_arrow import as_numpy

NULL, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING = range(8)
DATE, DECIMAL, TIME_MICROS, TIMESTAMP_MICROS, LOCAL_DATE = range(8, 13)
# Decimals in a wrapper of their own have this scale, and a precision of 30.
WRAPPED_DECIMAL = pa.decimal128(38, 15)
WRAPPED_TYPES: dict[int, pa.DataType] = {
    BOOLEAN: pa.bool_(),
    INT: pa.int32(),
    LONG: pa.int64(),
    FLOAT: pa.float32(),
    DOUBLE: pa.float64(),
    BYTES: pa.binary(),
    STRING: pa.string(),
    DATE: pa.date32(),
    DECIMAL: WRAPPED_DECIMAL,
    TIME_MICROS: pa.time64("us"),
    TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
    LOCAL_DATE: pa.date32(),
}
_DECIMAL_BYTES = 16
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Wrapped:
    """The branch number of each record's wrapper, and for each branch the rows that have it with their values (a
    decimal as bytes). A branch that the caller of `read_wrapped` did not ask for has no values."""

    branch: Int64s
    values: dict[int, tuple[Int64s, pa.Array]]


def read_wrapped(cursors: AvroCursors, branches: int, label: str, leave: int = -1) -> Wrapped:
    """Read a union of null and wrappers, `branches` in all. `leave` is a branch whose value is not read."""
    branch = cursors.branches(branches)
    values: dict[int, tuple[Int64s, pa.Array]] = {}
    for kind in np.unique(branch).tolist():
        if kind in (NULL, leave):
            continue
        if kind not in WRAPPED_TYPES:
            raise CorruptFile(f"{label} have a list where a single value belongs")
        rows = np.flatnonzero(branch == kind)
        part = cursors.part(rows)
        values[kind] = rows, _values(part, kind, label)
        cursors.rejoin(rows, part)
    return Wrapped(branch, values)


def _values(cursors: AvroCursors, branch: int, label: str) -> pa.Array:
    kind = WRAPPED_TYPES[branch]
    if branch == BOOLEAN:
        return pa.array(cursors.booleans())
    if branch in (FLOAT, DOUBLE):
        return pa.array(cursors.fixed("<f4" if branch == FLOAT else "<f8"))
    if branch in (BYTES, DECIMAL):
        return cursors.binaries()
    if branch == STRING:
        return cursors.texts()
    numbers = cursors.longs()
    if kind.bit_width == 32:
        if (numbers != numbers.astype(np.int32)).any():
            raise CorruptFile(f"{label} have an int beyond 32 bits")
        return pa.array(numbers.astype(np.int32)).cast(kind)
    return pa.array(numbers).view(kind)


def decimals(values: Any, kind: Any) -> pa.Array:
    """Decimals of the type `kind` from their unscaled values as big-endian bytes of any length.

    >>> decimals(pa.array([b"\\xff", b"\\x01\\x00"]), pa.decimal128(5, 2)).to_pylist()
    [Decimal('-0.01'), Decimal('2.56')]
    """
    data, offsets = value_buffer(values)
    lengths = np.diff(offsets)
    if (lengths > _DECIMAL_BYTES).any():
        raise CorruptFile(f"a decimal has more than {_DECIMAL_BYTES} bytes")
    padded = np.append(data, np.uint8(0))
    positions = np.arange(_DECIMAL_BYTES)
    inside = positions < lengths[:, None]
    raw = padded[np.where(inside, offsets[1:, None] - 1 - positions, len(data))]
    negative = (lengths > 0) & (padded[offsets[:-1]] >= 0x80)
    little = np.where(inside, raw, np.where(negative, 0xFF, 0).astype(np.uint8)[:, None])
    result = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(little))])
    if values.null_count:
        return pa.array(result.to_pylist(), kind, mask=as_numpy(values.is_null()))
    return result


def unscaled(values: pa.Array) -> pa.BinaryArray:
    """The unscaled values of decimals as big-endian bytes of the smallest possible length; empty for a null.

    >>> unscaled(pa.array([-1, 128], pa.decimal128(5, 0))).to_pylist()
    [b'\\xff', b'\\x00\\x80']
    """
    start = values.offset * _DECIMAL_BYTES
    raw = np.frombuffer(values.buffers()[1], np.uint8)[start : start + _DECIMAL_BYTES * len(values)]
    raw = np.ascontiguousarray(raw.reshape(-1, _DECIMAL_BYTES)[:, ::-1])
    sign = np.where(raw[:, 0] >= 0x80, 0xFF, 0).astype(np.uint8)
    # a leading byte is spare where it only repeats the sign of the next one
    spare = (raw[:, :-1] == sign[:, None]) & ((raw[:, 1:] >= 0x80) == (sign[:, None] == 0xFF))
    first = np.cumprod(spare, axis=1).sum(axis=1)
    lengths = np.where(as_numpy(values.is_valid()), _DECIMAL_BYTES - first, 0)
    keep = np.arange(_DECIMAL_BYTES) >= _DECIMAL_BYTES - lengths[:, None]
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(raw[keep])])


# In place of a local date, a list of wrapped values: several ordering fields.
ARRAY = 12
# The delete of a record that wins by commit time.
COMMIT_TIME = bytes([2 * INT, 0])
Bools = npt.NDArray[np.bool_]


def encode_ordering(columns: Sequence[pa.Array], forced: Any, rows: int) -> pa.BinaryArray | bytes:
    """The wrapped ordering value of each delete. It is the integer 0, by which a delete wins over all rows, if there
    are no columns, in forced rows, and where a single column is null."""
    mask = _mask(forced, rows)
    if not columns or mask.all():
        return COMMIT_TIME
    plain = [_plain(column) for column in columns]
    if len(plain) == 1:
        mask = mask | as_numpy(pc.is_null(plain[0]))
        values = _wrapped(plain[0])
    else:
        open_rows = pa.array(mask)
        for column in plain:
            if pc.any(pc.and_not(pc.is_null(column), open_rows)).as_py():
                raise InvalidRecord("a delete has a null in one of its ordering fields")
        pieces = [_wrapped(column) for column in plain]
        values = join_pieces([encode_long(ARRAY), b"\x02", encode_long(len(pieces)), *pieces, b"\x00"])
    if not mask.any():
        return values
    return pc.if_else(pa.array(mask), pa.scalar(COMMIT_TIME, pa.binary()), values)


def _mask(forced: Any, rows: int) -> Bools:
    if isinstance(forced, bool):
        return np.full(rows, forced)
    if isinstance(forced, np.ndarray):
        return forced.astype(np.bool_)
    return as_numpy(pc.fill_null(forced, False))


def _plain(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column.dictionary_decode() if pt.is_dictionary(column.type) else column


def _wrapped(column: pa.Array) -> pa.BinaryArray:
    """The branch number and the encoded value of each row; null for a null. A date is an Int of its epoch day and a
    timestamp a Long in the column's unit, because Hudi's readers compare these with the values of rows."""
    branch, encode = _form(column.type)
    return join_pieces([encode_long(branch), _with_nulls(encode(column), column)])


def _with_nulls(values: pa.BinaryArray, column: pa.Array) -> pa.BinaryArray:
    if not column.null_count:
        return values
    return pc.if_else(pc.is_valid(column), values, pa.scalar(None, pa.binary()))


def _form(kind: pa.DataType) -> tuple[int, Callable[[pa.Array], pa.BinaryArray]]:
    if pt.is_boolean(kind):
        return BOOLEAN, lambda c: encode_fixed(_numbers(c, pa.bool_()).astype(np.uint8))
    if pt.is_floating(kind):
        return (DOUBLE if pt.is_float64(kind) else FLOAT), lambda c: encode_fixed(
            _numbers(c, pa.float64() if pt.is_float64(kind) else pa.float32())
        )
    if pt.is_string(kind) or pt.is_large_string(kind):
        return STRING, encode_binaries
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return BYTES, encode_binaries
    if pt.is_decimal(kind):
        return DECIMAL, _decimals
    if pt.is_date32(kind) or pt.is_time32(kind):
        return INT, lambda c: encode_longs(_numbers(c, pa.int32()))
    if pt.is_timestamp(kind):
        stored = pa.timestamp("ms" if kind.unit == "ms" else "us", kind.tz)
        return LONG, lambda c: encode_longs(_numbers(c.cast(stored), pa.int64()))
    if pt.is_time64(kind) or pt.is_int64(kind) or pt.is_uint32(kind):
        return LONG, lambda c: encode_longs(_numbers(c, pa.int64()))
    if pt.is_integer(kind):
        return INT, lambda c: encode_longs(_numbers(c, pa.int32()))
    raise UnsupportedFeature(f"a column of type {kind} cannot order deletes", context={"type": str(kind)})


def _numbers(column: pa.Array, kind: pa.DataType) -> npt.NDArray[Any]:
    """The values of a column as numbers of the numpy type `kind`, zero for a null."""
    return as_numpy(pc.fill_null(column.cast(kind), pa.scalar(0, pa.int64()).cast(kind)))


def _decimals(column: pa.Array) -> pa.BinaryArray:
    try:
        return encode_binaries(unscaled(column.cast(WRAPPED_DECIMAL)))
    except pa.ArrowInvalid as cause:
        raise InvalidRecord(
            f"an ordering value does not fit Hudi's deletes, which know decimals of 15 places: {cause}"
        ) from cause
