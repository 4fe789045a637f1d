"""The tree that a filter becomes: nodes that render to Arrow and to Spark SQL with the same three-valued answer.

`Predicate` is what the read path works with; `parse_filter` (in `filters`) makes it. Both sides of a comparison are
in one type already, so pruning may take a `Compare(Column, op, Literal)` at its word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Literal as OneOf

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption
from lakebed.expressions import letter_case
from lakebed.expressions.base import sql_literal
from lakebed.filters.functions import ARROW_FUNCTIONS
from lakebed.filters.spark_text import quote_name, spark_literal
from lakebed.schema.spark import spark_type

Operator = OneOf["=", "!=", "<", "<=", ">", ">=", "<=>"]
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
        return pc.scalar(pa.scalar(self.value, self.type))

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
    """`left op right`; a literal always stands on the right, and both sides have one type."""

    left: Value
    op: Operator
    right: Value


@dataclass(frozen=True, slots=True)
class In:
    """`left IN (values)`; without values it is false for every value and null for null."""

    left: Value
    values: tuple[Literal, ...]
    has_null: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    value: Value


@dataclass(frozen=True, slots=True)
class Like:
    """SQL LIKE with `\\` as the escape character."""

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
    """A filter. `text` is the SQL it was given as ("" for an Arrow expression, which is then in `expression`)."""

    root: Node
    text: str = ""
    expression: pc.Expression | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Top-level columns that the filter reads, each once."""
        return tuple(dict.fromkeys(columns_of(self.root)))

    @property
    def runs_on_spark_sql(self) -> bool:
        return bool(self.text) or not any(isinstance(n, Opaque) for n in walk(self.root))

    def to_arrow(self) -> pc.Expression:
        """The filter for Arrow; `InvalidOption` for SQL that only Spark can evaluate."""
        if self.expression is not None:
            return self.expression
        return node_to_arrow(self.root)

    def to_spark_sql(self) -> str:
        """The filter as Spark SQL; `InvalidOption` for an Arrow expression that has no such form."""
        return self.text or node_to_spark(self.root)

    def __str__(self) -> str:
        return self.text or (str(self.expression) if self.expression is not None else node_to_spark(self.root))


def combine(predicate: Predicate | None, conditions: Sequence[Node]) -> Predicate | None:
    """The predicate and further conditions; the SQL text or Arrow expression that was given stays as it is inside."""
    if not conditions:
        return predicate
    if predicate is None:
        return Predicate(And(tuple(conditions)))
    root = And((*conditions, predicate.root))
    if predicate.expression is not None:
        return Predicate(root, expression=node_to_arrow(And(tuple(conditions))) & predicate.expression)
    if predicate.text:
        # the line breaks keep a comment in the text from swallowing what follows
        return Predicate(root, f"{node_to_spark(And(tuple(conditions)))} AND (\n{predicate.text}\n)")
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


def conjuncts(node: Node) -> Iterator[Node]:
    """The conditions that must all hold."""
    if isinstance(node, And):
        for part in node.parts:
            yield from conjuncts(part)
    else:
        yield node


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
                # Arrow's set tells -0.0 from 0.0; zero added makes them one
                value, constants = value + pc.scalar(pa.scalar(0.0, left.type)), [v + 0.0 for v in constants]
            found = value.isin(pa.array(constants, type=left.type)) if values else pc.scalar(False)
            missed = _null() if has_null else pc.scalar(False)
            return pc.if_else(value.is_valid(), found | missed, _null())
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
            raise InvalidOption(
                f"this filter runs on Spark only: {reason}",
                hint="open the table with spark=..., write the condition in simpler SQL, or give a pyarrow.compute"
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
        both = _ordered(left, "=", right, node)
        return pc.coalesce(both, left.is_null() & right.is_null())
    return _ordered(left, node.op, right, node)


def _ordered(left: Any, op: str, right: Any, node: Compare) -> pc.Expression:
    if not pa.types.is_floating(node.left.type):
        return _plain(left, op, right)
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


def _plain(left: Any, op: str, right: Any) -> pc.Expression:
    match op:
        case "=":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left >= right


# -- Spark SQL


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
            raise InvalidOption(f"no Spark SQL for this filter: {reason}")


_SPARK_FUNCTIONS = {"starts_with": "startswith", "ends_with": "endswith", "contains": "contains"}


def _value_to_spark(value: Value) -> str:
    if not isinstance(value, Call):
        return value.to_spark_sql()
    if value.name == "cast":
        return f"CAST({_value_to_spark(value.args[0])} AS {spark_type(value.type)})"
    if value.name in _SPARK_FUNCTIONS:
        texts = [_value_to_spark(value.args[0]), *(sql_literal(o) for o in value.options)]
        return f"{_SPARK_FUNCTIONS[value.name]}({', '.join(texts)})"
    raise InvalidOption(f"no Spark SQL for the function {value.name} outside a SQL filter")
