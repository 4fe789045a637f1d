"""JSON messages as rows by Arrow's reader, with a row for each message whatever the messages hold.

Arrow reads the messages joined as lines. A field with a name of this process is put into each, so that a message with
two objects, or an object that goes on in the next message, is seen.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as pt

from lakebed.errors import SchemaConflict
from lakebed.ingestion.columns import union_of, with_elements
from lakebed.ingestion.messages import (
    FAILURES,
    PART_BYTES,
    BadMessage,
    Decoded,
    NoRow,
    decode_by_halving,
    numbers_of,
    offsets_of,
    parts_of,
)
from lakebed.ingestion.source import JSON_FAILURE
from lakebed.inputs.inference import EXACT
from lakebed.inputs.json_rows import read_json_rows
from lakebed.inputs.json_tables import check_depth, read_objects
from lakebed.inputs.python_rows import of_python

_MARK = f"lakebed_{uuid.uuid4().hex}"
_PREFIX = f'{{"{_MARK}":true,'
_EMPTY_OBJECT = f'{{"{_MARK}":true'
_SEVERAL = "the message holds several JSON objects, or a part of one"
_NO_VALUE = "the message has no field with a value"
Types = Mapping[str, pa.DataType]


Needed = Callable[[pa.Table], pa.Table]


def decode_json(messages: pa.Array, types: Types, needed: Needed | None = None) -> Decoded:
    """The rows of JSON objects, one per message; `messages` are binary values. Columns of `types` have these types,
    other columns the types that Arrow infers; a column without any value has Arrow's type null (see
    `without_null_types`).

    A message that is no UTF-8, no object, several objects, that names a field twice, or that has a value that is not
    of its column's type is bad, and so are messages none of which has a field with a value. Texts that hold numbers or
    dates, and numbers without a fraction such as `1.0`, are values of such columns, as in JSON files. `needed` makes
    the columns that are needed of those of some messages: what it leaves out may have any type."""
    bad: list[BadMessage] = []
    parts: list[tuple[pa.Table, int, int]] = []
    for start, end in parts_of(messages, PART_BYTES):
        parts += _decoded(messages.slice(start, end - start), types, needed, start, bad)
    decoded = _joined(messages, parts, types, needed, bad)
    if needed is None and len(decoded.numbers) and not without_null_types(decoded.rows).num_columns:
        bad += [BadMessage(number, JSON_FAILURE, _NO_VALUE) for number in decoded.numbers.tolist()]
        decoded = Decoded(pa.table({}), np.zeros(0, np.int64), bad)
    bad.sort()
    return decoded


def _decoded(
    part: pa.Array, types: Types, needed: Needed | None, first: int, bad: list[BadMessage]
) -> list[tuple[pa.Table, int, int]]:
    def cut(rows: pa.Table) -> pa.Table:
        return rows if needed is None else needed(rows)

    try:
        return [(cut(_rows(part, types, as_float=True)), first, first + len(part))]
    except FAILURES:
        return decode_by_halving(
            part, lambda m: cut(_rows(m, types)), lambda m: cut(_one_row(m, types)), first, bad, JSON_FAILURE
        )


def _rows(messages: pa.Array, types: Types, *, as_float: bool = False) -> pa.Table:
    """A row for each message. With `as_float` columns of whole numbers may be written with a fraction of 0 in all
    messages."""
    data = _marked(messages)
    if any(map(_is_read_by_value, types.values())):
        return _by_values(data, len(messages), types)
    texts = {name: pa.string() if pt.is_date(kind) or pt.is_time(kind) else kind for name, kind in types.items()}
    attempts: list[dict[str, pa.DataType]] = [texts]
    if texts != dict(types):
        attempts.append(dict(types))
    if as_float and any(map(pt.is_integer, types.values())):
        attempts.append({name: pa.float64() if pt.is_integer(kind) else kind for name, kind in texts.items()})
    for number, attempt in enumerate(attempts):
        try:
            return _typed(_read(data, len(messages), attempt, types), types)
        except (pa.ArrowException, ValueError):
            if number == len(attempts) - 1:
                raise
    raise AssertionError("there is an attempt")


def _marked(messages: pa.Array) -> pa.Buffer:
    """The messages as lines, each with the mark as its first field. Raises an error if a message is not UTF-8 or not an
    object."""
    data = messages.buffers()[2]
    if data is not None:
        ends = offsets_of(messages)
        check_depth(data.slice(int(ends[0]), int(ends[-1] - ends[0])))
    texts = messages.cast(pa.string())
    if not pc.all(pc.starts_with(texts, pattern='{"')).as_py():
        texts = pc.ascii_ltrim_whitespace(pc.utf8_ltrim(texts, "\ufeff"))
        if not pc.all(pc.starts_with(texts, pattern="{")).as_py():
            raise NoRow("the message is no JSON object")
        empty = pc.match_substring_regex(texts, r"^\{\s*\}")
        if pc.any(empty).as_py():
            full = pc.binary_replace_slice(texts.cast(pa.binary()), start=0, stop=1, replacement=_EMPTY_OBJECT)
            prefixed = pc.binary_replace_slice(texts.cast(pa.binary()), start=0, stop=1, replacement=_PREFIX)
            return _lines(pc.if_else(empty, full, prefixed))
    return _lines(pc.binary_replace_slice(texts.cast(pa.binary()), start=0, stop=1, replacement=_PREFIX))


def _lines(values: pa.Array) -> pa.Buffer:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    lines = pc.binary_join_element_wise(values, pa.scalar(b"", values.type), pa.scalar(b"\n", values.type))
    _, offsets, data = lines.buffers()
    assert data is not None
    assert offsets is not None
    ends = np.frombuffer(offsets, np.int32 if lines.type == pa.binary() else np.int64)
    start, end = int(ends[lines.offset]), int(ends[lines.offset + len(lines)])
    return data.slice(start, end - start)


def _read(data: pa.Buffer, count: int, schema: Types, types: Types) -> pa.Table:
    """The lines as a table that Arrow reads. A name that differs only in case from a column of `types` is that
    column."""
    rows = _arrow_read(data, schema)
    lower = {name.lower(): name for name in types}
    cased = {name: lower[name.lower()] for name in rows.column_names if name not in types and name.lower() in lower}
    if cased:
        other_types = {name: kind for name, kind in schema.items() if name not in cased.values()}
        rows = _arrow_read(data, {**other_types, **{name: schema[column] for name, column in cased.items()}})
        rows = _named(rows, types)
    if rows.num_rows != count or _MARK not in rows.column_names or rows.column(_MARK).null_count:
        raise NoRow(_SEVERAL)
    return rows.drop_columns([_MARK])


def _arrow_read(data: pa.Buffer, types: Types) -> pa.Table:
    return read_objects(data, types, pj.ReadOptions(block_size=data.size + 1, use_threads=False))


def _typed(rows: pa.Table, types: Types) -> pa.Table:
    """The rows with columns of `types` in their types. Raises an error for a value that does not fit."""
    for at, name in enumerate(rows.column_names):
        kind, column = types.get(name), rows.column(name)
        if kind is None or (kind := _with_new_fields(kind, column.type)).equals(column.type):
            continue
        if pt.is_integer(kind) and pt.is_floating(column.type):
            largest = pc.max(pc.abs(column)).as_py()
            if largest is not None and largest >= EXACT:
                raise NoRow(f"column {name} has whole numbers that are written with a fraction and are not exact")
        rows = rows.set_column(at, name, column.cast(kind))
    return rows


def _with_new_fields(kind: pa.DataType, read: pa.DataType) -> pa.DataType:
    """The type of a column with the additional fields that structs have in its messages."""
    if pt.is_struct(kind) and pt.is_struct(read):
        types = {field.name: field.type for field in kind}
        fields = [
            field.with_type(_with_new_fields(types[field.name], field.type)) if field.name in types else field
            for field in read
        ]
        return pa.struct(fields)
    if pt.is_list(kind) and pt.is_list(read):
        inner = _with_new_fields(kind.value_type, read.value_type)
        return kind if inner.equals(kind.value_type) else pa.list_(kind.value_field.with_type(inner))
    return kind


def _one_row(message: pa.Array, types: Types) -> pa.Table:
    """The row of one message, read value by value in Python; raises the reason if it is not valid."""
    data = _marked(message)
    try:
        _read(data, 1, {}, {})
    except pa.ArrowException as error:
        # values of several types in one list may suit a column, and the value names the column of too great a number
        if not any(text in str(error) for text in ("changed from", "Number too big")):
            raise NoRow(str(error).replace("JSON parse error: ", "").replace(" in row 0", "")) from error
    return _by_values(data, 1, types)


def _by_values(data: pa.Buffer, count: int, types: Types) -> pa.Table:
    """A row for each marked message by the values of Python, for types that Arrow does not read from JSON."""
    parsed = read_json_rows(data.to_pybytes(), "the message", types)
    rows: pa.Table = parsed if isinstance(parsed, pa.Table) else of_python(parsed, types)
    marks = rows.column(_MARK) if _MARK in rows.column_names else None
    if marks is None or rows.num_rows != count or marks.null_count:
        raise NoRow(_SEVERAL)
    return _named(rows.drop_columns([_MARK]), types)


def _named(rows: pa.Table, types: Types) -> pa.Table:
    """The rows with the names of `types` in place of names that differ only in case."""
    lower = {name.lower(): name for name in types}
    names = [name if name in types else lower.get(name.lower(), name) for name in rows.column_names]
    if len(set(names)) < len(names):
        raise NoRow("fields differ in the case of their names alone")
    return rows.rename_columns(names)


def _is_read_by_value(kind: pa.DataType) -> bool:
    """Whether Arrow reads values of the type in another form, or not at all: in these files maps are objects, and
    binary values base64."""
    if pt.is_struct(kind):
        return any(_is_read_by_value(field.type) for field in kind)
    if pt.is_list(kind) or pt.is_large_list(kind):
        return _is_read_by_value(kind.value_type)
    return pt.is_map(kind) or pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)


def _joined(
    messages: pa.Array,
    parts: list[tuple[pa.Table, int, int]],
    types: Types,
    needed: Needed | None,
    bad: list[BadMessage],
) -> Decoded:
    """All parts as one table. A column that is text in one part and of another type in another part is text in all
    parts that have values."""
    tables = [rows for rows, _, _ in parts]
    try:
        try:
            rows = union_of(tables) if tables else pa.table({})
        except SchemaConflict:  # `{}` in one part and `[]` in another, neither of which has a value
            tables = [without_null_types(part) for part in tables]
            rows = union_of(tables)
    except SchemaConflict:
        disputed = disputed_types(tables, types)
        if not disputed:
            raise
        again: list[tuple[pa.Table, int, int]] = []
        for _, start, end in parts:
            again += _decoded(messages.slice(start, end - start), {**types, **disputed}, needed, start, bad)
        return _joined(messages, again, {**types, **disputed}, needed, bad)
    numbers = numbers_of(parts)
    order = np.argsort(numbers, kind="stable")
    if len(numbers) and (order[1:] < order[:-1]).any():
        rows, numbers = rows.take(order), numbers[order]
    return Decoded(rows, numbers, bad)


def disputed_types(tables: list[pa.Table], types: Types) -> dict[str, pa.DataType]:
    """The columns whose types in two of the tables are incompatible, with the common type that all get: columns without
    a declared type, and columns of `types` that have new fields inside."""
    columns: dict[str, list[pa.ChunkedArray]] = {}
    spelling = {name.lower(): name for name in types}
    for table in tables:
        for name in table.column_names:
            columns.setdefault(spelling.setdefault(name.lower(), name), []).append(table.column(name))
    disputed: dict[str, pa.DataType] = {}
    for name, parts in columns.items():
        try:
            union_of([pa.table({name: part}) for part in parts])
        except SchemaConflict:
            kind = _common_type([part.type for part in parts])
            if name not in types or not kind.equals(types[name]):
                disputed[name] = kind
    return disputed


def _common_type(kinds: list[pa.DataType]) -> pa.DataType:
    """The common type: text if one is text or times are of two kinds, whole numbers if one is beyond the exact range of
    floating-point numbers; also in lists and structs. Otherwise the first type."""
    kinds = [kind for kind in kinds if not pt.is_null(kind)] or kinds
    first = kinds[0]
    if pt.is_list(first):
        return pa.list_(first.value_field.with_type(_common_type([k.value_type for k in kinds if pt.is_list(k)])))
    if pt.is_struct(first):
        fields: dict[str, list[pa.DataType]] = {}
        for field in (field for kind in kinds if pt.is_struct(kind) for field in kind):
            fields.setdefault(field.name, []).append(field.type)
        return pa.struct([(name, _common_type(parts)) for name, parts in fields.items()])
    if len(set(kinds)) > 1 and any(pt.is_string(kind) or pt.is_timestamp(kind) for kind in kinds):
        return pa.string()
    for is_whole in (pt.is_decimal, pt.is_integer):
        if wholes := [kind for kind in kinds if is_whole(kind)]:
            return max(wholes, key=lambda kind: kind.precision if pt.is_decimal(kind) else 0)
    return first


def without_null_types(rows: pa.Table) -> pa.Table:
    """The rows without those columns, and fields of structs, that have no value and therefore no type."""
    columns: dict[str, Any] = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        kind = _without_nulls(column.type)
        if kind is not None:
            columns[name] = pa.chunked_array([_cut_array(chunk, kind) for chunk in column.chunks], kind)
    return pa.table(columns) if columns else rows.select([])


def _without_nulls(kind: pa.DataType) -> pa.DataType | None:
    if pt.is_null(kind):
        return None
    if pt.is_struct(kind):
        fields = [(field, _without_nulls(field.type)) for field in kind]
        typed_fields = [pa.field(field.name, inner, field.nullable) for field, inner in fields if inner is not None]
        return pa.struct(typed_fields) if typed_fields else None
    if pt.is_list(kind):
        inner = _without_nulls(kind.value_type)
        return None if inner is None else pa.list_(pa.field(kind.value_field.name, inner))
    return kind


def _cut_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if pt.is_struct(kind):
        children = [_cut_array(pc.struct_field(array, field.name), field.type) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=pc.is_null(array))
    return with_elements(array, _cut_array(array.flatten(), kind.value_type)).cast(kind)
