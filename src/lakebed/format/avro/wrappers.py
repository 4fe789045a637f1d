"""Hudi's value wrappers, unions that hold a value of any simple type: read and written column by column.

Column stats keep their bounds in them, delete blocks their ordering values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptFile
from lakebed.format.avro.columns import AvroCursors
from lakebed.format.hashes import value_buffer

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
    """The branch of each record's wrapper, and for each branch the rows that have it with their values (a decimal's as
    bytes). Branches that `read_wrapped` was told to leave alone have no values."""

    branch: Int64s
    values: dict[int, tuple[Int64s, pa.Array]]


def read_wrapped(cursors: AvroCursors, branches: int, what: str, leave: int = -1) -> Wrapped:
    """Read a union of null and wrappers, `branches` in all. `leave` is a branch whose value is not read."""
    branch = cursors.branches(branches)
    values: dict[int, tuple[Int64s, pa.Array]] = {}
    for kind in np.unique(branch).tolist():
        if kind in (NULL, leave):
            continue
        if kind not in WRAPPED_TYPES:
            raise CorruptFile(f"{what} have a list where a single value belongs")
        rows = np.flatnonzero(branch == kind)
        part = cursors.part(rows)
        values[kind] = rows, _values(part, kind, what)
        cursors.rejoin(rows, part)
    return Wrapped(branch, values)


def _values(cursors: AvroCursors, branch: int, what: str) -> pa.Array:
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
            raise CorruptFile(f"{what} have an int beyond 32 bits")
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
    places = np.arange(_DECIMAL_BYTES)
    inside = places < lengths[:, None]
    raw = padded[np.where(inside, offsets[1:, None] - 1 - places, len(data))]
    negative = (lengths > 0) & (padded[offsets[:-1]] >= 0x80)
    little = np.where(inside, raw, np.where(negative, 0xFF, 0).astype(np.uint8)[:, None])
    result = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(little))])
    if values.null_count:
        return pa.array(result.to_pylist(), kind, mask=values.is_null().to_numpy(zero_copy_only=False))
    return result


def unscaled(values: pa.Array) -> pa.BinaryArray:
    """Unscaled values of decimals as big-endian bytes, as few as hold them; empty for a null.

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
    lengths = np.where(values.is_valid().to_numpy(zero_copy_only=False), _DECIMAL_BYTES - first, 0)
    keep = np.arange(_DECIMAL_BYTES) >= _DECIMAL_BYTES - lengths[:, None]
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(raw[keep])])
