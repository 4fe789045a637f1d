"""The functions a filter may use, as Arrow expressions that answer as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expressions import letter_case
from lakebed.expressions.time_patterns import printed
from lakebed.expressions.zones import local_expression

_YEARS_OF_CYCLE = 400
_CYCLE = 146_097 * 86_400_000_000
# the beginning of the years 10000 and -10000, in microseconds
_FAR_FUTURE = 253_402_300_800_000_000
_FAR_PAST = -377_736_739_200_000_000
Kernel = Callable[[Sequence[pc.Expression], pa.DataType, tuple[Any, ...]], pc.Expression]


def _cast(args: Sequence[pc.Expression], to: pa.DataType, _options: tuple[Any, ...]) -> pc.Expression:
    return args[0].cast(to, safe=False)


def _local(args: Sequence[pc.Expression], _to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    """An instant as the wall-clock time of a zone."""
    return local_expression(args[0], options[0])


def _date_of(args: Sequence[pc.Expression], _to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    value = _local(args, _to, options) if options else args[0]
    # the cast rounds toward zero, so the time of day goes first
    return pc.floor_temporal(value, unit="day").cast(pa.date32())


def _from_unixtime(args: Sequence[pc.Expression], _to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    """Arrow knows no years beyond 32767: far times are printed as those of some 400 years earlier or later, after
    which days and weekdays repeat, and clocks are put forward and back as before."""
    pattern, zone = options
    micros = pc.multiply(args[0].cast(pa.int64()), 1_000_000)  # a product that is too great wraps around, as Spark's
    cycles = pc.if_else(
        pc.greater(micros, _FAR_FUTURE),
        pc.divide(pc.subtract(micros, _FAR_FUTURE), _CYCLE),
        pc.if_else(pc.less(micros, _FAR_PAST), pc.divide(pc.subtract(micros, _FAR_PAST), _CYCLE), 0),
    )
    near = pc.subtract(micros, pc.multiply(cycles, _CYCLE)).cast(pa.timestamp("us", tz="UTC"))
    local = local_expression(near, zone)
    return printed(local, pattern, pc.multiply(cycles, _YEARS_OF_CYCLE))


def _unix_timestamp(args: Sequence[pc.Expression], to: pa.DataType, _options: tuple[Any, ...]) -> pc.Expression:
    """Whole seconds, cut toward zero as Spark does."""
    return pc.divide(args[0].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), 1_000_000).cast(to)


def _in_case(name: str) -> Kernel:
    return lambda args, _to, _options: letter_case.expression(name, args[0])


def _substring(args: Sequence[pc.Expression], _to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    start, length = options
    return pc.utf8_slice_codeunits(args[0], start=start, stop=start + length)


def _day_of_week(args: Sequence[pc.Expression], to: pa.DataType, _options: tuple[Any, ...]) -> pc.Expression:
    return pc.day_of_week(args[0], count_from_zero=False, week_start=7).cast(to)


def _kernel(function: Callable[..., pc.Expression]) -> Kernel:
    def call(args: Sequence[pc.Expression], to: pa.DataType, _options: tuple[Any, ...]) -> pc.Expression:
        return function(*args).cast(to)

    return call


def _predicate(function: Callable[..., pc.Expression]) -> Kernel:
    def call(args: Sequence[pc.Expression], _to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
        return function(args[0], *options)

    return call


def _is_nan(args: Sequence[pc.Expression], _to: pa.DataType, _options: tuple[Any, ...]) -> pc.Expression:
    return pc.coalesce(pc.is_nan(args[0]), pc.scalar(False))


def _concat(args: Sequence[pc.Expression], _to: pa.DataType, _options: tuple[Any, ...]) -> pc.Expression:
    return pc.binary_join_element_wise(*args, pc.scalar(""), null_handling="emit_null")


ARROW_FUNCTIONS: dict[str, Kernel] = {
    "cast": _cast,
    "local": _local,
    "date_of": _date_of,
    "upper": _in_case("upper"),
    "lower": _in_case("lower"),
    "length": _kernel(pc.utf8_length),
    "octets": _kernel(pc.binary_length),
    "substring": _substring,
    "trim": lambda args, _to, options: pc.utf8_trim(args[0], characters=options[0]),
    "ltrim": lambda args, _to, options: pc.utf8_ltrim(args[0], characters=options[0]),
    "rtrim": lambda args, _to, options: pc.utf8_rtrim(args[0], characters=options[0]),
    "date_format": lambda args, _to, options: printed(args[0], options[0]),
    "from_unixtime": _from_unixtime,
    "unix_timestamp": _unix_timestamp,
    "date_add": lambda args, to, options: pc.add(args[0].cast(pa.int32()), pa.scalar(options[0], pa.int32())).cast(to),
    "concat": _concat,
    "year": _kernel(pc.year),
    "quarter": _kernel(pc.quarter),
    "month": _kernel(pc.month),
    "day": _kernel(pc.day),
    "dayofyear": _kernel(pc.day_of_year),
    "dayofweek": _day_of_week,
    "weekofyear": _kernel(pc.iso_week),
    "hour": _kernel(pc.hour),
    "minute": _kernel(pc.minute),
    "second": _kernel(pc.second),
    "coalesce": lambda args, _to, _options: pc.coalesce(*args),
    "add": lambda args, _to, _options: pc.add(args[0], args[1]),
    "subtract": lambda args, _to, _options: pc.subtract(args[0], args[1]),
    "multiply": lambda args, _to, _options: pc.multiply(args[0], args[1]),
    "starts_with": _predicate(pc.starts_with),
    "ends_with": _predicate(pc.ends_with),
    "contains": _predicate(pc.match_substring),
    "is_nan": _is_nan,
}
