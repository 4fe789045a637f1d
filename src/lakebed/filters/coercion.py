"""Comparing two sides of different types as Spark does: a constant becomes a value of the column's type, exactly or
not at all; texts are cast as Spark casts string literals.
"""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from lakebed.errors import InvalidOption
from lakebed.expressions.zones import SHORT_IDS
from lakebed.filters.predicates import (
    FLIPPED,
    Call,
    Compare,
    Constant,
    In,
    IsNull,
    Literal,
    Node,
    Not,
    Operator,
    Or,
    Value,
)
from lakebed.schema.logical_types import is_variant
from lakebed.storage.base import from_os_error

INSTANT = pa.timestamp("us", tz="UTC")
LOCAL_TIME = pa.timestamp("us")

_DATE = re.compile(r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?\s*", re.ASCII)
_TIMESTAMP = re.compile(
    r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?\s?(\S+)?)?)?)?\s*",
    re.ASCII,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.ASCII)


class SparkOnly(Exception):
    """A piece of SQL that lakebed leaves to Spark; the text is the reason."""


def parse_date(text: str) -> date:
    """The date that Spark casts from a text.

    >>> parse_date("2024-2-3")
    datetime.date(2024, 2, 3)
    """
    match = _DATE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        return date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        raise SparkOnly(f"{text!r} is no date as yyyy-MM-dd") from None


def parse_timestamp(text: str) -> datetime:
    """The time that Spark casts from a text: aware if the text names a zone, otherwise naive.

    >>> parse_timestamp("2024-02-03 04:05:06.5Z")
    datetime.datetime(2024, 2, 3, 4, 5, 6, 500000, tzinfo=datetime.timezone.utc)
    """
    match = _TIMESTAMP.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        year, month, day, hour, minute, second = (int(match[i] or (1 if i < 4 else 0)) for i in range(1, 7))
        micros = int((match[7] or "").ljust(6, "0"))
        zone = parse_zone(match[8]) if match[8] else None
        return datetime(year, month, day, hour, minute, second, micros, tzinfo=zone)
    except ValueError:
        raise SparkOnly(f"{text!r} is no time as yyyy-MM-dd HH:mm:ss") from None


def parse_zone(text: str) -> tzinfo:
    """The zone of an offset, region name or one of Java's short names. Raises `ValueError` for anything else.

    >>> parse_zone("+05:30").utcoffset(None)
    datetime.timedelta(seconds=19800)
    """
    if text in ("Z", "UTC", "GMT", "UT"):
        return UTC
    if match := _OFFSET.fullmatch(text):
        hours, minutes, seconds = (int(match[part] or 0) for part in (2, 3, 4))
        if max(minutes, seconds) > 59:
            raise ValueError(f"unknown time zone {text!r}")
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(SHORT_IDS.get(text, text))
    except (ZoneInfoNotFoundError, OSError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise from_os_error(error, "read", f"the time zone {text}") from error
        raise ValueError(f"unknown time zone {text!r}") from None


def as_instant(value: datetime, zone: tzinfo) -> Literal:
    """The literal of a time as an instant; a time without zone is in `zone`."""
    try:
        return Literal((value if value.tzinfo else value.replace(tzinfo=zone)).astimezone(UTC), INSTANT)
    except OverflowError:
        raise SparkOnly("a time at the edge of the calendar") from None


def midnight(value: date) -> datetime:
    return datetime(value.year, value.month, value.day)


def number_literal(text: str) -> Literal:
    """The literal of a number in Spark's type: int or bigint, decimal with a point, double with an exponent."""
    if "e" in text.lower():
        return Literal(float(text), pa.float64())
    if "." not in text and -(2**63) <= int(text) < 2**63:
        value = int(text)
        return Literal(value, pa.int32() if -(2**31) <= value < 2**31 else pa.int64())
    return decimal_literal(Decimal(text))


def decimal_literal(value: Decimal) -> Literal:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    if precision > 38:
        raise SparkOnly(f"{value} has more than 38 digits")
    return Literal(value, pa.decimal128(precision, scale))


def constant_text(value: Any) -> str | None:
    """The Spark SQL constant for a value; None for a value without one, such as structs and times of day.

    >>> constant_text(-5), constant_text("a"), constant_text([1]), constant_text({"a": 1})
    ('-5', "'a'", 'array(1L)', None)
    """
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return number_literal(str(value)).to_spark_sql()
        scalar = pa.scalar(value)
        if pa.types.is_integer(scalar.type):
            return number_literal(str(scalar)).to_spark_sql()
        if pa.types.is_decimal(scalar.type):
            return decimal_literal(scalar.as_py()).to_spark_sql()
        return Literal(scalar.as_py(), scalar.type).to_spark_sql()
    except (pa.ArrowException, InvalidOption, OverflowError, SparkOnly, TypeError, UnicodeError, ValueError):
        return None


_BOUNDS = {pa.int32(): 2**31, pa.int64(): 2**63}
_FLOAT_TEXT = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_SPECIAL_NUMBERS = frozenset(("nan", *(sign + word for sign in ("", "+", "-") for word in ("inf", "infinity"))))
_BOOLEAN_TEXT = {"true": True, "false": False}


def compare(left: Value, op: Operator, right: Value, zone: tzinfo) -> Node:
    """The node of a comparison with both sides in one type. Raises `SparkOnly` if lakebed does not have Spark's
    rule."""
    for side in (left, right):
        kind = getattr(side, "type", None)
        if kind is not None and kind.num_fields and is_variant(kind):
            raise InvalidOption(
                "the condition compares a VARIANT",
                hint="compare what is in it: variant_get(column, '$.a', 'int') = 1",
            )
    if isinstance(left, Literal):
        if isinstance(right, Literal):
            return _compare_constants(left, op, right)
        left, op, right = right, FLIPPED[op], left
    if isinstance(right, Literal):
        return _with_constant(left, op, right, zone)
    common = common_type(left.type, right.type)
    return Compare(cast(left, common), op, cast(right, common))


def membership(left: Value, items: Sequence[Literal], zone: tzinfo) -> Node:
    """The node of `left IN (items)`, all in one type."""
    kinds = {_kind(i.type) for i in items if i.value is not None}
    if len(kinds) > 1 and not (kinds == {"exact", "float"} and pa.types.is_floating(left.type)):
        raise SparkOnly("IN over constants of different types")
    values: list[Literal] = []
    other_nodes: list[Node] = []
    for item in items:
        if item.value is None:
            continue
        node = compare(left, "=", item, zone)
        if isinstance(node, Compare) and node.left == left and isinstance(node.right, Literal):
            values.append(node.right)
        elif not (isinstance(node, In) and not node.values):
            other_nodes.append(node)
    has_null = any(i.value is None for i in items)
    if pa.types.is_floating(left.type) and any(math.isnan(v.value) for v in values):
        other_nodes.extend(Compare(left, "=", v) for v in values)
        values = []
    inclusion = In(left, tuple(values), has_null)
    return Or((inclusion, *other_nodes)) if other_nodes else inclusion


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if left == right and not pa.types.is_nested(left):
        return left
    kinds = {_kind(left), _kind(right)}
    if kinds == {"exact"}:
        return _common_decimal(left, right)
    if kinds <= {"exact", "float"}:
        return pa.float64()
    if kinds == {"instant"}:
        return INSTANT
    if kinds == {"local"}:
        return LOCAL_TIME
    raise SparkOnly(f"a comparison of {left} with {right}")


def cast(value: Value, to: pa.DataType) -> Value:
    if value.type == to:
        return value
    return Call("cast", (value,), to)


def _kind(type_: pa.DataType) -> str:
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        return "exact"
    if pa.types.is_floating(type_):
        return "float"
    if pa.types.is_timestamp(type_):
        return "instant" if type_.tz is not None else "local"
    return str(type_)


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        return pa.int64()
    (whole_l, scale_l), (whole_r, scale_r) = _digits(left), _digits(right)
    scale = max(scale_l, scale_r)
    precision = max(whole_l, whole_r) + scale
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _digits(type_: pa.DataType) -> tuple[int, int]:
    if pa.types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    return (10 if type_ == pa.int32() else 19), 0


def _compare_constants(left: Literal, op: Operator, right: Literal) -> Node:
    if left.value is None or right.value is None:
        if op == "<=>":
            return Constant(left.value is None and right.value is None)
        return Constant(None)
    if _kind(left.type) != _kind(right.type) or _kind(left.type) == "float":
        raise SparkOnly("a comparison of two constants")
    a, b = left.value, right.value
    answers = {"=": a == b, "<=>": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
    return Constant(answers[op])


def _with_constant(left: Value, op: Operator, right: Literal, zone: tzinfo) -> Node:
    if right.value is None:
        return IsNull(left) if op == "<=>" else Constant(None)
    column, constant = left.type, right.value
    if pa.types.is_integer(column) or pa.types.is_decimal(column):
        return _with_exact(left, op, right)
    if pa.types.is_floating(column):
        wide = cast(left, pa.float64())
        return Compare(wide, op, Literal(_as_float(constant), pa.float64()))
    if pa.types.is_boolean(column):
        if isinstance(constant, str):
            constant = _BOOLEAN_TEXT.get(constant.strip().lower())
        if isinstance(constant, bool):
            return Compare(left, op, Literal(constant, column))
    elif (pa.types.is_string(column) and isinstance(constant, str)) or (
        pa.types.is_binary(column) and isinstance(constant, bytes)
    ):
        return Compare(left, op, Literal(constant, column))
    elif pa.types.is_date32(column):
        return _with_date(left, op, constant, zone)
    elif pa.types.is_timestamp(column):
        to = INSTANT if column.tz is not None else LOCAL_TIME
        return Compare(cast(left, to), op, _time_constant(constant, column.tz is not None, zone))
    raise SparkOnly(f"a comparison of {column} with {constant!r}")


def _as_float(constant: Any) -> float:
    if isinstance(constant, str) and _FLOAT_TEXT.fullmatch(constant):
        return float(constant)
    if isinstance(constant, int | float | Decimal) and not isinstance(constant, bool):
        try:
            return float(constant)
        except OverflowError:
            pass
    raise SparkOnly(f"a comparison of a floating-point column with {constant!r}")


def _with_exact(left: Value, op: Operator, right: Literal) -> Node:
    """The node that compares integers or decimals with a number, without rounding: the bound is moved to the next value
    of the column's type."""
    constant = right.value
    if (
        isinstance(constant, str)
        and pa.types.is_integer(left.type)
        and re.fullmatch(r"\s*[+-]?\d{1,18}\s*", constant, re.ASCII)
    ):
        constant = int(constant)
        if abs(constant) >= _BOUNDS.get(left.type, 0):
            raise SparkOnly(f"{constant} is no {left.type}")
    if isinstance(constant, float):
        return Compare(cast(left, pa.float64()), op, Literal(constant, pa.float64()))
    if isinstance(constant, bool) or not isinstance(constant, int | Decimal):
        raise SparkOnly(f"a comparison of {left.type} with {constant!r}")
    scale = 0 if pa.types.is_integer(left.type) else left.type.scale
    low, high = _unscaled_range(left.type)
    scaled = Fraction(constant) * 10**scale
    below = math.floor(scaled)
    if scaled.denominator == 1 and low <= below <= high:
        return Compare(left, op, _exact_literal(below, scale, left.type))
    if low <= below < high:
        return _between_values(left, op, _exact_literal(below, scale, left.type))
    # beyond the type's range all values are on one side
    holds = op == "!=" or (op in ("<", "<=") and below >= high) or (op in (">", ">=") and below < low)
    if op == "<=>":
        return Constant(False)
    return Not(In(left, ())) if holds else In(left, ())


def _between_values(left: Value, op: Operator, below: Literal) -> Node:
    """A comparison with a constant between `below` and the next value of the column's type."""
    match op:
        case "=":
            return In(left, ())
        case "!=":
            return Not(In(left, ()))
        case "<=>":
            return Constant(False)
        case "<" | "<=":
            return Compare(left, "<=", below)
        case _:
            return Compare(left, ">", below)


def _unscaled_range(type_: pa.DataType) -> tuple[int, int]:
    if pa.types.is_decimal(type_):
        return -(10**type_.precision) + 1, 10**type_.precision - 1
    bound = 1 << (type_.bit_width - 1)
    return -bound, bound - 1


def _exact_literal(unscaled: int, scale: int, type_: pa.DataType) -> Literal:
    if pa.types.is_integer(type_):
        return Literal(unscaled, type_)
    sign, digits = (1, str(-unscaled)) if unscaled < 0 else (0, str(unscaled))
    return Literal(Decimal((sign, tuple(int(d) for d in digits), -scale)), type_)


def _with_date(left: Value, op: Operator, constant: Any, zone: tzinfo) -> Node:
    if isinstance(constant, str):
        return Compare(left, op, Literal(parse_date(constant), left.type))
    if isinstance(constant, datetime):
        # a date means its midnight
        local = constant.astimezone(zone).replace(tzinfo=None) if constant.tzinfo else constant
        day = Literal(local.date(), left.type)
        exact = local == midnight(local.date())
        return Compare(left, op, day) if exact else _between_values(left, op, day)
    if isinstance(constant, date):
        return Compare(left, op, Literal(constant, left.type))
    raise SparkOnly(f"a comparison of a date with {constant!r}")


def _time_constant(constant: Any, zoned: bool, zone: tzinfo) -> Literal:
    if isinstance(constant, str):
        constant = parse_timestamp(constant)
        if constant.tzinfo is not None and not zoned:
            raise SparkOnly("a zone in the text compared with a time without zone")
    if isinstance(constant, date) and not isinstance(constant, datetime):
        constant = midnight(constant)
    if not isinstance(constant, datetime):
        raise SparkOnly(f"a comparison of a timestamp with {constant!r}")
    if zoned:
        return as_instant(constant, zone)
    if constant.tzinfo is not None:
        constant = constant.astimezone(zone).replace(tzinfo=None)
    return Literal(constant, LOCAL_TIME)


def cast_literal(literal: Literal, to: pa.DataType, zone: tzinfo) -> Literal:
    """The result of CAST of a constant to a type, as a constant."""
    value = literal.value
    if value is None or literal.type == to:
        return Literal(value, to)
    if isinstance(value, str):
        if pa.types.is_date32(to):
            return Literal(parse_date(value), to)
        if pa.types.is_timestamp(to):
            return _time_constant(value, to.tz is not None, zone)
        if pa.types.is_floating(to) and value.strip().lower() in _SPECIAL_NUMBERS:
            return Literal(float(value), to)
        if (
            not pa.types.is_string(to)
            and _FLOAT_TEXT.fullmatch(value)
            and (not pa.types.is_integer(to) or value.strip().lstrip("+-").isdigit())
        ):
            return cast_literal(number_literal(value.strip()), to, zone)
    if isinstance(value, bytes) and pa.types.is_string(to):
        try:
            return Literal(value.decode(), to)
        except UnicodeDecodeError:
            raise SparkOnly("bytes that are no UTF-8 text") from None
    if isinstance(value, datetime):
        if pa.types.is_date32(to):
            local = value.astimezone(zone) if value.tzinfo else value
            return Literal(local.date(), to)
        if pa.types.is_timestamp(to):
            return _time_constant(value, to.tz is not None, zone)
    elif isinstance(value, date) and pa.types.is_timestamp(to):
        return _time_constant(value, to.tz is not None, zone)
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        if pa.types.is_floating(to):
            return Literal(pa.scalar(float(value), to).as_py(), to)
        if (pa.types.is_integer(to) or pa.types.is_decimal(to)) and (exact := _exact_cast(value, to)):
            return exact
    raise SparkOnly(f"CAST of {value!r} to {to}")


def _exact_cast(value: int | Decimal, to: pa.DataType) -> Literal | None:
    scale = to.scale if pa.types.is_decimal(to) else 0
    scaled = Fraction(value) * 10**scale
    low, high = _unscaled_range(to)
    if scaled.denominator != 1 or not low <= scaled <= high:
        return None
    return _exact_literal(int(scaled), scale, to)
