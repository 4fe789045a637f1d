"""A scan as a polars LazyFrame: polars hands over columns, a condition, a number of rows and a batch size.

What is understood of a condition rules out files and rows; polars' own evaluation of the complete condition follows, so
that the rows are those that polars would give of the same rows in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.filters.coercion import INSTANT, LOCAL_TIME, SparkOnly, compare, membership
from lakebed.filters.predicates import FLIPPED, And, Column, IsNull, Literal, Node, Not, Operator, Or
from lakebed.read.scan import Scan, require
from lakebed.schema.arrow import is_text

if TYPE_CHECKING:
    import polars as pl

_COMPARISONS: dict[str, Operator] = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_BETWEEN: dict[str, tuple[Operator, Operator]] = {
    "Both": (">=", "<="),
    "Left": (">=", "<"),
    "Right": (">", "<="),
    "None": (">", "<"),
}
_INTEGERS = frozenset(("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32"))
_EPOCH = date(1970, 1, 1)


def lazy_frame(scan: Scan) -> pl.LazyFrame:
    """The scan's rows as a LazyFrame. Raises `UnsupportedFeature` if polars is not installed."""
    polars = require("polars")
    from polars.io.plugins import register_io_source

    def batches(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        names = list(scan.column_names) if with_columns is None else with_columns
        read = scan.of_columns([*names, *(predicate.meta.root_names() if predicate is not None else ())])
        # the limit counts rows before the condition
        if predicate is not None and n_rows is None:
            read = read.narrowed(conditions(predicate, read.schema))
        rows = read if n_rows is None else read.limit(n_rows)
        for batch in rows.to_batches():
            for start in range(0, batch.num_rows, batch_size or batch.num_rows):
                frame = polars.from_arrow(pa.Table.from_batches([batch.slice(start, batch_size)]))
                yield (frame if predicate is None else frame.filter(predicate)).select(names)

    schema = polars.from_arrow(scan.schema.empty_table()).schema
    return register_io_source(batches, schema=schema)


def conditions(predicate: pl.Expr, schema: pa.Schema) -> list[Node]:
    """Conditions that are true for every row that the predicate selects; empty if it is not understood.

    >>> import polars as pl
    >>> conditions((pl.col("a") > 5) & pl.col("b").str.contains("x"), pa.schema({"a": pa.int64(), "b": pa.string()}))
    [Compare(left=Column(path=('a',), type=DataType(int64)), op='>', right=Literal(value=5, type=DataType(int64)))]
    """
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # expressions of Python functions have no such form, and polars may change it
        return []
    return list(_conjuncts(tree, schema))


def _conjuncts(tree: Any, schema: pa.Schema) -> Iterator[Node]:
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            yield from _conjuncts(left, schema)
            yield from _conjuncts(right, schema)
        case _:
            try:
                yield _node(tree, schema)
            except (SparkOnly, LookupError, ValueError, OverflowError, TypeError, pa.ArrowException):
                return


def _node(tree: Any, schema: pa.Schema) -> Node:
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            return And((_node(left, schema), _node(right, schema)))
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            return Or((_node(left, schema), _node(right, schema)))
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": op, "right": {"Literal": value}}}:
            return compare(_column(name, schema), _operator(op), _literal(value), UTC)
        case {"BinaryExpr": {"left": {"Literal": value}, "op": op, "right": {"Column": str(name)}}}:
            return compare(_column(name, schema), FLIPPED[_operator(op)], _literal(value), UTC)
        case {"Function": {"input": [{"Column": str(name)}], "function": {"Boolean": "IsNull"}}}:
            return IsNull(_column(name, schema))
        case {"Function": {"input": [{"Column": str(name)}], "function": {"Boolean": "IsNotNull"}}}:
            return Not(IsNull(_column(name, schema)))
        case {"Function": {"input": [inner], "function": {"Boolean": "Not"}}}:
            return Not(_node(inner, schema))
        case {
            "Function": {
                "input": [{"Column": str(name)}, {"Literal": {"Scalar": {"List": values}}}],
                "function": {"Boolean": {"IsIn": {"nulls_equal": False}}},
            }
        }:
            return _membership(_column(name, schema), values)
        case {
            "Function": {
                "input": [{"Column": str(name)}, {"Literal": low}, {"Literal": high}],
                "function": {"Boolean": {"IsBetween": {"closed": closed}}},
            }
        }:
            column, (above, below) = _column(name, schema), _BETWEEN[closed]
            return And((compare(column, above, _literal(low), UTC), compare(column, below, _literal(high), UTC)))
        case _:
            raise SparkOnly("another expression of polars")


def _operator(name: str) -> Operator:
    if name not in _COMPARISONS:
        raise SparkOnly(f"polars' operator {name}")
    return _COMPARISONS[name]


def _column(name: str, schema: pa.Schema) -> Column:
    type_ = schema.field(name).type
    is_plain = pa.types.is_integer(type_) or pa.types.is_string(type_) or pa.types.is_boolean(type_)
    # NaN and categories compare otherwise in polars than in SQL
    if not (is_plain or pa.types.is_date32(type_) or pa.types.is_timestamp(type_)):
        raise SparkOnly(f"a column of {type_}")
    return Column((name,), type_)


def _membership(column: Column, values: list[int]) -> Node:
    (items,) = pa.ipc.open_stream(bytes(values)).read_all().columns
    return membership(column, [_value(item) for item in items], UTC)


def _value(item: pa.Scalar) -> Literal:
    kind = item.type
    if pa.types.is_integer(kind):
        return Literal(item.as_py(), pa.int64())
    if is_text(kind):
        return Literal(item.as_py(), pa.string())
    if pa.types.is_date32(kind):
        return Literal(item.as_py(), kind)
    raise SparkOnly(f"a list of {kind}")


def _literal(value: Mapping[str, Mapping[str, Any]]) -> Literal:
    match value:
        case {"Dyn": {"Int": int(number)}}:
            return Literal(number, pa.int64())
        case {"Dyn": {"Str": str(text)}} | {"Scalar": {"String": str(text)}}:
            return Literal(text, pa.string())
        case {"Scalar": {"Boolean": bool(flag)}}:
            return Literal(flag, pa.bool_())
        case {"Scalar": {"Date": int(days)}}:
            return Literal(_EPOCH + timedelta(days=days), pa.date32())
        case {"Scalar": {"Datetime": [int(micros), "Microseconds", zone]}}:
            moment = datetime(1970, 1, 1) + timedelta(microseconds=micros)
            return Literal(moment, LOCAL_TIME) if zone is None else Literal(moment.replace(tzinfo=UTC), INSTANT)
        case {"Scalar": scalar} if len(scalar) == 1 and next(iter(scalar)) in _INTEGERS:
            return Literal(next(iter(scalar.values())), pa.int64())
        case _:
            raise SparkOnly("another constant of polars")
