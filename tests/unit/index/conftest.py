"""Tables for index tests: real Parquet files in memory behind what an index asks of a snapshot, and golden tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.format.file_names import base_file_name, new_file_id
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import HOODIE, META_COLUMNS, BaseFile, FileSlice
from lakebed.properties.table_config import TableConfig
from lakebed.slices.listing import FileGroups
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from support import golden_tables

INSTANT = "20240102030405006"


@dataclass
class StoredTable:
    """Stands in for a `Snapshot`: files are real, the timeline is one commit."""

    storage: Storage
    config: TableConfig
    files: list[BaseFile] = field(default_factory=list)
    schemas: dict[str, pa.Schema] = field(default_factory=dict)

    @property
    def commits(self) -> Sequence[str]:
        return [INSTANT] if self.files else []

    @property
    def index_settings(self) -> Mapping[str, str]:
        return self.config.index_settings

    @property
    def hoodie_folders(self) -> frozenset[str]:
        return frozenset(self.storage.list_folders(HOODIE))

    def partitions(self) -> tuple[str, ...]:
        return tuple(sorted({f.partition for f in self.files}))

    def base_files(self, partitions: Collection[str] | None = None) -> tuple[BaseFile, ...]:
        return tuple(f for f in self.files if partitions is None or f.partition in partitions)

    def file_slices(
        self, partitions: Collection[str] | None = None, groups: FileGroups | None = None
    ) -> tuple[FileSlice, ...]:
        files = self.base_files(partitions)
        ids, sizes = pa.array([f.file_id for f in files], pa.string()), pa.array([f.size for f in files], pa.int64())
        wanted = [True] * len(files) if groups is None else groups(ids, sizes).to_pylist()
        return tuple(FileSlice(f.partition, f.file_id, f.instant, f) for f in compress(files, wanted))

    @property
    def reader(self) -> SliceReader:
        return SliceReader(self.storage, self.config)

    def schema_of(self, file_slice: FileSlice) -> pa.Schema:
        return self.schemas[file_slice.label]

    def add(self, partition: str, rows: pa.Table, *, key: str = "key", file_id: str | None = None) -> BaseFile:
        """Write a base file of these rows; `key` is the column with the record key."""
        file_id = file_id or new_file_id(INSTANT, partition, len(self.files))
        name = base_file_name(file_id, f"{len(self.files)}-0-1", INSTANT)
        meta = {
            "_hoodie_commit_time": [INSTANT] * rows.num_rows,
            "_hoodie_commit_seqno": [f"{INSTANT}_0_{i}" for i in range(rows.num_rows)],
            "_hoodie_record_key": rows.column(key).to_pylist(),
            "_hoodie_partition_path": [partition] * rows.num_rows,
            "_hoodie_file_name": [name] * rows.num_rows,
        }
        stored = pa.table(
            [*(pa.array(meta[m], pa.string()) for m in META_COLUMNS), *rows.columns],
            names=[*META_COLUMNS, *rows.column_names],
        )
        sink = pa.BufferOutputStream()
        pq.write_table(stored, sink)
        data = sink.getvalue().to_pybytes()
        file = BaseFile(partition, file_id, f"{len(self.files)}-0-1", INSTANT, name, len(data))
        self.storage.write(file.path, data)
        self.files.append(file)
        self.schemas[file.path] = rows.schema
        return file


def _stored_table(
    key_fields: Iterable[str] = ("key",),
    *,
    partition_fields: Iterable[str] = ("region",),
    settings: Mapping[str, str] | None = None,
    meta_fields: bool = True,
    metadata_partitions: Iterable[str] = (),
) -> StoredTable:
    config = TableConfig(
        {
            "hoodie.table.name": "trips",
            "hoodie.table.version": "9",
            "hoodie.table.recordkey.fields": ",".join(key_fields),
            "hoodie.table.partition.fields": ",".join(partition_fields),
            "hoodie.populate.meta.fields": str(meta_fields).lower(),
            "hoodie.table.metadata.partitions": ",".join(metadata_partitions),
            **{f"lakebed.index.{name}": value for name, value in (settings or {}).items()},
        }
    )
    return StoredTable(open_storage(f"memory://{uuid.uuid4().hex}"), config)


@pytest.fixture
def new_table() -> Callable[..., StoredTable]:
    return _stored_table


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Snapshot]:
    """A golden table by name, unpacked, as a snapshot of its own."""
    return lambda name: open_snapshot(open_storage(str(golden_tables.golden(name).unpack(tmp_path))))
