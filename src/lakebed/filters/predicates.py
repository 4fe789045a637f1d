"""The tree of a filter: nodes that give the same three-valued answer in Arrow and in Spark SQL.

`Predicate` is what the read path works with. Both sides of a comparison have one type already, so pruning may rely
on a `Compare(Column, op, Literal)`. The functions of a filter are Arrow expressions that answer as Spark does.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Literal as OneOf

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption
from lakebed.expressions import letter_case, sql_functions
from lakebed.expressions.base import sql_literal
from lakebed.expressions.time_patterns import printed
from lakebed.expressions.zones import local_expression
from lakebed.filters.text import quote_name, spark_literal
from lakebed.schema.spark import spark_type

_YEARS_OF_CYCLE = 400
_CYCLE = 146_097 * 86_400_000_000
# the beginning of the years 10000 and -10000, in microseconds
_FAR_FUTURE = 253_402_300_800_000_000
_FAR_PAST = -377_736_739_200_000_000
Operator = OneOf["=", "!=", "<", "<=", ">", ">=", "<=>"]
Kernel = Callable[[Sequence[pc.Expression], pa.DataType, tuple[Any, ...]], pc.Expression]

# Scalars with their type: to infer one Arrow imports pandas.
_FALSE, _NO_TEXT = (pc.scalar(pa.scalar(value, kind)) for value, kind in ((False, pa.bool_()), ("", pa.string())))


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
    """The expression that prints seconds since 1970 by a pattern. Arrow cannot handle years beyond 32767, so far times
    are computed from those of some 400 years earlier or later, after which days, weekdays and changes of clocks
    repeat."""
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
    """The expression for `unix_timestamp`: whole seconds since 1970, cut toward zero as in Spark."""
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
    return pc.coalesce(pc.is_nan(args[0]), _FALSE)


def _concat(args: Sequence[pc.Expression], _to: pa.DataType, _options: tuple[Any, ...]) -> pc.Expression:
    return pc.binary_join_element_wise(*args, _NO_TEXT, null_handling="emit_null")


def _concat_ws(args: Sequence[pc.Expression], _to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    """The expression for `concat_ws`: the texts that are not null, joined. In a row of nulls the first becomes an empty
    text, since Arrow leaves out such rows."""
    all_null = args[0].is_null()
    for text in args[1:]:
        all_null = all_null & text.is_null()
    first = pc.if_else(all_null, _NO_TEXT, args[0])
    return pc.binary_join_element_wise(first, *args[1:], options[0], null_handling="skip")


def _modulo(args: Sequence[pc.Expression], to: pa.DataType, _options: tuple[Any, ...]) -> pc.Expression:
    """The remainder, with the sign of the dividend as in Java."""
    left, right = (a.cast(to) for a in args)
    return pc.subtract(left, pc.multiply(pc.divide(left, right), right))


def _positive_modulo(args: Sequence[pc.Expression], to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    remainder = _modulo(args, to, options)
    return pc.if_else(
        pc.less(remainder, 0), _modulo((pc.add(remainder, args[1].cast(to)), args[1]), to, options), remainder
    )


def _extreme(op: Operator) -> Kernel:
    """A kernel for the greatest or the least value, without nulls; the first of equal ones."""

    def call(args: Sequence[pc.Expression], to: pa.DataType, _options: tuple[Any, ...]) -> pc.Expression:
        result = args[0]
        for value in args[1:]:
            better = _ordered(value, op, result, to)
            result = pc.if_else(pc.coalesce(better, result.is_null()), value, result)
        return result

    return call


def _pad(args: Sequence[pc.Expression], _to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    """The expression for `lpad` and `rpad`, which also cut to the width."""
    side, width, padding = options
    function = pc.utf8_lpad if side == "left" else pc.utf8_rpad
    return pc.utf8_slice_codeunits(function(args[0], width=width, padding=padding), start=0, stop=width)


def _regexp_extract(args: Sequence[pc.Expression], to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    """The expression for the group of the first match, empty if nothing matches; `options` have a pattern with only
    that group."""
    group = pc.struct_field(pc.extract_regex(args[0], pattern=options[0]), 0)
    return pc.if_else(args[0].is_null(), pc.scalar(pa.scalar(None, to)), pc.coalesce(group, _NO_TEXT))


def _add_micros(args: Sequence[pc.Expression], to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    return pc.add(args[0].cast(to).cast(pa.int64()), pc.scalar(pa.scalar(options[0], pa.int64()))).cast(to)


def _case(args: Sequence[pc.Expression], to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    """The expression for the value of the first true condition (null is not true); the last value if none is true."""
    result = args[-1]
    for condition, value in reversed(list(zip(options, args[:-1], strict=True))):
        result = pc.if_else(pc.coalesce(node_to_arrow(condition), _FALSE), value, result)
    return result


ARROW_FUNCTIONS: dict[str, Kernel] = {
    "cast": _cast,
    "local": _local,
    "date_of": _date_of,
    "upper": _in_case("upper"),
    "lower": _in_case("lower"),
    "length": _kernel(pc.utf8_length),
    "octets": _kernel(pc.binary_length),
    "substring": _substring,
    "tail": lambda args, _to, options: pc.utf8_slice_codeunits(args[0], start=options[0]),
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
    "modulo": _modulo,
    "quotient": lambda args, to, _options: pc.divide(args[0].cast(to), args[1].cast(to)),
    "divide": lambda args, _to, _options: pc.divide(args[0], args[1]),
    "abs": lambda args, to, _options: pc.abs(args[0].cast(to)),
    "negate": lambda args, to, _options: pc.negate(args[0].cast(to)),
    "case": _case,
    "datediff": lambda args, to, _options: pc.subtract(args[0].cast(pa.int32()), args[1].cast(pa.int32())).cast(to),
    "date_trunc": lambda args, _to, options: pc.floor_temporal(args[0], unit=options[0]),
    "rlike": _predicate(pc.match_substring_regex),
    "greatest": _extreme(">"),
    "least": _extreme("<"),
    "round_double": lambda args, _to, options: sql_functions.round_double(args[0], *options),
    "round_decimal": lambda args, to, options: sql_functions.round_decimal(args[0], to, *options),
    "integral": lambda args, _to, options: sql_functions.integral_double(args[0], *options),
    "sign": lambda args, to, _options: sql_functions.sign(args[0].cast(to, safe=False)),
    "sqrt": lambda args, to, _options: pc.sqrt(args[0].cast(to, safe=False)),
    "pmod": _positive_modulo,
    "bit_and": _kernel(pc.bit_wise_and),
    "bit_or": _kernel(pc.bit_wise_or),
    "bit_xor": _kernel(pc.bit_wise_xor),
    "bit_not": _kernel(pc.bit_wise_not),
    "position": lambda args, _to, options: sql_functions.position(args[0], *options),
    "split_part": lambda args, _to, options: sql_functions.split_part(args[0], *options),
    "pad": _pad,
    "replace": lambda args, _to, options: pc.replace_substring(args[0], options[0], options[1]),
    "regexp_replace": lambda args, _to, options: pc.replace_substring_regex(args[0], options[0], options[1]),
    "regexp_extract": _regexp_extract,
    "concat_ws": _concat_ws,
    "reverse": _kernel(pc.utf8_reverse),
    "repeat": lambda args, _to, options: pc.binary_repeat(args[0], options[0]),
    "add_months": lambda args, _to, options: sql_functions.add_months(args[0], *options),
    "last_day": lambda args, _to, _options: sql_functions.last_day(args[0]),
    "next_day": lambda args, _to, options: sql_functions.next_day(args[0], *options),
    "months_between": lambda args, _to, _options: sql_functions.months_between(*args),
    "weekday": _kernel(pc.day_of_week),
    "start_of": lambda args, _to, options: sql_functions.start_of(args[0], *options),
    "add_micros": _add_micros,
    "starts_with": _predicate(pc.starts_with),
    "ends_with": _predicate(pc.ends_with),
    "contains": _predicate(pc.match_substring),
    "is_nan": _is_nan,
    "variant_get": sql_functions.variant_get,
}


# What the reason of a condition begins with that has a function which the parser does not know.
UNKNOWN_FUNCTION = "the unknown function"
FLIPPED: dict[str, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct column (`path` has the steps)."""

    path: tuple[str, ...]
    type: pa.DataType

    def to_arrow(self) -> pc.Expression:
        return pc.field(*self.path)

    def to_spark_sql(self) -> str:
        return ".".join(quote_name(p) for p in self.path)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of a given Arrow type; timestamps with a zone are aware datetimes."""

    value: Any
    type: pa.DataType

    def to_arrow(self) -> pc.Expression:
        try:
            return pc.scalar(pa.scalar(self.value, self.type))
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            raise InvalidOption(
                f"the constant {ascii(self.value)[:60]} is no {spark_type(self.type)}: {error}",
                hint="give a value that the type holds",
            ) from error

    def to_spark_sql(self) -> str:
        return spark_literal(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Call:
    """A function that Arrow computes as Spark does; `options` are constants such as a zone or a length."""

    name: str
    args: tuple[Value, ...]
    type: pa.DataType
    options: tuple[Any, ...] = ()

    def to_arrow(self) -> pc.Expression:
        return ARROW_FUNCTIONS[self.name]([a.to_arrow() for a in self.args], self.type, self.options)


Value = Column | Literal | Call


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Node


@dataclass(frozen=True, slots=True)
class Compare:
    """`left op right`; a literal is always on the right, and both sides have one type."""

    left: Value
    op: Operator
    right: Value


@dataclass(frozen=True, slots=True)
class In:
    """The condition `left IN (values)`; without values it is false for every value and null for null."""

    left: Value
    values: tuple[Literal, ...]
    has_null: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    value: Value


@dataclass(frozen=True, slots=True)
class Like:
    """The condition SQL LIKE, in which a backslash is the escape character."""

    value: Value
    pattern: str
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A boolean value used as a condition."""

    value: Value


@dataclass(frozen=True, slots=True)
class Constant:
    value: bool | None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A condition that is not looked into: SQL that only Spark evaluates, or an Arrow expression."""

    columns: tuple[str, ...]
    reason: str
    expression: pc.Expression | None = field(default=None, compare=False)


Node = And | Or | Not | Compare | In | IsNull | Like | IsTrue | Constant | Opaque


@dataclass(frozen=True)
class Predicate:
    """A filter. `text` is the SQL with which it was given ("" for an Arrow expression, which is then in `expression`),
    `spark_sql` the equivalent for any session, and `named` are the columns in it. The tree may lack some of these
    columns: a comparison with NULL is true for no row, whatever the column has."""

    root: Node
    text: str = ""
    expression: pc.Expression | None = None
    spark_sql: str = ""
    named: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The distinct top-level columns that the filter reads."""
        return tuple(dict.fromkeys((*columns_of(self.root), *self.named)))

    @property
    def runs_in_process(self) -> bool:
        """Whether Arrow can evaluate the filter."""
        parts = () if self.expression is not None else walk(self.root)
        return not [part for part in parts if isinstance(part, Opaque) and part.expression is None]

    @property
    def runs_on_spark_sql(self) -> bool:
        return bool(self.text) or has_spark_text(self.root)

    def to_arrow(self) -> pc.Expression:
        """The filter for Arrow; `InvalidOption` for SQL that only Spark can evaluate."""
        if self.expression is not None:
            return self.expression
        return node_to_arrow(self.root)

    def to_spark_sql(self) -> str:
        """The filter as Spark SQL. Raises `InvalidOption` for an Arrow expression without such a form."""
        return self.spark_sql or self.text or node_to_spark(self.root)

    def __str__(self) -> str:
        return self.text or (str(self.expression) if self.expression is not None else node_to_spark(self.root))


def combine(predicate: Predicate | None, conditions: Sequence[Node]) -> Predicate | None:
    """The predicate and further conditions; the given SQL text or Arrow expression is unchanged inside. None without
    both."""
    if not conditions:
        return predicate
    if predicate is None:
        return Predicate(And(tuple(conditions)))
    root = And((*conditions, predicate.root))
    if predicate.expression is not None:
        return Predicate(root, expression=node_to_arrow(And(tuple(conditions))) & predicate.expression)
    if predicate.text:
        # the line breaks keep a comment in the text from swallowing what follows
        first = f"{node_to_spark(And(tuple(conditions)))} AND (\n"
        text, sql = f"{first}{predicate.text}\n)", f"{first}{predicate.to_spark_sql()}\n)"
        return Predicate(root, text, spark_sql=sql, named=predicate.named)
    return Predicate(root)


def walk(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, And | Or):
        for part in node.parts:
            yield from walk(part)
    elif isinstance(node, Not):
        yield from walk(node.part)


def columns_of(node: Node) -> Iterator[str]:
    for n in walk(node):
        if isinstance(n, Opaque):
            yield from n.columns
        elif isinstance(n, Compare):
            yield from _value_columns(n.left)
            yield from _value_columns(n.right)
        elif isinstance(n, In):
            yield from _value_columns(n.left)
        elif isinstance(n, IsNull | Like | IsTrue):
            yield from _value_columns(n.value)


def _value_columns(value: Value) -> Iterator[str]:
    if isinstance(value, Column):
        yield value.path[0]
    elif isinstance(value, Call):
        for arg in value.args:
            yield from _value_columns(arg)
        for condition in value.options if value.name == "case" else ():
            yield from columns_of(condition)


def conjuncts(node: Node) -> Iterator[Node]:
    """The conditions that must all hold."""
    if isinstance(node, And):
        for part in node.parts:
            yield from conjuncts(part)
    else:
        yield node


def safe_part(predicate: Predicate) -> Predicate | None:
    """The part of a condition that may be tested first: those of its AND-ed conditions that compare columns, and fail
    for no value, so that rows that do not fulfil them can be left out before the complete filter is evaluated. None if
    there are none."""
    return combine(None, tuple(node for node in conjuncts(predicate.root) if all(map(_is_safe, walk(node)))))


def _is_safe(node: Node) -> bool:
    match node:
        case Compare(left, _, right):
            return isinstance(left, Column) and isinstance(right, Column | Literal)
        case In(value) | IsNull(value) | Like(value) | IsTrue(value):
            return isinstance(value, Column)
        case Opaque():
            return False
        case _:
            return True


# -- Arrow


def node_to_arrow(node: Node) -> pc.Expression:
    match node:
        case And(parts):
            return _fold(parts, lambda a, b: a & b)
        case Or(parts):
            return _fold(parts, lambda a, b: a | b)
        case Not(part):
            return ~node_to_arrow(part)
        case Compare():
            return _compare(node)
        case In(left, values, has_null):
            value = left.to_arrow()
            constants = [v.value for v in values]
            if pa.types.is_floating(left.type):
                # Arrow's set distinguishes -0.0 from 0.0; adding zero makes them equal
                value, constants = value + pc.scalar(pa.scalar(0.0, left.type)), [v + 0.0 for v in constants]
            is_member = value.isin(pa.array(constants, type=left.type)) if values else _FALSE
            missed = _null() if has_null else _FALSE
            return pc.if_else(value.is_valid(), is_member | missed, _null())
        case IsNull(value):
            return value.to_arrow().is_null()
        case Like(value, pattern, ignore_case):
            text = value.to_arrow()
            if ignore_case:  # as Spark: both sides in lower case
                text, pattern = letter_case.expression("lower", text), letter_case.lower(pa.array([pattern]))[0].as_py()
            return pc.match_like(text, pattern)
        case IsTrue(value):
            return value.to_arrow()
        case Constant(value):
            return pc.scalar(pa.scalar(value, pa.bool_()))
        case Opaque(_, reason, expression):
            if expression is not None:
                return expression
            unknown = reason.startswith(UNKNOWN_FUNCTION)
            hint = "check its name; if it is one of Spark's, " if unknown else ""
            if re.match("a comparison of .* with ", reason):
                hint = "compare values of one type: CAST(column AS type) changes it; or "
            raise InvalidOption(
                f"this condition has {reason}" if unknown else f"this condition runs on Spark only: {reason}",
                hint=hint
                + "open the table with spark=..., write the condition in simpler SQL, or give a pyarrow.compute"
                " expression",
                context={"reason": reason},
            )


def _null() -> pc.Expression:
    return pc.scalar(pa.scalar(None, pa.bool_()))


def _fold(parts: tuple[Node, ...], join: Any) -> pc.Expression:
    joined = node_to_arrow(parts[0])
    for part in parts[1:]:
        joined = join(joined, node_to_arrow(part))
    return joined


def _compare(node: Compare) -> pc.Expression:
    left, right = node.left.to_arrow(), node.right.to_arrow()
    if node.op == "<=>":
        equality = _ordered(left, "=", right, node.left.type)
        return pc.coalesce(equality, left.is_null() & right.is_null())
    return _ordered(left, node.op, right, node.left.type)


def _ordered(left: Any, op: str, right: Any, type_: pa.DataType) -> pc.Expression:
    if not pa.types.is_floating(type_):
        return _PLAIN[op](left, right)
    # Spark: NaN equals NaN and is greater than every number
    if op in (">", ">="):
        left, right, op = right, left, FLIPPED[op]
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    both_nan = left_nan & right_nan
    if op == "=":
        return (left == right) | both_nan
    if op == "!=":
        return (left != right) & ~both_nan
    less = (left < right) | (right_nan & ~left_nan)
    return less if op == "<" else less | (left == right) | both_nan


_PLAIN = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


# -- Spark SQL


def has_spark_text(node: Node) -> bool:
    """Whether a condition can be written for Spark: most functions are only read, from the text that has them."""
    try:
        node_to_spark(node)
    except InvalidOption:
        return False
    return True


def node_to_spark(node: Node) -> str:
    match node:
        case And(parts):
            return "(" + " AND ".join(node_to_spark(p) for p in parts) + ")"
        case Or(parts):
            return "(" + " OR ".join(node_to_spark(p) for p in parts) + ")"
        case Not(part):
            return f"(NOT {node_to_spark(part)})"
        case Compare(left, op, right):
            return f"({_value_to_spark(left)} {op} {_value_to_spark(right)})"
        case In(left, values, has_null):
            texts = [v.to_spark_sql() for v in values] + (["NULL"] if has_null else [])
            column = _value_to_spark(left)
            return f"({column} IN ({', '.join(texts)}))" if texts else f"({column} != {column})"
        case IsNull(value):
            return f"({_value_to_spark(value)} IS NULL)"
        case Like(value, pattern, ignore_case):
            verb = "ILIKE" if ignore_case else "LIKE"
            return f"({_value_to_spark(value)} {verb} {sql_literal(pattern)})"
        case IsTrue(value):
            return _value_to_spark(value)
        case Constant(value):
            return {True: "TRUE", False: "FALSE", None: "CAST(NULL AS BOOLEAN)"}[value]
        case Opaque(_, reason):
            raise InvalidOption(f"no Spark SQL for this condition: {reason}")


_SPARK_FUNCTIONS = {"starts_with": "startswith", "ends_with": "endswith", "contains": "contains"}


def _value_to_spark(value: Value) -> str:
    if not isinstance(value, Call):
        return value.to_spark_sql()
    if value.name == "cast":
        return f"CAST({_value_to_spark(value.args[0])} AS {spark_type(value.type)})"
    if value.name in _SPARK_FUNCTIONS:
        texts = [_value_to_spark(value.args[0]), *(sql_literal(o) for o in value.options)]
        return f"{_SPARK_FUNCTIONS[value.name]}({', '.join(texts)})"
    raise InvalidOption(f"no Spark SQL for the function {value.name} outside a SQL condition")
