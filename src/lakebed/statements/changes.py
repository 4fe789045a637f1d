"""Statements that change a table: MERGE, UPDATE, DELETE and INSERT, each as the method of the table that does it.

Conditions and values are taken out of the text as they are written, between the words of the statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed import lineage
from lakebed.engine.base import session_of
from lakebed.engine.spark_session import zone_of
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.filters.pairs import PairReader, Side
from lakebed.filters.sql import outside_parentheses
from lakebed.filters.text import quote_name, spark_literal
from lakebed.operations.column_values import default_values, is_default
from lakebed.operations.context import WriteContext
from lakebed.operations.delete import Where
from lakebed.operations.merge import explain_merge
from lakebed.operations.merge_statement import update_statement
from lakebed.operations.result import WriteResult
from lakebed.operations.upsert import explain_insert
from lakebed.properties.table_config import TableConfig
from lakebed.schema.assignment import check_fits, in_column
from lakebed.schema.column_names import in_any_case
from lakebed.schema.plain_arrow import one_array
from lakebed.schema.spark import spark_null
from lakebed.sharing import once
from lakebed.statements.commands import OF_DUCKDB, ForSpark, Query, not_of_lakebed
from lakebed.statements.inserts import (
    STATIC_PATHS,
    assigned_rows,
    overwritten_paths,
    partition_values,
    replace_where,
)
from lakebed.statements.parts import Cursor, Parts, QueryText
from lakebed.statements.sources import Sources
from lakebed.statements.statement import Reference, Statement
from lakebed.table import Table
from lakebed.table_merge import Merge
from lakebed.wording import Lines


def run_change(statement: Statement, sources: Sources, query: Query) -> WriteResult:
    """Run a statement that changes a table. `query` returns the rows of a query's text.

    Raises `InvalidOption` for a text that is not such a statement; it names the place.
    """
    result = _Change(statement, _FORMS[statement.kind], sources, query).run()
    assert isinstance(result, WriteResult)
    return result


def explain_change(statement: Statement, sources: Sources, query: Query) -> Lines:
    """The plan of a statement that changes a table, as text. The queries in it may run; nothing is written.

    Raises `UnsupportedFeature` for an INSERT that replaces rows, of which there is no plan.
    """
    result = _Change(statement, _FORMS[statement.kind], sources, query, explains=True).run()
    assert isinstance(result, Lines)
    return result


def changed_table(statement: Statement) -> Reference | None:
    """The table that a statement changes; None for a text in which it is not named as lakebed reads it.

    >>> from lakebed.statements.statement import parse_statement
    >>> changed_table(parse_statement("delete from sales.orders where id = 1", is_spark=True)).name
    'sales.orders'
    """
    begin = _begin(Parts(statement, ""))
    for words in _BEFORE_TABLE[statement.kind]:
        if statement.words[begin : begin + len(words)] == words:
            return statement.reference_at(begin + len(words), takes_columns=True)
    return None


def _begin(parts: Parts) -> int:
    """The place of the first word after the common table expressions."""
    has_with = parts.statement.word(0) == "WITH"
    return parts.all(parts.statement.kind, 1, parts.stop)[0] if has_with else 0


@dataclass
class _Change(Parts):
    """One statement being run."""

    sources: Sources
    run_query: Query
    explains: bool = False

    def run(self) -> WriteResult | Lines:
        self.check_parentheses()
        kind = self.statement.kind
        if self.begin and kind not in ("MERGE", "INSERT"):
            raise self.wrong(0, "common table expressions are not possible (conditions have no subqueries)")
        kinds = {"MERGE": self._merge, "UPDATE": self._update, "DELETE": self._delete, "INSERT": self._insert}
        if not lineage.is_active():
            return kinds[kind]()
        changed = changed_table(self.statement)
        read = [self.sources.uri_of(reference) for reference in self.statement.references if reference != changed]
        with lineage.reading([uri for uri in read if uri]):
            return kinds[kind]()

    @once
    def begin(self) -> int:
        """The place of the first word after the common table expressions."""
        return _begin(self)

    def _rows(self, query: QueryText) -> Any:
        """The rows of a query that may name the common table expressions of the statement."""
        if not self.begin:
            return self.run_query(query)
        with_ = self.query(0, self.begin)
        has_with = query.text.split(maxsplit=1)[0].upper() == "WITH"
        text = f"SELECT * FROM (\n{query.text}\n)" if has_with else query.text
        return self.run_query(QueryText(f"{with_.text}\n{text}", with_.args | query.args))

    def _target(self, reference: Reference) -> Table:
        if reference.as_of is not None:
            raise InvalidOption(
                f"the {self.statement.kind} names the table {reference.name!r} as of {reference.as_of!r}",
                hint="it changes the table as it is now: leave out AS OF",
                context={"table": reference.name},
            )
        table = self.sources.table(reference)
        if table is None:
            raise not_of_lakebed(self.statement.kind, reference, self.sources)
        return table

    # -- DELETE, UPDATE, INSERT

    def _delete(self) -> WriteResult | Lines:
        reference, at, alias = self._aliased(self.expect(self.begin, "DELETE", "FROM"))
        table = self._target(reference)
        where = "true"
        if at < self.stop:
            start = self.expect(at, "WHERE")
            where = _PlainNames(table.schema, alias).condition(self._rest(start, "condition"))
        return _plan_of_delete(table, where) if self.explains else table.delete(where=where)

    def _aliased(self, at: int) -> tuple[Reference, int, str]:
        """The table that is named at a token, the position after it and its alias, and the alias."""
        self._check_name(at)
        reference, after = self.table(at)
        return reference, *self.alias(after, reference.short_name)

    def _check_name(self, at: int) -> None:
        """Raise `ForSpark` for a table of a catalog, which the session runs."""
        if self.sources.session is not None and self.statement.reference_at(at, takes_columns=True) is None:
            raise ForSpark

    def _rest(self, start: int, label: str) -> str:
        return self.text(start, self.stop, label)

    def _update(self) -> WriteResult | Lines:
        reference, at, alias = self._aliased(self.expect(self.begin, "UPDATE"))
        table = self._target(reference)
        at = self.expect(at, "SET")
        where = self.find("WHERE", at)
        stop = self.stop if where is None else where
        plain = _PlainNames(table.schema, alias)
        assignments = [(plain.column(name), text) for name, text in self._assignments(at, stop)]
        self._check_once(at, [name for name, _ in assignments])
        values = {name: plain.value(text) for name, text in assignments}
        condition = None if where is None else plain.condition(self._rest(where + 1, "condition"))
        if not self.explains:
            return table.update(values, where=condition)
        plan, rows = update_statement(values, condition), Where("true" if condition is None else condition)
        return table.opened.plan_merge(lambda context: explain_merge(context, None, plan), rows, None)

    def _assignments(self, start: int, stop: int) -> Iterator[tuple[str, str]]:
        """The columns and the texts of `a = ..., b = ...`."""
        for first, last in self.listed(start, stop):
            equal = self.find("=", first, last)
            if equal is None:
                raise self.wrong(first, "column = value is missing")
            yield ".".join(self.path(first, equal)), self.text(equal + 1, last, "the value")

    def _check_once(self, at: int, names: Sequence[str]) -> None:
        repeated = next((name for number, name in enumerate(names) if name in names[:number]), None)
        if repeated is not None:
            raise self.wrong(at, f"the column {repeated!r} is given twice")

    def _insert(self) -> WriteResult | Lines:
        statement = self.statement
        is_overwrite = statement.word(self.begin + 1) == "OVERWRITE"
        at = self.expect(self.begin, "INSERT", "OVERWRITE" if is_overwrite else "INTO")
        at += statement.word(at) == "TABLE"
        self._check_name(at)
        reference, at = self.table(at)
        table = self._target(reference)
        constants, at = self._constants(at, table, is_overwrite=is_overwrite)
        names: list[str] | None = [name for name in table.schema.names if name not in constants]
        if (statement.word(at), statement.word(at + 1)) == ("BY", "NAME"):
            names, at = None, at + 2
        elif statement.word(at) == "(" and statement.word(at + 1) not in _QUERY_WORDS:
            close = self.closing(at)
            names = [".".join(self.path(first, last)) for first, last in self.listed(at + 1, close)]
            at = close + 1
        start = at
        replaces = (statement.word(at), statement.word(at + 1)) == ("REPLACE", "WHERE")
        if replaces:
            if is_overwrite or constants:
                raise self.wrong(at, "REPLACE WHERE comes after INSERT INTO without PARTITION")
            start = self._query_after(at + 2)
        if self.explains and (replaces or is_overwrite):
            raise UnsupportedFeature(
                f"there is no plan of an INSERT that replaces rows of table {table.name!r}",
                hint="Run it in a stage and look at its rows before the commit (docs/stage.md), or on a clone.",
                context={"feature": "EXPLAIN INSERT OVERWRITE"},
            )
        query = self.query(start, self.stop, self._defaults(start, table, names or ()))
        # a merge sets no defaults in stored rows
        rows = self._fitted(self._rows(query), table, names, start, constants, all_defaults=replaces)
        if replaces:
            condition = self.text(at + 2, start, "the condition")
            return replace_where(table, rows, _PlainNames(table.schema, reference.short_name).condition(condition))
        if self.explains:
            plan = table.opened.plan_merge(lambda context: explain_insert(context, rows), rows, None)
            return Lines(f"insert into table {table.name!r}\n{_indented(plan)}")
        if not is_overwrite:
            return table.insert(rows)
        paths = overwritten_paths(table, constants) if constants else []
        return table.insert_overwrite(rows, options={STATIC_PATHS: ",".join(paths)} if paths else None)

    def _defaults(self, start: int, table: Table, names: Sequence[str]) -> dict[int, Any]:
        """The defaults of columns by the tokens DEFAULT in the lists of a VALUES that begins at a token."""
        if self.statement.word(start) != "VALUES":
            return {}
        schema, config = table.schema, TableConfig(dict(table.properties))
        tokens = [
            (first, in_any_case(name, schema.names))
            for row, end in self.listed(start + 1, self.stop)
            if self.statement.word(row) == "("
            for name, (first, last) in zip(names, self.listed(row + 1, end - 1), strict=False)
            if last == first + 1 and self.statement.word(first) == "DEFAULT"
        ]
        generated = next((first for first, name in tokens if name in config.generated), None)
        if generated is not None:
            raise self.wrong(generated, "a generated column takes no DEFAULT: leave the column out")
        defaults = default_values(config, schema) if tokens else {}
        return {first: defaults[name].as_py() if name in defaults else None for first, name in tokens}

    def _constants(self, at: int, table: Table, *, is_overwrite: bool) -> tuple[dict[str, pa.Scalar], int]:
        """The values of PARTITION, if it comes next (otherwise empty), and the position after it."""
        if self.statement.word(at) != "PARTITION":
            return {}, at
        cursor = Cursor(self.statement, self.form, at + 1, zone_of(table.opened.spark))
        constants, unset_columns = partition_values(cursor, table)
        if cursor.word == "IF":
            raise self.wrong(cursor.at, "IF NOT EXISTS is not possible")
        names = [name for name in table.schema.names if name not in constants]
        has_names = cursor.word == "BY" or (
            cursor.word == "(" and self.statement.word(cursor.at + 1) not in _QUERY_WORDS
        )
        if unset_columns and not has_names and names[-len(unset_columns) :] != unset_columns:
            raise self.wrong(
                at, f"{', '.join(unset_columns)} are not the last columns of the table, so name the columns"
            )
        return constants, cursor.at

    def _query_after(self, at: int) -> int:
        """The place of the query after a condition."""
        for position in outside_parentheses(self.statement.words, at):
            word, after, before = (self.statement.word(position + n) for n in (0, 1, -1))
            if word in ("SELECT", "WITH", "VALUES", "TABLE") or (word == "FROM" and before != "DISTINCT"):
                return position
            if word == "(" and after in ("SELECT", "WITH", "VALUES") and before not in ("IN", "EXISTS"):
                return position
        raise self.wrong(self.stop, "the query is missing after the condition")

    def _fitted(
        self,
        rows: Any,
        table: Table,
        names: Sequence[str] | None,
        at: int,
        constants: Mapping[str, pa.Scalar],
        *,
        all_defaults: bool,
    ) -> Any:
        """The rows of a query with the table's names and types, and with these constants. Columns without a value are
        null, but those with a default and generated ones: the write fills them in, or with `all_defaults` the rows have
        the defaults."""
        schema, config = table.schema, TableConfig(dict(table.properties))
        arrow: pa.Table | None = None if session_of(rows) is not None else rows.to_arrow()
        have: list[str] = list(rows.columns) if arrow is None else arrow.column_names
        column_names = [in_any_case(name, schema.names) for name in (have if names is None else names)]
        unknown = [name for name in column_names if name not in schema.names]
        if unknown or len(column_names) != len(have):
            problem = (
                f"the table has no column {unknown[0]!r}"
                if unknown
                else f"{len(have)} values for {len(column_names)} columns"
            )
            raise self.wrong(at, problem)
        self._check_once(at, column_names)
        constant_name = next((name for name in column_names if name in constants), None)
        if constant_name is not None:
            raise self.wrong(at, f"the column {constant_name!r} has its value in PARTITION already")
        if all_defaults:
            defaults = default_values(config, schema)
            constants = {**constants, **{name: defaults[name] for name in defaults if name not in column_names}}
        own_values = {*config.defaults, *config.generated} - {*column_names, *constants}
        fields = [f.with_nullable(True) for f in schema if f.name not in own_values]
        if arrow is None:
            texts = {name: spark_literal(value.as_py(), value.type) for name, value in constants.items()}
            texts |= {name: quote_name(name) for name in column_names}
            named = rows.toDF(*column_names).selectExpr(
                *[
                    f"{texts[f.name]} AS {quote_name(f.name)}"
                    if f.name in texts
                    else f"{spark_null(f)} AS {quote_name(f.name)}"
                    for f in fields
                ]
            )
            return assigned_rows(named, pa.schema(fields), column_names)
        columns = dict(zip(column_names, arrow.columns, strict=True))
        for name in column_names:
            check_fits(columns[name].type, schema.field(name), OF_DUCKDB)
        return pa.table(
            [
                in_column(one_array(columns[f.name]), f, OF_DUCKDB)
                if f.name in columns
                else pa.repeat(constants.get(f.name, pa.scalar(None, f.type)), arrow.num_rows)
                for f in fields
            ],
            schema=pa.schema(fields),
        )

    # -- MERGE

    def _merge(self) -> WriteResult | Lines:
        reference, at, alias = self._aliased(self.expect(self.begin, "MERGE", "INTO"))
        target = self._target(reference)
        at = self.expect(at, "USING")
        source, at, source_alias = self._source(at)
        if self.statement.word(at) == "(" and self.statement.word(at - 1) != ")":
            source, at = self._renamed(source, at)
        on = self.expect(at, "ON")
        whens = self.all("WHEN", on, self.stop)
        if not whens:
            raise self.wrong(self.stop, "WHEN is missing")
        # enclosed, so that a word is not taken for the name of a column that both sides have
        condition = f"(\n{self.text(on, whens[0], 'the join condition')}\n)"
        merge = target.merge(source, condition, target=alias, source_alias=source_alias)
        for start, stop in zip(whens, [*whens[1:], self.stop], strict=True):
            merge = self._clause(merge, start, stop)
        return merge.explain() if self.explains else merge.execute()

    def _source(self, at: int) -> tuple[Any, int, str]:
        """The rows after USING, the position after them and their alias, and the alias."""
        if self.statement.word(at) == "(":
            close = self.closing(at)
            rows = self._rows(self.query(at + 1, close))
            return rows, *self.alias(close + 1, "s")
        session = self.sources.session
        if session is not None and self.statement.reference_at(at) is None and self.statement.is_name(at):
            after = at + 1  # a table of a catalog
            while self.statement.word(after) == ".":
                after += 2
            return session.table(self.text(at, after, "the source")), *self.alias(after, self.path(at, after)[-1])
        reference, after, alias = self._aliased(at)
        first = 1 + (self.statement.word(1) == "RECURSIVE")
        expressions = [self.statement.tokens[n].text for n, _ in self.listed(first, self.begin)] if self.begin else []
        if in_any_case(reference.name, expressions) in expressions and reference.as_of is None:
            return self._rows(QueryText(f"SELECT * FROM {reference.name}")), after, alias
        source = self.sources.named(reference)
        if source is None and session is not None:
            source = session.table(reference.name)
        if source is None:
            raise self.wrong(at, f"there is no source {reference.name!r}: tables= lacks it")
        if isinstance(source, Table):
            scan = source.scan(as_of=reference.as_of)
            source = scan.to_spark() if source.opened.spark is not None else scan.to_arrow()
        return source, after, alias

    def _renamed(self, rows: Any, at: int) -> tuple[Any, int]:
        """The rows of a source under the names in parentheses after its alias, and the position after these."""
        close = self.closing(at)
        names = [".".join(self.path(first, last)) for first, last in self.listed(at + 1, close)]
        self._check_once(at, [name.lower() for name in names])
        is_frame = session_of(rows) is not None
        table = rows if is_frame else rows.to_arrow() if hasattr(rows, "to_arrow") else pa.table(rows)
        count = len(table.columns)
        if count != len(names):
            raise self.wrong(at, f"{len(names)} names for {count} columns")
        return (rows.toDF(*names) if is_frame else table.rename_columns(names)), close + 1

    def _clause(self, merge: Merge, start: int, stop: int) -> Merge:
        """The merge with the clause from WHEN on."""
        statement = self.statement
        at = start + 1
        is_new = statement.word(at) == "NOT"
        at = self.expect(at + is_new, "MATCHED")
        by = statement.word(at + 1) if statement.word(at) == "BY" else ""
        at += 2 * bool(by)
        if (by and by not in ("SOURCE", "TARGET")) or (by and not is_new):
            raise self.wrong(start, "BY SOURCE or BY TARGET comes after NOT MATCHED")
        then = self.find("THEN", at, stop)
        if then is None:
            raise self.wrong(start, "THEN is missing")
        condition = None
        if then > at:
            condition = self.text(self.expect(at, "AND"), then, "the condition")
        action, at = statement.word(then + 1), then + 2
        kind = "by_source" if by == "SOURCE" else "new" if is_new else "matched"
        if action == "DELETE" and kind != "new" and at == stop:
            method = merge.when_matched_delete if kind == "matched" else merge.when_not_matched_by_source_delete
            return method(condition=condition)
        if action == "UPDATE" and kind != "new":
            at = self.expect(at, "SET")
            if at + 1 == stop and statement.word(at) == "*" and kind == "matched":
                return merge.when_matched_update(condition=condition)
            assignments = list(self._assignments(at, stop))
            self._check_once(at, [name for name, _ in assignments])
            values = dict(assignments)
            method = merge.when_matched_update if kind == "matched" else merge.when_not_matched_by_source_update
            return method(values, condition=condition)
        if action == "INSERT" and kind == "new":
            if at + 1 == stop and statement.word(at) == "*":
                return merge.when_not_matched_insert(condition=condition)
            return merge.when_not_matched_insert(self._inserted(at, stop), condition=condition)
        raise self.wrong(then, f"{action or 'this'} is no action of such a clause")

    def _inserted(self, at: int, stop: int) -> dict[str, str]:
        """The columns and texts of `(a, b) VALUES (..., ...)`."""
        values = self.find("VALUES", at, stop)
        if values is None or self.statement.word(at) != "(" or self.closing(at) + 1 != values:
            raise self.wrong(at, "INSERT takes (columns) VALUES (values), or *")
        if self.statement.word(values + 1) != "(" or self.closing(values + 1) + 1 != stop:
            raise self.wrong(values, "VALUES takes the values of one row in parentheses")
        names = [".".join(self.path(first, last)) for first, last in self.listed(at + 1, values - 1)]
        texts = [self.text(first, last, "a value") for first, last in self.listed(values + 2, stop - 1)]
        if len(texts) != len(names):
            raise self.wrong(at, f"{len(texts)} values for {len(names)} columns")
        self._check_once(at, names)
        return dict(zip(names, texts, strict=True))


class _PlainNames:
    """A converter of texts over one table to the table's names, in place of an alias and of names in another case."""

    def __init__(self, schema: pa.Schema, alias: str) -> None:
        self._schema = schema
        self._side = Side(alias, "", schema)
        self._reader = PairReader(self._side, Side.source(pa.schema([]), f"{alias}_"))

    def column(self, name: str) -> str:
        alias, _, path = name.partition(".")
        return in_any_case(path if path and alias.lower() == self._side.alias.lower() else name, self._schema.names)

    def condition(self, text: str) -> str:
        return self._reader.condition(text, (self._side,), "condition").spark

    def value(self, text: str) -> str:
        return text if is_default(text) else self._reader.value(text, (self._side,), "value").spark


# What is ahead of the table, the longest first.
_BEFORE_TABLE = {
    "MERGE": (("MERGE", "INTO"),),
    "UPDATE": (("UPDATE",),),
    "DELETE": (("DELETE", "FROM"),),
    "INSERT": tuple(
        (*words, *table) for words in (("INSERT", "INTO"), ("INSERT", "OVERWRITE")) for table in (("TABLE",), ())
    ),
}
_QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")
_FORMS = {
    "MERGE": "write MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "UPDATE": "write UPDATE t SET column = value, ... WHERE condition",
    "DELETE": "write DELETE FROM t WHERE condition",
    "INSERT": "write INSERT INTO t [PARTITION (column = value)] (columns) VALUES (values), or a query;"
    " INSERT OVERWRITE t [PARTITION (column = value)] SELECT ...; INSERT INTO t REPLACE WHERE condition SELECT ...",
}


def _plan_of_delete(table: Table, where: str) -> Lines:
    """The plan of `table.delete(where=...)`: the files in which it looks for rows, and the engine that deletes them."""

    def plan(context: WriteContext) -> Lines:
        read = _indented(table.scan(where=where).explain())
        return Lines(
            f"delete from table {table.name!r}, rows with {where}\n  engine      {context.engine.name}\n{read}"
        )

    return table.opened.plan_merge(plan, Where(where), None)


def _indented(plan: object) -> str:
    return "\n".join(f"  {line}" for line in str(plan).splitlines())
