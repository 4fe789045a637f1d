"""Rewrites queries over bucketed DataFrames, which name keys alone, so that they go by the buckets, too.

A row's bucket follows from its key. So where a query compares the keys of two sides it may compare their buckets as
well, and where it groups by a key it may group by the bucket as well: the answer is the same, and now Spark's planner
sees that the rows are together. The analysed plan is changed, before Spark optimises it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

from lakebed.config.arguments import refused
from lakebed.engine.base import session_of
from lakebed.engine.spark_layout import (
    BUCKET,
    FAMILY,
    KEY,
    Layout,
    Scala,
    java_frame,
    logical_rows,
    side_by_side,
)
from lakebed.engine.spark_session import gateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Nodes that pass rows on, or make one row of several: a bucket column still follows from the same key columns.
_PLAIN = frozenset(
    ("Project", "Filter", "SubqueryAlias", "Join", "Aggregate", "Window", "Sort", "GlobalLimit", "LocalLimit")
) | {"Distinct", "Deduplicate", "ResolvedHint", "Repartition", "RepartitionByExpression", "View"}
# Expressions that have the metadata of what they take.
_TAKEN = frozenset(("AttributeReference", "OuterReference", "GetStructField"))
# Rules of Spark that make joins of subqueries, in its order.
_SUBQUERIES_TO_JOINS = (
    "analysis.EliminateSubqueryAliases",
    "optimizer.PullupCorrelatedPredicates",
    "optimizer.RewriteCorrelatedScalarSubquery",
    "optimizer.RewritePredicateSubquery",
)
# Sides of a join whose rows may be missing: nulls take their place, in the key as in the bucket.
_NO_NULLS = {"LEFT OUTER": (True, False), "RIGHT OUTER": (False, True), "FULL OUTER": (False, False)}


@dataclass(frozen=True, slots=True)
class _BucketColumn:
    """A bucket column of a plan's output, the key columns (by id) that it follows from, and the way in which it is
    computed."""

    bucket: Any
    keys: tuple[int, ...]
    family: str

    @property
    def made(self) -> str:
        """The name of the rule by which the bucket follows from the keys, without the number of buckets."""
        return self.family.rpartition(" / ")[0]

    @property
    def count(self) -> str:
        """The number of buckets."""
        return self.family.rpartition(" / ")[2]


def by_buckets(frame: DataFrame) -> DataFrame:
    """A DataFrame of equal rows whose Spark plan uses the buckets of tables.

    Where a query over `t.scan().to_spark(bucketed=True)` joins on the key, groups by it or has windows over it, Spark
    then needs no exchange. That holds for subqueries in conditions (IN, EXISTS, one value) and over unions, too. On
    Spark Connect the DataFrame is returned unchanged. Raises `InvalidOption` for anything but a Spark DataFrame.

    >>> def fares(t):  # a table with a bucket index
    ...     return lakebed.spark.by_buckets(t.scan().to_spark(bucketed=True).groupBy("id").sum("fare"))
    """
    if session_of(frame) is None:
        raise refused("by_buckets", "frame", frame, "a Spark DataFrame")
    if gateway(frame.sparkSession) is None:
        return frame
    from pyspark.sql import DataFrame as Frame

    scala = Scala(frame.sparkSession)
    # a CTE that is read by its name has other columns than its rows
    plan = scala.jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False).apply(
        java_frame(frame).queryExecution().analyzed()
    )
    rewriting = _Rewriting(scala, frame.sparkSession)
    changed = rewriting.full_plan(plan)
    if rewriting.has_needless_unions:
        changed = _Rewriting(scala, frame.sparkSession, lays_out_unions=False).full_plan(plan)
    dataset = scala.object("org.apache.spark.sql.classic.Dataset").ofRows(scala.session, changed)
    return Frame(dataset, frame.sparkSession)


class _Rewriting:
    def __init__(self, scala: Scala, spark: SparkSession, *, lays_out_unions: bool = True) -> None:
        self._scala, self._spark = scala, spark
        self._lays_out_unions = lays_out_unions
        # the buckets of unions that were laid out, and whether one of them was put to use
        self._of_unions: set[int] = set()
        self._uses_union = False
        self._catalyst = scala.jvm.org.apache.spark.sql.catalyst
        self._logical = self._catalyst.plans.logical
        # the key columns of unions whose sides have other numbers of buckets, and these
        self._mixed: list[tuple[frozenset[int], tuple[str, ...]]] = []

    @property
    def has_needless_unions(self) -> bool:
        """Whether unions were laid out although no group-by, window or join uses their buckets: conditions above them
        no longer reach their sides, so the plan is better unchanged."""
        return bool(self._of_unions) and not self._uses_union

    def full_plan(self, plan: Any) -> Any:
        """The changed plan of a query, with its original columns."""
        return self.as_before(self.of(self.without_subqueries(plan))[0], plan)

    def without_subqueries(self, plan: Any) -> Any:
        """The plan with joins in place of the subqueries in its conditions, as Spark's optimiser makes them later. A
        subquery with one value for all rows stays, with its own plan changed."""
        if not self._has_subqueries(plan):
            return plan
        for rule in _SUBQUERIES_TO_JOINS:
            plan = self._scala.object(f"org.apache.spark.sql.catalyst.{rule}").apply(plan)
        return plan

    def _has_subqueries(self, plan: Any) -> bool:
        patterns = self._scala.object("org.apache.spark.sql.catalyst.trees.TreePattern")
        return bool(plan.containsPattern(patterns.PLAN_EXPRESSION()))

    def _of_values(self, expression: Any) -> Any:
        """An expression with the plans of its subqueries changed."""
        if _is(expression, "ScalarSubquery"):
            old = expression.plan()
            new = self.full_plan(old)
            return expression if new is old else expression.withNewPlan(new)
        children = _items(expression.children())
        changed = [self._of_values(child) for child in children]
        if all(new is old for new, old in zip(changed, children, strict=True)):
            return expression
        return expression.withNewChildren(self._scala.seq(changed))

    def _with_values(self, plan: Any) -> Any:
        """A filter or projection in which the plans of subqueries with one value are changed."""
        if not self._has_subqueries(plan):
            return plan
        if _is(plan, "Filter"):
            condition = plan.condition()
            changed = self._of_values(condition)
            return plan if changed is condition else self._logical.Filter(changed, plan.child())
        if _is(plan, "Project"):
            listed = _items(plan.projectList())
            changed = [self._of_values(expression) for expression in listed]
            if any(new is not old for new, old in zip(changed, listed, strict=True)):
                return self._logical.Project(self._scala.seq(changed), plan.child())
        return plan

    def of(self, plan: Any) -> tuple[Any, list[_BucketColumn]]:
        """The changed plan, and the bucket columns of its output."""
        children = _items(plan.children())
        if not children:
            return plan, _bucket_columns(plan)
        kind = plan.getClass().getSimpleName()
        plan = self._with_values(plan)
        changed = [self.of(child) for child in children]
        if kind == "Union":
            return self._union(plan, children, changed)
        if kind == "View" and changed[0][1]:  # it gives the columns of its rows, which may now have the bucket
            return changed[0]
        buckets = [k for _, columns in changed for k in columns] if kind in _PLAIN else []
        # a changed child may have no known output, such as a full join
        if all(new is old and not columns for (new, columns), old in zip(changed, children, strict=True)):
            return plan, _numbered(plan) if kind == "Project" else []
        if kind not in _PLAIN or kind == "View" or not buckets:  # they count their columns, or need no more of them
            changed = [
                (self.as_before(new, old), columns) for (new, columns), old in zip(changed, children, strict=True)
            ]
        elif kind == "Join" and not self._are_apart(changed):
            # two copies of one CTE: a bucket of the one is not to be taken for that of the other
            changed = [(self.as_before(new, old), []) for (new, _), old in zip(changed, children, strict=True)]
            buckets = []
        plan = plan.withNewChildren(self._scala.seq([child for child, _ in changed]))
        if kind == "Project":
            plan, buckets = self._project(plan, buckets)
        elif kind == "Join":
            plan = self._join(plan, changed[0][1], changed[1][1])
            # a join that only tests whether there is a row has no SQL
            joined = plan.joinType()
            sides = (True, True) if _is(joined, "ExistenceJoin") else _NO_NULLS.get(str(joined.sql()), (True, True))
            buckets = [k for (_, columns), full_plan in zip(changed, sides, strict=True) for k in columns if full_plan]
        elif kind == "Aggregate":
            plan = self._aggregate(plan, buckets)
        elif kind == "Window":
            plan = self._window(plan, buckets)
        elif kind == "Distinct":
            self._note_use([k.bucket for k in buckets])
        output_ids = _outputs(plan)
        return plan, [k for k in buckets if output_ids.issuperset((*k.keys, _id(k.bucket)))]

    def _are_apart(self, sides: list[tuple[Any, list[_BucketColumn]]]) -> bool:
        """Whether the sides of a join have no column in common. A bucket column that was added to both gets another
        name on the right: a subquery over the same table has other keys, but the same bucket."""
        (left, _), (right, buckets) = sides
        common = _outputs(left) & _outputs(right)
        if not common:
            return True
        if not common <= {_id(k.bucket) for k in buckets}:
            return False
        expressions, empty = self._catalyst.expressions, self._scala.seq([])
        renamed: dict[int, Any] = {}
        listed: list[Any] = []
        for attribute in _items(right.output()):
            if _id(attribute) in common:
                number = expressions.NamedExpression.newExprId()
                alias = expressions.Alias(attribute, attribute.name(), number, empty, self._scala.none, empty)
                renamed[_id(attribute)] = alias.toAttribute()
                listed.append(alias)
            else:
                listed.append(attribute)
        sides[1] = (
            self._logical.Project(self._scala.seq(listed), right),
            [_BucketColumn(renamed.get(_id(k.bucket), k.bucket), k.keys, k.family) for k in buckets],
        )
        return True

    def _union(
        self, plan: Any, before: Sequence[Any], rewritten: Sequence[tuple[Any, list[_BucketColumn]]]
    ) -> tuple[Any, list[_BucketColumn]]:
        """The union with the bucket after the columns, if all sides have one that follows from columns at the same
        positions: one partition has the rows of a bucket from all sides. Spark's own union concatenates the partitions
        of its sides, whatever is in them."""
        plain = [self.as_before(new, old) for (new, _), old in zip(rewritten, before, strict=True)]
        sides = [_by_locations(old, bucket_columns) for old, (_, bucket_columns) in zip(before, rewritten, strict=True)]
        common = [locations for locations in sides[0] if all(locations in side for side in sides)]
        for locations in common:
            buckets = [side[locations] for side in sides]
            ids = tuple(_id(_items(plan.output())[at]) for at in locations[0])
            counts = tuple(sorted({k.count for k in buckets}, key=int))
            if len(counts) > 1:
                self._mixed.append((frozenset(ids), counts))
                continue
            if any(_id(k.bucket) in _outputs(old) for k, old in zip(buckets, before, strict=True)):
                continue
            wide = [
                self._logical.Project(self._scala.seq([*_items(old.output()), k.bucket]), new)
                for (new, _), old, k in zip(rewritten, before, buckets, strict=True)
            ]
            laid = self._laid_out_union(plan.withNewChildren(self._scala.seq(wide)), wide, int(buckets[0].count))
            if laid is not None:
                bucket = _items(laid.output())[-1]
                self._of_unions.add(_id(bucket))
                return laid, [_BucketColumn(bucket, ids, buckets[0].family)]
        if all(new is old for new, old in zip(plain, before, strict=True)):
            return plan, []
        return plan.withNewChildren(self._scala.seq(plain)), []

    def _laid_out_union(self, union: Any, sides: Sequence[Any], count: int) -> Any | None:
        """The rows of a union, with one bucket per partition; None if a side has no such layout, or takes a job to
        plan."""
        if not self._lays_out_unions:
            return None
        datasets = self._scala.object("org.apache.spark.sql.classic.Dataset")
        executions = [datasets.ofRows(self._scala.session, side).queryExecution() for side in sides]
        for execution in executions:
            plan = execution.executedPlan()
            lies = plan.outputPartitioning()
            bucket = _id(_items(plan.output())[-1])
            if not _is(lies, "ShufflePartitionIdPassThrough") or lies.numPartitions() != count:
                return None
            text = str(plan.toString())
            if _id(lies.expr().child()) != bucket or "Exchange" in text or "Subquery" in text:
                return None
        rows = side_by_side(self._spark, [execution.toRdd() for execution in executions], count)
        return logical_rows(self._scala, union.output(), rows, Layout(count, (), {}))

    def as_before(self, plan: Any, old: Any) -> Any:
        """The plan with the columns that it had before the change."""
        if [_id(a) for a in _items(plan.output())] == [_id(a) for a in _items(old.output())]:
            return plan
        return self._logical.Project(old.output(), plan)

    def _project(self, plan: Any, bucket_columns: Sequence[_BucketColumn]) -> tuple[Any, list[_BucketColumn]]:
        """The projection with the buckets whose keys it retains; a key that it only renames is still one."""
        listed = _items(plan.projectList())
        now: dict[int, int] = {}
        for expression in listed:
            source = expression.child() if _is(expression, "Alias") else expression
            if _is(source, "AttributeReference"):
                now.setdefault(_id(source), _id(expression))
        retained: list[_BucketColumn] = []
        added: list[Any] = []
        for k in bucket_columns:
            if any(key not in now for key in k.keys):
                continue
            if _id(k.bucket) not in {_id(expression) for expression in (*listed, *added)}:
                added.append(k.bucket)
            retained.append(_BucketColumn(k.bucket, tuple(now[key] for key in k.keys), k.family))
        retained += _numbered(plan)
        if added:
            plan = self._logical.Project(self._scala.seq([*listed, *added]), plan.child())
        return plan, retained

    def _join(self, plan: Any, left: Sequence[_BucketColumn], right: Sequence[_BucketColumn]) -> Any:
        if plan.condition().isEmpty():
            return plan
        condition = plan.condition().get()
        equal = set(_equalities(condition))
        self._tell_of_not_in(condition, left, right)
        counts: set[tuple[str, str]] = set()
        for left_column in left:
            for right_column in right:
                pairs = list(zip(left_column.keys, right_column.keys, strict=False))
                compared = left_column.made == right_column.made and all(p in equal or p[::-1] in equal for p in pairs)
                buckets = _id(left_column.bucket), _id(right_column.bucket)
                if buckets in equal or buckets[::-1] in equal:
                    return plan
                if compared and left_column.count != right_column.count:
                    counts.add((left_column.count, right_column.count))
                elif compared:
                    self._note_use([left_column.bucket, right_column.bucket])
                    expressions = self._scala.jvm.org.apache.spark.sql.catalyst.expressions
                    conjunction = expressions.And(
                        condition, expressions.EqualTo(left_column.bucket, right_column.bucket)
                    )
                    scala_option = self._scala.jvm.scala.Some(conjunction)
                    return self._logical.Join(plan.left(), plan.right(), plan.joinType(), scala_option, plan.hint())
        for m, n in counts:
            warnings.warn(
                f"by_buckets: a join of {m} with {n} buckets shuffles both sides; put the buckets together with"
                f" to_spark(bucketed={gcd(int(m), int(n))}) on both",
                stacklevel=2,
            )
        return plan

    def _note_use(self, buckets: Sequence[Any]) -> None:
        self._uses_union |= any(_id(bucket) in self._of_unions for bucket in buckets)

    def _tell_of_not_in(self, condition: Any, left: Sequence[_BucketColumn], right: Sequence[_BucketColumn]) -> None:
        """Warn about NOT IN: a null among its values means that no row is outside, so it counts for every bucket."""
        either = set(_equalities(condition.left())) if _is(condition, "Or") else set[tuple[int, int]]()
        keys = {pair for column in left for other in right for pair in zip(column.keys, other.keys, strict=False)}
        if any(pair in keys or pair[::-1] in keys for pair in either):
            warnings.warn(
                "by_buckets: NOT IN compares with all buckets, since a null among its values counts for each; write NOT"
                " EXISTS (SELECT ... WHERE key = key), which goes by the buckets",
                stacklevel=2,
            )

    def _tell_of_mixed(self, groups: Sequence[Any]) -> None:
        """Warn about a union whose sides have different numbers of buckets, where rows are grouped by its keys."""
        grouping_ids = {_id(group) for group in groups if _is(group, "AttributeReference")}
        for keys, counts in self._mixed:
            if keys <= grouping_ids:
                common_count = gcd(*map(int, counts))
                warnings.warn(
                    f"by_buckets: a union of {' with '.join(counts)} buckets shuffles to be grouped; put the buckets"
                    f" together with to_spark(bucketed={common_count}) on all sides",
                    stacklevel=2,
                )

    def _aggregate(self, plan: Any, bucket_columns: Sequence[_BucketColumn]) -> Any:
        groups, aggregates = _items(plan.groupingExpressions()), _items(plan.aggregateExpressions())
        added = _missing(groups, bucket_columns)
        if not added:
            self._tell_of_mixed(groups)
            return plan
        self._note_use(added)
        added_outputs = [a for a in added if _id(a) not in {_id(expression) for expression in aggregates}]
        seq = self._scala.seq
        return plan.copy(seq([*groups, *added]), seq([*aggregates, *added_outputs]), plan.child(), plan.hint())

    def _window(self, plan: Any, bucket_columns: Sequence[_BucketColumn]) -> Any:
        parts = _items(plan.partitionSpec())
        added = _missing(parts, bucket_columns)
        if not added:
            self._tell_of_mixed(parts)
            return plan
        self._note_use(added)
        spec = self._scala.seq([*parts, *added])
        return plan.copy(plan.windowExpressions(), spec, plan.orderSpec(), plan.child(), plan.hint())


def _bucket_columns(plan: Any) -> list[_BucketColumn]:
    """The bucket columns of a leaf, by their own metadata."""
    output = _items(plan.output())
    return _described(output, output)


def _numbered(project: Any) -> list[_BucketColumn]:
    """The bucket column that a projection computes, from its metadata. One that it takes from elsewhere, also out of a
    struct, has its metadata from there, and its keys may be different ones."""
    computed = [
        expression.toAttribute()
        for expression in _items(project.projectList())
        if _is(expression, "Alias") and expression.child().getClass().getSimpleName() not in _TAKEN
    ]
    return _described(computed, _items(project.output()))


def _described(candidates: Sequence[Any], output: Sequence[Any]) -> list[_BucketColumn]:
    named: Mapping[str, int] = {a.name(): _id(a) for a in output}
    buckets: list[_BucketColumn] = []
    for attribute in candidates:
        about = attribute.metadata()
        number = 0
        while attribute.name() == BUCKET and about.contains(f"{FAMILY}.{number}"):
            keys = [str(name) for name in about.getStringArray(f"{KEY}.{number}")]
            if all(key in named for key in keys):
                family = str(about.getString(f"{FAMILY}.{number}"))
                buckets.append(_BucketColumn(attribute, tuple(named[key] for key in keys), family))
            number += 1
    return buckets


def _missing(groups: Sequence[Any], bucket_columns: Sequence[_BucketColumn]) -> list[Any]:
    """A list with one bucket column that is not among the columns although all its keys are; empty if there is no such
    column."""
    grouping_ids = {_id(group) for group in groups if _is(group, "AttributeReference")}
    if any(grouping_ids.issuperset((*k.keys, _id(k.bucket))) for k in bucket_columns):
        return []
    return [k.bucket for k in bucket_columns if grouping_ids.issuperset(k.keys)][:1]


def _equalities(condition: Any) -> list[tuple[int, int]]:
    """The pairs of columns, by id, that a condition requires to be equal."""
    if _is(condition, "And"):
        return [*_equalities(condition.left()), *_equalities(condition.right())]
    sides = [condition.left(), condition.right()] if _is(condition, "EqualTo") else []
    if len(sides) == 2 and all(_is(side, "AttributeReference") for side in sides):
        return [(_id(sides[0]), _id(sides[1]))]
    return []


def _by_locations(
    plan: Any, bucket_columns: Sequence[_BucketColumn]
) -> dict[tuple[tuple[int, ...], str], _BucketColumn]:
    """The bucket columns of a plan by the positions of their key columns in its output, and the way in which the bucket
    is computed."""
    at = {_id(attribute): number for number, attribute in enumerate(_items(plan.output()))}
    return {(tuple(at[key] for key in k.keys), k.made): k for k in bucket_columns if all(key in at for key in k.keys)}


def _outputs(plan: Any) -> set[int]:
    """The ids of a plan's columns."""
    return {_id(a) for a in _items(plan.output())}


def _is(node: Any, name: str) -> bool:
    return node.getClass().getSimpleName() == name


def _id(named: Any) -> int:
    """The id of a named expression; -1 for other expressions."""
    return int(named.exprId().id()) if hasattr(named, "exprId") else -1


def _items(seq: Any) -> list[Any]:
    return [seq.apply(n) for n in range(seq.size())]
