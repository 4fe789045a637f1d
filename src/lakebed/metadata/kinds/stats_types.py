"""Bounds of column stats: which wrapper and value type stand for which Arrow type, which types compare."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.columns import encode_binaries, encode_fixed, encode_longs
from lakebed.format.avro.wrappers import (
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    WRAPPED_DECIMAL,
    WRAPPED_TYPES,
    decimals,
    unscaled,
)

_UTC = "UTC"
_GREATEST_CHARACTER, _GREATEST_TEXT = "\U0010ffff", 8
_WIDEST_DECIMAL = 38
_WIDEST_PRODUCT = 76
_DECIMAL_ORDINAL = 10
_ORDINALS: dict[int, pa.DataType] = {
    1: pa.null(),
    2: pa.bool_(),
    3: pa.int32(),
    4: pa.int64(),
    5: pa.float32(),
    6: pa.float64(),
    7: pa.string(),
    8: pa.binary(),
    9: pa.binary(),
    11: pa.string(),
    12: pa.date32(),
    13: pa.time32("ms"),
    14: pa.time64("us"),
    15: pa.timestamp("ms", _UTC),
    16: pa.timestamp("us", _UTC),
    17: pa.timestamp("ns", _UTC),
    18: pa.timestamp("ms"),
    19: pa.timestamp("us"),
    20: pa.timestamp("ns"),
}
_BY_TYPE = {kind: ordinal for ordinal, kind in reversed(_ORDINALS.items())}
_V2_WRAPPERS = {3: INT, 4: LONG, 5: FLOAT, 6: DOUBLE, 7: STRING, 8: BYTES, 9: BYTES, 10: BYTES, 12: INT, 13: INT}
_V1_WRAPPERS = {**_V2_WRAPPERS, 10: DECIMAL, 12: DATE}


def value_type_of(kind: pa.DataType) -> tuple[int, str | None]:
    """Ordinal and additional info of an Arrow type, as version 2 stats note them.

    >>> value_type_of(pa.decimal128(12, 2)), value_type_of(pa.timestamp("us", "UTC"))
    ((10, '12,2'), (16, None))

    Raises `UnsupportedFeature` for a type that has no stats (nested ones).
    """
    if pa.types.is_decimal(kind):
        return _DECIMAL_ORDINAL, f"{kind.precision},{kind.scale}"
    if pa.types.is_fixed_size_binary(kind):
        return 9, None
    known = _BY_TYPE.get(_plain(kind))
    if known is None:
        raise UnsupportedFeature(f"column stats are not kept for {kind}", context={"feature": "column stats"})
    return known, None


def type_of_value_type(ordinal: int, info: str | None) -> pa.DataType:
    """The Arrow type behind a value type; `CorruptFile` for one that does not exist."""
    if ordinal == _DECIMAL_ORDINAL:
        precision, _, scale = (info or "").partition(",")
        short = len(precision) <= 2 >= len(scale) and precision.isdecimal() and scale.isdecimal()
        if short and 1 <= int(precision) <= _WIDEST_DECIMAL >= int(scale):
            return pa.decimal128(int(precision), int(scale))
    elif ordinal in _ORDINALS:
        return _ORDINALS[ordinal]
    raise CorruptFile(f"column stats have the unknown value type {ordinal} {info or ''}".rstrip())


def wrap(bounds: pa.Array, index_version: int) -> tuple[int, pa.BinaryArray]:
    """The wrapper's branch for bounds of this type, and the wrapped values (nothing of use where a bound is null)."""
    ordinal, _ = value_type_of(bounds.type)
    branch = (_V1_WRAPPERS if index_version < 2 else _V2_WRAPPERS).get(ordinal, BOOLEAN if ordinal == 2 else LONG)
    if branch in (BYTES, DECIMAL) and pa.types.is_decimal(bounds.type):
        return branch, encode_binaries(unscaled(bounds if branch == BYTES else _wrapped_decimals(bounds)))
    if branch == STRING:
        return branch, encode_binaries(pc.fill_null(bounds.cast(pa.string()), ""))
    if branch == BYTES:
        return branch, encode_binaries(pc.fill_null(bounds.cast(pa.binary()), b""))
    if branch in (FLOAT, DOUBLE):
        kind = WRAPPED_TYPES[branch]
        return branch, encode_fixed(pc.fill_null(bounds.cast(kind), pa.scalar(0, kind)).to_numpy())
    if branch == BOOLEAN:
        return branch, encode_fixed(pc.fill_null(bounds, False).to_numpy(zero_copy_only=False))
    return branch, encode_longs(_numbers(bounds))


def widest_bounds(kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Bounds that hold every value of a type, NaN and times outside the calendar of SQL left aside; None for a type
    that has no such bounds, or none that every reader has room for."""
    if pa.types.is_boolean(kind):
        low, high = False, True
    elif pa.types.is_signed_integer(kind):
        low, high = -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1
    elif pa.types.is_floating(kind):
        low, high = -math.inf, math.inf
    elif pa.types.is_string(kind):
        low, high = "", _GREATEST_CHARACTER * _GREATEST_TEXT
    elif pa.types.is_date32(kind):
        low, high = date.min, date.max
    elif pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        first, last = (_micros(moment) for moment in (datetime.min, datetime.max))
        per = 1000 if kind.unit == "ms" else 1
        low, high = first // per, last // per
    elif pa.types.is_decimal128(kind):
        low, high = (Decimal((sign, (9,) * kind.precision, -kind.scale)) for sign in (1, 0))
    else:
        return None
    return pa.scalar(low, kind), pa.scalar(high, kind)


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def have_room(bounds: pa.Array, index_version: int) -> pa.Array:
    """For each bound whether `wrap` takes it: version 1 keeps decimals with 15 digits before and behind the point."""
    if index_version < 2 and pa.types.is_decimal(bounds.type):
        kept = as_type(bounds, WRAPPED_DECIMAL)
        if kept.null_count > bounds.null_count:
            return pc.or_(bounds.is_null(), kept.is_valid())
    return pa.repeat(pa.scalar(True), len(bounds))


def has_room_for_all(kind: pa.DataType, index_version: int) -> bool:
    """Whether `wrap` takes every value of the type."""
    if index_version >= 2 or not pa.types.is_decimal(kind):
        return True
    return kind.scale <= WRAPPED_DECIMAL.scale and kind.precision - kind.scale <= (
        WRAPPED_DECIMAL.precision - WRAPPED_DECIMAL.scale
    )


def typed(values: pa.Array, branch: int, kind: pa.DataType | None) -> pa.Array:
    """Wrapped values as their type: `kind` where a value type names it, else what the wrapper stands for. What does not
    fit together gives nulls."""
    if kind is None:
        return decimals(values, WRAPPED_DECIMAL) if branch == DECIMAL else values
    if pa.types.is_decimal(kind):
        return decimals(values, kind) if branch in (BYTES, DECIMAL) else pa.nulls(len(values), kind)
    return as_type(values, kind)


def as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Bounds as bounds of another type of the same order; nulls where a value has no place in it, or the two types are
    ordered in different ways (a number is no bound for texts)."""
    own = values.type
    if own == kind:
        return values
    try:
        if pa.types.is_decimal(own) and pa.types.is_decimal(kind):
            return _rescaled(values, kind)
        if _is_number(own) and _is_number(kind):
            # a reader widens floats by way of their text
            text = pa.types.is_float32(own) and pa.types.is_float64(kind)
            return (values.cast(pa.string()) if text else values).cast(kind)
        if pa.types.is_integer(own) and _is_date_or_time(kind):
            return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
        if _is_bytes(own) and _is_bytes(kind):
            return values.cast(kind)
        if pa.types.is_binary(own) and pa.types.is_decimal(kind):
            # releases before 1.0 turn decimals into bytes of that scale when they compact
            return _rescaled(decimals(values.cast(pa.binary()), WRAPPED_DECIMAL), kind)
        if pa.types.is_timestamp(own) and pa.types.is_timestamp(kind):
            return values.cast(pa.timestamp(own.unit)).cast(pa.timestamp(kind.unit)).cast(kind)
    except pa.ArrowInvalid:
        return _where_castable(values, kind)
    return pa.nulls(len(values), kind)


def common_type(kinds: list[pa.DataType]) -> pa.DataType:
    """A type for bounds of several; the last one where they cannot be compared.

    >>> common_type([pa.int32(), pa.int64()]), common_type([pa.int32(), pa.string()])
    (DataType(int64), DataType(string))
    """
    found = [kind for kind in dict.fromkeys(kinds) if not pa.types.is_null(kind)]
    if not found:
        return pa.null()
    result = found[0]
    for kind in found[1:]:
        if _is_number(result) and _is_number(kind):
            result = _wider(result, kind)
        else:
            result = kind
    return result


def _rescaled(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises `pa.ArrowInvalid` for a value without room: with 128 bits Arrow's product wraps around instead."""
    wide = values.cast(pa.decimal256(_WIDEST_PRODUCT, values.type.scale))
    return wide.cast(pa.decimal256(_WIDEST_PRODUCT, kind.scale)).cast(kind)


def _wrapped_decimals(values: pa.Array) -> pa.Array:
    try:
        return _rescaled(values, WRAPPED_DECIMAL)
    except pa.ArrowInvalid as cause:
        raise UnsupportedFeature(
            f"column stats of this table version have no room for a value of {values.type}",
            hint="Leave the column out of hoodie.metadata.index.column.stats.column.list.",
        ) from cause


def _numbers(values: pa.Array) -> npt.NDArray[np.int64]:
    if values.type.bit_width == 32 and not pa.types.is_integer(values.type):
        values = values.cast(pa.int32())
    return pc.fill_null(values.cast(pa.int64()), 0).to_numpy()


def _where_castable(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Value by value: only where a column changed its type and a bound has no place in the new one."""
    out: list[Any] = []
    decimal = pa.types.is_decimal(values.type) and pa.types.is_decimal(kind)
    for at, value in enumerate(values):
        try:
            out.append(_rescaled(values.slice(at, 1), kind)[0] if decimal else value.cast(kind))
        except pa.ArrowInvalid:
            out.append(pa.scalar(None, kind))
    return pa.array([scalar.as_py() for scalar in out], kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type that stands for all types of the same value type."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, _UTC if kind.tz else None)
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(one) or pa.types.is_decimal(other):
        kinds = [k for k in (one, other) if pa.types.is_decimal(k)]
        scale = max(k.scale for k in kinds)
        whole = max([k.precision - k.scale for k in kinds] + ([19] if len(kinds) == 1 else []))
        return pa.decimal128(min(_WIDEST_DECIMAL, whole + scale), scale)
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        return one if one == other else pa.float64()
    return one if one.bit_width >= other.bit_width else other


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(check(kind) for check in kinds)


def _is_date_or_time(kind: pa.DataType) -> bool:
    return pa.types.is_date32(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)
