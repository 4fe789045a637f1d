"""Filters that Spark pushes to the data source, as nodes of lakebed's own filter tree; and the option `filter`.

Spark gives a data source nothing of the session when it plans. Its tasks know the time zone: what depends on it is
evaluated there, and the rest prunes files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as spark_filters

from lakebed.filters.coercion import INSTANT, LOCAL_TIME, SparkOnly, compare, decimal_literal, membership
from lakebed.filters.predicates import (
    And,
    Call,
    Column,
    IsNull,
    IsTrue,
    Literal,
    Node,
    Not,
    Opaque,
    Operator,
    Predicate,
    combine,
)
from lakebed.filters.sql import parse_filter

_COMPARISONS: dict[type[Any], Operator] = {
    spark_filters.EqualTo: "=",
    spark_filters.EqualNullSafe: "<=>",
    spark_filters.GreaterThan: ">",
    spark_filters.GreaterThanOrEqual: ">=",
    spark_filters.LessThan: "<",
    spark_filters.LessThanOrEqual: "<=",
}
_TEXT: dict[type[Any], str] = {
    spark_filters.StringStartsWith: "starts_with",
    spark_filters.StringEndsWith: "ends_with",
    spark_filters.StringContains: "contains",
}


def split_filters(filters: Iterable[Any], schema: pa.Schema) -> tuple[list[Node], list[Any]]:
    """The filters that lakebed applies exactly, as nodes, and those that are left to Spark."""
    nodes: list[Node] = []
    left: list[Any] = []
    for spark_filter in filters:
        try:
            nodes.append(filter_node(spark_filter, schema))
        except SparkOnly:
            left.append(spark_filter)
    return nodes, left


def filter_node(pushed: Any, schema: pa.Schema) -> Node:
    """The node of one pushed filter. Raises `SparkOnly` for a filter that is not supported."""
    kind: type[Any] = type(pushed)
    if kind is spark_filters.Not:
        return Not(filter_node(pushed.child, schema))
    column = _column(pushed.attribute, schema)
    if kind in _COMPARISONS:
        return compare(column, _COMPARISONS[kind], _literal(pushed.value), UTC)
    if kind is spark_filters.In:
        return membership(column, [_literal(v) for v in pushed.value], UTC)
    if kind is spark_filters.IsNull:
        return IsNull(column)
    if kind is spark_filters.IsNotNull:
        return Not(IsNull(column))
    if kind in _TEXT and pa.types.is_string(column.type):
        return IsTrue(Call(_TEXT[kind], (column,), pa.bool_(), (pushed.value,)))
    raise SparkOnly(f"a filter of kind {kind.__name__}")


def _column(path: tuple[str, ...], schema: pa.Schema) -> Column:
    if path[0] not in schema.names:
        raise SparkOnly(f"the column {path[0]}")
    type_ = schema.field(path[0]).type
    for step in path[1:]:
        index = type_.get_field_index(step) if pa.types.is_struct(type_) else -1
        if index < 0:
            raise SparkOnly(f"the field {step}")
        type_ = type_.field(index).type
    return Column(tuple(path), type_)


def _literal(value: Any) -> Literal:
    if isinstance(value, datetime):
        return Literal(value.astimezone(UTC), INSTANT) if value.tzinfo else Literal(value, LOCAL_TIME)
    if isinstance(value, Decimal):
        return decimal_literal(value)
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return Literal(value, pa.scalar(value).type)
    if isinstance(value, bytearray):
        return Literal(bytes(value), pa.binary())
    if hasattr(value, "year"):
        return Literal(value, pa.date32())
    raise SparkOnly(f"a constant of type {type(value).__name__}")


_SESSION_ZONE = "spark.sql.session.timeZone"
# Two zones in which no text means the same time.
_ZONES = ("UTC", "+09:00")


@dataclass(frozen=True)
class ZonedFilter:
    """A filter to be parsed in the tasks, where the zone is known, with the conditions that apply in addition."""

    text: str
    schema: pa.Schema
    nodes: tuple[Node, ...]
    for_every_zone: Node
    """The parts of the filter that planning may use, since they mean the same in every zone."""
    planners_zone: str
    now: datetime

    def in_zone(self, zone: str) -> Predicate:
        predicate = combine(parse_filter(self.text, self.schema, zone=zone, now=self.now), self.nodes)
        assert predicate is not None
        return predicate


def zoned_filter(text: str | None, schema: pa.Schema, nodes: Sequence[Node]) -> ZonedFilter | None:
    """The filter, if it means different things in different zones; otherwise None."""
    if text is None:
        return None
    now = datetime.now(UTC)
    pairs = [
        [parse_filter(text, schema, zone=zone, now=moment) for zone in _ZONES]
        for moment in (now, now.replace(hour=20))  # at which the two zones have different dates
    ]
    if all(first_filter.root == second_filter.root for first_filter, second_filter in pairs):
        return None
    first_filter = pairs[0][0]
    parts = [p.root.parts if isinstance(p.root, And) else (p.root,) for pair in pairs for p in pair]
    in_all = zip(*parts, strict=True) if len({len(conditions) for conditions in parts}) == 1 else ()
    same = tuple(
        first_early
        for first_early, second_early, first_late, second_late in in_all
        if first_early == second_early and first_late == second_late
    )
    unknown = Opaque(first_filter.columns, "the session's time zone")
    return ZonedFilter(text, schema, tuple(nodes), And((*same, unknown)), machine_zone(), now)


def session_zone(otherwise: str) -> str:
    """The zone of the session for which this task runs, `otherwise` if it was not set: Spark passes on only set
    values."""
    context = TaskContext.get()
    return (context.getLocalProperty(_SESSION_ZONE) if context is not None else None) or otherwise


def machine_zone() -> str:
    """The zone of this machine, which Spark uses if none is set.

    >>> "" in machine_zone()
    True
    """
    named = os.environ.get("TZ", "").removeprefix(":")
    if named and not named.startswith("/"):
        return named
    _, _, region = os.path.realpath(named or "/etc/localtime").partition("zoneinfo/")
    return region or "UTC"
