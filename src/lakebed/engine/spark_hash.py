"""Hash expressions as Spark columns: native SQL, or, where the platform forbids `java_method`, one Arrow UDF on the
hashed text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pyarrow as pa

from lakebed.engine.spark_arrow import udf_in_workers
from lakebed.expressions.bucket import TextHash, java_hash_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_allowed: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()


def can_call_java(spark: SparkSession) -> bool:
    """Whether the session lets SQL call `java_method`; asked once a session, by hashing one letter."""
    known = _allowed.get(spark)
    if known is None:
        try:
            probe = java_hash_sql("'a'")
            known = bool(spark.sql(f"SELECT {probe} AS hash").collect()[0][0] == ord("a"))
        # each platform refuses in its own way, and any failure means the same
        except Exception:
            known = False
        _allowed[spark] = known
    return known


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
