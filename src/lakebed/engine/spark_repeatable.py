"""Whether a DataFrame gives the same rows each time it is evaluated.

Spark makes lost rows again by evaluating their part of the plan another time: the files of a shuffle, or the cached
rows of an executor that has ended. If that part gives other rows, some tasks of a write see the first ones and some the
second ones, and rows are lost or stored twice. So a write evaluates a plan only once that may give other rows.

A plan is taken for repeatable only if all of it is: leaves whose rows are fixed (files, ranges, rows of the driver),
nodes that depend on no order of rows, and expressions that Spark itself calls deterministic. Functions of Python and
Scala are not: Spark takes them for deterministic, whatever they do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakebed.engine.spark_session import READ_MARK, created_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A plan of more nodes is not looked through: each is some calls to the JVM.
_MAX_NODES = 400
# Nodes whose rows do not depend on the order of the rows below them.
_NODES = frozenset(
    (
        *("Project", "Filter", "SubqueryAlias", "View", "Join", "LateralJoin", "Aggregate", "Sort", "Union"),
        *("Distinct", "Expand", "Generate", "Unpivot", "Repartition", "RepartitionByExpression", "ResolvedHint"),
        *("Except", "Intersect", "WithCTE", "CTERelationDef", "CTERelationRef", "CollectMetrics", "LocalRelation"),
        *("Range", "OneRowRelation", "HiveTableRelation"),
    )
)
_FILES = "HadoopFsRelation"
# Aggregates whose result depends on the order of rows, or that keep one of several.
_BY_ORDER = re.compile(
    r"\b(first|last|any|some|mode|max_by|min_by|collect_\w+|array_agg|listagg|string_agg|percentile_approx"
    r"|approx_percentile)(_value)?\("
)
# What a plan of Spark Connect, as text, must not have: functions of users and those whose values differ, SQL (only the
# server knows what it means), what depends on the order of rows, and sources whose rows may change.
_VARIES_ON_CONNECT = re.compile(
    r"\b(common_inline_user_defined_\w+|call_function|map_partitions|group_map|co_group_map|apply_in_pandas_with_state"
    r"|sql|expression_string|limit|offset|tail|sample|window|deduplicate|named_table|cached_remote_relation) \{"
    r"|function_name: \"(rand\w*|uuid|shuffle|monotonically_increasing_id|spark_partition_id|input_file\w*|java_method"
    r"|reflect|try_reflect|(first|last|any)(_value)?|mode|max_by|min_by|collect_\w+|array_agg|listagg|string_agg)\""
    r"|format: \"(?!(parquet|orc|csv|json|avro|text)\")"
)


def is_repeatable(rows: DataFrame) -> bool:
    """Whether the DataFrame certainly has the same rows each time it is evaluated. No job runs."""
    frame: Any = getattr(rows, "_jdf", None)
    try:
        if frame is None:
            connect: Any = rows
            return not _VARIES_ON_CONNECT.search(str(connect._plan.to_proto(connect._session.client)))
        return _Plan(rows.sparkSession).is_repeatable(frame.queryExecution().analyzed())
    except Exception:  # a plan that cannot be looked through may give other rows
        return False


class _Plan:
    def __init__(self, spark: Any) -> None:
        patterns = spark._jvm.org.apache.spark.sql.catalyst.trees
        pattern = getattr(getattr(patterns, "TreePattern$"), "MODULE$")
        self._functions = (pattern.PYTHON_UDF(), pattern.SCALA_UDF())
        self._nodes = 0

    def is_repeatable(self, plan: Any) -> bool:
        self._nodes += 1
        name = plan.getClass().getSimpleName()
        if self._nodes > _MAX_NODES:
            return False
        if name == "SubqueryAlias" and str(plan.alias()).startswith(READ_MARK):
            return True  # rows of a table, read by its files
        if name == "LogicalRDD":
            rdd = plan.rdd()  # fixed rows are held by the driver or in a checkpoint
            if rdd.checkpointData().isDefined() and not rdd.isCheckpointed():
                return False  # a checkpoint that is yet to be made
            while not rdd.isCheckpointed() and rdd.getClass().getSimpleName() == "MapPartitionsRDD":
                rdd = rdd.dependencies().apply(0).rdd()
            is_held = rdd.isCheckpointed() or rdd.getClass().getSimpleName() == "ParallelCollectionRDD"
            return is_held or created_rows(plan) is not None
        if name == "LogicalRelation":
            return plan.relation().getClass().getSimpleName() == _FILES
        if name == "Deduplicate" and plan.keys().size() == plan.child().output().size():
            return self.is_repeatable(plan.child())  # equal rows: it does not matter which one stays
        if name not in _NODES or not self._are_repeatable(plan.expressions(), is_aggregate=name == "Aggregate"):
            return False
        children = plan.children()
        return all(self.is_repeatable(children.apply(n)) for n in range(children.size()))

    def _are_repeatable(self, expressions: Any, *, is_aggregate: bool) -> bool:
        """Whether these expressions, and the subqueries in them, have the same values each time."""
        for n in range(expressions.size()):
            expression = expressions.apply(n)
            if not expression.deterministic() or any(expression.containsPattern(p) for p in self._functions):
                return False
            if is_aggregate and _BY_ORDER.search(str(expression.toString())):
                return False
            if str(expression.getClass().getSimpleName()).startswith("Python"):  # a table function
                return False
        return True
