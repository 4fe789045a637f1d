"""Generated columns: their expressions over the other columns of a row, and what a condition on those columns says of
the generated one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import InvalidOption, LakebedError
from lakebed.filters.coercion import SparkOnly, parse_zone
from lakebed.filters.predicates import Call, Column, Compare, In, IsNull, Literal, Node, Operator, Or, Value, conjuncts
from lakebed.filters.sql import ConditionReader, has_odd_escapes, parse_tree
from lakebed.merge.clauses import evaluate
from lakebed.schema.assignment import DATA, Rule, check_fits, in_column, project_incoming

# Expressions mean the same for every writer, whatever its session says: times without a zone are in UTC.
ZONE = "UTC"
# Functions of one value that never give a greater value for a smaller one.
_MONOTONE = frozenset({"date_of", "start_of", "local", "year"})
_LABEL = "expression of the generated column"
_IMPLIED: dict[Operator, Operator] = {"<": "<=", "<=": "<=", ">": ">=", ">=": ">=", "=": "="}


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    """A column of a table whose value in each row is that of an expression over other columns, the `sources`."""

    field: pa.Field
    text: str
    sources: pa.Schema
    expression: pc.Expression
    source: Column | None = None
    """The column of which the expression is a function that keeps its order: a cast, or a cut-off time."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns in the expression."""
        return tuple(self.sources.names)

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        """The value of the column in each incoming row, from its values in the types of the table; a column that the
        rows lack counts as null. Raises `InvalidRecord` for a row in which the expression has no value."""
        columns = project_incoming(rows, self.sources)
        (values,) = evaluate(pa.Table.from_batches([columns]), [self.expression])
        return in_column(values, self.field, _rule(values.type, self.field))


def generated_column(name: str, text: str, schema: pa.Schema, others: Sequence[str] = ()) -> GeneratedColumn:
    """The generated column of rows with these columns; `others` are the generated columns of the table, which the
    expression may not name.

    Raises `InvalidOption` for an expression that cannot be evaluated without Spark, or names no column, an unknown one
    or a generated one; `SchemaConflict` for one of a type that the column does not take.

    >>> schema = pa.schema({"ts": pa.timestamp("us", "UTC"), "day": pa.date32()})
    >>> generated_column("day", "CAST(ts AS DATE)", schema).columns
    ('ts',)
    """
    field, (value, columns) = schema.field(name), _read(name, text, schema)
    wrong = next((column for column in columns if column == name or column in others), None)
    if wrong is not None or not columns:
        reason = "names no column" if wrong is None else f"names {wrong}, which is generated itself"
        raise InvalidOption(
            f"the {_LABEL} {name} ({text}) {reason}",
            hint="give an expression over other columns, such as CAST(ts AS DATE); a constant is a default",
            context={"column": name},
        )
    check_fits(value.type, field, _rule(value.type, field), text=text)
    sources = pa.schema([schema.field(column).with_nullable(True) for column in columns])
    return GeneratedColumn(field, text, sources, value.to_arrow(), _source(value))


def _rule(kind: pa.DataType, field: pa.Field) -> Rule:
    """How values of a type become those of a generated column: as data, which loses nothing, and whole decimals, which
    sums and products of whole numbers are, as in an assignment of SQL."""
    is_whole = pt.is_decimal(kind) and kind.scale == 0 and pt.is_integer(field.type)
    return Rule(sql=True, zone=ZONE) if is_whole else DATA


def type_of_expression(name: str, text: str, schema: pa.Schema) -> pa.DataType:
    """The type of the values of a generated column of rows with these columns, which need not have it."""
    return _read(name, text, schema)[0].type


def _read(name: str, text: str, schema: pa.Schema) -> tuple[Value, tuple[str, ...]]:
    """The expression of a generated column, and the columns that it names."""
    tree = parse_tree(text, f"{_LABEL} {name}", "expression")
    reader = ConditionReader(schema, parse_zone(ZONE))
    try:
        if has_odd_escapes(text):
            raise SparkOnly("a backslash escape in a string")
        return reader.values.read(tree), reader.names(tree)
    except SparkOnly as reason:
        raise InvalidOption(
            f"the {_LABEL} {name} ({text}) runs on Spark only, or has another value at another time: {reason}",
            hint="write it in simpler SQL, a condition as CASE WHEN ... THEN true ELSE false END: each process that"
            " writes the table evaluates it, also without Spark",
            context={"column": name},
        ) from None


def _source(value: Value) -> Column | None:
    """The column of which an expression is a function that keeps the order of values; None for any other expression."""
    while isinstance(value, Call):
        inner = value.args[0] if len(value.args) == 1 else None
        if inner is None:
            return None
        kinds = inner.type, value.type
        among_times = all(pt.is_timestamp(kind) or pt.is_date(kind) for kind in kinds)
        is_cast = value.name == "cast" and (among_times or all(map(pt.is_integer, kinds)))
        if not is_cast and value.name not in _MONOTONE:
            return None
        value = inner
    return value if isinstance(value, Column) and len(value.path) == 1 else None


def implied_conditions(root: Node, columns: Sequence[GeneratedColumn]) -> list[Node]:
    """What a condition says of generated columns: for each of its parts that compares a column with constants, the
    condition on each column that is a cast or a cut-off time of it, or that it is null, as in rows of writers that do
    not know the expression. All other rows whose generated columns have the values of their expressions fulfil them
    wherever they fulfil the condition.

    >>> from lakebed.filters.sql import parse_filter
    >>> schema = pa.schema({"ts": pa.timestamp("us", "UTC"), "day": pa.date32()})
    >>> where = parse_filter("ts >= '2026-01-02'", schema)
    >>> (condition,) = implied_conditions(where.root, [generated_column("day", "CAST(ts AS DATE)", schema)])
    >>> [type(part).__name__ for part in condition.parts]
    ['Compare', 'IsNull']
    """
    return [
        Or((implied, IsNull(Column((column.field.name,), column.field.type))))
        for part in conjuncts(root)
        for column in columns
        if column.source is not None
        for implied in _implied(part, column)
    ]


def _implied(part: Node, column: GeneratedColumn) -> Iterator[Node]:
    target = Column((column.field.name,), column.field.type)
    if isinstance(part, Compare) and part.left == column.source and part.op in _IMPLIED:
        values = _of_constants(column, [part.right]) if isinstance(part.right, Literal) else None
        if values is not None:
            yield Compare(target, _IMPLIED[part.op], values[0])
    elif isinstance(part, In) and part.left == column.source:
        values = _of_constants(column, part.values)
        if values is not None:
            yield In(target, tuple(dict.fromkeys(values)))


def _of_constants(column: GeneratedColumn, constants: Sequence[Literal]) -> list[Literal] | None:
    """The values of the column in rows with these constants; None if one is null or has no value."""
    assert column.source is not None
    try:
        rows = pa.record_batch({column.source.path[0]: pa.array([c.value for c in constants], column.source.type)})
        values = column.values(rows)
    except (LakebedError, pa.ArrowException, OverflowError, TypeError, ValueError):
        return None  # such as a time that the type does not have: nothing is known of the generated column
    if values.null_count:
        return None
    return [Literal(value, column.field.type) for value in values.to_pylist()]
