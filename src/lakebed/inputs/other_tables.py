"""Rows of Delta Lake and Iceberg tables, read by `deltalake` and `pyiceberg`: what a table holds now, without deleted
rows, under the names and types of its columns.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from lakebed.inputs.base import BATCH_ROWS, RowSource
from lakebed.storage import Storage, open_storage
from lakebed.storage.base import parse_uri
from lakebed.storage.parallel import parallel_map

_INSTALL = "pip install 'lakebed[convert]'"
COPY_HINT = "make a full copy: lakebed.convert(source, new_uri, key=...), without in_place"
_READERS = 16
_VERSION = re.compile(r"v?(\d+)")


class OtherTable(RowSource):
    """A table of another format. `kind` is the name of the format in texts; `partition_columns` are the columns whose
    values partition its files; `hidden_partitioning` are expressions that partition them as well."""

    kind: str
    partition_columns: tuple[str, ...]
    hidden_partitioning: tuple[str, ...] = ()
    _path: str
    _schema: pa.Schema
    _rows: int | None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def rows(self) -> int | None:
        return self._rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = [name for name in self._schema.names if columns is None or name in set(columns)]
        schema = pa.schema([self._schema.field(name) for name in names])
        try:
            for batch in self.reader(names):
                rows = pa.Table.from_batches([batch]).select(names).cast(schema)
                yield from rows.to_batches(max_chunksize=BATCH_ROWS)
        except LakebedError:
            raise
        except Exception as error:  # the packages have errors of their own
            raise _unreadable(self._path, self.kind, error) from error

    @abstractmethod
    def live_files(self) -> tuple[Storage, list[str]]:
        """The table's folder, and the paths below it of the Parquet files that have the table's rows. Raises
        `UnsupportedFeature` if rows of them are deleted."""
        raise NotImplementedError

    @abstractmethod
    def reader(self, names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        """The batches of these columns, from the format's package."""
        raise NotImplementedError


class DeltaTable(OtherTable):
    """A Delta Lake table at its latest version. Its row count comes from the log, without reading."""

    kind = "Delta Lake"

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        module = _imported("deltalake", self.kind)
        try:
            self._table = module.DeltaTable(path, storage_options=dict(options) or None)
            self._schema = pa.schema(self._table.schema().to_arrow())
            adds = pa.table(self._table.get_add_actions(flatten=True))
        except Exception as error:  # deltalake has errors of its own, and of Rust
            raise _unreadable(path, self.kind, error) from error
        self.partition_columns = tuple(self._table.metadata().partition_columns)
        counts = adds.column("num_records") if "num_records" in adds.column_names else None
        self._rows = None if counts is None or counts.null_count else int(pc.sum(counts).as_py() or 0)
        self._path = path
        self._options = dict(options)
        if self._table.metadata().configuration.get("delta.columnMapping.mode") == "id":
            self._check_names_of_files()
        if self._rows is not None and "deletionVectors" in (self._table.protocol().reader_features or ()):
            masks = pc.list_flatten(pa.table(self._table.deletion_vectors()).column("selection_vector"))
            self._rows -= len(masks) - int(pc.sum(masks).as_py() or 0)

    def _check_names_of_files(self) -> None:
        """Raise `UnsupportedFeature` if a file identifies a column only by its id: `deltalake` looks for physical
        names, and would read null in every row."""
        fields = json.loads(self._table.schema().to_json())["fields"]
        partitions = set(self.partition_columns)
        root = self._path.rstrip("/")
        names = _physical_names({"fields": [field for field in fields if field["name"] not in partitions]})
        paths = pa.table(self._table.get_add_actions(flatten=True)).column("path").to_pylist()

        def check(path: str) -> None:
            folder, _, name = (path if "://" in path or path.startswith("/") else f"{root}/{path}").rpartition("/")
            try:
                storage = open_storage(folder, self._options)
            except InvalidOption:  # options by the names of deltalake: the environment has to do
                storage = open_storage(folder)
            with storage.open_input(name) as file:
                schema = pq.ParquetFile(file, pre_buffer=False).schema_arrow
            by_id = _names_by_id(schema)
            odd = {number: name for number, name in by_id.items() if names.get(number, name) != name}
            if odd or not set(schema.names) & set(names.values()):
                raise UnsupportedFeature(
                    f"the Delta Lake table {self._path} finds columns by their ids, and its file {path} has other names"
                    f" than the table records: {', '.join(sorted(odd.values()) or schema.names)}",
                    hint="rewrite its files with an engine that can read it, such as Spark",
                    context={"path": path, "feature": "columnMapping.id"},
                )

        parallel_map(check, [unquote(path) for path in paths], _READERS)

    def live_files(self) -> tuple[Storage, list[str]]:
        features = self._table.protocol().reader_features or ()
        if "deletionVectors" in features and len(pa.table(self._table.deletion_vectors())):
            raise _rows_are_deleted(self._path, "deletion vectors")
        if "columnMapping" in features or self._table.protocol().min_reader_version == 2:
            raise UnsupportedFeature(
                f"the columns of the Delta Lake table {self._path} may have other names in its files (column mapping)",
                hint=COPY_HINT,
                context={"path": self._path, "feature": "columnMapping"},
            )
        paths = pa.table(self._table.get_add_actions(flatten=True)).column("path").to_pylist()
        return open_storage(self._path, self._options), [unquote(path) for path in paths]

    def reader(self, names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        return pa.RecordBatchReader.from_stream(self._table.scan(columns=names))


def _physical_names(kind: Any) -> dict[int, str]:
    """The physical names of a type's fields, including nested ones, by their ids."""
    names: dict[int, str] = {}
    for field in kind.get("fields", ()):
        ids = field["metadata"]
        names[int(ids["delta.columnMapping.id"])] = ids["delta.columnMapping.physicalName"]
        names |= _physical_names({"fields": ()} if isinstance(field["type"], str) else field["type"])
    for part in ("elementType", "keyType", "valueType"):
        if isinstance(inner := kind.get(part), dict):
            names |= _physical_names(inner)
    return names


def _names_by_id(fields: Iterable[pa.Field]) -> dict[int, str]:
    """The names of the columns of a Parquet file, including nested ones, by their ids."""
    names: dict[int, str] = {}
    for field in fields:
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        if number is not None:
            names[int(number)] = field.name
        names |= _names_by_id([field.type.field(at) for at in range(field.type.num_fields)])
    return names


class IcebergTable(OtherTable):
    """An Iceberg table: a folder at its newest metadata file, or a table that `pyiceberg` opened."""

    kind = "Iceberg"

    def __init__(self, table: Any, options: Mapping[str, str]) -> None:
        module = _imported("pyiceberg.table", self.kind)
        self._path = table if isinstance(table, str) else str(table.location())
        try:
            if isinstance(table, str):
                table = module.StaticTable.from_metadata(newest_metadata(table, options), properties=dict(options))
            self._scan = table.scan()
            self._schema = self._scan.to_arrow_batch_reader().schema
            self._rows = int(self._scan.count())
            by_id = {field.field_id: field.name for field in table.schema().fields}
            spec = [(by_id.get(f.source_id, f.name), str(f.transform)) for f in table.spec().fields]
        except LakebedError:
            raise
        except Exception as error:  # pyiceberg has errors of its own, and those of its file systems
            raise _unreadable(self._path, self.kind, error) from error
        self.partition_columns = tuple(name for name, transform in spec if transform == "identity")
        hidden_fields = [f"{transform}({name})" for name, transform in spec if transform not in ("identity", "void")]
        self.hidden_partitioning = tuple(hidden_fields)
        self._location, self._options = str(table.location()), dict(options)

    def live_files(self) -> tuple[Storage, list[str]]:
        storage = open_storage(self._location, self._options)
        root = parse_uri(self._location).uri + "/"
        paths: list[str] = []
        for task in self._scan.plan_files():
            if task.delete_files:
                raise _rows_are_deleted(self._path, "delete files")
            uri = parse_uri(task.file.file_path).uri
            if not uri.startswith(root) or not uri.endswith(".parquet"):
                raise UnsupportedFeature(
                    f"the Iceberg table {self._path} has the file {uri}, which is no Parquet file below its folder",
                    hint=COPY_HINT,
                    context={"path": uri},
                )
            paths.append(uri[len(root) :])
        return storage, paths

    def reader(self, names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        return self._scan.select(*names).to_arrow_batch_reader()


def newest_metadata(path: str, options: Mapping[str, str]) -> str:
    """The newest metadata file of an Iceberg table's folder: the one that its version hint names, otherwise the one
    with the greatest number."""
    if path.endswith(".metadata.json"):
        return path
    storage = open_storage(path, options)
    names = storage.list_names("metadata")
    files = [name for name in names if name.endswith(".metadata.json")]
    if "version-hint.text" in names:
        hint = storage.read("metadata/version-hint.text").decode().strip()
        files = [name for name in files if name in (f"v{hint}.metadata.json", f"{hint}.metadata.json")] or files
    if not files:
        raise InvalidOption(
            f"there is no Iceberg table at {path}: metadata/ has no .metadata.json",
            hint="give the folder of the table, its metadata file, or a table that pyiceberg opened",
            context={"path": path},
        )
    numbers = [(int(match[1]) if (match := _VERSION.match(name)) else -1, name) for name in files]
    newest = max(number for number, _ in numbers)
    latest = [name for number, name in numbers if number == newest]
    if len(latest) > 1:
        raise InvalidOption(
            f"{path} has two metadata files of number {newest}: {latest[0]} and {latest[1]}",
            hint="open the table by its catalog, and give the pyiceberg table: the catalog knows which one counts",
            context={"path": path, "files": latest},
        )
    return f"{path.rstrip('/')}/metadata/{latest[0]}"


def _imported(module: str, kind: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise UnsupportedFeature(
            f"reading {kind} tables needs the package {name}, which cannot be imported: {error}",
            hint=f"{_INSTALL}",
            context={"package": name},
        ) from error


def _rows_are_deleted(path: str, how: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"files of the table {path} also hold deleted rows ({how})",
        hint=COPY_HINT,
        context={"path": path, "feature": how},
    )


def _unreadable(path: str, kind: str, error: Exception) -> UnsupportedFeature:
    package = "deltalake" if kind == "Delta Lake" else "pyiceberg"
    return UnsupportedFeature(
        f"the {kind} table {path} cannot be read by {package}: {error}",
        hint="write its rows as Parquet files with an engine that can read it, such as Spark, and load these files:"
        " lakebed.load(uri, files, key=...)",
        context={"path": path, "package": package},
    )
