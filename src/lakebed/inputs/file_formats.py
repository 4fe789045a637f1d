"""How one data file is read, by the ending of its name: Parquet, Arrow IPC, CSV and JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakebed.errors import CorruptFile, InvalidRecord, SchemaConflict
from lakebed.inputs.base import BATCH_ROWS
from lakebed.inputs.column_names import ColumnNames
from lakebed.inputs.csv_rows import CsvText, TextSettings, csv_text
from lakebed.inputs.date_formats import DateTexts, date_columns, is_temporal
from lakebed.inputs.encodings import UTF8, as_utf8, check_stream
from lakebed.inputs.inference import has_large, unified
from lakebed.inputs.json_rows import names_of_json, read_json_rows
from lakebed.inputs.python_rows import of_python, type_of
from lakebed.storage.base import Storage

# CSV and JSON files of no more bytes are parsed as a whole, longer ones in parts.
TEXT_BYTES = 32 << 20
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_TEXTS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    **_TEXTS,
}
TEXT_FORMATS = frozenset(_TEXTS.values())
_PLAIN = TextSettings()
ENDINGS_TEXT = ", ".join(_ENDINGS)


def format_of(name: str) -> str | None:
    """The format of a file by the ending of its name; None for an unknown one.

    >>> format_of("part-0.snappy.parquet"), format_of("rows.csv.gz"), format_of("rows.xlsx")
    ('parquet', 'csv', None)
    """
    name = name.lower().rpartition("/")[2]
    stem, dot, last = name.rpartition(".")
    if dot + last in _CODECS:
        _, dot, inner = stem.rpartition(".")
        return _TEXTS.get(dot + inner)
    return _ENDINGS.get(dot + last) if dot else None


@dataclass(frozen=True)
class DataFile:
    """A file in storage. `label` is its name in errors; `encoding` is that of its text, None for UTF-8."""

    storage: Storage
    path: str
    size: int
    label: str
    encoding: str | None = None

    @contextmanager
    def opened(self) -> Generator[Any]:
        """The file's bytes, without their compression, a text as UTF-8; errors of Arrow name the file."""
        try:
            with self._plain() as stream:
                yield stream if self.encoding is None else as_utf8(stream, self.encoding)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            if isinstance(error, UnicodeDecodeError) and self.encoding is not None:
                with self._plain() as stream:
                    check_stream(stream, self.label, self.encoding)
            raise CorruptFile(
                f"{self.label} cannot be read: {error}",
                hint="correct the file, or leave it out",
                context={"path": self.label},
            ) from error

    @contextmanager
    def _plain(self) -> Generator[Any]:
        codec = next((codec for end, codec in _CODECS.items() if self.path.lower().endswith(end)), None)
        with self.storage.open_input(self.path, self.size) as file:
            yield file if codec is None else pa.CompressedInputStream(file, codec)


@dataclass(frozen=True)
class FileShape:
    """The data about a file that are known before its rows are read: its columns and, if the file states them, the
    number of rows and their bytes in memory. `zero_led` are the columns of digits that are texts, since one begins with
    a zero, each with that one; `originals` are the names in the file of columns that have another name in rows."""

    schema: pa.Schema
    rows: int | None = None
    nbytes: int | None = None
    zero_led: Mapping[str, str] = field(default_factory=dict[str, str])
    originals: Mapping[str, str] = field(default_factory=dict[str, str])


class Format(ABC):
    """One file format. `infers` is whether types of columns that are not in `types` follow from the values."""

    infers = False

    @abstractmethod
    def shape(self, file: DataFile) -> FileShape: ...

    @abstractmethod
    def batches(self, file: DataFile, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows in these columns; `schema` is that of all files together."""
        ...


class ParquetFormat(Format):
    def shape(self, file: DataFile) -> FileShape:
        with file.opened() as opened:
            parquet = _parquet(opened)
            footer = parquet.metadata
            size = sum(footer.row_group(at).total_byte_size for at in range(footer.num_row_groups))
            schema = _with_zones(parquet)
            assert len(schema.names) == len(schema)  # a name that is no text raises here
            return FileShape(schema, footer.num_rows, size)

    def batches(self, file: DataFile, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with file.opened() as opened:
            yield from _parquet(opened).iter_batches(batch_size=BATCH_ROWS, columns=list(columns), use_threads=True)


def _with_zones(parquet: pq.ParquetFile) -> pa.Schema:
    """The file's columns; times of the old type INT96 are moments, which Arrow reads as times without a zone."""
    schema = parquet.schema_arrow
    leaves = [parquet.schema.column(at) for at in range(len(parquet.schema))]
    for leaf in leaves:
        if leaf.physical_type == "INT96" and leaf.path in schema.names:
            at = schema.get_field_index(leaf.path)
            schema = schema.set(at, schema.field(at).with_type(pa.timestamp("us", "UTC")))
    return schema


def _parquet(opened: Any) -> pq.ParquetFile:
    return pq.ParquetFile(opened, pre_buffer=False, coerce_int96_timestamp_unit="us")


class ArrowFormat(Format):
    """Arrow IPC, as a file or as a stream."""

    def shape(self, file: DataFile) -> FileShape:
        with file.opened() as opened:
            schema = _ipc(opened).schema
            assert len(schema.names) == len(schema)  # a name that is no text raises here
            return FileShape(schema, None, file.size)

    def batches(self, file: DataFile, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with file.opened() as opened:
            reader = _ipc(opened)
            if isinstance(reader, pa.RecordBatchFileReader):
                parts: Iterator[pa.RecordBatch] = map(reader.get_batch, range(reader.num_record_batches))
            else:
                parts = iter(reader)
            for part in parts:
                part.validate(full=True)  # Arrow reads lengths and positions as they are written
                for start in range(0, part.num_rows, BATCH_ROWS):
                    yield part.select(list(columns)).slice(start, BATCH_ROWS)


def _ipc(opened: Any) -> Any:
    try:
        return pa.ipc.open_file(opened)
    except pa.ArrowInvalid:
        opened.seek(0)
        return pa.ipc.open_stream(opened)


@dataclass
class TextFormat(Format):
    """CSV and JSON. `types` are columns of a table, which are read in its types."""

    types: Mapping[str, pa.DataType]
    settings: TextSettings = _PLAIN
    infers = True
    _zero_led: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]], init=False)
    _parsed: dict[str, pa.Table] = field(default_factory=dict[str, pa.Table], init=False)
    _inferred: dict[str, pa.Schema] = field(default_factory=dict[str, pa.Schema], init=False)

    def shape(self, file: DataFile) -> FileShape:
        data = _all_bytes(file)
        if data is None:
            self._inferred[file.path] = schema = self.long_schema(file)
            return FileShape(schema, zero_led=self._zero_led.pop(file.label, {}))
        table = self.parse(data, file.label, self.types)
        self._inferred[file.path] = table.schema
        self._parsed = {file.path: table}  # of one file, so that it is not parsed twice
        return FileShape(table.schema, table.num_rows, table.nbytes, self._zero_led.pop(file.label, {}))

    def batches(self, file: DataFile, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        table = self._parsed.get(file.path)
        if table is None or not table.schema.equals(schema):
            types = {f.name: f.type for f in schema if not pt.is_null(f.type)}
            # whole numbers are read as such where another file has fractions: the cast that follows refuses those that
            # a floating number does not keep
            for column in self._inferred.get(file.path, ()):
                if pt.is_integer(column.type) and pt.is_floating(types.get(column.name, pa.null())):
                    types[column.name] = column.type
            data = _all_bytes(file)
            if data is None:
                yield from self.long_batches(file, types)
                return
            table = self.parse(data, file.label, types)
        yield from table.to_batches(max_chunksize=BATCH_ROWS)

    @abstractmethod
    def parse(self, data: bytes, label: str, types: Mapping[str, pa.DataType]) -> pa.Table: ...

    @abstractmethod
    def long_schema(self, file: DataFile) -> pa.Schema: ...

    @abstractmethod
    def long_batches(self, file: DataFile, types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]: ...


def _all_bytes(file: DataFile) -> bytes | None:
    """The text, if it is no longer than `TEXT_BYTES`; otherwise None."""
    with file.opened() as opened:
        data = opened.read(TEXT_BYTES + 1)
    return data if len(data) <= TEXT_BYTES else None


@dataclass
class CsvFormat(TextFormat):
    def parse(self, data: bytes, label: str, types: Mapping[str, pa.DataType]) -> pa.Table:
        text = csv_text(data, label, types, self.settings)
        rows = text.table()
        self._zero_led[label] = text.zero_led
        return rows

    def long_schema(self, file: DataFile) -> pa.Schema:
        text = CsvText(file.opened, file.label, self.types, self.settings)
        schema = text.schema()
        self._zero_led[file.label] = text.zero_led
        return schema

    def long_batches(self, file: DataFile, types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        text = CsvText(file.opened, file.label, types, self.settings)
        yield from text.batches(text.schema())


class JsonFormat(TextFormat):
    def parse(self, data: bytes, label: str, types: Mapping[str, pa.DataType], *, is_part: bool = False) -> pa.Table:
        """The rows of a file, or of a part of it, which may be without dates."""
        names = self.settings.names
        if types and names:
            in_file = {name: names.type_of(name, types) for name in names_of_json(data, label)}
            types = {name: kind for name, kind in in_file.items() if kind is not None}
        if self.settings.dates is None:
            return self._table(data, label, types)
        return self._with_dates(data, label, types, is_part=is_part)

    def _table(self, data: bytes, label: str, types: Mapping[str, pa.DataType]) -> pa.Table:
        rows = read_json_rows(data, label, types)
        return rows if isinstance(rows, pa.Table) else of_python(rows, types)

    def _with_dates(self, data: bytes, label: str, types: Mapping[str, pa.DataType], *, is_part: bool) -> pa.Table:
        """The rows with dates in place of texts of the form: in columns of dates and times, and in columns without a
        type whose texts are all of the form."""
        form = self.settings.dates
        assert form is not None
        times = {name: kind for name, kind in types.items() if is_temporal(kind)}
        untyped = self._table(data, label, {**types, **dict.fromkeys(times, pa.string())})
        in_iso = {c.name: c.type for c in untyped.schema if is_temporal(c.type)}
        as_texts = {**types, **dict.fromkeys([*times, *in_iso], pa.string())}
        rows = self._table(data, label, as_texts) if in_iso else untyped
        tallies: dict[str, DateTexts] = {}
        for name, kind in zip(rows.column_names, rows.schema.types, strict=True):
            is_time = type_of(name, times) is not None or name in in_iso
            if pt.is_string(kind) and (is_time or type_of(name, types) is None):
                tallies[name] = DateTexts(form, is_iso=is_time)
                tallies[name].add(rows.column(name))
        dated = date_columns(tallies, label, may_be_none=is_part)
        if any(tallies[name].is_iso for name in tallies.keys() - dated):
            rows = self._table(data, label, {**types, **dict.fromkeys(dated, pa.string())})
        for at, name in enumerate(rows.column_names):
            if name in dated:
                kind = type_of(name, times) or form.kind
                chunks = [form.values(chunk, kind, name) for chunk in rows.column(at).chunks]
                rows = rows.set_column(at, name, pa.chunked_array(chunks, kind))
        return rows

    def long_schema(self, file: DataFile) -> pa.Schema:
        parts: list[pa.Schema] = []
        large: set[str] = set()
        with file.opened() as opened:
            for text in _parts_of_lines(opened, file):
                rows = self._part(text, file, self.types)
                parts.append(rows.schema)
                large |= {f.name for f in rows.schema if pt.is_int64(f.type) and has_large(rows.column(f.name))}
        try:
            schema = unified(parts)
            inexact = sorted(name for name in large if pt.is_floating(schema.field(name).type))
            if inexact:
                raise SchemaConflict(f"column {inexact[0]} has fractions, and whole numbers that DOUBLE does not keep")
            return schema
        except SchemaConflict as error:
            hint = "correct the file, or create the table with the column's type first"
            raise SchemaConflict(f"{file.label}: {error.message}", hint=hint) from error

    def long_batches(self, file: DataFile, types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        with file.opened() as opened:
            for text in _parts_of_lines(opened, file):
                yield from self._part(text, file, types).to_batches(max_chunksize=BATCH_ROWS)

    def _part(self, text: bytes, file: DataFile, types: Mapping[str, pa.DataType]) -> pa.Table:
        try:
            return self.parse(text, file.label, types, is_part=True)
        except InvalidRecord:
            _check_encoding(file)  # which names the line in the file
            raise


def _check_encoding(file: DataFile) -> None:
    with file.opened() as opened:
        check_stream(opened, file.label, UTF8)


def _parts_of_lines(opened: Any, file: DataFile) -> Iterator[bytes]:
    """The text in parts of complete lines. Raises `InvalidRecord` if it does not have one object per line."""
    unfinished_line = b""
    while data := opened.read(TEXT_BYTES):
        if not unfinished_line and data.lstrip()[:1] == b"[":
            break
        lines, newline, unfinished_line = (unfinished_line + data).rpartition(b"\n")
        if newline and not lines.lstrip().startswith(b"{"):
            break
        if newline:
            yield lines
    else:
        if unfinished_line.strip():
            yield unfinished_line
        return
    _check_encoding(file)
    raise InvalidRecord(
        f"{file.label} is longer than {TEXT_BYTES >> 20} MiB and has no object a line",
        hint="write an object a line (.jsonl), or split the file",
        context={"path": file.label},
    )


@dataclass
class RenamedFormat(Format):
    """A format whose columns have other names in rows than in the files."""

    inner: Format
    names: ColumnNames
    _originals: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]], init=False)

    def __post_init__(self) -> None:
        self.infers = self.inner.infers

    def shape(self, file: DataFile) -> FileShape:
        shape = self.inner.shape(file)
        originals: dict[str, str] = {}
        for name in shape.schema.names:
            first = originals.setdefault(self.names.of(name), name)
            if first != name:
                raise SchemaConflict(
                    f"{file.label}: the columns {first!r} and {name!r} are both called {self.names.of(name)!r}",
                    hint=f"name one yourself: rename={{{name!r}: 'other_name'}}",
                    context={"path": file.label, "columns": [first, name]},
                )
        self._originals[file.path] = originals
        schema = pa.schema([column.with_name(self.names.of(column.name)) for column in shape.schema])
        zero_led = {self.names.of(name): text for name, text in shape.zero_led.items()}
        return FileShape(schema, shape.rows, shape.nbytes, zero_led, originals)

    def batches(self, file: DataFile, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        originals = self._originals[file.path]
        in_file = pa.schema([c.with_name(originals[c.name]) for c in schema if c.name in originals])
        requested = [originals[name] for name in columns if name in originals]
        for batch in self.inner.batches(file, in_file, requested):
            yield batch.rename_columns([self.names.of(name) for name in batch.schema.names])


def reader_of(name: str, types: Mapping[str, pa.DataType], settings: TextSettings = _PLAIN) -> Format:
    """The reader of a file format, whose columns have the names that the settings give them."""
    if name in TEXT_FORMATS:
        text = CsvFormat(types, settings) if name == "csv" else JsonFormat(types, settings)
        return RenamedFormat(text, settings.names) if settings.names else text
    binary = ParquetFormat() if name == "parquet" else ArrowFormat()
    return RenamedFormat(binary, settings.names) if settings.names else binary
