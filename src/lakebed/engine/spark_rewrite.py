"""Queries over bucketed DataFrames as they were written, by keys alone, made ones that go by the buckets, too.

A row's bucket follows from its key. So where a query compares the keys of two sides it may compare their buckets as
well, and where it groups by a key it may group by the bucket as well: the answer is the same, and now Spark's planner
sees that the rows lie together. The analysed plan is changed, before Spark optimises it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

from lakebed.config.arguments import refused
from lakebed.engine.spark_layout import BUCKET, FAMILY, KEY, Scala, java_frame
from lakebed.engine.spark_session import gateway, session_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# What gives rows as they are, or makes one of some: a column still follows from those that it followed from.
_PLAIN = frozenset(
    ("Project", "Filter", "SubqueryAlias", "Join", "Aggregate", "Window", "Sort", "GlobalLimit", "LocalLimit")
) | {"Distinct", "Deduplicate", "ResolvedHint", "Repartition", "RepartitionByExpression", "View"}
# Expressions that have the metadata of what they take.
_TAKEN = frozenset(("AttributeReference", "OuterReference", "GetStructField"))
# Sides of a join whose rows may be missing: nulls stand for them, in the key as in the bucket.
_NO_NULLS = {"LEFT OUTER": (True, False), "RIGHT OUTER": (False, True), "FULL OUTER": (False, False)}


@dataclass(frozen=True, slots=True)
class _Known:
    """A bucket column of a plan's output, the key columns (by id) that it follows from, and how it does."""

    bucket: Any
    keys: tuple[int, ...]
    family: str

    @property
    def made(self) -> str:
        """How it follows, whatever the number of buckets."""
        return self.family.rpartition(" / ")[0]

    @property
    def count(self) -> str:
        """The number of buckets."""
        return self.family.rpartition(" / ")[2]


def by_buckets(frame: DataFrame) -> DataFrame:
    """The same rows by a plan that goes by the buckets: where a query over `t.scan().to_spark(bucketed=True)` joins on
    the key, groups by it or has windows over it, Spark then needs no exchange. The DataFrame as it is on Spark Connect.
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
    rewriting = _Rewriting(scala)
    changed = rewriting.as_before(rewriting.of(plan)[0], plan)
    made = scala.object("org.apache.spark.sql.classic.Dataset").ofRows(scala.session, changed)
    return Frame(made, frame.sparkSession)


class _Rewriting:
    def __init__(self, scala: Scala) -> None:
        self._scala = scala
        self._logical = scala.jvm.org.apache.spark.sql.catalyst.plans.logical

    def of(self, plan: Any) -> tuple[Any, list[_Known]]:
        """The changed plan, and what is known of its output."""
        children = _items(plan.children())
        if not children:
            return plan, _told(plan)
        kind = plan.getClass().getSimpleName()
        made = [self.of(child) for child in children]
        known = [k for _, some in made for k in some] if kind in _PLAIN else []
        # a changed child may tell nothing more of its output, such as a full join
        if all(new is old and not some for (new, some), old in zip(made, children, strict=True)):
            return plan, _numbered(plan) if kind == "Project" else []
        if kind not in _PLAIN or kind == "View" or not known:  # they count their columns, or need no more of them
            made = [(self.as_before(new, old), some) for (new, some), old in zip(made, children, strict=True)]
        elif kind == "Join" and _outputs(made[0][0]) & _outputs(made[1][0]):
            # two copies of one CTE: a bucket of the one is not to be taken for that of the other
            made = [(self.as_before(new, old), []) for (new, _), old in zip(made, children, strict=True)]
            known = []
        plan = plan.withNewChildren(self._scala.seq([child for child, _ in made]))
        if kind == "Project":
            plan, known = self._project(plan, known)
        elif kind == "Join":
            plan = self._join(plan, made[0][1], made[1][1])
            sides = _NO_NULLS.get(str(plan.joinType().sql()), (True, True))
            known = [k for (_, some), whole in zip(made, sides, strict=True) for k in some if whole]
        elif kind == "Aggregate":
            plan = self._aggregate(plan, known)
        elif kind == "Window":
            plan = self._window(plan, known)
        there = _outputs(plan)
        return plan, [k for k in known if there.issuperset((*k.keys, _id(k.bucket)))]

    def as_before(self, plan: Any, old: Any) -> Any:
        """The plan with the columns that it had before it was changed."""
        if [_id(a) for a in _items(plan.output())] == [_id(a) for a in _items(old.output())]:
            return plan
        return self._logical.Project(old.output(), plan)

    def _project(self, plan: Any, known: Sequence[_Known]) -> tuple[Any, list[_Known]]:
        """With the buckets whose keys it keeps; a key that it only names anew is still one."""
        listed = _items(plan.projectList())
        now: dict[int, int] = {}
        for one in listed:
            source = one.child() if _is(one, "Alias") else one
            if _is(source, "AttributeReference"):
                now.setdefault(_id(source), _id(one))
        kept: list[_Known] = []
        added: list[Any] = []
        for k in known:
            if any(key not in now for key in k.keys):
                continue
            if _id(k.bucket) not in {_id(one) for one in (*listed, *added)}:
                added.append(k.bucket)
            kept.append(_Known(k.bucket, tuple(now[key] for key in k.keys), k.family))
        kept += _numbered(plan)
        if added:
            plan = self._logical.Project(self._scala.seq([*listed, *added]), plan.child())
        return plan, kept

    def _join(self, plan: Any, left: Sequence[_Known], right: Sequence[_Known]) -> Any:
        if plan.condition().isEmpty():
            return plan
        condition = plan.condition().get()
        equal = set(_equalities(condition))
        counts: set[tuple[str, str]] = set()
        for one in left:
            for other in right:
                pairs = list(zip(one.keys, other.keys, strict=False))
                compared = one.made == other.made and all(p in equal or p[::-1] in equal for p in pairs)
                buckets = _id(one.bucket), _id(other.bucket)
                if buckets in equal or buckets[::-1] in equal:
                    return plan
                if compared and one.count != other.count:
                    counts.add((one.count, other.count))
                elif compared:
                    expressions = self._scala.jvm.org.apache.spark.sql.catalyst.expressions
                    both = expressions.And(condition, expressions.EqualTo(one.bucket, other.bucket))
                    some = self._scala.jvm.scala.Some(both)
                    return self._logical.Join(plan.left(), plan.right(), plan.joinType(), some, plan.hint())
        for mine, theirs in counts:
            warnings.warn(
                f"by_buckets: a join of {mine} with {theirs} buckets shuffles both sides; put the buckets together with"
                f" to_spark(bucketed={gcd(int(mine), int(theirs))}) on both",
                stacklevel=2,
            )
        return plan

    def _aggregate(self, plan: Any, known: Sequence[_Known]) -> Any:
        groups, given = _items(plan.groupingExpressions()), _items(plan.aggregateExpressions())
        added = _missing(groups, known)
        if not added:
            return plan
        shown = [a for a in added if _id(a) not in {_id(one) for one in given}]
        seq = self._scala.seq
        return plan.copy(seq([*groups, *added]), seq([*given, *shown]), plan.child(), plan.hint())

    def _window(self, plan: Any, known: Sequence[_Known]) -> Any:
        parts = _items(plan.partitionSpec())
        added = _missing(parts, known)
        if not added:
            return plan
        spec = self._scala.seq([*parts, *added])
        return plan.copy(plan.windowExpressions(), spec, plan.orderSpec(), plan.child(), plan.hint())


def _told(plan: Any) -> list[_Known]:
    """What a leaf's bucket column says of itself."""
    output = _items(plan.output())
    return _described(output, output)


def _numbered(project: Any) -> list[_Known]:
    """What a projection says of a bucket column that it computes. One that it takes from elsewhere, out of a struct
    too, has its metadata from there, and its keys may be others by now."""
    computed = [
        one.toAttribute()
        for one in _items(project.projectList())
        if _is(one, "Alias") and one.child().getClass().getSimpleName() not in _TAKEN
    ]
    return _described(computed, _items(project.output()))


def _described(candidates: Sequence[Any], output: Sequence[Any]) -> list[_Known]:
    named: Mapping[str, int] = {a.name(): _id(a) for a in output}
    found: list[_Known] = []
    for attribute in candidates:
        about = attribute.metadata()
        number = 0
        while attribute.name() == BUCKET and about.contains(f"{FAMILY}.{number}"):
            keys = [str(name) for name in about.getStringArray(f"{KEY}.{number}")]
            if all(key in named for key in keys):
                family = str(about.getString(f"{FAMILY}.{number}"))
                found.append(_Known(attribute, tuple(named[key] for key in keys), family))
            number += 1
    return found


def _missing(groups: Sequence[Any], known: Sequence[_Known]) -> list[Any]:
    """One bucket whose keys are all among the columns and which is not, if there is one."""
    there = {_id(one) for one in groups if _is(one, "AttributeReference")}
    if any(there.issuperset((*k.keys, _id(k.bucket))) for k in known):
        return []
    return [k.bucket for k in known if there.issuperset(k.keys)][:1]


def _equalities(condition: Any) -> list[tuple[int, int]]:
    """Columns that a condition wants to be equal, by id."""
    if _is(condition, "And"):
        return [*_equalities(condition.left()), *_equalities(condition.right())]
    sides = [condition.left(), condition.right()] if _is(condition, "EqualTo") else []
    if len(sides) == 2 and all(_is(side, "AttributeReference") for side in sides):
        return [(_id(sides[0]), _id(sides[1]))]
    return []


def _outputs(plan: Any) -> set[int]:
    """The ids of a plan's columns."""
    return {_id(a) for a in _items(plan.output())}


def _is(node: Any, name: str) -> bool:
    return node.getClass().getSimpleName() == name


def _id(named: Any) -> int:
    """The id of a named expression; other expressions have none."""
    return int(named.exprId().id()) if hasattr(named, "exprId") else -1


def _items(seq: Any) -> list[Any]:
    return [seq.apply(n) for n in range(seq.size())]
