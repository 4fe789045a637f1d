"""The bootstrap index of a table: which files outside of it hold the rows of its skeleton files.

A skeleton file is a base file with the meta columns alone; the other columns of its rows are those of a source file,
row by row. Two HFiles under `.hoodie/.aux/.bootstrap` name the source file of each skeleton: by partition path and by
file id. They are written once, with the commit that makes the skeletons.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from lakebed.config.java_properties import read_properties
from lakebed.errors import CorruptFile
from lakebed.format.avro.encoder import is_avro_file, read_avro_file, write_avro_file
from lakebed.format.file_names import parse_base_file
from lakebed.format.hfile.reader import open_hfile
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.sources import FileSource
from lakebed.model import BOOTSTRAP_INSTANT, HOODIE
from lakebed.schema.avro import avro_to_arrow
from lakebed.sharing import once
from lakebed.storage.base import parse_uri
from lakebed.storage.opening import open_storage

if TYPE_CHECKING:
    from lakebed.storage.base import Storage

BASE_PATH = "hoodie.bootstrap.base.path"
_FILE = f"00000000-0000-0000-0000-000000000000-0_1-0-1_{BOOTSTRAP_INSTANT}.hfile"
BY_PARTITION = f"{HOODIE}/.aux/.bootstrap/.partitions/{_FILE}"
BY_FILE_ID = f"{HOODIE}/.aux/.bootstrap/.fileids/{_FILE}"
_INFO = b"INDEX_INFO"
_PROPERTIES = f"{HOODIE}/hoodie.properties"
_NULL = "__HIVE_DEFAULT_PARTITION__"
# So many tables' indexes stay open.
_OPEN_INDEXES = 16


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The file that holds the rows of a skeleton file: `path` below the folder that `storage` opens, its size when the
    table was made, and the values in the names of its folders (`day=2024-01-01`) in the table's types."""

    storage: Storage
    path: str
    size: int
    values: Mapping[str, pa.Scalar]

    @property
    def url(self) -> str:
        return self.storage.url(self.path)


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A skeleton file and its source file, as they go into a new index. `folder` is that of the source file below the
    base path, `modified` its time in epoch milliseconds."""

    partition: str
    file_id: str
    folder: str
    uri: str
    size: int
    modified: int

    @property
    def status(self) -> dict[str, Any]:
        """Hudi's record of the source file."""
        return {
            "version": None,
            "path": {"version": 1, "uri": self.uri},
            "length": self.size,
            "isDir": False,
            "blockReplication": 1,
            "blockSize": 32 << 20,
            "modificationTime": self.modified,
            "accessTime": self.modified,
            "permission": None,
            "owner": None,
            "group": None,
            "symlink": None,
        }


def source_file(storage: Storage, path: str) -> SourceFile | None:
    """The source file of a skeleton file; None for a base file that has all columns.

    Raises `CorruptFile` if the bootstrap index is not there or does not name the file.
    """
    folder, _, name = path.rpartition("/")
    file = parse_base_file(folder, name, 0)
    return None if file is None or not file.is_skeleton else _index_of(storage).source(folder, file.file_id, path)


def index_files(base_path: str, skeletons: Sequence[IndexedFile], *, hbase_keys: bool) -> dict[str, bytes]:
    """The two files of a bootstrap index, by their paths in the table."""
    partitions: dict[str, list[IndexedFile]] = {}
    for skeleton in skeletons:
        partitions.setdefault(skeleton.partition, []).append(skeleton)
    by_partition = {
        f"part={partition}": {
            "version": None,
            "bootstrapPartitionPath": partition_skeletons[0].folder,
            "partitionPath": partition,
            "fileIdToBootstrapFile": {skeleton.file_id: skeleton.status for skeleton in partition_skeletons},
        }
        for partition, partition_skeletons in partitions.items()
    }
    by_file = {
        f"part={skeleton.partition};fileid={skeleton.file_id}": {
            "version": None,
            "bootstrapPartitionPath": skeleton.folder,
            "bootstrapFileStatus": skeleton.status,
            "partitionPath": skeleton.partition,
        }
        for skeleton in skeletons
    }
    contents: dict[str, bytes] = {}
    for path, schema, records in (
        (BY_PARTITION, "HoodieBootstrapPartitionMetadata", by_partition),
        (BY_FILE_ID, "HoodieBootstrapFilePartitionInfo", by_file),
    ):
        info = {
            "version": None,
            "bootstrapBasePath": base_path,
            "createdTimestamp": int(time.time() * 1000),
            "numKeys": len(records),
        }
        keys = sorted(records, key=str.encode)
        contents[path] = write_hfile(
            pa.array(keys, pa.string()),
            pa.array([write_avro_file(_schema(schema), records[key]) for key in keys], pa.binary()),
            schema_json="",
            codec="none",
            hbase_keys=hbase_keys,
            info={_INFO: write_avro_file(_schema("HoodieBootstrapIndexInfo"), info)},
        )
    return contents


class _BootstrapIndex:
    """An open index: the source files of one partition path at a time, which stay in memory."""

    def __init__(self, storage: Storage, properties: Mapping[str, str]) -> None:
        index = storage.head(BY_PARTITION)
        if index is None:
            raise CorruptFile(
                f"the bootstrap index {storage.url(BY_PARTITION)} is missing: no file names the sources of the skeleton"
                " files",
                hint="Restore it from a copy.",
                context={"path": BY_PARTITION},
            )
        self._hfile = hfile = open_hfile(FileSource(storage, BY_PARTITION, index.size, index.modified))
        self._storage, self._properties = storage, properties
        info = read_avro_file(hfile.info[_INFO], BY_PARTITION)
        recorded = str(info["bootstrapBasePath"])
        self._recorded = parse_uri(recorded).uri
        self._sources = open_storage(properties.get(BASE_PATH) or recorded, storage.spec.options)
        self._partitions: dict[str, Mapping[str, SourceFile]] = {}

    def source(self, partition: str, file_id: str, path: str) -> SourceFile:
        sources = self._partitions.get(partition)
        if sources is None:
            sources = self._partitions[partition] = self._read(partition)
        if file_id not in sources:
            raise CorruptFile(
                f"the bootstrap index {BY_PARTITION} does not name the source file of {path}",
                hint="Restore the index from a copy.",
                context={"path": BY_PARTITION, "file": path},
            )
        return sources[file_id]

    def _read(self, partition: str) -> dict[str, SourceFile]:
        values = self._hfile.lookup(pa.array([f"part={partition}"])).entries.values
        if not len(values):
            return {}
        record = read_avro_file(values[0].as_py(), BY_PARTITION)
        folders = self._values(record["bootstrapPartitionPath"] or "")
        return {
            file_id: SourceFile(self._sources, self._below(status["path"]["uri"]), status["length"], folders)
            for file_id, status in (record["fileIdToBootstrapFile"] or {}).items()
        }

    def _values(self, folder: str) -> dict[str, pa.Scalar]:
        texts = folder_texts(folder)
        kinds = self._types if texts else {}
        return {name: _value(text, kinds.get(name, pa.string()), folder) for name, text in texts.items()}

    @once
    def _types(self) -> Mapping[str, pa.DataType]:
        """The types of the table's columns by name: those of its creation, or of the oldest commit on its timeline."""
        text = self._properties.get("hoodie.table.create.schema") or oldest_schema(self._storage, self._properties)
        return {field.name: field.type for field in avro_to_arrow(text)} if text else {}

    def _below(self, uri: str) -> str:
        """The path of a source file below the base path."""
        path = parse_uri(uri).uri
        if not path.startswith(f"{self._recorded}/"):
            raise CorruptFile(
                f"the bootstrap index {BY_PARTITION} names {uri}, which is not below {self._recorded}",
                hint="Restore the index from a copy.",
                context={"path": BY_PARTITION, "file": uri},
            )
        return path[len(self._recorded) + 1 :]


def folder_texts(folder: str) -> dict[str, str | None]:
    """The columns and their texts in the names of folders; None for the text that Hive writes for null.

    >>> folder_texts("day=2024-01-01/town=S%C3%A3o"), folder_texts("2024/01")
    ({'day': '2024-01-01', 'town': 'São'}, {})
    """
    named = (part.partition("=") for part in folder.split("/"))
    return {name: None if text == _NULL else unquote(text) for name, sign, text in named if sign}


def _value(text: str | None, kind: pa.DataType, folder: str) -> pa.Scalar:
    try:
        return pa.scalar(text, pa.string()).cast(kind)
    except pa.ArrowException as error:
        raise CorruptFile(
            f"the bootstrap index {BY_PARTITION} names the source folder {folder}, and {text!r} is no {kind}",
            hint="Restore the index from a copy.",
            context={"path": BY_PARTITION, "folder": folder},
        ) from error


def oldest_schema(storage: Storage, properties: Mapping[str, str]) -> str:
    """The Avro schema that the oldest commit on the timeline wrote; empty if no commit has a schema."""
    is_old = properties.get("hoodie.timeline.layout.version") == "1"
    folder = HOODIE if is_old else f"{HOODIE}/{properties.get('hoodie.timeline.path') or 'timeline'}"
    for name in sorted(storage.list_names(folder)):
        if name.endswith((".commit", ".deltacommit")):
            data = storage.read(f"{folder}/{name}")
            body = read_avro_file(data, name) if is_avro_file(data) else json.loads(data or b"{}")
            text = (body.get("extraMetadata") or {}).get("schema")
            if text:
                return str(text)
    return ""


_indexes: dict[tuple[str, int, int], _BootstrapIndex] = {}
_lock = Lock()


def _index_of(storage: Storage) -> _BootstrapIndex:
    """The open index of a table. It is opened again if the table's properties have changed, since these name the folder
    of the source files."""
    properties = storage.head(_PROPERTIES)
    key = (storage.url(), properties.size, properties.modified) if properties else (storage.url(), 0, 0)
    with _lock:
        index = _indexes.get(key)
    if index is None:
        texts = read_properties(storage.read(_PROPERTIES).decode()) if properties else {}
        index = _BootstrapIndex(storage, texts)
        with _lock:
            while len(_indexes) >= _OPEN_INDEXES:
                del _indexes[next(iter(_indexes))]
            _indexes[key] = index
    return index


@cache
def _schema(name: str) -> str:
    """The schema of a record of the index, as Hudi's Java classes embed it."""
    text = (get_data("lakebed.format", f"schemas/{name}.avsc") or b"").decode()
    return json.dumps(json.loads(text), separators=(",", ":"))
