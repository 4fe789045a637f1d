"""Temporary views of Spark over tables of lakebed.

Each table is a view of its own, which Spark resolves by name in each query. It is made again after the table has
changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import md5
from typing import TYPE_CHECKING

from lakebed.errors import TableNotFound
from lakebed.read.incremental import Changes
from lakebed.read.scan import Scan
from lakebed.statements.sources import Source, Sources, alias_of
from lakebed.statements.statement import Statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.table import Table

# Where a session has the views of tables: by name, with the table and the instant that the view shows.
_ATTRIBUTE = "_lakebed_views"


def is_temporary_view(statement: Statement) -> bool:
    """Whether a statement is CREATE TEMPORARY VIEW, for the session alone."""
    words = statement.words[:5]
    words = words[:1] + words[3:] if words[1:3] == ("OR", "REPLACE") else words
    return words[:1] == ("CREATE",) and words[1:2] in (("TEMP",), ("TEMPORARY",)) and words[2:3] == ("VIEW",)


def can_be_viewed(source: Source) -> bool:
    """Whether a view can show a source as it is at each query: a whole table can, a table at a time or a table function
    cannot."""
    reference, rows = source.reference, source.rows
    return isinstance(rows, Scan) and not isinstance(rows, Changes) and not reference.function and not reference.as_of


def with_views(statement: Statement, listed: Sequence[Source], sources: Sources, spark: SparkSession) -> str:
    """The text of a statement in which each table is a temporary view of it. The views stay with the session."""
    changes: dict[tuple[int, int], str] = {}
    views: dict[str, tuple[Table, str]] = vars(spark).setdefault(_ATTRIBUTE, {})
    for source in listed:
        table = sources.table(source.reference)
        if table is None:  # a scan that the caller made
            continue
        name = f"lakebed_table_{md5(table.uri.encode(), usedforsecurity=False).hexdigest()[:12]}"
        views[name] = table, ""
        changes[(source.reference.start, source.reference.end)] = name + alias_of(source)
    refresh_views(spark)
    return statement.replaced(changes)


def drop_views(spark: SparkSession) -> None:
    """Drop the views of tables, and with them what was made over them."""
    views: dict[str, tuple[Table, str]] = vars(spark).pop(_ATTRIBUTE, {})
    for name in views:
        with suppress(Exception):  # a session that has ended
            spark.catalog.dropTempView(name)


def refresh_views(spark: SparkSession) -> None:
    """Make the views of tables that have changed since again, so that the next query shows their newest rows. A view of
    a table that was dropped is dropped."""
    views: dict[str, tuple[Table, str]] = vars(spark).get(_ATTRIBUTE, {})
    for name, (table, instant) in list(views.items()):
        try:
            scan = table.scan()
            if scan.snapshot.instant != instant:
                scan.to_spark().createOrReplaceTempView(name)
                views[name] = table, scan.snapshot.instant
        except TableNotFound:
            spark.catalog.dropTempView(name)
            del views[name]
