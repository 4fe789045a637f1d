"""Results of statements as DataFrames of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from lakebed.engine.spark_session import is_connect, session_of
from lakebed.operations.result import WriteResult
from lakebed.wording import Printed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COUNTS = pa.schema(
    [(name, pa.int64()) for name in ("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows")]
)


def frame_of(result: Any, spark: SparkSession) -> DataFrame:
    """The result of a statement as a DataFrame: the rows of a query as they are, a row of counts for a statement that
    changes rows, a row with the text of the result for a service, and no columns for any other, as Spark has it."""
    if session_of(result) is not None:
        return result
    if isinstance(result, WriteResult):
        return spark.createDataFrame(counts_of(result))
    if isinstance(result, Printed):
        return spark.createDataFrame(pa.table({"result": pa.array([str(result)], pa.string())}))
    return spark.range(0).select()


def counts_of(result: WriteResult) -> pa.Table:
    """The counts of a write as one row; null for rows that the write did not count.

    >>> import lakebed
    >>> t = lakebed.create("memory://docs/counts", {"id": [1]}, key="id")
    >>> counts_of(t.insert({"id": [1, 2]})).to_pylist()
    [{'num_affected_rows': 2, 'num_updated_rows': 0, 'num_deleted_rows': 0, 'num_inserted_rows': 2}]
    """
    counts = (result.updated, result.deleted, result.inserted)
    known = [count for count in counts if count is not None]
    total = sum(known) if len(known) == len(counts) else None
    return pa.table([pa.array([count], pa.int64()) for count in (total, *counts)], _COUNTS)


def formatted(spark: SparkSession, text: str, variables: Mapping[str, Any]) -> tuple[str, dict[str, DataFrame]]:
    """The text of `spark.sql(text, **variables)` with the values of the variables, and the DataFrames among these by
    the names that they have in it. Raises Spark's errors for what it refuses."""
    from pyspark.sql import DataFrame

    if is_connect(spark):
        from pyspark.sql.connect.sql_formatter import SQLStringFormatter
    else:
        from pyspark.sql.sql_formatter import SQLStringFormatter
    of_spark: Any = SQLStringFormatter(cast("Any", spark))
    frames: dict[str, DataFrame] = {}

    class NamedFrames(Formatter):
        def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
            value, first = Formatter.get_field(self, field_name, args, kwargs)
            if not isinstance(value, DataFrame):
                return of_spark.get_field(field_name, args, kwargs)
            known = (name for name, frame in frames.items() if frame is value)
            name = next(known, f"_lakebed_frame_{len(frames)}")
            frames[name] = value
            return name, first

    return NamedFrames().format(text, **variables), frames
