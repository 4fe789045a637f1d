"""Keeps `files` right: the data table's partition paths, and the files of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption
from lakebed.metadata.keys import ALL_PARTITIONS, partition_identifier, partition_of
from lakebed.metadata.kinds import files
from lakebed.metadata.kinds.definitions import IndexName
from lakebed.metadata.kinds.files_records import file_records
from lakebed.metadata.layout import FILES, GroupSizing
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.records import Records
from lakebed.model import path_in
from lakebed.properties.table_config import TableConfig
from lakebed.slices.listing import list_table
from lakebed.storage.base import Storage
from lakebed.upkeep.comparison import comparable
from lakebed.upkeep.grouping import grouped
from lakebed.upkeep.kind import FirstBuild, KindUpkeep, NewPartition, Removal, StoredTable, TableAction
from lakebed.upkeep.stored_files import NewFile, StoredFiles, completed_files, completed_logs

_DELETES_ONLY = frozenset({"DELETE_PARTITION"})


class FilesUpkeep(KindUpkeep):
    kind = files.KIND

    def of_action(self, partition: str, action: TableAction) -> Records:
        written = [
            NewFile(path, stat.path.rpartition("/")[2], stat.file_size)
            for path, stats in action.commit.stats.items()
            for stat in stats
        ]
        written += [
            NewFile(partition, path.rpartition("/")[2], size)
            for partition, stats in action.commit.stats.items()
            for stat in stats
            for path, size in (stat.cdc_stats or {}).items()
        ]
        paths = () if action.commit.operation in _DELETES_ONLY else tuple(action.commit.stats)
        return file_records(written, action.form, partitions=paths)

    def of_removal(self, partition: str, removal: Removal) -> Records:
        removed = {path: names for path, names in removal.files.items() if path not in removal.gone}
        said = file_records([], removal.form, removed=removed, gone=removal.gone)
        identifiers = pa.array(sorted(map(partition_identifier, removal.gone)), pa.string())
        return replace(said, deleted=identifiers)

    def initial(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        """Every file of a completed action, in folders that are partitions."""
        listing = list_table(build.snapshot.storage)
        changes = [f for f in listing.log_files if f.is_cdc]
        logs = completed_logs(build.snapshot, [f for f in listing.log_files if not f.is_cdc])
        others = completed_files(build.snapshot, [*listing.base_files, *changes])
        there = [NewFile(f.partition, f.name, f.size) for f in (*others, *logs)]
        return grouped(name.partition, file_records(there, build.form, partitions=listing.partitions)), None

    def check_drop(self, storage: Storage, config: TableConfig) -> None:
        raise InvalidOption(
            f"{FILES} is what the metadata table of {config.name!r} stands on",
            hint="The other indexes can be dropped one by one.",
        )

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        stored = table.shared(StoredFiles)
        return _listed(stored.files, sorted({f.partition for f in stored.files}))

    def right_as_well(self, partition: str, table: StoredTable) -> Sequence[pa.Table]:
        """A partition path may be listed that has no file: the write that began it was undone, or all of its files were
        cleaned."""
        stored = table.shared(StoredFiles)
        return [_listed(stored.files, stored.folders)]

    def found(self, partition: str, metadata: MetadataTable, table: StoredTable) -> pa.Table:
        rows = metadata.files()
        columns = (rows[name].to_pylist() for name in ("partition", "name", "size"))
        return _listed([NewFile(*row) for row in zip(*columns, strict=True)], metadata.partitions())

    def missing_records(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        sizes = {(f.partition, f.name): f.size for f in table.shared(StoredFiles).files}
        missing: list[NewFile] = []
        partitions: list[str] = []
        for row in rows.to_pylist():  # one a file that differs
            if row["key"] == ALL_PARTITIONS:
                partitions.append(partition_of(row["entry"]))
            else:
                path = partition_of(row["key"])
                missing.append(NewFile(path, row["entry"], sizes[path, row["entry"]]))
        return file_records(missing, table.form, partitions=partitions)

    def extra_records(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        removed: dict[str, list[str]] = {}
        gone: list[str] = []
        for row in rows.to_pylist():  # one a file that differs
            if row["key"] == ALL_PARTITIONS:
                gone.append(partition_of(row["entry"]))
            else:
                removed.setdefault(partition_of(row["key"]), []).append(row["entry"])
        return file_records([], table.form, removed={p: n for p, n in removed.items() if p not in gone}, gone=gone)

    def is_in_every_table(self, settings: WriteSettings, config: TableConfig) -> bool:
        return True


def _listed(listed: Sequence[NewFile], partitions: Sequence[str]) -> pa.Table:
    return comparable(
        [*(partition_identifier(f.partition) for f in listed), *(ALL_PARTITIONS for _ in partitions)],
        [*(f.name for f in listed), *map(partition_identifier, partitions)],
        [*(path_in(f.partition, f.name) for f in listed), *(f"partition {p}" for p in partitions)],
        [*(f"{f.size} bytes" for f in listed), *("" for _ in partitions)],
    )
