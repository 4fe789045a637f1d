"""Row expressions as Spark columns: native SQL where there is some, else an Arrow UDF with the one implementation in
Python. Hash expressions use `java_method`, or the UDF where the platform forbids it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from lakebed.engine.spark_worker import for_workers
from lakebed.expressions.base import Column as Field
from lakebed.expressions.base import RowExpression, quote_name, unique
from lakebed.expressions.bucket import TextHash, java_hash_sql
from lakebed.schema.arrow import normalise_batch

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def arrow_column(expression: RowExpression, schema: pa.Schema) -> Column:
    """The values of an expression over a DataFrame of this Arrow schema: texts, unless it has a `sql_type`. Only the
    columns that it reads are sent to Python."""
    from pyspark.sql import functions as F

    names = unique(Field(path).top_level_in(schema) for path in expression.columns)
    read = pa.schema([schema.field(name) for name in names])

    def values(*columns: pa.Array) -> pa.Array:
        # times come in the session's zone
        batch = normalise_batch(pa.RecordBatch.from_arrays(list(columns), names=list(names)), read)
        return expression.arrow(batch)

    return udf_in_workers(
        values, getattr(expression, "sql_type", "string"), *[F.col(quote_name(name)) for name in names]
    )


def udf_in_workers(fn: Callable[..., pa.Array], kind: str, *columns: Column) -> Column:
    """The column that a function over Arrow arrays computes from others, in Spark's Python workers."""
    from pyspark.sql import functions as F

    sent = for_workers(fn)

    def udf(*arrays: pa.Array) -> pa.Array:  # by these types Spark knows what it is
        return sent(*arrays)

    # its declared overloads know no functions over pyarrow
    arrow_udf: Any = F.arrow_udf
    return arrow_udf(udf, kind)(*columns)


_allowed: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()


def can_call_java(spark: SparkSession) -> bool:
    """Whether the session lets SQL call `java_method`; tested once per session, by hashing one letter."""
    allowed = _allowed.get(spark)
    if allowed is None:
        try:
            probe = java_hash_sql("'a'")
            allowed = bool(spark.sql(f"SELECT {probe} AS hash").collect()[0][0] == ord("a"))
        # each platform refuses in its own way, and any failure means the same
        except Exception:
            allowed = False
        _allowed[spark] = allowed
    return allowed


def hash_column(spark: SparkSession, expression: TextHash, schema: pa.Schema) -> Column:
    """The expression's column (int) over a DataFrame of this Arrow schema.

    Native code, keys that need parsing included, so no row crosses to Python; else the hashed text alone crosses.
    """
    from pyspark.sql import functions as F

    if can_call_java(spark):
        return F.expr(expression.sql(schema))

    def hashes(texts: pa.Array) -> pa.Array:
        return expression.of_texts(texts)

    return udf_in_workers(hashes, "int", F.expr(expression.hashed.sql(schema)))
