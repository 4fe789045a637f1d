"""Keeps `partition_stats` right: ranges and counts of columns in partition paths."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption
from lakebed.metadata.kinds import partition_stats, stats_records
from lakebed.metadata.kinds.index_names import IndexName
from lakebed.metadata.kinds.updates import partition_stats_records
from lakebed.metadata.layout import COLUMN_STATS, PARTITION_STATS, GroupSizing
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.record_values import RecordType
from lakebed.metadata.records import Records
from lakebed.timeline.table_config import TableConfig
from lakebed.upkeep.grouping import grouped
from lakebed.upkeep.kind import FirstBuild, KindUpkeep, NewIndex, NewPartition, StoredTable, TableAction
from lakebed.upkeep.statistics import (
    ActionStatistics,
    FirstStatistics,
    StoredStatistics,
    as_expected,
    comparable_stats,
    has_statistics,
    stats_under_keys,
)
from lakebed.upkeep.stored_files import has_earlier_neighbour, live_after, live_files


class PartitionStatsUpkeep(KindUpkeep):
    kind = partition_stats.KIND
    needs_log_rows = True

    def of_action(self, partition: str, action: TableAction) -> Records | None:
        if COLUMN_STATS not in action.partitions:
            return None
        written, snapshot = action.shared(ActionStatistics), action.snapshot
        kinds, new = written.kinds, written.stats
        live = live_after(snapshot, action.commit)
        names = {file.name for file in written.files}
        old = [path for path, files in live.items() if files - names]
        known = {}
        if old and snapshot.metadata is not None:
            known = snapshot.metadata.column_stats(list(kinds), old, kinds)
        tight = not has_earlier_neighbour(snapshot.timeline, action.instant)
        return partition_stats_records(known, new, live, kinds, action.form, written.index_version, tight=tight)

    def check_new(self, index: NewIndex) -> None:
        config = index.config
        has_stats = COLUMN_STATS in index.partitions or config.version >= 9
        if config.version < 8 or not config.partition_fields or not has_stats:
            raise InvalidOption(
                f"table {config.name!r} cannot have partition statistics",
                hint="They are for partitioned tables from version 8 on that have column_stats.",
            )

    def initial(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        first = build.shared(FirstStatistics)
        live = live_files(build.snapshot.file_slices())
        records = partition_stats_records({}, first.stats, live, first.kinds, build.form, first.index_version)
        return grouped(name.partition, records), None

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        return comparable_stats(table.shared(StoredStatistics).of_partitions, {})

    def right_as_well(self, partition: str, table: StoredTable) -> Sequence[pa.Table]:
        """A range noted before its column got another type may say nothing any more; and real Hudi takes 0.0 to 0.0 for
        a range of a partition path, where lakebed has doubts of NaN."""
        stored = table.shared(StoredStatistics)
        sources = [stored.stats, *([stored.as_written] if stored.as_written is not None else [])]
        return [
            comparable_stats(stored.merged(stats, zero_is_known=zero_is_known), {})
            for stats in sources
            for zero_is_known in (True, False)
        ]

    def found(self, partition: str, metadata: MetadataTable, table: StoredTable) -> pa.Table:
        stored = table.shared(StoredStatistics)
        stats = metadata.partition_stats(list(stored.kinds), stored.kinds)
        return comparable_stats(as_expected(stats, stored.of_partitions), {})

    def missing_records(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        stored = table.shared(StoredStatistics)
        chosen = stats_under_keys(stored.of_partitions, rows["key"].combine_chunks())
        version, kind = stored.index_version, RecordType.PARTITION_STATS
        return Records.upserts(*stats_records.encode(chosen, table.form, index_version=version, record_type=kind))

    def is_in_every_table(self, settings: WriteSettings, config: TableConfig) -> bool:
        return has_statistics(settings, config) and _has_paths(config)

    def requested(self, settings: WriteSettings, config: TableConfig) -> IndexName | None:
        return IndexName(PARTITION_STATS) if settings.column_stats and _has_paths(config) else None


def _has_paths(config: TableConfig) -> bool:
    return config.version >= 8 and bool(config.partition_fields)
