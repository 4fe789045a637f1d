"""Listing a table's data files, by its folders or by its metadata table: names parsed, everything else left aside."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.metadata.metadata_table import MetadataTable
from lakebed.model import HOODIE, BaseFile, LogFile
from lakebed.storage.base import Storage

PARTITION_METADATA = ".hoodie_partition_metadata"
# What releases before 1.0 note as the size of the log files of a rollback.
_NO_SIZE = 1


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies under the table folder, by kind; nothing is judged yet. Of a listing of some partition paths,
    `partitions` are those that were found."""

    base_files: tuple[BaseFile, ...]
    log_files: tuple[LogFile, ...]
    partitions: tuple[str, ...]

    def of_file_ids(self, file_ids: Collection[str]) -> Listing:
        """The files of some file groups."""
        wanted = frozenset(file_ids)
        base = tuple(f for f in self.base_files if f.file_id in wanted)
        return Listing(base, tuple(f for f in self.log_files if f.file_id in wanted), self.partitions)


def list_table(storage: Storage, partitions: Collection[str] | None = None) -> Listing:
    """List the whole table, or only some partitions' folders."""
    base: list[BaseFile] = []
    logs: list[LogFile] = []
    found: set[str] = set()
    prefixes = [("", True)] if partitions is None else [(p, False) for p in sorted(set(partitions))]
    for prefix, recursive in prefixes:
        for info in storage.list(prefix, recursive=recursive):
            folder, _, name = info.path.rpartition("/")
            if folder == HOODIE or folder.startswith(HOODIE + "/"):
                continue
            if name.startswith(PARTITION_METADATA):
                found.add(folder)
            elif b := parse_base_file(folder, name, info.size):
                base.append(b)
                found.add(folder)
            elif log := parse_log_file(folder, name, info.size):
                logs.append(log)
                found.add(folder)
    return Listing(tuple(base), tuple(logs), tuple(sorted(found)))


def list_metadata(
    metadata: MetadataTable,
    storage: Storage,
    partitions: Collection[str] | None = None,
    file_ids: Collection[str] | None = None,
) -> Listing:
    """What the metadata table lists: the whole table, some partitions' files, or some file groups'."""
    rows = metadata.files(partitions)
    if file_ids is not None:
        rows = rows.filter(pc.is_in(_file_ids(rows["name"]), value_set=pa.array(list(file_ids), pa.string())))
    base: list[BaseFile] = []
    logs: list[LogFile] = []
    for folder, name, size in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        if b := parse_base_file(folder, name, size):
            base.append(b)
        elif log := parse_log_file(folder, name, size if size > _NO_SIZE else _size(storage, folder, name)):
            logs.append(log)
    paths = metadata.partitions() if partitions is None else tuple(sorted({f.partition for f in (*base, *logs)}))
    return Listing(tuple(base), tuple(logs), paths)


def _file_ids(names: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring_regex(names, r"^\.?([^_]*)_.*$", r"\1")


def _size(storage: Storage, folder: str, name: str) -> int:
    info = storage.head(f"{folder}/{name}" if folder else name)
    return info.size if info is not None else 0
