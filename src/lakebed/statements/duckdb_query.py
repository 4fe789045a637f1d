"""Queries in this process, by DuckDB: each table is a dataset to which DuckDB hands columns and conditions.

`QueryResult` has the rows in the form that the caller asks for.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from sqlglot import TokenType

from lakebed.config.arguments import whole_number
from lakebed.errors import InvalidOption, LakebedError
from lakebed.format.duckdb_database import connect
from lakebed.read.dataset import Columns, RowScanner, TableDataset
from lakebed.read.scan import Frames, Results, Scan
from lakebed.statements.arguments import Arguments, check_arguments, is_interval, markers
from lakebed.statements.blob_calls import blob_calls, duckdb_functions
from lakebed.statements.sources import Source, Sources, alias_of
from lakebed.statements.statement import Aggregates, Statement
from lakebed.table_views import View, arrow_html
from lakebed.wording import text_html

if TYPE_CHECKING:
    from lakebed.catalog.warehouses import Names

# The functions of Spark that DuckDB does not have, and what each gives for a value of another type.
# Words after which the parts of a query are no columns of it.
_CLAUSES = {
    *(TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.WINDOW),
    *(TokenType.QUALIFY, TokenType.LIMIT, TokenType.VALUES, TokenType.ON),
}
_VARIANT_FUNCTIONS = {"VARIANT_GET": "error", "TRY_VARIANT_GET": "null"}
_PREFIX = "__lakebed_"
_PREVIEWED = 20
_MISSING_COLUMN = re.compile(r'Referenced column "(.+?)" not found')
_MISSING_TABLE = re.compile(r"Table with name (\S+) does not exist")


def run_query(statement: Statement, sources: Sources, args: Arguments) -> QueryResult:
    """The rows of a query. Raises `UnsupportedFeature` if DuckDB is not installed, and `InvalidOption` for a text that
    DuckDB refuses."""
    check_arguments(statement, args)
    connection = connect()
    errors: list[Exception] = []
    changes: dict[tuple[int, int], str] = {}
    names: dict[tuple[int, str], str] = {}
    calls = blob_calls(statement)
    with errors_of_duckdb(errors):
        listed = sources.of(statement)
        columns, aliases = qualified_columns(statement, listed)
        changes |= columns
        for source in listed:
            reference = source.reference
            is_by_name = not (
                reference.is_uri or reference.in_database or reference.function or reference.as_of is not None
            )
            key = (id(source.rows), reference.name.lower() if is_by_name else "")
            if key not in names:
                names[key] = reference.name.lower() if is_by_name else f"{_PREFIX}{len(names)}"
                connection.register(names[key], _registered(source, errors, statement.aggregates))
            if not is_by_name:
                # DESCRIBE and SUMMARIZE take a table without an alias
                is_first = statement.word(0) != "FROM" and statement.tokens[1].start == reference.start
                alias = "" if is_first else aliases.get(reference.name.lower()) or alias_of(source)
                changes[(reference.start, reference.end)] = f'"{names[key]}"{alias}'
    # Spark's markers `:name` as DuckDB's `$name`
    for marker in markers(statement, args):
        value = f"${marker.name}" if marker.name else "?"
        changes[marker.start, marker.end] = f"({value})" if is_interval(statement, marker) else value
    changes |= variant_calls(statement)
    is_named = isinstance(args, Mapping)
    values = {name: _plain(value) for name, value in args.items()} if is_named else [_plain(v) for v in args or ()]
    functions, drop = duckdb_functions(calls, listed, connection, errors) if calls else ({}, None)
    try:
        with errors_of_duckdb(errors, sources.names):
            relation = connection.sql(statement.replaced({**changes, **functions}), params=values or None)
    except BaseException:
        if drop is not None:
            drop()
        raise
    result = QueryResult(relation, errors)
    if drop is not None:  # DuckDB complains at the end of the process about functions that are left
        weakref.finalize(result, drop)
    return result


def _plain(value: Any) -> Any:
    """The value in a form that DuckDB accepts: a number of numpy as one of Python."""
    return value.item() if isinstance(value, np.number | np.bool_) else value


def result_of(rows: pa.Table) -> QueryResult:
    """The rows of a table as a query result."""
    return QueryResult(connect().from_arrow(rows), [])


def _registered(source: Source, errors: list[Exception], aggregates: Aggregates | None) -> Any:
    match source.rows:
        case Scan() as scan:
            return _ReportingDataset(scan, errors, aggregates)
        case Results() | View() as rows:
            return rows.to_arrow()
        case rows:
            return pa.table(rows) if hasattr(rows, "__arrow_c_stream__") else rows


class _ReportingDataset(TableDataset):
    """A dataset that records its errors, since DuckDB passes on only their texts. A query of `aggregates` gets only the
    rows that are needed to compute these."""

    def __init__(self, scan: Scan, errors: list[Exception], aggregates: Aggregates | None) -> None:
        super().__init__(scan)
        self._errors = errors
        self._aggregates = aggregates

    def scanner(
        self, columns: Columns = None, filter: pc.Expression | None = None, batch_size: int | None = None, **more: Any
    ) -> ds.Scanner:
        try:
            if isinstance(columns, Mapping) or not self._is_summary(columns or self.schema.names, filter):
                return super().scanner(columns, filter, batch_size, **more)
            scan = self.scan(columns, filter)
            return RowScanner(scan.schema, lambda: self._reported(scan.to_summary()))
        except LakebedError as error:
            self._errors.append(error)
            raise

    def _is_summary(self, columns: Sequence[str], filter: pc.Expression | None) -> bool:
        """Whether DuckDB only aggregates the rows: it has handed over the complete condition, since it requests no
        column of it. To count rows it requests some column."""
        aggregates = self._aggregates
        if aggregates is None:
            return False
        tested = {name.lower() for name in self.schema.names}.intersection(aggregates.condition)
        requested = {name.lower() for name in columns}
        if bool(aggregates.condition) != bool(tested) or bool(tested) != (filter is not None) or tested & requested:
            return False
        return requested <= aggregates.columns or (not aggregates.columns and len(requested) == 1)

    def _batches(self, scan: Scan, limit: int | None) -> Iterator[pa.RecordBatch]:
        return self._reported(super()._batches(scan, limit))

    def _reported(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except LakebedError as error:
            self._errors.append(error)
            raise


class QueryResult(Frames):
    """The rows of a query, which runs when one of the methods is called, each time on the same instants of its tables.

    Prints its first rows, also in a notebook; Arrow's stream protocol gives it to any library.

    >>> import lakebed
    >>> result = lakebed.sql("select 1 as one, 'a' as text")
    >>> result.columns, result.to_arrow().to_pylist()
    (['one', 'text'], [{'one': 1, 'text': 'a'}])
    """

    def __init__(self, relation: Any, errors: list[Exception]) -> None:
        self._relation = relation
        # errors of its tables: DuckDB passes on only their texts
        self._errors = errors

    @property
    def columns(self) -> list[str]:
        """The names of the columns.

        >>> import lakebed
        >>> lakebed.sql("select 1 as one").columns
        ['one']
        """
        return list(self._relation.columns)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows.

        >>> import lakebed
        >>> lakebed.sql("select 'a' as text").schema.field("text").type
        DataType(string)
        """
        return self.head(0).schema

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        with errors_of_duckdb(self._errors):
            return pa.RecordBatchReader.from_stream(self._relation).read_all()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream, with only a few batches in memory."""
        with errors_of_duckdb(self._errors):
            return pa.RecordBatchReader.from_stream(self._relation)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches."""
        with errors_of_duckdb(self._errors):
            yield from pa.RecordBatchReader.from_stream(self._relation)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dicts.

        >>> import lakebed
        >>> lakebed.sql("select 1 as one").to_pylist()
        [{'one': 1}]
        """
        return self.to_arrow().to_pylist()

    def head(self, rows: int = 5) -> pa.Table:
        """The first rows as an Arrow table."""
        first = self._relation.limit(whole_number("head", "rows", rows))
        with errors_of_duckdb(self._errors):
            return pa.RecordBatchReader.from_stream(first).read_all()

    def count(self) -> int:
        """The number of rows.

        >>> import lakebed
        >>> lakebed.sql("select unnest([1, 2, 3])").count()
        3
        """
        return sum(batch.num_rows for batch in self.to_batches())

    def __len__(self) -> int:
        return self.count()

    def show(self, rows: int = _PREVIEWED) -> None:
        """Print the first rows.

        >>> import lakebed
        >>> lakebed.sql("select 1 as one, 'a' as text").show()
        one  text
        1    a
        """
        print(self._preview(whole_number("show", "rows", rows)))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _preview(self, rows: int) -> str:
        table = self.head(rows + 1)
        more = [f"the first {rows} rows; to_arrow() has all"] if table.num_rows > rows else []
        return "\n".join([repr(_Rows(table.slice(0, rows))), *more])

    def __repr__(self) -> str:
        return self._preview(_PREVIEWED)

    def _repr_html_(self) -> str:
        table = self.head(_PREVIEWED + 1)
        more = f"the first {_PREVIEWED} rows; to_arrow() has all" if table.num_rows > _PREVIEWED else ""
        return arrow_html(table.slice(0, _PREVIEWED)) + text_html(more)


class _Rows(View):
    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def to_arrow(self) -> pa.Table:
        return self._rows


@contextmanager
def errors_of_duckdb(errors: list[Exception], names: Names | None = None) -> Generator[None]:
    """Raise the error of a table that was read, and any other error of DuckDB as `InvalidOption` with its text. For a
    table that DuckDB does not find, the hint has that of the warehouse `names` that may be meant."""
    import duckdb

    errors.clear()
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if errors:
            raise errors.pop(0) from None  # a list that keeps it keeps the frames of its traceback, too
        if not isinstance(error, duckdb.Error):
            raise
        text = str(error).strip()
        missing = _MISSING_TABLE.search(text)
        if names is not None and missing is not None:
            word = missing[1].rpartition(".")[2]
            listed = [f"{database}.{word}" for database in names.databases() if word in names.tables(database)]
            if listed:
                raise InvalidOption(
                    f"the SQL text names the table {missing[1]}, which is no name in the warehouse",
                    hint=f"Did you mean {' or '.join(listed[:3])}?",
                ) from None
        column = _MISSING_COLUMN.search(text)
        in_quotes = "" if column is None else f". A text is written in single quotes: '{column[1]}'"
        raise InvalidOption(
            f"DuckDB cannot run the SQL text: {text}",
            hint=f"without spark= it is DuckDB's SQL; tables= names the tables{in_quotes}",
        ) from None


def qualified_columns(
    statement: Statement, listed: Sequence[Source]
) -> tuple[dict[tuple[int, int], str], Mapping[str, str]]:
    """The columns that are named with database and table, `sales.orders.total`, by the positions of the database and
    the table, as DuckDB gets them; and the aliases of the tables that these need, since two databases have a table of
    that name."""
    tables = {s.reference.name.lower() for s in listed if s.reference.in_database and not s.reference.alias}
    words = [name.rpartition(".")[2] for name in tables]
    tokens, ranges = statement.tokens, [(s.reference.start, s.reference.end) for s in listed]
    changes: dict[tuple[int, int], str] = {}
    aliases: dict[str, str] = {}
    for at in range(len(tokens) - 4):
        is_path = tokens[at + 1].token_type is TokenType.DOT and tokens[at + 3].token_type is TokenType.DOT
        word, start = tokens[at + 2].text.lower(), tokens[at].start
        name = f"{tokens[at].text}.{word}".lower()
        if not is_path or name not in tables or any(first <= start < end for first, end in ranges):
            continue
        alias = f'"{name}"' if words.count(word) > 1 else f'"{word}"'
        if words.count(word) > 1:
            aliases[name] = f" AS {alias}"
        changes[start, tokens[at + 2].end + 1] = alias
    return changes, aliases


def variant_calls(statement: Statement) -> dict[tuple[int, int], str]:
    """The calls of `variant_get` and `try_variant_get`, by the positions at which they begin and end, as
    expressions of DuckDB.

    Raises `InvalidOption` for a call without a constant path and a constant type.
    """
    calls: dict[tuple[int, int], str] = {}
    for at in range(len(statement.tokens) - 1):
        if statement.word(at) in _VARIANT_FUNCTIONS and statement.tokens[at + 1].token_type is TokenType.L_PAREN:
            calls |= _variant_call(statement, at)
    return calls


def _variant_call(statement: Statement, at: int) -> dict[tuple[int, int], str]:
    from lakebed.format.variant_values import value_at, value_type
    from lakebed.format.variants import decoded

    tokens = statement.tokens
    depth, commas, end = 0, list[int](), at + 1
    while end < len(tokens):
        kind = tokens[end].token_type
        depth += (kind in (TokenType.L_PAREN, TokenType.L_BRACKET)) - (kind in (TokenType.R_PAREN, TokenType.R_BRACKET))
        if not depth:
            break
        if depth == 1 and kind is TokenType.COMMA:
            commas.append(end)
        end += 1
    constants = [n + 1 for n in commas if tokens[n + 1].token_type is TokenType.STRING]
    if len(commas) != 2 or len(constants) != 2 or constants[0] + 1 != commas[1] or constants[1] + 1 != end:
        name = tokens[at].text
        raise InvalidOption(
            f"{name} takes a column, a constant path and a constant type, in the SQL text near {statement.near(at)}",
            hint=f"write {name}(column, '$.a.b', 'int')",
        )
    variant = statement.text[tokens[at + 2].start : tokens[commas[0]].start].strip()
    path, declared = (tokens[n].text for n in constants)
    kind = value_type(declared, tokens[at].text)
    value = value_at(decoded(variant), path, kind, invalid=_VARIANT_FUNCTIONS[statement.word(at)])
    if _is_unnamed_column(statement, at, end):
        value += f' AS "{statement.text[tokens[at].start : tokens[end].end + 1].replace(chr(34), chr(34) * 2)}"'
    return {(tokens[at].start, tokens[end].end + 1): value}


def _is_unnamed_column(statement: Statement, first: int, last: int) -> bool:
    """Whether the expression between two tokens is a column of a SELECT without a name of its own."""
    tokens, depth = statement.tokens, 0
    if last + 1 < len(tokens) and tokens[last + 1].token_type not in (TokenType.COMMA, TokenType.FROM):
        return False
    if tokens[first - 1].token_type not in (TokenType.SELECT, TokenType.DISTINCT, TokenType.COMMA):
        return False
    for token in reversed(tokens[:first]):
        kind = token.token_type
        depth += (kind in (TokenType.R_PAREN, TokenType.R_BRACKET)) - (kind in (TokenType.L_PAREN, TokenType.L_BRACKET))
        if depth < 0 or (not depth and kind in _CLAUSES):
            return False
        if not depth and kind is TokenType.SELECT:
            return True
    return False
