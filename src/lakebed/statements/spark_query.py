"""Queries on Spark: each table of the text becomes a DataFrame of a scan, with the columns and the conditions that the
query has for it, and by buckets where the query joins or groups by their key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.engine.base import session_of
from lakebed.engine.spark_layout import BUCKET, can_lay_out
from lakebed.engine.spark_rewrite import by_buckets
from lakebed.engine.spark_session import zone_of
from lakebed.errors import UnsupportedFeature
from lakebed.filters.coercion import constant_text
from lakebed.filters.predicates import has_spark_text
from lakebed.read.buckets import Buckets, buckets_of
from lakebed.read.cdc import ChangeLog
from lakebed.read.incremental import Changes
from lakebed.read.scan import Results, Scan
from lakebed.statements.arguments import with_values
from lakebed.statements.blob_calls import blob_calls, spark_functions
from lakebed.statements.narrowing import Narrowing
from lakebed.statements.sources import Source, Sources, alias_of
from lakebed.statements.spark_views import can_be_viewed, is_temporary_view, with_views
from lakebed.statements.statement import Statement
from lakebed.table_views import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TOUCHING_TEXTS = "spark.sql.legacy.consecutiveStringLiterals.enabled"
_RAW_TEXTS = "spark.sql.parser.escapedStringLiterals"
_QUOTED_NAMES = "spark.sql.ansi.doubleQuotedIdentifiers"


def run_query(statement: Statement, sources: Sources, args: Any, spark: SparkSession) -> DataFrame:
    """The DataFrame of a statement. Raises Spark's error for a text that it refuses."""
    arguments: list[Any] = list(args.values() if isinstance(args, Mapping) else args or ())
    is_raw = spark.conf.get(_RAW_TEXTS, "false") == "true"
    if is_raw and any(isinstance(value, str) for value in arguments) and None not in map(constant_text, arguments):
        # Spark itself writes a text with escapes, which such a session does not read
        statement, args = with_values(statement, args), None
    narrowing = Narrowing.of(statement, args)
    listed = [source for source in sources.of(statement) if not narrowing.is_shadowed(source.reference)]
    values = dict(args) if isinstance(args, Mapping) else list(args) if args else None
    if not listed:
        return spark.sql(statement.text, values)
    if is_temporary_view(statement) and all(map(can_be_viewed, listed)):
        return spark.sql(with_views(statement, listed, sources, spark), values)
    _refuse_stored_queries(statement)
    scans = _narrowed(listed, narrowing, spark)
    counts = _bucket_counts(scans, narrowing) if can_lay_out(spark) else {}
    frames: dict[str, DataFrame] = {}
    calls = blob_calls(statement)
    changes: dict[tuple[int, int], str] = dict(spark_functions(calls, listed, spark)) if calls else {}
    for number, source in enumerate(listed):
        start = source.reference.start
        frames[f"table_{number}"] = _frame(source, scans.get(start), counts.get(start), spark)
        changes[(start, source.reference.end)] = f"\0table_{number}\1{alias_of(source)}"
    # Spark puts temporary views in the place of {names}
    text = re.sub(r"[{}]", lambda brace: brace[0] * 2, statement.replaced(changes))
    frame = spark.sql(re.sub("\0(\\w+)\1", r"{\1}", text), values, **frames)
    return by_buckets(frame) if counts else frame


def _refuse_stored_queries(statement: Statement) -> None:
    """Raise `UnsupportedFeature` for a statement after which Spark runs its query again: it would find no table by the
    names of this call."""
    first = statement.words[: next((n for n, word in enumerate(statement.words) if word in ("AS", "RETURN")), 0)]
    stored = next((word for word in ("VIEW", "FUNCTION") if first[:1] == ("CREATE",) and word in first), "")
    if statement.word(0) == "CACHE":
        stored = "CACHE TABLE"
    if stored:
        raise UnsupportedFeature(
            f"{stored} over a table of lakebed: Spark runs the query again later, and then it does not know the table",
            hint="CREATE TEMPORARY VIEW shows whole tables as they are at each query; rows as they are now are"
            " sql(query).createOrReplaceTempView(name), cached with cache()",
            context={"feature": f"{stored} over a table of lakebed"},
        )


def _narrowed(listed: Sequence[Source], narrowing: Narrowing, spark: SparkSession) -> dict[int, Scan]:
    """The scans of tables by their position in the text, restricted to what the query needs of each."""
    scans = {
        source.reference.start: source.rows.in_session(spark)
        for source in listed
        if isinstance(source.rows, Scan) and not isinstance(source.rows, Changes)
    }
    columns = {start: [str(name) for name in scan.column_names] for start, scan in scans.items()}
    schemas = {
        start: pa.schema([scan.available.field(name) for name in columns[start]]) for start, scan in scans.items()
    }
    zone = zone_of(spark)
    # a session may take "x" for a name, and 'a''b' for two texts; lakebed's conditions do not
    text = narrowing.statement.text
    settings = [_QUOTED_NAMES] * ('"' in text) + [_TOUCHING_TEXTS] * ("''" in text or '""' in text)
    has_conditions = all(spark.conf.get(name, "false") != "true" for name in settings)
    for source in listed:
        start = source.reference.start
        if start in scans:
            nodes = narrowing.conditions_of(source.reference, schemas, zone) if has_conditions else []
            needed = narrowing.columns_of(source.reference, columns[start])
            exact = [node for node in nodes if has_spark_text(node)]
            others = [node for node in nodes if not has_spark_text(node)]  # which are left to Spark
            scans[start] = scans[start].of_columns(needed).narrowed(exact).choosing_files(others)
    return scans


@dataclass(frozen=True, slots=True)
class _Bucketed:
    start: int
    buckets: Buckets

    def count_with(self, others: Sequence[_Bucketed]) -> int:
        """The number of buckets that all tables with the same hash can be read in."""
        families = {choice.family for choice in self.buckets.choices}
        return gcd(*(o.buckets.count for o in others if any(c.family in families for c in o.buckets.choices)))


def _bucket_counts(scans: Mapping[int, Scan], narrowing: Narrowing) -> dict[int, int]:
    """The number of buckets of each table that is read by buckets: those whose bucket key the query joins or groups
    by."""
    bucketed: list[_Bucketed] = []
    for start, scan in scans.items():
        try:
            buckets = buckets_of(scan.snapshot)
        except UnsupportedFeature:
            continue
        keys = [{name.lower() for name in choice.columns} for choice in buckets.choices]
        if any(key <= narrowing.key_names for key in keys) and BUCKET not in scan.column_names:
            bucketed.append(_Bucketed(start, buckets))
    counts = {table.start: table.count_with(bucketed) for table in bucketed}
    return {
        table.start: counts[table.start] for table in bucketed if counts[table.start] > 1 or table.buckets.count == 1
    }


def _frame(source: Source, scan: Scan | None, buckets: int | None, spark: SparkSession) -> DataFrame:
    if scan is not None:
        return scan.to_spark() if buckets is None else scan.to_spark(bucketed=buckets).drop(BUCKET)
    rows = source.rows
    if session_of(rows) is not None:
        return rows
    if isinstance(rows, Results | ChangeLog):
        return rows.in_session(spark).to_spark()
    return spark.createDataFrame(rows.to_arrow() if isinstance(rows, View) else pa.table(rows))
