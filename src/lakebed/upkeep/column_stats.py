"""Keeps `column_stats` right: ranges and counts of columns in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.metadata.keys import column_stats_keys, file_keys
from lakebed.metadata.kinds import column_stats
from lakebed.metadata.kinds.definitions import IndexDefinition, IndexName, load_definitions
from lakebed.metadata.kinds.stats_columns import stats_definitions
from lakebed.metadata.kinds.updates import column_stats_records
from lakebed.metadata.layout import COLUMN_STATS, GroupSizing
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.records import Records
from lakebed.model import META_COLUMNS
from lakebed.properties.table_config import TableConfig
from lakebed.schema.arrow import leaf_paths
from lakebed.slices.snapshot import Snapshot
from lakebed.upkeep.grouping import grouped
from lakebed.upkeep.kind import FirstBuild, KindUpkeep, NewPartition, Removal, StoredTable, TableAction
from lakebed.upkeep.statistics import (
    ActionStatistics,
    FirstStatistics,
    StoredStatistics,
    comparable_stats,
    has_statistics,
    stats_under_keys,
    wanted_stats,
)


class ColumnStatsUpkeep(KindUpkeep):
    kind = column_stats.KIND

    def definition(self, name: IndexName, snapshot: Snapshot, settings: WriteSettings) -> IndexDefinition | None:
        kinds = wanted_stats(snapshot.storage, snapshot.config, snapshot.schema, settings)
        return stats_definitions(list(kinds), version=snapshot.config.version).get(COLUMN_STATS)

    def of_action(self, partition: str, action: TableAction) -> Records:
        written = action.shared(ActionStatistics)
        records = column_stats_records(written.stats, action.form, written.index_version)
        metadata = action.snapshot.metadata
        if not written.dropped or metadata is None:
            return records
        # cleaning knows the columns of today: those of files that it is yet to delete go with their column
        listed = metadata.files()
        files = file_keys(listed["partition"].to_pylist(), listed["name"].to_pylist())
        gone = [column_stats_keys(column, files) for column in written.dropped]
        return replace(records, deleted=pa.concat_arrays([records.deleted, *gone]))

    def of_removal(self, partition: str, removal: Removal) -> Records:
        snapshot, files = removal.snapshot, removal.keys
        definition = load_definitions(snapshot.storage, snapshot.config).get(COLUMN_STATS)
        if definition is None:  # tables of older releases have none
            columns = [*META_COLUMNS, *(path for path, _ in leaf_paths(snapshot.schema))]
        else:  # and columns that came to the table after the index was made
            joined = wanted_stats(snapshot.storage, snapshot.config, snapshot.schema, removal.settings)
            columns = [*dict.fromkeys([*definition.source_fields, *joined])]
        return Records.deletes(pa.concat_arrays([column_stats_keys(column, files) for column in columns]))

    def initial(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        first = build.shared(FirstStatistics)
        definition = stats_definitions(list(first.kinds), version=build.snapshot.config.version).get(COLUMN_STATS)
        records = column_stats_records(first.stats, build.form, first.index_version)
        return grouped(name.partition, records), definition

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        stored = table.shared(StoredStatistics)
        return comparable_stats(stored.stats, {f.name: f.partition for f in stored.files})

    def right_as_well(self, partition: str, table: StoredTable) -> Sequence[pa.Table]:
        """A range noted before its column got another type may say nothing any more; and real Hudi notes none of a file
        without rows."""
        stored = table.shared(StoredStatistics)
        paths = {f.name: f.partition for f in stored.files}
        with_rows = {c: t.filter(pc.greater(t["value_count"], 0)) for c, t in stored.stats.items()}
        found = [comparable_stats(with_rows, paths)]
        return found if stored.as_written is None else [comparable_stats(stored.as_written, paths), *found]

    def found(self, partition: str, metadata: MetadataTable, table: StoredTable) -> pa.Table:
        kinds = table.shared(StoredStatistics).kinds
        stats = metadata.column_stats(list(kinds), None, kinds)
        # those of log files cannot be told without the rows that they change
        return comparable_stats({c: t.filter(pc.ends_with(t["file_name"], ".parquet")) for c, t in stats.items()}, {})

    def missing_records(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        stored = table.shared(StoredStatistics)
        chosen = stats_under_keys(stored.stats, rows["key"].combine_chunks())
        return column_stats_records(chosen, table.form, stored.index_version)

    def is_in_every_table(self, settings: WriteSettings, config: TableConfig) -> bool:
        return has_statistics(settings, config)

    def requested(self, settings: WriteSettings, config: TableConfig) -> IndexName | None:
        return IndexName(COLUMN_STATS) if settings.column_stats else None
