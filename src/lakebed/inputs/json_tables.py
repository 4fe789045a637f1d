"""What Arrow reads of JSON objects, in types that keep their values.

Arrow by itself infers floating numbers for whole ones beyond 64 bits and local times for moments, reads a moment into a
column of local times by moving it, a local time into a column of moments as one in UTC, a number beyond a type as
infinity, and ends the process at values that are nested too deep.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as pt

from lakebed.errors import InvalidRecord
from lakebed.inputs.inference import has_decimals, has_large, integer_type, time_type
from lakebed.schema.arrow import MAX_PRECISION
from lakebed.schema.assignment import check_finite

Types = Mapping[str, pa.DataType]
# Values within values: readers, and Arrow's own functions, call themselves for each level.
_MAX_DEPTH = 100
_CHUNK_BYTES = 1 << 20
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BLANKS = re.compile(r"\s*")


def read_objects(data: pa.Buffer, types: Types, options: pj.ReadOptions | None = None) -> pa.Table:
    """The objects as a table. Columns of `types` have these types, and are in the table also if no object names them.
    Other columns have the types of their values: whole numbers that do not fit into a BIGINT are decimals; dates are
    dates; times are moments if all have an offset, local times if none has, and otherwise texts.

    Raises `ArrowInvalid` for what is no JSON or not of these types, as a time without an offset is no moment, and
    `InvalidRecord` for whole numbers without a type.
    """
    explicit = {name: _times_as_texts(kind) for name, kind in types.items()}
    rows = first = _read(data, explicit, options)
    corrected: dict[str, pa.DataType] = {}
    for name, column in zip(first.column_names, first.columns, strict=True):
        kind = _corrected(column, explicit.get(name), (data, [name]))
        if not kind.equals(column.type):
            corrected[name] = kind
    if corrected:
        rows = _read(data, {**explicit, **corrected}, options).select(first.column_names)
    for at, name in enumerate(rows.column_names):
        column = rows.column(at)
        kind = _with_times(column, types.get(name), first.schema.field(name).type)
        if not kind.equals(column.type):
            rows = rows.set_column(at, name, column.cast(kind))
    return rows


def check_depth(data: Any) -> None:
    """Raise `InvalidRecord` for values that are nested more than `_MAX_DEPTH` deep.

    >>> check_depth(b'{"a":[1]}')
    """
    if _depth(data) > _MAX_DEPTH and _depth(_STRING.sub(b"", bytes(data))) > _MAX_DEPTH:
        raise InvalidRecord(f"values are nested more than {_MAX_DEPTH} deep", hint="write the inner values as texts")


def _depth(data: Any) -> int:
    """The nesting depth of brackets, including those in texts."""
    depth = deepest = 0
    view = np.frombuffer(data, np.uint8)
    for start in range(0, len(view), _CHUNK_BYTES):
        folded = view[start : start + _CHUNK_BYTES] | 0x20
        steps = (folded == ord("{")).view(np.int8) - (folded == ord("}")).view(np.int8)
        depths = np.cumsum(steps, dtype=np.int32)
        deepest = max(deepest, depth + int(depths.max()))
        depth += int(depths[-1])
    return deepest


def _read(data: pa.Buffer, types: Types, options: pj.ReadOptions | None) -> pa.Table:
    rows = _read_as(data, types, options)
    short = {f.name: f.type for f, c in zip(rows.schema, rows.columns, strict=True) if any(map(_is_short, c.chunks))}
    if short:
        rows = _read_as(data, {**types, **short}, options).select(rows.column_names)
    for column in rows.columns:
        if has_decimals(column.type):
            column.validate(full=True)  # Arrow's readers take more digits than the type has
    for name in rows.column_names:
        for kind, path in _infinite(rows.column(name), [name]):
            texts = pa.array([value for value in _values(data, path, str) if isinstance(value, str)], pa.string())
            check_finite(texts.cast(kind), texts)  # which Arrow's reader does not always
    for at, field in enumerate(rows.schema):
        if any(map(_is_short, rows.column(at).chunks)):
            chunks = [_with_all_nulls(chunk) for chunk in rows.column(at).chunks]
            rows = rows.set_column(at, field, pa.chunked_array(chunks, field.type))
    return rows


def _infinite(column: Any, path: list[str | None]) -> Iterator[tuple[pa.DataType, list[str | None]]]:
    """Yields the type and the path of each floating-point column inside a column in which a value is infinite. In a
    path None stands for the elements of a list."""
    kind = column.type
    if pt.is_struct(kind):
        for field, part in zip(kind, column.flatten(), strict=True):
            yield from _infinite(part, [*path, field.name])
    elif pt.is_list(kind):
        yield from _infinite(pc.list_flatten(column), [*path, None])
    elif pt.is_floating(kind) and pc.any(pc.is_inf(column)).as_py():
        yield kind, path


def _read_as(data: pa.Buffer, types: Types, options: pj.ReadOptions | None) -> pa.Table:
    parse = pj.ParseOptions(explicit_schema=pa.schema(list(types.items())))
    return pj.read_json(pa.BufferReader(data), read_options=options, parse_options=parse)


def _is_short(array: pa.Array) -> bool:
    """Whether an array of Arrow has lists with fewer elements than they count: Arrow loses nulls before the first value
    of a list whose type it infers, and those of lists without any value."""
    if pt.is_struct(array.type):
        return any(_is_short(array.field(at)) for at in range(array.type.num_fields))
    if not pt.is_list(array.type):
        return False
    return len(array.values) < array.offsets[-1].as_py() or _is_short(array.values)


def _with_all_nulls(array: pa.Array) -> pa.Array:
    """The array with as many elements as its lists count, if they have no value."""
    kind = array.type
    if not _is_short(array):
        return array
    if pt.is_struct(kind):
        fields = [_with_all_nulls(array.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    elements = pa.nulls(array.offsets[-1].as_py()) if pt.is_null(kind.value_type) else _with_all_nulls(array.values)
    return pa.ListArray.from_arrays(array.offsets, elements, type=kind, mask=array.is_null())


def _times_as_texts(kind: pa.DataType) -> pa.DataType:
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_times_as_texts(field.type)) for field in kind])
    if pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_times_as_texts(kind.value_type)))
    return pa.string() if pt.is_timestamp(kind) else kind


def _part(kind: pa.DataType | None, name: str | None) -> pa.DataType | None:
    """The type of a field, or of the elements (`name` None); None if the type does not have it."""
    if kind is not None and pt.is_list(kind) and name is None:
        return kind.value_type
    if kind is None or name is None or not pt.is_struct(kind) or kind.get_field_index(name) < 0:
        return None
    return kind.field(name).type


def _corrected(column: Any, explicit: pa.DataType | None, source: tuple[pa.Buffer, list[str | None]]) -> pa.DataType:
    """The type with which a column, or a part of it, is read again: texts for times, and a type that can hold the whole
    numbers."""
    kind, (data, path) = column.type, source
    if pt.is_struct(kind):
        parts = zip(kind, column.flatten(), strict=True)
        fields = [f.with_type(_corrected(p, _part(explicit, f.name), (data, [*path, f.name]))) for f, p in parts]
        return pa.struct(fields)
    if pt.is_list(kind):
        items = pc.list_flatten(column)
        inner = _corrected(items, _part(explicit, None), (data, [*path, None]))
        return pa.list_(kind.value_field.with_type(inner))
    if explicit is None and pt.is_timestamp(kind):
        return pa.string()
    if explicit is None and pt.is_floating(kind) and has_large(column):
        return _number_type(_values(data, path), ".".join(name or "element" for name in path)) or kind
    return kind


def _with_times(column: Any, explicit: pa.DataType | None, first: pa.DataType | None) -> pa.DataType:
    """The type of a column, or of a part of it, with times in place of texts that were read for them."""
    kind = column.type
    if pt.is_struct(kind):
        parts = zip(kind, column.flatten(), strict=True)
        return pa.struct([f.with_type(_with_times(p, _part(explicit, f.name), _part(first, f.name))) for f, p in parts])
    if pt.is_list(kind):
        inner = _with_times(pc.list_flatten(column), _part(explicit, None), _part(first, None))
        return pa.list_(kind.value_field.with_type(inner))
    if explicit is not None:
        return explicit if pt.is_timestamp(explicit) else kind
    return time_type(column) if first is not None and pt.is_timestamp(first) else kind


class _Fraction(float):
    """A number with a fraction or an exponent."""


def _values(data: pa.Buffer, path: list[str | None], fraction: Callable[[str], Any] = _Fraction) -> Iterator[Any]:
    """The numbers of a column, or of a field in it: texts of digits for whole numbers, the result of `fraction` for
    others."""
    decoder = json.JSONDecoder(parse_int=str, parse_float=fraction)
    text = data.to_pybytes().decode("utf-8-sig")
    at = _end_of_blanks(text, 0)
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except ValueError as error:
            raise pa.ArrowInvalid(str(error)) from error
        yield from _inside(value, path)
        at = _end_of_blanks(text, at)


def _end_of_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()


def _inside(value: Any, path: list[str | None]) -> Iterator[Any]:
    if not path:
        yield value
    elif path[0] is None and isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _inside(item, path[1:])
    elif isinstance(value, dict) and path[0] in value:
        yield from _inside(cast("dict[Any, Any]", value)[path[0]], path[1:])


def _number_type(values: Iterable[Any], name: str) -> pa.DataType | None:
    """The type that can hold all values of a column with large numbers; None for floating-point numbers."""
    digits, has_fractions, is_inexact = 0, False, False
    for value in values:
        if isinstance(value, str):
            digits = max(digits, len(value.lstrip("-")))
            is_inexact = is_inexact or digits > MAX_PRECISION or int(float(value)) != int(value)
        else:
            has_fractions = has_fractions or isinstance(value, _Fraction)
    if has_fractions and not is_inexact:
        return None
    if has_fractions or digits > MAX_PRECISION:
        problem = (
            "fractions and whole numbers that DOUBLE does not keep" if has_fractions else f"numbers of {digits} digits"
        )
        raise InvalidRecord(
            f"column {name} has {problem}",
            hint="write the numbers as texts, or create the table with the column's type first",
            context={"column": name},
        )
    return integer_type(digits)
