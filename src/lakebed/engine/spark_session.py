"""The facts about a Spark session that lakebed needs: its version, its cores, whether it has a gateway."""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lakebed.errors import UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINIMUM = (4, 1)
# Where the optimizer knows nothing, it takes the largest number there is; for a join it multiplies both numbers.
_NO_IDEA_BYTES = 1 << 60
# Plans of more nodes are not looked through: each is some calls to the JVM.
_MAX_NODES = 64
READ_MARK = "lakebed_read_"
"""How the alias of each DataFrame begins that reads a table."""
# Nodes whose statistics bound their rows, and leaves with how many times smaller than their rows they may be.
_NODES = frozenset(
    ("Project", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Aggregate", "Distinct", "Union", "Repartition")
) | {"RepartitionByExpression", "SubqueryAlias", "Window", "Join"}
_LEAVES = {"LocalRelation": 1, "OneRowRelation": 1, "Range": 1, "InMemoryRelation": 2, "LogicalRelation": 20}
# The leaf of a DataFrame that was created from Python's rows, of which Spark's statistics know nothing.
_CREATED_ROWS = "LogicalRDD"
# Leaves whose rows are counted; of the others Spark knows files, or the plan that fills a cache.
_EXACT_LEAVES = ("LocalRelation", "OneRowRelation", "Range", _CREATED_ROWS)
# The function by which `createDataFrame` hands on the rows of a list as they are.
_HANDED_ON = ("pyspark.core.rdd", "RDD._reserialize.<locals>.<lambda>")


@cache
def require_spark() -> None:
    """Raise `UnsupportedFeature` unless PySpark 4.1 or newer is installed, and pandas, without which PySpark runs no
    function over Arrow batches."""
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
    if find_spec("pandas") is None:
        raise UnsupportedFeature(
            f"PySpark {pyspark.__version__} runs no function over Arrow batches without pandas, which is not installed",
            hint="pip install 'lakebed[spark]' (or pandas >= 2.2)",
        )


def zone_of(spark: SparkSession | None) -> str:
    """The time zone in which a session reads times without one; UTC without a session."""
    return "UTC" if spark is None else spark.conf.get("spark.sql.session.timeZone") or "UTC"


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def gateway(spark: SparkSession) -> Any | None:
    """The session's JVM gateway; None on Spark Connect."""
    return None if is_connect(spark) else getattr(spark, "_jvm", None)


def is_in_one_process(spark: SparkSession) -> bool:
    """Whether the session's tasks are threads of its driver, so that no other machine helps."""
    return not is_connect(spark) and str(spark.sparkContext.master).partition("[")[0] == "local"


def speculates(spark: SparkSession) -> bool:
    """Whether Spark runs a second attempt of a slow task beside the first."""
    return str(spark.sparkContext.getConf().get("spark.speculation", "false")).lower() == "true"


def stored_copies(rows: DataFrame) -> list[int]:
    """How many executors have each part of the rows of a local checkpoint."""
    frame: Any = rows
    jvm: Any = gateway(rows.sparkSession)
    rdd, storage = frame._jdf.queryExecution().analyzed().rdd(), jvm.org.apache.spark.storage
    master = jvm.org.apache.spark.SparkEnv.get().blockManager().master()
    return [master.getLocations(storage.RDDBlockId(rdd.id(), n)).size() for n in range(rdd.getNumPartitions())]


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
    """The optimizer's estimate of the bytes of the rows, for files as they are stored; None if it has none, and on
    Connect."""
    plan = getattr(rows, "_jdf", None)
    if plan is None:
        return None
    try:
        size = int(str(plan.queryExecution().optimizedPlan().stats().sizeInBytes()))
    except Exception:  # a plan that fails is an error for its reader, not for an estimate
        return None
    return size if size < _NO_IDEA_BYTES else None


def optimizer_rows(data: DataFrame) -> int | None:
    """The largest number of rows that the DataFrame can have by the optimizer's statistics, without running a job; None
    if they are unknown, and on Connect.

    It counts rows, or takes bytes for rows of the columns' usual widths: that is exact for rows that the
    driver holds (also those that `createDataFrame` took from a list), while those of files are compressed. Only nodes
    that do not make more rows of few are looked through.
    """
    frame = getattr(data, "_jdf", None)
    if frame is None:
        return None
    try:
        plan = frame.queryExecution().optimizedPlan()
        compression = _compression(plan, [0])
        if compression is None:
            return None
        leaves = plan.collectLeaves()
        if leaves.size() == 1 and leaves.apply(0).getClass().getSimpleName() == _CREATED_ROWS:
            return created_rows(leaves.apply(0))
        stats = plan.stats()
        if stats.rowCount().isDefined():
            return int(str(stats.rowCount().get()))
        return math.ceil(int(str(stats.sizeInBytes())) * compression / _row_bytes(frame))
    except Exception:  # a plan that fails is an error for its reader, not for an estimate
        return None


def has_exact_leaves(data: DataFrame) -> bool:
    """Whether Spark has counted the rows that `optimizer_rows` uses, so that the number does not come from the size of
    files or of a cache."""
    frame: Any = data._jdf  # pyright: ignore[reportPrivateUsage]
    leaves = frame.queryExecution().optimizedPlan().collectLeaves()
    return all(leaves.apply(n).getClass().getSimpleName() in _EXACT_LEAVES for n in range(leaves.size()))


def optimizer_bytes(data: DataFrame) -> int | None:
    """The estimated size in bytes of the rows that `optimizer_rows` counts, by Spark's widths of types (20 bytes for a
    text); None if their number is unknown."""
    rows = optimizer_rows(data)
    return None if rows is None else rows * _row_bytes(data._jdf)  # pyright: ignore[reportPrivateUsage]


def _row_bytes(frame: Any) -> int:
    return 8 + int(frame.schema().defaultSize())


def _compression(plan: Any, node_count: list[int]) -> int | None:
    """The factor by which the bytes of a plan's leaves may be smaller than its rows; None if rows cannot be
    estimated."""
    node_count[0] += 1
    name = plan.getClass().getSimpleName()
    if node_count[0] > _MAX_NODES or name not in _LEAVES.keys() | _NODES | {_CREATED_ROWS}:
        return None
    children = plan.children()
    factors = [_LEAVES.get(name, 1), *(_compression(children.apply(n), node_count) for n in range(children.size()))]
    estimated = [factor for factor in factors if factor is not None]
    return max(estimated) if len(estimated) == len(factors) else None


def created_rows(leaf: Any) -> int | None:
    """The largest number of rows that `createDataFrame` took from a list, which the driver holds in batches of one
    size. None if the rows of an RDD come from elsewhere."""
    rdd, functions = leaf.rdd(), list[Any]()
    while not rdd.dependencies().isEmpty():
        name = rdd.getClass().getSimpleName()
        if name == "PythonRDD":
            functions.append(_private(rdd, "func"))
        elif name != "MapPartitionsRDD" or functions:
            return None
        rdd = rdd.dependencies().apply(0).rdd()
    if len(functions) != 1 or rdd.getClass().getSimpleName() != "ParallelCollectionRDD":
        return None
    size = _batch_size(bytes(functions[0].command().unsafeArray()))
    return None if size is None else size * _private(rdd, "data").size()


def _batch_size(command: bytes) -> int | None:
    """The size of the batches that a Python function gets, if it only passes each row on; None if it does more."""
    from pyspark.serializers import CPickleSerializer

    function, _, batches, _ = CPickleSerializer().loads(command)
    if function.__code__.co_freevars != ("f",):
        return None
    row_function = function.__closure__[0].cell_contents
    return (
        batches.batchSize
        if (row_function.__module__, row_function.__qualname__) == _HANDED_ON and batches.batchSize > 0
        else None
    )


def _private(thing: Any, name: str) -> Any:
    """A private field of an object of the JVM."""
    field = thing.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(thing)


def read_mark(uri: str) -> str:
    """The alias of DataFrames that read the table, by which their plan names it; queries do not use it."""
    import hashlib  # brings OpenSSL, which the list of commands has no use for

    return f"{READ_MARK}{hashlib.sha256(uri.encode()).hexdigest()[:16]}"


def reads_table(data: DataFrame, uri: str) -> bool:
    """Whether the DataFrame has rows of the table, from `to_spark()` or `format("lakebed")`. No job runs."""
    from lakebed.storage.base import parse_uri  # `import lakebed` passes this file, and loads no storage

    try:
        frame: Any = getattr(data, "_jdf", None)
        if frame is None:
            frame = data
            text = str(frame._plan.to_proto(frame._session.client))
            return read_mark(uri) in text or ('format: "lakebed"' in text and f'"{uri}"' in text)
        plan = frame.queryExecution().analyzed()
        leaves = plan.collectLeaves()
        relations = [leaves.apply(n) for n in range(leaves.size())]
        relations = [leaf for leaf in relations if leaf.getClass().getSimpleName() == "DataSourceV2Relation"]
        paths = [str(leaf.options().get("path")) for leaf in relations]  # "None" is the path of no table
        return read_mark(uri) in str(plan.toString()) or uri in [parse_uri(path).uri for path in paths]
    except Exception:  # a plan that cannot be looked through names no table
        return False
