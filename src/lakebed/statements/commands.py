"""What statements about a table, not about its rows, have in common: their table, its partition paths, and rows as
results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.spark_session import zone_of
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.expressions.partition_paths import ValuePart
from lakebed.filters.coercion import INSTANT, SparkOnly, cast_literal, parse_zone
from lakebed.filters.predicates import Literal
from lakebed.filters.sql import parse_filter
from lakebed.operations.overwrite import match_partitions
from lakebed.properties.table_config import TableConfig
from lakebed.read.keys import partition_layout
from lakebed.read.prune import prune_partitions
from lakebed.schema.assignment import Rule, check_fits, in_column
from lakebed.schema.column_names import did_you_mean, in_any_case
from lakebed.schema.spark import spark_type
from lakebed.services.clustering import ClusteringResult
from lakebed.statements.parts import Cursor, QueryText
from lakebed.statements.sources import Sources, foreign_table_error
from lakebed.statements.statement import Reference
from lakebed.table import Table

OF_DUCKDB = Rule(sql=True, zone="UTC")
"""How the values of DuckDB's queries come, in which a time without a zone is one in UTC."""
Query = Callable[[QueryText], Any]
"""Gives the rows of a query."""


class Command(Protocol):
    """A parsed statement. `run` executes it and returns the result of the table's method."""

    def run(self, sources: Sources, query: Query) -> Any: ...


class ForSpark(Exception):
    """Raised if the statement's table is not one of lakebed; a session may have it."""


@dataclass
class CommandCursor(Cursor):
    """The parts of a statement about a table of `sources`."""

    sources: Sources = field(kw_only=True)

    def target(self) -> Reference:
        """The table of lakebed that is named next. Raises `ForSpark` for any other if there is a session, otherwise
        `InvalidOption`."""
        if self.sources.session is not None and self.statement.reference_at(self.at, takes_columns=True) is None:
            raise ForSpark  # a table of a catalog
        reference = self.reference()
        if self.sources.uri_of(reference) is None:
            raise not_of_lakebed(self.statement.kind, reference, self.sources)
        return reference

    def partition(self) -> dict[str, Any]:
        """The values of `PARTITION (column = value, ...)`, if it comes next; otherwise empty."""
        return self.pairs("the columns of a partition") if self.takes("PARTITION") else {}


def table_of(sources: Sources, reference: Reference) -> Table:
    """The table that a statement is about. Raises `TableNotFound` if there is none at its URI."""
    table = sources.table(reference)
    assert table is not None, "the reference was checked when the statement was read"
    return table


def not_of_lakebed(kind: str, reference: Reference, sources: Sources) -> Exception:
    """The error for a statement about a table that is not one of lakebed: a session may have it."""
    return ForSpark() if sources.session is not None else foreign_table_error(kind, reference)


def newest_first(rows: pa.Table) -> pa.Table:
    """The rows of `t.timeline`, from the last to the first."""
    return rows.take(np.arange(rows.num_rows - 1, -1, -1))


def nothing_to_cluster(condition: str) -> ClusteringResult:
    """The result of a clustering whose condition selects no partition path."""
    return ClusteringResult(notes=(f"nothing to cluster: no partition path fulfils {condition}",))


def rows_of(rows: pa.Table, sources: Sources) -> Any:
    """Rows as the result of a statement: a DataFrame with a session, otherwise a `QueryResult`."""
    if sources.session is not None:
        return sources.session.createDataFrame(rows)
    from lakebed.statements.duckdb_query import result_of

    return result_of(rows)


def column_constant(value: Any, field: pa.Field, zone: str = "UTC") -> pa.Scalar:
    """The value of a partition column in the column's type. A text is parsed as a value of the type, other values are
    assigned as the values of rows are. Raises `InvalidOption` for a value that is not of the column's type, or that it
    would round or cut, and `SchemaConflict` for a type that it does not accept."""
    rule, to = Rule(sql=True, zone=zone), field.type
    wrong = InvalidOption(
        f"{value!r} is no {spark_type(to)}",
        hint=f"the partition column {field.name!r} has this type: write a constant of it, as DATE '2024-01-31'",
        context={"column": field.name},
    )
    try:
        values = pa.array([value])
        if isinstance(value, str):
            if pa.types.is_timestamp(to) and to.tz is not None:
                values = pa.array([cast_literal(Literal(value, pa.string()), INSTANT, parse_zone(zone)).value], INSTANT)
            return pc.cast(values, to)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError, SparkOnly):
        raise wrong from None
    check_fits(values.type, field, rule)
    (stored,) = in_column(values, field, rule)
    is_exact = pa.types.is_integer(to) or pa.types.is_decimal(to)
    if is_exact and value is not None and stored.as_py() != Decimal(str(value)):
        raise wrong
    return stored


def paths_with_values(table: Table, values: Mapping[str, Any]) -> list[str]:
    """The partition paths of a table whose columns have these values. Raises `InvalidOption` for other columns, and for
    values that are not of their types."""
    config = TableConfig(dict(table.properties))
    fields = config.partition_fields
    named = {in_any_case(name, fields): value for name, value in values.items()}
    unknown = [name for name in named if name not in fields]
    if unknown:
        raise InvalidOption(
            f"table {config.name!r} has no partition column {unknown[0]!r}",
            hint=did_you_mean(unknown[0], list(fields), "it has") if fields else "it has no partitions",
            context={"column": unknown[0]},
        )
    plain = {part.field: part.text for part in config.keys.partition_path.parts if isinstance(part, ValuePart)}
    schema, zone = table.schema, zone_of(table.opened.spark)
    for name, value in named.items():
        named[name] = text_of(value)
        if name in plain and name in schema.names and value is not None:
            stored = column_constant(value, schema.field(name), zone)
            row = pa.RecordBatch.from_arrays([pa.array([stored.as_py()], stored.type)], names=[name])
            named[name] = plain[name].arrow(row)[0].as_py()
    paths: list[str] = []
    for path in table.partitions:
        texts = config.keys.partition_values(path)
        if not texts:
            raise UnsupportedFeature(
                f"the partition path {path!r} of table {config.name!r} does not show where a column ends",
                hint="name partition paths: t.delete_partitions([path])",
            )
        if all(texts[name] == text for name, text in named.items()):
            paths.append(path)
    return paths


def paths_that_fulfil(table: Table, condition: str) -> list[str]:
    """The partition paths of a table whose rows may fulfil a condition over partition columns.

    Raises `InvalidOption` for a condition over other columns.
    """
    config = TableConfig(dict(table.properties))
    predicate = parse_filter(condition, table.schema)
    layout = partition_layout(config, table.schema)
    other_columns = [name for name in predicate.columns if name not in config.partition_fields]
    if other_columns or layout is None:
        raise InvalidOption(
            f"the condition {condition!r} is not over partition columns of table {config.name!r} alone",
            hint=f"files are chosen by partition path; its columns are {', '.join(config.partition_fields) or 'none'}",
        )
    return prune_partitions(predicate, layout, table.partitions)


def text_of(value: Any) -> str | None:
    """A constant as the text of an option or of a partition path; None for NULL."""
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def exactly(paths: Iterable[str], table: Table) -> list[str]:
    """The paths as a list, for a method in which `*` in a path matches any text. Raises `UnsupportedFeature` if a path
    has a `*` that matches further paths, too."""
    paths = list(paths)
    if any("*" in path for path in paths) and set(match_partitions(paths, table.partitions)) != set(paths):
        raise UnsupportedFeature(
            f"the partition path {next(p for p in paths if '*' in p)!r} has a *, which stands for any text",
            hint="delete its rows: DELETE FROM t WHERE ...",
        )
    return paths
