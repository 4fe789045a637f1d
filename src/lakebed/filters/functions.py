"""Functions of Spark SQL by name: their arguments and the type of their result. `sql_functions` computes them.

A function reads its arguments from the parser's expression and raises `SparkOnly` for arguments with which its values
would not be Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from lakebed.errors import InvalidOption
from lakebed.expressions.sql_functions import days_later
from lakebed.filters.coercion import INSTANT, SparkOnly, cast_literal
from lakebed.filters.predicates import Call, Column, Literal, Value
from lakebed.filters.text import arrow_pattern
from lakebed.schema.arrow import MAX_PRECISION
from lakebed.schema.logical_types import is_variant

if TYPE_CHECKING:
    from sqlglot.expressions.core import Expression

INT, BIGINT, DOUBLE, TEXT, DATE = pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.date32()
DIGITS = {INT: 10, BIGINT: 19}
# Of a decimal.
# A double is printed with 17 digits at most, and rounded to no more places than it surely has.
_MAX_DECIMALS = 15
_SECOND = 1_000_000
_MICROS = {"HOUR": 3600 * _SECOND, "MINUTE": 60 * _SECOND, "SECOND": _SECOND}
_DAYS = {"DAY": 1, "WEEK": 7}
_MONTHS = {"MONTH": 1, "YEAR": 12}
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_WEEKDAY_NAMES = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
}
_TIME_UNITS = {**_UNITS, **dict.fromkeys(("DAY", "DD"), "day"), "HOUR": "hour", "MINUTE": "minute", "SECOND": "second"}
_PARTS: dict[str, type[Expression]] = {
    **dict.fromkeys(("YEAR", "Y", "YEARS"), exp.Year),
    **dict.fromkeys(("QUARTER", "QTR"), exp.Quarter),
    **dict.fromkeys(("MONTH", "MON", "MONTHS"), exp.Month),
    **dict.fromkeys(("WEEK", "W", "WEEKS"), exp.WeekOfYear),
    **dict.fromkeys(("DAY", "D", "DAYS"), exp.DayOfMonth),
    **dict.fromkeys(("DAYOFWEEK", "DOW"), exp.DayOfWeek),
    "DOY": exp.DayOfYear,
    **dict.fromkeys(("HOUR", "H", "HOURS"), exp.Hour),
    **dict.fromkeys(("MINUTE", "MIN", "M", "MINUTES"), exp.Minute),
}


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of the arguments of a function: any value, values converted to one type, and the zone of times."""

    read: Callable[[Expression], Value]
    of_one_type: Callable[[Sequence[Value]], tuple[Value, ...]]
    zone: tzinfo
    zone_name: str

    def text(self, e: Expression) -> Value:
        """A text argument; null counts as a text."""
        value = self.read(e)
        if isinstance(value, Literal) and value.value is None:
            return Literal(None, TEXT)
        if not pa.types.is_string(value.type):
            raise SparkOnly(f"a text function on {value.type}")
        return value

    def constant_text(self, e: Expression | None) -> str:
        value = Literal(None, TEXT) if e is None else self.read(e)
        if not isinstance(value, Literal) or not isinstance(value.value, str):
            raise SparkOnly("a function with anything but a constant text")
        return value.value

    def constant_number(self, e: Expression | None, otherwise: int | None = None) -> int:
        if e is None and otherwise is not None:
            return otherwise
        value = self.read(e) if e is not None else None
        number = value.value if isinstance(value, Literal) and pa.types.is_integer(value.type) else None
        if not isinstance(number, int):
            raise SparkOnly("a function with anything but a constant whole number")
        return number

    def number(self, e: Expression) -> Value:
        """A number argument; null is a double, as in Spark."""
        value = self.read(e)
        if isinstance(value, Literal) and value.value is None:
            return Literal(None, DOUBLE)
        if not (value.type in (INT, BIGINT, DOUBLE) or pa.types.is_decimal(value.type)):
            raise SparkOnly(f"{e.sql('spark')} of {value.type} as a number")
        return value

    def time(self, value: Value, to: pa.DataType) -> Value:
        """A constant text or null as a date or time, converted as Spark does; any other value unchanged."""
        if isinstance(value, Literal) and (value.value is None or pa.types.is_string(value.type)):
            return cast_literal(value, to, self.zone)
        return value

    def date(self, e: Expression) -> Value:
        """A date; of a time the date in the zone."""
        inner = e.this if isinstance(e, exp.TsOrDsToDate) and not e.args.get("format") else e
        value = self.time(self.read(inner), DATE)
        if pa.types.is_timestamp(value.type):
            return Call("date_of", (value,), DATE, (self.zone_name,) if value.type.tz is not None else ())
        if not pa.types.is_date32(value.type):
            raise SparkOnly(f"a date function on {value.type}")
        return value


def only(e: Expression, *expected: str) -> None:
    """Raise `SparkOnly` if the parser found parts of a construct that are not in `expected`."""
    odd = [name for name, value in e.args.items() if name not in expected and value not in (None, False, [], "")]
    if odd:
        raise SparkOnly(f"{type(e).__name__.lower()} with {', '.join(odd)}")


def digits_of(value: Value) -> tuple[int, int]:
    """The precision and scale of a decimal value, or those that integers of a type need."""
    if pa.types.is_decimal(value.type):
        return value.type.precision, value.type.scale
    if isinstance(value, Literal):
        return len(str(abs(value.value))), 0
    return DIGITS.get(value.type, 19), 0


def _variant_get(e: Expression, reader: Reader, invalid: str) -> Value:
    from lakebed.format.variant_values import path_steps, value_type

    variant, path, *types = _arguments(e, 2, 3)
    value, steps = reader.read(variant), reader.constant_text(path)
    if not isinstance(value, Column) or not is_variant(value.type):
        raise InvalidOption(
            f"{e.name} of {variant.sql('spark')}, which is no VARIANT column", hint="name a column of the type VARIANT"
        )
    to = value_type(reader.constant_text(types[0]), e.name) if types else None
    if to is None:
        raise SparkOnly(f"{e.name} without a type, whose value is a variant")
    path_steps(steps)  # raises for a text that is no path
    if pa.types.is_timestamp(to) and to.tz is not None and reader.zone_name != "UTC":
        raise SparkOnly(f"{e.name} of texts that are times in the zone {reader.zone_name}")
    return Call("variant_get", (value,), to, (steps, invalid))


# -- numbers


def _round(e: Expression, reader: Reader, mode: str) -> Value:
    """The value of `round`, `bround`, and of `ceil` and `floor` with places."""
    argument, decimals = e.this, e.args.get("decimals")
    if isinstance(e, exp.Anonymous):
        argument, *optional_arguments = _arguments(e, 1, 2)
        decimals = optional_arguments[0] if optional_arguments else None
    value, places = reader.number(argument), reader.constant_number(decimals, 0)
    if isinstance(value, Literal) and value.value is None:
        return value
    if value.type == DOUBLE:
        if mode in ("up", "down") or not 0 <= places <= _MAX_DECIMALS:
            raise SparkOnly(f"{e.sql('spark')} of a double")
        return Call("round_double", (value,), DOUBLE, (places, mode))
    precision, scale = digits_of(value)
    if pa.types.is_integer(value.type):
        if places >= 0:
            return value
        precision = DIGITS[value.type]
    room = max(precision - scale + 1, 1 - places)
    to = pa.decimal128(room + max(0, min(scale, places)), max(0, min(scale, places))) if room <= MAX_PRECISION else None
    if to is None or precision >= MAX_PRECISION or to.precision > MAX_PRECISION or places < -precision:
        raise SparkOnly(f"{e.sql('spark')} of {value.type}")
    wide = pa.decimal128(max(precision + 1, to.precision - to.scale + scale), scale)
    if not pa.types.is_decimal(value.type):
        digits = pa.decimal128(precision, 0)
        is_constant = isinstance(value, Literal)
        value = Literal(Decimal(value.value), digits) if is_constant else Call("cast", (value,), digits)
    return Call("round_decimal", (value,), to, (min(scale, places), mode, wide))


def _integral(e: Expression, reader: Reader, mode: str) -> Value:
    """The value of `ceil` and `floor`."""
    only(e, "this", "decimals")
    if e.args.get("decimals") is not None:
        value = reader.read(e.this)
        if not pa.types.is_decimal(value.type):
            raise SparkOnly(f"{e.sql('spark')} of {value.type}")
        return _round(e, reader, mode)
    value = reader.number(e.this)
    if value.type == DOUBLE:
        return Call("integral", (value,), BIGINT, (mode,))
    if pa.types.is_integer(value.type):
        return Literal(value.value, BIGINT) if isinstance(value, Literal) else Call("cast", (value,), BIGINT)
    return _round(e, reader, mode)


def _sign(e: Expression, reader: Reader) -> Value:
    only(e, "this")
    return Call("sign", (reader.number(e.this),), DOUBLE)


def _sqrt(e: Expression, reader: Reader) -> Value:
    only(e, "this")
    value = reader.number(e.this)
    if pa.types.is_decimal(value.type):
        raise SparkOnly("sqrt of a decimal")
    return Call("sqrt", (value,), DOUBLE)


def _pmod(e: Expression, reader: Reader) -> Value:
    left, right = (reader.read(argument) for argument in _arguments(e, 2, 2))
    integers = pa.types.is_integer(left.type) and pa.types.is_integer(right.type)
    if not integers or not isinstance(right, Literal) or right.value in (None, 0, -1):
        raise SparkOnly(f"{e.sql('spark')}")
    return Call("pmod", (left, right), BIGINT if BIGINT in (left.type, right.type) else INT)


def _bits(e: Expression, reader: Reader, name: str) -> Value:
    only(e, "this", "expression")
    operands = [reader.read(operand) for operand in (e.this, e.args.get("expression")) if operand is not None]
    if not all(operand.type in (INT, BIGINT) for operand in operands):
        raise SparkOnly(f"{e.sql('spark')}")
    operands = list(reader.of_one_type(operands))
    return Call(name, tuple(operands), operands[0].type)


def _extreme(e: Expression, reader: Reader, name: str) -> Value:
    """The value of `greatest` and `least`."""
    only(e, "this", "expressions", "ignore_nulls")
    values = reader.of_one_type([reader.read(argument) for argument in (e.this, *e.expressions)])
    type_ = values[0].type
    if len(values) < 2 or pa.types.is_boolean(type_) or pa.types.is_binary(type_):
        raise SparkOnly(f"{e.sql('spark')}")
    return Call(name, values, type_)


# -- texts


def _position(e: Expression, reader: Reader) -> Value:
    only(e, "this", "substr", "position")
    if reader.constant_number(e.args.get("position"), 1) != 1:
        raise SparkOnly(f"{e.sql('spark')}")
    return Call("position", (reader.text(e.this),), INT, (reader.constant_text(e.args["substr"]),))


def _pad(e: Expression, reader: Reader) -> Value:
    only(e, "this", "expression", "fill_pattern", "is_left")
    filling = e.args.get("fill_pattern")
    padding = " " if filling is None else reader.constant_text(filling)
    width = max(reader.constant_number(e.expression), 0)
    if len(padding) != 1:
        raise SparkOnly("a padding that is not one character")
    side = "left" if e.args.get("is_left") else "right"
    return Call("pad", (reader.text(e.this),), TEXT, (side, width, padding))


def _replace(e: Expression, reader: Reader) -> Value:
    only(e, "this", "expression", "replacement")
    value, search = reader.text(e.this), reader.constant_text(e.expression)
    new = e.args.get("replacement")
    replacement = "" if new is None else reader.constant_text(new)
    return Call("replace", (value,), TEXT, (search, replacement)) if search else value


def _regexp_replace(e: Expression, reader: Reader) -> Value:
    only(e, "this", "expression", "replacement")
    pattern, replacement = _pattern(e.expression, reader), reader.constant_text(e.args.get("replacement"))
    if "$" in replacement or "\\" in replacement or pattern.matches_nothing:
        raise SparkOnly(f"{e.sql('spark')}")
    return Call("regexp_replace", (reader.text(e.this),), TEXT, (pattern.text, replacement))


def _regexp_extract(e: Expression, reader: Reader) -> Value:
    only(e, "this", "expression", "group", "null_if_pos_overflow")
    pattern, group = _pattern(e.expression, reader), reader.constant_number(e.args.get("group"), 1)
    return Call("regexp_extract", (reader.text(e.this),), TEXT, (pattern.with_group(group),))


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A regular expression in RE2's words."""

    text: str

    @property
    def matches_nothing(self) -> bool:
        """Whether the pattern may match an empty text, after which Java and RE2 continue differently."""
        return re.search(r"[*?]|\{0|\{,|\|", self.text.replace("(?:", "(")) is not None or not self.text

    def with_group(self, number: int) -> str:
        """The pattern with the group of this number alone (0: the match as a whole), named."""
        parts = re.split(r"(\\.|\[(?:\\.|[^\]])+\]|\((?!\?))", self.text, flags=re.DOTALL)
        groups = [at for at, part in enumerate(parts) if part == "("]
        if not 0 <= number <= len(groups):
            raise SparkOnly(f"the group {number} of the pattern {self.text!r}")
        for at in groups:
            parts[at] = "(?:"
        if number:
            parts[groups[number - 1]] = "(?P<group>"
        text = "".join(parts)
        return text if number else f"(?P<group>{text})"


def _pattern(e: Expression, reader: Reader) -> _Pattern:
    pattern = reader.constant_text(e)
    translated = arrow_pattern(pattern)
    if translated is None or "$" in pattern:
        raise SparkOnly(f"the pattern {pattern!r}")
    return _Pattern(translated)


def _split_part(e: Expression, reader: Reader) -> Value:
    only(e, "this", "delimiter", "part_index")
    delimiter, number = reader.constant_text(e.args["delimiter"]), reader.constant_number(e.args["part_index"])
    if not delimiter or number == 0:
        raise SparkOnly(f"{e.sql('spark')}")
    return Call("split_part", (reader.text(e.this),), TEXT, (delimiter, number))


def _concat_ws(e: Expression, reader: Reader) -> Value:
    separator, *texts = e.expressions
    if not texts:
        raise SparkOnly(f"{e.sql('spark')}")
    between, values = reader.constant_text(separator), [reader.text(text) for text in texts]
    constants = [value.value for value in values if isinstance(value, Literal)]
    if len(constants) == len(values):
        return Literal(between.join(constant for constant in constants if constant is not None), TEXT)
    return Call("concat_ws", tuple(values), TEXT, (between,))


def _reverse(e: Expression, reader: Reader) -> Value:
    only(e, "this")
    return Call("reverse", (reader.text(e.this),), TEXT)


def _repeat(e: Expression, reader: Reader) -> Value:
    only(e, "this", "times")
    return Call("repeat", (reader.text(e.this),), TEXT, (max(reader.constant_number(e.args["times"]), 0),))


def _left(e: Expression, reader: Reader) -> Value:
    only(e, "this", "expression")
    return Call("substring", (reader.text(e.this),), TEXT, (0, max(reader.constant_number(e.expression), 0)))


def _right(e: Expression, reader: Reader) -> Value:
    only(e, "this", "expression")
    count = reader.constant_number(e.expression)
    value = reader.text(e.this)
    return Call("tail", (value,), TEXT, (-count,)) if count > 0 else Call("substring", (value,), TEXT, (0, 0))


def _arguments(e: Expression, minimum: int, maximum: int) -> list[Expression]:
    """The arguments of a function that the parser does not know."""
    if not minimum <= len(e.expressions) <= maximum:
        raise SparkOnly(f"{e.sql('spark')}")
    return list(e.expressions)


# -- dates and times


def _add_months(e: Expression, reader: Reader) -> Value:
    only(e, "this", "expression")
    return Call("add_months", (reader.date(e.this),), DATE, (reader.constant_number(e.expression),))


def _last_day(e: Expression, reader: Reader) -> Value:
    only(e, "this")
    return Call("last_day", (reader.date(e.this),), DATE)


def _next_day(e: Expression, reader: Reader) -> Value:
    only(e, "this", "expression")
    name = reader.constant_text(e.expression).upper()
    weekday = next((n for n, (two, long) in enumerate(zip(_WEEKDAYS, _WEEKDAY_NAMES, strict=True), 1)
                    if name in (two, long[:3], long)), None)  # fmt: skip
    if weekday is None:
        raise SparkOnly(f"{e.sql('spark')}")
    return Call("next_day", (reader.date(e.this),), DATE, (weekday,))


def _months_between(e: Expression, reader: Reader) -> Value:
    only(e, "this", "expression")
    sides = [reader.time(reader.read(argument), DATE) for argument in (e.this, e.expression)]
    if not all(pa.types.is_date32(side.type) for side in sides):
        raise SparkOnly(f"{e.sql('spark')}")
    return Call("months_between", tuple(sides), DOUBLE)


def _weekday(e: Expression, reader: Reader) -> Value:
    (value,) = _arguments(e, 1, 1)
    return Call("weekday", (reader.date(value),), INT)


def _make_date(e: Expression, reader: Reader) -> Value:
    numbers = [reader.constant_number(argument) for argument in _arguments(e, 3, 3)]
    try:
        return Literal(date(*numbers), DATE)
    except ValueError:
        raise SparkOnly(f"{e.sql('spark')}") from None


def _part(e: Expression, reader: Reader) -> Value:
    """The value of `extract(unit FROM value)` and `date_part(unit, value)`."""
    if isinstance(e, exp.Extract):
        unit, value = str(e.this.name), e.expression
    else:
        name, value = _arguments(e, 2, 2)
        unit = reader.constant_text(name)
    kind = _PARTS.get(unit.upper())
    if kind is None:
        raise SparkOnly(f"{e.sql('spark')}")
    return reader.read(kind(this=value.copy()))


def _date_trunc(e: Expression, reader: Reader) -> Value:
    """The value of `trunc` for dates and `date_trunc` for times."""
    only(e, "this", "unit")
    name = reader.constant_text(e.args["unit"]).upper()
    if isinstance(e, exp.DateTrunc):
        unit, value = _UNITS.get(name), reader.time(reader.read(e.this), DATE)
        if unit is None or not pa.types.is_date32(value.type):
            raise SparkOnly(f"{e.sql('spark')}")
        return Call("date_trunc", (value,), DATE, (unit,))
    unit, value = _TIME_UNITS.get(name), reader.time(reader.read(e.this), INSTANT)
    if unit is None or value.type != INSTANT:
        raise SparkOnly(f"{e.sql('spark')}")
    return Call("start_of", (value,), INSTANT, (unit, reader.zone_name))


def shifted(e: Expression, reader: Reader) -> Value | None:
    """The value of a date or a time plus or minus an interval or days; None for arithmetic on numbers."""
    left, right = e.this, e.expression
    if isinstance(left, exp.Interval) and isinstance(e, exp.Add):
        left, right = right, left
    if isinstance(right, exp.Interval):
        return _by_interval(e, reader.read(left), right, reader)
    value = reader.read(left)
    if not pa.types.is_date32(value.type):
        return None
    return Call("date_add", (value,), DATE, (_signed(e, reader.constant_number(right)),))


def _signed(e: Expression, number: int) -> int:
    return -number if isinstance(e, exp.Sub) else number


def _by_interval(e: Expression, value: Value, interval: exp.Interval, reader: Reader) -> Value:
    only(interval, "this", "unit")
    number = interval.this.this if isinstance(interval.this, exp.Neg) else interval.this
    text = str(number.name if isinstance(number, exp.Literal) else "")
    unit = str(getattr(interval.args.get("unit"), "name", "")).upper().removesuffix("S")
    if not re.fullmatch(r"[+-]?\d{1,9}", text, re.ASCII):
        raise SparkOnly(f"{e.sql('spark')}")
    count = _signed(e, int(text) if number is interval.this else -int(text))
    if pa.types.is_date32(value.type) and unit in _DAYS:
        return Call("date_add", (value,), DATE, (count * _DAYS[unit],))
    if pa.types.is_date32(value.type) and unit in _MONTHS:
        return Call("add_months", (value,), DATE, (count * _MONTHS[unit],))
    if value.type == INSTANT and unit in _MICROS:
        return Call("add_micros", (value,), INSTANT, (count * _MICROS[unit],))
    if isinstance(value, Literal) and isinstance(value.value, datetime) and unit in _DAYS and value.type == INSTANT:
        return Literal(days_later(value.value, count * _DAYS[unit], reader.zone), INSTANT)
    if value.type == INSTANT and unit in _DAYS and reader.zone_name == "UTC":
        return Call("add_micros", (value,), INSTANT, (count * _DAYS[unit] * 24 * _MICROS["HOUR"],))
    raise SparkOnly(f"{e.sql('spark')}")


def _as(function: Callable[..., Value], *more: Any) -> Callable[[Expression, Reader], Value]:
    return lambda e, reader: function(e, reader, *more)


FUNCTIONS: dict[type[Expression], Callable[[Expression, Reader], Value]] = {
    exp.Round: _as(_round, "half_towards_infinity"),
    exp.Ceil: _as(_integral, "up"),
    exp.Floor: _as(_integral, "down"),
    exp.Sign: _sign,
    exp.Sqrt: _sqrt,
    exp.BitwiseAnd: _as(_bits, "bit_and"),
    exp.BitwiseOr: _as(_bits, "bit_or"),
    exp.BitwiseXor: _as(_bits, "bit_xor"),
    exp.BitwiseNot: _as(_bits, "bit_not"),
    exp.Greatest: _as(_extreme, "greatest"),
    exp.Least: _as(_extreme, "least"),
    exp.StrPosition: _position,
    exp.Pad: _pad,
    exp.Replace: _replace,
    exp.RegexpReplace: _regexp_replace,
    exp.RegexpExtract: _regexp_extract,
    exp.SplitPart: _split_part,
    exp.ConcatWs: _concat_ws,
    exp.Reverse: _reverse,
    exp.Repeat: _repeat,
    exp.Left: _left,
    exp.Right: _right,
    exp.AddMonths: _add_months,
    exp.LastDay: _last_day,
    exp.NextDay: _next_day,
    exp.MonthsBetween: _months_between,
    exp.DateTrunc: _date_trunc,
    exp.TimestampTrunc: _date_trunc,
    exp.Extract: _part,
}
# Functions that the parser does not know.
OTHER_FUNCTIONS: dict[str, Callable[[Expression, Reader], Value]] = {
    "bround": _as(_round, "half_to_even"),
    "pmod": _pmod,
    "weekday": _weekday,
    "make_date": _make_date,
    "date_part": _part,
    "datepart": _part,
    "variant_get": _as(_variant_get, "error"),
    "try_variant_get": _as(_variant_get, "null"),
}
