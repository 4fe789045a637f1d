"""Ordering values of deletes in Hudi's wrappers, as its readers compare them with rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import InvalidRecord, UnsupportedFeature
from lakebed.format.avro.columns import encode_binaries, encode_fixed, encode_longs, join_pieces
from lakebed.format.avro.encoder import encode_long
from lakebed.format.avro.wrappers import (
    BOOLEAN,
    BYTES,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    WRAPPED_DECIMAL,
    unscaled,
)

# In place of a local date, a list of wrapped values: several ordering fields.
ARRAY = 12
# The delete of a record that wins by commit time.
COMMIT_TIME = bytes([2 * INT, 0])
Bools = npt.NDArray[np.bool_]


def encode_ordering(columns: Sequence[pa.Array], forced: Any, rows: int) -> pa.BinaryArray | bytes:
    """The wrapped ordering value of each delete; Int 0, which wins over all, where there are no columns, in forced rows
    and where a single column is null."""
    mask = _mask(forced, rows)
    if not columns or mask.all():
        return COMMIT_TIME
    plain = [_plain(column) for column in columns]
    if len(plain) == 1:
        mask = mask | pc.is_null(plain[0]).to_numpy(zero_copy_only=False)
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
    return pc.fill_null(forced, False).to_numpy(zero_copy_only=False)


def _plain(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column.dictionary_decode() if pt.is_dictionary(column.type) else column


def _wrapped(column: pa.Array) -> pa.BinaryArray:
    """Branch and value; null where the value is. A date goes as Int of its epoch day and a timestamp as Long in the
    column's unit: so Hudi's readers compare them with what rows have."""
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
    """As numbers of this type, zero where null."""
    return pc.fill_null(column.cast(kind), pa.scalar(0, pa.int64()).cast(kind)).to_numpy(zero_copy_only=False)


def _decimals(column: pa.Array) -> pa.BinaryArray:
    try:
        return encode_binaries(unscaled(column.cast(WRAPPED_DECIMAL)))
    except pa.ArrowInvalid as cause:
        raise InvalidRecord(
            f"an ordering value does not fit Hudi's deletes, which know decimals of 15 places: {cause}"
        ) from cause
