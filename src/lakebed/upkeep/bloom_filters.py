"""Keeps `bloom_filters` right: the bloom filter of each base file, as its footer has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.format.base_file import read_footer
from lakebed.metadata.keys import file_keys
from lakebed.metadata.kinds import bloom_filters
from lakebed.metadata.kinds.bloom_filters import bloom_records_of
from lakebed.metadata.kinds.definitions import IndexName
from lakebed.metadata.layout import BLOOM_FILTERS, GroupSizing
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.records import Records
from lakebed.model import path_in
from lakebed.properties.table_config import TableConfig
from lakebed.slices.listing import list_table
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map
from lakebed.upkeep.comparison import COMPARED, comparable, joined
from lakebed.upkeep.grouping import grouped
from lakebed.upkeep.kind import FirstBuild, KindUpkeep, NewPartition, Removal, StoredTable, TableAction
from lakebed.upkeep.stored_files import NewFile, StoredFiles, completed_files, is_base_file


class BloomFiltersUpkeep(KindUpkeep):
    kind = bloom_filters.KIND

    def of_action(self, partition: str, action: TableAction) -> Records:
        written = [
            NewFile(path, stat.path.rpartition("/")[2], stat.file_size)
            for path, stats in action.commit.stats.items()
            for stat in stats
            if is_base_file(stat.path)
        ]
        files = [_with_filter(action.snapshot.storage, file) for file in written]
        return bloom_records_of(files, action.instant, action.form)

    def of_removal(self, partition: str, removal: Removal) -> Records:
        return Records.deletes(removal.keys)

    def initial(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        snapshot = build.snapshot
        bases = completed_files(snapshot, list_table(snapshot.storage).base_files)
        files = [_with_filter(snapshot.storage, NewFile(b.partition, b.name, b.size)) for b in bases]
        return grouped(name.partition, bloom_records_of(files, snapshot.instant or "0" * 17, build.form)), None

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        having = [(f, f.bloom) for f in table.shared(_StoredFilters).files if f.bloom is not None]
        keys = file_keys([f.partition for f, _ in having], [f.name for f, _ in having])
        texts = [f"{kind} {text}" for _, (kind, text) in having]
        return comparable(keys.to_pylist(), [""] * len(having), [_path(f) for f, _ in having], texts)

    def found(self, partition: str, metadata: MetadataTable, table: StoredTable) -> pa.Table:
        return joined([_comparable(t.filter(pc.invert(t["is_deleted"]))) for t in metadata.entries(partition)])

    def missing_records(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        labels = set(rows["what"].to_pylist())
        files = [f for f in table.shared(_StoredFilters).files if _path(f) in labels]
        return bloom_records_of(files, table.snapshot.instant, table.form)

    def requested(self, settings: WriteSettings, config: TableConfig) -> IndexName | None:
        return IndexName(BLOOM_FILTERS) if settings.bloom_filters_index else None


class _StoredFilters:
    """The base files of completed actions with their filters."""

    def __init__(self, table: StoredTable) -> None:
        self._storage, self._stored = table.snapshot.storage, table.shared(StoredFiles)

    @cached_property
    def files(self) -> Sequence[NewFile]:
        return parallel_map(lambda file: _with_filter(self._storage, file), self._stored.base_files)


def _with_filter(storage: Storage, file: NewFile) -> NewFile:
    return replace(file, bloom=read_footer(storage, _path(file), file.size).stored_bloom)


def _comparable(table: pa.Table) -> pa.Table:
    keys = table["key"].combine_chunks()
    text = pc.binary_join_element_wise(table["type"], table["bloom"].cast(pa.string()), " ")
    empty = pa.repeat(pa.scalar(""), len(keys))
    return pa.Table.from_arrays([keys, empty, keys, text], schema=COMPARED)


def _path(file: NewFile) -> str:
    return path_in(file.partition, file.name)
