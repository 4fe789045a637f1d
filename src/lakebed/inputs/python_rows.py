"""Rows of Python's own values, dicts and lists, as Arrow tables: values of the types that a table's columns have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from itertools import chain
from textwrap import shorten
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import InvalidOption, InvalidRecord, SchemaConflict
from lakebed.schema.arrow import too_deep
from lakebed.schema.assignment import in_column
from lakebed.schema.logical_types import is_encoded, is_variant
from lakebed.schema.plain_arrow import is_list


def typed_values(values: Sequence[Any], kind: pa.DataType) -> tuple[Sequence[Any], pa.DataType]:
    """The values of a column in the form of its type, and that type with exactly the fields that the structs have:
    Arrow's type for a new field. In structs a name in another case is the field's, a dict for a map is its entries, and
    NaN for what is no floating number is null. Values of simple types are returned unchanged.

    >>> typed_values([{"A": 1, "b": "x"}], pa.struct([("a", pa.int32())]))
    ([{'a': 1, 'b': 'x'}], StructType(struct<a: int32, b: string>))
    """
    if not pt.is_nested(kind):
        return values, kind
    fitted = [_fitted(value, kind) for value in values]
    return fitted, _named_fields(fitted, kind)


def is_nan(value: Any) -> bool:
    """Whether the value is a floating-point NaN."""
    return isinstance(value, float | np.floating) and bool(value != value)


def is_missing(value: Any) -> bool:
    """Whether the value is one by which pandas and numpy mark a missing value: NaN, NaT, NA."""
    if isinstance(value, datetime | np.datetime64 | np.timedelta64):
        return bool(value != value)
    return is_nan(value) or type(value).__name__ == "NAType"


def _fitted(value: Any, kind: pa.DataType) -> Any:
    if value is None or (not pt.is_floating(kind) and is_missing(value)):
        return None
    if pt.is_struct(kind) and isinstance(value, Mapping):
        return _fields(value, kind)
    if pt.is_map(kind):
        entries = list(value.items()) if isinstance(value, Mapping) else value
        if _are_pairs(entries):
            return [(key, _fitted(item, kind.item_type)) for key, item in entries]
        if isinstance(entries, list | tuple) and None in entries:
            raise ValueError("an entry of a map is null")  # Arrow ends the process at one
        return value
    if is_list(kind) and isinstance(value, list | tuple):
        return [_fitted(item, kind.value_type) for item in value]
    return value


def _fields(value: Mapping[Any, Any], kind: pa.DataType) -> dict[Any, Any]:
    types = {field.name: field.type for field in kind}
    folded = {name.lower(): name for name in types}
    fields: dict[Any, Any] = {}
    for key, item in value.items():
        name = key
        if key not in types and isinstance(key, str):
            field_name = folded.get(key.lower(), key)
            name = key if field_name in value or field_name in fields else field_name
        fields[name] = _fitted(item, types[name]) if name in types else item
    return fields


def _are_pairs(entries: Any) -> bool:
    return isinstance(entries, list | tuple) and all(
        isinstance(entry, tuple | list) and len(entry) == 2 for entry in entries
    )


def _named_fields(values: Sequence[Any], kind: pa.DataType) -> pa.DataType:
    """The type with the fields that structs among the values have; with all its own fields if there is no struct."""
    present = [value for value in values if value is not None]
    if pt.is_struct(kind):
        rows = [value for value in present if isinstance(value, Mapping)]
        if not rows:
            return kind
        fields = (field for field in kind if any(field.name in row for row in rows))
        existing = [
            field.with_type(_named_fields([row.get(field.name) for row in rows], field.type)) for field in fields
        ]
        names = {field.name for field in kind}
        new = dict.fromkeys(name for row in rows for name in row if name not in names)
        return pa.struct([*existing, *((name, pa.array([row.get(name) for row in rows]).type) for name in new)])
    if pt.is_map(kind):
        items = [item for value in present if _are_pairs(value) for _, item in value]
        return pa.map_(kind.key_field, kind.item_field.with_type(_named_fields(items, kind.item_type)))
    if is_list(kind):
        lists = (value for value in present if isinstance(value, list | tuple))
        return pa.list_(kind.value_field.with_type(_named_fields(list(chain.from_iterable(lists)), kind.value_type)))
    return kind


WHAT_IS_DATA = (
    "a DataFrame of Spark or Dask, a Dataset of Ray, anything with the Arrow stream protocol (pyarrow, polars, pandas,"
    " duckdb), a pyarrow Dataset or Scanner, a polars LazyFrame, a list of dicts, a dict of columns, or the path of"
    " data files"
)


def of_python(data: Any, types: Mapping[str, pa.DataType]) -> Any:
    """Rows of Python values as an Arrow table: a column gets the type that `types` has for it if its values fit, since
    Python's numbers have no width. Any other data is returned unchanged."""
    if isinstance(data, Mapping) and not hasattr(data, "__arrow_c_stream__"):
        return _table("this dict is no table", dict(data), types)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _of_rows(data, types)
    return data


def _of_rows(data: Sequence[Any], types: Mapping[str, pa.DataType]) -> pa.Table:
    """A table of rows given as dicts; a row without a column has null in it."""
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


def check_same_columns(rows: Sequence[Any], types: Mapping[str, pa.DataType], prefix: str = "") -> None:
    """Raise `InvalidOption` if one of these dicts does not have a column, or a field of a struct, that another has: in
    a partial write its null would be stored, although the row does not have the column. `types` are a table's
    columns."""
    names = dict.fromkeys(name for row in rows if isinstance(row, Mapping) for name in row)
    for name in names:
        kind = type_of(name, types)
        if kind is not None and pt.is_struct(kind) and not is_variant(kind):
            structs = [row.get(name) if isinstance(row, Mapping) else None for row in rows]
            check_same_columns(structs, {field.name: field.type for field in kind}, f"{prefix}{name}.")
    for at, row in enumerate(rows):
        if isinstance(row, Mapping) and len(row) < len(names):
            lacking = [f"{prefix}{name}" for name in names if name not in row]
            columns = ", ".join(lacking)
            raise InvalidOption(
                f"row {at} (from 0) lacks {columns}, which other rows have: a partial write would store null there",
                hint="write the rows with the same columns in a call of their own, or give null where null is meant",
                context={"row": at, "columns": lacking},
            )


def _table(label: str, columns: Mapping[Any, Any], types: Mapping[str, pa.DataType]) -> pa.Table:
    arrays: dict[Any, Any] = {}
    try:
        for name, values in columns.items():
            kind = type_of(name, types)
            if kind is not None and pt.is_map(kind):
                _check_entries(name, values)
            arrays[name] = _column(name, values, kind)
        return pa.table(arrays)
    except RecursionError:
        raise too_deep(str(list(columns)[min(len(arrays), len(columns) - 1)])) from None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if len(arrays) < len(columns):
            refuse_values(*list(columns.items())[len(arrays)])
        raise InvalidOption(
            f"{label}: {error}", hint="give the values of a column one type, and as many for each column"
        ) from error


def type_of(name: Any, types: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """The type of the column, whose name may be given in another case; None if it is not in `types`."""
    return types.get(name) or (types.get(name.lower()) if isinstance(name, str) else None)


def refuse_values(name: Any, values: Any) -> None:
    """Raise `SchemaConflict` for a column that Arrow cannot convert, if its values show the reason: they are of several
    types, of a type that no table has, or too large. It names the first row of each type."""
    examples: dict[str, tuple[int, Any]] = {}
    listed: Iterable[Any] = values if isinstance(values, Iterable) else ()
    for at, value in enumerate(listed):
        if value is not None and not is_missing(value):
            zoned = value.tzinfo is not None if isinstance(value, datetime) else None
            zone = {None: "", True: " with a zone", False: " without a zone"}[zoned]
            examples.setdefault(type(value).__name__ + zone, (at, value))
            if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
                raise InvalidRecord(
                    f"column {name} has a text with half of a surrogate pair in row {at}: {ascii(value)[:60]}",
                    hint="it is no Unicode text: decode its bytes anew, for example with errors='replace'",
                    context={"column": str(name), "row": at, "value": ascii(value)},
                )
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise SchemaConflict(
                    f"column {name} has a whole number that BIGINT does not hold: {value} in row {at}",
                    hint="give decimals (decimal.Decimal) or texts (str)",
                    context={"column": str(name), "row": at},
                )
    context = {
        "column": str(name),
        "types": list(dict.fromkeys(type(example).__name__ for _, example in examples.values())),
    }
    where = [f"{sort} in row {at} ({shorten(repr(value), 40)})" for sort, (at, value) in examples.items()]
    if len(examples) > 1:
        raise SchemaConflict(
            f"column {name} has values of several types: {', '.join(where[:4])}",
            hint="give them one type: texts (str), or numbers",
            context=context,
        )
    for _, value in examples.values():
        kind = type(value)
        ways = {"Period": "give times (to_timestamp()) or texts (str)", "complex": "give real and imaginary part"}
        way = next((hint for word, hint in ways.items() if kind.__name__.startswith(word)), "")
        if way or kind.__module__ != "builtins" or kind is object:
            raise SchemaConflict(
                f"column {name} has values of a type that no table can hold: {where[0]}",
                hint=way or "give numbers, texts, bytes, dates, times, lists or dicts",
                context=context,
            )


def _check_entries(name: Any, values: Any) -> None:
    """Raise `SchemaConflict` for a map with an entry that is not a pair, or has no key; the row and the entry are
    named."""
    value: Any
    for at, value in enumerate(values if isinstance(values, list | tuple) else ()):
        entries: Any = list(value.items()) if isinstance(value, Mapping) else value
        for entry in entries if isinstance(entries, list | tuple) else ():
            is_pair = isinstance(entry, list | tuple) and len(entry) == 2
            if is_pair and entry[0] is not None:
                continue
            description = f"{shorten(repr(entry), 40)}, which " + (
                "has no key" if is_pair else "is no pair of key and value"
            )
            raise SchemaConflict(
                f"column {name} has maps, and that of row {at} has the entry {description}",
                hint="give each map as a dict, or as a list of pairs: [(key, value), ...]",
                context={"column": str(name), "row": at},
            )


def integers_of(values: Any, kind: pa.DataType | None) -> Any:
    """The floating-point numbers of a column as integers, with null for NaN, if the table has integers and the numbers
    are whole: pandas has no missing integers. All other values are returned unchanged, also those so large that the
    floating-point number may stand for a neighbouring integer."""
    if kind is None or not pt.is_integer(kind):
        return values
    numbers = values
    if isinstance(values, list | tuple) and any(map(is_nan, values)) and all(map(_is_number, values)):
        numbers = np.array([np.nan if value is None else value for value in values], np.float64)
    if not isinstance(numbers, np.ndarray) or not np.issubdtype(numbers.dtype, np.floating) or numbers.ndim != 1:
        return values
    missing = np.isnan(numbers)
    filled = np.where(missing, 0, numbers)
    exact = 2.0 ** (np.finfo(numbers.dtype).nmant + 1)
    if not (np.isfinite(filled).all() and (np.abs(filled) < exact).all() and (filled == np.trunc(filled)).all()):
        return values
    integers = pa.array(filled.astype(np.int64), mask=missing)
    try:
        return integers.cast(kind)
    except pa.ArrowInvalid:
        return integers


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float | np.number) and not isinstance(value, bool))


def _column(name: Any, values: Any, kind: pa.DataType | None) -> Any:
    if hasattr(values, "__arrow_c_array__"):
        return values
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.size:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    if is_variant(kind) and isinstance(values, Sequence) and not all(v is None or is_encoded(v) for v in values):
        from lakebed.format.variant_objects import encoded

        return encoded(values)
    values = integers_of(values, kind)
    if isinstance(values, pa.Array):
        return values
    if kind is None or not pt.is_floating(kind):
        values = _without_missing(values, is_missing if kind is not None else _is_no_number_missing)
    if kind is not None and isinstance(values, Sequence):
        with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
            return _in_type(str(name), *typed_values(values, kind))
    try:
        return _of_any_type(values)
    except (pa.ArrowException, TypeError, ValueError):
        without = _without_missing(values, is_missing)
        if without is values:
            raise
        return _of_any_type(without)


def _is_no_number_missing(value: Any) -> bool:
    return is_missing(value) and not is_nan(value)


def _of_any_type(values: Any) -> pa.Array:
    array = pa.array(values)
    if isinstance(values, Sequence):
        check_times(values, array.type)
    return array


def _without_missing(values: Any, missing: Callable[[Any], bool]) -> Any:
    """The values of a column with null for those that are `missing`, the marks of pandas and JSON for missing
    values."""
    if isinstance(values, np.ndarray) and values.dtype == np.object_ and values.ndim == 1:
        values = values.tolist()
    if isinstance(values, np.ndarray):
        floating = np.issubdtype(values.dtype, np.floating) and missing is is_missing
        return [None] * len(values) if floating and np.isnan(values).all() else values
    if not isinstance(values, Sequence) or not any(map(missing, values)):
        return values
    return [None if missing(value) else value for value in values]


def _in_type(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values as an Arrow array of this type. Raises if a value is of another sort or does not fit; `InvalidRecord`
    for a number beyond a FLOAT, of which Arrow makes infinity."""
    check_times(values, kind)
    try:
        inferred = None if pt.is_map(kind) else pa.array(values).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # the items of a map are tuples, without a type
        pa.array(values, _exact(kind))
    else:
        if inferred is None:  # entries whose keys and values have one type are lists to Arrow
            pa.array(values, _exact(kind))
        elif not _has_no_width(inferred, kind):
            raise TypeError(f"{inferred} is no {kind}")
    wide = _with_doubles(kind)
    return pa.array(values, kind) if wide.equals(kind) else in_column(pa.array(values, wide), pa.field(name, kind))


def _with_doubles(kind: pa.DataType) -> pa.DataType:
    """The type with DOUBLE in place of FLOAT."""
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_with_doubles(field.type)) for field in kind])
    if pt.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_with_doubles(kind.item_type)))
    if is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_doubles(kind.value_type)))
    return pa.float64() if pt.is_float32(kind) else kind


def check_times(values: Iterable[Any], kind: pa.DataType) -> None:
    """Raise `TypeError` for values that Arrow would convert to another kind of time: it cuts a time to its date, takes
    one without a zone for one in UTC, and counts numbers from 1970."""
    if pt.is_temporal(kind):
        classes = (
            (date, np.datetime64) if pt.is_date(kind) else (time,) if pt.is_time(kind) else (datetime, np.datetime64)
        )
        for value in values:
            if value is None:
                continue
            zoned = isinstance(value, datetime) and value.tzinfo is not None
            dated = pt.is_date(kind) and isinstance(value, datetime)
            if dated or not isinstance(value, classes) or (pt.is_timestamp(kind) and zoned != (kind.tz is not None)):
                raise TypeError(f"{shorten(repr(value), 60)} is no {kind}")
    elif pt.is_struct(kind):
        rows = [value for value in values if isinstance(value, Mapping)]
        for field in kind:
            check_times((row.get(field.name) for row in rows), field.type)
    elif pt.is_map(kind) or is_list(kind):
        items = chain.from_iterable(value for value in values if isinstance(value, list | tuple))
        if pt.is_map(kind):
            pairs = [entry for entry in items if isinstance(entry, tuple | list) and len(entry) == 2]
            check_times((key for key, _ in pairs), kind.key_type)
            check_times((item for _, item in pairs), kind.item_type)
        else:
            check_times(items, kind.value_type)


def _has_no_width(inferred: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a type that Arrow infers for Python values equals the declared one except for the width, which numbers do
    not have. Arrow itself accepts more: it cuts 2.5 to 2 and a time to its date, and counts numbers from 1970."""
    if pt.is_null(inferred):
        return True
    if is_list(inferred) and pt.is_map(declared):
        pair = inferred.value_type  # null for maps without entries; a list where keys and values have one type
        fits = is_list(pair) and all(
            _has_no_width(pair.value_type, kind) for kind in (declared.key_type, declared.item_type)
        )
        return pt.is_null(pair) or fits
    if is_list(inferred) and is_list(declared):
        return _has_no_width(inferred.value_type, declared.value_type)
    if pt.is_struct(inferred) and pt.is_struct(declared):
        types = {f.name: f.type for f in declared}
        return all(f.name in types and _has_no_width(f.type, types[f.name]) for f in inferred)
    if pt.is_integer(inferred):
        return pt.is_integer(declared) or pt.is_floating(declared) or pt.is_decimal(declared)
    if pt.is_timestamp(inferred):
        return (
            pt.is_timestamp(declared)
            and inferred.unit == declared.unit
            and (inferred.tz is None) == (declared.tz is None)
        )
    return any(same(inferred) and same(declared) for same in _SORTS)


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
    """The type with decimals in place of integers. Arrow refuses a fraction for a decimal, and cuts it for an
    integer."""
    if pt.is_integer(kind):
        return pa.decimal128(38)
    if pt.is_struct(kind):
        return pa.struct([f.with_type(_exact(f.type)) for f in kind])
    if pt.is_map(kind):
        return pa.map_(kind.key_type, _exact(kind.item_type))
    return pa.list_(_exact(kind.value_type)) if is_list(kind) else kind
