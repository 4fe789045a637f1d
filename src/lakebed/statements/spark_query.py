"""Queries on Spark: each table of the text becomes a DataFrame of a scan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.engine.spark_session import session_of
from lakebed.read.cdc import ChangeLog
from lakebed.read.scan import Results
from lakebed.statements.sources import Source, Sources, alias_of
from lakebed.statements.statement import Statement
from lakebed.table_views import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_query(statement: Statement, sources: Sources, args: Any, spark: SparkSession) -> DataFrame:
    """The DataFrame of a statement. Raises what Spark raises for a text that it does not take."""
    frames: dict[str, DataFrame] = {}
    changes: dict[tuple[int, int], str] = {}
    for number, source in enumerate(sources.of(statement)):
        name = f"table_{number}"
        frames[name] = _frame(source, spark)
        changes[(source.reference.start, source.reference.end)] = f"\0{name}\1{alias_of(source)}"
    text = statement.replaced(changes)
    if frames:
        # Spark puts temporary views in the place of {names}
        text = re.sub(r"\0(\w+)\1", r"{\1}", re.sub(r"([{}])", r"\1\1", text))
    values = dict(args) if isinstance(args, Mapping) else list(args) if args else None
    return spark.sql(text, values, **frames)  # pyright: ignore[reportArgumentType]


def _frame(source: Source, spark: SparkSession) -> DataFrame:
    rows = source.rows
    if session_of(rows) is not None:
        return rows
    if isinstance(rows, Results | ChangeLog):
        return rows.to_spark()
    return spark.createDataFrame(rows.to_arrow() if isinstance(rows, View) else pa.table(rows))
