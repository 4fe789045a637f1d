"""What counts as data: from whatever the caller gave to an Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakebed.engine.spark_session import session_of
from lakebed.errors import InvalidOption
from lakebed.schema.arrow import is_list
from lakebed.schema.layouts import plain_table

WHAT_IS_DATA = (
    "a Spark DataFrame, anything with the Arrow stream protocol (pyarrow, polars, pandas, duckdb), a pyarrow Dataset or"
    " Scanner, a polars LazyFrame, a list of dicts, or a dict of columns"
)


def to_arrow_table(data: Any) -> pa.Table:
    """The caller's data as an Arrow table in plain layouts. Raises `InvalidOption` for what is no data."""
    return plain_table(_given_table(data))


def _given_table(data: Any) -> pa.Table:
    try:
        return _table_of(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:  # a column alone, or one of values of several types
        raise _no_rows(data, f": {error}") from error


def _table_of(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if (session := session_of(data)) is not None:
        from lakebed.engine.spark import SparkEngine

        return SparkEngine(session).collect_normalised(data)
    module = type(data).__module__.partition(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        # an index without a name is row numbers or what a filter left of them: no column of the table
        return pa.Table.from_pandas(data, preserve_index=None if any(data.index.names) else False)
    if module == "polars" and hasattr(data, "collect"):
        return pa.RecordBatchReader.from_stream(data.collect()).read_all()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    if module == "pyarrow" and hasattr(data, "to_table"):  # a Dataset, a Scanner
        return data.to_table()
    if hasattr(data, "to_arrow"):
        return data.to_arrow()
    made = of_python(data, {})
    if made is not data:
        return made
    raise _no_rows(data)


def _no_rows(data: Any, why: str = "") -> InvalidOption:
    kind = type(data)
    return InvalidOption(f"cannot take rows from {kind.__module__}.{kind.__name__}{why}", hint=f"give {WHAT_IS_DATA}")


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
        return pa.table({name: _column(values, _type_of(name, types)) for name, values in columns.items()})
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidOption(
            f"{what}: {error}", hint="give the values of a column one type, and as many for each column"
        ) from error


def _type_of(name: Any, types: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """The type of the column, whose name may be written in another case."""
    return types.get(name) or (types.get(name.lower()) if isinstance(name, str) else None)


def _column(values: Any, kind: pa.DataType | None) -> Any:
    if kind is not None and isinstance(values, Sequence):
        with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
            return _in_type(values, kind)
    return values if hasattr(values, "__arrow_c_array__") else pa.array(values)


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
