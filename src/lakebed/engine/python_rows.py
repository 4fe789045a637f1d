"""Rows of Python's own values as Arrow tables: a column takes the table's type where its values fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakebed.engine.nested_values import is_nan, typed_values
from lakebed.errors import InvalidOption
from lakebed.schema.arrow import is_list

WHAT_IS_DATA = (
    "a Spark DataFrame, anything with the Arrow stream protocol (pyarrow, polars, pandas, duckdb), a pyarrow Dataset or"
    " Scanner, a polars LazyFrame, a list of dicts, or a dict of columns"
)


def of_python(data: Any, types: Mapping[str, pa.DataType]) -> Any:
    """Rows of Python's own values as an Arrow table: a column takes the type that `types` has for it where its values
    fit, since Python's numbers have no width. Anything else is given back as it is."""
    if isinstance(data, Mapping) and not hasattr(data, "__arrow_c_stream__"):
        return _table("this dict is no table", dict(data), types)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _of_rows(data, types)
    return data


def _of_rows(data: Sequence[Any], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Rows as the caller has them in hand, a dict for each; one that lacks a column has null there."""
    for at, row in enumerate(data):
        if not isinstance(row, Mapping):
            raise InvalidOption(
                f"row {at} of the list is of type {type(row).__name__}, not a dict", hint=f"give {WHAT_IS_DATA}"
            )
    if not data:
        raise InvalidOption(
            "an empty list has no columns", hint="leave the write out, or give an empty pyarrow Table with its columns"
        )
    names = list(dict.fromkeys(name for row in data for name in row))
    return _table("these rows are no table", {name: [row.get(name) for row in data] for name in names}, types)


def _table(what: str, columns: Mapping[Any, Any], types: Mapping[str, pa.DataType]) -> pa.Table:
    try:
        return pa.table({name: _column(values, type_of(name, types)) for name, values in columns.items()})
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidOption(
            f"{what}: {error}", hint="give the values of a column one type, and as many for each column"
        ) from error


def type_of(name: Any, types: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """The type of the column, whose name may be written in another case."""
    return types.get(name) or (types.get(name.lower()) if isinstance(name, str) else None)


def _column(values: Any, kind: pa.DataType | None) -> Any:
    if hasattr(values, "__arrow_c_array__"):
        return values
    if kind is not None and not pt.is_floating(kind):
        values = _without_nan(values)
    if kind is not None and isinstance(values, Sequence):
        with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
            return _in_type(*typed_values(values, kind))
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError):
        without = _without_nan(values)
        if without is values:
            raise
        return pa.array(without)


def _without_nan(values: Any) -> Any:
    """The values of a column that is no floating one, with null for NaN: so pandas and JSON have what is missing."""
    if isinstance(values, np.ndarray):
        floating = np.issubdtype(values.dtype, np.floating)
        return [None] * len(values) if floating and np.isnan(values).all() else values
    if not isinstance(values, Sequence) or not any(map(is_nan, values)):
        return values
    return [None if is_nan(value) else value for value in values]


def _in_type(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values in a column of this type; raises where they are not of its sort or do not fit."""
    try:
        given = pa.array(values).type
    except (pa.ArrowException, TypeError, ValueError):  # the items of a map are tuples, which have no type
        pa.array(values, _exact(kind))
    else:
        if not _has_no_width(given, kind):
            raise TypeError(f"{given} is no {kind}")
    return pa.array(values, kind)


def _has_no_width(given: pa.DataType, known: pa.DataType) -> bool:
    """Whether a type that Arrow gives to Python values is the known one but for the width, which numbers do not have.
    Arrow itself takes more: it cuts 2.5 to 2 and a time to its date, and counts numbers from 1970."""
    if pt.is_null(given):
        return True
    if is_list(given) and pt.is_map(known):
        return pt.is_null(given.value_type)  # maps without entries
    if is_list(given) and is_list(known):
        return _has_no_width(given.value_type, known.value_type)
    if pt.is_struct(given) and pt.is_struct(known):
        types = {f.name: f.type for f in known}
        return all(f.name in types and _has_no_width(f.type, types[f.name]) for f in given)
    if pt.is_integer(given):
        return pt.is_integer(known) or pt.is_floating(known) or pt.is_decimal(known)
    if pt.is_timestamp(given):
        return pt.is_timestamp(known) and given.unit == known.unit and (given.tz is None) == (known.tz is None)
    return any(same(given) and same(known) for same in _SORTS)


_SORTS: tuple[Callable[[pa.DataType], bool], ...] = (
    pt.is_floating,
    pt.is_decimal,
    pt.is_boolean,
    lambda kind: pt.is_string(kind) or pt.is_large_string(kind),
    lambda kind: pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind),
    pt.is_date,
    pt.is_time,
)


def _exact(kind: pa.DataType) -> pa.DataType:
    """The type with decimals for whole numbers: they take no fractions, while integers cut them off."""
    if pt.is_integer(kind):
        return pa.decimal128(38)
    if pt.is_struct(kind):
        return pa.struct([f.with_type(_exact(f.type)) for f in kind])
    if pt.is_map(kind):
        return pa.map_(kind.key_type, _exact(kind.item_type))
    return pa.list_(_exact(kind.value_type)) if is_list(kind) else kind
