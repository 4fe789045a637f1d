"""Rows of CSV texts: columns of known types or of those that the values have, an empty field is null, errors with line
and column.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.types as pt

from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.inputs.column_names import AS_IN_THE_FILE, ColumnNames
from lakebed.inputs.date_formats import DateFormat, DateTexts, date_columns, is_temporal
from lakebed.inputs.encodings import UTF8, check_stream, check_text
from lakebed.inputs.inference import FloatingNumbers, NumberTexts, integers_of_texts
from lakebed.schema.assignment import check_finite
from lakebed.wording import count_text

Opened = Callable[[], AbstractContextManager[Any]]


class _Refused(Exception):
    """Carries Arrow's error out of the block that opens a text, which turns Arrow's errors into storage errors."""


_COLUMN = re.compile(r"CSV column #(\d+)")
_NO_VALUE = re.compile(r"CSV column #(\d+): [^']*'(.*)'", re.DOTALL)
_OTHER_LENGTH = re.compile(r"Expected \d+ columns, got \d+")
_DELIMITERS = (";", "\t", "|", ",")
_BLOCK_BYTES = 8 << 20
# The header ends within so many bytes.
_HEADER_BYTES = 1 << 20
# A hexadecimal number, or a zero that begins a number of several digits: not that of a time or a fraction.
_HEX_OR_ZERO = re.compile(rb"0[xX]|[^0-9A-Za-z.:/+-]0[0-9]")
# What a column is read as where it has a value that is not of the type of the values before.
_WIDER = {pa.null(): pa.int64(), pa.int64(): pa.float64()}


@dataclass(frozen=True)
class TextSettings:
    """How a caller wants the texts of CSV and JSON files to be read: the character between fields, the form of dates,
    and the names of columns."""

    delimiter: str | None = None
    dates: DateFormat | None = None
    names: ColumnNames = AS_IN_THE_FILE


def csv_text(data: bytes, name: str, types: Mapping[str, pa.DataType], settings: TextSettings) -> CsvText:
    """The text of a file that is in memory. Raises `InvalidRecord` if it is not UTF-8, or a quote stays open."""
    check_text(data, name)
    if not data.endswith((b"\n", b"\r")):
        data += b"\n"  # Arrow takes a header without a line end for no header
    _refuse_open_quote(data, name, mark_of(name, settings.delimiter))
    return CsvText(lambda: pa.BufferReader(data), name, types, settings, len(data) + 1)


def mark_of(name: str, delimiter: str | None) -> str:
    """The character between the fields of a file."""
    mark = delimiter or ("\t" if ".tsv" in name.lower().rpartition("/")[2] else ",")
    if len(mark) != 1:
        raise InvalidOption(f"the delimiter {mark!r} is not one character")
    return mark


def guessed_delimiter(opened: Opened, name: str) -> str | None:
    """The character between the fields of a file whose header is a single column that holds such a character, so that
    all columns would be read as one; None where the file's ending is right."""
    names, _, _ = _first_rows(opened, mark_of(name, None))
    return next((mark for mark in _DELIMITERS if len(names) == 1 and mark in names[0]), None)


class CsvText:
    """A text of any length, which `opened` opens as UTF-8. Columns of `types` (in any case) have these types, others
    the types of their values: whole numbers that do not fit into a BIGINT are decimals, or texts.

    Methods raise `InvalidRecord` with the file (`name`), line and column of what does not fit. `zero_led` are the
    columns of whole numbers that are read as texts, since one begins with a zero, each with that one."""

    def __init__(
        self,
        opened: Opened,
        name: str,
        types: Mapping[str, pa.DataType],
        settings: TextSettings,
        block_bytes: int | None = None,
    ) -> None:
        self._opened = opened
        self._name = name
        self._block_bytes = block_bytes or _BLOCK_BYTES
        self._settings = settings
        self._mark = mark_of(name, settings.delimiter)
        self._header, self._header_lines = self._read_header()
        # all columns would be read as one
        symbol = next((mark for mark in _DELIMITERS if len(self._header) == 1 and mark in self._header[0]), None)
        if settings.delimiter is None and symbol is not None:
            option = f"delimiter={symbol!r}, or --delimiter {symbol!r} on the command line"
            hint = "name it .tsv" if symbol == "\t" else f"give the separator of its fields: {option}"
            raise InvalidOption(f"{name} has one column, {self._header[0]!r}", hint=hint)
        kinds = {column: settings.names.type_of(column, types) for column in self._header}
        self._first_types: dict[str, pa.DataType] = {}
        self._dated: frozenset[str] = frozenset()
        self.zero_led: dict[str, str] = {}
        self._types = {n: kind for n, kind in kinds.items() if kind is not None and not pt.is_nested(kind)}

    # -- types

    def schema(self) -> pa.Schema:
        """The columns. If one is not in `types`, all rows are read, since its type follows from all its values."""
        names = self._header
        if len(set(names)) < len(names):
            return pa.schema([(name, pa.null()) for name in names])  # such a file is refused
        wider: dict[str, pa.DataType] = {}
        kinds = dict(self._types)
        while len(kinds) < len(names):
            try:
                kinds |= self._inferred(wider)
            except _Refused as error:
                column = self._column_of(str(error))
                kind = None if column is None else wider.get(column) or self._first_types.get(column)
                if column is None or kind is None or kind == pa.string():
                    raise self._error(str(error)) from error
                wider[column] = _WIDER.get(kind, pa.string())
        if self._settings.dates is not None:
            kinds |= self._with_dates(kinds, self._settings.dates)
        return pa.schema([(name, kinds[name]) for name in names])

    def _with_dates(self, kinds: Mapping[str, pa.DataType], form: DateFormat) -> dict[str, pa.DataType]:
        """The columns whose texts are dates of the form, among columns of dates and times, and columns of texts that
        are not in `types`."""
        texts = {n: DateTexts(form, is_iso=True) for n in self._header if is_temporal(kinds[n])}
        texts |= {n: DateTexts(form) for n in self._header if pt.is_string(kinds[n]) and n not in self._types}
        for batch in self._texts_of(list(texts), _Nulls.WORDS):
            for name, column in texts.items():
                column.add(batch.column(name))
        self._dated = date_columns(texts, self._name)
        return {name: self._types.get(name, form.kind) for name in self._dated}

    def _inferred(self, types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """The types of the columns that are not in `types`, as Arrow infers them, checked and corrected."""
        floats: dict[str, FloatingNumbers] = {}
        with ExitStack() as files:
            names = [name for name in self._header if name not in self._types]
            schema, batches = self._open(files, _options(self._mark, types, names))
            self._first_types = kinds = {field.name: field.type for field in schema}
            if any(map(pt.is_binary, kinds.values())):
                self._check_encoding()
            for batch in batches:
                for name in names:
                    if pt.is_floating(kinds[name]):
                        floats.setdefault(name, FloatingNumbers()).add(batch.column(name))
        integers = [name for name in names if kinds[name] == pa.int64()]
        integers = integers if integers and self._has(_HEX_OR_ZERO) else []
        doubtful = [name for name, numbers in floats.items() if numbers.may_be_integers] + integers
        texts = {name: NumberTexts() for name in doubtful}
        for batch in self._texts_of(doubtful, _Nulls.WORDS):
            for name, numbers in texts.items():
                numbers.add(batch.column(name))
        kinds |= {name: numbers.type for name, numbers in texts.items()}
        zero_led = {name: numbers.zero_led for name, numbers in texts.items() if not numbers.others}
        self.zero_led = {name: text for name, text in zero_led.items() if text is not None}
        words = [name for name in names if pt.is_boolean(kinds[name]) or pt.is_null(kinds[name])]
        return kinds | self._texts_among(words)

    def _texts_among(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """The columns that are texts: truth values written as digits, and values that are all in quotes and
        would be null."""
        kinds: dict[str, pa.DataType] = {}
        for batch in self._texts_of(names, _Nulls.PLAIN_WORDS):
            for name in names:
                column = batch.column(name)
                if self._first_types[name] == pa.bool_():
                    column = column.filter(pc.is_in(column, pa.array(["0", "1"])))
                if column.null_count < len(column):
                    kinds[name] = pa.string()
        return kinds

    # -- rows

    def table(self) -> pa.Table:
        """All rows."""
        schema = self.schema()
        return pa.Table.from_batches(self.batches(schema), schema)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows in these types."""
        if len(set(schema.names)) < len(schema):
            return
        signed: dict[str, str] = {}
        count = 0
        while True:
            try:
                for batch in islice(self._rows(schema, signed), count, None):
                    yield batch
                    count += 1
                return
            except _Refused as error:
                column = self._column_of(str(error))
                if column is None or column in signed or not pt.is_integer(schema.field(column).type):
                    raise self._error(str(error)) from error
                signed[column] = str(error)  # Arrow reads no plus sign

    def _rows(self, schema: pa.Schema, signed: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        as_texts, form = signed.keys() | self._dated, self._settings.dates
        kinds = {field.name: pa.string() if field.name in as_texts else field.type for field in schema}
        texts: Iterator[pa.RecordBatch] | None = None
        names = [field.name for field in schema if pt.is_string(field.type)]
        with ExitStack() as files:
            _, batches = self._open(files, _options(self._mark, kinds))
            for number, batch in enumerate(batches):
                if texts is None and any(batch.column(name).null_count for name in names):
                    texts = islice(self._texts_of(names, _Nulls.EMPTY), number, None)
                if texts is not None:
                    read = next(texts)
                    for name in names:
                        batch = batch.set_column(batch.schema.get_field_index(name), name, read.column(name))
                for column in schema:
                    if pt.is_decimal(column.type) or pt.is_floating(column.type):
                        self._check_numbers(batch.column(column.name), column.name, number)
                for name, message in signed.items():
                    at = batch.schema.get_field_index(name)
                    try:
                        batch = batch.set_column(
                            at, name, integers_of_texts(batch.column(name), schema.field(name).type)
                        )
                    except pa.ArrowInvalid as error:
                        raise _Refused(message) from error
                for name in self._dated:
                    assert form is not None
                    at = batch.schema.get_field_index(name)
                    values = form.values(batch.column(at), schema.field(name).type, name)
                    batch = batch.set_column(at, name, values)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def _check_numbers(self, values: pa.Array, name: str, batch: int) -> None:
        """Raise an error for the first number of a batch that Arrow's reader accepts but its type cannot store: a
        decimal with more digits, or a floating-point number that is too large."""
        at = self._header.index(name)
        if pt.is_floating(values.type):
            if pc.any(pc.is_inf(values)).as_py():
                try:
                    check_finite(values, self._texts_of_batch(name, batch))
                except pa.ArrowInvalid as error:
                    raise _Refused(f"CSV column #{at}: {error}") from error
            return
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            for text, value in zip(self._texts_of_batch(name, batch), values, strict=True):
                try:
                    pa.array([value]).validate(full=True)
                except pa.ArrowInvalid:
                    raise _Refused(f"CSV column #{at}: {error}: '{text}'") from error

    def _texts_of_batch(self, name: str, batch: int) -> pa.Array:
        return next(islice(self._texts_of([name], _Nulls.WORDS), batch, None)).column(name)

    # -- the text

    def _read_header(self) -> tuple[list[str], int | None]:
        """The names of the columns; and the number of lines to leave out, where the first line lacks a name and the
        caller gives it: R writes none for the names of its rows, the first column. None where it names all columns."""
        names, first_row, lines = _first_rows(self._opened, self._mark)
        if not "".join(names).strip():
            raise InvalidRecord(f"{self._name} has no header", hint="write the names of the columns in the first line")
        if "\ufffd" in "".join(names):
            self._check_encoding()
        if "\0" in "".join(names):
            raise InvalidRecord(
                f"{self._name}, line 1: the header has zero bytes, as UTF-16 has, and no encoding= is given",
                hint="name the file's encoding, for example encoding='utf-16-le', or save the file as UTF-8",
                context={"line": 1},
            )
        lacks_name = len(first_row) == len(names) + 1 and "" not in names
        return (["", *names], lines) if lacks_name and self._settings.names.index_column else (names, None)

    def _open(self, files: ExitStack, options: Mapping[str, Any]) -> tuple[pa.Schema, Generator[pa.RecordBatch]]:
        read = pyarrow.csv.ReadOptions(block_size=self._block_bytes)
        if self._header_lines is not None:
            read.column_names, read.skip_rows = self._header, self._header_lines
        stream = files.enter_context(self._opened())
        try:
            reader = pyarrow.csv.open_csv(stream, **options, read_options=read)
        except pa.ArrowInvalid as error:
            raise _Refused(str(error)) from error

        def batches() -> Generator[pa.RecordBatch]:
            try:
                yield from reader
            except pa.ArrowInvalid as error:
                raise _Refused(str(error)) from error

        return reader.schema, batches()

    def _texts_of(self, names: Sequence[str], nulls: _Nulls) -> Iterator[pa.RecordBatch]:
        """The columns `names` as texts."""
        if names:
            with ExitStack() as files:
                options = _options(self._mark, dict.fromkeys(names, pa.string()), names, nulls)
                yield from self._open(files, options)[1]

    def _has(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether the pattern, of at most three bytes, is in the text."""
        last = b""
        with self._opened() as stream:
            while data := stream.read(self._block_bytes):
                data = last + data
                if pattern.search(data):
                    return True
                last = data[-2:]
        return False

    def _check_encoding(self) -> None:
        with self._opened() as stream:
            check_stream(stream, self._name, UTF8)

    def _column_of(self, message: str) -> str | None:
        """The column that an error message of Arrow is about; None if it is not about a value."""
        match = _NO_VALUE.search(message)
        return None if match is None else self._header[int(match[1])]

    def _with_value(self, message: str) -> str:
        """The text of Arrow's error about a decimal with more places than its type, with the value, which Arrow does
        not name."""
        at = _COLUMN.search(message)
        kind = None if at is None else self._types.get(self._header[int(at[1])])
        if at is None or kind is None:
            return message
        for batch in self._texts_of([self._header[int(at[1])]], _Nulls.WORDS):
            for text in batch.column(0):
                try:
                    text.cast(kind)
                except pa.ArrowInvalid:
                    return f"CSV column #{at[1]}: {message}: '{text}'"
        return message

    def _error(self, message: str) -> InvalidRecord:
        """Arrow's error with the line (if it is found) and the name of the column."""
        if "UTF8" in message:
            self._check_encoding()
        if "Rescaling" in message:
            message = self._with_value(message)
        value, length = _NO_VALUE.search(message), _OTHER_LENGTH.search(message)
        line = 1
        with self._opened() as stream, suppress(csv.Error):
            reader = csv.reader(_text(stream), delimiter=self._mark)
            header = self._header if next(filter(None, reader), None) else []
            line = reader.line_num + 1
            for row in reader:
                if value and len(row) == len(header) and row[int(value[1])] == value[2]:
                    column = header[int(value[1])]
                    kind = str(self._types.get(column, "value of the column's type"))
                    return InvalidRecord(
                        f"{self._name}, line {line}, column {column}: {value[2]!r} is no {kind}",
                        hint="correct the value, or leave the field empty for null",
                        context={"line": line, "column": column, "type": kind},
                    )
                if length and row and len(row) != len(header):
                    of_r = "; if R wrote the names of rows in front, DataFiles(path, index_column='row') reads them"
                    return InvalidRecord(
                        f"{self._name}, line {line}: {count_text(len(row), 'field')}, the header has {len(header)}",
                        hint='correct the line; a value that holds the delimiter is written in "quotes"'
                        + (of_r if len(row) == len(header) + 1 and "" not in header else ""),
                        context={"line": line},
                    )
                line = reader.line_num + 1
        return InvalidRecord(f"{self._name} cannot be read: {message}", hint="correct the file, or cast the column")


def _first_rows(opened: Opened, mark: str) -> tuple[list[str], list[str], int]:
    """The fields of the first line that has any, those of the next one, and the number of lines before that; empty for
    a line that does not end within `_HEADER_BYTES`."""
    with opened() as stream:
        head = stream.read(_HEADER_BYTES)
    rows = csv.reader(_text(io.BytesIO(head)), delimiter=mark)
    header: list[str] = []
    lines = 0
    try:
        header = next(filter(None, rows), [])
        lines = rows.line_num
        return header, next(filter(None, rows), []), lines
    except csv.Error:
        return header, [], lines


def _text(stream: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")


def _refuse_open_quote(data: bytes, name: str, mark: str) -> None:
    """Raise `InvalidRecord` if a quote is opened and never closed, so that all lines after it would be one value."""
    if data.count(b'"') % 2 == 0:
        return
    reader = csv.reader(_text(io.BytesIO(data)), delimiter=mark, strict=True)
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


class _Nulls(Enum):
    """The CSV fields that are read as null."""

    WORDS = "empty ones, NA, null and the like, also in quotes"
    PLAIN_WORDS = "these without quotes"
    EMPTY = "empty ones without quotes"


def _options(
    mark: str, types: Mapping[str, pa.DataType], columns: Sequence[str] = (), nulls: _Nulls = _Nulls.WORDS
) -> dict[str, Any]:
    """Arrow's options for reading these columns of the text, or all (none given)."""
    options: dict[str, Any] = {"null_values": [""]} if nulls is _Nulls.EMPTY else {}
    convert = pyarrow.csv.ConvertOptions(
        column_types=types,
        include_columns=columns,
        strings_can_be_null=True,
        quoted_strings_can_be_null=nulls is _Nulls.WORDS,
        **options,
    )
    parse = pyarrow.csv.ParseOptions(delimiter=mark, newlines_in_values=True)
    return {"convert_options": convert, "parse_options": parse}
