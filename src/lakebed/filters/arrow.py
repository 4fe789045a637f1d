"""A pyarrow expression as a `Predicate`: Arrow evaluates it as it is, pruning and Spark get the simple forms of it."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption
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

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<time>\d{4}-\d\d-\d\d(?:\s\d\d:\d\d:\d\d(?:\.\d+)?Z?)?)
    |(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<op>==|!=|<=|>=|<|>)|(?P<mark>[()\[\]{},=])|(?P<word>[^\s()\[\]{},="]+))""",
    re.VERBOSE,
)
_OPERATORS: dict[str, Operator] = {"==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


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
    parts = [_node(expression, schema)]
    return Predicate(parts[0], expression=expression)


def _node(expression: pc.Expression, schema: pa.Schema) -> Node:
    text = str(expression)
    try:
        parser = _Parser(text, schema)
        node, rebuilt = parser.condition()
        if parser.rest() or not rebuilt.equals(expression):
            raise _Unknown
        return node
    except (_Unknown, ValueError, pa.ArrowException):
        names = tuple(n for n in schema.names if n in text)
        return Opaque(names or tuple(schema.names), f"the Arrow expression {text}", expression)


class _Parser:
    """Reads the text form of an expression, and builds the expression again beside the node."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise _Unknown
            kind = found.lastgroup or ""
            self.tokens.append((kind, found[kind]))
            at = found.end()
        self.at = 0
        self.schema = schema

    def rest(self) -> bool:
        return self.at < len(self.tokens)

    def take(self, wanted: str | None = None) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise _Unknown
        token = self.tokens[self.at]
        if wanted is not None and token[1] != wanted:
            raise _Unknown
        self.at += 1
        return token

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def condition(self) -> tuple[Node, pc.Expression]:
        if self.peek() == "(":
            return self._parenthesis()
        name = self.take()[1]
        self.take("(")
        if name == "invert":
            node, expression = self.condition()
            self.take(")")
            return Not(node), ~expression
        column = self._column()
        if name == "is_valid":
            self.take(")")
            return Not(IsNull(column)), column.to_arrow().is_valid()
        if name == "is_null":
            for part in (",", "{", "nan_is_null", "=", "false", "}", ")"):
                self.take(part)
            return IsNull(column), column.to_arrow().is_null()
        if name == "is_in":
            return self._is_in(column)
        raise _Unknown

    def _parenthesis(self) -> tuple[Node, pc.Expression]:
        self.take("(")
        if self.peek() == "(" or self.tokens[self.at + 1][1] == "(":
            left, left_expression = self.condition()
            word = self.take()[1]
            right, right_expression = self.condition()
            self.take(")")
            if word == "and":
                return And((left, right)), left_expression & right_expression
            if word == "or":
                return Or((left, right)), left_expression | right_expression
            raise _Unknown
        column = self._column()
        op = _OPERATORS.get(self.take()[1])
        kind, text = self.take()
        self.take(")")
        if op is None:
            raise _Unknown
        given, value = _scalar(kind, text)
        literal = _fit(value, column.type)
        expression = _compare(column.to_arrow(), op, given)
        return Compare(column, op, literal), expression

    def _column(self) -> Column:
        kind, name = self.take()
        if kind not in ("word", "number") or name not in self.schema.names:
            raise _Unknown
        type_ = self.schema.field(name).type
        # NaN compares otherwise in Arrow than in Spark
        if pa.types.is_floating(type_) or pa.types.is_nested(type_):
            raise _Unknown
        return Column((name,), type_)

    def _is_in(self, column: Column) -> tuple[Node, pc.Expression]:
        for part in (",", "{", "value_set", "="):
            self.take(part)
        name = self.take()[1]
        values: list[Any] = []
        opened = self.take()[1]
        if opened != "[" or not name.endswith(":"):
            raise _Unknown
        while self.peek() != "]":
            kind, text = self.take()
            values.append(_scalar(kind, text)[1])
            if self.peek() == ",":
                self.take()
        for part in ("]", ",", "null_matching_behavior", "=", "MATCH", "}", ")"):
            self.take(part)
        type_ = {"int64:": pa.int64(), "string:": pa.string(), "int32:": pa.int32(), "date32[day]:": pa.date32()}.get(
            name
        )
        if type_ is None or not values:
            raise _Unknown
        node = In(column, tuple(_fit(v, column.type) for v in values))
        # Arrow's is_in says false for null, not null
        return And((Not(IsNull(column)), node)), column.to_arrow().isin(pa.array(values, type_))


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


def _scalar(kind: str, text: str) -> tuple[pa.Scalar, Any]:
    if kind == "string":
        value: Any = text[1:-1]
        if "\\" in value:
            raise _Unknown
    elif kind == "number" and re.fullmatch(r"-?\d+", text):
        value = int(text)
    elif kind == "time":
        value = _time(text)
    elif text in ("true", "false"):
        value = text == "true"
    else:
        raise _Unknown
    return pa.scalar(value), value


def _time(text: str) -> date | datetime:
    if len(text) == 10:
        return date.fromisoformat(text)
    value = datetime.fromisoformat(text.removesuffix("Z"))
    return value.replace(tzinfo=UTC) if text.endswith("Z") else value


def _fit(value: Any, type_: pa.DataType) -> Literal:
    kinds: list[tuple[Any, type]] = [
        (pa.types.is_integer, int),
        (pa.types.is_string, str),
        (pa.types.is_boolean, bool),
        (pa.types.is_date32, date),
    ]
    for is_type, python in kinds:
        if is_type(type_) and type(value) is python:
            return Literal(pa.scalar(value, type_).as_py(), type_)
    if pa.types.is_timestamp(type_) and isinstance(value, datetime) and (type_.tz is None) == (value.tzinfo is None):
        return Literal(value, type_)
    raise _Unknown
