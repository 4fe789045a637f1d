"""A pyarrow expression as a `Predicate`: Arrow evaluates it as it is, pruning and Spark get the simple forms of it.

What an Arrow expression consists of: calls of functions, columns and constants.

pyarrow shows no parts of an expression, but it serialises one (as it pickles) to an Arrow IPC file: the schema's
metadata lists the parts in prefix order, `call` to `end` of each function, and the one row holds the constants. The
list repeats keys, which `Schema.metadata` would drop, so it is read from the file's footer. (Substrait is no
alternative: what pyarrow writes grows exponentially with the depth of the expression.)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from lakebed.model import ALL_META_COLUMNS
from lakebed.schema.column_names import near_or_nothing
from lakebed.schema.plain_arrow import matching_rows

_MAGIC = b"ARROW1"
# Places of the fields in the tables Footer, Schema and KeyValue of Arrow's flatbuffers.
_FOOTER_SCHEMA, _SCHEMA_METADATA, _KEY, _VALUE = 1, 2, 0, 1


class UnreadableExpression(Exception):
    """The error for an expression whose parts cannot be analysed."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A column, or a field of a struct column (`path` has the steps)."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    value: pa.Scalar


@dataclass(slots=True)
class Call:
    """A call of a `pyarrow.compute` function by its name, with its options as a struct; None without options."""

    name: str
    arguments: list[Part] = field(default_factory=list["Part"])
    options: Any = None


Part = Reference | Constant | Call


def parts_of(expression: pc.Expression) -> tuple[Part, frozenset[str]]:
    """The expression's parts, and the top-level columns in it.

    >>> parts_of(pc.field("a") > pc.field("b", "c"))[0]
    Call(name='greater', arguments=[Reference(path=('a',)), Reference(path=('b', 'c'))], options=None)
    """
    try:
        reduced: Any = expression.__reduce__()
        buffer = reduced[1][0]
        with pa.ipc.open_file(buffer) as reader:
            row = reader.get_batch(0)
        return _parse(_metadata(bytes(buffer)), row)
    except (pa.ArrowException, struct.error, IndexError, ValueError, TypeError) as error:
        raise UnreadableExpression from error


def _parse(pairs: Iterator[tuple[str, str]], row: pa.RecordBatch) -> tuple[Part, frozenset[str]]:
    top = Call("")
    calls, columns = [top], set[str]()
    for kind, text in pairs:
        part: Part
        match kind:
            case "field_ref":
                part = Reference((text,))
            case "nested_field_ref":
                part = Reference(tuple(name for _, name in (next(pairs) for _ in range(int(text)))))
            case "literal":
                part = Constant(row.column(int(text))[0])
            case "call":
                part = Call(text)
            case "options":
                calls[-1].options = row.column(int(text))[0]
                continue
            case "end":
                calls.pop()
                continue
            case _:
                raise ValueError(f"a part of the kind {kind}")
        if isinstance(part, Reference):
            columns.add(part.path[0])
        calls[-1].arguments.append(part)
        if isinstance(part, Call):
            calls.append(part)
    return top.arguments[0], frozenset(columns)


def _metadata(file: bytes) -> Iterator[tuple[str, str]]:
    """The keys and values of the schema's metadata in an Arrow IPC file, in order and with repetitions."""
    end = len(file) - len(_MAGIC) - 4
    footer = _Table.root(file, end - struct.unpack_from("<i", file, end)[0])
    for pair in footer.table(_FOOTER_SCHEMA).tables(_SCHEMA_METADATA):
        yield pair.text(_KEY), pair.text(_VALUE)


@dataclass(frozen=True, slots=True)
class _Table:
    """A flatbuffers table at a place of a buffer."""

    buffer: bytes
    at: int

    @classmethod
    def root(cls, buffer: bytes, start: int) -> _Table:
        return cls(buffer, _target(buffer, start))

    def table(self, field: int) -> _Table:
        return _Table(self.buffer, self._target(field))

    def tables(self, field: int) -> Iterator[_Table]:
        start = self._target(field)
        for number in range(struct.unpack_from("<I", self.buffer, start)[0]):
            yield _Table(self.buffer, _target(self.buffer, start + 4 + 4 * number))

    def text(self, field: int) -> str:
        start = self._target(field)
        size = struct.unpack_from("<I", self.buffer, start)[0]
        return self.buffer[start + 4 : start + 4 + size].decode()

    def _target(self, field: int) -> int:
        vtable = self.at - struct.unpack_from("<i", self.buffer, self.at)[0]
        slot = 4 + 2 * field
        offset = struct.unpack_from("<H", self.buffer, vtable + slot)[0]
        if slot >= struct.unpack_from("<H", self.buffer, vtable)[0] or not offset:
            raise ValueError(f"no field {field}")
        return _target(self.buffer, self.at + offset)


def _target(buffer: bytes, offset: int) -> int:
    """The position to which the offset stored at a position leads."""
    return offset + struct.unpack_from("<I", buffer, offset)[0]


_OPERATORS: dict[str, Operator] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}


# How Arrow names a column that is not there.
_UNKNOWN_NAME = re.compile(r"FieldRef\.Name\((.*?)\)")


class _Unknown(Exception):
    """The error for a form of expression that is not analysed."""


def predicate_of_expression(expression: pc.Expression, schema: pa.Schema) -> Predicate:
    """The predicate of an expression, with a tree only if the tree rebuilds exactly the same expression."""
    try:
        matching_rows(pa.table({f.name: pa.array([], f.type) for f in schema}), expression)
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        unknown = _UNKNOWN_NAME.search(reason)
        near = near_or_nothing(unknown[1], schema.names) if unknown else ""
        raise InvalidOption(
            f"the condition {expression} does not fit the table: {reason.partition(' in ')[0] if unknown else reason}",
            hint=f"{near}Columns are {', '.join(n for n in schema.names[:25] if n not in ALL_META_COLUMNS)}",
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
    """The node of a condition, and an equal expression built from it. Raises `_Unknown` for a condition that nodes do
    not express."""
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
        case "if_else", [
            Call("is_valid", [Reference(path)]),
            Call("is_in", [Reference(other)]) as inner,
            Constant(none),
        ]:
            # SQL's IN as DuckDB writes it: null for null
            if path != other or none.as_py() is not None or inner.options is None:
                raise _Unknown
            column = _column(path, schema)
            values = inner.options["value_set"].values
            value = column.to_arrow()
            node = In(column, _constants(values, column.type))
            return node, pc.if_else(value.is_valid(), value.isin(values), pc.scalar(none))
        case name, [Reference(path), Constant(value)] if name in _OPERATORS:
            column, op = _column(path, schema), _OPERATORS[name]
            return Compare(column, op, _fit(value, column.type)), _compare(column.to_arrow(), op, value)
        case _:
            raise _Unknown


def _membership(column: Column, values: pa.Array) -> tuple[Node, pc.Expression]:
    # Arrow's is_in gives false for null, not null
    inclusion = In(column, _constants(values, column.type))
    return And((Not(IsNull(column)), inclusion)), column.to_arrow().isin(values)


def _constants(values: pa.Array, type_: pa.DataType) -> tuple[Literal, ...]:
    if not len(values):
        raise _Unknown
    return tuple(_fit(value, type_) for value in values)


def _column(path: tuple[str, ...], schema: pa.Schema) -> Column:
    if len(path) != 1:
        raise _Unknown
    (name,) = path
    type_ = schema.field(name).type
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
    """The constant as a literal of the column's type. Raises `_Unknown` if the type has no such value, or Spark SQL
    could read the literal otherwise."""
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
