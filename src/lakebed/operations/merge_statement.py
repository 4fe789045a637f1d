"""A MERGE as its caller wrote it, and the MERGE bound to the columns of a table and of source rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.spark_session import zone_of
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.filters.generated import GeneratedColumn
from lakebed.filters.pairs import Equality, OnCondition, PairExpression, PairReader, Side
from lakebed.filters.text import quote_name, spark_literal
from lakebed.merge.clauses import Action, Clause, Clauses, When
from lakebed.operations.checks import condition_of
from lakebed.operations.column_values import default_values, generated_columns, is_default, sql_of
from lakebed.operations.context import WriteContext
from lakebed.schema.assignment import check_fits
from lakebed.schema.column_names import did_you_mean, in_any_case, nearest_name
from lakebed.schema.spark import spark_null
from lakebed.sharing import once

All = Literal["all"]


@dataclass(frozen=True)
class ClauseText:
    """A clause as the caller gave it. `values` are SQL texts or constants by column, or "all"."""

    when: When
    action: Action
    condition: str | None = None
    values: Mapping[str, Any] | All = "all"
    except_columns: tuple[str, ...] = ()
    of_update: bool = False

    @property
    def name(self) -> str:
        """The Python name of the clause, for messages; for `t.update` the name of that call."""
        return "update" if self.of_update else f"when_{self.when}_{self.action}"

    def __str__(self) -> str:
        return self.name + ("" if self.condition is None else f"(condition={self.condition!r})")


@dataclass(frozen=True)
class MergeStatement:
    """The parts of a merge: the join condition (None: equal record keys), the names of both sides, the clauses."""

    on: Any = None
    target: str = "t"
    source: str = "s"
    clauses: tuple[ClauseText, ...] = ()
    evolves: bool = False

    def with_clause(self, clause: ClauseText) -> MergeStatement:
        """This statement with one more clause. Raises `InvalidOption` for a clause that would never run."""
        for earlier in self.clauses:
            if earlier.when == clause.when and earlier.condition is None:
                raise InvalidOption(
                    f"{clause} would never run: {earlier.name} before it has no condition",
                    hint="give the earlier clause a condition, or put the clause without one last",
                    context={"clause": clause.name},
                )
        if clause.condition is not None and not isinstance(clause.condition, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(
                f"the condition of {clause.name} is SQL text, not {type(clause.condition).__name__}",
                hint=f'for example condition="{self.source}.fare > 10"',
            )
        return replace(self, clauses=(*self.clauses, clause))

    @property
    def by_source(self) -> tuple[ClauseText, ...]:
        """The clauses for stored rows that no source row matched."""
        return tuple(clause for clause in self.clauses if clause.when == "not_matched_by_source")

    @property
    def inserts(self) -> bool:
        """Whether a clause adds rows."""
        return any(clause.action == "insert" for clause in self.clauses)


def update_statement(values: Mapping[str, Any], where: str | None) -> MergeStatement:
    """The merge that sets columns of the rows that fulfil a condition (None: of all rows)."""
    clause = ClauseText("not_matched_by_source", "update", where, values, of_update=True)
    return MergeStatement().with_clause(clause)


@dataclass(frozen=True)
class BoundClause:
    """A clause with its texts bound to columns. `keys_of_all` are key fields that "all" would set; a clause that would
    change them is refused. `generated` are columns that follow from the others of a row that the clause makes; their
    values are null before."""

    text: ClauseText
    condition: PairExpression | None
    values: Mapping[str, PairExpression]
    keys_of_all: tuple[str, ...] = ()
    generated: tuple[GeneratedColumn, ...] = ()

    @property
    def expressions(self) -> tuple[PairExpression, ...]:
        """The expressions of the clause: its condition and its values."""
        return (*([self.condition] if self.condition is not None else []), *self.values.values())


@dataclass(frozen=True)
class BoundMerge:
    """A merge over the columns of a table and its source. `schema` are the table's columns after the merge, `stored`
    those before it."""

    context: WriteContext
    statement: MergeStatement
    reader: PairReader
    on: OnCondition | None
    clauses: tuple[BoundClause, ...]
    schema: pa.Schema
    stored: pa.Schema

    @property
    def updates(self) -> tuple[BoundClause, ...]:
        """The clauses that change stored rows."""
        return tuple(clause for clause in self.clauses if clause.text.action == "update")

    @property
    def inserts(self) -> tuple[BoundClause, ...]:
        """The clauses that add rows."""
        return tuple(clause for clause in self.clauses if clause.text.action == "insert")

    @property
    def may_replace(self) -> bool:
        """Whether a stored row may be deleted, and a new row of its key inserted."""
        return bool(self.inserts) and any(clause.text.action == "delete" for clause in self.clauses)

    @property
    def set_columns(self) -> tuple[str, ...]:
        """The columns that any update sets, in the table's order."""
        names = {name for clause in self.updates for name in clause.values}
        return tuple(name for name in self.schema.names if name in names)

    @once
    def updated_columns(self) -> tuple[str, ...]:
        """The columns that an updated row is written with: those that any update sets, and the others that a check of
        the table compares with one of them, so that the row is judged with its stored values."""
        names = set(self.set_columns)
        for check in self.context.config.checks if names else ():
            columns = condition_of(check, self.schema).columns if check.on == "row" else ()
            names |= set() if names.isdisjoint(columns) else set(columns)
        return tuple(name for name in self.schema.names if name in names)

    @property
    def is_upsert(self) -> bool:
        """Whether a row gets the same values if its key is stored and if it is new: there are an update and an insert,
        both without a condition, which set all columns to the same values."""
        if len(self.clauses) != 2 or not self.updates or not self.inserts or (self.on and self.on.others):
            return False
        (update,), (insert,) = self.updates, self.inserts
        if update.text.when != "matched" or update.condition is not None or insert.condition is not None:
            return False
        keys = self.context.keys.key_fields
        same = {name for name in update.values if update.values[name].spark == insert.values.get(name, _NONE).spark}
        return {*same, *keys} >= set(self.schema.names) and not any(v.target for v in update.values.values())

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The stored columns that the merge reads: columns that conditions and values name, ordering columns, and
        columns that not every update sets."""
        needed = {name for clause in self.clauses for e in clause.expressions for name in e.target}
        needed |= {name for e in (self.on.others if self.on else ()) for name in e.target}
        stays = [*self.updated_columns, *self.context.rules.ordering_columns] if self.updates else []
        needed |= {name for name in stays if any(name not in clause.values for clause in self.updates)}
        needed |= set(self.context.rules.ordering_columns) if self.may_replace else set()
        return tuple(name for name in self.stored.names if name in needed)

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The columns of the source that anything names."""
        expressions = [e for clause in self.clauses for e in clause.expressions]
        expressions += self.on.expressions if self.on else ()
        needed = {name for e in expressions for name in e.source}
        return tuple(name for name in self.reader.source.schema.names if name in needed)

    @property
    def spark_only(self) -> PairExpression | None:
        """An expression of the merge that only Spark can evaluate; None if there is none."""
        expressions = [e for clause in self.clauses for e in clause.expressions]
        expressions += self.on.expressions if self.on else ()
        return next((e for e in expressions if e.arrow is None), None)

    @property
    def actions(self) -> npt.NDArray[np.str_]:
        """The action of each clause."""
        return np.array([clause.text.action for clause in self.clauses])

    def compiled(self, updated: Sequence[str]) -> Clauses:
        """The clauses as a row function; `updated` are the columns that an updated row has."""
        clauses = tuple(
            Clause(
                clause.text.when,
                clause.text.action,
                None if clause.condition is None else arrow_of(clause.condition),
                {name: arrow_of(value) for name, value in clause.values.items()},
                clause.generated,
            )
            for clause in self.clauses
        )
        return Clauses(self.schema, clauses, self.reader.target.prefix, tuple(updated))


def arrow_of(expression: PairExpression) -> pc.Expression:
    """The expression for Arrow. Raises `InvalidOption` for one that only Spark evaluates."""
    if expression.arrow is None:
        raise InvalidOption(
            f"the expression {expression.text!r} runs on Spark only: {expression.reason}",
            hint="open the table with spark=..., or write the expression in simpler SQL (docs/queries.md lists what"
            " runs without Spark)",
            context={"expression": expression.text},
        )
    return expression.arrow


_NONE = PairExpression("", (), (), "")


def bind(context: WriteContext, statement: MergeStatement, source: pa.Schema, schema: pa.Schema) -> BoundMerge:
    """The merge over these columns; `schema` has the table's columns after it. Raises `InvalidOption` for unknown names
    and invalid texts, and `UnsupportedFeature` for clauses that a merge cannot run."""
    if not statement.clauses:
        raise InvalidOption(
            "a merge without clauses does nothing",
            hint="add one, as in t.merge(rows).when_matched_update().when_not_matched_insert()",
        )
    stored, spark = context.opened.schema, getattr(context.engine, "spark", None)
    reader = PairReader(Side.target(stored, statement.target), Side.source(source, statement.source), zone_of(spark))
    on = None if not len(source) else reader.on(_on_text(context, statement))
    equalities = on.equalities if on else ()
    equated = {equality.column for equality in equalities if _is_of_same_name(equality, reader.source)}
    binder = _Binder(context, statement, reader, schema, equated)
    clauses = tuple(binder.clause(clause) for clause in statement.clauses)
    return BoundMerge(context, statement, reader, on, clauses, schema, stored)


def _is_of_same_name(equality: Equality, source: Side) -> bool:
    """Whether a column is compared with the source's column of its name, which "all" sets it to."""
    column, value = source.column(equality.column), equality.value.arrow
    return column is not None and value is not None and value.equals(pc.field(source.field(column)))


def _on_text(context: WriteContext, statement: MergeStatement) -> str:
    """The join condition; columns that are listed are equal on both sides."""
    on = statement.on
    if isinstance(on, str) and not on.isidentifier():
        return on
    names = list(context.config.key_fields) if on is None else [on] if isinstance(on, str) else list(on)
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidOption(
            f"on={on!r} is no join condition",
            hint="give a column, a list of columns that are equal on both sides, or SQL such as 't.id = s.id'",
            context={"option": "on"},
        )
    parts = [
        f"{quote_name(side)}.{quote_name(name)}" for name in names for side in (statement.target, statement.source)
    ]
    return " AND ".join(f"{left} = {right}" for left, right in zip(parts[::2], parts[1::2], strict=True))


class _Binder:
    """Binds the clauses of a merge to the columns of its table and source."""

    def __init__(
        self, context: WriteContext, statement: MergeStatement, reader: PairReader, schema: pa.Schema, equated: set[str]
    ) -> None:
        self._context = context
        self._statement = statement
        self._reader = reader
        self._schema = schema
        self._equated = equated

    def clause(self, clause: ClauseText) -> BoundClause:
        target, source = self._reader.target, self._reader.source
        by_when = {"matched": (target, source), "not_matched": (source,), "not_matched_by_source": (target,)}
        sides = by_when[clause.when]
        condition = None
        if clause.condition is not None:
            condition = self._reader.condition(clause.condition, sides, f"condition of {clause.name}")
        return BoundClause(clause, condition, *self._values(clause, sides))

    def _values(
        self, clause: ClauseText, sides: Sequence[Side]
    ) -> tuple[Mapping[str, PairExpression], tuple[str, ...], tuple[GeneratedColumn, ...]]:
        if clause.action == "delete":
            return {}, (), ()
        keys = self._context.keys.key_fields
        if isinstance(clause.values, str) and clause.values == "all":
            values = self._all(clause)
            if clause.action == "update":
                assigned_keys = tuple(name for name in keys if name in values)
                values = {name: value for name, value in values.items() if name not in keys}
                values, computed = self._with_generated(clause, values)
                self._check_types(values)
                return values, tuple(name for name in assigned_keys if name not in self._equated), computed
        else:
            values = self._given(clause, clause.values, sides)
        if clause.action == "insert":
            lacking = [name for name in self._defaults if name not in values]
            values = {**values, **{name: self._default(name) for name in lacking}}
        values, computed = self._with_generated(clause, values)
        if clause.action == "insert":
            self._check_insert(clause, values)
        self._check_types(values)
        return values, (), computed

    def _value(self, column: str, text: str, sides: Sequence[Side], label: str) -> PairExpression:
        """The value of a text, in which DEFAULT is the default of the column."""
        if not is_default(text):
            return self._reader.value(text, sides, label)
        if column in self._context.config.generated:
            raise InvalidOption(
                f"{label} is DEFAULT, and the column is generated from others",
                hint="leave it out: it gets its value by its expression",
                context={"column": column},
            )
        return self._default(column) if column in self._defaults else self._reader.value("NULL", (), label)

    @once
    def _defaults(self) -> Mapping[str, pa.Scalar]:
        """The defaults of the table's columns now: each is one value for all rows of the merge."""
        return default_values(self._context.config, self._schema)

    def _default(self, column: str) -> PairExpression:
        value = self._defaults[column]
        return self._reader.value(spark_literal(value.as_py(), value.type), (), f"default of {column}")

    @once
    def _generated(self) -> list[GeneratedColumn]:
        return generated_columns(self._context.config, self._schema)

    def _with_generated(
        self, clause: ClauseText, values: Mapping[str, PairExpression]
    ) -> tuple[Mapping[str, PairExpression], tuple[GeneratedColumn, ...]]:
        """The values with those of generated columns: of all columns in a new row, and of those whose sources an update
        sets; and the columns that are generated from the values of a row that is made, for which these have null. A
        column that the clause sets itself is judged by the check that its value is that of its expression."""
        computed = [
            column
            for column in self._generated
            if column.field.name not in values
            and (clause.action == "insert" or not values.keys().isdisjoint(column.columns))
        ]
        return {**values, **{c.field.name: self._generated_value(clause, c, values) for c in computed}}, tuple(computed)

    def _generated_value(
        self, clause: ClauseText, column: GeneratedColumn, values: Mapping[str, PairExpression]
    ) -> PairExpression:
        """Null, and the columns of both sides from which the value of a generated column follows."""
        set_values = [values[name] for name in column.columns if name in values]
        stays = [name for name in column.columns if name not in values] if clause.action == "update" else []
        kind = column.field.type
        return PairExpression(
            column.text,
            tuple(dict.fromkeys([*stays, *(name for value in set_values for name in value.target)])),
            tuple(dict.fromkeys(name for value in set_values for name in value.source)),
            spark_null(column.field),
            pc.scalar(pa.scalar(None, kind)),
            kind,
        )

    def _check_types(self, values: Mapping[str, PairExpression]) -> None:
        """Raise `SchemaConflict` for values of a type that their column does not take."""
        for name, value in values.items():
            if value.type is not None:
                missing = self._context.settings.missing_columns
                check_fits(value.type, self._schema.field(name), missing=missing, text=value.text)

    def _all(self, clause: ClauseText) -> dict[str, PairExpression]:
        source = self._reader.source
        left = {in_any_case(name, self._schema.names) for name in clause.except_columns}
        unknown = left - set(self._schema.names)
        if unknown:
            raise self._no_column(min(unknown), clause)
        columns = {f.name: source.column(f.name) for f in self._schema if f.name not in left}
        return {
            name: PairExpression(
                f"{source.alias}.{column}",
                (),
                (column,),
                quote_name(source.field(column)),
                pc.field(source.field(column)),
                source.schema.field(column).type,
            )
            for name, column in columns.items()
            if column is not None
        }

    def _given(
        self, clause: ClauseText, assignments: Mapping[str, Any], sides: Sequence[Side]
    ) -> dict[str, PairExpression]:
        if not isinstance(assignments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(
                f"{clause.name} takes a dict of columns and values, not {type(assignments).__name__}",
                hint='for example {"fare": "fare * 2"}',
            )
        if not assignments:
            raise InvalidOption(f"{clause.name} sets no column", hint="give {column: SQL expression, ...}")
        names = self._schema.names
        values: dict[str, PairExpression] = {}
        for column, value in assignments.items():
            alias, _, path = str(column).partition(".")
            is_of_target = bool(path) and alias.lower() == self._statement.target.lower()
            if is_of_target and in_any_case(alias, names) in names:
                is_of_target = False  # a field of the struct of that name, or the column: it is refused as a field
            name = in_any_case(path if is_of_target else str(column), names)
            if name not in names:
                raise self._no_column(str(column), clause)
            if name in values:
                raise InvalidOption(f"{clause.name} sets column {name!r} twice", context={"column": name})
            if clause.action == "update" and name in self._context.keys.key_fields:
                raise UnsupportedFeature(
                    f"{clause.name} would set {name!r}, which is in the record key: a row keeps its key",
                    hint="delete the row and insert it under its new key",
                    context={"column": name},
                )
            values[name] = self._value(name, sql_of(value), sides, f"value of {name} in {clause.name}")
        return values

    def _check_insert(self, clause: ClauseText, values: Mapping[str, PairExpression]) -> None:
        context = self._context
        needed = [*context.keys.key_fields, *context.keys.partition_fields, *context.rules.ordering_columns]
        lacking = [name for name in needed if "." not in name and name not in values]
        if lacking:
            raise InvalidOption(
                f"{clause.name} gives no value to {', '.join(lacking)}, which every row needs",
                hint="add it to values=, or give it to the source",
                context={"columns": lacking},
            )

    def _no_column(self, name: str, clause: ClauseText) -> InvalidOption:
        names = self._schema.names
        path = name.partition(".")[2] if name.lower().startswith(f"{self._statement.target.lower()}.") else name
        for struct in (path.partition(".")[0], name.partition(".")[0]):
            if struct != name and in_any_case(struct, names) in names:
                return InvalidOption(
                    f"{clause.name} would set {name!r}, a field of the column {in_any_case(struct, names)!r}, and it"
                    " sets whole columns",
                    hint=f"give {in_any_case(struct, names)!r} a struct with all fields, or upsert the rows",
                    context={"column": name},
                )
        return InvalidOption(
            f"the table has no column {name!r}, which {clause.name} sets",
            hint=did_you_mean(name, names)
            + (
                ""
                if self._statement.evolves or clause.of_update
                else "; with_schema_evolution() adds those of the source"
            ),
            context={"column": name, "nearest": nearest_name(name, names)},
        )


def key_equalities(on: OnCondition | None, fields: Sequence[str], stored: pa.Schema) -> dict[str, Equality] | None:
    """The equality for each of the fields, with a value that gives the same key text; None if a field has none."""
    equalities: dict[str, Equality] = {}
    for name in fields:
        for equality in on.equalities if on else ():
            if equality.column == name and is_same_key(equality.value.type, stored.field(name).type):
                equalities[name] = equality
        if name not in equalities:
            return None
    return equalities


def is_same_key(kind: pa.DataType | None, stored: pa.DataType) -> bool:
    """Whether equal values of the two types make the same key text."""
    if kind is None or pa.types.is_floating(stored):
        return False
    integers = pa.types.is_integer(kind) and pa.types.is_integer(stored)
    return kind.equals(stored) or (integers and kind.bit_width <= stored.bit_width)
