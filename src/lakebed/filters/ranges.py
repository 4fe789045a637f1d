"""Whether a filter can be true, and whether it can be false, for rows of which only ranges are known; for all files at
once.

In doubt a file is read: a condition that is not looked into can be true and can be false.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filters.predicates import (
    And,
    Call,
    Column,
    Compare,
    Constant,
    In,
    IsNull,
    IsTrue,
    Like,
    Literal,
    Node,
    Not,
    Or,
    Value,
)
from lakebed.filters.text import like_prefix, text_after
from lakebed.schema.plain_arrow import as_numpy

Bools = npt.NDArray[np.bool_]
Path = tuple[str, ...]
# More constants than these are sorted among the bounds; fewer are compared one by one.
_MAX_ITEMS = 16


@dataclass(frozen=True)
class Bounds:
    """The known bounds of one value in each unit (a file, a file slice, a partition path): no non-null value is below
    `low` or above `high` (a null bound is unknown), and flags whether there may be a non-null value, and whether a
    null.

    `exact` flags the units in which equal bounds are the value itself. A text that became a path is not exact: other
    texts have the same path.
    """

    low: pa.Array
    high: pa.Array
    may_hold: Bools
    may_null: Bools
    exact: Bools | bool = True

    def __len__(self) -> int:
        return len(self.may_hold)

    def cast(self, to: pa.DataType) -> Bounds:
        """The bounds of the values cast to a type that keeps their order."""
        return replace(self, low=self.low.cast(to, safe=False), high=self.high.cast(to, safe=False))

    def are_equal(self) -> Bools:
        """Flags of the units in which every value that is not null is the lower bound."""
        return self.exact & flags_of(pc.equal(self.low, self.high), False)


BoundsByPath = Mapping[Path, Bounds]
Answer = tuple[Bools, Bools]
# Bounds of a function's results, for functions that have an index of their own.
OfCall = Callable[[Call], Bounds | None]


def may_match(root: Node, bounds_by_path: BoundsByPath, units: int, of_call: OfCall = lambda _: None) -> Bools:
    """Flags of the units in which the filter can be true for a row."""
    return _Evaluator(bounds_by_path, units, of_call).outcomes(root)[0]


class _Evaluator:
    def __init__(self, bounds_by_path: BoundsByPath, units: int, of_call: OfCall) -> None:
        self.bounds_by_path = bounds_by_path
        self.of_call = of_call
        self.all = np.ones(units, np.bool_)
        self.none = np.zeros(units, np.bool_)

    def outcomes(self, node: Node) -> Answer:
        """For each unit whether the condition can be true, and whether it can be false."""
        match node:
            case And(parts):
                answers = [self.outcomes(p) for p in parts]
                return np.logical_and.reduce([a[0] for a in answers]), np.logical_or.reduce([a[1] for a in answers])
            case Or(parts):
                answers = [self.outcomes(p) for p in parts]
                return np.logical_or.reduce([a[0] for a in answers]), np.logical_and.reduce([a[1] for a in answers])
            case Not(part):
                can_true, can_false = self.outcomes(part)
                return can_false, can_true
            case Constant(value):
                return (self.all if value is True else self.none), (self.all if value is False else self.none)
            case _:
                return self._leaf(node)

    def _leaf(self, node: Node) -> Answer:
        match node:
            case Compare(left, op, Literal() as right):
                bounds = self.bounds(left)
                return self._unknown if bounds is None else _compared(bounds, op, right)
            case In(left, values, has_null):
                bounds = self.bounds(left)
                return self._unknown if bounds is None else _among(bounds, values, has_null)
            case IsNull(value):
                bounds = self.bounds(value)
                return self._unknown if bounds is None else (bounds.may_null, bounds.may_hold)
            case Like(value, pattern, ignore_case) if not ignore_case:
                bounds = self.bounds(value)
                return self._unknown if bounds is None else _like(bounds, pattern)
            case IsTrue(Call("starts_with", (value,), _, (prefix,))):
                bounds = self.bounds(value)
                return self._unknown if bounds is None else _starts_with(bounds, prefix, is_prefix_only=True)
            case IsTrue(value):
                bounds = self.bounds(value)
                return self._unknown if bounds is None else _compared(bounds, "=", Literal(True, pa.bool_()))
            case _:
                return self._unknown

    @property
    def _unknown(self) -> Answer:
        return self.all, self.all

    def bounds(self, value: Value) -> Bounds | None:
        """The bounds of a column, of an order-preserving cast of it, or of a function with an index; None if they are
        unknown."""
        if isinstance(value, Column):
            return self.bounds_by_path.get(value.path)
        if not isinstance(value, Call):
            return None
        call_bounds = self.of_call(value)
        if call_bounds is not None or value.name != "cast":
            return call_bounds
        inner = self.bounds(value.args[0])
        return inner.cast(value.type) if inner is not None and _keeps_order(inner.low.type, value.type) else None


def _keeps_order(kind: pa.DataType, to: pa.DataType) -> bool:
    """Whether a cast never reverses the order of two values (it may make them equal)."""
    if pa.types.is_integer(kind):
        return pa.types.is_integer(to) or pa.types.is_float64(to) or pa.types.is_decimal(to)
    if pa.types.is_float32(kind):
        return pa.types.is_float64(to)
    if pa.types.is_decimal(kind):
        return pa.types.is_decimal(to)
    return pa.types.is_timestamp(kind) and pa.types.is_timestamp(to) and (kind.tz is None) == (to.tz is None)


# -- comparisons; a bound that is not known fulfils everything


def _compared(bounds: Bounds, op: str, right: Literal) -> Answer:
    constant = pa.scalar(right.value, right.type)
    if bounds.low.type != right.type:
        constant = constant.cast(bounds.low.type)
    low, high = _Side(bounds.low), _Side(bounds.high)
    hold = bounds.may_hold
    match op:
        case "=" | "!=" | "<=>":
            equal = hold & low.at_most(constant) & high.at_least(constant)
            differs = hold & ~(bounds.exact & low.is_value(constant) & high.is_value(constant))
            if op == "<=>":
                return equal, differs | bounds.may_null
            return (equal, differs) if op == "=" else (differs, equal)
        case "<":
            return hold & low.below(constant), hold & high.at_least(constant)
        case "<=":
            return hold & low.at_most(constant), hold & high.above(constant)
        case ">":
            return hold & high.above(constant), hold & low.at_most(constant)
        case _:
            return hold & high.at_least(constant), hold & low.below(constant)


class _Side:
    """One bound of every unit, to be compared with a constant in Spark's order, in which NaN is the greatest number."""

    def __init__(self, values: pa.Array) -> None:
        self.values = values
        self.nan = flags_of(pc.is_nan(values), False) if pa.types.is_floating(values.type) else None

    def below(self, constant: pa.Scalar) -> Bools:
        less = flags_of(pc.less(self.values, constant), True)
        if self.nan is None:
            return less
        unknown = flags_of(self.values.is_null(), True)
        return unknown | (~self.nan if _is_nan(constant) else less)

    def at_most(self, constant: pa.Scalar) -> Bools:
        return self.below(constant) | self.is_value(constant) | flags_of(self.values.is_null(), True)

    def above(self, constant: pa.Scalar) -> Bools:
        return ~self.at_most(constant) | flags_of(self.values.is_null(), True)

    def at_least(self, constant: pa.Scalar) -> Bools:
        return ~self.below(constant) | flags_of(self.values.is_null(), True)

    def is_value(self, constant: pa.Scalar) -> Bools:
        """For each unit, whether the bound is known and equals the constant."""
        if self.nan is not None and _is_nan(constant):
            return self.nan
        return flags_of(pc.equal(self.values, constant), False)


def _is_nan(constant: pa.Scalar) -> bool:
    return math.isnan(constant.as_py())


def _among(bounds: Bounds, values: Sequence[Literal], has_null: bool) -> Answer:
    none = np.zeros(len(bounds), np.bool_)
    if not values:
        return none, none if has_null else bounds.may_hold
    if len(values) <= _MAX_ITEMS:
        answers = [_compared(bounds, "=", v) for v in values]
        can_true = np.logical_or.reduce([a[0] for a in answers])
        can_false = np.logical_and.reduce([a[1] for a in answers])
    else:
        constants = pa.array([v.value for v in values], values[0].type).cast(bounds.low.type)
        always = bounds.are_equal() & flags_of(pc.is_in(bounds.low, value_set=constants), False)
        can_true, can_false = bounds.may_hold & _holds_one(bounds, constants), bounds.may_hold & ~always
    return can_true, none if has_null else can_false


def _holds_one(bounds: Bounds, constants: pa.Array) -> Bools:
    """Flags of the units in which one of many constants is within the bounds: constants and bounds are ranked
    together."""
    ranked = as_numpy(pc.rank(pa.concat_arrays([constants, bounds.low, bounds.high]), tiebreaker="dense"))
    units, count = len(bounds), len(constants)
    ordered = np.sort(ranked[:count])
    first = np.searchsorted(ordered, ranked[count : count + units], side="left")
    last = np.searchsorted(ordered, ranked[count + units :], side="right")
    first[flags_of(bounds.low.is_null(), True)] = 0
    last[flags_of(bounds.high.is_null(), True)] = count
    return first < last


def _like(bounds: Bounds, pattern: str) -> Answer:
    prefix, kind = like_prefix(pattern)
    if kind == "equal":
        return _compared(bounds, "=", Literal(prefix, pa.string()))
    return _starts_with(bounds, prefix, is_prefix_only=kind == "prefix")


def _starts_with(bounds: Bounds, prefix: str, *, is_prefix_only: bool) -> Answer:
    """Whether texts of each unit can begin with the prefix, and whether they can fail to; with `is_prefix_only` the
    prefix is the complete condition."""
    hold = bounds.may_hold
    if not prefix:
        return hold, np.zeros(len(bounds), np.bool_) if is_prefix_only else hold
    start = pa.scalar(prefix, bounds.low.type)
    can_true = hold & _Side(bounds.high).at_least(start)
    after = text_after(prefix)
    if after is not None:
        can_true &= _Side(bounds.low).below(pa.scalar(after, bounds.low.type))
    if not is_prefix_only:
        return can_true, hold
    within = flags_of(pc.starts_with(bounds.low, prefix), False) & flags_of(pc.starts_with(bounds.high, prefix), False)
    return can_true, hold & ~within


def flags_of(values: Any, missing: bool) -> Bools:
    """The values of a boolean column, `missing` in place of nulls."""
    return as_numpy(pc.fill_null(values, missing))
