"""Defaults and generated columns in a write: columns that its rows lack get the values that the table records for
them, before the rows are judged and placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakebed.engine.base import Rows, Task
from lakebed.errors import InvalidOption, SchemaConflict, UnsupportedFeature
from lakebed.filters.coercion import constant_text
from lakebed.filters.generated import ZONE, GeneratedColumn, generated_column, type_of_expression
from lakebed.filters.predicates import Literal
from lakebed.filters.sql import constant_of
from lakebed.merge.rules import MergeRules
from lakebed.operations.checks import condition_of
from lakebed.operations.context import WriteContext, incoming_schema, schema_for_write
from lakebed.properties.column_values import generated_checks
from lakebed.properties.table_config import TableConfig
from lakebed.schema.arrow import MAX_PRECISION, normalise
from lakebed.schema.assignment import Rule, check_fits, in_column
from lakebed.schema.column_names import did_you_mean, in_any_case

# Constants are values of SQL, whose times without a zone are in UTC.
_CONSTANTS = Rule(sql=True, zone=ZONE)


def sql_of(value: Any) -> str:
    """The SQL of a value that a caller gives: a text unchanged, a constant as a literal. Raises `InvalidOption` for
    other values.

    >>> sql_of("fare * 2"), sql_of(7)
    ('fare * 2', '7')
    """
    if isinstance(value, str):
        return value
    text = constant_text(value)
    if text is None and isinstance(value, int | Decimal):
        raise InvalidOption(
            f"the number {str(value)[:60]} has no column: a decimal has at most {MAX_PRECISION} digits",
            hint="round it, or give it as a float",
        )
    if text is None:
        raise InvalidOption(
            f"a value is SQL text or a constant, not {type(value).__name__}", hint='for example {"fare": "s.fare * 2"}'
        )
    return text


def is_default(text: str) -> bool:
    """Whether the text of a value is the word DEFAULT, which is the default of the column that it is for.

    >>> is_default(" default"), is_default("'default'")
    (True, False)
    """
    return text.strip().upper() == "DEFAULT"


def default_value(text: str, field: pa.Field) -> pa.Scalar:
    """The value of a default now, in the type of its column. Raises `InvalidOption` for an expression that is not a
    constant, `SchemaConflict` for one of a type that the column does not take, and `InvalidRecord` for a value that it
    does not keep.

    >>> default_value("1 + 1", pa.field("seats", pa.int64())).as_py()
    2
    """
    constant = _constant(field.name, text)
    check_fits(constant.type, field, _CONSTANTS, text=text)
    return in_column(pa.array([constant.value], constant.type), field, _CONSTANTS)[0]


def _constant(column: str, text: str) -> Literal:
    try:
        return constant_of(text, ZONE)
    except InvalidOption as error:
        raise InvalidOption(
            f"the default {text!r} of column {column!r} is not a constant: {error.message}",
            hint="give a constant, `current_timestamp()` or `current_date()`; a value that follows from other columns"
            " of the row is a generated column: GENERATED ALWAYS AS (expression)",
            context={"column": column, "default": text},
        ) from error


def default_values(config: TableConfig, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """The defaults of those of the table's columns that have one, by column: one value for a write."""
    defaults = config.defaults
    return {name: default_value(defaults[name], schema.field(name)) for name in schema.names if name in defaults}


def generated_columns(config: TableConfig, schema: pa.Schema) -> list[GeneratedColumn]:
    """The generated columns of the table."""
    return [generated_column(name, text, schema) for name, text in config.generated.items() if name in schema.names]


@dataclass(frozen=True, slots=True)
class _Filled:
    """A task function that adds columns to rows: constants, and then columns generated from those that there are."""

    constants: Mapping[str, pa.Scalar]
    generated: Sequence[GeneratedColumn]

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name, value in self.constants.items():
                batch = batch.append_column(_constant_field(name, value), pa.repeat(value, batch.num_rows))
            for column in self.generated:
                batch = batch.append_column(column.field, column.values(batch))
            yield batch

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """The columns of the rows with those that are added."""
        constants = [_constant_field(name, value) for name, value in self.constants.items()]
        return pa.schema([*rows, *constants, *(column.field for column in self.generated)])


def _constant_field(name: str, value: pa.Scalar) -> pa.Field:
    return pa.field(name, value.type, nullable=not value.is_valid)


def filled(context: WriteContext, rows: Rows) -> Rows:
    """The rows of a write with the columns of the table that they lack and that have a default or are generated.

    Partial rows get no defaults, since stored rows keep their values of columns that are not named, and the generated
    columns of which they have all sources. Columns that the rows have are left as they are.
    """
    config, schema, engine = context.config, context.opened.schema, context.engine
    incoming, partial = engine.schema(rows), context.settings.partial
    lacking = pa.schema([field for field in schema if field.name not in incoming.names])
    constants = {} if partial else default_values(config, lacking)
    present = {*incoming.names, *constants}
    generated = [
        column
        for column in generated_columns(config, schema)
        if column.field.name not in incoming.names and (not partial or present.issuperset(column.columns))
    ]
    if not constants and not generated:
        return rows
    schema_for_write(context, context.opened, rows, partial=True)  # values of other types are refused by their column
    fill = _Filled(constants, tuple(generated))
    if not engine.has_at_hand(rows):
        return engine.map(rows, fill, fill.schema(incoming))
    table = engine.collect(rows)
    return engine.from_arrow(pa.Table.from_batches(fill(iter(table.to_batches()), Task()), fill.schema(table.schema)))


def values_of_new_rows(context: WriteContext, schema: pa.Schema, absent: Sequence[str]) -> dict[str, pa.Scalar]:
    """The values that rows of new keys get in columns that the partial rows of a write lack, by column: defaults, and
    generated columns of which all sources are absent."""
    values = default_values(context.config, pa.schema([schema.field(name) for name in absent]))
    row = pa.RecordBatch.from_arrays([pa.nulls(1)], names=[" "])
    for name, value in values.items():
        row = row.append_column(schema.field(name).with_nullable(True), pa.repeat(value, 1))
    for column in generated_columns(context.config, schema):
        if {column.field.name, *column.columns} <= set(absent):
            values[column.field.name] = column.values(row)[0]
    return {name: value for name, value in values.items() if value.is_valid}


def with_value_columns(schema: pa.Schema, defaults: Mapping[str, Any], generated: Mapping[str, Any]) -> pa.Schema:
    """The columns of a new table: those of the schema, and those that it lacks and that have a default or an
    expression, in the types of these.

    >>> schema = pa.schema({"ts": pa.timestamp("us", "UTC")})
    >>> with_value_columns(schema, {}, {"day": "CAST(ts AS DATE)"}).field("day").type
    DataType(date32[day])
    """
    if not len(schema):
        return schema
    columns, present = incoming_schema(schema), {name.lower() for name in schema.names}
    constants = {name: sql_of(value) for name, value in defaults.items() if name.lower() not in present}
    computed = {name: sql_of(value) for name, value in generated.items() if name.lower() not in present}
    types = {name: _constant(name, text).type for name, text in constants.items()}
    types |= {name: type_of_expression(name, text, columns) for name, text in computed.items()}
    return pa.schema([*schema, *normalise(pa.schema(types))], schema.metadata)


def check_new_values(
    config: TableConfig, schema: pa.Schema, defaults: Mapping[str, Any], generated: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """The SQL of new defaults and of new generated columns by the table's names of these columns. Raises an error for
    an expression that a write could not evaluate, for a column of the key, and for a table that merges two rows of a
    key into a third."""
    texts: list[dict[str, str]] = []
    for kind, values in (("default", defaults), ("expression", generated)):
        named = {in_any_case(name, schema.names): sql_of(value) for name, value in values.items()}
        for name in named:
            _check_column(config, schema, name, kind)
        texts.append(named)
    named_defaults, named_generated = texts
    repeated = named_defaults.keys() & named_generated.keys()
    if repeated:
        raise InvalidOption(
            f"column {min(repeated)!r} cannot have a default and an expression",
            hint="a generated column has a value in every row: leave the default out",
            context={"column": min(repeated)},
        )
    for name, text in named_defaults.items():
        default_value(text, schema.field(name))
    for name, text in named_generated.items():
        generated_column(name, text, schema, [other for other in named_generated if other != name])
    for check in generated_checks(named_generated):
        condition_of(check, schema)
    if texts != [{}, {}] and not MergeRules.of_table(config).picks_winners:
        raise UnsupportedFeature(
            f"table {config.name!r} merges two rows of a key into a third, which a default or a generated column of one"
            " of the two could make wrong",
            hint="leave defaults and generated columns out, or order rows by event time or commit time",
            context={"feature": "defaults of a table that merges rows"},
        )
    return named_defaults, named_generated


def _check_column(config: TableConfig, schema: pa.Schema, name: str, kind: str) -> None:
    if name not in schema.names:
        raise SchemaConflict(
            f"table {config.name!r} has no column {name!r}, which is to have a{'n' * (kind[0] == 'e')} {kind}",
            hint=did_you_mean(name, schema.names),
            context={"column": name},
        )
    if name in config.key_fields:
        raise SchemaConflict(
            f"column {name!r} is in the record key, and has no {kind}: each row needs a key of its own",
            hint="leave it out",
            context={"column": name},
        )
