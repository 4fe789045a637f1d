"""Keeps `partition_stats` right: ranges and counts of columns in partition paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pt

from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption
from lakebed.metadata.keys import partition_stats_keys
from lakebed.metadata.kinds import partition_stats, stats_records
from lakebed.metadata.kinds.definitions import IndexName
from lakebed.metadata.kinds.updates import partition_stats_records
from lakebed.metadata.layout import COLUMN_STATS, PARTITION_STATS, GroupSizing
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.record_values import RecordType
from lakebed.metadata.records import Records
from lakebed.properties.table_config import TableConfig
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
from lakebed.upkeep.stored_files import LiveFiles, has_earlier_neighbour, live_around, live_files


class PartitionStatsUpkeep(KindUpkeep):
    kind = partition_stats.KIND
    needs_log_rows = True

    def of_action(self, partition: str, action: TableAction) -> Records | None:
        if COLUMN_STATS not in action.partitions:
            return None
        records, metadata = self._of_files(action), action.snapshot.metadata
        dropped = action.shared(ActionStatistics).dropped
        if not dropped or metadata is None:
            return records
        gone = [partition_stats_keys(column, metadata.partitions()) for column in dropped]
        return replace(records, deleted=pa.concat_arrays([records.deleted, *gone]))

    def _of_files(self, action: TableAction) -> Records:
        written, snapshot = action.shared(ActionStatistics), action.snapshot
        kinds, new = written.kinds, written.stats
        files = live_around(snapshot, action.commit)
        widened = _widened(files, written, action)
        if widened is not None:
            return widened
        live = files.after
        names = {file.name for file in written.files}
        old = [path for path, live_names in live.items() if live_names - names]
        known = {}
        # while column statistics are being built, the ranges of old files are not known: the paths have none then
        if old and snapshot.metadata is not None and snapshot.metadata.has(COLUMN_STATS):
            known = snapshot.metadata.column_stats(list(kinds), old, kinds)
        tight = not has_earlier_neighbour(snapshot.timeline, action.instant)
        return partition_stats_records(known, new, live, kinds, action.form, written.index_version, tight=tight)

    def check_new(self, index: NewIndex) -> None:
        config = index.config
        # a metadata table that is made with it has them from version 9 on
        has_stats = COLUMN_STATS in index.partitions or (config.version >= 9 and not config.metadata_partitions)
        if config.version < 8 or not config.partition_fields or not has_stats:
            raise InvalidOption(
                f"table {config.name!r} cannot have partition statistics",
                hint="They are for partitioned tables from version 8 on that have column_stats: create that first.",
            )

    def reason_not_kept(self, partition: str, table: StoredTable) -> str | None:
        """They are made of the statistics of files."""
        has_stats = COLUMN_STATS in table.snapshot.config.metadata_partitions
        return None if has_stats else f"the table has no complete {COLUMN_STATS}"

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


def _widened(files: LiveFiles, written: ActionStatistics, action: TableAction) -> Records | None:
    """Records that widen those there are by the ranges of the new files alone: what a small write costs then does not
    grow with the files of its partition paths. None where that does not do: a file goes, a path is new, something is
    not known of a path or a new file, the partition is still being built, or real Hudi's readers would widen otherwise:
    they take bytes as signed."""
    metadata, kinds = action.snapshot.metadata, written.kinds
    if metadata is None or not metadata.has(PARTITION_STATS) or not files.only_grow or not all(files.before.values()):
        return None
    if any(pt.is_binary(kind) or pt.is_fixed_size_binary(kind) for kind in kinds.values()):
        return None
    paths = sorted(files.after)
    known = metadata.partition_stats(list(kinds), kinds, paths)
    if any(column not in known or len(known[column]) < len(paths) for column in kinds):
        return None
    added = {path: files.after[path] - files.before[path] for path in paths}
    form, version = action.form, written.index_version
    records = partition_stats_records({}, written.stats, added, kinds, form, version, tight=False)
    return None if len(records.deleted) else records


def _has_paths(config: TableConfig) -> bool:
    return config.version >= 8 and bool(config.partition_fields)
