"""What metadata partitions begin with on a table that may have files already."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Engine
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.expression_indexes import ExpressionIndex
from lakebed.metadata.kinds.file_ranges import ranges_of_file
from lakebed.metadata.kinds.stats_columns import Kinds, index_version_of, stats_definitions
from lakebed.metadata.kinds.updates import (
    NewFile,
    bloom_records_of,
    column_stats_records,
    file_records,
    partition_stats_records,
    stats_of,
)
from lakebed.metadata.layout import (
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    fixed_file_groups,
)
from lakebed.metadata.routing import Records, split_by_group
from lakebed.metadata.schemas import form_of_version
from lakebed.metadata.store.writer import GroupRecords
from lakebed.model import path_in
from lakebed.slices.listing import list_table
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map
from lakebed.upkeep.action_records import bloom_of_file, wanted_stats
from lakebed.upkeep.expression_records import ExpressionRecords, live_files


class InitialRecords:
    """What partitions begin with on a table that may have files already."""

    def __init__(self, snapshot: Snapshot, settings: WriteSettings, engine: Engine | None) -> None:
        self.snapshot = snapshot
        self._settings = settings
        self._engine = engine
        self._files: list[NewFile] | None = None
        self._kinds: Kinds = {}

    def groups(self, partition: str) -> tuple[list[GroupRecords], IndexDefinition | None]:
        """The records of each of its file groups, and its definition where it has one."""
        config, storage = self.snapshot.config, self.snapshot.storage
        form = form_of_version(config.version)
        if partition == FILES:
            return _grouped(FILES, self._listed()), None
        files = self._ranged()
        index_version = index_version_of(config.version)
        if partition == COLUMN_STATS:
            definition = stats_definitions(list(self._kinds), version=config.version).get(COLUMN_STATS)
            return _grouped(
                partition, column_stats_records(stats_of(files, self._kinds, index_version), form, index_version)
            ), definition
        if partition == PARTITION_STATS:
            new = stats_of(files, self._kinds, index_version)
            live = live_files(self.snapshot.base_files())
            records = partition_stats_records({}, new, live, self._kinds, form, index_version)
            return _grouped(partition, Records.upserts(records.keys, records.values)), None
        with_blooms = [
            NewFile(f.partition, f.name, f.size, None, bloom_of_file(storage, _path(f), f.size)) for f in files
        ]
        instant = self.snapshot.instant or "0" * 17
        return _grouped(partition, bloom_records_of(with_blooms, instant, form)), None

    def expression_groups(self, definition: IndexDefinition) -> tuple[list[GroupRecords], IndexDefinition]:
        """The same for an expression index."""
        index = ExpressionIndex.of(definition, self.snapshot.schema)
        records = ExpressionRecords(self.snapshot, {}, self._engine)
        beginning = records.beginning(index, self.snapshot.instant or "0" * 17)
        return _grouped(definition.name, beginning), definition

    def _listed(self) -> Records:
        """Every file of a completed action, in folders that are partitions."""
        listing = list_table(self.snapshot.storage)
        files = [
            NewFile(f.partition, f.name, f.size)
            for f in (*listing.base_files, *listing.log_files)
            if self.snapshot.is_visible(f.instant)
        ]
        form = form_of_version(self.snapshot.config.version)
        return file_records(files, form, partitions=listing.partitions)

    def _ranged(self) -> list[NewFile]:
        if self._files is None:
            config, storage = self.snapshot.config, self.snapshot.storage
            self._kinds = wanted_stats(storage, config, self.snapshot.schema, self._settings)
            bases = [b for b in list_table(storage).base_files if self.snapshot.is_visible(b.instant)]
            ranges = parallel_map(lambda b: ranges_of_file(storage, b.path, b.size, self._kinds), bases)
            self._files = [NewFile(b.partition, b.name, b.size, r) for b, r in zip(bases, ranges, strict=True)]
        return self._files


def _path(file: NewFile) -> str:
    return path_in(file.partition, file.name)


def _grouped(partition: str, records: Records) -> list[GroupRecords]:
    """Records by file group, for a partition with a fixed number of them."""
    count = fixed_file_groups(partition)
    assert count is not None
    parts = split_by_group(partition, records, [str(n) for n in range(count)], 1)
    none: Mapping[int, tuple[pa.Array, pa.Array, pa.Array]] = {}
    empty = (pa.array([], pa.string()), pa.array([], pa.binary()), None)
    return [GroupRecords(*(parts or none).get(n, empty)[:2]) for n in range(count)]
