"""`run`: a statement by its kind, on Spark or in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lakebed.errors import InvalidOption
from lakebed.statements.arguments import Arguments, check_arguments, with_values
from lakebed.statements.sources import Sources, TableCalls
from lakebed.statements.statement import Reference, Statement, parse_statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.statements.commands import Command
    from lakebed.statements.parts import QueryText

CHANGES = ("MERGE", "UPDATE", "DELETE", "INSERT")
"""The statements that change rows of a table."""
COMMANDS = ("CREATE", "DROP", "TRUNCATE", "ALTER", "OPTIMIZE", "VACUUM", "RESTORE", "CALL", "SHOW", "DESCRIBE", "DESC")
"""The first words of statements that may be about a table as a whole."""


def run(
    text: str,
    tables: Mapping[str, Any] | None,
    args: Arguments,
    spark: SparkSession | None,
    calls: TableCalls,
    left: Callable[[], Any] | None = None,
) -> Any:
    """The rows of a query: a DataFrame of Spark with a session, which may be that of a table, otherwise a
    `QueryResult`. For any other statement, the result of the table's method that runs it.

    With `left` its result is the result of a statement that names no table of lakebed, or is none.
    """
    sources = Sources(tables, calls, spark)
    session = sources.session
    try:
        statement = _parsed(text, session)
    except InvalidOption:
        if left is None:
            raise
        return left()
    if left is not None and not is_of_lakebed(statement, sources):
        return left()
    explained = _explained(statement) if statement.is_spark else None
    if statement.is_spark and (statement.kind in CHANGES or statement.word(0) in COMMANDS or explained is not None):
        written = with_values(explained or statement, args)

        def rows(query: QueryText) -> Any:
            return run(query.text, tables, query.args or None, session, calls)

        if written.kind in CHANGES:
            from lakebed.statements.changes import explain_change, run_change
            from lakebed.statements.commands import ForSpark

            with suppress(ForSpark):
                return (run_change if explained is None else explain_change)(written, sources, rows)
        else:
            command = parse_command(written, sources)
            if command is not None:
                return command.run(sources, rows)
    if session is not None:
        from lakebed.statements.spark_query import run_query as run_on_spark

        check_arguments(statement, args)
        return run_on_spark(statement, sources, args, session)
    if statement.kind != "QUERY":
        raise InvalidOption(
            f"sql() does not run {statement.kind} without a session, in the SQL text near {statement.near(0)}",
            hint="docs/statements.md lists the statements; give spark= for those of Spark",
            context={"statement": statement.kind},
        )
    from lakebed.statements.duckdb_query import run_query

    return run_query(parse_statement(text, is_spark=False), sources, args)


def is_of_lakebed(statement: Statement, sources: Sources) -> bool:
    """Whether a statement with a session reads or changes a table of lakebed, or creates one. Nothing runs.

    Where the text is no statement of lakebed it is one of Spark, unless a name in it is that of a table of lakebed:
    then lakebed's message says what is wrong.
    """
    from lakebed.statements.definitions import is_hudi_table_of_spark

    try:
        # a single word in a query is a name of Spark, also that of a view of `lakebed.spark.create_views`
        named = (reference for reference in statement.references if reference.is_uri or reference.in_database)
        if any(_is_table(reference, sources) for reference in named):
            return True
        if statement.kind in CHANGES:
            from lakebed.statements.changes import changed_table

            target = changed_table(statement)
            return _names_table(statement, sources) if target is None else _is_table(target, sources)
        if (explained := _explained(statement)) is not None:
            return is_of_lakebed(explained, sources)
        command = parse_command(statement, sources) if statement.word(0) in COMMANDS else None
        # a table USING hudi without a database is one of Spark's catalog, for a session with Hudi's own jar
        return command is not None and not is_hudi_table_of_spark(statement)
    except InvalidOption:
        return _names_table(statement, sources)


def _explained(statement: Statement) -> Statement | None:
    """The statement that changes rows and that an EXPLAIN is about; None for any other statement."""
    at = 1 + (statement.word(1) in ("EXTENDED", "CODEGEN", "COST", "FORMATTED"))
    if statement.word(0) != "EXPLAIN" or at >= len(statement.tokens):
        return None
    inner = parse_statement(statement.text[statement.tokens[at].start :], is_spark=True)
    return inner if inner.kind in CHANGES else None


def named_reference(name: str) -> Reference | None:
    """The reference of a text that is the name `database.table` and no more, as Spark writes it; None for any other.

    >>> named_reference("sales.`orders`").name, named_reference("orders"), named_reference("sales.orders o")
    ('sales.orders', None, None)
    """
    try:
        reference = parse_statement(name, is_spark=True).reference_at(0)
    except InvalidOption:
        return None
    if reference is None or not reference.in_database or reference.as_of is not None:
        return None
    return reference if reference.end == len(name.rstrip()) else None


def _is_table(reference: Reference, sources: Sources) -> bool:
    """Whether a reference is a table of lakebed; a text without a slash is a name of Spark, not a URI."""
    return (not reference.is_uri or "/" in reference.name) and sources.uri_of(reference) is not None


def _names_table(statement: Statement, sources: Sources) -> bool:
    """Whether any name in a statement is that of a table of lakebed, or it can only be a statement of lakebed."""
    from lakebed.statements.definitions import provider_of
    from lakebed.statements.procedures import is_procedure

    if statement.word(0) == "CALL":
        return is_procedure(statement)
    if statement.word(0) == "CREATE" and provider_of(statement) == "LAKEBED":
        return True
    names = dict.fromkeys(statement.names_in_databases())
    return any(sources.uri_of(Reference(0, 0, name, in_database=True)) is not None for name in names)


def parse_command(statement: Statement, sources: Sources) -> Command | None:
    """The command of a statement about a table, not about its rows; None for a statement that is not one of lakebed.

    Raises `InvalidOption` for a text that is not such a statement; it names the place.
    """
    from lakebed.statements.commands import ForSpark
    from lakebed.statements.databases import parse_database
    from lakebed.statements.definitions import parse_definition
    from lakebed.statements.procedures import parse_call
    from lakebed.statements.services import parse_service

    first = statement.word(0)
    try:
        if first == "CALL":
            return parse_call(statement, sources)
        command = parse_database(statement, sources)
        if command is not None:
            return command
        if first in ("CREATE", "DROP", "TRUNCATE", "ALTER") and statement.word(1) != "INDEX":
            return parse_definition(statement, sources)
        return parse_service(statement, sources)
    except ForSpark:
        return None


def _parsed(text: str, session: SparkSession | None) -> Statement:
    """The statement as Spark reads it. Without a session, a text that Spark cannot read is parsed as a query of
    DuckDB."""
    if session is not None:
        return parse_statement(text, is_spark=True)
    try:
        statement = parse_statement(text, is_spark=True)
    except InvalidOption:
        statement = parse_statement(text, is_spark=False)
        if statement.kind in CHANGES or statement.word(0) in COMMANDS:
            raise
    return statement
