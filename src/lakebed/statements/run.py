"""`run`: a statement by its kind, on Spark or in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lakebed.errors import InvalidOption
from lakebed.statements.sources import Sources
from lakebed.statements.statement import parse_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.operations.result import WriteResult
    from lakebed.statements.duckdb_query import Arguments, QueryResult
    from lakebed.table import Table

CHANGES = ("MERGE", "UPDATE", "DELETE", "INSERT")
"""The statements that change a table."""


def run(
    text: str,
    tables: Mapping[str, Any] | None,
    args: Arguments,
    spark: SparkSession | None,
    open_table: Callable[[str, SparkSession | None], Table],
) -> DataFrame | QueryResult | WriteResult:
    """The rows of a query: a DataFrame of Spark with a session, which may be that of a table, else a `QueryResult`.
    Of a statement that changes a table the `WriteResult`."""
    named = Sources(tables, lambda uri: open_table(uri, session))
    session = spark if spark is not None else named.session
    statement = parse_statement(text, is_spark=session is not None)
    if statement.kind in CHANGES:
        from lakebed.statements.changes import run_change

        return run_change(statement, named, args, session, lambda query: run(query, tables, args, session, open_table))
    if session is not None:
        from lakebed.statements.spark_query import run_query as run_on_spark

        return run_on_spark(statement, named, args, session)
    if statement.kind != "QUERY":
        raise InvalidOption(
            f"sql() runs queries and changes of tables, not {statement.kind}, in the SQL text near {statement.near(0)}",
            hint="the methods of a table and lakebed.create do the rest",
            context={"statement": statement.kind},
        )
    from lakebed.statements.duckdb_query import run_query

    return run_query(statement, named, args)
