"""The values inside a SQL condition: columns, constants, casts and the functions that Arrow computes as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from lakebed.expressions.time_patterns import pattern_parts
from lakebed.filters.coercion import INSTANT, LOCAL_TIME, SparkOnly, cast, cast_literal, common_type, number_literal
from lakebed.filters.functions import (
    DIGITS,
    FUNCTIONS,
    INT,
    OTHER_FUNCTIONS,
    Reader,
    digits_of,
    only,
    shifted,
)
from lakebed.filters.predicates import UNKNOWN_FUNCTION, Call, Column, IsNull, Literal, Node, Not, Opaque, Value, walk
from lakebed.filters.text import arrow_pattern
from lakebed.merge.clauses import evaluate
from lakebed.schema.arrow import MAX_PRECISION
from lakebed.schema.column_names import did_you_mean, unknown_in_sql

if TYPE_CHECKING:
    from sqlglot.expressions.core import Expression

_DATE_PARTS: dict[type[Expression], str] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfYear: "dayofyear",
    exp.DayOfWeek: "dayofweek",
    exp.WeekOfYear: "weekofyear",
}
_TIME_PARTS: dict[type[Expression], str] = {exp.Hour: "hour", exp.Minute: "minute", exp.Second: "second"}
_ARITHMETIC: dict[type[Expression], str] = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply"}
_TEXT_FUNCTIONS: dict[type[Expression], str] = {exp.Lower: "lower", exp.Upper: "upper"}
_SHORT_TYPES = {"TINYINT": 2**7, "SMALLINT": 2**15}
_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": INSTANT,
    "TIMESTAMPLTZ": INSTANT,
    "TIMESTAMPNTZ": LOCAL_TIME,
}


class ValueReader:
    """A reader of the parser's value expressions. It raises `SparkOnly` for unsupported expressions. With `now` the
    current time and date are constants."""

    def __init__(
        self,
        schema: pa.Schema,
        zone: tzinfo,
        resolve: Callable[[str, pa.Schema], pa.Field],
        condition: Callable[[Expression], Node],
        now: datetime | None = None,
    ) -> None:
        self.schema = schema
        self.zone = zone
        self.resolve = resolve
        self.condition = condition
        self.now = now
        self.arguments = Reader(self.read, self._of_one_type, zone, self._zone_name)

    def read(self, e: Expression) -> Value:
        if isinstance(e, exp.Paren):
            return self.read(e.this)
        if isinstance(e, exp.Column | exp.Dot):
            return self.column(e)
        constant = self._constant(e)
        if constant is not None:
            return constant
        if isinstance(e, exp.Cast):
            if isinstance(e.this, exp.Literal) and not e.this.is_string:
                return self._typed_number(e.this.this, e.to)
            return self._cast(self.read(e.this), self._type(e.to))
        value = self._function(e)
        if not isinstance(value, Call) or not _is_constant(value):
            return value
        try:
            (result,) = evaluate(pa.table({"row": [0]}), [value.to_arrow()])
        except (LakebedError, pa.ArrowException) as error:
            raise SparkOnly(f"a constant without a value: {error}") from None
        return Literal(result[0].as_py(), value.type)

    def column(self, e: Expression) -> Column:
        steps: list[str] = []
        while isinstance(e, exp.Dot):
            if not isinstance(e.expression, exp.Identifier):
                raise SparkOnly("a path into an array or map")
            steps.insert(0, e.expression.name)
            e = e.this
        if not isinstance(e, exp.Column) or isinstance(e.this, exp.Star):
            raise SparkOnly("a path into an expression")
        steps = [p.name for p in e.parts] + steps
        try:
            field = self.resolve(steps[0], self.schema)
        except InvalidOption as error:
            text = "" if e.parent is None else e.parent.sql()
            hint = unknown_in_sql(steps[0], self.schema.names, text)
            raise InvalidOption(error.message, hint=hint, context=error.context) from None
        path = [field.name]
        for step in steps[1:]:
            if not pa.types.is_struct(field.type):
                raise SparkOnly(f"a field of {'.'.join(path)}, which is no struct")
            names = {f.name.lower(): f for f in field.type}
            if step.lower() not in names:
                parent = ".".join(path)
                fields = [f"{parent}.{f.name}" for f in field.type]
                raise InvalidOption(
                    f"no field {step!r} in column {parent!r}",
                    hint=did_you_mean(f"{parent}.{step}", fields, "its fields are"),
                    context={"column": f"{parent}.{step}"},
                )
            field = names[step.lower()]
            path.append(field.name)
        return Column(tuple(path), field.type)

    def _constant(self, e: Expression) -> Literal | None:
        is_now = isinstance(e, exp.Anonymous) and e.name.lower() == "now" and not e.expressions
        if (is_now or isinstance(e, exp.CurrentTimestamp | exp.CurrentDate)) and self.now is not None:
            only(e, "this") if is_now else only(e)
            is_date = isinstance(e, exp.CurrentDate)
            local = self.now.astimezone(self.zone).date()
            return Literal(local, pa.date32()) if is_date else Literal(self.now, INSTANT)
        if isinstance(e, exp.Null):
            return Literal(None, pa.null())
        if isinstance(e, exp.Boolean):
            return Literal(bool(e.this), pa.bool_())
        if isinstance(e, exp.Literal):
            return Literal(e.this, pa.string()) if e.is_string else number_literal(e.this)
        if isinstance(e, exp.HexString):
            text = str(e.this)
            return Literal(bytes.fromhex(text if len(text) % 2 == 0 else "0" + text), pa.binary())
        if isinstance(e, exp.Array):
            return self._array(e)
        if isinstance(e, exp.Neg):
            inner = e.this
            if isinstance(inner, exp.Literal) and not inner.is_string:
                return number_literal("-" + inner.this)
            suffixed = isinstance(inner, exp.Cast)  # as `2L`, `2.5D`, `1.5BD` are
            if suffixed and isinstance(inner.this, exp.Literal) and not inner.this.is_string:
                return self._typed_number("-" + inner.this.this, inner.to)
            value = self.read(inner) if suffixed or isinstance(inner, exp.Paren) else self._constant(inner)
            if isinstance(value, Literal) and isinstance(value.value, int | float | Decimal):
                return Literal(-value.value, value.type)
        return None

    def _array(self, e: exp.Array) -> Literal | None:
        """An array of constant numbers; None for one of other values."""
        items = [self.read(item) for item in e.expressions]
        numbers = [item.value for item in items if isinstance(item, Literal)]
        if len(numbers) < len(items) or not numbers:
            return None
        if not all(isinstance(number, int | float | Decimal) and not isinstance(number, bool) for number in numbers):
            return None
        if all(isinstance(number, int) for number in numbers):
            return Literal(numbers, pa.list_(pa.int64()))
        return Literal([float(number) for number in numbers], pa.list_(pa.float64()))

    def _typed_number(self, number: str, to: exp.DataType) -> Literal:
        """A number of a type, as `7L` is. Those of Spark's short types are INT, of which they are a part."""
        bound = _SHORT_TYPES.get(to.this.name)
        if bound is not None and number.lstrip("-").isdigit() and -bound <= int(number) < bound:
            return number_literal(number)
        return cast_literal(number_literal(number), self._type(to), self.zone)

    def _type(self, to: exp.DataType) -> pa.DataType:
        name = str(to.this.value if hasattr(to.this, "value") else to.this)
        if name == "DECIMAL":
            sizes = [int(p.this.this) for p in to.expressions] or [10]
            scale = sizes[1] if len(sizes) > 1 else 0
            if not max(1, scale) <= sizes[0] <= MAX_PRECISION:
                raise InvalidOption(
                    f"there is no type {to.sql()}: a decimal has at most {MAX_PRECISION} digits, and no more after the"
                    " point",
                    hint=f"for example DECIMAL({MAX_PRECISION}, 6)",
                )
            return pa.decimal128(sizes[0], scale)
        if name not in _TYPES or (name == "VARCHAR" and to.expressions):
            raise SparkOnly(f"CAST to {name}")
        return _TYPES[name]

    def _cast(self, value: Value, to: pa.DataType) -> Value:
        if isinstance(value, Literal):
            return cast_literal(value, to, self.zone)
        have = value.type
        if have == to:
            return value
        if pa.types.is_date32(to) and pa.types.is_timestamp(have):
            return Call("date_of", (value,), to, (self._zone_name,) if have.tz is not None else ())
        integers = pa.types.is_integer(have) and pa.types.is_integer(to)
        widening = integers and to.bit_width >= have.bit_width
        to_float = pa.types.is_floating(to) and (pa.types.is_integer(have) or have == pa.float32())
        to_text = pa.types.is_string(to) and (
            pa.types.is_integer(have) or pa.types.is_date32(have) or pa.types.is_boolean(have)
        )
        if widening or to_text or (to_float and to == pa.float64()):
            return Call("cast", (value,), to)
        raise SparkOnly(f"CAST of {have} to {to}")

    @property
    def _zone_name(self) -> str:
        key = getattr(self.zone, "key", None)
        if key:
            return key
        offset = str(self.zone.tzname(None))
        return "UTC" if offset == "UTC" else offset.removeprefix("UTC")

    def _function(self, e: Expression) -> Value:
        kind = type(e)
        if kind in _DATE_PARTS or kind in _TIME_PARTS:
            return self._time_part(e)
        if kind in _ARITHMETIC:
            return self._arithmetic(e)
        if isinstance(e, exp.Mod | exp.IntDiv | exp.Div):
            return self._division(e)
        if isinstance(e, exp.Abs | exp.Neg):
            only(e, "this")
            return self._with_sign("abs" if isinstance(e, exp.Abs) else "negate", self.read(e.this))
        if isinstance(e, exp.TsOrDsToDate):
            only(e, "this", "safe")
            return self._cast(self.read(e.this), pa.date32())
        if isinstance(e, exp.TimeToStr | exp.UnixToStr | exp.StrToUnix | exp.TsOrDsAdd):
            return self._time_function(e)
        if isinstance(e, exp.Trim):
            return self._trim(e)
        if isinstance(e, exp.Lower | exp.Upper):
            only(e, "this")
            value = self.arguments.text(e.this)
            while isinstance(value, Call) and value.name in ("lower", "upper"):
                (value,) = value.args  # Spark's optimizer leaves out the inner one
            return Call(_TEXT_FUNCTIONS[kind], (value,), pa.string())
        if isinstance(e, exp.Length):
            only(e, "this")
            value = self.read(e.this)
            if pa.types.is_binary(value.type):
                return Call("octets", (value,), INT)
            return Call("length", (self.arguments.text(e.this),), INT)
        if isinstance(e, exp.Substring):
            return self._substring(e)
        if kind is exp.Concat:  # ConcatWs is one, too
            if e.args.get("safe") is None:
                raise SparkOnly("two string literals in a row")
            return Call("concat", tuple(self.arguments.text(x) for x in e.expressions), pa.string())
        if isinstance(e, exp.DPipe):
            return Call("concat", (self.arguments.text(e.this), self.arguments.text(e.expression)), pa.string())
        if isinstance(e, exp.Coalesce):
            only(e, "this", "expressions")
            values = self._of_one_type([self.read(x) for x in (e.this, *e.expressions)])
            return Call("coalesce", values, values[0].type)
        if isinstance(e, exp.Case | exp.If | exp.Nvl2 | exp.Nullif):
            return self._case(e)
        if isinstance(e, exp.DateDiff):
            return self._date_diff(e)
        if isinstance(e, exp.RegexpLike):
            return self._rlike(e)
        other_function = OTHER_FUNCTIONS.get(e.name.lower()) if isinstance(e, exp.Anonymous) else None
        function = FUNCTIONS.get(kind) or other_function
        if function is not None:
            return function(e, self.arguments)
        if isinstance(e, exp.Anonymous):
            raise SparkOnly(f"{UNKNOWN_FUNCTION} {e.name}() in {e.sql('spark', normalize_functions=False)}")
        raise SparkOnly(f"{e.sql('spark')}")

    def _time_part(self, e: Expression) -> Value:
        only(e, "this")
        inner = e.this
        if isinstance(inner, exp.TsOrDsToDate) and not inner.args.get("safe") and not inner.args.get("format"):
            inner = inner.this
        kind = type(e)
        value = self.arguments.time(self.read(inner), pa.date32() if kind in _DATE_PARTS else INSTANT)
        name = _DATE_PARTS.get(kind) or _TIME_PARTS[kind]
        if not (pa.types.is_timestamp(value.type) or (kind in _DATE_PARTS and pa.types.is_date32(value.type))):
            raise SparkOnly(f"{name} of {value.type}")
        if pa.types.is_timestamp(value.type) and value.type.tz is not None:
            value = Call("local", (value,), LOCAL_TIME, (self._zone_name,))
        return Call(name, (value,), INT)

    def _time_function(self, e: Expression) -> Value:
        """The value of `date_format`, `from_unixtime`, `unix_timestamp`, `date_add` and `date_sub`."""
        if isinstance(e, exp.TsOrDsAdd):
            return self._date_add(e)
        only(e, "this", "format")
        inner = e.this.this if isinstance(e.this, exp.TimeStrToTime) else e.this
        value = self.read(inner)
        if isinstance(e, exp.TimeToStr):
            value = self.arguments.time(value, INSTANT)
        if isinstance(e, exp.StrToUnix):
            if value.type != INSTANT:
                raise SparkOnly(f"unix_timestamp of {value.type}")
            return Call("unix_timestamp", (value,), pa.int64())
        pattern = self._pattern(e)
        if isinstance(e, exp.UnixToStr):
            if not pa.types.is_integer(value.type):
                raise SparkOnly(f"from_unixtime of {value.type}")
            return Call("from_unixtime", (value,), pa.string(), (pattern, self._zone_name))
        if pa.types.is_timestamp(value.type) and value.type.tz is not None:
            value = Call("local", (value,), LOCAL_TIME, (self._zone_name,))
        elif not pa.types.is_date32(value.type):
            raise SparkOnly(f"date_format of {value.type}")
        return Call("date_format", (value,), pa.string(), (pattern,))

    def _pattern(self, e: Expression) -> str:
        format_ = e.args.get("format")
        value = self.read(format_) if format_ is not None else None
        if not isinstance(value, Literal) or not isinstance(value.value, str):
            raise SparkOnly("a pattern that is no constant text")
        try:
            pattern_parts(value.value)
        except UnsupportedFeature as refusal:
            raise SparkOnly(refusal.message) from None
        return value.value

    def _date_add(self, e: Expression) -> Value:
        only(e, "this", "expression", "unit")
        value, days = self.read(e.this), e.expression
        sign = 1
        if isinstance(days, exp.Mul) and days.expression == exp.Neg(this=exp.Literal.number(1)):
            days, sign = days.this, -1
        number = self.read(days)
        constant = number.value if isinstance(number, Literal) else None
        unit = str(e.args.get("unit") or "DAY").upper()
        if not isinstance(constant, int) or isinstance(constant, bool) or unit != "DAY":
            raise SparkOnly(f"{e.sql('spark')}")
        value = self.arguments.time(value, pa.date32())
        if pa.types.is_timestamp(value.type):
            value = self._cast(value, pa.date32())
        if not pa.types.is_date32(value.type):
            raise SparkOnly(f"date_add on {value.type}")
        return Call("date_add", (value,), pa.date32(), (sign * constant,))

    def _trim(self, e: exp.Trim) -> Value:
        only(e, "this", "position", "expression")
        characters = self.read(e.expression) if e.args.get("expression") is not None else Literal(" ", pa.string())
        if not isinstance(characters, Literal) or not isinstance(characters.value, str):
            raise SparkOnly("trim of characters that are no constant")
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(e.args.get("position") or "").upper(), "trim")
        return Call(name, (self.arguments.text(e.this),), pa.string(), (characters.value,))

    def _arithmetic(self, e: Expression) -> Value:
        only(e, "this", "expression")
        if isinstance(e, exp.Add | exp.Sub) and (moved := shifted(e, self.arguments)) is not None:
            return moved
        left, right = self.read(e.this), self.read(e.expression)
        if (null := _null_of(left, right)) is not None:
            return null
        if _is_integer(left) and _is_integer(right):
            return _integer_arithmetic(_ARITHMETIC[type(e)], left, right)
        if all(_is_integer(side) or pa.types.is_decimal(side.type) for side in (left, right)):
            return _decimal_arithmetic(_ARITHMETIC[type(e)], left, right)
        to = common_type(left.type, right.type)
        if to != pa.float64():
            raise SparkOnly(f"arithmetic on {left.type} and {right.type}")
        sides = tuple(v if v.type == to else Call("cast", (v,), to) for v in (left, right))
        return Call(_ARITHMETIC[type(e)], sides, to)

    def _substring(self, e: exp.Substring) -> Value:
        only(e, "this", "start", "length")
        value = self.arguments.text(e.this)
        begin = self.arguments.constant_number(e.args.get("start"))
        length = e.args.get("length")
        if length is None:
            return Call("tail", (value,), pa.string(), (begin - 1 if begin > 0 else begin,))
        size = self.arguments.constant_number(length)
        if begin < 0 or size < 0:
            raise SparkOnly("substring with anything but a constant start and length")
        return Call("substring", (value,), pa.string(), (max(begin - 1, 0), size))

    def _division(self, e: Expression) -> Value:
        """The value of `%`, `div` and `/` by a constant; by other values only Spark evaluates them, since the session's
        settings decide what a division by zero does."""
        only(e, "this", "expression", "typed", "safe")
        left, right = self.read(e.this), self.read(e.expression)
        if (null := _null_of(left, right)) is not None:
            return null
        if not isinstance(right, Literal) or right.value in (None, 0, -1):
            raise SparkOnly(f"{e.sql('spark')}")
        if isinstance(e, exp.Div):
            if common_type(left.type, right.type) != pa.float64() and not (
                pa.types.is_integer(left.type) and pa.types.is_integer(right.type)
            ):
                raise SparkOnly(f"division of {left.type} by {right.type}")
            divisor = Literal(float(right.value), pa.float64())
            dividend = left if left.type == pa.float64() else Call("cast", (left,), pa.float64())
            return Call("divide", (dividend, divisor), pa.float64())
        if not (pa.types.is_integer(left.type) and pa.types.is_integer(right.type)):
            raise SparkOnly(f"{e.sql('spark')}")
        if isinstance(e, exp.IntDiv):
            return Call("quotient", (left, right), pa.int64())
        return Call("modulo", (left, right), pa.int64() if pa.int64() in (left.type, right.type) else INT)

    def _with_sign(self, name: str, value: Value) -> Value:
        """The value of `abs`, or of a minus sign: of an INT as a BIGINT and of a BIGINT as a decimal, which can hold
        every result."""
        is_number = isinstance(value, Literal) and isinstance(value.value, int | float | Decimal)
        if isinstance(value, Literal) and is_number and not pa.types.is_boolean(value.type):
            return Literal(abs(value.value) if name == "abs" else -value.value, value.type)
        if isinstance(value, Literal) and value.value is None:
            return Literal(None, pa.float64() if pa.types.is_null(value.type) else value.type)
        if value.type == INT:
            return Call(name, (value,), pa.int64())
        if value.type == pa.int64():
            return Call(name, (value,), pa.decimal128(DIGITS[value.type], 0))
        if isinstance(value, Literal) or not (value.type == pa.float64() or pa.types.is_decimal(value.type)):
            raise SparkOnly(f"{name} of {value.type}")
        return Call(name, (value,), value.type)

    def _of_one_type(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """The values in the common type that Spark gives them; null has the type of the others."""
        types = {v.type for v in values if not pa.types.is_null(v.type)}
        if len(types) > 1 and types <= {INT, pa.int64()}:
            types = {pa.int64()}
        if len(types) > 1 and all(t in (INT, pa.int64(), pa.float64()) or pa.types.is_decimal(t) for t in types):
            types = {pa.float64() if pa.float64() in types else self._common_decimal(values)}
        if len(types) != 1 or pa.types.is_nested(to := next(iter(types))):
            raise SparkOnly(f"values of the types {', '.join(sorted(map(str, types)))} in one")
        typed: list[Value] = []
        for value in values:
            if not isinstance(value, Literal):
                typed.append(cast(value, to))
            elif pa.types.is_floating(to) and value.value is not None:
                typed.append(Literal(float(value.value), to))
            elif pa.types.is_decimal(to) and value.value is not None:
                typed.append(Literal(Decimal(value.value), to))
            else:
                typed.append(Literal(value.value, to))
        return tuple(typed)

    def _common_decimal(self, values: Sequence[Value]) -> pa.DataType:
        """The decimal type that can hold all of them."""
        sizes = [digits_of(v) for v in values if not pa.types.is_null(v.type)]
        max_scale = max(scale for _, scale in sizes)
        digits = max(precision - scale for precision, scale in sizes) + max_scale
        if digits > MAX_PRECISION:
            raise SparkOnly(f"values with up to {digits} digits in one")
        return pa.decimal128(digits, max_scale)

    def _case(self, e: Expression) -> Value:
        """The value of `CASE`, `if`, `nvl2` and `nullif`."""
        if isinstance(e, exp.Nvl2):
            conditions: list[Node] = [Not(IsNull(self._no_literal(e.this)))]
            results = [e.args["true"], e.args.get("false")]
        elif isinstance(e, exp.Nullif):
            conditions, results = [self.condition(exp.EQ(this=e.this, expression=e.expression))], [None, e.this]
        elif isinstance(e, exp.If):
            only(e, "this", "true", "false")
            conditions, results = [self.condition(e.this)], [e.args["true"], e.args.get("false")]
        else:
            only(e, "this", "ifs", "default")
            tests = [
                branch.this if e.this is None else exp.EQ(this=e.this, expression=branch.this)
                for branch in e.args["ifs"]
            ]
            conditions = [self.condition(test) for test in tests]
            results = [*(branch.args["true"] for branch in e.args["ifs"]), e.args.get("default")]
        if any(isinstance(part, Opaque) for condition in conditions for part in walk(condition)):
            raise SparkOnly(f"{e.sql('spark')}")
        values = [Literal(None, pa.null()) if result is None else self.read(result) for result in results]
        typed = self._of_one_type(values)
        return Call("case", typed, typed[0].type, tuple(conditions))

    def _no_literal(self, e: Expression) -> Value:
        value = self.read(e)
        if isinstance(value, Literal):
            raise SparkOnly(f"a function of the constant {e.sql('spark')}")
        return value

    def _date_diff(self, e: Expression) -> Value:
        """The value of `datediff` for dates and times."""
        only(e, "this", "expression")
        sides = [self.arguments.time(self.read(side), pa.date32()) for side in (e.this, e.expression)]
        if not all(pa.types.is_date32(side.type) for side in sides):
            raise SparkOnly(f"{e.sql('spark')}")
        return Call("datediff", tuple(sides), INT)

    def _rlike(self, e: Expression) -> Value:
        only(e, "this", "expression")
        pattern = self.read(e.expression)
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            raise SparkOnly("RLIKE with anything but a constant pattern")
        translated = arrow_pattern(pattern.value)
        if translated is None:
            raise SparkOnly(f"{e.sql('spark')}")
        self._no_literal(e.this)
        return Call("rlike", (self.arguments.text(e.this),), pa.bool_(), (translated,))


def _is_constant(value: Value) -> bool:
    """Whether a value is the same in every row; false for `CASE` and `RLIKE`."""
    if isinstance(value, Call):
        return value.name not in ("case", "rlike") and all(_is_constant(part) for part in value.args)
    return isinstance(value, Literal)


def _null_of(left: Value, right: Value) -> Literal | None:
    """The result of arithmetic with a constant null; None if neither side is one."""
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Literal) and side.value is None:
            return Literal(None, other.type if pa.types.is_null(side.type) else side.type)
    return None


def _is_integer(value: Value) -> bool:
    """Whether the value is an integer, or the exact result of arithmetic on integers."""
    exact = isinstance(value, Call) and value.name in _ARITHMETIC.values() and pa.types.is_decimal(value.type)
    return exact or pa.types.is_integer(value.type)


def _integer_arithmetic(name: str, left: Value, right: Value) -> Value:
    """The value of arithmetic on integers in a type that can hold every result: a BIGINT for one operation on INT,
    otherwise a decimal. (The session's settings decide what an overflow does.)"""
    if left.type == right.type == INT:
        return Call(name, tuple(Call("cast", (side,), pa.int64()) for side in (left, right)), pa.int64())
    digits = [
        len(str(abs(side.value))) if isinstance(side, Literal) else DIGITS.get(side.type) or side.type.precision
        for side in (left, right)
    ]
    room = sum(digits) + 1 if name == "multiply" else max(digits) + 1
    if room > MAX_PRECISION:
        raise SparkOnly(f"arithmetic on {left.type} and {right.type} whose results have up to {room} digits")
    types = [pa.decimal128(n, 0) for n in digits]
    sides = tuple(
        Literal(Decimal(side.value), to) if isinstance(side, Literal) else cast(side, to)
        for side, to in zip((left, right), types, strict=True)
    )
    return Call(name, sides, pa.decimal128(room, 0))


def _decimal_arithmetic(name: str, left: Value, right: Value) -> Value:
    """The value of arithmetic on decimals, or on one with an integer: exact, with the digits that Spark gives the
    result."""
    (left_digits, left_scale), (right_digits, right_scale) = (digits_of(side) for side in (left, right))
    if name == "multiply":
        precision, scale = left_digits + right_digits + 1, left_scale + right_scale
    else:
        scale = max(left_scale, right_scale)
        precision = max(left_digits - left_scale, right_digits - right_scale) + scale + 1
    if precision > MAX_PRECISION:
        raise SparkOnly(f"arithmetic on {left.type} and {right.type} whose results have up to {precision} digits")
    sides: list[Value] = []
    for side, (size, point) in ((left, (left_digits, left_scale)), (right, (right_digits, right_scale))):
        to = pa.decimal128(size, point)
        sides.append(Literal(Decimal(side.value), to) if isinstance(side, Literal) else cast(side, to))
    return Call(name, tuple(sides), pa.decimal128(precision, scale))
