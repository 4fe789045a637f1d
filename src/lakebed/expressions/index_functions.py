"""The functions of expression indexes over a column of a file: Spark's results, computed by Arrow.

A function whose results may differ from Spark's is refused by name. Where that depends on the values (letters without a
counterpart of one character, years of more than four digits), the file gets no results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.expressions.time_patterns import DEFAULT_PATTERN, MICROS, pattern_parts, printed

# Hudi's name for the option that names the function.
EXPRESSION = "expr"
IDENTITY = "identity"
ZONE = "UTC"
_INSTANT = pa.timestamp("us", ZONE)
_UNITS = {"ms": 1_000, "us": 1_000_000}
_INT, _LONG, _TEXT, _DATE = pa.int32(), pa.int64(), pa.string(), pa.date32()
# Characters whose other case every Java and Arrow agree on: Latin, Greek, Cyrillic, and scripts without case.
_SCRIPTS = (
    r"\x{386}-\x{3CE}\x{400}-\x{481}\x{590}-\x{109F}\x{2000}-\x{206F}\x{20A0}-\x{20BF}"
    r"\x{3000}-\x{9FEF}\x{AC00}-\x{D7A3}\x{1F300}-\x{1F64F}"
)
_UNCERTAIN = {
    "upper": rf"[^\x00-\x{{17F}}{_SCRIPTS}]|[\x{{DF}}\x{{149}}\x{{390}}\x{{3B0}}]",
    "lower": rf"[^\x00-\x{{17F}}{_SCRIPTS}]|[\x{{130}}\x{{3A3}}]",
}
_FIRST_DAY, _LAST_DAY = date(1, 1, 1), date(9999, 12, 31)


@dataclass(frozen=True)
class IndexFunction:
    """A function of an expression index over a column of one type. `result` is the type of its results; `zoned` is
    whether they depend on a time zone: then they are those of UTC."""

    name: str
    result: pa.DataType
    zoned: bool
    compute: Callable[[pa.Array], pa.Array]
    is_certain: Callable[[pa.Array], bool]

    def apply(self, values: pa.Array) -> pa.Array | None:
        """The function's result for each value. None if Spark's result may differ from Arrow's for one of them."""
        return self.compute(values) if self.is_certain(values) else None


def index_function(name: str, options: Mapping[str, str], kind: pa.DataType) -> IndexFunction:
    """The function of this name with its options (Hudi's: `expr` is the name itself) over a column of type `kind`.

    >>> year = index_function("year", {}, pa.date32())
    >>> year.apply(pa.array([0], pa.date32())).to_pylist()
    [1970]

    Raises `UnsupportedFeature` for a function, an option or a type that lakebed does not compute, `InvalidOption` for
    options that the function needs or does not have.
    """
    maker = _FUNCTIONS.get(name)
    if maker is None:
        raise UnsupportedFeature(
            f"the function {name!r} of an expression index",
            hint=f"lakebed computes {', '.join(FUNCTION_NAMES)} as Spark does.",
            context={"feature": "expression index", "function": name},
        )
    function_options = {key: value for key, value in options.items() if key != EXPRESSION}
    odd = [key for key in function_options if key not in _OPTIONS.get(name, ())]
    if odd:
        raise InvalidOption(
            f"{name} of an expression index has no option {', '.join(odd)}",
            hint=f"It has {', '.join(_OPTIONS.get(name, ())) or 'none'}.",
            context={"function": name, "options": odd},
        )
    return maker(name, function_options, kind)


def _identity(name: str, _options: Mapping[str, str], kind: pa.DataType) -> IndexFunction:
    if not (pt.is_integer(kind) or kind in (_TEXT, _DATE)):
        raise _wrong_type(name, kind)
    return IndexFunction(name, kind, zoned=False, compute=lambda values: values, is_certain=_always)


def _text(name: str, options: Mapping[str, str], kind: pa.DataType) -> IndexFunction:
    if kind != _TEXT:
        raise _wrong_type(name, kind)
    result = _INT if name == "length" else _TEXT
    return IndexFunction(name, result, zoned=False, compute=_text_kernel(name, options), is_certain=_certain_case(name))


def _text_kernel(name: str, options: Mapping[str, str]) -> Callable[[pa.Array], pa.Array]:
    if name in ("trim", "ltrim", "rtrim"):
        kernel = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}[name]
        characters = options.get("trimString", " ")
        return lambda values: kernel(values, characters=characters)
    if name == "substring":
        start, stop = slice_of(_number(name, options, "pos"), _number(name, options, "len"))
        return lambda values: pc.utf8_slice_codeunits(values, start=start, stop=stop)
    if name == "length":
        return lambda values: pc.utf8_length(values).cast(_INT)
    return pc.utf8_upper if name == "upper" else pc.utf8_lower


def slice_of(position: int, length: int) -> tuple[int, int | None]:
    """The start and stop of Spark's `substring(text, position, length)`; numbers below 0 count from the end.

    >>> slice_of(1, 3), slice_of(-2, 5), slice_of(-5, 3)
    ((0, 3), (-2, None), (-5, -2))
    """
    if length <= 0:
        return 0, 0
    if position >= 0:
        start = max(position - 1, 0)
        return start, start + length
    stop = position + length
    return position, stop if stop < 0 else None


def _part(name: str, _options: Mapping[str, str], kind: pa.DataType) -> IndexFunction:
    if not _is_instant(kind) and not (kind == _DATE and name != "hour"):
        raise _wrong_type(name, kind)
    kernel = {"year": pc.year, "month": pc.month, "day": pc.day, "hour": pc.hour}[name]

    def compute(values: pa.Array) -> pa.Array:
        return kernel(_local(values)).cast(_INT)

    return IndexFunction(name, _INT, zoned=_is_instant(kind), compute=compute, is_certain=_is_of_four_digit_years)


def _date_format(name: str, options: Mapping[str, str], kind: pa.DataType) -> IndexFunction:
    if not _is_instant(kind) and kind != _DATE:
        raise _wrong_type(name, kind)
    pattern = _needed(name, options, "format")
    pattern_parts(pattern)

    def compute(values: pa.Array) -> pa.Array:
        return printed(_local(values), pattern)

    return IndexFunction(name, _TEXT, zoned=_is_instant(kind), compute=compute, is_certain=_is_of_four_digit_years)


def _from_unixtime(name: str, options: Mapping[str, str], kind: pa.DataType) -> IndexFunction:
    if kind not in (_INT, _LONG):
        raise _wrong_type(name, kind)
    pattern = options.get("format", DEFAULT_PATTERN)
    pattern_parts(pattern)

    def times(values: pa.Array) -> pa.Array:
        return values.cast(_LONG).cast(pa.timestamp("s", ZONE))

    def compute(values: pa.Array) -> pa.Array:
        return printed(_local(times(values)), pattern)

    return IndexFunction(
        name, _TEXT, zoned=True, compute=compute, is_certain=lambda values: _is_of_four_digit_years(times(values))
    )


def _unix_timestamp(name: str, options: Mapping[str, str], kind: pa.DataType) -> IndexFunction:
    if not _is_instant(kind) and kind != _DATE:
        raise _wrong_type(name, kind)
    if options:
        raise _for_texts(name)

    def compute(values: pa.Array) -> pa.Array:
        times = values.cast(MICROS) if kind == _DATE else _local(values)
        return pc.divide(times.cast(_LONG), _UNITS[times.type.unit])  # cut toward zero, as Spark does

    return IndexFunction(name, _LONG, zoned=kind == _DATE, compute=compute, is_certain=_is_of_four_digit_years)


def _to_time(name: str, options: Mapping[str, str], kind: pa.DataType) -> IndexFunction:
    if not _is_instant(kind) and kind != _DATE:
        raise _wrong_type(name, kind)
    if options:
        raise _for_texts(name)
    result = _DATE if name == "to_date" else _INSTANT
    from_date = kind == _DATE

    def compute(values: pa.Array) -> pa.Array:
        return _dates(values) if name == "to_date" else values.cast(MICROS).cast(_INSTANT)

    zoned = from_date != (name == "to_date")
    return IndexFunction(name, result, zoned=zoned, compute=compute, is_certain=_is_of_four_digit_years)


def _days(name: str, options: Mapping[str, str], kind: pa.DataType) -> IndexFunction:
    if not _is_instant(kind) and kind != _DATE:
        raise _wrong_type(name, kind)
    days = _number(name, options, "days") * (1 if name == "date_add" else -1)

    def compute(values: pa.Array) -> pa.Array:
        return pc.add(_dates(values).cast(_INT), pa.scalar(days, _INT)).cast(_DATE)

    return IndexFunction(name, _DATE, zoned=_is_instant(kind), compute=compute, is_certain=_is_of_four_digit_years)


_Maker = Callable[[str, Mapping[str, str], pa.DataType], IndexFunction]
_FUNCTIONS: dict[str, _Maker] = {
    IDENTITY: _identity,
    **dict.fromkeys(("upper", "lower", "trim", "ltrim", "rtrim", "length", "substring"), _text),
    **dict.fromkeys(("year", "month", "day", "hour"), _part),
    "date_format": _date_format,
    "from_unixtime": _from_unixtime,
    "unix_timestamp": _unix_timestamp,
    **dict.fromkeys(("to_date", "to_timestamp"), _to_time),
    **dict.fromkeys(("date_add", "date_sub"), _days),
}
_OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("trim", "ltrim", "rtrim"), ("trimString",)),
    "substring": ("pos", "len"),
    **dict.fromkeys(("date_format", "from_unixtime", "unix_timestamp", "to_date", "to_timestamp"), ("format",)),
    **dict.fromkeys(("date_add", "date_sub"), ("days",)),
}
FUNCTION_NAMES = tuple(_FUNCTIONS)


def _is_instant(kind: pa.DataType) -> bool:
    return pt.is_timestamp(kind) and kind.tz is not None and kind.unit in ("ms", "us")


def _local(values: pa.Array) -> pa.Array:
    """The instants as wall-clock times of UTC; dates are unchanged."""
    return values.cast(pa.timestamp(values.type.unit)) if pt.is_timestamp(values.type) else values


def _dates(values: pa.Array) -> pa.Array:
    if values.type == _DATE:
        return values
    # the cast rounds toward zero, so the time of day goes first
    return pc.floor_temporal(_local(values), unit="day").cast(_DATE)


def _always(_values: pa.Array) -> bool:
    return True


def _certain_case(name: str) -> Callable[[pa.Array], bool]:
    pattern = _UNCERTAIN.get(name)
    if pattern is None:
        return _always
    return lambda values: not pc.any(pc.match_substring_regex(values, pattern)).as_py()


def _is_of_four_digit_years(values: pa.Array) -> bool:
    """Whether all are in the years 1 to 9999, which every engine prints and splits the same way."""
    kind = values.type
    first: Any = pa.scalar(_FIRST_DAY, _DATE)
    last: Any = pa.scalar(_LAST_DAY, _DATE)
    if pt.is_timestamp(kind):
        naive = pa.timestamp(kind.unit)
        first, last = pa.scalar(datetime(1, 1, 1), naive), pa.scalar(datetime(9999, 12, 31), naive)
    within = pc.and_(pc.greater_equal(_local(values), first), pc.less_equal(_local(values), last))
    return pc.all(within).as_py() is not False


def _needed(name: str, options: Mapping[str, str], key: str) -> str:
    if key not in options:
        raise InvalidOption(
            f"{name} of an expression index needs the option {key!r}",
            hint=f"Give options={{{key!r}: ...}}.",
            context={"function": name, "option": key},
        )
    return options[key]


def _number(name: str, options: Mapping[str, str], key: str) -> int:
    text = _needed(name, options, key)
    try:
        return int(text)
    except ValueError:
        raise InvalidOption(
            f"the option {key!r} of {name} is {text!r}, which is no whole number",
            context={"function": name, "option": key},
        ) from None


def _wrong_type(name: str, kind: pa.DataType) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{name} of an expression index over a column of type {kind}",
        hint="Text functions take texts; functions of time take timestamps in UTC and dates, from_unixtime integers.",
        context={"feature": "expression index", "function": name, "type": str(kind)},
    )


def _for_texts(name: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{name} of an expression index with a format: it is for reading texts, which lakebed does not do as Spark",
        hint="Index a column of timestamps or dates.",
        context={"feature": "expression index", "function": name},
    )
