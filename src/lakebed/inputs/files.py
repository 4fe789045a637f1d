"""Data files as rows: a file, a folder with all files below it, or a glob, in any storage that a table may be in."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import InvalidOption, InvalidRecord, SchemaConflict
from lakebed.inputs.base import BATCH_ROWS, RowSource
from lakebed.inputs.column_names import ColumnNames, Renaming
from lakebed.inputs.csv_rows import TextSettings, guessed_delimiter
from lakebed.inputs.date_formats import DateFormat
from lakebed.inputs.encodings import check_encoding
from lakebed.inputs.file_formats import ENDINGS_TEXT, TEXT_FORMATS, DataFile, FileShape, Format, format_of, reader_of
from lakebed.inputs.json_rows import Rows, read_json_rows
from lakebed.inputs.partition_columns import Texts, check_same_names, inferred_type, texts_of, value_of
from lakebed.schema.arrow import check_names
from lakebed.schema.column_names import did_you_mean
from lakebed.schema.conversion import cast_column
from lakebed.schema.type_names import typed_columns
from lakebed.storage import FileInfo, Storage, open_storage
from lakebed.storage.base import parse_uri
from lakebed.storage.parallel import parallel_map

_log = logging.getLogger("lakebed")
Partitioning = Literal["hive", "none"]
_GLOB = re.compile(r"[*?\[]")
_READERS = 16
# Folders that make a folder a table, whose files are not all rows of it.
_TABLES = {
    ".hoodie": ("a Hudi table", "lakebed.open({path!r}).scan().to_arrow() reads its rows"),
    "_delta_log": ("a Delta Lake table", "lakebed.convert({path!r}, new_uri, key=...) copies its rows"),
}


@dataclass(frozen=True)
class DataFiles:
    """Data files by path, which every write accepts in place of rows, with settings that a path alone does not have.

    `path` is a file, a folder (all files below it) or a glob, as a path or URI of any storage that lakebed has. Endings
    name the format: .parquet, .csv, .tsv, .json, .jsonl, .ndjson, .arrow, .feather; CSV and JSON also with .gz, .bz2,
    .zst or .lz4. Files and folders whose names begin with a dot or an underscore are left out.

    `partitioning="hive"` adds the columns that folders name (`day=2024-01-31`), with the table's types or as int,
    bigint, double, date or string; `"none"` ignores the names of folders. `storage_options` are those of the storage;
    without them the table's are taken where its storage is of the same kind.

    `rename` gives columns names that a table can have: `"snake"` turns Culmen Length (mm) into culmen_length_mm, a
    dict has old and new names. `index_column` is the name for a column without one, which pandas writes for its index.

    CSV and JSON files also have these settings. `encoding` is theirs by Python's names (default: UTF-8). `columns` are
    types by SQL names (`{"zip": "string"}`); other columns have the table's types, or those of their values: digits
    that begin with a zero, such as 01234, are texts. `date_format` is the form of dates and times that are not in ISO
    form, by Python's signs (`"%d.%m.%Y"`). `delimiter` separates the fields of CSV files (default: a comma, in .tsv a
    tab, or what the header shows, with a warning).

    >>> import lakebed, pyarrow as pa, pyarrow.csv, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> pyarrow.csv.write_csv(pa.table({"id": [1, 2], "fare": [9.5, 12.0]}), f"{folder}/rides.csv")
    >>> t = lakebed.create("memory://docs/from-files", lakebed.DataFiles(folder), key="id")
    >>> t.upsert(f"{folder}/*.csv").inserted
    2
    """

    path: str | os.PathLike[str]
    partitioning: Partitioning = "hive"
    delimiter: str | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    encoding: str | None = None
    columns: Mapping[str, str | pa.DataType] | None = None
    date_format: str | None = None
    index_column: str | None = None
    rename: Renaming | None = None

    def __post_init__(self) -> None:
        if self.partitioning not in ("hive", "none"):
            raise InvalidOption(
                f"partitioning={self.partitioning!r} is unknown",
                hint="use 'hive' (folders name=value are columns) or 'none'",
                context={"partitioning": str(self.partitioning)},
            )
        check_encoding(self.encoding)
        if self.columns is not None and not isinstance(self.columns, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(
                "columns= is a dict of columns and their types",
                hint="for example columns={'zip': 'string', 'fare': 'decimal(10, 2)'}",
                context={"argument": "columns"},
            )
        self._text_settings()  # which raises for a name or a form of dates that cannot be

    def _text_settings(self) -> TextSettings:
        dates = None if self.date_format is None else DateFormat.of(self.date_format)
        return TextSettings(self.delimiter, dates, ColumnNames(self.rename, self.index_column))

    def read(self, types: Mapping[str, pa.DataType], *, partial: bool = False) -> Rows | FilesSource:
        """The rows; columns of `types` (a table's) are read in its types if the format has no types of its own. With
        `partial` rows of a JSON file that have nulls are dicts, in which a null differs from a missing column."""
        files = self._files()
        name = _one_format({file.label: format_of(file.path) for file in files})
        texts = {f.path: texts_of(f.path) if self.partitioning == "hive" else {} for f in files}
        check_same_names(texts)
        if self.delimiter is not None and name != "csv":
            raise InvalidOption(f"a delimiter does not go with {files[0].label}", hint="it is for .csv and .tsv files")
        of_texts = {"an encoding": self.encoding, "columns=": self.columns, "a date_format": self.date_format}
        for setting, value in of_texts.items():
            if value and name not in TEXT_FORMATS:
                raise InvalidOption(f"{setting} does not go with {files[0].label}", hint="it is for CSV and JSON files")
        settings, declared = self._text_settings(), typed_columns(self.columns or {})
        folded = {column.lower(): kind for column, kind in declared.items()}
        types = {
            **{column: kind for column, kind in types.items() if column.lower() not in folded},
            **folded,
            **declared,
        }
        if partial and name == "json" and len(files) == 1 and not texts[files[0].path]:
            if settings.names or settings.dates:
                raise InvalidOption(
                    "rename=, index_column= and date_format= do not go with a partial upsert of a JSON file",
                    hint="write its rows with the table's names and ISO dates",
                    context={"path": files[0].label},
                )
            with files[0].opened() as opened:
                return read_json_rows(opened.read(), files[0].label, types, partial=True)
        if name == "csv" and self.delimiter is None:
            settings = replace(settings, delimiter=_guessed_delimiter(files[0]))
        rows = FilesSource(files, texts, reader_of(name, types, settings), types)
        settings.names.check(rows.original_names, files[0].label)
        _check_types(rows.schema, declared, settings.names, files[0].label)
        return rows

    def _files(self) -> list[DataFile]:
        path = os.fspath(self.path)
        storage, files, is_file = _find(path, dict(self.storage_options or {}))
        if is_file:
            return [DataFile(storage, files[0].path, files[0].size, path, self.encoding)]
        root = storage.spec.uri.rstrip("/")
        return [DataFile(storage, info.path, info.size, f"{root}/{info.path}", self.encoding) for info in files]


def _guessed_delimiter(file: DataFile) -> str | None:
    """The character between the fields where a CSV file shows that it is another one than its ending names, with a
    warning."""
    mark = guessed_delimiter(file.opened, file.label)
    if mark is not None:
        _log.warning(
            "%s: the fields are separated by %r, as its header shows; this warning is left out with delimiter=%r, or"
            " --delimiter %r on the command line",
            *(file.label, mark, mark, mark),
        )
    return mark


def _check_types(schema: pa.Schema, declared: Mapping[str, pa.DataType], names: ColumnNames, label: str) -> None:
    """Raise `InvalidOption` for a column of `columns=` that the files do not have, or whose type they cannot have."""
    kinds = {field.name.lower(): field.type for field in schema}
    for column, kind in declared.items():
        read = names.type_of(column, kinds)
        if read is None:
            raise InvalidOption(
                f"columns= names {column!r}, which {label} does not have",
                hint=did_you_mean(column, schema.names),
                context={"path": label, "column": column},
            )
        if pt.is_nested(kind) and not pt.is_nested(read):
            raise InvalidOption(
                f"columns= says that {column!r} is {kind}, which no field of {label} is",
                hint="read it as string",
                context={"path": label, "column": column},
            )


def data_of(
    data: Any, partitioning: Partitioning | None = None, storage_options: tuple[str, Mapping[str, str]] = ("", {})
) -> Any:
    """The caller's data; a text or path as `DataFiles`. `storage_options` are a table's URI and the options of its
    storage."""
    if isinstance(data, str | os.PathLike):
        data = DataFiles(data)
    if not isinstance(data, DataFiles):
        if partitioning is not None:
            raise InvalidOption(
                "partitioning= goes with a path of data files", hint="leave it out, or give the path of a folder"
            )
        return data
    uri, options = storage_options
    if data.storage_options is None and uri and options:
        same = parse_uri(os.fspath(data.path)).scheme == parse_uri(uri).scheme
        data = replace(data, storage_options=dict(options) if same else None)
    return data if partitioning is None else replace(data, partitioning=partitioning)


def is_path_of_files(data: Any) -> bool:
    """Whether the data can only mean data files: a text by its ending, a path object or `DataFiles`."""
    if isinstance(data, str):
        return format_of(data) is not None and not any(mark in data for mark in "'\" =<>")
    return isinstance(data, os.PathLike | DataFiles)


def find_data_files(path: str, options: Mapping[str, str]) -> tuple[Storage, list[FileInfo]]:
    """The storage of a path, folder or glob, and its data files, without hidden ones; empty if there are none yet.
    Raises `InvalidOption` for a folder that is a table."""
    storage, files, _ = _find(path, options, may_be_empty=True)
    return storage, files


def _find(path: str, options: Mapping[str, str], *, may_be_empty: bool = False) -> tuple[Storage, list[FileInfo], bool]:
    """The storage, the files in it, and whether the path is that of a single file."""
    uri = parse_uri(path).uri
    parent, _, name = uri.rpartition("/")
    if "://" not in uri:
        uri = os.path.realpath(uri) if os.path.isdir(uri) else uri
        parent = parent or "/"
    if (name and not parent.endswith(("/", ":"))) or parent == "/":
        storage = open_storage(parent, options)
        head = None if path.endswith("/") else storage.head(name)
        if head is not None:
            return storage, [head], True
    if _GLOB.search(uri):
        parts = uri.split("/")
        at = next(n for n, part in enumerate(parts) if _GLOB.search(part))
        storage = open_storage("/".join(parts[:at]) or "/", options)
        # `*` and `?` stay in one folder, `**` is any number of folders; a folder that matches is all files in it
        texts = [".*" if part == "**" else translate(part)[4:-3].replace(".*", "[^/]*") for part in parts[at:]]
        pattern = re.compile("/".join(texts).replace(".*/", "(?:.*/)?") + "(?:/.*)?$")
        files = [info for info in _data_files(storage, path) if pattern.match(info.path)]
        if not files and not may_be_empty:
            raise InvalidOption(f"no file matches {path}", hint="check the path", context={"path": path})
        return storage, files, False
    storage = open_storage(uri, options)
    _refuse_tables(storage, path)
    files = _data_files(storage, path)
    if not files and not may_be_empty:
        problem = "there is no file or folder" if not storage.list_folders("") else "no data file is in the folder"
        if "://" not in uri and os.path.isdir(uri):
            problem = "no data file is in the folder"
        raise InvalidOption(
            f"{problem} {path}", hint=f"check the path; known are files with {ENDINGS_TEXT}", context={"path": path}
        )
    return storage, files, False


def _data_files(storage: Storage, path: str) -> list[FileInfo]:
    """All files below the root, in the order of their paths, without hidden ones. Raises `InvalidOption` for a link to
    a folder, whose files a listing would leave out."""
    root = storage.spec.uri
    if "://" not in root:
        for folder, names, _ in os.walk(root):
            for name in names:
                if os.path.islink(os.path.join(folder, name)) and name[:1] not in "._":
                    raise InvalidOption(
                        f"{os.path.join(folder, name)} is a link to a folder, which is not followed",
                        hint="read the folder that it means by itself, or remove the link",
                        context={"path": path},
                    )
    files = [
        info
        for info in storage.list("")
        if not any(part[:1] in "._" and "=" not in part for part in info.path.split("/"))
    ]
    return sorted(files, key=lambda info: info.path)


def _refuse_tables(storage: Storage, path: str) -> None:
    folders = storage.list_folders("")
    for folder, (kind, hint) in _TABLES.items():
        if folder in folders:
            raise InvalidOption(
                f"{path} is {kind}: its files also hold rows that are no longer in it",
                hint=hint.format(path=path),
                context={"path": path, "holds": kind},
            )
    if "metadata" in folders and any(name.endswith(".metadata.json") for name in storage.list_names("metadata")):
        raise InvalidOption(
            f"{path} is an Iceberg table: its files also hold rows that are no longer in it",
            hint=f"lakebed.convert({path!r}, new_uri, key=...) copies its rows",
            context={"path": path, "holds": "an Iceberg table"},
        )


def _one_format(formats: Mapping[str, str | None]) -> str:
    by_format: dict[str | None, str] = {}
    for label, name in formats.items():
        by_format.setdefault(name, label)
    if None in by_format:
        raise InvalidRecord(
            f"{by_format[None]} is none of the known kinds of file",
            hint=f"known: {ENDINGS_TEXT}; a glob leaves other files out",
            context={"path": by_format[None]},
        )
    if len(by_format) > 1:
        (first, a), (second, b), *_ = by_format.items()
        raise InvalidOption(
            f"files of several formats: {a} is {first}, {b} is {second}",
            hint="name those of one format by a glob, e.g. folder/*.parquet",
            context={"paths": [a, b]},
        )
    (name,) = by_format
    assert name is not None
    return name


class FilesSource(RowSource):
    """The rows of files of one format, in the order of the files' paths. Raises `SchemaConflict` if two files have
    different columns."""

    def __init__(
        self, files: Sequence[DataFile], texts: Mapping[str, Texts], reader: Format, types: Mapping[str, pa.DataType]
    ) -> None:
        self._files = files
        self._texts = texts
        self._reader = reader
        shapes = parallel_map(reader.shape, files, _READERS)
        self._shapes = dict(zip((file.path for file in files), shapes, strict=True))
        self._stored = _common_schema(files, shapes, infers=reader.infers)
        _warn_about_zeros(files, shapes)
        self._values = self._partition_values(types)
        added = [pa.field(name, kind) for name, (kind, _) in self._values.items()]
        self._schema = pa.schema([*self._stored, *added])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def rows(self) -> int | None:
        counts = [shape.rows for shape in self._shapes.values()]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def nbytes(self) -> int | None:
        sizes = [shape.nbytes for shape in self._shapes.values()]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def folder_columns(self) -> tuple[str, ...]:
        """The columns that folders name."""
        return tuple(next(iter(self._texts.values()), {}))

    @property
    def files(self) -> Sequence[DataFile]:
        """The files, in the order of their paths."""
        return self._files

    @property
    def original_names(self) -> frozenset[str]:
        """The names that columns have in the files, where rows have others."""
        return frozenset(name for shape in self._shapes.values() for name in shape.originals.values())

    def shape_of(self, file: DataFile) -> FileShape:
        """The columns and the number of rows of one of the files."""
        return self._shapes[file.path]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            yield from self.batches_of(file, columns)

    def batches_of(self, file: DataFile, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one of the files, in the form of `batches`."""
        requested = self._schema.names if columns is None else [n for n in self._schema.names if n in set(columns)]
        stored = [name for name in requested if name in set(self._stored.names)]
        schema = pa.schema([self._schema.field(name) for name in requested])
        constants = {name: values[file.path] for name, (_, values) in self._values.items() if name in requested}
        rows = self._shapes[file.path].rows
        if not stored and rows is not None:
            sizes = (min(BATCH_ROWS, rows - start) for start in range(0, rows, BATCH_ROWS))
            yield from (_assembled(None, size, schema, constants, file) for size in sizes)
            return
        for batch in self._reader.batches(file, self._stored, stored):
            yield _assembled(batch, batch.num_rows, schema, constants, file)

    def _partition_values(self, types: Mapping[str, pa.DataType]) -> dict[str, tuple[pa.DataType, dict[str, Any]]]:
        """The type of each column that folders name and no file has, and its value in each file."""
        names = list(next(iter(self._texts.values()), {}))
        in_files = {name.lower() for name in self._stored.names}
        values: dict[str, tuple[pa.DataType, dict[str, Any]]] = {}
        for name in names:
            if name.lower() in in_files:
                continue
            texts = {path: columns[name] for path, columns in self._texts.items()}
            kind = types.get(name) or types.get(name.lower()) or inferred_type(list(texts.values()))
            values[name] = kind, {path: value_of(text, kind, name) for path, text in texts.items()}
        return values


def _assembled(
    batch: pa.RecordBatch | None, rows: int, schema: pa.Schema, constants: Mapping[str, Any], file: DataFile
) -> pa.RecordBatch:
    """The batch of one file with the columns of all files, in their types."""
    columns: list[pa.Array] = []
    for column in schema:
        if column.name in constants:
            columns.append(pa.repeat(constants[column.name], rows))
        elif batch is None or column.name not in batch.schema.names:
            columns.append(pa.nulls(rows, column.type))  # a column that no object of this JSON file has
        else:
            columns.append(_in_type(batch.column(column.name), column, file))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_type(values: pa.Array, column: pa.Field, file: DataFile) -> pa.Array:
    if values.type.equals(column.type):
        return values
    try:
        return cast_column(values, column.type) if pt.is_nested(column.type) else values.cast(column.type)
    except (pa.ArrowException, SchemaConflict) as error:
        raise SchemaConflict(
            f"{file.label}: column {column.name} is {values.type}, in other files {column.type}: {error}",
            hint="read the files apart, and cast the column",
            context={"path": file.label, "column": column.name},
        ) from error


def _warn_about_zeros(files: Sequence[DataFile], shapes: Sequence[FileShape]) -> None:
    """Log which columns of digits stay texts, and how they become numbers."""
    examples: dict[str, tuple[str, str]] = {}
    for file, shape in zip(files, shapes, strict=True):
        for name, text in shape.zero_led.items():
            examples.setdefault(name, (file.label, text))
    for name, (label, text) in examples.items():
        _log.warning(
            "%s: column %s stays text, because %r begins with a zero; columns={%r: 'bigint'} makes it numbers, 'string'"
            " leaves out this warning",
            *(label, name, text, name),
        )


def _common_schema(files: Sequence[DataFile], shapes: Sequence[FileShape], *, infers: bool) -> pa.Schema:
    """The columns of all files, in the order of the first. Types may differ in width."""
    first = shapes[0].schema
    for file, shape in zip(files, shapes, strict=True):
        try:
            check_names(shape.schema.names)
        except SchemaConflict as error:
            context = {**error.context, "path": file.label}
            hint = error.hint
            if "" in shape.schema.names:
                hint = "if it is the index that pandas or R writes, name it: DataFiles(path, index_column='row')"
            raise SchemaConflict(f"{file.label}: {error.message}", hint=hint, context=context) from None
    fields = {column.name: column for column in first}
    zero_led = {name for shape in shapes for name in shape.zero_led}
    is_json = infers and format_of(files[0].path) == "json"
    for file, shape in zip(files[1:], shapes[1:], strict=True):
        if shape.schema.equals(first):
            continue
        if not is_json:
            _check_same_columns(files[0], first.names, file, shape.schema.names)
        for column in shape.schema:
            before = fields.get(column.name, column)
            kind = _wider(before.type, column.type, infers=infers)
            if kind is None and column.name in zero_led:  # numbers in files that have no zero at a beginning
                kind = pa.string() if any(map(_is_number, (before.type, column.type))) else None
            if kind is None:
                raise SchemaConflict(
                    f"column {column.name} is {before.type} in {files[0].label} and {column.type} in {file.label}",
                    hint="read the files apart, and cast the column",
                    context={"column": column.name, "paths": [files[0].label, file.label]},
                )
            fields[column.name] = pa.field(column.name, kind, before.nullable or column.nullable, before.metadata)
    return pa.schema(list(fields.values()))


def _check_same_columns(first: DataFile, names: Sequence[str], file: DataFile, others: Sequence[str]) -> None:
    lacking, more = sorted(set(names) - set(others)), sorted(set(others) - set(names))
    if lacking or more:
        texts = [f"lacks {', '.join(lacking)}"] if lacking else []
        texts += [f"has also {', '.join(more)}"] if more else []
        raise SchemaConflict(
            f"the files have different columns: {file.label} {' and '.join(texts)}, compared with {first.label}",
            hint="write the files of one kind in a call of their own; a table takes new columns with"
            " lakebed.write.evolution",
            context={"path": file.label, "lacking": lacking, "more": more},
        )


def _is_number(kind: pa.DataType) -> bool:
    return pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)


_KINDS = (pt.is_integer, pt.is_floating, pt.is_timestamp, pt.is_decimal)


def _wider(first: pa.DataType, other: pa.DataType, *, infers: bool) -> pa.DataType | None:
    """The type that can hold the values of both; None if they are of different kinds."""
    if first.equals(other) or pt.is_null(other):
        return first
    if pt.is_null(first):
        return other
    is_decimal = pt.is_decimal(first) or pt.is_decimal(other)
    number = (pt.is_integer, pt.is_decimal if is_decimal else pt.is_floating)
    numbers = infers and all(any(test(kind) for test in number) for kind in (first, other))
    plain = [kind.value_type if pt.is_dictionary(kind) else kind for kind in (first, other)]
    texts = all(pt.is_string(kind) or pt.is_large_string(kind) for kind in plain)
    same = any(kind(first) and kind(other) for kind in _KINDS) or pt.is_nested(first) or numbers or texts
    if not same or (pt.is_timestamp(first) and bool(first.tz) != bool(other.tz)):
        return None
    try:
        columns = [pa.schema([("a", kind)]) for kind in (first, other)]
        return pa.unify_schemas(columns, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None
