"""Parquet files that a table can be made over where they are: one partition folder each, the same columns in all, types
that every reader of the table reads in the same way. Any other file is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from lakebed.inputs.file_formats import DataFile, FileShape, ParquetFormat
from lakebed.inputs.files import FilesSource
from lakebed.inputs.other_tables import COPY_HINT, OtherTable
from lakebed.inputs.partition_columns import check_same_names, texts_of
from lakebed.schema.arrow import normal_type, plain_type
from lakebed.storage.base import Storage
from lakebed.storage.folder import FolderStorage


@dataclass(frozen=True)
class SourceFolder:
    """The files below the folder `storage`; `modified` are their times in epoch milliseconds, by path."""

    storage: Storage
    rows: FilesSource
    modified: dict[str, int]

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that folders name."""
        return self.rows.folder_columns

    @property
    def is_encoded(self) -> bool:
        """Whether the names of folders have encoded characters (`%3A`)."""
        return any(unquote(folder_of(file)) != folder_of(file) for file in self.rows.files)


class PlainParquet(ParquetFormat):
    """Parquet files whose columns are read in plain types, whatever memory layout their writers had."""

    def shape(self, file: DataFile) -> FileShape:
        shape = super().shape(file)
        return replace(shape, schema=pa.schema([f.with_type(plain_type(f.type)) for f in shape.schema]))


def folder_of(file: DataFile) -> str:
    """The folder of a file below the root; empty for a file in the root itself."""
    return file.path.rpartition("/")[0]


def check_apart(table: str, source: str) -> None:
    """Raise `InvalidOption` if one of two folders, of a table over source files and of these files, contains the
    other."""
    table_folder, source_folder = f"{table.rstrip('/')}/", f"{source.rstrip('/')}/"
    if table_folder.startswith(source_folder) or source_folder.startswith(table_folder):
        raise InvalidOption(
            f"the table {table} and its source files {source} need folders of their own",
            hint="name a folder outside of the source",
            context={"uri": table, "source": source},
        )


def files_of_folder(rows: FilesSource) -> SourceFolder:
    """The files of a folder that is not a table. Raises `UnsupportedFeature` with the reason if a table cannot use them
    in place."""
    if any(file.path.rpartition(".")[2] != "parquet" for file in rows.files):
        raise refused(f"{rows.files[0].label} is no Parquet file", "files")
    storage = rows.files[0].storage
    return _checked(storage, rows, rows.schema)


def files_of_table(table: OtherTable) -> SourceFolder:
    """The live files of a Delta Lake or Iceberg table. Raises `UnsupportedFeature` with the reason if its rows are not
    those of the files, or folders do not name its partition values."""
    if table.hidden_partitioning:
        raise refused(f"the table is partitioned by {', '.join(table.hidden_partitioning)}", "partitioning")
    storage, paths = table.live_files()
    if not paths:
        raise refused(f"the {table.kind} table has no rows", "files")
    root = _common_root(paths)
    below = FolderStorage(storage, root) if root else storage
    sizes = {info.path: info.size for info in below.list("")}
    files: list[DataFile] = []
    for path in sorted(path[len(root) + 1 :] if root else path for path in paths):
        if path not in sizes:
            raise refused(f"the file {below.url(path)}, which the table names, is missing", "files")
        files.append(DataFile(below, path, sizes[path], below.url(path)))
    texts = {file.path: texts_of(file.path) for file in files}
    types = {column.name: column.type for column in table.schema}
    try:
        check_same_names(texts)
        rows = FilesSource(files, texts, PlainParquet(), types)
    except LakebedError as error:
        raise refused(error.message, "columns") from error
    if set(rows.folder_columns) != set(table.partition_columns):
        named = ", ".join(rows.folder_columns) or "no columns"
        raise refused(
            f"it is partitioned by {', '.join(table.partition_columns) or 'nothing'}, and its folders name {named}",
            "partitioning",
        )
    return _checked(below, rows, table.schema)


def refused(why: str, feature: str) -> UnsupportedFeature:
    """The error for a source whose files a table cannot use in place."""
    return UnsupportedFeature(
        f"no table can be made over these files where they are: {why}",
        hint=COPY_HINT,
        context={"feature": f"in_place: {feature}"},
    )


def _checked(storage: Storage, rows: FilesSource, columns: pa.Schema) -> SourceFolder:
    """The files. Raises an error unless each has the columns of the table in types that Hudi's readers read as the
    table's."""
    if set(rows.schema.names) != set(columns.names):
        differing = sorted(set(rows.schema.names) ^ set(columns.names))
        raise refused(f"files and table differ in the columns {', '.join(differing)}", "columns")
    kinds = {column.name: column.type for column in rows.schema}
    for file in rows.files:
        for column in rows.shape_of(file).schema:
            kind = kinds[column.name]
            if not _is_readable_by_spark(plain_type(column.type)):
                raise refused(f"column {column.name} of {file.label} is of type {column.type}", "types")
            if normal_type(plain_type(column.type), column.name) != normal_type(plain_type(kind), column.name):
                raise refused(
                    f"column {column.name} is {column.type} in {file.label} and {kind} in other files", "types"
                )
    if not rows.folder_columns and any(folder_of(file) for file in rows.files):
        inner = next(file.label for file in rows.files if folder_of(file))
        raise refused(f"{inner} is in a folder whose name has no column=value", "partitioning")
    if len({file.path.count("/") for file in rows.files}) > 1:
        raise refused("files are in folders of different depth", "partitioning")
    shared_columns = sorted(
        set(rows.folder_columns) & {name for f in rows.files for name in rows.shape_of(f).schema.names}
    )
    if shared_columns:  # the values of the files need not be those of the folders
        raise refused(f"both files and folders have the columns {', '.join(shared_columns)}", "partitioning")
    modified = {info.path: info.modified for info in storage.list("")}
    return SourceFolder(storage, rows, {file.path: modified.get(file.path, 0) for file in rows.files})


def _common_root(paths: Sequence[str]) -> str:
    """The longest common folder of all files for which no folder name on its path names a column."""
    parts = [path.split("/")[:-1] for path in paths]
    root: list[str] = []
    for at, part in enumerate(parts[0]):
        if "=" in part or any(len(folders) <= at or folders[at] != part for folders in parts):
            break
        root.append(part)
    return "/".join(root)


def _is_readable_by_spark(kind: pa.DataType) -> bool:
    """Whether Spark's Parquet reader, with which Hudi reads the files, reads the type as lakebed does."""
    if pt.is_list(kind):
        return _is_readable_by_spark(kind.value_type)
    if pt.is_map(kind):
        return _is_readable_by_spark(kind.key_type) and _is_readable_by_spark(kind.item_type)
    if pt.is_struct(kind):
        return all(_is_readable_by_spark(field.type) for field in kind)
    if pt.is_timestamp(kind):
        return kind.unit in ("us", "ms")
    texts = pt.is_string(kind) or pt.is_binary(kind)
    numbers = pt.is_signed_integer(kind) or pt.is_float32(kind) or pt.is_float64(kind) or pt.is_decimal128(kind)
    return texts or numbers or pt.is_boolean(kind) or pt.is_date32(kind)
