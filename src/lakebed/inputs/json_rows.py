"""Rows of a JSON text: an object a line, objects over several lines, or an array of objects. Columns that a table has
get its types; columns that no object names are not in the rows.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import time
from decimal import Decimal
from math import isinf
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as pt

from lakebed.errors import InvalidRecord
from lakebed.inputs.encodings import check_text
from lakebed.inputs.json_tables import check_depth, read_objects
from lakebed.schema.arrow import list_of
from lakebed.schema.assignment import check_finite
from lakebed.schema.logical_types import is_encoded, is_variant, is_vector

Rows = pa.Table | list[dict[str, Any]]

_MARKS = re.compile(r"[\s,]*")
_FAILURES = (pa.ArrowException, TypeError, ValueError, OverflowError)


def read_json_rows(data: bytes, name: str, types: Mapping[str, pa.DataType], *, partial: bool = False) -> Rows:
    """The objects of the text as rows: a table, or dicts with values of these types if Arrow cannot read them.

    In columns of `types` (a table's, by name) lists are vectors, values of any kind are variants, texts that hold
    numbers, dates or times are such values, numbers are texts where the column is one, and binary values are base64.
    With `partial` rows that have nulls are dicts, which tell a null from a column that the object lacks.

    Raises `InvalidRecord` with the file (`name`) and line of what is no JSON, or with the row, column and value that do
    not fit.
    """
    check_text(data, name)
    types = {name: list_of(kind.value_type) if is_vector(kind) else kind for name, kind in types.items()}
    types = {**{name.lower(): kind for name, kind in types.items()}, **types}
    table = lines = None
    try:
        check_depth(data)
        if data.lstrip()[:1] == b"{":
            table = _by_arrow(data, types)
        if table is None:
            lines = _lines(data, name)
            table = _by_arrow("\n".join(lines).encode(), types)
        if table is None or (partial and any(map(_has_nulls, table.columns))):
            return _by_values([_object(line, at) for at, line in enumerate(lines or _lines(data, name))], types)
        return table
    except InvalidRecord as error:
        if error.message.startswith(name):
            raise
        raise InvalidRecord(f"{name}: {error.message}", hint=error.hint, context=error.context) from None


def names_of_json(data: bytes, name: str) -> list[str]:
    """The names of the columns in the text. Raises `InvalidRecord` for what is no JSON."""
    check_text(data, name)
    with suppress(pa.ArrowException, InvalidRecord):
        check_depth(data)
        if data.lstrip()[:1] == b"{":
            return pj.read_json(pa.BufferReader(data)).column_names
    return list(dict.fromkeys(column for line in _lines(data, name) for column in _object(line, 0)))


def _type_of(name: str, types: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """The type of the column, whose name may be given in another case; None if it is not in `types`."""
    return types.get(name) or types.get(name.lower())


def _by_arrow(source: bytes, types: Mapping[str, pa.DataType]) -> pa.Table | None:
    """The rows of a text with an object on each line, read by Arrow. None if Arrow cannot read it, or would change
    values."""
    readable = {name: kind for name, kind in types.items() if not _is_read_by_value(kind)}
    try:
        table = read_objects(pa.py_buffer(source), readable)
        cased = {name: kind for name in table.column_names if (kind := _type_of(name, types)) is not None}
        if not cased.keys() <= types.keys():  # a name in another case has the type of the table's column, too
            readable |= cased
            table = read_objects(pa.py_buffer(source), readable)
        filled = {
            name: kind
            for name, readable_type in readable.items()
            if (kind := _filled(table.column(name), readable_type))
        }
        if filled != readable:
            # of an explicit schema Arrow makes all columns and fields: those that the text names are there without, too
            read_schema = read_objects(pa.py_buffer(source), filled).schema
            named = {
                name: _named(readable[name], read_schema.field(name).type)
                for name in readable
                if name in read_schema.names
            }
            columns = [name for name in table.column_names if name in read_schema.names]
            if any(kind != readable[name] for name, kind in named.items()):
                table = read_objects(pa.py_buffer(source), named)
            table = table.select(columns)
    except pa.ArrowException:
        return None
    return None if any(_is_read_by_value(_type_of(name, types)) for name in table.column_names) else table


def _filled(column: pa.ChunkedArray, kind: pa.DataType) -> pa.DataType | None:
    """The type without the fields of structs that have no value in any row; None if the column has no value."""
    if column.null_count == len(column):
        return None
    if pt.is_struct(kind):
        parts = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
        kinds = ((field, _filled(parts[field.name], field.type)) for field in kind)
        return pa.struct([field.with_type(part) for field, part in kinds if part is not None])
    if _is_list(kind) and len(items := pc.list_flatten(column)):
        part = _filled(items, kind.value_type)
        return kind if part is None else pa.list_(kind.value_field.with_type(part))
    return kind


def _named(kind: pa.DataType, observed: pa.DataType) -> pa.DataType:
    """The type without those fields of structs that are not in `observed`, the type of the fields in the text."""
    if pt.is_struct(kind) and pt.is_struct(observed):
        parts = {field.name: field.type for field in observed}
        return pa.struct([f.with_type(_named(f.type, parts[f.name])) for f in kind if f.name in parts])
    if _is_list(kind) and _is_list(observed):
        return pa.list_(kind.value_field.with_type(_named(kind.value_type, observed.value_type)))
    return kind


def _has_nulls(column: pa.ChunkedArray) -> bool:
    """Whether a value of the column, or a field in one, is null."""
    if column.null_count:
        return True
    if pt.is_struct(column.type):
        return any(map(_has_nulls, column.flatten()))
    return _is_list(column.type) and _has_nulls(pc.list_flatten(column))


def _is_read_by_value(kind: pa.DataType | None) -> bool:
    """Whether Arrow reads values of the type in another form, or not at all: in these files maps are objects, and
    binary values base64."""
    if kind is None:
        return False
    if pt.is_struct(kind):
        return any(_is_read_by_value(field.type) for field in kind)
    return pt.is_map(kind) or _is_binary(kind) or (_is_list(kind) and _is_read_by_value(kind.value_type))


def _is_binary(kind: pa.DataType) -> bool:
    return pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pt.is_list(kind) or pt.is_large_list(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_large_string(kind)


def _lines(data: bytes, path: str) -> list[str]:
    """The text of each object, on one line."""
    text = data.decode("utf-8-sig")
    at, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if text[at:end].startswith("[") and text[at:end].endswith("]"):
        at, end = at + 1, end - 1
    lines: list[str] = []
    decoder = json.JSONDecoder()
    at = _after_marks(text, at)
    while at < end:
        try:
            value, stop = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise InvalidRecord(f"{path}, line {error.lineno}: {error.msg}", hint="correct the file") from error
        except ValueError as error:  # a number of more digits than Python reads
            line = text.count("\n", 0, at) + 1
            raise InvalidRecord(f"{path}, line {line}: {error}", hint="correct the file") from error
        if not isinstance(value, dict):
            line = text.count("\n", 0, at) + 1
            raise InvalidRecord(
                f"{path}, line {line}: {text[at : min(stop, at + 40)]!r} is no JSON object",
                hint="give an object for each row: one a line, or an array of them",
            )
        # strings have no line breaks: those are between values
        lines.append(text[at:stop].replace("\r", " ").replace("\n", " "))
        at = _after_marks(text, stop)
    if not lines:
        raise InvalidRecord(f"{path} holds no JSON object", hint="give an object for each row")
    return lines


def _after_marks(text: str, at: int) -> int:
    match = _MARKS.match(text, at)
    assert match is not None
    return match.end()


class _Number(float):
    """A number with a fraction or an exponent, with its text."""

    text: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


def _object(line: str, row: int) -> dict[str, Any]:
    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidRecord(f"row {row + 1} names {twice!r} twice", hint="leave one of them out")
        return fields

    return json.loads(line, parse_float=_Number, object_pairs_hook=checked)


def _by_values(rows: Sequence[dict[str, Any]], types: Mapping[str, pa.DataType]) -> list[dict[str, Any]]:
    """The rows with values of the types; new columns get the types that Arrow infers for them alone."""
    fitted: list[dict[str, Any]] = []
    new = {name for row in rows for name in row if _type_of(name, types) is None}
    for at, row in enumerate(rows):
        _check_finite_values({name: value for name, value in row.items() if name in new}, "", at)
        values = {name: (kind, value) for name, value in row.items() if (kind := _type_of(name, types)) is not None}
        fitted.append({name: _fit(value, kind, name, at) for name, (kind, value) in values.items()})
    if new:
        texts = "\n".join(json.dumps({name: value for name, value in row.items() if name in new}) for row in rows)
        try:
            inferred = read_objects(pa.py_buffer(texts.encode()), {}).to_pylist()
        except pa.ArrowException as error:
            names = ", ".join(sorted(new))
            raise InvalidRecord(f"{names}: values of several types: {error}", hint="correct the file") from error
        for row, values, source_row in zip(fitted, inferred, rows, strict=True):
            row |= {name: values[name] for name in source_row if name in new}
    return fitted


def _check_finite_values(value: Any, column: str, row: int) -> None:
    """Raise `InvalidRecord` for a number in values of new columns that is too large for a floating-point number."""
    if isinstance(value, _Number) and isinf(value):
        raise _no_value(value, pa.float64(), column, row)
    if isinstance(value, Mapping):
        for name, item in cast("Mapping[str, Any]", value).items():
            _check_finite_values(item, f"{column}.{name}" if column else name, row)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _check_finite_values(item, column, row)


def _fit(value: Any, kind: pa.DataType, column: str, row: int) -> Any:
    """A JSON value as a value of this type. Raises `InvalidRecord` if it does not fit."""
    if value is None or (value != value and not pt.is_floating(kind) and not _is_text(kind)):
        return None
    if is_variant(kind) and not is_encoded(value):
        return json.loads(json.dumps(value, default=str))  # numbers without their texts
    if pt.is_struct(kind) and isinstance(value, Mapping):
        types = {field.name.lower(): field.type for field in kind} | {field.name: field.type for field in kind}
        return {
            name: item if (part := _type_of(name, types)) is None else _fit(item, part, f"{column}.{name}", row)
            for name, item in cast("Mapping[str, Any]", value).items()
        }
    if pt.is_map(kind):
        return [
            (_fit(key, kind.key_type, f"{column}.key", row), _fit(item, kind.item_type, f"{column}.{key}", row))
            for key, item in _entries(value, kind, column, row)
        ]
    if _is_list(kind) and isinstance(value, list):
        return [_fit(item, kind.value_type, column, row) for item in cast("list[Any]", value)]
    try:
        return _leaf(value, kind)
    except _FAILURES as error:
        raise _no_value(value, kind, column, row) from error


def _entries(value: Any, kind: pa.DataType, column: str, row: int) -> Iterable[tuple[Any, Any]]:
    """The entries of a map: an object, a list of objects with key and value, or of pairs."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).items()
    if isinstance(value, list):
        entries = cast("list[Any]", value)
        if all(
            isinstance(entry, Mapping) and set(cast("Mapping[str, Any]", entry)) == {"key", "value"}
            for entry in entries
        ):
            return [(entry["key"], entry["value"]) for entry in entries]
        if all(isinstance(entry, list) and len(cast("list[Any]", entry)) == 2 for entry in entries):
            return [(key, item) for key, item in entries]
    raise _no_value(value, kind, column, row)


def _leaf(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, list | Mapping):
        raise TypeError("nested")
    if _is_text(kind):
        return value if isinstance(value, str) else _text(value)
    if isinstance(value, str):
        return base64.b64decode(value, validate=True) if _is_binary(kind) else _parsed(value, kind)
    if isinstance(value, bool) or pt.is_boolean(kind):
        if not (isinstance(value, bool) and pt.is_boolean(kind)):
            raise TypeError("a boolean")
        return value
    if pt.is_integer(kind) and isinstance(value, float):
        number = Decimal(_text(value))
        if number != number.to_integral_value():
            raise ValueError("a fraction")
        value = int(number)
    elif pt.is_floating(kind):
        number = float(value)
        check_finite(pa.array([number], pa.float64()).cast(kind, safe=False), pa.array([_text(value)]))
        return number
    elif pt.is_decimal(kind):
        return pa.scalar(_text(value)).cast(kind).as_py()
    elif not pt.is_integer(kind) and not pt.is_date(kind):
        raise TypeError("a number")
    return pa.scalar(value, kind).as_py()


def _parsed(text: str, kind: pa.DataType) -> Any:
    if pt.is_time(kind):
        return time.fromisoformat(text)
    texts = pa.array([text])
    values = texts.cast(kind)
    if pt.is_floating(kind):
        check_finite(values, texts)
    return values[0].as_py()


def _text(value: Any) -> str:
    return value.text if isinstance(value, _Number) else json.dumps(value)


def _no_value(value: Any, kind: pa.DataType, column: str, row: int) -> InvalidRecord:
    text = _text(value)
    return InvalidRecord(
        f"row {row + 1}, column {column}: {text if len(text) <= 60 else text[:57] + '...'} is no {kind}",
        hint="correct the value, or write null",
        context={"row": row + 1, "column": column, "type": str(kind)},
    )
