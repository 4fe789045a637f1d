"""A pyarrow expression as a `Predicate`: Arrow evaluates it as it is, pruning and Spark get the simple forms of it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption
from lakebed.filters.expression_parts import Call, Constant, Part, Reference, UnreadableExpression, parts_of
from lakebed.filters.predicates import (
    And,
    Column,
    Compare,
    In,
    IsNull,
    Literal,
    Node,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
)

_OPERATORS: dict[str, Operator] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}


class _Unknown(Exception):
    """A form that is not looked into."""


def predicate_of_expression(expression: pc.Expression, schema: pa.Schema) -> Predicate:
    """The expression with as much structure as can be trusted: the tree must give the very expression back."""
    try:
        pa.table({f.name: pa.array([], f.type) for f in schema}).filter(expression)
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise InvalidOption(
            f"the filter {expression} does not fit the table: {str(error).splitlines()[0]}",
            hint=f"columns are {', '.join(schema.names[:20])}",
        ) from None
    return Predicate(_node(expression, schema), expression=expression)


def _node(expression: pc.Expression, schema: pa.Schema) -> Node:
    columns: frozenset[str] | None = None
    try:
        part, columns = parts_of(expression)
        node, rebuilt = _condition(part, schema)
        if not rebuilt.equals(expression):
            raise _Unknown
        return node
    except (_Unknown, UnreadableExpression, ValueError, OverflowError, RecursionError, pa.ArrowException):
        names = tuple(n for n in schema.names if columns is None or n in columns)
        return Opaque(names or tuple(schema.names), f"the Arrow expression {expression}", expression)


def _condition(part: Part, schema: pa.Schema) -> tuple[Node, pc.Expression]:
    """The node of a condition, and the expression built again beside it."""
    if not isinstance(part, Call):
        raise _Unknown
    match part.name, part.arguments:
        case "and_kleene", [left, right]:
            (node, expression), (other, other_expression) = _condition(left, schema), _condition(right, schema)
            return And((node, other)), expression & other_expression
        case "or_kleene", [left, right]:
            (node, expression), (other, other_expression) = _condition(left, schema), _condition(right, schema)
            return Or((node, other)), expression | other_expression
        case "invert", [inner]:
            node, expression = _condition(inner, schema)
            return Not(node), ~expression
        case "is_null", [Reference(path)]:
            column = _column(path, schema)
            return IsNull(column), column.to_arrow().is_null()
        case "is_valid", [Reference(path)]:
            column = _column(path, schema)
            return Not(IsNull(column)), column.to_arrow().is_valid()
        case "is_in", [Reference(path)] if part.options is not None:
            return _membership(_column(path, schema), part.options["value_set"].values)
        case name, [Reference(path), Constant(value)] if name in _OPERATORS:
            column, op = _column(path, schema), _OPERATORS[name]
            return Compare(column, op, _fit(value, column.type)), _compare(column.to_arrow(), op, value)
        case _:
            raise _Unknown


def _membership(column: Column, values: pa.Array) -> tuple[Node, pc.Expression]:
    if not len(values):
        raise _Unknown
    # Arrow's is_in says false for null, not null
    found = In(column, tuple(_fit(value, column.type) for value in values))
    return And((Not(IsNull(column)), found)), column.to_arrow().isin(values)


def _column(path: tuple[str, ...], schema: pa.Schema) -> Column:
    if len(path) != 1:
        raise _Unknown
    type_ = schema.field(path[0]).type
    # NaN compares otherwise in Arrow than in Spark
    if pa.types.is_floating(type_) or pa.types.is_nested(type_):
        raise _Unknown
    return Column(path, type_)


def _compare(left: pc.Expression, op: Operator, right: pa.Scalar) -> pc.Expression:
    value = pc.scalar(right)
    return {
        "=": left == value,
        "!=": left != value,
        "<": left < value,
        "<=": left <= value,
        ">": left > value,
        ">=": left >= value,
    }[op]


def _fit(constant: pa.Scalar, type_: pa.DataType) -> Literal:
    """The constant as one of the column's type."""
    value = None if pa.types.is_timestamp(constant.type) and constant.type.unit == "ns" else constant.as_py()
    # how Spark SQL reads such a text depends on the session's settings
    if isinstance(value, str) and ("\\" in value or '"' in value or not value.isprintable()):
        raise _Unknown
    kinds: list[tuple[Any, type]] = [
        (pa.types.is_integer, int),
        (pa.types.is_string, str),
        (pa.types.is_boolean, bool),
        (pa.types.is_date32, date),
    ]
    for is_type, python in kinds:
        if is_type(type_) and type(value) is python:
            return Literal(pa.scalar(value, type_).as_py(), type_)
    if isinstance(value, datetime) and pa.types.is_timestamp(type_):
        zone = constant.type.tz
        if zone in (None, "UTC") and (zone is None) == (type_.tz is None):
            return Literal(value.replace(tzinfo=UTC) if zone else value, type_)
    raise _Unknown
