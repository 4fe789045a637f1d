"""Filters that Spark pushes to the data source, as nodes of lakebed's own filter tree."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark_filters

from lakebed.filters.coercion import INSTANT, LOCAL_TIME, SparkOnly, compare, decimal_literal, membership
from lakebed.filters.predicates import Call, Column, IsNull, IsTrue, Literal, Node, Not, Operator

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
    """The filters that lakebed applies exactly, and those that are left to Spark."""
    nodes: list[Node] = []
    left: list[Any] = []
    for one in filters:
        try:
            nodes.append(filter_node(one, schema))
        except SparkOnly:
            left.append(one)
    return nodes, left


def filter_node(pushed: Any, schema: pa.Schema) -> Node:
    """One pushed filter as a node; `SparkOnly` for what is not understood."""
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
