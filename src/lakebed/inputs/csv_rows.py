"""Rows of CSV texts: columns of known types, an empty field is null, errors with line and column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.csv

from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.inputs.python_rows import type_of
from lakebed.wording import count_text

Opened = Callable[[], AbstractContextManager[Any]]

_NO_VALUE = re.compile(r"CSV column #(\d+): [^']*'(.*)'", re.DOTALL)
_OTHER_LENGTH = re.compile(r"Expected \d+ columns, got \d+")
_DELIMITERS = (";", "\t", "|", ",")
_BLOCK_BYTES = 8 << 20
# The header ends within so many bytes.
_HEADER_BYTES = 1 << 20


def read_csv_rows(data: bytes, name: str, types: Mapping[str, pa.DataType], delimiter: str | None) -> pa.Table:
    """All rows of the text. Columns of `types` (in any case) have these types, others those that Arrow infers.

    Raises `InvalidRecord` with the file (`name`), line and column of what does not fit.
    """
    mark = _mark(name, delimiter)
    plain = _types_by_header(data[:_HEADER_BYTES], types, mark)
    _refuse_open_quote(data, name, mark)
    try:
        table = pyarrow.csv.read_csv(pa.BufferReader(data), **_options(plain, mark))
        texts = _texts_with_nulls(table)
        if texts:
            full = pyarrow.csv.read_csv(pa.BufferReader(data), **_options(plain, mark, texts))
            table = _with_texts(table, full)
    except pa.ArrowInvalid as error:
        _refuse_other_encodings(data, name)
        raise _csv_error(_text(data), name, mark, plain, str(error)) from error
    if delimiter is None:
        _check_delimiter(name, table.column_names)
    return table


def csv_schema(opened: Opened, name: str, types: Mapping[str, pa.DataType], delimiter: str | None) -> pa.Schema:
    """The columns of a text that is too long for memory; types that are not in `types` are those of its first 8 MiB."""
    mark = _mark(name, delimiter)
    with ExitStack() as files:
        schema = _open_csv(files, opened, name, _options(_types_by_header(_head(opened), types, mark), mark)).schema
    if delimiter is None:
        _check_delimiter(name, schema.names)
    return schema


def csv_batches(
    opened: Opened, name: str, types: Mapping[str, pa.DataType], delimiter: str | None
) -> Iterator[pa.RecordBatch]:
    """The rows of such a text, in batches; `opened` opens it."""
    mark = _mark(name, delimiter)
    plain = _types_by_header(_head(opened), types, mark)
    with ExitStack() as files:
        reader = _open_csv(files, opened, name, _options(plain, mark))
        texts: Iterator[pa.RecordBatch] | None = None
        try:
            for number, batch in enumerate(reader):
                if texts is None and _texts_with_nulls(batch):
                    names = [field.name for field in batch.schema if pa.types.is_string(field.type)]
                    texts = islice(_open_csv(files, opened, name, _options(plain, mark, names)), number, None)
                yield batch if texts is None else _with_texts(batch, next(texts))
        except pa.ArrowInvalid as error:
            # Arrow inferred the type of a column from the rows before
            more = "" if _NO_VALUE.search(str(error)) is None else ", or create the table with the column's type first"
            raise _unreadable(name, str(error), more) from error


def _mark(name: str, delimiter: str | None) -> str:
    mark = delimiter or ("\t" if is_tab_separated(name) else ",")
    if len(mark) != 1:
        raise InvalidOption(f"the delimiter {mark!r} is not one character")
    return mark


def _head(opened: Opened) -> bytes:
    with opened() as stream:
        return stream.read(_HEADER_BYTES)


def _open_csv(files: ExitStack, opened: Opened, name: str, options: Mapping[str, Any]) -> Any:
    read = pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES)
    try:
        return pyarrow.csv.open_csv(files.enter_context(opened()), **options, read_options=read)
    except pa.ArrowInvalid as error:
        raise _unreadable(name, str(error)) from error


def _types_by_header(head: bytes, types: Mapping[str, pa.DataType], mark: str) -> dict[str, pa.DataType]:
    """The types of the columns as the header names them, which may be in another case than the table."""
    kinds = {name: type_of(name, types) for name in next(csv.reader(_text(head), delimiter=mark), [])}
    return {name: kind for name, kind in kinds.items() if kind is not None and not pa.types.is_nested(kind)}


def _text(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", errors="replace", newline="")


def _refuse_open_quote(data: bytes, name: str, mark: str) -> None:
    """Raise `InvalidRecord` where a quote is opened and never closed: all lines after it would be one value."""
    if data.count(b'"') % 2 == 0:
        return
    reader = csv.reader(_text(data), delimiter=mark, strict=True)
    line = 1
    try:
        for _ in reader:
            line = reader.line_num + 1
    except csv.Error as error:
        if "end of data" in str(error):
            raise InvalidRecord(
                f"{name}, line {line}: a quote is opened and never closed",
                hint="close it; a quote within a value in quotes is written twice",
                context={"line": line},
            ) from None


def _refuse_other_encodings(data: bytes, name: str) -> None:
    """Raise `InvalidRecord` where the text is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidRecord(
            f"{name}, line {line}: the byte 0x{data[error.start]:02x} is not UTF-8",
            hint="save the file as UTF-8, for example with iconv -f latin1 -t utf-8",
            context={"line": line},
        ) from None


def _texts_with_nulls(rows: pa.Table | pa.RecordBatch) -> list[str]:
    """The columns of text that have nulls: some of these may be NA, null or nan in the file."""
    if len(set(rows.schema.names)) < len(rows.schema):
        return []  # such a file is refused
    return [
        field.name
        for at, field in enumerate(rows.schema)
        if pa.types.is_string(field.type) and rows.column(at).null_count
    ]


def _with_texts(rows: Any, texts: Any) -> Any:
    """The rows with columns of text in which an empty field alone is null."""
    for field in texts.schema:
        if pa.types.is_string(rows.schema.field(field.name).type):
            rows = rows.set_column(rows.schema.get_field_index(field.name), field, texts.column(field.name))
    return rows


def is_tab_separated(name: str) -> bool:
    """Whether the file's name says that tabs separate its fields."""
    return ".tsv" in name.lower().rpartition("/")[2]


def _options(types: Mapping[str, pa.DataType], mark: str, texts: Sequence[str] | None = None) -> dict[str, Any]:
    """How Arrow reads the text: all columns, where NA, null and the like are null; or `texts` alone, where they are
    texts."""
    if texts is None:
        column_options: dict[str, Any] = {"column_types": types}
    else:
        column_options = {
            "column_types": dict.fromkeys(texts, pa.string()),
            "include_columns": texts,
            "null_values": [""],
        }
    return {
        "convert_options": pyarrow.csv.ConvertOptions(
            **column_options, strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
        "parse_options": pyarrow.csv.ParseOptions(delimiter=mark, newlines_in_values=True),
    }


def _csv_error(
    text: io.TextIOWrapper, path: str, delimiter: str, types: Mapping[str, pa.DataType], message: str
) -> InvalidRecord:
    """Arrow's error with the line and the column's name, where the line is found."""
    value, length = _NO_VALUE.search(message), _OTHER_LENGTH.search(message)
    reader = csv.reader(text, delimiter=delimiter)
    header = next(reader, [])
    line = reader.line_num + 1
    for row in reader:
        if value and len(row) == len(header) and row[int(value[1])] == value[2]:
            column = header[int(value[1])]
            kind = str(types.get(column, "value of the column's type"))
            return InvalidRecord(
                f"{path}, line {line}, column {column}: {value[2]!r} is no {kind}",
                hint="correct the value, or leave the field empty for null",
                context={"line": line, "column": column, "type": kind},
            )
        if length and row and len(row) != len(header):
            return InvalidRecord(
                f"{path}, line {line}: {count_text(len(row), 'field')}, the header has {len(header)}",
                hint='correct the line; a value that holds the delimiter is written in "quotes"',
                context={"line": line},
            )
        line = reader.line_num + 1
    return _unreadable(path, message)


def _unreadable(path: str, message: str, more: str = "") -> InvalidRecord:
    return InvalidRecord(f"{path} cannot be read: {message}", hint=f"correct the file, or cast the column{more}")


def _check_delimiter(path: str, names: Sequence[str]) -> None:
    """Refuse a file that seems to have another delimiter: all its columns would be read as one."""
    symbol = next((mark for mark in _DELIMITERS if len(names) == 1 and mark in names[0]), None)
    if symbol is not None:
        named = f"give the separator of its fields: delimiter={symbol!r}, or --delimiter {symbol!r} on the command line"
        hint = "name it .tsv" if symbol == "\t" else named
        raise InvalidOption(f"{path} has one column, {names[0]!r}", hint=hint)
