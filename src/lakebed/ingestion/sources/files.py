"""Data files of a folder, a bucket or a glob as they arrive: CSV, JSON, Parquet, Arrow IPC and Avro.

The checkpoint is the greatest modification time, in milliseconds, of the files that were read, as in Hudi. After a line
break it has the names of the files of just this time: others of the same time are still new.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakebed.errors import CorruptFile, InvalidOption, InvalidRecord, SchemaConflict
from lakebed.ingestion.avro_messages import avro_file_rows
from lakebed.ingestion.columns import union_of
from lakebed.ingestion.description import build
from lakebed.ingestion.json_messages import without_null_types
from lakebed.ingestion.source import (
    AVRO_FAILURE,
    RECORD_FAILURE,
    SCHEMA_FAILURE,
    BadRow,
    IngestPoll,
    IngestSource,
    bad_table,
)
from lakebed.ingestion.sources.lines import csv_lines, json_lines
from lakebed.inputs.csv_rows import TextSettings
from lakebed.inputs.encodings import check_encoding
from lakebed.inputs.file_formats import TEXT_FORMATS, DataFile, format_of, reader_of
from lakebed.inputs.files import FilesSource as RowsOfFiles
from lakebed.inputs.files import find_data_files
from lakebed.inputs.partition_columns import inferred_type, texts_of, value_of
from lakebed.inputs.python_rows import type_of
from lakebed.schema.arrow import check_names
from lakebed.schema.conversion import readable_texts
from lakebed.schema.type_names import typed_columns
from lakebed.secrets import masked_repr
from lakebed.storage.base import FileInfo, Storage

FORMATS = ("csv", "json", "parquet", "arrow", "avro")


@dataclass(frozen=True, repr=False)
class FilesSettings:
    """The settings of `kind = "files"`. `path` is a folder, a file or a glob; `format` is needed for files whose names
    do not end in it. `encoding` is that of CSV and JSON files (default: UTF-8). `columns` are types by column, for
    columns that the table does not have. A round reads files of at most `max_bytes`, or a single larger one, and no
    file that changed in the last `min_age` seconds. `start` is the time in milliseconds from which on files are
    read."""

    path: str
    format: str | None = None
    partitioning: str = "hive"
    delimiter: str | None = None
    encoding: str | None = None
    columns: dict[str, Any] = field(default_factory=dict[str, Any])
    max_bytes: int = 256 << 20
    min_age: float = 0.0
    start: int = 0
    storage_options: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    __repr__ = masked_repr


@dataclass(frozen=True)
class FilePosition:
    """The position up to which files are read: all files modified before `modified`, and of those modified at that time
    the files in `names` (None: all)."""

    modified: int
    names: frozenset[str] | None = frozenset()
    """None for a checkpoint of Hudi, which has no names: all files of the time count as read."""

    @classmethod
    def of(cls, checkpoint: str) -> FilePosition:
        """The position of a checkpoint. Raises `InvalidOption` for a text that is not one."""
        first, newline, names_json = checkpoint.partition("\n")
        try:
            names = json.loads(names_json) if newline else None
            return cls(int(first), None if names is None else frozenset(names))
        except ValueError as error:
            raise InvalidOption(
                f"the checkpoint {checkpoint!r} is none of a source of files",
                hint="it is a time in milliseconds; --ignore-checkpoint starts again",
                context={"checkpoint": checkpoint},
            ) from error

    def is_new(self, file: FileInfo) -> bool:
        """Whether a file is not read yet."""
        if file.modified != self.modified:
            return file.modified > self.modified
        return self.names is not None and file.path not in self.names

    def after(self, files: Sequence[FileInfo]) -> FilePosition:
        """The position after these files, which are in the order of their times."""
        last = files[-1].modified
        names = {file.path for file in files if file.modified == last}
        return FilePosition(last, frozenset(names | (self.names or set() if last == self.modified else set())))

    def __str__(self) -> str:
        names = json.dumps(sorted(self.names or ()), ensure_ascii=False, separators=(",", ":"))
        return f"{self.modified}\n{names}"


class FilesSource(IngestSource):
    """A source that reads new files, oldest first. A file that changed is read again, like a new one."""

    def __init__(self, settings: FilesSettings) -> None:
        if settings.format is not None and settings.format not in FORMATS:
            raise InvalidOption(f"[source] format is {settings.format!r}", hint=f"it is one of {', '.join(FORMATS)}")
        check_encoding(settings.encoding)
        self._settings = settings
        self.read_uris = (settings.path,)
        self._columns = typed_columns(settings.columns)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> FilesSource:
        """The source of a description."""
        return cls(build(FilesSettings, values, "[source]"))

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        settings = self._settings
        position = FilePosition(settings.start) if checkpoint is None else FilePosition.of(checkpoint)
        storage, files = find_data_files(settings.path, settings.storage_options)
        latest = time.time() * 1000 - settings.min_age * 1000
        new = sorted(
            (file for file in files if position.is_new(file) and (file.modified <= latest or not settings.min_age)),
            key=lambda file: (file.modified, file.path),
        )
        tables: list[tuple[FileInfo, pa.Table]] = []
        bad: list[BadRow] = []
        file_count, size, rows = 0, 0, 0
        folder_types = self._folder_types(new)
        for file in new:
            if file_count and (size + file.size > settings.max_bytes or rows >= limit):
                break
            table, bad_rows = self._read(storage, file, folder_types)
            bad += bad_rows
            if table is not None and table.num_columns:
                tables.append((file, table))
                rows += table.num_rows
            size += file.size
            file_count += 1
        left = new[file_count:]
        lag: dict[str, float] = {"files": len(left), "bytes": sum(file.size for file in left)}
        if not file_count:
            return IngestPoll(None, None, checkpoint, lag=lag)
        after = position.after(new[:file_count])
        origin = _Origin([(file.path, table.num_rows) for file, table in tables])
        joined = union_of([table for _, table in tables]) if tables else None
        origin.rows = joined
        return IngestPoll(joined, bad_table(bad), str(after), more=bool(left), lag=lag, origin=origin)

    def _folder_types(self, files: Sequence[FileInfo]) -> dict[str, pa.DataType]:
        """The types of columns that folders name and the table does not have, inferred from the folders of all these
        files."""
        texts: dict[str, list[str | None]] = {}
        if self._settings.partitioning == "hive":
            for file in files:
                for name, text in texts_of(file.path).items():
                    texts.setdefault(name, []).append(text)
        return {name: inferred_type(values) for name, values in texts.items()}

    def _read(
        self, storage: Storage, file: FileInfo, folder_types: Mapping[str, pa.DataType]
    ) -> tuple[pa.Table | None, list[BadRow]]:
        """The rows of one file, and its bad rows. A file that cannot be read at all is a bad row without payload."""
        label = file.path
        kind = self._settings.format or ("avro" if label.lower().endswith(".avro") else format_of(label))
        if kind is None:
            return None, [BadRow(label, None, SCHEMA_FAILURE, "the name of the file does not end in a known format")]
        encoding = self._settings.encoding if kind in TEXT_FORMATS else None
        data = DataFile(storage, file.path, file.size, label, encoding)
        types = {**self.types, **self._columns}
        texts = {name: text for name, text in texts_of(label).items() if name in folder_types}
        try:
            table, bad = self._rows(data, kind, types)
            in_file = {name.lower() for name in table.column_names}
            for name in [name for name in texts if name.lower() not in in_file]:
                value = value_of(texts[name], type_of(name, types) or folder_types[name], name)
                table = table.append_column(name, pa.repeat(value, table.num_rows))
        except (InvalidRecord, CorruptFile, SchemaConflict) as error:
            return None, [BadRow(label, None, AVRO_FAILURE if kind == "avro" else RECORD_FAILURE, error.message)]
        return table, bad

    def _rows(self, data: DataFile, kind: str, types: Mapping[str, pa.DataType]) -> tuple[pa.Table, list[BadRow]]:
        """The rows and the bad rows of a file, without the columns that folders name."""
        if kind == "avro":
            with data.opened() as opened:
                return avro_file_rows(opened.read(), data.label), []
        try:
            reader = reader_of(kind, types, TextSettings(self._settings.delimiter))
            rows = RowsOfFiles([data], {data.path: {}}, reader, types)
            return without_null_types(rows.table()), []
        except (InvalidRecord, CorruptFile, SchemaConflict) as error:
            if kind not in ("csv", "json"):
                raise
            with data.opened() as opened:
                content = opened.read()
            if kind == "json":
                table, bad = json_lines(content, data.label, types)
                # the columns of `types` are there, also those that no line names
                table = table.select([n for n in table.column_names if table[n].null_count < table.num_rows])
            else:
                table, bad = csv_lines(content, data.label, types, self._settings.delimiter)
                check_names(table.column_names)
            if not bad and not (kind == "json" and table.num_rows):  # each line of JSON is a row by itself
                raise InvalidRecord(error.message, hint=error.hint) from error
            return without_null_types(table), bad


@dataclass
class _Origin:
    """The origin of rows of files, by number: the path and the number of the row in it, and the row as JSON."""

    files: list[tuple[str, int]]
    rows: pa.Table | None = None

    def __call__(self, numbers: Sequence[int]) -> tuple[list[str], list[bytes]]:
        assert self.rows is not None
        positions: list[str] = []
        for number in numbers:
            for path, count in self.files:
                if number < count:
                    positions.append(f"{path}:row {number + 1}")
                    break
                number -= count
        rows = self.rows.take(list(numbers))
        payloads = [json.dumps(row, default=str).encode() for row in readable_texts(rows).to_pylist()]
        return positions, payloads
