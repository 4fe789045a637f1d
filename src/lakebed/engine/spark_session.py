"""What lakebed needs to know of a Spark session: its version, its cores, whether it has a gateway."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from lakebed.errors import UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINIMUM = (4, 1)
# Where it knows nothing the optimizer takes the largest number there is, and multiplies those of joined rows.
_NO_IDEA_BYTES = 1 << 60


@cache
def require_spark() -> None:
    """Raise `UnsupportedFeature` unless PySpark 4.1 or newer is installed."""
    try:
        import pyspark
    except ImportError as error:
        raise UnsupportedFeature(
            "PySpark is not installed", hint="pip install 'lakebed[spark]' (or any pyspark >= 4.1)"
        ) from error
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < MINIMUM:
        raise UnsupportedFeature(
            f"PySpark {pyspark.__version__} is too old",
            hint="lakebed needs PySpark 4.1 or newer: pip install 'pyspark>=4.1'",
            context={"found": pyspark.__version__, "needed": "4.1"},
        )


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def gateway(spark: SparkSession) -> Any | None:
    """The session's JVM gateway, or None on Spark Connect."""
    return None if is_connect(spark) else getattr(spark, "_jvm", None)


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once, about."""
    if not is_connect(spark):
        return max(1, spark.sparkContext.defaultParallelism)
    for key in ("spark.default.parallelism", "spark.sql.shuffle.partitions"):
        value = spark.conf.get(key, None)
        if value:
            return max(1, min(int(value), 64))
    return 8


def estimated_bytes(rows: DataFrame) -> int | None:
    """What the optimizer thinks the rows take, files as they are stored; None where it has no idea, and on Connect."""
    plan = getattr(rows, "_jdf", None)
    if plan is None:
        return None
    try:
        size = int(str(plan.queryExecution().optimizedPlan().stats().sizeInBytes()))
    except Exception:  # a plan that fails is its reader's trouble, not that of a guess
        return None
    return size if size < _NO_IDEA_BYTES else None


def session_of(data: Any) -> SparkSession | None:
    """The session of a DataFrame, None for anything else."""
    return getattr(data, "sparkSession", None) if hasattr(data, "mapInArrow") else None
