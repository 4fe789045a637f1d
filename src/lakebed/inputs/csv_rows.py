"""Rows of CSV texts: columns of known types, an empty field is null, errors with line and column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv

from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.wording import count_text

_NO_VALUE = re.compile(r"CSV column #(\d+): [^']*'(.*)'", re.DOTALL)
_OTHER_LENGTH = re.compile(r"Expected \d+ columns, got \d+")
_DELIMITERS = (";", "\t", "|", ",")
_BLOCK_BYTES = 8 << 20


def read_csv_rows(data: bytes, name: str, types: Mapping[str, pa.DataType], delimiter: str | None) -> pa.Table:
    """All rows of the text. Columns of `types` have these types, others those that Arrow infers.

    Raises `InvalidRecord` with the file (`name`), line and column of what does not fit.
    """
    mark = delimiter or ("\t" if is_tab_separated(name) else ",")
    plain, options = _options(types, mark)
    try:
        table = pyarrow.csv.read_csv(pa.BufferReader(data), **options)
    except pa.ArrowInvalid as error:
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", errors="replace", newline="")
        raise _csv_error(text, name, mark, plain, str(error)) from error
    if delimiter is None:
        _check_delimiter(name, table.column_names)
    return table


def csv_batches(
    stream: Any, name: str, types: Mapping[str, pa.DataType], delimiter: str | None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The same of a text that is too long for memory, in batches. Types that are not in `types` are those of its first
    8 MiB."""
    mark = delimiter or ("\t" if is_tab_separated(name) else ",")
    _, options = _options(types, mark)
    try:
        reader = pyarrow.csv.open_csv(stream, **options, read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES))
    except pa.ArrowInvalid as error:
        raise _unreadable(name, str(error)) from error
    if delimiter is None:
        _check_delimiter(name, reader.schema.names)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except pa.ArrowInvalid as error:
            # Arrow inferred the type of a column from the rows before
            more = "" if _NO_VALUE.search(str(error)) is None else ", or create the table with the column's type first"
            raise _unreadable(name, str(error), more) from error

    return reader.schema, batches()


def is_tab_separated(name: str) -> bool:
    """Whether the file's name says that tabs separate its fields."""
    return ".tsv" in name.lower().rpartition("/")[2]


def _options(types: Mapping[str, pa.DataType], mark: str) -> tuple[dict[str, pa.DataType], dict[str, Any]]:
    if len(mark) != 1:
        raise InvalidOption(f"the delimiter {mark!r} is not one character")
    plain = {name: kind for name, kind in types.items() if not pa.types.is_nested(kind)}
    return plain, {
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types=plain, strings_can_be_null=True, quoted_strings_can_be_null=False
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
    """Refuse a file that seems to have another one: all its columns would be one."""
    other = next((mark for mark in _DELIMITERS if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        named = f"give the separator of its fields: delimiter={other!r}, or --delimiter {other!r} on the command line"
        hint = "name it .tsv" if other == "\t" else named
        raise InvalidOption(f"{path} has one column, {names[0]!r}", hint=hint)
