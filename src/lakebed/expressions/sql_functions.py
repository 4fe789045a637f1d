"""Functions of Spark SQL that Arrow computes otherwise or not at all, as Arrow expressions with Spark's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expressions.arrow_functions import call, register
from lakebed.expressions.zones import (
    Int64s,
    civil_of_days,
    day_of_week,
    days_of_civil,
    local_times,
)
from lakebed.schema.logical_types import VARIANT
from lakebed.schema.plain_arrow import as_numpy

# A double has at most 17 significant digits; beyond this many places before the point it is a whole number.
_INTEGRAL_FROM: Final = 1e17
_SECONDS_OF_31_DAYS: Final = 31 * 86_400
_INSTANT: Final = pa.timestamp("us", tz="UTC")


# -- numbers


def _rounded_double(values: pa.Array, digits: int, mode: str) -> pa.Array:
    """The doubles rounded by the decimal digits with which they are printed."""
    numbers = values.cast(pa.float64())
    size = pc.abs(numbers)
    # below this all digits are cut off, above the other bound there are none to cut off; NaN is neither
    low, high = 10.0 ** -(digits + 1), _INTEGRAL_FROM
    between = pc.fill_null(pc.and_(pc.greater_equal(size, low), pc.less(size, high)), False)
    decimals = numbers.filter(between).cast(pa.string()).cast(pa.decimal256(76, digits + 20))
    rounded = pc.round(decimals, digits, mode).cast(pa.string()).cast(pa.float64())
    rounded = pc.add(rounded, 0.0)  # a decimal zero has no sign
    zeros = pc.if_else(pc.less(size, low), 0.0, numbers)
    return pc.replace_with_mask(zeros, between, rounded)


def round_double(value: pc.Expression, digits: int, mode: str) -> pc.Expression:
    """The expression for `round` ("half_towards_infinity") or `bround` ("half_to_even") of doubles."""
    return call(f"round_{mode}", value, pc.scalar(digits))


def round_decimal(value: pc.Expression, to: pa.DataType, digits: int, mode: str, wide: pa.DataType) -> pc.Expression:
    """The expression for a decimal rounded to `digits` places; `wide` is a type with one digit more."""
    return pc.round(value.cast(wide), ndigits=digits, round_mode=mode).cast(to)


def integral_double(value: pc.Expression, mode: str) -> pc.Expression:
    """The expression for `ceil` ("up") or `floor` ("down") of doubles as BIGINT: the nearest BIGINT for a value beyond
    its range, 0 for NaN."""
    return call(f"integral_{mode}", value)


def _integral_double(values: pa.Array, mode: str) -> pa.Array:
    rounded = pc.round(values, 0, mode)
    above, below = pc.greater_equal(rounded, 2.0**63), pc.less(rounded, -(2.0**63))
    inside = pc.if_else(pc.or_(pc.or_(above, below), pc.is_nan(rounded)), 0.0, rounded).cast(pa.int64())
    return pc.if_else(above, 2**63 - 1, pc.if_else(below, -(2**63), inside))


def sign(value: pc.Expression) -> pc.Expression:
    """The expression for `sign` of doubles: zeros keep their sign."""
    return pc.if_else(pc.equal(value, 0.0), value, pc.sign(value))


# -- texts


def position(value: pc.Expression, part: str) -> pc.Expression:
    """The position of the first `part` in a text, from 1 on, in characters; 0 if there is none."""
    return call("position", value, pc.scalar(part))


def _position(values: pa.Array, part: str) -> pa.Array:
    at: npt.NDArray[np.int64] = as_numpy(pc.fill_null(pc.find_substring(values, part), -1)).astype(np.int64)
    if pc.all(pc.string_is_ascii(values)).as_py() is False:
        _, offsets, data = values.buffers()
        starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values)].astype(np.int64)
        octets = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        letters = np.concatenate(([0], np.cumsum((octets & 0xC0) != 0x80)))
        at = np.where(at >= 0, letters[starts + np.maximum(at, 0)] - letters[starts], -1)
    return pa.array(at + 1, pa.int32(), mask=as_numpy(values.is_null()))


def split_part(value: pc.Expression, delimiter: str, number: int) -> pc.Expression:
    """The part of a text with this number, from 1 on or from the end (-1 is the last); empty if there is none."""
    return call("split_part", value, pc.scalar(delimiter), pc.scalar(number))


def _split_part(values: pa.Array, delimiter: str, number: int) -> pa.Array:
    parts: Any = pc.split_pattern(values, delimiter)
    offsets = as_numpy(parts.offsets).astype(np.int64)
    sizes = np.diff(offsets)
    at = np.full(len(sizes), number - 1) if number > 0 else sizes + number
    is_there = (at >= 0) & (at < sizes)
    selected = parts.values.take(pa.array(offsets[:-1] + at, mask=~is_there))
    return pc.if_else(values.is_null(), pa.scalar(None, pa.string()), pc.fill_null(selected, ""))


# -- dates


def add_months(value: pc.Expression, months: int) -> pc.Expression:
    """The day some months later; the last day of that month if it has no such day."""
    return call("add_months", value, pc.scalar(months))


def _add_months(values: pa.Array, months: int) -> pa.Array:
    return _dates(values, partial(_months_later, months=months))


def _months_later(days: Int64s, months: int) -> Int64s:
    year, month, day = civil_of_days(days)
    count = year * 12 + month - 1 + months
    first = days_of_civil(count // 12, count % 12 + 1, np.ones_like(day))
    after = days_of_civil((count + 1) // 12, (count + 1) % 12 + 1, np.ones_like(day))
    return first + np.minimum(day, after - first) - 1


def last_day(value: pc.Expression) -> pc.Expression:
    """The last day of the date's month."""
    return call("last_day", value)


def _last_day(values: pa.Array) -> pa.Array:
    return _dates(values, lambda days: _months_later(days - civil_of_days(days)[2] + 1, 1) - 1)


def next_day(value: pc.Expression, weekday: int) -> pc.Expression:
    """The first day after the date that is this day of the week, 1 for Monday."""
    return call("next_day", value, pc.scalar(weekday))


def _next_day(values: pa.Array, weekday: int) -> pa.Array:
    return _dates(values, lambda days: days + (weekday - 1 - day_of_week(days)) % 7 + 1)


def months_between(value: pc.Expression, other: pc.Expression) -> pc.Expression:
    """The months between two dates, rounded to eight digits."""
    days = pc.add(pc.multiply(value.cast(pa.int32()).cast(pa.int64()), 2**32), other.cast(pa.int32()).cast(pa.int64()))
    return call("months_between", days)


def _months_between(values: pa.Array) -> pa.Array:
    """The months between two dates; each int64 of `values` has both days, one in the upper half and one in the
    lower."""
    packed_days: Int64s = as_numpy(pc.fill_null(values, 0))
    day = ((packed_days + 2**31) & (2**32 - 1)) - 2**31
    first, second = (packed_days - day) >> 32, day
    parts = [civil_of_days(epoch_days) for epoch_days in (first, second)]
    (years, months, days), (other_years, other_months, other_days) = parts
    full_months = ((years - other_years) * 12 + months - other_months).astype(np.float64)
    last, other_last = (civil_of_days(epoch_days + 1)[2] == 1 for epoch_days in (first, second))
    exact = full_months + ((days - other_days) * 86_400) / _SECONDS_OF_31_DAYS
    rounded = np.floor(exact * 1e8 + 0.5) / 1e8
    result = np.where((days == other_days) | (last & other_last), full_months, rounded)
    return pa.array(result, mask=as_numpy(values.is_null()))


def _dates(values: pa.Array, change: Callable[[Int64s], Int64s]) -> pa.Array:
    days = as_numpy(pc.fill_null(values.cast(pa.int32()), 0)).astype(np.int64)
    changed = pa.array(change(days).astype(np.int32), mask=as_numpy(values.is_null()))
    return changed.cast(pa.date32())


# -- times


def start_of(value: pc.Expression, unit: str, zone: str) -> pc.Expression:
    """The beginning of the instant's year, month, ..., second on the clocks of a zone."""
    return call("start_of", value.cast(_INSTANT), pc.scalar(unit), pc.scalar(zone))


def _start_of(values: pa.Array, unit: str, zone: str) -> pa.Array:
    micros = values.cast(pa.int64())
    local = local_times(values, zone)
    begin = pc.floor_temporal(local, unit=unit)
    # the clocks were not changed since the beginning of the unit, as a rule
    result = pc.subtract(micros, pc.subtract(local.cast(pa.int64()), begin.cast(pa.int64()))).cast(_INSTANT)
    changed = pc.fill_null(pc.not_equal(local_times(result, zone), begin), False)
    if pc.any(changed).as_py():
        coded = begin.filter(changed).dictionary_encode()  # each such beginning once
        zone_info = ZoneInfo(zone)
        starts = [_instant_of_local(local_start, zone_info) for local_start in coded.dictionary.to_pylist()]
        result = pc.replace_with_mask(result, changed, pa.array(starts, _INSTANT).take(coded.indices))
    return result


def days_later(instant: datetime, days: int, zone: tzinfo) -> datetime:
    """The instant some days later by the clocks of a zone."""
    local = instant.astimezone(zone)
    later = local + timedelta(days=days)
    if later.utcoffset() == local.utcoffset():
        return later.astimezone(UTC)
    return _instant_of_local(later.replace(tzinfo=None), zone)


def _instant_of_local(local: datetime, zone: tzinfo) -> datetime:
    """The instant of a wall-clock time: the first of two if it occurs twice, and in a gap by the offset before it."""
    return local.replace(tzinfo=zone, fold=0).astimezone(UTC)


_DATE, _DOUBLE, _TEXT, _NUMBER = pa.date32(), pa.float64(), pa.string(), pa.int64()
_FUNCTIONS: Final[dict[str, tuple[Callable[..., pa.Array], pa.DataType, tuple[pa.DataType, ...]]]] = {
    **{
        f"round_{mode}": (partial(_rounded_double, mode=mode), _DOUBLE, (_DOUBLE, _NUMBER))
        for mode in ("half_towards_infinity", "half_to_even")
    },
    **{f"integral_{mode}": (partial(_integral_double, mode=mode), _NUMBER, (_DOUBLE,)) for mode in ("up", "down")},
    "position": (_position, pa.int32(), (_TEXT, _TEXT)),
    "split_part": (_split_part, _TEXT, (_TEXT, _TEXT, _NUMBER)),
    "add_months": (_add_months, _DATE, (_DATE, _NUMBER)),
    "last_day": (_last_day, _DATE, (_DATE,)),
    "next_day": (_next_day, _DATE, (_DATE, _NUMBER)),
    "months_between": (_months_between, _DOUBLE, (_NUMBER,)),
    "start_of": (_start_of, _INSTANT, (_INSTANT, _TEXT, _TEXT)),
}
for _name, (_function, _to, _types) in _FUNCTIONS.items():
    register(_name, f"{_name} as Spark has it", {f"_{n}": t for n, t in enumerate(_types)}, _to, _function)


def variant_get(args: Sequence[pc.Expression], to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    """The expression for what is at a path of a column of variants, as values of the type `to`; `options` are the path,
    and what a value of another type is ("error" or "null")."""
    from lakebed.format.variant_values import path_steps, value_at
    from lakebed.format.variants import in_arrow

    path, invalid = options
    path_steps(path)  # raises
    name = f"variant_get_{to}"
    types = {"variant": pa.binary(), "path": pa.string(), "invalid": pa.string()}

    def values(variants: pa.Array, at: str, otherwise: str) -> pa.Array:
        value = value_at("variant_bytes_to_variant(c)", at, to, invalid=otherwise)
        return in_arrow(variants, value).cast(to)

    register(name, "What is at a path of variants.", types, to, values)
    parts = [pc.struct_field(args[0], [part.name]) for part in VARIANT]
    encoded = pc.binary_join_element_wise(*parts, pc.scalar(b""), null_handling="emit_null")
    return call(name, encoded, pc.scalar(path), pc.scalar(invalid))
