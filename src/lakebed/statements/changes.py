"""Statements that change a table: MERGE, UPDATE, DELETE and INSERT, each as the method of the table that does it.

Conditions and values are taken out of the text as they are written, between the words of the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.engine.spark_session import session_of
from lakebed.errors import InvalidOption
from lakebed.filters.pairs import PairReader, Side
from lakebed.filters.text import quote_name, spark_literal
from lakebed.merge.clauses import assigned
from lakebed.operations.result import WriteResult
from lakebed.schema.column_names import in_any_case
from lakebed.schema.conversion import one_array
from lakebed.schema.spark import spark_type
from lakebed.statements.sources import Sources
from lakebed.statements.statement import Reference, Statement, parse_statement
from lakebed.table import Table
from lakebed.table_merge import Merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPENING, _CLOSING = ("(", "[", "CASE"), (")", "]", "END")
Query = Callable[[str], Any]


def run_change(
    statement: Statement, sources: Sources, args: Any, spark: SparkSession | None, query: Query
) -> WriteResult:
    """Carry out a statement that changes a table. `query` gives the rows of a query's text.

    Raises `InvalidOption` for a text that is no such statement, naming the place.
    """
    written = parse_statement(_with_values(statement, args), is_spark=True)
    return _Change(written, sources, spark, query).run()


def _with_values(statement: Statement, args: Any) -> str:
    """The text with the values of `:name` and `?` in their places, as constants."""
    places: dict[tuple[int, int], str] = {}
    given = iter(args if isinstance(args, Sequence) else ())
    for at, token in enumerate(statement.tokens):
        if statement.text[token.start] == "?":
            value = next(given, _MISSING)
            if value is _MISSING:
                raise InvalidOption(f"args has too few values for ? in the SQL text near {statement.near(at)}")
            places[token.start, token.end + 1] = _constant(value)
        elif statement.text[token.start] == ":" and isinstance(args, Mapping) and at + 1 < len(statement.tokens):
            name = statement.tokens[at + 1]
            if name.start == token.end + 1 and name.text in args:
                places[token.start, name.end + 1] = _constant(args[name.text])
    return statement.replaced(places)


_MISSING = object()


def _constant(value: Any) -> str:
    return spark_literal(value, pa.scalar(value).type)


@dataclass(frozen=True)
class _Change:
    """One statement under way."""

    statement: Statement
    sources: Sources
    spark: SparkSession | None
    query: Query

    def run(self) -> WriteResult:
        kinds = {"MERGE": self._merge, "UPDATE": self._update, "DELETE": self._delete, "INSERT": self._insert}
        return kinds[self.statement.kind]()

    # -- the words and the parts of the text

    def _top(self, start: int = 0) -> Iterator[tuple[int, str]]:
        """Tokens from a place on that are outside of all parentheses and CASE, with their words."""
        depth = 0
        for at in range(start, len(self.statement.tokens)):
            word = self.statement.word(at)
            sign = word or self.statement.tokens[at].text
            if sign in _CLOSING:
                depth -= 1
            elif depth == 0:
                yield at, word
            if sign in _OPENING:
                depth += 1

    def _find(self, word: str, start: int, before: int | None = None) -> int | None:
        """The next token that is this word."""
        return next((at for at, found in self._top(start) if found == word and (before is None or at < before)), None)

    def _signs(self, sign: str, start: int, stop: int) -> list[int]:
        """Where a sign stands outside of all parentheses."""
        return [at for at, _ in self._top(start) if at < stop and self.statement.tokens[at].text == sign]

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of a list that commas separate: the first token of each, and the one after it."""
        commas = self._signs(",", start, stop)
        return zip([start, *(at + 1 for at in commas)], [*commas, stop], strict=True)

    def _closing(self, opening: int) -> int:
        """The parenthesis that closes the one at a token."""
        depth = 0
        for at in range(opening, len(self.statement.tokens)):
            text = self.statement.tokens[at].text
            depth += (text == "(") - (text == ")")
            if depth == 0:
                return at
        raise self._wrong(opening, "a closing parenthesis is missing")

    def _text(self, start: int, stop: int, what: str) -> str:
        """The text from a token up to another one."""
        tokens = self.statement.tokens
        if start >= stop:
            raise self._wrong(start, f"{what} is missing")
        return self.statement.text[tokens[start].start : tokens[stop - 1].end + 1]

    def _wrong(self, at: int, what: str) -> InvalidOption:
        kind = self.statement.kind
        return InvalidOption(
            f"{what} in the {kind} near {self.statement.near(at)}",
            hint=_FORMS[kind],
            context={"statement": kind},
        )

    def _expect(self, at: int, *words: str) -> int:
        """The token after these words."""
        for word in words:
            if self.statement.word(at) != word:
                raise self._wrong(at, f"{word} is missing")
            at += 1
        return at

    def _table(self, at: int) -> tuple[Reference, int, str]:
        """The table that is named at a token, the token after it and its alias, and that alias."""
        reference = self.statement.reference_at(at)
        if reference is None:
            raise self._wrong(at, "the name of a table is missing")
        return reference, *self._alias(self._after(reference), reference.name)

    def _after(self, reference: Reference) -> int:
        tokens = self.statement.tokens
        return next((at for at, token in enumerate(tokens) if token.start >= reference.end), len(tokens))

    def _alias(self, at: int, otherwise: str) -> tuple[int, str]:
        if self.statement.word(at) == "AS":
            at += 1
        elif self.statement.word(at) in _NO_ALIAS or not self.statement.is_name(at):
            return at, otherwise
        return at + 1, self.statement.tokens[at].text

    def _target(self, reference: Reference) -> Table:
        found = self.sources.named(reference)
        if not isinstance(found, Table):
            raise InvalidOption(
                f"the {self.statement.kind} names the table {reference.name!r}, which is no table of lakebed",
                hint="give a Table or a URI in tables={'name': ...}, or write the URI in quotes",
                context={"table": reference.name},
            )
        if self.spark is not None and found.session is None:
            return self.sources.opened(found.uri)
        return found

    # -- DELETE, UPDATE, INSERT

    def _delete(self) -> WriteResult:
        reference, at, alias = self._table(self._expect(0, "DELETE", "FROM"))
        table = self._target(reference)
        if at == len(self.statement.tokens):
            return table.delete(where="true")
        start = self._expect(at, "WHERE")
        return table.delete(where=self._plain(table, alias).condition(self._rest(start, "condition")))

    def _rest(self, start: int, what: str) -> str:
        return self._text(start, len(self.statement.tokens), what)

    def _update(self) -> WriteResult:
        reference, at, alias = self._table(self._expect(0, "UPDATE"))
        table = self._target(reference)
        at = self._expect(at, "SET")
        where = self._find("WHERE", at)
        stop = len(self.statement.tokens) if where is None else where
        plain = self._plain(table, alias)
        values = {plain.column(name): plain.value(text) for name, text in self._assignments(at, stop)}
        condition = None if where is None else plain.condition(self._rest(where + 1, "condition"))
        return table.update(values, where=condition)

    def _plain(self, table: Table, alias: str) -> _PlainNames:
        return _PlainNames(table.schema, alias)

    def _assignments(self, start: int, stop: int) -> Iterator[tuple[str, str]]:
        """The columns and the texts of `a = ..., b = ...`."""
        for first, last in self._parts(start, stop):
            equal = next(iter(self._signs("=", first, last)), None)
            if equal is None:
                raise self._wrong(first, "column = value is missing")
            names = [token.text for token in self.statement.tokens[first:equal] if token.text != "."]
            if not names:
                raise self._wrong(first, "the name of a column is missing")
            yield names[-1], self._text(equal + 1, last, "the value")

    def _insert(self) -> WriteResult:
        statement = self.statement
        is_overwrite = statement.word(1) == "OVERWRITE"
        at = self._expect(0, "INSERT", "OVERWRITE" if is_overwrite else "INTO")
        at += statement.word(at) == "TABLE"
        reference = statement.reference_at(at, takes_columns=True)
        if reference is None:
            raise self._wrong(at, "the name of a table is missing")
        table = self._target(reference)
        at = self._after(reference)
        names: list[str] | None = None
        by_name = (statement.word(at), statement.word(at + 1)) == ("BY", "NAME")
        at += 2 * by_name
        if at < len(statement.tokens) and statement.tokens[at].text == "(" and not by_name:
            close = self._closing(at)
            names = [token.text for token in statement.tokens[at + 1 : close] if token.text != ","]
            at = close + 1
        rows = self.query(self._rest(at, "the query or VALUES"))
        fitted = self._fitted(rows, table, None if by_name else names or list(table.schema.names), at)
        return table.insert_overwrite(fitted) if is_overwrite else table.insert(fitted)

    def _fitted(self, rows: Any, table: Table, names: Sequence[str] | None, at: int) -> Any:
        """The rows of a query under the table's names and in its types; columns without a value are null."""
        schema = table.schema
        arrow: pa.Table | None = None if session_of(rows) is not None else rows.to_arrow()
        have: list[str] = list(rows.columns) if arrow is None else arrow.column_names
        wanted = [in_any_case(name, schema.names) for name in (have if names is None else names)]
        unknown = [name for name in wanted if name not in schema.names]
        if unknown or len(wanted) != len(have):
            what = (
                f"the table has no column {unknown[0]!r}"
                if unknown
                else f"{len(have)} values for {len(wanted)} columns"
            )
            raise self._wrong(at, what)
        if arrow is None:
            renamed = rows.toDF(*wanted)
            return renamed.selectExpr(
                *[
                    f"CAST({quote_name(f.name) if f.name in wanted else 'NULL'} AS {spark_type(f.type)})"
                    f" AS {quote_name(f.name)}"
                    for f in schema
                ]
            )
        columns = dict(zip(wanted, arrow.columns, strict=True))
        return pa.table(
            [
                assigned(one_array(columns[f.name]), f.type, f.name)
                if f.name in columns
                else pa.nulls(arrow.num_rows, f.type)
                for f in schema
            ],
            schema=pa.schema([f.with_nullable(True) for f in schema]),
        )

    # -- MERGE

    def _merge(self) -> WriteResult:
        reference, at, alias = self._table(self._expect(0, "MERGE", "INTO"))
        at = self._expect(at, "USING")
        source, at, source_alias = self._source(at)
        on = self._expect(at, "ON")
        whens = [n for n, word in self._top(on) if word == "WHEN"]
        if not whens:
            raise self._wrong(len(self.statement.tokens), "WHEN is missing")
        condition = self._text(on, whens[0], "the join condition")
        merge = self._target(reference).merge(source, condition, target=alias, source_alias=source_alias)
        for start, stop in zip(whens, [*whens[1:], len(self.statement.tokens)], strict=True):
            merge = self._clause(merge, start, stop)
        return merge.execute()

    def _source(self, at: int) -> tuple[Any, int, str]:
        """The rows after USING, the token after them and their alias."""
        if at < len(self.statement.tokens) and self.statement.tokens[at].text == "(":
            close = self._closing(at)
            rows = self.query(self._text(at + 1, close, "the query"))
            return rows, *self._alias(close + 1, "s")
        reference, after, alias = self._table(at)
        found = self.sources.named(reference)
        if found is None and self.spark is not None:
            found = self.spark.table(reference.name)
        if found is None:
            raise self._wrong(at, f"there is no source {reference.name!r}: tables= lacks it")
        if isinstance(found, Table):
            scan = found.scan(as_of=reference.as_of)
            found = scan.to_spark() if found.session is not None else scan.to_arrow()
        return found, after, alias

    def _clause(self, merge: Merge, start: int, stop: int) -> Merge:
        """The merge with the clause from WHEN on."""
        statement = self.statement
        at = start + 1
        is_new = statement.word(at) == "NOT"
        at = self._expect(at + is_new, "MATCHED")
        by = statement.word(at + 1) if statement.word(at) == "BY" else ""
        at += 2 * bool(by)
        if (by and by not in ("SOURCE", "TARGET")) or (by and not is_new):
            raise self._wrong(start, "BY SOURCE or BY TARGET comes after NOT MATCHED")
        then = self._find("THEN", at, stop)
        if then is None:
            raise self._wrong(start, "THEN is missing")
        condition = None
        if then > at:
            condition = self._text(self._expect(at, "AND"), then, "the condition")
        action, at = statement.word(then + 1), then + 2
        kind = "by_source" if by == "SOURCE" else "new" if is_new else "matched"
        if action == "DELETE" and kind != "new" and at == stop:
            method = merge.when_matched_delete if kind == "matched" else merge.when_not_matched_by_source_delete
            return method(condition=condition)
        if action == "UPDATE" and kind != "new":
            at = self._expect(at, "SET")
            if at + 1 == stop and statement.tokens[at].text == "*" and kind == "matched":
                return merge.when_matched_update(condition=condition)
            values = dict(self._assignments(at, stop))
            method = merge.when_matched_update if kind == "matched" else merge.when_not_matched_by_source_update
            return method(values, condition=condition)
        if action == "INSERT" and kind == "new":
            if at + 1 == stop and statement.tokens[at].text == "*":
                return merge.when_not_matched_insert(condition=condition)
            return merge.when_not_matched_insert(self._inserted(at, stop), condition=condition)
        raise self._wrong(then, f"{action or 'this'} is no action of such a clause")

    def _inserted(self, at: int, stop: int) -> dict[str, str]:
        """The columns and texts of `(a, b) VALUES (..., ...)`."""
        values = self._find("VALUES", at, stop)
        if values is None or self.statement.tokens[at].text != "(":
            raise self._wrong(at, "INSERT takes (columns) VALUES (values), or *")
        names = [t.text for t in self.statement.tokens[at + 1 : values - 1] if t.text not in (",", ".")]
        texts = [self._text(first, last, "a value") for first, last in self._parts(values + 2, stop - 1)]
        if len(texts) != len(names):
            raise self._wrong(at, f"{len(texts)} values for {len(names)} columns")
        return dict(zip(names, texts, strict=True))


class _PlainNames:
    """Texts over one table with its own names in place of an alias and of names in another case."""

    def __init__(self, schema: pa.Schema, alias: str) -> None:
        self._schema = schema
        self._side = Side(alias, "", schema)
        self._reader = PairReader(self._side, Side.source(pa.schema([]), f"{alias}_"))

    def column(self, name: str) -> str:
        return in_any_case(name, self._schema.names)

    def condition(self, text: str) -> str:
        return self._reader.condition(text, (self._side,), "condition").spark

    def value(self, text: str) -> str:
        return self._reader.value(text, (self._side,), "value").spark


_NO_ALIAS = ("USING", "SET", "WHERE", "ON", "WHEN", "VALUES", "SELECT")
_FORMS = {
    "MERGE": "write MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "UPDATE": "write UPDATE t SET column = value, ... WHERE condition",
    "DELETE": "write DELETE FROM t WHERE condition",
    "INSERT": "write INSERT INTO t (columns) VALUES (values), or a query in place of VALUES",
}
